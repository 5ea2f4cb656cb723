"""Types of SSA values, read from the text that MLIR prints for them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from sdyscope.syntax.strings import split

_TENSOR = re.compile(r"tensor<((?:(?:\d+|\?)x)*)(.+)>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TensorType:
    """The type of an SSA value.

    Attributes:
        text: the whole type as MLIR prints it: `tensor<16x8xf32>`, `!stablehlo.token`.
        shape: size of each dimension, None for a dynamic one; None when the value is not a
            ranked tensor (a token, a tuple, a future).
        dtype: element type in MLIR's spelling (`f32`, `bf16`, `complex<f32>`, `ui32`); the whole
            text when the value is not a ranked tensor.
        encoding: what follows the element type (`#stablehlo.bounds<?, 8>`); empty when nothing
            does.
    """

    text: str
    shape: tuple[int | None, ...] | None
    dtype: str
    encoding: str = ""

    @property
    def num_elements(self) -> int | None:
        """Number of elements; None when it is not known before the program runs."""
        if self.shape is None:
            return None
        sizes = [size for size in self.shape if size is not None]
        return math.prod(sizes) if len(sizes) == len(self.shape) else None

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """The shape; None where it is dynamic, and of no tensor."""
        if self.shape is None or None in self.shape:
            return None
        return cast("tuple[int, ...]", self.shape)

    def __str__(self) -> str:
        return self.text


@lru_cache(1 << 12)
def parse_type(text: str) -> TensorType:
    """The type that `text` spells; any text is a type, of unknown shape when it is no tensor."""
    match = _TENSOR.fullmatch(text)
    if match is None or match[2].startswith("*"):
        return TensorType(text, None, text)
    sizes, rest = match.groups()
    shape = tuple(None if size == "?" else int(size) for size in sizes.split("x")[:-1])
    dtype, *encoding = split(rest)
    return TensorType(text, shape, dtype, ", ".join(encoding))


@lru_cache(1 << 10)
def parts_of_tuple(type_: TensorType) -> tuple[TensorType, ...]:
    """The types that a tuple has, ``tuple<tensor<8xf32>, tensor<i32>>``, in order."""
    return tuple(map(parse_type, split(type_.text.removeprefix("tuple<").removesuffix(">"))))
