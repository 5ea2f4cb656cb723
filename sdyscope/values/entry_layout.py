"""How a compiled module stores its parameters and results, from the first line of its HLO text.

The line has ``entry_computation_layout={(f32[128,10]{0,1:T(8,128)}, ...)->(...)}`` and, where
buffers are shared, ``input_output_alias={ {0}: (1, {}, may-alias) }`` and
``buffer_donor={ (2, {}) }``; ``xla/service/hlo_parser.cc`` and ``xla/layout_util.cc`` define them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sdyscope.errors import CompilerError
from sdyscope.values.dtypes import bit_width

MemorySpace: TypeAlias = Literal["device", "host"]
"""Where an array is: in the device's own memory, or offloaded to its host's."""

#: The host's memory space: `Layout::kHostMemorySpace` in `xla/layout.h`.
HOST_MEMORY = 5

#: What XLA for CPUs writes for `unpinned_host`. On TPUs that is a memory of the device, which no
#: argument or result is in.
UNPINNED_HOST_MEMORY = 6

#: JAX's names of a device's own memory. It writes none where a program names none.
OWN_MEMORY = frozenset({"", "device"})

_LAYOUT = "entry_computation_layout={"
_ALIAS = "input_output_alias={"
_DONOR = "buffer_donor={"
_COMMENT = re.compile(r"/\*.*?\*/")
_ARRAY = re.compile(
    r"(?P<dtype>[a-z][a-z0-9]*)\[(?P<dims>[0-9,<=]*)\](?:\{(?P<order>[0-9,]*)(?::(?P<rest>[^{}]*))?\})?"
)
_TILE = re.compile(r"\(([0-9,]*)\)")
_ELEMENT_BITS = re.compile(r"E\(([0-9]+)\)")
_SPACE = re.compile(r"S\(([0-9]+)\)")
_ALIAS_ENTRY = re.compile(r"\{\s*([0-9, ]*)\}:\s*\(\s*([0-9]+)\s*,\s*\{\s*([0-9, ]*)\}")
_DONOR_ENTRY = re.compile(r"\(\s*([0-9]+)\s*,\s*\{\s*([0-9, ]*)\}\s*\)")


@dataclass(frozen=True, slots=True)
class StoredArray:
    """An array as a device stores it.

    Attributes:
        dtype: HLO element type: `f32`, `pred`.
        shape: shape of the block that a device holds.
        layout: order of the dimensions and tiles, `0,1:T(8,128)`; empty where the text says none.
        bytes: what the block takes, with the padding of its tiles.
        memory_space: 0 is the device's main memory, 5 and 6 the host's (``unpinned_host``).
    """

    dtype: str
    shape: tuple[int, ...]
    layout: str
    bytes: int
    memory_space: int = 0

    @property
    def memory(self) -> MemorySpace:
        """Which memory that is. Others than the host's are the device's own, such as its caches."""
        return "host" if self.memory_space in (HOST_MEMORY, UNPINNED_HOST_MEMORY) else "device"


@dataclass(frozen=True, slots=True)
class EntryLayout:
    """What a module's parameters and results are, and which of them share a buffer.

    Attributes:
        parameters: the parameters in order; those of one tuple, where there is just that, are told
            one by one.
        results: likewise.
        parameters_are_tuple: whether they are one tuple, which takes a table of addresses; JAX
            makes it so for TPUs and more than 2,000 arguments.
        results_are_tuple: whether there is a tuple of results, which takes such a table too.
        aliases: number of a result -> of the parameter in whose buffer it lies.
        donors: parameters that may be overwritten and share their buffer with no result.
    """

    parameters: tuple[StoredArray, ...]
    results: tuple[StoredArray, ...]
    parameters_are_tuple: bool
    results_are_tuple: bool
    aliases: Mapping[int, int]
    donors: frozenset[int]


def read_entry_layout(hlo: str) -> EntryLayout:
    """Reads the first line of an HLO module.

    Raises:
        CompilerError: it has no entry layout, an element type that is not known, or numbers that
            are none.
    """
    try:
        return _read(hlo)
    except ValueError as error:
        raise CompilerError("The first line of the compiled module has a bad number.") from error


def _read(hlo: str) -> EntryLayout:
    head = hlo[: hlo.find("\n")] if "\n" in hlo else hlo
    written = _COMMENT.sub("", _braced(head, _LAYOUT))
    parameters, arrow, results = written.partition("->")
    if not arrow:
        raise CompilerError("The compiled module does not say how it stores its parameters.")
    aliases, donors = _braced(head, _ALIAS), _braced(head, _DONOR)
    # One tuple of all parameters: then they are numbered within it.
    tupled = parameters.startswith("((")
    return EntryLayout(
        parameters=_arrays(parameters),
        results=_arrays(results),
        parameters_are_tuple=tupled,
        results_are_tuple=results.startswith("("),
        aliases={
            _first(result): _first(within) if tupled else int(parameter)
            for result, parameter, within in _ALIAS_ENTRY.findall(aliases)
        },
        donors=frozenset(
            _first(within) if tupled else int(parameter)
            for parameter, within in _DONOR_ENTRY.findall(donors)
        ),
    )


def _braced(head: str, start: str) -> str:
    """What stands in braces after ``start``; empty where that is not there."""
    begin = head.find(start)
    if begin < 0:
        return ""
    begin += len(start)
    depth = 1
    for at in range(begin, len(head)):
        depth += {"{": 1, "}": -1}.get(head[at], 0)
        if depth == 0:
            return head[begin:at]
    return ""


def _first(index: str) -> int:
    """The first number of a shape index such as `3`; 0 where it is empty: the whole of it."""
    return int(index.split(",")[0]) if index.strip() else 0


def _arrays(text: str) -> tuple[StoredArray, ...]:
    return tuple(_array(match) for match in _ARRAY.finditer(text))


def stored_array(text: str) -> StoredArray:
    """The array that a shape with its layout says, such as ``f32[4,128]{1,0:T(8,128)S(1)}``.

    Raises:
        CompilerError: the text is no shape of an array.
    """
    match = _ARRAY.fullmatch(text)
    if match is None:
        raise CompilerError(f"{text[:60]!r} is not the shape of an HLO array.")
    return _array(match)


def _array(match: re.Match[str]) -> StoredArray:
    try:
        return _stored(match)
    except ValueError as error:  # a number that is none, or of thousands of digits
        raise CompilerError(f"{match[0][:60]!r} is not the shape of an HLO array.") from error


def _stored(match: re.Match[str]) -> StoredArray:
    dtype = match["dtype"]
    # `<=8` is a dynamic dimension's bound, which is what is stored.
    shape = tuple(int(size.lstrip("<=")) for size in match["dims"].split(",") if size)
    order = [int(dim) for dim in (match["order"] or "").split(",") if dim]
    rest = match["rest"] or ""
    if order and sorted(order) != list(range(len(shape))):
        raise CompilerError(f"{match[0][:60]!r} has a layout of other dimensions than its own.")
    dims = [shape[dim] for dim in reversed(order)] or list(shape)
    tiles = rest[rest.index("T(") :] if "T(" in rest else ""
    for tile in _TILE.findall(re.sub(r"[A-SU-Z]\(.*", "", tiles)):
        sizes = [int(size) for size in tile.split(",") if size]
        if 0 in sizes:
            raise CompilerError(f"{match[0][:60]!r} has a tile of size 0.")
        dims = _tiled(dims, sizes)
    bits = _ELEMENT_BITS.search(rest)
    width = int(bits[1]) if bits else bit_width(dtype)
    space = _SPACE.search(rest)
    layout = f"{match['order'] or ''}{':' if rest else ''}{rest}"
    return StoredArray(
        dtype, shape, layout, -(-math.prod(dims) * width // 8), int(space[1]) if space else 0
    )


def _tiled(dims: list[int], tile: list[int]) -> list[int]:
    """Sizes of the dimensions, major to minor, once the last of them are cut into tiles."""
    dims = [1] * (len(tile) - len(dims)) + dims
    outer, inner = dims[: len(dims) - len(tile)], dims[len(dims) - len(tile) :]
    return [*outer, *(-(-size // of) for size, of in zip(inner, tile, strict=True)), *tile]
