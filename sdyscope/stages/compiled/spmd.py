"""What XLA's partitioner makes of a module, before anything special to some hardware is done to it.

The compile is for virtual CPU devices and ends behind partitioning, which takes a second where the
rest takes ten. Element types are the program's own, and what TPUs and GPUs will reduce and scatter
at once is still an all-reduce and a slice.
"""

from __future__ import annotations

from typing import NamedTuple

from sdyscope.annotations import num_partitions
from sdyscope.graph import OpGraph
from sdyscope.stages.lowered.lower import LoweredModule
from sdyscope.stages.propagated.xla_dump import xla_dump


class Spmd(NamedTuple):
    """The SPMD program.

    Attributes:
        hlo: its text.
        rematerializations: lines of the log about reshardings that make a tensor whole.
    """

    hlo: str
    rematerializations: tuple[str, ...]


def spmd(lowered: LoweredModule, graph: OpGraph) -> Spmd:
    """The SPMD program, as Shardy's shardings and XLA's partitioner make it.

    Args:
        lowered: the module, for Shardy.
        graph: its op graph.

    Raises:
        CompilerError: XLA refuses the module or aborts on it, or it is for too many devices.
    """
    count = max(lowered.num_devices, num_partitions(graph))
    dump = xla_dump(lowered.module, graph, "shardy", count, partitioned=True)
    return Spmd(dump.text, dump.rematerializations)
