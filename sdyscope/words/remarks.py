"""What else is worth knowing of an answer, in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from sdyscope.facts.remarks import PropagationSource, Remark, RemarkKind, ShardyProcess
from sdyscope.words.counts import counted, sentence

__all__ = [
    "propagation_source_clause",
    "propagation_source_text",
    "remark_text",
    "remark_texts",
]

_PROCESS: Final[Mapping[ShardyProcess, str]] = {
    "ended": "The process for Shardy ends",
    "killed": "Shardy is killed",
    "crashed": "Shardy crashes",
    "not started": "The process for Shardy can't start",
    "failed": "Shardy fails",
}

_REMARKS: Final[Mapping[RemarkKind, str]] = {
    "conservative": "Conservative propagation is not what XLA runs.",
    "both partitioners": (
        "The module has annotations of both partitioners, and XLA may fall back to GSPMD."
    ),
    "simplified for TPU": (
        "XLA for TPU simplifies the module before propagation; sdyscope does not."
    ),
    "not compared": "With JAX {said} this was not compared with XLA's own dump.",
    "priorities lost": (
        "Priorities apply here; the XLA of this JAX loses them before it propagates."
    ),
    "inlined": "XLA does not accept sdy.named_computation: their ops were inlined.",
    "not imported": (
        "{said} Shardy ran on the ops in JAX's order instead; XLA may decide differently."
    ),
    "another JAX propagated": "{said} lowered it, and {names} propagated it.",
    "another JAX compiled": "{said} lowered it, and this JAX compiled it.",
    "simplified before": (
        "This is what XLA's CPU compiler propagates; that of {said} may simplify the program first."
    ),
    "several calls": (
        "Values of functions that are called several times, sharded differently at different "
        "calls: {count}; the first call's sharding is shown."
    ),
    "several uses": (
        "Values from constants that the partitioner's module has several times, once for each "
        "use: {count}; the first one's sharding is shown."
    ),
    "never called": "Values in functions that are never called: {count}.",
    "decided otherwise": (
        "When it records where axes come from, Shardy decides differently for {count:,} of "
        "{of:,} ops; their origins are not known."
    ),
    "unread origins": "{origins} could not be read, and {are} left out: {first}.",
    "no origins": (
        "{process} when it records where axes come from; they are followed along its steps instead."
    ),
    "no steps": ("{process} when it records its steps; where axes come from is not known here."),
    "no rule": "Shardy has no rule for these, so no collective is predicted: {names}.",
    "unknown calls": "What these custom calls send is not known, and not counted: {names}.",
    "no bytes": "Values of these types count as 0 bytes: {names}.",
    "not told": "The run's own compile did not record the op of each instruction.",
    "not asked for": "They were not requested.",
    "no mesh": "No mesh is known whose axes could have one.",
    "not propagated": "It can't be propagated: {said}",
    "estimate": (
        "An estimate from models of the hardware and published peak figures, not a measurement; a "
        "real step takes longer."
    ),
    "JAX's own": "{said}: {count} of JAX's own functions were left out; --all compares them.",
    "no choice": "{arguments} can only stay as {they} {are}: no axis divides {them}.",
    "constraints stay": "{constraints} inside the program {stay} as written.",
    "too many devices": (
        "XLA partitions and compiles for at most {count:,} CPU devices: --on names the hardware to "
        "compile for."
    ),
    "not partitioned": "XLA does not partition the program as it is: {said}",
    "not compiled": "The program as it is can't be compiled: {said}",
    "refused": "The compiler refuses it: {said}",
    "over the limit": "Including what else the compiler needs, it exceeds the limit.",
    "costs no less": "Compiled, it costs no less than the program as it is.",
}

#: How many origins that could not be read are named.
_NAMED: Final = 3


def remark_text(remark: Remark | str) -> str:
    """One remark, a sentence; a compiler's or reader's own words as they are."""
    if isinstance(remark, str):
        return remark
    if remark.kind == "unread line":
        return _unread_line(remark.count, remark.said)
    count = remark.count
    one = count == 1
    first = ", ".join(name for name, _ in remark.names[:_NAMED])
    process = "" if remark.process is None else f"{_PROCESS[remark.process]} ({remark.said})"
    return _REMARKS[remark.kind].format(
        said=remark.said,
        count=count,
        of=remark.of,
        process=process,
        names=", ".join(f"{name} ({times:,})" if times else name for name, times in remark.names),
        first=first + (", ..." if len(remark.names) > _NAMED else ""),
        origins=counted(count, "origin"),
        arguments="1 of the arguments" if one else f"{count} of the arguments",
        constraints=counted(count, "constraint"),
        are="is" if one else "are",
        they="it" if one else "they",
        them="it" if one else "them",
        stay="stays" if one else "stay",
    )


def _unread_line(number: int, error: str) -> str:
    """What there is to say of a line: what its reader says, else that it is none of the HLO."""
    if not number:
        return error or "it is not a known op"
    return f"line {number}{f': {error}' if error else ' of the HLO'}"


def remark_texts(remarks: Iterable[Remark | str]) -> tuple[str, ...]:
    """Remarks as sentences, one each."""
    return tuple(map(remark_text, remarks))


def propagation_source_clause(source: PropagationSource) -> str:
    """What a propagation was taken from, to go on a sentence with; without the name of a dump."""
    match source.kind:
        case "passes":
            return f"Shardy's passes of JAX {source.jax}, run in this process"
        case "dump":
            return f"XLA's dump of a compile for {source.devices} CPU devices"
        case "lowered module":
            return "the lowered module"


def propagation_source_text(source: PropagationSource) -> str:
    """The same in full: with the name of the dump, or why nothing was propagated."""
    text = propagation_source_clause(source)
    if source.kind == "lowered module":
        return f"{sentence(text).rstrip('.')}: for one partition XLA does not propagate."
    return f"{text}: {source.dump}" if source.dump else f"{text}."
