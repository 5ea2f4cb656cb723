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

from sdyscope.errors import SdyscopeError
from sdyscope.facts.propagated import PropagationStep, Steps
from sdyscope.graph import NotUnderstood, Op, OpGraph
from sdyscope.stages.propagated.debug_info_child import EDGES
from sdyscope.stages.propagated.marks import Marked
from sdyscope.syntax import shardy
from sdyscope.values.propagation_edges import EdgeNodeType, PropagationEdges, PropagationOneStep

_STEP = re.compile(r"step-(\d+)")


def parse_edges(text: str) -> PropagationEdges:
    """``#sdy.propagation_edges<...>``: of texts that differ in step numbers only, one is parsed.

    Raises:
        SyntaxTextError: as ``syntax.shardy.parse_propagation_edges``.
    """
    numbers: list[int] = []

    def counted(match: re.Match[str]) -> str:
        numbers.append(int(match[1]))
        return f"step-{len(numbers) - 1}"

    shape = shardy.parse_propagation_edges(_STEP.sub(counted, text))
    return PropagationEdges(
        tuple(
            PropagationOneStep(numbers[step.step_index], step.axis_entries) for step in shape.steps
        )
    )


# --- steps ----------------------------------------------------------------------------------------


def steps_of(graph: OpGraph, marked: Marked, not_understood: list[NotUnderstood]) -> Steps:
    """All steps of a propagated module.

    Args:
        graph: its op graph.
        marked: what Shardy wrote down of it.
        not_understood: the list that edges which can't be read are added to, when they are read.
    """
    reader = _Reader(graph, marked, not_understood)
    return Steps(marked.edges, reader.own, reader.elsewhere())


class _Reader:
    def __init__(self, graph: OpGraph, marked: Marked, not_understood: list[NotUnderstood]) -> None:
        self.graph = graph
        self.marked = marked
        self.not_understood = not_understood

    def own(self, node: int) -> Iterator[PropagationStep]:
        """The steps that are written on an op."""
        return _own(self.edges(node, self.marked.edges[node]), node)

    def edges(self, node: int, text: str) -> PropagationEdges:
        """The edges on an op; none where they can't be read, which is then listed."""
        try:
            return parse_edges(text)
        except SdyscopeError as error:
            said = str(error).partition("\n")[0]
            self.not_understood.append(NotUnderstood(node, EDGES, text, said))
            return PropagationEdges(())

    def elsewhere(self) -> Iterator[PropagationStep]:
        """The steps that are written on the results of functions and on the edges of regions."""
        graph, marked = self.graph, self.marked
        if not marked.results and not marked.owners:
            return
        terminators = _terminators(graph)
        for (function, index), flow in marked.results.items():
            end = terminators.get(function, [])
            if end and flow.edges:
                edges = self.edges(function, flow.edges)
                yield from _through(edges, [(end[0], index)], index)
        for node in sorted(marked.owners):
            op = graph.ops[node]
            for index in range(len(op.types)):
                argument_flow = marked.flow_results.get((node, index))
                if argument_flow is not None and argument_flow.edges:
                    sources = _sources(op, index, terminators)
                    yield from _through(self.edges(node, argument_flow.edges), sources, index)
            for argument in graph.children(node):
                argument_flow = marked.flow_arguments.get((node, argument.argument))
                if argument.is_argument and argument_flow is not None and argument_flow.edges:
                    edges = self.edges(node, argument_flow.edges)
                    yield from _entering(edges, argument.argument, node)


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
        yield step._replace(source=(step.source[0], argument), targets=targets)


def _terminators(graph: OpGraph) -> dict[int, list[int]]:
    """The last op of each region, by the op that they are in."""
    ends: dict[int, list[int]] = {}
    for (parent, _), end in graph.terminators.items():
        ends.setdefault(parent, []).append(end.id)
    return ends


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
