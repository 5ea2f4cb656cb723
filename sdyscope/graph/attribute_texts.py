"""Values of attributes from the texts that MLIR prints for them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sdyscope.graph.attribute_values import (
    AttributeValue,
    Dictionary,
    Elements,
    FunctionType,
    Keyword,
    Structure,
    Unparsed,
    rounded,
)
from sdyscope.graph.types import parse_type
from sdyscope.syntax.strings import split, string_end, unescape

_INTEGER = re.compile(r"(-?\d+)(?:\s*:\s*(?:[su]?i\d+|index))?")
_FLOAT = re.compile(r"(-?\d+\.\d*(?:[eE][+-]?\d+)?|-?\d+|0x[0-9A-Fa-f]+)\s*:\s*((?:b|t)?f\d\w*)")
_BARE_FLOAT = re.compile(r"-?\d+\.\d*(?:[eE][+-]?\d+)?")
_TYPE = re.compile(
    r"(?:tensor|vector|memref|complex|tuple)<.*>|![\w.$]+(?:<.*>)?|[su]?i\d+|(?:b|t)?f\d\w*"
    r"|index|none",
    re.DOTALL,
)
_DENSE = re.compile(r"dense<(.*)>\s*:\s*((?:tensor|vector)<.*>)", re.DOTALL)
_ARRAY = re.compile(r"array<\s*(\w+)\s*(?::(.*))?>", re.DOTALL)
_SYMBOLS = re.compile(r'@(?:[\w.$-]+|"(?:[^"\\]|\\.)*")(?:::@(?:[\w.$-]+|"(?:[^"\\]|\\.)*"))+')
#: `#dialect.name<...>`, `#dialect<name ...>` or `#dialect<name<...>>`.
_DIALECT = re.compile(r"#([A-Za-z_]\w*)(?:\.([\w.]+)\s*<(.*)>|<\s*(\w+)\s*(.*)>)", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_]\w*")
_CONVOLUTION = re.compile(r"\s*\[(.*?)\]\s*x\s*\[(.*?)\]\s*->\s*\[(.*?)\]\s*", re.DOTALL)

_DOT = (
    "lhs_batching_dimensions",
    "rhs_batching_dimensions",
    "lhs_contracting_dimensions",
    "rhs_contracting_dimensions",
)
_GATHER = (
    "offset_dims",
    "collapsed_slice_dims",
    "operand_batching_dims",
    "start_indices_batching_dims",
    "start_index_map",
)
_SCATTER = (
    "update_window_dims",
    "inserted_window_dims",
    "input_batching_dims",
    "scatter_indices_batching_dims",
    "scatter_dims_to_operand_dims",
)

#: Fields that are not printed when they are empty or 0, with that value, by attribute.
FIELDS: Mapping[str, Mapping[str, AttributeValue]] = {
    "dot": dict.fromkeys(_DOT, ()),
    "gather": {**dict.fromkeys(_GATHER, ()), "index_vector_dim": 0},
    "scatter": {**dict.fromkeys(_SCATTER, ()), "index_vector_dim": 0},
}
#: The letters of the dimensions of a convolution's operands and result, and their fields.
_CONVOLVED = (
    ("input", {"b": "batch", "f": "feature"}),
    ("kernel", {"i": "input_feature", "o": "output_feature"}),
    ("output", {"b": "batch", "f": "feature"}),
)


def attribute_value(text: str, aliases: Mapping[str, str] | None = None) -> AttributeValue:
    """The value of an attribute; `Unparsed` of a text that has no form known here.

    Args:
        text: the attribute as MLIR prints it.
        aliases: what `#map1` and the like stand for.
    """
    text = text.strip()
    for _ in range(len(aliases or ())):
        if aliases is None or text not in aliases:
            break
        text = aliases[text].strip()
    if text.startswith('"'):
        end = string_end(text, 0)
        if end == len(text) or text[end:].lstrip().startswith(":"):
            return unescape(text[:end])
    if text.startswith("@"):
        return _symbol(text)
    if text in ("true", "false"):
        return text == "true"
    if text in ("", "unit"):
        return True
    if match := _INTEGER.fullmatch(text):
        return int(match[1])
    if match := _FLOAT.fullmatch(text):
        return _number(match[1], match[2], text)
    if _BARE_FLOAT.fullmatch(text):
        return float(text)
    if text.startswith("{") and text.endswith("}"):
        return Dictionary(_fields(text[1:-1], aliases))
    if text.startswith("[") and text.endswith("]"):
        return tuple([attribute_value(part, aliases) for part in split(text[1:-1])])
    if match := _DENSE.fullmatch(text):
        return Elements(match[1], parse_type(match[2]))
    if match := _ARRAY.fullmatch(text):
        return _array(match[1], match[2] or "", text)
    if text.startswith("(") and "->" in text:
        return _function_type(text)
    if _TYPE.fullmatch(text):
        return parse_type(text)
    if match := _DIALECT.fullmatch(text):
        name, inside = (match[2], match[3]) if match[2] else (match[4], match[5])
        return _dialect(match[1], name, inside, text, aliases)
    return Unparsed(text)


def _symbol(text: str) -> AttributeValue:
    if _SYMBOLS.fullmatch(text):
        return tuple([_symbol(part) for part in re.split(r"::(?=@)", text)])
    if "::" in text:
        return Unparsed(text)
    return unescape(text[1:]) if text[1:].startswith('"') else text[1:]


def _number(number: str, dtype: str, text: str) -> AttributeValue:
    if number.startswith("0x"):
        return _element(number, dtype, text)
    return rounded(float(number), dtype)


def _element(number: str, dtype: str, text: str) -> AttributeValue:
    """A number written as bits, as a tensor of one element has it."""
    try:
        return Elements(number, parse_type(f"tensor<{dtype}>")).values
    except (ValueError, OverflowError):
        return Unparsed(text)


def _array(dtype: str, elements: str, text: str) -> AttributeValue:
    try:
        return tuple([_read_element(part, dtype) for part in split(elements)])
    except ValueError:
        return Unparsed(text)


def _read_element(part: str, dtype: str) -> AttributeValue:
    return Elements(part, parse_type(f"tensor<{dtype}>")).values


def _fields(text: str, aliases: Mapping[str, str] | None) -> dict[str, AttributeValue]:
    """`a = 1, "b c" = 2, d`."""
    fields = {}
    for part in split(text):
        name, *value = split(part, "=") or [""]
        key = unescape(name) if name.startswith('"') else name
        fields[key] = attribute_value("=".join(value), aliases)
    return fields


def _function_type(text: str) -> AttributeValue:
    """`(inputs) -> result` or `(inputs) -> (results)`."""
    given, arrow, result = (part.strip() for part in text.partition("->"))
    if not (arrow and given.endswith(")")) or "->" in result:
        return Unparsed(text)  # a function of functions
    results = split(result[1:-1]) if result.startswith("(") else [result]
    return FunctionType(tuple(map(parse_type, split(given[1:-1]))), tuple(map(parse_type, results)))


def _dialect(
    dialect: str, name: str, inside: str, text: str, aliases: Mapping[str, str] | None
) -> AttributeValue:
    """The value of `#dialect.name<inside>`."""
    inside = inside.strip()
    if dialect == "sdy" or (not inside and text.startswith(f"#{dialect}<")):
        return Unparsed(text)
    if inside.startswith("<") and inside.endswith(">"):
        inside = inside[1:-1].strip()
    of = f"{dialect}.{name}"
    if _WORD.fullmatch(inside):
        return Keyword(inside, of)
    if name == "conv" and (match := _CONVOLUTION.fullmatch(inside)):
        return Structure(_convolution(match.groups()), of)
    if name == "bounds":
        sizes = [None if part == "?" else part for part in split(inside)]
        if all(size is None or size.isdigit() for size in sizes):
            return tuple([None if size is None else int(size) for size in sizes])
        return Unparsed(text)
    parts = split(inside)
    if not all(len(split(part, "=")) == 2 for part in parts):
        return Unparsed(text)
    fields = {
        key: _field_value(value, aliases) for key, value in (split(part, "=") for part in parts)
    }
    return Structure({**FIELDS.get(name, {}), **fields}, of)


def _field_value(text: str, aliases: Mapping[str, str] | None) -> AttributeValue:
    """The value of a structure's field, where a bare word is a keyword."""
    value = attribute_value(text, aliases)
    return Keyword(text) if isinstance(value, Unparsed) and _WORD.fullmatch(text) else value


def _convolution(dimensions: tuple[str, ...]) -> dict[str, AttributeValue]:
    """Fields of `[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]`."""
    fields: dict[str, AttributeValue] = {}
    for (tensor, letters), written in zip(_CONVOLVED, dimensions, strict=True):
        spatial = {}
        for position, part in enumerate(split(written)):
            if part in letters:
                fields[f"{tensor}_{letters[part]}_dimension"] = position
            else:
                spatial[part] = position
        fields[f"{tensor}_spatial_dimensions"] = tuple(
            [spatial[part] for part in sorted(spatial, key=lambda part: (len(part), part))]
        )
    return fields
