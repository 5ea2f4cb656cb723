"""Shardings of HLO text that XLA's conversion to StableHLO loses.

Until jaxlib 0.9 the conversion drops them from concatenations, slices, pads and a few more. An
instruction and the op that it becomes have the same ``op_name``, kind and shape.
"""

from __future__ import annotations

import re
from typing import Any, TypeAlias

from sdyscope.graph import OpGraph
from sdyscope.stages import compat
from sdyscope.stages.tags import numbered

__all__ = ["restore_shardings"]

_Key: TypeAlias = tuple[str, str, tuple[int, ...]]
"""``op_name``, opcode with underscores, shape."""

_INSTRUCTION = re.compile(
    r"^\s*(?:ROOT )?%?[\w.-]+ = \w+\[(?P<shape>[\d,]*)\]\S* (?P<opcode>[\w-]+)\(", re.MULTILINE
)
_SHARDING = re.compile(r", sharding=(\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})")
_OP_NAME = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')


def restore_shardings(module: Any, graph: OpGraph, text: str) -> bool:
    """Writes the lost shardings into a module; whether there were any.

    Args:
        module: the ``ir.Module`` that was made of an HLO module; changed in place.
        graph: its op graph.
        text: the HLO module.
    """
    lost = [
        op
        for op in graph.operations()
        if len(op.types) == 1
        and op.shardings[0] is None
        and op.types[0].shape
        and op.location.names
    ]
    if not lost:
        return False
    known = _written(text)
    found: dict[int, str] = {}
    seen: dict[_Key, int] = {}
    for op in lost:
        shape = tuple(size or 0 for size in op.types[0].shape or ())
        key = (op.location.names[0], op.kind.partition(".")[2], shape)
        written = known.get(key, [])
        # Of several the text's order is the module's.
        position = seen[key] = seen.get(key, -1) + 1
        if len(set(written)) == 1 or position < len(written):
            found[op.id] = written[position if position < len(written) else 0]
    with module.context:
        for node, operation in numbered(module):
            if node in found:
                operation.attributes["mhlo.sharding"] = compat.ir.StringAttr.get(found[node])
    return bool(found)


def _written(text: str) -> dict[_Key, list[str]]:
    """The shardings in an HLO module's text, in order."""
    known: dict[_Key, list[str]] = {}
    for line in text.splitlines():
        start = _INSTRUCTION.match(line)
        if start is None:
            continue
        sharding, name = _SHARDING.search(line), _OP_NAME.search(line)
        if sharding is None or name is None:
            continue
        shape = tuple(int(size) for size in start["shape"].split(",") if size)
        key = (name[1], start["opcode"].replace("-", "_"), shape)
        known.setdefault(key, []).append(sharding[1])
    return known
