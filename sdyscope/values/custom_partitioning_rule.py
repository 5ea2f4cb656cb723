"""The ``sharding_rule`` of ``jax.experimental.custom_partitioning``, without importing jax.

The classes are JAX's (``jax/_src/custom_partitioning_sharding_rule.py``), and so is what they
check. ``str`` of a value is text that JAX's own parser reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sdyscope.errors import ConversionError

#: The leading dimensions of a value, as the text says it.
BATCHING = "..."


def _check_factor(name: str) -> None:
    if not name[:1].isalpha():
        raise ConversionError(f"the name of a factor starts with a letter: {name!r}")
    if not all(char == "_" or char.isdigit() or char.isalpha() for char in name):
        raise ConversionError(f"the name of a factor has letters, digits and _ only: {name!r}")


@dataclass(frozen=True, slots=True)
class CompoundFactor:
    """The factors of one dimension, major to minor: ``(i j)``. Two at least."""

    factors: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.factors) < 2:
            raise ConversionError("a compound factor has at least two factors")
        for factor in self.factors:
            _check_factor(factor)

    def __str__(self) -> str:
        return f"({' '.join(self.factors)})"


@dataclass(frozen=True, slots=True)
class ArrayMapping:
    """The factors of one operand's or result's dimensions: ``... i (j k)``; empty for a scalar.

    ``batching_group`` is the number of the group of leading dimensions that ``...`` or ``...2``
    stands for, None without such.
    """

    dims: tuple[str | CompoundFactor, ...] = ()
    batching_group: int | None = None

    def __post_init__(self) -> None:
        for dim in self.dims:
            if isinstance(dim, str):
                _check_factor(dim)

    def factors(self) -> Iterator[str]:
        """The names of the factors, in order."""
        for dim in self.dims:
            yield from (dim,) if isinstance(dim, str) else dim.factors

    def __str__(self) -> str:
        batching = [] if self.batching_group is None else [f"{BATCHING}{self.batching_group or ''}"]
        return " ".join([*batching, *map(str, self.dims)])


@dataclass(frozen=True, slots=True)
class SdyShardingRule:
    """How the dimensions of a custom op's operands and results belong together.

    Attributes:
        operand_mappings: the factors of each operand.
        result_mappings: the factors of each result.
        factor_sizes: (factor, size) of each factor that stands in compound factors only.
        reduction_factors: factors that the op reduces over.
        need_replication_factors: factors that must not be sharded.
        permutation_factors: factors along which the op permutes.

    Raises:
        ConversionError: sizes or special factors that do not fit the mappings.
    """

    operand_mappings: tuple[ArrayMapping, ...]
    result_mappings: tuple[ArrayMapping, ...]
    factor_sizes: tuple[tuple[str, int], ...] = ()
    reduction_factors: tuple[str, ...] = ()
    need_replication_factors: tuple[str, ...] = ()
    permutation_factors: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        mappings = (*self.operand_mappings, *self.result_mappings)
        known = dict.fromkeys(factor for mapping in mappings for factor in mapping.factors())
        whole = {dim for mapping in mappings for dim in mapping.dims if isinstance(dim, str)}
        sizes = dict(self.factor_sizes)
        for factor in sizes:
            if factor not in known:
                raise ConversionError(f"factor {factor} has a size but is not in the rule")
        for factor in known:
            if factor in whole and factor in sizes:
                raise ConversionError(f"factor {factor} is a whole dimension and needs no size")
            if factor not in whole and factor not in sizes:
                raise ConversionError(
                    f"factor {factor} is only in compound factors and needs a size"
                )
        self._check_special(known)

    def _check_special(self, known: dict[str, None]) -> None:
        seen: set[str] = set()
        for kind in ("reduction_factors", "need_replication_factors", "permutation_factors"):
            for factor in getattr(self, kind):
                if factor not in known:
                    raise ConversionError(f"factor {factor} of {kind} is not in the rule")
                if factor in seen:
                    raise ConversionError(f"factor {factor} has more than one special kind")
                seen.add(factor)

    def __str__(self) -> str:
        operands = ", ".join(map(str, self.operand_mappings))
        results = ", ".join(map(str, self.result_mappings))
        return f"{operands} -> {results}".strip()
