"""Rules about what is sent although it is there, or is thrown away, or could be sent once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

from sdyscope.analysis.collectives.totals import Collective, Part
from sdyscope.analysis.collectives.wasted import accumulated_in_loops, wasted_in_maps
from sdyscope.analysis.naming.scopes import is_transposed, scope_of
from sdyscope.facts.findings import Fact, Severity
from sdyscope.facts.lint import ActivationGathered, Sending, SummedInLoop, Wasted
from sdyscope.facts.origins import OriginAnnotation
from sdyscope.lint.axes import used_axes
from sdyscope.lint.rule import NotApplicable, Sighting, rule, severity_of
from sdyscope.lint.subject import Subject
from sdyscope.lint.unsplit import OF_ROWS
from sdyscope.values.mesh import AxisRef
from sdyscope.values.source import SourceLocation


def _in_maps(subject: Subject, kind: str) -> Iterator[Sighting]:
    """What is seen in bodies of shard_maps, which are Shardy's alone to read."""
    subject.require_shardy()
    if not any(op.kind == "sdy.manual_computation" for op in subject.graph.operations()):
        raise NotApplicable("The program has no shard_map.")
    for waste in wasted_in_maps(subject.graph, subject.mesh):
        if waste.kind == kind:
            multiplies = kind == "reduced twice" and not waste.divided
            yield _at(subject, waste, waste, "error" if multiplies else severity_of(waste.sent))


def _at(subject: Subject, waste: Wasted, fact: Fact, severity: Severity) -> Sighting:
    name = "/".join(filter(None, scope_of(waste.scope)))
    return Sighting(fact, name, "collective", waste.source, subject.partitioner, severity)


@rule("reduced-twice", "error")
def reduced_twice(subject: Subject) -> Iterator[Sighting]:
    """A sum over devices of what is the same on all of them.

    In the body of a `shard_map`, `psum` of a value that does not differ along the axis multiplies
    it by the number of devices. Most often it is a gradient: with `check_vma` (the default) the
    gradient of a value that does not vary along an axis is summed over it already, and a `psum`
    written for older versions makes it that many times too large (netket/netket#2229). Leave it
    out. `sdyscope run` compares the results with those on a mesh of one device, and `sdyscope fix`
    edits the call and proves it.

    A value counts as the same where a sum over the axis makes it and only arithmetic follows.
    Arguments that `in_specs` leave whole do not count: `psum` of a constant is a way to ask for the
    size of an axis. A `pmean` of a mean changes nothing and is sent for nothing: a warning, and a
    note where it is less than 64 KiB per step.
    """
    return _in_maps(subject, "reduced twice")


@rule("all-reduce-then-slice", "warning")
def all_reduce_then_slice(subject: Subject) -> Iterator[Sighting]:
    """A device keeps one slice of a sum over devices.

    In the body of a `shard_map`, the only use of a `psum` is a slice at the device's own place
    along the axis. `jax.lax.psum_scatter(..., tiled=True)` makes the slice and sends half as much.
    `sdyscope fix` writes it.

    Outside of a `shard_map` XLA's partitioner writes a reduce-scatter so, and TPUs and GPUs join
    the two: that is not reported. A note where it is less than 64 KiB per step.
    """
    return _in_maps(subject, "reduced to be sliced")


@rule("gathered-to-be-sliced", "warning")
def gathered_to_be_sliced(subject: Subject) -> Iterator[Sighting]:
    """A device keeps one block of what it gathers.

    In the body of a `shard_map`, the only use of an `all_gather` is a slice of the size of a block
    at a place that depends on the device. Mostly that is the block the device had before: use it.
    If it is another device's, `jax.lax.ppermute` sends just that. `sdyscope fix` writes the first,
    if the numbers are the same. A note where it is less than 64 KiB per step.
    """
    return _in_maps(subject, "gathered to be sliced")


