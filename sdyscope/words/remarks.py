"""What else is worth knowing of an answer, in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from sdyscope.facts.remarks import PropagationSource, Remark, RemarkKind, ShardyProcess
from sdyscope.words.counts import counted, listed, sentence, size
from sdyscope.words.rates import metric_text

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
    "propagation can be kept": "With record --propagate a run keeps what {said} itself decides.",
    "another JAX compiled": "{said} lowered it, and this JAX compiled it.",
    "another platform compiled": (
        "The recorded run compiled it for {said}, and this is for {other}; --on names hardware."
    ),
    "read from an export": "Read from what jax.export serialized.",
    "read from HLO": "Read from HLO, converted to StableHLO by XLA.",
    "read as text": (
        "MLIR's bindings could not read it ({said}); it was read as text, and what was not "
        "understood is listed."
    ),
    "constants elided": (
        "Its large constants were not recorded: it can be looked at, but not compiled."
    ),
    "layout": "Requested with the layout {said}.",
    "in_shardings layout": "The in_shardings of jit ask for a layout too.",
    "out_shardings layout": "The out_shardings of jit ask for a layout too.",
    "no mesh axes": "Given as {said}, which names no mesh axes: {other}.",
    "device order": (
        "{said}: all else is compared by a device's position in its mesh, so the same block may be "
        "on another device."
    ),
    "device order unknown": (
        "{said}: {other} has its devices in an order of its own; that of {names} is not known, and "
        "was not compared."
    ),
    "axis names": (
        "{said}: the second mesh has axes {other} in place of {names}. Shardings and collectives "
        "are compared as if they had the names of the first."
    ),
    "compiler options": "{said}: compiled with other compiler_options or XLA_FLAGS: {names}.",
    "lowered by two JAX": (
        "{said} lowered the first and {other} the second: ops can differ for that alone."
    ),
    "other flags": "XLA_FLAGS says here, and did not in the recorded run: {names}.",
    "memory kind": 'Requested in memory "{said}".',
    "reduction": "Unreduced by {said}.",
    "no request": "{said} is not a valid request: {other}.",
    "request unknown": "A module does not say what was requested.",
    "key array": "A PRNG key array: the last dimensions, {said}, are the keys themselves.",
    "two shardings": "The argument comes as {said} and jit's in_shardings say {other}.",
    "Explicit result": "By its type, on Explicit axes, it is {said}.",
    "reshard": "Requested by jax.sharding.reshard.",
    "jit input": "Argument {count} of a nested jit, by its in_shardings.",
    "jit output": "Result {count} of a nested jit, by its out_shardings.",
    "local shape": "Inside a shard_map: the shape is the local one over its manual axes.",
    "Explicit axes alone": (
        "It says {said} of the Explicit axes and leaves the Auto ones to the compiler, which no "
        "PartitionSpec can say."
    ),
    "no boundary": "Every manual axis has size 1: JAX writes no boundary.",
    "CPU devices instead": "JAX finds {there}: compiled for {cpus} instead.",
    "other plugin": "{said}: {other}",
    "unknown options": (
        "Compiled without the options that the compiler for {said} does not know: {names}."
    ),
    "general cost analysis": (
        "The cost analysis is XLA's general one: this platform's compiler has none."
    ),
    "no cost analysis": "XLA has no cost analysis of this module: {said}",
    "compiled in a recorded run": "{said} compiled it for {other} in the recorded run.",
    "unreadable lines": "{count} of the lines of {said} can't be read, the first of them {of}.",
    "file outside": "{said} is left out: {other} is outside this directory.",
    "module gone": "{said} has no module for {names} any more: {other} is gone.",
    "compiled program gone": "The compiled {said} is gone: {other}.",
    "propagation gone": "What its own JAX propagates of {said} is gone: {other}.",
    "propagation not kept": "What propagation decides for {said} is not kept: {other}",
    "propagation of another JAX": "What propagation decides is kept of programs of {other}, "
    "sdyscope's own, and not of those of {said}.",
    "not fetched": "{said} can't be fetched whole, so it is not compared: {other}",
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
    "script run again": "The script (`{said}`) was run {times}, up to where JAX lowers {other}.",
    "compiled otherwise": (
        "Compiled again, its collectives or memory are not those of the run, whose own are shown: "
        "what they are for is not known."
    ),
    "no fitting mesh": "No known mesh fits, so no axes are named; for a file of HLO, give --mesh.",
    "no source lines": "{count:,} of {of:,} tensors {have} no source line.",
    "log cut": "{count:,} of {remade} cut short in XLA's log: scope or line may be missing.",
    "some without origin": "{count:,} of {of:,} tensors {have} no origin.",
    "no rule": "Shardy has no rule for these, so no collective is predicted: {names}.",
    "unknown calls": "What these custom calls send is not known, and not counted: {names}.",
    "between blocks": (
        "What XLA may send where these compute or move along a sharded dimension, or it does not "
        "partition them, is not predicted: {names}."
    ),
    "products moved": (
        "In {products}, Shardy moves one operand and the result, which is less than the other "
        "operand. XLA's partitioner mostly gathers that one: up to {size} instead."
    ),
    "products summed": (
        "In {products}, Shardy moves both operands, which is less than the result. XLA's "
        "partitioner mostly sums the result over devices: {size} instead, and twice as much where "
        "no reduce-scatter comes of it."
    ),
    "looked up": "Counted whole, but perhaps read only in part: {names}.",
    "no bytes": "Values of these types count as 0 bytes: {names}.",
    "not told": (
        "Origins are not known: the run's own compile did not record the op of each instruction; "
        "with --on it is compiled here, if it can be, with origins."
    ),
    "not asked for": "Origins were not requested.",
    "no mesh": "Origins are not known: no mesh is known whose axes could have one.",
    "not propagated": "Origins are not known: the module can't be propagated: {said}",
    "estimate": (
        "An estimate from models of the hardware and published peak figures, not a measurement; a "
        "real step takes longer."
    ),
    "estimate by rates": (
        "An estimate from models of the hardware, at rates that other programs ran at, not a "
        "measurement."
    ),
    "no times": (
        "{count:,} of {of:,} communicated tensors {have} no known time (+): no bandwidth is known "
        "for what they run over{bandwidth}."
    ),
    "no time at all": (
        "No bandwidth is known for what the collectives run over, so they have no times{bandwidth}."
    ),
    "loops of unknown trips": (
        "{count:,} of {loops} {have} an unknown trip count and {counts} once: a step may take "
        "longer, or less where a loop does not run."
    ),
    "conditionals": (
        "{conditionals}: the most expensive branch counts for arithmetic and memory, and "
        "collectives as if every branch were taken."
    ),
    "conditionals predicted": (
        "{conditionals}: arithmetic and collectives count as if every branch were taken."
    ),
    "uncounted calls": ("{custom_calls} whose operations are not known {counts} as 0: {first}."),
    "no peak": "No peak is known for {listed}: the peak of bf16 is used.",
    "counted by sdyscope": (
        "Operations and bytes are counted by sdyscope: XLA has no cost analysis for this."
    ),
    "further trips added": (
        "XLA's cost analysis counts a loop once: {flops} and {size}; the further trips are added."
    ),
    "counted by XLA": "Operations and bytes: XLA's cost analysis.",
    "library calls added": (
        "XLA's cost analysis leaves out what libraries compute; it is added: "
        "{custom_calls}, {first}."
    ),
    "predicted": (
        "Predicted: collectives by Shardy's reshards; operations of matmuls alone, at the peak of "
        "bf16; memory: the arguments read once, nothing in between."
    ),
    "order of chips": (
        "Positions of the mesh are chips in the compiler's order; jax.make_mesh may put an axis on "
        "other links."
    ),
    "no latency": "Latency over {listed}: not known, counted as 0; --latency gives it.",
    "times of NCCL": (
        "Times over NVLink and the network: what NCCL expects of its fastest algorithm ({said}), "
        "fitted to published tables."
    ),
    "figures": "Figures of {said}: {titles}.",
    "error measured": "Estimates are known to be off by {errors}: medians, on {said}.",
    "error of other traces": (
        "Estimates are known to be off by {errors}: medians over {count:,} traces, each estimated "
        "by rates fitted to the others."
    ),
    "error of a fit": (
        "Estimates of the trace itself are off by {errors}, in the median. The error for other "
        "programs is not known: give a second trace."
    ),
    "not in the traces": (
        "No rate of matmuls of {listed} was fitted: counted at the slowest of those that were."
    ),
    "error unknown": (
        "Error of the estimates: not known, none was compared with a run on {said}; "
        "`sdyscope cost --calibrate TRACE` does that."
    ),
    "gradients": (
        "Gradients: of the parameters' types, sharded like their optimizer state, or else like the "
        "parameters."
    ),
    "state beside": (
        "State: kept, but no parameter is updated by it, as of averages; ZeRO shards it as it does "
        "optimizer state."
    ),
    "no data axes": "No ZeRO stages: no axis of the mesh carries the batch; --axes names some.",
    "stages partitioned": (
        "Stages: the program's own state sharded so, propagated by Shardy; sent: by XLA's "
        "partitioner, an all-reduce of which a device takes its slice counted as a reduce-scatter."
    ),
    "stages predicted": (
        "Stages: the program's own state sharded so, propagated by Shardy; sent: by Shardy's "
        "reshards, an all-reduce of which a device takes its slice counted as a reduce-scatter."
    ),
    "gradients are temporaries": (
        "ZeRO-1 and ZeRO-2 are one program here: a gradient is a temporary, which the compiler "
        "reduces into slices or whole."
    ),
    "stage unknown": "A stage is not known: {said}",
    "counted once": (
        "{collectives} in loops of unknown trip count {counts} once: a step may send more, or less "
        "where a loop does not run."
    ),
    "JAX's own": "{said}: {count} of JAX's own functions were left out; --all compares them.",
    "JAX's own not written": (
        "{said}: {count} of JAX's own functions are left out; {said}:NAME writes one of them."
    ),
    "crashed": "Shardy crashed ({said}) on {trials}, and what {they} would do is not known.",
    "places not found": (
        "The source was built {count} times in a row without finding a place that shards an "
        "argument, and none was looked for any further."
    ),
    "no choice": "{arguments} can only stay as {they} {are}: no axis divides {them}.",
    "constraints stay": "{constraints} inside the program {stay} as written.",
    "too many devices": (
        "XLA partitions and compiles for at most {count:,} CPU devices: --on names the hardware to "
        "compile for."
    ),
    "not partitioned": "XLA does not partition the program as it is: {said}",
    "not compiled": "The program as it is can't be compiled: {said}",
    "refused": "The compiler refuses it: {said}",
    "over the limit": "Over the limit, with what else the compiler needs.",
    "costs no less": "Once compiled, no cheaper than the program as it is.",
}

#: How many origins that could not be read are named.
_NAMED: Final = 3

#: What has an estimate.
ESTIMATED: Final[Mapping[str, str]] = {
    "steps": "whole steps",
    "collectives": "collectives",
    "matmuls": "matmuls",
    "elementwise": "elementwise ops",
    "copies": "copies",
}


def remark_text(remark: Remark | str) -> str:
    """One remark, a sentence; a compiler's or reader's own words as they are."""
    if isinstance(remark, str):
        return remark
    if remark.kind == "unread line":
        return _unread_line(remark.count, remark.said)
    if remark.kind == "sides not propagated":
        return _sides_not_propagated(remark)
    count = remark.count
    is_one = count == 1
    first = ", ".join(name for name, _ in remark.names[:_NAMED])
    process = "" if remark.process is None else f"{_PROCESS[remark.process]} ({remark.said})"
    return _REMARKS[remark.kind].format(
        said=remark.said,
        other=remark.other,
        count=count,
        have="has" if is_one else "have",
        counts="counts" if is_one else "count",
        of=remark.of,
        process=process,
        times={1: "once", 2: "twice"}.get(count, f"{count:,} times"),
        loops=counted(remark.of, "loop"),
        remade=counted(remark.of, "rematerialization"),
        bandwidth=f"; --bandwidth {remark.said}=90GB/s gives them" if remark.said else "",
        conditionals=counted(count, "conditional"),
        custom_calls=counted(count, "custom call"),
        listed=listed([name for name, _ in remark.names]),
        titles="; ".join(name for name, _ in remark.names),
        flops=metric_text(count, "FLOP"),
        size=size(remark.of),
        errors=errors_text(remark.names),
        names=", ".join(f"{name} ({times:,})" if times else name for name, times in remark.names),
        first=first + (", ..." if len(remark.names) > _NAMED else ""),
        origins=counted(count, "origin"),
        arguments="1 of the arguments" if is_one else f"{count} of the arguments",
        constraints=counted(count, "constraint"),
        collectives=counted(count, "collective"),
        products=counted(count, "product"),
        trials=counted(count, "edit that was tried", "edits that were tried"),
        are="is" if is_one else "are",
        they="it" if is_one else "they",
        them="it" if is_one else "them",
        stay="stays" if is_one else "stay",
        there=_there(remark) if remark.kind == "CPU devices instead" else "",
        cpus=counted(count, "virtual CPU device"),
    )


def errors_text(errors: Iterable[tuple[str, int]]) -> str:
    """How far estimates are off, by what they are of: ``35% for whole steps and ...``."""
    return listed([f"{percent}% for {ESTIMATED[of]}" for of, percent in errors if of in ESTIMATED])


def _there(remark: Remark) -> str:
    """Which accelerators there are, where they are too few: ``1 GPU (H100), and ... 8 devices``."""
    accelerators = [f"{counted(number, remark.said)} ({kind})" for kind, number in remark.names]
    if not accelerators:
        return f"no {remark.said}"
    return f"{' and '.join(accelerators)}, and the program is for {remark.count:,} devices"


def _sides_not_propagated(remark: Remark) -> str:
    """Which of two sides, and why, each side's reason after its name."""
    reasons = zip(remark.names, (remark.said, remark.other), strict=False)
    return "; ".join(f"{side}: {reason.rstrip('.')}" for (side, _), reason in reasons)


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
            return f"Shardy's passes of JAX {source.jax}, run here"
        case "passes elsewhere":
            return f"Shardy's passes of JAX {source.jax}, run in its own process"
        case "recorded":
            if source.devices:
                return (
                    f"XLA's dump of a compile for {source.devices} CPU devices by JAX "
                    f"{source.jax}, when it was recorded"
                )
            return f"Shardy's passes of JAX {source.jax}, run when it was recorded"
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
