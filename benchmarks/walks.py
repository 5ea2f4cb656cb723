"""Are the walks that are written by hand faster than NetworkX's?

The program is `fsdp-transformer`, unrolled, under Shardy; `--hlo` names the text of the program
that it compiles to. Each walk answers a question of all its values, in turns with NetworkX, whose
answer has to be the same. NetworkX's time is told twice: with the making of the graph that it
walks on, which is nowhere else, and without. The least of the runs counts, in CPU seconds.
"""

from __future__ import annotations

import argparse
import gc
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import networkx
from networkx.utils import UnionFind

from sdyscope.terminal.table import Column, Table, number, print_table

#: A node before all that a walk of NetworkX begins at.
START = "start"


class Walk(NamedTuple):
    """A walk, what NetworkX walks on, and its walk."""

    name: str
    ours: Callable[[], Any]
    graph: Callable[[], Any]
    theirs: Callable[[Any], Any]


def digraph(edges: Iterable[tuple[Any, Any]], nodes: Iterable[Any] = ()) -> Any:
    graph: Any = networkx.DiGraph()
    graph.add_nodes_from(nodes)
    graph.add_edges_from(edges)
    return graph


def of_module(layers: int) -> list[Walk]:
    """Walks of the lowered module and of its propagation."""
    from sdyscope.analysis.collectives.annotated_axes import AnnotatedAxes
    from sdyscope.analysis.collectives.origin_needs import Needs
    from sdyscope.analysis.collectives.propagated_axes import PropagatedAxes
    from sdyscope.analysis.diff.propagated import inputs, reached
    from sdyscope.analysis.naming.roles import pass_arguments
    from sdyscope.analysis.naming.scopes import phase_of
    from sdyscope.analysis.propagation.flow import Flow
    from sdyscope.analysis.propagation.pointers import Pointers
    from sdyscope.inspection import Inspection
    from sdyscope.stages.propagated.hlo_order import _post_order
    from sdyscope.targets import resolve_program

    settings = {"layers": layers, "batch": 256}
    program = resolve_program("fsdp-transformer", mesh={"fsdp": 4, "model": 2}, settings=settings)
    inspection = Inspection(program, ("shardy",))
    graph, propagated = inspection.graph("shardy"), inspection.propagated("shardy")
    annotations = inspection.annotations("shardy")
    mesh, main = inspection.only_mesh("shardy"), graph.main
    assert mesh is not None
    assert main is not None
    flow = Flow(propagated, graph)
    pointers = Pointers(flow, annotations)
    refs = [(op.id, result) for op in propagated.graph.ops for result in range(len(op.types))]
    held = [(ref, part) for ref in refs for _, part in flow.parts(ref)]
    part = max({part for _, part in held}, key=[part for _, part in held].count)
    of_part = [ref for ref, own in held if own == part]
    before = {value: inputs(graph, value) for value in propagated.values}
    arguments = [(argument.node, 0) for argument in main.arguments]
    annotated = AnnotatedAxes(PropagatedAxes(graph, propagated, mesh), annotations)
    needs = Needs(annotated.decided, annotated)
    ops = list(graph.operations())[::40]
    operands = [[source for source, _ in values] for values in graph.operand_values]
    uses = [0] * len(operands)
    for sources in operands:
        for source in sources:
            uses[source] += 1
    inlined = [False] * len(operands)

    def union_find() -> Any:
        return UnionFind(refs)

    def linked() -> Any:
        """Values that are alike without a step."""
        return digraph(
            ((ref, link.source) for ref in of_part for link in pointers._links(ref)), refs
        )

    def explained(pointed: Any, ref: Any) -> Any:
        for here in (ref, *(end for _, end in networkx.bfs_edges(pointed, ref))):
            own = any(part.shared(start) == part for start in pointers.beginnings.own(here))
            arrival = None if own else pointers._arrival(here, part, None)
            start = pointers.beginnings.at(here, part) if arrival is None else None
            if arrival is not None or start is not None:
                return here
        return None

    def ours_explained(ref: Any) -> Any:
        arrival, links, start = pointers._find(ref, part, None)
        return None if arrival is None and start is None else links[-1].source if links else ref

    def nearest() -> dict[Any, int]:
        annotated._nearest.clear()
        return {dim: step.annotation.op for dim, step in annotated._followed(part).items()}

    def alike() -> Any:
        """Dimensions that are sharded alike; before them an annotation's, in the order of these."""
        dims = annotated._on(part)
        sharded = [(value, dim) for value in propagated.values for dim in dims(value)]
        across = {key: annotated._across_arguments(*key, dims) for key in sharded}
        passed = dict.fromkeys(key for keys in across.values() for key in keys)
        across |= {key: annotated._across_arguments(*key, dims) for key in passed}
        pointed = digraph(
            (key, end)
            for key in dict.fromkeys((*sharded, *passed))
            for end in (
                *(
                    (other, beside)
                    for other, link in annotated._neighbours.get(key[0], ())
                    for beside in dims(other)
                    if annotated._linked(link, *key, other, beside)
                ),
                *across[key],
            )
        )
        for requirement in annotated._written:
            if any(own.shared(part) is not None for dim in requirement.axes for own in dim):
                for value in annotated._annotated_values(requirement.annotation):
                    for dim in annotated._dims(value, part):
                        if (value, dim) not in pointed or not pointed.nodes[value, dim]:
                            pointed.add_node((value, dim), op=requirement.annotation.op)
                            pointed.add_edge(START, (value, dim))
        return pointed

    def their_nearest(undirected: Any) -> dict[Any, int]:
        of: dict[Any, int] = {}
        for source, end in networkx.bfs_edges(undirected, START):
            of[end] = undirected.nodes[end]["op"] if source == START else of[source]
        return of

    def without() -> dict[Any, int]:
        annotated._without.clear()
        annotated.without((0, 0), 0, part)
        return {dim: spec.annotation.op for dim, spec in annotated._without[part].items()}

    def alike_without() -> Any:
        """Dimensions without an axis that are the same; before them an annotation's."""
        dims = {value: annotated._dims_without(value, part) for value in propagated.values}
        pointed = digraph(
            ((value, dim), (other, dim))
            for value, own in dims.items()
            for dim in own
            for other in annotated._of_its_shape(value)
            if dim in annotated._dims_without(other, part)
        )
        for requirement in annotated._written:
            for value in annotated._annotated_values(requirement.annotation):
                for dim in annotated._dims_without(value, part):
                    key = value, dim
                    is_new = key not in pointed or not pointed.nodes[key]
                    if is_new and dim < len(requirement.axes):
                        pointed.add_node(key, op=requirement.annotation.op)
                        pointed.add_edge(START, key)
        return pointed

    def contained() -> Any:
        """What is in an op's regions, and in the function that it calls."""
        edges = [(op.id, inner.id) for op in graph.ops for inner in graph.children(op)]
        for op in graph.ops:
            if (callee := graph.callee(op)) is not None:
                edges += [(op.id, inner.id) for inner in graph.children(callee.op)]
        return digraph(edges, range(len(graph.ops)))

    def passing() -> Any:
        """Values that pass from one to another, and after those that a pass uses an end."""
        across = [
            (value, other)
            for kind, value, other in graph.crossings()
            if kind != "call" or len(graph.callers(graph.ops[other[0]].function)) == 1
        ]
        edges: list[tuple[Any, Any]] = [*across]
        for value in propagated.values:
            for user, operand in graph.users(value):
                op = graph.ops[user]
                if phase_of(op.scope, differentiated=True) != "other":
                    edges.append((value, START))
                if op.passing is not None:
                    edges.append((value, (user, operand if len(op.types) > 1 else 0)))
        return digraph(edges, arguments)

    def from_arguments() -> Any:
        edges = [(source, value) for value, sources in before.items() for source in sources]
        return digraph([*edges, *((START, argument) for argument in arguments)], before)

    def around() -> Any:
        undirected = graph.nx.to_undirected(as_view=True)
        return networkx.subgraph_view(
            undirected, filter_node=lambda node: not graph.ops[node].is_argument
        )

    def ordered() -> Any:
        roots = ((START, node) for node in range(len(operands)) if not uses[node])
        return digraph(
            [*roots, *((node, source) for node, them in enumerate(operands) for source in them)]
        )

    return [
        Walk(
            "Flow.root: values that are one",
            lambda: len(set(map(flow.root, refs))),
            union_find,
            lambda sets: len({sets[ref] for ref in refs}),
        ),
        Walk(
            "Pointers: what explains a value",
            lambda: list(map(ours_explained, of_part)),
            linked,
            lambda pointed: [explained(pointed, ref) for ref in of_part],
        ),
        Walk("AnnotatedAxes: nearest annotation", nearest, alike, their_nearest),
        Walk("AnnotatedAxes: nearest without an axis", without, alike_without, their_nearest),
        Walk(
            "OpGraph.inside: regions and calls",
            lambda: {op.id for op in graph.inside([graph.ops[main.op]])},
            contained,
            lambda within: networkx.descendants(within, main.op),
        ),
        Walk(
            "roles: arguments that a pass uses",
            lambda: pass_arguments(graph),
            passing,
            lambda passed: frozenset(
                argument.index
                for argument in main.arguments
                if START in networkx.descendants(passed, (argument.node, 0))
            ),
        ),
        Walk(
            "diff: what follows from arguments",
            lambda: reached(before, arguments),
            from_arguments,
            lambda pointed: networkx.descendants(pointed, START),
        ),
        Walk(
            "Needs: ops around an op",
            lambda: [[near.id for near in next(iter(needs.rings([op])))] for op in ops],
            around,
            lambda undirected: [list(next(networkx.bfs_layers(undirected, op.id))) for op in ops],
        ),
        Walk(
            "XLA's order of ops",
            lambda: _post_order(operands, uses, inlined),
            ordered,
            lambda called: list(networkx.dfs_postorder_nodes(called, START))[:-1],
        ),
    ]


