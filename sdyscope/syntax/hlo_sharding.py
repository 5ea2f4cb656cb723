"""Shardings of HLO instructions: text to values. The grammar is ``grammars/hlo_sharding.lark``.

Read is what XLA's own parser reads, of JAX 0.7.2 to 0.12 together. Stricter than it is where a
text contradicts itself and XLA takes one part of it (``{replicated manual}``, an attribute twice,
a device list of another size than its tiles), and where it goes on with what has no meaning (sizes
below 1, a permutation that is none). More is read where an axis list is in another order than the
mesh, at which XLA ends the process, and metadata fields of other versions.
The way back is ``str(value)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lark import Token

from sdyscope.errors import ConversionError
from sdyscope.syntax._hlo_mesh import (
    TERMINAL_NAMES,
    HloMeshTransformer,
    named_axes,
    whole_number,
)
from sdyscope.syntax._parser import Language, items, of_list
from sdyscope.values.mesh import AxisRef, Mesh
from sdyscope.values.sharding import DimSharding, ReductionKind
from sdyscope.values.tiling import (
    AnyHloSharding,
    HloSharding,
    HloShardingType,
    NamedHloSharding,
    OpMetadata,
    ShardGroup,
    SubgroupType,
    TileAssignment,
    TupleSharding,
)

#: A field of a sharding and its value.
_Field = tuple[str, Any]


class _Values(HloMeshTransformer):
    tuple_sharding = of_list(TupleSharding)

    # The classic form

    def hlo_sharding(self, children: list[_Field]) -> HloSharding:
        fields = _once(children)
        tile = fields.get("tile_assignment")
        if "type" not in fields and tile is None:
            raise ConversionError("a sharding needs a type or devices")
        if "type" in fields and tile is not None:
            raise ConversionError(f"a sharding that is {fields['type']} has no tiles")
        if tile is None and fields.get("subgroup_types"):
            raise ConversionError("only a sharding with tiles has last_tile_dims")
        return HloSharding(fields.pop("type", "tiled"), **fields)

    def hlo_sharding_type(self, children: list[HloShardingType]) -> _Field:
        return "type", str(children[0])

    def device(self, children: list[int]) -> _Field:
        return "device", children[0]

    def tile_assignment(self, children: list[Any]) -> _Field:
        return "tile_assignment", TileAssignment(*children)

    def device_list(self, children: list[tuple[int, ...]]) -> tuple[int, ...]:
        return tuple(number for numbers in children for number in numbers)

    def DEVICES(self, token: Token) -> tuple[int, ...]:  # noqa: N802
        return tuple(map(whole_number, token.split(",")))

    def subgroup_types(self, children: list[SubgroupType | None]) -> _Field:
        return "subgroup_types", items(children) if children else ("replicated",)

    def subgroup_type(self, children: list[Token]) -> str:
        return str(children[0])

    def shard_group(self, children: list[Any]) -> _Field:
        kind, group_id = children
        return "shard_group", ShardGroup(kind.value, group_id)

    # The named form

    def named_hlo_sharding(self, children: list[Any]) -> NamedHloSharding:
        mesh: Mesh = children[0]
        fields = _once([field for field in children[1:] if field is not None])
        everything = tuple(AxisRef(axis.name) for axis in mesh.axes)
        for field in ("replicated_axes", "unreduced_axes", "manual_axes"):
            axes = fields.get(field, ())
            fields[field] = everything if axes is None else named_axes(mesh, axes)
        fields["dim_shardings"] = tuple(
            DimSharding(named_axes(mesh, dim.axes), dim.is_closed)
            for dim in fields.get("dim_shardings", ())
        )
        fields["reduction"] = fields.get("reduction") or "sum"
        return NamedHloSharding(mesh, **fields)

    def all_replicated(self, children: list[Any]) -> _Field:
        return "dim_shardings", ()

    def all_manual(self, children: list[Any]) -> _Field:
        return "manual_axes", None

    def all_unreduced(self, children: list[ReductionKind | None]) -> _Field:
        return "unreduced_axes", (children[0], None)

    def unreduced_as(self, children: list[Any]) -> _Field:
        return "unreduced_axes", tuple(children)

    def dim_shardings(self, children: list[Any]) -> _Field:
        return "dim_shardings", items(children)

    def dim_sharding(self, children: list[Any]) -> DimSharding:
        is_open = any(isinstance(child, Token) for child in children)
        return DimSharding(
            tuple(child for child in children if isinstance(child, AxisRef)), not is_open
        )

    def replicated_axes(self, children: list[Any]) -> _Field:
        return "replicated_axes", children[0]

    def unreduced_axes(self, children: list[Any]) -> _Field:
        return "unreduced_axes", tuple(children)

    def manual_axes(self, children: list[Any]) -> _Field:
        return "manual_axes", children[0]

    def reduction_kind(self, children: list[Token]) -> str:
        return str(children[0])

    # Metadata

    def metadata(self, children: list[OpMetadata]) -> _Field:
        return "metadata", tuple(children)

    op_metadata = of_list(OpMetadata)

    def metadata_field(self, children: list[Any]) -> tuple[str, Any]:
        name, value = str(children[0][:-1]), children[1]
        wanted = _FIELD_TYPES.get(name)
        if wanted is not None and not isinstance(value, wanted):
            raise ConversionError(f"{name} is {_TYPE_WORDS[wanted]}")
        if isinstance(value, int) and not -(1 << 31) <= value < 1 << 31:
            raise ConversionError(f"{value} does not fit in 32 bits")
        return name, value

    def integer_list(self, children: list[Any]) -> tuple[int, ...]:
        return children[0] or ()

    def unspecified_dims(self, children: list[Any]) -> tuple[int, ...]:
        return children[0] or ()


def _once(given: list[_Field]) -> dict[str, Any]:
    """The fields by name; the kind of a reduction, which comes with its axes, on its own.

    Raises:
        ConversionError: a field is given twice.
    """
    fields: dict[str, Any] = {}
    for name, value in given:
        if name in fields:
            raise ConversionError(f"a sharding can't have two {_WORDS.get(name, name)}")
        fields[name] = value
    if "unreduced_axes" in fields:
        fields["reduction"], fields["unreduced_axes"] = fields["unreduced_axes"]
    return fields


#: What OpMetadata of xla_data.proto has; a field of another version may be anything.
_FIELD_TYPES: dict[str, type] = {
    "op_type": str,
    "op_name": str,
    "source_file": str,
    "source_line": int,
    "source_end_line": int,
    "source_column": int,
    "source_end_column": int,
    "profile_type": tuple,
    "deduplicated_name": str,
    "scheduling_name": str,
    "stack_frame_id": int,
}
_TYPE_WORDS = {str: "a string", int: "an integer", tuple: "a list of integers in braces"}

_WORDS = {
    "type": "types",
    "device": "device attributes",
    "tile_assignment": "devices attributes",
    "subgroup_types": "last_tile_dims",
    "shard_group": "shard groups",
    "replicated_axes": "lists of replicated axes",
    "unreduced_axes": "lists of unreduced axes",
    "manual_axes": "lists of manual axes",
    "metadata": "metadata attributes",
}

LANGUAGE = Language(
    "hlo_sharding.lark",
    transformer=_Values,
    names={**TERMINAL_NAMES, "FIELD": "the name of a metadata field", "DEVICES": "an integer"},
)

#: A sharding in any form: ``{devices=[4,2]<=[8]}``, ``{mesh['a'=2], [{'a'}]}``, a tuple.
parse_hlo_sharding: Callable[[str], AnyHloSharding] = LANGUAGE.parser("sharding")

#: The dimensions in the backend config of ``@Sharding``: ``unspecified_dims=[0,2]``.
parse_unspecified_dims: Callable[[str], tuple[int, ...]] = LANGUAGE.parser("unspecified_dims")
