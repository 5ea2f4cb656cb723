"""Differences for the report: two partitioners, programs or kinds of hardware, at each stage.

What can't be compared at a stage says why; the other stages are there without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from sdyscope.analysis.diff.causes import Cause
from sdyscope.analysis.diff.collectives import CollectiveDifference, Communicated
from sdyscope.analysis.diff.compiled import CompiledDiff, CompiledSide
from sdyscope.analysis.diff.entries import Entries
from sdyscope.analysis.diff.lowered import LoweredDiff, TensorDifference, TensorSide
from sdyscope.analysis.diff.propagated import DifferingValue, Divergence, PropagatedDiff
from sdyscope.analysis.diff.sides import (
    both_partitioners,
    compiled_between,
    compiled_ends,
    labels_of,
    lowered_between,
    propagated_between,
)
from sdyscope.errors import SdyscopeError
from sdyscope.hardware.names import Hardware, parse_hardware
from sdyscope.inspection import Inspection
from sdyscope.page.columns import Pool, table
from sdyscope.page.document import Report
from sdyscope.snapshots.differences import DiffDocument
from sdyscope.words.counts import sentence
from sdyscope.words.differences import (
    across_text,
    behind_text,
    compared_over_text,
    compiled_notes,
    compiled_remarks,
    device_verb,
    entry_text,
    extent_text,
    follows_text,
    inputs_text,
    lone_mesh_text,
    lowered_notes,
    not_compared_entries_text,
    not_compared_text,
)
from sdyscope.words.origins import origin_text
from sdyscope.words.places import shown_name
from sdyscope.words.sharding import open_text, placed_text, placement_text, short
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
    on: Hardware | str = "It was not compiled."
    if report.hardware is not None and report.comms is not None:
        try:
            on = parse_hardware(report.hardware)
        except SdyscopeError as error:
            on = str(error)
    return differences(pool, inspection, None, on)


def differences(
    pool: Pool,
    one: Inspection,
    two: Inspection | None,
    on: Hardware | str | None,
    other_on: Hardware | None = None,
) -> dict[str, Any]:
    """Two sides at each stage.

    Args:
      pool: takes the source lines.
      one: the first program.
      two: the second; None for the first under its two partitioners, or on two kinds of hardware.
      on: what to compile for; of a text that is why nothing is.
      other_on: what to compile the second side for; by default the same.
    """
    if two is None and other_on is not None and not isinstance(on, str):
        return _on_two(pool, one, on, other_on)
    return {
        "name": one.name,
        "across": "partitioners" if two is None else "programs",
        "labels": _labels(one, two),
        "lowered": _or_reason(lambda: _lowered(lowered_between(one, two), pool)),
        "propagated": _or_reason(lambda: _propagated(propagated_between(one, two), pool)),
        "compiled": {"unavailable": on}
        if isinstance(on, str)
        else _or_reason(
            lambda: _compiled(compiled_between(one, two, on=on, other_on=other_on), pool)
        ),
    }


def _on_two(pool: Pool, one: Inspection, on: Hardware | None, other_on: Hardware) -> dict[str, Any]:
    """One program on two kinds of hardware: only what is compiled can differ."""
    ends = compiled_ends(one, None, None, on, other_on)
    under = {"shardy": "Shardy", "gspmd": "GSPMD"}[ends[0].partitioner or "shardy"]
    same = {"unavailable": f"It is the same program on both, lowered for {under}."}
    return {
        "name": one.name,
        "across": "hardware",
        "labels": [end.label for end in ends],
        "lowered": same,
        "propagated": {"unavailable": "Each compiler propagates by itself; see the collectives."},
        "compiled": _or_reason(
            lambda: _compiled(compiled_between(one, on=on, other_on=other_on), pool)
        ),
    }


def snapshots(found: DiffDocument, labels: tuple[str, str]) -> dict[str, Any]:
    """Two snapshot files beside each other, as `sdyscope diff` compares them.

    Args:
      found: the comparison.
      labels: what the two are called.
    """
    return {
        "across": "snapshots",
        "labels": labels,
        "same": found.same,
        "onlyA": found.only_a,
        "onlyB": found.only_b,
        "snapshots": [
            {
                "name": one.name,
                "same": one.same,
                "different": one.different,
                "header": one.header,
                "notCompared": one.not_compared,
                "changes": [
                    {
                        "what": change.what,
                        "kind": change.kind,
                        "name": change.name,
                        "count": change.count,
                        "typeBefore": change.type_before,
                        "typeAfter": change.type_after,
                        "over": change.over,
                        "before": change.before,
                        "after": change.after,
                    }
                    for change in one.changes
                ],
            }
            for one in found.snapshots
        ],
    }


def _labels(one: Inspection, two: Inspection | None) -> tuple[str, str]:
    if two is None:
        return both_partitioners(one)
    return labels_of(one, two)


def _or_reason(make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return make()
    except SdyscopeError as error:
        return {"unavailable": str(error)}


# --- lowered --------------------------------------------------------------------------------------


def _lowered(found: LoweredDiff, pool: Pool) -> dict[str, Any]:
    return {
        "same": found.same,
        "sameTensors": found.same_tensors,
        "meshes": list(map(lone_mesh_text, found.meshes)),
        "tensors": [_tensor(one, pool) for one in found.tensors],
        "ops": [
            (one.scope, one.kind, one.count_a, one.count_b, one.types_a, one.types_b)
            for one in found.ops
        ],
        "notes": list(lowered_notes(found)),
    }


def _tensor(one: TensorDifference, pool: Pool) -> dict[str, Any]:
    return {
        "name": one.tensor,
        "kind": one.kind,
        "change": one.change,
        "what": one.what,
        "a": _tensor_side(one.a, pool),
        "b": _tensor_side(one.b, pool),
    }


def _tensor_side(side: TensorSide | None, pool: Pool) -> dict[str, Any] | None:
    if side is None:
        return None
    place = side.sharding.placement
    return {
        "shape": side.shape,
        "dtype": side.dtype,
        "source": pool.source(side.source),
        "sharding": short(side.sharding),
        "words": "" if place is None else placement_text(place, side.sharding.mesh),
    }


# --- propagated -----------------------------------------------------------------------------------


def _propagated(found: PropagatedDiff, pool: Pool) -> dict[str, Any]:
    return {
        "same": found.same,
        "sameValues": found.same_values,
        "differentValues": found.different_values,
        "only": (found.only_a, found.only_b),
        "notCompared": [
            sentence(not_compared_text(one, found.across)) for one in found.not_compared
        ],
        "exactness": (found.propagation_a.exactness, found.propagation_b.exactness),
        "beginnings": [_beginning(one, found, pool) for one in found.beginnings],
    }


def _beginning(one: Divergence, found: PropagatedDiff, pool: Pool) -> dict[str, Any]:
    held = one.bytes_a, one.bytes_b
    where = across_text(found.across, found.a), across_text(found.across, found.b)
    return {
        "begins": _value(one.begins, pool),
        "inputs": inputs_text((each.name, each.sharding) for each in one.inputs),
        "values": one.values,
        "bytes": one.bytes,
        "bytesA": one.bytes_a,
        "bytesB": one.bytes_b,
        "extent": extent_text(one.values, one.bytes, held, where),
        "follows": _values(one.follows, pool),
    }


def _value(one: DifferingValue, pool: Pool) -> dict[str, Any]:
    return {
        **{name: next(iter(column)) for name, column in _columns([one], pool).items()},
        "kind": one.value.kind,
        "wordsA": placed_text(one.a),
        "wordsB": placed_text(one.b),
    }


def _values(found: Iterable[DifferingValue], pool: Pool) -> dict[str, Any]:
    return table(_columns(list(found), pool))


def _columns(listed: list[DifferingValue], pool: Pool) -> dict[str, Iterable[Any]]:
    return {
        "name": (one.value.name for one in listed),
        "ssa": (one.value.ssa for one in listed),
        "shape": (one.value.shape for one in listed),
        "dtype": (one.value.dtype for one in listed),
        "source": (pool.source(one.value.source) for one in listed),
        "a": (short(one.a) for one in listed),
        "b": (short(one.b) for one in listed),
        "bytesA": (one.a.bytes_per_device or 0 for one in listed),
        "bytesB": (one.b.bytes_per_device or 0 for one in listed),
    }


# --- compiled ----------------------------------------------------------------------------------


def _compiled(found: CompiledDiff, pool: Pool) -> dict[str, Any]:
    meshes = found.a.mesh, found.b.mesh
    return {
        "same": found.same,
        "verb": device_verb(found.has_text),
        "a": _side(found.a),
        "b": _side(found.b),
        "kinds": [
            (one.kind, compared_over_text(one.axes, one.group_size, meshes), one.a, one.b)
            for one in found.by_kind_and_axes
        ],
        "memory": [(row.kind, row.name, row.a, row.b) for row in found.memory],
        "causes": [_cause(one, found, pool) for one in found.causes],
        "collectives": [_collective(one, found, pool) for one in found.collectives],
        "entries": None if found.entries is None else _entries(found.entries),
        "notes": list(map(sentence, compiled_remarks(found))),
    }


def _entries(entries: Entries) -> dict[str, Any]:
    return {
        "same": entries.same,
        "different": [
            (one.kind, one.name, entry_text(one.a), entry_text(one.b)) for one in entries.different
        ],
        "notCompared": [sentence(not_compared_entries_text(one)) for one in entries.not_compared],
    }


def _side(side: CompiledSide) -> dict[str, Any]:
    return {
        "label": side.label,
        "partitioner": side.partitioner,
        "hardware": None if side.hardware is None else str(side.hardware),
        "total": side.total,
        "rematerializations": side.rematerializations,
        "failure": side.failure,
        "notes": list(compiled_notes(side)),
    }


def _cause(one: Cause, found: CompiledDiff, pool: Pool) -> dict[str, Any]:
    where = across_text(found.across, found.b.label)
    sides = (found.a, one.annotations_a), (found.b, one.annotations_b)
    return {
        "begins": None if one.begins is None else _value(one.begins, pool),
        "constraint": None if one.constraint is None else _lone(one.constraint, found, pool),
        "layers": one.layers,
        "values": one.values,
        "sent": one.sent,
        "words": follows_text(one.values, one.differences, one.sent, where),
        "behind": [
            behind_text(across_text(found.across, side.label), annotations)
            for side, annotations in sides
            if annotations
        ],
    }


def _lone(constraint: TensorDifference, found: CompiledDiff, pool: Pool) -> dict[str, Any]:
    own, side = constraint.own
    return {
        "name": shown_name(constraint.tensor, constraint.kind),
        "source": pool.source(own.source),
        "only": (found.a if side == "a" else found.b).label,
        "sharding": f"{type_text(own.shape, own.dtype)} {open_text(own.sharding)}",
    }


def _collective(one: CollectiveDifference, found: CompiledDiff, pool: Pool) -> dict[str, Any]:
    key = one.key
    return {
        "change": one.change,
        "phase": key.phase,
        "scope": key.scope,
        "layers": len(one.scopes),
        "primitive": key.primitive,
        "kind": key.kind,
        "over": compared_over_text(key.axes, key.group_size, (found.a.mesh, found.b.mesh)),
        "sources": [pool.source(source) for source in one.sources],
        "a": _communicated(one.a),
        "b": _communicated(one.b),
        "sent": one.sent,
        "cause": one.cause,
    }


def _communicated(one: Communicated) -> dict[str, Any]:
    origins = dict.fromkeys(map(origin_text, one.origins))
    return {
        "tensors": one.tensors,
        "sent": one.sent,
        "shapes": list(one.shapes.items()),
        "origins": tuple(origins)[:3],
    }
