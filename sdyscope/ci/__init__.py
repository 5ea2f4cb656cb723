"""What CI holds programs to: the configuration, and what came of each target.

``read_config`` reads ``[tool.sdyscope]``, ``judge`` looks at one target of it, ``Outcome`` is what
it found. The command runs targets side by side; docs/ci.md describes it.
"""

from sdyscope.ci.config import Check, Config, Ignore, SnapshotFile, Target
from sdyscope.ci.golden_files import golden_files
from sdyscope.ci.judge import judge, unused_ignores
from sdyscope.ci.outcome import CheckOutcome, Found, Outcome, Trouble
from sdyscope.ci.read import find_config, read_config
from sdyscope.ci.rules import rule_words

__all__ = [
    "Check",
    "CheckOutcome",
    "Config",
    "Found",
    "Ignore",
    "Outcome",
    "SnapshotFile",
    "Target",
    "Trouble",
    "find_config",
    "golden_files",
    "judge",
    "read_config",
    "rule_words",
    "unused_ignores",
]
