"""Pictures for documents: where a sharding puts a tensor, and what a step communicates, as SVG."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sdyscope.analysis.collectives.comms import CommsDocument
from sdyscope.analysis.naming.resolve import resolve_value
from sdyscope.errors import ConversionError, TargetError
from sdyscope.facts.tensors import Tensor
from sdyscope.inspection import Inspection
from sdyscope.page.templates import environment
from sdyscope.syntax.strings import xml_text
from sdyscope.terminal.table import shape
from sdyscope.values.convert import to_placement
from sdyscope.values.mesh import Mesh, only_mesh
from sdyscope.values.placement import Placement
from sdyscope.values.sharding import TensorSharding
from sdyscope.words.counts import size
from sdyscope.words.hardware import compiled_text
from sdyscope.words.mesh import mesh_axes
from sdyscope.words.partitioners import picture_basis, picture_title
from sdyscope.words.sharding import blocks_below_text, device_text, drawn_text, placement_text

#: At most so many devices are drawn along an axis, and so many panels; the rest is counted.
_ALONG = 16
_PANELS = 4

#: Characters of a line of text.
_LINE = 120

_CELL = 26
_STEP = _CELL + 3
_BESIDE = 30
_ABOVE = 24

#: Room for a character of 11 px, bold, and of 8 px.
_CHARACTER = 7
_SMALL = 5


@dataclass(frozen=True, slots=True)
class _Square:
    x: float
    y: float
    text: str
    block: str
    title: str
    colour: str


@dataclass(frozen=True, slots=True)
class _Label:
    """Texts beside each other, each with the number of its axis' colour; None for none."""

    x: float
    y: float
    parts: tuple[tuple[str, int | None], ...]
    turned: bool = False
    anchor: str = "middle"


@dataclass(frozen=True, slots=True)
class _Picture:
    title: str
    lines: tuple[str, ...]
    squares: tuple[_Square, ...]
    labels: tuple[_Label, ...]
    width: int
    height: int
    cell: tuple[int, int]


def placement_svg(
    place: Placement, mesh: Mesh | None = None, title: str = "", axes: Sequence[str] = ()
) -> str:
    """The devices, each in the colour of its block; devices of one colour hold the same.

    Args:
        place: where the tensor is.
        mesh: how to lay the devices out: the last axis to the right, the one before it downwards,
            the others in panels. By default in rows of up to 16.
        title: what to write above.
        axes: all axes of the program, in the order of their colours; by default the mesh's.
    """
    grid = mesh if mesh is not None and mesh.axes else Mesh.of({"": place.num_devices})
    colours = {name: at % len(AXES) for at, name in enumerate(axes or grid.shape)}
    picture = _picture(place, grid, _plain(title), colours)
    return _rendered("placement.svg.j2", picture=picture, axes=AXES)


def communication_svg(comms: CommsDocument) -> str:
    """Bars of what a device sends in a step, by kind of collective and partitioner."""
    most = max(
        (tally.sent for program in comms.programs for tally in program.by_kind.values()), default=1
    )
    kinds = dict.fromkeys(kind for program in comms.programs for kind in program.by_kind)
    compiled = compiled_text(comms.hardware, comms.device_kind)
    bars: list[dict[str, Any]] = []
    y = 44
    for kind in kinds:
        named = False
        for program, colour in zip(comms.programs, ("#5b7fd6", "#d99b45"), strict=False):
            tally = program.by_kind.get(kind)
            if tally is None:
                continue
            bars.append(
                {
                    "kind": "" if named else kind,
                    "partitioner": program.partitioner or "",
                    "y": y,
                    "width": round(300 * tally.sent / (most or 1), 1),
                    "colour": colour,
                    "words": f"{size(tally.sent)} in {tally.count:,}",
                }
            )
            named = True
            y += 18
        y += 8
    return _rendered(
        "communication.svg.j2",
        title=_plain(picture_title(comms.name)),
        subtitle=_plain(picture_basis(compiled)),
        bars=bars,
        height=y + 8 if bars else 60,
    )


def placements(inspection: Inspection) -> Iterator[tuple[str, str]]:
    """A picture of each placement that arguments have, with the name of the first that has it.

    Args:
        inspection: the program. What was requested is drawn, or else what the first module says.
    """
    drawn: set[Placement] = set()
    for tensor in inspection.tensors.tensors:
        place, mesh = _placement(inspection, tensor)
        if tensor.kind == "argument" and place is not None and place not in drawn:
            drawn.add(place)
            yield (
                tensor.name,
                placement_svg(place, mesh, _title(tensor), mesh_axes(inspection.meshes)),
            )


