"""Where in the user's source code something was written."""

from __future__ import annotations

import ast
import importlib
import itertools
import os
import re
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Annotated, TypeAlias

#: The folder of this package.
PACKAGE = Path(__file__).parents[1]

_TOOL = os.path.join(PACKAGE, "")
_MODELS = os.path.join(_TOOL, "models", "")
#: Environment variable with more packages and files whose lines say nothing of a program.
SKIP_VARIABLE = "SDYSCOPE_SKIP"

#: How many lines behind an op's own are told.
_CALLERS = 2

#: What JAX calls the ops that only put a sharding on a value, and those that it adds itself where
#: such a value's gradients meet.
ONLY_SHARD = ("sharding_constraint", "reshard", "add_any")

#: What MLIR's parser calls the file of what has no location in a module's text.
IN_TEXT = "-"

#: Installed packages, and parts of such, that stand between a model and JAX: nobody's models.
_BETWEEN = frozenset(
    (
        "beartype",
        "chex",
        "einops",
        "equinox",
        "flax",
        "haliax",
        "jax",
        "jaxlib",
        "jaxtyping",
        "keras/src/backend",
        "keras/src/ops",
        "keras/src/utils",
        "optax",
        "penzai/core",
    )
)
_STANDARD_LIBRARY = re.compile(r"[/\\]lib(?:64)?[/\\]python3[.\d]*[/\\]", re.IGNORECASE)


FilePath: TypeAlias = Annotated[str, "path"]
"""A path. Documents name it as tables do: from the working directory, or by its last parts."""

PathWords: TypeAlias = Annotated[str, "words with paths"]
"""A TARGET, a reason, a word of a command line: documents write the paths in it the same way."""


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """One frame of a traceback: a place in a source file.

    Attributes:
        file: path of the file, as Python or MLIR gives it.
        line: line, counted from 1; 0 when not known.
        column: column, as Python and MLIR give it (JAX counts from 0); 0 when not known.
        function: name of the function that contains the line; empty when not known.
    """

    file: FilePath
    line: int
    column: int = 0
    function: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def line_of(source: SourceLocation | None) -> tuple[str, int] | None:
    """The file and the line, whichever column it is; None without a place."""
    return None if source is None else (source.file, source.line)


def named_line_of(source: SourceLocation | None) -> tuple[str, int] | None:
    """The same with the file's name alone: two checkouts of a program have other folders."""
    return None if source is None else (PurePath(source.file).name, source.line)


def innermost_line(error: BaseException, outside: Iterable[Path]) -> SourceLocation | None:
    """The last line that `error` came through in a file outside all of the given folders.

    That is where the author of a program can do something about it, so lines of installed packages
    and of Python's own only count where there is no other. Of a `SyntaxError`, the line that Python
    could not read.
    """
    folders = tuple(os.path.join(folder, "") for folder in outside)
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return SourceLocation(error.filename, error.lineno, error.offset or 0)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((*folders, "<"))
    ]
    own = [
        frame
        for frame in frames
        if not (is_installed(frame.filename) or _STANDARD_LIBRARY.search(frame.filename))
    ]
    for frame in reversed(own or frames):
        return SourceLocation(frame.filename, frame.lineno or 0, frame.colno or 0, frame.name)
    return None


def authors_line(error: BaseException) -> SourceLocation | None:
    """The last line that `error` came through outside of sdyscope, JAX and Python's imports.

    Nothing imports JAX for it: without it no line can be JAX's.
    """
    folders = [PACKAGE, Path(importlib.__file__).parent]
    jax = sys.modules.get("jax")
    if jax is not None and jax.__file__:
        folders.append(Path(jax.__file__).parent)
    return innermost_line(error, folders)


@dataclass(frozen=True)
class Sites:
    """Which lines of a program tell its ops apart.

    Attributes:
        wrappers: functions that only put a sharding on what they are given, as (file, name):
            whoever calls them says more.
        shared: the author's lines behind which most of the program stands in a library: a trainer's
            `train_step`, say. There the library's lines say more.
        helpers: functions that several lines of their own file call, as (file, name): which of
            these it was tells apart what stands in them.
        everywhere: lines that tell nothing apart: all of the program stands behind them, or they
            call whatever there is to call, as a library's own `__call__` does.
    """

    wrappers: frozenset[tuple[str, str]] = frozenset()
    shared: frozenset[tuple[str, int]] = frozenset()
    helpers: frozenset[tuple[str, str]] = frozenset()
    everywhere: frozenset[tuple[str, int]] = frozenset()


