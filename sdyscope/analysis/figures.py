"""Figures of a compiled program, by names that users write: `comms.bytes`, `memory.total`.

Each is a number of one device and one step, of which more is worse.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from sdyscope.analysis.collectives.totals import Collectives
from sdyscope.analysis.cost.cost import Cost
from sdyscope.facts.compiled import Compiled
from sdyscope.facts.traffic import KINDS, Tally
from sdyscope.facts.versions import FigureUnit

Figures: TypeAlias = Mapping[str, float]
"""By name; one that is not known is not there."""


#: The figures that every program has, in the order in which they are told. Those of a kind of
#: collective (`comms.all-gather.bytes`) and of a mesh axis (`comms.fsdp.count`) are beside these.
FIGURES: Final[Mapping[str, FigureUnit]] = {
    "comms.bytes": "bytes",
    "comms.count": "count",
    "comms.tensors": "count",
    "rematerializations": "count",
    "memory.total": "bytes",
    "memory.arguments": "bytes",
    "memory.results": "bytes",
    "memory.temporaries": "bytes",
    "memory.peak": "bytes",
    "cost.seconds": "seconds",
    "cost.flops": "FLOPs",
    "cost.bytes": "bytes",
    "compiles": "count",
}

#: Those of which more makes a program worse. The others say what of: a compiler that fuses
#: otherwise counts other operations and accesses, which alone is no reason to hold a release back.
DECISIVE: Final = (
    "comms.bytes",
    "comms.count",
    "rematerializations",
    "memory.total",
    "memory.peak",
    "cost.seconds",
    "compiles",
)


#: Bytes under two partitioners differ notably from this factor on.
_NOTABLE: Final = 1.1


def differ_notably(count: float, other: float) -> bool:
    """Whether one partitioner makes a program notably worse than the other, by one figure."""
    few, many = sorted((count, other))
    return many > few > 0 and many >= few * _NOTABLE


def unit_of(name: str) -> FigureUnit:
    """What a figure counts."""
    if name in FIGURES:
        return FIGURES[name]
    return "bytes" if name.endswith(".bytes") else "count"


def figures_of(
    collectives: Collectives | None, compiled: Compiled | None, cost: Cost | None
) -> dict[str, float]:
    """The figures of a compiled program.

    Args:
        collectives: its collectives; None where they are not known.
        compiled: the program; None where it was not compiled.
        cost: what a step costs; None where it is not known.
    """
    memory = None if compiled is None else compiled.memory
    figures: dict[str, float] = {}
    if collectives is not None:
        figures |= _tally("comms", [collectives.total])
        figures["comms.tensors"] = collectives.total.tensors
        figures["rematerializations"] = len(collectives.rematerializations)
        for kind in KINDS:
            figures |= _tally(f"comms.{kind}", [collectives.by_kind.get(kind, Tally())])
        for axis in () if collectives.mesh is None else collectives.mesh.shape:
            # Those over several axes count with each of them.
            over = [
                axes_tally.tally
                for axes_tally in collectives.by_axes
                if any(ref.name == axis for ref in axes_tally.axes or ())
            ]
            figures |= _tally(f"comms.{axis}", over)
    if memory is not None:
        figures |= {
            "memory.arguments": memory.arguments,
            "memory.results": memory.results,
            "memory.temporaries": memory.temporaries,
            "memory.total": memory.total - memory.generated_code,
        }
        # That of CPUs leaves temporaries out, and TPUs tell none besides.
        on_cpu = compiled is None or compiled.platform in (None, "cpu")
        if memory.peak and not on_cpu:
            figures["memory.peak"] = memory.peak
    if cost is not None:
        figures |= {"cost.flops": cost.compute.flops, "cost.bytes": cost.memory.bytes}
        if cost.sequential is not None:
            figures["cost.seconds"] = cost.sequential
    return figures


def _tally(name: str, tallies: Iterable[Tally]) -> dict[str, float]:
    every = list(tallies)
    return {
        f"{name}.bytes": sum(tally.sent for tally in every),
        f"{name}.count": sum(tally.count for tally in every),
    }
