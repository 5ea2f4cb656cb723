"""Shapes of meshes, within a slice and across slices, with a size that is inferred."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex

from sdyscope.errors import TargetError, did_you_mean
from sdyscope.values.mesh import IotaTile, Mesh, MeshAxis
from sdyscope.words.counts import counted, listed

#: The axes that AXLearn's language models know, from the outermost to the innermost.
AXIS_NAMES = ("pipeline", "data", "expert", "fsdp", "seq", "track", "model")

#: JAX and XLA count devices in 32 bits.
MOST_DEVICES = 2**31 - 1

_OF_A_SLICE = ("device of a slice", "devices of a slice")


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
        names = names_of(self.axis_names, "The names of mesh axes", "data")
        object.__setattr__(self, "axis_names", names)
        for name in names:
            check_name(name, "a mesh axis")
            if names.count(name) > 1:
                raise TargetError(f"The mesh axis {name!r} is named twice.")
        if not names:
            raise TargetError("A mesh shape needs at least one axis.")
        ici_kind = "" if self.dcn is None else "ICI "
        object.__setattr__(self, "ici", _checked(names, self.ici, ici_kind))
        if self.dcn is not None:
            object.__setattr__(self, "dcn", _checked(names, self.dcn, "DCN "))

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
        devices, slices = _count(devices, "devices"), _count(slices, "slices")
        if devices % slices:
            raise TargetError(
                f"{counted(devices, 'device')} can't be {slices:,} slices of the same size."
            )
        names = self.axis_names
        if self.dcn is None:
            ici = _inferred(names, self.ici, devices, ("device", "devices"))
            return self._split(ici, slices)
        dcn = _inferred(names, self.dcn, slices, ("slice", "slices"), "DCN ")
        ici = _inferred(names, self.ici, devices // slices, _OF_A_SLICE, "ICI ")
        return SizedMeshShape(names, ici, dcn)

    def _split(self, sizes: tuple[int, ...], slices: int) -> SizedMeshShape:
        """Puts all slices on the first axis that is not 1."""
        ones = (1,) * len(sizes)
        at = next((k for k, size in enumerate(sizes) if size > 1), 0)
        if sizes[at] % slices:
            raise TargetError(
                f"The first axis with more than one device, {self.axis_names[at]}={sizes[at]}, "
                f"can't be split over {slices:,} slices.",
                hint=f"Make it a multiple of {slices:,}, or give the sizes of ICI and DCN apart.",
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
    names = names_of(axis_names, "The names of mesh axes", "data")
    for name in names:
        check_name(name, "a mesh axis")
    for name in sizes:
        if name not in names:
            raise unknown_axis(name, names)
    return MeshShape(names, tuple(sizes.get(name, 1) for name in names))


def unknown_axis(name: str, names: Sequence[str]) -> TargetError:
    """The error that there is no such axis."""
    return TargetError(
        f"The mesh has no axis {name!r}.",
        hint=did_you_mean(name, names, f"It has {', '.join(names)}."),
    )


def _text(names: Sequence[str], sizes: Sequence[int]) -> str:
    return ",".join(f"{name}={size}" for name, size in zip(names, sizes, strict=True))


def names_of(names: object, what: str, such_as: str) -> tuple[str, ...]:
    """Names, as a tuple.

    Args:
        names: them.
        what: what they are called in an error.
        such_as: one of them, for the error.

    Raises:
        TargetError: it is a text, whose letters are not meant, or nothing that names can be in.
    """
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise TargetError(f"{what} are {names!r}, not a list of names, such as [{such_as!r}].")
    return tuple(names)


def check_name(name: object, what: str) -> None:
    """Checks a name.

    Args:
        name: it.
        what: what it is the name of, such as ``a mesh axis``.

    Raises:
        TargetError: it is not text, or an empty one.
    """
    if not isinstance(name, str):
        raise TargetError(
            f"{name!r} is not the name of {what}.",
            hint="A name is a string. YAML reads on, off, yes and no as true and false, and digits "
            "as a number: put them in quotes.",
        )
    if not name:
        raise TargetError(f"The name of {what} is empty.")


def _checked(names: tuple[str, ...], sizes: object, kind: str) -> tuple[int, ...]:
    if isinstance(sizes, str) or not isinstance(sizes, Iterable):
        raise TargetError(
            f"The {kind}sizes of the mesh axes are {sizes!r}, not a list of whole numbers."
        )
    given = tuple(sizes)
    if len(given) != len(names):
        raise TargetError(
            f"There {_are(len(names))} {counted(len(names), 'mesh axis', 'mesh axes')} and "
            f"{counted(len(given), f'{kind}size')}.",
            hint=f"The axes are {', '.join(names)}.",
        )
    checked = tuple(check_size(name, size, kind) for name, size in zip(names, given, strict=True))
    if math.prod(abs(size) for size in checked) > MOST_DEVICES:
        raise TargetError(
            f"The {kind}sizes make a mesh of more than {MOST_DEVICES:,} devices, "
            "and JAX numbers no more.",
            hint="Make an axis smaller.",
        )
    unknown = [name for name, size in zip(names, checked, strict=True) if size == -1]
    if len(unknown) > 1:
        raise TargetError(
            f"The {kind}sizes of {listed(unknown)} are -1, and only one can be inferred.",
            hint=f"Give all but one of them a size, such as {unknown[-1]}=1.",
        )
    return checked


def check_size(name: str, size: object, kind: str = "") -> int:
    """The size of an axis.

    Raises:
        TargetError: it is no whole number from 1, and not -1.
    """
    whole = _whole(size)
    if whole is None or (whole < 1 and whole != -1):
        raise TargetError(
            f"The {kind}size of mesh axis {name!r} is {size!r}, not a whole number from 1, or -1 "
            "for what is left."
        )
    return whole


def _count(value: object, what: str) -> int:
    whole = _whole(value)
    if whole is None or whole < 1:
        raise TargetError(f"The number of {what} is {value!r}, not a whole number from 1.")
    return whole


def _whole(value: object) -> int | None:
    """A whole number of any kind, NumPy's too, as an int; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        return None
    try:
        return operator.index(value)
    except TypeError:  # an array of several
        return None


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _inferred(
    names: tuple[str, ...],
    sizes: tuple[int, ...],
    total: int,
    what: tuple[str, str],
    kind: str = "",
) -> tuple[int, ...]:
    known = math.prod(size for size in sizes if size != -1)
    factors = " x ".join(
        f"{name}={size}" for name, size in zip(names, sizes, strict=True) if size not in (1, -1)
    )
    product = f"{factors} = {known:,}" if " x " in factors else factors or "all 1"
    if -1 not in sizes:
        if known != total:
            raise TargetError(
                f"The {kind}sizes are {product}, and there {_are(total)} {counted(total, *what)}.",
                hint="Change a size, or make one of them -1."
                if total > 1 or kind != "DCN "
                else "Say how many slices there are, such as --devices 4096x8slices, or "
                "over(32_768, slices=8); or make one of the sizes -1.",
            )
        return sizes
    if total % known:
        raise TargetError(
            f"The {kind}size of {names[sizes.index(-1)]} can't be inferred: {product} does not "
            f"divide {counted(total, *what)}.",
            hint="Change one of these sizes, or the number of devices.",
        )
    return tuple(total // known if size == -1 else size for size in sizes)


def parse_mesh_shape(text: str) -> MeshShape:
    """The shape of ``data=4,model=-1``, as the command line and ``[tool.sdyscope]`` take it.

    Raises:
        TargetError: it has another form, or what it says can't be.
    """
    names: list[str] = []
    sizes: list[Any] = []
    for word in text.split(","):
        name, equals, size = (part.strip() for part in word.partition("="))
        if not (name and equals and size):
            raise TargetError(
                f"{word.strip()!r} does not have the form axis=size, such as data=4,model=2."
            )
        names.append(name)
        # What is no number is refused by the shape, in its words.
        sizes.append(int(size) if re.fullmatch(r"-?[0-9]{1,18}", size) else size)
    return MeshShape(tuple(names), tuple(sizes))
