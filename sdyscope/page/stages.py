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
from sdyscope.facts.account import Stage as StageName
from sdyscope.facts.measured import Measured
from sdyscope.facts.program import Partitioner
from sdyscope.values.source import PathWords
from sdyscope.words.counts import bound_text
from sdyscope.words.findings import Check
from sdyscope.words.hardware import hardware_text
from sdyscope.words.profile import traced_sentence
from sdyscope.words.run import compared_with
from sdyscope.words.stages import (
    NOT_THERE,
    REQUEST_UNKNOWN,
    compiled_said,
    executed_said,
    lowered_said,
    not_run_said,
    propagated_said,
    requested_said,
    unknown_said,
)

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
    not_there = Stage("propagated", "unknown", *NOT_THERE)
    return (
        _requested(shown),
        _lowered(checked, missing),
        not_there if shown is None else _propagated(decided, missing),
        _compiled(held, sent, missing),
        _executed(ran, timed, missing, runs=shown is not None and shown.is_authored),
    )


def _requested(shown: ShownProgram | None) -> Stage:
    if shown is None or not shown.is_authored:
        return Stage("requested", "unknown", *(NOT_THERE if shown is None else REQUEST_UNKNOWN))
    asked = [tensor for tensor in shown.tensors if tensor.by_author]
    named: Counter[str] = Counter(tensor.kind for tensor in asked if tensor.requested is not None)
    free = len(asked) - named.total()
    return Stage("requested", "good" if named else "unknown", *requested_said(named, free))


def _lowered(checked: Check | None, missing: Sequence[UnavailableStage]) -> Stage:
    if checked is None:
        return Stage("lowered", "unknown", *NOT_THERE)
    refused = [(part.partitioner, part.reason) for part in missing if part.stage == "lowered"]
    wrong = checked.compared - checked.agreed
    errors = sum(finding.severity == "error" for finding in checked.findings)
    warnings = sum(finding.severity == "warning" for finding in checked.findings)
    state: State = "good"
    if wrong or errors:
        state = "bad"
    elif checked.compared and (warnings or refused):
        state = "warning"
    said = lowered_said(
        checked.partitioners,
        refused,
        tensors=checked.tensors,
        compared=checked.compared,
        wrong=wrong,
        errors=errors,
        warnings=warnings,
    )
    return Stage("lowered", state, *said)


def _propagated(decided: PropagateDocument | None, missing: Sequence[UnavailableStage]) -> Stage:
    if decided is None:
        return _unknown("propagated", missing)
    known = decided.propagations
    wrong = sum(value.disagrees for value in decided.values)
    said = propagated_said(
        [each.partitioner for each in known if each.exactness != "exact"],
        [(failure.partitioner, failure.reason) for failure in decided.failures],
        values=sum(value.kind != "shard_map input" for value in decided.values),
        steps=max(propagation.step_count for propagation in known),
        compared=len(decided.compared),
        different=decided.differing,
        wrong=wrong,
    )
    return Stage(
        "propagated", "bad" if wrong else "warning" if decided.differing else "good", *said
    )


def _compiled(
    held: MemoryDocument | None, sent: CommsDocument | None, missing: Sequence[UnavailableStage]
) -> Stage:
    if held is None:
        return _unknown("compiled", missing)
    programs = () if sent is None else sent.programs
    remade = sum(len(program.rematerializations) for program in programs)
    first, refused = held.compiled[0], held.account.refused
    said = compiled_said(
        hardware_text(first.hardware, first.device_kind),
        [
            (memory.partitioner, memory.compiler.total)
            for memory in held.compiled
            if memory.compiler is not None
        ],
        [
            (
                program.partitioner,
                program.total.count,
                program.counted_once,
                bound_text(loops=program.counted_once, at_most=program.at_most),
                program.total.sent,
            )
            for program in programs
        ],
        refused.items(),
        remade=remade,
        passed=held.passed,
    )
    is_good = held.passed and not (remade or refused)
    return Stage("compiled", "good" if is_good else "warning", *said)


def _executed(
    ran: Run | None, timed: Measured | None, missing: Sequence[UnavailableStage], *, runs: bool
) -> Stage:
    measured = "" if timed is None else traced_sentence(timed)
    if ran is None:
        if any(part.stage == "executed" for part in missing):
            return _unknown("executed", missing)
        verdict, words = not_run_said(is_measured=timed is not None, can_run=runs)
        return Stage("executed", "unknown", verdict, f"{measured} {words}".strip())
    machine = ran.machine
    done = [execution for execution in ran.partitioners if execution.ran]
    results = [error for execution in done for error in execution.errors]
    verdict, words = executed_said(
        len(machine.devices),
        f"{'virtual ' if machine.virtual else ''}{machine.platform.upper()}",
        len(ran.processes),
        len({process.host for process in ran.processes}),
        [(each.partitioner, each.failure) for each in ran.partitioners if not each.ran],
        compared=(
            sum(execution.shards for execution in done),
            sum(execution.differing for execution in done),
        )
        if done
        else None,
        results=(sum(error.within for error in results), len(results)),
        reference=compared_with(ran.reference),
        passed=ran.passed,
    )
    return Stage(
        "executed", "good" if ran.passed else "bad", verdict, f"{words} {measured}".strip()
    )


def _unknown(name: StageName, missing: Sequence[UnavailableStage]) -> Stage:
    reasons = [part for part in missing if part.stage == name]
    failed = any(reason.asked for reason in reasons)
    said = unknown_said((reason.reason for reason in reasons), failed=failed)
    return Stage(name, "bad" if failed else "unknown", *said)
