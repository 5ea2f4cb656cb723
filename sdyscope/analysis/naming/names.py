"""What to call a value of the lowered module: by the argument it only gives another form."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise

from sdyscope.annotations import CONSTANT, op_name, scope_of
from sdyscope.facts.propagated import ValueId
from sdyscope.graph import Op, OpGraph, scope_in

#: How many ops a name is looked for through.
_STEPS = 16

#: Out of how many functions that are called several times it is looked for.
_CALLS = 2


class ValueNames:
    """Names of the values of one module.

    Args:
        graph: its op graph.
    """

    def __init__(self, graph: OpGraph) -> None:
        self.graph = graph
        main = graph.main
        self._arguments = (
            {}
            if main is None
            else {argument.node: main.name_of(argument) for argument in main.arguments}
        )

    def name(self, value: ValueId) -> str:
        """``params['w1']``, where it is that argument or a part of it; else ``OP in SCOPE``.

        The op is the one that makes it, not one that gives it another form. Of one in a function
        that is called, the scope is the call's: ``reduce in layer0/argmax``. What a function is
        given by several calls is named by what they give: ``sin or cos``. What a loop carries has
        the name of what it begins with.
        """
        return self._name(value, _CALLS)

    def _name(self, value: ValueId, calls_out: int) -> str:
        way = [self.graph.ops[node] for node, _ in self._back(value)]
        op = way[-1]
        if op.id in self._arguments:
            return self._arguments[op.id]
        if op.is_argument:
            given = sorted(self._given(op, None)) if calls_out else ()
            names = list(dict.fromkeys(self._name(each, calls_out - 1) for each in given))
            if len(names) > 2:
                return f"{names[0]} or {len(names) - 1} other values"
            return " or ".join(names) or _op_name(way[0])
        calls: list[Op] = []  # Of the functions that it is inside of.
        for after, before in pairwise(way):
            if after.function != before.function:
                if not after.is_argument:
                    calls.append(after)
                elif calls:
                    calls.pop()
        return _op_name(op, calls[0] if calls else None)

    def source(self, value: ValueId) -> ValueId:
        """The value that it is only another form or a part of; itself where it is of none."""
        return deque(self._back(value), maxlen=1)[0]

    def form(self, value: ValueId) -> Op | None:
        """The op that gives a value its form: that takes the part that it is, else the last one.

        None where it has the form of its source.
        """
        source = self.source(value)[0]
        on_the_way = (self.graph.ops[node] for node, _ in self._back(value) if node != source)
        forms = [op for op in on_the_way if op.passing is not None]
        return next((op for op in forms if op.passing == "part"), forms[0] if forms else None)

    def is_carried(self, value: ValueId) -> bool:
        """Whether it is what a loop carries, or another form of that: not what it begins with."""
        return any(node in self._carries for node, _ in self._back(value))

    @cached_property
    def _carries(self) -> frozenset[int]:
        """The arguments of loops that each iteration gives another value to."""
        carries = set()
        for kind, source, (target, _) in self.graph.crossings():
            if kind == "loop":
                given, argument = self.graph.ops[source[0]], self.graph.ops[target]
                passed_on = given.is_argument and given.parent == argument.parent
                if not (passed_on and given.argument == argument.argument):
                    carries.add(target)
        return frozenset(carries)

    def _back(self, value: ValueId) -> Iterator[ValueId]:
        """A value, and what it is another form of, step by step, into functions and out again."""
        calls: list[int] = []
        yield value
        for _ in range(_STEPS):
            before = None if value[0] in self._arguments else self._before(value, calls)
            if before is None:
                return
            yield before
            value = before

    def _before(self, value: ValueId, calls: list[int]) -> ValueId | None:
        """The value that this one is another form of; None where it is none.

        Args:
            value: which value.
            calls: those whose functions it is inside of, come to from their results.
        """
        op = self.graph.ops[value[0]]
        if op.is_argument:
            callee = self.graph.callee(calls[-1]) if calls else None
            call = calls.pop() if callee is not None and callee.op == op.parent else None
            given = self._given(op, call)
            # A function that is called several times may be given several values.
            return given.pop() if len(given) == 1 else None
        if self.graph.callee(op) is not None and not self.graph.calls_shard_map_body(op):
            for end, edge in self.graph.entering(op):
                if edge.kind == "return" and edge.operand == value[1]:
                    calls.append(op.id)
                    return self.graph.source(end, edge)
        if op.passing is not None:
            for producer, edge in self.graph.operands(op):
                if edge.operand == value[1]:
                    return producer.id, edge.result
        return None

    def _given(self, argument: Op, call: int | None) -> set[ValueId]:
        """What an argument of a region or function is given, by one call or by all."""
        return {
            (producer, edge.result)
            for producer, edge in self.graph.entering(argument)
            if edge.kind in ("region", "call") and call in (None, edge.via)
        }


def _op_name(op: Op, call: Op | None = None) -> str:
    """``dot_general in layer0/mlp``; what JAX's transformations add to a scope stays.

    Args:
        op: which op.
        call: the call of the function that it is in, where it is named from outside.
    """
    if op.kind.endswith(".constant"):
        return CONSTANT
    scope, primitive = scope_of(op)
    if call is not None:
        scope = scope_in(op_name(call), scope)
    name = primitive or op.mnemonic
    return name_in(name, scope)


def name_in(name: str, scope: str) -> str:
    """The name of what an op makes, by JAX's primitive and the op's scope."""
    return f"{name} in {scope}" if scope else name
