"""Differences for the report: two partitioners, programs or kinds of hardware, at each stage.

What can't be compared at a stage says why; the other stages are there without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from sdyscope.analysis.diff import sides as comparisons
from sdyscope.analysis.diff.entries import Entries
from sdyscope.analysis.diff.value_differences import Beginning, DifferingValue, PropagatedDiff
from sdyscope.analysis.propagation.decided import Decisions
from sdyscope.errors import SdyscopeError
from sdyscope.hardware.names import Hardware, parse_hardware
from sdyscope.inspection import Inspection
from sdyscope.page.columns import Pool, table
from sdyscope.page.document import Report
from sdyscope.values.mesh import only_mesh
from sdyscope.views import compiled_diff, diff, propagated_diff
from sdyscope.views.compiled_diff import CompiledDiff, entry_text, not_compared_texts
from sdyscope.views.compiled_diff_parts import (
    Cause,
    CollectiveDifference,
    CommunicatedTensors,
    CompiledSide,
)
from sdyscope.views.diff import Diff, ProgramDiff, TensorSide
from sdyscope.words.differences import (
    across_text,
    behind_text,
    extent_text,
    follows_text,
    inputs_text,
)


def part(report: Report, pool: Pool, inspection: Inspection) -> dict[str, Any]:
    """What the two partitioners differ in; `reports/js/differences/view.js` shows it.

    Args:
      report: the inspection as a document; says what was compiled for.
      pool: takes the source lines.
      inspection: the program.

    Raises:
      SdyscopeError: there is only one module.
    """
    comparisons.both_partitioners(inspection)
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
        "lowered": _or_reason(lambda: _lowered(_compare_lowered(one, two), pool)),
        "propagated": _or_reason(lambda: _propagated(_compare_propagated(one, two), pool)),
        "compiled": {"unavailable": on}
        if isinstance(on, str)
        else _or_reason(lambda: _compiled(compiled_diff.compared(one, two, on, other_on), pool)),
    }


def _on_two(pool: Pool, one: Inspection, on: Hardware | None, other_on: Hardware) -> dict[str, Any]:
    """One program on two kinds of hardware: only what is compiled can differ."""
    ends = comparisons.compiled_ends(one, None, None, on, other_on)
    under = {"shardy": "Shardy", "gspmd": "GSPMD"}[ends[0].partitioner or "shardy"]
    same = {"unavailable": f"It is the same program on both, lowered for {under}."}
    return {
        "name": one.name,
        "across": "hardware",
        "labels": [end.label for end in ends],
        "lowered": same,
        "propagated": {"unavailable": "Each compiler propagates by itself; see the collectives."},
        "compiled": _or_reason(
            lambda: _compiled(compiled_diff.compared(one, None, on, other_on), pool)
        ),
    }


def snapshots(found: Diff, labels: tuple[str, str]) -> dict[str, Any]:
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
        return comparisons.both_partitioners(one)
    return comparisons.labels_of(one, two)


def _or_reason(make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return make()
    except SdyscopeError as error:
        return {"unavailable": str(error)}


def _compare_lowered(one: Inspection, two: Inspection | None) -> ProgramDiff:
    found, sides = one.compared(two)
    meshes = [only_mesh(side.meshes.values()) for side in (one, two or one)]
    return diff.program(one.name, found, *sides, meshes)


def _compare_propagated(one: Inspection, two: Inspection | None) -> PropagatedDiff:
    sides = one.propagated_sides(two)
    describers = (
        Decisions.of(one, sides[0].propagated),
        Decisions.of(two or one, sides[1].propagated),
    )
    return propagated_diff.program(one.name, sides, describers, by_name=two is not None)


# --- lowered --------------------------------------------------------------------------------------


def _lowered(found: ProgramDiff, pool: Pool) -> dict[str, Any]:
    return {
        "same": found.same,
        "sameTensors": found.same_tensors,
        "meshes": found.meshes,
        "tensors": [
            {
                "name": one.tensor,
                "kind": one.kind,
                "change": one.change,
                "what": one.what,
                "a": _tensor_side(one.a, pool),
                "b": _tensor_side(one.b, pool),
            }
            for one in found.tensors
        ],
        "ops": [
            (one.scope, one.kind, one.count_a, one.count_b, one.types_a, one.types_b)
            for one in found.ops
        ],
        "notes": found.notes,
    }


def _tensor_side(side: TensorSide | None, pool: Pool) -> dict[str, Any] | None:
    if side is None:
        return None
    return {
        "shape": side.shape,
        "dtype": side.dtype,
        "source": pool.source(side.source),
        "sharding": side.sharding.short or side.sharding.text,
        "words": side.sharding.placement.words if side.sharding.placement else "",
    }


# --- propagated -----------------------------------------------------------------------------------


def _propagated(found: PropagatedDiff, pool: Pool) -> dict[str, Any]:
    return {
        "same": found.same,
        "sameValues": found.same_values,
        "differentValues": found.different_values,
        "only": (found.only_a, found.only_b),
        "notComparable": list(found.not_comparable.items()),
        "exactness": (found.propagation_a.exactness, found.propagation_b.exactness),
        "beginnings": [_beginning(one, found, pool) for one in found.beginnings],
    }


def _beginning(one: Beginning, found: PropagatedDiff, pool: Pool) -> dict[str, Any]:
    held = (one.bytes_a, one.bytes_b)
    return {
        "begins": _value(one.begins, pool),
        "inputs": inputs_text((each.name, each.a) for each in one.inputs),
        "values": one.values,
        "extent": extent_text(one.values, one.bytes, held, (found.under_a, found.under_b)),
        "follows": _values(one.follows, pool),
    }


def _value(one: DifferingValue, pool: Pool) -> dict[str, Any]:
    return {
        "name": one.name,
        "kind": one.kind,
        "ssa": one.ssa,
        "shape": one.shape,
        "dtype": one.dtype,
        "source": pool.source(one.source),
        "a": one.a,
        "b": one.b,
        "wordsA": one.words_a,
        "wordsB": one.words_b,
        "bytesA": one.bytes_a,
        "bytesB": one.bytes_b,
    }


def _values(found: Iterable[DifferingValue], pool: Pool) -> dict[str, Any]:
    listed = list(found)
    return table(
        {
            "name": (one.name for one in listed),
            "ssa": (one.ssa for one in listed),
            "shape": (one.shape for one in listed),
            "dtype": (one.dtype for one in listed),
            "source": (pool.source(one.source) for one in listed),
            "a": (one.a for one in listed),
            "b": (one.b for one in listed),
            "bytesA": (one.bytes_a for one in listed),
            "bytesB": (one.bytes_b for one in listed),
        }
    )


# --- compiled ----------------------------------------------------------------------------------


def _compiled(found: CompiledDiff, pool: Pool) -> dict[str, Any]:
    return {
        "same": found.same,
        "a": _side(found.a),
        "b": _side(found.b),
        "kinds": [(one.kind, one.over, one.a, one.b) for one in found.by_kind_and_axes],
        "memory": [(row.kind, row.name, row.a, row.b) for row in found.memory],
        "causes": [_cause(one, found, pool) for one in found.causes],
        "collectives": [_collective(one, pool) for one in found.collectives],
        "moved": found.moved,
        "entries": None if found.entries is None else _entries(found.entries),
        "notes": found.notes,
    }


def _entries(entries: Entries) -> dict[str, Any]:
    return {
        "same": entries.same,
        "different": [
            (one.kind, one.name, entry_text(one.a), entry_text(one.b)) for one in entries.different
        ],
        "notCompared": list(not_compared_texts(entries)),
    }


def _side(side: CompiledSide) -> dict[str, Any]:
    return {
        "label": side.label,
        "partitioner": side.partitioner,
        "hardware": side.hardware,
        "total": side.total,
        "rematerializations": side.rematerializations,
        "failure": side.failure,
        "notes": side.notes,
    }


def _cause(one: Cause, found: CompiledDiff, pool: Pool) -> dict[str, Any]:
    where = across_text(found.across, found.b.label)
    lone = one.constraint
    return {
        "begins": None if one.begins is None else _value(one.begins, pool),
        "constraint": None
        if lone is None
        else {
            "name": lone.name,
            "source": pool.source(lone.source),
            "only": lone.only,
            "sharding": lone.sharding,
        },
        "layers": one.layers,
        "values": one.values,
        "sent": one.sent,
        "words": follows_text(one.values, one.differences, one.sent, where),
        "behind": [
            behind_text(across_text(found.across, side.label), annotations)
            for side, annotations in (
                (found.a, one.annotations_a),
                (found.b, one.annotations_b),
            )
            if annotations
        ],
    }


def _collective(one: CollectiveDifference, pool: Pool) -> dict[str, Any]:
    return {
        "change": one.change,
        "phase": one.phase,
        "scope": one.scope,
        "layers": len(one.scopes),
        "primitive": one.primitive,
        "kind": one.kind,
        "over": one.over,
        "sources": [pool.source(source) for source in one.sources],
        "a": _communicated(one.a),
        "b": _communicated(one.b),
        "sent": one.sent,
        "cause": one.cause,
    }


def _communicated(one: CommunicatedTensors) -> dict[str, Any]:
    return {
        "tensors": one.tensors,
        "sent": one.sent,
        "shapes": list(one.shapes.items()),
        "origins": one.origins[:3],
    }
