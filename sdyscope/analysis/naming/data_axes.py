"""Mesh axes that carry the batch, by their names."""

from __future__ import annotations

import re

#: What axes that carry the batch are called.
_DATA = re.compile(r"data|batch|dp|fsdp|ddp|zero|replica|dcn|hsdp", re.IGNORECASE)
#: What the names of axes are put together of: ``data_parallel``, ``dcn-data``.
_PART = re.compile(r"[^a-z0-9]+", re.IGNORECASE)


def is_data_axis(name: str) -> bool:
    """Whether an axis has the name of one that carries the batch: `data`, `fsdp`, `replica_dcn`."""
    return any(_DATA.fullmatch(part) for part in _PART.split(name))
