"""What was found, in sentences: the one writer of findings that analysis yields as facts."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from sdyscope.annotations import CONSTANT
from sdyscope.facts import findings as facts
from sdyscope.facts.account import Account
from sdyscope.facts.execution import Extent, Process
from sdyscope.facts.findings import Observation, Severity
from sdyscope.facts.program import Partitioner
from sdyscope.values.placement import Digits
from sdyscope.values.sharding import NamedSharding
from sdyscope.values.source import SourceLocation
from sdyscope.words.account import unplaced_clause
from sdyscope.words.counts import counted, few, idle_text, listed, sentence, size
from sdyscope.words.lint import Said, lint_said
from sdyscope.words.memory import part_text
from sdyscope.words.mesh import axis_text, mesh_text
from sdyscope.words.origins import annotation_text
from sdyscope.words.partitioners import partitioner_name, partitioner_names
from sdyscope.words.places import shown_name, source_text
from sdyscope.words.remarks import remark_text
from sdyscope.words.run import REORDERED_HINT, counterpart_text, inside_text, regrouped_hint
from sdyscope.words.sharding import LEFT, dims_text, manual_text, named_text, open_text, placed_text
from sdyscope.words.types import type_text


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found, in words.

    Attributes:
        rule: stable name of the rule: `lowered-differs`.
        severity: `error`: the compiler was told something else than was asked for, or numbers are
            wrong; `warning`: it costs more than it should, or may be another thing than was meant;
            `note`: worth knowing.
        message: one sentence.
        tensor: path or scope of the tensor; empty for what is about the whole module.
        kind: what the tensor is; empty likewise.
        source: line of user code, where there is one.
        partitioner: whose module it is about; null for all.
        expected: what was asked for, in words; empty where the message says it all.
        found: what is there, in words; empty likewise.
        hint: what to do; empty where there is nothing to say.
    """

    rule: str
    severity: Severity
    message: str
    tensor: str = ""
    kind: str = ""
    source: SourceLocation | None = None
    partitioner: Partitioner | None = None
    expected: str = ""
    found: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What `check` found: the document of `sdyscope check --json`.

    Attributes:
        schema: name and version of this form.
        name: the program's name, or the module's.
        passed: whether there is nothing worse than a note.
        partitioners: whose modules were compared.
        tensors: how many tensors were looked at.
        compared: how many comparisons of a request with a module were made.
        agreed: how many of those agree.
        findings: what was found, errors first.
        account: what is not known of the program, at the stages that were looked at.
    """

    schema: Literal["sdyscope.check/2"] = "sdyscope.check/2"
    name: str
    passed: bool
    partitioners: tuple[Partitioner, ...]
    tensors: int
    compared: int
    agreed: int
    findings: tuple[Finding, ...]
    account: Account


def rules_text(chosen: int, not_run: Collection[str]) -> str:
    """`51 rules`, `3 of 51 rules`.

    Args:
        chosen: how many were chosen.
        not_run: names of those that could not be run.
    """
    run = chosen - len(not_run)
    return ("" if run == chosen else f"{run:,} of ") + counted(chosen, "rule")


def check_summary(check: Check) -> str:
    """`mlp: 44 comparisons under Shardy and GSPMD, all agree`."""
    under = partitioner_names(check.partitioners)
    if not check.compared:
        if check.passed:
            return (
                f"{check.name}: nothing to compare, because a module does not say what was "
                f"requested; {counted(check.tensors, 'tensor')} under {under} can be read"
            )
        return f"{check.name}: {counted(check.tensors, 'tensor')} for {under}, with findings"
    start = f"{check.name}: {counted(check.compared, 'comparison')} under {under}"
    wrong = check.compared - check.agreed
    if wrong:
        return f"{start}, {wrong:,} {'disagrees' if wrong == 1 else 'disagree'}"
    worse = [finding for finding in check.findings if finding.severity != "note"]
    return f"{start}, all agree" + (f"; {counted(len(worse), 'other finding')}" if worse else "")


def finding_of(observation: Observation) -> Finding:
    """What was found, in words."""
    words = _words(observation.fact)
    budget = observation.budget
    return Finding(
        observation.rule,
        observation.severity,
        words.message,
        observation.tensor if budget is None else budget_text(budget),
        observation.kind if budget is None else "budget",
        observation.source,
        observation.partitioner,
        words.expected,
        words.found,
        words.hint,
    )


def observed(finding: Finding) -> Observation:
    """A finding that was read back, as what was found."""
    return Observation(
        finding.rule,
        finding.severity,
        facts.ReadBack(finding.message, finding.expected, finding.found, finding.hint),
        finding.tensor,
        finding.kind,
        finding.source,
        finding.partitioner,
    )


def budget_text(budget: facts.BudgetSubject) -> str:
    """What a budget is about: `all-gather over model`, `replicated params*`, `memory`."""
    match budget.what:
        case "collectives":
            over = f" over {budget.axis}" if budget.axis else ""
            return f"{budget.collective or 'collectives'}{over}"
        case "unlisted":
            return "unlisted communication"
        case "replicated":
            return f"replicated {budget.tensors}" if budget.tensors != "*" else "replicated"
        case "total":
            return "memory"
    return budget.what


def subject_text(finding: Finding) -> str:
    """`constraint layer0 at models/mlp.py:98 under GSPMD [lowered-differs]`."""
    name = shown_name(finding.tensor, "")
    # JAX's names of results begin with that word, and a constant's says what it is.
    kind = "" if finding.kind == "result" or finding.tensor == CONSTANT else finding.kind
    parts = [f"{kind} {name}".strip() or finding.kind or "the module"]
    if finding.source is not None:
        parts.append(f"at {source_text(finding.source)}")
    if finding.partitioner is not None:
        parts.append(f"under {partitioner_name(finding.partitioner)}")
    return f"{' '.join(parts)} [{finding.rule}]"


#: How many tensors, or places, a finding names.
_NAMED: Final = 3

#: What differs in what is said of two tensors alike: their paths, and numbers.
_VARYING: Final = re.compile(r"[A-Za-z_]\w*(?:\[[^\]]*\]|\.\w+)+|\d[\d,]*")


def folded(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Findings; those that say the same of several tensors as one, which names them."""
    groups: dict[object, list[Finding]] = {}
    for finding in findings:
        said = (finding.message, finding.expected, finding.found, finding.hint)
        key = (
            replace(finding, tensor="", message="", expected="", found="", hint=""),
            finding.tensor if finding.kind not in ("argument", "result") else "",
            *(_VARYING.sub("#", text) for text in said),
        )
        groups.setdefault(key, []).append(finding)
    for first, *rest in groups.values():
        if not rest:
            yield first
            continue
        names = list(
            dict.fromkeys(finding.tensor for finding in rest if finding.tensor != first.tensor)
        )
        alike = f" Likewise: {few(names, _NAMED)}." if names else f" Likewise {len(rest):,} more."
        yield replace(first, message=first.message + alike)


