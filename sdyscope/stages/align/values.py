"""From an alignment to the propagated value of every value of the lowered module."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TypeAlias, get_args

from sdyscope.errors import ConversionError
from sdyscope.facts.propagated import Fate, Origins, PropagatedValue, ValueId
from sdyscope.facts.remarks import Remark
from sdyscope.graph import Op, OpGraph, Sharding
from sdyscope.graph.collection import no_collection
from sdyscope.stages.align.align import Alignment
from sdyscope.values.convert import to_placement
from sdyscope.values.mesh import Mesh
from sdyscope.values.placement import Placement
from sdyscope.values.propagation_edges import OriginSharding
from sdyscope.values.sharding import TensorSharding
from sdyscope.values.tiling import TupleSharding

_Decided: TypeAlias = tuple[
    Sharding | None, Placement | None, Callable[[], Origins] | None, tuple[ValueId, ...]
]
"""Of a value of the partitioner's module: what was decided, and the lowered module's that it is."""


@no_collection()
def aligned_values(
    alignment: Alignment,
    lowered: OpGraph,
    propagated: OpGraph,
    num_partitions: int,
    origins: Callable[[ValueId, Sharding | None], Origins] | None = None,
) -> tuple[Mapping[ValueId, PropagatedValue], Mapping[Fate, int], tuple[Remark, ...]]:
    """Every value of ``lowered`` with what became of it, how many have each fate, and notes.

    A value of a function that is called several times is what it is at the first call at which it
    is there; where it is elsewhere at others, it has its placement at each, and a note says how
    many such values there are. What main returns has the sharding that it is returned with, which
    can be another than that of the value that is returned.

    Args:
        alignment: where each value is.
        lowered: op graph of the lowered module.
        propagated: op graph of the partitioner's module.
        num_partitions: how many devices there are.
        origins: where the axes on a value of ``propagated`` come from, given its sharding; asked
            when a value's origins are.
    """
    placements = _Placements(propagated, num_partitions)
    chosen: list[tuple[ValueId, ValueId | None]] = []
    together: dict[ValueId, list[ValueId]] = {}
    calls: dict[ValueId, tuple[Placement | None, ...]] = {}
    at_calls: dict[ValueId, tuple[ValueId | None, ...]] = {}
    uncalled = split = 0
    counterparts, copies = alignment.counterparts, alignment.copies
    not_partitioned = alignment.not_partitioned
    for value in _values(lowered):
        places = counterparts.get(value)
        if places is None:
            uncalled += 1
            chosen.append((value, None))
            continue
        there = [place for place in places if place is not None]
        if not there or value in not_partitioned:
            chosen.append((value, None))
            continue
        at = there[0]
        chosen.append((value, at))
        if at in together:
            together[at].append(value)
        else:
            together[at] = [value]
        if value[0] in copies:
            split += copies[value[0]] > len(there)
        if len(there) > 1 and len(set(there)) > 1:
            at_calls[value] = tuple(places)
            placed = tuple(map(placements, there))
            if len(set(placed)) > 1:
                calls[value] = placed

    decided: dict[ValueId, _Decided] = {}
    for at, same in together.items():
        sharding = sharding_of(propagated, at)
        reads = None if origins is None else partial(origins, at, sharding)
        decided[at] = (sharding, placements(at, sharding), reads, tuple(same))
    values: dict[ValueId, PropagatedValue] = {}
    for value, place in chosen:
        if place is None:
            gone: Fate = "not partitioned" if value in not_partitioned else "folded"
            values[value] = PropagatedValue(value, gone)
            continue
        sharding, placement, read, became = decided[place]
        node, number = place
        fate: Fate = "merged" if len(became) > 1 else "kept"
        values[value] = PropagatedValue(
            value,
            fate,
            sharding,
            placement,
            node,
            number,
            became,
            calls.get(value, ()) if calls else (),
            at_calls.get(value, ()) if at_calls else (),
            read,
        )
    for result, after in zip(lowered.results(), propagated.results(), strict=False):
        values[result.id, 0] = _returned(result, after, propagated, placements, origins)
    counted = Counter(value.fate for value in values.values())
    counts: dict[Fate, int] = {fate: counted[fate] for fate in get_args(Fate)}
    return values, counts, tuple(_notes(len(calls), uncalled, split))


def _returned(
    result: Op,
    after: Op,
    propagated: OpGraph,
    placements: _Placements,
    origins: Callable[[ValueId, Sharding | None], Origins] | None,
) -> PropagatedValue:
    """A result of main: with its own sharding, else with that of the value that is returned."""
    at = (after.id, 0)
    if after.shardings[0] is None:
        at = propagated.returned.get(after.result, at)
    sharding = sharding_of(propagated, at)
    value = (result.id, 0)
    reads = None if origins is None else partial(_origins_of, after, at, origins, sharding)
    return PropagatedValue(
        value,
        "kept",
        sharding,
        placements(at, sharding),
        after.id,
        0,
        (value,),
        read_origins=reads,
    )


def _origins_of(
    result: Op,
    at: ValueId,
    origins: Callable[[ValueId, Sharding | None], Origins],
    sharding: Sharding | None,
) -> Origins:
    """Where the axes on a result of main come from; by ``self`` its own annotation is meant."""
    own = OriginSharding("output", result.result) if at == (result.id, 0) else None
    return tuple(
        (axis, own if own is not None and origin.type == "self" else origin)
        for axis, origin in origins(at, sharding)
    )


def _values(graph: OpGraph) -> Iterator[ValueId]:
    for op in graph.without_results():
        if len(op.types) == 1:
            yield op.id, 0
            continue
        for result in range(len(op.types)):
            yield op.id, result


def _notes(differing: int, uncalled: int, split: int) -> Iterator[Remark]:
    if differing:
        yield Remark("several calls", count=differing)
    if split:
        yield Remark("several uses", count=split)
    if uncalled:
        yield Remark("never called", count=uncalled)


class _Placements:
    """Placements of a graph's values, each distinct sharding converted once a rank."""

    def __init__(self, graph: OpGraph, num_partitions: int) -> None:
        self.graph = graph
        self.num_partitions = num_partitions
        self.known: dict[tuple[int, int], Placement | None] = {}
        # Kept alive, since their identity stands for them.
        self.shardings: list[Sharding] = []

    def __call__(self, value: ValueId, sharding: Sharding | None = None) -> Placement | None:
        if sharding is None:
            sharding = sharding_of(self.graph, value)
        shape = self.graph.ops[value[0]].types[value[1]].shape
        if sharding is None or isinstance(sharding, str) or shape is None:
            return None
        key = (id(sharding), len(shape))
        if key in self.known:
            return self.known[key]
        self.shardings.append(sharding)
        placement = self.known[key] = self.placement(sharding, len(shape))
        return placement

    def placement(self, sharding: Sharding, rank: int) -> Placement | None:
        if isinstance(sharding, str):
            return None
        if isinstance(sharding, TupleSharding):
            if len(sharding.elements) != 1:
                return None
            sharding = sharding.elements[0]
        mesh: Mesh | str | None = None
        if isinstance(sharding, TensorSharding):
            mesh = sharding.mesh
            mesh = mesh if isinstance(mesh, Mesh) else self.graph.meshes.get(mesh)
        try:
            known = mesh if isinstance(mesh, Mesh) else None
            return to_placement(sharding, rank, known, self.num_partitions)
        except ConversionError:
            return None


def sharding_of(graph: OpGraph, value: ValueId) -> Sharding | None:
    """The sharding of a value of a module after propagation, of block arguments too.

    A loop's arguments are sharded as its results. Those of a manual computation are what the
    operands' shardings leave of them inside.
    """
    node, result = value
    op = graph.ops[node]
    if op.argument < 0 and op.shardings[result] is not None:
        return op.shardings[result]
    if op.kind == "stablehlo.get_tuple_element":
        ((owner, edge),) = graph.operands(op)
        whole, index = owner.shardings[edge.result], op.attributes["index"]
        parts = whole.elements if isinstance(whole, TupleSharding) else ()
        return parts[index] if index < len(parts) else None
    if not op.is_argument or op.parent is None:
        return op.shardings[result]
    owner = graph.ops[op.parent]
    if owner.kind in ("stablehlo.while", "mhlo.while"):
        return owner.shardings[op.argument] if op.argument < len(owner.shardings) else None
    if owner.kind == "sdy.manual_computation":
        given = owner.in_shardings
        return given[op.argument].without(owner.manual_axes) if given else None
    return op.shardings[result]
