"""Two propagations of one program, or of two: what is sharded differently, and where it begins.

A list of a hundred values says little. A difference *begins* at a value that is sharded differently
although everything it is computed from is sharded alike; the values computed from it that differ,
too, *follow* from it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sdyscope.analysis.naming.pairs import value_pairs
from sdyscope.analysis.naming.resolve import NamedValue, named_value
from sdyscope.errors import ConversionError
from sdyscope.facts.propagated import Propagated, PropagatedValue, ValueId
from sdyscope.graph import OpGraph
from sdyscope.values.dtypes import num_bytes
from sdyscope.values.placement import Placement

if TYPE_CHECKING:
    import networkx

__all__ = ["DifferentValue", "Group", "PropagatedDiff", "PropagatedSide", "propagated_diff"]


@dataclass(frozen=True)
class PropagatedSide:
    """One of the two.

    Attributes:
        label: what to call it: a partitioner, a program.
        graph: op graph of its lowered module.
        propagated: its propagation.
    """

    label: str
    graph: OpGraph
    propagated: Propagated


@dataclass(frozen=True, slots=True)
class DifferentValue:
    """A value that is sharded differently.

    Attributes:
        value: its names, in the first module.
        a: which value of the first module.
        b: which value of the second.
        place_a: where it is on the first side.
        place_b: where it is on the second.
        bytes: size of the whole tensor.
        bytes_a: bytes a device holds on the first side.
        bytes_b: bytes a device holds on the second.
    """

    value: NamedValue
    a: ValueId
    b: ValueId
    place_a: Placement
    place_b: Placement
    bytes: int
    bytes_a: int
    bytes_b: int


@dataclass(frozen=True, slots=True)
class Group:
    """Differences that begin at one value.

    Attributes:
        begins: the value whose inputs are sharded alike and which is not.
        inputs: names of what its op is computed from.
        follows: the different values computed from it, itself left out, in program order.
        bytes: size of all these tensors, the first included.
        bytes_a: bytes of them that a device holds on the first side.
        bytes_b: bytes of them that a device holds on the second.
    """

    begins: DifferentValue
    inputs: tuple[str, ...]
    follows: tuple[DifferentValue, ...]
    bytes: int
    bytes_a: int
    bytes_b: int

    @property
    def count(self) -> int:
        """How many values differ from here on, the first included."""
        return 1 + len(self.follows)


@dataclass(frozen=True)
class PropagatedDiff:
    """What two propagations do differently.

    Attributes:
        label_a: the first side.
        label_b: the second side.
        groups: differences by where they begin, the largest tensors first.
        same: how many values are sharded alike.
        not_comparable: how many values of the first module were not compared, by reason.
        notes: what both sides say about themselves.
    """

    label_a: str
    label_b: str
    groups: tuple[Group, ...]
    same: int
    not_comparable: Mapping[str, int]
    notes: tuple[str, ...] = ()

    @property
    def different(self) -> int:
        """How many values are sharded differently."""
        return sum(group.count for group in self.groups)

    @property
    def compared(self) -> int:
        """How many values were compared."""
        return self.same + self.different

    @property
    def is_same(self) -> bool:
        """Whether every value that was compared is sharded alike."""
        return not self.groups


def propagated_diff(
    a: PropagatedSide, b: PropagatedSide, *, by_name: bool = False
) -> PropagatedDiff:
    """Compares two propagations, value by value.

    Args:
        a: the first. What follows from what is read in its lowered module.
        b: the second.
        by_name: the two are different programs, whose arguments are the same when their pytree
            paths are; otherwise one program under two partitioners, or with other annotations.
    """
    comparison = _Comparison(a, b, value_pairs(a.graph, b.graph, by_name=by_name))
    return comparison.result()


class _Comparison:
    def __init__(
        self, a: PropagatedSide, b: PropagatedSide, pairs: Mapping[ValueId, ValueId]
    ) -> None:
        self.a = a
        self.b = b
        self.pairs = pairs
        self.num_devices = _num_devices(a.propagated)
        self.same: set[ValueId] = set()
        self.different: dict[ValueId, DifferentValue] = {}
        self.not_comparable: Counter[str] = Counter()

    def result(self) -> PropagatedDiff:
        for value in self.a.propagated.values.values():
            self.compare(value)
        groups = sorted(self.groups(), key=lambda group: (-group.bytes, -group.count))
        notes = tuple(
            f"{side.label}: {note}" for side in (self.a, self.b) for note in side.propagated.notes
        )
        return PropagatedDiff(
            self.a.label,
            self.b.label,
            tuple(groups),
            len(self.same),
            dict(self.not_comparable.most_common()),
            notes,
        )

    # One value.

    def compare(self, ours: PropagatedValue) -> None:
        other = self.pairs.get(ours.id)
        theirs = None if other is None else self.b.propagated.values.get(other)
        reason = ""
        if theirs is None:
            reason = f"{self.b.label}'s module has no such value"
        elif ours.fate == "not partitioned" or theirs.fate == "not partitioned":
            reason = "values of this kind have no sharding"
        elif ours.node is None or theirs.node is None:
            label = self.a.label if ours.node is None else self.b.label
            reason = f"the compiler folded the value away under {label}"
        else:
            reason = self.compare_placements(ours, theirs)
        if reason:
            self.not_comparable[reason] += 1

    def compare_placements(self, ours: PropagatedValue, theirs: PropagatedValue) -> str:
        type_ = self.a.graph.ops[ours.id[0]].types[ours.id[1]]
        if type_.shape is None or None in type_.shape:
            return "the value is no tensor of a fixed shape"
        shape = tuple(size for size in type_.shape if size is not None)
        places = [_placement(value, len(shape), self.num_devices) for value in (ours, theirs)]
        for place, side in zip(places, (self.a, self.b), strict=True):
            if place is None:
                return f"{side.label}'s sharding has no placement"
        one, two = (place.without_manual for place in places if place is not None)
        calls = [call_placements(v, len(shape), self.num_devices) for v in (ours, theirs)]
        if one == two and calls[0] == calls[1]:
            self.same.add(ours.id)
            return ""
        try:
            sizes = [place.bytes_per_device(shape, type_.dtype) for place in (one, two)]
            whole = num_bytes(math.prod(shape), type_.dtype)
        except ConversionError:
            sizes, whole = [0, 0], 0
        self.different[ours.id] = DifferentValue(
            named_value(self.a.graph, ours.id),
            ours.id,
            theirs.id,
            one,
            two,
            whole,
            *sizes,
        )
        return ""

    # Where differences begin.

    def groups(self) -> list[Group]:
        """Every different value, under the one that it follows from.

        A value that follows from several is put under the one that most follows from.
        """
        if not self.different:
            return []
        import networkx  # Not above, as it takes long, and every command gets here.

        flow = self.differing_flow()
        condensed = networkx.condensation(flow)
        order = list(networkx.topological_sort(condensed))
        begins: list[int] = []
        from_: dict[int, int] = {}  # component -> bits of the beginnings that it follows from
        for component in order:
            bits = 0
            for before in condensed.predecessors(component):
                bits |= from_[before]
            if bits == 0 and self.differing(condensed.nodes[component]["members"]):
                bits = 1 << len(begins)
                begins.append(component)
            from_[component] = bits
        reach = [0] * len(begins)
        sizes = [len(self.differing(condensed.nodes[c]["members"])) for c in order]
        for component, size in zip(order, sizes, strict=True):
            for index in _bits(from_[component]) if size else ():
                reach[index] += size
        chosen: dict[int, list[ValueId]] = {index: [] for index in range(len(begins))}
        for component in order:
            members = self.differing(condensed.nodes[component]["members"])
            if members:
                best = max(_bits(from_[component]), key=lambda index: (reach[index], -index))
                chosen[best] += members
        return [
            self.group(self.differing(condensed.nodes[begins[index]]["members"])[0], members)
            for index, members in chosen.items()
        ]

    def differing(self, members: set[ValueId]) -> list[ValueId]:
        return sorted(value for value in members if value in self.different)

    def differing_flow(self) -> networkx.DiGraph[ValueId]:
        """What follows from what, among the values that differ or can't be compared.

        A value that can't be compared may carry a difference on, so it is passed through. What is
        computed from constants alone is sharded as its uses want it, so it follows from them.
        """
        import networkx

        flow: networkx.DiGraph[ValueId] = networkx.DiGraph()
        flow.add_nodes_from(self.different)
        before = {value: inputs(self.a.graph, value) for value in self.a.propagated.values}
        constant = self.constants(before)
        for value in self.a.propagated.values:
            if value in self.same:
                continue
            for one in before[value]:
                if one in constant:
                    flow.add_edge(value, one)
                elif one not in self.same:
                    flow.add_edge(one, value)
        flow.remove_nodes_from(self.same)
        return flow

    def constants(self, before: Mapping[ValueId, list[ValueId]]) -> set[ValueId]:
        """The values that are computed from constants alone."""
        main = self.a.graph.main
        given = () if main is None else (argument.node for argument in main.arguments)
        varying = {(node, 0) for node in given}
        after: dict[ValueId, list[ValueId]] = {}
        for value, sources in before.items():
            for source in sources:
                after.setdefault(source, []).append(value)
        waiting = list(varying)
        while waiting:
            for value in after.get(waiting.pop(), []):
                if value not in varying:
                    varying.add(value)
                    waiting.append(value)
        return before.keys() - varying

    def group(self, first: ValueId, members: list[ValueId]) -> Group:
        values = [self.different[value] for value in sorted(members)]
        return Group(
            self.different[first],
            tuple(named_value(self.a.graph, one).name for one in inputs(self.a.graph, first)),
            tuple(value for value in values if value.a != first),
            sum(value.bytes for value in values),
            sum(value.bytes_a for value in values),
            sum(value.bytes_b for value in values),
        )


def inputs(graph: OpGraph, value: ValueId) -> list[ValueId]:
    """The values that a value is computed from: its op's operands, or what flows into it.

    A result of a loop, call or other op with regions comes from what is yielded for that result,
    an argument of a region or function from what is passed for it.
    """
    node, result = value
    found: dict[ValueId, None] = {}
    for producer, edge in graph.entering(node):
        if edge.operand != result and not graph.ops[node].is_argument:
            continue
        found[graph.source(producer, edge)] = None
    return list(found or dict.fromkeys(graph.operand_values[node]))


def _bits(mask: int) -> list[int]:
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


def call_placements(value: PropagatedValue, rank: int, num_devices: int) -> tuple[Placement, ...]:
    """Where a value of a function is at each call; nothing where that is the same at all."""
    return tuple(
        _whole(num_devices, rank) if place is None else place.without_manual
        for place in value.calls
    )


def _placement(value: PropagatedValue, rank: int, num_devices: int) -> Placement | None:
    if value.placement is None and value.sharding is None and value.node is not None:
        return _whole(num_devices, rank)
    return value.placement


def _whole(num_devices: int, rank: int) -> Placement:
    """Where a value is that has no sharding: on every device, whole."""
    return Placement(num_devices, ((),) * rank)


def _num_devices(propagated: Propagated) -> int:
    places = (value.placement for value in propagated.values.values())
    return max((place.num_devices for place in places if place is not None), default=1)
