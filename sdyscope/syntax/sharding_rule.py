"""The ``sharding_rule`` strings of ``custom_partitioning``: ``grammars/sharding_rule.lark``.

Read is what JAX's ``str_to_sdy_sharding_rule`` reads, but for a comma between the factors of a
compound factor, where JAX puts a scalar in front of it. The way back is ``str(value)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lark import Token, Transformer

from sdyscope.syntax._parser import Language
from sdyscope.values.custom_partitioning_rule import (
    BATCHING,
    ArrayMapping,
    CompoundFactor,
    SdyShardingRule,
)

Mappings = tuple[tuple[ArrayMapping, ...], tuple[ArrayMapping, ...]]


class _Values(Transformer[Token, Any]):
    def BATCHING(self, token: Token) -> int:  # noqa: N802
        return int(token[len(BATCHING) :] or 0)

    def FACTOR(self, token: Token) -> str:  # noqa: N802
        return str(token)

    def sharding_rule(self, children: list[Any]) -> Mappings:
        operands, results = children
        return operands, results

    def operand_mappings(self, children: list[ArrayMapping]) -> tuple[ArrayMapping, ...]:
        return tuple(children)

    def result_mappings(self, children: list[ArrayMapping]) -> tuple[ArrayMapping, ...]:
        return tuple(children)

    def array_mapping(self, children: list[Any]) -> ArrayMapping:
        batching, *dims = children
        return ArrayMapping(tuple(dims), batching)

    def compound_factor(self, children: list[str]) -> CompoundFactor:
        return CompoundFactor(tuple(children))


LANGUAGE = Language(
    "sharding_rule.lark",
    transformer=_Values,
    names={"BATCHING": "'...'", "FACTOR": "the name of a factor"},
)


_parse_mappings: Callable[[str], Mappings] = LANGUAGE.parser("sharding_rule")


def parse_sdy_sharding_rule(
    text: str,
    *,
    reduction_factors: tuple[str, ...] = (),
    need_replication_factors: tuple[str, ...] = (),
    permutation_factors: tuple[str, ...] = (),
    **factor_sizes: int,
) -> SdyShardingRule:
    """A rule such as ``"... i (j k), k l -> ... i l"``, with JAX's keyword arguments beside it.

    Raises:
        SyntaxTextError: with line, column, a caret and what was expected.
        ConversionError: the keyword arguments do not fit the text.
    """
    operands, results = _parse_mappings(text)
    return SdyShardingRule(
        operands,
        results,
        tuple(factor_sizes.items()),
        reduction_factors,
        need_replication_factors,
        permutation_factors,
    )
