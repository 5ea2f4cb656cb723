"""From a module that came out of HLO to Shardy's dialect, as XLA's import pipeline does it.

XLA's passes for this (``xla/service/spmd/shardy``) are not registered in jaxlib but for one; what
the others do is done here, one function each, in their order: constants, loops, manual
computations, custom calls, free variables of loops.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sdyscope.errors import CompilerError
from sdyscope.stages import compat
from sdyscope.stages.propagated.hlo_order import functions, inline_calls, reorder
from sdyscope.stages.propagated.manual_computations import (
    BODY,
    import_manual_computation,
    manual_calls,
)
from sdyscope.stages.propagated.mlir_ops import (
    FRONTEND,
    by_name,
    frontend_attribute,
    owner,
    parse,
    replace_terminator,
    walk,
)
from sdyscope.stages.propagated.passes import run
from sdyscope.syntax.shardy import parse_manual_axes, parse_tensor_sharding_per_value
from sdyscope.values.sharding_rule import factor_symbol

_CONSTANT = "stablehlo.constant"
_CUSTOM_CALL = "stablehlo.custom_call"
_ELEMENT = "stablehlo.get_tuple_element"
#: Calls that stand for Shardy's own ops, which are made of them later.
_SHARDYS = "xla.sdy."
LOOP = "stablehlo.while"
_TOP_K = "mhlo.topk"


def import_module(module: Any, *, open_captures: bool = True) -> None:
    """Turns a module as `conversion.through_hlo` returns it into what XLA propagates on, in place.

    Args:
        module: the module.
        open_captures: whether what loops capture is opened inside them (``open_free_variables``).
            Which values that are depends on the shardings of arguments, so who changes those opens
            them afterwards.

    Raises:
        CompilerError: the module holds something that can't be imported.
    """
    with module.context, compat.ir.Location.unknown():
        inline_calls(module, lambda name, _: name.startswith(BODY))
        run(module, "symbol-dce")
        for function in functions(module).values():
            for block in function.regions[0].blocks:
                reorder(block)
            operations = by_name(function, _CONSTANT, LOOP, _CUSTOM_CALL)
            for operation in operations[_CUSTOM_CALL]:
                flatten_tuple(operation)
            constants_to_shardy(operations[_CONSTANT])
            if operations[LOOP]:
                for block in function.regions[0].blocks:
                    loop_invariants_to_captures(block)
        _forget_meshes(module)
        run(module, "xla-sdy-round-trip-import-shardy-attrs")
        if compat.named_hlo_shardings():
            for function in functions(module).values():
                result_sharding_from_root(function)
        # A body can have calls of others inside.
        while calls := manual_calls(module):
            for call in calls:
                import_manual_computation(module, call)
        run(module, "symbol-dce")
        for function in functions(module).values():
            operations = by_name(function, _CUSTOM_CALL, LOOP, _TOP_K)
            for operation in operations[_CUSTOM_CALL]:
                import_custom_call(operation)
            for operation in operations[_TOP_K]:
                give_top_k_its_rule(operation)
            if open_captures:
                open_free_variables(function, operations[LOOP])


def constants_to_shardy(constants: Iterable[Any]) -> None:
    """Makes every constant Shardy's own, which no pattern folds or merges."""
    for operation in constants:
        result = operation.results[0]
        if "complex<" in str(result.type):
            constant = _complex_constant(operation)
        else:
            constant = compat.ir.Operation.create(
                "sdy.constant",
                results=[result.type],
                attributes=dict(compat.dictionary_items(operation.attributes)),
                loc=operation.location,
                ip=compat.ir.InsertionPoint(operation),
            )
        result.replace_all_uses_with(constant.results[0])
        operation.erase()


def _complex_constant(operation: Any) -> Any:
    """The same by way of its text: MLIR's bindings have no complex values, and abort or raise."""
    text = operation.get_asm(enable_debug_info=True, print_generic_op_form=True)
    constant = compat.ir.Operation.parse(text.replace(f'"{_CONSTANT}"', '"sdy.constant"', 1))
    compat.ir.InsertionPoint(operation).insert(constant)
    return constant


def flatten_tuple(operation: Any) -> None:
    """Gives a custom call several results in place of the tuple of them that it has in HLO."""
    ir = compat.ir
    target = compat.text(operation.attributes["call_target_name"])
    if len(operation.results) != 1 or target.startswith(_SHARDYS):
        return
    result = operation.results[0]
    if not compat.is_tuple(result.type):
        return
    tuple_type = ir.TupleType(result.type)
    types = [tuple_type.get_type(number) for number in range(tuple_type.num_types)]
    parts = [use.owner for use in result.uses]
    if any(map(compat.is_tuple, types)) or any(part.name != _ELEMENT for part in parts):
        return  # Nothing that JAX writes: Shardy says that it takes no tuples.
    split = ir.Operation.create(
        _CUSTOM_CALL,
        results=types,
        operands=list(operation.operands),
        attributes=dict(compat.dictionary_items(operation.attributes)),
        loc=operation.location,
        ip=ir.InsertionPoint(operation),
    )
    for part in parts:
        number = ir.IntegerAttr(part.attributes["index"]).value
        part.results[0].replace_all_uses_with(split.results[number])
        part.operation.erase()
    operation.erase()


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
    replacement = compat.ir.Operation.create(
        "stablehlo.while",
        results=[results[number].type for number in kept],
        operands=[operands[number] for number in kept],
        attributes=dict(compat.dictionary_items(loop.attributes)),
        regions=2,
        loc=loop.location,
        ip=compat.ir.InsertionPoint(loop),
    )
    for new, number in enumerate(kept):
        results[number].replace_all_uses_with(replacement.results[new])
    _return_only(blocks[1], kept)
    for region, block in zip(replacement.regions, blocks, strict=True):
        for number in sorted(invariant, reverse=True):
            block.erase_argument(number)
        block.append_to(region)
    loop.erase()
    return replacement