def tensor_svg(inspection: Inspection, name: str) -> str:
    """The placement of one tensor: as requested or lowered, of what is inside as propagated.

    Args:
        inspection: the program.
        name: pytree path of an argument or result, or whatever else `sdyscope explain` takes; of
            several values the first.

    Raises:
        TargetError: nothing has this name, or the tensor has no placement.
        CompilerError: it is inside, and there is no propagation.
    """
    for tensor in inspection.tensors.tensors:
        if tensor.name == name:
            place, mesh = _placement(inspection, tensor)
            if place is not None:
                return placement_svg(place, mesh, _title(tensor), mesh_axes(inspection.meshes))
    graph = inspection.graph()
    value, *_ = resolve_value(graph, name)
    propagated = inspection.propagated().values.get(value.id)
    if propagated is None or propagated.placement is None:
        raise TargetError(
            f"{value.name} has no placement"
            + (
                f": it is {propagated.fate}."
                if propagated is not None and propagated.fate != "kept"
                else "."
            ),
            hint="`sdyscope show` lists what has one.",
        )
    kind = graph.ops[value.id[0]].types[value.id[1]]
    sizes = None if kind.shape is None else [size_ for size_ in kind.shape if size_ is not None]
    form = "" if sizes is None or kind.num_elements is None else shape(sizes, kind.dtype)
    mesh = only_mesh(inspection.meshes.values())
    title = f"{value.name} {value.ssa} {form}"
    return placement_svg(propagated.placement, mesh, title, mesh_axes(inspection.meshes))


def _title(tensor: Tensor) -> str:
    form = "" if tensor.shape is None else shape(tensor.shape, tensor.dtype)
    return f"{tensor.name} {form}"


def _placement(inspection: Inspection, tensor: Tensor) -> tuple[Placement | None, Mesh | None]:
    """Where a tensor is, and the mesh that says so."""
    only = only_mesh(inspection.meshes.values())
    asked = tensor.requested
    if asked is not None and asked.sharding is not None:
        with suppress(ConversionError):
            return to_placement(asked.sharding, len(asked.shape)), asked.sharding.mesh
    for said in tensor.lowered.values():
        if said.placement is not None:
            named = said.sharding.mesh if isinstance(said.sharding, TensorSharding) else None
            own = inspection.meshes.get(named) if isinstance(named, str) else named
            return said.placement, own or only
    return None, only


def _picture(place: Placement, mesh: Mesh, title: str, colours: Mapping[str, int]) -> _Picture:
    # An axis of size one splits nothing, and is not drawn.
    axes = [axis for axis in mesh.shape.items() if axis[1] > 1] or list(mesh.shape.items())[-1:]
    columns = axes[-1]
    rows = axes[-2] if len(axes) > 1 else ("", 1)
    before = axes[:-2]
    panels = math.prod(length for _, length in before)
    wrapped = len(axes) == 1 and columns[1] > _ALONG
    across = min(columns[1], _ALONG)
    down = min(math.ceil(columns[1] / _ALONG) if wrapped else rows[1], _ALONG)
    drawn = min(panels, _PANELS)
    named = bool(columns[0])
    lines = textwrap.wrap(_plain(placement_text(place, mesh if named else None), 600), _LINE)
    cut = [dim for dim, count in enumerate(place.shards) if count > 1]
    if place.device is None and len(cut) > 1:
        lines.append(blocks_below_text(cut))
    shown = min(drawn * across * down, mesh.size)
    if shown < mesh.size:
        lines.append(drawn_text(shown, mesh.size))
    titles = [_index_parts(before, panel, colours) for panel in range(drawn if panels > 1 else 0)]
    longest = max((sum(len(text) for text, _ in parts) for parts in titles), default=0)
    digits = sum(len(str(place.shards[dim] - 1)) + 1 for dim in cut) if len(cut) > 1 else 0
    step = max(_CELL, digits * _SMALL) + 3
    top = 28 + 15 * len(lines) + _ABOVE + (14 if titles else 0)
    wide = max(across * step, longest * _CHARACTER) + _BESIDE
    squares: list[_Square] = []
    labels: list[_Label] = []
    for panel in range(drawn):
        left = panel * (wide + 14) + _BESIDE
        labels += _axis_labels(columns, rows, left, top, across * step, down * _STEP, colours)
        if titles:
            labels.append(_Label(left, top - 20, titles[panel], anchor="start"))
        for row in range(down):
            for column in range(across):
                stride = across if wrapped else columns[1]
                position = panel * rows[1] * columns[1] + row * stride + column
                if position < mesh.size:
                    at = (left + column * step, top + row * _STEP)
                    squares.append(_square(place, _device_at(mesh, position), at))
    return _Picture(
        title,
        tuple(lines),
        tuple(squares),
        tuple(labels),
        max(drawn * (wide + 14) + 8, 8 * len(title), 6 * max(map(len, lines), default=0)),
        top + down * _STEP + 8,
        (step - 3, _CELL),
    )


