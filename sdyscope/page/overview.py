"""The first view of the report: the cards, and the parts of each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sdyscope.lint import rules_left_out
from sdyscope.page.columns import Pool
from sdyscope.page.document import Report
from sdyscope.page.edits import edits
from sdyscope.page.memory import needs
from sdyscope.words.account import account_lines, unavailable_text
from sdyscope.words.counts import sentence
from sdyscope.words.edits import not_tried_text
from sdyscope.words.findings import rules_text
from sdyscope.words.memory import apart_text
from sdyscope.words.partitioners import ops_title, partitioner_name, propagation_title
from sdyscope.words.propagation import extent_text
from sdyscope.words.remarks import remark_texts


def part(report: Report, pool: Pool) -> dict[str, Any]:
    """The numbers of the cards; `reports/js/overview/view.js` shows them.

    Args:
        report: the inspection.
        pool: not needed.
    """
    shown = report.show
    propagations = () if report.propagate is None else report.propagate.propagations
    return {
        "arguments": None if shown is None else shown.arguments,
        "apart": "" if shown is None else apart_text(shown.arguments),
        "groups": list(_groups(report)),
        "memory": needs(report.memory),
        "comms": [
            {
                "partitioner": program.partitioner,
                "count": program.total.count,
                "sent": program.total.sent,
                "kinds": [(kind, each.count, each.sent) for kind, each in program.by_kind.items()],
            }
            for program in (report.comms.programs if report.comms is not None else ())
        ],
        "findings": {
            severity: sum(finding.severity == severity for finding in report.findings)
            for severity in ("error", "warning", "note")
        },
        "rules": rules_text(
            len(report.lint.rules),
            rules_left_out(report.lint.not_run, is_text=not report.lint.partitioners),
        ),
        "program": [
            *(
                (ops_title(partitioner), f"{ops:,}")
                for partitioner, ops in ({} if shown is None else shown.ops).items()
            ),
            *(
                (propagation_title(each.partitioner), extent_text(each.exactness, each.step_count))
                for each in propagations
            ),
        ],
        "edits": None if report.fix is None else edits(report.fix),
        # A module has no source that could be edited.
        "notTried": not_tried_text() if report.fix is None and not report.file else "",
        "notes": [
            *(() if shown is None else remark_texts(shown.notes)),
            *(
                f"{partitioner_name(each.partitioner)}: {note}"
                for each in propagations
                for note in remark_texts(each.remarks)
            ),
        ],
        "missing": [
            {
                "words": sentence(
                    unavailable_text(missing.stage, missing.partitioner, missing.reason)
                ),
                "tone": "bad" if missing.asked else "muted",
            }
            for missing in report.not_in_account
        ],
        "account": list(account_lines(report.account)),
    }


def _groups(report: Report) -> Iterator[dict[str, Any]]:
    """What each top-level argument comes to: tensors, bytes whole and a device."""
    if report.memory is None:
        return
    for group in report.memory.compiled[0].groups:
        if group.kind == "argument":
            yield {
                "name": group.name,
                "tensors": group.tensors,
                "bytes": group.bytes,
                "device": group.bytes_per_device,
                "replicated": group.replicated,
            }
