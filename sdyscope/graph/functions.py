"""Entries of the table of functions, and the nodes of what main returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sdyscope.graph.attributes import result_shardings
from sdyscope.graph.locations import UNKNOWN, Location, is_of_scan, scope_in
from sdyscope.graph.model import RESULT, Argument, AttributeValue, Function, Op, Result
from sdyscope.graph.types import TensorType
from sdyscope.syntax.strings import label

if TYPE_CHECKING:
    from sdyscope.graph.op_graph import OpGraph


def argument_of(op: Op) -> Argument:
    """An entry of the table of functions, from the argument's node."""
    return Argument(
        op.id,
        op.argument,
        op.location.scope,
        op.types[0],
        op.shardings[0],
        op.attributes,
        op.location,
    )


def result_of(index: int, type_: TensorType, attributes: Mapping[str, AttributeValue]) -> Result:
    """An entry of the table of functions, from the attributes written on the result."""
    name = label(str(attributes.get("jax.result_info", "")))
    return Result(None, index, name, type_, result_shardings(attributes, 1)[0], attributes)


def function_of(
    op: Op,
    arguments: Iterable[Op],
    types: Sequence[TensorType],
    written: Sequence[Mapping[str, AttributeValue]],
) -> Function:
    """A row of the table, from the function's node, its arguments', and what results have."""
    return Function(
        op.function,
        op.attributes.get("sym_visibility", ""),
        op.id,
        tuple(map(argument_of, arguments)),
        tuple(map(result_of, range(len(types)), types, written)),
    )


def name_bodies(graph: OpGraph) -> None:
    """Gives ops in the body of a scan the scope that it is in.

    JAX makes a function of it before 0.12, in which scopes begin anew, and calls it once. Those in
    a `shard_map` begin anew with every JAX (`OpGraph.scope`).
    """
    arounds: dict[str, str] = {}

    def around(function: str) -> str:
        if function not in arounds:
            calls = graph.callers(function)
            is_body = len(calls) == 1 and is_of_scan(calls[0].scope)
            arounds[function] = (
                scope_in(around(calls[0].function), calls[0].scope) if is_body else ""
            )
        return arounds[function]

    if not any(map(around, graph.functions)):
        return
    named: dict[tuple[str, int], Location] = {}
    mapped: set[int | None] = set()
    for at, op in enumerate(graph.ops):
        if op.kind == "sdy.manual_computation" or op.parent in mapped:
            mapped.add(at)
        if op.is_argument or not op.scope or op.parent in mapped:
            continue
        outer = around(op.function)
        if not outer:
            continue
        key = outer, id(op.location)
        if key not in named:
            named[key] = replace(op.location, scope=scope_in(outer, op.scope), in_body=op.scope)
        graph.ops[at] = op._replace(location=named[key])


def add_results(graph: OpGraph) -> None:
    """Adds a node for each result of main, after all that the module has."""
    main = graph.main
    if main is None:
        return
    first = len(graph.ops)
    results = tuple(replace(result, node=first + result.index) for result in main.results)
    graph.functions[main.name] = replace(main, results=results)
    for result in results:
        graph.ops.append(
            Op(
                len(graph.ops),
                RESULT,
                "",
                (result.type,),
                (result.sharding,),
                main.name,
                main.op,
                0,
                0,
                Location(result.name) if result.name else UNKNOWN,
                result.attributes,
                result=result.index,
            )
        )
        graph.operand_values.append(())
