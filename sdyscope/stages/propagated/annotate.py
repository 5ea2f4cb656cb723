"""What if a tensor were sharded otherwise? Changes annotations in a lowered module.

The program is not traced again: a copy of its module says something else on arguments, results and
constraints, and is propagated like the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sdyscope.annotations import Annotation
from sdyscope.errors import ConversionError, TargetError
from sdyscope.graph import OpGraph
from sdyscope.stages import compat
from sdyscope.stages.align import tags
from sdyscope.stages.lowered.lower import LoweredModule
from sdyscope.values.convert import to_hlo_sharding, to_tensor_sharding, unspecified_dims
from sdyscope.values.mesh import Mesh
from sdyscope.values.sharding import DimSharding, NamedSharding, TensorSharding

__all__ = ["ShardingEdit", "annotate", "annotate_signature"]


#: What JAX writes on a donated argument whose result XLA is to find.
_DONOR = "jax.buffer_donor"


@dataclass(frozen=True, slots=True)
class ShardingEdit:
    """What to say on one tensor from now on.

    Attributes:
        annotation: what is written there, of the module that is to be changed.
        sharding: what to write; None to keep what is there.
        priorities: Shardy's priority of dimensions, 0 being the first to be propagated.
        unspecified: whether to write nothing on an argument or result: the compiler decides.
        donated: whether to donate an argument, as JAX does where a result can have its buffer.
    """

    annotation: Annotation
    sharding: NamedSharding | None = None
    priorities: tuple[tuple[int, int], ...] = ()
    unspecified: bool = False
    donated: bool = False

    @property
    def shards(self) -> bool:
        """Whether it says anything about the sharding."""
        return self.sharding is not None or bool(self.priorities) or self.unspecified


def annotate(
    lowered: LoweredModule, graph: OpGraph, changes: Sequence[ShardingEdit]
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
            _apply(change, graph, operations)
        if not module.operation.verify():
            raise TargetError(f"{lowered.name} is not a valid module after these changes.")
    return replace(lowered, module=module, lowered=None)


def annotate_signature(function: Any, graph: OpGraph, changes: Sequence[ShardingEdit]) -> None:
    """Writes other shardings on the arguments and results of a function, in place.

    Args:
        function: the ``func.func``, with the signature that it has in the graph.
        graph: the op graph that the annotations are of.
        changes: what to change; all of them on arguments or results of this function.

    Raises:
        TargetError: a change that the function can't carry; says which and why.
    """
    for change in changes:
        _on_signature(function, change.annotation, _written(change, graph)[0])


def _apply(change: ShardingEdit, graph: OpGraph, operations: dict[int, Any]) -> None:
    there = change.annotation
    if there.kind.startswith("shard_map") or there.kind in ("op", "inner argument", "inner result"):
        raise TargetError(
            f"The sharding of the {there.kind} {there.path} can't be changed.",
            hint="Name an argument, a result or a constraint.",
        )
    if change.donated:
        if there.kind != "argument":
            raise TargetError(f"{there.path} is a {there.kind}; only arguments are donated.")
        function = operations[graph.functions[there.function].op]
        _on_signature(function, there, _Named(_DONOR, "true"))
        if not change.shards:
            return
    made = _written(change, graph)
    if there.kind == "constraint":
        _on_constraint(operations[there.op], made)
        return
    assert there.index is not None
    _on_signature(operations[graph.functions[there.function].op], there, made[0])


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
        made = to_tensor_sharding(sharding, rank, mesh_name=symbol)
    elif isinstance(there.sharding, TensorSharding):
        made = there.sharding
    else:
        raise ConversionError("it has no sharding that could have a priority")
    dims = list(made.dim_shardings)
    for dim, priority in change.priorities:
        if not 0 <= dim < rank:
            raise ConversionError(f"it has no dimension {dim}, only {rank}")
        if not dims[dim].axes and dims[dim].is_closed:
            raise ConversionError(f"dimension {dim} is not sharded, so it can't have a priority")
        dims[dim] = DimSharding(dims[dim].axes, dims[dim].is_closed, priority)
    made = replace(made, dim_shardings=tuple(dims))
    name = "sharding" if there.kind == "constraint" else "sdy.sharding"
    return (_Named(name, made.attribute),)


def _mesh_symbol(graph: OpGraph, mesh: Mesh) -> str:
    for name, known in graph.meshes.items():
        if known == mesh:
            return name
    known_meshes = ", ".join(str(known) for known in graph.meshes.values()) or "none"
    raise ConversionError(f"the module has no mesh {mesh}; it has {known_meshes}")


def _on_constraint(operation: Any, made: tuple[_Named, ...]) -> None:
    for attribute in made:
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
