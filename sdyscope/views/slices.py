"""Which slice of each tensor which devices hold: as documents, and in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from sdyscope.analysis.device_slices import DeviceSlices, Slice, device_slices
from sdyscope.annotations import AnnotationKind
from sdyscope.convert import to_placement
from sdyscope.errors import ConversionError
from sdyscope.placement import Placement
from sdyscope.tensors import Tensor
from sdyscope.views.paragraphs import Paragraph
from sdyscope.views.shardings import (
    SourceDocument,
    short,
    shown_name,
    source_document,
    source_text,
)
from sdyscope.views.table import shape
from sdyscope.words import counted

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
      source: line of user code; null for arguments and results.
      placed: whether that says where it is.
      unplaced: why not, in words; empty where it does.
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
    source: SourceDocument | None = None
    placed: bool = False
    unplaced: str = ""
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
    source = source_document(row.source)
    tensor = TensorSlices(row.name, row.kind, row.shape, row.dtype, sharding, source)
    unplaced = _unplaced(row, place)
    if unplaced or place is None or row.shape is None:
        return replace(tensor, unplaced=unplaced)
    found = device_slices(place, row.shape)
    return replace(
        tensor,
        placed=True,
        different=found.different,
        listed=tuple(_slice(found, part, _subject(tensor)) for part in found.listed),
        rule=found.rule,
        partial=found.partial,
    )


def _unplaced(row: Tensor, place: Placement | None) -> str:
    """Why it is not said which devices hold what; empty where it is."""
    asked = row.requested
    if asked is not None and asked.dropped:
        return "dropped by jit"
    inside = asked is not None and asked.kind == "constraint" and asked.manual_axes
    places = (place, *(annotation.placement for annotation in row.lowered.values()))
    if inside or any(one is not None and one.manual for one in places):
        return "in the body of a shard_map, where each device sees its own block"
    if row.shape is None:
        return "of a shape that is not known"
    return "left to the compiler" if place is None else ""


def _slice(found: DeviceSlices, part: Slice, subject: str) -> SliceDocument:
    devices = part.devices
    return SliceDocument(
        part.index,
        found.text(part, subject),
        devices.count,
        devices.first,
        tuple(RepeatDocument(times, apart) for times, apart in devices.repeats),
    )


def _subject(tensor: TensorSlices) -> str:
    """What stands before the brackets: the path of an argument or result; a scope is no tensor."""
    return tensor.name if tensor.kind in ("argument", "result") else ""


def _title(tensor: TensorSlices) -> str:
    """`params['w1']`; `jvp(block0) at models/mlp.py:98`; `jit(body) #0 input`."""
    name = shown_name(tensor.name, tensor.kind) or tensor.kind
    return f"{name} at {source_text(tensor.source)}" if tensor.source else name


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
    for tensors in groups.values():
        yield from _tensor(tensors[0], Counter(map(_title, tensors)))
        yield Paragraph("")
    unplaced: dict[str, list[str]] = {}
    for tensor in slices.tensors:
        if not tensor.placed:
            unplaced.setdefault(tensor.unplaced, []).append(_title(tensor))
    for why, titles in unplaced.items():
        count = counted(len(titles), "tensor is", "tensors are")
        yield Paragraph(f"{count} {why}: {_few(list(dict.fromkeys(titles)))}", "muted", 0, 2)
    if any(" (+" in part.text for tensor in slices.tensors for part in tensor.listed):
        yield Paragraph("(+8 x4): the same again 8 devices further, 4 times in all", "muted")
    if hidden:
        yield Paragraph(f"{counted(hidden, 'tensor')} left out by the filters", "muted")


def _few(titles: Sequence[str]) -> str:
    left = len(titles) - _NAMED
    return ", ".join(titles[:_NAMED]) + (f" and {left:,} more" if left > 0 else "")


def _tensor(first: TensorSlices, titles: Counter[str]) -> Iterator[Paragraph]:
    assert first.shape is not None
    name, *others = [
        f"{title} ({times:,} alike)" if times > 1 else title for title, times in titles.items()
    ]
    yield Paragraph(f"{name}  {shape(first.shape, first.dtype)}  {first.sharding}", "heading", 0, 2)
    if others:
        yield Paragraph(f"likewise {_few(others)}", "muted", 0, 2)
    *listed, last = first.listed
    for part in listed:
        yield Paragraph(part.text, indent=2, hang=2)
    if first.rule:
        yield Paragraph(f"... and so on: {first.different:,} slices, the last of which", indent=2)
    yield Paragraph(last.text, indent=2, hang=2)
    if first.rule:
        device = "position p" if "p" in first.rule.partition(" where ")[2].split() else "device d"
        yield Paragraph(f"{device} holds {_subject(first)}{first.rule}", indent=2, hang=2)
    if first.partial:
        yield Paragraph("each is a partial result, still to be reduced", indent=2, hang=2)
