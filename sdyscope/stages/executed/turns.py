"""How often loops run whose length the values decide: a comparison says nothing of idle ones.

The program is evaluated on one device with a count beside each such loop. What has none inside is
bound as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core

from sdyscope.stages import compat
from sdyscope.stages.executed.execute import Runner
from sdyscope.stages.executed.inside import bound, called_jaxpr
from sdyscope.stages.executed.one_device import unsharded_jaxpr


def idle_loops(runner: Runner) -> int:
    """How many loops whose length the values decide are not known to run on a program's values.

    A loop in a function is counted once for each call of it.

    Args:
        runner: the program and its values.
    """
    closed = unsharded_jaxpr(runner.traced)
    count = _loops(closed)
    if not count:
        return 0

    def function(*values: Any) -> list[Any]:
        return [jnp.stack(_evaluated(closed.jaxpr, closed.consts, values)[1])]

    try:
        (turns,), _ = runner.on_one_device(function)
    except Exception:  # JAX and XLA raise every kind of error
        return count
    return int((turns == 0).sum())


def _loops(jaxpr: Any) -> int:
    """How many such loops there are in a jaxpr, in the order of ``_evaluated``."""
    return sum(map(_loops_in, getattr(jaxpr, "jaxpr", jaxpr).eqns))


def _loops_in(equation: Any) -> int:
    match equation.primitive.name:
        case "while":
            return 1 + _loops(equation.params["body_jaxpr"])
        case "scan":
            return _loops(equation.params["jaxpr"])
        case "cond":
            return sum(map(_loops, equation.params["branches"]))
    called = called_jaxpr(equation)
    return 0 if called is None else _loops(called)


def _evaluated(
    jaxpr: Any, consts: Sequence[Any], values: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    """What a jaxpr makes of values, and how often each of its loops runs."""
    there = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *values), strict=True))
    turns: list[Any] = []

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else there[atom]

    for equation in jaxpr.eqns:
        inputs = [read(atom) for atom in equation.invars]
        if _loops_in(equation):
            outputs, more = _entered(equation, inputs)
            turns += more
        else:
            outputs = bound(jaxpr, equation, inputs)
        there.update(zip(equation.outvars, outputs, strict=True))
    return [read(atom) for atom in jaxpr.outvars], turns


def _entered(equation: Any, inputs: list[Any]) -> tuple[Sequence[Any], list[Any]]:
    match equation.primitive.name:
        case "while":
            return _while(equation.params, inputs)
        case "scan":
            return _scan(equation.params, inputs)
        case "cond":
            return _cond(equation.params["branches"], inputs)
    called = called_jaxpr(equation)
    return _evaluated(getattr(called, "jaxpr", called), getattr(called, "consts", ()), inputs)


def _while(params: Any, inputs: list[Any]) -> tuple[Sequence[Any], list[Any]]:
    condition, body = params["cond_jaxpr"], params["body_jaxpr"]
    first, last = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]

    def goes_on(carry: Any) -> Any:
        (goes,) = core.jaxpr_as_fun(condition)(*inputs[:first], *carry[0])
        return goes

    def turned(carry: Any) -> Any:
        values, (own, *inner) = carry
        results, more = _evaluated(body.jaxpr, body.consts, [*inputs[first:last], *values])
        return results, [
            own + 1,
            *(before + each for before, each in zip(inner, more, strict=True)),
        ]

    nothing = [jnp.int32(0)] * (1 + _loops(body))
    outputs, turns = jax.lax.while_loop(goes_on, turned, (inputs[last:], nothing))
    return outputs, turns


def _scan(params: Any, inputs: list[Any]) -> tuple[Sequence[Any], list[Any]]:
    body = params["jaxpr"]
    first, carried = compat.scan_operands(params)
    last = first + carried

    def turned(carry: Any, row: Any) -> Any:
        values = [*inputs[:first], *carry, *row]
        results, turns = _evaluated(body.jaxpr, body.consts, values)
        return results[:carried], (results[carried:], turns)

    carry, (rows, turns) = jax.lax.scan(
        turned,
        inputs[first:last],
        inputs[last:],
        length=params["length"],
        reverse=params["reverse"],
    )
    return [*carry, *rows], [each.sum(dtype=jnp.int32) for each in turns]


def _cond(branches: Sequence[Any], inputs: list[Any]) -> tuple[Sequence[Any], list[Any]]:
    chosen, *operands = inputs
    counts = [*map(_loops, branches)]

    def taken(number: int) -> Any:
        def function(*values: Any) -> Any:
            branch = branches[number]
            results, own = _evaluated(branch.jaxpr, branch.consts, values)
            before, after = sum(counts[:number]), sum(counts[number + 1 :])
            nothing = jnp.int32(0)
            return results, [*[nothing] * before, *own, *[nothing] * after]

        return function

    outputs, turns = jax.lax.switch(chosen, [*map(taken, range(len(branches)))], *operands)
    return outputs, turns
