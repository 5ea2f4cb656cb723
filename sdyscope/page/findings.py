"""The findings of the report."""

from __future__ import annotations

from typing import Any

from sdyscope.page.columns import Pool
from sdyscope.page.document import Report


def part(report: Report, pool: Pool) -> dict[str, Any]:
    """The findings; `reports/js/findings/view.js` shows them.

    Args:
        report: the inspection.
        pool: takes the source lines.
    """
    return {
        "findings": [
            {
                "rule": finding.rule,
                "severity": finding.severity,
                "message": finding.message,
                "tensor": finding.tensor,
                "kind": finding.kind,
                "source": pool.source(finding.source),
                "partitioner": finding.partitioner,
                "expected": finding.expected,
                "found": finding.found,
                "hint": finding.hint,
            }
            for finding in report.findings
        ],
        "rules": len(report.lint.rules),
        "notRun": [
            {"rule": rule.rule, "reason": rule.reason}
            for rule in report.lint.not_run
            if rule.applies
        ],
    }