def _words(fact: facts.Fact) -> Said:
    if isinstance(fact, facts.ReadBack):
        return Said(fact.message, fact.expected, fact.found, fact.hint)
    if isinstance(fact, facts.ModuleFact):
        return _module(fact)
    if isinstance(fact, facts.TensorFact):
        return _tensor(fact)
    if isinstance(fact, facts.MemoryFact):
        return _memory(fact)
    if isinstance(fact, facts.ExecutionFact):
        return _executed(fact)
    if isinstance(fact, facts.OverBudget):
        return _over_budget(fact)
    if isinstance(fact, facts.BudgetDoubt):
        return _uncertain(fact)
    return lint_said(fact)


# --- Modules and tensors, by check ----------------------------------------------------------------


def _module(fact: facts.ModuleFact) -> Said:
    match fact:
        case facts.NothingLowered(partitioner, reason, hint):
            under = partitioner_name(partitioner)
            return Said(f"There is nothing to compare under {under}: {reason}", hint=hint)
        case facts.MixedAttributes():
            return Said(
                "The module has annotations of both partitioners; up to JAX 0.10 Shardy then falls "
                "back to GSPMD without an error.",
                hint="Find what was lowered without Shardy: an exported function, a custom call.",
            )
        case facts.SilentFallback(asked, written_for):
            return Said(
                f"{partitioner_name(asked)} was requested, but the module is lowered for "
                f"{partitioner_name(written_for)}.",
                hint="Look for jax_use_shardy_partitioner being set by the program.",
            )
        case facts.UnreadAttribute(attribute, text, reason):
            what = attribute or "A piece of the module"
            return Said(f"{what} could not be read: {reason}", found=text)


