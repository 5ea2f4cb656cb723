"""Text that cannot steer the terminal that shows it."""

from __future__ import annotations

import re

__all__ = ["visible"]

#: Control characters but tab and newline; line and paragraph separators; and what turns the
#: direction of text (Unicode's Bidi_Control).
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    r"""A text with each control and bidirectional character as ``\u001b``.

    Tabs and newlines stay. The form is JSON's, so a JSON document means the same afterwards.
    """
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
