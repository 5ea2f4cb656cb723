"""The estimated cost of a step as tables, and the words around them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from sdyscope.analysis.cost.cost import Cost, CostDocument, TimeTally
from sdyscope.analysis.cost.links import Level
from sdyscope.analysis.cost.remarks import basis, doubts, limits
from sdyscope.analysis.cost.roofline import Roof
from sdyscope.facts.calibration import Calibration
from sdyscope.facts.program import Partitioner
from sdyscope.terminal.paragraphs import Paragraph, by_partitioner
from sdyscope.terminal.table import Cell, Column, Row, Table, number
from sdyscope.words.cost import limit_texts, pipeline_text
from sdyscope.words.counts import counted, size
from sdyscope.words.hardware import compiled_text
from sdyscope.words.mesh import mesh_words_of, over_text
from sdyscope.words.partitioners import partitioner_names
from sdyscope.words.rates import bandwidth_text, metric_text, time_text
from sdyscope.words.remarks import ESTIMATED, remark_texts

#: Of a rate that made no difference to what was measured.
_NO_LIMIT = "no limit seen"


def distinct(document: CostDocument) -> Iterator[tuple[Cost, tuple[Partitioner, ...]]]:
    """The programs to tell of, each with the partitioners under which it costs the same."""
    return by_partitioner(document.programs, _bare)


def _bare(program: Cost) -> object:
    """What is left of it when it does not matter whose it is, or what instructions are called."""
    return (
        program.roofs,
        program.compute,
        program.memory,
        program.arguments,
        program.work,
        program.by_kind_and_axes,
        program.by_phase,
        program.by_scope,
        program.pipelines,
        sum(collective.collective.unknown_trips for collective in program.collectives),
        program.notes,
    )


def heading(
    document: CostDocument, program: Cost, partitioners: Sequence[Partitioner]
) -> Iterator[Paragraph]:
    """The program and the hardware; what limits the step, and how long it takes at least."""
    under = partitioner_names(partitioners)
    by = document.compiled_by
    compiled = compiled_text(program.hardware, program.device_kind, under=under, by=by)
    parts = [document.name]
    if program.mesh is not None:
        parts += mesh_words_of({"": program.mesh})
    else:
        parts.append(counted(program.devices, "device"))
    if program.predicted:
        chip = f", for {program.hardware}" if program.hardware is not None else ""
        parts.append(f"predicted by Shardy's propagation{chip}, not compiled")
    else:
        parts.append(compiled or "compiled for hardware that its text does not name")
    yield Paragraph("; ".join(parts))
    limited = limits(program, document.calibration)
    first, *rest = limit_texts(limited)
    estimate = "estimate, not measured: " if limited.limit is not None else ""
    yield Paragraph(f"{estimate}{first}", "heading")
    yield from (Paragraph(words, "heading") for words in rest)


def calibrated(calibration: Calibration) -> Iterator[Paragraph]:
    """What the rates were fitted to."""
    collectives = sum(rate.collectives for rate in calibration.rates)
    parts = [counted(collectives, "collective")] if collectives else []
    if calibration.compute is not None:
        parts.append(counted(calibration.compute.ops, "op"))
    traces = counted(len(calibration.traces), "trace")
    yield Paragraph(f"rates fitted to {' and '.join(parts)} of {traces}")
    if calibration.stretch is not None:
        yield Paragraph(
            f"steps took {calibration.stretch:.2f} times what their schedules come to at these "
            "rates: waiting, and what else the machine did",
        )
    if calibration.left_out:
        yield Paragraph(
            f"not fitted: {counted(calibration.left_out, 'collective')} over several axes, a part "
            "of one, or axes that are not known",
            "muted",
        )


def rates(calibration: Calibration) -> Table:
    """A row an axis, a kind of arithmetic, and memory: what was fitted."""
    rows: list[Row] = [
        (
            f"axis {rate.axis}",
            Cell(_NO_LIMIT, "muted") if rate.bandwidth is None else bandwidth_text(rate.bandwidth),
            f"{time_text(rate.latency)} a hop",
            counted(rate.collectives, "collective"),
        )
        for rate in calibration.rates
    ]
    if calibration.compute is not None:
        compute = calibration.compute
        flops = [*((f"matmuls, {kind}", rate) for kind, rate in compute.matmuls.items())]
        flops.append(("elementwise", compute.other))
        fitted = [(name, rate, metric_text(rate, "FLOP/s")) for name, rate in flops]
        functions = compute.transcendentals
        fitted.append(("exp, tanh, ...", functions, metric_text(functions, "/s")))
        fitted.append(("memory", compute.bandwidth, bandwidth_text(compute.bandwidth)))
        rows += [
            (name, Cell(_NO_LIMIT, "muted") if math.isinf(rate) else text, "", "")
            for name, rate, text in fitted
        ]
        rows.append(("each op", "", time_text(compute.overhead), counted(compute.ops, "op")))
        if compute.beside:
            rows.append(("beside a collective", "", f"{compute.beside:.3g} s a second", ""))
    columns = (Column("fitted"), number("rate"), number("besides"), number("to"))
    return Table(columns, tuple(rows))


def errors(calibration: Calibration) -> Table:
    """A row a kind of estimate: how far it is off, by these rates and by those of other traces."""
    columns = (
        Column("estimates of"),
        number("compared"),
        number("off by"),
        number("by rates of other traces"),
    )
    rows: list[Row] = [
        (
            ESTIMATED[error.of],
            f"{error.count:,}",
            f"{error.median:.0%}",
            Cell("-", "muted") if error.held_out is None else f"{error.held_out:.0%}",
        )
        for error in calibration.errors
    ]
    return Table(columns, tuple(rows))


def roofs(program: Cost) -> Table:
    """A row for arithmetic, memory and each mesh axis: how long it is busy, and with what."""
    columns = (Column("busy", fold=False), number("estimate"), Column("with"), Column("at"))
    return Table(columns, tuple(_roof(roof, program) for roof in program.roofs))


def _roof(roof: Roof, program: Cost) -> Row:
    time = Cell(time_text(roof.seconds), "bad" if roof == program.limit else "plain")
    if roof.resource == "compute":
        compute = program.compute
        products = sum(compute.matmuls.values())
        share = f", {products / compute.flops:.0%} in matmuls" if compute.flops else ""
        peaks = [
            f"{metric_text(peak, 'FLOP/s')} {kind}"
            for kind, peak in compute.peaks.items()
            if peak is not None
        ]
        at = ", ".join(peaks) + _rated(program) if peaks else _unknown("peak")
        if program.predicted:
            share = " of matmuls"
            peak = "rates as fitted" if compute.fitted else "the peak of bf16"
            at = _unknown("peak") if compute.seconds is None else peak
        return ("compute", time, f"{metric_text(compute.flops, 'FLOP')}{share}", at)
    if roof.resource == "memory":
        memory = program.memory
        words = f"{size(round(memory.bytes))} accessed"
        if memory.hbm < 0.999 * memory.bytes:
            words = f"{size(round(memory.hbm))} in HBM, of {words}"
        if program.predicted:
            words = f"{size(round(memory.bytes))} of arguments, read once"
        at = _unknown("bandwidth") if memory.bandwidth is None else bandwidth_text(memory.bandwidth)
        at += _rated(program)
        return ("memory", time, words, at)
    over = [axis for axis in program.by_axes if any(a.name == roof.axis for a in axis.axes or ())]
    count, sent = (
        sum(getattr(collective.time, name) for collective in over) for name in ("count", "sent")
    )
    work = f"{size(sent)} sent in {counted(count, 'collective')}"
    return (f"axis {roof.axis}={roof.size}", time, work, _links(roof))


def _rated(program: Cost) -> str:
    """Which rates those of arithmetic and memory are, where they are no peaks."""
    if program.given.measured:
        return ", as measured"
    return ", as fitted" * program.compute.fitted


def _links(roof: Roof) -> str | Cell:
    if roof.levels is None:
        return _unknown("bandwidth")
    return "; ".join(map(_level, roof.levels)) or "no links"


def _level(level: Level) -> str:
    rate = "unknown" if level.bandwidth is None else bandwidth_text(level.bandwidth)
    if level.name in ("given", "fitted"):
        return (
            f"{_NO_LIMIT}, as {level.name}"
            if level.bandwidth == math.inf
            else f"{rate}, as {level.name}"
        )
    spans = [span for span in level.spans if span.dimension]
    if not spans:
        return f"{level.name} of {level.size}: {rate}"
    rows = " x ".join(
        f"{span.dimension}{span.size} {'ring' if span.ring else 'line'}" for span in spans
    )
    return f"{level.name} {rows}: {rate}"


def _unknown(what: str) -> str:
    return f"{what} not known"


def arguments(program: Cost) -> Table:
    """A row a top-level argument: what reading it once takes, the largest first."""
    columns = (Column("read once"), number("tensors"), number("a device holds"), number("estimate"))
    rows: list[Row] = [
        (
            row.name,
            f"{row.tensors:,}",
            size(row.bytes),
            Cell("-", "muted") if row.seconds is None else time_text(row.seconds),
        )
        for row in program.arguments
    ]
    return Table(columns, tuple(rows))


def kinds(program: Cost) -> Table:
    """A row a kind and axes of collectives, what takes longest first."""
    columns = (
        Column("collective", fold=False),
        Column("over"),
        number("count"),
        number("sent"),
        number("estimate"),
    )
    rows: list[Row] = []
    for entry in program.by_kind_and_axes:
        over = over_text(entry.axes, program.mesh)
        rows.append((entry.kind, over, *_cells(entry.time.count, entry.time)))
    return Table(columns, tuple(rows))


def _cells(count: int, time: TimeTally) -> tuple[str | Cell, ...]:
    known = time.unknown < time.tensors
    text = time_text(time.seconds) + ("+" if time.unknown else "")
    estimate = text if known else Cell("-", "muted")
    return (f"{count:,}", size(time.sent), estimate)


def scopes(program: Cost, top: int) -> Table:
    """The scopes whose collectives take longest; 0 for all.

    Of each its tensors: a collective that XLA combined has tensors of several scopes.
    """
    shown = list(program.by_scope.items())[: top or None]
    columns = (Column("scope"), number("tensors"), number("sent"), number("estimate"))
    rows = tuple(
        (scope or Cell("no scope", "muted"), *_cells(time.tensors, time)) for scope, time in shown
    )
    return Table(columns, rows)


def footer(program: Cost, top: int, calibration: Calibration | None = None) -> Iterator[Paragraph]:
    """By phase; what is left out; what is not certain; what the numbers rest on."""
    left = len(program.by_scope) - top if top else 0
    if left > 0:
        yield Paragraph(f"{counted(left, 'scope')} left out by --top", "muted")
    sent = program.communication
    if program.differentiated and sent.seconds:
        phases = program.by_phase
        words = ", ".join(f"{phase} {time_text(time.seconds)}" for phase, time in phases.items())
        yield Paragraph(f"communication: {words}")
    yield from (Paragraph(pipeline_text(pipeline)) for pipeline in program.pipelines)
    yield from (Paragraph(text, "warning") for text in remark_texts(doubts(program)))
    yield from (Paragraph(text, "muted") for text in remark_texts(basis(program, calibration)))