def _tensor(fact: facts.TensorFact) -> Said:
    match fact:
        case facts.NotAligned():
            return Said(
                "The module does not have it where JAX lowers it, so it could not be compared.",
                hint="Please report this with the program: every constraint should be found.",
            )
        case facts.NoPlacement(sharding, reason):
            written = "It" if sharding is None else str(sharding)
            clause = unplaced_clause(
                written, reason.rstrip("."), is_unreadable=isinstance(sharding, str)
            )
            is_in_module = sharding is not None and not isinstance(sharding, NamedSharding)
            return Said(f"{clause}.", found=written if is_in_module else "")
        case facts.OtherType(given, lowered):
            types = [type_text(sharded.shape, sharded.dtype) for sharded in (lowered, given)]
            return Said(f"It is {types[0]} in the module but was given as {types[1]}.")
        case facts.NotRequested(lowered):
            return Said(
                "No sharding was requested here; JAX wrote one, as it does for Explicit axes.",
                LEFT,
                open_text(lowered),
            )
        case facts.ShardingDropped(requested):
            message = "A sharding was requested, but the module has none."
            return Said(message, placed_text(requested), LEFT)
        case facts.OtherPlacement(requested, lowered):
            message = "The module's sharding is not the one requested."
            return Said(message, placed_text(requested), open_text(lowered))
        case facts.PinnedAxes(axes, requested, lowered):
            pinned = ", ".join(map(axis_text, axes))
            message = f"The module forbids axes that the request leaves free: {pinned}."
            return Said(message, placed_text(requested), lowered.text)
        case facts.OtherPriorities(priorities, requested, lowered):
            message = "The module gives dimensions a priority that was not requested."
            wanted = f", priorities {list(priorities)}" if any(priorities) else ""
            return Said(message, placed_text(requested) + wanted, lowered.text)
        case facts.DroppedAxes(sizes, sharding, lowered):
            left_out = ", ".join(f"{name} (size {size})" for name, size in sizes)
            message = f"JAX leaves out {left_out}, which makes no difference to the placement."
            return Said(message, str(sharding), lowered.text)
        case facts.OtherOpenDims(sharding, asked, lowered):
            ours, theirs = dims_text(asked), dims_text(lowered.open_dims)
            return Said(
                f"The request leaves {ours} open, and the module {theirs}.",
                f"{sharding} with {ours} open",
                f"{lowered.text} with {theirs} open",
            )
        case facts.OtherManualAxes():
            return Said(
                "The body is manual over other axes than requested."
                if fact.is_boundary
                else "It is manual over other axes than the enclosing shard_map.",
                _manual(fact, fact.asked),
                _manual(fact, fact.found),
            )
        case facts.OtherPartitioner(first, of_first, second, of_second):
            return Said(
                f"{first} and {second} get different shardings.",
                f"{first}: {open_text(of_first)}",
                f"{second}: {open_text(of_second)}",
            )
        case facts.ArgumentDropped():
            return Said(
                "The program does not use it, so jit drops it and the module has no such argument."
            )
        case facts.RequestNote(remark):
            return Said(remark_text(remark))
        case facts.NotDivisible(dim, size, blocks, padding, requested):
            return Said(
                f"Dimension {dim} of size {size} does not divide into {blocks}: blocks of "
                f"{-(-size // blocks)} with {padding} padded, or not split at all: the compiler "
                "decides.",
                placed_text(requested),
                hint=f"Make the size a multiple of {blocks}, or shard the dimension less.",
            )


def _manual(fact: facts.OtherManualAxes, digits: Digits) -> str:
    return manual_text(digits, fact.num_devices, fact.mesh) if digits else "no manual axes"


# --- Memory ---------------------------------------------------------------------------------------

#: How many tensors a finding about memory names.
_TENSORS = 3


def _memory(fact: facts.MemoryFact) -> Said:
    match fact:
        case facts.OtherBytes(tensors, ours, compiled):
            named = f" ({', '.join(tensors[:_TENSORS])})" if tensors else ""
            return Said(
                f"Bytes computed from the shardings disagree with the compiler's{named}.",
                f"{ours:,} bytes of arguments",
                f"{compiled:,} bytes of arguments",
                "sdyscope check compares what was requested with what was lowered.",
            )
        case facts.DonationUnused():
            reason, hint = _why_unused(fact)
            return Said(
                f"It is donated, but its {size(fact.bytes)} per device are not reused: {reason}.",
                hint=hint,
            )
        case facts.DonationDropped():
            return Said(
                "It is donated, but the program does not use it: jit drops it, and its buffer "
                "is freed unused.",
                hint="Do not pass it.",
            )


