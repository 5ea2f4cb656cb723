"""The document of `sdyscope snapshot`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from sdyscope.facts.account import Account
from sdyscope.formatters import in_place
from sdyscope.snapshots.compare import Comparison
from sdyscope.snapshots.values import Snapshot
from sdyscope.values.source import FilePath

Action: TypeAlias = Literal["print", "write", "check", "update", "diff"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotDocument:
    """What `sdyscope snapshot --json` prints.

    Attributes:
        schema: name and version of this form.
        action: what was done.
        file: the snapshot file; empty where none is named.
        same: whether nothing differs, is missing or is unused.
        programs: the snapshots of the programs as they are now.
        compared: what changed of each program that the file has.
        missing: programs that the file does not have.
        unused: programs that the file has and that were not named.
        written: whether the file was written.
        accounts: what is not known of each program, by name; nothing where all is known.
    """

    schema: Literal["sdyscope.snapshot/3"] = "sdyscope.snapshot/3"
    action: Action
    file: FilePath
    programs: tuple[Snapshot, ...]
    compared: tuple[Comparison, ...] = ()
    missing: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    written: bool = False
    accounts: Mapping[str, Account] = field(default_factory=dict)

    __document__ = in_place(file=("file", "same"))

    @property
    def same(self) -> bool:
        """Whether nothing differs, is missing or is unused."""
        return all(comparison.is_same for comparison in self.compared) and not (
            self.missing or self.unused
        )
