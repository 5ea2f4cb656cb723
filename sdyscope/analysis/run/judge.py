"""run: what is on real devices against the placements that were asked for and lowered.

Every shard that a device holds is compared with the block that the placement gives to the device;
where nothing was asked for, what the compiler chose is shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

from sdyscope.analysis.run.blocks import Owners, compared, wrong_numbers
from sdyscope.analysis.run.numerics import (
    TELLS_NOTHING,
    Numeric,
    coarsest,
    element_dtype,
    error_of_change,
    numeric,
    tolerance,
)
from sdyscope.analysis.run.values import ExecutedTensor, Run, Verdict
from sdyscope.errors import ConversionError
from sdyscope.facts.execution import (
    ExecutedArray,
    Execution,
    Extent,
    InputSource,
    Machine,
    Reference,
    Shard,
)
from sdyscope.facts.findings import (
    SEVERITIES,
    DependsOnMesh,
    NoReference,
    NotExecuted,
    NotFinite,
    NothingTold,
    Observation,
    OtherBlocks,
    Severity,
    UnequalReplicas,
)
from sdyscope.facts.program import Partitioner
from sdyscope.facts.sharded import Sharded, requested_sharding
from sdyscope.facts.tensors import Tensor, TensorTable
from sdyscope.syntax.hlo_sharding import parse_hlo_sharding
from sdyscope.values.convert import to_placement
from sdyscope.values.mesh import Mesh, only_mesh
from sdyscope.values.placement import Placement
from sdyscope.values.tiling import TupleSharding


def judge(
    name: str,
    machine: Machine,
    inputs: InputSource,
    table: TensorTable,
    executions: Sequence[Execution],
    reference: Reference,
) -> Run:
    """Compares what was executed with the table.

    Args:
        name: the program's.
        machine: what it ran on.
        inputs: where the values came from.
        table: what was requested and lowered.
        executions: one a partitioner; of several processes, put together.
        reference: the same step on one device.
    """
    executions = [compared(execution, reference) for execution in executions]
    owners = Owners(machine)
    findings = list(_not_run(executions))
    rows = []
    held = [
        {(array.kind, array.index): array for array in execution.arrays} for execution in executions
    ]
    for tensor in table.tensors:
        if tensor.kind in ("argument", "result") and tensor.requested is not None:
            there = [arrays.get((tensor.kind, tensor.index or 0)) for arrays in held]
            row, observations = _tensor(tensor, list(zip(executions, there, strict=True)), owners)
            rows.append(row)
            findings += observations
    numerics = {
        execution.partitioner: tuple(_numerics(rows, execution, reference))
        for execution in executions
        if not execution.failure
    }
    for partitioner, errors in numerics.items():
        findings += wrong_numbers(errors, partitioner, reference, owners)
    for row in rows:
        findings += _unequal_replicas(row, numerics, reference, owners)
    missing = reference.failure
    every = tuple(chain(*numerics.values()))
    if every and not any(error.tells for error in every):
        missing = missing or TELLS_NOTHING
    if missing:
        findings.append(Observation("not-compared", "note", NoReference(missing)))
    first = next(iter(numerics.values()), ())
    findings += _not_finite(rows, first)
    if not missing:
        findings += _nothing_told(rows, first, reference)
    # Constraints name it where no argument or result does.
    mesh = only_mesh(_meshes([row.tensor for row in rows]) or _meshes(table.tensors))
    findings += _depends_on_mesh(rows, reference, mesh)
    return Run(
        name,
        machine,
        mesh,
        inputs,
        tuple(row if row.mesh is not None else replace(row, mesh=mesh) for row in rows),
        {execution.partitioner: execution for execution in executions},
        replace(reference, outputs=(), before=(), alone=()),
        numerics,
        tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))),
    )


def judge_shards(
    table: TensorTable, partitioner: Partitioner, arrays: Sequence[ExecutedArray], machine: Machine
) -> tuple[int, int, int, list[Observation]]:
    """Compares results that are on devices with their placements.

    Args:
        table: what was requested and lowered.
        partitioner: under which they were made.
        arrays: the results.
        machine: what they are on.

    Returns:
        How many arrays and how many shards were compared, how many arrays are not where they were
        to be, and what was found.
    """
    there = {array.index: array for array in arrays}
    differences: list[Observation] = []
    differing = 0
    for tensor in table.tensors:
        if tensor.kind == "result" and tensor.requested is not None:
            array = there.get(tensor.index or 0)
            execution = Execution(partitioner, failure="" if array else "not run")
            row, observations = _tensor(tensor, [(execution, array)], Owners(machine))
            differences += observations
            differing += row.verdicts[partitioner] == "differs"
    return len(arrays), sum(len(array.shards) for array in arrays), differing, differences


def _depends_on_mesh(
    rows: Sequence[ExecutedTensor], reference: Reference, mesh: Mesh | None
) -> Iterator[Observation]:
    """What a mesh of one device computes otherwise; a multiple of an axis's size is an error."""
    if not reference.others:
        return
    worst = max(reference.others, key=lambda other: other.error)
    names = {row.tensor.index: row.tensor.path for row in rows if row.tensor.kind == "result"}
    sizes = {} if mesh is None else {axis.name: axis.size for axis in mesh.axes}
    axes = tuple(name for name, size in sizes.items() if size > 1 and worst.ratio == size)
    fact = DependsOnMesh(
        names.get(worst.index) or f"result {worst.index}",
        len(reference.others),
        worst.error,
        worst.ratio,
        axes,
        by_change=worst.by_change,
    )
    severity: Severity = "error" if axes else "note"
    yield Observation("depends-on-mesh", severity, fact)


