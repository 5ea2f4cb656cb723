"""run: what is on real devices against the placements that were asked for and lowered.

Every shard that a device holds is compared with the block that the placement gives to the device;
where nothing was asked for, what the compiler chose is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from sdyscope.analysis.run.blocks import Where, compared, wrong_numbers
from sdyscope.analysis.run.numerics import Numeric, coarsest, numeric, tolerance
from sdyscope.analysis.run.values import ExecutedTensor, Run, Verdict
from sdyscope.errors import ConversionError
from sdyscope.facts.execution import ExecutedArray, Execution, Extent, Machine, Reference, Shard
from sdyscope.facts.findings import Finding, Severity
from sdyscope.facts.program import Partitioner
from sdyscope.facts.tensors import Tensor, TensorTable
from sdyscope.syntax.hlo_sharding import parse_hlo_sharding
from sdyscope.values.convert import to_placement, unspecified_dims
from sdyscope.values.mesh import Mesh, only_mesh
from sdyscope.values.placement import Placement
from sdyscope.values.tiling import TupleSharding
from sdyscope.words.sharding import placement_text

_SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")


def judge(
    name: str,
    machine: Machine,
    inputs: str,
    table: TensorTable,
    executions: Sequence[Execution],
    reference: Reference,
) -> Run:
    """Compares what was executed with the table.

    Args:
        name: the program's.
        machine: what it ran on.
        inputs: where the values came from, in words.
        table: what was requested and lowered.
        executions: one a partitioner; of several processes, put together.
        reference: the same step on one device.
    """
    executions = [compared(execution, reference) for execution in executions]
    where = Where(machine)
    findings = list(_not_run(executions))
    rows = []
    held = [
        {(array.kind, array.index): array for array in execution.arrays} for execution in executions
    ]
    for tensor in table.tensors:
        if tensor.kind in ("argument", "result") and tensor.requested is not None:
            there = [arrays.get((tensor.kind, tensor.index or 0)) for arrays in held]
            row, found = _tensor(tensor, list(zip(executions, there, strict=True)), where)
            rows.append(row)
            findings += found
    numerics = {
        execution.partitioner: tuple(_numerics(rows, execution, reference))
        for execution in executions
        if not execution.failure
    }
    for partitioner, errors in numerics.items():
        findings += wrong_numbers(errors, partitioner, reference, where)
    for row in rows:
        findings += _unequal_copies(row, reference, where)
    if reference.failure:
        findings.append(
            Finding(
                "not-compared",
                "note",
                "The results are not compared with the same step on one device: "
                f"{reference.failure}",
            )
        )
    # Constraints name it where no argument or result does.
    mesh = only_mesh(_meshes([row.tensor for row in rows]) or _meshes(table.tensors))
    return Run(
        name,
        machine,
        mesh,
        inputs,
        tuple(row if row.mesh is not None else replace(row, mesh=mesh) for row in rows),
        {execution.partitioner: execution for execution in executions},
        replace(reference, outputs=()),
        numerics,
        tuple(sorted(findings, key=lambda finding: _SEVERITIES.index(finding.severity))),
        tuple(_notes(executions, reference)),
    )


def _meshes(tensors: Iterable[Tensor]) -> set[Mesh]:
    return {mesh for mesh in map(_mesh, tensors) if mesh is not None}


def _mesh(tensor: Tensor) -> Mesh | None:
    """The mesh that its sharding was asked for on."""
    asked = tensor.requested
    return None if asked is None or asked.sharding is None else asked.sharding.mesh


def _not_run(executions: Sequence[Execution]) -> Iterator[Finding]:
    nothing = all(execution.failure for execution in executions)
    for execution in executions:
        if execution.failure:
            refused = execution.refused and not nothing
            yield Finding(
                "not-lowerable" if execution.refused else "not-run",
                "note" if refused else "error",
                f"There is nothing to run under {execution.partitioner}: {execution.failure}"
                if execution.refused
                else f"It does not run under {execution.partitioner}: {execution.failure}",
                partitioner=execution.partitioner,
                hint=execution.hint,
            )


def _notes(executions: Sequence[Execution], reference: Reference) -> Iterator[str]:
    yield from dict.fromkeys(note for execution in executions for note in execution.notes)
    if reference.draws_random_numbers:
        yield (
            "The step draws random numbers. With jax_threefry_partitionable on, as here, threefry "
            "keys give the same numbers however they are sharded; rbg keys need not."
            if reference.threefry_partitionable
            else "The step draws random numbers, and jax_threefry_partitionable is off: the "
            "numbers may depend on how they are sharded."
        )


# --- shards ---------------------------------------------------------------------------------------


def _tensor(
    tensor: Tensor,
    executions: Sequence[tuple[Execution, ExecutedArray | None]],
    where: Where,
) -> tuple[ExecutedTensor, list[Finding]]:
    arrays: dict[Partitioner, ExecutedArray] = {}
    placements: dict[Partitioner, Placement] = {}
    verdicts: dict[Partitioner, Verdict] = {}
    wrong: dict[Partitioner, tuple[int, ...]] = {}
    findings: list[Finding] = []
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
        verdicts[partitioner], found, wrong[partitioner] = _verdict(
            tensor, array, placement, partitioner, where
        )
        findings += found
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
    """A placement that an array was to have, dimensions that are open, and who says so."""

    who: str
    placement: Placement
    open_dims: tuple[int, ...]


def _expectations(tensor: Tensor, partitioner: Partitioner) -> Iterator[_Expected]:
    asked = tensor.requested
    if asked is not None and asked.sharding is not None:
        rank = len(asked.shape)
        try:
            place = to_placement(asked.sharding, rank)
        except ConversionError:
            pass  # check says so.
        else:
            yield _Expected("requested", place, unspecified_dims(asked.sharding, rank))
    there = tensor.lowered.get(partitioner)
    if there is not None and there.placement is not None:
        yield _Expected("lowered", replace(there.placement, manual=()), there.open_dims)


def _verdict(
    tensor: Tensor,
    array: ExecutedArray,
    placement: Placement | None,
    partitioner: Partitioner,
    where: Where,
) -> tuple[Verdict, list[Finding], tuple[int, ...]]:
    expectations = list(_expectations(tensor, partitioner))
    mesh = _mesh(tensor)
    found = "" if placement is None else placement_text(placement, mesh)
    for expected in expectations:
        wrong = [shard for shard in array.shards if not _fits(shard, expected, array.shape)]
        if wrong:
            first = wrong[0]
            return (
                "differs",
                [
                    Finding(
                        "executed-differs",
                        "error",
                        f"{len(wrong)} of {len(array.shards)} devices hold another block than was "
                        f"{expected.who}: {_difference(first, expected, array.shape, where)}.",
                        tensor.name,
                        tensor.kind,
                        tensor.source,
                        partitioner,
                        placement_text(expected.placement, mesh),
                        found,
                        "Please report this with the program: JAX's runtime and its own IR "
                        "disagree.",
                    )
                ],
                tuple(shard.device for shard in wrong),
            )
    if not expectations or any(_opened(expected, placement) for expected in expectations):
        return "chosen", [], ()
    return "as placed", [], ()


def _opened(expected: _Expected, placement: Placement | None) -> bool:
    """Whether the compiler used the freedom it was given."""
    if not expected.open_dims or placement is None:
        return False
    return any(placement.dims[k] != expected.placement.dims[k] for k in expected.open_dims)


def _fits(shard: Shard, expected: _Expected, shape: tuple[int, ...]) -> bool:
    block = expected_index(expected.placement, shard.device, shape)
    if block is None or shard.shape != tuple(stop - start for start, stop in shard.index):
        return False
    for k, (real, asked) in enumerate(zip(shard.index, block, strict=True)):
        if k in expected.open_dims:
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


def _difference(shard: Shard, expected: _Expected, shape: tuple[int, ...], where: Where) -> str:
    block = expected_index(expected.placement, shard.device, shape)
    asked = "nothing" if block is None else index_text(block)
    real = index_text(shard.index)
    if shard.shape != tuple(stop - start for start, stop in shard.index):
        real += f" in a buffer of {list(shard.shape)}"
    return f"{where(shard.device)} has {real} and not {asked}"


def index_text(index: Sequence[Extent]) -> str:
    """`[0:4, 8:16]`."""
    return f"[{', '.join(f'{start}:{stop}' for start, stop in index)}]"


# --- numbers --------------------------------------------------------------------------------------


def _numerics(
    rows: Sequence[ExecutedTensor], execution: Execution, reference: Reference
) -> Iterator[Numeric]:
    results = {row.tensor.index: row for row in rows if row.tensor.kind == "result"}
    for index, differences in enumerate(execution.differences):
        if differences and index in results:
            row = results[index]
            path, dtype = row.tensor.path, row.tensor.dtype
            found = numeric(path, index, dtype, reference.compute_dtypes, differences)
            yield (
                found
                if found.device is not None
                else replace(
                    found, device=_holder(row.arrays.get(execution.partitioner), found.where)
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


def _unequal_copies(row: ExecutedTensor, reference: Reference, where: Where) -> Iterator[Finding]:
    """Copies of one block that differ: a partial sum that was taken for the whole."""
    tensor = row.tensor
    allowed = tolerance(coarsest(tensor.dtype, reference.compute_dtypes))
    for partitioner, array in row.arrays.items():
        if not array.unequal:
            continue
        worst = max(array.unequal, key=lambda copy: copy.error)
        yield Finding(
            "copies-differ",
            "error" if worst.error > allowed else "note",
            f"{len(array.unequal)} of {len(array.shards)} devices hold another value than the "
            f"first device that has the same block: {where(worst.device)} and "
            f"{where(worst.first)} by {worst.error:.2g} of its norm.",
            tensor.name,
            tensor.kind,
            tensor.source,
            partitioner,
            "the same value in every copy",
            hint="Look for a shard_map output that is not reduced over an axis that its spec "
            "leaves out."
            if worst.error > allowed
            else "It is no more than rounding explains.",
        )
