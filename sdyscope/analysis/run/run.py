"""Runs a program on real devices, and judges what they hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sdyscope.analysis.account import account_of
from sdyscope.analysis.run.blocks import compared
from sdyscope.analysis.run.judge import judge
from sdyscope.analysis.run.numerics import other_on_one_device
from sdyscope.analysis.run.processes import execution_of_all, reference_of_all
from sdyscope.analysis.run.values import Run
from sdyscope.errors import TargetError
from sdyscope.facts.execution import Execution, Reference
from sdyscope.facts.program import Program
from sdyscope.staged import Staged

if TYPE_CHECKING:
    from sdyscope.stages.executed.processes import Group

__all__ = ["ran"]


def ran(
    lowered: Staged,
    *,
    steps: int = 10,
    devices: Sequence[Any] | None = None,
    notify: Callable[[str, int, int], None] | None = None,
    group: Group | None = None,
    alone: Callable[[], Program] | None = None,
) -> Run:
    """See ``Inspection.run``."""
    from sdyscope.stages.executed.execute import Runner
    from sdyscope.stages.executed.processes import ALONE

    if lowered.program is None:
        lowered.chosen(None)  # Of a compiled program that raises, with a better reason.
        raise TargetError(
            f"{lowered.name} is a module without values to run it on.",
            hint="Name the program that it was lowered from.",
        )
    group, program = group or ALONE, lowered.program
    runner = group.together(
        lambda: Runner(
            program, lowered.traced, lowered.lowered, devices, steps, notify, group, alone
        ),
        "made its inputs",
    )
    runner.check_same()
    executions = [runner.run(partitioner) for partitioner in lowered.partitioners]
    reference = _beside_alone(runner.reference(), lowered)
    mine = [compared(execution, reference) for execution in executions]
    told = group.all_of(
        (mine, replace(reference, outputs=(), alone=())),
        "compared its results",
        tuple[list[Execution], Reference],
    )
    found = judge(
        lowered.name,
        runner.machine,
        runner.inputs,
        lowered.tensors,
        [execution_of_all(parts) for parts in zip(*(one for one, _ in told), strict=True)],
        reference_of_all([one for _, one in told]),
    )
    return replace(found, account=account_of(lowered))


def _beside_alone(reference: Reference, lowered: Staged) -> Reference:
    """What is computed with the bodies of shard_maps, beside what a mesh of one device computes."""
    if not reference.alone:
        return reference
    dtypes = {row.index: row.dtype for row in lowered.tensors.tensors if row.kind == "result"}
    pairs = enumerate(zip(reference.outputs, reference.alone, strict=True))
    found = (
        other_on_one_device(index, here, alone, dtypes[index], reference.compute_dtypes)
        for index, (here, alone) in pairs
        if here is not None and alone is not None and index in dtypes
    )
    return replace(reference, others=tuple(one for one in found if one is not None))