def _why_unused(fact: facts.DonationUnused) -> tuple[str, str]:
    type_ = type_text(fact.shape, fact.dtype)
    results = fact.results
    names = ", ".join(result.name for result in results[:_TENSORS])
    match fact.why:
        case "no type":
            return f"no result is {type_}", "Do not donate it, or return its next value."
        case "placed otherwise":
            there = ", ".join(
                f"{result.name} is {_stored(result)}" for result in results[:_TENSORS]
            )
            return (
                f"no {type_} result has its placement, {_stored(fact.argument)}: {there}",
                "Give the result the argument's sharding (out_shardings, or a constraint).",
            )
        case "taken":
            count = "the only result" if len(results) == 1 else f"all {len(results)} results"
            words = f"{count} of its shape and placement, {names}, took another argument's buffer"
            if not fact.takers:
                return words, "Do not donate it."
            named = [taker.name for taker in fact.takers[:_TENSORS]]
            more = len(fact.takers) - len(named)
            takers = listed([*named, f"{more} more"] if more else named)
            return (
                f"{words}; {takers} {'are' if fact.takers[1:] else 'is'} reused for a result of "
                "another shape or sharding",
                f"Return the next value of {takers} with the sharding that it is donated with "
                "(out_shardings, or a constraint).",
            )
        case "not taken":
            return f"the compiler did not reuse it for {names}", ""


def _stored(stored: facts.Stored) -> str:
    return (
        f"in blocks of {type_text(stored.block)}"
        if stored.sharding is None
        else named_text(stored.sharding, len(stored.block))
    )


# --- Execution ------------------------------------------------------------------------------------

#: How many results a finding names.
_RESULTS = 6


def _depends_on_mesh(fact: facts.DependsOnMesh) -> Said:
    others = fact.results - 1
    differ = "differs" if others == 1 else "differ"
    more = f", and {counted(others, 'more result')} {differ}" if others else ""
    what = counterpart_text(fact)
    inside = inside_text(fact.inside)
    inside = f" {inside}" if inside else ""
    where = "" if fact.mesh is None else f"On {mesh_text(fact.mesh.shape)}, "
    what_the_step = "what the step" if where else "What the step"
    changed = f"{what_the_step} changes in " if fact.by_change else ""
    if fact.ratio is not None:
        axes = " and ".join(fact.axes)
        return Said(
            f"{where}{changed}{fact.result} is {fact.ratio:g} times {what}{more}"
            + (f": the size of {axes}." if axes else ".")
            + inside,
            hint="Look for a second sum over the axis: with check_vma, shard_map already sums "
            "the gradient of a replicated value."
            if axes
            else "",
        )
    first = None if fact.inside is None else fact.inside.first
    if first is not None and first.regrouped is not None:
        hint = regrouped_hint(first.regrouped)
    elif first is not None and first.reordered:
        hint = REORDERED_HINT
    elif fact.function:
        hint = ""
    else:
        hint = (
            "A shard_map's result depends on how its operands are split. If it should not, "
            "compare with a function without it: run --reference FILE:function."
        )
    return Said(
        f"{where}{changed}{fact.result} is not {what}{more}: the error is {fact.error:.2g} of its "
        f"norm.{inside}",
        hint=hint,
    )


