"""What the user asked for: every sharding that a program names, before anything is lowered.

Arguments and results have the pytree paths that JAX writes into the IR, whatever jit drops, donates
or holds static. Constraints and shard_maps come in the order of
`sdyscope.stages.lowered.boundaries`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
from jax.sharding import NamedSharding as JaxNamedSharding
from jax.sharding import PartitionSpec as JaxPartitionSpec

from sdyscope.errors import ConversionError
from sdyscope.facts.program import Kind, Program, RequestedTensor
from sdyscope.facts.remarks import Remark
from sdyscope.stages import compat
from sdyscope.stages.lowered.boundaries import Boundary, boundaries
from sdyscope.stages.lowered.signature import ShardMap, SignatureArgument, SignatureResult
from sdyscope.values.entry_layout import OWN_MEMORY
from sdyscope.values.sharding import UNCONSTRAINED, NamedSharding, PartitionSpec, SpecEntry


def from_jax_sharding(sharding: Any, ndim: int) -> tuple[NamedSharding | None, tuple[Remark, ...]]:
    """JAX's sharding of an array with `ndim` dimensions as ours, and what is to be said about it.

    None, with a remark, for what is not a NamedSharding; None without one for None, and for a
    NamedSharding on an empty mesh, which leaves the array to the compiler.
    """
    notes: list[Remark] = []
    if type(sharding).__name__ == "Format":  # a layout and a sharding
        if sharding.layout is not None:
            notes.append(Remark("layout", str(sharding.layout)))
        sharding = sharding.sharding
    if sharding is None:
        return None, tuple(notes)
    if not isinstance(sharding, JaxNamedSharding):
        kind = type(sharding).__name__
        notes.append(Remark("no mesh axes", kind, other=_short(sharding)))
        return None, tuple(notes)
    if not sharding.mesh.shape:
        return None, tuple(notes)
    memory = sharding.memory_kind or ""
    if memory not in OWN_MEMORY:
        notes.append(Remark("memory kind", memory))
    mesh = compat.mesh_of(sharding.mesh, getattr(sharding, "_logical_device_ids", None))
    spec = sharding.spec
    reduction = getattr(spec, "unreduced_kind", None)
    if spec.unreduced and reduction is not None and not _is_sum(reduction):
        notes.append(Remark("reduction", str(reduction)))
    try:
        return NamedSharding(mesh, _spec(spec, ndim)), tuple(notes)
    except ConversionError as error:
        return None, (*notes, Remark("no request", str(spec), other=error.message))


def _is_sum(kind: Any) -> bool:
    return str(getattr(kind, "name", kind)).lower() in ("sum", "none")


def _short(sharding: Any) -> str:
    text = " ".join(str(sharding).split())
    return text if len(text) <= 100 else f"{text[:97]}..."


def _spec(spec: JaxPartitionSpec, ndim: int) -> PartitionSpec:
    entries = list(map(_entry, compat.spec_entries(spec)))
    # A PRNG key has one more dimension in the IR than the key array had; it is never sharded.
    del entries[ndim:]
    return PartitionSpec(
        tuple(entries), frozenset(spec.unreduced or ()), frozenset(spec.reduced or ())
    )


def _entry(entry: Any) -> SpecEntry:
    if entry is JaxPartitionSpec.UNCONSTRAINED:
        return UNCONSTRAINED
    return tuple(map(str, entry)) if isinstance(entry, tuple) else entry


# --- the tensors of a program ---------------------------------------------------------------------


def requested(stage: Any) -> tuple[RequestedTensor, ...]:
    """Everything that a program's author could name a sharding for.

    Args:
        stage: a `jax.stages.Traced`. Of a `jax.stages.Lowered` only the arguments and results are
            known, and only the sharding that JAX settled on for each.

    Returns:
        The arguments, in order, those that jit drops included; the results; then constraints and
            the
        inputs and outputs of shard_maps, in the order in which they are lowered.
    """
    if isinstance(stage, jax.stages.Lowered):
        arguments, results = compat.lowered_signature(stage)
        kept = frozenset(compat.lowering_arguments(stage).kept)
        inner: list[RequestedTensor] = []
        returned: Mapping[int, Any] = {}
    else:
        arguments, results = compat.arguments(stage), compat.results(stage)
        jaxpr, kept = compat.kept_jaxpr(stage)
        inner = list(_inner(boundaries(jaxpr, stage.fun_name)))
        returned = _returned_by_shard_maps(jaxpr)
    fallback = _paths(stage.in_tree, len(arguments))
    return (
        *(
            _argument(argument, index, fallback[index], index not in kept)
            for index, argument in enumerate(arguments)
        ),
        *(_result(result, index, returned.get(index)) for index, result in enumerate(results)),
        *inner,
    )


def argument_axes(program: Program) -> frozenset[str]:
    """The mesh axes that the shardings of a program's arguments use. Nothing is traced for it."""
    axes: set[str] = set()
    for leaf in jax.tree.leaves((program.args, dict(program.kwargs))):
        spec = getattr(getattr(leaf, "sharding", None), "spec", None)
        for entry in () if spec is None else compat.spec_entries(spec):
            axes.update(axis for axis in _axes(entry) if isinstance(axis, str))
    return frozenset(axes)


