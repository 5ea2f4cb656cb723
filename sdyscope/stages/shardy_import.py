"""From a module that came out of HLO to Shardy's dialect, as XLA's import pipeline does it.

XLA's passes for this (``xla/service/spmd/shardy``) are not registered in jaxlib but for one; what
the others do is done here, one function each, in their order: constants, loops, manual
computations, custom calls, free variables of loops.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sdyscope.errors import CompilerError
from sdyscope.stages import compat
from sdyscope.stages.hlo_order import functions, inline_calls, reorder, take_body
from sdyscope.stages.passes import run

__all__ = ["import_module", "walk"]

_BODY = "xla.sdy.manual_computation_body"
_FRONTEND = "mhlo.frontend_attributes"


def import_module(module: Any) -> None:
    """Turns a module as `compat.through_hlo` returns it into what XLA propagates on, in place.

    Raises:
      CompilerError: the module holds something that can't be imported.
    """
    with module.context, compat.ir.Location.unknown():
        inline_calls(module, lambda name, _: name.startswith(_BODY))
        run(module, "symbol-dce")
        for function in functions(module).values():
            for block in function.regions[0].blocks:
                reorder(block)
                constants_to_shardy(block)
                loop_invariants_to_captures(block)
        _forget_meshes(module)
        run(module, "xla-sdy-round-trip-import-shardy-attrs")
        if compat.named_hlo_shardings():
            for function in functions(module).values():
                result_sharding_from_root(function)
        while calls := _manual_calls(module):
            import_manual_computation(module, calls[0])
        run(module, "symbol-dce")
        for function in functions(module).values():
            for operation in list(walk(function)):
                if operation.name == "stablehlo.custom_call":
                    import_custom_call(operation)
            open_free_variables(function)


def walk(operation: Any) -> Iterator[Any]:
    """Every op inside an op, each before what is inside it."""
    for region in operation.regions:
        for block in region.blocks:
            for view in block.operations:
                inner = view.operation
                yield inner
                if len(inner.regions):
                    yield from walk(inner)


def constants_to_shardy(block: Any) -> None:
    """Makes every constant Shardy's own, which no pattern folds or merges."""
    for view in list(block.operations):
        operation = view.operation
        if operation.name == "stablehlo.constant":
            result = operation.results[0]
            made = compat.ir.Operation.create(
                "sdy.constant",
                results=[result.type],
                attributes=dict(compat.dictionary_items(operation.attributes)),
                loc=operation.location,
                ip=compat.ir.InsertionPoint(operation),
            )
            result.replace_all_uses_with(made.results[0])
            operation.erase()
        elif len(operation.regions):
            for region in operation.regions:
                for inner in region.blocks:
                    constants_to_shardy(inner)


def loop_invariants_to_captures(block: Any) -> None:
    """Uses values that a loop only carries along directly, instead of as its operands."""
    for view in list(block.operations):
        operation = view.operation
        if operation.name == "stablehlo.while":
            operation = _without_invariants(operation)
        for region in operation.regions:
            for inner in region.blocks:
                loop_invariants_to_captures(inner)
        # What an inner loop captures from this one's arguments may be invariant now.
        while operation.name == "stablehlo.while" and _invariants(operation):
            operation = _without_invariants(operation)


def _invariants(loop: Any) -> list[int]:
    body = loop.regions[1].blocks[0]
    returned = body.operations[len(body.operations) - 1].operation.operands
    return [
        number
        for number, operand in enumerate(loop.operands)
        if returned[number] == body.arguments[number] or returned[number] == operand
    ]


def _without_invariants(loop: Any) -> Any:
    invariant = set(_invariants(loop))
    if not invariant:
        return loop
    operands = list(loop.operands)
    kept = [number for number in range(len(operands)) if number not in invariant]
    results = list(loop.results)
    blocks = [region.blocks[0] for region in loop.regions]
    for number in sorted(invariant, reverse=True):
        for block in blocks:
            block.arguments[number].replace_all_uses_with(operands[number])
        results[number].replace_all_uses_with(operands[number])
    made = compat.ir.Operation.create(
        "stablehlo.while",
        results=[results[number].type for number in kept],
        operands=[operands[number] for number in kept],
        attributes=dict(compat.dictionary_items(loop.attributes)),
        regions=2,
        loc=loop.location,
        ip=compat.ir.InsertionPoint(loop),
    )
    for new, number in enumerate(kept):
        results[number].replace_all_uses_with(made.results[new])
    _return_only(blocks[1], kept)
    for region, block in zip(made.regions, blocks, strict=True):
        for number in sorted(invariant, reverse=True):
            block.erase_argument(number)
        block.append_to(region)
    loop.erase()
    return made


