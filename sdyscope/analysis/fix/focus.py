"""What is to be fixed: anything, or what a finding, tensor, line or kind of collective is about."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from sdyscope.analysis.collectives.totals import Collective, Collectives
from sdyscope.analysis.diff.sides import FIRST_DIFFERENCE, partitioners_differ
from sdyscope.analysis.propagation.explain import Explainer
from sdyscope.errors import TargetError
from sdyscope.facts.edits import EditKind, SourceEdit
from sdyscope.facts.tensors import TensorTable
from sdyscope.facts.traffic import KINDS
from sdyscope.staged import Staged
from sdyscope.values.source import SourceLocation

#: The word for the mesh: the order of its axes, and their sizes.
MESH = "mesh"

_LINE = re.compile(r"(?P<file>.+):(?P<line>\d+)")


@dataclass(frozen=True)
class Focus:
    """What edits are to be about.

    Attributes:
        words: what was asked for; empty for anything.
        tensors: paths or scopes of tensors.
        lines: source lines.
        collectives: kinds or names of collectives.
        kinds: the kinds of edits that remedy the finding; None for any.
        is_place: whether edits elsewhere are not about it, whatever collectives they are behind.
    """

    words: str = ""
    tensors: frozenset[str] = frozenset()
    lines: tuple[SourceLocation, ...] = ()
    collectives: frozenset[str] = frozenset()
    kinds: frozenset[EditKind] | None = None
    is_place: bool = False

    @property
    def is_anything(self) -> bool:
        """Whether nothing was asked for."""
        return not self.words

    @property
    def on_mesh(self) -> bool:
        """Whether other sizes of the mesh's axes are about it."""
        return self.kinds is not None and "mesh sizes" in self.kinds

    def on_line(self, source: SourceLocation | None) -> bool:
        """Whether a line is one of those."""
        return source is not None and any(
            line.line == source.line
            and (line.file == source.file or source.file.endswith(f"/{line.file}"))
            for line in self.lines
        )

    def takes(self, collective: Collective) -> bool:
        """Whether a collective is what it is about."""
        if self.is_anything or not self.collectives.isdisjoint((collective.kind, collective.name)):
            return True
        for part in collective.parts:
            if self.on_line(part.source):
                return True
            origin = part.origin
            if origin is None:
                continue
            if origin.value in self.tensors or self.on_line(origin.source):
                return True
            if any(
                annotation.name in self.tensors or self.on_line(annotation.source)
                for annotation in origin.annotations
            ):
                return True
        return False

    def of(self, collectives: Collectives) -> Collectives:
        """The collectives that it is about."""
        if self.is_anything:
            return collectives
        return replace(collectives, collectives=tuple(filter(self.takes, collectives.collectives)))

    def allows(self, edit: SourceEdit, weight: float, names: Iterable[str] = ()) -> bool:
        """Whether an edit is about it.

        Args:
            edit: the edit.
            weight: bytes that are sent for what it edits, by the collectives that it is about.
            names: paths of all tensors that are edited.
        """
        if self.is_anything:
            return True
        if self.kinds is not None and edit.kind not in self.kinds:
            return False
        if self.on_line(edit.source) or not self.tensors.isdisjoint((edit.name, *names)):
            return True
        if self.is_place:
            return False
        if self.kinds is not None:
            return True
        return weight > 0 and edit.kind != "donation"


def focus_on_difference(program: Staged) -> Focus:
    """The value at which the partitioners begin to shard a program differently.

    Edits are about it that are at its line, or of an annotation that it is sharded by under Shardy.

    Args:
        program: the program, under both partitioners.

    Raises:
        CompilerError: one of them can't propagate it.
        TargetError: they shard all values alike.
    """
    value = partitioners_differ(program).beginnings[0].begins.value
    names = {value.name}
    lines = [] if value.source is None else [value.source]
    for chain in Explainer.of(program, "shardy").explain(value.id).chains:
        if chain.beginning is not None:
            names.add(chain.beginning.name)
            lines += [] if chain.beginning.source is None else [chain.beginning.source]
    return Focus(
        FIRST_DIFFERENCE,
        frozenset(names),
        tuple(lines),
        # Whatever is sent because of it: it begins there.
        frozenset(KINDS),
        is_place=True,
    )


def focus_on(words: str, table: TensorTable, collectives: Collectives) -> Focus:
    """What a kind or name of a collective, a tensor or a line is about.

    Raises:
        TargetError: there is no such thing in the program.
    """
    wanted = words.strip()
    if not wanted:
        return Focus()
    names = {collective.name for collective in collectives.collectives}
    if wanted in KINDS or wanted in names:
        focus = Focus(wanted, collectives=frozenset({wanted}))
        if focus.of(collectives).collectives:
            return focus
        raise TargetError(f"The program has no {wanted}.")
    if wanted == MESH:
        return Focus(wanted, collectives=frozenset(KINDS), kinds=frozenset({"mesh", "mesh sizes"}))
    tensors = {row.name for row in table.tensors}
    scopes = {name.partition("/")[2]: name for name in tensors if name.startswith("jit(")}
    if wanted in tensors or wanted in scopes:
        return Focus(wanted, frozenset({wanted, scopes.get(wanted, wanted)}))
    match = _LINE.fullmatch(wanted)
    if match is not None:
        return Focus(wanted, lines=(SourceLocation(match["file"], int(match["line"])),))
    raise TargetError(
        f"{wanted!r} is no rule, kind of collective, tensor or line of this program.",
        hint="Name a rule of `sdyscope lint`, all-gather, mesh, params['w1'] or train.py:42.",
    )
