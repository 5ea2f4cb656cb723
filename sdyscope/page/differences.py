"""Differences for the report: two partitioners, programs or kinds of hardware, at each stage.

What can't be compared at a stage says why; the other stages are there without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from sdyscope.analysis.diff.renamed import renamed
from sdyscope.analysis.diff.sides import (
    both_partitioners,
    compiled_between,
    compiled_ends,
    labels_of,
    lowered_between,
    notes_between,
    propagated_between,
)
from sdyscope.analysis.diff.stages import ComparedStages
from sdyscope.errors import SdyscopeError
from sdyscope.facts.differences import (
    Across,
    AnyDiff,
    Cause,
    CollectiveDifference,
    Communicated,
    CompiledDiff,
    DifferingValue,
    Divergence,
    Entries,
    LoweredDiff,
    MemoryRow,
    ProgramSide,
    PropagatedDiff,
    TensorDifference,
    TensorSide,
    telling,
)
from sdyscope.facts.memory import MemoryPart
from sdyscope.hardware.names import Hardware
from sdyscope.inspection import Inspection
from sdyscope.page.columns import Pool, table
from sdyscope.page.document import Report
from sdyscope.snapshots.differences import DiffDocument
from sdyscope.words.account import NOT_COMPILED
from sdyscope.words.counts import sentence
from sdyscope.words.differences import (
    EACH_BY_ITSELF,
    OTHERWISE,
    across_text,
    behind_texts,
    beside_text,
    compared_over_text,
    compiled_notes,
    compiled_remarks,
    compiled_verdict,
    entry_text,
    entry_texts,
    extent_text,
    follows_text,
    inputs_text,
    lone_mesh_text,
    lowered_notes,
    lowered_verdict,
    not_compared_entries_text,
    not_compared_text,
    on_both_text,
    propagated_verdict,
    retyped_text,
    same_text,
    verdict_text,
)
from sdyscope.words.memory import part_text
from sdyscope.words.origins import origin_text
from sdyscope.words.paths import shortened
from sdyscope.words.places import shown_name
from sdyscope.words.remarks import remark_text, remark_texts
from sdyscope.words.sharding import open_text, placed_text, short, told_apart
from sdyscope.words.snapshots import (
    IN_BOTH,
    NO_VIEWS,
    comparison_text,
    header_text,
    renamed_axes_text,
    snapshot_name,
    snapshots_title,
    uncompared_parts_text,
)
from sdyscope.words.types import type_text


def part(report: Report, pool: Pool, inspection: Inspection) -> dict[str, Any]:
    """What the two partitioners differ in; `reports/js/differences/view.js` shows it.

    Args:
        report: the inspection as a document; says what was compiled for.
        pool: takes the source lines.
        inspection: the program.

    Raises:
        SdyscopeError: there is only one module.
    """
    both_partitioners(inspection)
    on: Hardware | str = sentence(NOT_COMPILED)
    if report.hardware is not None and report.comms is not None:
        on = report.hardware
    return differences(pool, inspection, None, on)


def differences(
    pool: Pool,
    inspection: Inspection,
    two: Inspection | None,
    on: Hardware | str | None,
    other_on: Hardware | None = None,
) -> dict[str, Any]:
    """Two sides at each stage.

    Args:
        pool: takes the source lines.
        inspection: the first program.
        two: the second; None for the first under its two partitioners, or on two kinds of hardware.
        on: what to compile for; of a text that is why nothing is.
        other_on: what to compile the second side for; by default the same.
    """
    if two is None and other_on is not None and not isinstance(on, str):
        return _on_two(pool, inspection, on, other_on)
    labels = both_partitioners(inspection) if two is None else labels_of(inspection, two)
    stages: _Stages = {
        "lowered": _or_reason(lambda: lowered_between(inspection, two)),
        "propagated": _or_reason(lambda: propagated_between(inspection, two)),
        "compiled": on
        if isinstance(on, str)
        else _or_reason(lambda: compiled_between(inspection, two, on=on, other_on=other_on)),
    }
    across: Across = "partitioners" if two is None else "programs"
    notes = remark_texts(notes_between(inspection, two))
    return {**_titled(inspection.name, across, labels, stages, pool), "notes": list(notes)}


_Stages: TypeAlias = Mapping[str, AnyDiff | str]
"""What differs at each stage, or why that is not known."""


def _titled(
    name: str, across: Across, labels: tuple[str, str], stages: _Stages, pool: Pool
) -> dict[str, Any]:
    """The stages under what matters most of them, a sentence."""
    diffs = [stage for stage in stages.values() if not isinstance(stage, str)]
    differing = telling(diffs)
    # Compilers of two kinds of hardware are given the same module.
    whole = across == "hardware" or len(diffs) == len(stages)
    return {
        "name": name,
        "across": across,
        "labels": labels,
        "title": same_text(
            across,
            labels,
            compared=bool(diffs),
            whole=whole
            and not any(isinstance(diff, LoweredDiff) and diff.leaves_out for diff in diffs),
        )
        if differing is None
        else sentence(verdict_text(differing)),
        **_drawn(stages, pool),
    }


def _drawn(stages: _Stages, pool: Pool) -> dict[str, dict[str, Any]]:
    return {name: _stage(stage, pool) for name, stage in stages.items()}


def _stage(stage: AnyDiff | str, pool: Pool) -> dict[str, Any]:
    match stage:
        case LoweredDiff():
            return _lowered(stage, pool)
        case PropagatedDiff():
            return _propagated(stage, pool)
        case CompiledDiff():
            return _compiled(stage, pool)
    return {"unavailable": stage}


def _on_two(
    pool: Pool, inspection: Inspection, on: Hardware | None, other_on: Hardware
) -> dict[str, Any]:
    """One program on two kinds of hardware: only what is compiled can differ."""
    ends = compiled_ends(inspection, None, None, on, other_on)
    labels = ends[0].label, ends[1].label
    stages: _Stages = {
        "lowered": on_both_text(ends[0].partitioner or "shardy"),
        "propagated": EACH_BY_ITSELF,
        "compiled": _or_reason(lambda: compiled_between(inspection, on=on, other_on=other_on)),
    }
    return _titled(inspection.name, "hardware", labels, stages, pool)


def compared(stages: ComparedStages, pool: Pool, labels: tuple[str, str]) -> dict[str, Any]:
    """One program as two JAX, or two commits, make it.

    Args:
        stages: the comparison.
        pool: takes the source lines.
        labels: what the two are called.
    """
    every: _Stages = {
        "lowered": stages.lowered,
        "propagated": stages.propagated or remark_text(stages.missing.get("propagated", "")),
        "compiled": stages.compiled,
    }
    return {"name": stages.name, "across": "programs", "labels": labels, **_drawn(every, pool)}


def snapshots(document: DiffDocument, labels: tuple[str, str]) -> dict[str, Any]:
    """Two snapshot files beside each other, as `sdyscope diff` compares them.

    Args:
        document: the comparison.
        labels: what the two are called.
    """
    compared = document.snapshots
    return {
        "across": "snapshots",
        "labels": labels,
        "title": snapshots_title(
            labels,
            sum(snapshot.same for snapshot in compared),
            sum(snapshot.different for snapshot in compared),
            equal=document.same,
        ),
        "noViews": NO_VIEWS,
        "onlyA": document.only_a,
        "onlyB": document.only_b,
        "snapshots": [
            {
                "name": snapshot.name,
                "words": comparison_text(
                    snapshot.same,
                    snapshot.different,
                    [change.word for change in snapshot.header],
                    IN_BOTH,
                ),
                "header": [
                    {
                        "word": change.word,
                        "before": header_text(change.word, change.before),
                        "after": header_text(change.word, change.after),
                    }
                    for change in snapshot.header
                ],
                "notes": [
                    *(
                        [sentence(uncompared_parts_text(snapshot.not_compared))]
                        if snapshot.not_compared
                        else []
                    ),
                    *([sentence(renamed_axes_text(snapshot.renamed))] if snapshot.renamed else []),
                ],
                "changes": [
                    {
                        "what": change.what if other is None else "changed",
                        "kind": change.kind,
                        "name": snapshot_name(change.name),
                        "otherName": "" if other is None else snapshot_name(other.name),
                        "count": change.count,
                        "typeBefore": change.type_before,
                        "typeAfter": (other or change).type_after,
                        "over": change.over,
                        "before": change.before,
                        "after": (other or change).after,
                    }
                    for change, other in renamed(
                        snapshot.changes,
                        lambda change: (change.before, change.after),
                        lambda change: (
                            change.kind,
                            change.over,
                            change.count,
                            change.type_before or change.type_after,
                        ),
                    )
                ],
            }
            for snapshot in compared
        ],
    }


def _or_reason(compare: Callable[[], AnyDiff]) -> AnyDiff | str:
    try:
        return compare()
    except SdyscopeError as error:
        return shortened(str(error))


# --- lowered --------------------------------------------------------------------------------------


def _lowered(diff: LoweredDiff, pool: Pool) -> dict[str, Any]:
    return {
        "same": diff.same,
        "words": lowered_verdict(diff),
        "meshes": list(map(lone_mesh_text, diff.meshes)),
        "tensors": [
            _tensor(tensor, other, pool)
            for tensor, other in renamed(
                diff.tensors,
                lambda tensor: (tensor.a, tensor.b),
                lambda tensor: (tensor.kind, tensor.own[0].shape, tensor.own[0].dtype),
            )
        ],
        "ops": [
            (
                op.scope,
                op.kind,
                op.count_a,
                op.count_b,
                {**op.types_a, **op.attributes_a},
                {**op.types_b, **op.attributes_b},
            )
            for op in diff.ops
        ],
        "notes": list(lowered_notes(diff)),
    }


def _tensor(
    difference: TensorDifference, other: TensorDifference | None, pool: Pool
) -> dict[str, Any]:
    """A tensor that differs, or one that the second side has under another name."""
    sides = difference.a, (other or difference).b
    words = [_words(side) for side in sides]
    if words[0] and words[0] == words[1]:
        words = [*told_apart(placed_text, *(side.sharding for side in sides if side))]
    a, b = (
        None if side is None else {**_tensor_side(side, difference.what, pool), "words": text}
        for side, text in zip(sides, words, strict=True)
    )
    return {
        "name": difference.tensor,
        "otherName": "" if other is None else other.tensor,
        "kind": difference.kind,
        "change": difference.change if other is None else "changed",
        "what": difference.what if other is None else ("name",),
        "a": a,
        "b": b,
    }


def _words(side: TensorSide | None) -> str:
    """Where a side puts its tensor, as far as that is known."""
    return "" if side is None or side.sharding.placement is None else placed_text(side.sharding)


def _tensor_side(side: TensorSide, what: Sequence[str], pool: Pool) -> dict[str, Any]:
    return {
        "shape": side.shape,
        "dtype": side.dtype,
        "source": pool.source(side.source),
        "sharding": short(side.sharding),
        "beside": beside_text(side, what),
    }


# --- propagated -----------------------------------------------------------------------------------


def _propagated(diff: PropagatedDiff, pool: Pool) -> dict[str, Any]:
    return {
        "same": diff.same,
        "words": propagated_verdict(diff),
        "notCompared": [
            sentence(not_compared_text(values, diff.across)) for values in diff.not_compared
        ],
        "exactness": (diff.propagation_a.exactness, diff.propagation_b.exactness),
        "beginnings": [_beginning(beginning, diff, pool) for beginning in diff.beginnings],
    }


def _beginning(divergence: Divergence, diff: PropagatedDiff, pool: Pool) -> dict[str, Any]:
    return {
        "begins": _value(divergence.begins, pool),
        "inputs": inputs_text((each.name, each.sharding) for each in divergence.inputs),
        "values": divergence.values,
        "bytes": divergence.bytes,
        "bytesA": divergence.bytes_a,
        "bytesB": divergence.bytes_b,
        "extent": extent_text(divergence, diff),
        "follows": _values(divergence.follows, pool),
    }


def _value(differing_value: DifferingValue, pool: Pool) -> dict[str, Any]:
    a, b = differing_value.a, differing_value.b
    return {
        **{name: next(iter(column)) for name, column in _columns([differing_value], pool).items()},
        "kind": differing_value.value.kind,
        **dict(zip(("wordsA", "wordsB"), told_apart(placed_text, a, b), strict=True)),
    }


def _values(differing_values: Iterable[DifferingValue], pool: Pool) -> dict[str, Any]:
    return table(_columns(list(differing_values), pool))


def _columns(listed: list[DifferingValue], pool: Pool) -> dict[str, Iterable[Any]]:
    return {
        "name": (difference.value.name for difference in listed),
        "ssa": (difference.value.ssa for difference in listed),
        "shape": (difference.value.shape for difference in listed),
        "dtype": (difference.value.dtype for difference in listed),
        "source": (pool.source(difference.value.source) for difference in listed),
        "a": (short(difference.a) for difference in listed),
        "b": (retyped_text(difference) + short(difference.b) for difference in listed),
        "bytesA": (difference.a.bytes_per_device or 0 for difference in listed),
        "bytesB": (difference.b.bytes_per_device or 0 for difference in listed),
    }


# --- compiled ----------------------------------------------------------------------------------


def _compiled(diff: CompiledDiff, pool: Pool) -> dict[str, Any]:
    meshes = diff.a.mesh, diff.b.mesh
    return {
        "same": diff.same,
        "alike": diff.is_alike,
        "words": compiled_verdict(diff),
        "a": _side(diff.a),
        "b": _side(diff.b),
        "kinds": [
            (axis.kind, compared_over_text(axis.axes, axis.group_size, meshes), axis.a, axis.b)
            for axis in diff.by_kind_and_axes
        ],
        "memory": [_memory_row(row, diff.aliases) for row in diff.memory],
        "causes": [_cause(cause, diff, pool) for cause in diff.causes],
        "collectives": [_collective(collective, diff, pool) for collective in diff.collectives],
        "entries": None if diff.entries is None else _entries(diff, diff.entries),
        "notes": list(map(sentence, compiled_remarks(diff))),
    }


def _memory_row(row: MemoryRow, donated: int) -> tuple[str, str, str, int | None, int | None]:
    """Its kind, its part, what it is called, and bytes on both sides."""
    part = row.name.value if isinstance(row.name, MemoryPart) else ""
    return row.kind, part, part_text(row.name, donated), row.a, row.b


def _entries(diff: CompiledDiff, entries: Entries) -> dict[str, Any]:
    a, b = diff.a.mesh, diff.b.mesh
    return {
        "same": entries.same,
        "different": [
            (
                entry.kind,
                entry.name,
                *entry_texts(entry.a, (other or entry).b, (a, b), entry.change),
                "" if other is None else other.name,
            )
            for entry, other in renamed(
                entries.different,
                lambda entry: (entry.a, entry.b),
                lambda entry: (entry.kind, entry_text(entry.a or entry.b, a if entry.a else b)),
            )
        ],
        "notCompared": [
            sentence(not_compared_entries_text(missing)) for missing in entries.not_compared
        ],
    }


def _side(side: ProgramSide) -> dict[str, Any]:
    return {
        "label": side.label,
        "partitioner": side.partitioner,
        "total": side.total,
        "notes": list(compiled_notes(side)),
    }


def _cause(cause: Cause, diff: CompiledDiff, pool: Pool) -> dict[str, Any]:
    where = across_text(diff.across, diff.b.label)
    return {
        "begins": None if cause.begins is None else _value(cause.begins, pool),
        "constraint": None if cause.constraint is None else _lone(cause.constraint, diff, pool),
        "layers": cause.layers,
        "values": cause.values,
        "sent": cause.sent,
        "words": follows_text(cause.values, cause.differences, cause.sent, where),
        "behind": list(behind_texts(cause, diff)),
    }


def _lone(constraint: TensorDifference, diff: CompiledDiff, pool: Pool) -> dict[str, Any]:
    own, side = constraint.own
    return {
        "name": shown_name(constraint.tensor, constraint.kind),
        "source": pool.source(own.source),
        "only": (diff.a if side == "a" else diff.b).label,
        "sharding": f"{type_text(own.shape, own.dtype)} {open_text(own.sharding)}",
    }


def _collective(difference: CollectiveDifference, diff: CompiledDiff, pool: Pool) -> dict[str, Any]:
    key = difference.key
    return {
        "change": difference.change,
        "phase": key.phase,
        "scope": key.scope,
        "layers": len(difference.scopes),
        "primitive": key.primitive,
        "kind": key.kind,
        "over": compared_over_text(key.axes, key.group_size, (diff.a.mesh, diff.b.mesh)),
        "sources": [pool.source(source) for source in difference.sources],
        "a": _communicated(difference.a),
        "b": _communicated(difference.b),
        "sent": difference.sent,
        "otherwise": OTHERWISE.get(difference.otherwise, ""),
        "cause": difference.cause,
    }


def _communicated(communicated: Communicated) -> dict[str, Any]:
    origins = dict.fromkeys(map(origin_text, communicated.origins))
    return {
        "tensors": communicated.tensors,
        "sent": communicated.sent,
        "shapes": list(communicated.shapes.items()),
        "origins": tuple(origins)[:3],
    }
