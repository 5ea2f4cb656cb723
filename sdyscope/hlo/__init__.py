"""Reader of HLO text, such as the program of one device after partitioning.

The text is what ``compiled.as_text()`` and XLA's dumps print (``HloModule::ToString``; the syntax
is that of ``xla/hlo/parser/hlo_parser.cc``). Reading goes line by line and keeps of each
instruction its text; shapes, operands and attributes are parsed when they are asked for.
"""

from sdyscope.hlo.attributes import split_attributes
from sdyscope.hlo.executions import CallSites, ExecutionCount, call_sites, executions
from sdyscope.hlo.loops import trip_count
from sdyscope.hlo.model import NOTHING_RUNS, Computation, HloModule, Instruction, UnreadLine
from sdyscope.hlo.read import read_hlo
from sdyscope.hlo.shape import Shape, parse_shape

__all__ = [
    "NOTHING_RUNS",
    "CallSites",
    "Computation",
    "ExecutionCount",
    "HloModule",
    "Instruction",
    "Shape",
    "UnreadLine",
    "call_sites",
    "executions",
    "parse_shape",
    "read_hlo",
    "split_attributes",
    "trip_count",
]
