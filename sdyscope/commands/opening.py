"""Opens what a TARGET names: a program, the module in a file, the modules of a directory."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sdyscope.errors import SdyscopeError, TargetError

if TYPE_CHECKING:
    from sdyscope.inspection import Inspection
    from sdyscope.program import Partitioner
    from sdyscope.stages.lower import LoweredModule

_Function = TypeVar("_Function", bound=Callable[..., Any])

#: How many modules of a directory an error lists.
_LISTED = 8


@dataclass(frozen=True)
class Unread:
    """A file of a directory that can't be read.

    Attributes:
      path: the file.
      error: why not.
    """

    path: Path
    error: SdyscopeError


@dataclass(frozen=True)
class Opened:
    """What a TARGET holds.

    Attributes:
      word: the TARGET, as it was typed.
      programs: one program or module; of a directory all of its modules, in the order in which they
        were dumped.
      is_directory: whether it is a directory of dumps.
      unread: files of the directory that can't be read.
    """

    word: str
    programs: tuple[Inspection, ...]
    is_directory: bool = False
    unread: tuple[Unread, ...] = ()


def module(function: _Function) -> _Function:
    """`--module NAME`, which module of a directory of dumps; the parameter is `module`."""
    return click.option(
        "--module",
        metavar="NAME",
        help="Which module, where TARGET is a directory of dumps: its name, or its file's.",
    )(function)


def open_target(
    word: str,
    *,
    mesh: Mapping[str, int] | None = None,
    settings: Mapping[str, object] | None = None,
    partitioners: Sequence[Partitioner] = ("shardy", "gspmd"),
    module: str | None = None,
) -> Opened:
    """Opens a TARGET, of a directory all modules or the one that is named.

    Args:
      word: the TARGET.
      mesh: axis sizes that replace the target's own.
      settings: what `--set` changes.
      partitioners: which to lower under; of a file, which it may be written for.
      module: name of one module of a directory.

    Raises:
      SdyscopeError: there is no such thing, or it can't be read, or a directory holds nothing that
        can be.
    """
    from sdyscope.inspection import Inspection
    from sdyscope.targets import resolve

    found = resolve(word, mesh=mesh, settings=settings)
    if isinstance(found, Path) and found.is_dir():
        return _directory(word, found, partitioners, module)
    if module is not None:
        raise TargetError(
            f"--module picks one of a directory's modules, and {word} is not a directory.",
            hint="Leave --module out.",
        )
    if isinstance(found, Path):
        return Opened(word, (_read(found, partitioners),))
    inspection = Inspection(found, partitioners)
    if inspection.program is None:
        _check_partitioner(inspection.lowered[inspection.partitioners[0]], word, partitioners)
    return Opened(word, (inspection,))


def open_one(
    word: str,
    *,
    mesh: Mapping[str, int] | None = None,
    settings: Mapping[str, object] | None = None,
    partitioners: Sequence[Partitioner] = ("shardy", "gspmd"),
    module: str | None = None,
) -> Inspection:
    """Opens a TARGET that is one program or module; see `open_target`.

    Raises:
      SdyscopeError: as `open_target`, or the directory has several modules and none is named.
    """
    return single(
        open_target(word, mesh=mesh, settings=settings, partitioners=partitioners, module=module)
    )


def single(opened: Opened) -> Inspection:
    """The only program or module of a TARGET.

    Raises:
      TargetError: there are several.
    """
    if len(opened.programs) > 1:
        raise TargetError(
            f"There are {len(opened.programs)} modules in this directory.",
            file=opened.word,
            hint=f"Name one with --module: {_listed(opened.programs)}.",
        )
    return opened.programs[0]


def label(inspection: Inspection) -> str:
    """What to call a program, or a module read from a file: by name and file."""
    path = getattr(inspection.source, "path", None)
    return inspection.name if path is None else f"{inspection.name} ({path})"


def _read(path: Path, partitioners: Sequence[Partitioner]) -> Inspection:
    from sdyscope.inspection import Inspection
    from sdyscope.stages.read import read

    lowered = read(path)
    _check_partitioner(lowered, str(path), partitioners)
    return Inspection(lowered)


def _check_partitioner(
    lowered: LoweredModule, word: str, partitioners: Sequence[Partitioner]
) -> None:
    """Checks that a module that was lowered already is for a partitioner that was asked for."""
    if lowered.found in ("shardy", "gspmd") and lowered.found not in partitioners:
        raise TargetError(
            f"The module is written for {lowered.found}, not for {partitioners[0]}.",
            file=word,
            hint="Leave --partitioner out, or name the program that it was made from.",
        )


def _directory(
    word: str, folder: Path, partitioners: Sequence[Partitioner], module: str | None
) -> Opened:
    from sdyscope.stages.dumps import dumped_files

    files = dumped_files(folder)
    # A file's name is known without reading it, or what else is there.
    named = [path for path in files if module in (path.name, path.stem)]
    programs: list[Inspection] = []
    unread: list[Unread] = []
    for path in named or files:
        try:
            programs.append(_read_dump(path, partitioners))
        except SdyscopeError as error:
            if named:
                raise
            unread.append(Unread(path, error))
    if not programs:
        raise unread[0].error
    if module is not None and not named:
        chosen = [program for program in programs if program.name == module]
        if not chosen:
            close = difflib.get_close_matches(module, [p.name for p in programs], n=1)
            raise TargetError(
                f"There is no module {module!r} in this directory.",
                file=word,
                hint=f"Did you mean {close[0]}?" if close else f"It has {_listed(programs)}.",
            )
        if len(chosen) > 1:
            files_of = ", ".join(getattr(p.source, "path", Path()).name for p in chosen[:_LISTED])
            raise TargetError(
                f"{len(chosen)} modules are called {module!r}.",
                file=word,
                hint=f"Name the file instead: {files_of}.",
            )
        programs = chosen
    return Opened(word, tuple(programs), True, tuple(unread))


def _read_dump(path: Path, partitioners: Sequence[Partitioner]) -> Inspection:
    from dataclasses import replace

    from sdyscope.inspection import Inspection
    from sdyscope.stages.lower import LoweredModule

    inspection = _read(path, partitioners)
    if path.name == "00.input_module.mlir" and isinstance(inspection.source, LoweredModule):
        # XLA's dumps: two programs can have one name, and their folders do not.
        return Inspection(replace(inspection.source, name=path.parent.name))
    return inspection


def _listed(programs: Sequence[Inspection]) -> str:
    names = [program.name for program in programs]
    if len(set(names)) < len(names):
        names = [getattr(program.source, "path", Path(program.name)).name for program in programs]
    more = len(names) - _LISTED
    names = names[:_LISTED]
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")
