"""From one way of writing a sharding to another, in every direction in which one exists.

Where a form can't say what another says (``PartitionSpec`` has no sub-axes, the classic HLO form
no axis names), the conversion raises rather than lose it. All forms share their placement.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from sdyscope.errors import ConversionError
from sdyscope.values.mesh import AxisRef, IotaTile, Mesh, SubAxisInfo
from sdyscope.values.placement import (
    Digit,
    Placement,
    hlo_sharding_placement,
    named_hlo_sharding_placement,
    named_sharding_placement,
    tensor_sharding_placement,
    through_order,
    unused_digits,
)
from sdyscope.values.sharding import (
    UNCONSTRAINED,
    DimSharding,
    NamedSharding,
    PartitionSpec,
    SpecEntry,
    TensorSharding,
    entry_axes,
)
from sdyscope.values.tiling import HloSharding, NamedHloSharding, SubgroupType, TileAssignment

AnySharding = NamedSharding | TensorSharding | NamedHloSharding | HloSharding


@lru_cache(maxsize=65536)  # a module says the same few shardings of thousands of tensors
def to_placement(
    sharding: AnySharding, rank: int, mesh: Mesh | None = None, num_devices: int | None = None
) -> Placement:
    """The placement of a sharding in any form, for a tensor of ``rank`` dimensions.

    Args:
        sharding: the sharding.
        rank: number of dimensions of the tensor.
        mesh: what the mesh symbol of a Shardy sharding names.
        num_devices: number of partitions, for the classic HLO form (default: the mesh's size, or
            the sharding's own number of devices) and for a mesh of one device.

    Raises:
        ConversionError: it has no placement, or is not for a tensor of this rank.
    """
    match sharding:
        case NamedSharding():
            return named_sharding_placement(sharding, rank)
        case TensorSharding():
            own = sharding.mesh if isinstance(sharding.mesh, Mesh) else mesh
            if own is not None and own.is_maximal and not sharding.dim_shardings:
                # JAX writes so, whatever the rank, of what a callback to the host takes and gives.
                device = own.devices()[0]
                return Placement(num_devices or device + 1, ((),) * rank, device=device)
            _check_rank(sharding, rank)
            if own is not None and own.device_ids is None and own.size == 1 and num_devices:
                # On a mesh that divides nothing, all is whole on each of the devices that there
                # are: so XLA runs what was exported for one device and is called from many.
                return Placement(num_devices, ((),) * rank)
            return tensor_sharding_placement(sharding, mesh)
        case NamedHloSharding():
            if sharding.dim_shardings:
                _check_rank(sharding, rank)
            if sharding.mesh.is_maximal and num_devices:
                # Of device 0 alone the mesh is as of one device, which has everything whole.
                (device,) = sharding.mesh.devices()
                return Placement(num_devices, ((),) * rank, device=device)
            return named_hlo_sharding_placement(sharding, rank)
        case HloSharding():
            assigned = sharding.tile_assignment.num_devices if sharding.tile_assignment else 1
            count = num_devices or (mesh.size if mesh is not None else assigned)
            return hlo_sharding_placement(sharding, count, rank)


def _check_rank(sharding: TensorSharding | NamedHloSharding, rank: int) -> None:
    own = len(sharding.dim_shardings)
    if own != rank:
        raise ConversionError(f"{sharding} is for a tensor of rank {own}, not {rank}")


def to_tensor_sharding(
    sharding: AnySharding | Placement,
    rank: int,
    mesh: Mesh | None = None,
    mesh_name: str = "mesh",
    open_dims: Iterable[int] = (),
) -> TensorSharding:
    """The Shardy form.

    Args:
        sharding: any other form.
        rank: number of dimensions of the tensor.
        mesh: the mesh to name axes of; needed for the classic HLO form and for placements.
        mesh_name: the symbol to refer to it by.
        open_dims: dimensions left open, which the classic HLO form keeps outside the sharding
            (``unspecified_dims``).

    Raises:
        ConversionError: the blocks follow no axes or sub-axes of the mesh, or some axes are
            manual, which Shardy says on the operation and not in a sharding.
    """
    opened = frozenset(open_dims)
    match sharding:
        case TensorSharding():
            return sharding
        case NamedSharding(spec=spec):
            entries = _padded(spec, rank)
            dims = tuple(
                DimSharding(
                    tuple(map(AxisRef, entry_axes(entry))),
                    is_closed=entry is not UNCONSTRAINED and k not in opened,
                )
                for k, entry in enumerate(entries)
            )
            ordered = [axis.name for axis in sharding.mesh.axes if axis.name in spec.unreduced]
            unreduced = tuple(map(AxisRef, ordered))
            return TensorSharding(mesh_name, dims, (), unreduced, spec.unreduced_kind)
        case NamedHloSharding():
            if sharding.manual_axes:
                raise ConversionError(f"a Shardy sharding can't say manual axes: {sharding}")
            if sharding.mesh.is_maximal:
                return TensorSharding(sharding.mesh, (DimSharding(),) * rank)
            return TensorSharding(
                mesh_name,
                sharding.dim_shardings or (DimSharding(),) * rank,
                sharding.replicated_axes,
                sharding.unreduced_axes,
                sharding.reduction,
            )
        case HloSharding(type="maximal", device=device):
            assert device is not None
            return TensorSharding(Mesh((), (device,)), (DimSharding(),) * rank)
    if mesh is None:
        raise ConversionError(f"axes can't be named without a mesh: {sharding}")
    place = sharding if isinstance(sharding, Placement) else to_placement(sharding, rank, mesh)
    if place.manual:
        raise ConversionError(f"a Shardy sharding can't say manual axes: {sharding}")
    dims = tuple(
        DimSharding(name_axes(digits, mesh, place.order), is_closed=k not in opened)
        for k, digits in enumerate(place.dims)
    )
    unreduced = name_axes(place.unreduced, mesh, place.order)
    return TensorSharding(mesh_name, dims, (), unreduced, place.reduction)


def name_axes(
    digits: Sequence[Digit], mesh: Mesh, order: tuple[int, ...] | None = None
) -> tuple[AxisRef, ...]:
    """The axes and sub-axes of ``mesh`` that are these digits of the device id.

    Raises:
        ConversionError: there are none.
    """
    if not digits:
        return ()
    atoms = _atoms(mesh, order)
    refs: list[AxisRef] = []
    for size, stride in digits:
        top = size * stride
        while top > stride:
            atom = next(
                (a for a in atoms if a.digit.stride < top <= a.digit.stride * a.digit.size), None
            )
            low = 0 if atom is None else max(stride, atom.digit.stride)
            if atom is None or atom.top % top or top % low or low % atom.digit.stride:
                raise ConversionError(
                    f"a split {size} ways (device stride {stride}) follows no axes of {mesh}"
                )
            refs.append(_sub_axis(mesh, atom, atom.top // top, top // low))
            top = low
    return _joined(refs, mesh)


class _Atom:
    """A digit of the device id that belongs to one axis; ``pre`` is what precedes it there."""

    __slots__ = ("axis", "digit", "pre", "top")

    def __init__(self, axis: str, pre: int, digit: Digit) -> None:
        self.axis, self.pre, self.digit = axis, pre, digit
        self.top = digit.size * digit.stride


def _atoms(mesh: Mesh, order: tuple[int, ...] | None) -> list[_Atom]:
    own = mesh.device_ids
    if order is not None:
        # The digits are of positions, which mean this mesh's axes only in the same order.
        if tuple(mesh.devices()) != order:
            raise ConversionError("the devices are in another order than the mesh's")
        own = None
    if isinstance(own, tuple):
        raise ConversionError("the devices are in another order than the mesh's")
    atoms: list[_Atom] = []
    for axis in mesh.axes:
        if axis.size == 1:
            continue
        digits: Sequence[Digit] | None = (Digit(axis.size, mesh.strides[axis.name]),)
        if own is not None:
            digits = through_order(digits or (), own)
            if digits is None:
                raise ConversionError(f"axis {axis} of {mesh} follows no digit of the device ids")
        pre = 1
        for digit in digits or ():
            atoms.append(_Atom(axis.name, pre, digit))
            pre *= digit.size
    return atoms


def unreversed(placement: Placement, mesh: Mesh) -> TensorSharding:
    """The sharding of a tensor whose reversed dimensions are put right again.

    XLA shards the result of a reversal over the same axes, with the devices in reverse order, which
    is no sharding over axes: only which axes those are is known of it.

    Raises:
        ConversionError: the blocks follow no axes or sub-axes of the mesh then, either.
    """
    devices, shards = mesh.devices(), placement.shards
    if placement.device is not None or len(devices) != placement.num_devices:
        raise ConversionError("the devices are others than the mesh's")
    if placement.unreduced or placement.manual:
        raise ConversionError("partial results and manual axes have no order to be put right")
    blocks = [placement.block(device) for device in devices]
    turned = [
        tuple(
            count - 1 - block if first else block
            for block, count, first in zip(each, shards, blocks[0], strict=True)
        )
        for each in blocks
    ]
    refs: list[list[tuple[int, AxisRef]]] = [[] for _ in shards]
    for axis in mesh.axes:
        pre = 1
        for size in _primes(axis.size):
            ref = AxisRef(axis.name, SubAxisInfo(pre, size) if size < axis.size else None)
            pre *= size
            moved = turned[mesh.strides[axis.name] * (axis.size // pre)]
            for dim, step in enumerate(moved):
                if step > 0:
                    refs[dim].append((step, ref))
    dims = tuple(
        DimSharding(_joined([ref for _, ref in sorted(dim, key=lambda each: -each[0])], mesh))
        for dim in refs
    )
    sharding = TensorSharding("mesh", dims)
    put_right = tensor_sharding_placement(sharding, mesh)
    if [put_right.block(device) for device in devices] != turned:
        raise ConversionError(f"the blocks follow no axes of {mesh}, reversed or not")
    return sharding


def _primes(number: int) -> Iterator[int]:
    """Its prime factors, smallest first."""
    prime = 2
    while number > 1:
        while number % prime == 0:
            yield prime
            number //= prime
        prime += 1


def _sub_axis(mesh: Mesh, atom: _Atom, pre_in_atom: int, size: int) -> AxisRef:
    if size == mesh.shape[atom.axis]:
        return AxisRef(atom.axis)
    return AxisRef(atom.axis, SubAxisInfo(atom.pre * pre_in_atom, size))


def _joined(refs: Iterable[AxisRef], mesh: Mesh) -> tuple[AxisRef, ...]:
    joined: list[AxisRef] = []
    for ref in refs:
        last = joined[-1] if joined else None
        if last and last.sub_axis_info and ref.sub_axis_info and last.name == ref.name:
            first, second = last.sub_axis_info, ref.sub_axis_info
            if first.pre_size * first.size == second.pre_size:
                size = first.size * second.size
                whole = size == mesh.shape[ref.name]
                info = None if whole else SubAxisInfo(first.pre_size, size)
                joined[-1] = AxisRef(ref.name, info)
                continue
        joined.append(ref)
    return tuple(joined)


def to_named_sharding(
    sharding: AnySharding | Placement, rank: int, mesh: Mesh | None = None
) -> NamedSharding:
    """The JAX form, a ``PartitionSpec`` over a mesh.

    Raises:
        ConversionError: it needs what a ``PartitionSpec`` can't say: sub-axes, a priority, an open
            dimension that has axes, explicitly replicated or manual axes.
    """
    if isinstance(sharding, NamedSharding):
        return sharding
    shardy = to_tensor_sharding(sharding, rank, mesh)
    own = mesh
    if isinstance(shardy.mesh, Mesh):
        own = shardy.mesh
    elif isinstance(sharding, NamedHloSharding):
        own = sharding.mesh
    if own is None:
        raise ConversionError(f"the mesh @{shardy.mesh} is not known")
    entries = tuple(_spec_entry(dim, shardy) for dim in shardy.dim_shardings)
    if shardy.replicated_axes:
        raise ConversionError(f"a PartitionSpec can't say replicated axes: {shardy}")
    unreduced = frozenset(_full_axis(axis, shardy) for axis in shardy.unreduced_axes)
    spec = PartitionSpec(entries, unreduced, unreduced_kind=shardy.reduction)
    return NamedSharding(own, spec)


def _spec_entry(dim: DimSharding, whole: TensorSharding) -> SpecEntry:
    if dim.priority is not None:
        raise ConversionError(f"a PartitionSpec can't say a priority: {whole}")
    if not dim.is_closed:
        if dim.axes:
            raise ConversionError(f"a PartitionSpec can't leave open a sharded dimension: {whole}")
        return UNCONSTRAINED
    return tuple(_full_axis(axis, whole) for axis in dim.axes)


def _full_axis(axis: AxisRef, whole: TensorSharding) -> str:
    if axis.sub_axis_info is not None:
        raise ConversionError(f"a PartitionSpec can't say a sub-axis: {whole}")
    return axis.name


def _padded(spec: PartitionSpec, rank: int) -> tuple[SpecEntry, ...]:
    if len(spec.entries) > rank:
        raise ConversionError(f"{spec} has {len(spec.entries)} entries for a tensor of rank {rank}")
    return spec.entries + (None,) * (rank - len(spec.entries))


def to_named_hlo_sharding(
    sharding: AnySharding | Placement, rank: int, mesh: Mesh | None = None
) -> NamedHloSharding:
    """The named HLO form, with its mesh written out.

    Raises:
        ConversionError: a priority, which HLO can't say, or axes that the mesh does not have.
    """
    if isinstance(sharding, NamedHloSharding):
        return sharding
    if isinstance(sharding, NamedSharding):
        mesh = sharding.mesh
    shardy = to_tensor_sharding(sharding, rank, mesh)
    own = shardy.mesh if isinstance(shardy.mesh, Mesh) else mesh
    if own is None:
        raise ConversionError(f"the mesh @{shardy.mesh} is not known")
    if any(dim.priority is not None for dim in shardy.dim_shardings):
        raise ConversionError(f"an HLO sharding can't say a priority: {shardy}")
    return NamedHloSharding(
        own,
        shardy.dim_shardings,
        shardy.replicated_axes,
        shardy.unreduced_axes,
        reduction=shardy.reduction,
    )


def to_hlo_sharding(
    sharding: AnySharding | Placement, rank: int, mesh: Mesh | None = None
) -> HloSharding:
    """The classic HLO form. Open dimensions are not part of it: see ``unspecified_dims``.

    Raises:
        ConversionError: it has no placement, or a max or min reduction, which the form can't say.
    """
    if isinstance(sharding, HloSharding):
        return sharding
    place = sharding if isinstance(sharding, Placement) else to_placement(sharding, rank, mesh)
    if place.device is not None:
        return HloSharding("maximal", device=place.device)
    if place.reduction != "sum":
        raise ConversionError(f"a classic HLO sharding can't say a {place.reduction} reduction")
    total = place.num_devices
    if place.is_replicated:
        return HloSharding("replicated")
    if Digit(total, 1) in place.manual:
        return HloSharding("manual")
    if Digit(total, 1) in place.unreduced:
        return HloSharding("unreduced")
    rest = unused_digits(place.digits, total)
    kinds: list[tuple[SubgroupType, Sequence[Digit]]] = [
        ("manual", place.manual),
        ("unreduced", place.unreduced),
        ("replicated", rest),
    ]
    used = [(kind, digits) for kind, digits in kinds if digits]
    order = [digit for digits in (*place.dims, *(d for _, d in used)) for digit in digits]
    by_stride = sorted(order, key=lambda digit: -digit.stride)
    tile = IotaTile(tuple(digit.size for digit in by_stride), tuple(map(by_stride.index, order)))
    devices: IotaTile | tuple[int, ...] = tile
    if place.order is not None:
        devices = tuple(place.order[position] for position in tile.devices())
    dims = [*place.shards, *(math.prod(d.size for d in digits) for _, digits in used)]
    return HloSharding(
        "tiled", TileAssignment(tuple(dims), devices), tuple(kind for kind, _ in used)
    )


def unspecified_dims(sharding: AnySharding, rank: int) -> tuple[int, ...]:
    """The open dimensions: ``{?}`` in Shardy, ``UNCONSTRAINED`` in JAX, ``unspecified_dims``."""
    match sharding:
        case NamedSharding(spec=spec):
            entries = _padded(spec, rank)
            return tuple(k for k, entry in enumerate(entries) if entry is UNCONSTRAINED)
        case TensorSharding(dim_shardings=dims) | NamedHloSharding(dim_shardings=dims):
            return tuple(k for k, dim in enumerate(dims) if not dim.is_closed)
        case _:
            return ()
