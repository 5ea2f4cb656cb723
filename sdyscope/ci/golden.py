"""Targets against their golden files: each difference as a finding, with a line to look at.

After all targets were looked at: what each file becomes, and what of it is unused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sdyscope.annotations import split_scope
from sdyscope.ci.config import Config, SnapshotFile, Target
from sdyscope.ci.document import Outcome
from sdyscope.ci.places import PlacedFinding
from sdyscope.errors import TargetError
from sdyscope.facts.snapshots import STAGES
from sdyscope.snapshots import (
    Comparison,
    Key,
    Snapshot,
    TensorChange,
    compare,
    read_snapshots,
    take,
    update,
    write,
)
from sdyscope.snapshots.blocks import Blocks
from sdyscope.snapshots.inside import scope_name
from sdyscope.snapshots.read import ProgramSection, read_file, read_sections
from sdyscope.staged import Staged
from sdyscope.values.source import SourceLocation
from sdyscope.words import ci
from sdyscope.words.findings import Finding
from sdyscope.words.snapshots import things_text


@dataclass(frozen=True)
class GoldenCheck:
    """What came of the comparison.

    Attributes:
        words: what was compared: ``36 tensors or collectives``.
        findings: the differences.
        text: the snapshot as it is now.
    """

    words: str
    findings: tuple[PlacedFinding, ...]
    text: str


def golden(staged: Staged, target: Target, wanted: SnapshotFile) -> GoldenCheck:
    """Compares a program with its golden file, which is not written.

    Args:
        staged: the program.
        target: how it is configured; its name is that of the program in the file.
        wanted: the file.

    Raises:
        SdyscopeError: the file is no snapshot, or the program can't be taken through the stages.
    """
    text = read_file(wanted.path) if wanted.path.exists() else ""
    sections = (
        {section.snapshot.name: section for section in read_sections(text, wanted.path)}
        if text
        else {}
    )
    section = sections.get(target.name)
    stages = wanted.stages
    on = target.on
    if section is not None:
        stages = stages or section.snapshot.stages
        on = on or section.snapshot.hardware or None
    if "compiled" in (stages or ()) and not target.compiles:
        raise TargetError(
            f"The golden file of {target.name} has the stage compiled, and compile = false "
            "forbids that.",
            file=target.place.file,
            line=target.place.line,
            hint="Give its snapshot stages without compiled.",
        )
    for failure in staged.failures.values():
        raise failure  # A golden file lacks no partitioner that is asked for.
    now = take(staged, stages, on=on, name=target.name)
    text_now = write([now])
    if section is None:
        finding = ci.missing_program(target.name, wanted.path.name)
        return GoldenCheck(things_text(now.count), (_at(target.place, finding),), text_now)
    comparison = compare(section.snapshot, now)
    lines = _Lines(staged, str(wanted.path), text, section)
    return GoldenCheck(things_text(now.count), tuple(_differences(comparison, lines)), text_now)


def _differences(comparison: Comparison, lines: _Lines) -> Iterator[PlacedFinding]:
    for header in comparison.header:
        blocks = _blocks(comparison.blocks) if header.word == "mesh" and comparison.blocks else ""
        finding = ci.other_header(header.word, header.before, header.after, blocks)
        yield _at(lines.head, finding)
    # A stage that the file has and the target leaves out is so by its configuration.
    older = [part for part in comparison.not_compared if part not in STAGES]
    if older:
        yield _at(lines.head, ci.older_file(older))
    for change in comparison.changes:
        source, written = lines.source(change), lines.block(change.key)
        finding = ci.golden_change(
            change.what,
            change.kind,
            change.name,
            change.over,
            (change.type_before, change.type_after),
            change.before,
            change.after,
        )
        place = source or written
        yield PlacedFinding("snapshot", replace(finding, source=source), place, written)


#: Of how many tensors it is told which blocks they are in on another mesh.
_NAMED = 3


def _blocks(blocks: Blocks) -> str:
    """What the other mesh makes of the tensors, in a few words."""
    return ci.blocks_text(
        ((total.kind, total.partitioner, total.before, total.after) for total in blocks.totals),
        sum({change.tensors: change.count for change in blocks.changes}.values()),
        (
            (first.name, each.count - first.count, each.after.type, before.shape, after.shape)
            for each in blocks.changes[:_NAMED]
            for first, before, after in [(each.tensors[0], each.before, each.after)]
        ),
    )


def _at(place: SourceLocation, finding: Finding) -> PlacedFinding:
    return PlacedFinding("snapshot", finding, place, place)


class _Lines:
    """Where what differs is written: in the program, else in the golden file."""

    def __init__(self, staged: Staged, path: str, text: str, section: ProgramSection) -> None:
        self.staged = staged
        self.path = path
        self.section = section
        self._text = text
        self._sources: Mapping[tuple[str, str], SourceLocation] | None = None
        self.head = SourceLocation(path, _program_line(text, section))

    def block(self, key: Key) -> SourceLocation:
        """The line of the golden file that a key is on, or that of its program."""
        at = self._text.index(self.section.text)
        for block in self.section.blocks:
            at = self._text.find(block.text, at)
            if key in block.says:
                return SourceLocation(self.path, _line(self._text, at + len(block.comments)))
        return self.head

    def source(self, change: TensorChange) -> SourceLocation | None:
        """The line of the program that makes what changed; None for arguments and results."""
        if change.key.kind in ("argument", "result") or change.what == "removed":
            return None
        if self._sources is None:
            self._sources = _sources(self.staged)
        name = change.key.name
        shape = change.type_after.partition("[")[2]
        return self._sources.get((name, shape)) or self._sources.get((name, ""))


def _sources(staged: Staged) -> dict[tuple[str, str], SourceLocation]:
    """Lines by scope and shape, and by scope alone; with JAX's primitive and without it."""
    lines: dict[tuple[str, str], SourceLocation] = {}
    if staged.is_compiled:
        return lines
    for tensor in staged.tensors.tensors:
        if tensor.source is not None and tensor.kind not in ("argument", "result"):
            shape = ",".join(map(str, tensor.shape or ()))
            lines.setdefault((scope_name(tensor.path), f"{shape}]"), tensor.source)
            lines.setdefault((scope_name(tensor.path), ""), tensor.source)
    for partitioner in staged.lowered:
        for op in staged.graph(partitioner).operations():
            if op.source is None:
                continue
            scope, primitive = split_scope(op.scope)
            named = scope_name(scope)
            full = "/".join(word for word in (named, primitive) if word)
            for type_ in op.types:
                shape = ",".join(map(str, type_.shape or ()))
                lines.setdefault((named, f"{shape}]"), op.source)
                lines.setdefault((full, f"{shape}]"), op.source)
            lines.setdefault((named, ""), op.source)
            lines.setdefault((full, ""), op.source)
    return lines


