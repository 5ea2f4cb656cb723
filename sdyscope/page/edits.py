"""The edits that matter: what `fix` proved, for the overview and for Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sdyscope.analysis.fix.values import Fix, Remedy
from sdyscope.words.counts import sentence, size
from sdyscope.words.edits import (
    FIGURES,
    edit_text,
    loops_text,
    numbers_text,
    remedy_title,
    tried_text,
)
from sdyscope.words.places import source_text
from sdyscope.words.rates import time_text
from sdyscope.words.tone import Tone


@dataclass(frozen=True, slots=True)
class Edit:
    """One remedy.

    Attributes:
        title: what it is worth, and whether it is proven.
        changes: each edit, and its line; empty where it has none.
        figures: what a device sends, holds and takes: a name, the figure now and then.
        proof: how it is known that the numbers stay, and from where on it sends more.
        tone: how that is to be taken.
        patch: the edit as a unified diff.
    """

    title: str
    changes: tuple[tuple[str, str], ...]
    figures: tuple[tuple[str, str, str], ...]
    proof: str
    tone: Tone
    patch: str


@dataclass(frozen=True, slots=True)
class EditsPart:
    """What was looked for, and the remedies.

    Attributes:
        words: what came of it, a sentence.
        remedies: the remedies, the best first.
    """

    words: str
    remedies: tuple[Edit, ...]


def edits(fix: Fix) -> EditsPart:
    """The remedies of a program: those that are proven, or where none is, the others."""
    remedies = fix.proven or fix.remedies
    words = tried_text(fix.tried, fix.compiled, fix.hardware if remedies else None)
    return EditsPart(
        words, tuple(_edit(fix, number, each) for number, each in enumerate(remedies, 1))
    )


def _edit(fix: Fix, number: int, remedy: Remedy) -> Edit:
    proof, tone = numbers_text(remedy.numbers)
    words = [proof]
    if remedy.more_from is not None:
        words.append(loops_text(remedy.more_from))
    return Edit(
        remedy_title(number, remedy.verdict, proven=remedy.proven),
        tuple((edit_text(edit), source_text(edit.source)) for edit in remedy.edits),
        tuple(_figures(fix, remedy)),
        " ".join(map(sentence, words)),
        tone,
        remedy.patch,
    )


def _figures(fix: Fix, remedy: Remedy) -> Iterator[tuple[str, str, str]]:
    before, after = fix.before, remedy.after
    yield FIGURES["sent"], size(before.sent), size(after.sent)
    yield FIGURES["count"], f"{before.count:,}", f"{after.count:,}"
    if before.total is not None and after.total is not None:
        yield FIGURES["total"], size(before.total), size(after.total)
    if before.seconds is not None and after.seconds is not None:
        yield FIGURES["seconds"], time_text(before.seconds), time_text(after.seconds)
