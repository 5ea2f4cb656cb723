"""How many candidates a minute does a search predict, how far off are they, and what does it find?

Each search runs with its defaults. What is predicted and what XLA's partitioner makes of the same
candidates are compared over those that the search had partitioned: the ones that promised most, for
which a prediction is at its worst.
"""

import argparse
import gc
import os
import statistics

from sdyscope.terminal.table import Column, Table, number, print_table

#: A name, the program, its settings and its mesh.
PROGRAMS: tuple[tuple[str, str, dict[str, str], dict[str, int] | None], ...] = (
    ("mlp", "mlp", {}, None),
    ("2 layers", "fsdp-transformer", {}, None),
    ("2 layers, unconstrained", "fsdp-transformer", {"constrained": "false"}, None),
    ("scan of 8 layers", "fsdp-transformer", {"layers": "8", "scan": "true"}, None),
    (
        "2 layers, 32,768 devices",
        "fsdp-transformer",
        {"batch": "512", "heads": "64", "d_model": "1024"},
        {"fsdp": 512, "model": 64},
    ),
)


def mebibytes(count: float) -> str:
    return f"{count / 2**20:.2f}"


def cpu_seconds() -> float:
    """Of this process and its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--budget", type=int, default=300)
    parser.add_argument("--checks", type=int, default=24)
    parser.add_argument("--only", help="a part of the names of what to search")
    asked = parser.parse_args()
    os.environ["JAX_PLATFORMS"] = "cpu"
    gc.set_threshold(2_000_000, 50, 1_000)  # as the command line does, see child.py
    from sdyscope.analysis.search.strategy import Budget
    from sdyscope.inspection import Inspection
    from sdyscope.targets import resolve_program

    headers = (
        "predicted",
        "a minute",
        "CPU ms each",
        "checked",
        "by XLA / predicted",
        "sends now",
        "best",
        "holds now",
        "best",
        "changes",
    )
    rows = []
    for name, target, settings, mesh in PROGRAMS:
        if asked.only and asked.only not in name:
            continue
        program = resolve_program(target, mesh=mesh, settings=settings)
        inspection = Inspection(program, ("shardy",))
        began = cpu_seconds()
        search = inspection.search(budget=Budget(asked.budget), checks=asked.checks, compiles=0)
        spent = cpu_seconds() - began
        off = [
            candidate.partitioned.sent / candidate.prediction.sent
            for candidate in search.partitioned
            if candidate.partitioned is not None and candidate.prediction.sent
        ]
        row = (
            name,
            f"{search.tried:,}",
            f"{search.a_minute:,.0f}",
            f"{1000 * spent / search.tried:.0f}",
            f"{len(search.partitioned):,}",
            f"{min(off):.2f} to {max(off):.2f}, median {statistics.median(off):.2f}"
            if off
            else "-",
            mebibytes(search.start.known.sent),
            mebibytes(search.best.known.sent),
            mebibytes(search.start.known.held),
            mebibytes(search.best.known.held),
            f"{len(search.best.changes)}",
        )
        rows.append(row)
    title = "MiB that a device sends in a step; CPU times with those of children"
    print_table(Table((Column("program"), *map(number, headers)), tuple(rows), title=title))


if __name__ == "__main__":
    main()
