"""Attributes about sharding, and how their texts become values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import is_
from typing import Any, Literal, TypeAlias, get_args

from sdyscope.errors import SdyscopeError
from sdyscope.graph.attribute_values import AttributeValue, Dictionary, Unparsed
from sdyscope.graph.model import NotUnderstood, Sharding
from sdyscope.values.sharding import TensorSharding, TensorShardingPerValue
from sdyscope.values.tiling import HloSharding, NamedHloSharding, TupleSharding

Language: TypeAlias = Literal[
    "sharding",
    "sharding_per_value",
    "manual_axes",
    "op_sharding_rule",
    "mesh",
    "axis_ref_list",
    "list_of_axis_ref_lists",
    "all_to_all_param_list",
    "propagation_edges",
    "hlo_sharding",
]
"""The languages that attributes about sharding are written in: Shardy's, by their names in its
dialect (`#sdy.NAME<...>` or `#sdy<NAME...>`), and HLO's."""

Parsers: TypeAlias = Mapping[Language, Callable[[str], Any]]
"""A parser a language: from an attribute's text to its value, or an `SdyscopeError`."""

_SHARDY_LANGUAGES: dict[str, Language] = {
    name: name for name in get_args(Language) if name != "hlo_sharding"
}
_SHARDY_TEXT = re.compile(r"#sdy[.<]\s*(\w+)")

#: String attributes that hold an HLO sharding.
HLO_SHARDING_NAMES = frozenset({"mhlo.sharding"})

#: Attributes that give the shardings of an op's results, by how they are found on it.
RESULT_SHARDING_NAMES = (
    "sdy.sharding",
    "mhlo.sharding",
    "sharding",
    "out_sharding",
    "out_shardings",
)


def default_parsers() -> Parsers:
    """Sdyscope's own parsers."""
    from sdyscope.syntax import hlo_sharding, shardy

    return {
        "sharding": shardy.parse_tensor_sharding,
        "sharding_per_value": shardy.parse_tensor_sharding_per_value,
        "manual_axes": shardy.parse_manual_axes,
        "op_sharding_rule": shardy.parse_op_sharding_rule,
        "mesh": shardy.parse_mesh,
        "axis_ref_list": shardy.parse_axis_ref_list,
        "list_of_axis_ref_lists": shardy.parse_list_of_axis_ref_lists,
        "all_to_all_param_list": shardy.parse_all_to_all_param_list,
        "propagation_edges": shardy.parse_propagation_edges,
        "hlo_sharding": hlo_sharding.parse_hlo_sharding,
    }


def language_of(name: str, text: str) -> Language | None:
    """The sharding language of an attribute, from its name and how its text begins."""
    if name in HLO_SHARDING_NAMES:
        return "hlo_sharding"
    match = _SHARDY_TEXT.match(text)
    return None if match is None else _SHARDY_LANGUAGES.get(match[1])


@dataclass(frozen=True, slots=True)
class _Failed:
    """What a text that did not parse is remembered as."""

    text: str
    error: str


class ShardingTexts:
    """Parses each distinct sharding text once, and lists the uses of those that do not parse.

    Args:
        parsers: a parser a language.
        not_understood: the list that texts which do not parse are added to.

    Attributes:
        has_failed: whether there was a text that does not parse, listed or not.
    """

    def __init__(self, parsers: Parsers, not_understood: list[NotUnderstood]) -> None:
        self._parsers = parsers
        self.not_understood = not_understood
        self.has_failed = False
        self._known: dict[tuple[Language, str], Any] = {}

    def read(self, language: Language, text: str, op: int | None, attribute: str) -> AttributeValue:
        """The value of `text`; when it cannot be parsed `text` itself, which is then listed."""
        key = (language, text)
        if key not in self._known:
            self._known[key] = self._parse(language, text)
        value = self._known[key]
        if isinstance(value, _Failed):
            if op is not None:
                item = NotUnderstood(op, attribute, str(value.text), value.error)
                self.not_understood.append(item)
            return Unparsed(value.text)
        return value

    def read_in(self, name: str, value: AttributeValue, op: int | None) -> AttributeValue:
        """An attribute's value with the texts in it that say something about sharding read.

        Args:
            name: the attribute's name.
            value: its value, where they are texts still.
            op: the op that a text which cannot be parsed is listed under; None not to list it.
        """
        if isinstance(value, str):
            language = language_of(name, value)
            return value if language is None else self.read(language, value, op, name)
        return self._read_inside(name, value, op)

    def _read_inside(self, name: str, value: AttributeValue, op: int | None) -> AttributeValue:
        """As `read_in`, but a string is a user's own there, whatever it looks like."""
        if isinstance(value, Unparsed) or (isinstance(value, str) and name in HLO_SHARDING_NAMES):
            return self.read_in(name, value, op)
        if isinstance(value, tuple):
            items = [self._read_inside(name, item, op) for item in value]
            return value if all(map(is_, items, value)) else tuple(items)
        if type(value) is Dictionary:
            fields = {key: self._read_inside(key, item, op) for key, item in value.items()}
            return value if all(map(is_, fields.values(), value.values())) else Dictionary(fields)
        return value

    def _parse(self, language: Language, text: str) -> Any:
        try:
            return self._parsers[language](text)
        except SdyscopeError as error:
            self.has_failed = True
            return _Failed(text, str(error).partition("\n")[0])


def result_shardings(
    attributes: Mapping[str, AttributeValue], count: int
) -> tuple[Sharding | None, ...]:
    """The sharding that an op's attributes give each of its `count` results.

    A sharding that was not understood stands as its text for every result.
    """
    for name in RESULT_SHARDING_NAMES:
        value = attributes.get(name)
        if value is None:
            continue
        if isinstance(value, TensorShardingPerValue):
            parts: tuple[Sharding, ...] = value.shardings
        elif isinstance(value, TupleSharding) and count != 1:
            parts = value.elements
        elif isinstance(value, (TensorSharding, HloSharding, NamedHloSharding, TupleSharding, str)):
            parts = (value,) * count
        else:
            continue
        return parts if len(parts) == count else (None,) * count
    return (None,) * count
