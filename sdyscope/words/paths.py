"""How files are named: as short as is clear, without the folders that say whose machine this is."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from functools import lru_cache
from os import getcwd, sep
from pathlib import PurePath

from sdyscope.values.source import IN_TEXT

#: Where a package was installed says nothing about it.
_PACKAGES = rf"{re.escape(sep)}(?:site|dist)-packages{re.escape(sep)}"
_INSTALLED = re.compile(rf"^.*{_PACKAGES}")
_INSTALLED_IN_TEXT = re.compile(rf"{re.escape(sep)}\S*{_PACKAGES}")
#: The folder of a user, here or on the machine where a module was made.
_HOME = re.compile(r"/(?:(?:home|Users)/[^/]+|root)/|[A-Za-z]:\\Users\\[^\\]+\\")
#: An absolute path in a sentence: it has a folder, and nothing before it that it belongs to.
_PATH_IN_TEXT = re.compile(r"(?<![\w.…/)\]}>:-])/(?:[\w.@+-]+/)+[\w.@+-]*\w")

#: How many folders a path may lead up before it no longer says where a file is.
_UP = 2
#: How deep the folder is that a path with `..` may lead through: the names below `/` and `/home`
#: tell whose machine this is.
_DEEP = 2
#: How many of its last parts name a file that is elsewhere.
_LAST = 2

#: The folders that files are named relative to; empty for the working directory.
_folders: list[str] = []

#: Whether files elsewhere are named by their full paths.
_full = False


@contextlib.contextmanager
def paths_from(*folders: str) -> Iterator[None]:
    """Names files relative to these folders: the reader is in another one than this process.

    Args:
        folders: absolute paths; of those that a file is below, the first counts.
    """
    before = _folders[:]
    _folders[:] = folders
    try:
        yield
    finally:
        _folders[:] = before


@contextlib.contextmanager
def full_paths(wanted: bool = True) -> Iterator[None]:
    """Names files that are elsewhere by their full paths: what is made is for oneself.

    Args:
        wanted: False changes nothing.
    """
    global _full
    before = _full
    _full = wanted or before
    try:
        yield
    finally:
        _full = before


def _here() -> list[str]:
    return [folder.rstrip(sep) + sep for folder in _folders or [getcwd()]]


def file_text(file: str) -> str:
    """A path as short as it is clear, without the folders that say whose machine this is.

    Relative to the working directory, from at most two folders above; of an installed package,
    below `site-packages`; of any other file the last two parts behind `…/`.
    """
    if file == IN_TEXT:
        return "the module's text"
    return _file_text(file, tuple(_here()), _full)


@lru_cache(1 << 12)
def _file_text(file: str, here: tuple[str, ...], full: bool) -> str:
    for folder in here:
        if folder != sep and file.startswith(folder):
            file = file.removeprefix(folder)
            break
    file = _INSTALLED.sub("", file)
    if full or not os.path.isabs(file):
        return file
    above = relative_path(file, here[0], up=_UP)
    if above is not None:
        return above
    parts = PurePath(_HOME.sub("/", file, count=1)).parts[1:]
    return "/".join(("…", *parts[-_LAST:]))


def relative_path(path: str, folder: str, up: int | None = None) -> str | None:
    """A path from a folder on; None for one that would name what is near the root.

    Args:
        path: an absolute path.
        folder: likewise.
        up: how many folders it may lead up; by default any number.
    """
    relative = os.path.relpath(path, folder)
    parts = PurePath(relative).parts
    climbs = parts.count(os.pardir)
    depth = len(PurePath(os.path.normpath(folder)).parts) - 1 - climbs
    if up is not None and climbs > up:
        return None
    # From the root itself on, a path is a full one.
    if climbs < len(parts) and depth < (_DEEP if climbs else 1):
        return None
    return relative


def page_folder(page: PurePath, *, named: bool = False) -> str | None:
    """The path from a page's folder to this one, from which files are named.

    Args:
        page: the file of the page.
        named: whether the page may name the folders above both; otherwise None is returned.
    """
    here = getcwd()
    folder = relative_path(here, os.path.abspath(page.parent)) or (here if named else None)
    return None if folder is None else folder.replace(sep, "/")


def shortened(words: str) -> str:
    """Words in which each path is as short as ``file_text`` makes it."""
    words = _INSTALLED_IN_TEXT.sub("", words)
    for folder in _here():
        if folder != sep:
            words = words.replace(folder, "")
    return _PATH_IN_TEXT.sub(lambda path: file_text(path[0]), words)


def in_file(name: str, file: str | None) -> str:
    """A program, with the file that it was read from where it was: ``jit_step (step.mlir)``."""
    return f"{name} ({file})" if file else name
