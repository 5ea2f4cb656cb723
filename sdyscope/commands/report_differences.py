"""`sdyscope report A B`: a page of what two programs differ in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sdyscope.commands import opening
from sdyscope.program import Partitioner

if TYPE_CHECKING:
    from sdyscope.hardware import Hardware
    from sdyscope.inspection import Inspection


def page(
    words: tuple[str, str],
    *,
    mesh: dict[str, int] | None,
    settings: dict[str, str],
    partitioners: Sequence[Partitioner],
    module: str | None,
    on: Hardware | None,
    compiled: bool,
) -> bytes:
    """The page.

    Args:
      words: the two TARGETs.
      mesh: axes of the mesh, for programs.
      settings: settings of reference models.
      partitioners: which to lower under.
      module: which module of a directory.
      on: what to compile for.
      compiled: whether to compile.

    Raises:
      SdyscopeError: one of them can't be opened or lowered.
    """
    from sdyscope.views import report_page

    def opened(word: str) -> Inspection:
        if opening.is_read(word):
            return opening.open_one(word, partitioners=partitioners, module=module)
        return opening.open_one(word, mesh=mesh, settings=settings, partitioners=partitioners)

    why = "It was not compiled, as asked: without --no-compile it is."
    one, two = map(opened, words)
    return report_page.differences_page(one, two, on if compiled else why).encode()
