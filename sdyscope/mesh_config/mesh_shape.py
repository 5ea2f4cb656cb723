"""Shapes of meshes, within a slice and across slices, with a size that is inferred."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass

from sdyscope.errors import TargetError
from sdyscope.mesh import IotaTile, Mesh, MeshAxis

#: The axes that AXLearn's language models know, from the outermost to the innermost.
AXIS_NAMES = ("pipeline", "data", "expert", "fsdp", "seq", "track", "model")


@dataclass(frozen=True, slots=True)
class SizedMeshShape:
    """A shape with all its sizes known.

    Attributes:
        axis_names: the axes, outermost first.
        ici: how many devices of one slice stand along each axis.
        dcn: how many slices stand along each axis.
    """

    axis_names: tuple[str, ...]
    ici: tuple[int, ...]
    dcn: tuple[int, ...]

    @property
    def sizes(self) -> dict[str, int]:
        """Devices along each axis, in order: those of a slice times the slices."""
        sizes = (inner * outer for inner, outer in zip(self.ici, self.dcn, strict=True))
        return dict(zip(self.axis_names, sizes, strict=True))

    @property
    def shape(self) -> tuple[int, ...]:
        """Devices along each axis."""
        return tuple(self.sizes.values())

    @property
    def slices(self) -> int:
        """How many slices there are."""
        return math.prod(self.dcn)

    @property
    def mesh(self) -> Mesh:
        """The mesh, over devices that are numbered slice by slice.

        Along an axis that has both, the slices count before the devices of a slice, which is the
        order of ``jax.experimental.mesh_utils.create_hybrid_device_mesh``. Within a slice devices
        are in the order of their numbers; on TPUs JAX may choose another there, for the torus.
        """
        axes = tuple(MeshAxis(name, size) for name, size in self.sizes.items())
        count = len(axes)
        order = tuple(axis for k in range(count) for axis in (k, count + k))
        return Mesh(axes, IotaTile((*self.dcn, *self.ici), order))

    def __str__(self) -> str:
        return ",".join(f"{name}={size}" for name, size in self.sizes.items())


@dataclass(frozen=True, slots=True)
class MeshShape:
    """How many devices each axis has; -1, once, for as many as there are left.

    Attributes:
        axis_names: the axes, outermost first.
        ici: sizes in their order. Without ``dcn`` they count all devices; with it, those of one
            slice.
        dcn: how many slices each axis has, likewise with one -1; None to put all slices on the
            first axis that is not 1.

    Raises:
        TargetError: the names and the sizes do not fit each other, or two sizes are -1.
    """

    axis_names: tuple[str, ...]
    ici: tuple[int, ...]
    dcn: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        for name in self.axis_names:
            if not isinstance(name, str) or not name:
                raise TargetError(f"{name!r} is no name of a mesh axis.")
            if self.axis_names.count(name) > 1:
                raise TargetError(f"The mesh axis {name!r} is named twice.")
        if not self.axis_names:
            raise TargetError("A mesh shape needs at least one axis.")
        for sizes, kind in ((self.ici, ""), (self.dcn, "DCN ")):
            if sizes is not None:
                _check(self.axis_names, sizes, kind)

    @property
    def is_sized(self) -> bool:
        """Whether all sizes are known."""
        return -1 not in self.ici and (self.dcn is None or -1 not in self.dcn)

    def over(self, devices: int, slices: int = 1) -> SizedMeshShape:
        """The shape on a number of devices: -1 becomes what is left, and all is checked.

        Args:
            devices: how many there are, of all slices together.
            slices: groups of devices that are connected by the data centre's network.

        Raises:
            TargetError: the sizes do not multiply to the devices, or no size of the axis that is
                -1 makes them do.
        """
        if devices < 1 or slices < 1 or devices % slices:
            raise TargetError(f"{devices:,} devices can't be {slices:,} slices of the same size.")
        names = self.axis_names
        if self.dcn is None:
            ici = _inferred(names, self.ici, devices, "devices")
            return self._split(ici, slices)
        dcn = _inferred(names, self.dcn, slices, "slices", "DCN ")
        ici = _inferred(names, self.ici, devices // slices, "devices of a slice", "ICI ")
        return SizedMeshShape(names, ici, dcn)

    def _split(self, sizes: tuple[int, ...], slices: int) -> SizedMeshShape:
        """Puts all slices on the first axis that is not 1."""
        ones = (1,) * len(sizes)
        at = next((k for k, size in enumerate(sizes) if size > 1), 0)
        if sizes[at] % slices:
            raise TargetError(
                f"The first axis with more than one device, {self.axis_names[at]}={sizes[at]}, "
                f"can't be split over {slices} slices.",
                hint="Make it a multiple of the slices, or give sizes for ICI and DCN.",
            )
        dcn = (*ones[:at], slices, *ones[at + 1 :])
        ici = (*sizes[:at], sizes[at] // slices, *sizes[at + 1 :])
        return SizedMeshShape(self.axis_names, ici, dcn)

    def __str__(self) -> str:
        ici = _text(self.axis_names, self.ici)
        return ici if self.dcn is None else f"{ici}; DCN {_text(self.axis_names, self.dcn)}"


def mesh_shape_from_axes(axis_names: Sequence[str] = AXIS_NAMES, /, **sizes: int) -> MeshShape:
    """The shape in which these axes have these sizes, and all others have 1.

    Raises:
        TargetError: there is no such axis, a size is none, or two are -1.
    """
    names = tuple(axis_names)
    for name in sizes:
        if name not in names:
            raise unknown_axis(name, names)
    return MeshShape(names, tuple(sizes.get(name, 1) for name in names))


def unknown_axis(name: str, names: Sequence[str]) -> TargetError:
    """The error that there is no such axis."""
    close = difflib.get_close_matches(name, names, n=1)
    return TargetError(
        f"The mesh has no axis {name!r}.",
        hint=f"Did you mean {close[0]!r}?" if close else f"It has {', '.join(names)}.",
    )


def _text(names: Sequence[str], sizes: Sequence[int]) -> str:
    return ",".join(f"{name}={size}" for name, size in zip(names, sizes, strict=True))


def _check(names: tuple[str, ...], sizes: tuple[int, ...], kind: str) -> None:
    if len(sizes) != len(names):
        raise TargetError(
            f"There are {len(names)} mesh axes and {len(sizes)} {kind}sizes.",
            hint=f"The axes are {', '.join(names)}.",
        )
    for name, size in zip(names, sizes, strict=True):
        check_size(name, size, kind)
    unknown = [name for name, size in zip(names, sizes, strict=True) if size == -1]
    if len(unknown) > 1:
        raise TargetError(
            f"The {kind}sizes of {' and '.join(unknown)} are -1, and only one can be inferred.",
            hint=f"Give all but one of them a size, such as {unknown[-1]}=1.",
        )


def check_size(name: str, size: object, kind: str = "") -> None:
    """Checks the size of an axis.

    Raises:
        TargetError: it is no whole number from 1, and not -1.
    """
    if not isinstance(size, int) or isinstance(size, bool) or (size < 1 and size != -1):
        raise TargetError(
            f"The {kind}size of mesh axis {name!r} is {size!r}, not a whole number from 1, or -1 "
            "for what is left."
        )


def _inferred(
    names: tuple[str, ...], sizes: tuple[int, ...], total: int, what: str, kind: str = ""
) -> tuple[int, ...]:
    known = math.prod(size for size in sizes if size != -1)
    factors = " x ".join(
        f"{name}={size}" for name, size in zip(names, sizes, strict=True) if size not in (1, -1)
    )
    product = f"{factors} = {known:,}" if " x " in factors else factors or "all 1"
    if -1 not in sizes:
        if known != total:
            raise TargetError(
                f"The {kind}sizes are {product}, and there are {total:,} {what}.",
                hint="Change a size, or make one of them -1.",
            )
        return sizes
    if total % known:
        raise TargetError(
            f"The {kind}size of {names[sizes.index(-1)]} can't be inferred: {product} does not "
            f"divide {total:,} {what}.",
            hint="Change one of these sizes, or the number of devices.",
        )
    return tuple(total // known if size == -1 else size for size in sizes)
