"""What if a tensor were sharded otherwise? Changes annotations in a lowered module.

The program is not traced again: a copy of its module says something else on arguments, results and
constraints, constrains further values or donates further arguments, and is propagated like the
first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from sdyscope.annotations import Annotation
from sdyscope.errors import ConversionError, TargetError
from sdyscope.facts.propagated import ValueId
from sdyscope.graph import OpGraph
from sdyscope.graph.donation import DONOR
from sdyscope.stages import compat
from sdyscope.stages.align import tags
from sdyscope.stages.lowered.lower import LoweredModule
from sdyscope.values.convert import to_hlo_sharding, to_tensor_sharding, unspecified_dims
from sdyscope.values.mesh import Mesh
from sdyscope.values.sharding import DimSharding, NamedSharding, TensorSharding


@dataclass(frozen=True, slots=True)
class ShardingEdit:
    """What to say on one tensor from now on.

    Attributes:
        annotation: what is written there, of the module that is to be changed.
        sharding: what to write; None to keep what is there.
        priorities: Shardy's priority of dimensions, 0 being the first to be propagated.
        unspecified: whether to write nothing on an argument or result: the compiler decides.
    """

    annotation: Annotation
    sharding: NamedSharding | None = None
    priorities: tuple[tuple[int, int], ...] = ()
    unspecified: bool = False


@dataclass(frozen=True, slots=True)
class NewConstraint:
    """A constraint that is not there yet.

    Attributes:
        value: the value, by its op in the graph; all its uses get what is constrained.
        sharding: what to write.
    """

    value: ValueId
    sharding: NamedSharding


@dataclass(frozen=True, slots=True)
class DonatedArgument:
    """An argument whose buffer is given to the program.

    Attributes:
        annotation: the argument, of the module that is to be changed.
    """

    annotation: Annotation


@dataclass(frozen=True, slots=True)
class Offload:
    """An argument or result that is in the host's memory, and the device's where it is used.

    Attributes:
        annotation: the argument or result, of the module that is to be changed.
    """

    annotation: Annotation


ModuleEdit: TypeAlias = ShardingEdit | NewConstraint | DonatedArgument | Offload
"""What can be written in a module that was lowered already."""


def annotate(
    lowered: LoweredModule, graph: OpGraph, changes: Sequence[ModuleEdit]
) -> LoweredModule:
    """A copy of the module with other shardings on some of its tensors.

    Args:
        lowered: the module; it stays as it is.
        graph: its op graph.
        changes: what to change.

    Raises:
        TargetError: a change that the module can't carry; says which and why.
    """
    if lowered.module is None:
        raise TargetError(f"{lowered.name} can't be changed: MLIR's bindings could not read it.")
    module = tags.copy(lowered.module)
    with module.context:
        operations = tags.operations(module, graph)
        for change in changes:
            if isinstance(change, NewConstraint):
                constrain(operations[change.value[0]], change, graph)
            elif isinstance(change, DonatedArgument):
                function = operations[graph.functions[change.annotation.function].op]
                _on_signature(function, change.annotation, _DONATED)
            elif isinstance(change, Offload):
                _offload(operations[graph.functions[change.annotation.function].op], change)
            else:
                _apply(change, graph, operations)
        if not module.operation.verify():
            raise TargetError(f"{lowered.name} is not a valid module after these changes.")
    return replace(lowered, module=module, lowered=None)


def written_attributes(change: ShardingEdit, graph: OpGraph) -> dict[str, Any]:
    """The attributes that say what is to be written, in the context that is entered.

    Args:
        change: what to change.
        graph: the op graph that the annotation is of.

    Returns:
        By name; None for one that is to be taken away.

    Raises:
        TargetError: what is there can't carry it; says why.
    """
    return {
        named.name: None if named.text is None else compat.ir.Attribute.parse(named.text)
        for named in _written(change, graph)
    }


def constrain(operation: Any, change: NewConstraint, graph: OpGraph) -> None:
    """Constrains a result of an op, in place, for all that uses it.

    Args:
        operation: the op.
        change: which of its results, and how.
        graph: the op graph whose partitioner's constraints are written.

    Raises:
        TargetError: the value can't be sharded so.
    """
    value = operation.results[change.value[1]]
    rank = len(compat.ir.RankedTensorType(value.type).shape)
    try:
        if _is_gspmd(graph):
            name, attributes = "stablehlo.custom_call", _gspmd_constraint(change.sharding, rank)
        else:
            symbol = _mesh_symbol(graph, change.sharding.mesh)
            tensor_sharding = to_tensor_sharding(change.sharding, rank, mesh_name=symbol)
            name = "sdy.sharding_constraint"
            attributes = {"sharding": compat.ir.Attribute.parse(tensor_sharding.attribute)}
    except ConversionError as error:
        raise TargetError(f"{operation.name}: {error.message}.") from error
    inserted = compat.ir.Operation.create(
        name,
        results=[value.type],
        operands=[value],
        attributes=attributes,
        loc=operation.location,
        ip=compat.ir.InsertionPoint(operation),
    )
    inserted.move_after(operation)
    value.replace_all_uses_except(inserted.results[0], inserted)


def _offload(function: Any, change: Offload) -> None:
    """As JAX lowers ``jax.device_put`` between two memories, at the ends of a function."""
    there = change.annotation
    assert there.index is not None
    _on_signature(function, there, _ON_HOST)
    block = function.regions[0].blocks[0]
    if there.kind == "argument":
        value = block.arguments[there.index]
        moved = _moved(value, "device", compat.ir.InsertionPoint.at_block_begin(block))
        value.replace_all_uses_except(moved.results[0], moved)
        return
    ends = block.operations[len(block.operations) - 1]
    value = ends.operands[there.index]
    moved = _moved(value, _HOST_KIND, compat.ir.InsertionPoint(ends))
    ends.operands[there.index] = moved.results[0]


def _moved(value: Any, memory: str, at: Any) -> Any:
    parse = compat.ir.Attribute.parse
    return compat.ir.Operation.create(
        "stablehlo.custom_call",
        results=[value.type],
        operands=[value],
        attributes={
            "call_target_name": parse('"annotate_device_placement"'),
            "has_side_effect": parse("true"),
            "backend_config": parse('""'),
            "api_version": parse("1 : i32"),
            "mhlo.frontend_attributes": parse(f'{{_xla_buffer_placement = "{memory}"}}'),
        },
        loc=compat.ir.Location.unknown(),
        ip=at,
    )


def _gspmd_constraint(sharding: NamedSharding, rank: int) -> dict[str, Any]:
    parse, opened = compat.ir.Attribute.parse, unspecified_dims(sharding, rank)
    config = f"unspecified_dims=[{','.join(map(str, opened))}]" if opened else ""
    return {
        "call_target_name": parse('"Sharding"'),
        "mhlo.sharding": parse(f'"{to_hlo_sharding(sharding, rank)}"'),
        "backend_config": parse(f'"{config}"'),
        "api_version": parse("1 : i32"),
    }


def _apply(change: ShardingEdit, graph: OpGraph, operations: dict[int, Any]) -> None:
    there = change.annotation
    if there.kind.startswith("shard_map") or there.kind in ("op", "inner argument", "inner result"):
        raise TargetError(
            f"The sharding of the {there.kind} {there.path} can't be changed.",
            hint="Name an argument, a result or a constraint.",
        )
    attributes = _written(change, graph)
    if there.kind == "constraint":
        _on_constraint(operations[there.op], attributes)
        return
    assert there.index is not None
    _on_signature(operations[graph.functions[there.function].op], there, attributes[0])


def _written(change: ShardingEdit, graph: OpGraph) -> tuple[_Named, ...]:
    if change.unspecified:
        return (_Named("mhlo.sharding" if _is_gspmd(graph) else "sdy.sharding", None),)
    try:
        return _hlo_texts(change) if _is_gspmd(graph) else _shardy_text(change, graph)
    except ConversionError as error:
        raise TargetError(f"{change.annotation.path}: {error.message}.") from error


@dataclass(frozen=True, slots=True)
class _Named:
    """An attribute's name and its text in MLIR; None to take it away."""

    name: str
    text: str | None


