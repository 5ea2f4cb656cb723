"""Manual computations (``shard_map``), from how HLO has them to Shardy's op."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sdyscope.errors import CompilerError
from sdyscope.stages import compat
from sdyscope.stages.propagated.hlo_order import functions, take_body
from sdyscope.stages.propagated.mlir_ops import (
    by_name,
    frontend_attribute,
    owner,
    parse,
    replace_terminator,
)

#: What the functions are called that hold the bodies.
BODY = "xla.sdy.manual_computation_body"


def manual_calls(module: Any) -> list[Any]:
    """The calls of bodies of manual computations that stand in a public function by now."""
    there = functions(module)
    if not any(name.startswith(BODY) for name in there):
        return []
    return [
        operation
        for function in there.values()
        if compat.is_public(function)
        for operation in by_name(function, "func.call")["func.call"]
        if compat.ir.FlatSymbolRefAttr(operation.attributes["callee"]).value.startswith(BODY)
    ]


def import_manual_computation(module: Any, call: Any) -> None:
    """Makes ``sdy.manual_computation`` of a body's call and the shape conversions around it.

    HLO has ``xla.sdy.GlobalToLocalShape(operands) -> call -> xla.sdy.LocalToGlobalShape``, each
    with a tuple where there are several values, and neither where there are no values.
    """
    enters = [_through_tuple(value) for value in call.operands]
    entry = enters[0] if enters else None
    operands = list(entry.operands) if entry is not None else []
    leave = next((user for user in _users(call)), None)
    name = compat.ir.FlatSymbolRefAttr(call.attributes["callee"]).value
    function = functions(module)[name]
    ins = frontend_attribute("xla.sdy.in_shardings", entry, call)
    outs = frontend_attribute("xla.sdy.out_shardings", leave, call)
    manual = frontend_attribute("xla.sdy.manual_axes", leave, entry, call)
    results = _results_of(leave) if leave is not None else []
    computation = compat.ir.Operation.create(
        "sdy.manual_computation",
        results=_result_types(leave) if leave is not None else [],
        operands=operands,
        attributes={
            "in_shardings": ins or parse("#sdy.sharding_per_value<[]>"),
            "out_shardings": outs or parse("#sdy.sharding_per_value<[]>"),
            "manual_axes": manual or parse("#sdy<manual_axes{}>"),
        },
        regions=1,
        loc=call.location,
        ip=compat.ir.InsertionPoint(call if leave is None else leave),
    )
    types = [value.type for value in call.operands]
    block = computation.regions[0].blocks.append(
        *types, arg_locs=[computation.location for _ in types] if types else None
    )
    with compat.ir.InsertionPoint(block):
        end = compat.ir.Operation.create("sdy.return", loc=function.location)
    returned = take_body(function, list(block.arguments), end)
    replace_terminator(end, "sdy.return", returned)
    for old, new in results:
        made_result = computation.results[new]
        old.replace_all_uses_with(made_result)
    for dead in _conversions(call, entry, leave):
        dead.erase()


def _through_tuple(value: Any) -> Any:
    """The conversion that a local value comes from."""
    maker = owner(value)
    if maker is not None and maker.name == "stablehlo.get_tuple_element":
        maker = owner(maker.operands[0])
    if maker is None or maker.name != "stablehlo.custom_call":
        raise CompilerError("A manual computation takes a value that no conversion made local.")
    return maker


def _users(call: Any) -> Iterator[Any]:
    for result in call.results:
        for use in result.uses:
            user = use.owner.operation
            if user.name == "stablehlo.custom_call":
                yield user
            else:
                yield from _users(user)


def _results_of(leave: Any) -> list[tuple[Any, int]]:
    """What stands for each global result, and its number."""
    result = leave.results[0]
    if not compat.is_tuple(result.type):
        return [(result, 0)]
    elements = [use.owner.operation for use in result.uses]
    return [
        (element.results[0], compat.ir.IntegerAttr(element.attributes["index"]).value)
        for element in elements
    ]


def _result_types(leave: Any) -> list[Any]:
    type_ = leave.results[0].type
    if not compat.is_tuple(type_):
        return [type_]
    tuple_type = compat.ir.TupleType(type_)
    return [tuple_type.get_type(number) for number in range(tuple_type.num_types)]


def _conversions(call: Any, entry: Any, leave: Any) -> list[Any]:
    """The ops that are gone now, users before producers."""
    dead: list[Any] = []
    if leave is not None:
        if compat.is_tuple(leave.results[0].type):
            dead += [use.owner.operation for use in leave.results[0].uses]
        dead.append(leave)
        dead += [
            use.owner.operation
            for result in call.results
            for use in result.uses
            if use.owner.operation.name == "stablehlo.get_tuple_element"
        ]
    dead.append(call)
    if entry is not None:
        dead += [
            use.owner.operation
            for use in entry.results[0].uses
            if use.owner.operation.name == "stablehlo.get_tuple_element"
        ]
        dead.append(entry)
    return dead