@rule("reduced-in-loop", "warning", needs="compiled")
def reduced_in_loop(subject: Subject) -> Iterator[Sighting]:
    """Each iteration of a loop sums over devices what the loop adds up anyway.

    Gradients of microbatches are accumulated in a `scan`, and each iteration has an all-reduce. The
    sum of sums can be taken once behind the loop, for the same bytes as of one iteration. A
    partitioner does not do that: the carry would have to be a partial sum, and it has no way to
    write one. Map the loop over the batch axes with `jax.shard_map`, and `pmean` or `psum` what it
    returns. `sdyscope fix` writes that where the loop's body is a function beside it, or finds
    shardings of the parameters that send as little. Of a loop that is differentiated, such as an
    RNN's over time, map the loop: its backward pass then sums once. In a `shard_map` with
    `check_vma` the gradient of a value that is the same on all devices is summed where it meets one
    that is not: `pcast` it before the loop, and it is summed once, behind the backward pass's loop.

    What is summed is followed in the program to the addition of the loop's carry, through ops that
    a sum can be moved behind. A loop unrolled in Python is not found, and what XLA itself splits
    over an axis that no sharding names is not reported: a `shard_map` over that axis splits
    nothing. Nor is it where the loop exchanges as much or more over the same axis that each
    iteration needs, as with tensor parallelism. A note where it is less than 64 KiB per step.
    """
    by_line: dict[tuple[SourceLocation | None, tuple[str, ...]], list[Wasted]] = {}
    for waste in accumulated_in_loops(subject.graph, subject.collectives, subject.hlo):
        if _is_xlas_own(subject, waste):
            continue
        by_line.setdefault((waste.first, waste.axes), []).append(waste)
    for each in by_line.values():
        first, sent = max(each, key=lambda waste: waste.sent), sum(waste.sent for waste in each)
        axes = tuple(map(AxisRef, first.axes))
        sending = Sending("all-reduce", axes, subject.collectives.mesh, sent, first.times)
        by, of = _who_sums(subject, first), _what_is_summed(subject, first)
        fact = SummedInLoop(sending, len(each), by, of, first.first)
        yield _at(subject, first, fact, severity_of(sent))


def _is_xlas_own(subject: Subject, waste: Wasted) -> bool:
    """Whether XLA itself splits an op over the axes that are summed over: nothing names them."""
    try:
        used = used_axes(subject, subject.mesh)
    except NotApplicable:
        return False
    return bool(waste.axes) and used.isdisjoint(waste.axes)


def _who_sums(subject: Subject, waste: Wasted) -> Literal["partitioner", "program", "backward"]:
    op = subject.graph.ops[waste.op]
    if op.mnemonic != "all_reduce":
        return "partitioner"
    return "backward" if waste.backward else "program"


def _what_is_summed(
    subject: Subject, waste: Wasted
) -> Literal["gradients", "values", "backward loop"]:
    if is_transposed(subject.graph.ops[waste.other].scope):
        return "backward loop"
    return "gradients" if waste.backward else "values"


#: So many gathers of one kind of value are a pattern.
_MANY = 4
#: What part of all that is sent makes them worth a word.
_SHARE = 0.1
#: Ops that need a dimension whole whatever a constraint says of their result.
_PRODUCTS = frozenset({"conv_general_dilated", "dot_general"})
_DIGITS = re.compile(r"\d+")


