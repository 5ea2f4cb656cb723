"""What a request, propagation and a compiled program say of the values of a lowered module.

Only propagation is about all values: a request is of arguments, results, constraints and what
leaves a ``shard_map``; a compiled program says how arguments and results of main are sharded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

from sdyscope.annotations import annotated_value
from sdyscope.errors import ConversionError
from sdyscope.facts.compiled import Compiled
from sdyscope.facts.program import Partitioner
from sdyscope.facts.propagated import Propagated, ValueId
from sdyscope.facts.sharded import requested_open_dims
from sdyscope.facts.tensors import TensorTable
from sdyscope.graph import Argument, Function, Op, OpGraph, Result, Sharding
from sdyscope.values.convert import to_hlo_sharding, to_tensor_sharding
from sdyscope.values.mesh import Mesh
from sdyscope.values.placement import Placement
from sdyscope.values.sharding import NamedSharding


def requested_shardings(
    table: TensorTable, partitioner: Partitioner, graph: OpGraph
) -> dict[ValueId, Sharding]:
    """What was asked for, by value, in the form that the module's own shardings have.

    What a ``shard_map`` takes is not there: it is asked of a use of a value, not of the value.

    Args:
        table: the program's tensors.
        partitioner: whose module.
        graph: its op graph.
    """
    requested: dict[ValueId, Sharding] = {}
    for tensor in table.tensors:
        asked, there = tensor.requested, tensor.lowered.get(partitioner)
        if asked is None or asked.sharding is None or there is None:
            continue
        if there.kind == "shard_map input":
            continue
        value = annotated_value(graph, there)
        if value is None:
            continue
        sharding = _written(
            asked.sharding,
            len(asked.shape),
            partitioner,
            graph,
            asked.sharding.mesh,
            requested_open_dims(asked),
        )
        if sharding is not None:
            requested[value] = sharding
    return requested


def compiled_shardings(
    compiled: Compiled, partitioner: Partitioner, graph: OpGraph, mesh: Mesh | None
) -> dict[ValueId, Sharding]:
    """How the compiler shards arguments and results of main, by value, in the module's form.

    Args:
        compiled: the program, compiled under the partitioner.
        partitioner: whose module.
        graph: its op graph.
        mesh: the mesh to name axes of; None where there are several.
    """
    if graph.main is None:
        return {}
    sharded: dict[ValueId, Sharding] = {}
    sides: tuple[tuple[Literal["argument", "result"], Sequence[Argument | Result]], ...] = (
        ("argument", graph.main.arguments),
        ("result", graph.main.results),
    )
    for kind, entries in sides:
        for entry in entries:
            rank = len(entry.type.shape or ())
            place = compiled.placement(kind, entry.index, rank, mesh)
            if place is None or entry.node is None:
                continue
            sharding = _written(place, rank, partitioner, graph, mesh)
            if sharding is not None:
                sharded[entry.node, 0] = sharding
    return sharded


def _written(
    sharding: NamedSharding | Placement,
    rank: int,
    partitioner: Partitioner,
    graph: OpGraph,
    mesh: Mesh | None,
    open_dims: Iterable[int] = (),
) -> Sharding | None:
    """A sharding as a module for the partitioner says it; None where that form can't."""
    try:
        if partitioner == "gspmd" or mesh is None:
            return to_hlo_sharding(sharding, rank, mesh)
        name = next((name for name, known in graph.meshes.items() if known == mesh), "mesh")
        return to_tensor_sharding(sharding, rank, mesh, name, open_dims)
    except ConversionError:
        return None


def propagated_graph(graph: OpGraph, propagated: Propagated) -> OpGraph:
    """The same ops and edges, each value with its propagated sharding.

    A value that the compiler folded away, or that is not partitioned, has none. Attributes still
    say what was lowered.

    Args:
        graph: op graph of the lowered module.
        propagated: its propagation.
    """
    ops = [_op(op, propagated) for op in graph.ops]
    functions = {name: _function(function, ops) for name, function in graph.functions.items()}
    return replace(graph, ops=ops, functions=functions, stage="propagated", before=graph)


def _op(op: Op, propagated: Propagated) -> Op:
    values = [propagated.values.get((op.id, result)) for result in range(len(op.types))]
    shardings = tuple(None if value is None else value.sharding for value in values)
    return op if shardings == op.shardings else op._replace(shardings=shardings)


def _function(function: Function, ops: list[Op]) -> Function:
    arguments = tuple(
        replace(argument, sharding=ops[argument.node].shardings[0])
        for argument in function.arguments
    )
    results = tuple(
        result if result.node is None else replace(result, sharding=ops[result.node].shardings[0])
        for result in function.results
    )
    return replace(function, arguments=arguments, results=results)
