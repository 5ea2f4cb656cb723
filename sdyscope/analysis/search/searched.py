"""Searches shardings of a program: its stages, put at the search's disposal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from sdyscope.analysis.account import account_of
from sdyscope.analysis.naming.roles import pass_rows
from sdyscope.analysis.search.decisions import space
from sdyscope.analysis.search.search import search
from sdyscope.analysis.search.space import Setting
from sdyscope.analysis.search.strategy import Budget
from sdyscope.analysis.search.values import Search
from sdyscope.analysis.trials.cost import Prediction, Rates
from sdyscope.analysis.trials.predict_all import PredictAll
from sdyscope.analysis.trials.trials import CompiledCandidate, Trials, Written
from sdyscope.errors import SdyscopeError, TargetError
from sdyscope.facts.remarks import Remark
from sdyscope.facts.traffic import Traffic
from sdyscope.hardware.names import LARGEST_CPU, Hardware
from sdyscope.staged import Staged


def searched(
    program: Staged,
    arguments: Sequence[str] = (),
    axes: Sequence[str] | None = None,
    *,
    limit: int | None = None,
    rates: Rates = Rates(),  # noqa: B008 (frozen)
    budget: Budget = Budget(),  # noqa: B008
    seed: int = 0,
    tied: bool = True,
    constraints: bool | None = None,
    on: Hardware | str | None = None,
    checks: int = 24,
    compiles: int = 3,
    notify: Callable[[str, float], None] | None = None,
) -> Search:
    """See ``Inspection.search``."""
    trials = Trials(program, on)
    mesh = trials.mesh
    for axis in rates.bandwidths:
        if axis not in mesh.shape:
            raise TargetError(
                f"The mesh has no axis {axis!r}.", hint=f"It has {', '.join(mesh.shape)}."
            )
    in_passes = pass_rows(
        program.graph("shardy"), program.tensors.of("argument", "shardy"), "shardy"
    )
    decision_space = space(
        program.tensors,
        "shardy",
        mesh,
        arguments,
        axes,
        in_passes=in_passes,
        tied=tied,
        constraints=constraints,
    )
    notes: dict[Remark | str, None] = {}

    predict_all = PredictAll(trials)

    def predict(candidates: Sequence[Sequence[Setting]]) -> list[Prediction | SdyscopeError]:
        if not any(candidates):
            return [trials.predict() for _ in candidates]  # which notes what there is to know
        return predict_all(list(map(_written, candidates)))

    def expect(candidates: Iterable[Sequence[Setting]]) -> None:
        predict_all.expect(map(_written, candidates))

    def partition(settings: Sequence[Setting]) -> tuple[Traffic, ...]:
        return trials.partition(trials.changes(_written(settings)))

    def compile_(settings: Sequence[Setting]) -> CompiledCandidate:
        return trials.compile(_written(settings))

    compilable = on is not None or trials.devices <= LARGEST_CPU
    if not compilable:
        notes[Remark("too many devices", count=LARGEST_CPU)] = None
    if rates.bandwidths:
        where = "hardware with these bandwidths" if on is None else str(on)
        notes[Remark("error unknown", where)] = None
    if on is not None and compiles:
        trials.compile()  # hardware that does not fit is better known before than after
    with predict_all:
        result = search(
            decision_space,
            predict,
            None if trials.devices > LARGEST_CPU else partition,
            compile_ if compilable else None,
            expect=expect,
            rates=rates,
            limit=limit,
            budget=budget,
            seed=seed,
            checks=checks,
            compiles=compiles,
            notify=notify,
        )
    return replace(
        result,
        notes=(*result.notes, *trials.notes, *notes),
        name=program.name,
        jax_version=trials.lowered.jax_version,
        meshes=program.meshes,
        account=account_of(program),
    )


def _written(settings: Sequence[Setting]) -> list[Written]:
    return [(member.kind, member.number, spec) for member, spec in settings]
