"""Arguments of which a step reads only what it looks up: tables, and caches that it updates."""

from __future__ import annotations

from sdyscope.graph import OpGraph, ValueId

#: Ops that read of their first operand only as much as they give, or as they write.
_LOOK_UP = frozenset(
    f"stablehlo.{name}" for name in ("dynamic_slice", "dynamic_update_slice", "gather", "scatter")
)

_CONSTRAINT = "sdy.sharding_constraint"


def looked_up(graph: OpGraph) -> tuple[str, ...]:
    """The paths of the arguments that every use of looks up, in order.

    A loop is taken to read all of what it takes: a scan reads each layer once.
    """
    if graph.main is None:
        return ()
    return tuple(
        argument.name or f"argument {argument.index}"
        for argument in graph.main.arguments
        if graph.users((argument.node, 0)) and _is_looked_up(graph, (argument.node, 0), set())
    )


def _is_looked_up(graph: OpGraph, value: ValueId, seen: set[ValueId]) -> bool:
    if value in seen:
        return True
    seen.add(value)
    for user, operand in graph.users(value):
        op = graph.ops[user]
        if op.kind in _LOOK_UP:
            if operand:
                return False
        elif op.kind == _CONSTRAINT:
            if not _is_looked_up(graph, (user, 0), seen):
                return False
        else:
            callee = graph.callee(op) if op.kind == "func.call" else None
            if callee is None or not _is_looked_up(
                graph, (callee.arguments[operand].node, 0), seen
            ):
                return False
    return True
