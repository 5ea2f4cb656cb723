"""What a notebook shows of a value, drawn by whoever registers a formatter.

Jupyter, VS Code, Colab and marimo ask an object for ``_repr_html_``. Values are known to the room
that draws them and not the other way round: ``sdyscope`` registers that room when it is imported,
and it is loaded when a value is first shown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Formatter: TypeAlias = Callable[[object], str | None]
"""HTML for a value; None where there is nothing better than its text."""

_formatter: Formatter | None = None


def register(formatter: Formatter) -> None:
    """Shows values with this formatter, in place of any before."""
    global _formatter
    _formatter = formatter


class Displayed:
    """A value that a notebook shows as HTML when it is the last thing in a cell."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        return None if _formatter is None else _formatter(self)