EVERY_LINE = Sites()


def own_line(stack: Sequence[SourceLocation], sites: Sites = EVERY_LINE) -> SourceLocation | None:
    """The line of a call stack, innermost first, at which its program's author can do something.

    A constraint that stands in Flax is the line of the model that calls Flax; one in a helper that
    does nothing else is the line of who calls the helper. Lines of installed packages only count
    where there is no other, or where the author's says nothing; None for no stack.
    """
    index = _own_index(stack, sites)
    return None if index is None else stack[index]


def callers(
    stack: Sequence[SourceLocation], sites: Sites = EVERY_LINE
) -> tuple[SourceLocation, ...]:
    """The lines behind the one at which an op stands that tell it apart, nearest first, two.

    Of each further file the innermost, and of a file that has been told already those at which
    helpers are called. They tell apart what several layers compute by one function.

    Args:
        stack: a call stack, innermost first.
        sites: which lines of the program tell its ops apart.
    """
    index = _own_index(stack, sites)
    if index is None:
        return ()
    own = _own(stack)
    lines: list[SourceLocation] = []
    inner = last = stack[index]
    # Behind a line of the author's a library's says nothing: it calls all of the program.
    behind = own if index in own else sorted({*own, *_of_libraries(stack)})
    for line in _once(stack[place] for place in (index, *behind) if place >= index):
        says_nothing = _is_shared(line, sites) or (line.file, line.line) in sites.everywhere
        if line == inner or says_nothing or _is_in(line, sites.wrappers):
            continue
        if line.file != last.file or (line.file == inner.file and _is_in(inner, sites.helpers)):
            lines.append(line)
            last = line
        inner = line
    return tuple(lines[:_CALLERS])


def lines_apart(
    lines: Sequence[SourceLocation], ways: Collection[Sequence[object]]
) -> tuple[SourceLocation, ...]:
    """Of the lines behind an op (see ``callers``) those that tell it apart on its own line.

    None where the line is reached in one way only, nor the last ones where all ways have them.

    Args:
        lines: the lines, nearest first.
        ways: all ways to the op's line, its own among them: the (file, line) of such lines.
    """
    if len(ways) < 2:
        return ()
    # One stays of each: without it, who reads would look for the line that calls.
    most = min(map(len, ways)) - 1
    ends = zip(*(reversed(way) for way in ways), strict=False)
    shared = itertools.takewhile(lambda end: len(set(end)) == 1, ends)
    return tuple(lines[: len(lines) - max(min(most, len(list(shared))), 0)])


def stack_around(
    stack: Sequence[SourceLocation], line: SourceLocation
) -> tuple[tuple[SourceLocation, ...], tuple[SourceLocation, ...]]:
    """What a line of a call stack calls, and what called it, each nearest to it first.

    Lines of this tool, and of what called it, are left out.

    Args:
        stack: a call stack, innermost first.
        line: one of its frames.
    """
    index = stack.index(line)
    outer: list[SourceLocation] = []
    for frame in stack[index + 1 :]:
        if frame.file.startswith(_TOOL) and not frame.file.startswith(_MODELS):
            break
        outer.append(frame)
    return tuple(reversed(stack[:index])), tuple(outer)


def _own_index(stack: Sequence[SourceLocation], sites: Sites) -> int | None:
    own = _own(stack)
    index = next((i for i in own if not _is_in(stack[i], sites.wrappers)), own[0] if own else None)
    if index is None or _is_shared(stack[index], sites):
        theirs = _of_libraries(stack[:index])
        first = next(iter(theirs), index)
        index = next((i for i in theirs if not _is_in(stack[i], sites.wrappers)), first)
    if index is None:
        return 0 if stack else None
    return index


