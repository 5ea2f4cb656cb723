"""What `fix` found: remedies, each with what it changes, how that is known, and its patch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from sdyscope.analysis.trials.cost import Prediction
from sdyscope.facts.account import Account
from sdyscope.facts.edits import MovedResult, NotTakenBecause, Numbers, SourceEdit
from sdyscope.facts.remarks import Remark
from sdyscope.facts.traffic import Traffic
from sdyscope.formatters import Displayed
from sdyscope.hardware.names import Hardware
from sdyscope.values.mesh import Mesh

Verdict: TypeAlias = Literal["pays", "trade", "loses", "corrects"]
"""``pays``: less time or memory, and not more of the other; ``trade``: less of one for more of the
other, and more is won than lost, or less only while loops of unknown trip count are short;
``corrects``: the program's numbers were wrong, and are right with it; ``loses``: none of these."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What a program sends, holds and takes a step, as it was compiled.

    Attributes:
        count: how many collectives a step runs.
        sent: bytes that a device sends in a step.
        traffic: the collectives by kind and axes, most bytes first.
        flops: floating-point operations of a device in matmuls; null where not known.
        arguments: bytes a device of the arguments.
        results: bytes a device of results in no argument's buffer.
        temporaries: bytes a device besides.
        total: bytes that a device needs in all; null where the compiler does not say.
        seconds: an estimate of the time of a step; null where the hardware has no known rates.
        looped: bytes of those sent that are in loops of unknown trip count, which count once.
    """

    count: int
    sent: int
    traffic: tuple[Traffic, ...]
    flops: float | None
    arguments: int
    results: int
    temporaries: int
    total: int | None
    seconds: float | None
    looped: int = 0

    def sends_more_from(self, before: Figures) -> int | None:
        """From how many iterations of such loops it sends more; None if each sends no more."""
        more = self.looped - before.looped
        if more <= 0:
            return None
        less = (before.sent - before.looped) - (self.sent - self.looped)
        return max(less // more + 1, 1)


@dataclass(frozen=True)
class Remedy:
    """Edits of the source that pay, or make numbers right.

    Attributes:
        edits: the edits, the one that does most first.
        verdict: what they are worth.
        after: the edited program, traced from the patched source and compiled.
        as_predicted: whether the patched source sends, by Shardy's prediction, just what was
            predicted for the edit before anything was traced; null where nothing was.
        numbers: whether it computes the same.
        patch: a unified diff of the source.
        texts: the edited files, by path.
        before_texts: the same files as they are.
        moved: results that it leaves elsewhere.
        more_from: from how many iterations of loops of unknown trip count a device sends more than
            now; null where it never does.
        next_step: what the step after this one takes, where it is another program because it is
            given next values that are elsewhere; null where it is the same, or not known.
        proven: whether the patched source was traced again, compiled to what is shown, and computes
            the same, or what is right.
    """

    edits: tuple[SourceEdit, ...]
    verdict: Verdict
    after: Figures
    as_predicted: bool | None
    numbers: Numbers
    patch: str
    texts: Mapping[str, str] = field(default_factory=dict, repr=False)
    before_texts: Mapping[str, str] = field(default_factory=dict, repr=False)
    moved: tuple[MovedResult, ...] = ()
    more_from: int | None = None
    next_step: Figures | None = None

    __document__ = (
        "edits",
        "verdict",
        "after",
        "as_predicted",
        "numbers",
        "moved",
        "more_from",
        "next_step",
        "patch",
        "proven",
    )

    @property
    def proven(self) -> bool:
        """Whether all of it was checked, and JAX takes the step after it."""
        is_refused = any(moved.is_refused for moved in self.moved)
        return self.verdict != "loses" and self.numbers.is_right and not is_refused


@dataclass(frozen=True, slots=True)
class NotTaken:
    """Edits that promised something, and were not taken.

    Attributes:
        edits: the edits.
        why: why not.
        detail: more on that; empty for nothing.
        after: the edited program, where it was compiled.
    """

    edits: tuple[SourceEdit, ...]
    why: NotTakenBecause
    detail: str = ""
    after: Figures | None = None


@dataclass(frozen=True, kw_only=True)
class Fix(Displayed):
    """What was found: the document of `sdyscope fix --json`.

    Attributes:
        schema: name and version of this form.
        name: the program's name.
        finding: what was to be fixed; empty for anything.
        jax_version: version of JAX that lowered it.
        hardware: what it was compiled for.
        meshes: the meshes that its shardings are on.
        before: the program as it is.
        predicted: the same, by Shardy's prediction.
        remedies: edits that pay, the best first.
        not_taken: edits that promised to and do not, the best promise first.
        proposed: how many edits the source can carry that were looked at.
        tried: how many edits, alone or together, were predicted.
        compiled: how many edited programs were compiled.
        seconds: how long it took.
        notes: what else there is to know.
        account: what is not known of the program.
    """

    schema: Literal["sdyscope.fix/1"] = "sdyscope.fix/1"
    name: str
    finding: str
    jax_version: str
    hardware: Hardware
    meshes: Mapping[str, Mesh]
    before: Figures
    predicted: Prediction
    remedies: tuple[Remedy, ...]
    not_taken: tuple[NotTaken, ...] = ()
    proposed: int = 0
    tried: int = 0
    compiled: int = 0
    seconds: float = 0.0
    notes: tuple[Remark | str, ...] = ()
    account: Account = field(default_factory=Account)

    @property
    def proven(self) -> tuple[Remedy, ...]:
        """The remedies that are proven."""
        return tuple(remedy for remedy in self.remedies if remedy.proven)
