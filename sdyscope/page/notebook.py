"""What a notebook shows of a value that is the last thing in a cell, such as a program or edits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

from sdyscope.analysis.fix.values import Fix
from sdyscope.analysis.show import ShownTensor, shown
from sdyscope.analysis.slices import tensor_sharding
from sdyscope.errors import ConversionError
from sdyscope.facts.differences import LoweredDiff
from sdyscope.facts.over_time import CATEGORIES, MemoryOverTime
from sdyscope.facts.tensors import Tensor
from sdyscope.inspection import Inspection
from sdyscope.page.edits import edits
from sdyscope.page.svg import placement_svg
from sdyscope.page.templates import environment
from sdyscope.terminal import table
from sdyscope.values.convert import AnySharding, to_placement
from sdyscope.values.mesh import Mesh
from sdyscope.values.placement import Placement
from sdyscope.values.sharding import NamedSharding, TensorSharding
from sdyscope.values.tiling import HloSharding
from sdyscope.words.counts import size
from sdyscope.words.differences import lowered_verdict
from sdyscope.words.findings import check_summary
from sdyscope.words.hardware import compiled_text
from sdyscope.words.mesh import mesh_words_of
from sdyscope.words.over_time import AT_PEAK, TITLE, holding_name, peak_sentence
from sdyscope.words.partitioners import partitioner_name
from sdyscope.words.places import shown_name, source_text
from sdyscope.words.remarks import remark_texts
from sdyscope.words.sharding import AT_MOST, NONE, blocks_text, placement_text, short
from sdyscope.words.stages import lowered_words

#: Rows of the table; a notebook is no place for thousands.
_ROWS = 30


@singledispatch
def html(value: object) -> str | None:
    """What a notebook shows of a value; None where its text says as much."""
    return None


@html.register
def _inspection(inspection: Inspection) -> str:
    """The program, whether it is lowered as requested, and its first tensors. Nothing is compiled.

    Raises:
        SdyscopeError: the program can't be lowered.
    """
    program = shown(inspection)
    checked = inspection.check()
    tensors = [tensor for tensor in program.tensors if tensor.by_author or not checked.compared]
    rows = []
    for tensor in tensors[:_ROWS]:
        place = tensor.placement
        block = None if place is None else place.local_shape
        replicas = None if place is None or place.placement is None else place.placement.replication
        rows.append(
            (
                tensor.name,
                _type(tensor),
                short(tensor.requested) if tensor.requested is not None else NONE,
                _lowered(tensor),
                "-" if block is None else table.shape(block),
                size(None if place is None else place.bytes_per_device),
                "-" if replicas is None else f"{replicas:,}",
            )
        )
    is_file = program.file is not None
    by = lowered_words(program.jax_version, program.recorded_by, is_file=is_file)
    return _rendered(
        title=program.name,
        about="; ".join((*mesh_words_of(program.meshes), *by)),
        lines=[
            f"{'✓' if checked.passed else '✗'} {check_summary(checked)}",
            *([AT_MOST] if any(tensor.is_bound for tensor in tensors[:_ROWS]) else []),
        ],
        heads=("tensor", "type", "requested", "lowered", "block", "bytes", "replicas"),
        written=(1, 2, 4),
        rows=rows,
        more=len(tensors) - len(rows),
        is_program=True,
    )


@html.register
def _difference(diff: LoweredDiff) -> str:
    """The verdict, and the tensors that differ."""
    rows = [
        (
            shown_name(difference.tensor, difference.kind),
            *(
                NONE if side is None or side.sharding is None else short(side.sharding)
                for side in (difference.a, difference.b)
            ),
        )
        for difference in diff.tensors
    ]
    return _rendered(
        title=diff.name,
        about=f"{diff.a} and {diff.b}, as lowered",
        lines=[f"{'✓' if diff.same else '≠'} {lowered_verdict(diff)}"],
        heads=("tensor", diff.a, diff.b),
        written=(1, 2),
        rows=rows[:_ROWS],
        more=len(rows) - _ROWS,
    )


@html.register
def _fix(fix: Fix) -> str:
    """The remedies with figures now and then, and the patch of the best."""
    looked_for = edits(fix)
    rows = [
        (
            each.title,
            "; ".join(f"{change} {line}".strip() for change, line in each.changes),
            *(f"{name}: {now} → {then}" for name, now, then in each.figures),
        )
        for each in looked_for.remedies
    ]
    best = next(iter(looked_for.remedies), None)
    return _rendered(
        title=fix.name,
        about=compiled_text(fix.hardware, by=f"JAX {fix.jax_version}"),
        lines=[looked_for.words, *([] if best is None else [best.proof])],
        rows=rows[:_ROWS],
        more=len(rows) - _ROWS,
        code="" if best is None else best.patch,
    )


@html.register
def _memory(over_time: MemoryOverTime) -> str:
    """The step from its first instruction to its last, and what is held at the peak."""
    rows = [
        (size(held.bytes), holding_name(held), held.array.partition("{")[0], held.category,
         source_text(held.source))
        for held in over_time.held[:_ROWS]
    ]  # fmt: skip
    return _rendered(
        title=TITLE,
        about=compiled_text(over_time.hardware, over_time.device_kind),
        lines=[peak_sentence(over_time)],
        bands=list(_bands(over_time)),
        heads=("bytes", AT_PEAK, "block", "for", "line"),
        written=(2,),
        rows=rows,
        more=len(over_time.held) - len(rows),
    )


def _bands(over_time: MemoryOverTime) -> Iterator[dict[str, str]]:
    """An area for each thing that memory is held for, one above the other."""
    moments = over_time.moments
    top, width = max(over_time.peak, 1), 1000 / max(len(moments), 1)
    below = [0] * len(moments)
    for number, category in enumerate(CATEGORIES):
        if not any(moment.by_category.get(category) for moment in moments):
            continue
        above = [
            base + moment.by_category.get(category, 0)
            for base, moment in zip(below, moments, strict=True)
        ]
        corners = [
            f"{at * width:.1f} {120 - 120 * bytes_ / top:.1f}"
            for row, order in ((above, 1), (below, -1))
            for bytes_, at in list(_steps(row))[::order]
        ]
        hue = round(number * 137.508) % 360
        yield {
            "name": category,
            "path": f"M{'L'.join(corners)}Z",
            "colour": f"hsl({hue} 45% 55%)",
        }
        below = above


def _steps(row: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Both ends of each moment's part of the step."""
    for at, bytes_ in enumerate(row):
        yield bytes_, at
        yield bytes_, at + 1


