"""Ops and shardings: what is shown of every value, against the dump before partitioning."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import zip_longest
from typing import NamedTuple, TypeAlias

from sdyscope.analysis.verify.audited import AuditedStage, Disagreement, LeftOut
from sdyscope.facts.propagated import Propagated, PropagatedValue
from sdyscope.graph import Op, OpGraph, TensorType
from sdyscope.stages.audit.facts import Audited, Layout
from sdyscope.values.placement import Placement

_Blocks: TypeAlias = tuple[tuple[int, ...], ...]


def numbers(graph: OpGraph) -> dict[int, int]:
    """By node the number that the audit has for an op: both count in the order of the text."""
    inside = (op for op in graph.operations() if op.parent is not None)
    return {op.id: number for number, op in enumerate(inside)}


def lowered_stage(graph: OpGraph, audited: Audited) -> AuditedStage:
    """Every op's kind, types and operands."""
    known = numbers(graph)
    ops = [graph.ops[node] for node in known]
    if len(ops) != len(audited.ops):
        disagreement = Disagreement("ops", f"{len(ops):,}", f"{len(audited.ops):,}")
        return AuditedStage("lowered", 1, (disagreement,))
    wrong = []
    for op, theirs in zip(ops, audited.ops, strict=True):
        operands = [_producer(*value, graph, known) for value in graph.operand_values[op.id]]
        mine = (op.kind, [str(type_) for type_ in op.types], operands)
        if mine != (theirs.kind, theirs.types, theirs.operands):
            other = (theirs.kind, theirs.types, theirs.operands)
            wrong.append(Disagreement(_name(op), str(mine), str(other), op.source))
    return AuditedStage("lowered", len(ops), tuple(wrong))


def _producer(
    node: int, result: int, graph: OpGraph, known: Mapping[int, int]
) -> tuple[int, int, int]:
    op = graph.ops[node]
    if op.is_argument:
        return known[op.parent] if op.parent is not None else -1, op.region, op.argument
    return known[node], -1, result


class _Value(NamedTuple):
    """A value that is shown, with all that XLA has under its name.

    Attributes:
        op: the op that makes it.
        name: what to call it.
        type: its type.
        shown: what is shown of it.
        layouts: its layout in the dump, every time that it is there.
        resharded: likewise the layouts that it is copied to there, under its name.
    """

    op: Op
    name: str
    type: TensorType
    shown: PropagatedValue | None
    layouts: Sequence[int]
    resharded: Sequence[Sequence[int]] = ()

    @property
    def rank(self) -> int:
        return len(self.type.shape or ())

    @property
    def is_empty(self) -> bool:
        """Whether it has no elements: no device holds anything, wherever it is said to lie."""
        return 0 in (self.type.shape or ())


def propagated_stage(graph: OpGraph, propagated: Propagated, audited: Audited) -> AuditedStage:
    """The sharding of every value, block arguments of loops and main's results included.

    Args:
        graph: op graph of the lowered module.
        propagated: what is shown.
        audited: what was read; its ops are the graph's.
    """
    left_out: Counter[LeftOut] = Counter()
    wrong: list[Disagreement] = []
    compared = 0
    for value in _values(graph, propagated, audited):
        layouts = [audited.layouts[number] for number in dict.fromkeys(value.layouts)]
        missing = _not_compared(value, layouts)
        if missing:
            left_out[missing] += 1
            continue
        compared += 1
        shown = value.shown
        assert shown is not None
        mine = set(_shown_blocks(shown, value.rank))
        # Where an op can't run as its result is sharded, Shardy has it run otherwise and copies
        # what it makes to that sharding.
        copied = value.resharded or [()] * len(value.layouts)
        every = [
            {_blocks(audited.layouts[each]) for each in (number, *others)}
            for number, others in zip(value.layouts, copied, strict=True)
        ]
        if not mine <= set().union(*every) or not all(mine & each for each in every):
            texts = " and ".join(layout.text or "{replicated}" for layout in layouts)
            said = str(shown.sharding) if shown.sharding is not None else "replicated"
            wrong.append(Disagreement(value.name, said, texts, value.op.source))
    return AuditedStage("propagated", compared, tuple(wrong), dict(left_out))


