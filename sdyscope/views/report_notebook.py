"""What a notebook shows of an inspection or of a sharding, when it is the last thing in a cell."""

from __future__ import annotations

import jinja2

from sdyscope.convert import AnySharding, to_placement
from sdyscope.errors import ConversionError
from sdyscope.inspection import Inspection
from sdyscope.mesh import Mesh
from sdyscope.sharding import NamedSharding, TensorSharding
from sdyscope.tiling import HloSharding
from sdyscope.views import check, show
from sdyscope.views.report_svg import placement_svg
from sdyscope.views.show_table import mesh_words
from sdyscope.views.table import shape, size

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
                f"{tensor.dtype}[?]" if tensor.shape is None else shape(tensor.shape, tensor.dtype),
                tensor.requested.short if tensor.requested is not None else "-",
                _lowered(tensor),
                "-" if block is None else shape(block),
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


def sharding_html(sharding: AnySharding) -> str | None:
    """The devices in the colours of their blocks; None where it is not known how many there are."""
    mesh: Mesh | None = None
    if isinstance(sharding, NamedSharding):
        mesh, rank = sharding.mesh, len(sharding.spec.entries)
    elif isinstance(sharding, TensorSharding):
        if not isinstance(sharding.mesh, Mesh):
            return None  # A symbol, which only a module knows.
        mesh, rank = sharding.mesh, len(sharding.dim_shardings)
    elif isinstance(sharding, HloSharding) and sharding.tile_assignment is not None:
        rank = len(sharding.tile_assignment.dims) - len(sharding.subgroup_types)
    else:
        return None
    try:
        return placement_svg(to_placement(sharding, rank, mesh), mesh, str(sharding))
    except ConversionError:
        return None
