"""Where what was found is to be looked at: in files of the repository, told from its root on."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from sdyscope.ci.config import Check, Target
from sdyscope.ci.document import CiError, CiFinding
from sdyscope.errors import SdyscopeError
from sdyscope.facts.findings import SEVERITIES
from sdyscope.patches.diff import repository
from sdyscope.values.source import SourceLocation
from sdyscope.words.findings import Finding
from sdyscope.words.paths import file_text, paths_from, shortened


@dataclass(frozen=True, slots=True)
class PlacedFinding:
    """A finding, and where to show it.

    Attributes:
        check: what found it.
        finding: the finding.
        place: the line of the program, of the golden file or of the configuration that is to be
            looked at.
        otherwise: the line to look at where that one is in a file of somebody else's.
        ignored: why it is ignored; empty where it is not.
    """

    check: Check
    finding: Finding
    place: SourceLocation
    otherwise: SourceLocation
    ignored: str = ""


class RepositoryPlaces:
    """The repository that a configuration is in: as GitHub has it, or from the nearest `.git` on.

    Args:
        config: the file with the configuration, in whose folder targets are looked at.
        updating: whether golden files are written where they differ.
    """

    def __init__(self, config: Path, *, updating: bool = False) -> None:
        self.folder = config.parent
        self.root = _root_folder(config)
        self.updating = updating

    def path(self, file: str) -> str | None:
        """A path from the root on; None for what is not in it, or not there."""
        path = Path(os.path.abspath(self.folder / file))
        for candidate in (path, path.resolve()):
            if candidate.is_relative_to(self.root) and candidate.is_file():
                return candidate.relative_to(self.root).as_posix()
        return None

    def source(self, source: SourceLocation | None) -> SourceLocation | None:
        """A line with its path from the root on; as it is where its file is not in it."""
        file = None if source is None else self.path(source.file)
        return source if source is None or file is None else replace(source, file=file)

    def text(self, words: str) -> str:
        """Words with the paths in them from the root on."""
        with paths_from(str(self.root)):
            return shortened(words)

    def _named(self, file: str) -> str:
        """A path from the root on; of what is not in it, or not there, what is clear."""
        with paths_from(str(self.root)):
            return self.path(file) or file_text(file)

    def error(self, error: SdyscopeError, target: Target) -> CiError:
        """An error at its own line, or at that of the target."""
        file, line = None, target.place.line
        if error.file is not None and error.line is not None:
            file, line = self.path(error.file), error.line
        if file is None:
            file, line = self._named(target.place.file), target.place.line
        return CiError(self.text(str(error)), file, line)

    def findings(
        self, entries: Iterable[PlacedFinding], target: Target | None
    ) -> tuple[CiFinding, ...]:
        """Findings of a target, or of the configuration itself, errors first."""
        times: Counter[str] = Counter()
        findings: list[CiFinding] = []
        for entry in sorted(entries, key=lambda entry: SEVERITIES.index(entry.finding.severity)):
            key = _key(entry, target)
            times[key] += 1
            findings.append(self._finding(entry, target, f"{key} {times[key]}"))
        return tuple(findings)

    def _finding(self, entry: PlacedFinding, target: Target | None, key: str) -> CiFinding:
        finding = entry.finding
        least = "warning" if target is None else target.fail_on
        fails = SEVERITIES.index(finding.severity) <= SEVERITIES.index(least) and not entry.ignored
        if self.updating and entry.check == "snapshot":
            fails = False
        place = entry.place
        file = self.path(place.file)
        if file is None:
            place = entry.otherwise
            file = self.path(place.file)
        shown = replace(
            finding,
            message=self.text(finding.message),
            expected=self.text(finding.expected),
            found=self.text(finding.found),
            source=self.source(finding.source),
        )
        return CiFinding(
            target="" if target is None else target.name,
            check=entry.check,
            finding=shown,
            file=file or self._named(place.file),
            line=place.line or None,
            # Counted from 0, and 0 where it is not known.
            column=place.column + 1 if place.column else None,
            ignored=entry.ignored,
            fails=fails,
            fingerprint=hashlib.sha256(key.encode()).hexdigest(),
        )


def _key(entry: PlacedFinding, target: Target | None) -> str:
    finding = entry.finding
    name = "" if target is None else target.name
    return json.dumps([name, finding.rule, finding.kind, finding.tensor, finding.partitioner])


def _root_folder(config: Path) -> Path:
    workspace = os.environ.get("GITHUB_WORKSPACE", "")
    if workspace and config.resolve().is_relative_to(Path(workspace).resolve()):
        return Path(workspace).resolve()
    return repository(config.resolve().parent)
