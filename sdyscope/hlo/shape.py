"""Shapes of HLO: ``f32[4,128]{1,0:T(8,128)}``, ``(f32[], s32[2]{0})``, ``token[]``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache

from sdyscope.errors import ConversionError, SdyscopeError
from sdyscope.values.dtypes import num_bytes

_PIECE = re.compile(
    r"\s*(?:/\*.*?\*/\s*)*(?:(?P<mark>[(),])"
    r"|(?P<dtype>[a-z][a-z0-9]*)\[(?P<dims>[^\]]*)\](?P<layout>\{[^}]*\})?)"
)

#: Element types that hold no data.
_EMPTY = frozenset({"token", "opaque"})


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of an array or of a tuple.

    Attributes:
        dtype: element type as HLO names it (``f32``, ``pred``); ``tuple`` for a tuple.
        dimensions: sizes; of a bounded dynamic dimension its bound.
        elements: the shapes in a tuple.
        layout: the layout as it is written, braces included; empty without one.
    """

    dtype: str
    dimensions: tuple[int, ...] = ()
    elements: tuple[Shape, ...] = ()
    layout: str = ""

    @property
    def is_tuple(self) -> bool:
        """Whether this is a tuple."""
        return self.dtype == "tuple"

    @property
    def leaves(self) -> tuple[Shape, ...]:
        """The arrays in it, in order."""
        if not self.is_tuple:
            return (self,)
        return tuple(leaf for element in self.elements for leaf in element.leaves)

    @property
    def count(self) -> int:
        """How many elements its arrays have."""
        return sum(math.prod(leaf.dimensions) for leaf in self.leaves)

    @property
    def bytes(self) -> int:
        """Bytes of the data, without padding by the layout.

        Raises:
            ConversionError: an element type that is not known.
        """
        return sum(
            num_bytes(math.prod(leaf.dimensions), leaf.dtype)
            for leaf in self.leaves
            if leaf.dtype not in _EMPTY
        )

    def __str__(self) -> str:
        if self.is_tuple:
            return f"({', '.join(map(str, self.elements))})"
        return f"{self.dtype}[{','.join(map(str, self.dimensions))}]"


@lru_cache(1 << 14)
def parse_shape(text: str) -> Shape:
    """The shape that a text says.

    Raises:
        SdyscopeError: the text is no shape.
    """
    open_tuples: list[list[Shape]] = []
    done: Shape | None = None
    at = 0
    while done is None:
        match = _PIECE.match(text, at)
        if match is None:
            raise _no_shape(text)
        at = match.end()
        mark, shape = match["mark"], None
        if mark == "(":
            open_tuples.append([])
        elif mark == ")":
            if not open_tuples:
                raise _no_shape(text)
            shape = Shape("tuple", elements=tuple(open_tuples.pop()))
        elif mark is None:
            shape = Shape(match["dtype"], _sizes(match["dims"], text), (), match["layout"] or "")
        if shape is not None:
            if open_tuples:
                open_tuples[-1].append(shape)
            else:
                done = shape
    if text[at:].strip():
        raise _no_shape(text)
    return done


def _sizes(text: str, whole: str) -> tuple[int, ...]:
    try:
        return tuple(int(size.strip().removeprefix("<=")) for size in text.split(",") if size)
    except ValueError:
        raise _no_shape(whole) from None


def _no_shape(text: str) -> SdyscopeError:
    shown = text if len(text) <= 60 else text[:57] + "..."
    return ConversionError(f"{shown!r} is not an HLO shape")
