"""The account of what is not known: what was not understood, can't be, was refused, or is a guess.

Every command, document, page and snapshot that looked at a module carries the account of what it
looked at, so that nothing is shown as known which is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Literal, TypeAlias, get_args

from sdyscope.facts.program import Partitioner
from sdyscope.facts.remarks import Remark
from sdyscope.values.source import PathWords, SourceLocation

Stage: TypeAlias = Literal["requested", "lowered", "propagated", "compiled", "executed"]
"""The stages of a program; each is described in docs/README.md."""

STAGES: tuple[Stage, ...] = get_args(Stage)

UnknownKind: TypeAlias = Literal[
    "not understood", "impossible", "refused", "left out", "approximate", "not compared"
]
"""``not understood``: a text that could not be read; ``impossible``: a sharding that no devices can
have (another rank than its tensor, other devices than the program); ``refused``: a stage that JAX
or XLA refused to make; ``left out``: something that is there and is not shown; ``approximate``:
what XLA may decide otherwise; ``not compared``: two things that should have been."""


class Why(Enum):
    """Why something is not known, where no compiler and no reader says it in words of its own."""

    NOT_ALIGNED = auto()
    """The module does not have a requested tensor where JAX lowers it."""
    OTHER_TYPES = auto()
    """The results of an op have other types in the partitioner's module."""
    UNKNOWN_TRIPS = auto()
    """Collectives in a loop of unknown trip count count once."""
    IN_BRANCHES = auto()
    """Collectives in a branch count as if it were always taken."""
    RAGGED = auto()
    """Bytes of ragged all-to-alls are an upper bound."""
    FURTHER_LINES = auto()
    """Lines of the HLO that are counted, and not listed."""


Reason: TypeAlias = PathWords | Why | Remark
"""A compiler's or reader's own words as text. One dataclass: it is read back from JSON."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """One thing that is not known.

    Attributes:
        kind: in which way.
        stage: at which stage.
        reason: why, a clause without a full stop.
        partitioners: under which partitioners; nothing where it has nothing to do with one.
        subject: what it is about: `argument`, `constraint`, an attribute's name; empty for a whole
            stage.
        name: the tensor's pytree path or scope; empty where it is about none.
        text: the text that it is about, as it is written.
        source: the line of user code, where one is known.
        count: how many alike there are.
    """

    kind: UnknownKind
    stage: Stage
    reason: Reason
    partitioners: tuple[Partitioner, ...] = ()
    subject: str = ""
    name: str = ""
    text: str = ""
    source: SourceLocation | None = None
    count: int = 1


@dataclass(frozen=True, slots=True)
class Account:
    """What is not known of a program, at the stages that were looked at.

    Attributes:
        unknowns: each thing, what is alike under both partitioners or in several places once.
    """

    unknowns: tuple[Unknown, ...] = ()

    @classmethod
    def of(cls, unknowns: Iterable[Unknown]) -> Account:
        """The account of some things; those that are alike are put together."""
        return cls(tuple(_together(unknowns)))

    def at(self, stages: Collection[Stage]) -> Account:
        """What of it is not known at some stages."""
        return Account(tuple(unknown for unknown in self.unknowns if unknown.stage in stages))

    def __bool__(self) -> bool:
        """Whether anything is not known."""
        return bool(self.unknowns)

    def __add__(self, other: Account) -> Account:
        """Both together."""
        return Account.of((*self.unknowns, *other.unknowns))

    @property
    def counts(self) -> dict[UnknownKind, int]:
        """How many there are of each kind."""
        counter: Counter[UnknownKind] = Counter()
        for unknown in self.unknowns:
            counter[unknown.kind] += unknown.count
        return dict(counter)

    @property
    def refused(self) -> dict[Partitioner, str]:
        """Under which partitioners there is no module or compiled program, and why."""
        return {
            partitioner: str(unknown.reason)
            for unknown in self.unknowns
            if unknown.kind == "refused" and unknown.stage in ("lowered", "compiled")
            for partitioner in unknown.partitioners
        }


def _together(unknowns: Iterable[Unknown]) -> Iterator[Unknown]:
    """One for both partitioners where they are alike, and one for several alike of one of them."""
    alike: dict[Unknown, Counter[Partitioner | None]] = {}
    for unknown in unknowns:
        key = replace(unknown, partitioners=(), count=1)
        counter = alike.setdefault(key, Counter())
        for partitioner in unknown.partitioners or (None,):
            counter[partitioner] += unknown.count
    for key, counter in alike.items():
        partitioners = tuple(partitioner for partitioner in counter if partitioner is not None)
        yield replace(key, partitioners=partitioners, count=max(counter.values()))
