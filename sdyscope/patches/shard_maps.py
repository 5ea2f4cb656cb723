"""Where a source maps a function over shards, and what it says of arguments and results there."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

import libcst as cst

from sdyscope.patches.source import Source, last_name
from sdyscope.patches.specs import SpecLiteral, spec_literals

_SHARD_MAP, _PARTIAL = "shard_map", "partial"

#: The arguments of shard_map in order, where they are given without a name.
_IN_ORDER = ("f", "mesh", "in_specs", "out_specs")


@dataclass(frozen=True)
class MapSite:
    """A call or decorator that maps a function over shards.

    Attributes:
        source: the file.
        line: its line.
        mapped: name of the function; ``<lambda>`` for one without; empty where it is not known.
        in_specs: how each argument is written to be sharded; None for what is no literal.
        out_specs: likewise of each result.
    """

    source: Source = field(repr=False, compare=False)
    line: int
    mapped: str
    in_specs: tuple[SpecLiteral | None, ...]
    out_specs: tuple[SpecLiteral | None, ...]


def map_sites(source: Source, axes: Collection[str]) -> Iterator[MapSite]:
    """Every place of a source that maps a function over shards.

    Args:
        source: the file.
        axes: the names of the axes of the mesh.
    """
    literals: dict[cst.BaseExpression, SpecLiteral] | None = None
    for node in source.nodes():
        if not isinstance(node, cst.Call):
            continue
        given = _given(node)
        if "in_specs" not in given or "out_specs" not in given:
            continue
        if literals is None:
            literals = {
                each.node: each for each in spec_literals(source, axes) if each.form == "spec"
            }
        yield MapSite(
            source,
            source.line(node),
            _mapped(source, node, given),
            _literals(given["in_specs"], literals),
            _literals(given["out_specs"], literals),
        )


def _given(call: cst.Call) -> dict[str, cst.BaseExpression]:
    """What is given to shard_map, by name; nothing of another call."""
    arguments = list(call.args)
    if (
        last_name(call.func) == _PARTIAL
        and arguments
        and last_name(arguments[0].value) == _SHARD_MAP
    ):
        arguments = arguments[1:]
    elif last_name(call.func) != _SHARD_MAP:
        return {}
    given: dict[str, cst.BaseExpression] = {}
    for at, argument in enumerate(arguments):
        if argument.keyword is not None:
            given[argument.keyword.value] = argument.value
        elif not argument.star and at < len(_IN_ORDER):
            given[_IN_ORDER[at]] = argument.value
    return given


def _mapped(source: Source, call: cst.Call, given: Mapping[str, cst.BaseExpression]) -> str:
    """The name of the function: the first argument, or what is decorated, or called with it."""
    function = given.get("f")
    around = source.parent(call)
    if function is None and isinstance(around, cst.Call) and around.func is call and around.args:
        function = around.args[0].value
    if isinstance(function, cst.Lambda):
        return "<lambda>"
    if function is not None:
        return last_name(function)
    if isinstance(around, cst.Decorator):
        decorated = source.parent(around)
        return decorated.name.value if isinstance(decorated, cst.FunctionDef) else ""
    return ""


def _literals(
    node: cst.BaseExpression, literals: Mapping[cst.BaseExpression, SpecLiteral]
) -> tuple[SpecLiteral | None, ...]:
    if isinstance(node, cst.Tuple | cst.List):
        return tuple(literals.get(element.value) for element in node.elements)
    return (literals.get(node),)