def _executed(fact: facts.ExecutionFact) -> Said:
    match fact:
        case facts.NotExecuted(partitioner, is_refused, reason, hint):
            what = "There is nothing to run" if is_refused else "It does not run"
            return Said(f"{what} under {partitioner_name(partitioner)}: {reason}", hint=hint)
        case facts.NoReference(reason):
            return Said(f"The results are not compared with the same step on one device: {reason}")
        case facts.NotFinite(elements, of, results):
            others = f" and some of {counted(results, 'other result')}" if results else ""
            verb = "is" if elements == 1 and not results else "are"
            rest = "" if elements == of and not results else "; errors are of finite elements alone"
            return Said(
                f"{elements:,} of {counted(of, 'element')}{others} {verb} NaN or infinite, also on "
                f"one device{rest}.",
                hint="jax_debug_nans finds the op; Program(inputs=...) gives it other values.",
            )
        case facts.NothingTold(zero, unchanged, noise):
            said = []
            if zero:
                verb, they = ("is", "it is") if len(zero) == 1 else ("are", "they are")
                said.append(
                    f"{few(zero, _RESULTS)} {verb} zero everywhere, also on one device: that says "
                    f"nothing of how {they} computed."
                )
            if unchanged:
                verb = "is its argument" if len(unchanged) == 1 else "are their arguments"
                said.append(
                    f"{few(unchanged, _RESULTS)} {verb} up to rounding: an error in what the step "
                    "changes would not show."
                )
            if noise:
                verb, they = ("is", "it") if len(noise) == 1 else ("are", "them")
                said.append(
                    f"{few(noise, _RESULTS)} {verb} rounding noise: rounding the arguments "
                    f"otherwise changes {they}, or a few elements, as much on one device."
                )
            return Said(
                " ".join(said),
                hint="Program(inputs=...) gives it other values; gradients that are returned are "
                "compared as well.",
            )
        case facts.NeverRan(loops, branches, is_known):
            verb = "is" if loops + branches == 1 else "are"
            run = f"{verb} not known to have run"
            run = "did not run on these values" if is_known else run
            it, each = ("it", "that") if loops + branches == 1 else ("them", "each")
            idle = sentence(f"{idle_text(loops, branches)} {run}")
            return Said(
                f"{idle} What is in {it} is not compared.",
                hint=f"Program(inputs=...) gives the program values on which {each} runs.",
            )
        case facts.NotOnMesh(mesh, reason):
            return Said(f"It is not compared on {mesh_text(mesh.shape)}: {reason}.")
        case facts.DependsOnMesh():
            return _depends_on_mesh(fact)
        case facts.OtherBlocks():
            return Said(
                f"{fact.devices} of {fact.of} devices hold a different block than {fact.stage}: "
                f"{_difference(fact)}.",
                placed_text(fact.expected),
                "" if fact.found is None else placed_text(fact.found),
                "Please report this with the program: JAX's runtime and its own IR disagree.",
            )
        case facts.UnequalReplicas():
            return Said(
                f"{fact.devices} of {fact.of} devices hold a different value than the first device "
                f"that has the same block: {holder_text(fact.holder)} and "
                f"{holder_text(fact.first)} by {fact.error:.2g} of "
                f"{'the norm of what the step changes in it' if fact.by_change else 'its norm'}.",
                "the same value in every replica",
                hint="Rounding explains the difference."
                if fact.is_rounding
                else "Look for a shard_map output that is not reduced over an axis that its spec "
                "leaves out.",
            )
        case facts.OtherNumbers():
            return _numbers(fact)
        case facts.OtherTraining():
            return Said(
                f"In step {fact.step} of {fact.steps} it is {fact.value:.7g}, and "
                f"{fact.expected:.7g} on one device: off by {fact.error:.1e}, more than the "
                f"{fact.tolerance:.1e} that rounding explains.",
                hint="Compare one step first: `sdyscope run` without --train names the first "
                "inner value that differs.",
            )
        case facts.NotTrained(where, reason):
            under = "on one device" if where is None else f"under {partitioner_name(where)}"
            return Said(f"The steps of training were not all run {under}: {reason}")


def _difference(fact: facts.OtherBlocks) -> str:
    asked = "nothing" if fact.asked is None else index_text(fact.asked)
    real = index_text(fact.block)
    if fact.buffer != tuple(stop - start for start, stop in fact.block):
        real += f" in a buffer of {list(fact.buffer)}"
    return f"{holder_text(fact.holder)} has {real}, not {asked}"


def index_text(index: Sequence[Extent]) -> str:
    """`[0:4, 8:16]`."""
    return f"[{', '.join(f'{start}:{stop}' for start, stop in index)}]"


def holder_text(holder: facts.Holder) -> str:
    """`device 5 (process 1 on node7)`; `device 5` for one process alone."""
    owner = "" if holder.process is None else f" ({_process(holder.process)})"
    return f"device {holder.device}{owner}"


def _process(process: Process) -> str:
    return f"process {process.number} on {process.host}"


