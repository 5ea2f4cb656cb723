"""What an audit comes to, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from sdyscope.facts.account import Account
from sdyscope.facts.program import Partitioner
from sdyscope.formatters import in_place
from sdyscope.values.source import PathWords, SourceLocation

VerifiedStage: TypeAlias = Literal[
    "lowered", "propagated", "collectives", "memory", "ops", "required", "causes"
]
"""``lowered``: ops, their types and operands; ``propagated``: the sharding of every value;
``collectives``: kind, replica groups, bytes and count; ``memory``: the compiler's figures;
``ops``: whether the op that a cause names is one that XLA makes the collective for; ``required``:
whether the value that a cause names is moved, and is sharded and required as it says; ``causes``:
whether a collective goes with the annotations that it is explained by."""

STAGES: tuple[VerifiedStage, ...] = get_args(VerifiedStage)

LeftOut: TypeAlias = Literal[
    "folded",
    "not partitioned",
    "empty",
    "not in the dump",
    "several in the dump",
    "no layout",
    "no cause",
    "uncertain",
    "not told apart",
    "not followed",
    "not removable",
    "not tried",
    "not compiled",
]
"""Why something was not compared. ``folded``, ``not partitioned``: the answer says that XLA has no
such value; ``empty``: it has no elements, so no device holds anything of it; ``not in the dump``:
XLA has no op of this kind and type that is named after it;
``several in the dump``: it has several that are laid out differently, the answer's among them;
``no layout``: the answer is no layout; ``no cause``: no annotation is named, or the program itself
says the collective; ``uncertain``: the cause is given as uncertain; ``not told apart``: XLA names
it after an op that can be the one that makes the value or the one that needs it; ``not followed``:
more is between what makes the value and what takes it than moves of which it is known what they do;
``not removable``:
an annotation that nobody can take away, such as that of a ``shard_map``; ``not tried``: only so
many are; ``not compiled``: XLA refuses the program without the annotation."""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One thing that is shown and that XLA's dumps say otherwise.

    Attributes:
        name: what it is about.
        shown: what the other commands show.
        found: what the audit found.
        source: its line, where one is known.
        unstable: whether XLA's own two compiles of the same module differ in it.
    """

    name: str
    shown: PathWords
    found: str
    source: SourceLocation | None = None
    unstable: bool = False


@dataclass(frozen=True, slots=True)
class AuditedStage:
    """One stage of a program, compared.

    Attributes:
        stage: which.
        compared: how many things were compared.
        agreed: how many of them agree.
        disagreements: the others.
        left_out: how many were not compared, and why.
    """

    stage: VerifiedStage
    compared: int
    disagreements: tuple[Disagreement, ...] = ()
    left_out: Mapping[LeftOut, int] = field(default_factory=dict, hash=False)

    __document__ = ("stage", "compared", "agreed", "disagreements", "left_out")

    @property
    def agreed(self) -> int:
        """How many of them agree."""
        return self.compared - len(self.disagreements)


@dataclass(frozen=True, slots=True)
class ProgramAudit:
    """One program under one partitioner.

    Attributes:
        name: the program's name, or the file's.
        partitioner: under which.
        devices: how many devices it is for.
        stages: what was compared.
    """

    name: str
    partitioner: Partitioner
    devices: int
    stages: tuple[AuditedStage, ...]

    __document__ = ("name", "partitioner", "devices", "agrees", "stages")

    @property
    def agrees(self) -> bool:
        """Whether there is no disagreement but of XLA with itself."""
        return all(
            disagreement.unstable for stage in self.stages for disagreement in stage.disagreements
        )


@dataclass(frozen=True, slots=True)
class NotVerified:
    """A program, or a stage of one, that could not be audited.

    Attributes:
        name: the program's name, or the file's.
        partitioner: under which; None where it was not even lowered.
        reason: why, a sentence.
        crashed: whether the tool or the compiler ended on it, and did not refuse it.
    """

    name: str
    partitioner: Partitioner | None
    reason: PathWords
    crashed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyDocument:
    """The document of `sdyscope verify --json`.

    Attributes:
        schema: name and version of this form.
        target: what was audited, as it was typed.
        jax: the version of JAX.
        jaxlib: the version of jaxlib, which has XLA.
        agrees: whether everything that was compared agrees, something was, and nothing crashed.
        programs: what was audited.
        not_verified: what could not be.
        accounts: what is not known of each program, by its name; nothing where all is known.
    """

    schema: Literal["sdyscope.verify/1"] = "sdyscope.verify/1"
    target: PathWords
    jax: str
    jaxlib: str
    programs: tuple[ProgramAudit, ...]
    not_verified: tuple[NotVerified, ...]
    accounts: Mapping[str, Account] = field(default_factory=dict)

    __document__ = in_place(jaxlib=("jaxlib", "agrees"))

    @property
    def not_known(self) -> bool:
        """Whether anything is not known of a program, or one could not be audited."""
        return bool(self.accounts or self.not_verified)

    @property
    def agrees(self) -> bool:
        """Whether everything that was compared agrees, something was, and nothing crashed."""
        crashed = any(stage.crashed for stage in self.not_verified)
        return (
            bool(self.programs) and not crashed and all(program.agrees for program in self.programs)
        )
