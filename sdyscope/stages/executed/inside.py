"""Values inside of a program, fetched from two runs of it: on its mesh, and of a counterpart.

A program is evaluated equation by equation, and chosen values are made results beside its own. What
is around them is entered: functions that are called are evaluated in place, a `scan` stacks what
its body makes along a dimension in front, a `shard_map` along one for each of its manual axes. All
other equations are bound as they are, so that little else is compiled than without. Values in a
branch that a `cond` does not take are zeros.

The counterpart is the same jaxpr without shardings on one device, or another one with the same ops:
the program traced on another mesh.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core
from jax.sharding import PartitionSpec

from sdyscope.facts.inside import Frame, InnerLevel, InnerValue, OtherOps, Place
from sdyscope.facts.program import Partitioner, Program
from sdyscope.graph import written_primitive
from sdyscope.stages import compat
from sdyscope.stages.executed import one_device
from sdyscope.stages.executed.execute import Runner
from sdyscope.stages.executed.one_device import Around
from sdyscope.stages.lowered.signature import ShardMap, SignatureArgument

#: Ops that call a function once: values inside of it are values of the caller.
_CALLS = frozenset(
    {
        *("jit", "pjit", "closed_call", "core_call", "checkpoint", "remat", "remat2"),
        *("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"),
    }
)

#: What ops with a body call the scope of what is in it, as in the IR.
_SCOPES: Mapping[str, str] = {
    "checkpoint": "checkpoint",
    "remat": "checkpoint",
    "remat2": "checkpoint",
    "core_call": "core_call",
    "scan": "while/body",
}


def called_jaxpr(equation: Any) -> Any:
    """The jaxpr of the function that an equation calls; None where it calls none, or several."""
    if equation.primitive.name not in _CALLS:
        return None
    jaxprs = list(compat.sub_jaxprs(equation.params))
    if len(jaxprs) != 1 or len(_open(jaxprs[0]).invars) != len(equation.invars):
        return None
    return jaxprs[0]


def _open(jaxpr: Any) -> Any:
    return getattr(jaxpr, "jaxpr", jaxpr)


def _bodies(jaxpr: Any, entered: Iterable[int]) -> Iterator[tuple[Any, Any, int]]:
    """Each equation that is entered, the jaxpr in it, and its number among branches."""
    numbers = iter(entered)
    for number in numbers:
        equation, branch = _open(jaxpr).eqns[number], 0
        if equation.primitive.name == "cond":
            branch = next(numbers)
            jaxpr = equation.params["branches"][branch]
        else:
            called = called_jaxpr(equation)
            jaxpr = equation.params["jaxpr"] if called is None else called
        yield equation, jaxpr, branch


class Insides:
    """The values inside of a program as it runs under a partitioner, and those of its counterpart.

    Args:
        runner: runs the program.
        partitioner: under which.
        other: the counterpart's `jax.stages.Traced`, with arguments of the same shapes; None for
            the program's own jaxpr without shardings.
    """

    def __init__(self, runner: Runner, partitioner: Partitioner, other: Any = None) -> None:
        self._runner, self._partitioner = runner, partitioner
        self._traced = runner.traced
        self._other = self._traced if other is None else other

    def level(self, entered: tuple[int, ...] = ()) -> InnerLevel:
        """The values of a body.

        Args:
            entered: the equation whose body it is; empty for the program itself.

        Raises:
            OtherOps: the counterpart has other ops there.
        """
        return _level(self._traced, self._other, entered)

    def look(self, places: Sequence[Place]) -> dict[Place, tuple[Any, Any]]:
        """Values inside, on both sides: each is compiled and run once.

        What is not the same in all replicas is what the first device holds.
        """
        # Where all is manual, no partitioner decides by what else is computed: that is left out.
        alone = all(_is_manual(self._traced, path) for path, _ in places)
        count = 0 if alone else len(self._traced.jaxpr.out_avals)
        program = self._program(places, alone)
        here = self._runner.beside(program, alike=not alone).results(self._partitioner)
        there, _ = self._runner.on_one_device(
            _with_values(self._other, places, sharded=False, alone=alone)
        )
        pairs = zip(here[count:], there[count:], strict=True)
        return dict(zip(places, pairs, strict=True))

    def _program(self, places: Sequence[Place], alone: bool) -> Program:
        """The program with these values as further results, or as its only ones."""
        results = [
            compat.unspecified() if result.asked is None else result.asked
            for result in compat.results(self._traced)
        ]
        function = jax.jit(
            _with_values(self._traced, places, sharded=True, alone=alone),
            out_shardings=[*([] if alone else results), *[compat.unspecified()] * len(places)],
        )
        return Program(
            self._runner.program.name,
            function,
            tuple(map(_abstract, compat.arguments(self._traced))),
            mesh=self._runner.program.mesh,
        )


def _abstract(argument: SignatureArgument) -> Any:
    asked = argument.given if argument.asked is None else argument.asked
    return jax.ShapeDtypeStruct(
        argument.aval.shape,
        argument.aval.dtype,
        sharding=getattr(asked, "sharding", asked),  # of a Format, with a layout
        weak_type=argument.aval.weak_type,
    )


# --- what is in it --------------------------------------------------------------------------------


def _level(traced: Any, other: Any, entered: tuple[int, ...]) -> InnerLevel:
    """The values of a body in a program.

    Args:
        traced: the program's `jax.stages.Traced`.
        other: that of its counterpart; the same one where that is the jaxpr without shardings.
        entered: the equation whose body it is; empty for the program itself.

    Raises:
        OtherOps: the counterpart has other ops there.
    """
    values, results = _values(traced, entered)
    counterparts: list[InnerValue] = []
    if other is not traced:
        counterparts, _ = _values(other, entered)
        if [value.op for value in values] != [other.op for other in counterparts]:
            raise OtherOps
    frames = _frames(traced, other, entered)
    return InnerLevel(tuple(values), results, frames, tuple(counterparts))


def _values(
    traced: Any, entered: tuple[int, ...]
) -> tuple[list[InnerValue], tuple[int | None, ...]]:
    jaxpr, scope = traced.jaxpr, f"jit({traced.fun_name})"
    for equation, body, branch in _bodies(traced.jaxpr, entered):
        scope, jaxpr = _inner_scope(equation, _scope(equation, scope), branch), body
    walk = _Walk()
    results = walk.values_of(jaxpr, entered, scope, {})
    return walk.values, tuple(results)


def _scope(equation: Any, outside: str) -> str:
    stack = str(equation.source_info.name_stack)
    return f"{outside}/{stack}" if stack else outside


def _inner_scope(equation: Any, scope: str, branch: int = 0) -> str:
    name = equation.primitive.name
    if name == "cond":
        return f"{scope}/cond/branch_{branch}_fun"
    if name in ("jit", "pjit"):
        return f"{scope}/jit({equation.params['name']})"
    return f"{scope}/{_SCOPES[name]}" if name in _SCOPES else scope


class _Walk:
    """Lists the values of a jaxpr and of the functions that it calls."""

    def __init__(self) -> None:
        self.values: list[InnerValue] = []

    def values_of(
        self, jaxpr: Any, path: tuple[int, ...], scope: str, numbers: dict[Any, int | None]
    ) -> list[int | None]:
        def number(atom: Any) -> int | None:
            return None if isinstance(atom, core.Literal) else numbers.get(atom)

        for at, equation in enumerate(_open(jaxpr).eqns):
            here, inputs = (*path, at), [number(atom) for atom in equation.invars]
            name, called = _scope(equation, scope), called_jaxpr(equation)
            if called is None:
                inner_numbers = self.outputs_of(equation, here, name, inputs)
            else:
                inner = dict(zip(_open(called).invars, inputs, strict=True))
                inner_numbers = self.values_of(called, here, _inner_scope(equation, name), inner)
            numbers.update(zip(equation.outvars, inner_numbers, strict=True))
        return [number(atom) for atom in _open(jaxpr).outvars]

    def outputs_of(
        self, equation: Any, path: tuple[int, ...], scope: str, inputs: Sequence[int | None]
    ) -> list[int | None]:
        own_numbers: list[int | None] = []
        op = equation.primitive.name
        known = tuple(dict.fromkeys(number for number in inputs if number is not None))
        operands = tuple(_type(atom.aval)[0] for atom in equation.invars)
        branches = len(equation.params["branches"]) if op == "cond" else 0
        axes = equation.params.get("axis_name")
        named = axes if isinstance(axes, tuple | list) else (axes,)
        over = tuple(axis for axis in named if isinstance(axis, str))
        for output, variable in enumerate(equation.outvars):
            own_numbers.append(len(self.values))
            shape, dtype = _type(variable.aval)
            self.values.append(
                InnerValue(
                    (path, output),
                    written_primitive(op),
                    scope,
                    compat.user_frame(equation),
                    # Where a device is differs by device, rightly.
                    "" if dtype is None or op == "axis_index" else compat.dtype_name(dtype),
                    shape,
                    0 if dtype is None else variable.aval.size * dtype.itemsize,
                    known,
                    op if op in ("scan", "shard_map", "cond") else "",
                    operands,
                    branches,
                    inputs[0] if branches else None,
                    over,
                )
            )
        return own_numbers


def _type(aval: Any) -> tuple[tuple[int, ...], Any]:
    """Shape and dtype; no dtype for what is no array of numbers."""
    dtype = getattr(aval, "dtype", None)
    if dtype is None or type(aval).__name__ == "AbstractRef":
        return (), None
    if jnp.issubdtype(dtype, jax.dtypes.extended) or dtype == jax.dtypes.float0:
        return tuple(aval.shape), None
    return tuple(aval.shape), dtype


def _frames(traced: Any, counterpart: Any, entered: tuple[int, ...]) -> tuple[Frame, ...]:
    """The loops and shard_maps around what is in an equation, itself included."""
    frames = []
    sides = (_bodies(each.jaxpr, entered) for each in (traced, counterpart))
    for (equation, _, _), (its_equation, _, _) in zip(*sides, strict=True):
        match equation.primitive.name:
            case "scan":
                length, other = equation.params["length"], its_equation.params["length"]
                is_reverse = bool(equation.params["reverse"])
                frames.append(Frame("scan", (length,), (other,), reverse=is_reverse))
            case "shard_map":
                own, other = (
                    compat.shard_map_parameters(each.params) for each in (equation, its_equation)
                )
                frames.append(Frame("shard_map", _sizes(own), _sizes(other), own.manual_axes))
    return tuple(frames)


def _is_manual(traced: Any, path: Sequence[int]) -> bool:
    """Whether an equation is in a shard_map that is manual over all axes of its mesh."""
    for equation, _, _ in _bodies(traced.jaxpr, path[:-1]):
        if equation.primitive.name == "shard_map":
            shard_map = compat.shard_map_parameters(equation.params)
            if set(shard_map.manual_axes) == set(shard_map.mesh.axis_names):
                return True
    return False


def _sizes(shard_map: ShardMap) -> tuple[int, ...]:
    return tuple(int(shard_map.mesh.shape[axis]) for axis in shard_map.manual_axes)


# --- with its values as results -------------------------------------------------------------------


def _with_values(
    traced: Any, places: Iterable[Place], *, sharded: bool, alone: bool
) -> Callable[..., list[Any]]:
    """The program's function on flat arguments, with values inside behind its own results.

    Args:
        traced: its `jax.stages.Traced`.
        places: the values, in order.
        sharded: whether it is run on its mesh; else its shardings are taken out, as in `unsharded`.
        alone: whether its own results are left out.
    """
    wanted = tuple(places)
    evaluation = _Evaluation(wanted, sharded=sharded)
    consts = traced.jaxpr.consts
    if not sharded:
        consts = [*map(one_device.on_one, consts)]
    around = one_device.around(traced)

    def function(*values: Any) -> list[Any]:
        results, wanted_values = evaluation.run(traced.jaxpr.jaxpr, consts, values, (), around)
        return [*([] if alone else results), *(wanted_values[place] for place in wanted)]

    return function


class _Evaluation:
    """Evaluates jaxprs, and keeps some of the values."""

    def __init__(self, wanted: Sequence[Place], *, sharded: bool) -> None:
        self._wanted = frozenset(wanted)
        self._outputs: dict[tuple[int, ...], list[int]] = {}
        for path, output in wanted:
            self._outputs.setdefault(path, []).append(output)
        self._entered = {path[:k] for path, _ in wanted for k in range(1, len(path))}
        self._sharded = sharded

    def _below(self, path: tuple[int, ...]) -> list[Place]:
        """The values that are wanted inside of an equation, in order."""
        return sorted(place for place in self._wanted if place[0][: len(path)] == path != place[0])

    def run(
        self,
        jaxpr: Any,
        consts: Sequence[Any],
        values: Sequence[Any],
        path: tuple[int, ...],
        around: Around,
    ) -> tuple[list[Any], dict[Place, Any]]:
        there = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *values), strict=True))

        def read(atom: Any) -> Any:
            return atom.val if isinstance(atom, core.Literal) else there[atom]

        wanted_values: dict[Place, Any] = {}
        for at, equation in enumerate(jaxpr.eqns):
            here, inputs = (*path, at), [read(atom) for atom in equation.invars]
            if here in self._entered:
                outputs, inner = self._enter(equation, inputs, here, around)
                wanted_values |= inner
            else:
                outputs = bound(jaxpr, equation, inputs, None if self._sharded else around)
            there.update(zip(equation.outvars, outputs, strict=True))
            for output in self._outputs.get(here, ()):
                wanted_values[here, output] = outputs[output]
        return [read(atom) for atom in jaxpr.outvars], wanted_values

    def _enter(
        self, equation: Any, inputs: Sequence[Any], path: tuple[int, ...], around: Around
    ) -> tuple[Sequence[Any], dict[Place, Any]]:
        match equation.primitive.name:
            case "scan":
                return self._scan(equation, inputs, path, around)
            case "shard_map":
                return self._shard_map(equation, inputs, path, around)
            case "cond":
                return self._cond(equation, inputs, path, around)
        called = called_jaxpr(equation)
        shardings = [equation.params.get(key, ()) for key in ("in_shardings", "out_shardings")]
        inputs = self._constrained(inputs, shardings[0])
        outputs, wanted_values = self.run(
            _open(called), getattr(called, "consts", ()), inputs, path, around
        )
        return self._constrained(outputs, shardings[1]), wanted_values

    def _constrained(self, values: Sequence[Any], shardings: Sequence[Any]) -> Sequence[Any]:
        """Values as a nested jit's shardings want them."""
        if not self._sharded or all(compat.specified(sharding) is None for sharding in shardings):
            return values
        return [
            value
            if compat.specified(sharding) is None
            else jax.lax.with_sharding_constraint(value, sharding)
            for value, sharding in zip(values, shardings, strict=True)
        ]

    def _scan(
        self, equation: Any, inputs: Sequence[Any], path: tuple[int, ...], around: Around
    ) -> tuple[Sequence[Any], dict[Place, Any]]:
        params, wanted = equation.params, self._below(path)
        closed = params["jaxpr"]
        first, carried = compat.scan_operands(params)
        last = first + carried

        def body(carry: Any, row: Any) -> Any:
            values = [*inputs[:first], *carry, *row]
            results, wanted_values = self.run(closed.jaxpr, closed.consts, values, path, around)
            rows = tuple(results[carried:]), tuple(wanted_values[place] for place in wanted)
            return tuple(results[:carried]), rows

        carry, (rows, stacked) = jax.lax.scan(
            body,
            tuple(inputs[first:last]),
            tuple(inputs[last:]),
            length=params["length"],
            reverse=params["reverse"],
        )
        return [*carry, *rows], dict(zip(wanted, stacked, strict=True))

    def _shard_map(
        self, equation: Any, inputs: Sequence[Any], path: tuple[int, ...], around: Around
    ) -> tuple[Sequence[Any], dict[Place, Any]]:
        parameters = compat.shard_map_parameters(equation.params)
        wanted, inside = self._below(path), around.inside(parameters)

        def body(*blocks: Any) -> tuple[Any, ...]:
            jaxpr = parameters.jaxpr
            consts = getattr(jaxpr, "consts", ())
            results, values = self.run(_open(jaxpr), consts, blocks, path, inside)
            return *results, *(values[place] for place in wanted)

        map_over = (
            _shard_mapped(equation, parameters, body, len(wanted))
            if self._sharded
            else (one_device.mapped(parameters, body))
        )
        results, count = map_over(*inputs), len(parameters.out_specs)
        return results[:count], dict(zip(wanted, results[count:], strict=True))

    def _cond(
        self, equation: Any, inputs: Sequence[Any], path: tuple[int, ...], around: Around
    ) -> tuple[Sequence[Any], dict[Place, Any]]:
        chosen, *operands = inputs
        wanted, count = self._below(path), len(equation.outvars)

        def varying(value: Any) -> Any:
            """As all branches have it, whatever the types of values in them."""
            return compat.varying(value, tuple(around.axes)) if self._sharded else value

        def evaluated(branch: int, values: Sequence[Any]) -> tuple[list[Any], dict[Place, Any]]:
            closed = equation.params["branches"][branch]
            results, inner = self.run(closed.jaxpr, closed.consts, values, (*path, branch), around)
            return results, {place: varying(value) for place, value in inner.items()}

        def inside(branch: int) -> Any:
            return jax.eval_shape(lambda: evaluated(branch, operands)[1])

        of_branches = [inside(branch) for branch in range(len(equation.params["branches"]))]
        types = {place: kind for types in of_branches for place, kind in types.items()}

        def taken(branch: int) -> Callable[..., list[Any]]:
            def function(*values: Any) -> list[Any]:
                results, inner = evaluated(branch, values)
                return [*results, *(inner.get(place, nothing(place)) for place in wanted)]

            return function

        def nothing(place: Place) -> Any:
            return varying(jnp.zeros(types[place].shape, types[place].dtype))

        results = jax.lax.switch(chosen, [*map(taken, range(len(of_branches)))], *operands)
        return results[:count], dict(zip(wanted, results[count:], strict=True))


