"""What `fix` found: each remedy, what it changes, its proof and its patch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sdyscope.analysis.fix.values import Figures, Fix, NotTaken, Remedy
from sdyscope.facts.traffic import sent_side_by_side
from sdyscope.terminal.answer import Block
from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.terminal.table import Cell, Column, Row, Table, Tone, number, size_cell
from sdyscope.words.counts import counted, size
from sdyscope.words.edits import (
    edit_text,
    edits_text,
    loops_text,
    moved_text,
    next_step_text,
    numbers_text,
    why_not_text,
    worth_text,
)
from sdyscope.words.mesh import mesh_words_of, names_text
from sdyscope.words.places import source_text
from sdyscope.words.rates import metric_text, time_text
from sdyscope.words.remarks import remark_texts
from sdyscope.words.run import inputs_text

#: Edits that were not taken that are shown without `--all`.
_NOT_TAKEN = 3
#: From how many percent more on it is how many times as much that is shown.
_TIMES = 900


def heading(fix: Fix) -> Iterator[Paragraph]:
    """The program, what it sends and holds, and what came of it."""
    words = [
        fix.name,
        *mesh_words_of(fix.meshes),
        f"compiled for {fix.hardware} under Shardy by JAX {fix.jax_version}",
    ]
    yield Paragraph("; ".join(words), "heading")
    before = fix.before
    needs = "" if before.total is None else f" and needs {size(before.total)}"
    yield Paragraph(
        f"a device sends {size(before.sent)} per step in {counted(before.count, 'collective')}"
        f"{needs}",
    )
    about = f" for {fix.finding}" if fix.finding else ""
    yield Paragraph(
        f"{counted(fix.proposed, 'edit')}{about} considered, {fix.tried:,} predicted, "
        f"{fix.compiled:,} compiled",
    )
    if not fix.remedies:
        yield Paragraph(f"no edit{about} pays", "good")


def shown(fix: Fix, *, everything: bool = False) -> Sequence[Remedy]:
    """The remedies that are shown with their patches: the best one, or all."""
    return fix.remedies if everything else fix.remedies[:1]


def blocks(fix: Fix, best: Remedy, at: int = 1) -> list[Block]:
    """A remedy: what to do, what that changes, how it is known, and the patch."""
    return [
        remedy(at, best),
        changes(fix, best),
        proof(fix, best),
        best.patch.rstrip("\n"),
    ]


def remedy(at: int, remedy: Remedy) -> Iterator[Paragraph]:
    """What to do, and whether it is proven."""
    tone: Tone = "good" if remedy.proven else "warning"
    worth = worth_text(remedy.verdict, proven=remedy.proven)
    yield Paragraph(f"remedy {at}{worth}", tone)
    for edit in remedy.edits:
        line = f" ({source_text(edit.source)})" if edit.source is not None else ""
        yield Paragraph(f"{edit_text(edit)}{line}", indent=2)


def changes(fix: Fix, remedy: Remedy) -> Table:
    """What a device sends, holds and takes, before and after."""
    before, after = fix.before, remedy.after
    rows: list[Row] = []
    for (kind, axes), (old, new) in sent_side_by_side((before.traffic, after.traffic)):
        rows.append(
            (f"{kind} over {names_text(axes)}", size_cell(old), size_cell(new), _change(old, new))
        )
    rows.append(("sent", size(before.sent), size(after.sent), _change(before.sent, after.sent)))
    rows.append(
        (
            "collectives",
            f"{before.count:,}",
            f"{after.count:,}",
            _change(before.count, after.count),
        )
    )
    for name, old_bytes, new_bytes in _memory(before, after):
        rows.append((name, size(old_bytes), size(new_bytes), _change(old_bytes, new_bytes)))
    if before.flops is not None and after.flops is not None:
        rows.append(
            (
                "FLOPs of matmuls",
                metric_text(before.flops),
                metric_text(after.flops),
                _change(before.flops, after.flops),
            )
        )
    if before.seconds is not None and after.seconds is not None:
        rows.append(
            (
                "estimated step",
                time_text(before.seconds),
                time_text(after.seconds),
                _change(before.seconds, after.seconds),
            )
        )
    return Table(
        (Column("per device and step"), number("now"), number("then"), number("change")),
        tuple(rows),
    )


def _memory(before: Figures, after: Figures) -> Iterator[tuple[str, int, int]]:
    yield "arguments", before.arguments, after.arguments
    yield "results", before.results, after.results
    yield "temporaries", before.temporaries, after.temporaries
    if before.total is not None and after.total is not None:
        yield "memory in total", before.total, after.total


def _change(before: float, after: float) -> Cell:
    if before == after:
        return Cell("same", "muted")
    if not before:
        return Cell("new", "warning")
    if not after:
        return Cell("gone", "good")
    part = max(100 * (after / before - 1), -99.9)  # Something is left.
    if part >= _TIMES:
        text = f"×{after / before:,.0f}"
    else:
        text = f"{part:+.1f}%" if abs(part) < 1 or part < -99 else f"{part:+.0f}%"
    return Cell(text, "good" if after < before else "warning")


def proof(fix: Fix, remedy: Remedy) -> Iterator[Paragraph]:
    """How each part of it is known."""
    again = {
        None: "",
        True: " (it sends exactly what was predicted)",
        False: " (it does not send what was predicted for the edit alone)",
    }[remedy.as_predicted]
    yield Paragraph(
        f"source: traced again with the patch{again} and compiled for {fix.hardware}",
    )
    if remedy.moved:
        yield Paragraph(f"results: {moved_text(remedy.moved)}", "warning")
    then = remedy.next_step
    sent, needs = (None, None) if then is None else (then.sent, then.total)
    if after := next_step_text(remedy.moved, sent, needs):
        yield Paragraph(f"next step: {after}", "warning")
    if remedy.more_from is not None:
        yield Paragraph(f"loops: {loops_text(remedy.more_from)}", "warning")
    numbers = remedy.numbers
    text, tone = numbers_text(numbers)
    yield Paragraph(f"numbers: {text}", tone)
    if numbers.inputs is not None:
        yield Paragraph(f"inputs: {inputs_text(numbers.inputs)}", "muted")


def _refused_text(refused: NotTaken) -> str:
    figures = ""
    if refused.after is not None:
        figures = f" (sends {size(refused.after.sent)}, needs {size(refused.after.total)})"
    why = why_not_text(refused.why, refused.detail)
    return f"not taken: {edits_text(refused.edits)}: {why}{figures}"


def footer(fix: Fix, *, everything: bool = False, applied: bool = False) -> Iterator[Paragraph]:
    """What else there is."""
    if applied:
        yield Paragraph("applied: the patch is written into the source", "good")
    more = len(fix.remedies) - 1
    if more > 0 and not everything:
        for number, other in enumerate(fix.remedies[1:], 2):
            total = "" if other.after.total is None else f", needs {size(other.after.total)}"
            yield Paragraph(
                f"other remedy {number}: {edits_text(other.edits)}: sends {size(other.after.sent)}"
                f"{total}",
            )
        yield Paragraph("--all shows their patches", "muted")
    # Edits that differ only in a column, or in how the source writes them, read alike.
    refused = [*dict.fromkeys(map(_refused_text, fix.not_taken))]
    for text in refused if everything else refused[:_NOT_TAKEN]:
        yield Paragraph(text, "muted")
    if not everything and len(refused) > _NOT_TAKEN:
        yield Paragraph(f"--all lists {len(refused) - _NOT_TAKEN:,} more", "muted")
    for text in remark_texts(fix.notes):
        yield Paragraph(text, "muted")