def _device_at(mesh: Mesh, position: int) -> int:
    """The device at a position of a mesh; lists no others."""
    order = mesh.device_ids
    if order is None:
        return position
    if isinstance(order, tuple):
        return order[position]
    device = 0
    for length, stride in reversed(order.digits):
        device += position % length * stride
        position //= length
    return device


def _square(place: Placement, device: int, at: tuple[float, float]) -> _Square:
    if place.device is not None:
        colour = block_colour((), ()) if device == place.device else "none"
        return _Square(*at, str(device), "", device_text(device, place), colour)
    block = place.block(device)
    cut = [index for index, count in zip(block, place.shards, strict=True) if count > 1]
    below = ",".join(map(str, cut)) if len(cut) > 1 else ""
    colour = block_colour(block, place.shards)
    return _Square(*at, str(device), below, device_text(device, place), colour)


def _axis_labels(
    columns: tuple[str, int],
    rows: tuple[str, int],
    left: int,
    top: int,
    wide: int,
    tall: int,
    colours: Mapping[str, int],
) -> list[_Label]:
    def parts(axis: tuple[str, int]) -> tuple[tuple[str, int | None], ...]:
        return ((_plain(f"{axis[0]} {axis[1]}"), colours.get(axis[0])),)

    labels = []
    if columns[0]:
        labels.append(_Label(left + wide / 2, top - 6, parts(columns)))
    if rows[0]:
        labels.append(_Label(left - 8, top + tall / 2, parts(rows), turned=True))
    return labels


def _index_parts(
    axes: Sequence[tuple[str, int]], number: int, colours: Mapping[str, int]
) -> tuple[tuple[str, int | None], ...]:
    """``data 0, fsdp 1``, each axis with its colour."""
    parts: list[tuple[str, int | None]] = []
    for name, length in reversed(axes):
        parts += [(_plain(f"{name} {number % length}"), colours.get(name)), (", ", None)]
        number //= length
    return tuple(reversed(parts[:-1]))


def _plain(text: str, most: int = _LINE) -> str:
    """Text that XML can hold, and that is not longer than a picture."""
    kept = xml_text(text)
    return kept if len(kept) <= most else f"{kept[: most - 1]}…"


def _rendered(template: str, **values: Any) -> str:
    return environment().get_template(template).render(**values)


# --- the page's colours, which tests compare ------------------------------------------------------

#: Mesh axes on light and on dark paper, in the order of the axes: `--axis-0` and so on of the page.
AXES = (
    ("#1d5fbf", "#7fb0ff"),
    ("#b3401b", "#ff9d73"),
    ("#1a7a4c", "#6fd39d"),
    ("#8a3fb0", "#d3a0f2"),
    ("#9a6400", "#e8bb5c"),
    ("#0c7480", "#68cbd6"),
    ("#b02a68", "#ff91bf"),
    ("#5a6b12", "#bccd6a"),
)

#: Hues that are far apart for everybody, in degrees of OKLCH.
_HUES = (255, 55, 155, 330, 95, 205, 20, 290)
#: Lightness from and to, and chroma, on light paper.
_LIGHTNESS = (0.9, 0.68)
_CHROMA = 0.105


def block_colour(block: Sequence[int], shards: Sequence[int]) -> str:
    """The colour of a block on light paper: `blockColour` of `reports/js/placement/colours.js`.

    Args:
        block: which block of each dimension.
        shards: how many there are.

    Returns:
        ``#rrggbb``.
    """
    cut = [(at, count) for at, count in zip(block, shards, strict=True) if count > 1]
    if not cut:
        return oklch(_LIGHTNESS[0], _CHROMA, _HUES[0])
    at, last = cut[-1]
    index, count = 0, 1
    for other, many in cut[:-1]:
        index, count = index * many + other, count * many
    is_many = last > len(_HUES)
    hue = 280 - 250 * at / (last - 1) if is_many else _HUES[at]
    if len(cut) > 1:
        depth = index / max(count - 1, 1)
    else:
        depth = at / (last - 1) if is_many else at % 2 * 0.45
    return oklch(_LIGHTNESS[0] + (_LIGHTNESS[1] - _LIGHTNESS[0]) * depth, _CHROMA, hue)


def oklch(lightness: float, chroma: float, hue: float) -> str:
    """A colour of OKLCH as ``#rrggbb``, as CSS Color 4 converts it; what is outside is clipped."""
    a, b = chroma * math.cos(math.radians(hue)), chroma * math.sin(math.radians(hue))
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = (
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )
    encoded = [
        12.92 * part if part <= 0.0031308 else 1.055 * part ** (1 / 2.4) - 0.055
        for part in (min(max(part, 0), 1) for part in linear)
    ]
    return "#" + "".join(f"{round(255 * part):02x}" for part in encoded)
