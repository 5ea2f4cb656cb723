"""Counts, sizes and lists as they stand in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final


def counted(count: int, singular: str, many: str = "") -> str:
    """`1 value`, `1,234 values`.

    Args:
        count: how many.
        singular: what one of them is called.
        many: what several are; by default with an s.
    """
    return f"{count:,} {singular if count == 1 else many or f'{singular}s'}"


def listed(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`; nothing of none."""
    *most, last = words or ("",)
    return f"{', '.join(most)} and {last}" if most else last


def few(words: Sequence[str], most: int) -> str:
    """The first of some words, and how many more there are: `a, b and 1,234 more`."""
    more = len(words) - most
    return ", ".join(words[:most]) + (f" and {more:,} more" if more > 0 else "")


def idle_text(loops: int, branches: int) -> str:
    """`1 loop and 2 branches`, of what did not run; nothing of none."""
    parts = ((loops, "loop", "loops"), (branches, "branch", "branches"))
    return listed([counted(count, *words) for count, *words in parts if count])


def sentence(clause: str) -> str:
    """A clause as a sentence of its own, with a capital and a full stop."""
    return f"{clause[:1].upper()}{clause[1:]}."


def times_text(times: int, *, unknown: bool = False) -> str:
    """``3 times per step``; of what is in a loop of unknown length, that it is unknown."""
    return "an unknown number of times" if unknown else f"{times:,} times per step"


def from_cache(cached: int, times: int) -> str:
    """How many compiles JAX only read from its cache on disk; nothing of none."""
    of = {cached: "all ", 1: ""}.get(times, f"{cached:,} of them ")
    return f", {of}read from JAX's compilation cache" if cached else ""


def bound_text(*, loops: bool, at_most: bool) -> str:
    """What stands before a number of bytes that is a bound; nothing where it is none.

    Args:
        loops: whether some of it counts once, and may run more often, or not at all.
        at_most: whether some of it may be less.
    """
    return "at most " if at_most and not loops else ""


#: What a number is of, where loops of unknown trip count may run never or often.
WITH_LOOPS_ONCE: Final = " with loops of unknown trip count run once"


def percent(part: float, whole: float) -> str:
    """`12%`, `<1%`, `>99%`; a dash of nothing."""
    if not whole:
        return "-"
    share = 100 * part / whole
    if part < whole and share >= 99.5:
        return ">99%"
    return f"{share:.0f}%" if share >= 0.5 or not part else "<1%"


def size(count: int | float | None) -> str:
    """A number of bytes in binary units: `512 B`, `1.5 MiB`; a dash for None."""
    if count is None:
        return "-"
    if abs(count) < 1024:
        return f"{count:g} B"
    value = float(count)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        value /= 1024
        # 1023.95 would be shown as 1024.0
        if abs(value) < 1023.95:
            return f"{value:.1f} {unit}"
    return f"{value / 1024:.1f} PiB"
