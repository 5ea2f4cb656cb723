"""The account of what is not known, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from sdyscope.facts.account import Account, Reason, Unknown, UnknownKind, Why
from sdyscope.words.partitioners import partitioner_name, partitioner_names
from sdyscope.words.places import shown_name, source_text
from sdyscope.words.remarks import remark_text

#: Why nothing is known of the compiled stage where nobody asked for it.
NO_COMPILE: Final = "Left out by --no-compile."

#: Why nothing is known of what is compiled where it was not, a clause.
NOT_COMPILED: Final = "the program was not compiled"

#: Why nothing is known of the stages before the compiled one.
NOT_IN_TEXT: Final = "It is not in the text of a compiled program."


def account_title(account: Account, of: str = "") -> str:
    """``not known (2)``, ``not known of before.mlir (2)``."""
    return f"not known{' of ' if of else ''}{of} ({sum(account.counts.values()):,})"


def account_lines(account: Account, most: int | None = None) -> Iterator[str]:
    """A line for each thing that is not known.

    Args:
        account: the account.
        most: how many lines at most, one more saying how many are left out; None for all.
    """
    shown = account.unknowns if most is None else account.unknowns[:most]
    yield from map(unknown_text, shown)
    rest = account.unknowns[len(shown) :]
    if rest:
        yield f"and {sum(unknown.count for unknown in rest):,} more"


def account_text(account: Account) -> str:
    """The account on one line: the first thing, and how many more; empty where all is known."""
    return f"{account_title(account)}: {'; '.join(account_lines(account, 1))}" if account else ""


def unknown_text(unknown: Unknown) -> str:
    """One thing that is not known, as one sentence without a full stop.

    ``argument main(0) at line 2: {devices=[3]<=[8} could not be read: unexpected '}'``.
    """
    about = " ".join(filter(None, (unknown.subject, shown_name(unknown.name, ""))))
    line = source_text(unknown.source)
    where = f"{about} at {line}" if about and line else about or line
    under = partitioner_names(unknown.partitioners)
    label = f"{where} under {under}" if where and under else where or under
    if unknown.count > 1:
        label = f"{label} (×{unknown.count:,})".lstrip()
    sentence = unknown_clause(unknown)
    return f"{label}: {sentence}" if label else sentence


def unknown_clause(unknown: Unknown) -> str:
    """The same without what it is about: ``{devices=[3]<=[8} could not be read: ...``."""
    reason = reason_text(unknown.reason).rstrip(".")
    if unknown.kind in ("not understood", "impossible"):
        return unplaced_clause(
            unknown.text or "it", reason, is_unreadable=unknown.kind == "not understood"
        )
    return _CLAUSES[unknown.kind].format(stage=unknown.stage, reason=reason)


def unplaced_clause(sharding: str, reason: str, *, is_unreadable: bool) -> str:
    """``{devices=[3]<=[3]} gives no placement: it is over 3 devices, not 8``, named once."""
    what = "could not be read" if is_unreadable else "gives no placement"
    if reason.startswith(f"{sharding} "):
        reason = f"it {reason.removeprefix(f'{sharding} ')}"
    return f"{sharding} {what}: {reason}"


def reason_text(reason: Reason) -> str:
    """Why something is not known, a clause; a compiler's or reader's own words as they are."""
    if isinstance(reason, str):
        return reason
    if isinstance(reason, Why):
        return _REASONS[reason]
    return remark_text(reason).rstrip(".")


_REASONS: Final[Mapping[Why, str]] = {
    Why.NOT_ALIGNED: "not in the module where JAX lowers it",
    Why.OTHER_TYPES: "its results have other types in the partitioner's module",
    Why.UNKNOWN_TRIPS: "collectives in loops of unknown trip count count once (+)",
    Why.IN_BRANCHES: "collectives in branches count as if always taken (?)",
    Why.RAGGED: "sizes of a ragged all-to-all are data: its bytes are an upper bound (≤)",
    Why.FURTHER_LINES: "further lines of the HLO",
}


_CLAUSES: Final[Mapping[UnknownKind, str]] = {
    "refused": "not {stage}: {reason}",
    "left out": "left out: {reason}",
    "approximate": "approximate, as {stage}: {reason}",
    "not compared": "not compared: {reason}",
}


def unavailable_text(stage: str, partitioner: str | None, reason: str) -> str:
    """`not compiled under GSPMD: it needs libtpu.`, of a stage that could not be looked at."""
    if reason == NOT_IN_TEXT:
        return f"the {stage} stage is not in the text of a compiled program"
    under = f" under {partitioner_name(partitioner)}" if partitioner else ""
    return f"not {stage}{under}: {reason}"
