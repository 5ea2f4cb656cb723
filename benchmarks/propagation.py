"""What does propagation with explanation cost beside Shardy's own passes?

The program is `fsdp-transformer` on a 16x16 mesh. All is timed in one process, in turns. What
is C++ is told apart: Shardy's passes, and XLA's conversion of StableHLO to HLO and back, without
which the order of ops, and so the result, is not XLA's.
"""

import argparse
import gc
import io
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table


def timed(make: Callable[[], Any], into: list[float]) -> Any:
    start = time.perf_counter()
    made = make()
    into.append(time.perf_counter() - start)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--layers", type=int, default=80)
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    os.environ["JAX_PLATFORMS"] = "cpu"
    gc.set_threshold(200_000, 50, 1_000)  # as the command line does, see child.py
    from sdyscope import targets
    from sdyscope.analysis.explain import Explainer, completeness
    from sdyscope.inspection import Inspection
    from sdyscope.stages import compat
    from sdyscope.stages.propagate import import_from, propagate, propagate_module
    from sdyscope.stages.tags import copy

    settings = {"layers": asked.layers, "batch": 256, "heads": 16}
    program = targets.resolve("fsdp-transformer", mesh={"fsdp": 16, "model": 16}, settings=settings)
    inspection = Inspection(program, ("shardy",))
    lowered, graph = inspection.lowered["shardy"], inspection.graph("shardy")
    annotations = inspection.annotations("shardy")

    def convert() -> bytes:
        file = io.BytesIO()
        lowered.module.operation.write_bytecode(file)
        with lowered.context:
            return compat.through_hlo(file.getvalue())

    names = (
        "XLA's conversion",
        "Shardy's passes",
        "propagate",
        "explain: set up",
        "explain: a value",
    )
    times: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(asked.runs):
        timed(convert, times["XLA's conversion"])
        imported = import_from(lowered, copy(lowered.module))
        timed(lambda module=imported: propagate_module(module), times["Shardy's passes"])
        found = timed(lambda: propagate(lowered, graph), times["propagate"])
        explainer = timed(
            lambda found=found: Explainer(found, graph, annotations), times["explain: set up"]
        )
        last = next(reversed(found.values))
        timed(
            lambda explainer=explainer, last=last: explainer.explain(last),
            times["explain: a value"],
        )
    explained = completeness(found, graph, annotations)
    table = Table(
        title=f"{asked.layers} layers: {len(graph):,} ops, {len(found.steps):,} steps, "
        f"{explained.explained:,} of {explained.total:,} axes explained"
    )
    table.add_column("what")
    table.add_column("seconds", justify="right")
    table.add_column("against Shardy's passes", justify="right")
    table.add_column("against all of the C++", justify="right")
    medians = {name: statistics.median(found) for name, found in times.items()}
    passes = medians["Shardy's passes"]
    compiler = passes + medians["XLA's conversion"]
    for name, median in medians.items():
        row = (f"{median:.2f}", f"{median / passes:.2f}", f"{median / compiler:.2f}")
        table.add_row(name, *row)
    whole = medians["propagate"] + medians["explain: set up"] + medians["explain: a value"]
    row = (f"{whole:.2f}", f"{whole / passes:.2f}", f"{whole / compiler:.2f}")
    table.add_row("propagate and explain", *row, style="bold")
    Console().print(table)


if __name__ == "__main__":
    main()
