"""`--vary NAME`: the sizes of a program that can be tried, and how each is made."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from sdyscope.commands import opening
from sdyscope.errors import TargetError, one_of
from sdyscope.hardware.names import Hardware

if TYPE_CHECKING:
    from sdyscope.analysis.memory.peak import VaryingSize
    from sdyscope.inspection import Inspection
    from sdyscope.staged import Staged


def varying(
    name: str,
    target: opening.Opening,
    inspection: Inspection,
    partitioner: str | None,
    on: Hardware | None,
) -> VaryingSize:
    """The size of a program that has a name.

    Args:
        name: a setting with a whole number, or a mesh axis.
        target: the TARGET.
        inspection: the program as it is.
        partitioner: as the command takes it.
        on: likewise.

    Raises:
        TargetError: there is no such size, or it can't be varied.
    """
    from sdyscope.analysis.memory.peak import VaryingSize
    from sdyscope.targets import settings_of

    known = {setting.name: setting for setting in settings_of(target.word)}
    axes = {axis: size for own in inspection.meshes.values() for axis, size in own.shape.items()}
    if name in known:
        text = target.settings.get(name, known[name].default)
        if not str(text).isdecimal() or not int(str(text)):
            raise TargetError(f"{name} is {text}, not a whole number that can be varied.")

        def with_setting(value: int) -> tuple[Staged, Hardware | None]:
            changed = replace(target, settings={**target.settings, name: str(value)})
            return changed.inspection(target.under(partitioner)), on

        return VaryingSize(name, "largest", int(str(text)), with_setting)
    if name in axes:

        def with_axis(value: int) -> tuple[Staged, Hardware | None]:
            changed = {**axes, name: value}
            inspection = replace(target, mesh=changed).inspection(target.under(partitioner))
            return inspection, hardware_for(on, math.prod(changed.values()))

        return VaryingSize(name, "fewest", axes[name], with_axis)
    numbers = [setting.name for setting in known.values() if setting.type is int]
    raise TargetError(
        f"{target.word} has no size {name!r} to vary.",
        hint=f"Name {one_of([*numbers, *axes])}."
        if numbers or axes
        else "Let a function return the program, with the size as a parameter.",
    )


def hardware_for(on: Hardware | None, devices: int) -> Hardware | None:
    """The same hardware with another number of devices.

    Raises:
        TargetError: it is a TPU slice, whose shape nobody can know.
    """
    if on is None or on.platform == "cpu":
        return None
    if on.platform == "cuda" and on.config:
        hosts = -(-devices // 8)
        topology = f"1x1x{devices}" if hosts == 1 else f"1x{hosts}x8"
        return replace(on, count=devices, topology=topology)
    raise TargetError(
        f"The number of devices of {on} can't be varied.",
        hint="Vary a setting, or give another --on and --mesh.",
    )