@rule("activation-gathered-repeatedly", "warning", needs="compiled")
def activation_gathered_repeatedly(subject: Subject) -> Iterator[Sighting]:
    """The same kind of activation is gathered in every layer.

    Four or more gathers a step over the same axes make activations of one shape whole, and they are
    a tenth or more of all that is sent. Each layer's output is sharded over an axis that the next
    op cannot have, mostly because one annotation puts it there: a constraint on the residual
    stream, or a weight sharded on the dimension that is contracted. Name the axis once where it
    belongs, with a constraint on what the layers hand on, and none of them needs the gather. Where
    constraints themselves ask for the gathers, that is said: keep the axis in their spec if what
    follows can work on shards. If all of it is meant to be on each device, as for a router of few
    tokens, ignore the rule for that program.

    Gathers of arguments, or of their slices by layer, are not counted: that is FSDP. What a loop
    over layers hands on is no argument, though it begins with one; what a loop over steps does is.
    Nor is sequence parallelism, in which a reduce-scatter of the same bytes over the same axes
    stands against every gather: together they are an all-reduce. Nor is what a train step gathers
    outside of its passes, as an optimizer does, nor what `op-not-split` reports. A note where it is
    less than 64 KiB per step.
    """
    arguments = {
        row.name: row.shape or ()
        for row in subject.program.tensors.tensors
        if row.kind == "argument"
    }
    if not any(each.kind == "all-gather" for each in subject.collectives.collectives):
        return
    collectives = subject.caused_collectives
    by_gather: dict[tuple[object, ...], list[tuple[Collective, Part]]] = {}
    scattered: dict[tuple[object, ...], int] = {}
    for collective in collectives.collectives:
        for part in collective.parts:
            key = (collective.axes, part.shape.dtype, part.shape.dimensions)
            if collective.kind in ("reduce-scatter", "all-reduce"):
                scattered[key] = scattered.get(key, 0) + collective.count
            if collective.kind != "all-gather" or part.argument is not None or not collective.axes:
                continue
            if collectives.differentiated and part.phase == "other":
                continue
            origin = part.origin
            value = "" if origin is None else origin.value
            if origin is None or not value or origin.op in OF_ROWS:
                continue
            is_handed_on = origin.carried and not _is_around_passes(part.scope)
            if not is_handed_on and value in arguments:
                continue
            if not is_handed_on and any(
                annotation.name in arguments
                and (
                    value.endswith("convert_element_type")
                    or _is_slice(part.shape.dimensions, arguments[annotation.name])
                )
                for annotation in origin.annotations
                if annotation.role == "has"
            ):
                continue  # An argument that is cast first, or a layer's slice of one.
            by_gather.setdefault(key, []).append((collective, part))
    total = collectives.total.sent
    for kind, each in by_gather.items():
        times = sum(collective.count for collective, _ in each)
        sent = sum(collective.count * part.sent for collective, part in each)
        if times < _MANY or sent < _SHARE * total or scattered.get(kind, 0) >= times:
            continue
        collective, part = max(each, key=lambda gather: gather[0].count * gather[1].sent)
        scopes = {_DIGITS.sub("*", f"{part.scope}/{part.primitive}".strip("/")) for _, part in each}
        origin = part.origin
        assert origin is not None  # or it would not be among them
        sending = replace(subject.sending([collective], sent), times=times)
        fact = ActivationGathered(
            sending,
            len(scopes),
            sent / total,
            *_sharded_by(each),
            _asked_by(each),
        )
        seen = subject.at_part(part, collective.name, fact, severity_of(sent))
        yield replace(seen, tensor=origin.value)


def _sharded_by(
    gathers: Sequence[tuple[Collective, Part]],
) -> tuple[OriginAnnotation | None, int, int]:
    """What shards most of what is gathered, how many others do, and of how many that is known."""
    known = [
        (collective, part, cause)
        for collective, part in gathers
        if part.origin is not None and not part.origin.uncertain
        for cause in [each for each in part.origin.annotations if each.role == "has"][:1]
    ]
    causes = _by_bytes(known)
    if not causes:
        return None, 0, 0
    explained = sum(collective.count for collective, _, _ in known)
    return causes[0][0], len(causes) - 1, explained


def _asked_by(gathers: Sequence[tuple[Collective, Part]]) -> OriginAnnotation | None:
    """The constraint for which most of what is gathered is gathered; None where it is for ops."""
    causes = _by_bytes(
        (collective, part, asking)
        for collective, part in gathers
        if (origin := part.origin) is not None and origin.op not in _PRODUCTS
        for asking in [each for each in origin.annotations if each.role == "needed"][:1]
        if asking.kind == "constraint" and asking.spec == origin.after
    )
    sent = sum(collective.count * part.sent for collective, part in gathers)
    asked = sum(sent for _, sent in causes)
    return causes[0][0] if 2 * asked > sent else None


def _by_bytes(
    known: Iterable[tuple[Collective, Part, OriginAnnotation]],
) -> list[tuple[OriginAnnotation, int]]:
    """Annotations with the bytes that a device sends for them, the most first."""
    bytes_of: Counter[tuple[object, ...]] = Counter()
    causes: dict[tuple[object, ...], OriginAnnotation] = {}
    for collective, part, cause in known:
        bytes_of[causes.setdefault(cause.key, cause).key] += collective.count * part.sent
    return [(causes[key], sent) for key, sent in bytes_of.most_common()]


def _is_around_passes(scope: str) -> bool:
    """Whether a loop is around whole steps, each with a backward pass: it carries parameters."""
    before, differentiated, _ = scope.partition("jvp(")
    return bool(differentiated) and "while/body" in before


def _is_slice(block: Sequence[int], whole: Sequence[int]) -> bool:
    """Whether a shape can be a device's part of one element of a stack of arrays."""
    return len(block) < len(whole) and all(
        size and length % size == 0
        for size, length in zip(block, whole[len(whole) - len(block) :], strict=True)
    )
