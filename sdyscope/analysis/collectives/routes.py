"""Which devices of a collective work together, and in which order: what its axes do not say."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TypeAlias

from sdyscope.analysis.collectives.axes import order_of_groups
from sdyscope.analysis.collectives.totals import Collective
from sdyscope.values.replica_groups import ReplicaGroups

Route: TypeAlias = tuple[int, ...] | frozenset[tuple[int, ...]] | str | None
"""The order of devices in their groups by digits, see ``order_of_groups``; the groups, where no
digits or no axes say them, or as they are written; the pairs of a permutation; None where the axes
say all, as of a sum."""

#: A pair of devices of a permutation.
_PAIR = re.compile(r"\{\s*\d+\s*,\s*\d+\s*\}")


def route_of(collective: Collective) -> Route:
    """Which device sends to which, of a permutation; who works together, where no axes say it.

    The order of devices in a group is that of their blocks; only a sum has none.
    """
    if collective.kind == "collective-permute":
        return " ".join(sorted(_PAIR.findall(collective.groups)))
    if collective.axes is not None:
        if collective.kind == "all-reduce" or collective.devices is None:
            return None
        order = order_of_groups(collective.devices)
        if order is not None:
            return order
    if collective.devices is None:
        return collective.groups
    return _groups(collective.devices, collective.group_size, collective.kind != "all-reduce")


@lru_cache(1 << 8)
def _groups(devices: ReplicaGroups, size: int | None, ordered: bool) -> frozenset[tuple[int, ...]]:
    groups = devices.groups(size)
    return frozenset(tuple(group if ordered else sorted(group)) for group in groups)
