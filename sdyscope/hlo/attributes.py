"""The operands and attributes of an instruction, taken apart.

What stands behind an opcode: ``(%a, f32[2]{0} %b), channel_id=1, metadata={op_name="x"}``.
"""

from __future__ import annotations

import re

from sdyscope.errors import ConversionError
from sdyscope.syntax._hlo_mesh import c_unescape

#: What matters on the way to the end of a list: strings as a whole, brackets, commas.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[(){}\[\],]')
_NESTING = re.compile(r'[(\[{"]')
_COMMENT = re.compile(r"/\*.*?\*/")
_NAME = re.compile(r"\s*([A-Za-z_][\w.\-]*)=")
_FIELD = re.compile(r'([A-Za-z_]\w*)=("(?:[^"\\]|\\.)*"|[^\s"{},]+)')
_METADATA = re.compile(r'\{[^"{}]*(?:"[^"\\]*(?:\\.[^"\\]*)*"[^"{}]*)*\}')
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")


def end_of_operands(text: str) -> int:
    """Where the parenthesis closes that was opened before ``text``; -1 when it never does."""
    end = text.find(")")
    if end >= 0 and _NESTING.search(text, 0, end) is None:
        return end  # As nearly always, operands are names alone.
    depth = 0
    for match in _TOKEN.finditer(text):
        char = match[0]
        if char in _OPENING:
            depth += 1
        elif char in _CLOSING:
            if depth == 0:
                return match.start()
            depth -= 1
    return -1


def split_list(text: str) -> list[str]:
    """The parts between commas that are not inside brackets or strings."""
    parts: list[str] = []
    depth = start = 0
    for match in _TOKEN.finditer(text):
        char = match[0]
        if char in _OPENING:
            depth += 1
        elif char in _CLOSING:
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start : match.start()].strip())
            start = match.end()
    parts.append(text[start:].strip())
    return [part for part in parts if part]


def operand_names(text: str) -> tuple[str, ...]:
    """Names of the operands in ``%a, f32[2]{0} %b``, without ``%``."""
    if "/*" in text:
        text = _COMMENT.sub("", text)
    parts = split_list(text) if _NESTING.search(text) else text.split(",")
    return tuple(
        part.strip().rpartition(" ")[2].removeprefix("%") for part in parts if part.strip()
    )


def split_attributes(text: str) -> dict[str, str]:
    """Attributes by name, values as they are written.

    A part without a name belongs to the value before it: ``mesh['a'=2], device_ids=(1,0) {'a'}``
    is one value, since no attribute of an instruction is called ``device_ids``.
    """
    attributes: dict[str, str] = {}
    last = ""
    for part in split_list(text):
        match = _NAME.match(part)
        if match is None or match[1] == "device_ids":
            if last:
                attributes[last] += f", {part}"
            continue
        last = match[1]
        attributes[last] = part[match.end() :].strip()
    return attributes


def metadata_text(rest: str) -> str | None:
    """The value of ``metadata`` behind an opcode's parenthesis, without taking the rest apart.

    None where that needs it: a string or an open brace stands before, another ``metadata`` behind.
    """
    start = rest.find(", metadata={")
    if start < 0 or rest.find('"', 0, start) >= 0:
        return None
    if rest.count("{", 0, start) != rest.count("}", 0, start):
        return None
    match = _METADATA.match(rest, start + len(", metadata="))
    if match is None or rest.find("metadata=", match.end()) >= 0:
        return None
    return match[0]


def metadata_op_name(text: str) -> str:
    """The field ``op_name`` alone of ``{op_name="jit(f)/add" source_line=3}``; empty without it."""
    if text.startswith('{op_name="'):
        end = text.index('"', len('{op_name="'))
        if text.find("\\", 0, end) < 0:
            return text[len('{op_name="') : end]
    return metadata_fields(text).get("op_name", "")


def metadata_fields(text: str) -> dict[str, str]:
    """The fields of ``{op_name="jit(f)/add" source_line=3}``; strings without their quotes."""
    return {
        name: unescaped(value[1:-1]) if value.startswith('"') else value
        for name, value in _FIELD.findall(text)
    }


def unescaped(text: str) -> str:
    """The inside of a string literal as Unicode; as it is written where it has no meaning."""
    if "\\" not in text:
        return text
    try:
        meant = c_unescape(text)
    except ConversionError:
        return text
    return meant.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
