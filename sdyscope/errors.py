"""The errors that sdyscope raises on purpose.

Each one is a clear sentence and says what to do. The command line prints ``str(error)`` on standard
error and ends with status 2, without a traceback; anything else that is raised is a bug.
"""

from __future__ import annotations

import shlex
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

#: How many characters of a long line stand in a caret snippet.
SNIPPET_WIDTH = 76


class SdyscopeError(Exception):
    """Something that the user can put right, told in one sentence.

    ``str(error)`` is ``file:line:column: message``, with as much of the position as is known, then
    the lines of ``snippet`` (the text with a caret under it), then ``hint``.

    Args:
        message: what is wrong, one sentence.
        file: the file that it is in, if any.
        line: line number, counted from 1.
        column: column number, counted from 1, in characters.
        hint: what to do about it.
        snippet: lines that show the place, as from ``caret_snippet``.
    """

    def __init__(
        self,
        message: str,
        *,
        file: str | Path | None = None,
        line: int | None = None,
        column: int | None = None,
        hint: str | None = None,
        snippet: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.file = None if file is None else str(file)
        self.line = line
        self.column = column
        self.hint = hint
        self.snippet = snippet

    #: Where a user's own exception is the cause: what follows the first line of its message.
    rest: str | None = None

    @property
    def whole(self) -> str:
        """``str(error)``, and below its first line the rest of the user's own message."""
        first, _, others = str(self).partition("\n")
        rest = textwrap.indent(self.rest or "", "  ")
        return "\n".join(part for part in (first, rest, others) if part)

    @property
    def position(self) -> str:
        """``file:line:column``, the part of it that is known; empty when nothing is."""
        if self.line is None:
            return self.file or ""
        known = [str(self.line)] if self.column is None else [str(self.line), str(self.column)]
        return ":".join([self.file, *known] if self.file else known)

    def __str__(self) -> str:
        if self.file is None and self.line is not None:
            column = "" if self.column is None else f", column {self.column}"
            first = f"line {self.line}{column}: {self.message}"
        else:
            first = f"{self.position}: {self.message}" if self.position else self.message
        return "\n".join(part for part in (first, self.snippet, self.hint) if part)


class SyntaxTextError(SdyscopeError):
    """A text does not follow its grammar.

    Args:
        message: what is wrong, one sentence.
        text: the whole text that was read.
        line: line of the first character that does not fit, counted from 1.
        column: its column, counted from 1.
        expected: what could have stood there, in words or as literal text, best first.
        file: the file that the text came from, if any.
        hint: what to do about it.
    """

    def __init__(
        self,
        message: str,
        *,
        text: str,
        line: int,
        column: int,
        expected: Sequence[str] = (),
        file: str | Path | None = None,
        hint: str | None = None,
    ) -> None:
        self.text = text
        self.expected = tuple(expected)
        super().__init__(
            message,
            file=file,
            line=line,
            column=column,
            hint=hint,
            snippet=caret_snippet(text, line, column),
        )

    def __str__(self) -> str:
        if not self.expected:
            return super().__str__()
        return f"{super().__str__()}\nExpected {one_of(self.expected)}."


class ConversionError(SdyscopeError):
    """A value has no form in the other language (a sub-axis as a PartitionSpec, for instance)."""


class TargetError(SdyscopeError):
    """A word on the command line, or the file or object it names, cannot be used."""


READ_COMPILED: Final = (
    "`sdyscope comms`, `memory`, `cost`, `lint`, `source`, `snapshot`, `report` and `diff --at "
    "compiled` read it."
)
"""What there is for the text of a compiled program."""


class MissingStageError(TargetError):
    """A compiled program's text was asked for a stage before the compiled one."""


class CompilerError(SdyscopeError):
    """JAX or XLA refused the program, or aborted on it."""


class CrashError(CompilerError):
    """The compiler ended the process that it ran in.

    Args:
        how: the signal, or the exit status, in words.
        inside: what of the compiler did, such as `Shardy's pass sdy-close-shardings`; empty where
            that is not known.
        words: what C++ said last; empty where it said nothing.
    """

    def __init__(self, how: str, inside: str = "", words: str = "") -> None:
        at = f" in {inside}" if inside else ""
        said = f": {words.rstrip('.')}" if words else ""
        super().__init__(f"The compiler crashed on it ({how}){at}{said}.")
        self.how = how


class FallbackError(CompilerError):
    """XLA was to run one partitioner, and ran the other."""


class MissingPackageError(SdyscopeError, ImportError):
    """A package that sdyscope needs is not installed for this Python."""


def missing_package(error: ModuleNotFoundError) -> ImportError:
    """The error to raise in place of one about a module that is not there.

    Args:
        error: what an import in sdyscope raised.

    Returns:
        What is missing and how to install it; the error itself where it is about sdyscope's own.
    """
    package = (error.name or "").partition(".")[0]
    if package in ("", "sdyscope"):
        return error
    python = shlex.quote(sys.executable)
    clone = Path(__file__).parent.parent
    environment = (
        f"cd {shlex.quote(str(clone))} && {python} -m venv .venv && .venv/bin/pip install ."
    )
    return MissingPackageError(
        f"sdyscope needs {package}, which is not installed for {sys.executable}.",
        hint=f"Make an environment that has it, and use its Python: {environment}"
        if (clone / "pyproject.toml").is_file()
        else f"{python} -m pip check lists what the installation lacks.",
    )


#: Packages that go without saying in `kind_of`.
_UNSAID = frozenset({"builtins", "__main__", "jax", "jaxlib", "sdyscope"})


def indefinite(noun: str) -> str:
    """A noun behind its article: "an int", "a dict"."""
    return f"{'an' if noun[0] in 'aeiouAEIOU' else 'a'} {noun}"


def kind_of(value: object) -> str:
    """What a Python value is, for the sentence that refuses it: "None", "a Traced of flax"."""
    if value is None:
        return "None"
    kind = type(value)
    package = kind.__module__.partition(".")[0]
    # By the name alone Flax's `Traced` is JAX's.
    return indefinite(kind.__name__) + ("" if package in _UNSAID else f" of {package}")


def one_of(choices: Sequence[str]) -> str:
    """``a``, ``a or b``, ``a, b or c``."""
    *most, last = choices
    return f"{', '.join(most)} or {last}" if most else last


def read_text(
    file: str | Path,
    what: str,
    *,
    encoding: str = "utf-8",
    newline: str | None = None,
    hint: str | None = None,
) -> str:
    """The text of a file of the user's.

    Args:
        file: the file.
        what: what it is to them: `configuration`.
        encoding: UTF-8, or with the mark that some editors begin with.
        newline: as of `open`.
        hint: what to do where it can't be read.

    Raises:
        TargetError: it can't be read, or is no text.
    """
    try:
        with open(file, encoding=encoding, newline=newline) as opened:
            return opened.read()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise TargetError(f"The {what} can't be read: {why}.", file=file, hint=hint) from error


def did_you_mean(
    word: str,
    known: Iterable[str],
    otherwise: str = "",
    *,
    most: int = 1,
    cutoff: float = 0.6,
    quoted: bool = True,
) -> str:
    """``Did you mean 'layers'?``, of the names that are closest to a word.

    Args:
        word: the word, which is no name.
        known: the names.
        otherwise: what to say where none is close.
        most: how many to name.
        cutoff: how close they must be, as ``difflib.get_close_matches`` has it.
        quoted: whether names are in quotes.
    """
    import difflib

    close = difflib.get_close_matches(word, list(known), most, cutoff)
    names = [repr(name) for name in close] if quoted else close
    return f"Did you mean {one_of(names)}?" if names else otherwise


def caret_snippet(text: str, line: int, column: int, width: int = SNIPPET_WIDTH) -> str:
    """The given line of ``text`` with a caret under ``column``, both counted from 1.

    Of a line longer than ``width`` the part around the caret is shown, with ``...`` for the rest.
    Control characters are shown as ``?``, so that a binary file cannot disturb the terminal.
    """
    lines = text.split("\n")
    source = lines[line - 1] if 0 < line <= len(lines) else ""
    at = min(max(column - 1, 0), len(source))
    start = 0 if len(source) <= width else min(max(at - width // 2, 0), len(source) - width)
    end = min(start + width, len(source))
    before, after = "..." if start else "", "..." if end < len(source) else ""
    shown = "".join(c if c.isprintable() else " " if c == "\t" else "?" for c in source[start:end])
    return f"  {before}{shown}{after}\n  {' ' * (len(before) + at - start)}^"


def first_line(error: Exception) -> str:
    """What an error says, in a line; of an error in a callback, what the callback raised."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return "no message"
    first, traceback, _ = lines[0].partition(": Traceback (most recent call last)")
    # What a callback raised is in the last line.
    return f"{first}: {lines[-1]}" if traceback else first
