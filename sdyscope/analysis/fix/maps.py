"""Edits of what a ``shard_map`` says of its arguments and results.

Where an argument comes in sharded over an axis that its map has no use for, every device gathers it
and computes the same. Mapped over that axis, each keeps its block. Whether the body computes the
same then, only a run tells.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from sdyscope.analysis.fix.evidence import Evidence
from sdyscope.analysis.fix.proposals import Proposal, Splices, dims_of, spec_of_dims
from sdyscope.analysis.fix.workshop import Workshop
from sdyscope.facts.edits import SourceEdit
from sdyscope.facts.propagated import ValueId
from sdyscope.facts.tensors import Tensor
from sdyscope.graph import OpGraph
from sdyscope.patches.shard_maps import MapSite, map_sites
from sdyscope.patches.source import Splice
from sdyscope.patches.specs import SpecLiteral
from sdyscope.values.dtypes import num_bytes
from sdyscope.values.mesh import Mesh
from sdyscope.values.sharding import PartitionSpec
from sdyscope.values.source import SourceLocation


@dataclass(frozen=True)
class _Edge:
    """An argument or result of a map.

    Attributes:
        literal: where its spec is written.
        spec: what that says.
        shape: shape of the whole.
        dtype: MLIR element type.
        outside: how propagation shards what comes in; None of a result, or where it is not known.
    """

    literal: SpecLiteral
    spec: PartitionSpec
    shape: tuple[int, ...]
    dtype: str
    outside: PartitionSpec | None

    def dims(self) -> list[tuple[str, ...]]:
        return dims_of(self.spec, len(self.shape))


def map_specs(
    workshop: Workshop,
    graph: OpGraph,
    mesh: Mesh,
    about: Evidence,
    spec_at: Callable[[ValueId], PartitionSpec | None],
) -> Iterator[Proposal]:
    """The edits after which a map takes its arguments as they come in.

    Args:
        workshop: the program.
        graph: op graph of its module under Shardy.
        mesh: its mesh.
        about: what is sent for what.
        spec_at: how propagation shards a value.
    """
    calls: dict[int, list[Tensor]] = {}
    for row in workshop.program.tensors.tensors:
        there = row.lowered.get("shardy")
        if there is not None and row.requested is not None and row.kind.startswith("shard_map"):
            calls.setdefault(there.op, []).append(row)
    sites = [
        site for file in workshop.files for site in map_sites(workshop.source(file), mesh.shape)
    ]
    mapped: dict[int, list[tuple[list[_Edge], list[_Edge], float]]] = {}
    for node, rows in calls.items():

        def outside(number: int, node: int = node) -> PartitionSpec | None:
            value = graph.operand(node, number)
            return None if value is None else spec_at(value)

        fitting = {
            number: edges
            for number, site in enumerate(sites)
            if (edges := _edges(site, rows, mesh, outside)) is not None
        }
        if len(fitting) == 1:
            ((number, edges),) = fitting.items()
            weight = about.of(rows[0].lowered["shardy"])
            sent = 0.0 if weight is None else weight.sent
            mapped.setdefault(number, []).append((*edges, sent))
    for number, each in mapped.items():
        inputs, outputs, _ = each[0]
        sent = sum(sent for _, _, sent in each)
        yield from _proposals(sites[number], inputs, outputs, mesh, sent, len(each))


def _edges(
    site: MapSite,
    rows: Sequence[Tensor],
    mesh: Mesh,
    outside: Callable[[int], PartitionSpec | None],
) -> tuple[list[_Edge], list[_Edge]] | None:
    """The arguments and results of one call, where a place of the source says how they are mapped.

    None where it is another place's, or one of them is written in another way.
    """
    sides: list[list[_Edge]] = []
    for kind, literals in (
        ("shard_map input", site.in_specs),
        ("shard_map output", site.out_specs),
    ):
        own = sorted((row for row in rows if row.kind == kind), key=lambda row: row.index or 0)
        if len(own) != len(literals):
            return None
        edges: list[_Edge] = []
        for row, literal in zip(own, literals, strict=True):
            asked = row.requested
            if asked is None or asked.sharding is None or asked.sharding.mesh != mesh:
                return None
            spec, shape = asked.sharding.spec, row.shape or ()
            if asked.mapped not in ("", site.mapped) or literal is None:
                return None
            if literal.says(spec, len(shape)) is None:
                return None
            comes = outside(row.index or 0) if kind == "shard_map input" else None
            edges.append(_Edge(literal, spec, shape, row.dtype, comes))
        sides.append(edges)
    return sides[0], sides[1]


def _proposals(
    site: MapSite,
    inputs: Sequence[_Edge],
    outputs: Sequence[_Edge],
    mesh: Mesh,
    sent: float,
    count: int,
) -> Iterator[Proposal]:
    used = {axis for edge in (*inputs, *outputs) for dim in edge.dims() for axis in dim}
    free = [axis.name for axis in mesh.axes if axis.size > 1 and axis.name not in used]
    sets = [(axis,) for axis in free] + ([tuple(free)] if len(free) > 1 else [])
    tried = [[edge.dims() for edge in inputs]]
    for axes in sets:
        moved = [_with(edge, axes) for edge in inputs]
        if moved in tried:
            continue
        tried.append(moved)
        # A result has the axis where it has the dimension that brings it.
        brought: dict[int, dict[str, int]] = {}
        for edge, dims in zip(inputs, moved, strict=True):
            for at, dim in enumerate(dims):
                for axis in dim:
                    if axis in axes:
                        brought.setdefault(at, {})[axis] = edge.shape[at]
        kept: list[list[tuple[str, ...]]] = []
        for edge in outputs:
            dims = edge.dims()
            for at, sizes in brought.items():
                if at < len(dims):
                    more = [axis for axis, size in sizes.items() if size == edge.shape[at]]
                    dims[at] = (*dims[at], *more)
            kept.append(dims)
        arguments = list(zip(inputs, moved, strict=True))
        results = list(zip(outputs, kept, strict=True))
        yield _proposal(site, arguments, results, mesh, sent, count)


def _with(edge: _Edge, axes: Sequence[str]) -> list[tuple[str, ...]]:
    """An argument's axes with those of some more that it comes in with."""
    dims = edge.dims()
    for at, dim in enumerate(dims_of(edge.outside, len(edge.shape))):
        dims[at] = (*dims[at], *(axis for axis in dim if axis in axes and axis not in dims[at]))
    return dims


