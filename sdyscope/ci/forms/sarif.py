"""What `ci` and `fix` found, as SARIF 2.1.0, which GitHub's code scanning and many editors read.

Source: OASIS, "Static Analysis Results Interchange Format (SARIF) Version 2.1.0".
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any
from urllib.parse import quote

from sdyscope.analysis.fix.values import Fix, Remedy
from sdyscope.ci.document import Ci, CiFinding, CiTarget
from sdyscope.ci.forms.renderer import Reader
from sdyscope.ci.rules import rule_words
from sdyscope.patches.diff import relative, replacements
from sdyscope.views.fix import proof
from sdyscope.words.counts import counted, size
from sdyscope.words.edits import edits_text

__all__ = ["render", "render_fix"]

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0-rtm.5.json"

_LEVELS = {"error": "error", "warning": "warning", "note": "note"}

_REMEDY: dict[str, Any] = {
    "id": "remedy",
    "name": "Remedy",
    "shortDescription": {"text": "An edit of the source that makes a step send or hold less."},
}

#: The name under which a finding is found again; its number is raised when it is made otherwise.
_FINGERPRINT = "sdyscopeFinding/v1"


def render(document: Ci, reader: Reader) -> bytes:
    """The document, in UTF-8."""
    named = list(dict.fromkeys(entry.finding.rule for entry in document.every_finding))
    run = {
        "tool": {
            "driver": {
                "name": "sdyscope",
                "semanticVersion": document.version,
                "rules": [_rule(name) for name in named],
            }
        },
        "automationDetails": {"id": "sdyscope/ci/"},
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(document)],
        "results": [_result(entry, named) for entry in document.every_finding],
    }
    return _log(run)


def render_fix(fix: Fix, root: str) -> bytes:
    """Remedies, in UTF-8: each proven one is a warning with its edit, others are notes without.

    Args:
        fix: what was found.
        root: the folder that files are named from.
    """
    driver = {"name": "sdyscope", "semanticVersion": version("sdyscope"), "rules": [_REMEDY]}
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"sdyscope/fix/{fix.name}/"},
        "columnKind": "unicodeCodePoints",
        "results": [_remedy(fix, remedy, root) for remedy in fix.remedies],
    }
    return _log(run)


def _log(run: dict[str, Any]) -> bytes:
    sarif = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(sarif, indent=2, ensure_ascii=False).encode() + b"\n"


def _remedy(fix: Fix, remedy: Remedy, root: str) -> dict[str, Any]:
    edits = edits_text(remedy.edits)
    before, after = fix.before, remedy.after
    needs = (
        ""
        if before.total is None or after.total is None
        else f", and needs {size(after.total)} instead of {size(before.total)}"
    )
    lines = [
        f"{fix.name}: {edits}",
        f"{'Proven' if remedy.proven else 'Not proven'}: a device then sends {size(after.sent)} "
        f"instead of {size(before.sent)} per step in {counted(after.count, 'collective')}{needs}",
        *(paragraph.text for paragraph in proof(fix, remedy)),
    ]
    changed = {
        file: replacements(remedy.before_texts[file], text)
        for file, text in sorted(remedy.texts.items())
        if text != remedy.before_texts[file]
    }
    result: dict[str, Any] = {
        "ruleId": _REMEDY["id"],
        "ruleIndex": 0,
        "level": "warning" if remedy.proven else "note",
        "message": {"text": "\n".join(lines)},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": _artifact(relative(file, root)),
                    "region": {"startLine": rows[0].start},
                }
            }
            for file, rows in changed.items()
        ],
    }
    if remedy.proven:
        changes = [
            {
                "artifactLocation": _artifact(relative(file, root)),
                "replacements": [
                    {
                        "deletedRegion": {
                            "startLine": row.start,
                            "startColumn": 1,
                            "endLine": row.end,
                            "endColumn": row.end_column,
                        },
                        **({"insertedContent": {"text": row.text}} if row.text else {}),
                    }
                    for row in rows
                ],
            }
            for file, rows in changed.items()
        ]
        result["fixes"] = [{"description": {"text": edits}, "artifactChanges": changes}]
    return result


def _rule(name: str) -> dict[str, Any]:
    summary, explanation = rule_words(name)
    rule: dict[str, Any] = {
        "id": name,
        "name": "".join(word.capitalize() for word in name.split("-")),
        "shortDescription": {"text": summary},
    }
    if explanation:
        rule |= {"fullDescription": {"text": explanation}, "help": {"text": explanation}}
    return rule


def _result(row: CiFinding, rules: Sequence[str]) -> dict[str, Any]:
    finding = row.finding
    about = ": ".join(word for word in (row.target, row.subject) if word)
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "ruleIndex": rules.index(finding.rule),
        "level": _LEVELS[finding.severity],
        "message": {"text": f"{about}\n{row.text}"},
        "locations": [_location(row)],
        "partialFingerprints": {_FINGERPRINT: row.fingerprint},
    }
    if row.ignored:
        result["suppressions"] = [{"kind": "external", "justification": row.ignored}]
    return result


def _location(finding: CiFinding) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": _artifact(finding.file)}
    if finding.line is not None:
        column = {} if finding.column is None else {"startColumn": finding.column}
        physical["region"] = {"startLine": finding.line, **column}
    location: dict[str, Any] = {"physicalLocation": physical}
    if finding.finding.tensor:
        logical = {"fullyQualifiedName": f"{finding.target}: {finding.finding.tensor}"}
        location["logicalLocations"] = [logical]
    return location


def _artifact(file: str) -> dict[str, Any]:
    return {"uri": quote(file), "uriBaseId": "%SRCROOT%"}


def _invocation(document: Ci) -> dict[str, Any]:
    notifications = [
        notification for target in document.targets for notification in _notifications(target)
    ]
    invocation: dict[str, Any] = {"executionSuccessful": document.exit_status != 2}
    if notifications:
        invocation["toolExecutionNotifications"] = notifications
    return invocation


def _notifications(target: CiTarget) -> list[dict[str, Any]]:
    return [
        {
            "level": "error",
            "message": {"text": f"{target.name}: {what} could not be done: {error.text}"},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": _artifact(error.file),
                        "region": {"startLine": error.line},
                    }
                }
            ],
        }
        for what, error in target.errors
    ]