def argument_devices(program: Program) -> int:
    """The most devices that an argument's sharding is over; 0 where none says. As above."""
    leaves = jax.tree.leaves((program.args, dict(program.kwargs)))
    meshes = (getattr(getattr(leaf, "sharding", None), "mesh", None) for leaf in leaves)
    return max((mesh.size for mesh in meshes if mesh is not None), default=0)


def _paths(tree: Any, count: int) -> list[str]:
    """Pytree paths for functions whose signature JAX cannot read: `args[0]['w']`."""
    if tree.num_leaves != count:
        return [f"args[{index}]" for index in range(count)]
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree.unflatten(range(count)))
    names = ("args", "kwargs")
    return [names[path[0].idx] + jax.tree_util.keystr(path[1:]) for path, _ in leaves]


def _tensor(
    kind: Kind, path: str, aval: Any, sharding: Any, notes: Sequence[Remark] = (), **more: Any
) -> RequestedTensor:
    shape, dtype = compat.element_shape(aval)
    requested, more_notes = from_jax_sharding(sharding, len(shape))
    if len(shape) > len(aval.shape):
        added = "x".join(map(str, shape[len(aval.shape) :]))
        more_notes += (Remark("key array", added),)
    return RequestedTensor(
        kind=kind,
        path=path,
        shape=shape,
        dtype=compat.dtype_name(dtype),
        sharding=requested,
        notes=(*notes, *more_notes),
        **more,
    )


def _argument(
    argument: SignatureArgument, index: int, fallback: str, dropped: bool
) -> RequestedTensor:
    notes = []
    given, asked = argument.given, argument.asked
    if argument.layout:
        notes.append(Remark("in_shardings layout"))
    if given is not None and asked is not None and _differ(given, asked):
        notes.append(Remark("two shardings", _spec_of(given), other=_spec_of(asked)))
    return _tensor(
        "argument",
        argument.name or fallback,
        argument.aval,
        given if asked is None else asked,
        notes,
        index=index,
        dropped=dropped,
        donated=argument.donated,
    )


def _differ(given: Any, asked: Any) -> bool:
    named = isinstance(given, JaxNamedSharding) and isinstance(asked, JaxNamedSharding)
    return named and (given.spec, given.mesh.shape) != (asked.spec, asked.mesh.shape)


def _spec_of(sharding: Any) -> str:
    return str(getattr(sharding, "spec", sharding))


def _returned_by_shard_maps(jaxpr: Any) -> dict[int, Any]:
    """Of each result that a shard_map over its whole mesh returns JAX's sharding by its out_specs.

    The result of a nested jit is looked for inside it. Where an axis is not manual, or is Explicit,
    the spec says only a part, or types say all.
    """
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    makers = {
        variable: (equation, number)
        for equation in jaxpr.eqns
        for number, variable in enumerate(equation.outvars)
    }
    returned: dict[int, Any] = {}
    for index, variable in enumerate(jaxpr.outvars):
        equation, number = makers.get(variable, (None, 0)) if _is_variable(variable) else (None, 0)
        if equation is None:
            continue
        if equation.primitive.name == "shard_map":
            if (at := _whole_spec(equation, number)) is not None:
                returned[index] = at
        elif equation.primitive.name in ("jit", "pjit", "closed_call"):
            inner = equation.params.get("jaxpr") or equation.params["call_jaxpr"]
            if (at := _returned_by_shard_maps(inner).get(number)) is not None:
                returned[index] = at
    return returned


def _is_variable(atom: Any) -> bool:
    return not hasattr(atom, "val")  # A literal is not hashable.


def _whole_spec(equation: Any, number: int) -> Any:
    """What a shard_map's out_spec says of a result; None if an axis is left to the compiler."""
    shard_map = compat.shard_map_parameters(equation.params)
    mesh = shard_map.mesh
    others = set(mesh.axis_names) - set(shard_map.manual_axes)
    if any(mesh.shape[axis] > 1 for axis in others):
        return None
    return JaxNamedSharding(mesh, shard_map.out_specs[number])


