"""Origins and steps, as Shardy writes them into a module, as values.

On an op a step is about the op's own operands and results. Where a value enters or leaves a region
Shardy has an edge of its own (``sdy.data_flow_edge``), from several sources to one target. In terms
of ops such a step goes through the op that the value passes: from operand 2 to result 2 of a loop
through the loop, from what its body returns to its result through the body's terminator, whose
"result" is then that of the op around it. The same holds for what a function returns. From operand
1 of a manual computation into its body it goes through the manual computation, whose "result" 1 is
then argument 1 of the body: into its results an axis only comes through the body's terminator.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

from sdyscope.errors import SdyscopeError
from sdyscope.graph import Op, OpGraph
from sdyscope.mesh import AxisRef
from sdyscope.propagated import PropagatedValue, PropagationStep, ValueId
from sdyscope.propagation import (
    EdgeNodeType,
    OriginSharding,
    PropagationEdges,
    PropagationOneStep,
)
from sdyscope.sharding import TensorSharding
from sdyscope.stages import compat
from sdyscope.syntax import shardy

__all__ = ["DataFlow", "parse_edges", "read_data_flow", "steps_of", "with_origins"]

Origins = tuple[tuple[AxisRef, OriginSharding], ...]

_EDGES = "sdy.propagation_edges"
_ORIGINS = "sdy.sharding_origins"
_STEP = re.compile(r"step-(\d+)")
#: Ops whose regions values flow into or out of, one edge a value.
_OWNERS = frozenset(
    {
        "stablehlo.while",
        "stablehlo.case",
        "stablehlo.if",
        "stablehlo.optimization_barrier",
        "sdy.manual_computation",
        "sdy.named_computation",
    }
)


class Flow(NamedTuple):
    """What is written on one edge of the data flow."""

    edges: PropagationEdges | None
    origins: Origins


@dataclass(frozen=True)
class DataFlow:
    """What is written on the edges into and out of regions.

    Attributes:
        results: by (which of the ops with such edges, in program order; which result).
        arguments: likewise, by argument of the op's regions.
    """

    results: Mapping[tuple[int, int], Flow]
    arguments: Mapping[tuple[int, int], Flow]


# --- reading --------------------------------------------------------------------------------------


@lru_cache(1 << 12)
def _parse_shape(text: str) -> PropagationEdges:
    return shardy.parse_propagation_edges(text)


def parse_edges(text: str) -> PropagationEdges:
    """``#sdy.propagation_edges<...>``: of texts that differ in step numbers only, one is parsed.

    Raises:
      SyntaxTextError: as ``syntax.shardy.parse_propagation_edges``.
    """
    numbers: list[int] = []

    def counted(match: re.Match[str]) -> str:
        numbers.append(int(match[1]))
        return f"step-{len(numbers) - 1}"

    shape = _parse_shape(_STEP.sub(counted, text))
    return PropagationEdges(
        tuple(
            PropagationOneStep(numbers[step.step_index], step.axis_entries) for step in shape.steps
        )
    )


def _parse_origins(named: Any) -> Origins:
    """``{data = "input: 0"}`` as the graph has it: a mapping of texts."""
    if not isinstance(named, Mapping):
        return ()
    return _parsed_origins(tuple((str(key), str(value)) for key, value in named.items()))


@lru_cache(1 << 12)
def _parsed_origins(items: tuple[tuple[str, str], ...]) -> Origins:
    found = []
    for key, value in items:
        try:
            found.append((_axis(key), shardy.parse_origin_sharding(value)))
        except SdyscopeError:  # a kind of origin that is not known yet: the axis has none then
            continue
    return tuple(found)


def _axis(key: str) -> AxisRef:
    name, _, sub = key.partition(":(")
    return shardy.parse_axis_ref(f'"{name}"' + (f":({sub}" if sub else ""))


def read_data_flow(module: Any) -> DataFlow:
    """Reads the data-flow edges of a module between propagation and the pass that removes them."""
    results: dict[tuple[int, int], Flow] = {}
    arguments: dict[tuple[int, int], Flow] = {}
    owners = 0

    def visit(block: Any, owner: int) -> None:
        nonlocal owners
        numbers: dict[int, int] = {}
        for view in block.operations:
            operation = view.operation
            if operation.name == "sdy.data_flow_edge":
                flow = _flow(operation)
                value = operation.operands[0]
                number = numbers.get(hash(value))
                if number is not None:
                    results[number, compat.result_number(value)] = flow
                elif owner >= 0 and compat.is_block_argument(value):
                    arguments[owner, compat.argument_number(value)] = flow
                continue
            if operation.name in _OWNERS:
                owners += 1
                for result in operation.results:
                    numbers[hash(result)] = owners - 1
                inside = owners - 1
            else:
                inside = -1
            if len(operation.regions):
                for region in operation.regions:
                    for inner in region.blocks:
                        visit(inner, inside)

    for view in module.body.operations:
        if view.operation.name == "func.func":
            for region in view.operation.regions:
                for block in region.blocks:
                    visit(block, -1)
    return DataFlow(results, arguments)


def _flow(operation: Any) -> Flow:
    attributes = operation.attributes
    edges = parse_edges(str(attributes[_EDGES])) if _EDGES in attributes else None
    origins: Origins = ()
    if _ORIGINS in attributes:
        origins = _parsed_origins(
            tuple(
                (name, compat.ir.StringAttr(value).value)
                for name, value in compat.dictionary_items(attributes[_ORIGINS])
            )
        )
    return Flow(edges, origins)


def _owners(graph: OpGraph) -> dict[int, int]:
    """The number of each op with edges into or out of regions, by node."""
    main = graph.functions
    inside = [op.id for op in graph.ops if op.kind in _OWNERS and op.function in main]
    return {node: number for number, node in enumerate(inside)}


# --- origins --------------------------------------------------------------------------------------


def with_origins(
    values: Mapping[ValueId, PropagatedValue], graph: OpGraph, flow: DataFlow
) -> dict[ValueId, PropagatedValue]:
    """The values with the user's annotations that each axis on them comes from."""
    owners = _owners(graph)
    found: dict[ValueId, PropagatedValue] = {}
    known: dict[ValueId, Origins] = {}
    # Equal shardings and equal origins are mostly one object; both are kept alive here.
    left: dict[tuple[int, int], tuple[Origins, Origins]] = {}
    for id_, value in values.items():
        if value.node is None or not isinstance(value.sharding, TensorSharding):
            found[id_] = value
            continue
        place = (value.node, value.result)
        origins = known.get(place)
        if origins is None:
            written = _origins_of(graph, place, owners, flow)
            key = (id(value.sharding), id(written))
            if key not in left:
                left[key] = (written, _left(written, value.sharding))
            origins = known[place] = left[key][1]
        found[id_] = replace(value, origins=origins) if origins else value
    return found


