"""What an op graph is made of: ops, edges, functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from sdyscope.graph.attribute_values import AttributeValue as AttributeValue
from sdyscope.graph.locations import Location
from sdyscope.graph.op_kinds import CONSTRAINTS
from sdyscope.graph.types import TensorType
from sdyscope.values.passing import CALLS, FORMS, Passing, passing
from sdyscope.values.sharding import ManualAxes, TensorSharding, TensorShardingPerValue
from sdyscope.values.source import SourceLocation
from sdyscope.values.tiling import HloSharding, NamedHloSharding, TupleSharding

EdgeKind: TypeAlias = Literal["data", "capture", "region", "loop", "yield", "call", "return"]
"""What an edge stands for.

`data` and `capture` are the SSA uses, one edge a use: from the op or block argument that produces
a value to the op that has it as an operand; `capture` when the consumer is in a region inside the
producer's. The others say where values continue across a region or function boundary:
`region`: producer of an operand of an op -> block argument of that op's region;
`loop`: terminator of a while's body -> the block arguments of its next iteration;
`yield`: terminator of a region -> the op that contains it, whose results they become;
`call`: producer of an operand of a call -> argument of the called function;
`return`: terminator of a function -> each call of it; of main -> the results of main.
"""

Sharding: TypeAlias = TensorSharding | HloSharding | NamedHloSharding | TupleSharding | str
"""A parsed sharding; its text when it could not be parsed (then it is in `not_understood`)."""

ARGUMENT = "argument"
"""The `kind` of a block argument, of a function or of any other region."""

RESULT = "result"
"""The `kind` of a result of the main function."""

ValueId: TypeAlias = tuple[int, int]
"""A value: the id of the op that it is a result of, and which; of a block argument, and of what
main returns, (id, 0)."""


class Op(NamedTuple):
    """One operation, one block argument, or one result of the main function.

    A graph has one for each op, tens of thousands: a named tuple is made in a third of the time of
    a frozen dataclass.

    Attributes:
        id: its number in the order in which the module is printed, from 0, which is the module
            itself. An op comes before the arguments of its regions, and they before the ops inside;
            the results of main come after all others.
        kind: name of the operation (`stablehlo.dot_general`), `argument` or `result`.
        name: SSA name of its results as MLIR prints it (`%4`, `%cst_0`, `%arg0`), without the
            number of a result; empty without results, and for a result of main.
        types: type of each result.
        shardings: sharding of each result as written on the op; None where nothing is written.
        function: symbol name of the function it is in (of a function: its own); empty outside.
        parent: id of the op whose region it is in, of a result of main main's; None for the module.
        region: which of the parent's regions.
        block: which block of that region.
        location: scope path and source lines; of an argument or result of main its pytree path.
        attributes: all its attributes by MLIR's name, as values (`AttributeValue`): the op's own
            (`dot_dimension_numbers`, `replica_groups`, `in_shardings`) and those with a dialect
            prefix (`sdy.sharding_rule`, `mhlo.frontend_attributes`).
        argument: which argument of its block a block argument is; -1 for anything else.
        result: which result of main it is; -1 for anything else.
    """

    id: int
    kind: str
    name: str
    types: tuple[TensorType, ...]
    shardings: tuple[Sharding | None, ...]
    function: str
    parent: int | None
    region: int
    block: int
    location: Location
    attributes: Mapping[str, AttributeValue]
    argument: int = -1
    result: int = -1

    def __hash__(self) -> int:
        return hash((self.id, self.kind, self.function))

    @property
    def mnemonic(self) -> str:
        """Its name without the dialect: `dot_general`, `custom_call`, `while`."""
        return self.kind.rpartition(".")[2]

    @property
    def is_constraint(self) -> bool:
        """Whether it only says how its operand is to be sharded: to Shardy, or to GSPMD."""
        return self.kind in CONSTRAINTS or self.call_target == "Sharding"

    @property
    def passing(self) -> Passing | None:
        """How it passes each operand on as the result of its number; None where it does not."""
        return passing(self.kind) or CALLS.get(self.call_target or "")

    @property
    def is_form(self) -> bool:
        """Whether its result is its operand, in another form at most."""
        return self.passing in FORMS

    @property
    def is_argument(self) -> bool:
        """Whether this is a block argument."""
        return self.argument >= 0

    @property
    def is_result(self) -> bool:
        """Whether this is a result of the main function."""
        return self.result >= 0

    @property
    def names(self) -> tuple[str, ...]:
        """SSA name of each result as printed: `%4`, or `%2#0`, `%2#1`."""
        if len(self.types) == 1:
            return (self.name,)
        return tuple(f"{self.name}#{index}" for index in range(len(self.types)))

    @property
    def scope(self) -> str:
        """Scope path that JAX gave it: `jit(step)/jvp(layer0)/dot_general`; may be empty."""
        return self.location.scope

    @property
    def source(self) -> SourceLocation | None:
        """The innermost line of user code that it comes from."""
        return self.location.source

    @property
    def sharding_rule(self) -> AttributeValue | None:
        """The parsed `sdy.sharding_rule`, or its text when it was not understood."""
        return self.attributes.get("sdy.sharding_rule")

    @property
    def manual_axes(self) -> tuple[str, ...]:
        """The axes that a `shard_map` is manual on; none of any other op."""
        axes = self.attributes.get("manual_axes")
        return axes.axes if isinstance(axes, ManualAxes) else ()

    @property
    def in_shardings(self) -> tuple[TensorSharding, ...]:
        """How a `shard_map` or a named computation takes its operands; none of any other op."""
        return self._per_value("in_shardings")

    @property
    def out_shardings(self) -> tuple[TensorSharding, ...]:
        """How it gives its results; likewise."""
        return self._per_value("out_shardings")

    def integers(self, name: str) -> tuple[int, ...]:
        """The whole numbers of an attribute; none where it has none."""
        written = self.attributes.get(name)
        return written if isinstance(written, tuple) else ()

    def _per_value(self, name: str) -> tuple[TensorSharding, ...]:
        written = self.attributes.get(name)
        return written.shardings if isinstance(written, TensorShardingPerValue) else ()

    @property
    def callee(self) -> str | None:
        """Symbol name of the function that a call calls."""
        return self.attributes.get("callee") or self.attributes.get("decomposition")

    @property
    def call_target(self) -> str | None:
        """`call_target_name` of a custom_call."""
        return self.attributes.get("call_target_name")

    @property
    def backend_config(self) -> AttributeValue | None:
        """`backend_config` of a custom_call: a str, or a mapping."""
        return self.attributes.get("backend_config")


@dataclass(frozen=True, slots=True)
class Edge:
    """Where a value goes.

    Attributes:
        kind: see `EdgeKind`.
        result: which result of the producer; for `loop`, `yield` and `return`, whose producer is a
            terminator, which of its operands.
        operand: which operand of the consumer; for `yield` and `return` which of its results (0 of
            a result of main, which is one value); for `region`, `loop` and `call`, whose consumer
            is a block argument, which argument.
        type: type of the value.
        sharding: sharding that the producer has written for it.
        via: for `region`, `loop`, `call`: id of the op with the region, or of the call.
    """

    kind: EdgeKind
    result: int
    operand: int
    type: TensorType
    sharding: Sharding | None
    via: int | None = None


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a function.

    Attributes:
        node: id of its node.
        index: its position.
        name: JAX's pytree path (`params['w'][0]`), from the location; empty when there is none.
        type: its type.
        sharding: `sdy.sharding` or `mhlo.sharding` written on it.
        attributes: all its attributes (`jax.buffer_donor`, `tf.aliasing_output`, ...).
        location: its location.
    """

    node: int
    index: int
    name: str
    type: TensorType
    sharding: Sharding | None
    attributes: Mapping[str, AttributeValue] = field(hash=False)
    location: Location


