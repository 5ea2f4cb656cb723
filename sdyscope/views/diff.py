"""What two modules differ in, as a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from sdyscope.analysis.diff.lowered import Change, Side
from sdyscope.analysis.diff.lowered import Diff as Differences
from sdyscope.analysis.diff.lowered import Difference as TensorDiff
from sdyscope.analysis.diff.lowered import OpDifference as OpDiff
from sdyscope.analysis.diff.value_differences import PropagatedDiff
from sdyscope.annotations import Annotation
from sdyscope.facts.account import Account
from sdyscope.snapshots import Comparison
from sdyscope.values.mesh import Mesh
from sdyscope.values.source import SourceLocation
from sdyscope.views.compiled_diff import CompiledDiff
from sdyscope.words.mesh import lone_mesh_text
from sdyscope.words.sharding import ShardingDocument, sharding_document

Stage: TypeAlias = Literal["lowered", "propagated", "compiled", "snapshot"]
"""At which a comparison is made; ``snapshot``: at all that two snapshot files have."""


@dataclass(frozen=True, slots=True)
class TensorSide:
    """A tensor on one side.

    Attributes:
      shape: shape of the whole tensor; null where it is dynamic.
      dtype: MLIR element type.
      source: line of user code.
      sharding: what is written on it.
    """

    shape: tuple[int, ...] | None
    dtype: str
    source: SourceLocation | None
    sharding: ShardingDocument


@dataclass(frozen=True, slots=True)
class TensorDifference:
    """A tensor that is not the same on both sides.

    Attributes:
      tensor: its path or scope.
      kind: what it is.
      change: what happened to it.
      what: which of type, placement, open dimensions and manual axes changed.
      a: the tensor on the first side; null where only the second has it.
      b: the tensor on the second side; null where only the first has it.
    """

    tensor: str
    kind: str
    change: Change
    what: tuple[str, ...]
    a: TensorSide | None
    b: TensorSide | None


@dataclass(frozen=True, slots=True)
class OpDifference:
    """Ops of one kind in one scope that are not the same on both sides.

    Attributes:
      scope: their scope, without the program's own name.
      kind: name of the operation.
      count_a: how many the first side has.
      count_b: how many the second side has.
      types_a: result types that the first side has more ops with, and how many more.
      types_b: result types that the second side has more ops with, and how many more.
    """

    scope: str
    kind: str
    count_a: int
    count_b: int
    types_a: dict[str, int]
    types_b: dict[str, int]


@dataclass(frozen=True, slots=True)
class ProgramDiff:
    """Two modules.

    Attributes:
      name: what is compared: the program's name, or the first module's.
      a: what to call the first side.
      b: what to call the second side.
      same: whether there is no difference.
      same_tensors: how many tensors are the same.
      not_compared: tensors with a sharding on a side that can't be read or can't be.
      meshes: how the meshes differ, in sentences.
      tensors: the tensors that differ.
      ops: the ops that differ, the most first; none where ops were not compared.
      notes: what was left out of the comparison, and why.
    """

    name: str
    a: str
    b: str
    same: bool
    same_tensors: int
    not_compared: tuple[str, ...]
    meshes: tuple[str, ...]
    tensors: tuple[TensorDifference, ...]
    ops: tuple[OpDifference, ...]
    notes: tuple[str, ...]


Compared: TypeAlias = ProgramDiff | PropagatedDiff | CompiledDiff
"""One comparison, at one of the stages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """The document of `sdyscope diff --json`.

    Attributes:
      schema: name and version of this form.
      at: the stage at which they were compared.
      same: whether there is no difference at all.
      programs: one comparison, or one for each program that two directories both have; none where
        they were compared at a later stage.
      propagated: the same for the values after propagation.
      compiled: the same for what one device runs, sends and holds.
      snapshots: comparisons of two snapshot files, at every stage that both have.
      only_a: programs that only the first directory has.
      only_b: programs that only the second directory has.
      unread: sentences on files that could not be read.
      notes: sentences on programs that were left out.
      accounts: what is not known of each side, by what it is called; nothing where all is known.
    """

    schema: Literal["sdyscope.diff/3"] = "sdyscope.diff/3"
    at: Stage = "lowered"
    same: bool
    programs: tuple[ProgramDiff, ...] = ()
    propagated: tuple[PropagatedDiff, ...] = ()
    compiled: tuple[CompiledDiff, ...] = ()
    snapshots: tuple[Comparison, ...] = ()
    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    accounts: Mapping[str, Account] = field(default_factory=dict)

    @property
    def not_known(self) -> bool:
        """Whether anything is not known of a side, or was not compared for that."""
        return bool(self.accounts) or any(one.not_compared for one in self.programs)


