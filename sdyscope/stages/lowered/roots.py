"""Which arguments a program takes roots or logarithms of, element by element.

Of an optimizer's second moments, say: with values of either sign half of what it returns is NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from sdyscope.stages import compat

#: What has no value, or none that is finite, of negative numbers.
_ROOTS: Final = frozenset({"sqrt", "rsqrt", "log", "log1p", "pow"})

#: What has no negative elements where none of its operands has any.
_KEEPING: Final = frozenset(
    {
        *("add", "add_any", "mul", "div", "max", "min", "select_n"),
        *("broadcast_in_dim", "reshape", "squeeze", "transpose"),
        *("concatenate", "dynamic_slice", "gather", "reduce_sum", "slice", "split", "stack"),
        *("convert_element_type", "copy", "copy_p", "reduce_precision"),
        *("sharding_constraint", "reshard", "optimization_barrier"),
    }
)

#: What calls a function, or one of several, with its operands; `cond` chooses by the first.
_CALLS: Final = frozenset(
    {
        *("jit", "pjit", "closed_call", "core_call", "checkpoint", "remat2", "cond", "shard_map"),
        *("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"),
    }
)

_Arguments: TypeAlias = frozenset[int]
"""Numbers of arguments."""

_NONE: Final[_Arguments] = frozenset()


def rooted(jaxpr: Any) -> frozenset[int]:
    """The numbers of the arguments of a closed jaxpr that go into what a root is taken of."""
    taken: set[int] = set()
    _walk(jaxpr.jaxpr, [frozenset({number}) for number in range(len(jaxpr.in_avals))], taken)
    return frozenset(taken)


def _walk(jaxpr: Any, given: Sequence[_Arguments], taken: set[int]) -> list[_Arguments]:
    """What goes into each result of a jaxpr.

    Args:
        jaxpr: the jaxpr.
        given: what goes into each of its arguments.
        taken: what a root is taken of is added.
    """
    into: dict[Any, _Arguments] = dict(zip(jaxpr.invars, given, strict=True))

    def of(atoms: Sequence[Any]) -> list[_Arguments]:
        return [_NONE if hasattr(atom, "val") else into.get(atom, _NONE) for atom in atoms]

    for equation in jaxpr.eqns:
        name, operands = equation.primitive.name, of(equation.invars)
        if name in _ROOTS:
            taken |= operands[0]
        elif name in _KEEPING and not _is_square(equation):
            into |= dict.fromkeys(equation.outvars, _NONE.union(*operands))
        elif name in ("scan", "while"):
            into |= zip(equation.outvars, _looped(equation, operands, taken), strict=True)
        elif name in _CALLS:
            operands = operands[name == "cond" :]
            for body in compat.sub_jaxprs(equation.params):
                inside = getattr(body, "jaxpr", body)
                if len(inside.invars) == len(operands):
                    results = _walk(inside, operands, taken)
                    for variable, more in zip(equation.outvars, results, strict=False):
                        into[variable] = into.get(variable, _NONE) | more
    return of(jaxpr.outvars)


def _looped(equation: Any, given: Sequence[_Arguments], taken: set[int]) -> list[_Arguments]:
    """What goes into each result of a loop: what it carries is also what its body makes of that."""
    params = equation.params
    if equation.primitive.name == "scan":
        (body,) = compat.sub_jaxprs(params)
        constants, carried = compat.scan_operands(params)
    else:
        body = params["body_jaxpr"]
        given = given[params["cond_nconsts"] :]
        constants = params["body_nconsts"]
        carried = len(given) - constants
    inside = getattr(body, "jaxpr", body)
    end = constants + carried
    while True:
        results = _walk(inside, given, taken)
        carry = [
            before | after for before, after in zip(given[constants:end], results, strict=False)
        ]
        if carry == list(given[constants:end]):
            return [*carry, *results[carried:]]
        given = [*given[:constants], *carry, *given[end:]]


def _is_square(equation: Any) -> bool:
    """Whether a product has no negative elements, whatever its operands have."""
    first, *others = equation.invars
    return equation.primitive.name == "mul" and all(other is first for other in others)
