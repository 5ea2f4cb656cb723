"""What two sides of a comparison do differently, and what follows from it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sdyscope.words.counts import counted, size

__all__ = ["across_text", "behind_text", "extent_text", "follows_text", "inputs_text"]


def across_text(across: str, label: str) -> str:
    """`under gspmd`, `on tpu:v5e:2x4`, `in after.mlir`: a side of a comparison across these."""
    return {"partitioners": "under", "hardware": "on"}.get(across, "in") + f" {label}"


#: How many annotations a sentence names.
_NAMED = 3


def behind_text(where: str, annotations: Sequence[str]) -> str:
    """Which annotations the collectives of one side come from, by the bytes sent for each."""
    left = len(annotations) - _NAMED
    more = f" and {left:,} more" if left > 0 else ""
    return f"annotations behind it {where}: {', '.join(annotations[:_NAMED])}{more}"


def inputs_text(inputs: Iterable[tuple[str, str]]) -> str:
    """What a value that differs is computed from; empty where that is nothing.

    Args:
        inputs: names and shardings, which both sides have alike.
    """
    sources = "; ".join(f"{name} {sharding}" for name, sharding in inputs)
    return f"computed from what is alike: {sources}" if sources else ""


def extent_text(values: int, whole: int, held: tuple[int, int], where: tuple[str, str]) -> str:
    """How many values differ from a place on, and how many bytes they take.

    Args:
        values: how many, the first included.
        whole: bytes of all these tensors.
        held: bytes of them that a device holds on each side.
        where: what to call each side: `under shardy`.
    """
    sides = ", ".join(f"{size(bytes_)} {side}" for bytes_, side in zip(held, where, strict=True))
    taken = f"{size(whole)}, of which a device holds {sides}"
    if values == 1:
        return taken
    follow = counted(values - 1, "more value follows", "more values follow")
    return f"{follow} from it; all {values:,} take {taken}"


def follows_text(values: int, differences: int, sent: int, where: str) -> str:
    """What of the collectives follows from a place where shardings begin to differ.

    Args:
        values: how many values are sharded differently from there on; 0 where it is a constraint.
        differences: how many differences of collectives follow.
        sent: how many more bytes the second side sends for them.
        where: what to call the second side: `under gspmd`.
    """
    verb = "follows" if differences == 1 else "follow"
    change = f"{size(abs(sent))} {'more' if sent > 0 else 'less'} sent {where}"
    text = f"{counted(differences, 'difference')} of collectives {verb}: "
    text += change if sent else "as much is sent"
    if not values:
        return text
    are = counted(values, "value is", "values are")
    return f"{are} sharded differently from here on, and {text}"
