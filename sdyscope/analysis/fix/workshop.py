"""The user's program on the bench: its sources, what they name, what other text builds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from sdyscope.errors import SdyscopeError, TargetError, read_text
from sdyscope.facts.program import Program
from sdyscope.patches.configuration import CONFIGURATIONS
from sdyscope.patches.source import Source, Span, Splice, read_source, spliced
from sdyscope.patches.specs import padded, spec_text
from sdyscope.staged import Staged
from sdyscope.stages.edited.names import Names, named_at
from sdyscope.stages.edited.observed import Observed, observed
from sdyscope.stages.edited.overlay import is_authors, is_editable, overlaid
from sdyscope.stages.lowered.spans import frame_spans
from sdyscope.values.mesh import Mesh
from sdyscope.values.sharding import PartitionSpec

Rebuild: TypeAlias = Callable[[], Program]
"""Builds the program anew from the files that Python imports."""


class Workshop:
    """One program whose source can be edited and built again.

    Args:
        program: the program as it is.
        rebuild: builds it anew.
        platform: what it is compiled for.
    """

    def __init__(self, program: Staged, rebuild: Rebuild, platform: str = "cpu") -> None:
        self.program, self._rebuild, self.platform = program, rebuild, platform
        # Programs are let go: each has modules and graphs of a hundred megabytes and more.
        self._settings: WeakKeyDictionary[Staged, Mapping[str, Any]] = WeakKeyDictionary()
        self._sources: dict[str, Source] = {}
        self._editable: dict[str, bool] = {}
        self._names: dict[tuple[str, int], Names] = {}
        self._surveyed: set[tuple[str, int]] = set()

    # --- sources ----------------------------------------------------------------------------------

    def editable(self, file: str) -> bool:
        """Whether a file is the author's, and can be read as Python."""
        if file not in self._editable:
            self._editable[file] = is_editable(file)
            if self._editable[file]:
                try:
                    self._sources[file] = read_source(file)
                except SdyscopeError:
                    self._editable[file] = False
        return self._editable[file]

    def source(self, file: str) -> Source:
        """A file that is ``editable``."""
        if not self.editable(file):
            raise TargetError("This file can't be edited.", file=file)
        return self._sources[file]

    @cached_property
    def spans(self) -> dict[int, tuple[Span, ...]]:
        """The frames of every op of Shardy's module."""
        return frame_spans(self.program.lowered["shardy"].module, self.program.graph("shardy"))

    @cached_property
    def files(self) -> tuple[str, ...]:
        """The author's files that the program is defined in, or was traced through.

        The first is where it is defined: what shards its arguments is most often there.
        """
        defined = self.program.defined_at
        files: dict[str, None] = {} if defined is None else {defined.file: None}
        for frames in self.spans.values():
            files.update(dict.fromkeys(frame.file for frame in frames))
        unique = {os.path.realpath(file): file for file in files if self.editable(file)}
        return tuple(unique.values())

    def sources(self, *, without: str) -> list[Source]:
        """The ``files``, but for one."""
        own = os.path.realpath(without)
        return [self.source(file) for file in self.files if os.path.realpath(file) != own]

    @cached_property
    def configurations(self) -> Mapping[str, str]:
        """The text of each of the author's configuration files that the program reads."""
        texts: dict[str, str] = {}
        for file in self.observed.files:
            if file.endswith(CONFIGURATIONS) and is_authors(file):
                try:
                    texts[file] = read_text(file, "configuration", newline="")
                except TargetError:
                    continue
        return texts

    @cached_property
    def observed(self) -> Observed:
        """What the program does while it is built; nothing where it can't be built again."""
        try:
            return observed(self._traced)
        except Exception:  # the author's code is built, all of it imported anew
            return Observed()

    def text(self, file: str) -> str:
        """The text of a file that is ``editable``, or a configuration."""
        return self.source(file).text if self.editable(file) else self.configurations[file]

    def texts(self, splices: Mapping[str, Sequence[Splice]]) -> dict[str, str]:
        """The files with some edits.

        Raises:
            Overlap: two edits are of the same characters.
        """
        return {
            file: spliced(self.text(file), changes) for file, changes in splices.items() if changes
        }

    # --- names ------------------------------------------------------------------------------------

    def survey(self, spans: Iterable[Span]) -> None:
        """Finds out what the code calls things at some expressions, all in one trace."""
        lines: dict[str, set[int]] = {}
        for span in spans:
            key = (span.file, span.line)
            if key not in self._surveyed:
                self._surveyed.add(key)
                # Python tells a line by where its statement, or the call in it, begins.
                first = max(span.line - 8, 1)
                lines.setdefault(span.file, set()).update(range(first, span.end_line + 1))
        if not lines:
            return

        with overlaid({file: self.source(file).text for file in lines}):
            numbers = {file: frozenset(each) for file, each in lines.items()}
            _, names = named_at(numbers, self._traced)
        self._names.update(names)

    def names(self, span: Span) -> Names:
        """What the code has names for at an expression; see ``survey``."""
        self.survey([span])
        above = range(span.line, max(span.line - 9, 0), -1)
        for line in (*above, *range(span.line + 1, span.end_line + 1)):
            if (names := self._names.get((span.file, line))) is not None:
                return names
        return Names()

    def sharding_text(self, span: Span, mesh: Mesh, spec: PartitionSpec) -> str | None:
        """How to write a sharding in an expression; None where no name there leads to its mesh."""
        names = self.names(span)
        rank = len(spec.entries)
        for text, sharding in names.shardings.items():
            if sharding.mesh == mesh and padded(sharding.spec, rank) == padded(spec, rank):
                return text
        quote = self.source(span.file).quote
        spec_class = names.known.get("PartitionSpec") or _dotted(names, "PartitionSpec")
        if spec_class is None:
            return None
        on = self.mesh_text(span, mesh)
        written = spec_text(spec, spec_class, quote)
        if on is None:
            return written if names.has_context else None
        sharding_class = names.known.get("NamedSharding") or _dotted(names, "NamedSharding")
        return None if sharding_class is None else f"{sharding_class}({on}, {written})"

    def mesh_text(self, span: Span, mesh: Mesh) -> str | None:
        """How to write the mesh in an expression; None where no name there leads to it."""
        names = self.names(span)
        on = next((text for text, own in names.meshes.items() if own == mesh), None)
        holder = next((text for text, own in names.shardings.items() if own.mesh == mesh), None)
        return on if on is not None or holder is None else f"{holder}.mesh"

    def constraint_call(self, span: Span) -> str | None:
        """What ``with_sharding_constraint`` is called in an expression; None without a name."""
        names = self.names(span)
        if "with_sharding_constraint" in names.known:
            return names.known["with_sharding_constraint"]
        if "jax.lax" in names.known:
            return f"{names.known['jax.lax']}.with_sharding_constraint"
        if "jax" in names.known:
            return f"{names.known['jax']}.lax.with_sharding_constraint"
        return None

    # --- the program ------------------------------------------------------------------------------

    def _traced(self) -> None:
        _ = Staged(self._rebuild(), ("shardy",)).traced

    def built(self, texts: Mapping[str, str], *, trace: bool = True) -> Staged:
        """The program, built from other text; the files stay as they are.

        Args:
            texts: the text of each file that is other.
            trace: whether to trace it at once.

        Raises:
            SdyscopeError: it can't be built or traced.
        """
        with overlaid(texts) as settings:
            program = Staged(self._rebuild(), ("shardy",))
            if trace:
                _ = program.lowered_for(self.platform, "shardy")
        self._settings[program] = settings
        return program

    def settings(self, program: Staged) -> Mapping[str, Any]:
        """JAX's settings that a program of ``built`` was traced under, where they are other."""
        return self._settings.get(program, {})


def _dotted(names: Names, name: str) -> str | None:
    if "jax.sharding" in names.known:
        return f"{names.known['jax.sharding']}.{name}"
    return f"{names.known['jax']}.sharding.{name}" if "jax" in names.known else None