def _not_finite(rows: Sequence[ExecutedTensor], errors: Sequence[Numeric]) -> Iterator[Observation]:
    """Results with NaNs and infinities, of which nothing but that is compared."""
    sizes = _sizes(rows)
    if there := [error for error in errors if error.not_finite]:
        first = max(there, key=lambda error: error.not_finite)
        fact = NotFinite(first.not_finite, sizes[first.index], len(there) - 1)
        yield Observation("not-finite", "note", fact, first.path, "result")


def _sizes(rows: Sequence[ExecutedTensor]) -> dict[int | None, int]:
    """How many elements each result has, by its index."""
    return {
        row.tensor.index: math.prod(row.tensor.shape or ())
        for row in rows
        if row.tensor.kind == "result"
    }


def _nothing_told(
    rows: Sequence[ExecutedTensor], errors: Sequence[Numeric], reference: Reference
) -> Iterator[Observation]:
    """Results that agree as they have to: zeros, noise, and arguments that hardly change."""
    sizes = _sizes(rows)
    noise = tuple(
        error.path for error in errors if error.is_noise or error.index in reference.noise
    )
    within = (error for error in errors if error.within and not error.is_noise)
    agreeing = [e for e in within if element_dtype(e.dtype) and sizes[e.index]]
    zero = tuple(error.path for error in agreeing if not (error.tells or error.not_finite))
    unchanged = tuple(error.path for error in agreeing if error.hides_change)
    if zero or unchanged or noise:
        yield Observation("not-compared", "note", NothingTold(zero, unchanged, noise))


def _meshes(tensors: Iterable[Tensor]) -> set[Mesh]:
    return {mesh for mesh in map(_mesh, tensors) if mesh is not None}


def _mesh(tensor: Tensor) -> Mesh | None:
    """The mesh that its sharding was asked for on."""
    asked = tensor.requested
    return None if asked is None or asked.sharding is None else asked.sharding.mesh


def _not_run(executions: Sequence[Execution]) -> Iterator[Observation]:
    nothing = all(execution.failure for execution in executions)
    for execution in executions:
        if execution.failure:
            fact = NotExecuted(
                execution.partitioner, execution.refused, execution.failure, execution.hint
            )
            yield Observation(
                "not-lowerable" if execution.refused else "not-run",
                "note" if execution.refused and not nothing else "error",
                fact,
                partitioner=execution.partitioner,
            )


# --- shards ---------------------------------------------------------------------------------------


def _tensor(
    tensor: Tensor,
    executions: Sequence[tuple[Execution, ExecutedArray | None]],
    owners: Owners,
) -> tuple[ExecutedTensor, list[Observation]]:
    arrays: dict[Partitioner, ExecutedArray] = {}
    placements: dict[Partitioner, Placement] = {}
    verdicts: dict[Partitioner, Verdict] = {}
    wrong: dict[Partitioner, tuple[int, ...]] = {}
    findings: list[Observation] = []
    for execution, array in executions:
        partitioner = execution.partitioner
        if array is None:
            dropped = not execution.failure and tensor.requested and tensor.requested.dropped
            verdicts[partitioner] = "dropped" if dropped else "not run"
            continue
        arrays[partitioner] = array
        placement = executed_placement(array)
        if placement is not None:
            placements[partitioner] = placement
        verdicts[partitioner], observations, wrong[partitioner] = _verdict(
            tensor, array, placement, partitioner, owners
        )
        findings += observations
    row = ExecutedTensor(tensor, arrays, placements, verdicts, wrong, _mesh(tensor))
    return row, findings


def executed_placement(array: ExecutedArray) -> Placement | None:
    """The placement that JAX's sharding of an array says; None where it has none."""
    sharding = parse_hlo_sharding(array.sharding)
    if isinstance(sharding, TupleSharding):
        return None
    try:
        place = to_placement(sharding, array.rank, None, len(array.shards))
    except ConversionError:
        return None
    return replace(place, dims=place.dims + ((),) * (len(array.shape) - array.rank))


@dataclass(frozen=True)
class _Expected:
    """The sharding that an array was to have, with its placement, and the stage that says so."""

    stage: Literal["requested", "lowered"]
    sharded: Sharded
    placement: Placement


def _expectations(tensor: Tensor, partitioner: Partitioner) -> Iterator[_Expected]:
    requested = None if tensor.requested is None else requested_sharding(tensor.requested)
    # What was requested and places nothing is check's to tell.
    if requested is not None and requested.placement is not None:
        yield _Expected("requested", requested, requested.placement)
    there = tensor.lowered.get(partitioner)
    if there is not None and there.placement is not None:
        place = replace(there.placement, manual=())
        sharded = replace(there.sharded({}, _mesh(tensor)), placement=place)
        yield _Expected("lowered", sharded, place)