def sites_of(stacks: Iterable[tuple[Sequence[SourceLocation], bool]]) -> Sites:
    """Which lines of a program tell its ops apart, from all its call stacks.

    Args:
        stacks: distinct call stacks, innermost first, and whether what stands there only puts a
            sharding on a value.
    """
    every = [(stack, _own(stack), only) for stack, only in stacks]
    known = [(stack, own, only) for stack, own, only in every if own]
    counts = Counter(
        (stack[own[0]].file, stack[own[0]].line)
        for stack, own, _ in known
        if _of_libraries(stack[: own[0]])
    )
    # Of the rest of the program a line that has more than half of it tells nothing apart.
    shared = {line for line, count in counts.items() if 2 * count > len(known)}
    # Where a library's lines say more, those of its own wrappers say as little.
    theirs = [
        (stack, libraries, only)
        for stack, own, only in every
        if (not own or (stack[own[0]].file, stack[own[0]].line) in shared)
        and (libraries := _of_libraries(stack[: own[0]] if own else stack))
    ]
    return Sites(
        _wrappers(known) | _wrappers(theirs),
        frozenset(shared),
        _helpers(stack for stack, _, _ in known),
        _behind_all([[stack[index] for index in own] for stack, own, _ in known])
        | _dispatchers(stack for stack, _, _ in every),
    )


def _behind_all(stacks: Sequence[Sequence[SourceLocation]]) -> frozenset[tuple[str, int]]:
    """The lines behind which all of a program stands.

    What stands in the body of a shard_map, or in a function that JAX had traced before, has a stack
    of its own: one that does not begin in the function in which most do says nothing of what is
    behind it.

    Args:
        stacks: the author's lines of each call stack, innermost first, at least one.
    """
    begins = [(stack[-1].file, stack[-1].function) for stack in stacks]
    first, count = Counter(begins).most_common(1)[0] if begins else (None, 0)
    places = [
        {(line.file, line.line) for line in stack}
        for stack, begin in zip(stacks, begins, strict=True)
        if begin == first or 2 * count <= len(stacks)
    ]
    return frozenset(set.intersection(*places) if places else ())


def _helpers(stacks: Iterable[Sequence[SourceLocation]]) -> frozenset[tuple[str, str]]:
    """Functions that are called at more than one line of the file that they are in."""
    lines: dict[tuple[str, str], set[int]] = {}
    for stack in stacks:
        for indices in (_own(stack), _of_libraries(stack)):
            for inner, outer in itertools.pairwise(_once(stack[index] for index in indices)):
                # What calls itself is not told apart by that; lambdas all have one name.
                named = inner.function not in ("", outer.function) and inner.function[-1] != ">"
                if named and inner.file == outer.file:
                    lines.setdefault((inner.file, inner.function), set()).add(outer.line)
    return frozenset(helper for helper, at in lines.items() if len(at) > 1)


def _dispatchers(stacks: Iterable[Sequence[SourceLocation]]) -> frozenset[tuple[str, int]]:
    """Lines that one call stack passes more than once, on the way to different functions.

    One may call another, so those that are left are looked at again without the ones before.
    """
    known = [
        [stack[index] for index in indices]
        for stack in stacks
        for indices in (_own(stack), _of_libraries(stack))
    ]
    # Only a stack that passes a line twice has any.
    known = [lines for lines in known if len(set(map(line_of, lines))) < len(lines)]
    dispatchers: set[tuple[str, int]] = set()
    while True:
        more: set[tuple[str, int]] = set()
        for lines in known:
            last = {(line.file, line.line): at for at, line in enumerate(lines)}
            called: dict[tuple[str, int], set[tuple[str, str]]] = {}
            for at, (inner, outer) in enumerate(itertools.pairwise(lines)):
                # Where JAX has joined two stacks, the inner one's outermost line calls nothing.
                if last[inner.file, inner.line] == at:
                    callees = called.setdefault((outer.file, outer.line), set())
                    callees.add((inner.file, inner.function))
            more.update(line for line, callees in called.items() if len(callees) > 1)
        if not more:
            return frozenset(dispatchers)
        dispatchers |= more
        known = [[line for line in lines if line_of(line) not in more] for lines in known]


def _once(lines: Iterable[SourceLocation]) -> Iterator[SourceLocation]:
    """Each line where it is first: JAX joins the stack of a body to those of what calls it."""
    seen: set[tuple[str, int]] = set()
    for line in lines:
        if (line.file, line.line) not in seen:
            seen.add((line.file, line.line))
            yield line