#: What JAX writes on an argument whose buffer may be any result's.
_DONATED = _Named(DONOR, "true")


#: The host's memory that TPUs and GPUs read directly, and what JAX writes on what is in it.
_HOST_KIND = "pinned_host"
_ON_HOST = _Named("mhlo.memory_kind", f'"{_HOST_KIND}"')


def _is_gspmd(graph: OpGraph) -> bool:
    return not graph.meshes


def _hlo_texts(change: ShardingEdit) -> tuple[_Named, ...]:
    there, sharding = change.annotation, change.sharding
    if change.priorities:
        raise ConversionError("GSPMD has no priorities")
    assert sharding is not None
    rank = len(there.shape or ())
    opened = unspecified_dims(sharding, rank)
    if opened and there.kind != "constraint":
        raise ConversionError(f"GSPMD can't leave a dimension of an {there.kind} open")
    text = str(to_hlo_sharding(sharding, rank))
    config = f"unspecified_dims=[{','.join(map(str, opened))}]" if opened else ""
    return _Named("mhlo.sharding", f'"{text}"'), _Named("backend_config", f'"{config}"')


def _shardy_text(change: ShardingEdit, graph: OpGraph) -> tuple[_Named, ...]:
    there, sharding = change.annotation, change.sharding
    rank = len(there.shape or ())
    if sharding is not None:
        symbol = _mesh_symbol(graph, sharding.mesh)
        tensor_sharding = to_tensor_sharding(sharding, rank, mesh_name=symbol)
    elif isinstance(there.sharding, TensorSharding):
        tensor_sharding = there.sharding
    else:
        raise ConversionError("it has no sharding that could have a priority")
    dims = list(tensor_sharding.dim_shardings)
    for dim, priority in change.priorities:
        if not 0 <= dim < rank:
            raise ConversionError(f"it has no dimension {dim}, only {rank}")
        if not dims[dim].axes and dims[dim].is_closed:
            raise ConversionError(f"dimension {dim} is not sharded, so it can't have a priority")
        dims[dim] = DimSharding(dims[dim].axes, dims[dim].is_closed, priority)
    tensor_sharding = replace(tensor_sharding, dim_shardings=tuple(dims))
    name = "sharding" if there.kind == "constraint" else "sdy.sharding"
    return (_Named(name, tensor_sharding.attribute),)


