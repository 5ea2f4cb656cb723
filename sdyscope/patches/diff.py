"""Unified diffs: made of texts, and applied to texts."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sdyscope.errors import TargetError

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,\d+)? @@")
_NO_END = "\\ No newline at end of file\n"


@dataclass(frozen=True, slots=True)
class Replacement:
    """Whole lines of a text, and what stands there instead.

    Attributes:
        start: the first of the lines, from 1.
        end: the line behind the last of them; ``start`` where none goes.
        end_column: column in ``end`` up to which text goes, from 1; other than 1 only at the end of
            a text that ends without a line feed.
        text: what stands there instead; empty for nothing.
    """

    start: int
    end: int
    end_column: int
    text: str


def replacements(before: str, after: str) -> tuple[Replacement, ...]:
    """The replacements that make one text of another, from the top down."""
    old, new = _lines(before), _lines(after)
    replacements: list[Replacement] = []
    for tag, start, end, first, last in difflib.SequenceMatcher(
        None, old, new, autojunk=False
    ).get_opcodes():
        if tag == "equal":
            continue
        text = "".join(new[first:last])
        if end == len(old) and end > start and not old[-1].endswith("\n"):
            replacements.append(Replacement(start + 1, end, len(old[-1]) + 1, text))
        else:
            replacements.append(Replacement(start + 1, end + 1, 1, text))
    return tuple(replacements)


def unified_diff(before: Mapping[str, str], after: Mapping[str, str], root: str = "") -> str:
    """A unified diff that `git apply` and `patch -p1` take.

    Args:
        before: text of each file, by its path.
        after: likewise, of those that are other.
        root: the folder that paths are relative to; by default the working directory.
    """
    parts: list[str] = []
    for file, text in sorted(after.items()):
        if text == before[file]:
            continue
        name = relative(file, root)
        lines = difflib.unified_diff(_lines(before[file]), _lines(text), f"a/{name}", f"b/{name}")
        parts += [line if line.endswith("\n") else f"{line}\n{_NO_END}" for line in lines]
    return "".join(parts)


def relative(file: str, root: str = "") -> str:
    """A path as a diff names it, with slashes.

    `git apply` and `patch` take no path that leads out of their folder. A file that is not below
    `root` is named from its own repository on, or from its folder, and the diff is applied there.
    """
    path = Path(os.path.realpath(file))
    top = Path(os.path.realpath(root or os.getcwd()))
    if not path.is_relative_to(top):
        top = repository(path.parent)
    return path.relative_to(top).as_posix()


def repository(folder: Path) -> Path:
    """The root of the repository that a folder is in; the folder itself where it is in none."""
    return next((each for each in (folder, *folder.parents) if (each / ".git").exists()), folder)


def applied(diff: str, text: str, name: str) -> str:
    """A file's text with the part of a diff that is about it.

    Args:
        diff: a unified diff.
        text: the text before.
        name: the file, as the diff names it.

    Raises:
        TargetError: the diff is not of this text.
    """
    lines, result, at = _lines(text), [], 0
    of_file = False
    rows = diff.splitlines(keepends=True) if "\r" not in diff else re.findall(r"[^\n]*\n", diff)
    number = 0
    while number < len(rows):
        row = rows[number]
        number += 1
        if row.startswith("--- "):
            of_file = row[4:].rstrip("\n") == f"a/{name}"
            continue
        match = _HUNK.match(row) if of_file else None
        if match is None:
            continue
        count = 1 if match[2] is None else int(match[2])
        start = int(match[1]) - (1 if count else 0)
        result += lines[at:start]
        at = start
        left = count
        while number < len(rows) and rows[number][:1] in (" ", "+", "-", "\\"):
            row = rows[number]
            if not left and row.startswith(("--- ", " ")):
                break
            number += 1
            if row == _NO_END:
                continue
            body = row[1:]
            if number < len(rows) and rows[number] == _NO_END:
                body = body[:-1]
            if row[0] != "+":
                if at >= len(lines) or lines[at] != body:
                    raise TargetError(f"The diff is not of {name}: line {at + 1} differs.")
                at += 1
                left -= 1
            if row[0] != "-":
                result.append(body)
    return "".join([*result, *lines[at:]])


def _lines(text: str) -> list[str]:
    """Lines as `diff` counts them, which only a line feed ends."""
    lines = [f"{line}\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines
