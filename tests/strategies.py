"""Hypothesis strategies for what every test draws: meshes, axes, shardings, specs, shapes.

Everything drawn is valid: axes exist, sub-axes divide them, nothing is used twice. Meshes have up
to five axes, sizes with primes and 1, and device orders of every kind (in order, transposed,
shuffled).
"""

import math
import random

from hypothesis import strategies as st

from sdyscope.values.mesh import AxisRef, IotaTile, Mesh, MeshAxis, SubAxisInfo
from sdyscope.values.sharding import (
    UNCONSTRAINED,
    DimSharding,
    ManualAxes,
    NamedSharding,
    PartitionSpec,
    SpecEntry,
    TensorSharding,
    TensorShardingPerValue,
)

AXIS_SIZES = (1, 2, 2, 3, 4, 4, 5, 6, 7, 8, 11, 12, 13, 16)

#: Names as programs have them.
plain_names = st.sampled_from(
    ["a", "b", "c", "d", "e", "x", "y", "data", "model", "fsdp", "expert", "_axis_0", "mesh", "p1"]
)
#: Names that try the quoting: spaces, quotes, escapes, any Unicode but lone surrogates.
odd_names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
any_names = st.one_of(plain_names, plain_names, odd_names)


@st.composite
def device_orders(draw: st.DrawFn, total: int) -> IotaTile | tuple[int, ...] | None:
    """An order of ``total`` devices: None, a transposed iota, or any permutation."""
    kind = draw(st.sampled_from(["in order", "transposed", "shuffled"]))
    if kind == "in order":
        return None
    if kind == "shuffled" and total <= 8:
        return tuple(draw(st.permutations(range(total))))
    if kind == "shuffled":
        # A draw for each device would take longer than all else in most tests.
        devices = list(range(total))
        random.Random(draw(st.integers(0, 1 << 32))).shuffle(devices)
        return tuple(devices)
    dims, rest = [], total
    while rest > 1 and len(dims) < 4:
        dims.append(draw(st.sampled_from([d for d in range(1, rest + 1) if rest % d == 0])))
        rest //= dims[-1]
    dims.append(rest)
    return IotaTile(tuple(dims), tuple(draw(st.permutations(range(len(dims))))))


@st.composite
def meshes(
    draw: st.DrawFn,
    *,
    min_axes: int = 1,
    max_axes: int = 5,
    max_devices: int = 256,
    reorder: bool = True,
    names: st.SearchStrategy[str] = plain_names,
) -> Mesh:
    """A mesh of at most ``max_devices`` devices, in any order unless ``reorder`` is false."""
    count = draw(st.integers(min_axes, max_axes))
    axis_names = draw(st.lists(names, min_size=count, max_size=count, unique=True))
    axes, total = [], 1
    for name in axis_names:
        size = draw(st.sampled_from([s for s in AXIS_SIZES if total * s <= max_devices]))
        axes.append(MeshAxis(name, size))
        total *= size
    order = draw(device_orders(total)) if reorder and axes else None
    return Mesh(tuple(axes), order)


maximal_meshes = st.integers(0, 40).map(lambda device: Mesh((), (device,)))


@st.composite
def split_axes(draw: st.DrawFn, mesh: Mesh, *, sub_axes: bool = True) -> list[AxisRef]:
    """Axes and sub-axes of a mesh that do not overlap, in any order; some are left out."""
    refs: list[AxisRef] = []
    for axis in mesh.axes:
        if not sub_axes or axis.size < 4 or draw(st.booleans()):
            refs.append(AxisRef(axis.name))
            continue
        before = 1
        while before < axis.size:
            rest = axis.size // before
            part = draw(st.sampled_from([d for d in range(2, rest + 1) if rest % d == 0]))
            info = SubAxisInfo(before, part) if part < axis.size else None
            refs.append(AxisRef(axis.name, info))
            before *= part
    keep = draw(st.lists(st.booleans(), min_size=len(refs), max_size=len(refs)))
    kept = [ref for ref, wanted in zip(refs, keep, strict=True) if wanted]
    return draw(st.permutations(kept))


