"""What a notebook shows of an inspection or of a sharding, when it is the last thing in a cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jinja2

from sdyscope.convert import AnySharding, in_words, to_placement
from sdyscope.errors import ConversionError
from sdyscope.inspection import Inspection
from sdyscope.mesh import Mesh
from sdyscope.sharding import NamedSharding, TensorSharding
from sdyscope.tiling import HloSharding
from sdyscope.views import check, show, table
from sdyscope.views.meshes import mesh_words
from sdyscope.views.report_svg import placement_svg
from sdyscope.views.table import size

#: Rows of the table; a notebook is no place for thousands.
_ROWS = 30


def inspection_html(inspection: Inspection) -> str:
    """The program, whether it is lowered as requested, and its first tensors. Nothing is compiled.

    Raises:
      SdyscopeError: the program can't be lowered.
    """
    shown = show.shown(inspection)
    checked = check.document(inspection, inspection.check())
    tensors = [tensor for tensor in shown.tensors if tensor.by_author or not checked.compared]
    rows = []
    for tensor in tensors[:_ROWS]:
        place = show.placement(tensor)
        block = None if place is None else place.local_shape
        rows.append(
            (
                tensor.name,
                f"{tensor.dtype}[?]"
                if tensor.shape is None
                else table.shape(tensor.shape, tensor.dtype),
                tensor.requested.short if tensor.requested is not None else "-",
                _lowered(tensor),
                "-" if block is None else table.shape(block),
                size(None if place is None else place.bytes_per_device),
                "-" if place is None else f"{place.copies:,}",
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
        shown=shown,
        meshes=[mesh_words(mesh) for mesh in shown.meshes],
        mark="✓" if checked.passed else "✗",
        summary=check.summary(checked),
        rows=rows,
        more=len(tensors) - len(rows),
    )


def _type(tensor: show.ShownTensor) -> str:
    if tensor.shape is None:
        return f"{tensor.dtype}[?]"
    return table.shape(tensor.shape, tensor.dtype)


def _lowered(tensor: show.ShownTensor) -> str:
    """`as requested`, or what each module says."""
    if tensor.dropped:
        return "dropped"
    if tensor.requested is not None and tensor.agrees and all(tensor.agrees.values()):
        return "as requested"
    said = {p: there.short or "-" for p, there in tensor.lowered.items()}
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
        from sdyscope.stages.request import from_jax_sharding

        spec = getattr(sharding, "spec", ())
        own, notes = from_jax_sharding(sharding, len(spec) if shape is None else len(shape))
        if own is None:
            why = " ".join(notes) or f"{sharding!r} is on no mesh."
            raise ConversionError(why, hint="Give a NamedSharding on a mesh.")
        sharding = own
    mesh, rank = _mesh_and_rank(sharding)
    if rank is None:
        raise ConversionError(
            "It is not known on how many devices this is.", hint="Give a NamedSharding on a mesh."
        )
    place = to_placement(sharding, rank if shape is None else len(shape), mesh)
    words = in_words(place, mesh)
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


def sharding_html(sharding: AnySharding) -> str | None:
    """The devices in the colours of their blocks; None where it is not known how many there are."""
    try:
        return show_sharding(sharding).svg
    except ConversionError:
        return None