def _left(origins: Origins, sharding: TensorSharding) -> Origins:
    """The origins of what a value is sharded on in the end.

    At boundaries Shardy at last takes axes away again, or parts of them, that do not divide.
    """
    written = dict(origins)
    whole = {axis.name: origin for axis, origin in origins}
    axes = [axis for dim in sharding.dim_shardings for axis in dim.axes]
    axes += sharding.unreduced_axes
    return tuple(
        (axis, written.get(axis) or whole[axis.name]) for axis in axes if axis.name in whole
    )


def _origins_of(
    graph: OpGraph, place: ValueId, owners: Mapping[int, int], flow: DataFlow
) -> Origins:
    op = graph.ops[place[0]]
    if op.is_argument and op.parent is not None and op.parent in owners:
        number = owners[op.parent]
        inside = flow.arguments.get((number, op.argument))
        if inside is None and graph.ops[op.parent].kind == "stablehlo.while":
            # A loop's argument is sharded as its result is: they are one edge.
            inside = flow.results.get((number, op.argument))
        return inside.origins if inside is not None else ()
    if op.id in owners:
        outside = flow.results.get((owners[op.id], place[1]))
        return outside.origins if outside is not None else ()
    written = op.attributes.get(_ORIGINS)
    if isinstance(written, tuple):
        return _parse_origins(written[place[1]]) if place[1] < len(written) else ()
    return _parse_origins(written)


