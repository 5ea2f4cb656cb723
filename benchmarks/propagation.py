"""What does propagation with explanation cost beside Shardy's own passes?

The program is `fsdp-transformer` on a 16x16 mesh. All is timed in one process, in turns, in CPU
seconds, which other processes disturb less than the clock, and the least of the runs counts. What
is the compiler's is told apart: Shardy's passes, and XLA's conversion of StableHLO to HLO and back
with what XLA imports behind it, without which the order of ops, and so the result, is not XLA's.
Ours is everything from the lowered module to the explanation of one value, the compiler's work
included. Origins and steps come from a second run of the passes, in a process of its own that the
last row has.
"""

import argparse
import gc
import io
import os
import resource
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from sdyscope.terminal.table import Column, Table, number, print_table

_Answer = TypeVar("_Answer")


def timed(make: Callable[[], _Answer], into: list[float]) -> _Answer:
    start = time.process_time()
    answer = make()
    into.append(time.process_time() - start)
    return answer


def of_children() -> float:
    """CPU seconds of the processes that this one started, and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--layers", type=int, default=80)
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    os.environ["JAX_PLATFORMS"] = "cpu"
    gc.set_threshold(2_000_000, 50, 1_000)  # as the command line does, see child.py
    from sdyscope.analysis.propagation.decided import Decisions
    from sdyscope.analysis.propagation.explain import Explainer
    from sdyscope.inspection import Inspection
    from sdyscope.process import progress
    from sdyscope.stages.align.tags import copy
    from sdyscope.stages.conversion import through_hlo
    from sdyscope.stages.propagated import debug_info
    from sdyscope.stages.propagated.passes import propagation_passes, run
    from sdyscope.stages.propagated.propagate import import_from, propagate
    from sdyscope.targets import resolve_program

    # As in a command's process, which runs the passes itself.
    progress.leave_trail(os.devnull)
    settings = {"layers": asked.layers, "batch": 256, "heads": 16}
    program = resolve_program("fsdp-transformer", mesh={"fsdp": 16, "model": 16}, settings=settings)
    inspection = Inspection(program, ("shardy",))
    lowered, graph = inspection.lowered["shardy"], inspection.graph("shardy")
    annotations = inspection.annotations("shardy")

    def convert() -> bytes:
        file = io.BytesIO()
        lowered.module.operation.write_bytecode(file)
        with lowered.context:
            return through_hlo(file.getvalue())

    def shardy(module: Any) -> None:
        run(module, *propagation_passes(module.context))

    names = ("conversion", "import", "passes", "propagate", "set up", "explain", "second run")
    times: dict[str, list[float]] = {name: [] for name in names}
    steps = 0
    for _ in range(asked.runs):
        timed(convert, times["conversion"])
        copied = copy(lowered.module)
        imported = timed(partial(import_from, lowered, copied), times["import"])
        timed(partial(shardy, imported), times["passes"])
        del copied, imported
        propagated = timed(partial(propagate, lowered, graph), times["propagate"])
        explainer = Explainer(Decisions(propagated, graph, annotations))
        timed(partial(getattr, explainer, "obstacles"), times["set up"])
        last = [*propagated.values][-1]
        before = of_children()
        timed(partial(explainer.explain, last), times["explain"])
        steps = len(propagated.steps)
        debug_info._worker._end()
        times["second run"].append(of_children() - before)
    least = {name: min(seconds) for name, seconds in times.items()}
    passes = least["passes"]
    compiler = least["import"] + passes
    whole = least["propagate"] + least["set up"] + least["explain"]
    rows = {
        "Shardy's passes": passes,
        "XLA's conversion": least["conversion"],
        "conversion and import": least["import"],
        "conversion, import, passes": compiler,
        "propagate": least["propagate"],
        "explain: set up": least["set up"],
        "explain: a value": least["explain"],
        "propagate and explain": whole,
        "second run, for origins and steps": least["second run"],
    }
    headers = ("CPU seconds", "/ Shardy's passes", "/ conversion, import, passes")
    lines = (
        (name, f"{best:.2f}", f"{best / passes:.2f}", f"{best / compiler:.2f}")
        for name, best in rows.items()
    )
    title = f"{asked.layers} layers: {len(graph):,} ops, {steps:,} steps"
    print_table(Table((Column("what"), *map(number, headers)), tuple(lines), title=title))


if __name__ == "__main__":
    main()
