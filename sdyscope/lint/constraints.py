"""Rules about constraints: those that contradict one another, and those that did not hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sdyscope.annotations import Annotation
from sdyscope.facts.lint import ConstrainedTwice, Overridden, Twice
from sdyscope.facts.propagated import ValueId
from sdyscope.lint.rule import Sighting, rule
from sdyscope.lint.subject import Subject
from sdyscope.values.placement import Digits, Placement
from sdyscope.values.source import line_of


def _constraints(subject: Subject) -> Iterator[Annotation]:
    """The constraints of ``with_sharding_constraint``, whose placements are known."""
    for annotation in subject.annotations:
        if (
            annotation.kind == "constraint"
            and annotation.primitive == "sharding_constraint"
            and annotation.placement
        ):
            yield annotation


def _known(annotation: Annotation) -> Placement:
    assert annotation.placement is not None
    return annotation.placement


@rule("conflicting-constraints", "warning")
def conflicting_constraints(subject: Subject) -> Iterator[Sighting]:
    """One value is constrained to two shardings.

    Two `with_sharding_constraint` calls constrain the same value, or the second constrains the
    result of the first, which is used elsewhere too. Both are satisfied, and the value is moved
    from one to the other. Where nothing else uses the first, it is `resharded-twice`.

    A note where no device needs data it does not have, such as from replicated to sharded.
    Constraints that leave a dimension `UNCONSTRAINED` do not contradict one that closes it.
    Arguments that are constrained differently at once (as weights that FSDP gathers) are not
    reported, and neither are `jax.sharding.reshard`, `shard_map` and nested `jit`s: there a move is
    intended. A gradient is constrained where its value is, which is reported once.
    """
    graph = subject.graph
    by_op = {constraint.op: constraint for constraint in _constraints(subject)}
    by_value: dict[ValueId, list[Annotation]] = {}
    pairs: set[frozenset[object]] = set()
    for op, constraint in by_op.items():
        operands = graph.operands(op)
        if not operands:
            continue
        producer, edge = operands[0]
        before = by_op.get(producer.id)
        if before is not None:
            others = [before] if len(graph.uses(producer)) > 1 else []
        else:
            others = by_value.get((producer.id, edge.result), [])
        for other in others:
            # A gradient is constrained where its value is, in the other order.
            pair = frozenset([_place(constraint), _place(other)])
            if pair in pairs or not _contradict(constraint, other):
                continue
            pairs.add(pair)
            is_cut = _cuts(other, constraint) or (before is None and _cuts(constraint, other))
            how: Twice = "same value" if before is None else "chained"
            yield _twice(subject, constraint, other, how, is_note=is_cut, is_cut=is_cut)
        by_value.setdefault((producer.id, edge.result), []).append(constraint)


#: Ops that neither move a value nor compute with it but its type and sign. Not all that ``passing``
#: has: a `reshard` moves, and of another shape a value has other dimensions to constrain.
_IDLE = frozenset({"convert", "optimization_barrier", "negate"})


@rule("resharded-twice", "warning")
def resharded_twice(subject: Subject) -> Iterator[Sighting]:
    """Two constraints in a row move a value twice.

    A value is constrained, and what comes of it is constrained differently, with nothing computed
    in between (but a cast or a sign) and no other use of the first. Both moves are made. Leave the
    first constraint out, or give it the second's sharding: often it is in a helper that constrains
    what its caller constrains again.

    A note where the two follow one another in one function, which is how a move in two steps is
    written: mixtures of experts sort their tokens locally first, and then send them. Not reported
    is a second constraint that only shards further, for which nothing is sent, one that closes what
    the first leaves `UNCONSTRAINED`, and `jax.sharding.reshard`, `shard_map` and nested `jit`s:
    there a move is intended. A gradient is constrained where its value is, which is reported once.
    """
    by_op = {constraint.op: constraint for constraint in _constraints(subject)}
    pairs: set[frozenset[object]] = set()
    for constraint in by_op.values():
        first = _before(subject, by_op, constraint)
        if first is None or not _contradict(constraint, first) or _cuts(first, constraint):
            continue
        pair = frozenset([_place(constraint), _place(first)])
        if pair in pairs:
            continue
        pairs.add(pair)
        in_steps = _function(constraint) == _function(first)
        yield _twice(subject, constraint, first, "moved", is_note=in_steps)


def _before(
    subject: Subject, constraints: Mapping[int, Annotation], constraint: Annotation
) -> Annotation | None:
    """The constraint that makes what another constrains, where that is all its use."""
    graph = subject.graph
    op = graph.ops[constraint.op]
    while operands := graph.operands(op):
        op = operands[0][0]
        if op.is_argument or len(graph.uses(op)) != 1:
            return None
        if op.id in constraints:
            return constraints[op.id]
        if op.mnemonic not in _IDLE:
            return None
    return None


def _place(annotation: Annotation) -> object:
    return line_of(annotation.source) or annotation.op


def _function(annotation: Annotation) -> tuple[str, str] | None:
    return (
        None if annotation.source is None else (annotation.source.file, annotation.source.function)
    )


def _twice(
    subject: Subject,
    annotation: Annotation,
    other: Annotation,
    how: Twice,
    *,
    is_note: bool,
    is_cut: bool = False,
) -> Sighting:
    wanted, sharded = (subject.sharded(_known(each)) for each in (other, annotation))
    fact = ConstrainedTwice(how, is_cut, other.source, wanted, sharded)
    return subject.at_annotation(annotation, fact, "note" if is_note else "warning")


def _contradict(annotation: Annotation, other: Annotation) -> bool:
    """Whether two constraints put a dimension that both close on other axes."""
    if annotation.shape != other.shape:
        return False
    free = {*annotation.open_dims, *other.open_dims}
    return _differ(_known(annotation), _known(other), free)


def _differ(placement: Placement, other: Placement, free: set[int]) -> bool:
    """Whether two placements of one shape differ in other dimensions than these."""
    return any(
        mine != theirs
        for dim, (mine, theirs) in enumerate(zip(placement.dims, other.dims, strict=True))
        if dim not in free
    )


def _cuts(coarse: Annotation, fine: Annotation) -> bool:
    """Whether a device has what it needs of a value already: all of each dimension that is cut."""
    return all(
        _begins(mine, theirs)
        for mine, theirs in zip(_known(coarse).dims, _known(fine).dims, strict=True)
    )


def _begins(coarse: Digits, fine: Digits) -> bool:
    """Whether a dimension is cut into the same blocks, and these further, from major to minor."""
    return not coarse or fine[: len(coarse)] == coarse


@rule("constraint-overridden", "warning", needs="propagated")
def constraint_overridden(subject: Subject) -> Iterator[Sighting]:
    """A constraint did not hold.

    After propagation the constrained value has another placement on the dimensions that the
    constraint closes; or it is returned, and the compiled program returns it otherwise. The latter
    is what happens to dimensions that do not divide: XLA keeps the constraint inside, with padding,
    and returns the whole tensor on every device (jax-ml/jax#26946). That is only known once the
    program is compiled.

    A result with requested `out_shardings` is not reported: there the move is intended.
    """
    propagated = subject.propagated
    reported: set[int] = set()
    for constraint in _constraints(subject):
        value = propagated.values.get((constraint.op, 0))
        if value is None or value.placement is None or constraint.manual:
            continue
        if _differ(
            _known(constraint).without_manual,
            value.placement.without_manual,
            {*constraint.open_dims},
        ):
            reported.add(constraint.op)
            yield _override(subject, constraint, value.placement)
    if subject.compiles:
        yield from _returned(subject, reported)


def _returned(subject: Subject, reported: set[int]) -> Iterator[Sighting]:
    """Constraints on values that the program returns, and that come back otherwise."""
    graph = subject.graph
    _ = subject.compiled
    by_op = {
        constraint.op: constraint
        for constraint in _constraints(subject)
        if not (constraint.manual or constraint.op in reported)
    }
    results = {result.row.lowered[subject.under].index: result for result in subject.results}
    for index, value in graph.returned.items():
        constraint, result = by_op.get(value[0]), results.get(index)
        if constraint is None or result is None or result.placement is None:
            continue
        if result.row.asked is not None or constraint.placement is None:
            continue  # out_shardings say otherwise, and that is what the author wants
        if _differ(constraint.placement, result.placement, {*constraint.open_dims}):
            padded = any(constraint.placement.padding(result.shape))
            yield _override(subject, constraint, result.placement, result.name, is_padded=padded)


def _override(
    subject: Subject,
    annotation: Annotation,
    placement: Placement,
    result: str = "",
    *,
    is_padded: bool = False,
) -> Sighting:
    wanted, sharded = subject.sharded(_known(annotation)), subject.sharded(placement)
    fact = Overridden(subject.partitioner, result, is_padded, wanted, sharded)
    return subject.at_annotation(annotation, fact)
