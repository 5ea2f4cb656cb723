"""Meshes and their axes, as documents, and in words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sdyscope.syntax.strings import label, unescape
from sdyscope.values.mesh import AxisRef, IotaTile, Mesh
from sdyscope.words.counts import counted, listed

#: How many devices a list of them begins with.
_LISTED = 8


@dataclass(frozen=True, slots=True)
class MeshDocument:
    """A mesh.

    Attributes:
        name: its symbol in the module; empty for a mesh that only JAX has.
        axes: sizes of its axes by name, in order.
        devices: how many devices it has.
        order: the device at each position, as an iota (`[4,2]T(1,0)`) or as a list; empty for the
            order 0, 1, 2, ...
    """

    name: str
    axes: dict[str, int]
    devices: int
    order: str


def mesh_document(name: str, mesh: Mesh) -> MeshDocument:
    """The document of a mesh with its symbol."""
    return MeshDocument(name, dict(mesh.shape), mesh.size, order_text(mesh))


def order_text(mesh: Mesh) -> str:
    """The order of a mesh's devices, as documents have it: a list where it is no iota."""
    ids = mesh.device_ids
    if ids is None or (isinstance(ids, IotaTile) and ids.is_identity):
        return ""
    return str(ids) if isinstance(ids, IotaTile) else ",".join(map(str, ids))


#: What the document of a mesh has that is named by what it stands under.
MESH_WORDS: Final[Mapping[str, tuple[Callable[[Mesh], object], object]]] = {
    "axes": (lambda mesh: mesh.shape, dict[str, int]),
    "devices": (lambda mesh: mesh.size, int),
    "order": (order_text, str),
}


def mesh_documents(meshes: Mapping[str, Mesh]) -> tuple[MeshDocument, ...]:
    """The documents of meshes, by name.

    Left out is a mesh of no axes and no devices, on which JAX writes what it only partly specifies,
    and one that a module has again under another symbol.
    """
    first = {mesh: name for name, mesh in reversed([*meshes.items()])}
    return tuple(
        mesh_document(name, mesh)
        for name, mesh in meshes.items()
        if (mesh.axes or mesh.device_ids is not None) and first[mesh] == name
    )


_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')

#: From how many axes of size 1 on they are counted instead of listed.
_FOLDED = 3


def mesh_words(mesh: MeshDocument) -> str:
    """`data=4 x model=2, 8 devices`, and their order unless that is 0, 1, 2, ...

    Where most axes have one device, as of a trainer that has all its axes on any mesh, those are
    counted: `data=4 x model=2 and 9 axes of size 1, 8 devices`.
    """
    name = "" if mesh.name in ("mesh", "") else f"{label(mesh.name)}: "
    if not mesh.axes:
        return f"{name}device {mesh.order or 0} alone"
    shown, of_one = _folded(mesh.axes)
    axes = sizes_words(shown) + of_one
    return f"{name}{axes}, {counted(mesh.devices, 'device')}{_order(mesh)}"


def _folded(axes: Mapping[str, int]) -> tuple[Mapping[str, int], str]:
    """The axes that are listed, and how the others are counted: `` and 9 axes of size 1``."""
    shown = {axis: size for axis, size in axes.items() if size > 1}
    of_one = len(axes) - len(shown)
    if not shown or of_one < _FOLDED:
        return axes, ""
    return shown, f" and {of_one} axes of size 1"


def sizes_words(sizes: Mapping[str, int]) -> str:
    """`data=4 x model=2`, of mesh axes and their sizes."""
    return " x ".join(f"{label(axis)}={size}" for axis, size in sizes.items())


def _order(mesh: MeshDocument) -> str:
    """`` in the order [4,2]T(1,0)``; of an order that is a list its first devices."""
    if not mesh.order:
        return ""
    if mesh.order.startswith("["):
        return f" in the order {mesh.order}"
    devices = mesh.order.split(",")
    more = ", ..." if len(devices) > _LISTED else ""
    return f" in the order {', '.join(devices[:_LISTED])}{more}"


def mesh_entry(mesh: Mesh) -> str:
    """``data=4, model=2; devices [4,2]T(1,0)``: as snapshot files have it, which are read back."""
    document = mesh_document("", mesh)
    axes = ", ".join(f"{axis}={size}" for axis, size in document.axes.items())
    return f"{axes}; devices {document.order}" if document.order else axes


def mesh_words_of(meshes: Mapping[str, Mesh]) -> list[str]:
    """`data=4 x model=2, 8 devices` of each mesh, with its symbol unless that is `mesh`."""
    return list(map(mesh_words, mesh_documents(meshes)))


def mesh_texts(meshes: Mapping[str, Mesh], *, brief: bool) -> list[str]:
    """Each mesh for a cell; brief, as `--mesh` takes it."""
    return [
        "".join((mesh_text(shown), of_one)) if brief and mesh.axes else mesh_words(mesh)
        for mesh in mesh_documents(meshes)
        for shown, of_one in [_folded(mesh.axes)]
    ]


