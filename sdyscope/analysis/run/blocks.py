"""Results against one device: blocks are compared where they are, and what is wrong is found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sdyscope.analysis.run.numerics import Numeric, difference
from sdyscope.facts.execution import Execution, Machine, Reference
from sdyscope.facts.findings import Finding
from sdyscope.facts.program import Partitioner


def compared(execution: Execution, reference: Reference) -> Execution:
    """An execution with its results compared, and without them: they have done their service."""
    if not execution.outputs:
        return execution
    differences = [
        None
        if blocks is None or expected is None
        else tuple(difference(block, expected) for block in blocks)
        for blocks, expected in zip(execution.outputs, reference.outputs, strict=False)
    ]
    return replace(execution, outputs=(), differences=tuple(differences))


class Where:
    """Names devices, with their process where there are several.

    Args:
        machine: what was run on.
    """

    def __init__(self, machine: Machine) -> None:
        self.owners = {
            device: f"process {process.number} on {process.host}"
            for process in machine.processes
            for device in process.devices
        }

    def only(self, found: Numeric) -> str:
        """The one process whose blocks of a result are wrong, and not another's; or nothing."""
        wrong = {self.owners.get(device, "") for device in found.wrong}
        right = {self.owners.get(device, "") for device in found.right}
        return wrong.pop() if len(wrong) == 1 and right - wrong else ""

    def __call__(self, device: int) -> str:
        """`device 5 (process 1 on node7)`; `device 5` for one process alone."""
        owner = self.owners.get(device)
        return f"device {device}" + (f" ({owner})" if owner else "")


#: How many results a finding names.
_NAMED = 6


def wrong_numbers(
    errors: Sequence[Numeric],
    partitioner: Partitioner,
    reference: Reference,
    where: Where,
) -> Iterator[Finding]:
    """One finding for all results that are wrong: where one is, most that depend on it are."""
    wrong = sorted((found for found in errors if not found.within), key=_excess, reverse=True)
    if not wrong:
        return
    worst = wrong[0]
    allowed = f"an error of at most {worst.tolerance:.2g} ({worst.coarsest})"
    place = ""
    if worst.where is not None:
        here, there = worst.pair or ("another value", "its own")
        place = f": {here} where one device has {there}, at {list(worst.where)}"
    if worst.device is not None:
        place += f" on {where(worst.device)}"
    message = "It is not what one device computes."
    if len(wrong) > 1:
        names = ", ".join(found.path for found in wrong[1:_NAMED])
        more = f" and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
        message = (
            f"{len(wrong)} of {len(errors)} results are not what one device computes, this one "
            f"most of all, then {names}{more}."
        )
    hint = "Look for an axis that is never reduced, or a shard_map that counts on its size."
    if only := where.only(worst):
        message += f" Of {worst.path} only what {only} holds is wrong."
        hint = "Look for what is other there: a device, a driver, a package, what a callback reads."
    if reference.draws_random_numbers:
        hint = "Random numbers may depend on the sharding: see the note above."
    yield Finding(
        "numerics-differ",
        "error",
        message,
        worst.path,
        "result",
        partitioner=partitioner,
        expected=allowed if worst.coarsest else "the very same",
        found=f"an error of {worst.error:.2g}{place}",
        hint=hint,
    )


def _excess(found: Numeric) -> float:
    return found.error / found.tolerance if found.tolerance else float("inf")
