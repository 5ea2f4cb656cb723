"""What a value is made of, as a number: the same in two modules that compute it alike.

Names, lines and the order of ops do not matter, nor how anything is sharded.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from sdyscope.graph import Op, OpGraph


def structures(graph: OpGraph) -> Sequence[int]:
    """For each op of a module, by its id, a number for what it computes and from what.

    Equal ones may be two ops that differ in attributes, such as the dimensions that are contracted:
    the number tells apart, it proves nothing. A constraint has that of its operand; an argument of
    main is its pytree path, one of another function or region where it stands.
    """
    numbers = [0] * len(graph.ops)
    for op in graph.ops:
        operands = graph.operand_values[op.id]
        if op.is_constraint and operands:
            numbers[op.id] = numbers[operands[0][0]]
            continue
        made_of = tuple((numbers[producer], result) for producer, result in operands)
        numbers[op.id] = hash((_own(graph, op, numbers), made_of))
    return numbers


def _own(graph: OpGraph, op: Op, numbers: Sequence[int]) -> Hashable:
    types = tuple(type_.text for type_ in op.types)
    if not op.is_argument:
        return op.kind, op.call_target if op.attributes else None, types
    main = graph.main
    if main is not None and op.parent == main.op:
        return op.location.scope or op.argument, types
    parent = 0 if op.parent is None or not graph.ops[op.parent].types else numbers[op.parent]
    return parent, op.region, op.argument, types
