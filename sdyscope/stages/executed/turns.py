"""How often loops and branches run, as the values decide: idle ones are not compared.

The program is evaluated on one device with a count beside each. What has none inside is bound as it
is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
from jax.extend import core

from sdyscope.facts.execution import Idle
from sdyscope.stages import compat
from sdyscope.stages.executed.execute import Runner
from sdyscope.stages.executed.inside import bound, called_jaxpr
from sdyscope.stages.executed.one_device import unsharded_jaxpr

_Part: TypeAlias = Literal["loop", "branch"]


def idle_parts(runner: Runner) -> Idle:
    """Which loops and branches, as the values decide, are not known to run on a program's values.

    One in a function is counted once for each call of it. A branch that computes nothing is none.

    Args:
        runner: the program and its values.
    """
    closed = unsharded_jaxpr(runner.traced)
    parts = _parts(closed)
    if not parts:
        return Idle()

    def function(*values: Any) -> list[Any]:
        return [jnp.stack(_evaluated(closed.jaxpr, closed.consts, values)[1])]

    try:
        (turns,), _ = runner.on_one_device(function)
    except Exception:  # JAX and XLA raise every kind of error
        return Idle(parts.count("loop"), parts.count("branch"), is_known=False)
    idle = [part for part, count in zip(parts, turns, strict=True) if not count]
    return Idle(idle.count("loop"), idle.count("branch"))


def _parts(jaxpr: Any) -> list[_Part]:
    """The loops and branches in a jaxpr, in the order of ``_evaluated``."""
    return [part for eqn in getattr(jaxpr, "jaxpr", jaxpr).eqns for part in _parts_in(eqn)]


def _parts_in(equation: Any) -> list[_Part]:
    match equation.primitive.name:
        case "while":
            return ["loop", *_parts(equation.params["body_jaxpr"])]
        case "scan":
            return _parts(equation.params["jaxpr"])
        case "cond":
            return [part for branch in equation.params["branches"] for part in _branch(branch)]
    called = called_jaxpr(equation)
    return [] if called is None else _parts(called)


def _branch(branch: Any) -> list[_Part]:
    """A branch, if it computes anything, and what is inside."""
    return ["branch", *_parts(branch)] if branch.jaxpr.eqns else []


def _evaluated(
    jaxpr: Any, consts: Sequence[Any], values: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    """What a jaxpr makes of values, and how often each of its parts runs."""
    there = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *values), strict=True))
    turns: list[Any] = []

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else there[atom]

    for equation in jaxpr.eqns:
        inputs = [read(atom) for atom in equation.invars]
        if _parts_in(equation):
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

    nothing = [jnp.int32(0)] * (1 + len(_parts(body)))
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
    counts = [len(_branch(branch)) for branch in branches]

    def taken(number: int) -> Any:
        def function(*values: Any) -> Any:
            branch = branches[number]
            results, own = _evaluated(branch.jaxpr, branch.consts, values)
            before, after = sum(counts[:number]), sum(counts[number + 1 :])
            nothing, once = jnp.int32(0), [jnp.int32(1)] if branch.jaxpr.eqns else []
            return results, [*[nothing] * before, *once, *own, *[nothing] * after]

        return function

    outputs, turns = jax.lax.switch(chosen, [*map(taken, range(len(branches)))], *operands)
    return outputs, turns