def _return_only(block: Any, kept: list[int]) -> None:
    terminator = block.operations[len(block.operations) - 1].operation
    replace_terminator(terminator, terminator.name, [terminator.operands[n] for n in kept])


def _forget_meshes(module: Any) -> None:
    """Drops the meshes that the next pass makes again, of the attribute with all of them."""
    attributes = module.operation.attributes
    if FRONTEND not in attributes:
        return
    frontend = dict(compat.dictionary_items(attributes[FRONTEND]))
    if "xla.sdy.meshes" not in frontend:
        return
    meshes = parse(compat.text(frontend["xla.sdy.meshes"]))
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
    root = owner(returned[0]) if len(returned) == 1 else None
    if root is None or root.name != "stablehlo.custom_call":
        return
    if "sdy.sharding" in root.attributes:
        sharding = compat.single_sharding(root.attributes["sdy.sharding"])
    elif (written := frontend_attribute("xla.sdy.out_shardings", root)) is not None:
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


# --- custom calls and loops -----------------------------------------------------------------------


def import_custom_call(operation: Any) -> None:
    """Makes Shardy's op of a custom call that stands for one in HLO."""
    target = compat.text(operation.attributes["call_target_name"])
    attributes = operation.attributes
    if target == "Sharding":
        if "sdy.sharding" not in attributes:
            raise CompilerError("A sharding constraint came out of HLO without its sharding.")
        sharding = compat.single_sharding(attributes["sdy.sharding"])
        constraint = _replaced(operation, "sdy.sharding_constraint", {"sharding": sharding})
    elif target == "xla.sdy.PropagationBarrier":
        direction = _attribute_text(operation, "xla.sdy.allowed_direction")
        constraint = _replaced(
            operation,
            "sdy.propagation_barrier",
            {"allowed_direction": parse(direction)},
        )
    elif target == "xla.sdy.ShardingGroup":
        group = parse(_attribute_text(operation, "xla.sdy.sharding_group_id"))
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
    operation.results[0].replace_all_uses_with(constraint.results[0])
    operation.erase()


def _attribute_text(operation: Any, name: str) -> str:
    frontend = dict(compat.dictionary_items(operation.attributes[FRONTEND]))
    return compat.text(frontend[name])


def _replaced(operation: Any, name: str, attributes: dict[str, Any]) -> Any:
    return compat.ir.Operation.create(
        name,
        results=[operation.results[0].type],
        operands=[operation.operands[0]],
        attributes=attributes,
        loc=operation.location,
        ip=compat.ir.InsertionPoint(operation),
    )


def give_top_k_its_rule(operation: Any) -> None:
    """Writes down how XLA propagates through a top-k, which is in no registry of jaxlib.

    All dimensions are passed on but the last, which has to be whole.
    """
    sizes = list(compat.ir.RankedTensorType(operation.operands[0].type).shape)
    factors = [factor_symbol(number) for number in range(len(sizes))]
    dims = "[" + ", ".join(factors) + "]"
    named = ", ".join(f"{name}={size}" for name, size in zip(factors, sizes, strict=True))
    last = factors[-1]
    operation.attributes["sdy.sharding_rule"] = parse(
        f"#sdy.op_sharding_rule<({dims})->({dims}, {dims}) {{{named}}} "
        f"need_replication={{{last}}} blocked_propagation={{{last}}}>"
    )


def open_free_variables(function: Any, loops: Sequence[Any] | None = None) -> None:
    """Lets values that loops capture be sharded further inside, whatever they are outside.

    Args:
        function: the function.
        loops: its loops where they are known, each before those inside it.
    """
    if loops is None:
        loops = by_name(function, LOOP)[LOOP]
    # As MLIR walks: what is inside a loop before the loop.
    for loop in reversed(loops):
        opened: dict[int, Any] = {}
        for value in _free_variables(loop):
            sharding = _sharding_of(value)
            wanted = None if sharding is None else compat.fully_open(sharding)
            if wanted is None:
                continue
            constraint = compat.ir.Operation.create(
                "sdy.sharding_constraint",
                results=[value.type],
                operands=[value],
                attributes={"sharding": wanted},
                loc=loop.location,  # It is not the value, whose own tag stays with that.
                ip=compat.ir.InsertionPoint(loop),
            )
            opened[hash(value)] = constraint.results[0]
        for operation in walk(loop) if opened else ():
            for number, operand in enumerate(operation.operands):
                if hash(operand) in opened:
                    operation.operands[number] = opened[hash(operand)]


def _sharding_of(value: Any) -> Any:
    """The sharding of a value; of one that enters a manual computation, what is left inside."""
    block = value.owner
    if not compat.is_block_argument(value) or block.owner.name != "sdy.manual_computation":
        return compat.value_sharding(value)
    attributes = block.owner.attributes
    manual = parse_manual_axes(str(attributes["manual_axes"])).axes
    written = parse_tensor_sharding_per_value(str(attributes["in_shardings"]))
    inside = written.shardings[compat.argument_number(value)].without(manual)
    return parse(inside.attribute)


def _free_variables(loop: Any) -> list[Any]:
    """The values from outside that the regions of a loop use, in order of use."""
    own: set[int] = set()
    captured: dict[int, Any] = {}
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
                captured.setdefault(hash(operand), operand)
    return list(captured.values())