def _proposal(
    site: MapSite,
    inputs: Sequence[tuple[_Edge, list[tuple[str, ...]]]],
    outputs: Sequence[tuple[_Edge, list[tuple[str, ...]]]],
    mesh: Mesh,
    sent: float,
    count: int,
) -> Proposal:
    splices: list[Splice] = []
    changed: list[tuple[_Edge, PartitionSpec]] = []
    spared = 0.0
    for edge, dims in (*inputs, *outputs):
        if dims == edge.dims():
            continue
        after = spec_of_dims(dims)
        changed.append((edge, after))
        splices += edge.literal.with_spec(edge.spec, after, len(edge.shape)) or ()
        whole = num_bytes(math.prod(edge.shape), edge.dtype)
        if edge.outside is not None:
            # Gathered before: what a device has not of it.
            before, then = (_blocks(each, mesh) for each in (edge.dims(), dims))
            spared += count * (whole / before - whole / then)
    first, after = changed[0]
    edit = SourceEdit(
        "shard_map",
        site.mapped,
        first.spec,
        after,
        SourceLocation(site.source.file, site.line),
        len(changed),
    )
    written: Splices = {site.source.file: splices}
    return Proposal(edit, None, partial(dict, written), max(sent, spared), saves=spared)


def _blocks(dims: Sequence[Sequence[str]], mesh: Mesh) -> int:
    """In how many blocks some axes split a tensor."""
    return math.prod(mesh.shape[axis] for dim in dims for axis in dim)