def _return_only(block: Any, kept: list[int]) -> None:
    terminator = block.operations[len(block.operations) - 1].operation
    _replace_terminator(terminator, terminator.name, [terminator.operands[n] for n in kept])


def _replace_terminator(terminator: Any, name: str, operands: list[Any]) -> None:
    compat.ir.Operation.create(
        name,
        operands=operands,
        loc=terminator.location,
        ip=compat.ir.InsertionPoint(terminator),
    )
    terminator.erase()


def _forget_meshes(module: Any) -> None:
    """Drops the meshes that the next pass makes again, of the attribute with all of them."""
    attributes = module.operation.attributes
    if _FRONTEND not in attributes:
        return
    frontend = dict(compat.dictionary_items(attributes[_FRONTEND]))
    if "xla.sdy.meshes" not in frontend:
        return
    meshes = _parse(compat.ir.StringAttr(frontend["xla.sdy.meshes"]).value)
    known = {name: str(mesh) for name, mesh in compat.dictionary_items(meshes)}
    for view in list(module.body.operations):
        operation = view.operation
        if operation.name == "sdy.mesh":
            mesh = str(operation.attributes["mesh"])
            if known.get(compat.symbol_name(operation)) == mesh:
                operation.erase()


def result_sharding_from_root(function: Any) -> None:
    """Gives the only result of a function the sharding of what it returns.

    In HLO that has shardings with names a computation's result is its root with its sharding; a
    root of several results is a tuple, which has none of its own.
    """
    block = function.regions[0].blocks[0]
    returned = list(block.operations[len(block.operations) - 1].operation.operands)
    root = _owner(returned[0]) if len(returned) == 1 else None
    if root is None or root.name != "stablehlo.custom_call":
        return
    if "sdy.sharding" in root.attributes:
        sharding = compat.single_sharding(root.attributes["sdy.sharding"])
    elif (written := _attribute(root, "xla.sdy.out_shardings", root)) is not None:
        sharding = compat.single_sharding(written)
    else:
        return
    attributes = function.attributes
    named: dict[str, Any] = {}
    if "res_attrs" in attributes:
        named = dict(compat.dictionary_items(attributes["res_attrs"][0]))
    if "sdy.sharding" not in named:
        named["sdy.sharding"] = sharding
        dictionary = compat.ir.DictAttr.get(named)
        attributes["res_attrs"] = compat.ir.ArrayAttr.get([dictionary])


# --- manual computations --------------------------------------------------------------------------


def _manual_calls(module: Any) -> list[Any]:
    """The calls of bodies of manual computations that are left, outermost first."""
    return [
        operation
        for operation in walk(module.operation)
        if operation.name == "func.call"
        and compat.ir.FlatSymbolRefAttr(operation.attributes["callee"]).value.startswith(_BODY)
    ]


def _defining(value: Any) -> Any:
    owner = value.owner
    return getattr(owner, "operation", None) if hasattr(owner, "operation") else None


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
    ins = _attribute(entry, "xla.sdy.in_shardings", call)
    outs = _attribute(leave, "xla.sdy.out_shardings", call)
    manual = _attribute(leave, "xla.sdy.manual_axes", call) or _attribute(
        entry, "xla.sdy.manual_axes", call
    )
    results = _results_of(leave) if leave is not None else []
    made = compat.ir.Operation.create(
        "sdy.manual_computation",
        results=_result_types(leave) if leave is not None else [],
        operands=operands,
        attributes={
            "in_shardings": ins or _parse("#sdy.sharding_per_value<[]>"),
            "out_shardings": outs or _parse("#sdy.sharding_per_value<[]>"),
            "manual_axes": manual or _parse("#sdy<manual_axes{}>"),
        },
        regions=1,
        loc=call.location,
        ip=compat.ir.InsertionPoint(call if leave is None else leave),
    )
    types = [value.type for value in call.operands]
    block = made.regions[0].blocks.append(
        *types, arg_locs=[made.location for _ in types] if types else None
    )
    with compat.ir.InsertionPoint(block):
        end = compat.ir.Operation.create("sdy.return", loc=function.location)
    returned = take_body(function, list(block.arguments), end)
    _replace_terminator(end, "sdy.return", returned)
    for old, new in results:
        made_result = made.results[new]
        old.replace_all_uses_with(made_result)
    for dead in _conversions(call, entry, leave):
        dead.erase()


