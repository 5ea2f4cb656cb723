"""What attributes of ops become: plain Python values, and these few classes."""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import Any, NoReturn, TypeAlias

from sdyscope.graph.types import TensorType
from sdyscope.syntax.strings import unescape

AttributeValue: TypeAlias = Any
"""The value of an attribute.

int, float, bool and str for numbers, flags, strings and symbols; True for a unit; a tuple for an
array; `Dictionary`, `Structure`, `Keyword`, `Elements`, `TensorType` or `FunctionType`; a parsed
value of Shardy's or HLO's for what is about sharding; `Unparsed` for all else.
"""


class Unparsed(str):
    """The text of an attribute that sdyscope has no value for, as MLIR prints it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Unparsed({super().__repr__()})"


class Keyword(str):
    """A word out of a fixed set: equal to the str, `DEFAULT` of `#stablehlo<precision DEFAULT>`.

    Attributes:
        of: name of the set with its dialect (`stablehlo.precision`); empty when not written.
    """

    __slots__ = ("of",)

    of: str

    def __new__(cls, word: str, of: str = "") -> Keyword:
        """A word of a set."""
        keyword = super().__new__(cls, word)
        keyword.of = of
        return keyword

    def __reduce__(self) -> tuple[Any, ...]:
        return Keyword, (str(self), self.of)


class Dictionary(dict[str, AttributeValue]):
    """A dictionary of attributes that ops share, and that nobody may change."""

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("Attributes of an op can't be changed: copy them with dict().")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self),)


class Structure(Dictionary):
    """The fields of a dialect's attribute by their names, as `#stablehlo.gather<...>` has them.

    Attributes:
        of: name of the attribute with its dialect (`stablehlo.gather`).
    """

    __slots__ = ("of",)

    of: str

    def __init__(self, fields: Mapping[str, AttributeValue], of: str = "") -> None:
        super().__init__(fields)
        self.of = of

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self), self.of)


@dataclass(frozen=True, slots=True)
class FunctionType:
    """The type of a function."""

    inputs: tuple[TensorType, ...]
    results: tuple[TensorType, ...]

    def __str__(self) -> str:
        results = ", ".join(map(str, self.results))
        single = len(self.results) == 1 and not results.startswith("(")
        return f"({', '.join(map(str, self.inputs))}) -> {results if single else f'({results})'}"


@dataclass(frozen=True)
class Elements:
    """The elements of a tensor, `dense<...>`; read when they are first asked for.

    Attributes:
        body: what is between the brackets, as MLIR prints it: one element where all are equal, and
            hexadecimal bytes in quotes from 101 elements on.
        type: type of the tensor.
    """

    body: str
    type: TensorType

    def __str__(self) -> str:
        return f"dense<{self.body}> : {self.type}"

    @property
    def is_splat(self) -> bool:
        """Whether one element stands for all."""
        return not self.body.startswith("[") and not _is_bytes(self.body) and bool(self.body)

    @property
    def splat(self) -> Any:
        """The element that stands for all.

        Raises:
            ValueError: there is no such element, or it is of no type that Python has.
        """
        if not self.is_splat:
            raise ValueError(f"The elements of {self.type} are written one by one.")
        return _element(self.body, self.type.dtype)

    @cached_property
    def values(self) -> Any:
        """The elements as nested tuples, a level a dimension; of a scalar the element itself.

        Numbers are int, float, bool or complex, floats rounded to the element type.

        Raises:
            ValueError: they are of a type that Python has no numbers for, or not as many as it has.
        """
        shape = [size or 0 for size in self.type.shape or ()]
        count = math.prod(shape)
        if self.is_splat:
            return _nested(repeat(self.splat), shape)
        if self.body and not _is_bytes(self.body):
            return _of_text(self.body, self.type.dtype)
        flat = _of_bytes(bytes.fromhex(self.body[3:-1]), self.type) if self.body else ()
        if len(flat) != count:
            raise ValueError(f"{self.type} has {count} elements, and {len(flat)} are written.")
        return _nested(iter(flat), shape)


def is_elsewhere(value: AttributeValue) -> bool:
    """Whether a value is elements that are not in the module, or not where they are used."""
    return isinstance(value, Unparsed) and value.startswith("dense_resource<")


def has_unparsed(value: AttributeValue) -> bool:
    """Whether a value is, or has inside, a text that there is no value for."""
    if isinstance(value, tuple):
        return any(map(has_unparsed, value))
    if isinstance(value, Dictionary):
        return any(map(has_unparsed, value.values()))
    return isinstance(value, Unparsed)


def _is_bytes(body: str) -> bool:
    return body.startswith('"0x')


def _nested(elements: Any, shape: list[int]) -> Any:
    if not shape:
        return next(elements)
    return tuple([_nested(elements, shape[1:]) for _ in range(shape[0])])


# --- elements from texts --------------------------------------------------------------------------

#: Formats of `struct` for float types; bf16 is the upper half of f32.
_FORMATS = {"f16": "e", "f32": "f", "f64": "d"}
_HEX = re.compile(r"0x[0-9A-Fa-f]+")
_COMPLEX = re.compile(r"complex<(\w+)>")
_INTEGER_TYPE = re.compile(r"([su]?)i(\d+)|index")
_NUMBER = re.compile(r"[^\s,()\[\]]+")


def rounded(number: float, dtype: str) -> float:
    """A number as the float type holds it; as it is for a type that Python can't pack."""
    try:
        return _packed(number, dtype)
    except OverflowError:  # It is more than the type's largest.
        return math.copysign(math.inf, number)


