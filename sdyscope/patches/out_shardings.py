"""Where a source says how a value is sharded on Explicit axes.

JAX takes that as ``out_sharding`` of what makes the value (``jnp.einsum``, ``jnp.reshape``,
``x.at[...].get``) and as the second argument of ``jax.sharding.reshard``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

import libcst as cst

from sdyscope.patches.source import Source, last_name
from sdyscope.patches.specs import SpecLiteral, spec_literals

#: What JAX calls the argument: of ``reshard`` it is the second, and has the other name.
_KEYWORDS = frozenset({"out_sharding", "out_shardings"})

#: What JAX calls the function that only puts a sharding on a value.
RESHARD = "reshard"

_NAMED = "NamedSharding"


@dataclass(frozen=True)
class OutSharding:
    """A sharding that a source says of values.

    Attributes:
        literal: where it is written.
        calls: the calls that make values with it.
    """

    literal: SpecLiteral
    calls: tuple[cst.Call, ...] = field(repr=False, compare=False)


def out_shardings(source: Source, axes: Collection[str]) -> Iterator[OutSharding]:
    """Every sharding that a source says of values, in its calls or by a name that it is given once.

    Args:
        source: the file.
        axes: the names of the mesh's axes.
    """
    literals = {
        literal.node: literal for literal in spec_literals(source, axes) if literal.form == "spec"
    }
    assigned: dict[str, list[cst.BaseExpression]] = {}
    said: dict[cst.BaseExpression, list[cst.Call]] = {}
    calls: list[cst.Call] = []
    for node in source.nodes():
        if isinstance(node, cst.Assign):
            for target in node.targets:
                if isinstance(target.target, cst.Name):
                    assigned.setdefault(target.target.value, []).append(node.value)
        elif isinstance(node, cst.Call):
            calls.append(node)
    for call in calls:
        argument = sharding_argument(call)
        value = None if argument is None else argument.value
        if isinstance(value, cst.Name):
            values = assigned.get(value.value, [])
            value = values[0] if len(values) == 1 else None
        if isinstance(value, cst.Call) and last_name(value.func) == _NAMED and len(value.args) == 2:
            value = value.args[1].value
        if value in literals:
            said.setdefault(value, []).append(call)
    for value, makers in said.items():
        yield OutSharding(literals[value], tuple(makers))


def sharding_argument(call: cst.Call) -> cst.Arg | None:
    """The argument by which a call says how its result is sharded; None where it says nothing.

    The ``out_shardings`` of ``jit`` are of results, and another matter.
    """
    is_reshard = last_name(call.func) == RESHARD
    for number, argument in enumerate(call.args):
        name = "" if argument.keyword is None else argument.keyword.value
        if name == "out_sharding" or (is_reshard and (name in _KEYWORDS or number == 1)):
            return argument
    return None
