"""Shardy's op sharding rules: how the dimensions of an op's operands and results correspond.

``OpShardingRuleAttr``, ``TensorMappingAttr`` and ``DimMappingAttr`` of
``shardy/dialect/sdy/ir/attrs.td``; the attribute ``sdy.sharding_rule`` of an op. A rule names
*factors*: dimensions that carry the same factor can be sharded alike. ``str`` of a value is its
text as Shardy prints it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

FactorType = Literal["pass-through", "reduction", "need_replication", "permutation"]

#: Factors 0..17 are i..z, those after it z_1, z_2, ... (``factorSymbolString`` of Shardy).
LAST_LETTER: Final = ord("z") - ord("i")


def factor_symbol(factor: int) -> str:
    """What Shardy calls a factor: ``i`` for 0, ``z`` for 17, ``z_1`` for 18."""
    if factor <= LAST_LETTER:
        return chr(ord("i") + factor)
    return f"z_{factor - LAST_LETTER}"


def factor_index(symbol: str) -> int:
    """The factor that Shardy calls ``symbol``: 0 for ``i``, 18 for ``z_1``."""
    if symbol.startswith("z_"):
        return int(symbol[2:]) + LAST_LETTER
    return ord(symbol) - ord("i")


@dataclass(frozen=True, slots=True)
class DimMapping:
    """The factors that one dimension is made of, major to minor: ``i``, ``jk``."""

    factor_indices: tuple[int, ...]

    def __str__(self) -> str:
        return "".join(map(factor_symbol, self.factor_indices))


@dataclass(frozen=True, slots=True)
class TensorMapping:
    """The factors of each dimension of a tensor: ``[i, jk]``; ``[]`` of a scalar."""

    dim_mappings: tuple[DimMapping, ...] = ()

    def __str__(self) -> str:
        return "[" + ", ".join(map(str, self.dim_mappings)) + "]"

    def factors(self) -> set[int]:
        """Every factor of the tensor."""
        return {factor for dim in self.dim_mappings for factor in dim.factor_indices}


@dataclass(frozen=True, slots=True)
class OpShardingRule:
    """How an op can be partitioned: ``<([i, k], [k, j])->([i, j]) {i=8, j=4, k=2} reduction={k}>``.

    ``factor_sizes[f]`` is the size of factor f. A factor is of one type: reduction,
    need_replication, permutation or else pass-through. Shardings don't propagate along
    ``blocked_propagation_factors``, whatever their type. ``is_custom_rule``: the user gave it.
    """

    factor_sizes: tuple[int, ...]
    operand_mappings: tuple[TensorMapping, ...]
    result_mappings: tuple[TensorMapping, ...]
    reduction_factors: tuple[int, ...] = ()
    need_replication_factors: tuple[int, ...] = ()
    permutation_factors: tuple[int, ...] = ()
    blocked_propagation_factors: tuple[int, ...] = ()
    is_custom_rule: bool = False

    def factor_type(self, factor: int) -> FactorType:
        """What a partitioner must do when ``factor`` is sharded."""
        if factor in self.reduction_factors:
            return "reduction"
        if factor in self.need_replication_factors:
            return "need_replication"
        if factor in self.permutation_factors:
            return "permutation"
        return "pass-through"

    def __str__(self) -> str:
        operands = ", ".join(map(str, self.operand_mappings))
        results = ", ".join(map(str, self.result_mappings))
        sizes = (f"{factor_symbol(f)}={size}" for f, size in enumerate(self.factor_sizes))
        parts = [
            f"({operands})->({results})",
            _braces(" {", sizes),
            _braces(" reduction={", map(factor_symbol, self.reduction_factors)),
            _braces(" need_replication={", map(factor_symbol, self.need_replication_factors)),
            _braces(" permutation={", map(factor_symbol, self.permutation_factors)),
            _braces(" blocked_propagation={", map(factor_symbol, self.blocked_propagation_factors)),
            ", custom" if self.is_custom_rule else "",
        ]
        return "<" + "".join(parts) + ">"


def _braces(opening: str, items: Iterable[str]) -> str:
    listed = ", ".join(items)
    return f"{opening}{listed}}}" if listed else ""
