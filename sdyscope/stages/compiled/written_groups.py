"""The devices that work together in a collective of StableHLO, as its attributes say."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from sdyscope.errors import SdyscopeError
from sdyscope.graph.types import parse_type
from sdyscope.stages import compat
from sdyscope.syntax import shardy
from sdyscope.values.explicit_collectives import AxisRefList

#: How many devices are listed in a text.
_LISTED = 64

_GLOBAL_IDS = "use_global_device_ids"

# From JAX 0.11 on: ReplicaGroupMeshAxesAttr and AxisRefAttr of StableHLO's StablehloAttrs.td.
_MESH_AXES = "#stablehlo.replica_group_mesh_axes<"
_AXIS = re.compile(
    r'#stablehlo\.axis_ref<name = (?P<name>"(?:[^"\\]|\\.)*")'
    r"(?:, sub_axis_info = (?P<part>\(\d+\)\d+))?>"
)


@dataclass(frozen=True, slots=True)
class WrittenGroups:
    """Replica groups, or source-target pairs.

    Attributes:
        axes: the mesh axes that the groups are along, where it is axes that are written.
        groups: the groups or pairs where these are.
        pairs: whether ``groups`` are pairs.
        text: what is written; of many devices, how many groups of how many.
        global_ids: whether it says that the numbers are of devices, not of replicas.
    """

    axes: AxisRefList | None
    groups: tuple[tuple[int, ...], ...] | None
    pairs: bool
    text: str
    global_ids: bool


def written_groups(attributes: Any) -> WrittenGroups:
    """The groups or pairs among the attributes of an op.

    Raises:
        SdyscopeError: there are none, or they are written in a form that is not known.
    """
    name = next((n for n in ("source_target_pairs", "replica_groups") if n in attributes), None)
    if name is None:
        raise SdyscopeError("it says no groups of devices")
    attribute, global_ids = attributes[name], _GLOBAL_IDS in attributes
    numbers = compat.integers(attribute)
    if numbers is None:
        text = str(attribute)
        if not text.startswith(_MESH_AXES):
            raise SdyscopeError(f"{name} that are no list of numbers: {text}")
        refs = [match["name"] + _colon(match["part"]) for match in _AXIS.finditer(text)]
        if len(refs) != text.count("axis_ref<"):
            raise SdyscopeError(f"{name} that are no list of axes: {text}")
        axes = AxisRefList(tuple(map(shardy.parse_axis_ref, refs)))
        return WrittenGroups(axes, None, False, str(axes), global_ids)
    width = parse_type(str(attribute.type)).shape or (1, 1)
    size = int(width[-1] or 1)
    # -1 pads groups that are shorter than others.
    groups = tuple(
        tuple(number for number in numbers[at : at + size] if number >= 0)
        for at in range(0, len(numbers), size)
    )
    return _of_numbers(groups, name == "source_target_pairs", global_ids)


def async_groups(config: str) -> WrittenGroups:
    """The groups or pairs of a collective that JAX starts by a custom call.

    Args:
        config: its ``async_collective_config``, which is JSON: ``{"replica_groups": [[0, 1]]}``,
            ``{"permutation": [[0, 1], [1, 0]]}``.

    Raises:
        SdyscopeError: there are none, or they are written in a form that is not known.
    """
    try:
        said = json.loads(config)
        name = next(each for each in ("permutation", "replica_groups") if each in said)
        groups = tuple(tuple(map(int, group)) for group in said[name])
    except (ValueError, TypeError, StopIteration) as error:
        raise SdyscopeError(f"it says no groups of devices: {config}") from error
    return _of_numbers(groups, name == "permutation", bool(said.get(_GLOBAL_IDS)))


def _of_numbers(
    groups: tuple[tuple[int, ...], ...], pairs: bool, global_ids: bool
) -> WrittenGroups:
    text = "{" + ",".join("{" + ",".join(map(str, group)) + "}" for group in groups) + "}"
    if sum(map(len, groups)) > _LISTED:
        text = f"{len(groups):,} of {max(map(len, groups)):,}"
    return WrittenGroups(None, groups, pairs, text, global_ids)


def _colon(part: str | None) -> str:
    return "" if part is None else f":{part}"
