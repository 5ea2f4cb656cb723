"""Explanations of collectives: without the annotations that are named, XLA makes no such thing.

Or it makes it for others, which are heard only then: where annotations contradict each other, one
that is taken away gives way to another. That is looked at from both sides, since a wrong cause
leaves the collective in place as well: without the others alone the collective must stay, and
without all of them it must go.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias, get_args

from sdyscope.analysis.collectives.totals import Collective, Collectives
from sdyscope.analysis.verify.audited import AuditedStage, Disagreement, LeftOut
from sdyscope.analysis.verify.compiled import CollectiveKey, key_of, shown_key
from sdyscope.errors import SdyscopeError, TargetError
from sdyscope.facts.origins import CollectiveOrigin, OriginAnnotation, OriginRole
from sdyscope.facts.tensors import TensorTable
from sdyscope.stages.audit.facts import Audited, AuditedCollective
from sdyscope.stages.propagated.what_if import find

_REMOVABLE = ("argument", "result", "constraint", "type")

#: What requires a value as an annotation says it, by JAX's names.
_REQUIRING = ("return", "sharding_constraint")

#: How many times it is asked what a collective is for that is still there.
_ROUNDS = 3


class _Named(NamedTuple):
    """What makes a collective of the program the same as one of the program without annotations.

    For an op one operand may be gathered in place of another with as many bytes, or the op's
    result, or what was moved to these devices first; and of each the columns in place of the rows.

    Attributes:
        key: its kind, groups and bytes.
        ops: the ops that XLA names it after.
        is_of_result: whether it is about what these make.
        is_moved_before: whether that was exchanged between devices before.
        dims: the shapes of what it gives.
        along: the dimensions along which it does.
    """

    key: CollectiveKey
    ops: tuple[int | str, ...]
    is_of_result: bool
    is_moved_before: bool
    dims: tuple[tuple[int, ...], ...]
    along: tuple[int, ...]

    def is_joined_in(self, other: _Named) -> bool:
        """Whether XLA may communicate it at once with others, for the ops of all."""
        return (
            len(other.dims) > len(self.dims)
            and self.key[:2] == other.key[:2]
            and not Counter(self.dims) - Counter(other.dims)
            and set(self.ops) <= set(other.ops)
        )


_Tensor: TypeAlias = tuple[str, frozenset[tuple[int, ...]], tuple[int, ...]]
"""One of those that a collective is about: its kind, its groups and what it gives of this one."""


class _Counted(NamedTuple):
    """How often a step runs each collective, how many tensors are alike, and their names in HLO."""

    collectives: Counter[_Named]
    tensors: Counter[_Tensor]
    names: dict[_Named, set[str]]


class _Claim(NamedTuple):
    """Annotations without which a collective is said not to be there.

    Attributes:
        names: what they are called.
        roles: what they are said to do.
    """

    names: frozenset[str]
    roles: frozenset[OriginRole]


class _Asked(NamedTuple):
    """One collective whose annotations can all be removed."""

    collective: Collective
    claims: tuple[_Claim, ...]
    there: _Named
    may_split: bool

    @property
    def sets(self) -> set[frozenset[str]]:
        """What is to be removed, each set on its own."""
        return {claim.names for claim in self.claims}


def causes_stage(
    shown: Collectives,
    audited: Audited,
    tensors: TensorTable,
    without: Callable[[frozenset[str]], Audited],
    explained: Callable[[frozenset[str]], Collectives],
    most: int,
) -> AuditedStage:
    """Takes away what the largest collectives are explained by, and looks whether they go.

    Args:
        shown: the collectives, explained.
        audited: what was read of the program as it is.
        tensors: the program's tensors, by whose names annotations are removed.
        without: compiles and reads the program without some annotations.
        explained: the collectives of the program without some annotations, explained.
        most: how many sets of annotations to remove, of the largest collectives first.
    """
    left_out: Counter[LeftOut] = Counter()
    asked = list(_removable(shown, audited, tensors, left_out))
    before = _counted(audited)
    tried: dict[frozenset[str], _Counted | None] = {}

    def count(names: frozenset[str]) -> _Counted | None:
        if names not in tried:
            tried[names] = _without(names, without)
        return tried[names]

    def goes(cause: _Asked, names: frozenset[str]) -> bool:
        after = count(names)
        return (
            after is not None and after.collectives[cause.there] < before.collectives[cause.there]
        )

    def stays(cause: _Asked, others: frozenset[str], own: frozenset[str]) -> bool:
        """Whether it is there without these, until its own annotations go, too."""
        if not goes(cause, others):
            return True
        # Of several tensors that XLA communicates at once, one may have gone with these, or come.
        (kind, groups, *_), dims = cause.there.key, cause.there.dims
        alone, neither = count(others), count(others | own)
        return (
            alone is not None
            and neither is not None
            and (len(dims) > 1 or any(map(cause.there.is_joined_in, alone.collectives)))
            and any(
                neither.tensors[kind, groups, each] < alone.tensors[kind, groups, each]
                for each in dims
            )
        )

    sets: set[frozenset[str]] = set()
    compared = 0
    wrong: list[Disagreement] = []
    for cause in sorted(asked, key=lambda cause: -cause.collective.sent):
        if not cause.sets <= sets and len(sets) >= most:
            left_out["not tried"] += 1
            continue
        sets |= cause.sets
        if any(count(names) is None for names in cause.sets):
            left_out["not compiled"] += 1
            continue
        compared += 1
        for claim in cause.claims:
            if goes(cause, claim.names) or _replaced(
                cause, claim, explained, tensors, count, goes, stays
            ):
                continue
            collective, after = cause.collective, count(claim.names)
            scope = collective.largest.scope
            all_ = before.collectives[cause.there]
            still = 0 if after is None else after.collectives[cause.there]
            wrong.append(
                Disagreement(
                    f"{collective.name}, {collective.kind}{f' for {scope}' if scope else ''}",
                    ", ".join(sorted(claim.names)),
                    f"{still:,} of {all_:,} are still there without that",
                    collective.largest.source,
                )
            )
            break
    return AuditedStage("causes", compared, tuple(wrong), dict(left_out))


def _replaced(
    cause: _Asked,
    claim: _Claim,
    explained: Callable[[frozenset[str]], Collectives],
    tensors: TensorTable,
    count: Callable[[frozenset[str]], _Counted | None],
    goes: Callable[[_Asked, frozenset[str]], bool],
    stays: Callable[[_Asked, frozenset[str], frozenset[str]], bool],
) -> bool:
    """Whether others do alone what annotations are said to do, once these are removed."""
    others: frozenset[str] = frozenset()
    for _ in range(_ROUNDS):
        names = claim.names | others
        try:
            changed = explained(names)
        except SdyscopeError:
            return False
        counted = count(names)
        there = set() if counted is None else counted.names.get(cause.there, set())
        alike = [
            each
            for each in changed.collectives
            if shown_key(each, changed.devices) == cause.there.key
        ]
        # Others move as many bytes for other ops.
        same = [each for each in alike if each.name in there] or alike
        origins = [each.largest.origin for each in same if each.largest.origin is not None]
        if cause.may_split and any(origin.is_over_chosen_axes for origin in origins):
            return True
        further = {
            name
            for origin in origins
            for role in claim.roles
            for annotation in origin.every_of(role)
            if (name := _removable_name(annotation, tensors)) is not None
        }
        if further <= others:
            return False
        others |= further
        if goes(cause, claim.names | others):
            return stays(cause, others, claim.names)
    return False


def _removable(
    shown: Collectives, audited: Audited, tensors: TensorTable, left_out: Counter[LeftOut]
) -> Sequence[_Asked]:
    by_key: dict[CollectiveKey, list[AuditedCollective]] = {}
    for audited_collective in audited.collectives:
        by_key.setdefault(key_of(audited_collective), []).append(audited_collective)
    removable = []
    for collective in shown.collectives:
        origin = collective.largest.origin
        if origin is None or not any(origin.every):
            left_out["no cause"] += 1
            continue
        if origin.uncertain:
            left_out["uncertain"] += 1
            continue
        claims = _claims(origin, tensors)
        same = by_key.get(shown_key(collective, shown.devices))
        if not same or claims is None:
            left_out["not removable"] += 1
            continue
        # Of several that are alike it is any: they are told apart by what they are named after.
        chosen = next((each for each in same if each.name == collective.name), same[0])
        there = _named(chosen, _numbers(audited))
        removable.append(_Asked(collective, claims, there, origin.may_split))
    return removable


def _claims(origin: CollectiveOrigin, tensors: TensorTable) -> tuple[_Claim, ...] | None:
    """What is said of a collective; None where an annotation of it can't be removed.

    That a value has the axes is one thing, and that a constraint or result requires it otherwise is
    a second: without either the collective goes. What an op's other tensors have is no second: the
    op can need the value for more than that, too.
    """
    by_role: dict[OriginRole, frozenset[str]] = {}
    for role in get_args(OriginRole):
        names = [_removable_name(each, tensors) for each in origin.every_of(role)]
        if None in names:
            return None
        if names:
            by_role[role] = frozenset(name for name in names if name is not None)
    every = frozenset().union(*by_role.values())
    if origin.op not in _REQUIRING and "has" in by_role:
        by_role.pop("needed", None)
    roles = frozenset(get_args(OriginRole))
    return tuple(
        _Claim(names, roles if names == every else frozenset({role}))
        for role, names in by_role.items()
    )


def _removable_name(annotation: OriginAnnotation, tensors: TensorTable) -> str | None:
    """What the program calls an annotation that its author wrote; None for any other."""
    if annotation.kind not in _REMOVABLE:
        return None
    if annotation.kind in ("argument", "result"):
        name = annotation.name
    elif annotation.source is not None:
        name = f"{annotation.source.file}:{annotation.source.line}"
    else:
        return None
    try:
        find(tensors, name)
    except TargetError:
        return None
    return name


def _without(
    names: frozenset[str], without: Callable[[frozenset[str]], Audited]
) -> _Counted | None:
    try:
        audited = without(names)
    except SdyscopeError:  # what is left may be no program, on which the compiler aborts, too
        return None
    return None if audited.refused else _counted(audited)


def _counted(audited: Audited) -> _Counted:
    counted, numbers = _Counted(Counter(), Counter(), {}), _numbers(audited)
    for collective in audited.collectives:
        named = _named(collective, numbers)
        counted.collectives[named] += collective.count
        counted.names.setdefault(named, set()).add(collective.name)
        kind, groups, *_ = key_of(collective)
        for dims in collective.dims:
            counted.tensors[kind, groups, tuple(dims)] += collective.count
    return counted


def _numbers(audited: Audited) -> list[int | None]:
    """By op its number without constraints, some of which are gone; None of constraints."""
    numbers = itertools.count()
    return [None if op.is_constraint else next(numbers) for op in audited.ops]


def _named(collective: AuditedCollective, numbers: Sequence[int | None]) -> _Named:
    # Ops have names and lines in common; constraints are told apart by these alone.
    ops = (
        scope if (number := numbers[op]) is None else number
        for op, scope in zip(collective.ops, collective.scopes, strict=True)
    )
    return _Named(
        key_of(collective),
        tuple(ops),
        collective.is_of_result,
        collective.is_moved_before,
        tuple(collective.dims),
        collective.along,
    )
