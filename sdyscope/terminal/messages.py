"""Sentences on standard error: as wide as tables are, and in one line where these are as well."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

from sdyscope.process import output
from sdyscope.words.visible import visible

#: Text is not folded into a narrower column than this.
_NARROWEST = 40

#: How far further in a sentence goes on, here and wherever one is folded.
HANG = 2

#: A command or a line of code that is copied: what stands alone, or behind a colon at the end.
_LAST_COMMAND = re.compile(
    r"(?:(?<=: )|^)(?:cd \S+ &&|(?:\S*/)?pip install|(?:\S*/)?python[\d.]* -|def \w+\("
    r"|sdyscope [a-z]+ (?:-|[A-Z]{2}|\S+ -)).*$"
)

#: A command, an option with its value, or something quoted, inside of a sentence.
_COMMAND = (
    r"`[^`\n]+`"
    r"|(?<!\w)'[^'\n]+'(?!\w)"
    r'|(?<!\w)"[^"\n]+"(?!\w)'
    r"|\b(?:sdyscope|git) [a-z][a-z-]*(?: (?:--?[a-z][\w-]*|[A-Z]{2,}\b))*"
    r"|\bpip install (?:'[^'\n]+'|\S+)"
    r"|(?<!\S)--[a-z][\w-]*(?: [A-Z]{2,}\b| FILE\b)?"
    r"|-- python \S+"
)

#: A spec, a slice or a call's arguments.
_SPEC = r"P\((?:[^()\n]|\([^()\n]*\))*\)|\[[^\[\]\n]*\]"


def tell(text: str, *, whole: str = "") -> None:
    """Writes sentences to standard error, as wide as a table there would be (`output.columns`).

    Args:
        text: one or more lines; those that are indented, such as a place in a file, stay as they
            are.
        whole: what is not broken at its spaces, such as a file's name.
    """
    messages = None if sys.stderr is None else output.messages()
    if messages is not None and messages.columns is not None:
        text = "\n".join(folded(text, messages.columns, whole=whole))
    output.say(text)


def folded(text: str, columns: int, *, whole: str = "") -> Iterator[str]:
    """The lines of a message; words, paths, commands and specs stay whole, however long they are.

    Args:
        text: the message.
        columns: how many characters a line may have.
        whole: what else stays in one piece.
    """
    columns = max(columns, _NARROWEST)
    lines = visible(text).split("\n")
    for number, line in enumerate(lines):
        if line.startswith("Traceback "):
            yield from lines[number:]
            return
        yield from [line] if line[:1].isspace() else _sentence(line, columns, visible(whole))


def _sentence(line: str, columns: int, whole: str) -> Iterator[str]:
    command = _LAST_COMMAND.search(line)
    head = line if command is None else line[: command.start()]
    at = ""
    for piece in _pieces(head, columns - HANG, whole):
        if at.strip() and len(at) + len(piece.rstrip()) > columns:
            yield at.rstrip()
            at = " " * HANG
        at += piece
    if command is not None:
        if at.strip() and len(at) + len(command[0]) > columns:
            yield at.rstrip()
            at = " " * HANG
        at += command[0]
    yield at.rstrip()


def _pieces(text: str, width: int, whole: str) -> Iterator[str]:
    """The pieces that a line can be broken between, each with the spaces behind it."""
    kept = f"{re.escape(whole)}|" if whole else ""
    for match in re.finditer(rf"(?:{kept}{_COMMAND}|{_SPEC}|\S)+\s*|\s+", text):
        piece = match[0]
        if len(piece.rstrip()) <= width or piece[0] == "`" or (whole and whole in piece):
            yield piece
        else:  # A long quotation is a sentence of its own.
            yield from re.findall(r"\S+\s*|\s+", piece)
