"""Where the differences of compared programs begin, by lines of the author's files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os import sep

from sdyscope.analysis.diff.stages import ComparedStages
from sdyscope.annotations import shown_name
from sdyscope.values.source import SourceLocation


def begins_at(
    compared: Sequence[ComparedStages], folder: str
) -> dict[tuple[str, int], tuple[str, ...]]:
    """The tensors and collectives that differ, by the line that they are of.

    Args:
        compared: programs.
        folder: the folder that files are told from; lines elsewhere are left out.

    Returns:
        By file, as it is called from the folder, and line: names, the first causes first.
    """
    by_line: dict[tuple[str, int], dict[str, None]] = {}
    for program in compared:
        for name, source in _differing(program):
            if source is not None and source.file.startswith(folder + sep):
                key = source.file.removeprefix(folder + sep), source.line
                by_line.setdefault(key, {}).setdefault(name)
    return {key: tuple(names) for key, names in by_line.items()}


def _differing(program: ComparedStages) -> Iterator[tuple[str, SourceLocation | None]]:
    for cause in program.compiled.causes:
        if cause.begins is not None:
            yield cause.begins.value.name, cause.begins.value.source
        if cause.constraint is not None:
            own, _ = cause.constraint.own
            yield _named(cause.constraint.tensor, cause.constraint.kind), own.source
    for asked in () if program.requested is None else program.requested.different:
        yield _named(asked.tensor, asked.kind), asked.source
    for tensor in program.lowered.tensors:
        side = tensor.b or tensor.a
        yield _named(tensor.tensor, tensor.kind), None if side is None else side.source
    if program.propagated is not None:
        for beginning in program.propagated.beginnings:
            yield beginning.begins.value.name, beginning.begins.value.source
    for difference in program.compiled.collectives:
        for source in difference.sources:
            name = "/".join(filter(None, (difference.key.scope, difference.key.primitive)))
            yield f"{difference.key.kind} for {name}" if name else difference.key.kind, source


def _named(tensor: str, kind: str) -> str:
    """A tensor as it is told: a constraint by its kind too, as its scope is that of others."""
    name = shown_name(tensor, kind)
    return name if kind in ("argument", "result") or name == kind else f"{kind} in {name}"
