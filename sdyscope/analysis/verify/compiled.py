"""Collectives and bytes: what is shown of the compiled program, against the final HLO."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TypeAlias

from sdyscope.analysis.collectives.totals import Collective, Collectives
from sdyscope.analysis.memory.memory import Memory
from sdyscope.analysis.verify.audited import AuditedStage, Disagreement
from sdyscope.facts.compiled import MemoryAnalysis
from sdyscope.stages.audit.facts import Audited, AuditedCollective
from sdyscope.stages.audit.hlo_dump import groups_of, over_axes
from sdyscope.values.mesh import Mesh
from sdyscope.values.source import SourceLocation

CollectiveKey: TypeAlias = tuple[str, frozenset[tuple[int, ...]], int, int]
"""Kind, groups, bytes and bytes that a device sends in one run."""

#: Collectives of which the groups are pairs, which no axes describe alone.
_PAIRS = ("collective-permute", "send", "recv")


def collectives_stage(shown: Collectives, audited: Audited) -> AuditedStage:
    """Every collective's kind, groups, bytes and how often a step runs it."""
    mine: Counter[CollectiveKey] = Counter()
    theirs: Counter[CollectiveKey] = Counter()
    names: dict[CollectiveKey, str] = {}
    names_there: dict[CollectiveKey, str] = {}
    lines: dict[CollectiveKey, SourceLocation | None] = {}
    wrong: list[Disagreement] = []
    for collective in shown.collectives:
        key = shown_key(collective, shown.devices)
        mine[key] += collective.count
        names.setdefault(key, _text(collective.name, key))
        lines.setdefault(key, collective.largest.source)
        other = _axes_groups(collective, shown.mesh)
        if other is not None and other != frozenset(map(frozenset, key[1])):
            wrong.append(
                Disagreement(
                    f"axes of {collective.name}",
                    ", ".join(map(str, collective.axes or ())),
                    f"groups {sorted(key[1])}",
                    collective.largest.source,
                )
            )
    for each in audited.collectives:
        key = key_of(each)
        theirs[key] += each.count
        names_there.setdefault(key, _text(each.name, key))
    for key in dict.fromkeys([*mine, *theirs]):
        if mine[key] != theirs[key]:
            wrong.append(
                Disagreement(
                    names.get(key) or names_there[key],
                    f"{mine[key]:,} in a step",
                    f"{theirs[key]:,} in a step",
                    lines.get(key),
                )
            )
    compared = len(mine.keys() | theirs.keys())
    axes = sum(
        1 for collective in shown.collectives if _axes_groups(collective, shown.mesh) is not None
    )
    return AuditedStage("collectives", compared + axes, tuple(wrong))


def key_of(collective: AuditedCollective) -> CollectiveKey:
    """What makes an audited collective the same as one that is shown."""
    return (
        collective.kind,
        frozenset(map(tuple, collective.groups)),
        collective.bytes,
        collective.sent,
    )


def shown_key(collective: Collective, devices: int) -> CollectiveKey:
    """The same of a collective that is shown."""
    groups = groups_of(collective.groups, devices)
    sent = sum(part.sent for part in collective.parts)
    return collective.kind, frozenset(map(tuple, groups)), collective.bytes, sent


def _axes_groups(collective: Collective, mesh: Mesh | None) -> frozenset[frozenset[int]] | None:
    """The groups that the axes shown stand for; None where there are none to be compared.

    Axes are shown in the order of the mesh, whatever the order of a group's members.
    """
    if mesh is None or collective.axes is None or collective.kind in _PAIRS:
        return None
    axes = [
        (axis.name, 1, mesh.shape[axis.name])
        if axis.sub_axis_info is None
        else (axis.name, axis.sub_axis_info.pre_size, axis.sub_axis_info.size)
        for axis in collective.axes
    ]
    return frozenset(map(frozenset, over_axes(axes, dict(mesh.shape), list(mesh.devices()))))


def _text(name: str, key: CollectiveKey) -> str:
    return f"{name}: {key[0]} of {key[2]:,} bytes, {len(key[1]):,} groups, {key[3]:,} bytes sent"


def memory_stage(shown: Memory, audited: Audited) -> AuditedStage:
    """The compiler's figures, and the arguments' bytes by their shardings."""
    pairs = list(_figures(shown, audited))
    wrong = [
        Disagreement(name, f"{mine:,} bytes", f"{theirs:,} bytes")
        for name, mine, theirs in pairs
        if mine != theirs
    ]
    return AuditedStage("memory", len(pairs), tuple(wrong))


def _figures(shown: Memory, audited: Audited) -> Iterator[tuple[str, int, int]]:
    theirs = MemoryAnalysis.of(audited.memory)
    mine = shown.compiler
    if mine is not None:
        for name in ("arguments", "outputs", "aliases", "temporaries", "generated_code"):
            yield name, getattr(mine, name), getattr(theirs, name)
        if mine.peak is not None and theirs.peak is not None:
            yield "peak", mine.peak, theirs.peak
    arguments = sum(tensor.stored.bytes for tensor in shown.tensors if tensor.kind == "argument")
    yield "arguments by their shardings", arguments, audited.argument_bytes
