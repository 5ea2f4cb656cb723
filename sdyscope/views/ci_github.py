"""What `ci` found, as annotations of GitHub Actions.

Source: GitHub's "Workflow commands for GitHub Actions", and `packages/core/src/command.ts` of its
toolkit for what is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator

from sdyscope.views.ci import Ci, CiFinding
from sdyscope.views.shardings import shown_name

__all__ = ["annotation_lines", "told"]

_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}

#: GitHub cuts longer titles.
_LONGEST_TITLE = 255


def annotation_lines(found: Ci) -> Iterator[str]:
    """A line a finding that is not ignored and no note, errors first, then what was not done.

    GitHub shows the first ten errors and the first ten warnings of a step.
    """
    for target in found.targets:
        done = [("target", target.error), *((one.check, one.error) for one in target.checks)]
        for what, error in done:
            if error is not None:
                title = f"{target.name}: {what} could not be done"
                place = {"file": error.file, "line": str(error.line)}
                yield _command("error", error.text, **place, title=title)
    shown = [
        one for one in found.every_finding if not one.ignored and one.finding.severity != "note"
    ]
    for one in sorted(shown, key=lambda one: list(_COMMANDS).index(one.finding.severity)):
        yield _annotation(one)


def _annotation(one: CiFinding) -> str:
    finding = one.finding
    name = f"{finding.kind} {shown_name(finding.tensor, '')}".strip()
    title = ": ".join(word for word in (one.target, f"{finding.rule} {name}".strip()) if word)
    return _command(
        _COMMANDS[finding.severity],
        told(one),
        file=one.file,
        line="" if one.line is None else str(one.line),
        col="" if one.column is None else str(one.column),
        title=title,
    )


def told(one: CiFinding) -> str:
    """All that a finding says, in lines."""
    finding = one.finding
    under = f" ({finding.partitioner})" if finding.partitioner else ""
    lines = [
        finding.message + under,
        f"Expected: {finding.expected}" if finding.expected else "",
        f"Found: {finding.found}" if finding.found else "",
        finding.hint,
    ]
    return "\n".join(filter(None, lines))


def _command(name: str, message: str, **properties: str) -> str:
    """`::error file=step.py,line=3,title=...::message`."""
    given = {key: value for key, value in properties.items() if value}
    if "title" in given:
        given["title"] = given["title"][:_LONGEST_TITLE]
    words = ",".join(f"{key}={_property(value)}" for key, value in given.items())
    return f"::{name} {words}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
