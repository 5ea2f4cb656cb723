"""JAX's ``PartitionSpec``: text to values. The grammar is ``grammars/partition_spec.lark``.

Read is what JAX 0.7.2 to 0.12 prints, and what of Python makes the same: ``P.UNCONSTRAINED``,
``jax.sharding.PartitionSpec``, lists, ``frozenset``. Axis names are strings here; JAX takes any
hashable, and lets an axis stand twice until a mesh comes. The way back is ``str(value)``.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable
from typing import Any

from lark import Token, Transformer

from sdyscope.errors import ConversionError
from sdyscope.syntax._parser import Language
from sdyscope.values.sharding import UNCONSTRAINED, PartitionSpec, SpecEntry, Unconstrained


class _Values(Transformer[Token, Any]):
    def STRING(self, token: Token) -> str:  # noqa: N802
        with warnings.catch_warnings():
            # Python keeps the backslash of an escape that there is not, and warns.
            warnings.simplefilter("ignore")
            try:
                return str(ast.literal_eval(token))
            except (SyntaxError, ValueError):
                raise ConversionError(f"{token} is not a Python string") from None

    def NONE(self, token: Token) -> None:  # noqa: N802
        return None

    def UNCONSTRAINED(self, token: Token) -> Unconstrained:  # noqa: N802
        return UNCONSTRAINED

    def UNREDUCED_KIND(self, token: Token) -> str:  # noqa: N802
        return token.rpartition(".")[2].strip()

    def names(self, children: list[Any]) -> tuple[str, ...]:
        return tuple(child for child in children if child is not None)

    def name_set(self, children: list[Any]) -> frozenset[str]:
        names: set[str] = set()
        for child in children:
            names.update((child,) if isinstance(child, str) else child)
        return frozenset(names)

    def entry(self, children: list[SpecEntry]) -> tuple[str, SpecEntry]:
        return "entry", children[0]

    def unreduced(self, children: list[frozenset[str]]) -> tuple[str, frozenset[str]]:
        return "unreduced", children[0]

    def reduced(self, children: list[frozenset[str]]) -> tuple[str, frozenset[str]]:
        return "reduced", children[0]

    def unreduced_kind(self, children: list[str | None]) -> tuple[str, str | None]:
        return "unreduced_kind", children[0]

    def partition_spec(self, children: list[Any]) -> PartitionSpec:
        entries: list[SpecEntry] = []
        keywords: dict[str, Any] = {}
        for name, value in (child for child in children if child is not None):
            if name == "entry":
                if keywords:
                    raise ConversionError("a dimension can't follow a keyword argument")
                entries.append(value)
            elif name in keywords:
                raise ConversionError(f"{name} is given twice")
            else:
                keywords[name] = value
        kind = keywords.pop("unreduced_kind", None)
        if kind is not None:
            if not keywords.get("unreduced"):
                raise ConversionError("unreduced_kind needs unreduced axes")
            keywords["unreduced_kind"] = kind
        return PartitionSpec(tuple(entries), **keywords)


LANGUAGE = Language(
    "partition_spec.lark",
    transformer=_Values,
    names={
        "_CLASS": "'PartitionSpec'",
        "UNCONSTRAINED": "'UNCONSTRAINED'",
        "UNREDUCED_KIND": "'sum', 'max', 'min'",
        "STRING": "an axis name in quotes",
        "_SET": "'set'",
    },
)

#: ``P('x', None)``, ``PartitionSpec(('a', 'b'), UNCONSTRAINED)``, ``P('x', unreduced={'y'})``.
parse_partition_spec: Callable[[str], PartitionSpec] = LANGUAGE.parser("partition_spec")