def _wrappers(
    known: Sequence[tuple[Sequence[SourceLocation], Sequence[int], bool]],
) -> frozenset[tuple[str, str]]:
    """Functions that only put a sharding on a value, and are reached in several ways.

    One may call another, so those that are left are looked at again without the ones found.
    """
    wrappers: set[tuple[str, str]] = set()
    while True:
        others: set[tuple[str, str]] = set()
        callers: dict[tuple[str, str], set[tuple[SourceLocation, ...]]] = {}
        for stack, own, only in known:
            left = [stack[i] for i in own if not _is_in(stack[i], wrappers)]
            if not left:
                continue
            function = (left[0].file, left[0].function)
            if not only:
                others.add(function)
            elif len(left) > 1 and left[0].function not in ("", "<module>"):
                callers.setdefault(function, set()).add(tuple(left[1:]))
        more = {
            caller for caller, ways in callers.items() if len(ways) > 1 and caller not in others
        }
        if not more:
            return frozenset(wrappers)
        wrappers |= more


def _is_in(line: SourceLocation, functions: Collection[tuple[str, str]]) -> bool:
    return bool(functions) and (line.file, line.function) in functions


def _is_shared(line: SourceLocation, sites: Sites) -> bool:
    return bool(sites.shared) and (line.file, line.line) in sites.shared


def _own(stack: Sequence[SourceLocation]) -> list[int]:
    """Which lines of a stack are the author's."""
    indices = []
    for index, line in enumerate(stack):
        model = line.file.startswith(_MODELS)
        if line.file.startswith(_TOOL) and not model:
            break  # What is further out called this tool, and did not write the program.
        # A reference model is its user's, installed or not.
        if (model or is_own(line.file)) and not _is_skipped(line.file):
            indices.append(index)
    return indices


def _of_libraries(stack: Sequence[SourceLocation]) -> list[int]:
    """Which lines of a stack are of installed packages that are models', not between it and JAX."""
    return [index for index, line in enumerate(stack) if _is_a_model(line.file)]


def _is_a_model(file: str) -> bool:
    """Whether a file is of an installed package that is a model's, not between it and JAX."""
    return bool(_package(file)) and not _is_between(file) and not _is_skipped(file)


def is_installed(file: str) -> bool:
    """Whether a file is an installed package's, by the names of Python's and Debian's folders."""
    return not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts)


def is_library(file: str) -> bool:
    """Whether a file is Python's, or a package's that stands between a model and JAX."""
    return not (file.startswith(_MODELS) or is_own(file)) and (
        _is_between(file) or not is_installed(file)
    )


def package_of(file: str) -> str:
    """The installed package that a file is of; empty for none."""
    return next(iter(_package(file)), "")


@lru_cache(1 << 12)
def _package(file: str) -> tuple[str, ...]:
    """The installed package that a file is of, and where in it the file is; nothing for none."""
    parts = Path(file).parts
    for folder in ("site-packages", "dist-packages"):
        if folder in parts[:-1]:
            package, *inside = parts[parts.index(folder) + 1 :]
            return package.removesuffix(".py"), *inside
    return ()


def _is_between(file: str) -> bool:
    """Whether a file is of a package that stands between a model and JAX."""
    package = _package(file)
    return not _BETWEEN.isdisjoint("/".join(package[:length]) for length in (1, 2, 3))


@lru_cache(1 << 12)
def _is_skipped(file: str) -> bool:
    """Whether the user asks for a file, or its package, to be passed over."""
    asked = {word.strip() for word in os.environ.get(SKIP_VARIABLE, "").split(",")} - {""}
    path = Path(file)
    return not asked.isdisjoint((*path.parts, path.stem))


@lru_cache(1 << 12)
def is_own(file: str) -> bool:
    """Whether a file is no package's, nor Python's, and no script that an installer made."""
    path = Path(file)
    return not (
        is_installed(file)
        or _STANDARD_LIBRARY.search(file)
        or (path.parent.name == "bin" and not path.suffix)
        or file.startswith("<frozen ")
        or file == "<string>"
    )


def python_tree(text: str | bytes) -> ast.Module | None:
    """The syntax tree of a file that somebody else wrote; None where Python can't read it."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