def _program_line(text: str, section: ProgramSection) -> int:
    """The line of a snapshot file that a program begins on."""
    return _line(text, text.index(section.text) + len(section.comments))


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, max(at, 0)) + 1


@dataclass(frozen=True, slots=True)
class GoldenFile:
    """One golden file.

    Attributes:
        path: the file.
        text: what is in it; empty where it is not there.
        wanted: what is to be in it.
        unused: its programs that are no targets, as findings.
    """

    path: Path
    text: str
    wanted: str
    unused: tuple[PlacedFinding, ...]


def golden_files(
    config: Config,
    outcomes: Mapping[str, Outcome],
    *,
    updating: bool = False,
    remove_unused: bool = False,
) -> Iterator[GoldenFile]:
    """The golden files that something is known of; nothing is written.

    Args:
        config: the configuration, all targets of which a file may have.
        outcomes: what came of the targets that were looked at.
        updating: whether what changed is rewritten.
        remove_unused: whether programs that are no targets are removed then.
    """
    names: dict[Path, list[str]] = {}
    for target in config.targets:
        if target.snapshot is not None:
            names.setdefault(target.snapshot.path, []).append(target.name)
    for path, targets in names.items():
        now: list[Snapshot] = []
        for name in targets:
            if name in outcomes and outcomes[name].snapshot:
                now += read_snapshots(outcomes[name].snapshot)
        if now:  # Else nothing is known, or the file can't be read: its targets say so.
            yield _golden_file(path, targets, now, updating, remove_unused)


def _golden_file(
    path: Path, targets: list[str], now: list[Snapshot], updating: bool, remove_unused: bool
) -> GoldenFile:
    text = read_file(path) if path.exists() else ""
    there = {snapshot.name: snapshot for snapshot in read_snapshots(text, path)} if text else {}
    content = text
    if updating and text:
        looked_at = {snapshot.name for snapshot in now}
        # Targets that nothing is known of this time stay as they are.
        kept = [
            snapshot
            for snapshot in there.values()
            if snapshot.name in targets and snapshot.name not in looked_at
        ]
        content = update(text, [*now, *kept], remove_unused=remove_unused, file=path)
    elif updating:
        content = write(now)
    strangers = [] if remove_unused else [name for name in there if name not in targets]
    return GoldenFile(path, text, content, tuple(_unused_programs(content, path, strangers)))


def _unused_programs(text: str, path: Path, names: Iterable[str]) -> Iterator[PlacedFinding]:
    """Programs of a golden file that are no targets: nobody compares them any more."""
    sections = {section.snapshot.name: section for section in read_sections(text, path)}
    for name in names:
        place = SourceLocation(str(path), _program_line(text, sections[name]))
        yield _at(place, ci.unused_program(name, path.name))
