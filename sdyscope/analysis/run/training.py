"""Steps in a row on a mesh, against the same on one device: losses by step, shards at the end.

What goes from one step to the next is found by path: the result `result[0]['w1']` is the next value
of `params['w1']`. The batch is the same in every step. What is left of the results and is a single
number, such as a loss, is compared step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sdyscope.analysis.naming.next_values import pairs_of_table
from sdyscope.analysis.run.numerics import coarsest, element_dtype, tolerance
from sdyscope.errors import TargetError
from sdyscope.facts.execution import Trained
from sdyscope.facts.findings import NotTrained, Observation, OtherTraining
from sdyscope.facts.program import Partitioner
from sdyscope.facts.tensors import Tensor, TensorTable
from sdyscope.facts.training import Curve, TrainedUnder, Training
from sdyscope.graph import OpGraph


@dataclass(frozen=True)
class TrainingPlan:
    """What a step of training is, read off a program's arguments and results.

    Attributes:
        carried: of each result that is an argument of the next step, which; flat indices.
        watched: results that are single numbers and are compared after each step.
    """

    carried: Mapping[int, int]
    watched: tuple[Tensor, ...]


def training_plan(
    name: str, table: TensorTable, module: tuple[Partitioner, OpGraph] | None = None
) -> TrainingPlan:
    """Which results are arguments of the next step, and which are compared.

    Args:
        name: the program's.
        table: its tensors.
        module: a partitioner and the op graph of its module, by which gradients are no next values.

    Raises:
        TargetError: no result is an argument of the next step, or none is a single number.
    """
    pairs = pairs_of_table(table, module)
    carried = {
        result: argument for result, (argument, relation) in pairs.items() if relation != "gradient"
    }
    known = {relation for _, relation in pairs.values()}
    if not carried or (module and "next value" not in known):
        raise TargetError(
            f"No result of {name} is recognizably the next value of an argument.",
            hint="--train needs a step that returns its new state as it takes it: params and "
            "opt_state, in the same structure.",
        )
    watched = tuple(
        row
        for row in table.tensors
        if row.kind == "result"
        and row.index not in carried
        and row.shape == ()
        and element_dtype(row.dtype)
    )
    if not watched:
        raise TargetError(
            f"{name} returns no single number, such as a loss, that could be compared by step.",
            hint="Return the loss from the step.",
        )
    return TrainingPlan(carried, watched)


def training(
    plan: TrainingPlan,
    steps: int,
    trained: Sequence[Trained],
    one_device: Trained,
    computed_in: Sequence[str],
    shards: Callable[[Trained], tuple[int, int, int, list[Observation]]],
) -> tuple[Training, list[Observation]]:
    """Compares steps on the mesh with those on one device.

    Args:
        plan: what a step is.
        steps: how many were asked for.
        trained: the steps under each partitioner.
        one_device: the same on one device.
        computed_in: element types that a step computes in.
        shards: compares the results of the last step with their placements: how many arrays, how
            many shards, how many arrays differ, and what was found.

    Returns:
        The comparison, and what was found.
    """
    under = {trainee.partitioner: trainee for trainee in trained if trainee.partitioner is not None}
    curves = tuple(
        Curve(
            row.path,
            row.dtype,
            tolerance(coarsest(row.dtype, computed_in)),
            tuple(values[at] for values in one_device.numbers),
            {
                name: tuple(values[at] for values in trainee.numbers)
                for name, trainee in under.items()
            },
        )
        for at, row in enumerate(plan.watched)
    )
    findings = [*_not_trained([*trained, one_device])]
    rows = []
    for partitioner, trainee in under.items():
        arrays, compared, differing, observations = shards(trainee)
        findings += observations
        findings += _differing(curves, partitioner, steps)
        errors = [error for curve in curves for error in curve.errors(partitioner)]
        rows.append(
            TrainedUnder(
                partitioner,
                trainee.failure,
                len(trainee.numbers),
                sum(trainee.step_seconds),
                arrays,
                compared,
                differing,
                max(errors, default=None),
            )
        )
    steps_in_a_row = Training(steps, len(plan.carried), curves, tuple(rows), one_device.failure)
    return steps_in_a_row, findings


def _not_trained(every: Sequence[Trained]) -> Iterator[Observation]:
    for trainee in every:
        if trainee.failure:
            severity: Literal["error", "note"] = "note" if trainee.partitioner is None else "error"
            fact = NotTrained(trainee.partitioner, trainee.failure)
            yield Observation("not-trained", severity, fact, partitioner=trainee.partitioner)


def _differing(
    curves: Sequence[Curve], partitioner: Partitioner, steps: int
) -> Iterator[Observation]:
    """Of each number the first step in which rounding does not explain the difference."""
    for curve in curves:
        for at, error in enumerate(curve.errors(partitioner)):
            if error > curve.tolerance:
                values = curve.partitioners[partitioner][at], curve.one_device[at]
                fact = OtherTraining(curve.path, at + 1, steps, *values, error, curve.tolerance)
                yield Observation(
                    "training-differs", "error", fact, curve.path, "result", partitioner=partitioner
                )
                break
