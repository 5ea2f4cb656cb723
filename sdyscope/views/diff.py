"""What two sides differ in at a stage, and what two modules do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal

from sdyscope.facts.differences import LoweredDiff, OpDifference, TensorDifference, TensorSide
from sdyscope.snapshots.differences import DiffDocument
from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.terminal.table import Cell, Column, Heading, Row, Table, Tone
from sdyscope.views import compiled_diff, propagated_diff, snapshot
from sdyscope.views.layers import folded_rows
from sdyscope.words.counts import counted
from sdyscope.words.differences import (
    OPS_NOT_COMPARED,
    beside_text,
    lone_mesh_text,
    lowered_notes,
    lowered_verdict,
    uncompared_text,
)
from sdyscope.words.places import shown_name, source_text
from sdyscope.words.remarks import remark_texts
from sdyscope.words.sharding import short, told_apart
from sdyscope.words.types import type_text

#: What several programs are alike in: of other stages their ops are not compared.
_ALIKE: Final[Mapping[str, str]] = {
    "lowered": "all the same",
    "propagated": "all sharded the same",
    "compiled": "all send and hold the same",
}

#: How many kinds of differing ops are listed unless all are asked for.
LISTED_OPS = 20


def summary(diff: DiffDocument) -> Iterator[Paragraph]:
    """The total, first of all."""
    yield from snapshot.comparisons(diff.snapshots, snapshot.OF_TWO)
    if diff.snapshots:
        pass  # Each is told in whole.
    elif len(diff.every) == 1 and not (diff.only_a or diff.only_b):
        yield from map(_total, diff.programs)
        yield from map(propagated_diff.total, diff.propagated)
        yield from map(compiled_diff.total, diff.compiled)
    else:
        differ = sum(not program.same for program in diff.every)
        text = f"{counted(len(diff.every), 'program')} in both"
        if differ:
            text += f": {differ:,} {'differs' if differ == 1 else 'differ'}"
        elif diff.every:
            text += f": {'all tensors the same' if _leaves_out_ops(diff) else _ALIKE[diff.at]}"
        partial = sum(program.same and program.leaves_out for program in diff.programs)
        if partial:
            text += f"; {counted(partial, 'program')} not compared in full"
        tone: Tone = "bad" if not diff.same else "warning" if partial else "good"
        yield Paragraph(text, tone)
    for label, only in (("first", diff.only_a), ("second", diff.only_b)):
        if only:
            yield Paragraph(f"only in the {label}: {', '.join(only)}", "bad")
    for missing in diff.unread:
        yield Paragraph(uncompared_text(missing), "bad")


def _leaves_out_ops(diff: DiffDocument) -> bool:
    """Whether ops of a program are not compared that is said to be the same."""
    return any(program.same and not program.ops_compared for program in diff.programs)


def _total(diff: LoweredDiff) -> Paragraph:
    tone: Tone = "bad" if not diff.same else "warning" if diff.leaves_out else "good"
    return Paragraph(f"{diff.name}: {lowered_verdict(diff)}", tone)


def details(diff: DiffDocument, *, everything: bool = False) -> Iterator[Paragraph | Table]:
    """What differs, program by program, with an empty line between the parts.

    Programs of which the very same is said, as of a function that was compiled several times, are
    told once.
    """
    several = len(diff.every) > 1 or bool(diff.only_a or diff.only_b)
    first: dict[str, str] = {}
    for name, labels, part in _parts(diff, several=several, everything=everything):
        if not everything:
            before = first.setdefault(_without(labels, repr(part)), name)
            if before != name:
                yield Paragraph("")
                yield Paragraph(f"{name}: as {before}; --all shows it")
                continue
        yield from part
    notes = [*remark_texts(diff.notes)]
    if several and _leaves_out_ops(diff):
        notes.insert(0, OPS_NOT_COMPARED)
    if notes:
        yield Paragraph("")
        yield from (Paragraph(note, "muted") for note in notes)


def _without(labels: Iterable[str], text: str) -> str:
    """A text without what programs are called in it."""
    every = "|".join(map(re.escape, sorted(labels, key=len, reverse=True)))
    return re.sub(rf"(?<![\w.])(?:{every})(?![\w.])", "\0", text)


def _parts(
    diff: DiffDocument, *, several: bool, everything: bool
) -> Iterator[tuple[str, frozenset[str], tuple[Paragraph | Table, ...]]]:
    """What is said of each program that differs: its name, what its sides are called, and that."""
    for compiled in diff.compiled:
        if not (several and compiled.same):
            labels = frozenset((compiled.name, compiled.a.label, compiled.b.label))
            part = compiled_diff.details(compiled, everything=everything)
            total = compiled_diff.total(compiled)
            yield compiled.name, labels, (*_headed(total, several=several), *part)
    for propagated in diff.propagated:
        if not (several and propagated.same):
            labels = frozenset((propagated.name, propagated.a, propagated.b))
            source = propagated_diff.provenance(propagated)
            about = propagated_diff.details(propagated, everything=everything)
            total = propagated_diff.total(propagated)
            yield propagated.name, labels, (*_headed(total, several=several), *source, *about)
    for program in diff.programs:
        if not (several and program.same) or program.leaves_out:
            labels = frozenset((program.name, program.a, program.b))
            of_module = _of_module(program, everything=everything)
            heading = _headed(_total(program), several=several)
            yield program.name, labels, (*heading, *of_module)


def _headed(total: Paragraph, *, several: bool) -> tuple[Paragraph, ...]:
    return (Paragraph(""), total) if several else ()


def _of_module(program: LoweredDiff, *, everything: bool) -> Iterator[Paragraph | Table]:
    if program.meshes:
        yield Paragraph("")
        yield from (Paragraph(lone_mesh_text(lone)) for lone in program.meshes)
    if program.tensors:
        yield Paragraph("")
        yield _tensors_table(program, everything=everything)
    if program.ops:
        yield Paragraph("")
        yield _ops_table(program, None if everything else LISTED_OPS)
        rest = 0 if everything else len(program.ops) - LISTED_OPS
        if rest > 0:
            yield Paragraph(f"and {counted(rest, 'more place')}: --all lists them", "muted")
    if notes := list(lowered_notes(program)):
        yield Paragraph("")
        yield from (Paragraph(note, "muted") for note in notes)


def _tensors_table(diff: LoweredDiff, *, everything: bool) -> Table:
    """The tensors that differ, side by side; those of repeated layers together."""
    rows: list[Row] = []
    groups: dict[str, list[TensorDifference]] = {}
    for tensor in diff.tensors:
        groups.setdefault(tensor.kind, []).append(tensor)
    for kind, group in groups.items():
        rows.append(Heading(f"{kind}s ({len(group):,})"))
        names: Literal["argument", "value"] = (
            "argument" if kind in ("argument", "result") else "value"
        )
        rows += folded_rows(list(map(_tensor_row, group)), names, everything=everything)
    return Table((Column("tensor"), Column(diff.a), Column(diff.b)), tuple(rows))


def _tensor_row(tensor: TensorDifference) -> tuple[Cell | str, ...]:
    side = tensor.a or tensor.b
    shown = shown_name(tensor.tensor, tensor.kind)
    name = f"{shown} {source_text(side.source if side else None)}".strip()
    if tensor.a is None or tensor.b is None:
        return name, _lone(tensor.a), _lone(tensor.b)
    first, second = tensor.a.sharding, tensor.b.sharding
    texts = told_apart(short, first, second)
    cells = [
        ", ".join(filter(None, (text, beside_text(each, tensor.what))))
        for each, text in zip((tensor.a, tensor.b), texts, strict=True)
    ]
    if "type" in tensor.what:
        return name, _typed(tensor.a, cells[0]), _typed(tensor.b, cells[1])
    return name, *cells


def _lone(side: TensorSide | None) -> Cell | str:
    return Cell("not there", "bad") if side is None else _typed(side, short(side.sharding))


def _typed(side: TensorSide, sharding: str) -> str:
    return f"{type_text(side.shape, side.dtype)} {sharding}"


def _ops_table(diff: LoweredDiff, limit: int | None) -> Table:
    """The ops that differ, by scope; the biggest differences first."""
    chosen = diff.ops if limit is None else diff.ops[:limit]
    groups: dict[str, list[OpDifference]] = {}
    for op in chosen:
        groups.setdefault(op.scope, []).append(op)
    rows: list[Row] = []
    for scope, group in groups.items():
        rows.append(Heading(scope or "without a scope"))
        rows += [
            (op.kind, f"{op.count_a:,}", f"{op.count_b:,}", Cell(_types(op), "muted"))
            for op in group
        ]
    columns = (
        Column("op", fold=False),
        Column(diff.a, align="right"),
        Column(diff.b, align="right"),
        Column("result types, attributes, operands"),
    )
    return Table(columns, tuple(rows))


def _types(op: OpDifference) -> str:
    sides = {"-": {**op.types_a, **op.attributes_a}, "+": {**op.types_b, **op.attributes_b}}
    shown = [
        f"{sign}{f'{count} x ' if count > 1 else ''}{_short(_short_types(text))}"
        for sign, texts in sides.items()
        for text, count in list(texts.items())[:2]
    ]
    hidden = sum(map(len, sides.values())) - len(shown)
    return ", ".join(shown) + (f", {hidden} more" if hidden > 0 else "")


#: How much of an attribute is shown.
_LONGEST = 100


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


#: A tensor's type as MLIR writes it, when its shape is known and its elements are simple.
_TENSOR = re.compile(r"tensor<((?:\d+x)*)(\w+)>")


def _short_types(text: str) -> str:
    """`f32[16,128]` for `tensor<16x128xf32>`."""
    sizes = _TENSOR.sub(lambda t: type_text(tuple(map(int, t[1].split("x")[:-1])), t[2]), text)
    return sizes or "no result"
