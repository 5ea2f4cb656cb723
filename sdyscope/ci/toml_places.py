"""Where in a TOML text each key and each element of an array is written.

``tomllib`` reads TOML and says no places, and neither does any other reader for Python. This scans
a text that ``tomllib`` has accepted, so nothing is checked here.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

Path: TypeAlias = tuple[str | int, ...]
"""Keys and, for the elements of arrays and arrays of tables, their numbers from 0."""

_TOKEN = re.compile(
    r'''(?P<text>"""(?:\\[\s\S]|(?!""")[^\\])*"""(?:"{0,2})'''
    r"""|'''(?:(?!''')[\s\S])*'''(?:'{0,2})|"(?:\\.|[^"\\\n])*"|'[^'\n]*')"""
    r"""|(?P<skip>[ \t\r]+|\#[^\n]*)|(?P<newline>\n)|(?P<mark>[\[\]{}=,])"""
    r"""|(?P<bare>[^\s\[\]{}=,\#"']+)"""
)


class TextPlace(NamedTuple):
    """A line and a column, both counted from 1."""

    line: int
    column: int


class _Token(NamedTuple):
    kind: str
    text: str
    place: TextPlace


def toml_places(text: str) -> dict[Path, TextPlace]:
    """The place of everything in a text that ``tomllib`` can read, by its path.

    A table is where its header is, or where it is first named; a key where the key is.
    """
    return _Scanner(text).scan()


def nearest(places: Mapping[Path, TextPlace], path: Path) -> TextPlace | None:
    """The place of what a path names, or of the innermost thing around it that has one."""
    while path:
        if path in places:
            return places[path]
        path = path[:-1]
    return None


class _Scanner:
    def __init__(self, text: str) -> None:
        self.tokens = _tokens(text)
        self.at = 0
        self.places: dict[Path, TextPlace] = {}
        self.lengths: dict[Path, int] = {}  # of arrays of tables

    def scan(self) -> dict[Path, TextPlace]:
        table: Path = ()
        while (token := self.peek()) is not None:
            if token.kind == "newline":
                self.at += 1
            elif token.text == "[" and token.kind == "mark":
                table = self.header()
            else:
                self.pair(table)
        return self.places

    def peek(self) -> _Token | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def is_mark(self, *marks: str) -> bool:
        token = self.peek()
        return token is not None and token.kind == "mark" and token.text in marks

    def header(self) -> Path:
        """``[a.b]`` or ``[[a.b]]``; returns the table that it opens."""
        self.at += 1
        many = self.is_mark("[")
        self.at += many
        *outer, (last, place) = self.key()
        self.at += 1 + many
        path: Path = ()
        for name, where in outer:
            path = self.inside((*path, name), where)
        path = (*path, last)
        self.places.setdefault(path, place)
        if many:
            number = self.lengths.get(path, 0)
            self.lengths[path] = number + 1
            path = (*path, number)
            self.places[path] = place
        return path

    def inside(self, path: Path, place: TextPlace) -> Path:
        """A table that a header names on its way: of an array of tables the last one."""
        self.places.setdefault(path, place)
        return (*path, self.lengths[path] - 1) if path in self.lengths else path

    def pair(self, table: Path) -> None:
        path = table
        for name, place in self.key():
            path = (*path, name)
            self.places.setdefault(path, place)
        self.at += 1  # =
        self.value(path)

    def key(self) -> list[tuple[str, TextPlace]]:
        """The parts of a dotted key."""
        parts: list[tuple[str, TextPlace]] = []
        while (token := self.peek()) is not None and token.kind in ("bare", "text"):
            self.at += 1
            if token.kind == "text":
                parts.append((tomllib.loads(f"key = {token.text}")["key"], token.place))
                continue
            column = token.place.column
            for part in token.text.split("."):
                if part:
                    parts.append((part, TextPlace(token.place.line, column)))
                column += len(part) + 1
        return parts

    def value(self, path: Path) -> None:
        if self.is_mark("["):
            self.array(path)
        elif self.is_mark("{"):
            self.inline_table(path)
        else:  # a date and its time are two tokens
            while (token := self.peek()) is not None and token.kind in ("bare", "text"):
                self.at += 1

    def array(self, path: Path) -> None:
        self.at += 1
        number = 0
        while not self.is_mark("]"):
            token = self.tokens[self.at]
            if token.kind == "newline" or self.is_mark(","):
                self.at += 1
                continue
            self.places[(*path, number)] = token.place
            self.value((*path, number))
            number += 1
        self.at += 1

    def inline_table(self, path: Path) -> None:
        self.at += 1
        while not self.is_mark("}"):
            if self.tokens[self.at].kind == "newline" or self.is_mark(","):
                self.at += 1
                continue
            self.pair(path)
        self.at += 1


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    line, start = 1, 0
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or ""
        if kind != "skip":
            tokens.append(_Token(kind, match[0], TextPlace(line, match.start() - start + 1)))
        if newlines := match[0].count("\n"):
            line += newlines
            start = match.start() + match[0].rindex("\n") + 1
    return tokens
