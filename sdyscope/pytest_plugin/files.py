"""Where the snapshots of a test are: one file a test, under ``__shardings__`` beside its module.

Names of files are made from node ids, so that they are the same on every file system: of letters
without case, digits and a few signs, not too long, and no name that a system keeps for itself. What
a name can't say is told apart by a hash.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

#: Not ``__snapshots__``, where syrupy takes every file that is not its own for a leftover, and
#: deletes it with its --snapshot-update.
FOLDER = "__shardings__"
SUFFIX = ".snap"

#: File systems allow 255 bytes; some leave less, and a temporary file beside has a longer name.
_LONGEST = 120

_SAFE = re.compile(r"[\w.,=+\[\]-]+", re.ASCII)
_UNSAFE = re.compile(r"[^\w.,=+\[\]-]+", re.ASCII)
#: What Windows takes for a device, whatever follows the first dot.
_DEVICES = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|$)", re.IGNORECASE)
_CLASS = re.compile(r"[A-Z][A-Za-z0-9]*")


def folder_of(module: Path) -> Path:
    """Where the snapshots of a module's tests are: ``__shardings__/test_step``."""
    return module.parent / FOLDER / module.name.removesuffix(".py")


def file_name(parts: Sequence[str]) -> str:
    """The name of a test's file: ``TestStep.test_loss[4-2].snap``.

    Args:
        parts: the names of its classes, then its own with its parameters.
    """
    whole = ".".join(parts)
    own = parts[-1]
    # Names of classes differ in more than case; those of tests and parameters need not.
    is_plain = (
        _SAFE.fullmatch(whole) is not None
        and own == own.lower()
        and all(_CLASS.fullmatch(part) or part == part.lower() for part in parts[:-1])
        and not any("." in part for part in parts[:-1])
        and not _DEVICES.match(whole)
        and not whole.startswith(".")
        and len(whole) <= _LONGEST
    )
    if is_plain:
        return whole + SUFFIX
    short = _UNSAFE.sub("-", whole).strip("-.")[:_LONGEST]
    if _DEVICES.match(short):
        short = f"-{short}"
    told_apart = hashlib.sha256("::".join(parts).encode()).hexdigest()[:10]
    return f"{short}-{told_apart}{SUFFIX}"


def files_in(folder: Path) -> Iterator[Path]:
    """The snapshot files of a module; none where there is no such folder."""
    if folder.is_dir():
        yield from sorted(file for file in folder.iterdir() if file.name.endswith(SUFFIX))
