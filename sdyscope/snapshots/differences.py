"""The document of `sdyscope diff`: what two sides differ in at a stage, or two snapshot files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from sdyscope.facts.account import Account
from sdyscope.facts.differences import AnyDiff, CompiledDiff, LoweredDiff, PropagatedDiff
from sdyscope.facts.failures import Uncompared
from sdyscope.facts.remarks import Remark
from sdyscope.formatters import in_place
from sdyscope.snapshots.compare import Comparison

Stage: TypeAlias = Literal["lowered", "propagated", "compiled", "snapshot"]
"""At which a comparison is made; ``snapshot``: at all that two snapshot files have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffDocument:
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
        unread: files that could not be read, and programs without the stage.
        notes: which programs were left out.
        accounts: what is not known of each side, by what it is called; nothing where all is known.
    """

    schema: Literal["sdyscope.diff/4"] = "sdyscope.diff/4"
    at: Stage
    programs: tuple[LoweredDiff, ...] = ()
    propagated: tuple[PropagatedDiff, ...] = ()
    compiled: tuple[CompiledDiff, ...] = ()
    snapshots: tuple[Comparison, ...] = ()
    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()
    unread: tuple[Uncompared, ...] = ()
    notes: tuple[Remark, ...] = ()
    accounts: Mapping[str, Account] = field(default_factory=dict)

    __document__ = in_place(at=("at", "same"))

    @property
    def every(self) -> tuple[AnyDiff, ...]:
        """The comparisons of programs."""
        return (*self.programs, *self.propagated, *self.compiled)

    @property
    def same(self) -> bool:
        """Whether there is no difference at all."""
        return (
            all(difference.same for difference in self.every)
            and all(snapshot.is_same for snapshot in self.snapshots)
            and not (self.only_a or self.only_b or self.unread)
        )

    @property
    def not_known(self) -> bool:
        """Whether anything is not known of a side, or was not compared for that."""
        return bool(self.accounts) or any(program.not_compared for program in self.programs)