def program(
    name: str,
    found: Differences,
    a: Side,
    b: Side,
    meshes: Sequence[Mesh | None],
    notes: Sequence[str] = (),
) -> ProgramDiff:
    """The document of one comparison.

    Args:
      name: what to call it.
      found: the differences.
      a: the first side.
      b: the second side.
      meshes: the mesh of each side, to name axes by; None where it is not known.
      notes: what else there is to say.
    """
    # A GSPMD module names no mesh: its axes are those of the other side's.
    meshes = [meshes[0] or meshes[1], meshes[1] or meshes[0]]
    return ProgramDiff(
        name=name,
        a=found.label_a,
        b=found.label_b,
        same=found.is_same,
        same_tensors=found.same,
        not_compared=found.not_compared,
        meshes=tuple(lone_mesh_text(one.label, one.mesh) for one in found.meshes),
        tensors=tuple(_tensor(one, a, b, meshes) for one in found.tensors),
        ops=tuple(map(_op, found.ops)),
        notes=(*found.notes, *notes),
    )


def document(
    programs: Sequence[ProgramDiff] = (),
    only_a: Sequence[str] = (),
    only_b: Sequence[str] = (),
    unread: Sequence[str] = (),
    notes: Sequence[str] = (),
    *,
    propagated: Sequence[PropagatedDiff] = (),
    compiled: Sequence[CompiledDiff] = (),
    snapshots: Sequence[Comparison] = (),
    accounts: Mapping[str, Account] | None = None,
    at: Stage | None = None,
) -> Diff:
    """The document of all comparisons.

    Args:
      programs: comparisons of what was lowered.
      only_a: programs that only the first directory has.
      only_b: programs that only the second has.
      unread: sentences on files that could not be read.
      notes: sentences on programs that were left out.
      propagated: comparisons after propagation.
      compiled: comparisons of what was compiled.
      snapshots: comparisons of snapshot files.
      accounts: what is not known of each side.
      at: the stage; by default that of the comparisons.
    """
    every: list[Compared] = [*programs, *propagated, *compiled]
    return Diff(
        at=at or ("propagated" if propagated else "compiled" if compiled else "lowered"),
        same=all(one.same for one in every)
        and all(one.is_same for one in snapshots)
        and not (only_a or only_b or unread),
        programs=tuple(programs),
        propagated=tuple(propagated),
        compiled=tuple(compiled),
        snapshots=tuple(snapshots),
        only_a=tuple(only_a),
        only_b=tuple(only_b),
        unread=tuple(unread),
        notes=tuple(notes),
        accounts=accounts or {},
    )


def _tensor(found: TensorDiff, a: Side, b: Side, meshes: Sequence[Mesh | None]) -> TensorDifference:
    return TensorDifference(
        found.tensor,
        found.kind,
        found.change,
        found.what,
        _side(found.a, a, meshes[0]),
        _side(found.b, b, meshes[1]),
    )


def _side(annotation: Annotation | None, side: Side, mesh: Mesh | None) -> TensorSide | None:
    if annotation is None:
        return None
    return TensorSide(
        annotation.shape,
        annotation.dtype,
        annotation.source,
        sharding_document(annotation.sharded(side.graph.meshes, mesh)),
    )


def _op(found: OpDiff) -> OpDifference:
    return OpDifference(
        found.scope,
        found.kind,
        found.count_a,
        found.count_b,
        dict(found.types_a),
        dict(found.types_b),
    )
