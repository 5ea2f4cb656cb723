"""The mesh that `--mesh`, `--mesh-config`, `--mesh-selector` and `--devices` choose together."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sdyscope.errors import TargetError
from sdyscope.hardware.names import Devices, Hardware, parse_devices
from sdyscope.terminal.messages import tell
from sdyscope.words.counts import listed

if TYPE_CHECKING:
    from sdyscope.mesh_config import MappedMesh, MeshRules, MeshShape

#: What a configuration says beside its mesh.
_MAPPINGS = ("shared_mapping", "compute_mapping", "param_mapping", "logical_axis_rules")


@dataclass(frozen=True, slots=True)
class Other:
    """What a second `--mesh-config` says: the other side of a comparison.

    Attributes:
        mesh: the sizes of the mesh axes in order.
        settings: what `--set` says, with the configuration's mappings.
    """

    mesh: dict[str, int] | None
    settings: dict[str, Any]


def read_devices(_: click.Context, __: click.Parameter, value: str | None) -> Devices | None:
    """Reads `16`, or `4096x8slices`, which is 8 slices of 4,096 devices."""
    if value is None:
        return None
    try:
        return parse_devices(value)
    except TargetError as error:
        raise click.BadParameter(error.message) from error


def choosing(function: Callable[..., int], has_devices: bool) -> Callable[..., int]:
    """Makes one parameter, `mesh`, of the options that choose it.

    Args:
        function: a command's function; `mesh` is then a dict of axis sizes in order, or None.
        has_devices: whether it has a parameter `devices` of its own, a number, which it keeps.
    """
    # Which uses the mappings of a configuration, too.
    has_config = "mesh_config" in inspect.signature(function).parameters
    has_other = takes_other(function)

    @functools.wraps(function)
    def command(
        *,
        mesh: dict[str, int] | None,
        mesh_config: str | tuple[str, ...] | None,
        mesh_selector: str | None,
        **parameters: Any,
    ) -> int:
        other_config = None
        if isinstance(mesh_config, tuple):
            if len(mesh_config) > 2:
                raise TargetError("--mesh-config takes one file per side.", hint="Give it twice.")
            mesh_config, other_config = (*mesh_config, None, None)[:2]
        if has_devices:
            count = parameters.get("devices")
            # Of each process, where there are several.
            several = getattr(parameters.get("group"), "count", 1)
            devices = None if count is None else Devices(count * several)
        else:
            devices = parameters.pop("devices")
        chosen = chosen_mesh(
            mesh,
            mesh_config,
            mesh_selector,
            devices,
            parameters,
            has_devices=has_devices,
        )
        more = with_mapping(mesh_config, parameters, quiet=has_config)
        if has_other:
            parameters["other"] = _other(other_config, mesh_selector, devices, parameters)
        if has_config:
            parameters["mesh_config"] = mesh_config
        return function(mesh=chosen, **{**parameters, **more})

    return command


def takes_other(function: Callable[..., int]) -> bool:
    """Whether a command compares two sides, so that `--mesh-config` can be given twice."""
    return "other" in inspect.signature(function).parameters


def _other(
    config: str | None,
    selector: str | None,
    devices: Devices | None,
    parameters: Mapping[str, Any],
) -> Other | None:
    if config is None:
        return None
    mesh = chosen_mesh(None, config, selector, devices, parameters)
    return Other(mesh, with_mapping(config, parameters).get("settings", parameters["settings"]))


def chosen_mesh(
    mesh: Mapping[str, int] | None,
    config: str | None,
    selector: str | None,
    devices: Devices | None,
    parameters: Mapping[str, Any],
    *,
    has_devices: bool = False,
) -> dict[str, int] | None:
    """The sizes of the mesh axes in order; None for the target's own mesh.

    Args:
        mesh: what `--mesh` says.
        config: what `--mesh-config` says.
        selector: what `--mesh-selector` says.
        devices: what `--devices` says.
        parameters: the command's others, of which `on`, `target` or `targets` and `settings` count.
        has_devices: whether the command has a `--devices` of its own.

    Raises:
        TargetError: they do not fit each other, or a size can't be inferred.
    """
    shape = _shape(mesh, config, selector)
    if shape is None:
        if devices is not None and not has_devices:
            _devices_are_asked_for(parameters)
        return None
    if mesh is not None and shape.is_sized and (has_devices or devices is None):
        return dict(mesh)
    known = _devices(devices, parameters)
    there = known or _own(shape, parameters)
    try:
        mesh_sizes = shape.over(there.count, there.slices)
    except TargetError as error:
        if known is None:
            error.hint = (
                "As many as the target's own mesh has. Say how many there are with --devices, such "
                "as 16, or 4096x8slices."
            )
        raise
    if mesh_sizes.mesh.device_ids is not None:
        _note(
            f"on {mesh_sizes.slices:,} slices JAX does not order the devices of {mesh_sizes} by "
            "their numbers; here they are in that order, so other axes cross slices."
        )
    return mesh_sizes.sizes


def _devices_are_asked_for(parameters: Mapping[str, Any]) -> None:
    """Whether a number of devices changes anything: for programs that make their own mesh of them.

    Raises:
        TargetError: it does not.
    """
    from sdyscope import targets

    if not any(map(targets.makes_mesh, _words(parameters))):
        raise TargetError(
            "--devices sets the size of an inferred mesh axis, and there is no mesh.",
            hint="Give one with --mesh, such as data=-1,model=2, or with --mesh-config.",
        )


def _words(parameters: Mapping[str, Any]) -> Sequence[str]:
    """The targets of a command."""
    return parameters.get("targets") or [
        word for name in ("target", "first", "second") if (word := parameters.get(name))
    ]


def known_devices(
    mesh: Mapping[str, int] | None,
    config: str | None = None,
    selector: str | None = None,
) -> int:
    """How many devices the options ask for, where they say all sizes; else 0."""
    try:
        shape = _shape(mesh, config, selector, quiet=True)
    except TargetError:
        return 0  # the command says it
    return math.prod((*shape.ici, *(shape.dcn or ()))) if shape and shape.is_sized else 0


def _shape(
    mesh: Mapping[str, int] | None,
    config: str | None,
    selector: str | None,
    *,
    quiet: bool = False,
) -> MeshShape | None:
    from sdyscope.mesh_config import MeshRules, MeshShape, read_mesh_config

    if config is None:
        if selector is not None:
            raise TargetError(
                "--mesh-selector chooses among the mesh rules of a file.",
                hint="Give the file with --mesh-config.",
            )
        return None if mesh is None else MeshShape(tuple(mesh), tuple(mesh.values()))
    if mesh is not None:
        raise TargetError(
            "--mesh and --mesh-config both define the mesh.", hint="Leave one of them out."
        )
    if not config:
        raise TargetError("--mesh-config names no file.", hint="Name one: FILE or FILE:SECTION.")
    path, section = _place(config)
    configuration = read_mesh_config(path, section)
    if not isinstance(configuration, MeshRules):
        if selector is not None:
            raise TargetError(
                "--mesh-selector chooses among mesh rules, and this configuration has none.",
                file=path,
                hint="Leave --mesh-selector out.",
            )
        return configuration.mesh_shape
    if selector is not None and not quiet:
        _note_rules(configuration, path, selector)
    try:
        return configuration.select(selector)
    except TargetError as error:
        error.file = path
        raise


def _note_rules(rules: MeshRules, path: str, selector: str) -> None:
    """Says what a selector does that one may not expect: no rule matches, or several do."""
    matching = [repr(rule.pattern) for rule in rules.matching(selector)]
    if len(matching) > 1:
        _note(
            f"{len(matching)} mesh rules of {path} match {selector!r}, {listed(matching)}; the "
            "first is used."
        )
    elif not matching and rules.mesh_shape is not None:
        _note(f"no mesh rule of {path} matches {selector!r}; its mesh_shape is used.")


def _note(words: str) -> None:
    tell(f"note: {words}")


def with_mapping(
    config: str | None, parameters: Mapping[str, Any], *, quiet: bool = False
) -> dict[str, Any]:
    """The command's `settings`, with the mappings of a configuration for programs that take them.

    Args:
        config: what `--mesh-config` says.
        parameters: the command's others; see `chosen_mesh`.
        quiet: whether the command looks at the mappings itself.
    """
    from sdyscope import targets
    from sdyscope.mesh_config import MeshRules, read_mesh_config

    if config is None or "settings" not in parameters:
        return {}
    configuration = read_mesh_config(*_place(config))
    if isinstance(configuration, MeshRules):
        return {}
    words = _words(parameters)
    if any(map(targets.takes_mapping, words)):
        return {"settings": {**(parameters["settings"] or {}), targets.MAPPING: configuration}}
    given = [name for name in _MAPPINGS if getattr(configuration, name, ())]
    if given and not quiet:
        _note(
            f"only the mesh of {config} is used, not its {listed(given)}: {listed(words)} takes "
            f"no parameter `{targets.MAPPING}` (`sdyscope docs mesh`)."
        )
    return {}


def mapped_mesh(config: str) -> MappedMesh | None:
    """What `--mesh-config` says, where it has one mapping for compute and one for parameters.

    Raises:
        TargetError: it can't be read.
    """
    from sdyscope.mesh_config import MappedMesh, read_mesh_config

    configuration = read_mesh_config(*_place(config))
    return configuration if isinstance(configuration, MappedMesh) else None


def _place(config: str) -> tuple[str, str | None]:
    """The file and the section of `mesh.toml:trainer.mesh`."""
    path, colon, section = config.rpartition(":")
    return (path, section) if colon and path and not Path(config).exists() else (config, None)


def _devices(given: Devices | None, parameters: Mapping[str, Any]) -> Devices | None:
    """The devices of `--devices`, else of `--on`; None where neither says how many."""
    hardware = parameters.get("on") or ()
    each = (hardware,) if isinstance(hardware, Hardware) else tuple(hardware)
    counts = dict.fromkeys(devices for on in each if (devices := devices_of(on)) is not None)
    if given is not None:
        for devices in counts:
            if devices.count != given.count:
                raise TargetError(
                    f"--devices says {given.count:,} devices, and --on has {devices.count:,}.",
                    hint="Leave --devices out.",
                )
        return given
    if len(counts) > 1:
        raise TargetError(
            "The two sides are compiled for different numbers of devices.",
            hint="Write the sizes of --mesh out.",
        )
    return next(iter(counts), None)


def devices_of(on: Hardware) -> Devices | None:
    """The devices of some hardware; None where it has as many as the mesh.

    Source: of chips that are two devices, docs/hardware.md, where the compiler was asked.
    """
    from sdyscope.hardware import specs

    if on.platform == "tpu" and on.chip:
        chips = math.prod(map(int, on.topology.split("x"))) * on.slices
        kind = specs.chips().get(on.chip)
        return Devices(chips * (1 if kind is None else kind.devices), on.slices)
    return None if on.count is None else Devices(on.count, _domains(on))


def _domains(on: Hardware) -> int:
    return int(on.topology.split("x")[0]) if on.platform == "cuda" and on.config else 1


def _own(shape: MeshShape, parameters: Mapping[str, Any]) -> Devices:
    """As many devices as the target's own mesh has; the sizes' product where none is -1."""
    from sdyscope.facts.compiled import Compiled
    from sdyscope.stages.executed.devices import devices_needed
    from sdyscope.targets import resolve

    if shape.is_sized:
        return Devices(
            math.prod(shape.ici) * math.prod(shape.dcn or ()), math.prod(shape.dcn or ())
        )
    words = parameters.get("targets") or (parameters.get("target") or parameters["first"],)
    if len(words) > 1:
        raise TargetError(
            f"The {_unknown(shape)} can't be inferred from {len(words)} targets at once.",
            hint="Say how many devices there are: --devices 8.",
        )
    word = words[0]
    try:
        program = resolve(word, settings=parameters.get("settings"))
    except TargetError as error:
        if error.message.endswith("needs a mesh."):
            raise TargetError(
                f"{word} has no mesh of its own to infer the {_unknown(shape)} from.",
                hint="Say how many devices there are: --devices 8.",
            ) from error
        raise
    if isinstance(program, Compiled):
        return Devices(program.devices)
    if isinstance(program, Path):
        raise TargetError(
            f"The {_unknown(shape)} can't be inferred from a file.",
            file=word,
            hint="Write the size out, or say how many devices there are: --devices 8.",
        )
    return Devices(devices_needed(program))


def _unknown(shape: MeshShape) -> str:
    """`size of data`, `sizes of replica_dcn and data`."""
    known = [side for side in (shape.dcn, shape.ici) if side is not None]
    names = [
        name
        for side in known
        for name, size in zip(shape.axis_names, side, strict=True)
        if size == -1
    ]
    return f"size{'s' if len(names) > 1 else ''} of {listed(names)}"
