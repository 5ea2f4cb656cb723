"""The user's own cache folder."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def cache_folder() -> Path | None:
    """Where sdyscope keeps things between runs: `$XDG_CACHE_HOME/sdyscope`, `~/.cache/sdyscope`.

    None where there is no such folder that nobody else can write to.
    """
    folder = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if not os.path.isabs(folder):  # as when there is no home: "~" stays
        return None
    here = Path(folder) / "sdyscope"
    try:
        here.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = here.lstat()
    except OSError:
        return None
    own = not hasattr(os, "getuid") or status.st_uid == os.getuid()
    shared = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return here if own and stat.S_ISDIR(status.st_mode) and not shared else None
