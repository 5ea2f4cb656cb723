"""What `ci` found, as annotations of GitHub Actions.

Source: GitHub's "Workflow commands for GitHub Actions", and `packages/core/src/command.ts` of its
toolkit for what is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator

from sdyscope.ci.document import Ci, CiFinding
from sdyscope.ci.forms.renderer import Reader

_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}

#: GitHub cuts longer titles.
_LONGEST_TITLE = 255


def render(document: Ci, reader: Reader) -> bytes:
    """A line a finding that is not ignored and no note, errors first, after what was not done.

    GitHub shows the first ten errors and the first ten warnings of a step.
    """
    lines = "".join(f"{line}\n" for line in _lines(document))
    return lines.encode(reader.encoding, "backslashreplace")


def _lines(document: Ci) -> Iterator[str]:
    for target in document.targets:
        for what, error in target.errors:
            title = f"{target.name}: {what} errored"
            yield _command("error", error.text, file=error.file, line=str(error.line), title=title)
    shown = [entry for entry in document.every_finding if entry.is_shown()]
    for entry in sorted(shown, key=lambda entry: list(_COMMANDS).index(entry.finding.severity)):
        yield _annotation(entry)


def _annotation(finding: CiFinding) -> str:
    about = f"{finding.finding.rule} {finding.subject}".strip()
    return _command(
        _COMMANDS[finding.finding.severity],
        finding.text,
        file=finding.file,
        line="" if finding.line is None else str(finding.line),
        col="" if finding.column is None else str(finding.column),
        title=": ".join(word for word in (finding.target, about) if word),
    )


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
