"""Rules about what is sent although it is there, or is thrown away, or could be sent once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sdyscope.analysis.collectives.totals import Collective, Part
from sdyscope.analysis.collectives.wasted import Wasted, accumulated_in_loops, wasted_in_maps
from sdyscope.analysis.naming.scopes import scope_of
from sdyscope.facts.findings import Severity
from sdyscope.lint.rule import Message, NotApplicable, rule, severity_of
from sdyscope.lint.subject import Subject
from sdyscope.values.source import SourceLocation
from sdyscope.words.counts import counted, size
from sdyscope.words.mesh import listed_axes, over_text
from sdyscope.words.origins import annotation_text
from sdyscope.words.places import source_text


def _in_maps(subject: Subject, kind: str) -> Iterator[Wasted]:
    """What is found in bodies of shard_maps, which are Shardy's alone to read."""
    subject.require_shardy()
    if not any(op.kind == "sdy.manual_computation" for op in subject.graph.operations()):
        raise NotApplicable("The program has no shard_map.")
    return (waste for waste in wasted_in_maps(subject.graph, subject.mesh) if waste.kind == kind)


def _message(
    subject: Subject, waste: Wasted, text: str, hint: str, severity: Severity | None = None
) -> Message:
    scope, primitive = scope_of(waste.scope)
    return Message(
        text,
        tensor=f"{scope}/{primitive}".strip("/"),
        kind="collective",
        source=waste.source,
        partitioner=subject.partitioner,
        hint=hint,
        severity=severity or severity_of(waste.sent),
    )


def _over(axes: Sequence[str]) -> str:
    return listed_axes(axes) or "devices"


@rule("reduced-twice", "error")
def reduced_twice(subject: Subject) -> Iterator[Message]:
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
    for waste in _in_maps(subject, "reduced twice"):
        count = 1
        for axis in waste.axes:
            count *= subject.mesh.shape[axis]
        first = subject.graph.ops[waste.other].source
        where = f" at {source_text(first)}" if first is not None else ""
        over = _over(waste.axes)
        if waste.divided:
            yield _message(
                subject,
                waste,
                f"It is the mean over {over} of what is summed over {over}{where} already: it "
                "changes nothing, and is sent for nothing.",
                "Leave the pmean out.",
            )
        else:
            yield _message(
                subject,
                waste,
                f"It is summed over {over}{where} already: this sum makes it {count:,} times as "
                "large.",
                "Leave the psum out. With check_vma=True gradients of what does not vary along "
                "an axis are summed over it by JAX.",
                "error",
            )


@rule("all-reduce-then-slice", "warning")
def all_reduce_then_slice(subject: Subject) -> Iterator[Message]:
    """A device keeps one slice of a sum over devices.

    In the body of a `shard_map`, the only use of a `psum` is a slice at the device's own place
    along the axis. `jax.lax.psum_scatter(..., tiled=True)` makes the slice and sends half as much.
    `sdyscope fix` writes it.

    Outside of a `shard_map` XLA's partitioner writes a reduce-scatter so, and TPUs and GPUs join
    the two: that is not reported. A note where it is less than 64 KiB per step.
    """
    for waste in _in_maps(subject, "reduced to be sliced"):
        yield _message(
            subject,
            waste,
            f"Of this sum over {_over(waste.axes)} a device keeps only its slice of dimension "
            f"{waste.dimension}: it sends {size(waste.sent)} more than a reduce-scatter.",
            f"Use jax.lax.psum_scatter(..., scatter_dimension={waste.dimension}, tiled=True), and "
            "leave the slice out.",
        )


@rule("gathered-to-be-sliced", "warning")
def gathered_to_be_sliced(subject: Subject) -> Iterator[Message]:
    """A device keeps one block of what it gathers.

    In the body of a `shard_map`, the only use of an `all_gather` is a slice of the size of a block
    at a place that depends on the device. Mostly that is the block the device had before: use it.
    If it is another device's, `jax.lax.ppermute` sends just that. `sdyscope fix` writes the first,
    if the numbers are the same. A note where it is less than 64 KiB per step.
    """
    for waste in _in_maps(subject, "gathered to be sliced"):
        yield _message(
            subject,
            waste,
            f"Of what is gathered over {_over(waste.axes)} a device keeps one block of dimension "
            f"{waste.dimension}: {size(waste.sent)} are sent for nothing, or for one block.",
            "Use the block that the device has, or jax.lax.ppermute for another's.",
        )


