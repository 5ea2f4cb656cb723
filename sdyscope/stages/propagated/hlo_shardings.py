"""Shardings of HLO text that XLA's conversion to StableHLO loses.

The conversion drops those of every op with several results (reductions of several operands, sorts,
conditionals, custom calls) and, until jaxlib 0.9, of concatenations, slices, pads and a few more.
An instruction and the op that it becomes have the same ``op_name``, kind and shapes.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from sdyscope.errors import SdyscopeError
from sdyscope.graph import Op, OpGraph
from sdyscope.hlo import Instruction, read_hlo
from sdyscope.stages import compat
from sdyscope.stages.align.tags import numbered

_Shapes: TypeAlias = tuple[tuple[int, ...], ...]

_Key: TypeAlias = tuple[str, str, _Shapes]
"""``op_name``, opcode with underscores, shape of each result."""

#: Opcodes of HLO that have another name in StableHLO, or several.
_KINDS = {"conditional": ("case", "if"), "topk": ("custom_call", "topk")}


def restore_shardings(module: Any, graph: OpGraph, text: str) -> bool:
    """Writes the lost shardings into a module; whether there were any.

    Args:
        module: the ``ir.Module`` that was made of an HLO module; changed in place.
        graph: its op graph.
        text: the HLO module.
    """
    lost = [op for op in graph.operations() if _may_have_lost_one(op)]
    if not lost:
        return False
    known = _written(text)
    shardings: dict[int, str] = {}
    seen: dict[_Key, int] = {}
    for op in lost:
        shapes = tuple(tuple(size or 0 for size in type_.shape or ()) for type_ in op.types)
        key = (op.location.names[0], op.kind.partition(".")[2], shapes)
        written = known.get(key, [])
        # Of several the text's order is the module's.
        position = seen[key] = seen.get(key, -1) + 1
        if len(set(written)) == 1 or position < len(written):
            shardings[op.id] = written[position if position < len(written) else 0]
    with module.context:
        for node, operation in numbered(module):
            if node in shardings:
                operation.attributes["mhlo.sharding"] = compat.ir.StringAttr.get(shardings[node])
    return bool(shardings)


def _may_have_lost_one(op: Op) -> bool:
    if not op.location.names or not any(type_.shape for type_ in op.types):
        return False
    return all(sharding is None for sharding in op.shardings)


def _written(text: str) -> dict[_Key, list[str]]:
    """The shardings in an HLO module's text, in order."""
    known: dict[_Key, list[str]] = {}
    for instruction in read_hlo(text).instructions():
        sharding, name = instruction.sharding, instruction.op_name
        if not sharding or not name:
            continue
        opcode = instruction.opcode.replace("-", "_")
        for kind in _KINDS.get(opcode, (opcode,)):
            known.setdefault((name, kind, _shapes(instruction)), []).append(sharding)
    return known


def _shapes(instruction: Instruction) -> _Shapes:
    try:
        return tuple(leaf.dimensions for leaf in instruction.shape.leaves)
    except SdyscopeError:
        return ()
