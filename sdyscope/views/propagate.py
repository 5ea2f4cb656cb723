"""Every value of a program after propagation, and the steps that led there, as a document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from sdyscope.analysis.propagation.replay import Replay
from sdyscope.errors import CompilerError, TargetError
from sdyscope.facts.account import Account
from sdyscope.facts.program import Partitioner
from sdyscope.inspection import Inspection
from sdyscope.views import propagated_diff
from sdyscope.views.failure import Failure, failures
from sdyscope.views.propagate_rows import (
    Side,
    Step,
    Value,
    matches,
    step_rows,
    value_rows,
)
from sdyscope.views.propagated import PropagationDocument, describer, propagation_document
from sdyscope.views.propagated_diff import PropagatedDiff
from sdyscope.words.mesh import MeshDocument, mesh_documents


@dataclass(frozen=True, slots=True, kw_only=True)
class Propagate:
    """The document of `sdyscope propagate --json`.

    Attributes:
      schema: name and version of this form.
      name: the program's name, or the module's.
      file: the file that it was read from; null for a program.
      jax_version: version of JAX that lowered or read it.
      meshes: the meshes that its shardings are on.
      propagations: by whom it was propagated, and how much that is worth.
      failures: which partitioners did not, and why.
      at_step: after which step this is; null for the end.
      changes: the annotations that were changed: what was wished for.
      changed: what differs from the program as it is, by partitioner; null when nothing was
        changed.
      values: the values, or those that match.
      hidden: how many values do not match.
      steps: the steps in order, those that match; null when they were not asked for.
      last_step: the number of the last step; null without any.
      has_priorities: whether the user gave priorities.
      account: what is not known of the program, at the stages that were looked at.
    """

    schema: Literal["sdyscope.propagate/2"] = "sdyscope.propagate/2"
    name: str
    file: str | None
    jax_version: str
    meshes: tuple[MeshDocument, ...]
    propagations: tuple[PropagationDocument, ...]
    failures: tuple[Failure, ...]
    at_step: int | None
    changes: tuple[str, ...]
    changed: tuple[PropagatedDiff, ...] | None
    values: tuple[Value, ...]
    hidden: int
    steps: tuple[Step, ...] | None
    last_step: int | None
    has_priorities: bool
    account: Account

    @property
    def partitioners(self) -> tuple[Partitioner, ...]:
        """Whose propagations there are."""
        return tuple(one.partitioner for one in self.propagations)

    @property
    def compared(self) -> tuple[Value, ...]:
        """The values that all partitioners have put somewhere, each once.

        An input of a `shard_map` is a value that has a row of its own.
        """
        return tuple(
            value
            for value in self.values
            if value.same is not None and value.kind != "shard_map input"
        )

    @property
    def differing(self) -> int:
        """How many of them the partitioners put differently."""
        return sum(value.same is False for value in self.compared)


def document(
    inspection: Inspection,
    before: Inspection | None = None,
    *,
    match: str | None = None,
    steps: bool = False,
    at_step: int | None = None,
    conservative: bool = False,
    changes: Sequence[str] = (),
) -> Propagate:
    """The document of one program or module.

    Args:
      inspection: the program, with other annotations if so wished.
      before: the program as it is, to compare with; None where nothing is changed.
      match: a glob that names of values must match; None for all.
      steps: whether to list the steps.
      at_step: the step after which to look; None for the end.
      conservative: whether to propagate conservatively.
      changes: what was changed, in words.

    Raises:
      SdyscopeError: no partitioner propagates it, or there is no such step.
    """
    sides, failed = _sides(inspection, conservative)
    lowered = next(iter(inspection.lowered.values()))
    replay = None
    shardy = sides.get("shardy")
    if shardy is not None and shardy.found.steps:
        explainer = inspection.explainer("shardy", conservative=conservative)
        replay = Replay(explainer.flow, shardy.describer.places)
    if replay is None and (steps or at_step is not None):
        raise TargetError(
            "There are no steps: only Shardy's propagation, run in this process, numbers them."
            if shardy is None or shardy.found.steps
            else "There are no steps: no axis moved.",
        )
    if at_step is not None and replay is not None and shardy is not None:
        last = replay.last or 0
        if at_step > last:
            raise TargetError(
                f"There is no step {at_step}.", hint=f"The last step is {last}, the first 0."
            )
        sides = {"shardy": replace(shardy, at=replay.at(at_step))}
    rows = list(value_rows(inspection.tensors, sides))
    kept = rows if match is None else [row for row in rows if matches(row, match)]
    return Propagate(
        name=inspection.name,
        file=inspection.file,
        jax_version=lowered.jax_version,
        meshes=mesh_documents(inspection.meshes),
        propagations=tuple(propagation_document(side.found) for side in sides.values()),
        failures=(*failures(inspection.failures), *failed),
        at_step=at_step,
        changes=tuple(changes),
        changed=None
        if before is None
        else tuple(_changed(before, inspection, sides, conservative)),
        values=tuple(kept),
        hidden=len(rows) - len(kept),
        steps=tuple(step_rows(replay, match)) if steps and replay is not None else None,
        last_step=None if replay is None else replay.last,
        has_priorities=replay is not None and replay.has_priorities,
        account=inspection.account,
    )


def _sides(
    inspection: Inspection, conservative: bool
) -> tuple[dict[Partitioner, Side], list[Failure]]:
    sides: dict[Partitioner, Side] = {}
    failed: dict[Partitioner, CompilerError] = {}
    for partitioner in inspection.lowered:
        try:
            found = inspection.propagated(
                partitioner, conservative=conservative and partitioner == "shardy"
            )
        except CompilerError as error:
            failed[partitioner] = error
            continue
        graph = inspection.graph(partitioner)
        sides[partitioner] = Side(found, graph, describer(inspection, found))
    if not sides:
        raise next(iter(failed.values()))
    return sides, list(failures(failed))


def _changed(
    before: Inspection,
    after: Inspection,
    sides: Mapping[Partitioner, Side],
    conservative: bool,
) -> Iterator[PropagatedDiff]:
    for partitioner, side in sides.items():
        if partitioner not in before.lowered:
            continue
        one = before.propagated_side(partitioner, propagated_diff.BEFORE)
        two = after.propagated_side(
            partitioner,
            propagated_diff.AFTER,
            conservative=conservative and partitioner == "shardy",
        )
        describers = (describer(before, one.propagated), side.describer)
        yield propagated_diff.program(f"{after.name} under {partitioner}", (one, two), describers)
