"""What CI holds programs to: the configuration, and what came of each target.

``read_config`` reads ``[tool.sdyscope]``, ``judge`` looks at one target of it, ``Outcome`` is what
it found. ``ci.run`` looks at all of them side by side, ``ci.forms`` says what came of it.
docs/ci.md describes it.
"""

from sdyscope.ci.config import Config as Config
from sdyscope.ci.config import SnapshotFile as SnapshotFile
from sdyscope.ci.config import Target as Target
from sdyscope.ci.document import Ci as Ci
from sdyscope.ci.document import Outcome as Outcome
from sdyscope.ci.judge import judge as judge
from sdyscope.ci.places import PlacedFinding as PlacedFinding
from sdyscope.ci.read import find_config as find_config
from sdyscope.ci.read import read_config as read_config
from sdyscope.ci.rules import rule_words as rule_words
