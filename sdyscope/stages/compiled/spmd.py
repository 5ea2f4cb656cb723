"""What XLA's partitioner makes of a module, before anything special to some hardware is done to it.

The compile is for virtual CPU devices and ends behind partitioning, which takes a second where the
rest takes ten. Element types are the program's own, and what TPUs and GPUs will reduce and scatter
at once is still an all-reduce and a slice.
"""

from __future__ import annotations

from sdyscope.annotations import num_partitions
from sdyscope.graph import OpGraph
from sdyscope.stages.lowered.lower import LoweredModule
from sdyscope.stages.propagated.xla_dump import xla_dump


def spmd(lowered: LoweredModule, graph: OpGraph) -> str:
    """The HLO text of the SPMD program, as Shardy's shardings and XLA's partitioner make it.

    Args:
        lowered: the module, for Shardy.
        graph: its op graph.

    Raises:
        CompilerError: XLA refuses the module or aborts on it, or it is for too many devices.
    """
    count = max(lowered.num_devices, num_partitions(graph))
    return xla_dump(lowered.module, graph, "shardy", count, partitioned=True).text
