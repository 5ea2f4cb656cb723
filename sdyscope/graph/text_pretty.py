"""Attributes that the pretty forms of StableHLO's ops write in words and signs of their own."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from sdyscope.syntax.strings import split

if TYPE_CHECKING:
    from sdyscope.graph.text_statements import Statement


def pretty_attributes(statement: Statement, named: dict[str, str]) -> dict[str, str]:
    """Attributes of a statement in the pretty form, as texts of the generic form by their names.

    Args:
        statement: the statement.
        named: texts of what it says as `name = text` outside of a dictionary.
    """
    dialect, _, kind = statement.kind.partition(".")
    if dialect not in ("stablehlo", "mhlo") and statement.kind != "sdy.constant":
        return named
    attributes: dict[str, str] = {}
    for name, text in named.items():
        own, form = _RENAMED.get((kind, name), (name, str))
        attributes[own] = form(text)
    special = _SPECIAL.get(kind)
    return attributes if special is None else special(statement, attributes)


def _integers(text: str) -> str:
    """`[0, 1]` as `array<i64: 0, 1>`."""
    inside = text.strip()[1:-1].strip()
    return f"array<i64: {inside}>" if inside else "array<i64>"


def _keyword(of: str) -> Callable[[str], str]:
    return lambda text: f"#stablehlo<{of} {text}>"


def _precisions(text: str) -> str:
    return f"[{', '.join(map(_keyword('precision'), split(text.strip()[1:-1])))}]"


#: The attribute and the form of what is written as `name = text`, by op and name.
_RENAMED: dict[tuple[str, str], tuple[str, Callable[[str], str]]] = {
    ("broadcast_in_dim", "dims"): ("broadcast_dimensions", _integers),
    ("dynamic_broadcast_in_dim", "dims"): ("broadcast_dimensions", _integers),
    ("transpose", "dims"): ("permutation", _integers),
    ("reverse", "dims"): ("dimensions", _integers),
    ("reduce", "dimensions"): ("dimensions", _integers),
    ("concatenate", "dim"): ("dimension", str),
    ("iota", "dim"): ("iota_dimension", str),
    ("dynamic_iota", "dim"): ("iota_dimension", str),
    ("get_dimension_size", "dim"): ("dimension", str),
    ("set_dimension_size", "dim"): ("dimension", str),
    ("dynamic_slice", "sizes"): ("slice_sizes", _integers),
    ("pad", "low"): ("edge_padding_low", _integers),
    ("pad", "high"): ("edge_padding_high", _integers),
    ("pad", "interior"): ("interior_padding", _integers),
    ("fft", "type"): ("fft_type", _keyword("fft_type")),
    ("fft", "length"): ("fft_length", _integers),
    ("rng", "distribution"): ("rng_distribution", _keyword("rng_distribution")),
    ("rng_bit_generator", "algorithm"): ("rng_algorithm", _keyword("rng_algorithm")),
    ("dot", "precision"): ("precision_config", _precisions),
    ("dot_general", "precision"): ("precision_config", _precisions),
}


def _dot_general(statement: Statement, attributes: dict[str, str]) -> dict[str, str]:
    """`batching_dims = [0] x [0], contracting_dims = [2] x [1]`."""
    fields = []
    for kind in ("batching", "contracting"):
        left, _, right = attributes.pop(f"{kind}_dims", "").partition(" x ")
        if right:
            fields.append(f"lhs_{kind}_dimensions = {left}, rhs_{kind}_dimensions = {right}")
    return {**attributes, "dot_dimension_numbers": f"#stablehlo.dot<{', '.join(fields)}>"}


def _compare(statement: Statement, attributes: dict[str, str]) -> dict[str, str]:
    """`compare LT, %0, %1, SIGNED`."""
    start = statement.op_position() + 1
    colon = next((p for p in statement.top(start) if statement.tokens[p].text == ":"), None)
    tokens = [statement.tokens[position] for position in statement.top(start, colon)]
    words = [token.text for token in tokens if token.kind == "word"]
    for word, name in zip(words, ("comparison_direction", "compare_type"), strict=False):
        of = "comparison_type" if name == "compare_type" else name
        attributes[name] = _keyword(of)(word)
    return attributes


def _constant(statement: Statement, attributes: dict[str, str]) -> dict[str, str]:
    """`constant {x.a = 1} dense<1> : tensor<i32> loc(#loc1)`."""
    tokens = statement.tokens
    start = statement.op_position() + 1
    if start < len(tokens) and tokens[start].text == "{":
        start = statement.close(start) + 1
    ends = (
        position
        for position in statement.top(start)
        if tokens[position].kind == "location" or tokens[position].text == "loc"
    )
    return {**attributes, "value": statement.text(start, next(ends, len(tokens)))}


def _slice(statement: Statement, attributes: dict[str, str]) -> dict[str, str]:
    """`slice %0 [0:1, 2:8:2]`."""
    inside = _in_brackets(statement)
    if inside is None:
        return attributes
    ranges = [[*split(part, ":"), "1"][:3] for part in split(inside)]
    if not all(len(part) == 3 for part in ranges):
        return attributes
    for number, name in enumerate(("start_indices", "limit_indices", "strides")):
        attributes[name] = _integers(f"[{', '.join(part[number] for part in ranges)}]")
    return attributes


def _reduce_precision(statement: Statement, attributes: dict[str, str]) -> dict[str, str]:
    """`format = e5m10`."""
    match = re.fullmatch(r"e(\d+)m(\d+)", attributes.get("format", ""))
    if match is not None:
        del attributes["format"]
        attributes |= {"exponent_bits": match[1], "mantissa_bits": match[2]}
    return attributes


#: Fields of a convolution's window, and the attributes that they are.
_WINDOW = {
    "stride": "window_strides",
    "pad": "padding",
    "lhs_dilate": "lhs_dilation",
    "rhs_dilate": "rhs_dilation",
    "reverse": "window_reversal",
}


def _convolution(statement: Statement, attributes: dict[str, str]) -> dict[str, str]:
    """`dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {stride = [1], ...}`."""
    numbers = attributes.pop("dim_numbers", "")
    if numbers:
        attributes["dimension_numbers"] = f"#stablehlo.conv<{numbers}>"
    window = attributes.pop("window", "")
    for part in split(window.strip()[1:-1]):
        name, *text = split(part, "=")
        written = "=".join(text)
        if name == "pad":
            count = len(split(written[1:-1]))
            written = _pairs(written, count)
        elif name == "reverse":
            written = _integers(written).replace("array<i64", "array<i1")
        else:
            written = _integers(written)
        attributes[_WINDOW.get(name, name)] = written
    return attributes


def _pairs(text: str, count: int) -> str:
    """`[[1, 1], [1, 1]]` as MLIR prints the tensor."""
    distinct = set(re.findall(r"-?\d+", text))
    body = distinct.pop() if len(distinct) == 1 else text
    return f"dense<{body}> : tensor<{count}x2xi64>"


def _tuple_element(statement: Statement, attributes: dict[str, str]) -> dict[str, str]:
    """`get_tuple_element %0[1]`."""
    index = _in_brackets(statement)
    return attributes if index is None else {**attributes, "index": index}


def _in_brackets(statement: Statement) -> str | None:
    """What stands in the first square brackets behind the op's name; None without any."""
    start = statement.op_position() + 1
    bracket = next((p for p in statement.top(start) if statement.tokens[p].text == "["), None)
    return None if bracket is None else statement.text(bracket + 1, statement.close(bracket))


_SPECIAL: dict[str, Callable[[Statement, dict[str, str]], dict[str, str]]] = {
    "dot_general": _dot_general,
    "compare": _compare,
    "constant": _constant,
    "slice": _slice,
    "reduce_precision": _reduce_precision,
    "convolution": _convolution,
    "get_tuple_element": _tuple_element,
}
