"""What `ci` and `fix` found, as SARIF 2.1.0, which GitHub's code scanning and many editors read.

Source: OASIS, "Static Analysis Results Interchange Format (SARIF) Version 2.1.0".
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from sdyscope.analysis.fix.values import Fix
from sdyscope.ci.document import Ci, CiFinding, CiRemedy, CiTarget
from sdyscope.ci.forms.renderer import Reader
from sdyscope.ci.remedies import remedy_of
from sdyscope.ci.rules import rule_words
from sdyscope.version import own_version
from sdyscope.words.ci import REMEDY
from sdyscope.words.hardware import compiled_text

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0-rtm.5.json"

_LEVELS = {"error": "error", "warning": "warning", "note": "note"}

_REMEDY: dict[str, Any] = {
    "id": "remedy",
    "name": "Remedy",
    "shortDescription": {"text": REMEDY},
}

#: The name under which a finding is found again; its number is raised when it is made otherwise.
_FINGERPRINT = "sdyscopeFinding/v1"


def render(document: Ci, reader: Reader) -> bytes:
    """The document, in UTF-8."""
    named = list(dict.fromkeys(entry.finding.rule for entry in document.every_finding))
    rules = [_rule(name) for name in named]
    remedies = [
        # A remedy is no failure: what failed is told by its finding.
        _remedy(target.name, target.remedy, len(rules)) | {"level": "note"}
        for target in document.targets
        if target.remedy is not None
    ]
    run = {
        "tool": {
            "driver": {
                "name": "sdyscope",
                "semanticVersion": document.version,
                "rules": [*rules, *([_REMEDY] if remedies else [])],
            }
        },
        "automationDetails": {"id": "sdyscope/ci/"},
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(document)],
        "results": [*(_result(entry, named) for entry in document.every_finding), *remedies],
    }
    compiled = {
        each.name: compiled_text(each.hardware, by=each.compiled_by) for each in document.targets
    }
    if any(compiled.values()):
        run["properties"] = {"compiled": {name: text for name, text in compiled.items() if text}}
    return _log(run)


def render_fix(fix: Fix, root: str) -> bytes:
    """Remedies, in UTF-8: each proven one is a warning with its edit, others are notes without.

    Args:
        fix: what was found.
        root: the folder that files are named from.
    """
    driver = {"name": "sdyscope", "semanticVersion": own_version(), "rules": [_REMEDY]}
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"sdyscope/fix/{fix.name}/"},
        "columnKind": "unicodeCodePoints",
        "results": [_remedy(fix.name, remedy_of(fix, each, root)) for each in fix.remedies],
    }
    return _log(run)


def _log(run: dict[str, Any]) -> bytes:
    sarif = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(sarif, indent=2, ensure_ascii=False).encode() + b"\n"


def _remedy(name: str, remedy: CiRemedy, index: int = 0) -> dict[str, Any]:
    """A remedy of a program or target, as a result whose rule is one of the driver's."""
    lines = [f"{name}: {remedy.edits}", remedy.gain, *remedy.proof]
    result: dict[str, Any] = {
        "ruleId": _REMEDY["id"],
        "ruleIndex": index,
        "level": "warning" if remedy.proven else "note",
        "message": {"text": "\n".join(lines)},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": _artifact(change.file),
                    "region": {"startLine": change.replacements[0].start},
                }
            }
            for change in remedy.changes
        ],
    }
    if remedy.proven:
        changes = [
            {
                "artifactLocation": _artifact(change.file),
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
                    for row in change.replacements
                ],
            }
            for change in remedy.changes
        ]
        result["fixes"] = [{"description": {"text": remedy.edits}, "artifactChanges": changes}]
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
            "message": {"text": f"{target.name}: {what} errored: {error.text}"},
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
