"""Golden files after all targets were looked at: what each of them becomes, and what is unused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sdyscope.ci.config import Config
from sdyscope.ci.golden import unused_programs
from sdyscope.ci.outcome import Found, Outcome
from sdyscope.snapshots import Snapshot, read_snapshots, update, write
from sdyscope.snapshots.read import read_file

__all__ = ["GoldenFile", "golden_files"]


@dataclass(frozen=True, slots=True)
class GoldenFile:
    """One golden file.

    Attributes:
        path: the file.
        text: what is in it; empty where it is not there.
        made: what is to be in it.
        unused: its programs that are no targets, as findings.
    """

    path: Path
    text: str
    made: str
    unused: tuple[Found, ...]


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
        updating: whether what changed is written anew.
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
    there = {one.name: one for one in read_snapshots(text, path)} if text else {}
    made = text
    if updating and text:
        looked_at = {one.name for one in now}
        # Targets that nothing is known of this time stay as they are.
        kept = [one for one in there.values() if one.name in targets and one.name not in looked_at]
        made = update(text, [*now, *kept], remove_unused=remove_unused, file=path)
    elif updating:
        made = write(now)
    strangers = [] if remove_unused else [name for name in there if name not in targets]
    return GoldenFile(path, text, made, tuple(unused_programs(made, path, strangers)))
