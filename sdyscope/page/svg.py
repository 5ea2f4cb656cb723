"""Pictures for documents: where a sharding puts a tensor, and what a step communicates, as SVG."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import jinja2

from sdyscope.analysis.collectives.comms import CommsDocument
from sdyscope.analysis.naming.resolve import resolve_value
from sdyscope.errors import ConversionError, TargetError
from sdyscope.facts.tensors import Tensor
from sdyscope.inspection import Inspection
from sdyscope.terminal.table import shape
from sdyscope.values.convert import to_placement
from sdyscope.values.mesh import Mesh, only_mesh
from sdyscope.values.placement import Placement
from sdyscope.words.counts import size
from sdyscope.words.sharding import placement_text

#: At most so many devices are drawn along an axis, and so many panels; the rest is counted.
_ALONG = 16
_PANELS = 4

_CELL = 26
_STEP = _CELL + 3
_BESIDE = 30
_ABOVE = 24

#: Hues that stay apart however many there are: the golden angle, in degrees.
_ANGLE = 137.508

#: What XML can't hold.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class _Square:
    x: float
    y: float
    text: str
    title: str
    hue: int
    saturation: int


@dataclass(frozen=True, slots=True)
class _Label:
    x: float
    y: float
    text: str
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
    cell: int = _CELL


def placement_svg(place: Placement, mesh: Mesh | None = None, title: str = "") -> str:
    """The devices, each in the colour of its block; devices of one colour hold the same.

    Args:
        place: where the tensor is.
        mesh: how to lay the devices out: the last axis to the right, the one before it downwards,
            the others in panels. By default in rows of up to 16.
        title: what to write above.
    """
    grid = mesh if mesh is not None and mesh.axes else Mesh.of({"": place.num_devices})
    return _rendered("placement.svg.j2", picture=_picture(place, grid, _plain(title)))


def communication_svg(comms: CommsDocument) -> str:
    """Bars of what a device sends in a step, by kind of collective and partitioner."""
    most = max(
        (tally.sent for program in comms.programs for tally in program.by_kind.values()), default=1
    )
    kinds = dict.fromkeys(kind for program in comms.programs for kind in program.by_kind)
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
        title=_plain(f"{comms.name}: what a device sends in a step"),
        subtitle=_plain(
            "by kind of collective, and in how many; counted from the program"
            + (f" that is compiled for {comms.hardware}" if comms.hardware else "")
        ),
        bars=bars,
        height=y + 8 if bars else 60,
    )


def placements(inspection: Inspection) -> Iterator[tuple[str, str]]:
    """A picture of each placement that arguments have, with the name of the first that has it.

    Args:
        inspection: the program. What was requested is drawn, or else what the first module says.
    """
    mesh = only_mesh(inspection.meshes.values())
    drawn: set[Placement] = set()
    for tensor in inspection.tensors.tensors:
        place = _placement(tensor)
        if tensor.kind == "argument" and place is not None and place not in drawn:
            drawn.add(place)
            form = "" if tensor.shape is None else shape(tensor.shape, tensor.dtype)
            yield tensor.name, placement_svg(place, mesh, f"{tensor.name} {form}")


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
    mesh = only_mesh(inspection.meshes.values())
    for tensor in inspection.tensors.tensors:
        place = _placement(tensor) if tensor.name == name else None
        if place is not None:
            form = "" if tensor.shape is None else shape(tensor.shape, tensor.dtype)
            return placement_svg(place, mesh, f"{tensor.name} {form}")
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
    return placement_svg(propagated.placement, mesh, f"{value.name} {value.ssa} {form}")


def _placement(tensor: Tensor) -> Placement | None:
    asked = tensor.requested
    if asked is not None and asked.sharding is not None:
        with suppress(ConversionError):
            return to_placement(asked.sharding, len(asked.shape))
    return next(
        (said.placement for said in tensor.lowered.values() if said.placement is not None), None
    )


def _picture(place: Placement, mesh: Mesh, title: str) -> _Picture:
    axes = list(mesh.shape.items())
    columns = axes[-1]
    rows = axes[-2] if len(axes) > 1 else ("", 1)
    before = axes[:-2]
    panels = math.prod(length for _, length in before)
    wrapped = len(axes) == 1 and columns[1] > _ALONG
    across = min(columns[1], _ALONG)
    down = min(math.ceil(columns[1] / _ALONG) if wrapped else rows[1], _ALONG)
    drawn = min(panels, _PANELS)
    lines = [_plain(placement_text(place, mesh if columns[0] else None))]
    shown = min(drawn * across * down, mesh.size)
    if shown < mesh.size:
        lines.append(f"{shown:,} of {mesh.size:,} devices are drawn")
    top = 28 + 15 * len(lines) + _ABOVE
    wide = across * _STEP + _BESIDE
    squares: list[_Square] = []
    labels: list[_Label] = []
    for panel in range(drawn):
        left = panel * (wide + 14) + _BESIDE
        labels += _axis_labels(columns, rows, left, top, across, down)
        if panels > 1:
            labels.append(_Label(left, top - 20, _index_words(before, panel), anchor="start"))
        for row in range(down):
            for column in range(across):
                stride = across if wrapped else columns[1]
                position = panel * rows[1] * columns[1] + row * stride + column
                if position < mesh.size:
                    at = (left + column * _STEP, top + row * _STEP)
                    squares.append(_square(place, _device_at(mesh, position), at))
    return _Picture(
        title,
        tuple(lines),
        tuple(squares),
        tuple(labels),
        max(drawn * (wide + 14) + 8, 8 * max(len(title), *map(len, lines))),
        top + down * _STEP + 8,
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
        holds = device == place.device
        words = "holds all of it" if holds else "holds nothing"
        return _Square(*at, str(device), f"device {device} {words}", 210, 70 if holds else 0)
    block = place.block(device)
    number = 0
    for index, count in zip(block, place.shards, strict=True):
        number = number * count + index
    cut = any(count > 1 for count in place.shards)
    named = ", ".join(
        f"block {index} of dim {dim}"
        for dim, (index, count) in enumerate(zip(block, place.shards, strict=True))
        if count > 1
    )
    hue = round(210 + number * _ANGLE) % 360
    title = f"device {device}: {named or 'the whole tensor'}"
    return _Square(*at, str(device), title, hue, 65 if cut else 12)


def _axis_labels(
    columns: tuple[str, int], rows: tuple[str, int], left: int, top: int, across: int, down: int
) -> list[_Label]:
    labels = []
    if columns[0]:
        words = _plain(f"{columns[0]} {columns[1]}")
        labels.append(_Label(left + across * _STEP / 2, top - 6, words))
    if rows[0]:
        words = _plain(f"{rows[0]} {rows[1]}")
        labels.append(_Label(left - 8, top + down * _STEP / 2, words, turned=True))
    return labels


def _index_words(axes: Sequence[tuple[str, int]], number: int) -> str:
    words = []
    for name, length in reversed(axes):
        words.append(_plain(f"{name} {number % length}"))
        number //= length
    return ", ".join(reversed(words))


def _plain(text: str) -> str:
    """Text that XML can hold, and that is not longer than a picture."""
    kept = _NOT_XML.sub("�", text)
    return kept if len(kept) <= 120 else f"{kept[:119]}…"


def _rendered(template: str, **values: Any) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("sdyscope.reports", ""),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**values)
