"""What the languages of HLO share: strings, meshes, axes, device orders.

The grammar is ``grammars/hlo_mesh.lark``, which the grammars of those languages import.
"""

from __future__ import annotations

import re
from typing import Any

from lark import Token, Transformer

from sdyscope.errors import ConversionError
from sdyscope.syntax._parser import items, of_list, of_parts
from sdyscope.values.mesh import AxisRef, IotaTile, Mesh, MeshAxis, SubAxisInfo

#: How errors call the terminals of ``hlo_mesh.lark``.
TERMINAL_NAMES = {
    "STRING": "a string in quotes",
    "INTEGER": "an integer",
    "_DEVICE_IDS": "', device_ids='",
}

_ESCAPE = re.compile(
    rb"\\(?:([abfnrtv\\?'\"])|([0-7]{1,3})|[xX]([0-9A-Fa-f]+)|u([0-9A-Fa-f]{4})"
    rb"|U([0-9A-Fa-f]{8})|)",
    re.DOTALL,
)
_NAMED = dict(zip(b"abfnrtv\\?'\"", b"\a\b\f\n\r\t\v\\?'\"", strict=True))
_AXIS_NUMBER = re.compile(r"[ \t\r\n\f\v]*[+-]?[0-9]+[ \t\r\n\f\v]*")


def whole_number(text: str) -> int:
    """The number of a text of digits.

    Raises:
        ConversionError: it does not fit in 64 bits.
    """
    # Of thousands of digits Python itself would refuse to make a number.
    number = int(text) if len(text) < 32 else 1 << 63
    if not -(1 << 63) <= number < 1 << 63:
        raise ConversionError(f"{text[:40]} does not fit in 64 bits")
    return number


class HloMeshTransformer(Transformer[Token, Any]):
    """A method a rule, named as it; and the terminals whose text needs work."""

    def STRING(self, token: Token) -> str:  # noqa: N802
        return c_unescape(token[1:-1])

    def INTEGER(self, token: Token) -> int:  # noqa: N802
        return whole_number(token)

    def integers(self, children: list[int]) -> tuple[int, ...]:
        return tuple(children)

    def mesh(self, children: list[Any]) -> Mesh:
        *axes, device_ids = children
        return Mesh(items(axes), device_ids)

    mesh_axis = of_parts(MeshAxis)

    def single_device(self, children: list[int]) -> Mesh:
        return Mesh((), tuple(children))

    axis_refs = of_list(tuple)
    axis_ref = of_parts(AxisRef)
    sub_axis_info = of_parts(SubAxisInfo)

    def iota_tile(self, children: list[Any]) -> IotaTile:
        reshape, transpose = children
        if transpose is None:
            if len(reshape) > 1:
                raise ConversionError("several reshape dimensions need a transpose: [2,4]T(1,0)")
            transpose = (0,)
        elif len(reshape) == 1:
            raise ConversionError("one reshape dimension has no transpose")
        return IotaTile(reshape, transpose)


def named_axes(mesh: Mesh, axes: tuple[AxisRef, ...]) -> tuple[AxisRef, ...]:
    """``axes`` with numbers that are not names, as XLA reads them: axes of the mesh by position."""
    return tuple(
        AxisRef(mesh.axes[int(axis.name)].name, axis.sub_axis_info)
        if axis.name not in mesh.shape
        and _AXIS_NUMBER.fullmatch(axis.name)
        and len(axis.name) < 32  # Python refuses to make a number of thousands of digits
        and 0 <= int(axis.name) < len(mesh.axes)
        else axis
        for axis in axes
    )


def c_unescape(text: str) -> str:
    r"""The inside of a string literal as the text it means, as ``absl::CUnescape`` does.

    Bytes that are not UTF-8 become surrogates, as in Python's ``surrogateescape``.

    Raises:
        ConversionError: an escape that there is not.
    """
    if "\\" not in text:
        return text
    raw = _ESCAPE.sub(_unescaped, text.encode("utf-8", "surrogateescape"))
    return raw.decode("utf-8", "surrogateescape")


def _unescaped(match: re.Match[bytes]) -> bytes:
    named, octal, hexadecimal, short, long = match.groups()
    if named is not None:
        return bytes([_NAMED[named[0]]])
    try:
        if octal is not None:
            return bytes([int(octal, 8)])
        if hexadecimal is not None:
            return bytes([int(hexadecimal, 16)])
        if short is not None or long is not None:
            return chr(int(short or long, 16)).encode()
    except (ValueError, OverflowError):  # beyond a byte, or beyond Unicode
        pass
    shown = match[0].decode("ascii") if match[0] != b"\\" else "a backslash"
    raise ConversionError(f"{shown} is not an escape in a string")
