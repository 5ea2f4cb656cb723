"""Strings, lists and locations from the texts that MLIR prints for them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sdyscope.graph.locations import UNKNOWN, Location, call_site, file_place, fused, named
from sdyscope.syntax.strings import split, string_end, unescape

_FILE = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):(\d+)(?:\s+to\s+(?:\d+)?:\d+)?')


class LocationTexts:
    """Reads locations from their texts, each distinct one once.

    Args:
        aliases: what `#loc3` and the like stand for (`loc("a"(#loc2))`); may still grow before the
            first location is read.
    """

    def __init__(self, aliases: Mapping[str, str]) -> None:
        self._aliases = aliases
        self._known: dict[tuple[str, bool], tuple[Location, bool]] = {}
        self._wrong: set[tuple[str, bool]] = set()
        self._met_wrong = False

    def __call__(self, text: str) -> tuple[Location, bool]:
        """The value of `loc(...)`, and whether all of it was understood."""
        if not text:
            return UNKNOWN, True
        self._met_wrong = False
        location = self._read(text, whole=True)[0]
        return location, not self._met_wrong

    def _read(self, text: str, *, whole: bool) -> tuple[Location, bool]:
        """The value, and whether it is just a place in a file."""
        key = (text, whole)
        if key not in self._known:
            outside, self._met_wrong = self._met_wrong, False
            # Set first, so that an alias which names itself ends here.
            self._known[key] = (UNKNOWN, False)
            try:
                self._known[key] = self._parse(text.strip(), whole=whole)
            except (ValueError, IndexError, RecursionError):
                self._met_wrong = True
            if self._met_wrong:
                self._wrong.add(key)
            self._met_wrong = outside
        if key in self._wrong:
            self._met_wrong = True
        return self._known[key]

    def _parse(self, text: str, *, whole: bool) -> tuple[Location, bool]:
        if text.startswith("loc(") and text.endswith(")"):
            return self._read(text[4:-1], whole=whole)
        if text.startswith("#"):
            return self._read(self._alias(text), whole=whole)
        if text in ("unknown", "?"):
            return UNKNOWN, False
        if match := _FILE.fullmatch(text):
            return file_place(unescape(f'"{match[1]}"'), int(match[2]), int(match[3])), True
        if text.startswith('"'):
            end = string_end(text, 0)
            name, rest = unescape(text[:end]), text[end:].strip()
            if not rest:
                return named(name, UNKNOWN, frame=False), False
            if not (rest.startswith("(") and rest.endswith(")")):
                raise ValueError(text)
            child, is_file = self._read(rest[1:-1], whole=False)
            return named(name, child, frame=is_file and not whole), False
        if text.startswith("callsite(") and text.endswith(")"):
            callee, caller = _split_at(text[9:-1])
            return call_site(
                self._read(callee, whole=False)[0], self._read(caller, whole=False)[0]
            ), False
        if text.startswith("fused") and text.endswith("]"):
            start = len("fused") + _metadata_length(text[len("fused") :])
            parts = split(text[start + 1 : -1])
            return fused([self._read(part, whole=False)[0] for part in parts]), False
        raise ValueError(text)

    def _alias(self, name: str) -> str:
        if name not in self._aliases:
            raise ValueError(name)
        return self._aliases[name]


def _split_at(text: str) -> tuple[str, str]:
    """`callee at caller`, split where the `at` is outside of brackets and strings."""
    callee, *caller = split(text, " at ")
    if not caller:
        raise ValueError(text)
    return callee, " at ".join(caller)


def _metadata_length(text: str) -> int:
    """Length of the `<...>` that a text begins with; 0 when it begins with none."""
    if not text.startswith("<"):
        return 0
    depth, position = 0, 0
    while position < len(text):
        if text[position] == '"':
            position = string_end(text, position)
            continue
        depth += {"<": 1, ">": -1}.get(text[position], 0)
        position += 1
        if depth == 0:
            return position
    raise ValueError(text)
