"""Which instruction of XLA's dumps is which op of the lowered module, by name, kind and type."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sdyscope.stages.audit.facts import AuditedOp

#: How the audit calls an op by its number, in the ``op_name`` of what XLA makes of it.
TAG = "audit{}."
TAGGED = re.compile(r"audit(\d+)\.")

#: HLO's names of ops, where they are not StableHLO's with other dashes.
_OPCODES = {
    # One that only adds dimensions of one element.
    "broadcast_in_dim": ("broadcast", "reshape"),
    "dot_general": ("dot",),
    "case": ("conditional",),
    "if": ("conditional",),
    "optimization_barrier": ("opt-barrier",),
    "sharding_constraint": ("copy",),
    "square": ("multiply",),
}
#: Ops of which XLA exchanges the operands as it likes.
_COMMUTING = frozenset({"add", "and", "maximum", "minimum", "multiply", "or", "xor"})
_ELEMENTS = {"i1": "pred", "index": "s64"}


def named_ops(op_name: str) -> list[int]:
    """The ops that an ``op_name`` names, also of several instructions that XLA made one.

    Of each the last, behind the loops and functions that it is in.
    """
    parts = (TAGGED.findall(part) for part in re.split("[;:]", op_name))
    return list(dict.fromkeys(int(tags[-1]) for tags in parts if tags))


def opcodes_of(op: AuditedOp) -> tuple[str, ...]:
    """The opcodes of what an op is in HLO."""
    # GSPMD's constraints become copies.
    kind = "sharding_constraint" if op.target == "Sharding" else op.kind.rpartition(".")[2]
    return _OPCODES.get(kind, (kind.replace("_", "-"),))


def commutes(op: AuditedOp) -> bool:
    """Whether XLA may have its operands in another order."""
    return op.kind.rpartition(".")[2] in _COMMUTING


def types_of(op: AuditedOp) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The types of its results as HLO has them: element type and dimensions."""
    for text in op.types:
        inner = re.match(r"tensor<((?:[\d?]+x)*)((?:complex<)?[a-zA-Z]\w*)>?[,>]", text)
        if inner is None:
            yield text, ()
            continue
        dims = tuple(int(size) for size in inner[1].split("x") if size.isdigit())
        yield _element(inner[2]), dims


def _element(name: str) -> str:
    if name.startswith("complex<"):
        return "c64" if name.endswith("f32") else "c128"
    if name in _ELEMENTS:
        return _ELEMENTS[name]
    if re.fullmatch(r"ui?\d+|i\d+", name):
        return ("u" if name.startswith("u") else "s") + name.lstrip("ui")
    return name.lower()