@st.composite
def axis_refs(draw: st.DrawFn, mesh: Mesh, *, sub_axes: bool = True) -> AxisRef:
    """One axis or sub-axis of a mesh that has axes."""
    axis = draw(st.sampled_from(mesh.axes))
    parts = [
        SubAxisInfo(before, size)
        for before in range(1, axis.size)
        if axis.size % before == 0
        for size in range(2, axis.size // before + 1)
        if (axis.size // before) % size == 0 and size < axis.size
    ]
    if not sub_axes or not parts or draw(st.booleans()):
        return AxisRef(axis.name)
    return AxisRef(axis.name, draw(st.sampled_from(parts)))


def _mergeable(mesh: Mesh, major: AxisRef, minor: AxisRef) -> bool:
    """Whether two neighbours are really one sub-axis, which Shardy's verifier refuses."""
    first, second = major.sub_axis_info, minor.sub_axis_info
    return (
        major.name == minor.name
        and first is not None
        and second is not None
        and first.pre_size * first.size == second.pre_size
    )


def _unmergeable(mesh: Mesh, refs: list[AxisRef]) -> tuple[AxisRef, ...]:
    kept: list[AxisRef] = []
    for ref in refs:
        if not kept or not _mergeable(mesh, kept[-1], ref):
            kept.append(ref)
    return tuple(kept)


@st.composite
def tensor_shardings(
    draw: st.DrawFn,
    mesh: Mesh,
    *,
    rank: int | None = None,
    mesh_ref: str | Mesh | None = None,
    sub_axes: bool = True,
    is_open: bool = True,
    priorities: bool = True,
    replicated: bool = True,
    unreduced: bool = True,
    reductions: tuple[str, ...] = ("sum",),
) -> TensorSharding:
    """A sharding over ``mesh`` of a tensor of rank ``rank`` (default: 0 to 4).

    It refers to the mesh as ``mesh_ref`` (default: inlined). The switches turn off what a test
    can't use; ``max`` and ``min`` in ``reductions`` need JAX 0.12.
    """
    rank = draw(st.integers(0, 4)) if rank is None else rank
    bins: list[list[AxisRef]] = [[] for _ in range(rank + 3)]
    allowed = [*range(rank), rank]  # bin `rank` holds what is not used
    allowed += [rank + 1] if replicated else []
    allowed += [rank + 2] if unreduced else []
    for ref in draw(split_axes(mesh, sub_axes=sub_axes)):
        bins[draw(st.sampled_from(allowed))].append(ref)
    dims = tuple(
        DimSharding(
            _unmergeable(mesh, bins[dim]),
            is_closed=not is_open or draw(st.booleans()),
            priority=draw(st.none() | st.integers(0, 3)) if priorities else None,
        )
        for dim in range(rank)
    )
    order = {axis.name: position for position, axis in enumerate(mesh.axes)}

    def in_mesh_order(refs: list[AxisRef]) -> tuple[AxisRef, ...]:
        # Shardy wants these two lists sorted as the mesh is.
        def key(ref: AxisRef) -> tuple[int, int]:
            return order[ref.name], ref.sub_axis_info.pre_size if ref.sub_axis_info else 0

        return _unmergeable(mesh, sorted(refs, key=key))

    reduced = in_mesh_order(bins[rank + 2])
    return TensorSharding(
        mesh if mesh_ref is None else mesh_ref,
        dims,
        in_mesh_order(bins[rank + 1]),
        reduced,
        draw(st.sampled_from(reductions)) if reduced else "sum",  # type: ignore[arg-type]
    )


@st.composite
def shardings_per_value(draw: st.DrawFn, mesh: Mesh) -> TensorShardingPerValue:
    """Shardings of zero to three values over one mesh, called @mesh."""
    one = tensor_shardings(mesh, mesh_ref="mesh")
    return TensorShardingPerValue(tuple(draw(st.lists(one, max_size=3))))


@st.composite
def manual_axes(draw: st.DrawFn, mesh: Mesh) -> ManualAxes:
    """Some of the axes of a mesh, in any order."""
    names = draw(st.permutations([axis.name for axis in mesh.axes]))
    return ManualAxes(tuple(names[: draw(st.integers(0, len(names)))]))


@st.composite
def partition_specs(
    draw: st.DrawFn,
    mesh: Mesh,
    *,
    rank: int | None = None,
    unconstrained: bool = True,
    unreduced: bool = False,
) -> PartitionSpec:
    """A ``PartitionSpec`` for a tensor of rank ``rank`` (default: 0 to 4), maybe shorter."""
    rank = draw(st.integers(0, 4)) if rank is None else rank
    length = draw(st.integers(0, rank))
    bins: list[list[str]] = [[] for _ in range(length + 2)]
    last = length + 1 if unreduced else length
    for ref in draw(split_axes(mesh, sub_axes=False)):
        bins[draw(st.integers(0, last))].append(ref.name)
    entries: list[SpecEntry] = []
    for names in bins[:length]:
        if not names and unconstrained and draw(st.booleans()):
            entries.append(UNCONSTRAINED)
        else:
            entries.append(tuple(names) if names else None)
    return PartitionSpec(tuple(entries), frozenset(bins[length + 1]))


@st.composite
def named_shardings(
    draw: st.DrawFn, mesh: Mesh, *, rank: int | None = None, unconstrained: bool = True
) -> NamedSharding:
    """JAX's ``NamedSharding`` over ``mesh``."""
    spec = draw(partition_specs(mesh, rank=rank, unconstrained=unconstrained))
    return NamedSharding(mesh, spec)


def shard_counts(mesh: Mesh, sharding: TensorSharding) -> list[int]:
    """Into how many parts each dimension is split."""
    return [math.prod(map(mesh.axis_size, dim.axes)) for dim in sharding.dim_shardings]


@st.composite
def shapes(draw: st.DrawFn, counts: list[int], *, divisible: bool | None = None) -> tuple[int, ...]:
    """A shape with one dimension for each of ``counts``, the parts it is split into.

    With ``divisible`` each dimension is a multiple of its count; with None, maybe.
    """
    if divisible is None:
        divisible = draw(st.booleans())
    if divisible:
        return tuple(count * draw(st.integers(1, 4)) for count in counts)
    return tuple(draw(st.integers(1, 4 * count + 1)) for count in counts)