def of_hlo(text: str) -> list[Walk]:
    """Walks of the compiled program."""
    from sdyscope.hlo import read_hlo
    from sdyscope.hlo.executions import _callers_first, call_sites

    module = read_hlo(text)
    sites = call_sites(module)

    def calls() -> Any:
        edges = ((name, called) for name, of in sites.items() for _, called in of)
        graph = digraph(edges, [module.entry])
        return graph.subgraph({module.entry, *networkx.descendants(graph, module.entry)})

    def is_order(names: Iterable[str]) -> bool:
        place = {name: at for at, name in enumerate(names)}
        return all(place[a] < place[b] for a in place for _, b in sites[a])

    return [
        Walk(
            "executions: callers first",
            lambda: is_order(_callers_first(module, sites)),
            calls,
            lambda called: is_order(networkx.topological_sort(called)),
        )
    ]


def seconds(function: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    start = time.process_time()
    answer = function(*arguments)
    return time.process_time() - start, answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--layers", type=int, default=80)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--hlo", type=Path, help="the compiled program's text")
    asked = parser.parse_args()
    os.environ["JAX_PLATFORMS"] = "cpu"
    gc.set_threshold(2_000_000, 50, 1_000)  # as the command line does, see child.py
    walks = of_module(asked.layers)
    if asked.hlo is not None:
        walks += of_hlo(asked.hlo.read_text())
    rows = []
    for walk in walks:
        best = [float("inf")] * 3
        for _ in range(asked.runs):
            ours, own = seconds(walk.ours)
            making, graph = seconds(walk.graph)
            theirs, other = seconds(walk.theirs, graph)
            if own != other:
                raise SystemExit(f"{walk.name}: NetworkX's answer differs.")
            best = [min(pair) for pair in zip(best, (ours, making, theirs), strict=True)]
        ours, making, theirs = best
        ratios = (f"{theirs / ours:.1f}", f"{(making + theirs) / ours:.1f}")
        rows.append((walk.name, f"{ours:.3f}", f"{theirs:.3f}", f"{making:.3f}", *ratios))
    columns = ("by hand", "NetworkX", "its graph", "times", "times, with graph")
    print_table(Table((Column("walk"), *map(number, columns)), tuple(rows)))


if __name__ == "__main__":
    main()
