"""What ``sdyscope ci`` is to do: the contents of ``[tool.sdyscope]`` as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

from sdyscope.analysis.budgets import Budgets, LimitPath
from sdyscope.ci.toml_places import Path as TomlPath
from sdyscope.ci.toml_places import TextPlace, nearest
from sdyscope.facts.findings import Severity
from sdyscope.facts.program import Partitioner
from sdyscope.snapshots import Stage
from sdyscope.values.source import SourceLocation

#: The table of pyproject.toml that all of it is in.
SECTION: TomlPath = ("tool", "sdyscope")

Check: TypeAlias = Literal["check", "lint", "snapshot", "budgets"]
"""What is done with a target, in this order."""

CHECKS: Final[tuple[Check, ...]] = get_args(Check)


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """The golden file of a target.

    Attributes:
        path: the file.
        stages: which stages; None for those that the file has, or all but ``compiled``.
    """

    path: Path
    stages: tuple[Stage, ...] | None = None


@dataclass(frozen=True, slots=True)
class Ignore:
    """Findings that are known and are no reason to fail.

    Attributes:
        rule: the rule's name.
        tensors: a glob of the names of tensors.
        reason: why they are ignored.
        place: where that is written.
    """

    rule: str
    tensors: str
    reason: str
    place: SourceLocation


@dataclass(frozen=True)
class Target:
    """One program, and what it is held to.

    Attributes:
        name: what it is called, also in the golden file.
        word: the program, as the command line names it.
        place: where it is configured.
        mesh: sizes of mesh axes in order, one of them perhaps -1; None for the program's own.
        mesh_config: a mesh configuration in place of it, ``FILE[:SECTION]``.
        mesh_selector: which of its rules.
        devices: what a size of -1 is inferred from, as ``--devices`` takes it.
        partitioners: under which it is looked at; None for Shardy, or what a file is written for.
        on: what to compile for, as ``--on`` takes it; None for virtual CPU devices.
        settings: what ``--set`` changes.
        module: which module of a directory of dumps.
        jax: versions of JAX that it is for, ``0.10`` for all of 0.10; empty for all.
        check: whether what was requested is compared with what was lowered.
        lint: whether the rules of ``lint`` are applied.
        compiles: whether it may be compiled.
        snapshot: its golden file.
        budgets: what it may come to.
        ignores: findings of this target that are ignored.
        fail_on: the least severity that is a failure.
        strict: whether what is not known of the program is a failure.
    """

    name: str
    word: str
    place: SourceLocation
    mesh: Mapping[str, int] | None
    mesh_config: str | None
    mesh_selector: str | None
    devices: str | None
    partitioners: tuple[Partitioner, ...] | None
    on: str | None
    settings: Mapping[str, object]
    module: str | None
    jax: tuple[str, ...]
    check: bool
    lint: bool
    compiles: bool
    snapshot: SnapshotFile | None
    budgets: Budgets | None
    ignores: tuple[Ignore, ...]
    fail_on: Severity
    strict: bool

    @property
    def checks(self) -> tuple[Check, ...]:
        """What is done with it."""
        wanted: dict[Check, bool] = {
            "check": self.check,
            "lint": self.lint,
            "snapshot": self.snapshot is not None,
            "budgets": self.budgets is not None,
        }
        return tuple(check for check, is_wanted in wanted.items() if is_wanted)

    def is_for(self, jax: str) -> bool:
        """Whether it is for a version of JAX, such as ``0.10.2``."""
        there = jax.split(".")
        return not self.jax or any(
            there[: len(parts)] == parts for parts in (wanted.split(".") for wanted in self.jax)
        )


@dataclass(frozen=True)
class Config:
    """All of a configuration.

    Attributes:
        file: the file; what is named in it is found from its folder.
        targets: the targets, in order.
        ignores: findings of any target that are ignored.
        places: where each key of the file is written.
    """

    file: Path
    targets: tuple[Target, ...]
    ignores: tuple[Ignore, ...]
    places: Mapping[TomlPath, TextPlace]

    def place(self, *keys: str | int) -> SourceLocation:
        """Where something of the configuration is written, or what is around it."""
        place = nearest(self.places, (*SECTION, *keys)) or TextPlace(1, 1)
        # Columns of source lines are counted from 0.
        return SourceLocation(str(self.file), place.line, place.column - 1)

    def limit_place(self, target: Target, limit: LimitPath) -> SourceLocation:
        """Where a limit of a target is written: in its own table, or among the defaults."""
        own = (*SECTION, "targets", target.name, "budgets")
        return (
            self.place("targets", target.name, "budgets", *limit)
            if own in self.places
            else self.place("defaults", "budgets", *limit)
        )
