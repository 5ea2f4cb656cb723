"""What ``assert inspect(step, ...) == sharding_snapshot`` does."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pytest

from sdyscope.errors import SdyscopeError, TargetError
from sdyscope.facts.program import Partitioner, Program
from sdyscope.hardware.names import Hardware
from sdyscope.process.output import locked, write_atomically
from sdyscope.snapshots import Comparison, Snapshot, Stage, compare, read_snapshots, update, write
from sdyscope.snapshots.read import read_file
from sdyscope.words.snapshots import uncompared_parts_text

if TYPE_CHECKING:
    from sdyscope.inspection import Inspection

What: TypeAlias = Literal["same", "changed", "missing", "written"]

#: Pytest cuts an explanation that is longer, unless it is asked for more with -vv.
_LINES, _CHARACTERS = 8, 640
_UPDATE = "pytest --sharding-update"
#: What a short explanation tells of the first difference.
_LINES_TOLD, _WIDEST = 4, 90


@dataclass(frozen=True)
class SnapshotVerdict:
    """What one comparison came to.

    Attributes:
        subject: what was compared.
        name: what the snapshot is called in its file.
        what: whether they are the same, or what else.
        comparison: what differs; None where the file has no such snapshot.
    """

    subject: object
    name: str
    what: What
    comparison: Comparison | None = None

    @property
    def left_out(self) -> str:
        """What of it was not compared, as only one side has it, a clause; empty for nothing."""
        comparison = self.comparison
        if comparison is None or self.what == "written" or not comparison.not_compared:
            return ""
        return uncompared_parts_text(comparison.not_compared)


@dataclass
class SnapshotOfTest:
    """The snapshot file of one test.

    Attributes:
        path: where it is.
        updating: whether what differs or is missing is written.
        item: the test.
        answers: what was compared so far, in order.
    """

    path: Path
    updating: bool
    item: pytest.Item
    answers: list[SnapshotVerdict] = field(default_factory=list)
    _taken: dict[str, Snapshot] = field(default_factory=dict)

    @property
    def shown(self) -> str:
        """The path as it is told to a reader."""
        return shown(self.path)

    def snapshots(self) -> dict[str, Snapshot]:
        """What is in the file, by name; nothing where there is no file.

        Raises:
            SdyscopeError: it can't be read.
        """
        if not self.path.exists():
            return {}
        return {
            snapshot.name: snapshot for snapshot in read_snapshots(read_file(self.path), self.shown)
        }

    def answer(self, subject: object, taken: Snapshot, before: Snapshot | None) -> SnapshotVerdict:
        """Compares, and writes where that was asked for.

        Raises:
            SdyscopeError: two different programs have this name in one test.
        """
        name = taken.name
        if self._taken.setdefault(name, taken) != taken:
            raise TargetError(
                f"Two different programs are called {name} in this test.",
                hint="Give each a name of its own: sharding_snapshot(name='...').",
            )
        comparison = None if before is None else compare(before, taken)
        what: What = "missing"
        if comparison is not None:
            what = "same" if comparison.is_same else "changed"
        if self.updating and (comparison is None or not _is_unchanged(comparison)):
            what = "written" if self._write(taken) else what
        verdict = SnapshotVerdict(subject, name, what, comparison)
        self.answers.append(verdict)
        return verdict

    def _write(self, taken: Snapshot) -> bool:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TargetError(
                f"cannot make the folder of this file: {error.strerror or error}", file=self.shown
            ) from error
        with locked(self.path):
            text = read_file(self.path) if self.path.exists() else ""
            text_now = update(text, [taken], file=self.shown) if text else write([taken])
            if text_now != text:
                write_atomically(self.path, text_now)
        return text_now != text


def _is_unchanged(comparison: Comparison) -> bool:
    return comparison.is_same and not comparison.not_compared


@dataclass(frozen=True, eq=False)
class ShardingSnapshot:
    """What the shardings of programs were when they were last approved.

    Equal to an inspection, a program, or a ``jax.stages.Traced`` or ``Lowered`` of which the file
    of this test says the same. Called, it gives the same with another name or other stages.

    Attributes:
        golden: the file.
        name: what the snapshot is called there; empty for the program's name.
        stages: which stages to look at; by default what the file has, or all but ``compiled``.
        partitioners: under which; by default what the file has, or Shardy.
        on: what to compile for at ``compiled``; by default what the file has, or CPUs.
    """

    golden: SnapshotOfTest
    name: str = ""
    stages: tuple[Stage, ...] | None = None
    partitioners: tuple[Partitioner, ...] | None = None
    on: Hardware | str | None = None

    def __call__(
        self,
        name: str | None = None,
        *,
        stages: Sequence[Stage] | None = None,
        partitioners: Sequence[Partitioner] | None = None,
        on: Hardware | str | None = None,
    ) -> ShardingSnapshot:
        """The snapshot of another name, or of other stages, partitioners or hardware."""
        return replace(
            self,
            name=self.name if name is None else name,
            stages=self.stages if stages is None else tuple(stages),
            partitioners=self.partitioners if partitioners is None else tuple(partitioners),
            on=self.on if on is None else on,
        )

    def __repr__(self) -> str:
        name = f"{self.name} in " if self.name else ""
        return f"<sharding snapshot {name}{self.golden.shown}>"

    def __eq__(self, other: object) -> bool:
        __tracebackhide__ = True
        sentence = ""
        try:
            return self._answer(other).what in ("same", "written")
        except SdyscopeError as error:
            sentence = str(error)
        # Outside of the handler: how the error came to be is no matter of the test.
        pytest.fail(sentence)

    __hash__ = None  # type: ignore[assignment]

    def _answer(self, other: object) -> SnapshotVerdict:
        before = self.golden.snapshots()
        if isinstance(other, Snapshot):
            taken = replace(other, name=self.name) if self.name else other
            return self.golden.answer(other, taken, before.get(taken.name))
        inspection = _inspection(other)
        was = before.get(self.name or inspection.name)
        chosen = self.partitioners or (was.partitioners if was else ("shardy",))
        under = tuple(
            partitioner for partitioner in inspection.partitioners if partitioner in chosen
        )
        looked = inspection.under(under or inspection.partitioners)
        stages = self.stages or (was.stages if was else None)
        on = self.on or (was.hardware if was else None) or None
        taken = looked.snapshot(stages, on)
        taken = replace(taken, name=self.name or inspection.name)
        return self.golden.answer(other, taken, was)


def _inspection(subject: Any) -> Inspection:
    """An inspection of what was compared.

    Raises:
        TargetError: it is nothing that has one.
    """
    from sdyscope.inspection import Inspection, inspect

    if isinstance(subject, Inspection):
        return subject
    is_traced = hasattr(subject, "jaxpr") and hasattr(subject, "lower")
    if isinstance(subject, Program) or is_traced or hasattr(subject, "compiler_ir"):
        return inspect(subject)
    kind = type(subject).__name__
    raise TargetError(
        f"A sharding snapshot is of a program, not of a {kind}.",
        hint="Compare sdyscope.inspect(step, *arguments) with it, or a jax.stages.Traced or "
        "Lowered.",
    )


def explanation(snapshot: ShardingSnapshot, subject: object) -> list[str] | None:
    """Why a subject is not equal, as pytest shows it; None where they were not compared.

    What pytest would cut becomes a section of the report, and is told in short here.
    """
    golden = snapshot.golden
    verdict = next(
        (answer for answer in reversed(golden.answers) if answer.subject is subject), None
    )
    if verdict is None or verdict.what not in ("changed", "missing"):
        return None
    whole = list(_explained(verdict, golden.shown))
    if _is_shown_whole(golden.item, whole):
        return whole
    golden.item.add_report_section("call", "sharding snapshot", "\n".join(whole))
    return list(_in_short(whole, verdict))


def _is_shown_whole(item: pytest.Item, lines: Sequence[str]) -> bool:
    if any(name in os.environ for name in ("CI", "BUILD_NUMBER")):
        return True
    if item.config.get_verbosity(pytest.Config.VERBOSITY_ASSERTIONS) >= 2:
        return True
    return len(lines) <= _LINES and sum(map(len, lines)) <= _CHARACTERS


def _explained(answer: SnapshotVerdict, shown: str) -> Iterator[str]:
    from sdyscope.terminal.paragraphs import lines
    from sdyscope.views.snapshot import comparison

    if answer.comparison is None:
        yield f"{answer.name}: missing from {shown}"
        yield f"Write it with {_UPDATE}, and review it."
        return
    for paragraph in comparison(answer.comparison):
        yield from lines(paragraph, None)
    yield ""
    yield f"If this is intended, write it with {_UPDATE}; it is in {shown}."


def _in_short(whole: Sequence[str], answer: SnapshotVerdict) -> Iterator[str]:
    """Its first line and the first thing that differs; the rest is in a section."""
    yield whole[0]
    lines: list[str] = []
    for line in whole[1:]:
        if lines and not line:
            break
        if line.startswith(("  ", "    - ", "    + ")) and not line.startswith("      "):
            lines.append(line)
    for line in lines[:_LINES_TOLD]:
        yield line if len(line) <= _WIDEST else f"{line[: _WIDEST - 3]}..."
    comparison = answer.comparison
    rest = 0 if comparison is None else len(comparison.header) + len(comparison.changes) - 1
    more = f"{rest:,} more below" if rest else "The rest is below"
    yield f"{more}, under 'sharding snapshot'. If this is intended: {_UPDATE}."


def shown(file: str | Path) -> str:
    """A path from here, where that is shorter."""
    try:
        relative = os.path.relpath(file)
    except ValueError:  # another drive
        return str(file)
    return relative if not relative.startswith("..") else str(file)
