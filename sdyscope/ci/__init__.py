"""What CI holds programs to: the configuration, and what came of each target.

``read_config`` reads ``[tool.sdyscope]``, ``judge`` looks at one target of it, ``Outcome`` is what
it found. ``ci.run`` looks at all of them side by side, ``ci.forms`` says what came of it.
docs/ci.md describes it.
"""

from sdyscope.ci.config import Check, Config, Ignore, SnapshotFile, Target
from sdyscope.ci.document import Ci, CiTarget, Outcome
from sdyscope.ci.judge import judge
from sdyscope.ci.places import PlacedFinding
from sdyscope.ci.read import find_config, read_config
from sdyscope.ci.rules import rule_words

__all__ = [
    "Check",
    "Ci",
    "CiTarget",
    "Config",
    "Ignore",
    "Outcome",
    "PlacedFinding",
    "SnapshotFile",
    "Target",
    "find_config",
    "judge",
    "read_config",
    "rule_words",
]
