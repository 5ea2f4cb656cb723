"""Inlines calls and puts ops into the order that XLA gives them, which Shardy's result depends on.

XLA propagates on a module that came out of HLO after its CallInliner. There an op stands behind its
operands in the order of a depth-first walk from the computation's root
(``HloComputation::MakeInstructionPostOrder``), not in the order of the program.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from sdyscope.errors import CompilerError
from sdyscope.graph.op_kinds import COLLECTIVES
from sdyscope.stages import compat


def functions(module: Any) -> dict[str, Any]:
    """The functions of a module by name."""
    functions = {}
    for view in module.body.operations:
        operation = view.operation
        if operation.name == "func.func":
            functions[compat.symbol_name(operation)] = operation
    return functions


#: What stands for HLO's tuples until the order is known: a barrier with this attribute.
_BARRIER = "stablehlo.optimization_barrier"
_TUPLE = "sdyscope.tuple"
#: On what nobody uses and came out of a call, which XLA puts behind all else when it inlines it.
_INLINED = "sdyscope.inlined"

#: Ops that do something besides what they return.
_EFFECTS = frozenset(
    f"stablehlo.{name}"
    for name in (*COLLECTIVES, "infeed", "outfeed", "recv", "return", "rng", "send")
)


class _Inliner:
    def __init__(self, module: Any, keep: Callable[[str, Any], bool]) -> None:
        self.keep = keep
        self.functions = functions(module)
        self.done: set[str] = set()

    def block(self, block: Any) -> None:
        """Inlines the calls of a block, also those in regions inside it."""
        for view in list(block.operations):
            operation = view.operation
            if operation.name == "func.call":
                self.call(operation)
            elif len(operation.regions):
                for region in operation.regions:
                    for inner in region.blocks:
                        self.block(inner)

    def call(self, call: Any) -> None:
        name = compat.ir.FlatSymbolRefAttr(call.attributes["callee"]).value
        function = self.functions.get(name)
        if function is None:
            raise CompilerError(f"The module calls {name}, which it does not have.")
        if name not in self.done:
            self.done.add(name)
            for block in function.regions[0].blocks:
                self.block(block)
        if self.keep(name, call):
            return
        for block in function.regions[0].blocks:
            for view in list(block.operations)[:-1]:
                if not _is_used(view.operation):
                    view.operation.attributes[_INLINED] = compat.ir.UnitAttr.get()
        returned = take_body(function, list(call.operands), call, compat.location_name(call))
        if len(returned) > 1:
            # In HLO they stay one tuple: who wants one of them has to wait for all.
            tuple_ = compat.ir.Operation.create(
                _BARRIER,
                results=[value.type for value in returned],
                operands=returned,
                attributes={_TUPLE: compat.ir.UnitAttr.get()},
                loc=call.location,
                ip=compat.ir.InsertionPoint(call),
            )
            returned = list(tuple_.results)
        for result, value in zip(list(call.results), returned, strict=True):
            result.replace_all_uses_with(value)
        call.erase()


def inline_calls(module: Any, keep: Callable[[str, Any], bool]) -> None:
    """Replaces every call in the module by the ops of what it calls.

    Args:
        module: an ``ir.Module`` whose functions do not call themselves; changed in place.
        keep: whether to leave a call alone, given the name that it calls and the call.
    """
    inliner = _Inliner(module, keep)
    for function in inliner.functions.values():
        name = compat.symbol_name(function)
        if name not in inliner.done and compat.is_public(function):
            inliner.done.add(name)
            for block in function.regions[0].blocks:
                inliner.block(block)


def inline_named(module: Any) -> bool:
    """Replaces ``sdy.named_computation`` by its ops, as XLA, which has none, inlines calls.

    The shardings that it gives its operands and results become constraints. Returns whether there
    was one.
    """
    changed = False
    with module.context:
        for operation in [op.operation for op in _inside(module.operation)]:
            if operation.name == "sdy.named_computation":
                changed = True
                _inline_named(operation)
    return changed


def _inside(operation: Any) -> Iterator[Any]:
    """Every op inside an op, each after what is inside it."""
    for region in operation.regions:
        for block in region.blocks:
            for view in block.operations:
                yield from _inside(view.operation)
                yield view


def _inline_named(named: Any) -> None:
    block = named.regions[0].blocks[0]
    operands = _constrained(named, list(named.operands), "in_shardings")
    for argument, operand in zip(list(block.arguments), operands, strict=True):
        argument.replace_all_uses_with(operand)
    *body, terminator = [view.operation for view in block.operations]
    for operation in body:
        operation.move_before(named)
    returned = _constrained(named, list(terminator.operands), "out_shardings")
    for result, value in zip(list(named.results), returned, strict=True):
        result.replace_all_uses_with(value)
    named.erase()


def _constrained(named: Any, values: list[Any], attribute: str) -> list[Any]:
    if attribute not in named.attributes:
        return values
    shardings = compat.shardings_per_value(named.attributes[attribute])
    return [
        compat.ir.Operation.create(
            "sdy.sharding_constraint",
            results=[value.type],
            operands=[value],
            attributes={"sharding": sharding},
            loc=named.location,
            ip=compat.ir.InsertionPoint(named),
        ).results[0]
        for value, sharding in zip(values, shardings, strict=True)
    ]


def take_body(function: Any, operands: list[Any], before: Any, path: str = "") -> list[Any]:
    """Moves the ops of a copy of ``function`` in front of an op; returns what they return.

    The names of their locations get ``path`` in front, as in XLA: which call they come from.
    """
    # MLIR copies a function with all that is inside it in one go, which ops alone can't be.
    with compat.ir.InsertionPoint(function):
        copied = function.clone().operation
    block = copied.regions[0].blocks[0]
    for argument, operand in zip(list(block.arguments), operands, strict=True):
        argument.replace_all_uses_with(operand)
    *body, terminator = [view.operation for view in block.operations]
    writable = bool(path) and compat.locations_are_writable()
    for operation in body:
        operation.move_before(before)
        if writable:
            _put_in_front(path, operation)
    returned = list(terminator.operands)
    copied.erase()
    return returned


def _put_in_front(path: str, operation: Any) -> None:
    name = compat.location_name(operation)
    if name:
        operation.location = compat.ir.Location.name(f"{path}/{name}")
    for region in operation.regions:
        for block in region.blocks:
            for view in block.operations:
                _put_in_front(path, view.operation)


def reorder(block: Any) -> None:
    """Puts the ops of a block, and of those inside it, into HLO's post-order, without dead ones.

    An op that nobody uses has its say in the order before it goes, as in XLA.
    """
    operations = [view.operation for view in block.operations]
    producer: dict[int, int] = {}
    nested: dict[int, dict[int, None]] = {}
    for number, operation in enumerate(operations):
        if len(operation.regions):
            captured: dict[int, None] = {}
            for region in operation.regions:
                for inner in region.blocks:
                    reorder(inner)
                    _captures(inner, captured)
            nested[number] = captured
        for result in operation.results:
            producer[hash(result)] = number
    operands = []
    uses = [0] * len(operations)
    for number, operation in enumerate(operations):
        mine = [producer[key] for o in operation.operands if (key := hash(o)) in producer]
        if number in nested:
            used = [producer[key] for key in nested[number] if key in producer]
            mine = [source for source in (*mine, *used) if source != number]
        for source in mine:
            uses[source] += 1
        operands.append(mine)
    last = len(operations) - 1
    inlined = [_INLINED in operation.attributes for operation in operations]
    order = _post_order(operands, uses, inlined)
    for operation in itertools.compress(operations, inlined):
        del operation.attributes[_INLINED]
    for number in order:
        if number != last:
            operations[number].move_before(operations[last])
    for number in reversed(order):
        operation = operations[number]
        if operation.name == _BARRIER and _TUPLE in operation.attributes:
            for result, value in zip(operation.results, operation.operands, strict=True):
                result.replace_all_uses_with(value)
        elif number == last or uses[number] > 0 or _is_used(operation) or not _is_pure(operation):
            continue
        for source in operands[number]:
            uses[source] -= 1
        operation.erase()


def _is_used(operation: Any) -> bool:
    return any(True for result in operation.results for _ in result.uses)


def _is_pure(operation: Any) -> bool:
    """Whether an op that nobody uses can go."""
    name = operation.name
    if not name.startswith("stablehlo.") or name in _EFFECTS:
        return False
    if name == "stablehlo.custom_call":
        attributes = operation.attributes
        return not (
            "has_side_effect" in attributes
            and compat.ir.BoolAttr(attributes["has_side_effect"]).value
        )
    return all(
        _is_pure(view.operation) or view.operation.name == "stablehlo.return"
        for region in operation.regions
        for block in region.blocks
        for view in block.operations
    )


def _captures(block: Any, captures: dict[int, None]) -> None:
    """Adds the keys of all values used in a block, in order; its own ones do no harm."""
    for view in block.operations:
        operation = view.operation
        for region in operation.regions:
            for inner in region.blocks:
                _captures(inner, captures)
        for operand in operation.operands:
            captures[hash(operand)] = None


def _post_order(operands: list[list[int]], uses: list[int], inlined: list[bool]) -> list[int]:
    """Every op behind its operands, from the ops that nobody uses, as they come in XLA.

    By hand: NetworkX's `dfs_postorder_nodes` takes 1.8 times as long (benchmarks/walks.py), and 5
    times with the making of its graph.
    """
    visited = bytearray(len(operands))
    order: list[int] = []
    for root in sorted(range(len(operands)), key=inlined.__getitem__):
        if uses[root] or visited[root]:
            continue
        stack = [root]
        while stack:
            number = stack[-1]
            state = visited[number]
            if state == 0:
                visited[number] = 1
                for operand in reversed(operands[number]):
                    if visited[operand] == 0:
                        stack.append(operand)
            else:
                stack.pop()
                if state == 1:
                    visited[number] = 2
                    order.append(number)
    return order
