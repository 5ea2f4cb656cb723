"""What changed since a snapshot, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sdyscope.snapshots import Comparison, Item, TensorChange
from sdyscope.snapshots.blocks import BlockChange, Blocks, DeviceBlock, NamedTensors
from sdyscope.snapshots.document import SnapshotDocument
from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.words.counts import counted, size
from sdyscope.words.partitioners import partitioner_name
from sdyscope.words.snapshots import (
    IN_BOTH,
    comparison_text,
    header_text,
    item_text,
    renamed_axes_text,
    snapshot_name,
    stage_texts,
    uncompared_parts_text,
)


@dataclass(frozen=True)
class Sides:
    """What the two sides of a comparison are called.

    Attributes:
        removed: what stands before a tensor that only the first has.
        added: before one that only the second has.
        same: what is said of what both have alike.
    """

    removed: str
    added: str
    same: str


#: A snapshot and the program as it is now.
OF_PROGRAM = Sides("only in the snapshot: ", "not in the snapshot: ", "as before")
#: Two snapshots.
OF_TWO = Sides("only in the first: ", "only in the second: ", IN_BOTH)


def paragraphs(document: SnapshotDocument) -> Iterator[Paragraph]:
    """A line a program, what changed of each, and what the file lacks or has too much."""
    yield from comparisons(document.compared)
    for name in document.missing:
        done = "added to" if document.written else "missing from"
        yield Paragraph(f"{name}: {done} {document.file}", "good" if document.written else "bad")
    for name in document.unused:
        yield Paragraph(f"{name}: unused: it is in {document.file} and not a target", "warning")
    if document.action == "update":
        done = "written" if document.written else "nothing was written"
        yield Paragraph(f"{document.file}: {done}", "muted")
    yield from _hints(document)


def _hints(document: SnapshotDocument) -> Iterator[Paragraph]:
    if document.action != "check" or document.same:
        return
    yield Paragraph("")
    if document.missing or not all(comparison.is_same for comparison in document.compared):
        yield Paragraph("If this is intended, write it with --update instead of --check.", "muted")
    if document.unused:
        yield Paragraph(
            "Name every program of the file as a target, or pass --update --remove-unused.",
            "muted",
        )


def comparisons(every: Sequence[Comparison], sides: Sides = OF_PROGRAM) -> Iterator[Paragraph]:
    """What changed of each program, with an empty line behind what is long."""
    for number, compared in enumerate(every):
        if number and not every[number - 1].is_same:
            yield Paragraph("")
        yield from comparison(compared, sides)


def comparison(compared: Comparison, sides: Sides = OF_PROGRAM) -> Iterator[Paragraph]:
    """What changed of one program."""
    header = [change.word for change in compared.header]
    text = comparison_text(compared.same, compared.different, header, sides.same)
    yield Paragraph(f"{compared.name}: {text}", "good" if compared.is_same else "bad")
    if compared.not_compared:
        yield Paragraph(uncompared_parts_text(compared.not_compared), "warning", 2, 2)
    if compared.renamed:
        yield Paragraph(renamed_axes_text(compared.renamed), "warning", 2, 2)
    if compared.header:
        yield Paragraph("")
    for change in compared.header:
        yield Paragraph(change.word, "heading", 2, 2)
        yield Paragraph(f"- {header_text(change.word, change.before)}", "bad", 4, 2)
        yield Paragraph(f"+ {header_text(change.word, change.after)}", "good", 4, 2)
    if compared.blocks is not None:
        yield from _blocks(compared.blocks)
    for difference in compared.changes:
        yield Paragraph("")
        yield from _change(difference, sides)


def _blocks(blocks: Blocks) -> Iterator[Paragraph]:
    """What a device has of each tensor on the two meshes; tensors that are alike together."""
    yield Paragraph("")
    yield Paragraph("what a device has", "heading", 2, 2)
    for total in blocks.totals:
        under = f" under {partitioner_name(total.partitioner)}" if total.partitioner else ""
        words = f"all {total.kind}s{under}: {_amount(total.before, total.after)}"
        yield Paragraph(words, "plain", 4, 2)
    # What somebody wrote a sharding for, and of what is inside that which changes most.
    inside = [
        change for change in blocks.changes if all(of.kind == "value" for of in change.tensors)
    ]
    left = inside[_INSIDE:]
    for change in blocks.changes:
        if change not in left:
            yield from _block_change(change)
    if left:
        more = counted(sum(of.count for change in left for of in change.tensors), "value")
        yield Paragraph(f"other blocks of {more} inside", "muted", 4, 2)
    rest = f"the same blocks of {counted(blocks.same, 'other tensor')}" if blocks.same else ""
    unknown = f"of {blocks.unknown:,} it is not known" if blocks.unknown else ""
    if rest or unknown:
        yield Paragraph("; ".join(filter(None, (rest, unknown))), "muted", 4, 2)


def _block_change(change: BlockChange) -> Iterator[Paragraph]:
    had, has = change.before, change.after
    under = f"under {partitioner_name(change.partitioner)}, " if change.partitioner else ""
    spec = had.spec if change.same_spec else f"{had.spec} -> {has.spec}"
    type_ = had.type if had.type == has.type else f"{had.type} -> {has.type}"
    cut = f"{_shape(had)} -> {_shape(has)}, {_amount(had.bytes, has.bytes)}"
    yield Paragraph(f"{under}{spec} of {type_}: {cut}", "plain", 4, 2)
    yield Paragraph(_named(change.tensors), "muted", 6, 2)


#: How many kinds of values inside are told.
_INSIDE = 3

#: How many of the tensors that are alike are named.
_NAMED = 4


def _named(tensors: Sequence[NamedTensors]) -> str:
    words = [
        snapshot_name(tensor.name)
        if tensor.kind in ("argument", "result")
        else f"{tensor.kind} {snapshot_name(tensor.name)}"
        for tensor in tensors
    ]
    # One more takes no more room than to say that there is one more.
    if len(words) > _NAMED + 1:
        more = sum(tensor.count for tensor in tensors[_NAMED:])
        words[_NAMED:] = [f"{more:,} more"]
    return ", ".join(words)


def _shape(block: DeviceBlock) -> str:
    return f"[{','.join(map(str, block.shape))}]"


def _amount(before: int, after: int) -> str:
    if before == after:
        return f"{size(before)} as before"
    if size(before) == size(after):
        return f"{before:,} B -> {after:,} B"
    return f"{size(before)} -> {size(after)}"


def _change(change: TensorChange, sides: Sides) -> Iterator[Paragraph]:
    type_ = change.type_before
    if change.type_after != type_:
        type_ += f" -> {change.type_after}"
    words = [
        change.kind,
        f"{change.over} in" if change.over else "",
        snapshot_name(change.name),
        type_,
    ]
    before = {"changed": "", "removed": sides.removed, "added": sides.added}[change.what]
    title = before + " ".join(word for word in words if word)
    yield Paragraph(title, "heading", 2, 2)
    if max(len(change.before), len(change.after)) == 1:
        yield from _stages(change.before, change.after)
        return
    for item in change.before:
        if item not in change.after:
            yield Paragraph(f"- {item_text(item)}", "bad", 4, 2)
    for item in change.after:
        if item not in change.before:
            yield Paragraph(f"+ {item_text(item)}", "good", 4, 2)


def _stages(before: Sequence[Item], after: Sequence[Item]) -> Iterator[Paragraph]:
    """Stage by stage; what both say alike is told once."""
    olds, news = stage_texts(before), stage_texts(after)
    for stage in dict.fromkeys([*olds, *news]):
        if olds.get(stage) == news.get(stage):
            yield Paragraph(f"  {stage} {olds[stage]}", "muted", 4, 2)
            continue
        if stage in olds:
            yield Paragraph(f"- {stage} {olds[stage]}", "bad", 4, 2)
        if stage in news:
            yield Paragraph(f"+ {stage} {news[stage]}", "good", 4, 2)
