"""What does `sdyscope record` add to the run time of a training script?

The script trains `fsdp-transformer` on 8 virtual CPU devices: it compiles one train step and some
40 functions of JAX, then runs steps until its time is over, which is not recorded and can't cost
anything. What is added is therefore told in seconds, and of a script of a minute as a share. CPU
seconds of all processes are counted, the recorder's own included; the runs take turns.
"""

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from sdyscope.terminal.table import Column, Table, number, print_table

SCRIPT = """
import sys
import jax
jax.config.update("jax_num_cpu_devices", 8)
import jax.numpy as jnp
from sdyscope.targets import resolve_program

program = resolve_program(
    "fsdp-transformer", settings={"layers": int(sys.argv[1])}, devices=jax.devices()
)
values, _ = program.inputs()
put = lambda value, asked: jax.device_put(jnp.asarray(value), asked.sharding)
params, state, batch = jax.tree.map(put, values, program.args)
for step in range(int(sys.argv[2])):
    params, state, loss = program.fun(params, state, batch)
    loss.block_until_ready()  # devices that share few cores must not wait for each other too long
print(float(loss), file=sys.stderr)
"""


def cpu_seconds(command: list[str], environment: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, env=environment, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--runs", type=int, default=5)
    asked = parser.parse_args()
    tried = ("alone", "record", "record --partitioner both", "record --propagate")
    times: dict[str, list[float]] = {what: [] for what in tried}
    stored: dict[str, str] = {}
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    with tempfile.TemporaryDirectory() as name:
        script, folder = Path(name, "train.py"), Path(name, "runs")
        script.write_text(SCRIPT)
        command = [sys.executable, str(script), str(asked.layers), str(asked.steps)]
        for _ in range(asked.runs):
            for what, seconds in times.items():
                words = what.split()
                record = [sys.executable, "-m", "sdyscope", *words, "-o", str(folder), "--"]
                whole = command if what == "alone" else [*record, *command]
                seconds.append(cpu_seconds(whole, environment))
                if folder.exists():
                    files = list((folder / "modules").iterdir())
                    size = sum(file.stat().st_size for file in files)
                    stored[what] = f"{len(files)} modules, {size / 2**20:.1f} MiB"
                    shutil.rmtree(folder)
    alone = statistics.median(times["alone"])
    headers = ("seconds", "added", "of 60 s", "stored")
    rows = []
    for what, seconds in times.items():
        median = statistics.median(seconds)
        added = median - alone
        figures = ("", "") if what == "alone" else (f"{added:.2f}", f"{added / 60:.1%}")
        rows.append((what, f"{median:.2f}", *figures, stored.get(what, "")))
    title = f"{asked.layers} layers, {asked.steps} steps: CPU seconds, median of {asked.runs}"
    print_table(Table((Column("the script"), *map(number, headers)), tuple(rows), title=title))


if __name__ == "__main__":
    main()
