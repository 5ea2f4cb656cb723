"""Placement: which block of each dimension every device holds, worked out symbolically.

A device id is a number in a mixed radix. A dimension that is split over mesh axes is indexed by
some of the id's digits, ``(device // stride) % size``, most significant first. Two shardings are
equal when their placements are, however they are written: digits that are neighbours are merged,
so the form is canonical, and its size depends on the number of axes, not of devices.

A mesh whose device order no iota describes has no such digits; its placement keeps digits of the
*position* in that order, with the order beside them, and compares by listing the devices.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeAlias

from sdyscope.errors import ConversionError
from sdyscope.values.dtypes import num_bytes
from sdyscope.values.mesh import AxisRef, IotaTile, Mesh, merge_digits
from sdyscope.values.sharding import NamedSharding, ReductionKind, TensorSharding, entry_axes
from sdyscope.values.tiling import HloSharding, NamedHloSharding


class Digit(NamedTuple):
    """``(device // stride) % size``."""

    size: int
    stride: int

    def of(self, number: int) -> int:
        """This digit of ``number``."""
        return number // self.stride % self.size


Digits = tuple[Digit, ...]


def unused_digits(digits: Iterable[tuple[int, int]], total: int) -> list[Digit]:
    """The digits of a number below ``total`` that are not among ``digits``."""
    rest: list[Digit] = []
    top = total
    for size, stride in sorted(digits, key=lambda digit: (-digit[1], digit[0])):
        if size > 1:
            if size * stride < top:
                rest.append(Digit(top // (size * stride), size * stride))
            top = stride
    return [*rest, Digit(top, 1)] if top > 1 else rest


Written: TypeAlias = tuple[
    int, tuple[Digits, ...], Digits, ReductionKind, Digits, tuple[int, ...] | None, int | None
]
"""A placement's fields, in their order."""


@dataclass(frozen=True, eq=False)
class Placement:
    """The block of each dimension that each of ``num_devices`` devices holds.

    Attributes:
        num_devices: how many devices take part.
        dims: for each dimension, the digits that index its blocks, most significant first.
        unreduced: digits along which devices hold partial results still to be reduced.
        reduction: how those are to be reduced.
        manual: digits along which the program itself (``shard_map``) decides what a device holds.
        order: None, or the device at each position; digits are then of positions.
        device: the one device that holds everything, of a maximal sharding.

    What every device holds whole is equal for any number of devices.
    """

    num_devices: int
    dims: tuple[Digits, ...]
    unreduced: Digits = ()
    reduction: ReductionKind = "sum"
    manual: Digits = ()
    order: tuple[int, ...] | None = None
    device: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "dims", tuple(map(_merged, self.dims)))
        object.__setattr__(self, "unreduced", _merged_set(self.unreduced))
        object.__setattr__(self, "manual", _merged_set(self.manual))
        if not self.unreduced:
            object.__setattr__(self, "reduction", "sum")
        if self.num_devices == 1 and self.device == 0:
            object.__setattr__(self, "device", None)
        if not (any(self.dims) or self.unreduced or self.manual):
            object.__setattr__(self, "order", None)

    @cached_property
    def shards(self) -> tuple[int, ...]:
        """Into how many blocks each dimension is cut."""
        return tuple(math.prod(digit.size for digit in digits) for digits in self.dims)

    @cached_property
    def digits(self) -> Digits:
        """Every digit that tells devices apart: the dimensions', unreduced and manual."""
        return (*(digit for dim in self.dims for digit in dim), *self.unreduced, *self.manual)

    @cached_property
    def replication(self) -> int:
        """How many devices hold the same block."""
        if self.device is not None:
            return 1
        return self.num_devices // math.prod(digit.size for digit in self.digits)

    @property
    def written(self) -> Written:
        """The fields, which tell equal placements apart that are written differently."""
        return (
            self.num_devices,
            self.dims,
            self.unreduced,
            self.reduction,
            self.manual,
            self.order,
            self.device,
        )

    @property
    def without_manual(self) -> Placement:
        """The same with nothing said about manual axes."""
        return replace(self, manual=()) if self.manual else self

    def refines(self, other: Placement) -> bool:
        """Whether it cuts every dimension as another does, or cuts those blocks further."""
        if self.device is not None or other.device is not None:
            return self == other
        if len(self.dims) != len(other.dims):
            return False
        leading = [
            digits for digits in map(_leading, self.dims, other.shards) if digits is not None
        ]
        if len(leading) < len(self.dims):
            return False
        unreduced, manual = other.unreduced, other.manual
        return other == replace(self, dims=tuple(leading), unreduced=unreduced, manual=manual)

    @cached_property
    def is_replicated(self) -> bool:
        """Whether every device holds the whole tensor."""
        return self.device is None and self.replication == self.num_devices

    def local_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Shape of the block a device holds, padding included (XLA rounds blocks up)."""
        return tuple(-(-size // n) for size, n in zip(shape, self._shards_for(shape), strict=True))

    def padding(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Elements that each dimension is padded by to give every device an equal block."""
        return tuple(-size % n for size, n in zip(shape, self._shards_for(shape), strict=True))

    def bytes_per_device(self, shape: Sequence[int], dtype: str) -> int:
        """Bytes of the block that a device holds, padding included."""
        return num_bytes(math.prod(self.local_shape(shape)), dtype)

    def block(self, device: int) -> tuple[int, ...]:
        """Which block of each dimension ``device`` holds."""
        position = self._position(device)
        return tuple(_value(digits, position) for digits in self.dims)

    def index(self, device: int, shape: Sequence[int]) -> tuple[slice, ...] | None:
        """The slice of each dimension that ``device`` holds; None when it holds nothing."""
        if self.device is not None:
            whole = tuple(slice(0, size) for size in shape)
            return whole if device == self.device else None
        blocks = zip(shape, self.local_shape(shape), self.block(device), strict=True)
        return tuple(
            slice(min(block * local, size), min((block + 1) * local, size))
            for size, local, block in blocks
        )

    def _shards_for(self, shape: Sequence[int]) -> tuple[int, ...]:
        if len(shape) != len(self.dims):
            raise ConversionError(
                f"a sharding of rank {len(self.dims)} can't place a tensor of rank {len(shape)}"
            )
        return self.shards

    @cached_property
    def _positions(self) -> dict[int, int]:
        return {device: position for position, device in enumerate(self.order or ())}

    def _position(self, device: int) -> int:
        if not 0 <= device < self.num_devices:
            raise ConversionError(f"there is no device {device} among {self.num_devices}")
        return device if self.order is None else self._positions[device]

    def _listed(self) -> list[tuple[int, ...]]:
        rows, seen_unreduced, seen_manual = [], dict[int, int](), dict[int, int]()
        for device in range(self.num_devices):
            at = self._position(device)
            unreduced, manual = _value(self.unreduced, at), _value(self.manual, at)
            rows.append(
                (
                    *(_value(digits, at) for digits in self.dims),
                    # Which partial result is which doesn't matter, only who shares one.
                    seen_unreduced.setdefault(unreduced, device),
                    seen_manual.setdefault(manual, device),
                )
            )
        return rows

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Placement):
            return NotImplemented
        if self.device != other.device or len(self.dims) != len(other.dims):
            return False
        if self.device is not None or (self.is_replicated and other.is_replicated):
            return True
        if (self.num_devices, self.shards) != (other.num_devices, other.shards):
            return False
        if self.reduction != other.reduction or self.replication != other.replication:
            return False
        if self.order == other.order:
            mine = (self.dims, self.unreduced, self.manual)
            return mine == (other.dims, other.unreduced, other.manual)
        return self._listed() == other._listed()

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        split = self.device is None and not self.is_replicated
        return hash((self.device, len(self.dims), (self.num_devices, self.shards) if split else 0))


def _value(digits: Digits, number: int) -> int:
    value = 0
    for digit in digits:
        value = value * digit.size + digit.of(number)
    return value


def _leading(digits: Digits, count: int) -> Digits | None:
    """The most significant digits, of which there are so many values; None where none have."""
    leading: list[Digit] = []
    for size, stride in digits:
        if count == 1:
            break
        taken = min(size, count)
        if size % taken or count % taken:
            return None
        leading.append(Digit(taken, stride * (size // taken)))
        count //= taken
    return tuple(leading) if count == 1 else None


def _merged(digits: Iterable[tuple[int, int]]) -> Digits:
    return tuple(Digit(size, stride) for size, stride in merge_digits(digits))


def _merged_set(digits: Iterable[tuple[int, int]]) -> Digits:
    return _merged(sorted(digits, key=lambda digit: -digit[1]))


def axes_union(digits: Digits, others: Digits) -> Digits:
    """Two sets of digits that do not overlap, as one."""
    return _merged_set([*digits, *others])


def without(digits: Digits, others: Digits) -> Digits:
    """The set ``digits`` less ``others``; a digit that is covered in part keeps the rest."""
    left = list(digits)
    for size, stride in others:
        top, rest = size * stride, []
        for digit in left:
            high = digit.size * digit.stride
            if top <= digit.stride or high <= stride:
                rest.append(digit)
                continue
            if high > top:
                rest.append(Digit(high // top, top))
            if stride > digit.stride:
                rest.append(Digit(stride // digit.stride, digit.stride))
        left = rest
    return _merged_set(left)


def through_order(digits: Iterable[tuple[int, int]], order: IotaTile) -> Digits | None:
    """Digits of a position in ``order`` as digits of the device standing there.

    None where a position's digit is no digit of the device id, as in an order by ``[3,2]T(1,0)``
    over a mesh of 3 x 2.
    """
    bases: list[tuple[int, int, int]] = []  # (position stride, size, device stride)
    position = order.num_devices
    for size, stride in order.digits:
        position //= size
        bases.append((position, size, stride))
    out: list[Digit] = []
    for size, stride in digits:
        top = stride * size
        while top > stride:
            base, base_size, device_stride = next(
                entry for entry in bases if entry[0] < top <= entry[0] * entry[1]
            )
            low = max(stride, base)
            if low % base or top % low or base_size % (top // base):
                return None
            if low % stride:
                return None
            out.append(Digit(top // low, device_stride * (low // base)))
            top = low
    return tuple(out)


def _place(
    mesh: Mesh,
    dims: Iterable[Iterable[AxisRef]],
    unreduced: Iterable[AxisRef] = (),
    reduction: ReductionKind = "sum",
    manual: Iterable[AxisRef] = (),
) -> Placement:
    dim_refs, unreduced, manual = [tuple(dim) for dim in dims], tuple(unreduced), tuple(manual)
    if mesh.is_maximal:
        device = mesh.devices()[0]
        return Placement(device + 1, ((),) * len(dim_refs), device=device)
    check_disjoint(mesh, [*(ref for dim in dim_refs for ref in dim), *unreduced, *manual])
    in_positions = [
        [mesh.position_digit(ref) for ref in refs] for refs in (*dim_refs, unreduced, manual)
    ]
    return _in_order(mesh.size, in_positions, mesh.device_ids, reduction)


def _in_order(
    num_devices: int,
    groups: Sequence[Sequence[tuple[int, int]]],
    order: IotaTile | tuple[int, ...] | None,
    reduction: ReductionKind = "sum",
) -> Placement:
    """The placement for digits of positions: the dimensions', then unreduced, then manual."""
    digits: list[Sequence[tuple[int, int]]] = list(groups)
    listed: tuple[int, ...] | None = None
    if isinstance(order, IotaTile):
        mapped = [through_order(group, order) for group in groups]
        known = [group for group in mapped if group is not None]
        if len(known) == len(mapped):
            digits = list(known)
        else:
            listed = tuple(order.devices())
    else:
        listed = order
    merged = [_merged(group) for group in digits]
    return Placement(num_devices, tuple(merged[:-2]), merged[-2], reduction, merged[-1], listed)


def check_disjoint(mesh: Mesh, refs: Iterable[AxisRef]) -> None:
    """Checks that no two of the axes or sub-axes overlap.

    Raises:
        ConversionError: two of them do, or one is not of this mesh.
    """
    spans: dict[str, list[tuple[int, int, AxisRef]]] = {}
    for ref in refs:
        size = mesh.axis_size(ref)
        pre = 1 if ref.sub_axis_info is None else ref.sub_axis_info.pre_size
        for low, high, other in spans.get(ref.name, []):
            if low < pre * size and pre < high:
                what = f"axis {ref} is used twice" if ref == other else f"{ref} overlaps {other}"
                raise ConversionError(f"{what} in one sharding")
        if size > 1:
            spans.setdefault(ref.name, []).append((pre, pre * size, ref))


def axes_digits(mesh: Mesh, refs: Iterable[AxisRef]) -> Digits:
    """The digits of these axes of ``mesh`` as a set: most significant first, neighbours merged.

    Raises:
        ConversionError: the mesh has no such axis, or two overlap.
    """
    return _place(mesh, [], manual=refs).manual


def tensor_sharding_placement(sharding: TensorSharding, mesh: Mesh | None = None) -> Placement:
    """Placement of a Shardy sharding; ``mesh`` is what its symbol names, unless it is inlined.

    Raises:
        ConversionError: no mesh given for a symbol, unknown or overlapping axes.
    """
    own = sharding.mesh if isinstance(sharding.mesh, Mesh) else mesh
    if own is None:
        raise ConversionError(f"the mesh @{sharding.mesh} is not known")
    dims = [dim.axes for dim in sharding.dim_shardings]
    return _place(own, dims, sharding.unreduced_axes, sharding.reduction)


def named_sharding_placement(sharding: NamedSharding, rank: int) -> Placement:
    """Placement of a ``NamedSharding`` of a tensor with ``rank`` dimensions.

    Unconstrained dimensions count as whole.

    Raises:
        ConversionError: more entries than dimensions.
    """
    entries = sharding.spec.entries
    if len(entries) > rank:
        raise ConversionError(
            f"{sharding.spec} has {len(entries)} entries for a tensor of rank {rank}"
        )
    dims = [[AxisRef(name) for name in entry_axes(entry)] for entry in entries]
    dims += [[] for _ in range(rank - len(entries))]
    unreduced = map(AxisRef, sorted(sharding.spec.unreduced))
    return _place(sharding.mesh, dims, unreduced, sharding.spec.unreduced_kind)


def named_hlo_sharding_placement(sharding: NamedHloSharding, rank: int | None = None) -> Placement:
    """Placement of a named HLO sharding; ``rank`` is needed where it says just ``replicated``."""
    dims = [dim.axes for dim in sharding.dim_shardings]
    if rank is not None and not dims:
        dims = [()] * rank
    return _place(
        sharding.mesh, dims, sharding.unreduced_axes, sharding.reduction, sharding.manual_axes
    )


def hlo_sharding_placement(sharding: HloSharding, num_devices: int, rank: int) -> Placement:
    """Placement of a classic HLO sharding over ``num_devices`` partitions.

    Raises:
        ConversionError: ``{unknown}``, another number of devices or dimensions, a device twice.
    """
    whole: tuple[Digits, ...] = ((),) * rank
    everyone = (Digit(num_devices, 1),)
    match sharding.type:
        case "replicated":
            return Placement(num_devices, whole)
        case "manual":
            return Placement(num_devices, whole, manual=everyone)
        case "unreduced":
            return Placement(num_devices, whole, unreduced=everyone)
        case "maximal":
            return Placement(num_devices, whole, device=sharding.device)
        case "unknown":
            raise ConversionError("{unknown} leaves the placement to the compiler")
    tile = sharding.tile_assignment
    assert tile is not None
    if len(sharding.data_dims) != rank:
        raise ConversionError(
            f"{sharding} is for a tensor of rank {len(sharding.data_dims)}, not {rank}"
        )
    if tile.num_devices != num_devices:
        raise ConversionError(f"{sharding} is over {tile.num_devices} devices, not {num_devices}")
    if isinstance(tile.devices, tuple) and len(set(tile.devices)) < num_devices:
        raise ConversionError(f"{sharding} lists a device twice, so it has no placement")
    digits: list[tuple[int, int]] = []
    stride = num_devices
    for size in tile.dims:
        stride //= size
        digits.append((size, stride))
    subgroups = list(zip(sharding.subgroup_types, digits[rank:], strict=True))
    groups = [[digit] for digit in digits[:rank]]
    groups.append([digit for kind, digit in subgroups if kind == "unreduced"])
    groups.append([digit for kind, digit in subgroups if kind == "manual"])
    order = tile.devices
    if isinstance(order, IotaTile) and order.is_identity:
        return _in_order(num_devices, groups, None)
    return _in_order(num_devices, groups, order)