def _packed(number: float, dtype: str) -> float:
    if dtype == "bf16":
        (bits,) = struct.unpack("<I", struct.pack("<f", number))
        if math.isnan(number) or bits & 0x7F800000 == 0x7F800000:
            return number
        bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
        return float(struct.unpack("<f", struct.pack("<I", bits))[0])
    form = _FORMATS.get(dtype)
    return number if form is None else float(struct.unpack(form, struct.pack(form, number))[0])


def _of_text(body: str, dtype: str) -> Any:
    """Nested tuples of `[[1, 2], [3, 4]]`."""
    plain = _INTEGER_TYPE.fullmatch(dtype) is not None
    if plain and not _HEX.search(body):
        return _tuples(json.loads(body))
    # In quotes, each element is a string to JSON.
    parts = r"\([^()]*\)|\"(?:[^\"\\]|\\.)*\"|[^\s,()\[\]\"]+"
    quoted = re.sub(parts, lambda match: json.dumps(match[0]), body)
    return _tuples(json.loads(quoted), dtype)


def _tuples(value: Any, dtype: str | None = None) -> Any:
    if isinstance(value, list):
        return tuple([_tuples(item, dtype) for item in value])
    return value if dtype is None else _element(value, dtype)


def _element(text: str, dtype: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    if text.startswith('"'):
        return unescape(text)
    if match := _COMPLEX.fullmatch(dtype):
        return complex(*[_element(part, match[1]) for part in _NUMBER.findall(text)])
    if _INTEGER_TYPE.fullmatch(dtype):
        return int(text, 0)
    if _HEX.fullmatch(text):
        size = {"bf16": 2, "f16": 2, "f32": 4, "f64": 8}.get(dtype)
        if size is None:
            raise ValueError(f"Python has no numbers for {text} of {dtype}.")
        return _floats(int(text, 16).to_bytes(size, "little"), dtype)[0]
    return rounded(float(text), dtype)


def _of_bytes(data: bytes, type_: TensorType) -> list[Any]:
    dtype = type_.dtype
    if match := _COMPLEX.fullmatch(dtype):
        parts = _floats(data, match[1])
        return [complex(*pair) for pair in zip(parts[::2], parts[1::2], strict=True)]
    match = _INTEGER_TYPE.fullmatch(dtype)
    if match is None:
        return _floats(data, dtype)
    width = int(match[2] or 64)
    if width == 1:
        count = type_.num_elements or 0
        if len(data) >= count:
            return [bool(byte) for byte in data[:count]]
        return [bool(data[index >> 3] >> (index & 7) & 1) for index in range(count)]
    size = (width + 7) // 8
    signed = match[1] != "u"
    return [
        int.from_bytes(data[start : start + size], "little", signed=signed)
        for start in range(0, len(data), size)
    ]


def _floats(data: bytes, dtype: str) -> list[float]:
    if dtype == "bf16":
        halves = range(0, len(data), 2)
        data, dtype = b"".join(b"\0\0" + data[start : start + 2] for start in halves), "f32"
    form = _FORMATS.get(dtype)
    if form is None:
        raise ValueError(f"Python has no numbers for elements of {dtype}.")
    return list(struct.unpack(f"<{len(data) // struct.calcsize(form)}{form}", data))


NO_ATTRIBUTES: Mapping[str, AttributeValue] = Dictionary()
