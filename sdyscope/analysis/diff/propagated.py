"""Two propagations of one program, or of two: what is sharded differently, and where it begins.

A list of a hundred values says little. A difference *begins* at a value that is sharded differently
although everything it is computed from is sharded alike; the values computed from it that differ,
too, *follow* from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sdyscope import walk
from sdyscope.analysis.naming.pairs import value_pairs
from sdyscope.analysis.naming.resolve import named_value
from sdyscope.analysis.propagation.decided import Decisions
from sdyscope.facts.differences import (
    Across,
    DifferingValue,
    Divergence,
    Input,
    NotComparedReason,
    NotComparedValues,
    PropagatedDiff,
)
from sdyscope.facts.propagated import Propagated, PropagatedValue, ValueId
from sdyscope.graph import OpGraph

if TYPE_CHECKING:
    import networkx


@dataclass(frozen=True)
class PropagatedSide:
    """One of the two.

    Attributes:
        label: what to call it: a partitioner, a program.
        decisions: what was decided for its values.
    """

    label: str
    decisions: Decisions

    @property
    def graph(self) -> OpGraph:
        """Op graph of its lowered module."""
        return self.decisions.graph

    @property
    def propagated(self) -> Propagated:
        """Its propagation."""
        return self.decisions.propagated


def propagated_diff(
    name: str,
    a: PropagatedSide,
    b: PropagatedSide,
    across: Across,
    *,
    same_types: bool = False,
) -> PropagatedDiff:
    """Compares two propagations, value by value.

    Args:
        name: what to call what is compared.
        a: the first. What follows from what is read in its lowered module.
        b: the second.
        across: what the two are. Arguments of two programs are the same when their pytree paths
            are, those of one program when their numbers are.
        same_types: whether what has another type is another value; see ``value_pairs``.
    """
    # GSPMD names no axes: they are those of the other side's mesh.
    meshes = a.decisions.mesh, b.decisions.mesh
    sides = (
        PropagatedSide(a.label, a.decisions.on(meshes[0] or meshes[1])),
        PropagatedSide(b.label, b.decisions.on(meshes[1] or meshes[0])),
    )
    pairs = value_pairs(
        sides[0].graph, sides[1].graph, by_name=across == "programs", same_types=same_types
    )
    return _Comparison(name, *sides, across, pairs).result()


class _Comparison:
    def __init__(
        self,
        name: str,
        a: PropagatedSide,
        b: PropagatedSide,
        across: Across,
        pairs: Mapping[ValueId, ValueId],
    ) -> None:
        self.name = name
        self.a = a
        self.b = b
        self.across = across
        self.pairs = pairs
        self.same: set[ValueId] = set()
        self.different: dict[ValueId, DifferingValue] = {}
        self.not_compared: Counter[tuple[NotComparedReason, str]] = Counter()
        self.other_types = 0

    def result(self) -> PropagatedDiff:
        ours, theirs = self.a.propagated, self.b.propagated
        for value in ours.values.values():
            self.compare(value)
        only = (0, 0)
        if self.across == "programs":
            paired = set(self.pairs.values())
            only = (
                sum(value not in self.pairs for value in ours.values),
                sum(value not in paired for value in theirs.values),
            )
        return PropagatedDiff(
            name=self.name,
            across=self.across,
            a=self.a.label,
            b=self.b.label,
            same_values=len(self.same),
            only_a=only[0],
            only_b=only[1],
            other_types=self.other_types,
            not_compared=tuple(
                NotComparedValues(*why, count) for why, count in self.not_compared.most_common()
            ),
            beginnings=tuple(
                sorted(self.beginnings(), key=lambda begun: (-begun.bytes, -begun.values))
            ),
            propagation_a=ours,
            propagation_b=theirs,
        )

    # One value.

    def compare(self, ours: PropagatedValue) -> None:
        other = self.pairs.get(ours.id)
        theirs = None if other is None else self.b.propagated.values.get(other)
        if other is None and self.across == "programs":
            return  # One of those that only the first has.
        if theirs is None:
            self.leave("absent", self.b.label)
        elif ours.fate == "not partitioned" or theirs.fate == "not partitioned":
            self.leave("not partitioned")
        elif ours.node is None or theirs.node is None:
            self.leave("folded", (self.a if ours.node is None else self.b).label)
        else:
            self.compare_placements(ours, theirs)

    def leave(self, reason: NotComparedReason, side: str = "") -> None:
        self.not_compared[reason, side] += 1

    def compare_placements(self, ours: PropagatedValue, theirs: PropagatedValue) -> None:
        type_, other = (
            side.graph.ops[value.id[0]].types[value.id[1]]
            for side, value in ((self.a, ours), (self.b, theirs))
        )
        shape = type_.static_shape
        if shape is None:
            self.leave("no fixed shape")
            return
        place_a, place_b = ours.placed(len(shape)), theirs.placed(len(shape))
        if place_a is None or place_b is None:
            self.leave("no placement", (self.a if place_a is None else self.b).label)
            return
        self.other_types += (type_.shape, type_.dtype) != (other.shape, other.dtype)
        calls = [value.placed_at_calls(len(shape)) for value in (ours, theirs)]
        if place_a.without_manual == place_b.without_manual and calls[0] == calls[1]:
            self.same.add(ours.id)
            return
        self.different[ours.id] = DifferingValue(
            named_value(self.a.graph, ours.id),
            self.a.decisions.sharded(ours.id),
            self.b.decisions.sharded(theirs.id),
            theirs.id,
            other,
        )

    # Where differences begin.

    def beginnings(self) -> list[Divergence]:
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
            self.beginning(self.first(condensed.nodes[begins[index]]["members"]), members)
            for index, members in chosen.items()
        ]

    def first(self, members: set[ValueId]) -> ValueId:
        """Where a difference begins, of values that follow from each other, as those of a loop do.

        At what is written otherwise; else at the first of them in the module.
        """
        differing = self.differing(members)
        return next((value for value in differing if self.is_rewritten(value)), differing[0])

    def is_rewritten(self, value: ValueId) -> bool:
        """Whether both modules have a sharding of one form written on a value, and not the same."""
        ours, theirs = (
            side.graph.ops[node].shardings[result]
            for side, (node, result) in ((self.a, value), (self.b, self.different[value].other))
        )
        return type(ours) is type(theirs) and ours is not None and ours != theirs

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
            for earlier in before[value]:
                if earlier in constant:
                    flow.add_edge(value, earlier)
                elif earlier not in self.same:
                    flow.add_edge(earlier, value)
        flow.remove_nodes_from(self.same)
        return flow

    def constants(self, before: Mapping[ValueId, list[ValueId]]) -> set[ValueId]:
        """The values that are computed from constants alone."""
        main = self.a.graph.main
        given = () if main is None else (argument.node for argument in main.arguments)
        return before.keys() - reached(before, [(node, 0) for node in given])

    def beginning(self, first: ValueId, members: list[ValueId]) -> Divergence:
        return Divergence(
            self.different[first],
            tuple(
                Input(named_value(self.a.graph, input_).name, self.a.decisions.sharded(input_))
                for input_ in inputs(self.a.graph, first)
            ),
            tuple(self.different[value] for value in sorted(members) if value != first),
        )


def reached(before: Mapping[ValueId, Iterable[ValueId]], given: Iterable[ValueId]) -> set[ValueId]:
    """Some values and all that is computed from them.

    Args:
        before: what each value is computed from.
        given: the values.
    """
    after: dict[ValueId, list[ValueId]] = {}
    for value, sources in before.items():
        for source in sources:
            after.setdefault(source, []).append(value)
    return {*walk.reached(given, lambda value: after.get(value, ()))}


def inputs(graph: OpGraph, value: ValueId) -> list[ValueId]:
    """The values that a value is computed from: its op's operands, or what flows into it.

    A result of a loop, call or other op with regions comes from what is yielded for that result,
    an argument of a region or function from what is passed for it.
    """
    node, result = value
    producers: dict[ValueId, None] = {}
    for producer, edge in graph.entering(node):
        if edge.operand != result and not graph.ops[node].is_argument:
            continue
        producers[graph.source(producer, edge)] = None
    return list(producers or dict.fromkeys(graph.operand_values[node]))


def _bits(mask: int) -> list[int]:
    bits = []
    while mask:
        low = mask & -mask
        bits.append(low.bit_length() - 1)
        mask ^= low
    return bits
