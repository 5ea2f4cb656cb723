"""diff: two modules, tensor by tensor, matched by pytree path and scope.

SSA numbers, the order of ops and line numbers never make a difference: tensors with the same path
are matched by what is written on them first, and only what remains is reported.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sdyscope.annotations import Annotation, split_scope
from sdyscope.facts.tensors import tensor_name
from sdyscope.graph import OpGraph
from sdyscope.values.mesh import Mesh

Change: TypeAlias = Literal["changed", "only in a", "only in b"]


@dataclass(frozen=True)
class Side:
    """One of the two modules.

    Attributes:
        label: what to call it: a partitioner, a file name.
        graph: its op graph.
        annotations: what is written in it.
    """

    label: str
    graph: OpGraph
    annotations: tuple[Annotation, ...]


@dataclass(frozen=True, slots=True)
class LoneMesh:
    """A mesh that only one side has.

    Attributes:
        label: what to call that side.
        mesh: the mesh; its text where it could not be read.
    """

    label: str
    mesh: Mesh | str


@dataclass(frozen=True)
class Difference:
    """One tensor that is not the same on both sides.

    Attributes:
        change: what happened to it.
        what: which of placement, open dimensions, manual axes, type changed.
        tensor: its name.
        kind: what it is.
        a: the annotation on the first side; None where only the second has it.
        b: the annotation on the second side.
    """

    change: Change
    what: tuple[str, ...]
    tensor: str
    kind: str
    a: Annotation | None
    b: Annotation | None


@dataclass(frozen=True)
class OpDifference:
    """Ops of one kind in one scope that are not the same on both sides.

    Attributes:
        scope: their scope, without the program's own name; empty for ops without one.
        kind: name of the operation, of a custom call with its target.
        count_a: how many the first side has.
        count_b: how many the second side has.
        types_a: result types that the first side has more ops with, and how many more.
        types_b: result types that the second side has more ops with.
    """

    scope: str
    kind: str
    count_a: int
    count_b: int
    types_a: tuple[tuple[str, int], ...]
    types_b: tuple[tuple[str, int], ...]

    @property
    def size(self) -> int:
        """How many ops of the side that has more have no equal on the other."""
        return max(sum(count for _, count in types) for types in (self.types_a, self.types_b))


@dataclass(frozen=True)
class Diff:
    """All differences.

    Attributes:
        label_a: the first side.
        label_b: the second side.
        meshes: meshes that only one side has.
        tensors: the tensors that differ.
        ops: ops that differ, the most first; empty where ops were not compared.
        same: how many tensors are the same.
        not_compared: names of those with one text on both sides that can't be read or can't be.
        notes: what was left out of the comparison, and why.
    """

    label_a: str
    label_b: str
    meshes: tuple[LoneMesh, ...]
    tensors: tuple[Difference, ...]
    ops: tuple[OpDifference, ...]
    same: int
    not_compared: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def is_same(self) -> bool:
        """Whether there is no difference."""
        return not (self.meshes or self.tensors or self.ops)


def diff(a: Side, b: Side, *, across_partitioners: bool) -> Diff:
    """Compares two modules.

    Args:
        a: the first.
        b: the second.
        across_partitioners: the two are one program for Shardy and for GSPMD. Then ops are not
            compared, because each partitioner has its own for constraints and ``shard_map``, nor
            what JAX writes for one of them alone.
    """
    notes: list[str] = []
    lists = []
    for side in (a, b):
        own = list(side.annotations)
        if across_partitioners:
            own = [x for x in own if x.kind != "constraint" or x.is_authored]
            left_out = len(side.annotations) - len(own)
            if left_out:
                notes.append(
                    f"{left_out} constraints that JAX writes on its own for {side.label} were "
                    "left out."
                )
        lists.append(own)
    if across_partitioners:
        notes.append(
            "Ops were not compared: each partitioner has its own for constraints and shard_maps."
        )
    pairs = match(lists[0], lists[1], _path_in(a.graph), _path_in(b.graph))
    found = [_difference(one, two) for one, two in pairs]
    tensors = tuple(difference for difference in found if difference is not None)
    not_compared = tuple(
        tensor_name(one.kind, one.path, one.index)
        for (one, two), difference in zip(pairs, found, strict=True)
        if difference is None
        and one is not None
        and two is not None
        # What places nothing on either side can't be told to be the same.
        and (one.problem or two.problem)
    )
    return Diff(
        a.label,
        b.label,
        () if across_partitioners else tuple(_lone_meshes(a, b)),
        tensors,
        () if across_partitioners else tuple(_op_differences(a.graph, b.graph)),
        len(found) - len(tensors) - len(not_compared),
        not_compared,
        tuple(notes),
    )


#: The number that makes an inner function's name unique, in `name_3(argument)` or `name_3[result]`.
_NUMBERED = re.compile(r"^([A-Za-z_]\w*?)_\d+(?=[(\[]\d+[)\]]$)")

Pair: TypeAlias = tuple[Annotation | None, Annotation | None]


def match(
    a: Sequence[Annotation],
    b: Sequence[Annotation],
    path_a: Callable[[str], str],
    path_b: Callable[[str], str],
) -> list[Pair]:
    """Pairs what has the same kind, path and, on a ``shard_map``, the same operand number.

    Where several do, equal ones are paired first, then those of the same source line, then the
    rest in order; what is left has no partner.
    """
    groups: dict[Hashable, tuple[list[Annotation], list[Annotation]]] = {}
    for side, (found, path) in enumerate(((a, path_a), (b, path_b))):
        for annotation in found:
            # An argument is known by its path: one more before it changes its number.
            numbered = annotation.kind == "op" or annotation.kind.startswith("shard_map")
            index = annotation.index if numbered else None
            key = (annotation.kind, path(annotation.path), index)
            groups.setdefault(key, ([], []))[side].append(annotation)
    pairs: list[Pair] = []
    for left, right in groups.values():
        for same in (written, _line, _anything):
            left, right, made = _pair_by(left, right, same)
            pairs += made
        pairs += [(one, None) for one in left]
        pairs += [(None, two) for two in right]
    return pairs


def _pair_by(
    left: Iterable[Annotation], right: Iterable[Annotation], key: Callable[[Annotation], Hashable]
) -> tuple[list[Annotation], list[Annotation], list[Pair]]:
    waiting: dict[Hashable, list[Annotation]] = {}
    for annotation in right:
        waiting.setdefault(key(annotation), []).append(annotation)
    pairs: list[Pair] = []
    rest: list[Annotation] = []
    for annotation in left:
        candidates = waiting.get(key(annotation))
        if candidates:
            pairs.append((annotation, candidates.pop(0)))
        else:
            rest.append(annotation)
    return rest, [x for candidates in waiting.values() for x in candidates], pairs


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
    )


def _boundary_manual(annotation: Annotation) -> Hashable:
    # A constraint inside a shard_map repeats the boundary's manual axes under GSPMD alone.
    return annotation.manual if annotation.kind.startswith("shard_map") else ()


def _line(annotation: Annotation) -> Hashable:
    source = annotation.source
    return None if source is None else (source.file, source.line)


def _anything(_: Annotation) -> Hashable:
    return None


def _path_in(graph: OpGraph) -> Callable[[str], str]:
    """Paths without the program's own name, so that renaming it changes nothing."""
    prefix = f"jit({graph.name.removeprefix('jit_')})"

    def path(text: str) -> str:
        # JAX numbers inner functions as they come: _where_3(0) is any _where(0).
        return _NUMBERED.sub(r"\1", text.removeprefix(prefix).lstrip("/"))

    return path


