"""Edits of code: what `analysis.collectives.wasted` finds, as edits of the source."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from sdyscope.analysis.collectives.totals import Collectives
from sdyscope.analysis.collectives.wasted import accumulated_in_loops, wasted_in_maps
from sdyscope.analysis.cost.order import WORTH, best_order, bytes_by_axes
from sdyscope.analysis.fix.proposals import Proposal, Splices
from sdyscope.analysis.fix.workshop import Workshop
from sdyscope.errors import SdyscopeError, TargetError
from sdyscope.facts.compiled import Compiled
from sdyscope.facts.edits import EditKind, SourceEdit
from sdyscope.facts.lint import Wasted
from sdyscope.graph import OpGraph
from sdyscope.hardware.specs import chip_of
from sdyscope.hlo import HloModule
from sdyscope.patches.meshes import reordered_meshes, resized_meshes
from sdyscope.patches.rewrites import accumulation, first_argument, scattered, set_false
from sdyscope.patches.source import Span, Splice
from sdyscope.values.mesh import Mesh
from sdyscope.values.sharding import PartitionSpec, entry_axes
from sdyscope.values.source import SourceLocation

_KINDS: Mapping[str, EditKind] = {
    "reduced twice": "repeated reduction",
    "reduced to be sliced": "reduction and slice",
    "gathered to be sliced": "gather and slice",
    "reduced in a loop": "reduction in a loop",
}


def rewrites(
    workshop: Workshop, graph: OpGraph, mesh: Mesh, collectives: Collectives, module: HloModule
) -> Iterator[Proposal]:
    """The edits of code that leave out what is sent for nothing.

    Args:
        workshop: the program.
        graph: op graph of its module under Shardy.
        mesh: its mesh.
        collectives: those of the compiled program.
        module: that program.
    """
    groups: dict[tuple[str, Span], list[Wasted]] = {}
    in_loops = accumulated_in_loops(graph, collectives, module)
    for waste in (*wasted_in_maps(graph, mesh), *in_loops):
        span = _span(workshop, waste.other if waste.kind == "reduced in a loop" else waste.op)
        if span is not None:
            groups.setdefault((waste.kind, span), []).append(waste)
    for (kind, span), wasted in groups.items():
        yield from _proposals(workshop, mesh, kind, span, wasted)


def _span(workshop: Workshop, node: int) -> Span | None:
    """The innermost expression of the author's in which an op stands."""
    frames = workshop.spans.get(node, ())
    return next((frame for frame in frames if workshop.editable(frame.file)), None)


def _proposals(
    workshop: Workshop, mesh: Mesh, kind: str, span: Span, wasted: Sequence[Wasted]
) -> Iterator[Proposal]:
    source = workshop.source(span.file)
    node = source.expression(span)
    text = "" if node is None else source.on_one_line(node)
    first, sent = wasted[0], float(sum(waste.sent for waste in wasted))
    line = span.location

    def edit(name: str) -> SourceEdit:
        return SourceEdit(_KINDS[kind], name, None, None, line, len(wasted))

    def proposal(write: object, name: str = text, spans: tuple[Span, ...] = ()) -> Proposal:
        assert callable(write)
        return Proposal(
            edit(name),
            None,
            write,
            sent,
            spans,
            saves=sent,
            corrects=kind == "reduced twice" and not all(waste.divided for waste in wasted),
        )

    if kind == "reduced twice":
        yield proposal(lambda: {span.file: first_argument(source, span)})
        return
    if kind == "reduced in a loop":
        yield from (
            proposal(lambda how=how: _mapped(workshop, mesh, span, first.axes, how), spans=(span,))
            for how in ("pmean", "psum")
        )
        return
    other = _span(workshop, first.other)
    if other is None:
        return

    def sliced() -> Splices:
        splices: dict[str, list[Splice]] = {}
        other_source = workshop.source(other.file)
        if kind == "reduced to be sliced":
            splices.setdefault(span.file, []).extend(scattered(source, span, first.dimension or 0))
        else:
            splices.setdefault(span.file, []).extend(first_argument(source, span))
        splices.setdefault(other.file, []).extend(first_argument(other_source, other))
        return splices

    yield proposal(sliced)


def _mapped(workshop: Workshop, mesh: Mesh, span: Span, axes: tuple[str, ...], how: str) -> Splices:
    """A scan in a ``shard_map`` over the axes that its sums are over, reduced behind it."""
    source, names = workshop.source(span.file), workshop.names(span)
    jax, spec = names.known.get("jax"), names.known.get("PartitionSpec")
    on = workshop.mesh_text(span, mesh)
    if jax is None or on is None:
        raise TargetError("No name in scope leads to JAX and to the mesh.")
    spec = spec or f"{jax}.sharding.PartitionSpec"
    arguments = _arguments(workshop)
    loop = accumulation(source, span, arguments)
    quote = source.quote
    specs = {}
    for name in loop.names:
        dims = _mapped_dims(arguments[name], axes)
        entries = [f"{quote}{dim[0]}{quote}" if dim else "None" for dim in dims]
        specs[name] = f"{spec}({', '.join(entries)})"
    if not any(f"{quote}{axes[0]}{quote}" in spec_text for spec_text in specs.values()):
        raise TargetError("No argument of the loop is sharded over the axis of its sums.")
    over = ", ".join(f"{quote}{axis}{quote}" for axis in axes)
    settings = [f"mesh={on}", f"out_specs={spec}()"]
    if len([axis for axis in mesh.axes if axis.size > 1]) > len(axes):
        settings.append(f"axis_names={{{over}}}")
    settings.append("check_vma=False")
    reduced = over if len(axes) == 1 else f"({over})"
    splices = loop.mapped(
        f"{jax}.shard_map", specs, "; ".join(settings), f"{jax}.lax.{how}({{}}, {reduced})"
    )
    return {span.file: splices}


