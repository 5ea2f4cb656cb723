"""How HLO text writes strings, meshes and axes.

XLA's own printer does not escape axis names, so a name with a quote or a backslash in it is
written as something that XLA can't read; here they are escaped, as its lexer undoes it
(``absl::CUnescape`` in ``xla/hlo/parser/hlo_lexer.cc``).
"""

from __future__ import annotations

from collections.abc import Iterable

from sdyscope.errors import ConversionError
from sdyscope.values.mesh import AxisRef, IotaTile, Mesh

_NAMED_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "'": "\\'", "\\": "\\\\"}


def c_string(text: str) -> str:
    """``text`` as a string literal, in the escapes of ``absl::CEscape``: octal outside ASCII."""
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(char: str) -> str:
    if char in _NAMED_ESCAPES:
        return _NAMED_ESCAPES[char]
    if " " <= char <= "~":
        return char
    return "".join(f"\\{byte:03o}" for byte in char.encode("utf-8", "surrogateescape"))


def hlo_name(name: str) -> str:
    """An axis name: ``'a'``. Outside ASCII as it is, as XLA prints it."""
    inside = (c if c == '"' or (c.isprintable() and c not in "'\\") else _escaped(c) for c in name)
    return "'" + "".join(inside) + "'"


def hlo_axis(axis: AxisRef) -> str:
    """An axis or sub-axis: ``'a':(1)2``."""
    info = "" if axis.sub_axis_info is None else f":{axis.sub_axis_info}"
    return hlo_name(axis.name) + info


def hlo_mesh(mesh: Mesh) -> str:
    """A mesh: ``mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0))``, ``maximal_mesh[device_id=3]``.

    JAX 0.12 prints ``single_device`` for ``maximal_mesh``, but 0.10 reads only the latter.
    """
    if mesh.is_maximal:
        return f"maximal_mesh[device_id={mesh.devices()[0]}]"
    text = f"mesh[{','.join(f'{hlo_name(axis.name)}={axis.size}' for axis in mesh.axes)}]"
    order = mesh.device_ids
    if isinstance(order, IotaTile):
        return f"{text}, device_ids=({order})"
    return text if order is None else f"{text}, device_ids=({','.join(map(str, order))})"


def check_axis_lists(mesh: Mesh, *axis_lists: Iterable[AxisRef]) -> None:
    """Checks what XLA does not read and at which it ends the process.

    Raises:
        ConversionError: an axis or sub-axis that the mesh does not have, that overlaps another or
            can't be told apart from it by one reshape of the axis, or two neighbours in a list
            that are really one.
    """
    spans: dict[str, list[tuple[int, int, AxisRef]]] = {}
    for axis_list in axis_lists:
        before: AxisRef | None = None
        for axis in axis_list:
            low, high = axis_span(mesh, axis)
            for other_low, other_high, other in spans.setdefault(axis.name, []):
                if axis == other:
                    raise ConversionError(f"axis {hlo_axis(axis)} is used twice in one sharding")
                if low < other_high and other_low < high:
                    raise ConversionError(f"axis {hlo_axis(axis)} overlaps {hlo_axis(other)}")
                if max(low, other_low) % min(high, other_high):
                    raise ConversionError(
                        f"no split of axis {hlo_name(axis.name)} has both {hlo_axis(axis)} "
                        f"and {hlo_axis(other)}"
                    )
            spans[axis.name].append((low, high, axis))
            if before and before.name == axis.name and axis_span(mesh, before)[1] == low:
                raise ConversionError(
                    f"neighbours {hlo_axis(before)} and {hlo_axis(axis)} are one sub-axis"
                )
            before = axis


def axis_span(mesh: Mesh, axis: AxisRef) -> tuple[int, int]:
    """From which pre-size to which one (exclusive) an axis or sub-axis reaches.

    Raises:
        ConversionError: the mesh has no such axis or sub-axis.
    """
    size = mesh.axis_size(axis)
    low = 1 if axis.sub_axis_info is None else axis.sub_axis_info.pre_size
    return low, low * size


def in_mesh_order(mesh: Mesh, axes: Iterable[AxisRef]) -> tuple[AxisRef, ...]:
    """``axes`` in the order of the mesh, sub-axes from major to minor."""
    rank = {axis.name: position for position, axis in enumerate(mesh.axes)}
    return tuple(sorted(axes, key=lambda axis: (rank.get(axis.name, -1), axis_span(mesh, axis))))
