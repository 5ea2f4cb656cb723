"""Which slice of each tensor which devices hold: as documents, and in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sdyscope.analysis.device_slices import DeviceSlices, Slice, device_slices
from sdyscope.annotations import AnnotationKind
from sdyscope.convert import to_placement
from sdyscope.errors import ConversionError
from sdyscope.placement import Placement
from sdyscope.tensors import Tensor
from sdyscope.views.paragraphs import Paragraph
from sdyscope.views.shardings import short, shown_name
from sdyscope.views.table import shape

#: Tensors that are held like another are named up to so many.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class RepeatDocument:
    """The same devices again, at a stride.

    Attributes:
      times: how many times in all.
      apart: how many devices further each time.
    """

    times: int
    apart: int


@dataclass(frozen=True, slots=True)
class SliceDocument:
    """One slice of a tensor, and the devices that hold it.

    Attributes:
      index: start and stop of each dimension; where they are equal it is padding.
      text: who holds it, in words.
      devices: how many devices hold it.
      first: the first of them; a position of the mesh where its devices are in an order of their
        own.
      repeats: where the others are, most significant first: 16 times 2,048 apart and 8 times 1
        apart are 8 devices in a row, and that 16 times.
    """

    index: tuple[tuple[int, int], ...]
    text: str
    devices: int
    first: int
    repeats: tuple[RepeatDocument, ...]


@dataclass(frozen=True, slots=True)
class TensorSlices:
    """Who holds what of one tensor.

    Attributes:
      name: its pytree path or its scope.
      kind: where its sharding is named.
      shape: shape of the whole tensor; null where it is dynamic.
      dtype: MLIR element type.
      sharding: what was requested, else what the first module says; empty for neither.
      placed: whether that says where it is. It does not where it is left to the compiler, nor in
        the body of a `shard_map`.
      different: how many different slices there are.
      listed: all of them where they are few, else the first ones and the last.
      rule: the slice that any device `d` holds, or any position `p` of a mesh whose devices are in
        an order of their own; empty where all are listed.
      partial: whether each device holds a partial result, still to be reduced with others.
    """

    name: str
    kind: AnnotationKind
    shape: tuple[int, ...] | None
    dtype: str
    sharding: str
    placed: bool = False
    different: int = 0
    listed: tuple[SliceDocument, ...] = ()
    rule: str = ""
    partial: bool = False


@dataclass(frozen=True, slots=True)
class ProgramSlices:
    """Who holds what of a program's tensors.

    Attributes:
      name: the program's name, or the module's.
      tensors: its tensors, or those that were asked for.
    """

    name: str
    tensors: tuple[TensorSlices, ...]


def program_slices(name: str, rows: Iterable[Tensor]) -> ProgramSlices:
    """The document of the slices of these tensors of a program."""
    return ProgramSlices(name, tuple(map(_tensor_slices, rows)))


def _tensor_slices(row: Tensor) -> TensorSlices:
    place, sharding = _placement(row)
    if place is None or row.shape is None or place.manual:
        return TensorSlices(row.name, row.kind, row.shape, row.dtype, sharding)
    found = device_slices(place, row.shape)
    return TensorSlices(
        row.name,
        row.kind,
        row.shape,
        row.dtype,
        sharding,
        True,
        found.different,
        tuple(_slice(found, part, row) for part in found.listed),
        found.rule,
        found.partial,
    )


def _slice(found: DeviceSlices, part: Slice, row: Tensor) -> SliceDocument:
    devices = part.devices
    return SliceDocument(
        part.index,
        found.text(part, shown_name(row.name, row.kind)),
        devices.count,
        devices.first,
        tuple(RepeatDocument(times, apart) for times, apart in devices.repeats),
    )


def _placement(row: Tensor) -> tuple[Placement | None, str]:
    """Where a tensor is, and the sharding that says so: the request, else the first module's."""
    asked = row.requested
    if asked is not None and asked.sharding is not None:
        try:
            return to_placement(asked.sharding, len(asked.shape)), str(asked.sharding.spec)
        except ConversionError:
            pass  # The modules say what became of it.
    for annotation in row.lowered.values():
        if annotation.placement is not None:
            return annotation.placement, short(annotation, None)
    return None, ""


def paragraphs(slices: ProgramSlices, hidden: int) -> Iterator[Paragraph]:
    """Every tensor with the sentences about it; tensors that are held alike share them.

    Args:
      slices: the document.
      hidden: how many tensors the filters left out.
    """
    groups: dict[object, list[TensorSlices]] = {}
    for tensor in slices.tensors:
        if tensor.placed:
            alike = tuple((part.index, part.first, part.repeats) for part in tensor.listed)
            groups.setdefault((tensor.shape, alike, tensor.rule), []).append(tensor)
    for first, *others in groups.values():
        yield from _tensor(first, others)
        yield Paragraph("")
    missing = sum(not tensor.placed for tensor in slices.tensors)
    if missing:
        count = "1 tensor is" if missing == 1 else f"{missing:,} tensors are"
        yield Paragraph(f"{count} left to the compiler", "muted")
    if any(" (+" in part.text for tensor in slices.tensors for part in tensor.listed):
        yield Paragraph("(+8 x4): the same again 8 devices further, 4 times in all", "muted")
    if hidden:
        count = "1 tensor" if hidden == 1 else f"{hidden:,} tensors"
        yield Paragraph(f"{count} left out by the filters", "muted")


def _tensor(first: TensorSlices, others: Sequence[TensorSlices]) -> Iterator[Paragraph]:
    assert first.shape is not None
    name = shown_name(first.name, first.kind)
    yield Paragraph(f"{name}  {shape(first.shape, first.dtype)}  {first.sharding}", "heading", 0, 2)
    if others:
        names = ", ".join(shown_name(one.name, one.kind) for one in others[:_NAMED])
        left = len(others) - _NAMED
        more = f" and {left:,} more" if left > 0 else ""
        yield Paragraph(f"likewise {names}{more}", "muted", 0, 2)
    *listed, last = first.listed
    for part in listed:
        yield Paragraph(part.text, indent=2, hang=2)
    if first.rule:
        yield Paragraph(f"... and so on: {first.different:,} slices, the last of which", indent=2)
    yield Paragraph(last.text, indent=2, hang=2)
    if first.rule:
        device = "position p" if "p" in first.rule.partition(" where ")[2].split() else "device d"
        yield Paragraph(f"{device} holds {name}{first.rule}", indent=2, hang=2)
    if first.partial:
        yield Paragraph("each is a partial result, still to be reduced", indent=2, hang=2)
