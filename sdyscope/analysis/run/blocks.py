"""Results against one device: blocks are compared where they are, and what is wrong is found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sdyscope.analysis.run.numerics import Numeric, difference
from sdyscope.facts.execution import Execution, Machine, Process, Reference
from sdyscope.facts.findings import Holder, Observation, OtherNumbers
from sdyscope.facts.program import Partitioner


def compared(execution: Execution, reference: Reference) -> Execution:
    """An execution with its results compared, and without them: they have done their service."""
    if not execution.outputs:
        return execution
    differences = [
        None
        if blocks is None or expected is None
        else tuple(
            difference(block, expected, reference.before_result(index), reference.jumps_of(index))
            for block in blocks
        )
        for index, (blocks, expected) in enumerate(
            zip(execution.outputs, reference.outputs, strict=False)
        )
    ]
    return replace(execution, outputs=(), differences=tuple(differences))


class Owners:
    """The processes that devices belong to, where there are several.

    Args:
        machine: what was run on.
    """

    def __init__(self, machine: Machine) -> None:
        self._processes = {
            device: process for process in machine.processes for device in process.devices
        }

    def only(self, numeric: Numeric) -> Process | None:
        """The one process whose blocks of a result are wrong, and not another's."""
        wrong = {self._processes.get(device) for device in numeric.wrong}
        right = {self._processes.get(device) for device in numeric.right}
        return wrong.pop() if len(wrong) == 1 and right - wrong else None

    def holder(self, device: int) -> Holder:
        """A device with its process."""
        return Holder(device, self._processes.get(device))


def wrong_numbers(
    errors: Sequence[Numeric],
    partitioner: Partitioner,
    reference: Reference,
    owners: Owners,
) -> Iterator[Observation]:
    """One observation for all results that are wrong: where one is, most that depend on it are."""
    outside = (error for error in errors if not error.within)
    wrong = sorted(outside, key=lambda error: error.excess, reverse=True)
    if not wrong:
        return
    worst = wrong[0]
    fact = OtherNumbers(
        results=len(errors),
        worst=worst.path,
        others=tuple(numeric.path for numeric in wrong[1:]),
        error=worst.error,
        tolerance=worst.tolerance,
        coarsest=worst.coarsest,
        where=worst.where,
        pair=worst.pair,
        holder=None if worst.device is None else owners.holder(worst.device),
        only=owners.only(worst),
        is_random=reference.draws_random_numbers,
        function=reference.function,
        by_change=worst.by_change,
    )
    yield Observation(
        "numerics-differ", "error", fact, worst.path, "result", partitioner=partitioner
    )
