"""Hypothesis strategies for HLO's forms of shardings and for replica groups; all valid."""

import math

import strategies
from hypothesis import strategies as st

from sdyscope.values.mesh import IotaTile
from sdyscope.values.replica_groups import (
    CollectiveDeviceList,
    IotaReplicaGroupList,
    MeshAxesReplicaGroupList,
)
from sdyscope.values.sharding import DimSharding
from sdyscope.values.tiling import (
    HloSharding,
    NamedHloSharding,
    OpMetadata,
    ShardGroup,
    SubgroupType,
    TileAssignment,
    TupleSharding,
)

_STRINGS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
_NUMBERS = st.integers(1, (1 << 31) - 1)
#: Every field of OpMetadata, in the order in which XLA prints them.
_FIELDS = {
    "op_type": _STRINGS,
    "op_name": _STRINGS,
    "source_file": _STRINGS,
    "source_line": _NUMBERS,
    "source_end_line": _NUMBERS,
    "source_column": _NUMBERS,
    "source_end_column": _NUMBERS,
    "profile_type": st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple),
    "deduplicated_name": _STRINGS,
    "scheduling_name": st.sampled_from(["all-reduce.1", "fusion"]),
    "stack_frame_id": _NUMBERS,
}


@st.composite
def op_metadata(draw: st.DrawFn) -> OpMetadata:
    """Metadata with some of the fields that XLA of every version knows."""
    late = {"source_end_line", "source_column", "source_end_column", "stack_frame_id"}
    names = [name for name in _FIELDS if name not in late]
    wanted = draw(st.lists(st.booleans(), min_size=len(names), max_size=len(names)))
    chosen = [name for name, keep in zip(names, wanted, strict=True) if keep]
    return OpMetadata(tuple((name, draw(_FIELDS[name])) for name in chosen))


metadata_lists = st.lists(op_metadata(), max_size=3).map(tuple)
shard_groups = st.builds(
    ShardGroup, st.sampled_from(["shard_as", "shard_like"]), st.integers(-3, 1 << 40)
)


@st.composite
def tile_assignments(draw: st.DrawFn, *, min_dims: int = 1) -> TileAssignment:
    """Tiles over devices in order, transposed, shuffled, or listed with gaps."""
    count = draw(st.integers(min_dims, 5))
    dims: list[int] = []
    for _ in range(count):
        sizes = [s for s in strategies.AXIS_SIZES if math.prod(dims) * s <= 96]
        dims.append(draw(st.sampled_from(sizes)))
    total = math.prod(dims)
    if draw(st.integers(0, 9)) == 0 and total > 1:
        return TileAssignment(tuple(dims), tuple(draw(st.permutations(range(3, total + 3)))))
    order = draw(strategies.device_orders(total)) or IotaTile.identity(total)
    return TileAssignment(tuple(dims), order)


@st.composite
def hlo_shardings(draw: st.DrawFn, *, metadata: bool = True) -> HloSharding:
    """A sharding in the classic form, of every type."""
    kind = draw(
        st.sampled_from(["replicated", "manual", "maximal", "unknown", "unreduced", *["tiled"] * 7])
    )
    tile, types, device = None, (), None
    if kind == "tiled":
        tile = draw(tile_assignments())
        subgroups = st.sampled_from(("replicated", "manual", "unreduced"))
        drawn: list[SubgroupType] = draw(st.lists(subgroups, max_size=len(tile.dims)))
        types = tuple(drawn)
    elif kind == "maximal":
        device = draw(st.integers(0, 1 << 40))
    return HloSharding(
        kind,
        tile,
        types,
        device,
        draw(st.none() | shard_groups),
        draw(metadata_lists) if metadata else (),
    )


@st.composite
def named_hlo_shardings(
    draw: st.DrawFn, *, metadata: bool = True, reductions: tuple[str, ...] = ("sum",)
) -> NamedHloSharding:
    """A sharding in the named form, over meshes with odd names too."""
    labels = draw(metadata_lists) if metadata else ()
    if draw(st.integers(0, 19)) == 0:
        return NamedHloSharding(draw(strategies.maximal_meshes), metadata=labels)
    mesh = draw(strategies.meshes(names=strategies.any_names))
    rank = draw(st.integers(0, 4))
    bins: list[list] = [[] for _ in range(rank + 4)]
    for axis in draw(strategies.split_axes(mesh)):
        bins[draw(st.integers(0, rank + 3))].append(axis)
    lists = [strategies._unmergeable(mesh, axes) for axes in bins]
    for k in range(rank, rank + 3):  # in the mesh's order, neighbours may become one
        rank_of = {axis.name: position for position, axis in enumerate(mesh.axes)}
        ordered = sorted(
            lists[k],
            key=lambda a: (rank_of[a.name], a.sub_axis_info.pre_size if a.sub_axis_info else 0),
        )
        lists[k] = strategies._unmergeable(mesh, ordered)
    dims = tuple(DimSharding(axes, draw(st.booleans())) for axes in lists[:rank])
    return NamedHloSharding(
        mesh,
        dims,
        *lists[rank : rank + 3],
        reduction=draw(st.sampled_from(reductions)),
        metadata=labels,
    )


def tuple_shardings(
    leaves: st.SearchStrategy[HloSharding | NamedHloSharding],
) -> st.SearchStrategy[TupleSharding]:
    """A tuple of up to six shardings."""
    return st.lists(leaves, max_size=6).map(lambda leaf: TupleSharding(tuple(leaf)))


@st.composite
def device_lists(draw: st.DrawFn) -> CollectiveDeviceList:
    """Groups listed device by device, of any sizes."""
    devices = draw(st.permutations(range(draw(st.integers(0, 12)))))
    groups: list[tuple[int, ...]] = []
    while devices:
        size = draw(st.integers(0, len(devices)))
        groups.append(tuple(devices[:size]))
        devices = devices[size:] if size else devices[1:]
    return CollectiveDeviceList(tuple(groups))


@st.composite
def iota_groups(draw: st.DrawFn) -> IotaReplicaGroupList:
    """Groups of one size over an iota order."""
    num_groups, size = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    order = draw(strategies.device_orders(num_groups * size))
    if not isinstance(order, IotaTile):
        order = IotaTile.identity(num_groups * size)
    return IotaReplicaGroupList(num_groups, size, order)


@st.composite
def mesh_axes_groups(
    draw: st.DrawFn, *, names: st.SearchStrategy[str] = strategies.any_names
) -> MeshAxesReplicaGroupList:
    """Groups along axes and sub-axes of a mesh."""
    mesh = draw(strategies.meshes(names=names, max_devices=64))
    axes = draw(strategies.split_axes(mesh))
    return MeshAxesReplicaGroupList(mesh, strategies._unmergeable(mesh, axes))
