"""What `run` found, as it is printed: a summary, the arrays, the errors, and the words to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from sdyscope.analysis.run.numerics import Numeric, tolerance, worst_error
from sdyscope.analysis.run.values import (
    Executed,
    ExecutedTensor,
    MeshComparison,
    MeshRun,
    PartitionerRun,
    ProcessResult,
    Run,
    Verdict,
)
from sdyscope.facts.execution import Reference
from sdyscope.facts.measured import Measured
from sdyscope.facts.training import Training
from sdyscope.terminal.findings import finding_paragraphs
from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.terminal.table import Cell, Column, Heading, Row, Table, Tone, number, shape
from sdyscope.words.counts import counted, size
from sdyscope.words.findings import finding_of
from sdyscope.words.mesh import mesh_text, sizes_words
from sdyscope.words.partitioners import partitioner_name
from sdyscope.words.rates import time_text
from sdyscope.words.remarks import remark_texts
from sdyscope.words.run import (
    ERROR,
    compared_with,
    inputs_text,
    meshes_text,
    random_numbers_text,
    reference_text,
    training_text,
)
from sdyscope.words.sharding import NONE, short

#: What stands in a cell that is as requested.
AGREES = "="

_TONES: Mapping[Verdict, Tone] = {
    "as placed": "muted",
    "chosen": "plain",
    "differs": "bad",
    "dropped": "muted",
    "not run": "muted",
}


def measured_heading(measured: Measured) -> str:
    """Whose steps were profiled."""
    return f"measured under {partitioner_name(measured.partitioner)}, by JAX's profiler"


def heading(run: Run) -> str:
    """`mlp on 8 virtual CPU devices; data=4 x model=2`."""
    machine = run.machine
    count = len(machine.devices)
    kind = f"{machine.platform.upper()} device{'' if count == 1 else 's'}"
    if machine.virtual:
        kind = f"virtual {kind}"
    elif machine.kind.lower() != machine.platform:
        kind = f"{kind} ({machine.kind})"
    text = f"{run.name} on {count:,} {kind}"
    if run.processes:
        text += f" of {len(run.processes)} processes"
    if run.mesh is not None and run.mesh.axes:
        text += "; " + sizes_words(run.mesh.shape)
    return text


# --- the summary ----------------------------------------------------------------------------------


def summary(run: Run) -> Table:
    """A row a fact, a column a partitioner."""
    steps = next(
        (
            partitioner.step.steps
            for partitioner in run.partitioners
            if partitioner.step is not None
        ),
        0,
    )
    facts: list[tuple[str, Callable[[PartitionerRun], Cell | str]]] = [
        ("verdict", lambda execution: _verdict(execution, run)),
        (
            "  compared with",
            lambda execution: compared_with(run.reference) if execution.ran else NONE,
        ),
        ("arrays as placed", _arrays),
        ("largest error", lambda execution: _largest_error(run, execution)),
        ("  in", _largest_error_in),
        (f"step, median of {steps}", _step_time),
        ("compile", lambda execution: time_text(execution.compile_seconds)),
        (
            "arguments a device",
            lambda execution: size(execution.memory.arguments) if execution.memory else NONE,
        ),
        ("results a device", _results),
        (
            "temporaries a device",
            lambda execution: size(execution.memory.temporaries) if execution.memory else NONE,
        ),
        ("buffers, in and out", _buffers),
        ("peak in use", _peak),
    ]
    if not any(partitioner.ran for partitioner in run.partitioners):
        del facts[1:]
    return Table(
        columns=(
            Column("", fold=False),
            *(
                Column(partitioner_name(partitioner.partitioner))
                for partitioner in run.partitioners
            ),
        ),
        rows=tuple(
            (
                Cell(name, "muted"),
                *(_or_none(fact(partitioner)) for partitioner in run.partitioners),
            )
            for name, fact in facts
        ),
    )


def _or_none(cell: Cell | str) -> Cell | str:
    return Cell(NONE, "muted") if cell == NONE else cell


def _verdict(execution: PartitionerRun, run: Run) -> Cell:
    if not execution.ran:
        return Cell("does not run", "bad")
    if not execution.passed:
        return Cell("differs", "bad")
    if run.reference.failure or not any(error.tells for error in execution.errors):
        return Cell("not compared", "warning")
    if not run.reference.is_independent:
        if run.depends_on_mesh:
            return Cell("depends on the mesh", "bad")
        return Cell("agrees with itself", "plain")
    return Cell("agrees", "good")


def _arrays(run: PartitionerRun) -> Cell | str:
    if not run.ran:
        return NONE
    text = f"{run.arrays - run.differing} of {run.arrays}, {run.shards:,} shards"
    return Cell(text, "bad" if run.differing else "plain")


def _largest_error(run: Run, execution: PartitionerRun) -> Cell | str:
    is_compared = any(error.tells for error in execution.errors)
    if execution.ran and (run.reference.failure or not is_compared):
        return Cell("not compared", "warning")
    worst = worst_error(execution.errors)
    if worst is None:
        return NONE
    tone: Tone = "plain" if worst.within else "bad"
    if not worst.error:
        return Cell("none", tone)
    return Cell(relative(worst.error), tone)


def _largest_error_in(run: PartitionerRun) -> str:
    worst = worst_error(run.errors)
    return NONE if worst is None or not worst.error else worst.path


def relative(error: float) -> str:
    """`5.7e-07`; `0` for none."""
    return f"{error:.1e}" if error else "0"


def _step_time(run: PartitionerRun) -> str:
    if run.step is None:
        return NONE
    step = run.step
    return f"{time_text(step.median)} ({time_text(step.least)} to {time_text(step.most)})"


def _results(run: PartitionerRun) -> str:
    if run.memory is None:
        return NONE
    aliased = run.memory.aliased
    return size(run.memory.results) + (f", {size(aliased)} of it in place" if aliased else "")


def _buffers(run: PartitionerRun) -> str:
    if run.memory is None:
        return NONE
    return f"{size(run.held_arguments)}, {size(run.held_results)}"


def _peak(run: PartitionerRun) -> Cell | str:
    if run.memory is None:
        return NONE
    if run.memory.peak is None:
        return Cell("not reported by backend", "muted")
    return ("at most " if run.memory.peak_is_bound else "") + size(run.memory.peak)


# --- training -------------------------------------------------------------------------------------

#: So many steps are shown; of more, as many that are evenly apart.
_STEPS_SHOWN = 12


def training(training: Training) -> Table:
    """A row a step: each watched number on one device, and under each partitioner."""
    partitioners = [under.partitioner for under in training.partitioners]
    columns = [number("step"), number("one device")]
    for partitioner in partitioners:
        columns += [number(partitioner_name(partitioner)), number("off by")]
    rows: list[Row] = []
    for curve in training.curves:
        rows.append(Heading(curve.path))
        errors = {partitioner: curve.errors(partitioner) for partitioner in partitioners}
        for at in _shown_steps(training.steps):
            cells: list[Cell | str] = [f"{at + 1:,}", _number(curve.one_device, at)]
            for partitioner in partitioners:
                error = errors[partitioner][at] if at < len(errors[partitioner]) else None
                cells.append(_number(curve.partitioners[partitioner], at))
                cells.append(
                    Cell(NONE, "muted")
                    if error is None
                    else Cell(relative(error), "plain" if error <= curve.tolerance else "bad")
                )
            rows.append(tuple(cells))
    return Table(tuple(columns), tuple(rows))


def _shown_steps(steps: int) -> list[int]:
    """Numbers of steps, from 0, the first and the last included."""
    if steps <= _STEPS_SHOWN:
        return list(range(steps))
    return sorted({round(at * (steps - 1) / (_STEPS_SHOWN - 1)) for at in range(_STEPS_SHOWN)})


def _number(values: Sequence[float], at: int) -> Cell | str:
    return f"{values[at]:.7g}" if at < len(values) else Cell(NONE, "muted")


def trained(training: Training) -> Table:
    """A row a partitioner: how many steps, and what their last results are."""
    rows: list[Row] = []
    for under in training.partitioners:
        placed = f"{under.arrays - under.differing} of {under.arrays}, {under.shards:,} shards"
        rows.append(
            (
                partitioner_name(under.partitioner),
                f"{under.steps:,} of {training.steps:,}",
                NONE if under.error is None else relative(under.error),
                Cell(placed, "bad" if under.differing else "plain"),
                time_text(under.seconds),
            )
        )
    return Table(
        columns=(
            Column("trained under", fold=False),
            number("steps"),
            number("largest error"),
            Column("results as placed at the end"),
            number("time"),
        ),
        rows=tuple(rows),
    )


# --- several meshes -------------------------------------------------------------------------------


def meshes(run: Run) -> Table:
    """A row a mesh, a column a partitioner."""
    names = [partitioner_name(partitioner.partitioner) for partitioner in run.partitioners]
    return Table(
        columns=(
            Column("mesh", fold=False),
            number("devices"),
            *map(Column, names),
            *(number(f"step, {name}") for name in names),
        ),
        rows=tuple(_mesh_row(mesh, run) for mesh in run.meshes),
    )


def _mesh_row(there: MeshRun, run: Run) -> tuple[Cell | str, ...]:
    every = [there.compared.get(partitioner.partitioner) for partitioner in run.partitioners]
    cells = [_on_mesh(execution, there, run.reference) for execution in every]
    if there.failure:
        # Said once: it is the same under each where nothing was compiled.
        cells = [Cell("does not run", "bad")] * len(every)
    return (
        mesh_text(there.mesh.shape),
        f"{there.devices:,}",
        *cells,
        *(
            NONE
            if execution is None or execution.step is None
            else time_text(execution.step.median)
            for execution in every
        ),
    )


def _on_mesh(mesh_comparison: MeshComparison | None, there: MeshRun, reference: Reference) -> Cell:
    if mesh_comparison is None or mesh_comparison.failure:
        return Cell("does not run", "bad")
    if mesh_comparison.worst is None:
        return Cell("not compared", "warning")
    if mesh_comparison.differing:
        return Cell(
            f"differs: {relative(mesh_comparison.worst.error)} in {mesh_comparison.worst.path}",
            "bad",
        )
    if there.is_base:
        return Cell("base", "muted")
    same = "agrees" if reference.function else "the same"
    return Cell(
        f"{same}, {relative(mesh_comparison.worst.error)}" if mesh_comparison.worst.error else same,
        "good",
    )


# --- the processes --------------------------------------------------------------------------------


def processes(run: Run) -> Table:
    """A row a process: where it ran, what it checked, and how long a step took there."""
    return Table(
        columns=(
            number("process"),
            Column("host, pid"),
            Column("devices"),
            *(
                Column(partitioner_name(partitioner.partitioner))
                for partitioner in run.partitioners
            ),
        ),
        rows=tuple(
            (
                str(process.number),
                f"{process.host}, {process.pid}",
                _span(process.devices),
                *(
                    _checked(process.checked[partitioner.partitioner])
                    for partitioner in run.partitioners
                ),
            )
            for process in run.processes
        ),
    )


def _span(devices: Sequence[str]) -> str:
    """`4 from TFRT_CPU_0`, as JAX counts them."""
    return f"{len(devices)} from {devices[0]}"


def _checked(checked: ProcessResult) -> Cell | str:
    if not checked.shards:
        return Cell(NONE, "muted")
    more = "" if checked.step is None else f", {time_text(checked.step.median)}"
    if checked.peak is not None:
        more += f", {size(checked.peak)}"
    if checked.differing:
        some = f"{checked.differing:,} of {counted(checked.shards, 'shard')}"
        return Cell(f"{some} differ{more}", "bad")
    return counted(checked.shards, "shard") + more


# --- the arrays -----------------------------------------------------------------------------------


def tensors(run: Run) -> Table:
    """A row an argument or result, a column a partitioner."""
    rows: list[Row] = []
    for kind in ("argument", "result"):
        group = [tensor for tensor in run.tensors if tensor.kind == kind]
        if group:
            rows.append(Heading(f"{kind}s ({len(group):,})"))
            rows += [_row(tensor, run) for tensor in group]
    return Table(
        columns=(
            Column("executed"),
            Column("type", fold=False),
            Column("requested"),
            *(
                Column(partitioner_name(partitioner.partitioner))
                for partitioner in run.partitioners
            ),
        ),
        rows=tuple(rows),
    )


def _row(tensor: ExecutedTensor, run: Run) -> tuple[Cell | str, ...]:
    requested = tensor.requested
    return (
        tensor.path,
        shape(tensor.shape, tensor.dtype),
        Cell(NONE, "muted") if requested is None else requested.text,
        *(_executed(tensor.executed[partitioner.partitioner]) for partitioner in run.partitioners),
    )


def _executed(there: Executed) -> Cell:
    tone = _TONES[there.verdict]
    if there.verdict == "as placed":
        return Cell(AGREES, tone)
    if there.verdict in ("dropped", "not run"):
        return Cell(there.verdict, tone)
    return Cell(there.verdict if there.sharding is None else short(there.sharding), tone)


# --- the numbers ----------------------------------------------------------------------------------


def numerics(run: Run) -> Table:
    """A row a dtype: what is allowed, and what was found at worst."""
    groups: dict[tuple[str, str], dict[str, list[Numeric]]] = {}
    for under in run.partitioners:
        for error in under.errors:
            by_partitioner = groups.setdefault((error.dtype, error.coarsest), {})
            by_partitioner.setdefault(under.partitioner, []).append(error)
    rows: list[Row] = []
    for (dtype, coarsest), group in groups.items():
        some = next(iter(group.values()))
        rows.append(
            (
                dtype,
                str(len(some)),
                f"{tolerance(coarsest):.1e}" if coarsest else "none",
                Cell(coarsest or "exact", "muted"),
                *(
                    _worst(group.get(partitioner.partitioner, ()))
                    for partitioner in run.partitioners
                ),
            )
        )
    return Table(
        columns=(
            Column("results", fold=False),
            number("count"),
            number("error allowed"),
            Column("rounded to"),
            *(
                number(f"worst, {partitioner_name(partitioner.partitioner)}")
                for partitioner in run.partitioners
            ),
        ),
        rows=tuple(rows),
    )


def _worst(errors: Sequence[Numeric]) -> Cell:
    worst = worst_error(errors)
    if worst is None:
        return Cell(NONE, "muted")
    return Cell(relative(worst.error), "plain" if worst.within else "bad")


# --- the words ------------------------------------------------------------------------------------


def footer(run: Run) -> Iterator[Paragraph]:
    """What the signs stand for, the findings, and what else there is to know."""
    cells = [there for tensor in run.tensors for there in tensor.executed.values()]
    verdicts = {there.verdict for there in cells}
    if "as placed" in verdicts:
        yield Paragraph(
            f"{AGREES}  every shard is on the device, and is the block, that was requested",
            "muted",
        )
    if "chosen" in verdicts:
        yield Paragraph(f"{NONE}  left to the compiler: what it chose is shown", "muted")
    if any(partitioner.errors for partitioner in run.partitioners):
        seconds = f" ({time_text(run.reference.step_seconds)} per step)"
        yield Paragraph(f"{ERROR}, {reference_text(run.reference, seconds)}", "muted")
    if run.training is not None:
        yield Paragraph(training_text(run.training.carried, run.training.steps), "muted")
    if run.meshes:
        base = next((mesh.mesh for mesh in run.meshes if mesh.is_base), None)
        yield Paragraph(meshes_text(run.reference, base), "muted")
    yield Paragraph(f"Values: {inputs_text(run.inputs)}.", "muted")
    for note in filter(None, (*remark_texts(run.notes), random_numbers_text(run.reference))):
        yield Paragraph(note, "muted")
    yield from finding_paragraphs(tuple(map(finding_of, run.findings)))
