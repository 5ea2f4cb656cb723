"""What a search finds: candidates, what the compiler makes of them, and the best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from sdyscope.analysis.fix.values import Fix
from sdyscope.analysis.search.decisions import Space
from sdyscope.analysis.search.space import Decision, Setting, spec_of
from sdyscope.analysis.search.strategy import Assignment
from sdyscope.analysis.trials.cost import Prediction, Rates
from sdyscope.analysis.trials.trials import CompiledCandidate
from sdyscope.facts.account import Account
from sdyscope.facts.remarks import Remark
from sdyscope.formatters import in_place
from sdyscope.values.mesh import Mesh
from sdyscope.values.sharding import PartitionSpec

Outcome: TypeAlias = Literal["confirmed", "not confirmed", "not compiled", "nothing better"]
"""``confirmed``: the chosen one is better when it is compiled, too; ``not confirmed``: nothing that
was compiled is; ``not compiled``: something is better, and none was to be compiled; ``nothing
better``: the program's own shardings are the best."""


@dataclass(frozen=True)
class DecisionChange:
    """A decision that is another than the program's.

    Attributes:
        decision: what is decided.
        name: the decision's name.
        before: how it is sharded in the program; None where that is open, or they differ.
        after: how it would be.
    """

    decision: Decision
    before: PartitionSpec | None
    after: PartitionSpec

    __document__ = ("name", "before", "after")

    @property
    def name(self) -> str:
        """The decision's name."""
        return self.decision.name


def changes_of(space: Space, assignment: Assignment) -> tuple[DecisionChange, ...]:
    """What a candidate has other than the program, the largest first."""
    return tuple(
        DecisionChange(decision, decision.now, spec_of(after))
        for decision, number in zip(space.decisions, assignment, strict=True)
        if number and (after := decision.options[number]) is not None
    )


@dataclass(frozen=True, slots=True)
class Crash:
    """A candidate that crashed the compiler, which only took the process that predicted it.

    Attributes:
        how: the signal that ended the process, or its exit status.
        changes: what is other than in the program.
    """

    how: str
    changes: tuple[DecisionChange, ...]


@dataclass(frozen=True)
class Candidate:
    """One way to shard the program.

    Attributes:
        assignment: the option of each decision.
        prediction: what it would send, compute and hold.
        predicted_cost: bytes that would take as long; see ``Rates``.
        changes: what is other than in the program, the largest first.
        partitioned: the same, with the collectives that XLA's partitioner makes; None where it was
            not asked.
        partitioned_cost: its cost by that; None likewise.
        seconds: an estimate of the time of a step, by the best that is known of it; None where no
            bandwidth was given.
    """

    assignment: Assignment
    prediction: Prediction
    predicted_cost: float
    changes: tuple[DecisionChange, ...]
    partitioned: Prediction | None = None
    partitioned_cost: float | None = None
    seconds: float | None = None

    __document__ = in_place(assignment=(), changes=(), seconds=("seconds", "changes"))

    @property
    def known(self) -> Prediction:
        """The best that is known of it."""
        return self.partitioned or self.prediction

    @property
    def cost(self) -> float:
        """Its cost by the best that is known of it."""
        return self.predicted_cost if self.partitioned_cost is None else self.partitioned_cost


@dataclass(frozen=True)
class Trial:
    """A candidate that was compiled.

    Attributes:
        candidate: the candidate.
        compiled: what the compiler made of it; None where it refused.
        better: whether it is better than the program as it is, by the compiled programs.
        why: why not; empty where it is.
    """

    candidate: Candidate
    compiled: CompiledCandidate | None
    better: bool
    why: Remark | str = ""


@dataclass(frozen=True, kw_only=True)
class Search:
    """What a search found: the document of `sdyscope search --json`.

    Attributes:
        schema: name and version of this form.
        name: the program's name, or the module's.
        jax_version: version of JAX that lowered it.
        meshes: the meshes that its shardings are on.
        space: what was searched.
        outcome: what came of it.
        rates: how bytes and FLOPs were weighed.
        limit: bytes that a device may hold; None for any number.
        seed: of the random numbers.
        start: the program as it is.
        chosen: the best that was confirmed, or else the best that there is; None where nothing is
            better than the program as it is.
        best: what is best by the best that is known of each; ``start`` where nothing is better.
        front: those to which no other is better in both cost and memory, the least cost first; of
            those that XLA partitioned, where it did.
        partitioned: all that XLA partitioned, the program itself included.
        checked: how many XLA partitioned.
        tried: how many candidates were predicted.
        near: how many of them near the best of those that XLA partitioned, beyond the budget.
        refused: how many of them Shardy or XLA refused or crashed on.
        refusal: why, of the first that was refused; empty for none.
        crashed: how many of the refused crashed the compiler.
        crash: the first of these; None for none.
        seconds: how long predicting took.
        check_seconds: how long partitioning took.
        compiled_start: what the compiler makes of the program as it is; None where none was asked.
        trials: the candidates that were compiled, in order.
        notes: what else there is to know.
        patch: the plan, written into the source, with its proof; null where that was not asked for,
            or nothing better was found.
        account: what is not known of the program.
    """

    schema: Literal["sdyscope.search/2"] = "sdyscope.search/2"
    name: str = ""
    jax_version: str = ""
    meshes: Mapping[str, Mesh] = field(default_factory=dict)
    space: Space
    tried: int
    near: int
    partitioned: tuple[Candidate, ...]
    refused: int
    refusal: str
    crashed: int = 0
    crash: Crash | None = None
    seconds: float
    check_seconds: float
    seed: int
    limit: int | None
    rates: Rates
    start: Candidate
    best: Candidate
    front: tuple[Candidate, ...]
    compiled_start: CompiledCandidate | None = None
    trials: tuple[Trial, ...] = ()
    notes: tuple[Remark | str, ...] = ()
    patch: Fix | None = None
    account: Account = field(default_factory=Account)

    __document__ = in_place(space=("space", "outcome"), partitioned=("checked",), best=("chosen",))

    @property
    def plan(self) -> tuple[Setting, ...]:
        """The chosen plan as ``Inspection.fix`` takes it; empty where nothing better was found."""
        return () if self.chosen is None else self.space.settings(self.chosen.assignment)

    @property
    def checked(self) -> int:
        """How many XLA partitioned, the program itself included."""
        return len(self.partitioned)

    @property
    def chosen(self) -> Candidate | None:
        """The best that was confirmed, or else the best that there is."""
        return self.confirmed or (None if self.best is self.start else self.best)

    @property
    def outcome(self) -> Outcome:
        """What came of it."""
        if self.confirmed is not None:
            return "confirmed"
        if self.best is self.start:
            return "nothing better"
        return "not confirmed" if self.trials else "not compiled"

    @property
    def confirmed(self) -> Candidate | None:
        """The best that is better by the compiled programs, too; None where there is none."""
        return next((trial.candidate for trial in self.trials if trial.better), None)

    @property
    def compiled_pair(self) -> tuple[CompiledCandidate, CompiledCandidate] | None:
        """What the compiler made of the program and of the best; None where it was not asked."""
        best = (each.compiled for each in self.trials if each.candidate == self.chosen)
        compiled = next(filter(None, best), None)
        if self.compiled_start is None or compiled is None:
            return None
        return self.compiled_start, compiled

    @property
    def a_minute(self) -> float:
        """Candidates a minute, within the budget."""
        return 60 * (self.tried - self.near) / self.seconds if self.seconds else 0.0
