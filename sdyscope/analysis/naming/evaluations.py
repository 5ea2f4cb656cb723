"""What a piece of source gives each time that it is evaluated while JAX traces."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias, TypeVar

from sdyscope.analysis.naming.scopes import is_recomputed, is_transposed
from sdyscope.facts.propagated import ValueId
from sdyscope.graph import Op, OpGraph
from sdyscope.graph.op_kinds import TERMINATORS

#: An op that is computed anew for the backward pass is of neither of the others.
_Pass: TypeAlias = Literal["forward", "recomputed", "backward"]

#: What takes values that the backward pass needs out of a loop's body, or into its stack of them.
_KEEPERS = TERMINATORS | {"func.call"}


class _Frame(Protocol):
    @property
    def file(self) -> str: ...


FrameT = TypeVar("FrameT", bound=_Frame)
PlaceT = TypeVar("PlaceT", bound=Hashable)


Visits: TypeAlias = Sequence[tuple[int, Op]]
"""The ops that a place in the source gives where it is reached by the same calls, each with the
number of the visit; it is another one in each turn of a Python loop."""


@dataclass(slots=True, eq=False)
class _Node:
    """A place that is reached by some calls, in one block and pass.

    Attributes:
        inside: the places in what is called there.
        last: the last of these in each file.
        visits: how often the calling function went on to another line and may be back.
    """

    inside: dict[Hashable, _Node] = field(default_factory=dict)
    last: dict[str, _Node] = field(default_factory=dict)
    visits: int = 0


def evaluated(
    ops: Iterable[tuple[Op, Sequence[FrameT]]], place: Callable[[FrameT], PlaceT]
) -> Iterator[tuple[PlaceT, FrameT, Visits]]:
    """What each place in the source gives, by the calls that lead to it.

    A place is visited again once its function, or one that calls it, has gone on to another place
    of the same file. A loop of nothing but one place can't be told from one visit.

    Args:
        ops: in program order, with their frames, innermost first.
        place: the piece of source that a frame stands for.

    Yields:
        Each place, a frame of it, and its ops.
    """
    roots: dict[tuple[_Pass, int | None], _Node] = {}
    every: dict[tuple[Hashable, ...], tuple[PlaceT, FrameT, list[tuple[int, Op]]]] = {}
    for op, frames in ops:
        node = roots.setdefault((_pass(op), op.parent), _Node())
        visit = 0
        path: tuple[Hashable, ...] = ()
        for frame in reversed(frames):
            at = place(frame)
            inside = node.inside.setdefault(at, _Node())
            before = node.last.get(frame.file)
            if before is not inside:
                if before is not None:
                    before.visits += 1
                node.last[frame.file] = inside
            is_within = at in path  # A part of that, as rules of differentiation are.
            node, visit, path = inside, visit + inside.visits, (*path, at)
            if is_within:
                continue
            every.setdefault(path, (at, frame, []))[2].append((visit, op))
    yield from every.values()


def _pass(op: Op) -> _Pass:
    if is_recomputed(op.scope):
        return "recomputed"
    return "backward" if is_transposed(op.scope) else "forward"


def results(graph: OpGraph, given: Visits) -> list[ValueId]:
    """Every value that a place gives, at each visit.

    Args:
        graph: op graph of the lowered module.
        given: the place's ops.
    """
    visits, nested = _by_pass(given)
    return [
        value
        for each in (visits["forward"], visits["recomputed"])
        for ops in each.values()
        for value in _leaving(graph, ops, nested)
    ]


def results_and_cotangents(graph: OpGraph, given: Visits) -> tuple[list[ValueId], list[ValueId]]:
    """The last value of a place at each visit, and the cotangents of that where they are known.

    Args:
        graph: op graph of the lowered module.
        given: the place's ops.
    """
    visits, nested = _by_pass(given)
    forward = [_leaving(graph, ops, nested)[-1:] for ops in visits["forward"].values()]
    again = [_leaving(graph, ops, nested)[-1:] for ops in visits["recomputed"].values()]
    # The backward pass has them the other way round.
    backward = [*visits["backward"].values()][::-1]
    cotangents: list[ValueId] = []
    if len(backward) == len(forward):
        for values, ops in zip(forward, backward, strict=True):
            for value in values:
                entering = _entering(graph, ops, value)
                cotangents += entering if len(entering) == 1 else []
    return [value for values in (*forward, *again) for value in values], cotangents


_VisitsByPass: TypeAlias = dict[_Pass, dict[tuple[int | None, int], list[Op]]]


def _by_pass(given: Visits) -> tuple[_VisitsByPass, set[int]]:
    """The ops of each visit by the pass that they are of, and those that are nested in others."""
    own = {op.id for _, op in given}
    visits: _VisitsByPass = {"forward": {}, "recomputed": {}, "backward": {}}
    nested = set()
    for visit, op in given:
        if op.parent in own:
            nested.add(op.id)
        else:
            visits[_pass(op)].setdefault((op.parent, visit), []).append(op)
    return visits, nested


def _leaving(graph: OpGraph, ops: Sequence[Op], nested: set[int]) -> list[ValueId]:
    """The values of some ops that the rest of the program uses, what is meant most last.

    They are those that ops of the same pass use; else those that are returned or given to a
    function, the first last, for what the backward pass needs is behind it; else, where all is
    computed once more, those that the backward pass uses.
    """
    own = {op.id for op in ops} | nested
    used: dict[ValueId, None] = {}
    kept: dict[ValueId, int] = {}
    elsewhere: dict[ValueId, None] = {}
    for op in ops:
        for user, edge in graph.uses(op):
            if user.id in own or edge.kind not in ("data", "capture"):
                continue
            value = op.id, edge.result
            if user.is_result or user.kind in _KEEPERS:
                kept.setdefault(value, user.result if user.is_result else edge.operand)
            elif _pass(user) == _pass(op):
                used[value] = None
            else:
                elsewhere[value] = None
    if used or kept:
        return [*used] or sorted(kept, key=lambda value: -kept[value])
    return [*elsewhere] if ops and _pass(ops[0]) == "recomputed" else []


def _entering(graph: OpGraph, ops: Sequence[Op], value: ValueId) -> set[ValueId]:
    """Values of the backward pass, of the type of a forward value, that some of its ops use."""
    own = {op.id for op in ops}
    node, result = value
    wanted = graph.ops[node].types[result]
    return {
        (producer.id, edge.result)
        for op in ops
        for producer, edge in graph.operands(op)
        if producer.id not in own and edge.type == wanted and is_transposed(producer.scope)
    }
