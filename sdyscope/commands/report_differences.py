"""`sdyscope report A B`: a page of what two programs, kinds of hardware or snapshots differ in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sdyscope.commands import opening, snapshot_diff
from sdyscope.facts.program import Partitioner

if TYPE_CHECKING:
    from sdyscope.hardware.names import Hardware
    from sdyscope.inspection import Inspection
    from sdyscope.page.document import Report


def of_snapshots(first: str, second: str | None) -> bytes | None:
    """The page of two snapshot files; None where neither is one.

    Raises:
        SdyscopeError: only one of them is a snapshot, or one is damaged.
    """
    from sdyscope.page import page as report_page

    difference = snapshot_diff.between(first, second, at="lowered")
    if difference is None or second is None:
        return None
    return report_page.snapshots_page(difference, (first, second)).encode()


def page(
    target: opening.Opening,
    second: str | None,
    *,
    partitioners: Sequence[Partitioner],
    on: Sequence[Hardware],
    compiled: bool,
    source_text: bool,
    editor: str | None,
    folder: str | None,
) -> tuple[bytes, tuple[Report, Report]]:
    """The page of two targets, or of one on two kinds of hardware.

    Args:
        target: the first.
        second: the word of the other; None for the same.
        partitioners: which to lower under.
        on: what to compile for; two for each its own.
        compiled: whether to compile.
        source_text: whether the text of the author's files may be in it.
        editor: the address that opens a line; None for the usual one.
        folder: the path from the page's folder to the one that its files are named from.

    Returns:
        The page, and the documents of both sides.

    Raises:
        SdyscopeError: one of them can't be opened or lowered.
    """
    from sdyscope.page import document as report
    from sdyscope.page import page as report_page
    from sdyscope.process import progress
    from sdyscope.words.account import NO_COMPILE

    def opened(word: str) -> Inspection:
        read = opening.Opening(word, module=target.module)
        built = opening.Opening(word, target.mesh, target.settings)
        opened = (read if opening.is_read(word) else built).opened(partitioners)
        return opening.single(opened.with_mesh(target.mesh))

    inspection = opened(target.word)
    two = None if second is None else opened(second)
    other = on[1] if len(on) > 1 else None
    what = (on[0] if on else None) if compiled else NO_COMPILE

    def side(program: Inspection, word: str, hardware: Hardware | None) -> Report:
        return report.document(
            program,
            word,
            on=hardware,
            compiled=compiled,
            source_text=source_text,
            notify=progress.step,
        )

    first_on = on[0] if on else None
    sides = (
        side(inspection, target.word, first_on),
        side(two or inspection, second or target.word, other or first_on),
    )
    page = report_page.differences_page(
        inspection,
        two,
        what,
        other,
        sides=sides,
        editor=editor or report_page.EDITOR,
        folder=folder,
    )
    return page.encode(), sides
