"""The partitioners' names, and what a device sends and needs under each, in a sentence."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence

from sdyscope.facts.compiled import MemoryAnalysis
from sdyscope.words.counts import WITH_LOOPS_ONCE, size
from sdyscope.words.memory import PARTS


def sent_clause(*, some_idle: bool) -> str:
    """What the bytes are that a device sends.

    Args:
        some_idle: whether some are permutations in which a device sends or receives nothing, as
            those of a pipeline's ends.
    """
    if some_idle:
        return (
            "sent: bytes a device sends per step, counted by ring algorithms, not measured; in "
            "some collective-permutes a device sends or receives nothing"
        )
    return (
        "sent: bytes each device sends per step (it receives as many), counted by ring "
        "algorithms, not measured"
    )


def partitioner_name(partitioner: str | None) -> str:
    """``Shardy``; empty for None."""
    return {"shardy": "Shardy", "gspmd": "GSPMD"}.get(partitioner or "", partitioner or "")


def partitioner_names(partitioners: Iterable[str | None]) -> str:
    """``Shardy and GSPMD``; None is left out."""
    return " and ".join(filter(None, map(partitioner_name, partitioners)))


def ops_title(partitioner: str) -> str:
    """What the number of a module's ops is called."""
    return f"ops for {partitioner_name(partitioner)}"


def propagation_title(partitioner: str) -> str:
    """Whose propagation something is said of."""
    return f"{partitioner_name(partitioner)}'s propagation"


def module_text(name: str, partitioner: str | None) -> str:
    """``jit_step for Shardy``; of a module that is for none, whose program it is.

    Args:
        name: the module's.
        partitioner: None for what one device runs, of a compiled program's text.
    """
    if partitioner is None:
        return f"{name}, the compiled program of one device"
    return f"{name} for {partitioner_name(partitioner)}"


def sends_sentence(
    sent: Sequence[tuple[str | None, int]], bound: str = "", *, loops: bool = False
) -> str:
    """What a device sends in a step.

    Args:
        sent: bytes under each partitioner.
        bound: ``at most``, where they are a bound; see ``counts.bound_text``.
        loops: whether some are in loops of unknown trip count, and count once.
    """
    words = _sends_clause(sent, bound)
    return f"{words}{WITH_LOOPS_ONCE * (loops and any(bytes_ for _, bytes_ in sent))}."


def _sends_clause(sent: Sequence[tuple[str | None, int]], bound: str) -> str:
    (less, few), (more, many) = _ends(sent)
    if not many:
        return "A device sends nothing"
    if few == many:
        both = " under both" if len(sent) > 1 else ""
        return f"A device sends {bound}{size(many)} per step{both}"
    if not few:
        return f"Under {more} a device sends {bound}{size(many)} per step; under {less} nothing"
    if _is_alike(few, many):
        return f"A device sends {bound}{size(many)} per step under {more}, {size(few)} under {less}"
    return (
        f"Under {more} a device sends {many / few:.1f} times the bytes: {bound}{size(many)} per "
        f"step, not {size(few)}"
    )


def picture_title(name: str) -> str:
    """What a picture of what a program sends is called."""
    return f"{name}: what a device sends in a step"


def picture_basis(compiled: str) -> str:
    """What its bars are, and of what they are counted.

    Args:
        compiled: for what the program was compiled, in words; empty where nobody says.
    """
    of = f" that is {compiled}" if compiled else ""
    return f"by kind of collective, and in how many; counted from the program{of}"


def stored_sentence(stored: int) -> str:
    """What a device holds of arguments and results, where no more than that is known."""
    return f"A device holds {size(stored)} of arguments and results."


def needs_sentence(needed: Sequence[tuple[str | None, MemoryAnalysis]]) -> str:
    """What a device needs, and of what it needs more.

    Args:
        needed: what the compiler counts under each partitioner, as far as it says.
    """
    if not needed:
        return "The compiler does not say what a device needs."
    (less, few), (more, many) = _ends(
        [(partitioner, memory.total) for partitioner, memory in needed]
    )
    if few == many:
        return f"A device needs {size(many)}{' under both' if len(needed) > 1 else ''}."
    if not few or _is_alike(few, many):
        return f"A device needs {size(many)} under {more}, {size(few)} under {less}."
    least, most = sorted((memory for _, memory in needed), key=lambda memory: memory.total)
    part = most.largest_growth(least)
    return (
        f"Under {more} a device needs {many / few:.1f} times the memory: {size(many)}, not "
        f"{size(few)}; {PARTS[part]} take {size(most.part(part))}, not {size(least.part(part))}."
    )


def _ends(figures: Sequence[tuple[str | None, int]]) -> tuple[tuple[str, int], tuple[str, int]]:
    """The partitioner with the least and the one with the most."""
    named = [(partitioner_name(partitioner), bytes_) for partitioner, bytes_ in figures]
    named.sort(key=operator.itemgetter(1))
    return named[0], named[-1]


def _is_alike(few: int, many: int) -> bool:
    """Whether a factor would read as 1.0."""
    return many < 1.05 * few