def _result(result: SignatureResult, index: int, returned: Any) -> RequestedTensor:
    notes = []
    if result.layout:
        notes.append(Remark("out_shardings layout"))
    of_type = getattr(result.aval, "sharding", None)
    if result.asked is None and of_type is not None and compat.is_explicit(of_type.mesh):
        if compat.all_explicit(of_type.mesh):
            returned = of_type
        else:
            notes.append(Remark("Explicit result", str(of_type.spec)))
    by_maker = None
    if result.asked is None and returned is not None:
        by_maker, _ = from_jax_sharding(returned, len(result.aval.shape))
    return _tensor(
        "result",
        result.name or f"result[{index}]",
        result.aval,
        result.asked,
        notes,
        index=index,
        returned=by_maker,
    )


def _inner(boundaries: Iterator[Boundary]) -> Iterator[RequestedTensor]:
    ordinal = 0
    for boundary in boundaries:
        if boundary.shard_map is None:
            yield _constraint(boundary, ordinal)
        elif boundary.shard_map.is_written:
            yield from _shard_map(boundary, boundary.shard_map, ordinal)
        else:
            remark = Remark("no boundary")
            yield from _shard_map(boundary, boundary.shard_map, -1, remark)
            continue
        ordinal += 1


def _constraint(boundary: Boundary, ordinal: int) -> RequestedTensor:
    notes = []
    if boundary.role in ("reshard", "jit input", "jit output"):
        notes.append(Remark(boundary.role, count=boundary.index or 0))
    if boundary.manual_axes:
        notes.append(Remark("local shape"))
    unconstrained: tuple[int, ...] = ()
    (aval,), (sharding,) = boundary.avals, boundary.shardings
    if isinstance(sharding, JaxNamedSharding):
        if boundary.role == "constraint":
            spec, unconstrained = _lowered_spec(sharding.spec, aval, boundary)
            sharding = sharding.update(spec=spec)
        elif boundary.role == "reshard" and not compat.all_explicit(sharding.mesh):
            notes.append(Remark("Explicit axes alone", str(sharding.spec)))
            sharding = None
    return _tensor(
        "constraint",
        boundary.scope,
        aval,
        sharding,
        notes,
        source=boundary.source,
        ordinal=ordinal,
        manual_axes=boundary.manual_axes,
        priorities=boundary.priorities,
        unconstrained=unconstrained,
    )


def _lowered_spec(
    spec: JaxPartitionSpec, aval: Any, boundary: Boundary
) -> tuple[JaxPartitionSpec, tuple[int, ...]]:
    """The spec of a constraint, with free dimensions (vmap adds some) and Explicit axes put in.

    And the dimensions that are free beyond the Explicit axes that they have.
    """
    unconstrained = []
    entries = list(compat.spec_entries(spec))
    entries += [None] * (len(aval.shape) - len(entries))
    for dimension in boundary.unconstrained:
        entries[dimension] = JaxPartitionSpec.UNCONSTRAINED
    for dimension, of_type in enumerate(compat.spec_entries(aval.sharding.spec)[: len(entries)]):
        entry = entries[dimension]
        if of_type is not None and entry is JaxPartitionSpec.UNCONSTRAINED:
            entries[dimension] = _axes(of_type)
            unconstrained.append(dimension)
        elif of_type is not None:
            entries[dimension] = (*_axes(of_type), *_axes(entry))
    merged: JaxPartitionSpec = spec.update(partitions=tuple(entries))
    return merged, tuple(unconstrained)


def _axes(entry: Any) -> tuple[str, ...]:
    return () if entry is None else entry if isinstance(entry, tuple) else (entry,)


def _shard_map(
    boundary: Boundary, shard_map: ShardMap, ordinal: int, *notes: Remark
) -> Iterator[RequestedTensor]:
    sides: list[tuple[Kind, tuple[Any, ...], tuple[Any, ...]]] = [
        ("shard_map input", boundary.avals, shard_map.in_specs),
        ("shard_map output", boundary.out_avals, shard_map.out_specs),
    ]
    for kind, avals, specs in sides:
        for index, (aval, spec) in enumerate(zip(avals, specs, strict=True)):
            if hasattr(aval, "shape"):
                yield _tensor(
                    kind,
                    boundary.scope,
                    aval,
                    JaxNamedSharding(shard_map.mesh, spec),
                    notes,
                    source=boundary.source,
                    index=index,
                    ordinal=ordinal,
                    manual_axes=shard_map.manual_axes,
                    mapped=shard_map.function,
                )