def _arguments(workshop: Workshop) -> dict[str, list[PartitionSpec | None]]:
    """How the arguments of the program's function are sharded, by the name of each."""
    specs: dict[str, list[PartitionSpec | None]] = {}
    for tensor in workshop.program.requested:
        if tensor.kind == "argument":
            name = tensor.path.partition("[")[0].partition(".")[0]
            spec = None if tensor.sharding is None else tensor.sharding.spec
            specs.setdefault(name, []).append(spec)
    return specs


def _mapped_dims(
    specs: Sequence[PartitionSpec | None], axes: tuple[str, ...]
) -> list[tuple[str, ...]]:
    """Of each dimension the axes to map it over, the same for all of a tree.

    Raises:
        TargetError: they differ, or are not known.
    """
    mapped = set()
    for spec in specs:
        if spec is None:
            raise TargetError("An argument of the loop has no sharding.")
        dims: list[tuple[str, ...]] = []
        for own in map(entry_axes, spec.entries):
            kept = tuple(axis for axis in own if axis in axes)
            if kept and (kept != own or len(kept) > 1):
                raise TargetError("A dimension is sharded over other axes, too.")
            dims.append(kept)
        while dims and not dims[-1]:
            dims.pop()
        mapped.add(tuple(dims))
    if len(mapped) != 1:
        raise SdyscopeError("The tensors of an argument are sharded over the axis differently.")
    return list(mapped.pop())


#: The setting, and what JAX calls ops that draw random numbers.
_PARTITIONABLE = "jax_threefry_partitionable"
_DRAWING = ("threefry", "random_", "bernoulli", "_uniform", "_normal", "shuffle")


def partitionable(workshop: Workshop, collectives: Collectives) -> Iterator[Proposal]:
    """The edits that let each device draw its own random numbers, where the source forbids that.

    Args:
        workshop: the program.
        collectives: those of the compiled program.
    """
    sent = float(
        sum(
            collective.count * part.sent
            for collective in collectives.collectives
            for part in collective.parts
            if any(word in f"{part.scope}/{part.primitive}" for word in _DRAWING)
        )
    )
    for file in workshop.files:
        source = workshop.source(file)
        for line, splice in set_false(source, _PARTITIONABLE):
            edit = SourceEdit(
                "setting", f"{_PARTITIONABLE} to True", None, None, SourceLocation(file, line)
            )
            splices: Splices = {file: [splice]}
            yield Proposal(edit, None, partial(dict, splices), sent, saves=sent)


def mesh_orders(
    workshop: Workshop, mesh: Mesh, collectives: Collectives, compiled: Compiled
) -> Iterator[Proposal]:
    """The edits that put the axes of the mesh in an order that sends over faster links.

    Args:
        workshop: the program.
        mesh: its mesh.
        collectives: those of the compiled program.
        compiled: the program, for hardware with known rates; nothing for any other.
    """
    chip = chip_of(compiled.device_kind)
    if chip is None or compiled.topology is None:
        return
    orders = best_order(bytes_by_axes(collectives), mesh, compiled.topology, chip)
    if orders is None or not orders[0].seconds or orders[1].seconds > WORTH * orders[0].seconds:
        return
    now, best = orders
    saves = collectives.total.sent * (1 - best.seconds / now.seconds)
    for file in workshop.files:
        for line, splices in reordered_meshes(workshop.source(file), now.axes, best.axes):
            edited = Mesh.of({axis: mesh.shape[axis] for axis in best.axes})
            source = SourceLocation(file, line)
            edit = SourceEdit("mesh", "", None, None, source, mesh=edited)
            written: Splices = {file: splices}
            yield Proposal(edit, None, partial(dict, written), float(saves), saves=float(saves))


def mesh_sizes(workshop: Workshop, mesh: Mesh) -> Iterator[Proposal]:
    """The edits that give the axes of the mesh other sizes, for as many devices; nearest first.

    Args:
        workshop: the program.
        mesh: its mesh.
    """
    names = [axis.name for axis in mesh.axes]
    before = tuple(axis.size for axis in mesh.axes)
    for after in sizes_near(before):
        edited = Mesh.of(dict(zip(names, after, strict=True)))
        for file in workshop.files:
            for line, splices in resized_meshes(workshop.source(file), names, before, after):
                source = SourceLocation(file, line)
                edit = SourceEdit("mesh sizes", "", None, None, source, mesh=edited)
                written: Splices = {file: splices}
                yield Proposal(edit, None, partial(dict, written))


def sizes_near(sizes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The other sizes with the same product, those first for which least is moved.

    Args:
        sizes: of each axis.
    """

    def moved(other: tuple[int, ...]) -> float:
        return sum(abs(math.log(size / was)) for size, was in zip(other, sizes, strict=True))

    every = [each for each in _factors(math.prod(sizes), len(sizes)) if each != sizes]
    return sorted(every, key=lambda other: (round(moved(other), 9), other))


def _factors(size: int, count: int) -> Iterator[tuple[int, ...]]:
    """All ways to write a size as a product of so many."""
    if count == 1:
        yield (size,)
        return
    for first in range(1, size + 1):
        if size % first == 0:
            yield from ((first, *rest) for rest in _factors(size // first, count - 1))
