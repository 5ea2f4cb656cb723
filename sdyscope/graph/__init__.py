"""The op graph of a StableHLO module, from MLIR's bindings or from its text."""

from sdyscope.graph.bindings import build as build
from sdyscope.graph.locations import scope_in as scope_in
from sdyscope.graph.locations import written_primitive as written_primitive
from sdyscope.graph.locations import written_scope as written_scope
from sdyscope.graph.model import RESULT as RESULT
from sdyscope.graph.model import Argument as Argument
from sdyscope.graph.model import Edge as Edge
from sdyscope.graph.model import Function as Function
from sdyscope.graph.model import NotUnderstood as NotUnderstood
from sdyscope.graph.model import Op as Op
from sdyscope.graph.model import Result as Result
from sdyscope.graph.model import Sharding as Sharding
from sdyscope.graph.model import ValueId as ValueId
from sdyscope.graph.op_graph import OpGraph as OpGraph
from sdyscope.graph.text import read_text as read_text
from sdyscope.graph.types import TensorType as TensorType
