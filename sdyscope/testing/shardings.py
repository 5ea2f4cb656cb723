"""``assert_sharding``: where arrays are, and what a stage says of the values of a program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args, overload

from sdyscope.analysis.naming.resolve import resolve_value
from sdyscope.analysis.propagation.explain import Explanation
from sdyscope.annotations import Annotation
from sdyscope.errors import ConversionError, TargetError, kind_of
from sdyscope.facts.program import Kind, Partitioner, RequestedTensor
from sdyscope.facts.propagated import NamedValue
from sdyscope.facts.sharded import requested_open_dims
from sdyscope.facts.tensors import Tensor
from sdyscope.inspection import Inspection
from sdyscope.snapshots.inside import Decided
from sdyscope.syntax.partition_spec import parse_partition_spec
from sdyscope.values.convert import to_placement, unspecified_dims
from sdyscope.values.mesh import Mesh
from sdyscope.values.placement import Placement
from sdyscope.values.sharding import NamedSharding, PartitionSpec
from sdyscope.values.source import SourceLocation
from sdyscope.words.mesh import axis_text
from sdyscope.words.partitioners import partitioner_name
from sdyscope.words.places import shown_name, source_text
from sdyscope.words.propagation import absence_text, beginning_text
from sdyscope.words.sharding import MANUAL, sharding_text
from sdyscope.words.types import type_text

At: TypeAlias = Literal["requested", "lowered", "propagated"]

#: How many values a failure names, and how many origins of each.
_NAMED, _ORIGINS = 5, 3

_WORDS = {
    "requested": "as it is requested",
    "lowered": "in the lowered module",
    "propagated": "after propagation",
}


@overload
def assert_sharding(
    x: Inspection,
    name: str,
    spec: Any,
    /,
    *,
    at: At = "propagated",
    partitioner: Partitioner | None = None,
) -> None: ...
@overload
def assert_sharding(x: Any, spec: Any, /, *, mesh: Any = None) -> None: ...
def assert_sharding(
    x: Any,
    /,
    *expected: Any,
    at: At = "propagated",
    partitioner: Partitioner | None = None,
    mesh: Any = None,
) -> None:
    """Fails unless an array, or what a name stands for in a program, is placed as expected.

    ``assert_sharding(array, P("data"))`` or ``assert_sharding(inspection, "params['w']", P("x"))``.
    Placements are compared, so that it makes no difference how a sharding is written. A dimension
    that is ``P.UNCONSTRAINED`` may be sharded in any way.

    Args:
        x: a ``jax.Array``, or an inspection.
        expected: of an inspection first the name: a pytree path, a scope or its end, or
            ``file.py:line``. It may stand for several arrays, which all must be so. Then a
            PartitionSpec, also as text, or a NamedSharding.
        at: the stage of an inspection to look at.
        partitioner: under which; by default the first that the program is lowered under.
        mesh: of an array the mesh that the PartitionSpec is on; by default the array's.

    Raises:
        AssertionError: it is not; says what was expected and found, where, and why.
        TargetError: nothing has this name, or this is nothing that can be compared.
    """
    __tracebackhide__ = True
    if isinstance(x, Inspection):
        if len(expected) != 2:
            raise TargetError(
                "For an inspection, give a name and a sharding.",
                hint="assert_sharding(inspection, \"params['w']\", P('data'))",
            )
        failure = _of_program(x, str(expected[0]), expected[1], at, partitioner)
    else:
        if len(expected) != 1:
            raise TargetError(
                "For an array, give one sharding.",
                hint="assert_sharding(array, P('data'))",
            )
        failure = _of_array(x, expected[0], mesh)
    if failure:
        raise AssertionError(failure)


def _of_array(array: Any, expected: Any, mesh: Any) -> str:
    from sdyscope.stages.executed.arrays import difference, is_array

    if not is_array(array):
        raise TargetError(
            f"assert_sharding takes a jax.Array or an inspection, not {kind_of(array)}.",
            hint="Values inside of a program are named: assert_sharding(sdyscope.inspect(step, "
            "*arguments), \"params['w']\", P('data')).",
        )
    if isinstance(expected, str):
        expected = parse_partition_spec(expected)
    elsewhere = difference(array, expected, mesh)
    if elsewhere is None:
        return ""
    return "\n".join(
        (
            f"An array {array.dtype}[{','.join(map(str, array.shape))}] is not where it should be:",
            f"  expected {elsewhere.expected}",
            f"  found    {elsewhere.found}",
            f"  a different block is on {elsewhere.devices:,} of {elsewhere.of:,} devices",
        )
    )


@dataclass(frozen=True)
class _Sharded:
    """What a stage says of one value."""

    name: str
    type: str
    rank: int
    place: Placement | None
    text: str
    open_dims: tuple[int, ...] = ()
    source: SourceLocation | None = None
    named: NamedValue | None = None


def _of_program(
    inspection: Inspection,
    name: str,
    expected: Any,
    at: At,
    partitioner: Partitioner | None,
) -> str:
    chosen = inspection.chosen(partitioner)
    if at == "propagated":
        values = list(_propagated(inspection, chosen, name))
    elif at in _WORDS:
        values = list(_annotated(inspection, chosen, name, at))
    else:
        raise TargetError(f"There is no stage {at!r} here.", hint=f"Choose {', '.join(_WORDS)}.")
    mesh = inspection.only_mesh(chosen)
    wrong: list[tuple[_Sharded, str]] = []
    for value in values:
        wanted = _wanted(expected, value.rank, mesh)
        if not _is_as(value, wanted):
            wrong.append((value, str(wanted.spec)))
    if not wrong:
        return ""
    of = "" if len(values) == 1 else f"{len(wrong):,} of the {len(values):,} values called "
    lines = [f"{of}{name} {'is' if len(values) == 1 else 'are'} not sharded as expected:"]
    for value, spec in wrong[:_NAMED]:
        lines += _lines_of(inspection, chosen, value, spec, at)
    if len(wrong) > _NAMED:
        lines.append(f"  and {len(wrong) - _NAMED:,} more")
    return "\n".join(lines)


def _wanted(expected: Any, rank: int, mesh: Mesh | None) -> NamedSharding:
    if isinstance(expected, NamedSharding):
        return expected
    if isinstance(expected, str):
        spec = parse_partition_spec(expected)
    elif isinstance(expected, PartitionSpec):
        spec = expected
    else:
        from sdyscope.stages.executed.arrays import as_spec

        spec = as_spec(expected, rank)
    if len(spec.entries) > rank:
        raise TargetError(f"{spec} is for a tensor of rank {len(spec.entries)}, not {rank}.")
    if mesh is None and any(spec.axis_names()):
        raise TargetError(
            f"The program has no mesh, or several, so it is not clear whose axes {spec} names.",
            hint="Expect a sdyscope.NamedSharding, which names its mesh.",
        )
    try:
        return NamedSharding(mesh or Mesh(()), spec)
    except ConversionError as error:
        raise TargetError(f"{spec} can't be expected: {error.message}.") from error


def _is_as(value: _Sharded, wanted: NamedSharding) -> bool:
    if value.place is None:
        return False
    place, expected = value.place.without_manual, to_placement(wanted, value.rank)
    free = set(unspecified_dims(wanted, value.rank))
    if set(value.open_dims) - free:
        return False
    if not free:
        return place == expected
    return _without(place, free) == _without(expected, free)


def _without(place: Placement, dims: set[int]) -> Placement:
    """A placement with some dimensions whole."""
    kept = tuple(() if k in dims else digits for k, digits in enumerate(place.dims))
    return Placement(
        place.num_devices, kept, place.unreduced, place.reduction, (), place.order, place.device
    )


# --- what the stages say --------------------------------------------------------------------------


def _propagated(inspection: Inspection, chosen: Partitioner, name: str) -> Iterator[_Sharded]:
    propagated, graph = inspection.propagated(chosen), inspection.graph(chosen)
    mesh = inspection.only_mesh(chosen)
    decided = Decided(propagated, graph, mesh)
    every = resolve_value(graph, name)
    gone = 0
    for named in every:
        value = propagated.values.get(named.id)
        shape = graph.ops[named.id[0]].types[named.id[1]].shape
        if value is None or value.fate in ("folded", "not partitioned"):
            gone += 1
            continue
        rank = len(shape or ())
        if not rank and len(every) > 1:
            continue  # Of a scope the arrays are meant.
        place, sharding = value.placement, value.sharding
        if place is None and sharding is None:
            place = Placement(mesh.size if mesh is not None else 1, ((),) * rank)
        text = str(sharding) if place is None else sharding_text(None, place, mesh)
        if named.kind != "result" and decided.value(named.id) == MANUAL:
            place, text = None, MANUAL  # What a device has of it, the body of a shard_map decides.
        type_ = type_text(named.shape, named.dtype)
        yield _Sharded(named.name, type_, rank, place, text, (), named.source, named)
    if every and gone == len(every):
        raise TargetError(
            f"The compiler folded {name} away before it propagated shardings.",
            hint="Name a value it is computed from, or the stage with at='lowered'.",
        )


def _annotated(
    inspection: Inspection, chosen: Partitioner, name: str, at: At
) -> Iterator[_Sharded]:
    rows = _rows(inspection, chosen, name)
    if not rows:
        raise TargetError(
            f"{name} has no annotation, so it has no sharding {_WORDS[at]}.",
            hint="What propagation decided is at='propagated'.",
        )
    mesh = inspection.only_mesh(chosen)
    for row in rows:
        rank = len(row.shape or ())
        type_ = type_text(row.shape, row.dtype)
        place, opened, text = (
            _requested(row.requested, rank)
            if at == "requested"
            else _lowered(row.lowered.get(chosen), mesh)
        )
        shown = shown_name(row.name, row.kind, row.mapped)
        yield _Sharded(shown, type_, rank, place, text, opened, row.source)


def _rows(inspection: Inspection, chosen: Partitioner, name: str) -> Sequence[Tensor]:
    every = [row for row in inspection.tensors.tensors if row.kind in get_args(Kind)]
    named = [row for row in every if row.path == name and row.kind in ("argument", "result")]
    if named:
        return named
    ops = {
        named_value.id[0]
        for named_value in resolve_value(inspection.graph(chosen), name, inspection.tensors)
    }
    return [
        row
        for row in every
        if row.kind not in ("argument", "result")
        and chosen in row.lowered
        and row.lowered[chosen].op in ops
        and row.is_authored
    ]


def _requested(
    asked: RequestedTensor | None, rank: int
) -> tuple[Placement | None, tuple[int, ...], str]:
    if asked is None or asked.sharding is None:
        return None, (), "nothing"
    return to_placement(asked.sharding, rank), requested_open_dims(asked), str(asked.sharding)


def _lowered(
    there: Annotation | None, mesh: Mesh | None
) -> tuple[Placement | None, tuple[int, ...], str]:
    if there is None:
        return None, (), "not in the module"
    if there.sharding is None:
        return None, (), "nothing"
    if there.placement is None:
        return None, (), str(there.sharding)
    text = sharding_text(None, there.placement.without_manual, mesh, there.open_dims)
    return there.placement, there.open_dims, text


# --- in words -------------------------------------------------------------------------------------


def _lines_of(
    inspection: Inspection, chosen: Partitioner, value: _Sharded, spec: str, at: At
) -> Iterator[str]:
    under = "" if at == "requested" else f" under {partitioner_name(chosen)}"
    yield f"  {shown_name(value.name, '')} {value.type} {_WORDS[at]}{under}"
    if value.source is not None:
        yield f"    at {source_text(value.source)}"
    yield f"    expected {spec}"
    yield f"    found    {value.text}"
    if value.named is not None and chosen == "shardy":
        yield from _because(inspection.explainer(chosen).explain(value.named))


def _because(explanation: Explanation) -> Iterator[str]:
    """Where its axes come from, and what stopped others."""
    for chain in explanation.chains[:_ORIGINS]:
        begins = chain.beginning
        if begins is not None:
            where = "" if begins.source is None else f" at {source_text(begins.source)}"
            yield f"    {axis_text(chain.axis)} is from {beginning_text(begins)}{where}"
    for absence in explanation.absences[:_ORIGINS]:
        yield f"    not {axis_text(absence.axis)}: {absence_text(absence)}"
