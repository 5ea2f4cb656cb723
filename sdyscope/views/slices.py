"""Which slice of each tensor which devices hold, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from sdyscope.analysis.slices import ProgramSlices, TensorSlices
from sdyscope.facts.slices import BlockRule, Unplaced
from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.terminal.table import shape
from sdyscope.words.counts import counted, few
from sdyscope.words.places import shown_name, source_text
from sdyscope.words.sharding import short
from sdyscope.words.slices import order_text, rule_text, slice_text, unplaced_text

#: Tensors that are held like another are named up to so many.
_NAMED = 3


def _title(tensor: TensorSlices) -> str:
    """`params['w1']`; `jvp(block0) at models/mlp.py:98`; `jit(body) #0 input`."""
    name = shown_name(tensor.name, tensor.kind, tensor.mapped) or tensor.kind
    return f"{name} at {source_text(tensor.source)}" if tensor.source else name


def paragraphs(
    slices: ProgramSlices, hidden: int, axes: tuple[str, ...] = ()
) -> Iterator[Paragraph]:
    """Every tensor with the sentences about it; tensors that are held alike share them.

    Args:
        slices: the document.
        hidden: how many tensors the filters left out.
        axes: names of the mesh axes, in the order of their colours.
    """
    groups: dict[object, list[TensorSlices]] = {}
    for tensor in slices.tensors:
        if tensor.placed:
            alike = tuple((part.index, part.devices) for part in tensor.listed)
            groups.setdefault((tensor.shape, alike, tensor.rule), []).append(tensor)
    for tensors in groups.values():
        yield from _tensor(tensors[0], Counter(map(_title, tensors)), axes)
        yield Paragraph("")
    unplaced: dict[Unplaced, list[str]] = {}
    for tensor in slices.tensors:
        if isinstance(tensor.unplaced, Unplaced):
            unplaced.setdefault(tensor.unplaced, []).append(_title(tensor))
    for why, titles in unplaced.items():
        count = counted(len(titles), "tensor is", "tensors are")
        text = f"{count} {unplaced_text(why)}: {few(list(dict.fromkeys(titles)), _NAMED)}"
        yield Paragraph(text, "muted", 0, 2)
    if slices.device_order:
        yield Paragraph(order_text(slices.device_order), "muted", 0, 2)
    if any(" (+" in slice_text(part) for tensor in slices.tensors for part in tensor.listed):
        yield Paragraph("(+8 x4): the same again 8 devices further, 4 times in total", "muted")
    if hidden:
        yield Paragraph(f"{counted(hidden, 'tensor')} left out by the filters", "muted")


def _tensor(
    first: TensorSlices, titles: Counter[str], axes: tuple[str, ...]
) -> Iterator[Paragraph]:
    assert first.shape is not None
    assert first.sharding is not None
    name, *others = [
        f"{title} (×{times:,})" if times > 1 else title for title, times in titles.items()
    ]
    heading = f"{name}  {shape(first.shape, first.dtype)}  {short(first.sharding)}"
    yield Paragraph(heading, "heading", 0, 2, axes)
    if others:
        yield Paragraph(f"likewise {few(others, _NAMED)}", "muted", 0, 2)
    *listed, last = first.listed
    for part in listed:
        yield Paragraph(slice_text(part), indent=2)
    if first.rule:
        yield Paragraph(f"... and so on: {first.different:,} slices, the last of which", indent=2)
    yield Paragraph(slice_text(last), indent=2)
    if isinstance(first.rule, BlockRule):
        device = "position p" if first.rule.by_position else "device d"
        yield Paragraph(f"{device} holds {first.subject}{rule_text(first.rule)}", indent=2)
    if first.partial:
        yield Paragraph("each is a partial result, still to be reduced", indent=2)