def _difference(a: Annotation | None, b: Annotation | None) -> Difference | None:
    one = a or b
    assert one is not None
    what = () if a is None or b is None else tuple(_what_changed(a, b))
    if a is not None and b is not None and not what:
        return None
    change: Change = "changed" if what else "only in a" if b is None else "only in b"
    return Difference(
        change,
        what,
        tensor_name(one.kind, one.path, one.index),
        one.kind,
        a,
        b,
    )


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
    return what


def _lone_meshes(a: Side, b: Side) -> list[LoneMesh]:
    ours, theirs = set(a.graph.meshes.values()), set(b.graph.meshes.values())
    return [
        LoneMesh(side.label, mesh)
        for side, others in ((a, theirs), (b, ours))
        for mesh in dict.fromkeys(side.graph.meshes.values())
        if mesh not in others
    ]


def _op_differences(a: OpGraph, b: OpGraph) -> list[OpDifference]:
    ours, theirs = _op_types(a), _op_types(b)
    found = [
        OpDifference(
            *key,
            ours[key].total(),
            theirs[key].total(),
            tuple((ours[key] - theirs[key]).items()),
            tuple((theirs[key] - ours[key]).items()),
        )
        for key in dict.fromkeys([*ours, *theirs])
        if ours[key] != theirs[key]
    ]
    return sorted(found, key=lambda difference: -difference.size)


#: Definitions, and what is compared as a tensor.
_NO_OPS = ("func.func", "sdy.mesh", "sdy.sharding_constraint", "sdy.reshard")


def _op_types(graph: OpGraph) -> defaultdict[tuple[str, str], Counter[str]]:
    """(scope, kind) -> how many ops of it have which result types."""
    path = _path_in(graph)
    types: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for op in graph.operations():
        if op.parent is None or op.kind in _NO_OPS or op.call_target == "Sharding":
            continue
        scope, _ = split_scope(op.scope)
        kind = f"{op.kind} @{op.call_target}" if op.call_target else op.kind
        types[path(scope), kind][", ".join(type_.text for type_ in op.types)] += 1
    return types