# --- steps ----------------------------------------------------------------------------------------


def steps_of(graph: OpGraph, flow: DataFlow) -> tuple[PropagationStep, ...]:
    """All steps in their order; those of one number in program order."""
    steps: list[PropagationStep] = []
    for op in graph.ops:
        if op.attributes:
            edges = op.attributes.get(_EDGES)
            if isinstance(edges, PropagationEdges):
                steps += _own(edges, op.id)
    terminators = _terminators(graph)
    for function in graph.functions.values():
        end = terminators.get(function.op, [])
        for result in function.results:
            edges = result.attributes.get(_EDGES)
            if isinstance(edges, PropagationEdges) and end:
                steps += _through(edges, [(end[0], result.index)], result.index)
    for node, number in _owners(graph).items():
        op = graph.ops[node]
        for index in range(len(op.types)):
            one = flow.results.get((number, index))
            if one is not None and one.edges is not None:
                steps += _through(one.edges, _sources(op, index, terminators), index)
        for argument in graph.children(node):
            one = flow.arguments.get((number, argument.argument))
            if argument.is_argument and one is not None and one.edges is not None:
                steps += _entering(one.edges, argument.argument, node)
    return tuple(sorted(steps, key=lambda step: step.number))


def _own(edges: PropagationEdges, node: int) -> Iterator[PropagationStep]:
    for step in edges.steps:
        for entry in step.axis_entries:
            source = (entry.source.type, entry.source.index)
            targets = tuple((target.type, target.index) for target in entry.targets)
            yield PropagationStep(step.step_index, entry.axis_name, node, source, targets)


def _entering(edges: PropagationEdges, argument: int, node: int) -> Iterator[PropagationStep]:
    """The steps of an edge from the operand of an op to an argument of its region."""
    for step in _own(edges, node):
        targets = tuple((kind, argument) for kind, _ in step.targets)
        yield replace(step, source=(step.source[0], argument), targets=targets)


def _terminators(graph: OpGraph) -> dict[int, list[int]]:
    """The last op of each region, by the op that they are in."""
    last: dict[tuple[int, int], int] = {}
    for op in graph.ops:
        if op.parent is not None and not op.is_argument:
            last[op.parent, op.region] = op.id
    found: dict[int, list[int]] = {}
    for (parent, _), node in last.items():
        found.setdefault(parent, []).append(node)
    return found


def _sources(op: Op, result: int, terminators: Mapping[int, list[int]]) -> list[tuple[int, int]]:
    """The values that may become a result of an op with regions: (op that passes it, number)."""
    ends = terminators.get(op.id, [])
    if op.kind == "stablehlo.while":
        return [(op.id, result), (ends[1], result)]
    if op.kind == "stablehlo.optimization_barrier":
        return [(op.id, result)]
    return [(end, result) for end in ends]


def _through(
    edges: PropagationEdges, sources: list[tuple[int, int]], result: int
) -> Iterator[PropagationStep]:
    """The steps of an edge from several sources to one result, each through one op."""
    for step in edges.steps:
        for entry in step.axis_entries:
            ends = [entry.source, *entry.targets]
            numbers = [end.index for end in ends if end.type == "operand"]
            for number in numbers:
                if number >= len(sources):
                    continue
                node, operand = sources[number]
                inner: tuple[EdgeNodeType, int] = ("operand", operand)
                outer: tuple[EdgeNodeType, int] = ("result", result)
                from_inside = entry.source.type == "operand" and entry.source.index == number
                if from_inside:
                    source, targets = inner, (outer,)
                elif entry.source.type == "result":
                    source, targets = outer, (inner,)
                else:
                    # From another source by way of the result, which the step of that one says.
                    source, targets = outer, (inner,)
                yield PropagationStep(step.step_index, entry.axis_name, node, source, targets)