def _values(graph: OpGraph, propagated: Propagated, audited: Audited) -> Iterator[_Value]:
    by_number = numbers(graph)
    for node, number in by_number.items():
        op = graph.ops[node]
        for value in _results(op, propagated, audited, number):
            begun = _begun(value, graph, audited, by_number)
            yield value._replace(resharded=[(*own, *begun) for own in value.resharded])
        if op.kind == "stablehlo.while" and number in audited.carried:
            yield from _carried(op, graph, propagated, audited.carried[number])
    main = graph.main
    if main is None or not audited.propagated:
        return
    nodes = [argument.node for argument in main.arguments]
    yield from _boundary(graph, nodes, propagated, audited.arguments)
    yield from _boundary(graph, [op.id for op in graph.results()], propagated, audited.results)


def _results(op: Op, propagated: Propagated, audited: Audited, number: int) -> Iterator[_Value]:
    instances = audited.values.get(number, ())
    for result, type_ in enumerate(op.types):
        name = _name(op) + (f"#{result}" if len(op.types) > 1 else "")
        copies = audited.resharded.get(number, ()) if len(op.types) == 1 else ()
        there = [
            (layouts[result], copied)
            for layouts, copied in zip_longest(instances, copies, fillvalue=())
            if layouts[result] >= 0
        ]
        shards, resharded = [layout for layout, _ in there], [copied for _, copied in there]
        shown = propagated.values.get((op.id, result))
        yield _Value(op, name, type_, shown, shards, resharded)


def _begun(
    value: _Value, graph: OpGraph, audited: Audited, by_number: Mapping[int, int]
) -> list[int]:
    """The layouts of what a loop begins with and passes on, which XLA then returns in its place.

    What the loop carries under its name can be a copy of it, sharded as the body needs it.
    """
    if value.op.kind != "stablehlo.while" or value.shown is None:
        return []
    start = graph.operand(value.op, value.shown.id[1])
    if start is None or start not in value.shown.merged_with:
        return []
    op, result = graph.ops[start[0]], start[1]
    if graph.is_main_argument(op):
        return audited.arguments[op.argument : op.argument + 1]
    instances = audited.values.get(by_number.get(op.id, -1), ())
    return [layouts[result] for layouts in instances if layouts[result] >= 0]


def _carried(
    loop: Op, graph: OpGraph, propagated: Propagated, instances: Sequence[Sequence[int]]
) -> Iterator[_Value]:
    body = [op for op in graph.children(loop.id) if op.is_argument and op.region == 1]
    for place, op in enumerate(body):
        shards = [layouts[place] for layouts in instances if layouts[place] >= 0]
        name = f"{_name(loop)}: carry {place}"
        shown = propagated.values.get((op.id, 0))
        yield _Value(op, name, op.types[0], shown, shards)


def _boundary(
    graph: OpGraph, nodes: Sequence[int], propagated: Propagated, layouts: Sequence[int]
) -> Iterator[_Value]:
    if len(nodes) != len(layouts):
        return
    for node, layout in zip(nodes, layouts, strict=True):
        op = graph.ops[node]
        yield _Value(op, _name(op), op.types[0], propagated.values.get((node, 0)), [layout])


def _not_compared(value: _Value, layouts: Sequence[Layout]) -> LeftOut | None:
    shown = value.shown
    if not layouts:
        return "not in the dump"
    if value.is_empty:
        return "empty"
    if shown is None or shown.node is None:
        return "not partitioned" if shown is None or shown.fate != "folded" else "folded"
    if shown.placed(value.rank) is None:
        return "no layout"
    mine, theirs = set(_shown_blocks(shown, value.rank)), set(map(_blocks, layouts))
    times = len(shown.counterparts) - shown.counterparts.count(None) if shown.calls else 1
    # What is computed from constants is there once for each use, more often than it is called.
    if mine < theirs and len(value.layouts) > times:
        return "several in the dump"
    return None


def _shown_blocks(shown: PropagatedValue, rank: int) -> Iterable[_Blocks]:
    places = shown.placed_at_calls(rank) or (shown.placed(rank),)
    return (_placement_blocks(place) for place in places if place is not None)


@cache
def _placement_blocks(place: Placement) -> _Blocks:
    rows = tuple(place.block(device) for device in range(place.num_devices))
    return rows if any(map(any, rows)) else rows[:1]


def _blocks(layout: Layout) -> _Blocks:
    return tuple(map(tuple, layout.blocks))


def _name(op: Op) -> str:
    return op.scope or op.name or op.kind
