"""What makes a form: of the document, for a reader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from sdyscope.ci.document import Ci


@dataclass(frozen=True, slots=True)
class Reader:
    """For whom a form is, and how much of what was found is wanted.

    Attributes:
        notes: whether notes are wanted, too.
        budgets: whether what of each budget is used is listed.
        terminal: whether it is a person's terminal.
        columns: the width to keep to; None for as wide as it needs.
        encoding: of text that goes to a stream.
    """

    notes: bool = False
    budgets: bool = False
    terminal: bool = False
    columns: int | None = None
    encoding: str = "utf-8"


class Renderer(Protocol):
    """Makes one form of what was found."""

    def __call__(self, document: Ci, reader: Reader) -> bytes:
        """The form, as it is written to a file or a stream."""
