"""Snapshots that no test has: found from what was collected, whatever of it is then run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sdyscope.pytest_plugin.files import FOLDER, SUFFIX, file_name, files_in, folder_of


def _parts_of(item: pytest.Item) -> list[str]:
    """The names of a test's classes, then its own."""
    parts: list[str] = []
    for node in item.listchain():
        # What is above the module is told by the folder.
        parts = [] if isinstance(node, pytest.File) else [*parts, node.name]
    return parts


class Collected:
    """The tests that pytest found, those included that it does not run this time.

    A module of which only some tests were looked for, or that could not be imported, says nothing
    about which snapshots are of no use.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.root = config.rootpath
        # --last-failed leaves tests out while it collects.
        self.is_partial = bool(config.getoption("lf", False))
        self.partly = {
            Path(config.invocation_params.dir, arg.partition("::")[0]).resolve()
            for arg in config.args
            if "::" in arg
        }
        self.names: dict[Path, set[str]] = {}
        self.complete: set[Path] = set()
        self.failed: set[Path] = set()
        self.folders: set[Path] = set()
        self._listed: dict[Path, set[str]] = {}

    def item(self, item: pytest.Item) -> None:
        """Notes a test."""
        self.names.setdefault(item.path, set()).add(file_name(_parts_of(item)))

    def file_of(self, item: pytest.Item) -> Path:
        """The snapshot file of a test, whether it is there or not."""
        return folder_of(item.path) / file_name(_parts_of(item))

    def has_file(self, item: pytest.Item) -> bool:
        """Whether a test has a snapshot file from before it ran."""
        folder = folder_of(item.path)
        if folder not in self._listed:
            self._listed[folder] = {file.name for file in files_in(folder)}
        listed = self._listed[folder]
        return bool(listed) and self.file_of(item).name in listed

    def report(self, report: pytest.CollectReport) -> None:
        """Notes a module that was collected, or could not be."""
        path, inside, _ = report.nodeid.partition("::")
        module = self.root / path
        if report.outcome != "passed":
            self.failed.add(module)
        elif not inside and module.suffix == ".py":
            self.complete.add(module)

    def folder(self, path: Path) -> None:
        """Notes a folder that pytest looked into."""
        if path.name == FOLDER:
            self.folders.add(path)

    def unused(self) -> Iterator[Path]:
        """The snapshot files that no test has; files of others are none."""
        files = [] if self.is_partial else list(self._without_test())
        if files:
            from sdyscope.snapshots import is_snapshot

            yield from filter(is_snapshot, files)

    def _without_test(self) -> Iterator[Path]:
        for module in sorted(self.complete - self.failed):
            if module.resolve() in self.partly:
                continue
            known = self.names.get(module, set())
            for file in files_in(folder_of(module)):
                if file.name not in known:
                    yield file
        beside = {module.parent / FOLDER for module in self.complete}
        for folder in sorted(self.folders | {path for path in beside if path.is_dir()}):
            for inside in sorted(folder.iterdir()):
                if inside.is_dir() and not _has_module(inside):
                    yield from files_in(inside)
                elif inside.is_file() and inside.name.endswith(SUFFIX):
                    yield inside


def _has_module(folder: Path) -> bool:
    """Whether the module that a folder of snapshots belongs to is there."""
    above = folder.parent.parent
    return (above / f"{folder.name}.py").exists() or (above / folder.name).is_file()
