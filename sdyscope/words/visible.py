"""Text that cannot steer the terminal that shows it."""

from __future__ import annotations

import re

#: Control characters but tab and newline; line and paragraph separators; and what turns the
#: direction of text (Unicode's Bidi_Control).
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    r"""A text with each control and bidirectional character as ``\u001b``.

    Tabs and newlines stay. The form is JSON's, so a JSON document means the same afterwards.
    Bytes that are no UTF-8 are ``\xff``.
    """
    if text.isprintable():
        return text
    text = without_surrogates(text)
    return _STEERING.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


_SURROGATE = re.compile("[\ud800-\udfff]")


def _byte(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"\\u{code:04x}"


def without_surrogates(text: str) -> str:
    r"""A text with bytes that are no UTF-8, which Python holds as surrogates, as ``\xff``."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub(_byte, text)
    return text


#: Of a word without spaces so many characters are shown, which is ten lines or more.
_LONGEST_WORD = 1_000

_LONG_WORD = re.compile(rf"(\S{{{_LONGEST_WORD}}})(\S{{100,}})")


def abridged(text: str) -> str:
    """A text with words of thousands of characters, such as lists of devices, cut short."""
    if len(text) <= _LONGEST_WORD:
        return text
    return _LONG_WORD.sub(lambda match: f"{match[1]}... ({len(match[2]):,} more characters)", text)
