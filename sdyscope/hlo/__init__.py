"""Reader of HLO text, such as the program of one device after partitioning.

The text is what ``compiled.as_text()`` and XLA's dumps print (``HloModule::ToString``; the syntax
is that of ``xla/hlo/parser/hlo_parser.cc``). Reading goes line by line and keeps of each
instruction its text; shapes, operands and attributes are parsed when they are asked for.
"""

from sdyscope.hlo.attributes import split_attributes as split_attributes
from sdyscope.hlo.executions import CallSites as CallSites
from sdyscope.hlo.executions import ExecutionCount as ExecutionCount
from sdyscope.hlo.executions import call_sites as call_sites
from sdyscope.hlo.executions import executions as executions
from sdyscope.hlo.loops import trip_count as trip_count
from sdyscope.hlo.model import NOTHING_RUNS as NOTHING_RUNS
from sdyscope.hlo.model import Computation as Computation
from sdyscope.hlo.model import HloModule as HloModule
from sdyscope.hlo.model import Instruction as Instruction
from sdyscope.hlo.model import UnreadLine as UnreadLine
from sdyscope.hlo.read import read_hlo as read_hlo
from sdyscope.hlo.shape import Shape as Shape
from sdyscope.hlo.shape import parse_shape as parse_shape
