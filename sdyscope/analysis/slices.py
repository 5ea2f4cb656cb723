"""Which slice of each tensor which devices hold."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sdyscope.annotations import AnnotationKind
from sdyscope.facts.sharded import Sharded, requested_sharding, returned_sharding
from sdyscope.facts.slices import BlockRule, DeviceSet, Slice, Unplaced
from sdyscope.facts.tensors import Tensor
from sdyscope.values.placement import Digit, Placement, without
from sdyscope.values.source import SourceLocation


@dataclass(frozen=True, slots=True)
class TensorSlices:
    """Who holds what of one tensor.

    Attributes:
        name: its pytree path or its scope.
        kind: where its sharding is named.
        shape: shape of the whole tensor; null where it is dynamic.
        dtype: MLIR element type.
        sharding: what was requested, else what the first module says, else the out_spec of the
            shard_map that returns it; null for none of them.
        source: line of user code; null for arguments and results.
        placed: whether that says where it is.
        unplaced: why not; empty where it does.
        different: how many different slices there are.
        listed: all of them where they are few, else the first ones and the last.
        rule: the slice that any device `d` holds, or any position `p` of a mesh whose devices are
            in an order of their own; empty where all are listed.
        partial: whether each device holds a partial result, still to be reduced with others.
        mapped: the function that a `shard_map` maps; empty for all else, and where it is not known.
    """

    name: str
    kind: AnnotationKind
    shape: tuple[int, ...] | None
    dtype: str
    sharding: Sharded | None
    source: SourceLocation | None = None
    placed: bool = False
    unplaced: Unplaced | str = ""
    different: int = 0
    listed: tuple[Slice, ...] = ()
    rule: BlockRule | str = ""
    partial: bool = False
    mapped: str = ""

    @property
    def subject(self) -> str:
        """What stands before brackets: the path of an argument or result; a scope is no tensor."""
        return self.name if self.kind in ("argument", "result") else ""


@dataclass(frozen=True, slots=True)
class ProgramSlices:
    """Who holds what of a program's tensors.

    Attributes:
        name: the program's name, or the module's.
        tensors: its tensors, or those that were asked for.
        device_order: JAX's number of the device at each position of the mesh, where these are not
            alike: devices are numbered by position here. Empty where they are, or it is not known.
    """

    name: str
    tensors: tuple[TensorSlices, ...]
    device_order: tuple[int, ...] = ()


def program_slices(
    name: str, rows: Iterable[Tensor], device_order: Sequence[int] = ()
) -> ProgramSlices:
    """Who holds what of these tensors of a program.

    Args:
        name: the program's name, or the module's.
        rows: the tensors.
        device_order: JAX's number of the device at each position of the mesh.
    """
    own = any(position != number for position, number in enumerate(device_order))
    return ProgramSlices(name, tuple(map(_tensor_slices, rows)), tuple(device_order) if own else ())


def _tensor_slices(row: Tensor) -> TensorSlices:
    sharding = tensor_sharding(row)
    place = None if sharding is None else sharding.placement
    tensor = TensorSlices(
        row.name, row.kind, row.shape, row.dtype, sharding, row.source, mapped=row.mapped
    )
    unplaced = _unplaced(row, place)
    if unplaced or place is None or row.shape is None:
        return replace(tensor, unplaced=unplaced or "")
    slices = device_slices(place, row.shape, tensor.subject)
    return replace(
        tensor,
        placed=True,
        different=slices.different,
        listed=slices.listed,
        rule=slices.rule or "",
        partial=slices.partial,
    )


def _unplaced(row: Tensor, place: Placement | None) -> Unplaced | None:
    """Why it is not said which devices hold what; None where it is."""
    asked = row.requested
    if asked is not None and asked.dropped:
        return Unplaced.DROPPED
    inside = asked is not None and asked.kind == "constraint" and asked.manual_axes
    places = (place, *(annotation.placement for annotation in row.lowered.values()))
    if inside or any(place is not None and place.manual for place in places):
        return Unplaced.IN_SHARD_MAP
    if row.shape is None:
        return Unplaced.NO_SHAPE
    return Unplaced.LEFT_TO_COMPILER if place is None else None


def tensor_sharding(row: Tensor) -> Sharded | None:
    """What says where a tensor is: the request, else the first module that does.

    A result that the program leaves open is where the shard_map that returns it puts it.
    """
    asked = None if row.requested is None else requested_sharding(row.requested)
    if asked is not None and asked.placement is not None:
        return asked
    there = (annotation.sharded({}, None) for annotation in row.lowered.values())
    placed = next((sharding for sharding in there if sharding.placement is not None), None)
    if placed is None and row.requested is not None:
        return returned_sharding(row.requested)
    return placed


#: So many different slices are listed whole.
LISTED = 8


@dataclass(frozen=True, slots=True)
class DeviceSlices:
    """Who holds what of one tensor.

    Attributes:
        shape: the tensor's.
        different: how many slices there are.
        listed: all of them, or the first few and the last, by the first device that holds them.
        rule: which slice any device holds; None where all are listed.
        partial: whether what a device holds is still to be reduced with what others hold.
    """

    shape: tuple[int, ...]
    different: int
    listed: tuple[Slice, ...]
    rule: BlockRule | None
    partial: bool


def device_slices(place: Placement, shape: Sequence[int], subject: str = "") -> DeviceSlices:
    """Who holds what of a tensor.

    Worked out from the placement's digits, so a mesh of 32,768 devices costs what one of eight
    does: devices that hold the same slice are one set of ranges at strides, only the first few
    slices and the last are listed, and a rule says what every other device holds.

    Args:
        place: its placement.
        shape: its whole shape.
        subject: what it is called before brackets.

    Raises:
        ConversionError: the placement is of another number of dimensions.
    """
    shape = tuple(shape)
    if place.device is not None:
        whole = tuple((0, size) for size in shape)
        alone = DeviceSet(place.device, (), place.num_devices + 1)
        return DeviceSlices(shape, 1, (Slice(whole, alone, shape, subject),), None, False)
    used = tuple(digit for dim in place.dims for digit in dim)
    same = without((Digit(place.num_devices, 1),), used)
    # In the order of positions, whatever the order of the dimensions that they index.
    ordered = sorted(used, key=lambda digit: -digit.stride)
    different = math.prod(digit.size for digit in ordered)
    abridged = different > LISTED
    numbers = [*range(LISTED - 1), different - 1] if abridged else list(range(different))
    at_positions = replace(place, order=None)
    listed = []
    for number in numbers:
        position = _position(number, ordered)
        index = at_positions.index(position, shape)
        assert index is not None
        listed.append(
            Slice(
                tuple((part.start, part.stop) for part in index),
                DeviceSet(position, same, place.num_devices, place.order),
                shape,
                subject,
            )
        )
    rule = None
    if abridged:
        dims = tuple(zip(place.dims, shape, place.local_shape(shape), strict=True))
        rule = BlockRule(dims, place.num_devices, place.order is not None)
    return DeviceSlices(shape, different, tuple(listed), rule, bool(place.unreduced))


def _position(number: int, digits: Sequence[Digit]) -> int:
    """The position that has a number written in these digits, and zero in all others."""
    position = 0
    for size, stride in reversed(digits):
        position += number % size * stride
        number //= size
    return position
