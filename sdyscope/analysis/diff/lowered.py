"""diff: two modules, tensor by tensor, matched by pytree path and scope.

SSA numbers, the order of ops and line numbers never make a difference: of constraints with the same
path those are the same that stand on the same value, by what it is computed from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from sdyscope.analysis.diff.ops import (
    OpsSide,
    callbacks_of,
    op_differences,
    other_kernels,
    unknown_constants,
)
from sdyscope.analysis.diff.pairing import boundary_numbers, paired_by
from sdyscope.analysis.naming.scopes import without_inner
from sdyscope.analysis.naming.structure import Structures, likenesses, structures
from sdyscope.annotations import Annotation
from sdyscope.facts.differences import (
    Across,
    Change,
    LoneMesh,
    LoweredDiff,
    OpDifference,
    TensorDifference,
    TensorSide,
)
from sdyscope.facts.tensors import tensor_name
from sdyscope.graph import OpGraph
from sdyscope.values.mesh import Mesh, ranks
from sdyscope.values.sharding import TensorSharding
from sdyscope.values.source import named_line_of


@dataclass(frozen=True)
class LoweredSide:
    """One of the two modules.

    Attributes:
        label: what to call it: a partitioner, a file name.
        graph: its op graph.
        annotations: what is written in it.
        mesh: the mesh to name axes of; None where it is not known, or there are several.
        devices: ids of the devices by their position in the mesh, which no module says; empty where
            that is not known.
        platform: what JAX calls the platform of the devices; empty likewise.
    """

    label: str
    graph: OpGraph
    annotations: tuple[Annotation, ...]
    mesh: Mesh | None = None
    devices: tuple[int, ...] = ()
    platform: str = ""


def lowered_diff(
    name: str,
    a: LoweredSide,
    b: LoweredSide,
    across: Across,
    *,
    across_partitioners: bool,
    across_versions: bool = False,
) -> LoweredDiff:
    """Compares two modules.

    Args:
        name: what to call what is compared.
        a: the first.
        b: the second.
        across: what the two sides are.
        across_partitioners: one is for Shardy and one for GSPMD. Then ops are not compared, because
            each partitioner has its own for constraints and ``shard_map``, nor what JAX writes for
            one of them alone.
        across_versions: they may be of two JAX, of which only newer ones have the names of inner
            functions in scopes. Then these make no difference.
    """
    # A GSPMD module names no mesh: its axes are those of the other side's.
    sides = replace(a, mesh=a.mesh or b.mesh), replace(b, mesh=b.mesh or a.mesh)
    left_out: dict[str, int] = {}
    lists = []
    for side in sides:
        own = list(side.annotations)
        if across_partitioners:
            own = [x for x in own if x.kind != "constraint" or x.is_authored]
            if len(own) < len(side.annotations):
                left_out[side.label] = len(side.annotations) - len(own)
        if across_versions:
            # Each JAX has its own, and chooses the results that take donated buffers in its way.
            own = [replace(x, donated_to="", attributes=()) for x in own]
        lists.append(own)
    paths = [_path_in(side.graph, inner=not across_versions) for side in sides]
    computed = structures(a.graph, b.graph)
    pairs = match(lists[0], lists[1], (paths[0], paths[1]), _values(a.graph, b.graph, computed))
    results = [_difference(pair, sides) for pair in pairs]
    tensors = tuple(difference for difference in results if difference is not None)
    not_compared = tuple(
        tensor_name(annotation.kind, annotation.path, annotation.index)
        for (annotation, other), difference in zip(pairs, results, strict=True)
        if difference is None
        and annotation is not None
        and other is not None
        # What places nothing on either side can't be told to be the same.
        and (annotation.problem or other.problem)
    )
    meshes = () if across_partitioners else tuple(_lone_meshes(a, b))
    ops: list[OpDifference] = []
    kernels = constants = callbacks = 0
    if not across_partitioners:
        first, second = map(OpsSide, computed, paths)
        ops = op_differences(
            first,
            second,
            attributes=not across_versions,
            tensors_differ=bool(tensors),
            meshes_differ=bool(meshes),
        )
        kernels = other_kernels(first, second)
        constants = max(map(unknown_constants, (first, second)))
        callbacks = min(map(callbacks_of, (first, second)))
    return LoweredDiff(
        name=name,
        across=across,
        a=a.label,
        b=b.label,
        same_tensors=len(results) - len(tensors) - len(not_compared),
        not_compared=not_compared,
        meshes=meshes,
        tensors=tensors,
        ops_compared=not across_partitioners,
        ops=tuple(ops),
        left_out=left_out,
        devices_reordered=other_order(a.devices, b.devices, (a.platform, b.platform)),
        kernels_not_compared=kernels,
        constants_not_compared=constants,
        callbacks_not_compared=callbacks,
    )


def other_order(
    devices: tuple[int, ...], others: tuple[int, ...], platforms: tuple[str, str]
) -> bool:
    """Whether the devices of two meshes are in another order; False where one is not known.

    Which devices they are makes no difference, as where a program has a part of all; nor does the
    order on two platforms, on each of which JAX orders them by its links.
    """
    if platforms[0] != platforms[1] or len(devices) != len(others):
        return False
    return ranks(devices) != ranks(others)


#: The number that makes an inner function's name unique, in `name_3(argument)` or `name_3[result]`.
_NUMBERED = re.compile(r"^([A-Za-z_]\w*?)_\d+(?=[(\[]\d+[)\]]$)")

Pair: TypeAlias = tuple[Annotation | None, Annotation | None]
_Value: TypeAlias = Callable[[Annotation], Hashable]


def match(
    a: Sequence[Annotation],
    b: Sequence[Annotation],
    paths: tuple[Callable[[str], str], Callable[[str], str]],
    values: Iterable[tuple[_Value, _Value]],
) -> list[Pair]:
    """Pairs what has the same kind, path and, on a ``shard_map``, the same operand number.

    Of a ``shard_map`` that has more operands or results on one side, it is that of the one on which
    the same is written, in order.

    Where several do, those on the same value are paired first, the rest in order where both sides
    have as many. Otherwise something came or went: of these equal ones are paired, then those of
    the same source line, then the rest in order; what is left has no partner. Of those in question
    a partner has the same type, if there is one.

    Args:
        a: what is written in the first module.
        b: what is written in the second.
        paths: for each module, gives the path to compare of one in it.
        values: for each module, gives what the value is that an annotation stands on; several that
            are asked one after the other.
    """
    values = tuple(values)
    numbers = boundary_numbers(a, b, paths, written)
    groups: dict[Hashable, tuple[list[Annotation], list[Annotation]]] = {}
    for side, (own, path) in enumerate(((a, paths[0]), (b, paths[1]))):
        for annotation in own:
            # An argument is known by its path: one more before it changes its number.
            numbered = annotation.kind == "op" or annotation.kind.startswith("shard_map")
            number = numbers.get(id(annotation), annotation.index) if numbered else None
            key = (annotation.kind, path(annotation.path), number)
            groups.setdefault(key, ([], []))[side].append(annotation)
    pairs: list[Pair] = []
    for left, right in groups.values():
        if len({written(annotation) for annotation in (*left, *right)}) > 1:
            for value in values:
                if not (left and right):
                    break
                left, right, pairs_here = paired_by(left, right, *value)
                pairs += pairs_here
        in_order = len(left) == len(right)
        by_line = () if in_order else (written, _line_and_type, _line)
        for same in (*by_line, _type, _anything):
            left, right, new_pairs = paired_by(left, right, same)
            pairs += new_pairs
        pairs += [(annotation, None) for annotation in left]
        pairs += [(None, annotation) for annotation in right]
    return pairs


def _values(
    a: OpGraph, b: OpGraph, computed: tuple[Structures, Structures]
) -> Iterator[tuple[_Value, _Value]]:
    """What the value is that an annotation stands on, of two modules: exactly, then nearly."""
    yield _values_by(computed[0].inside), _values_by(computed[1].inside)
    alike: list[Sequence[int]] = []

    def likeness(side: int, op: int) -> int:
        if not alike:  # Few ask for it.
            alike.extend(likenesses(a, b))
        return alike[side][op]

    yield _values_by(partial(likeness, 0)), _values_by(partial(likeness, 1))


def _values_by(numbers: Callable[[int], Hashable]) -> _Value:
    def value(annotation: Annotation) -> Hashable:
        # What is on an op that is not known stands on nothing else.
        return annotation if annotation.op < 0 else numbers(annotation.op)

    return value


def written(annotation: Annotation) -> Hashable:
    """What is written on a tensor, alike for what means the same on a tensor of the same type."""
    place = annotation.placement
    return (
        annotation.shape,
        annotation.dtype,
        annotation.problem,
        None if place is None else place.without_manual,
        annotation.open_dims,
        _boundary_manual(annotation),
        annotation.memory,
        _priorities(annotation),
        _kept_whole(annotation),
        (annotation.donated, annotation.donated_to),
        annotation.attributes,
    )


def _priorities(annotation: Annotation) -> tuple[int, ...]:
    """The priority of each dimension, where one has another than the default."""
    sharding = annotation.sharding
    if not isinstance(sharding, TensorSharding):
        return ()
    priorities = tuple(dim.priority or 0 for dim in sharding.dim_shardings)
    return priorities if any(priorities) else ()


def _kept_whole(annotation: Annotation) -> Hashable:
    """The axes that no open dimension may be sharded over; nothing where none is open."""
    sharding = annotation.sharding
    if not isinstance(sharding, TensorSharding) or not annotation.open_dims:
        return ()
    return frozenset(sharding.replicated_axes)


def _boundary_manual(annotation: Annotation) -> Hashable:
    # A constraint inside a shard_map repeats the boundary's manual axes under GSPMD alone.
    return annotation.manual if annotation.kind.startswith("shard_map") else ()


def _line(annotation: Annotation) -> Hashable:
    return named_line_of(annotation.source)


def _line_and_type(annotation: Annotation) -> Hashable:
    return _line(annotation), _type(annotation)


def _type(annotation: Annotation) -> Hashable:
    return annotation.shape, annotation.dtype


def _anything(_: Annotation) -> Hashable:
    return None


def _path_in(graph: OpGraph, *, inner: bool) -> Callable[[str], str]:
    """Paths without the program's own name, so that renaming it changes nothing.

    Args:
        graph: the program's.
        inner: whether the names of inner functions stay.
    """
    prefix = f"jit({graph.name.removeprefix('jit_')})"

    def path(text: str) -> str:
        # JAX numbers inner functions as they come: _where_3(0) is any _where(0).
        own = _NUMBERED.sub(r"\1", text.removeprefix(prefix).lstrip("/"))
        return own if inner else without_inner(own)

    return path


def _difference(pair: Pair, sides: tuple[LoweredSide, LoweredSide]) -> TensorDifference | None:
    a, b = pair
    either = a or b
    assert either is not None
    what = () if a is None or b is None else tuple(_what_changed(a, b))
    if a is not None and b is not None and not what:
        return None
    change: Change = "changed" if what else "only in a" if b is None else "only in b"
    name = tensor_name(either.kind, either.path, either.index)
    return TensorDifference(
        name, either.kind, change, what, _tensor_side(a, sides[0]), _tensor_side(b, sides[1])
    )


def _tensor_side(annotation: Annotation | None, side: LoweredSide) -> TensorSide | None:
    if annotation is None:
        return None
    return TensorSide(annotation, annotation.sharded(side.graph.meshes, side.mesh))


def _what_changed(a: Annotation, b: Annotation) -> list[str]:
    what = []
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        what.append("type")
    keys_a, keys_b = written(a), written(b)
    assert isinstance(keys_a, tuple)
    assert isinstance(keys_b, tuple)
    if keys_a[2:4] != keys_b[2:4]:
        what.append("placement")
    if a.open_dims != b.open_dims:
        what.append("open dimensions")
    if keys_a[5] != keys_b[5]:
        what.append("manual axes")
    if a.memory != b.memory:
        what.append("memory")
    if keys_a[9] != keys_b[9]:
        what.append("donation")
    if a.attributes != b.attributes:
        what.append("attributes")
    # Only Shardy can say these.
    if isinstance(a.sharding, TensorSharding) and isinstance(b.sharding, TensorSharding):
        if keys_a[7] != keys_b[7]:
            what.append("priorities")
        if a.open_dims == b.open_dims and keys_a[8] != keys_b[8]:
            what.append("replicated axes")
    return what


def _lone_meshes(a: LoweredSide, b: LoweredSide) -> list[LoneMesh]:
    ours, theirs = set(a.graph.meshes.values()), set(b.graph.meshes.values())
    return [
        LoneMesh(side.label, mesh)
        for side, others in ((a, theirs), (b, ours))
        for mesh in dict.fromkeys(side.graph.meshes.values())
        if mesh not in others
    ]
