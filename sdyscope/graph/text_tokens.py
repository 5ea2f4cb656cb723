"""Tokens of MLIR's assembly format, coarse: what can stand as one piece is one token."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple


class Token(NamedTuple):
    """A token.

    Attributes:
        kind: `newline`, `string`, `value` (`%4`), `block` (`^bb0`), `symbol` (`@main`), `alias`
            (`#loc3`), `word` (a keyword, op name or number), `type` (`tensor<8xf32>`), `location`
            (`loc(#loc3)`), `dense` (`dense<...>`), `mark` (one character of punctuation or `->`),
            `region` (made by the reader: a whole region), `stray` (a character of no token).
        text: the token as written.
        start: offset of its first character.
        end: offset after its last character.
        line: its line, from 1.
    """

    kind: str
    text: str
    start: int
    end: int
    line: int


_TOKEN = re.compile(
    r"""
    [ \t\r]+ | //[^\n]* | \{-\#.*?\#-\} (?:\n|$)
  | (?P<newline> \n )
  | (?P<location> loc\(\#\w+\) )
  | (?P<type> (?:tensor|vector|memref)<[^<>"\n]*> | ![A-Za-z_][\w.$]* )
  | (?P<dense> dense(?:_resource)?<[^<>]*> )
  | (?P<value> %[\w.$\-]+(?:[:\#]\d+)? )
  | (?P<string> "(?:[^"\\\n]|\\.)*" )
  | (?P<word> [A-Za-z_][\w.$]* | -?\d[\w.+]* | -?\d+\.\d*(?:[eE][+-]?\d+)? )
  | (?P<symbol> @(?:[A-Za-z_][\w.$\-]*|"(?:[^"\\\n]|\\.)*") )
  | (?P<block> \^[\w.$]+ )
  | (?P<alias> \#[A-Za-z_][\w.$]* )
  | (?P<mark> -> | [<>]= | :: | [()\[\]{}<>,:=?*+/|-] )
  | (?P<stray> . )
    """,
    re.VERBOSE | re.DOTALL,
)


def tokenize(text: str) -> Iterator[Token]:
    """The tokens of a text, one at a time; spaces, comments and resources are left out."""
    line = 1
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind is None:
            line += match.group().count("\n")
            continue
        yield Token(kind, match.group(), match.start(), match.end(), line)
        if kind == "newline":
            line += 1
        elif kind == "dense":
            line += match.group().count("\n")


class TokenStream:
    """The tokens of a text with a look ahead."""

    def __init__(self, text: str) -> None:
        self._tokens = tokenize(text)
        self._ahead: list[Token] = []

    def next(self) -> Token | None:
        """The next token; None at the end."""
        if self._ahead:
            return self._ahead.pop(0)
        return next(self._tokens, None)

    def peek(self, position: int = 0) -> Token | None:
        """The token `position` after the next one."""
        while len(self._ahead) <= position:
            token = next(self._tokens, None)
            if token is None:
                return None
            self._ahead.append(token)
        return self._ahead[position]

    def after_newlines(self) -> int:
        """How many newlines come next."""
        count = 0
        while (token := self.peek(count)) is not None and token.kind == "newline":
            count += 1
        return count
