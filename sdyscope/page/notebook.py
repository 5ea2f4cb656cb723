"""What a notebook shows of an inspection or of a sharding, when it is the last thing in a cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import jinja2

from sdyscope.analysis.show import ShownTensor, shown
from sdyscope.errors import ConversionError
from sdyscope.inspection import Inspection
from sdyscope.page.svg import placement_svg
from sdyscope.terminal import table
from sdyscope.values.convert import AnySharding, to_placement
from sdyscope.values.mesh import Mesh
from sdyscope.values.sharding import NamedSharding, TensorSharding
from sdyscope.values.tiling import HloSharding
from sdyscope.words.counts import size
from sdyscope.words.findings import check_summary
from sdyscope.words.mesh import mesh_words_of
from sdyscope.words.remarks import remark_texts
from sdyscope.words.sharding import NONE, placement_text, short

__all__ = ["ShownSharding", "html", "show_sharding"]

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
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("sdyscope.reports", ""),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("notebook.html.j2").render(
        shown=program,
        meshes=mesh_words_of(program.meshes),
        mark="✓" if checked.passed else "✗",
        summary=check_summary(checked),
        rows=rows,
        more=len(tensors) - len(rows),
    )


@html.register
def _sharding(sharding: NamedSharding | TensorSharding | HloSharding) -> str | None:
    """The devices in the colours of their blocks; None where it is not known how many there are."""
    try:
        return show_sharding(sharding).svg
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
    if tensor.requested is not None and tensor.agrees and all(tensor.agrees.values()):
        return "as requested"
    said = {p: short(there) for p, there in tensor.lowered.items()}
    if len(set(said.values())) == 1:
        return next(iter(said.values()))
    return ", ".join(f"{words} under {p}" for p, words in said.items()) or "missing"


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
            array of JAX, or a ShapeDtypeStruct, with one.
        shape: shape of the whole tensor, to say the blocks' too; by default the array's, or as many
            dimensions as the sharding names.

    Raises:
        ConversionError: it has no placement, or is for another number of dimensions.
    """
    of_array = getattr(sharding, "sharding", None)
    if of_array is not None and hasattr(sharding, "shape"):
        sharding, shape = of_array, shape or sharding.shape
    if not isinstance(sharding, NamedSharding | TensorSharding | HloSharding):
        from sdyscope.stages.lowered.request import from_jax_sharding

        spec = getattr(sharding, "spec", ())
        own, remarks = from_jax_sharding(sharding, len(spec) if shape is None else len(shape))
        if own is None:
            why = " ".join(remark_texts(remarks)) or f"{sharding!r} is on no mesh."
            raise ConversionError(why, hint="Give a NamedSharding on a mesh.")
        sharding = own
    mesh, rank = _mesh_and_rank(sharding)
    if rank is None:
        raise ConversionError(
            "It is not known on how many devices this is.", hint="Give a NamedSharding on a mesh."
        )
    place = to_placement(sharding, rank if shape is None else len(shape), mesh)
    words = placement_text(place, mesh)
    title = str(sharding)
    if shape is not None:
        blocks = tuple(place.local_shape(shape))
        words = f"{words}; blocks of {list(blocks)} of {list(shape)}"
        title = f"{list(shape)} {title}"
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
