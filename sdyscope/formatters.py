"""What is shown of a value: its `repr`, its document, and what a notebook draws by a formatter.

Jupyter, VS Code, Colab and marimo ask an object for ``_repr_html_``. Values are known to the room
that draws them and not the other way round: ``sdyscope`` registers that room when it is imported,
and it is loaded when a value is first shown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from reprlib import Repr
from typing import Any, TypeAlias

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


def in_place(**written: tuple[str, ...]) -> Mapping[str, tuple[str, ...]]:
    """A `__document__`: the fields of the dataclass, but that some have others in their place.

    Args:
        written: by field what a document has in its place, itself perhaps, and properties; nothing
            of one that it does not have.
    """
    return written


_short = Repr()
_short.maxstring = _short.maxother = 60


class Summarized:
    """A dataclass that holds too much to print: its `repr` says how much.

    What is in it in full is printed field by field, or by the command's `--json`.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        shown = (f"{name}={_summary(getattr(self, name))}" for name in _printed(type(self)))
        return f"{type(self).__name__}({', '.join(shown)})"


def _printed(kind: type[Any]) -> list[str]:
    return [field.name for field in fields(kind) if field.repr]


def _summary(value: object) -> str:
    if isinstance(value, Summarized):
        return f"<{type(value).__name__}>"
    if isinstance(value, Collection) and not isinstance(value, str):
        return f"<{len(value)}>" if value else repr(value)
    return _short.repr(value)
