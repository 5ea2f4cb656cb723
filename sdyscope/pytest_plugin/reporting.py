"""What became of the snapshots of each test, and what pytest says of it in the end."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sdyscope.errors import SdyscopeError
from sdyscope.process.output import locked, write_atomically
from sdyscope.pytest_plugin.comparing import SnapshotOfTest, shown
from sdyscope.snapshots import read_snapshots, update
from sdyscope.snapshots.read import read_file

_REMOVE = "pytest --sharding-update --sharding-remove-unused"


@dataclass(frozen=True)
class TestOutcome:
    """What one test did with its snapshots; goes from a worker to the controller as JSON.

    Attributes:
        file: its file.
        answers: what each snapshot is called, what the comparison came to, and what was left out
            of it, as only one side has it.
        unused: what is in the file and was not compared, of a test that passed.
    """

    __test__ = False

    file: str
    answers: tuple[tuple[str, str, str], ...]
    unused: tuple[str, ...]

    @classmethod
    def of(cls, golden: SnapshotOfTest, *, passed: bool) -> TestOutcome:
        """What there is to say once the test has run."""
        answers = dict.fromkeys(
            (answer.name, answer.what, answer.left_out) for answer in golden.answers
        )
        unused: list[str] = []
        if passed:
            compared = {name for name, _, _ in answers}
            # Of a file that can't be read, whoever compares with it is told.
            with contextlib.suppress(SdyscopeError):
                unused = [name for name in golden.snapshots() if name not in compared]
        return cls(str(golden.path), tuple(answers), tuple(unused))

    @classmethod
    def read(cls, said: Any) -> TestOutcome:
        """The same from JSON."""
        return cls(said["file"], tuple(map(tuple, said["answers"])), tuple(said["unused"]))

    def said(self) -> dict[str, Any]:
        """It as JSON."""
        return asdict(self)


class Outcomes:
    """What is known when all tests have run.

    Attributes:
        by_test: what each test did.
        unused_files: files that no test has.
        removed: what was taken away of these.
    """

    def __init__(self) -> None:
        self.by_test: dict[str, TestOutcome] = {}
        self.unused_files: set[str] = set()
        self.removed: list[str] = []

    @property
    def unused(self) -> list[tuple[str, tuple[str, ...]]]:
        """Files with what of them is of no use: names, or nothing for all."""
        unused: dict[str, tuple[str, ...]] = dict.fromkeys(self.unused_files, ())
        for outcome in self.by_test.values():
            if outcome.unused:
                unused[outcome.file] = () if _is_whole(outcome) else outcome.unused
        return sorted(unused.items())

    def remove_unused(self) -> None:
        """Takes what no test has away: files, or what of them is of no use."""
        for file, names in self.unused:
            path = Path(file)
            if names:
                _without(path, names)
            else:
                path.unlink(missing_ok=True)
                _remove_empty(path.parent)
            self.removed += [f"{shown(file)}: {name}: removed" for name in names or ("all",)]
        self.by_test = {
            test: TestOutcome(outcome.file, outcome.answers, ())
            for test, outcome in self.by_test.items()
        }
        self.unused_files = set()

    def lines(self, updating: bool) -> Iterator[tuple[str, str]]:
        """The summary: each line with how good it is: ``green``, ``yellow`` or ``red``."""
        counts = Counter(
            what for outcome in self.by_test.values() for _, what, _ in outcome.answers
        )
        words = {"same": "as before", "changed": "changed", "missing": "missing"}
        words["written"] = "written"
        parts = [f"{counts[what]:,} {text}" for what, text in words.items() if counts[what]]
        unused = self.unused
        if unused:
            parts.append(f"{sum(len(names) or 1 for _, names in unused):,} unused")
        if not parts and not self.removed:
            return
        bad = counts["changed"] or counts["missing"] or (unused and not updating)
        yield ", ".join(parts) or "none compared", "red" if bad else "green"
        for what, colour in (("changed", "red"), ("missing", "red"), ("written", "green")):
            for outcome in sorted(self.by_test.values(), key=lambda outcome: outcome.file):
                for name, came_to, _ in outcome.answers:
                    if came_to == what:
                        yield f"{shown(outcome.file)}: {name}: {words[what]}", colour
        for outcome in self.by_test.values():
            for name, _, left_out in outcome.answers:
                if left_out:
                    yield f"{shown(outcome.file)}: {name}: {left_out}", "yellow"
        for file, names in unused:
            for name in names:
                yield f"{shown(file)}: {name}: unused; its test passed without it", "yellow"
            if not names:
                yield f"{shown(file)}: unused; no test uses it", "yellow"
        for line in self.removed:
            yield line, "green"
        if (counts["changed"] or counts["missing"]) and not updating:
            yield "Intended changes are written with pytest --sharding-update.", "yellow"
        if unused:
            yield f"Unused snapshots are removed with {_REMOVE}.", "yellow"


def _is_whole(outcome: TestOutcome) -> bool:
    return not outcome.answers


def _without(path: Path, names: Sequence[str]) -> None:
    with locked(path):
        text = read_file(path)
        kept = [snapshot for snapshot in read_snapshots(text, path) if snapshot.name not in names]
        write_atomically(path, update(text, kept, remove_unused=True, file=path))


def _remove_empty(folder: Path) -> None:
    """Removes the folders that a removed file leaves empty, up to ``__shardings__``."""
    for directory in (folder, folder.parent):
        try:
            directory.rmdir()
        except OSError:
            return
