"""Snapshots: what a program's shardings are, as text that people review and CI compares.

``take`` makes one of a program, ``write`` and ``read_snapshots`` are its text, ``compare`` says
what changed, ``update`` writes only that anew. The format is described in docs/snapshot.md.
"""

from sdyscope.facts.snapshots import STAGES, Item, Stage, StageText
from sdyscope.snapshots.compare import Comparison, TensorChange, compare
from sdyscope.snapshots.read import is_snapshot, read_snapshots
from sdyscope.snapshots.take import take
from sdyscope.snapshots.update import update
from sdyscope.snapshots.values import Key, Snapshot
from sdyscope.snapshots.write import VERSION, write

__all__ = [
    "STAGES",
    "VERSION",
    "Comparison",
    "Item",
    "Key",
    "Snapshot",
    "Stage",
    "StageText",
    "TensorChange",
    "compare",
    "is_snapshot",
    "read_snapshots",
    "take",
    "update",
    "write",
]
