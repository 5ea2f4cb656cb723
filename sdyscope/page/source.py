"""The author's lines with what each does: shardings, collectives, differences, findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sdyscope.analysis.source.lines import SourceFile, SourceLine
from sdyscope.facts.measured import LineTime
from sdyscope.facts.source import LineCollectives, LineValues
from sdyscope.lint.source import SourceDocument
from sdyscope.page.columns import Pool
from sdyscope.page.document import Report
from sdyscope.values.source import is_installed
from sdyscope.words.findings import Finding
from sdyscope.words.origins import causes_text
from sdyscope.words.partitioners import sent_clause
from sdyscope.words.paths import file_text
from sdyscope.words.places import source_text
from sdyscope.words.rates import time_text
from sdyscope.words.source import (
    AS_LOWERED,
    AS_NOW,
    BLOCK,
    NO_VALUES,
    line_time_text,
    measured_text,
    no_collectives_text,
    sent_without_line_text,
    told_once,
    unread_text,
    values_text,
    way_text,
    without_line_text,
)


def part(report: Report, pool: Pool) -> dict[str, Any]:
    """The lines; `reports/js/source/view.js` shows them.

    Args:
        report: the inspection.
        pool: takes the shardings.
    """
    document = report.source
    times = _times(report)
    return {
        "compiled": list(document.collective_meshes),
        "files": [_file(file, document, pool, times) for file in document.files],
        "measured": bool(times),
        "blocks": not document.is_text,
        "notes": [
            sent_clause(some_idle=any(each.some_idle for each in document.collectives)),
            *([] if document.is_text else [BLOCK]),
            *([] if report.profile is None else [measured_text(report.profile.measured)]),
            *([] if document.propagations else [NO_VALUES if document.is_text else AS_LOWERED]),
            *([] if document.file is None else [AS_NOW]),
            *([no_collectives_text(document.not_compiled)] if document.not_compiled else []),
            *([without_line_text(document.without_line)] if document.without_line else []),
            *(
                sent_without_line_text(by, sent)
                for by, sent in document.sent_without_line.items()
                if sent
            ),
        ],
    }


def _times(report: Report) -> dict[tuple[str, int], LineTime]:
    """What a trace measured of each line; nothing without one."""
    measured = () if report.profile is None else report.profile.measured.by_line
    return {
        (file_text(line.source.file), line.source.line): line
        for line in measured
        if line.source is not None
    }


def _file(
    file: SourceFile,
    document: SourceDocument,
    pool: Pool,
    times: Mapping[tuple[str, int], LineTime],
) -> dict[str, Any]:
    findings = document.findings_by_line
    return {
        "file": file_text(file.file),
        "library": file.library,
        "installed": is_installed(file.file),
        "unread": "" if file.unread is None else unread_text(file.unread),
        "cut": file.cut,
        "sent": file.sent,
        "lines": [
            {
                **_line(line, file.file, findings.get((file.file, line.line), ()), document, pool),
                **_time(times.get((file_text(file.file), line.line))),
            }
            for line in file.lines
        ],
    }


def _time(time: LineTime | None) -> dict[str, str]:
    if time is None:
        return {}
    return {"time": time_text(time.seconds), "timeWords": line_time_text(time)}


def _line(
    line: SourceLine,
    file: str,
    findings: Sequence[Finding],
    document: SourceDocument,
    pool: Pool,
) -> dict[str, Any]:
    return {
        "line": line.line,
        "text": line.text,
        "function": line.function,
        "sent": line.sent,
        "block": max(line.block.values(), default=0),
        "values": [_values(values, pool) for values in line.values],
        "collectives": _collectives(line.collectives, file_text(file), document),
        "findings": [
            {"severity": f.severity, "rule": f.rule, "message": f.message, "tensor": f.tensor}
            for f in findings
        ],
        "through": list(dict.fromkeys(map(way_text, line.through))),
        "callers": [[source_text(frame) for frame in way] for way in dict.fromkeys(line.callers)],
    }


def _values(values: LineValues, pool: Pool) -> dict[str, Any]:
    return {
        "words": values_text(values),
        "shardings": {by: pool.sharding(each) for by, each in values.shardings.items()},
        "same": values.same,
        "begins": values.begins,
    }


def _collectives(
    collectives: Sequence[LineCollectives], file: str, document: SourceDocument
) -> list[dict[str, Any]]:
    """Those of all partitioners once where they send the same, with the first one's causes."""
    alike = told_once(collectives, document.collective_meshes)
    return [
        {
            "kind": first.kind,
            "sent": first.sent,
            "words": words,
            "cause": causes_text(first.origins, file),
            "partitioners": [each.partitioner for each in of_all],
            "both": len(of_all) == len(document.collective_meshes),
        }
        for words, of_all in alike.items()
        for first in [of_all[0]]
    ]