def _numbers(fact: facts.OtherNumbers) -> Said:
    place = ""
    whose = fact.function or "one device"
    if fact.where is not None:
        here, there = fact.pair or ("another value", "its own")
        place = f": {here} where {whose} has {there}, at {list(fact.where)}"
    if fact.holder is not None:
        place += f" on {holder_text(fact.holder)}"
    change = "What the step changes in it" if fact.by_change else "It"
    message = f"{change} is not what {whose} computes."
    if fact.others:
        wrong = 1 + len(fact.others)
        message = (
            f"{wrong} of {fact.results} results are not what {whose} computes, this one by "
            f"most, then {few(fact.others, _RESULTS - 1)}."
        )
    hint = "Look for an axis that is never reduced, or a shard_map that assumes its size."
    if fact.only is not None:
        message += f" Of {fact.worst} only what {_process(fact.only)} holds is wrong."
        hint = "Look for what differs there: a device, a driver, a package, what a callback reads."
    if fact.is_random:
        hint = "Random numbers may depend on the sharding: see the note above."
    if inside := inside_text(fact.inside):
        message += f" {inside}"
        hint = "" if fact.function else hint
    if fact.inside is not None and fact.inside.first is not None and fact.inside.first.reordered:
        hint = REORDERED_HINT
    of_what = " of the change" if fact.by_change else ""
    allowed = f"an error of at most {fact.tolerance:.2g}{of_what} ({fact.coarsest})"
    return Said(
        message,
        allowed if fact.coarsest else "exactly equal",
        f"an error of {fact.error:.2g}{of_what}{place}",
        hint,
    )


# --- Budgets --------------------------------------------------------------------------------------
_LIMITS: Final[Mapping[facts.MemoryLimit, str]] = {
    "arguments": " of arguments",
    "temporaries": " of temporaries",
    "total": "",
}


def _over_budget(fact: facts.OverBudget) -> Said:
    message, uses, see = _spent(fact)
    counts_ops = isinstance(fact, facts.OverCommunication) and fact.unit == "collectives"
    return Said(
        f"{message}; {fact.allowed:,} are allowed.",
        f"at most {fact.allowed:,} {'in a step' if counts_ops else 'bytes'}",
        "; ".join(uses),
        f"If this is intended, allow more; sdyscope {see}.",
    )


def _spent(fact: facts.OverBudget) -> tuple[str, list[str], str]:
    """How much is used, for what, and which command says more."""
    match fact:
        case facts.OverCommunication("bytes", used, _, amounts):
            message = f"A device sends {used:,} bytes in a step"
            return message, _amounts(amounts, "bytes"), "comms lists every collective"
        case facts.OverCommunication(_, used, _, amounts):
            message = f"A step runs {used:,} of them"
            return message, _amounts(amounts, "times"), "comms lists every collective"
        case facts.OverReplication(used, _, tensors):
            uses = [
                f"{bytes_:,} bytes: {name}, {counted(replicas, 'replica')}"
                for name, bytes_, replicas in tensors[:_NAMED]
            ]
            message = f"A device holds {used:,} bytes that other devices also hold"
            return message, uses, "memory shows what could be sharded further"
        case facts.OverMemory(limit, used, _, parts):
            # The parts of a total are few, and all of them are worth knowing.
            named = parts if limit == "total" else parts[:_NAMED]
            uses = [
                f"{size:,} bytes: {what if isinstance(what, str) else part_text(what)}"
                for what, size in named
            ]
            message = f"A device needs {used:,} bytes{_LIMITS[limit]}"
            return message, uses, "memory has every argument"


def _amounts(amounts: Sequence[facts.Amount], unit: str) -> list[str]:
    """What takes most, each with its place and, where it is known, why it is there."""
    texts = []
    for amount in amounts[:_NAMED]:
        where = "" if amount.source is None else f" at {source_text(amount.source)}"
        why = " and ".join(dict.fromkeys(map(annotation_text, amount.annotations)))
        because = f" (from {why})" if why else ""
        texts.append(
            f"{amount.amount:,} {unit}: {amount.kind} for {amount.scope or 'the program'}"
            f"{where}{because}"
        )
    if rest := amounts[_NAMED:]:
        texts.append(f"{sum(amount.amount for amount in rest):,} {unit} for {len(rest):,} more")
    return texts


def _uncertain(fact: facts.BudgetDoubt) -> Said:
    match fact:
        case facts.CountedOnce(count):
            return Said(
                f"{count:,} of them are in loops that run an unknown number of times: counted once."
            )
        case facts.OverUnknownAxes(count):
            return Said(f"{count:,} of them run over no known mesh axes, and are counted in.")
        case facts.UnreadLines(lines):
            return Said(
                f"{counted(lines, 'line')} of the compiled program could not be read, so more "
                "may be sent."
            )
        case facts.NoSuchTensor(pattern):
            return Said(
                f"No argument or result is called {pattern}, so this limits nothing.",
                hint="sdyscope memory lists arguments and results by name.",
            )
        case facts.NoMemoryAnalysis():
            return Said(
                "The compiler of this hardware does not say how much memory a device needs.",
                hint="Leave the limit out for this hardware.",
            )
