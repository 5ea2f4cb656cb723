"""How long does a user wait? Whole commands from a cold start, beside Python's own start."""

import argparse
import statistics
import subprocess
import sys
import time

from sdyscope.terminal.table import Column, Table, number, print_table

COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "python -c 'import jax'": [sys.executable, "-c", "import jax"],
    **{
        f"sdyscope {words}": [sys.executable, "-m", "sdyscope", *words.split()]
        for words in (
            "--help",
            "show mlp",
            "check mlp",
            "diff mlp",
            "propagate mlp",
            "memory mlp --partitioner both",
            "comms mlp",
            "diff mlp --at compiled",
            "check fsdp-transformer",
        )
    },
}


def seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5)
    asked = parser.parse_args()
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(asked.runs):
        for name, command in COMMANDS.items():
            times[name].append(seconds(command))
    rows = []
    for name, taken in times.items():
        row = (min(taken), statistics.median(taken), max(taken))
        rows.append((name, *(f"{value:.2f}" for value in row)))
    columns = (Column("command"), number("least"), number("median"), number("most"))
    title = f"Seconds of wall clock, {asked.runs} runs in turns"
    print_table(Table(columns, tuple(rows), title=title))


if __name__ == "__main__":
    main()
