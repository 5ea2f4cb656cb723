"""What Shardy wrote down of its propagation, on the nodes of the module that was decided.

The two are runs over the same module, and come out as the same ops with the same shardings, but for
what is computed from constants: of two such ops that are alike Shardy keeps both when their origins
differ. Then ops are told by what their locations name. What is written on an op that is sharded
otherwise is not taken over.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sdyscope.graph import Op, OpGraph, Sharding
from sdyscope.graph.attributes import ShardingTexts, default_parsers, result_shardings
from sdyscope.graph.tags import sids
from sdyscope.stages.propagated import debug_info_child
from sdyscope.stages.propagated.origin_texts import NOTHING, WrittenOrigins, parse_origins


class EdgeOrigins(NamedTuple):
    """What is written on one edge, or on a function's result.

    Attributes:
        edges: its steps as Shardy writes them; empty for none.
        written: where its axes come from.
    """

    edges: str
    written: WrittenOrigins


@dataclass(frozen=True)
class Marked:
    """What Shardy wrote down, by nodes of the graph of the propagated module.

    Attributes:
        edges: the steps on each op.
        origins: where the axes on the results of each op come from.
        results: what is written on a function's result, by (function's node, number).
        owners: ops with edges into or out of regions.
        flow_results: what is written on such an edge to a result, by (node, number).
        flow_arguments: likewise, to an argument of a region.
        names: nodes by what Shardy calls them in origins.
        missing: sharded ops that this run does not have, or shards otherwise.
        has_unread: whether there are origins of a kind that is not known.
    """

    edges: Mapping[int, str] = field(default_factory=dict)
    origins: Mapping[int, tuple[WrittenOrigins, ...]] = field(default_factory=dict)
    results: Mapping[tuple[int, int], EdgeOrigins] = field(default_factory=dict)
    owners: frozenset[int] = frozenset()
    flow_results: Mapping[tuple[int, int], EdgeOrigins] = field(default_factory=dict)
    flow_arguments: Mapping[tuple[int, int], EdgeOrigins] = field(default_factory=dict)
    names: Mapping[str, int] = field(default_factory=dict)
    missing: int = 0
    has_unread: bool = False


def marked_on(answer: debug_info_child.DebugInfoAnswer, graph: OpGraph) -> Marked:
    """What was written down, on the nodes of a graph.

    Args:
        answer: what Shardy wrote down.
        graph: op graph of the module that was decided.
    """
    shardings = _Shardings(answer)
    ops = graph.without_results()
    kinds = [answer.texts[kind] for kind in answer.kinds]
    if kinds == ["" if op.is_argument else op.kind for op in ops]:
        alike = {
            op.id: op.id
            for op in ops
            if shardings.there(op.id, len(op.types)) == shardings.here(op)
        }
    else:
        alike = _by_location(answer, graph, shardings)
    written = [tuple(map(parse_origins, texts)) for texts in answer.written]

    def flow(marks: debug_info_child.WrittenMarks) -> EdgeOrigins:
        each = written[marks.origins] if marks.origins >= 0 else ()
        edges = answer.texts[marks.edges] if marks.edges >= 0 else ""
        return EdgeOrigins(edges, each[0] if each else NOTHING)

    def flows(
        read: list[tuple[int, int, debug_info_child.WrittenMarks]],
    ) -> dict[tuple[int, int], EdgeOrigins]:
        return {(alike[node], number): flow(marks) for node, number, marks in read if node in alike}

    marks = {alike[node]: marks for node, marks in answer.marks.items() if node in alike}
    known = set(alike.values())
    return Marked(
        edges={node: answer.texts[mark.edges] for node, mark in marks.items() if mark.edges >= 0},
        origins={node: written[mark.origins] for node, mark in marks.items() if mark.origins >= 0},
        results=flows(answer.results),
        owners=frozenset(alike[node] for node in answer.owners if node in alike),
        flow_results=flows(answer.flow_results),
        flow_arguments=flows(answer.flow_arguments),
        names={
            answer.texts[name]: alike[node] for node, name in answer.names.items() if node in alike
        },
        missing=sum(op.id not in known and shardings.here(op) != 0 for op in ops),
        has_unread=any(origins.unread for each in written for origins in each),
    )


def _by_location(
    answer: debug_info_child.DebugInfoAnswer, graph: OpGraph, shardings: _Shardings
) -> dict[int, int]:
    """The graph's nodes by those of the other run: of the same kind, sharding and names.

    Of several that are alike the first is the first. Arguments of regions go with their op.
    """
    free: dict[tuple[str, int, object], list[int]] = defaultdict(list)
    arguments: dict[int, list[Op]] = defaultdict(list)
    for op in reversed(graph.without_results()):
        if op.is_argument:
            arguments[op.parent or 0].append(op)
        else:
            key = (op.kind, shardings.here(op), _told_by(op.location.names))
            free[key].append(op.id)
    alike: dict[int, int] = {}
    for node, kind in enumerate(answer.kinds):
        if kind == 0:
            owner = alike.get(answer.parents[node])
            if owner is not None and arguments[owner]:
                op = arguments[owner].pop()
                if shardings.there(node, 1) == shardings.here(op):
                    alike[node] = op.id
            continue
        names = _told_by([answer.texts[name] for name in answer.locations[node]])
        sharding = shardings.there(node, answer.counts[node])
        left = free.get((answer.texts[kind], sharding, names))
        if left:
            alike[node] = left.pop()
    return alike


def _told_by(names: Sequence[str]) -> object:
    """What tells an op from others: its tags, else what its location names."""
    if len(names) == 1 and names[0].startswith("sid") and names[0][3:].isdecimal():
        return int(names[0][3:])  # Nearly all have one tag.
    tags = sids(names)
    return tags[0] if len(tags) == 1 else frozenset(tags or names)


class _Shardings:
    """Numbers for the shardings of ops in both runs: equal ones have the same, none has 0."""

    def __init__(self, answer: debug_info_child.DebugInfoAnswer) -> None:
        self._answer = answer
        self._texts = ShardingTexts(default_parsers(), [])
        self._numbers: dict[tuple[Sharding | None, ...], int] = {}
        self._here: dict[int, int] = {}
        self._there: dict[tuple[int, int, int], int] = {}

    def here(self, op: Op) -> int:
        """Of an op of the graph."""
        # Equal shardings are mostly one object, kept alive by the graph.
        key = id(op.shardings)
        if key not in self._here:
            self._here[key] = self._number(op.shardings)
        return self._here[key]

    def there(self, node: int, count: int) -> int:
        """Of a node of the other run with that many results."""
        written = self._answer.shardings.get(node)
        if written is None:
            return 0
        key = (*written, count)
        if key not in self._there:
            name, text = (self._answer.texts[number] for number in written)
            value = self._texts.read_in(name, text, None)
            self._there[key] = self._number(result_shardings({name: value}, count))
        return self._there[key]

    def _number(self, shardings: tuple[Sharding | None, ...]) -> int:
        if not any(shardings):
            return 0
        return self._numbers.setdefault(shardings, len(self._numbers) + 1)
