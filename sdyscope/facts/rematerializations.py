"""Reshardings that XLA's partitioner itself calls inefficient."""

from __future__ import annotations

from dataclasses import dataclass

from sdyscope.facts.sharded import Sharded
from sdyscope.hlo import Shape
from sdyscope.values.source import SourceLocation


@dataclass(frozen=True, slots=True)
class Rematerialization:
    """One tensor that had to be made whole on every device to be sharded otherwise.

    Attributes:
        operation: name of the HLO instruction, without ``%``; empty where the log names none.
        opcode: its opcode.
        shape: the block of it that a device has before; None where it can't be read.
        before: the sharding that it had, as XLA writes it.
        after: the one that was wanted.
        moved_from: the same as ``before``, read; None where it can't be.
        moved_to: the same as ``after``, read.
        scope: scope of the op, without the program and the primitive.
        primitive: JAX's primitive.
        source: the innermost line of user code; None where the log does not lead to one.
        message: the whole line of the log.
        is_cut: whether XLA cut the line short, or names no op in it: what follows is missing here.
    """

    operation: str
    opcode: str
    shape: Shape | None
    before: str
    after: str
    scope: str
    primitive: str
    source: SourceLocation | None
    message: str
    is_cut: bool = False
    moved_from: Sharded | None = None
    moved_to: Sharded | None = None
