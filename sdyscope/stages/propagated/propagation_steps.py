"""Steps, as Shardy writes them into a module, as values.

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
from sdyscope.facts.propagated import PropagationStep, Steps
from sdyscope.graph import NotUnderstood, Op, OpGraph
from sdyscope.stages import compat
from sdyscope.stages.propagated.origin_texts import NOTHING, Written, named_origins
from sdyscope.syntax import shardy
from sdyscope.values.propagation_edges import EdgeNodeType, PropagationEdges, PropagationOneStep

__all__ = [
    "ORIGINS",
    "UNREAD",
    "DataFlow",
    "edge_owners",
    "parse_edges",
    "read_data_flow",
    "steps_of",
]

_EDGES = "sdy.propagation_edges"
#: The attribute with origins.
ORIGINS = "sdy.sharding_origins"
#: What ``graph.build`` need not read: nearly every op has steps of its own, and few are asked for.
UNREAD = (_EDGES, ORIGINS)
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
    written: Written


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
    written = named_origins(attributes[ORIGINS]) if ORIGINS in attributes else NOTHING
    return Flow(edges, written)


def edge_owners(graph: OpGraph) -> dict[int, int]:
    """The number of each op with edges into or out of regions, by node."""
    main = graph.functions
    inside = [op.id for op in graph.ops if op.kind in _OWNERS and op.function in main]
    return {node: number for number, node in enumerate(inside)}


# --- steps ----------------------------------------------------------------------------------------


def steps_of(graph: OpGraph, flow: DataFlow) -> Steps:
    """All steps of a propagated module, whose graph has ``UNREAD`` left unread."""

    def read(node: int) -> Iterator[PropagationStep]:
        return _own(_edges(graph, node, graph.ops[node].attributes[_EDGES]), node)

    # Those on results of main are among the edges into and out of regions.
    inside = graph.without_results()
    own = [op.id for op in inside if op.attributes and _EDGES in op.attributes]
    return Steps(own, read, _elsewhere(graph, flow))


def _edges(graph: OpGraph, node: int, attribute: Any) -> PropagationEdges:
    """The edges on an op; none where they can't be read, which the graph then says."""
    text = str(attribute)
    try:
        return parse_edges(text)
    except SdyscopeError as error:
        said = str(error).partition("\n")[0]
        graph.not_understood.append(NotUnderstood(node, _EDGES, text, said))
        return PropagationEdges(())


def _elsewhere(graph: OpGraph, flow: DataFlow) -> Iterator[PropagationStep]:
    """The steps that are written on the results of functions and on the edges of regions."""
    owners = edge_owners(graph)
    returning = [
        (function, result)
        for function in graph.functions.values()
        for result in function.results
        if _EDGES in result.attributes
    ]
    if not owners and not returning:
        return
    terminators = _terminators(graph)
    for function, result in returning:
        end = terminators.get(function.op, [])
        if end:
            edges = _edges(graph, function.op, result.attributes[_EDGES])
            yield from _through(edges, [(end[0], result.index)], result.index)
    for node, number in owners.items():
        op = graph.ops[node]
        for index in range(len(op.types)):
            one = flow.results.get((number, index))
            if one is not None and one.edges is not None:
                yield from _through(one.edges, _sources(op, index, terminators), index)
        for argument in graph.children(node):
            one = flow.arguments.get((number, argument.argument))
            if argument.is_argument and one is not None and one.edges is not None:
                yield from _entering(one.edges, argument.argument, node)


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
    found: dict[int, list[int]] = {}
    for (parent, _), end in graph.terminators.items():
        found.setdefault(parent, []).append(end.id)
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
