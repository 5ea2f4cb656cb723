"""What a step is estimated to take, for the view of communication."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sdyscope.analysis.collectives.totals import Collectives
from sdyscope.analysis.cost.cost import Cost, cost_document
from sdyscope.analysis.cost.schedule import schedule_of
from sdyscope.errors import SdyscopeError
from sdyscope.facts.schedule import Schedule
from sdyscope.hardware.names import parse_hardware
from sdyscope.inspection import Inspection
from sdyscope.page.document import Report
from sdyscope.terminal.chart import shares
from sdyscope.views.cost import basis, limits, uncertain
from sdyscope.views.schedule import timeline
from sdyscope.words.counts import sentence
from sdyscope.words.mesh import over_text
from sdyscope.words.origins import origin_text
from sdyscope.words.places import source_text
from sdyscope.words.rates import time_text
from sdyscope.words.remarks import remark_text
from sdyscope.words.schedule import (
    LEGEND,
    MODEL,
    WAY_TEXTS,
    flags_text,
    pipeline_text,
    step_text,
    way_text,
)

#: How many columns a timeline has.
COLUMNS = 500

#: How many exposed collectives are listed.
EXPOSED = 24


def estimates(report: Report, inspection: Inspection) -> dict[str, Any]:
    """Seconds by resource, mesh axis and kind, or why there are none.

    Args:
      report: the inspection as a document; says what was compiled for.
      inspection: the program.
    """
    try:
        hardware = parse_hardware(report.hardware) if report.hardware else None
        found = cost_document(inspection, hardware)
    except SdyscopeError as error:
        return {"unavailable": str(error)}
    explained = (
        {} if report.comms is None else {one.partitioner: one for one in report.comms.programs}
    )
    schedules = [_schedule(one, explained.get(one.partitioner)) for one in found.programs]
    longest = max((one.seconds for one in schedules if one is not None), default=0.0)
    return {
        "words": remark_text(found.estimate),
        "programs": [
            {**_program(one), "step": None if schedule is None else _step(schedule, longest)}
            for one, schedule in zip(found.programs, schedules, strict=True)
        ],
    }


def _schedule(cost: Cost, collectives: Collectives | None) -> Schedule | None:
    try:
        return schedule_of(cost, collectives)
    except SdyscopeError:
        return None


def _step(schedule: Schedule, longest: float) -> dict[str, Any]:
    """A step over time: each lane in columns, and what is exposed most."""
    tracks, length = timeline(schedule, longest)
    exposed = [one for one in schedule.collectives if one.exposed]
    return {
        "title": sentence(step_text(schedule)),
        "length": length,
        "lanes": [
            {
                "name": lane.name,
                "time": time_text(lane.busy),
                "columns": _runs(shares(track.spans, COLUMNS)),
            }
            for lane, track in zip(schedule.lanes, tracks, strict=True)
        ],
        "columns": COLUMNS,
        "exposed": [
            {
                "kind": one.kind,
                "over": over_text(one.axes, schedule.mesh),
                "count": one.count,
                "time": time_text(one.seconds),
                "exposed": time_text(one.exposed),
                "share": one.exposed / schedule.exposed,
                "way": way_text(one),
                "words": "" if one.way is None else sentence(WAY_TEXTS[one.way]),
                "scope": one.scope,
                "line": source_text(one.source),
                "why": "" if one.origin is None else origin_text(one.origin),
            }
            for one in exposed[:EXPOSED]
        ],
        "more": max(len(exposed) - EXPOSED, 0),
        "pipelines": [
            sentence(words) for one in schedule.pipelines for words in pipeline_text(one)
        ],
        "notes": [sentence(words) for words in (MODEL, LEGEND, flags_text(schedule)) if words],
    }


def _runs(columns: Sequence[tuple[float, float]]) -> list[list[float]]:
    """Neighbouring columns that look the same: where they begin and end, and what of them is dark
    and light."""
    found: list[list[float]] = []
    for at, (dark, light) in enumerate(columns):
        look = [round(dark, 1), round(light, 1)]
        if look == [0, 0]:
            continue
        if found and found[-1][1] == at and found[-1][2:] == look:
            found[-1][1] = at + 1
        else:
            found.append([at, at + 1, *look])
    return found


def _program(cost: Cost) -> dict[str, Any]:
    return {
        "partitioner": cost.partitioner,
        "words": limits(cost),
        "roofs": [
            {
                "name": roof.axis or roof.resource,
                "axis": bool(roof.axis),
                "seconds": roof.seconds,
                "time": time_text(roof.seconds),
            }
            for roof in cost.roofs
        ],
        "notes": [] if cost.limit is None else [*uncertain(cost), *basis(cost)],
    }