def _mesh_symbol(graph: OpGraph, mesh: Mesh) -> str:
    for name, known in graph.meshes.items():
        if known == mesh:
            return name
    known_meshes = ", ".join(str(known) for known in graph.meshes.values()) or "none"
    raise ConversionError(f"the module has no mesh {mesh}; it has {known_meshes}")


def _on_constraint(operation: Any, attributes: tuple[_Named, ...]) -> None:
    for attribute in attributes:
        assert attribute.text is not None
        operation.attributes[attribute.name] = compat.ir.Attribute.parse(attribute.text)


def _on_signature(function: Any, there: Annotation, named: _Named) -> None:
    name = "arg_attrs" if there.kind == "argument" else "res_attrs"
    view = function.opview
    count = len(view.type.inputs if there.kind == "argument" else view.type.results)
    if name in function.attributes:
        dictionaries = list(compat.ir.ArrayAttr(function.attributes[name]))
    else:
        dictionaries = [compat.ir.DictAttr.get({})] * count
    assert there.index is not None
    own = dict(compat.dictionary_items(dictionaries[there.index]))
    if named.text is None:
        own.pop(named.name, None)
    else:
        own[named.name] = compat.ir.Attribute.parse(named.text)
    dictionaries[there.index] = compat.ir.DictAttr.get(own)
    function.attributes[name] = compat.ir.ArrayAttr.get(dictionaries)
