"""Rules for logical axes that a configuration file says, as MaxText's and Levanter's do.

They are what they are in a source: a sequence of pairs, ``[['batch', ['data']], ['mlp', []]]``, or
a mapping, ``{batch: data, mlp: null}``. PyYAML says where each stands; JSON is YAML, too.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import yaml

from sdyscope.patches.rules import LogicalRule, are_rules, may_have_rules
from sdyscope.patches.specs import UNKNOWN
from sdyscope.values.sharding import SpecEntry

#: The ends of the names of files that are looked at.
CONFIGURATIONS = (".yaml", ".yml", ".json")

#: PyYAML's reader in Python, which says places, takes seconds for a longer one.
_LONGEST = 1 << 19

#: What YAML reads as no value.
_NULL = "tag:yaml.org,2002:null"
_TEXT = "tag:yaml.org,2002:str"


@dataclass(frozen=True, slots=True)
class _Pair:
    """A name, and what is said of it."""

    key: Any
    value: Any
    in_mapping: bool


@dataclass(frozen=True, slots=True)
class _Style:
    """How axes are written in some rules.

    Attributes:
        quote: around each; empty for none.
        is_listed: whether one axis, or none, is a list as well.
    """

    quote: str
    is_listed: bool

    def name(self, axis: str) -> str:
        """One axis; in quotes where YAML would read another value."""
        quote = self.quote or ("" if yaml.safe_load(axis) == axis and axis.isidentifier() else "'")
        return f"{quote}{axis}{quote}"

    def text(self, is_list: bool, axes: SpecEntry) -> str:
        """The axes of a dimension, in the place of what is a list or not."""
        names = axes if isinstance(axes, tuple) else (axes,) if isinstance(axes, str) else ()
        if is_list or len(names) > 1 or (not names and self.is_listed):
            return f"[{', '.join(map(self.name, names))}]"
        return self.name(names[0]) if names else "null"


def configured_rules(file: str, text: str, axes: Collection[str]) -> Iterator[LogicalRule]:
    """Every rule of a configuration file; none of one that can't be read.

    Args:
        file: its path.
        text: its text.
        axes: the names of the mesh's axes.
    """
    # Of the files that a program reads, most are about something else.
    if len(text) > _LONGEST or not (may_have_rules(text) or any(axis in text for axis in axes)):
        return
    try:
        if file.endswith(".json"):
            json.loads(text)
        roots = list(yaml.compose_all(text, yaml.SafeLoader))
    except (ValueError, yaml.YAMLError, RecursionError):
        return
    left, seen = [(root, "") for root in reversed(roots) if root is not None], set()
    while left:
        node, called = left.pop()
        # What an alias names is said where its anchor is.
        if id(node) in seen or isinstance(node, yaml.ScalarNode):
            continue
        seen.add(id(node))
        rules = list(_rules(file, text, node, called, axes))
        if rules:
            yield from rules
        elif isinstance(node, yaml.MappingNode):
            left += [(value, str(key.value)) for key, value in reversed(node.value)]
        else:
            left += [(value, "") for value in reversed(node.value)]


def _rules(
    file: str, text: str, node: Any, called: str, axes: Collection[str]
) -> Iterator[LogicalRule]:
    """The rules of a sequence or mapping, where all of it is rules."""
    pairs = _pairs(node)
    entries = [_entry(pair.value, axes) for pair in pairs]
    said = {pair.key.value: entry for pair, entry in zip(pairs, entries, strict=True)}
    if UNKNOWN in entries or not are_rules(said, called, axes):
        return
    at = node.start_mark.index
    for pair in pairs:
        start = pair.value.start_mark.index
        # What an anchor, alias or tag is part of has readers elsewhere.
        if start < at or text[start : start + 1] in ("&", "*", "!"):
            return
        at = start
    names = [name for pair in pairs for name in _names(pair.value)]
    style = _Style(
        '"' if file.endswith(".json") else (names[0].style or "") if names else "",
        any(isinstance(pair.value, yaml.SequenceNode) for pair in pairs),
    )
    for pair, entry in zip(pairs, entries, strict=True):
        start, end, before = _place(text, pair)
        write = partial(_written, style, isinstance(pair.value, yaml.SequenceNode), before)
        at = pair.key.start_mark
        yield LogicalRule(file, at.line + 1, at.column, pair.key.value, entry, start, end, write)


def _written(style: _Style, is_list: bool, before: str, axes: SpecEntry) -> str:
    return before + style.text(is_list, axes)


def _pairs(node: Any) -> list[_Pair]:
    """The names of a mapping, or of a sequence of pairs; nothing of anything else."""
    if isinstance(node, yaml.MappingNode):
        pairs = [_Pair(key, value, True) for key, value in node.value]
    elif all(isinstance(each, yaml.SequenceNode) and len(each.value) == 2 for each in node.value):
        pairs = [_Pair(key, value, False) for key, value in (each.value for each in node.value)]
    else:
        return []
    return pairs if all(_is_text(pair.key) for pair in pairs) else []


def _is_text(node: Any) -> bool:
    return isinstance(node, yaml.ScalarNode) and bool(node.tag == _TEXT)


def _names(value: Any) -> list[Any]:
    """What is written for each axis of a value."""
    each = value.value if isinstance(value, yaml.SequenceNode) else [value]
    return [name for name in each if _is_text(name)]


def _entry(value: Any, axes: Collection[str]) -> SpecEntry | Literal["?"]:
    if isinstance(value, yaml.ScalarNode) and value.tag == _NULL:
        return None
    names = [name.value for name in _names(value)]
    count = len(value.value) if isinstance(value, yaml.SequenceNode) else 1
    if isinstance(value, yaml.MappingNode) or len(names) != count or not {*names} <= {*axes}:
        return UNKNOWN
    return tuple(names) if len(names) > 1 else names[0] if names else None


def _place(text: str, pair: _Pair) -> tuple[int, int, str]:
    """The characters that say a value, and what has to stand before another."""
    value = pair.value
    start, end = value.start_mark.index, value.end_mark.index
    is_block = isinstance(value, yaml.SequenceNode) and not value.flow_style
    if is_block and value.value:
        # A block ends, as YAML has it, where the next thing begins.
        end = value.value[-1].end_mark.index
    if pair.in_mapping and (is_block or start == end):
        # A list may be indented no further than its name, and nothing is written for nothing.
        return text.index(":", pair.key.end_mark.index) + 1, end, " "
    return start, end, ""