def _rendered(**parts: Any) -> str:
    """The parts that there are: a title, lines, bands of a picture, a table, code."""
    nothing = {"bands": (), "heads": (), "written": (), "is_program": False, "code": ""}
    parts["more"] = max(parts["more"], 0)
    return environment().get_template("notebook.html.j2").render(**(nothing | parts))


@html.register
def _sharding(sharded: Tensor | NamedSharding | TensorSharding | HloSharding) -> str | None:
    """The devices in the colours of their blocks; None where it is not known how many there are."""
    try:
        return show_sharding(sharded).svg
    except ConversionError:
        return None


def _type(tensor: ShownTensor) -> str:
    if tensor.shape is None:
        return f"{tensor.dtype}[?]"
    return table.shape(tensor.shape, tensor.dtype)


def _lowered(tensor: ShownTensor) -> str:
    """`as requested`, or what each module says."""
    if tensor.dropped:
        return "dropped"
    if tensor.requested is not None and tensor.agrees and not tensor.disagrees:
        return "as requested"
    said = {partitioner_name(p): short(there) for p, there in tensor.lowered.items()}
    if len(set(said.values())) == 1:
        return next(iter(said.values()))
    return ", ".join(f"{words} under {name}" for name, words in said.items()) or "missing"


@dataclass(frozen=True, slots=True)
class ShownSharding:
    """A sharding as a picture: a notebook shows it, and `svg` is a file's content.

    Attributes:
        svg: the devices in the colours of their blocks.
        words: what it does, in words.
    """

    svg: str
    words: str

    def __str__(self) -> str:
        return self.words

    def _repr_html_(self) -> str:
        return self.svg


def show_sharding(sharding: Any, shape: Sequence[int] | None = None) -> ShownSharding:
    """Which device holds which block, as a picture in a notebook.

    Args:
        sharding: a NamedSharding of JAX or of sdyscope, a TensorSharding or an HloSharding; or an
            array of JAX, or a ShapeDtypeStruct, with one; or a tensor of an inspection, which is
            where the program requests it, or where the shard_map that returns it puts it.
        shape: shape of the whole tensor, to say the blocks' too; by default the array's, or as many
            dimensions as the sharding names.

    Raises:
        ConversionError: it has no placement, or is for another number of dimensions.
    """
    if isinstance(sharding, Tensor):
        return _shown_tensor(sharding)
    of_array = getattr(sharding, "sharding", None)
    if of_array is not None and hasattr(sharding, "shape"):
        sharding, shape = of_array, shape or sharding.shape
    if not isinstance(sharding, NamedSharding | TensorSharding | HloSharding):
        from sdyscope.stages.lowered.request import from_jax_sharding

        spec = getattr(sharding, "spec", ())
        own, remarks = from_jax_sharding(sharding, len(spec) if shape is None else len(shape))
        if own is None:
            raise ConversionError(
                " ".join(remark_texts(remarks)) or f"{sharding!r} is on no mesh.",
                hint="Give a NamedSharding on a mesh.",
            )
        sharding = own
    mesh, rank = _mesh_and_rank(sharding)
    if rank is None:
        raise ConversionError(
            "It is not known on how many devices this is.", hint="Give a NamedSharding on a mesh."
        )
    place = to_placement(sharding, rank if shape is None else len(shape), mesh)
    title = str(sharding) if shape is None else f"{list(shape)} {sharding}"
    return _drawn(place, mesh, title, shape)


def _shown_tensor(tensor: Tensor) -> ShownSharding:
    sharded = tensor_sharding(tensor)
    if sharded is None or sharded.placement is None:
        raise ConversionError(f"{tensor.name} is left to the compiler.")
    shape = "" if tensor.shape is None else f"{list(tensor.shape)} "
    title = f"{tensor.name} {shape}{sharded.text}"
    return _drawn(sharded.placement, sharded.mesh, title, tensor.shape)


def _drawn(
    place: Placement, mesh: Mesh | None, title: str, shape: Sequence[int] | None
) -> ShownSharding:
    words = placement_text(place, mesh)
    if shape is not None:
        blocks = tuple(place.local_shape(shape))
        words = f"{words}; {blocks_text(blocks, shape)}"
    return ShownSharding(placement_svg(place, mesh, title), words)


def _mesh_and_rank(sharding: AnySharding) -> tuple[Mesh | None, int | None]:
    """The mesh, where one is named, and the number of dimensions; None where it is not known."""
    if isinstance(sharding, NamedSharding):
        return sharding.mesh, len(sharding.spec.entries)
    if isinstance(sharding, TensorSharding):
        if not isinstance(sharding.mesh, Mesh):
            return None, None  # A symbol, which only a module knows.
        return sharding.mesh, len(sharding.dim_shardings)
    if isinstance(sharding, HloSharding) and sharding.tile_assignment is not None:
        return None, len(sharding.tile_assignment.dims) - len(sharding.subgroup_types)
    return None, None
