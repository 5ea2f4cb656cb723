"""A mesh with rules for logical axes, as MaxText configures one and Flax reads them.

A rule names a logical axis and the mesh axes that it is sharded over. There may be several for one
name, which are alternatives: of each tensor the first is taken whose mesh axes no other of its
dimensions has. Source: ``flax.linen.spmd.logical_to_mesh_axes``, and MaxText's ``base.yml``, whose
keys these are (https://github.com/AI-Hypercomputer/maxtext).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sdyscope.errors import TargetError, did_you_mean
from sdyscope.mesh_config.mesh_shape import MeshShape, SizedMeshShape, check_name, names_of
from sdyscope.values.sharding import PartitionSpec

Rule: TypeAlias = tuple[str, tuple[str, ...]]

#: The keys of a configuration that are read; `ici_AXIS_parallelism` and `dcn_AXIS_parallelism`
#: besides. It has many others, which say nothing of the mesh.
RULE_KEYS = ("mesh_axes", "logical_axis_rules")


@dataclass(frozen=True, slots=True)
class RuleMapping:
    """Rules for logical axes, in order.

    Attributes:
        given: each rule: a logical axis and mesh axes, major to minor; none for one that stays
            whole.
    """

    given: tuple[Rule, ...]

    def partition_spec(self, logical: Sequence[str], tensor: str = "") -> PartitionSpec:
        """How a tensor with these logical axes is sharded; one without a rule stays whole.

        Args:
            logical: name of each dimension.
            tensor: what to call it in an error.

        Raises:
            TargetError: two dimensions have the same name, or they are no list of names.
        """
        logical = names_of(logical, "The logical axes", "embed")
        if len(set(logical)) < len(logical):
            what = tensor or f"[{', '.join(logical)}]"
            raise TargetError(
                f"Two dimensions of {what} have the same logical axis: no rule can tell them apart."
            )
        entries: dict[str, tuple[str, ...]] = {}
        for name, axes in self.given:
            used = {axis for taken in entries.values() for axis in taken}
            if name in logical and name not in entries and not used.intersection(axes):
                entries[name] = axes
        return PartitionSpec.of(*(entries.get(name, ()) for name in logical))

    def rules(self, mesh_axes: Sequence[str]) -> tuple[tuple[str, tuple[str, ...] | None], ...]:
        """The rules as Flax takes them, for ``flax.linen.logical_axis_rules`` and NNX's.

        Args:
            mesh_axes: the names of the mesh's axes, `mesh.axis_names`; others are left out.
        """
        there = (
            (name, tuple(axis for axis in axes if axis in mesh_axes)) for name, axes in self.given
        )
        return tuple((name, axes or None) for name, axes in there)

    def resources(self, mesh_axes: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """The mapping as Haliax takes it, which knows no alternatives: each name's first rule.

        Args:
            mesh_axes: as of ``rules``.
        """
        resources: dict[str, tuple[str, ...]] = {}
        for name, axes in self.rules(mesh_axes):
            resources.setdefault(name, axes or ())
        return {name: axes for name, axes in resources.items() if axes}


@dataclass(frozen=True, slots=True)
class RuledMesh:
    """A mesh, and rules for logical axes that hold for compute and for storage alike.

    Attributes:
        mesh_shape: its shape.
        logical_axis_rules: the rules, in order.

    Raises:
        TargetError: a rule names an axis that the mesh does not have, or one twice.
    """

    mesh_shape: MeshShape
    logical_axis_rules: tuple[Rule, ...]

    def __post_init__(self) -> None:
        known = self.mesh_shape.axis_names
        for name, axes in self.logical_axis_rules:
            for axis in axes:
                if axis not in known:
                    raise TargetError(
                        f"logical_axis_rules maps {name!r} to {axis!r}, and mesh_axes has no such "
                        "axis.",
                        hint=did_you_mean(axis, known, f"It has {', '.join(known)}."),
                    )
                if axes.count(axis) > 1:
                    raise TargetError(f"logical_axis_rules maps {name!r} to {axis!r} twice.")

    def over(self, devices: int, slices: int = 1) -> SizedMeshShape:
        """The mesh on a number of devices; see ``MeshShape.over``."""
        return self.mesh_shape.over(devices, slices)

    @property
    def mapping(self) -> RuleMapping:
        """The rules."""
        return RuleMapping(self.logical_axis_rules)

    @property
    def resolved_compute_mapping(self) -> RuleMapping:
        """The rules, which hold for compute, too."""
        return self.mapping

    @property
    def resolved_param_mapping(self) -> RuleMapping:
        """The rules, which hold for storage, too."""
        return self.mapping


def ruled_mesh_of(data: Mapping[str, Any]) -> RuledMesh:
    """The mesh and the rules of a configuration; its other keys are not looked at.

    Raises:
        TargetError: ``mesh_axes`` is missing, a size is given for another axis, or what is said
            can't be.
    """
    if "mesh_axes" not in data:
        raise TargetError(
            "logical_axis_rules are about the axes of mesh_axes, which is missing.",
            hint='Add it, such as mesh_axes: ["data", "fsdp", "tensor"].',
        )
    names = names_of(data["mesh_axes"], "mesh_axes", "data")
    for name in names:
        check_name(name, "a mesh axis")
    sizes: dict[str, dict[str, int]] = {"ici": {}, "dcn": {}}
    for key, value in data.items():
        side, _, rest = key.partition("_")
        axis, is_size, more = rest.rpartition("_parallelism")
        if side not in sizes or not is_size or more:
            continue
        if axis not in names:
            if value != 1:
                raise TargetError(
                    f"{key} is {value!r}, and mesh_axes has no axis {axis!r}.",
                    hint=f"It has {', '.join(names)}.",
                )
            continue
        sizes[side][axis] = value
    ici, dcn = (tuple(sizes[side].get(name, 1) for name in names) for side in ("ici", "dcn"))
    return RuledMesh(MeshShape(names, ici, dcn), tuple(map(_rule, _rules(data))))


def _rules(data: Mapping[str, Any]) -> Sequence[Any]:
    given = data["logical_axis_rules"]
    if not isinstance(given, list | tuple):
        raise TargetError("logical_axis_rules is not a list of rules.", hint=_SUCH_AS)
    return given


_SUCH_AS = "Such as [['batch', ['data', 'fsdp']], ['mlp', 'tensor'], ['kv', []]]."


def _rule(given: Any) -> Rule:
    if not isinstance(given, list | tuple) or len(given) != 2 or not isinstance(given[0], str):
        raise TargetError(
            f"The logical axis rule {given!r} is not a pair of a name and mesh axes.", hint=_SUCH_AS
        )
    name, axes = given
    named = () if axes is None else (axes,) if isinstance(axes, str) else axes
    if not isinstance(named, list | tuple) or not all(isinstance(axis, str) for axis in named):
        raise TargetError(
            f"logical_axis_rules maps {name!r} to {axes!r}, which is neither a mesh axis nor a "
            "list of them."
        )
    return name, tuple(named)
