"""The constraints and shard_maps of a jaxpr, in the order in which JAX lowers them.

The order is that of the ops in the module, main first and each function where it is first called:
JAX lowers a function that is called twice with the same jaxpr once, so its constraints count once.
`sharding_constraint` and `reshard` each become one op, whose location ends in that name. A nested
jit with `in_shardings` or `out_shardings` becomes one op a value at the beginning and the end of
its function, whose location names nothing. A shard_map becomes one `sdy.manual_computation`, or,
under GSPMD, a `@Sharding` and a `@SPMDFullToShardShape` an operand, a call, and a `@Sharding` and a
`@SPMDShardToFullShape` a result, all located at `shard_map`.

What JAX writes on its own account is not listed here, and has another name at the end of its
location: the reduction inside an all-reduce (`add`), every op on Explicit axes (`dot_general`,
`tanh`), the extra dimension of PRNG keys, the results of a nested shard_map (`shard_map`, but
`sdy.sharding_constraint`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from sdyscope.stages import compat
from sdyscope.stages.lowered.signature import ShardMap
from sdyscope.values.source import SourceLocation

Role = Literal["constraint", "reshard", "jit input", "jit output", "shard_map"]


@dataclass(frozen=True)
class Boundary:
    """One place inside a program where its author named shardings.

    Attributes:
        role: what the author wrote there.
        scope: the name stack, functions included: `jit(step)/while/body/layer`.
        source: the innermost line of user code.
        avals: JAX's abstract values: of the constrained value, or of a shard_map's operands.
        shardings: JAX's sharding for each of `avals`; of a shard_map None, see `shard_map`.
        shard_map: the parameters of a shard_map.
        out_avals: abstract values of a shard_map's results.
        unconstrained: dimensions that the partitioner may shard as it likes.
        priorities: Shardy's user priority of each dimension, of a constraint that has them: not
            JAX's own, but a primitive with its name and parameters and this one.
        manual_axes: mesh axes over which the surrounding code is manual (its shapes are local).
        index: which argument or result of a nested jit this is.
    """

    role: Role
    scope: str
    source: SourceLocation | None
    avals: tuple[Any, ...]
    shardings: tuple[Any, ...] = ()
    shard_map: ShardMap | None = None
    out_avals: tuple[Any, ...] = ()
    unconstrained: frozenset[int] = frozenset()
    priorities: tuple[int | None, ...] = ()
    manual_axes: tuple[str, ...] = ()
    index: int | None = None


def boundaries(jaxpr: Any, name: str) -> Iterator[Boundary]:
    """Walks a jaxpr (unused parts already dropped) of a function jitted under `name`."""
    yield from _Walk().jaxpr(jaxpr, f"jit({name})")


class _Walk:
    """One traversal, which remembers the functions that were lowered already."""

    def __init__(self) -> None:
        self.lowered: set[Hashable] = set()
        self.manual_axes: tuple[str, ...] = ()

    def jaxpr(self, jaxpr: Any, scope: str, around: Any = None) -> Iterator[Boundary]:
        """The boundaries of a jaxpr.

        Args:
            jaxpr: the jaxpr.
            scope: what is around it.
            around: JAX's name stack of the equation in whose place it is lowered: a transformation
                at its end wraps what the stacks inside begin with, `jvp(vmap())`.
        """
        for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
            own = equation.source_info.name_stack
            stack = own if around is None else around + own
            inside = f"{scope}/{stack}" if str(stack) else scope
            yield from self.equation(equation, inside, scope, stack)

    def function(self, key: Hashable, jaxpr: Any, scope: str) -> Iterator[Boundary]:
        """A jaxpr that is lowered as a function of its own, once for each key."""
        if key not in self.lowered:
            self.lowered.add(key)
            yield from self.jaxpr(jaxpr, scope)

    def equation(self, equation: Any, scope: str, outside: str, stack: Any) -> Iterator[Boundary]:
        """The boundaries of an equation.

        Args:
            equation: the equation.
            scope: its scope.
            outside: what is around its name stack.
            stack: the name stack.
        """
        params = equation.params
        match equation.primitive.name:
            case "sharding_constraint":
                yield Boundary(
                    "constraint",
                    scope,
                    compat.user_frame(equation),
                    (equation.outvars[0].aval,),
                    (params["sharding"],),
                    unconstrained=frozenset(params["unconstrained_dims"] or ()),
                    priorities=tuple(params.get("priorities", ())),
                    manual_axes=self.manual_axes,
                )
            case "reshard":
                yield from self.reshard(equation, scope)
            case "shard_map":
                yield from self.shard_map(equation, scope)
            case "jit" | "pjit":
                yield from self.jit(equation, scope)
            case "while":
                yield from self.while_loop(params, scope)
            case "scan":
                yield from self.scan(params, scope)
            case "cond":
                for number, branch in enumerate(params["branches"]):
                    yield from self.jaxpr(branch, f"{scope}/cond/branch_{number}_fun")
            case "checkpoint" | "remat" | "remat2":
                yield from self.jaxpr(params["jaxpr"], f"{scope}/checkpoint")
            case "custom_linear_solve":
                # Its matvec is for the derivative; only the solver is lowered.
                yield from self.jaxpr(params["jaxprs"].solve, outside, stack)
            case "closed_call" as name:
                yield from self.call(name, params["call_jaxpr"], scope)
            case "core_call" as name:
                yield from self.call(name, params["call_jaxpr"], f"{scope}/{name}")
            case "custom_partitioning" | "pallas_call":
                pass  # their jaxprs are not part of the module
            case _:
                for jaxpr in compat.sub_jaxprs(params):
                    yield from self.jaxpr(jaxpr, outside, stack)

    def call(self, name: str, jaxpr: Any, scope: str) -> Iterator[Boundary]:
        yield from self.function((name, getattr(jaxpr, "jaxpr", jaxpr)), jaxpr, scope)

    def reshard(self, equation: Any, scope: str) -> Iterator[Boundary]:
        aval = equation.outvars[0].aval
        if compat.is_explicit(aval.sharding.mesh):  # else nothing is written
            yield Boundary(
                "reshard",
                scope,
                compat.user_frame(equation),
                (aval,),
                (aval.sharding,),
                manual_axes=self.manual_axes,
            )

    def shard_map(self, equation: Any, scope: str) -> Iterator[Boundary]:
        parameters = compat.shard_map_parameters(equation.params)
        yield Boundary(
            "shard_map",
            scope,
            compat.user_frame(equation),
            tuple(atom.aval for atom in equation.invars),
            shard_map=parameters,
            out_avals=tuple(variable.aval for variable in equation.outvars),
            manual_axes=self.manual_axes,
        )
        outside, self.manual_axes = self.manual_axes, self.manual_axes + parameters.manual_axes
        yield from self.jaxpr(parameters.jaxpr, scope)
        self.manual_axes = outside

    def jit(self, equation: Any, scope: str) -> Iterator[Boundary]:
        params = equation.params
        jaxpr, name = params["jaxpr"], params["name"]
        shardings = (params["in_shardings"], params["out_shardings"])
        key = ("jit", name, jaxpr, *shardings, params["in_layouts"], params["out_layouts"])
        if getattr(params["inline"], "value", None) != "jax_late":
            if key in self.lowered:
                return
            self.lowered.add(key)
        scope, source = f"{scope}/jit({name})", compat.user_frame(equation)
        constants = compat.constant_shardings(jaxpr)
        inputs = [*constants, *zip(jaxpr.in_avals, shardings[0], strict=True)]
        yield from self.jit_values("jit input", inputs, scope, source, -len(constants))
        yield from self.jaxpr(jaxpr, scope)
        outputs = list(zip(jaxpr.out_avals, shardings[1], strict=True))
        yield from self.jit_values("jit output", outputs, scope, source, 0)

    def jit_values(
        self,
        role: Role,
        values: list[tuple[Any, Any]],
        scope: str,
        source: SourceLocation | None,
        first: int,
    ) -> Iterator[Boundary]:
        for index, (aval, sharding) in enumerate(values, first):
            if compat.specified(sharding) is not None and hasattr(aval, "shape"):
                yield Boundary(
                    role,
                    scope,
                    source,
                    (aval,),
                    (sharding,),
                    manual_axes=self.manual_axes,
                    index=index,
                )

    def while_loop(self, params: Any, scope: str) -> Iterator[Boundary]:
        condition = params["cond_jaxpr"]
        yield from self.jaxpr(condition, f"{scope}/while/cond")
        yield from self.jaxpr(params["body_jaxpr"], f"{scope}/while/body")
        if condition.out_avals[0].shape:
            # Batched: each iteration asks again which rows go on.
            yield from self.jaxpr(condition, f"{scope}/while/body_pred")

    def scan(self, params: Any, scope: str) -> Iterator[Boundary]:
        length, unroll = params["length"], params["unroll"]
        trips, rest = divmod(length, unroll) if unroll else (0, length)
        if unroll != 1 and trips == 1 and rest == 0:
            trips, rest = 0, length  # no loop is left
        copies = [f"{scope}/while/body"] * (unroll if trips else 0) + [scope] * rest
        for copy in copies:
            if compat.scan_body_is_inlined():
                yield from self.jaxpr(params["jaxpr"], copy)
            else:
                yield from self.call("closed_call", params["jaxpr"], copy)