@rule("reduced-in-loop", "warning", needs="compiled")
def reduced_in_loop(subject: Subject) -> Iterator[Message]:
    """Each iteration of a loop sums over devices what the loop adds up anyway.

    Gradients of microbatches are accumulated in a `scan`, and each iteration has an all-reduce. The
    sum of sums can be taken once behind the loop, for the same bytes as of one iteration. A
    partitioner does not do that: the carry would have to be a partial sum, and it has no way to
    write one. Map the loop over the batch axes with `jax.shard_map`, and `pmean` or `psum` what it
    returns. `sdyscope fix` writes that where the loop's body is a function beside it, or finds
    shardings of the parameters that send as little.

    What is summed is followed in the program to the addition of the loop's carry, through ops that
    a sum can be moved behind. A loop unrolled in Python is not found. A note where it is less than
    64 KiB per step.
    """
    by_line: dict[tuple[SourceLocation | None, tuple[str, ...]], list[Wasted]] = {}
    for waste in accumulated_in_loops(subject.graph, subject.collectives):
        by_line.setdefault((waste.source, waste.axes), []).append(waste)
    for (source, axes), each in by_line.items():
        sent = sum(waste.sent for waste in each)
        tensors = counted(len(each), "tensor")
        named = repr(axes[0]) if len(axes) == 1 else repr(axes)
        scope, primitive = scope_of(each[0].scope)
        yield Message(
            f"{tensors} summed over {_over(axes)} in each of {each[0].times:,} iterations of a "
            f"loop that only adds the sums up: a device sends {size(sent)} that one sum behind "
            "the loop would not.",
            tensor=f"{scope}/{primitive}".strip("/"),
            kind="collective",
            source=source,
            partitioner=subject.partitioner,
            hint=f"Run the loop in jax.shard_map(..., check_vma=False) over {_over(axes)}, and "
            f"return jax.lax.pmean(total, {named}), or psum where the loss is a sum.",
            severity=severity_of(sent),
        )


#: So many gathers of one kind of value are a pattern.
_MANY = 4
#: What part of all that is sent makes them worth a word.
_SHARE = 0.1
_DIGITS = re.compile(r"\d+")


@rule("activation-gathered-repeatedly", "warning", needs="compiled")
def activation_gathered_repeatedly(subject: Subject) -> Iterator[Message]:
    """The same kind of activation is gathered in every layer.

    Four or more gathers a step over the same axes make activations of one shape whole, and they are
    a tenth or more of all that is sent. Each layer's output is sharded over an axis that the next
    op cannot have, mostly because one annotation puts it there: a constraint on the residual
    stream, or a weight sharded on the dimension that is contracted. Name the axis once where it
    belongs, with a constraint on what the layers hand on, and none of them needs the gather.

    Gathers of arguments, or of their slices by layer, are not counted: that is FSDP. Nor is
    sequence parallelism, in which a reduce-scatter of the same bytes over the same axes stands
    against every gather: together they are an all-reduce. Nor is what a train step gathers outside
    of its passes, as an optimizer does. A note where it is less than 64 KiB per step.
    """
    collectives = subject.explained_collectives
    arguments = {
        row.name: row.shape or ()
        for row in subject.program.tensors.tensors
        if row.kind == "argument"
    }
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
            if origin is None or value in arguments or not value:
                continue
            if any(
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
        over = over_text(collective.axes, collectives.mesh) or "devices"
        scopes = {_DIGITS.sub("*", f"{part.scope}/{part.primitive}".strip("/")) for _, part in each}
        causes = (
            [annotation for annotation in part.origin.annotations if annotation.role == "has"]
            if part.origin and not part.origin.uncertain
            else []
        )
        named = f", sharded by {annotation_text(causes[0])}" if causes else ""
        yield Message(
            f"Activations of the same shape are gathered {times:,} times per step over {over}, in "
            f"{counted(len(scopes), 'scope')}{named}: a device sends {size(sent)}, "
            f"{100 * sent / total:.0f}% of all that it sends.",
            tensor=part.origin.value if part.origin is not None else part.scope,
            kind="collective",
            source=part.source,
            partitioner=subject.partitioner,
            hint="Constrain what each layer hands on to a sharding that the next one can work "
            "with. sdyscope fix tries where.",
            severity=severity_of(sent),
        )


def _is_slice(block: Sequence[int], whole: Sequence[int]) -> bool:
    """Whether a shape can be a device's part of one element of a stack of arrays."""
    return len(block) < len(whole) and all(
        size and length % size == 0
        for size, length in zip(block, whole[len(whole) - len(block) :], strict=True)
    )
