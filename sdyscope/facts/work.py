"""What one device computes and moves through its memory. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Work:
    """Work of one device.

    Attributes:
        matmuls: floating point operations of dots and convolutions, by what is multiplied:
            ``bf16``, ``f32``, ``f32 highest``.
        other: those of everything else.
        bytes: bytes that instructions read and write, fusions as a whole.
        on_chip: how many of these are in memory on the chip (VMEM), not in HBM.
        transcendentals: transcendental functions, which are no floating point operations to XLA.
    """

    matmuls: Mapping[str, float] = field(default_factory=dict)
    other: float = 0
    bytes: float = 0
    on_chip: float = 0
    transcendentals: float = 0

    @property
    def flops(self) -> float:
        """All floating point operations."""
        return sum(self.matmuls.values()) + self.other

    def plus(self, more: Work, times: float = 1) -> Work:
        """With as much more, several times."""
        matmuls = self.matmuls
        if more.matmuls:
            every = dict(matmuls)
            for kind, flops in more.matmuls.items():
                every[kind] = every.get(kind, 0) + times * flops
            matmuls = every
        return Work(
            matmuls,
            self.other + times * more.other,
            self.bytes + times * more.bytes,
            self.on_chip + times * more.on_chip,
            self.transcendentals + times * more.transcendentals,
        )