def _verdict(
    tensor: Tensor,
    array: ExecutedArray,
    placement: Placement | None,
    partitioner: Partitioner,
    owners: Owners,
) -> tuple[Verdict, list[Observation], tuple[int, ...]]:
    expectations = list(_expectations(tensor, partitioner))
    for expected in expectations:
        wrong = [shard for shard in array.shards if not _fits(shard, expected, array.shape)]
        if wrong:
            first = wrong[0]
            fact = OtherBlocks(
                devices=len(wrong),
                of=len(array.shards),
                stage=expected.stage,
                holder=owners.holder(first.device),
                block=first.index,
                buffer=first.shape,
                asked=expected_index(expected.placement, first.device, array.shape),
                expected=expected.sharded,
                found=None
                if placement is None
                else Sharded(None, array.shape, tensor.dtype, placement, _mesh(tensor)),
            )
            observation = Observation(
                "executed-differs",
                "error",
                fact,
                tensor.name,
                tensor.kind,
                tensor.source,
                partitioner,
            )
            return "differs", [observation], tuple(shard.device for shard in wrong)
    if not expectations or any(_opened(expected, placement) for expected in expectations):
        return "chosen", [], ()
    return "as placed", [], ()


def _opened(expected: _Expected, placement: Placement | None) -> bool:
    """Whether the compiler used the freedom it was given."""
    if not expected.sharded.open_dims or placement is None:
        return False
    return any(placement.dims[k] != expected.placement.dims[k] for k in expected.sharded.open_dims)


def _fits(shard: Shard, expected: _Expected, shape: tuple[int, ...]) -> bool:
    block = expected_index(expected.placement, shard.device, shape)
    if block is None or shard.shape != tuple(stop - start for start, stop in shard.index):
        return False
    for k, (real, asked) in enumerate(zip(shard.index, block, strict=True)):
        if k in expected.sharded.open_dims:
            # It may be cut further, or, where nobody cut it, at will.
            if expected.placement.dims[k] and not (asked[0] <= real[0] and real[1] <= asked[1]):
                return False
        elif real != asked:
            return False
    return True


def expected_index(
    placement: Placement, device: int, shape: Sequence[int]
) -> tuple[Extent, ...] | None:
    """The extents that a placement gives to the device at a position; None for nothing."""
    if placement.device is None and placement.num_devices == 1:
        device = 0  # On no mesh: whole on each device, as PRNG keys that are nowhere yet.
    if placement.device is None and device >= placement.num_devices:
        return None
    index = placement.index(device, shape)
    return None if index is None else tuple((part.start, part.stop) for part in index)


# --- numbers --------------------------------------------------------------------------------------


def _numerics(
    rows: Sequence[ExecutedTensor], execution: Execution, reference: Reference
) -> Iterator[Numeric]:
    results = {row.tensor.index: row for row in rows if row.tensor.kind == "result"}
    for index, differences in enumerate(execution.differences):
        if differences and index in results:
            row = results[index]
            path, dtype = row.tensor.path, row.tensor.dtype
            moved = reference.moved_result(index)
            error = numeric(path, index, dtype, reference.compute_dtypes, differences, moved)
            yield (
                error
                if error.device is not None
                else replace(
                    error, device=_holder(row.arrays.get(execution.partitioner), error.where)
                )
            )


def _holder(array: ExecutedArray | None, where: tuple[int, ...] | None) -> int | None:
    """The first device that holds an element."""
    if array is None or where is None:
        return None
    for shard in array.shards:
        if all(start <= i < stop for i, (start, stop) in zip(where, shard.index, strict=True)):
            return shard.device
    return None


def _unequal_replicas(
    row: ExecutedTensor,
    numerics: Mapping[Partitioner, Sequence[Numeric]],
    reference: Reference,
    owners: Owners,
) -> Iterator[Observation]:
    """Replicas of one block that differ: a partial sum that was taken for the whole."""
    tensor = row.tensor
    allowed = tolerance(coarsest(tensor.dtype, reference.compute_dtypes))
    for partitioner, array in row.arrays.items():
        if not array.unequal:
            continue
        worst = max(array.unequal, key=lambda replica: replica.error)
        is_rounding = worst.error <= allowed
        every = numerics.get(partitioner, ())
        change = next((each.change for each in every if each.index == tensor.index), None)
        # Of a small step, too, replicas that went another way each are nearly the same.
        of_change = error_of_change(worst.error, 1.0, change or 0.0, tensor.dtype)
        by_change = is_rounding and of_change is not None
        fact = UnequalReplicas(
            len(array.unequal),
            len(array.shards),
            owners.holder(worst.device),
            owners.holder(worst.first),
            of_change.error if by_change and of_change else worst.error,
            is_rounding and not by_change,
            by_change,
        )
        yield Observation(
            "replicas-differ",
            "note" if fact.is_rounding else "error",
            fact,
            tensor.name,
            tensor.kind,
            tensor.source,
            partitioner,
        )
