"""What was requested of the tensors of two programs.

One program asks for the same on every JAX unless its own code, or a library between it and JAX,
looks at the version.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sdyscope.analysis.diff.pairing import boundary_numbers, paired_by
from sdyscope.facts.differences import Change
from sdyscope.facts.program import RequestedTensor
from sdyscope.facts.sharded import Sharded, requested_sharding
from sdyscope.facts.tensors import tensor_name
from sdyscope.values.source import SourceLocation, named_line_of


@dataclass(frozen=True, slots=True)
class RequestedDifference:
    """A tensor of which the two programs request different things.

    Attributes:
        tensor: its path or scope.
        kind: what it is.
        change: what happened to it.
        source: line of user code, of the first side that has it; None for arguments and results.
        a: what the first program requests; None where it leaves it to the compiler.
        b: what the second requests; None likewise.
    """

    tensor: str
    kind: str
    change: Change
    source: SourceLocation | None
    a: Sharded | None
    b: Sharded | None


@dataclass(frozen=True, slots=True)
class RequestedDiff:
    """What two programs request.

    Attributes:
        same: of how many tensors the same.
        different: the tensors of which they request different things.
    """

    same: int
    different: tuple[RequestedDifference, ...]


_Pair: TypeAlias = tuple[RequestedTensor | None, RequestedTensor | None]


def requested_diff(a: Sequence[RequestedTensor], b: Sequence[RequestedTensor]) -> RequestedDiff:
    """Compares what was requested of the tensors of two programs.

    Tensors of one kind are the same by path, in order where several have one; where one side has
    more, those of one placement or line; and constraints of another scope by their line. Of a
    ``shard_map`` with more operands or results on one side those of which the same is asked, in
    order.
    """
    pairs = list(_pairs(a, b))
    differences = [difference for difference in map(_difference, pairs) if difference is not None]
    return RequestedDiff(len(pairs) - len(differences), tuple(differences))


def _pairs(a: Sequence[RequestedTensor], b: Sequence[RequestedTensor]) -> Iterator[_Pair]:
    numbers = boundary_numbers(a, b, (str, str), _placed)

    def inside(tensor: RequestedTensor) -> Hashable:
        """Which operand or result of a shard_map it is; an argument is known by its path."""
        if not tensor.kind.startswith("shard_map"):
            return None
        return numbers.get(id(tensor), tensor.index)

    keys: tuple[Callable[[RequestedTensor], Hashable], ...] = (
        lambda tensor: (tensor.kind, inside(tensor), tensor.path, _placed(tensor)),
        lambda tensor: (
            tensor.kind,
            inside(tensor),
            named_line_of(tensor.source),
            _placed(tensor),
        ),
        lambda tensor: (tensor.kind, inside(tensor), tensor.path),
        lambda tensor: (
            (tensor.kind, inside(tensor), named_line_of(tensor.source))
            if tensor.source is not None
            else object()
        ),
    )
    left, right, in_order = _in_order(a, b, inside)
    yield from in_order
    for key in keys:
        left, right, new_pairs = paired_by(left, right, key)
        yield from new_pairs
    yield from ((tensor, None) for tensor in left)
    yield from ((None, tensor) for tensor in right)


def _in_order(
    a: Sequence[RequestedTensor],
    b: Sequence[RequestedTensor],
    inside: Callable[[RequestedTensor], Hashable],
) -> tuple[list[RequestedTensor], list[RequestedTensor], list[_Pair]]:
    """What both have as often under one path, in the order in which it is lowered.

    By placement one that changed would leave its own to another of the same path, and two that
    exchanged theirs would be the same.
    """
    groups: dict[Hashable, tuple[list[RequestedTensor], list[RequestedTensor]]] = {}
    for side, tensors in enumerate((a, b)):
        for tensor in tensors:
            key = (tensor.kind, inside(tensor), tensor.path)
            groups.setdefault(key, ([], []))[side].append(tensor)
    left: list[RequestedTensor] = []
    right: list[RequestedTensor] = []
    pairs: list[_Pair] = []
    for ours, theirs in groups.values():
        if len(ours) == len(theirs):
            pairs += zip(ours, theirs, strict=True)
        else:
            left += ours
            right += theirs
    return left, right, pairs


def _placed(tensor: RequestedTensor) -> Hashable:
    sharded = requested_sharding(tensor)
    if sharded is None:
        return None
    return (
        sharded.placement or sharded.text,
        sharded.open_dims,
        sharded.shape,
        sharded.dtype,
        sharded.memory,
        sharded.manual_axes,
        tensor.priorities,
    )


def _difference(pair: _Pair) -> RequestedDifference | None:
    a, b = pair
    either = a or b
    assert either is not None
    if a is not None and b is not None and _placed(a) == _placed(b):
        return None
    change: Change = "only in b" if a is None else "only in a" if b is None else "changed"
    return RequestedDifference(
        tensor_name(either.kind, either.path, either.index),
        either.kind,
        change,
        either.source,
        None if a is None else requested_sharding(a),
        None if b is None else requested_sharding(b),
    )