def mesh_text(mesh: Mapping[str, int]) -> str:
    """A mesh as `--mesh` takes it."""
    return ",".join(f"{axis}={size}" for axis, size in mesh.items())


def axes_text(axes: Sequence[AxisRef] | None, mesh: Mesh | None) -> str:
    """`data=4 x model=2`; of a part of an axis `data:(1)2`.

    Args:
        axes: the axes; None where no set of axes is meant.
        mesh: their mesh.
    """
    if axes is None or mesh is None:
        return "no single axis"
    return " x ".join(
        f"{axis.name}={mesh.axis_size(axis)}" if axis.sub_axis_info is None else axis_text(axis)
        for axis in axes
    )


def names_text(axes: Sequence[str | AxisRef]) -> str:
    """`data`, `(data, model)`: axes by name alone, which can be called x and y."""
    names = [label(axis) if isinstance(axis, str) else axis_text(axis) for axis in axes]
    if len(names) < 2:
        return "".join(names) or "no single axis"
    return f"({', '.join(names)})"


def listed_axes(axes: Iterable[str | AxisRef]) -> str:
    """`data`, `data and model`: axes by name in a sentence."""
    return listed([label(axis) if isinstance(axis, str) else axis_text(axis) for axis in axes])


#: Where nobody says which mesh a program is on.
NO_MESH: Final = "no mesh is named"


def over_text(
    axes: Sequence[AxisRef] | None, mesh: Mesh | None, group_size: int | None = None
) -> str:
    """What a collective runs over: `data=4`, `one device alone`, `no single axis, groups of 4`.

    Where no mesh is named there are only groups, or nothing to say.
    """
    groups = "" if group_size is None else f"groups of {group_size:,}"
    if mesh is None:
        return groups
    if axes is None and groups:
        return f"{axes_text(axes, mesh)}, {groups}"
    return axes_text(axes, mesh) or "a single device"


def along_text(axes: Sequence[AxisRef] | None, mesh: Mesh | None, group_size: int | None) -> str:
    """The same behind a collective's name: ``over data=4``; without a mesh ``in groups of 4``."""
    if mesh is None and group_size is not None:
        return f"in groups of {group_size:,}"
    return f"over {axes_text(axes, mesh)}"


def axis_text(axis: object) -> str:
    """A mesh axis, or anything that is written with axes: `a:(1)2` for `"a":(1)2`."""
    text = str(axis)
    if "\\" in text:
        text = _QUOTED.sub(lambda match: label(unescape(match[0])), text)
    return text.replace('"', "")


def mesh_axes(meshes: Mapping[str, Mesh]) -> tuple[str, ...]:
    """The axes of all meshes, each once, in the order of their colours everywhere."""
    return tuple(dict.fromkeys(axis for mesh in meshes.values() for axis in mesh.shape))


def axis_spans(text: str, axes: Sequence[str]) -> list[tuple[int, int, str]]:
    """Where a text names mesh axes: begin, end and name of each.

    Those of `P(('data', 'model'), None)`, `over data=4` and `[{data}, {}]` are; a tensor's
    `batch['data']` is none.

    Args:
        text: words with shardings in them.
        axes: names of the axes.
    """
    if not axes:
        return []
    names = "|".join(map(re.escape, sorted(map(axis_text, axes), key=len, reverse=True)))
    pattern = (
        rf"(?<=[( ])'(?P<spec>{names})'(?=[,)])|(?<![\w'\[.])(?P<sized>{names})=\d"
        rf"|(?<=[{{ ])(?P<sdy>{names})(?=[,}}:])"
    )
    spans: list[tuple[int, int, str]] = []
    for match in re.finditer(pattern, text):
        group = match.lastgroup or "spec"
        spans.append((*match.span(group), match[group]))
    return spans


def repeated_words(
    where: Sequence[str], axis: str, dims: Sequence[str], logical: Sequence[str], tensor: str = ""
) -> str:
    """The sentence that a mesh axis is used twice, under these mappings."""
    what = f"{tensor} [{', '.join(logical)}]" if tensor else f"[{', '.join(logical)}]"
    verb = "shards" if len(where) == 1 else "shard"
    times = "twice" if len(dims) == 2 else f"{len(dims)} times"
    return f"{listed(where)} {verb} {what} over the mesh axis {axis!r} {times}, for {listed(dims)}."


def repeated_hint(where: Sequence[str], dims: Sequence[str]) -> str:
    """What to do about a mesh axis that is used twice, under these mappings."""
    if len(set(dims)) == 1:
        return f"Give the two dimensions {dims[0]!r} different names, and map one of them."
    mapping = where[0] if len(where) == 1 else "shared_mapping"
    return f"Map {dims[-1]!r} to another mesh axis in {mapping}, or to none: []."
