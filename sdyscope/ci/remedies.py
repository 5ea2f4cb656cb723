"""Remedies of `fix`, as the forms of `ci` carry them."""

from __future__ import annotations

from sdyscope.analysis.fix.values import Fix, Remedy
from sdyscope.ci.document import CiChange, CiRemedy
from sdyscope.patches.diff import relative, replacements
from sdyscope.views.fix import proof
from sdyscope.words.edits import edits_text, gain_text


def remedy_of(fix: Fix, remedy: Remedy, root: str) -> CiRemedy:
    """A remedy in words, with its edits by file.

    Args:
        fix: what was found.
        remedy: one of its remedies.
        root: the folder that files are named from.
    """
    before, after = fix.before, remedy.after
    return CiRemedy(
        edits_text(remedy.edits),
        gain_text(
            (before.sent, after.sent),
            (before.total, after.total),
            after.count,
            proven=remedy.proven,
        ),
        tuple(paragraph.text for paragraph in proof(fix, remedy)),
        remedy.proven,
        remedy.patch,
        tuple(
            CiChange(relative(file, root), replacements(remedy.before_texts[file], text))
            for file, text in sorted(remedy.texts.items())
            if text != remedy.before_texts[file]
        ),
    )
