"""What `ci` finds beside the commands that it runs: golden files, ignores, what is not known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

from sdyscope.facts.account import Unknown
from sdyscope.facts.snapshots import Item
from sdyscope.words.account import unknown_clause
from sdyscope.words.counts import counted, sentence
from sdyscope.words.findings import Finding
from sdyscope.words.partitioners import partitioner_name
from sdyscope.words.snapshots import (
    differing_texts,
    header_text,
    snapshot_name,
    uncompared_parts_text,
)

#: What each rule finds that is CI's alone.
RULES: Final[Mapping[str, str]] = {
    "snapshot-changed": "A tensor or collective differs from the golden file.",
    "snapshot-removed": "The golden file has something that the program does not have.",
    "snapshot-added": "The program has something that the golden file does not have.",
    "snapshot-missing": "The golden file does not have the program.",
    "snapshot-older": "The golden file is of an older version: not all of it is compared.",
    "snapshot-unused": "The golden file has a program that is not a target.",
    "over-communication": "A step communicates more than its budget allows.",
    "over-replication": "A device holds more replicated bytes than its budget allows.",
    "over-memory": "A device needs more memory than its budget allows.",
    "budget-uncertain": "A budget could not be counted with certainty.",
    "not-known": "Something of the program is not known: not understood, impossible, refused, left "
    "out, approximate or not compared.",
    "unused-ignore": "An ignored finding does not occur.",
}

#: What a remedy in SARIF is.
REMEDY: Final = "An edit of the source that makes a step send or hold less."

#: What the budgets of a target are counted for.
BUDGETS: Final = "budgets, for each device and step"

_UPDATE: Final = (
    "If this is intended, write it with sdyscope ci --update and have the file reviewed."
)

_CHANGES: Final[Mapping[str, str]] = {
    "changed": "It differs from the snapshot.",
    "removed": "The snapshot has it, and the program does not.",
    "added": "The program has it, and the snapshot does not.",
}


def missing_program(program: str, file: str) -> Finding:
    """A golden file lacks a program."""
    return Finding(
        "snapshot-missing",
        "error",
        f"{file} does not have this program.",
        tensor=program,
        kind="program",
        hint="Write it with sdyscope ci --update, and commit the file.",
    )


def unused_program(program: str, file: str) -> Finding:
    """A golden file has a program that is no target."""
    return Finding(
        "snapshot-unused",
        "warning",
        f"{file} has a program that is not a target.",
        tensor=program,
        kind="program",
        hint="Take it out with sdyscope ci --update --remove-unused.",
    )


def other_header(word: str, before: str, after: str, blocks: str = "") -> Finding:
    """What is said of the whole program differs.

    Args:
        word: what: ``mesh``, ``partitioners``, ``stages`` or ``hardware``.
        before: in the golden file.
        after: now.
        blocks: what another mesh makes of the tensors, as ``blocks_text`` says it.
    """
    another = "another" if word == "mesh" else "other"
    return Finding(
        "snapshot-changed",
        "error",
        " ".join(filter(None, (f"The program has {another} {word} than its snapshot.", blocks))),
        kind=word,
        expected=header_text(word, before),
        found=header_text(word, after),
        hint=_UPDATE,
    )


def blocks_text(
    totals: Iterable[tuple[str, str | None, int, int]],
    tensors: int,
    named: Iterable[tuple[str, int, str, Sequence[int], Sequence[int]]],
) -> str:
    """What another mesh makes of the tensors, in a few words.

    Args:
        totals: of each kind of tensor and partitioner the bytes a device had, and has.
        tensors: how many are in other blocks.
        named: name of some, how many others are like it, its type, and its block before and now.
    """
    if not tensors:
        return "All known tensors are in the same blocks."
    texts = []
    for kind, partitioner, had, has in totals:
        under = f" under {partitioner_name(partitioner)}" if partitioner else ""
        texts.append(f"all {kind}s{under}: {had:,} -> {has:,} bytes")
    for name, others, type_, before, after in named:
        more = f" and {others:,} more" if others else ""
        was, now = (",".join(map(str, block)) for block in (before, after))
        texts.append(f"{name}{more} {type_}: [{was}] -> [{now}]")
    return f"A device has other blocks of {counted(tensors, 'tensor')}; {'; '.join(texts)}."


def older_file(not_compared: Sequence[str]) -> Finding:
    """A golden file is of an older version, which lacks some parts."""
    return Finding(
        "snapshot-older",
        "warning",
        sentence(uncompared_parts_text(not_compared)),
        kind="program",
        hint="sdyscope ci --update adds it.",
    )


def golden_change(
    what: Literal["changed", "removed", "added"],
    kind: str,
    name: str,
    over: str,
    types: tuple[str, str],
    before: Sequence[Item],
    after: Sequence[Item],
) -> Finding:
    """A tensor or group of collectives differs from the golden file.

    Args:
        what: whether both have it, or only the file (``removed``), or only the program.
        kind: what it is.
        name: its name, as the file writes it.
        over: of a collective what is done over which axes; else empty.
        types: its type in the file, and now.
        before: what the file says.
        after: what is so now.
    """
    was, now = differing_texts(before, after)
    type_ = " -> ".join(dict.fromkeys(types))
    words = (f"{over} in" if over else "", snapshot_name(name), type_)
    return Finding(
        f"snapshot-{what}",
        "error",
        _CHANGES[what],
        tensor=" ".join(filter(None, words)),
        kind=kind,
        expected=was,
        found=now,
        hint=_UPDATE,
    )


def not_known(unknown: Unknown, *, strict: bool) -> Finding:
    """Something of the program is not known."""
    return Finding(
        "not-known",
        "warning" if strict else "note",
        sentence(unknown_clause(unknown)),
        tensor=unknown.name,
        kind=unknown.subject or unknown.stage,
        source=unknown.source,
        partitioner=unknown.partitioners[0] if len(unknown.partitioners) == 1 else None,
    )


def unused_ignore(rule: str, tensors: str, *, is_known: bool, close: str = "") -> Finding:
    """What is ignored was not found.

    Args:
        rule: the rule that is ignored.
        tensors: of which tensors, a glob.
        is_known: whether there is such a rule.
        close: the name of one that is like it; empty for none.
    """
    what = f"{rule} of {tensors}"
    return Finding(
        "unused-ignore",
        "warning",
        f"No finding matches this ignore: {what}."
        if is_known
        else f"There is no rule {rule!r}, so this ignores nothing.",
        tensor=what,
        kind="ignore",
        hint=f"Did you mean {close!r}?" if close else "Take it out.",
    )


def other_jax_text(wanted: Sequence[str], jax: str) -> str:
    """Why a target is not looked at with this JAX."""
    return f"It is for JAX {' and '.join(wanted)}, and this is {jax}."