@dataclass(frozen=True, slots=True)
class Result:
    """A result of a function.

    Attributes:
        node: id of its node; None for a function other than main, whose calls have its results.
        index: its position.
        name: `jax.result_info`, the pytree path (`result[0]['w']`); empty when there is none.
        type: its type.
        sharding: `sdy.sharding` or `mhlo.sharding` written on it.
        attributes: all its attributes.
    """

    node: int | None
    index: int
    name: str
    type: TensorType
    sharding: Sharding | None
    attributes: Mapping[str, AttributeValue] = field(hash=False)


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the module.

    Attributes:
        name: symbol name, without `@`.
        visibility: `public`, `private`, `nested`; empty when not written (which means public).
        op: id of the `func.func`.
        arguments: its arguments in order.
        results: its results in order.
    """

    name: str
    visibility: str
    op: int
    arguments: tuple[Argument, ...]
    results: tuple[Result, ...]

    def name_of(self, entry: Argument | Result) -> str:
        """The pytree path of an argument or result of it; ``main(0)``, ``main[0]`` without one."""
        index = f"({entry.index})" if isinstance(entry, Argument) else f"[{entry.index}]"
        return entry.name or self.name + index


@dataclass(frozen=True, slots=True)
class NotUnderstood:
    """Something in the module that sdyscope could not read; it is kept as text.

    Attributes:
        op: id of the op it is on; None when it belongs to none.
        attribute: name of the attribute; empty for a piece of text.
        text: the text as it is.
        error: why it could not be read.
        line: line in the file, from 1, when the text reader found it; else None.
    """

    op: int | None
    attribute: str
    text: str
    error: str
    line: int | None = None