def bound(
    jaxpr: Any, equation: Any, inputs: Sequence[Any], around: Around | None = None
) -> Sequence[Any]:
    """What an equation of a jaxpr makes of values; without its shardings, if given what is around.

    Args:
        jaxpr: the jaxpr.
        equation: one of its equations.
        inputs: what it takes, literals included.
        around: what is around it, as `stripped` takes it; None to bind it as it is.
    """
    given = {
        atom: value
        for atom, value in zip(equation.invars, inputs, strict=True)
        if not isinstance(atom, core.Literal)
    }
    single = jaxpr.replace(constvars=[], invars=[*given], outvars=equation.outvars, eqns=[equation])
    if around is not None:
        single = one_device.stripped(single, around)
    results: Sequence[Any] = core.jaxpr_as_fun(core.ClosedJaxpr(single, []))(*given.values())
    return results


def _shard_mapped(
    equation: Any, shard_map: ShardMap, body: Callable[..., Sequence[Any]], more: int
) -> Callable[..., Sequence[Any]]:
    """A shard_map with another body, whose last results get dimensions in front for the axes."""
    params, manual, count = equation.params, shard_map.manual_axes, len(shard_map.out_specs)

    def stacking(*blocks: Any) -> tuple[Any, ...]:
        results = body(*blocks)
        return *results[:count], *(
            value.reshape((1,) * len(manual) + value.shape) for value in results[count:]
        )

    mapped: Callable[..., Sequence[Any]] = jax.shard_map(
        stacking,
        mesh=shard_map.mesh,
        in_specs=shard_map.in_specs,
        out_specs=(*shard_map.out_specs, *(PartitionSpec(*manual),) * more),
        axis_names=frozenset(manual),
        check_vma=params.get("check_vma", params.get("check_rep", True)),
    )
    return mapped
