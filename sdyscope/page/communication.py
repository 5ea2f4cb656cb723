"""The communication of the report: what a device sends, by what, and the collectives themselves.

Collectives that look the same, those of repeated layers too, are one row; its members are listed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sdyscope.analysis.collectives.groups import collective_groups
from sdyscope.analysis.collectives.totals import Collective, Collectives, Part
from sdyscope.analysis.cost.cost import Cost, cost_document
from sdyscope.analysis.cost.remarks import basis, doubts, error_of_estimates, limits
from sdyscope.analysis.cost.schedule import schedule_of, with_steps
from sdyscope.analysis.naming.paths import without_indices
from sdyscope.analysis.profile.profile import ProfileDocument
from sdyscope.annotations import folded_names
from sdyscope.errors import SdyscopeError
from sdyscope.facts.calibration import Calibration
from sdyscope.facts.measured import CollectiveTime
from sdyscope.facts.origins import OriginAnnotation
from sdyscope.facts.program import Partitioner
from sdyscope.facts.schedule import Lane, Schedule
from sdyscope.inspection import Inspection
from sdyscope.page.columns import Pool
from sdyscope.page.document import Report
from sdyscope.terminal.chart import shares
from sdyscope.terminal.steps import tracks
from sdyscope.words.cost import limit_texts, pipeline_text
from sdyscope.words.counts import bound_text, sentence
from sdyscope.words.mesh import NO_MESH, axis_text, over_text
from sdyscope.words.origins import FOLLOWED, ROLES, causes_text, origin_text, spec_text
from sdyscope.words.partitioners import partitioner_name, sends_sentence, sent_clause
from sdyscope.words.paths import shortened
from sdyscope.words.places import annotation_kind, source_text
from sdyscope.words.profile import (
    CONCURRENT,
    NOT_PREDICTED,
    PREDICTED,
    UNKNOWN_TEXTS,
    WAITING,
    collective_text,
    deviation_text,
    difference_text,
    over_time_text,
    predicted_text,
    ratio_text,
    steps_text,
    total_text,
)
from sdyscope.words.rates import time_text
from sdyscope.words.remarks import remark_text, remark_texts
from sdyscope.words.schedule import (
    LEGEND,
    MODEL,
    WAY_TEXTS,
    flags_text,
    step_text,
    way_text,
)
from sdyscope.words.tone import Tone
from sdyscope.words.types import largest_text, shapes_text

#: What tells the layers of a model apart in a scope, and in a pytree path.
_NUMBER = re.compile(r"\d+")

#: How many members of a row are listed.
MEMBERS = 200

#: How many columns a timeline has.
COLUMNS = 500

#: How many exposed collectives are listed.
EXPOSED = 8


def part(report: Report, pool: Pool, inspection: Inspection) -> dict[str, Any]:
    """The bars and the collectives; `reports/js/communication/view.js` shows them.

    Args:
        report: the inspection as a document.
        pool: takes the source lines.
        inspection: the program, for the estimate.

    Raises:
        SdyscopeError: nothing was compiled.
    """
    if report.comms is None:
        raise SdyscopeError(f"No collectives are known. {report.why_not_compiled}".strip())
    tensors = _tensor_keys(report)
    programs = report.comms.programs
    notes = [note for program in programs for note in _notes(program)]
    loops = any(program.counted_once for program in programs)
    return {
        "title": sends_sentence(
            [(program.partitioner, program.total.sent) for program in programs],
            bound_text(loops=loops, at_most=any(program.at_most for program in programs)),
            loops=loops,
        ),
        "programs": [_program(program, report.partitioners) for program in programs],
        "bars": bars(programs),
        "rows": [
            row
            for number, program in enumerate(programs)
            for row in _rows(
                program, number, pool, tensors, _folds(programs), _times(report, program)
            )
        ],
        "notes": [
            (sent_clause(some_idle=any(each.some_idle for each in programs)), "plain"),
            *notes,
        ],
        "estimates": estimates(report, inspection),
        "measured": None if report.profile is None else _measured(report.profile, pool),
    }


def _program(collectives: Collectives, partitioners: Sequence[Partitioner]) -> dict[str, Any]:
    return {
        "partitioner": collectives.partitioner or (partitioners[0] if partitioners else ""),
        "count": collectives.total.count,
        "sent": collectives.total.sent,
    }


def _notes(collectives: Collectives) -> Iterator[tuple[str, Tone]]:
    """What is not certain, each with its tone."""
    name = partitioner_name(collectives.partitioner)
    for text in remark_texts(collectives.remarks):
        yield (f"{name}: {text}" if name else text), "warning"


# --- bars -----------------------------------------------------------------------------------------


def bars(programs: Sequence[Collectives]) -> dict[str, list[dict[str, Any]]]:
    """By kind, axes, scope, pass and annotation what is sent in each program, the most first.

    What comes from several annotations counts with each of them, and so does a collective with each
    scope and pass of its tensors.

    Args:
        programs: one a partitioner.
    """
    folds = _folds(programs)
    bars_by_name: dict[str, dict[str, list[list[int]]]] = defaultdict(dict)
    for number, program in enumerate(programs):
        for collective in program.collectives:
            counted_in: set[tuple[str, str]] = set()
            for part in collective.parts:
                for name, labels in labels_of(collective, part, program, folds).items():
                    for label in labels:
                        tallies = bars_by_name[name].setdefault(label, [[0, 0] for _ in programs])
                        if (name, label) not in counted_in:
                            counted_in.add((name, label))
                            tallies[number][0] += collective.count
                        tallies[number][1] += collective.count * part.sent
    return {
        name: [
            {"label": label, "tallies": tallies}
            for label, tallies in sorted(
                labels.items(), key=lambda item: -max(sent for _, sent in item[1])
            )
        ]
        for name, labels in bars_by_name.items()
    }


def labels_of(
    collective: Collective, part: Part, program: Collectives, folds: dict[str, str]
) -> dict[str, tuple[str, ...]]:
    """Under which bars one tensor of a collective counts."""
    axes = over(collective, program)
    return {
        "kind": (f"{collective.kind}\n{axes}",),
        "axis": (axes,),
        "scope": (folds.get(part.scope, part.scope) or "no scope",),
        "pass": (part.phase,),
        "cause": tuple(dict.fromkeys(map(annotation_label, part.annotations))) or ("not known",),
    }


def over(collective: Collective, program: Collectives) -> str:
    """The mesh axes in words; without a mesh the size of the groups."""
    return over_text(collective.axes, program.mesh, collective.group_size) or NO_MESH


def annotation_label(annotation: OriginAnnotation) -> str:
    """`params['layers'][*]['up'] P('fsdp', 'model')`: the layers together."""
    is_named = annotation.kind in ("argument", "result")
    kind = "" if is_named else f"{annotation_kind(annotation.kind, annotation.mapped)} "
    name = _NUMBER.sub("*", annotation.name) if kind else without_indices(annotation.name)
    return f"{kind}{name} {spec_text(annotation.spec)}".strip()


def _folds(programs: Sequence[Collectives]) -> dict[str, str]:
    """The scopes of all, those of repeated layers as one."""
    return folded_names(
        part.scope
        for program in programs
        for collective in program.collectives
        for part in collective.parts
    )


# --- rows -----------------------------------------------------------------------------------------


def _rows(
    program: Collectives,
    number: int,
    pool: Pool,
    tensors: dict[str, list[str]],
    folds: dict[str, str],
    times: Mapping[str, CollectiveTime],
) -> Iterator[dict[str, Any]]:
    for group in collective_groups(program):
        labels: dict[str, dict[str, None]] = defaultdict(dict)
        for member in group.members:
            for part in member.parts:
                for name, labels_of_part in labels_of(member, part, program, folds).items():
                    labels[name].update(dict.fromkeys(labels_of_part))
        first = group.first
        yield {
            "program": number,
            "key": first.name,
            "kind": first.kind,
            "over": over(first, program),
            "groupSize": first.group_size,
            "asynchronous": first.asynchronous,
            "unknownTrips": first.unknown_trips,
            "conditional": first.conditional,
            "atMost": first.at_most,
            "count": group.count,
            "sent": group.sent,
            "scope": group.scope,
            "source": pool.source(first.largest.source),
            "tensor": largest_text(first.largest.shapes, len(first.parts)),
            "labels": {name: list(label) for name, label in labels.items()},
            "why": causes_text(group.origins, callers=group.callers),
            "of": len(group.members),
            "members": [
                _member(member, pool, tensors, times.get(member.name))
                for member in group.members[:MEMBERS]
            ],
        }


def _times(report: Report, program: Collectives) -> Mapping[str, CollectiveTime]:
    """What a trace measured of the collectives of a program, by name."""
    if report.profile is None or report.profile.measured.partitioner != program.partitioner:
        return {}
    times = report.profile.measured.collectives
    return {timed.compiled: timed for timed in times if timed.compiled}


def _member(
    collective: Collective,
    pool: Pool,
    tensors: dict[str, list[str]],
    timed: CollectiveTime | None,
) -> dict[str, Any]:
    return {
        "measured": None if timed is None else collective_text(timed),
        "name": collective.name,
        "line": collective.line,
        "channel": collective.channel_id,
        "groups": collective.groups,
        "count": collective.count,
        "sent": collective.sent,
        "parts": [_part(part, pool, tensors) for part in collective.parts],
    }


def _part(part: Part, pool: Pool, tensors: dict[str, list[str]]) -> dict[str, Any]:
    origin = part.origin
    keys = tensors.get(part.path, [])
    return {
        "type": shapes_text(part.shapes),
        "bytes": part.bytes,
        "name": part.path,
        "query": f"{part.scope} {part.primitive}".strip(),
        "tensor": keys[0] if len(keys) == 1 else "",
        "values": len(keys),
        "source": pool.source(part.source),
        "words": "" if origin is None else origin_text(origin),
        "annotations": []
        if origin is None
        else [
            {
                "kind": annotation.kind,
                "on": annotation_kind(annotation.kind, annotation.mapped),
                "name": annotation.name,
                "spec": spec_text(annotation.spec),
                "axes": [axis_text(axis) for axis in annotation.axes],
                "role": ROLES[annotation.role],
                "followed": "" if annotation.recorded else FOLLOWED,
                "source": pool.source(annotation.source),
            }
            for annotation in origin.annotations
        ],
    }


def _tensor_keys(report: Report) -> dict[str, list[str]]:
    """The keys of the values with a name, as the view of tensors has them."""
    keys: dict[str, list[str]] = defaultdict(list)
    for value in report.propagate.values if report.propagate is not None else ():
        name = "/".join(filter(None, (value.name, value.primitive)))
        keys[name].append(value.ssa or value.name)
    return keys


# --- estimates ------------------------------------------------------------------------------------


def estimates(report: Report, inspection: Inspection) -> dict[str, Any]:
    """Seconds by resource, mesh axis and kind, or why there are none.

    Args:
        report: the inspection as a document; says what was compiled for.
        inspection: the program.
    """
    try:
        calibration = None if report.profile is None else report.profile.calibration
        document = with_steps(cost_document(inspection, report.hardware, calibration=calibration))
    except SdyscopeError as error:
        return {"unavailable": shortened(str(error))}
    explained = (
        {}
        if report.comms is None
        else {program.partitioner: program for program in report.comms.programs}
    )
    schedules = [_schedule(cost, explained.get(cost.partitioner)) for cost in document.programs]
    longest = max((schedule.seconds for schedule in schedules if schedule is not None), default=0.0)
    return {
        "words": remark_text(document.estimate),
        "programs": [
            {
                **_cost(cost, calibration),
                "step": None if schedule is None else _step(schedule, longest, calibration),
            }
            for cost, schedule in zip(document.programs, schedules, strict=True)
        ],
    }


def _cost(cost: Cost, calibration: Calibration | None) -> dict[str, Any]:
    return {
        "partitioner": cost.partitioner,
        "words": limit_texts(limits(cost, calibration)),
        "roofs": [
            {
                "name": roof.axis or roof.resource,
                "axis": bool(roof.axis),
                "seconds": roof.seconds,
                "time": time_text(roof.seconds),
            }
            for roof in cost.roofs
        ],
        "notes": []
        if cost.limit is None
        else remark_texts((*doubts(cost), *basis(cost, calibration))),
    }


def _schedule(cost: Cost, collectives: Collectives | None) -> Schedule | None:
    try:
        return schedule_of(cost, collectives)
    except SdyscopeError:
        return None


def _step(schedule: Schedule, longest: float, calibration: Calibration | None) -> dict[str, Any]:
    """A step over time: each lane in columns, and what is exposed most."""
    exposed = [collective for collective in schedule.collectives if collective.exposed]
    return {
        "title": sentence(step_text(schedule)),
        "length": time_text(longest),
        "lanes": [{"name": name, **lane} for name, lane in _lanes(schedule.lanes, longest).items()],
        "columns": COLUMNS,
        "exposed": [
            {
                "kind": collective.kind,
                "over": over_text(collective.axes, schedule.mesh),
                "count": collective.count,
                "time": time_text(collective.seconds),
                "exposed": time_text(collective.exposed),
                "share": collective.exposed / schedule.exposed,
                "way": way_text(collective),
                "words": "" if collective.way is None else sentence(WAY_TEXTS[collective.way]),
                "scope": collective.scope,
                "line": source_text(collective.source),
                "why": "" if collective.origin is None else origin_text(collective.origin),
            }
            for collective in exposed[:EXPOSED]
        ],
        "more": max(len(exposed) - EXPOSED, 0),
        "pipelines": [sentence(pipeline_text(pipeline)) for pipeline in schedule.pipelines],
        "notes": [
            *(sentence(words) for words in (MODEL, LEGEND, flags_text(schedule)) if words),
            remark_text(error_of_estimates(schedule.device_kind, calibration)),
        ],
    }


def _lanes(lanes: Sequence[Lane], longest: float) -> dict[str, dict[str, Any]]:
    """What is drawn of each lane, and for how long it is busy."""
    return {
        track.name: {
            "time": time_text(lane.busy),
            "columns": _runs(shares(track.spans, COLUMNS)),
        }
        for lane, track in zip(lanes, tracks(lanes, longest), strict=True)
    }


def _measured(profile: ProfileDocument, pool: Pool) -> dict[str, Any]:
    """One step over time as it was measured and is predicted, and what each op took."""
    measured = profile.measured
    step, schedule = measured.over_time, measured.schedule
    lengths = [each.seconds for each in (step, schedule) if each is not None]
    longest = max(lengths, default=0.0)
    drawn = {} if step is None else _lanes(step.lanes, longest)
    predicted = {} if schedule is None else _lanes(schedule.lanes, longest)
    predicts = any(each.predicted is not None for each in measured.deviations)
    error = error_of_estimates(measured.predicted_for, profile.calibration)
    notes = [
        CONCURRENT,
        *([] if measured.waiting is None else [WAITING]),
        *([] if step is None else [over_time_text(measured, step)]),
        PREDICTED if predicts else NOT_PREDICTED,
    ]
    return {
        "title": steps_text(measured),
        "words": [
            sentence(words) for words in (total_text(measured), predicted_text(measured)) if words
        ],
        "length": time_text(longest),
        "columns": COLUMNS,
        "predicts": predicts,
        "lanes": [
            {"name": name, "measured": drawn.get(name), "predicted": predicted.get(name)}
            for name in dict.fromkeys([*drawn, *predicted])
        ],
        "rows": [
            {
                "what": deviation_text(each, measured.mesh),
                "scope": each.scope,
                "source": pool.source(each.source),
                "seconds": (each.seconds, time_text(each.seconds)),
                "waiting": (each.waiting, time_text(each.waiting)),
                "predicted": (each.predicted, time_text(each.predicted)),
                "ratio": (each.ratio, ratio_text(each.ratio)),
                "difference": (each.difference, difference_text(each.difference)),
            }
            for each in measured.deviations
        ],
        "notes": [(sentence(words), "plain") for words in notes]
        + ([(remark_text(error), "plain")] if predicts else [])
        + [(sentence(UNKNOWN_TEXTS[unknown]), "warning") for unknown in measured.unknown],
    }


def _runs(columns: Sequence[tuple[float, float]]) -> list[list[float]]:
    """Runs of columns that look the same: first, past the last, dark part, light part."""
    runs: list[list[float]] = []
    for at, (dark, light) in enumerate(columns):
        look = [round(dark, 1), round(light, 1)]
        if look == [0, 0]:
            continue
        if runs and runs[-1][1] == at and runs[-1][2:] == look:
            runs[-1][1] = at + 1
        else:
            runs.append([at, at + 1, *look])
    return runs
