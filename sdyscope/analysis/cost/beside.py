"""What a device computes next to its collectives.

Where devices share the cores of a host, as virtual CPU devices do, a collective takes longer the
more is computed next to it: while one group meets, devices of others still compute, or do so again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sdyscope.analysis.cost.work import instruction_work
from sdyscope.facts.work import Work
from sdyscope.hlo import HloModule


def work_beside(module: HloModule, collectives: Collection[str]) -> Mapping[str, Sequence[Work]]:
    """By collective, what is computed since the one before it, and until the next.

    Args:
        module: the program, whose instructions are in order of time.
        collectives: names of the instructions that are collectives.
    """
    work = instruction_work(module)
    beside: dict[str, list[Work]] = {}
    for computation in module.computations.values():
        if not any(name in collectives for name in computation.instructions):
            continue
        last, since = "", list[Work]()
        for instruction in computation.instructions.values():
            if instruction.name in collectives:
                beside.get(last, []).extend(since)
                beside[instruction.name] = since
                last, since = instruction.name, []
            elif (each := work(computation, instruction)).flops or each.bytes:
                since.append(each)
        beside.get(last, []).extend(since)
    return beside
