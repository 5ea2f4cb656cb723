r"""Strings of MLIR, which are bytes: what is no UTF-8 in them is written ``\xff``."""

from __future__ import annotations

import re
from typing import Any

_ESCAPE = re.compile(rb"\\(n|t|\\|\"|[0-9A-Fa-f]{2})")
_SIMPLE = {b"n": b"\n", b"t": b"\t", b"\\": b"\\", b'"': b'"'}


def decoded(raw: bytes) -> str:
    r"""The text of some bytes; ``\xff`` for each that is no UTF-8."""
    return raw.decode(errors="backslashreplace")


def string_value(attribute: Any) -> str:
    """The text of a StringAttr of MLIR's bindings, which raise for what is no UTF-8."""
    try:
        return str(attribute.value)
    except (RuntimeError, UnicodeDecodeError):
        return decoded(attribute.value_bytes)


_BREAK = re.compile("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")


def label(text: str) -> str:
    r"""A name as it is shown: a line break in it, which no name needs, is ``\x0a``.

    Else the name of a tensor could say a line that looks like one of the answer.
    """
    if text.isprintable():
        return text
    return _BREAK.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def unescape(text: str) -> str:
    """What a string in MLIR's text stands for, given with its quotes."""
    body = text[1:-1]
    if "\\" not in body:
        return body
    raw = body.encode(errors="surrogateescape")
    return decoded(_ESCAPE.sub(lambda m: _SIMPLE.get(m[1]) or bytes.fromhex(m[1].decode()), raw))


#: Brackets that a separator may stand inside of.
_OPEN, _CLOSE = "([{<", ")]}>"


def split(text: str, separator: str = ",") -> list[str]:
    """The parts between separators that stand outside of brackets and strings, stripped."""
    parts: list[str] = []
    depth, start, position = 0, 0, 0
    while position < len(text):
        character = text[position]
        if character == '"':
            position = string_end(text, position)
            continue
        if character == "-" and text.startswith("->", position):
            position += 2
            continue
        if character in _OPEN:
            depth += 1
        elif character in _CLOSE:
            depth -= 1
        elif depth == 0 and text.startswith(separator, position):
            parts.append(text[start:position].strip())
            start = position + len(separator)
        position += 1
    last = text[start:].strip()
    return [*parts, last] if parts or last else []


def string_end(text: str, start: int) -> int:
    """The position after the string that begins at `start`."""
    position = start + 1
    while position < len(text) and text[position] != '"':
        position += 2 if text[position] == "\\" else 1
    return position + 1


#: Characters that XML 1.0 has no form for, not even an escaped one.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def xml_text(text: str) -> str:
    """A text with a replacement for each character that XML has no form for."""
    return _NOT_XML.sub("\ufffd", text)
