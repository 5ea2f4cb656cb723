"""Snapshots: what a program's shardings are, as text that people review and CI compares.

``take`` makes one of a program, ``write`` and ``read_snapshots`` are its text, ``compare`` says
what changed, ``update`` writes only that anew. The format is described in docs/snapshot.md.
"""

from sdyscope.facts.snapshots import STAGES as STAGES
from sdyscope.facts.snapshots import Item as Item
from sdyscope.facts.snapshots import Stage as Stage
from sdyscope.facts.snapshots import StageText as StageText
from sdyscope.snapshots.compare import Comparison as Comparison
from sdyscope.snapshots.compare import TensorChange as TensorChange
from sdyscope.snapshots.compare import compare as compare
from sdyscope.snapshots.read import is_snapshot as is_snapshot
from sdyscope.snapshots.read import read_snapshots as read_snapshots
from sdyscope.snapshots.take import take as take
from sdyscope.snapshots.update import update as update
from sdyscope.snapshots.values import Key as Key
from sdyscope.snapshots.values import Snapshot as Snapshot
from sdyscope.snapshots.write import write as write
