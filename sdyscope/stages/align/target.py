"""A partitioner's module, looked up by the tags of the lowered module's ops."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from sdyscope.facts.propagated import ValueId
from sdyscope.graph import Op, OpGraph, TensorType
from sdyscope.graph.tags import sids
from sdyscope.graph.types import parts_of_tuple
from sdyscope.stages.align.tags import ATTRIBUTE
from sdyscope.walk import reached

_FRONTEND = "mhlo.frontend_attributes"
#: Names that are nothing but one op's tag, as nearly all are.
_ONE_TAG = re.compile(r"sid\d+")


class AlignTarget:
    """The module after propagation.

    Attributes:
        graph: its op graph.
        tags: of each op that has some, the ops of the lowered module that it was made from.
        tagged: the other way round, in program order.
        paths: of an op that the location says it of, the calls that it was inlined from.
        tagged_in: ``tagged`` by the calls as well, of ops inlined from some.
    """

    def __init__(self, graph: OpGraph) -> None:
        self.graph = graph
        self.tags: dict[int, tuple[int, ...]] = {}
        self.tagged: dict[int, list[int]] = {}
        self.paths: dict[int, tuple[int, ...]] = {}
        self.tagged_in: dict[tuple[int, tuple[int, ...]], list[int]] = {}
        self._operands = graph.operand_values
        # Loops' bodies can be there once more, as functions that nothing calls.
        reached = _reached(graph)
        tagged, is_one_tag = self.tagged, _ONE_TAG.fullmatch
        for op in graph.operations():
            if not op.types or op.function not in reached:
                continue
            names = op.location.names
            if len(names) != 1 or _FRONTEND in op.attributes or not is_one_tag(names[0]):
                self._read_tags(op)
                continue
            # Nearly all are so, which is why these few lines are here.
            tag, node = int(names[0][3:]), op.id
            self.paths[node] = ()
            self.tags[node] = (tag,)
            if tag in tagged:
                tagged[tag].append(node)
            else:
                tagged[tag] = [node]

    def _read_tags(self, op: Op) -> None:
        tags: set[int] = set()
        frontend = op.attributes.get(_FRONTEND)
        if frontend and ATTRIBUTE in frontend:
            tags.update(sids(frontend[ATTRIBUTE]))
        # `sid144/sid1401`: inlined from call 144.
        for name in op.location.names:
            *calls, own = name.split("/")
            tags.update(sids(own) if own.startswith("sid") else ())
            path = tuple(node for call in calls for node in sids(call)[:1])
            if path or own.startswith("sid"):
                self.paths[op.id] = path
        if tags:
            self.tags[op.id] = tuple(tags)
            path = self.paths.get(op.id, ())
            for tag in tags:
                self.tagged.setdefault(tag, []).append(op.id)
                if path:
                    self.tagged_in.setdefault((tag, path), []).append(op.id)

    def operands(self, node: int) -> Sequence[ValueId]:
        """The operands of an op."""
        return self._operands[node]

    def type_of(self, value: ValueId) -> TensorType:
        """The type of a value."""
        return self.graph.ops[value[0]].types[value[1]]

    def consumers(self, value: ValueId) -> Iterable[int]:
        """The ops that use a value, each once, in program order."""
        return dict.fromkeys([node for node, _ in self.graph.users(value)])

    def results(self, node: int) -> list[ValueId | None]:
        """The results of an op; of one that has a tuple, what is taken out of it.

        None for a part of a tuple that nobody uses, which XLA takes out nowhere.
        """
        types = self.graph.ops[node].types
        if not _is_tuple(types):
            return [(node, result) for result in range(len(types))]
        taken: dict[object, ValueId] = {
            self.graph.ops[user].attributes["index"]: (user, 0)
            for user in self.consumers((node, 0))
            if self.graph.ops[user].kind == "stablehlo.get_tuple_element"
        }
        return [taken.get(index) for index in range(len(parts_of_tuple(types[0])))]

    def result_types(self, node: int) -> Sequence[TensorType]:
        """The types of ``results``."""
        types = self.graph.ops[node].types
        return parts_of_tuple(types[0]) if _is_tuple(types) else types

    def returned(self, owner: int, region: int) -> Sequence[ValueId]:
        """What a region returns."""
        last = self.graph.terminators.get((owner, region))
        return [] if last is None else self.operands(last.id)

    def sources(self, node: int, tag: int) -> set[ValueId]:
        """The operands of an op, and of all that was made from the same one and leads to it."""

        def made_of(node: int) -> list[int]:
            producers = [producer for producer, _ in self.operands(node)]
            return [producer for producer in producers if tag in self.tags.get(producer, ())]

        return {value for each in reached([node], made_of) for value in self.operands(each)}

    def source(self, node: int, tag: int) -> ValueId:
        """The one operand of an op, or of the first of the ops in a row that were made from one."""
        value = self.operands(node)[0]
        while tag in self.tags.get(value[0], ()) and len(self.operands(value[0])) == 1:
            value = self.operands(value[0])[0]
        return value

    def goes_to(self, value: ValueId) -> set[int]:
        """The tags of the ops that use a value."""
        return {tag for node in self.consumers(value) for tag in self.tags.get(node, ())}

    def around(self, tags: Iterable[tuple[int, int]], kinds: frozenset[str]) -> list[int]:
        """Ops of the given kinds with the most of these tags inside.

        Where several have equally many, all of them.

        Args:
            tags: each with the number of other ops of these kinds that stand between.
            kinds: the kinds.
        """
        votes: Counter[int] = Counter()
        for tag, depth in tags:
            for node in self.tagged.get(tag, ()):
                outside = [parent for parent in self.parents(node) if parent.kind in kinds]
                if depth < len(outside):
                    votes[outside[depth].id] += 1
        best = max(votes.values(), default=0)
        return [node for node, count in votes.items() if count == best]

    def is_used_inside(self, node: int, owner: int) -> bool:
        """Whether an op's first result is used by an op in a region of another."""
        users = self.consumers((node, 0))
        return any(parent.id == owner for user in users for parent in self.parents(user))

    def copies(self, value: ValueId) -> Iterator[ValueId]:
        """The other ops like the one that makes a value, of the same op and calls."""
        node, result = value
        op, tags = self.graph.ops[node], self.tags.get(node, ())
        for other in self.tagged.get(tags[0], ()) if tags else ():
            there = self.graph.ops[other]
            if (
                other != node
                and (there.kind, there.types) == (op.kind, op.types)
                and self.tags[other] == tags
                and self.paths.get(other) == self.paths.get(node)
            ):
                yield other, result

    def parents(self, node: int) -> Iterator[Op]:
        """The ops around an op, innermost first."""
        parent = self.graph.ops[node].parent
        while parent is not None:
            yield self.graph.ops[parent]
            parent = self.graph.ops[parent].parent


def _is_tuple(types: Sequence[TensorType]) -> bool:
    return len(types) == 1 and types[0].shape is None and types[0].text.startswith("tuple<")


def _reached(graph: OpGraph) -> set[str]:
    """The main function and those that are called from it."""
    calls: dict[str, set[str]] = {}
    for name in graph.functions:
        for call in graph.callers(name):
            calls.setdefault(call.function, set()).add(name)
    main = [] if graph.main is None else [graph.main.name]
    return {*reached(main, lambda name: calls.get(name, ()))}