def _through_tuple(value: Any) -> Any:
    """The conversion that a local value comes from."""
    owner = _owner(value)
    if owner is not None and owner.name == "stablehlo.get_tuple_element":
        owner = _owner(owner.operands[0])
    if owner is None or owner.name != "stablehlo.custom_call":
        raise CompilerError("A manual computation takes a value that no conversion made local.")
    return owner


def _owner(value: Any) -> Any:
    owner = value.owner
    return None if isinstance(owner, compat.ir.Block) else owner.operation


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


def _attribute(operation: Any, name: str, call: Any) -> Any:
    for place in (operation, call):
        if place is not None and _FRONTEND in place.attributes:
            frontend = dict(compat.dictionary_items(place.attributes[_FRONTEND]))
            if name in frontend:
                return _parse(compat.ir.StringAttr(frontend[name]).value)
    return None


def _parse(text: str) -> Any:
    return compat.ir.Attribute.parse(text)


# --- custom calls and loops -----------------------------------------------------------------------


def import_custom_call(operation: Any) -> None:
    """Makes Shardy's op of a custom call that stands for one in HLO."""
    target = compat.ir.StringAttr(operation.attributes["call_target_name"]).value
    attributes = operation.attributes
    if target == "Sharding":
        if "sdy.sharding" not in attributes:
            raise CompilerError("A sharding constraint came out of HLO without its sharding.")
        sharding = compat.single_sharding(attributes["sdy.sharding"])
        made = _replaced(operation, "sdy.sharding_constraint", {"sharding": sharding})
    elif target == "xla.sdy.PropagationBarrier":
        direction = _attribute_text(operation, "xla.sdy.allowed_direction")
        made = _replaced(
            operation,
            "sdy.propagation_barrier",
            {"allowed_direction": _parse(direction)},
        )
    elif target == "xla.sdy.ShardingGroup":
        group = _parse(_attribute_text(operation, "xla.sdy.sharding_group_id"))
        compat.ir.Operation.create(
            "sdy.sharding_group",
            operands=[operation.operands[0]],
            attributes={"group_id": group},
            loc=operation.location,
            ip=compat.ir.InsertionPoint(operation),
        )
        operation.erase()
        return
    else:
        return
    operation.results[0].replace_all_uses_with(made.results[0])
    operation.erase()


def _attribute_text(operation: Any, name: str) -> str:
    frontend = dict(compat.dictionary_items(operation.attributes[_FRONTEND]))
    return str(compat.ir.StringAttr(frontend[name]).value)


def _replaced(operation: Any, name: str, attributes: dict[str, Any]) -> Any:
    return compat.ir.Operation.create(
        name,
        results=[operation.results[0].type],
        operands=[operation.operands[0]],
        attributes=attributes,
        loc=operation.location,
        ip=compat.ir.InsertionPoint(operation),
    )


def open_free_variables(function: Any) -> None:
    """Lets values that loops capture be sharded further inside, whatever they are outside."""
    loops = [operation for operation in walk(function) if operation.name == "stablehlo.while"]
    # As MLIR walks: what is inside a loop before the loop.
    for loop in reversed(loops):
        opened: dict[int, Any] = {}
        for value in _free_variables(loop):
            sharding = compat.value_sharding(value)
            wanted = None if sharding is None else compat.fully_open(sharding)
            if wanted is None:
                continue
            owner = _owner(value)
            made = compat.ir.Operation.create(
                "sdy.sharding_constraint",
                results=[value.type],
                operands=[value],
                attributes={"sharding": wanted},
                loc=loop.location if owner is None else owner.location,
                ip=compat.ir.InsertionPoint(loop),
            )
            opened[hash(value)] = made.results[0]
        for operation in walk(loop) if opened else ():
            for number, operand in enumerate(operation.operands):
                if hash(operand) in opened:
                    operation.operands[number] = opened[hash(operand)]


def _free_variables(loop: Any) -> list[Any]:
    """The values from outside that the regions of a loop use, in order of use."""
    own: set[int] = set()
    found: dict[int, Any] = {}
    for operation in walk(loop):
        own.update(hash(result) for result in operation.results)
        for region in operation.regions:
            for block in region.blocks:
                own.update(hash(argument) for argument in block.arguments)
    for region in loop.regions:
        for block in region.blocks:
            own.update(hash(argument) for argument in block.arguments)
    for operation in walk(loop):
        for operand in operation.operands:
            if hash(operand) not in own:
                found.setdefault(hash(operand), operand)
    return list(found.values())
