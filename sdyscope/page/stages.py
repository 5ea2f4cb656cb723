"""The five stages of one program, with a verdict on each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sdyscope.analysis.collectives.comms import CommsDocument
from sdyscope.analysis.memory.memory import MemoryDocument
from sdyscope.analysis.propagation.propagate import PropagateDocument
from sdyscope.analysis.run.values import Run
from sdyscope.analysis.show import ShownProgram
from sdyscope.facts.measured import Measured
from sdyscope.facts.program import Partitioner
from sdyscope.facts.remarks import Remark
from sdyscope.values.source import PathWords
from sdyscope.words.account import NOT_IN_TEXT
from sdyscope.words.counts import bound_text, counted, listed, size
from sdyscope.words.findings import Check
from sdyscope.words.hardware import hardware_text
from sdyscope.words.partitioners import partitioner_name
from sdyscope.words.profile import steps_text
from sdyscope.words.remarks import remark_text
from sdyscope.words.run import compared_with

StageName: TypeAlias = Literal["requested", "lowered", "propagated", "compiled", "executed"]

State: TypeAlias = Literal["good", "warning", "bad", "unknown"]
"""``good``: nothing to say against it; ``warning``: worth a look; ``bad``: not what was asked for;
``unknown``: not computed."""


@dataclass(frozen=True, slots=True)
class UnavailableStage:
    """A part of the inspection that is not there.

    Attributes:
        stage: the stage that could not be computed, or was not asked for.
        partitioner: under which; null for all.
        asked: whether it was asked for, and failed.
        reason: why it is not there, in a sentence.
    """

    stage: StageName
    partitioner: Partitioner | None
    asked: bool
    reason: PathWords


@dataclass(frozen=True, slots=True)
class Stage:
    """What there is to say about one stage.

    Attributes:
        name: which.
        state: good, warning, bad, or unknown where it was not computed.
        verdict: in a few words.
        words: in a sentence or two.
    """

    name: StageName
    state: State
    verdict: str
    words: str


def stages(
    shown: ShownProgram | None,
    checked: Check | None,
    decided: PropagateDocument | None,
    held: MemoryDocument | None,
    sent: CommsDocument | None,
    ran: Run | None,
    timed: Measured | None,
    missing: Sequence[UnavailableStage],
) -> tuple[Stage, ...]:
    """The five, in order.

    Args:
        shown: the tensors; None for a compiled program's text.
        checked: what `check` found; None likewise.
        decided: every value after propagation, if it was propagated.
        held: what a device holds, if it was compiled.
        sent: what a device sends, likewise.
        ran: what it did on devices, if it was run.
        timed: what a trace measured of it, if one was given.
        missing: what is not there.
    """
    return (
        _not_in_text("requested") if shown is None else _requested(shown),
        _not_in_text("lowered") if checked is None else _lowered(checked, missing),
        _not_in_text("propagated") if shown is None else _propagated(decided, missing),
        _compiled(held, sent, missing),
        _executed(ran, timed, missing, runs=shown is not None and shown.is_authored),
    )


def _not_in_text(name: StageName) -> Stage:
    return Stage(name, "unknown", "not known", NOT_IN_TEXT)


def _requested(shown: ShownProgram) -> Stage:
    if not shown.is_authored:
        return Stage("requested", "unknown", "not known", remark_text(Remark("request unknown")))
    asked = [tensor for tensor in shown.tensors if tensor.by_author]
    named = [tensor for tensor in asked if tensor.requested is not None]
    free = len(asked) - len(named)
    kinds = Counter(tensor.kind for tensor in named)
    if not named:
        words = f"No sharding is requested: {counted(free, 'tensor is', 'tensors are')} left to "
        return Stage("requested", "unknown", "nothing", f"{words}the compiler.")
    words = listed([counted(number, kind) for kind, number in kinds.items()])
    left = f" {counted(free, 'tensor is', 'tensors are')} left to the compiler." if free else ""
    return Stage(
        "requested",
        "good",
        counted(len(named), "sharding"),
        f"Shardings are requested for {words}.{left}",
    )


def _lowered(checked: Check, missing: Sequence[UnavailableStage]) -> Stage:
    under = listed([partitioner_name(partitioner) for partitioner in checked.partitioners])
    failed = [part for part in missing if part.stage == "lowered"]
    refused = "".join(
        f" Nothing under {partitioner_name(part.partitioner)}: {_first(part.reason)}"
        for part in failed
    )
    wrong = checked.compared - checked.agreed
    errors = sum(finding.severity == "error" for finding in checked.findings)
    warnings = sum(finding.severity == "warning" for finding in checked.findings)
    if not checked.compared:
        words = f"{counted(checked.tensors, 'tensor')} for {under}.{refused}"
        if errors:
            return Stage("lowered", "bad", counted(errors, "error"), words)
        return Stage("lowered", "good", "readable", words)
    words = (
        f"{counted(checked.compared, 'comparison')} of a request with the module of {under}: "
        + (f"{counted(wrong, 'disagrees', 'disagree')}." if wrong else "all agree.")
        + (f" {counted(warnings, 'warning')}." if warnings else "")
        + refused
    )
    if wrong or errors:
        return Stage("lowered", "bad", f"{wrong:,} disagree" if wrong else "errors", words)
    if warnings or failed:
        return Stage("lowered", "warning", "all agree", words)
    return Stage("lowered", "good", "all agree", words)


def _propagated(decided: PropagateDocument | None, missing: Sequence[UnavailableStage]) -> Stage:
    if decided is None:
        return _unknown("propagated", missing)
    values = decided.values
    compared, different = decided.compared, decided.differing
    wrong = sum(not all(value.as_requested.values()) for value in values)
    parts = [counted(sum(value.kind != "shard_map input" for value in values), "value")]
    steps = max(propagation.step_count for propagation in decided.propagations)
    if steps:
        parts.append(f"{counted(steps, 'step')} of Shardy")
    words = ", ".join(parts) + "."
    if compared:
        words += (
            f" Shardy and GSPMD shard {different:,} of {len(compared):,} differently."
            if different
            else f" Shardy and GSPMD agree on all {len(compared):,} that both have."
        )
    if wrong:
        words += f" {counted(wrong, 'is', 'are')} not sharded as requested."
    for propagation in decided.propagations:
        if propagation.exactness != "exact":
            words += f" What {partitioner_name(propagation.partitioner)} decided is approximate."
    words += "".join(
        f" Nothing under {partitioner_name(failure.partitioner)}: {_first(failure.reason)}"
        for failure in decided.failures
    )
    if wrong:
        return Stage("propagated", "bad", f"{wrong:,} not as requested", words)
    if different:
        return Stage("propagated", "warning", counted(different, "differs", "differ"), words)
    return Stage("propagated", "good", "agreed" if compared else "decided", words)


def _compiled(
    held: MemoryDocument | None, sent: CommsDocument | None, missing: Sequence[UnavailableStage]
) -> Stage:
    if held is None:
        return _unknown("compiled", missing)
    needs = [
        (partitioner_name(memory.partitioner), size(memory.compiler.total))
        for memory in held.compiled
        if memory.compiler is not None
    ]
    sends = [
        (
            partitioner_name(program.partitioner),
            counted(program.total.count, "collective that sends", "collectives that send")
            + f" {bound_text(at_least=program.at_least, at_most=program.at_most)}"
            + size(program.total.sent)
            if program.total.count
            else "no collectives",
        )
        for program in (sent.programs if sent is not None else ())
    ]
    first = held.compiled[0]
    on = hardware_text(first.hardware, first.device_kind)
    parts = ["The text does not say for what." if first.is_text else f"Compiled for {on}."]
    if needs:
        parts.append(f"A device needs {_each(needs)}.")
    if sends:
        parts.append(f"A step has {_each(sends)}.")
    parts += [
        f"Nothing under {partitioner_name(partitioner)}: {_first(reason)}"
        for partitioner, reason in held.account.refused.items()
    ]
    remade = sum(len(program.rematerializations) for program in (sent.programs if sent else ()))
    if remade:
        parts.append(f"{counted(remade, 'resharding')} by making a tensor whole on every device.")
    words = " ".join(parts)
    if not held.passed:
        return Stage("compiled", "warning", "with findings", words)
    if remade or held.account.refused:
        return Stage("compiled", "warning", "compiled", words)
    return Stage("compiled", "good", "compiled", words)


def _executed(
    ran: Run | None, timed: Measured | None, missing: Sequence[UnavailableStage], *, runs: bool
) -> Stage:
    measured = "" if timed is None else f"By a trace, {steps_text(timed)}."
    if ran is None:
        if any(part.stage == "executed" for part in missing):
            return _unknown("executed", missing)
        words = "--run executes it and checks every shard and number."
        if not runs:
            words = "A file has no input values: run the program that it is of."
        verdict = "measured" if measured else "not run"
        return Stage("executed", "unknown", verdict, f"{measured} {words}".strip())
    machine = ran.machine
    virtual = "virtual " if machine.virtual else ""
    devices = counted(len(machine.devices), f"{virtual}{machine.platform.upper()} device")
    hosts = {process.host for process in ran.processes}
    together = f" of {len(ran.processes)} processes on {counted(len(hosts), 'host')}"
    parts = [f"Run on {devices}{together if hosts else ''}."]
    done = [execution for execution in ran.partitioners if execution.ran]
    for execution in ran.partitioners:
        if not execution.ran:
            parts.append(
                f"Not under {partitioner_name(execution.partitioner)}: {_first(execution.failure)}"
            )
    if done:
        shards = sum(execution.shards for execution in done)
        wrong = sum(execution.differing for execution in done)
        results = [error for execution in done for error in execution.errors]
        close = sum(error.within for error in results)
        parts.append(
            f"{counted(shards, 'shard')} compared"
            + (f", {counted(wrong, 'tensor')} elsewhere." if wrong else ", all in their places.")
        )
        if results:
            of = f"{close:,} of {counted(len(results), 'result')}"
            verb = "agrees" if close == len(results) == 1 else "agree"
            parts.append(f"Compared with {compared_with(ran.reference)}: {of} {verb}.")
    parts += [measured] if measured else []
    state: State = "good" if ran.passed else "bad"
    return Stage("executed", state, "as placed" if ran.passed else "with findings", " ".join(parts))


def _unknown(name: StageName, missing: Sequence[UnavailableStage]) -> Stage:
    reasons = [part for part in missing if part.stage == name]
    failed = any(reason.asked for reason in reasons)
    words = " ".join(dict.fromkeys(_first(reason.reason) for reason in reasons))
    return Stage(name, "bad" if failed else "unknown", "failed" if failed else "not done", words)


def _each(said: Sequence[tuple[str, str]]) -> str:
    """What is said of each partitioner; once where it is the same of all."""
    if len({words for _, words in said}) == 1:
        return said[0][1]
    return listed([f"{words} under {partitioner_name(partitioner)}" for partitioner, words in said])


def _first(reason: str) -> str:
    """What went wrong, without what to do about it."""
    return reason.partition("\n")[0]
