"""Edits of a program: what would be written otherwise, where, and what that would change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from sdyscope.facts.execution import InputSource
from sdyscope.values.mesh import Mesh
from sdyscope.values.sharding import NamedSharding, PartitionSpec
from sdyscope.values.source import PathWords, SourceLocation

EditKind: TypeAlias = Literal[
    "argument",
    "result",
    "optimizer state",
    "constraint",
    "type",
    "reshard",
    "logical axis",
    "new constraint",
    "shard_map",
    "donation",
    "repeated reduction",
    "reduction in a loop",
    "reduction and slice",
    "gather and slice",
    "mesh",
    "mesh sizes",
    "setting",
]
"""What is edited: the sharding of an argument or result, or of what an optimizer keeps, to be that
of the parameters; a constraint, to be another or to go; the type of a value on Explicit axes; a
reshard of one, to go; the mesh axes that a rule maps a logical axis to; a constraint that is not
there yet; the specs of a ``shard_map``; which arguments are donated; a reduction of what is reduced
already; a reduction that a loop repeats; a reduction, or a gather, of which a device keeps a slice;
the order of the mesh's axes, or their sizes; one of JAX's settings."""


NotTakenBecause: TypeAlias = Literal[
    "not written",
    "left open",
    "no place",
    "shared place",
    "not built",
    "no other program",
    "not donated",
    "refused",
    "sends no less",
    "loses",
    "numbers differ",
]
"""Why an edit was not taken: it can't be written in the source; of a plan, the program leaves the
tensor to the compiler, no place of the source was found that shards it, or its place shards
another tensor that is to be sharded otherwise; the edited source does not build or
trace; it traces to the same program, or to one that does not donate what the edit donates; the
compiler refuses it; by Shardy's prediction, once it was traced, nothing is won; by the compile
nothing is won; or the numbers are others."""


NumbersVerdict: TypeAlias = Literal["same", "corrected", "other random", "differ", "not compared"]
"""``same``: the edited program computes what the program does, within the rounding of its dtypes;
``corrected``: the program does not compute what it does on a mesh of one device, and the edited
program does; ``other random``: they draw random numbers, and the edit is of the generator;
``differ``: none of these; ``not compared``: they were not run, or have nothing to compare."""


@dataclass(frozen=True, slots=True)
class SourceEdit:
    """One edit of a program's source.

    Attributes:
        kind: what is edited.
        name: the tensor's path, or the expression as it is written.
        before: the sharding that is written there; null where there is none, or there are several;
            of a rule the mesh axes that it says, as a dimension has them.
        after: the one that would be; null for none: the compiler decides.
        source: the line.
        count: how many tensors or constraints of the program that is about.
        mesh: the mesh that would be, of an edit of the mesh, which has no name; null of others.
    """

    kind: EditKind
    name: str
    before: PartitionSpec | None
    after: PartitionSpec | None
    source: SourceLocation | None
    count: int = 1
    mesh: Mesh | None = None


@dataclass(frozen=True, slots=True)
class Numbers:
    """Whether an edited program computes the same.

    Attributes:
        verdict: what came of it.
        compared: how many results were compared.
        results: how many results there are.
        worst: path of the result that differs most; empty where none does.
        error: norm of its difference over its norm.
        tolerance: the largest error that the rounding of its dtype explains.
        devices: what both were run on, such as ``8 cpu devices``.
        inputs: where the values came from; null where they were not compared.
        reason: why they were not compared; empty where they were.
        idle_loops: how many loops whose number of iterations the values decide did not run on
            these, or are not known to: results then say nothing of what is in them.
        idle_branches: how many branches were not taken on these, or are not known to be, likewise.
        is_simplified: whether XLA simplified the algebra of the step on one device that they were
            compared with, if they were, as in ``Reference``.
    """

    verdict: NumbersVerdict
    compared: int = 0
    results: int = 0
    worst: str = ""
    error: float = 0.0
    tolerance: float = 0.0
    devices: str = ""
    inputs: InputSource | None = None
    reason: PathWords = ""
    is_simplified: bool = True
    idle_loops: int = 0
    idle_branches: int = 0

    @property
    def is_right(self) -> bool:
        """Whether the edited program was seen to compute what it should, with all that is in it."""
        idle = self.idle_loops or self.idle_branches
        return self.verdict in ("same", "corrected") and not idle


@dataclass(frozen=True, slots=True)
class MovedResult:
    """A result that an edited program leaves elsewhere.

    Attributes:
        name: pytree path.
        before: where it is in the program as it is; null where no PartitionSpec says that.
        after: where it is in the edited program; likewise.
        no_longer_fed: the argument whose next value it is, if it was where that is, and no longer
            is: the next step then is another program. Empty for none.
        is_refused: whether `in_shardings` of `jit` say where that argument is: then JAX raises an
            error in the next step.
    """

    name: str
    before: NamedSharding | None
    after: NamedSharding | None
    no_longer_fed: str = ""
    is_refused: bool = False
