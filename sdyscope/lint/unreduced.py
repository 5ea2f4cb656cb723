"""A rule about partial sums that are never added up."""

from __future__ import annotations

from collections.abc import Iterator

from sdyscope.analysis.collectives.origin_needs import SUMMING
from sdyscope.annotations import Annotation
from sdyscope.facts.lint import NeverReduced, OutputDiffers
from sdyscope.graph import OpGraph
from sdyscope.lint.manual_bodies import manual_bodies
from sdyscope.lint.rule import Sighting, rule
from sdyscope.lint.subject import Subject
from sdyscope.values.sharding import TensorSharding

#: Ops that sum over what may be in pieces.
_SUMMING = SUMMING - {"custom_call"}


@rule("unreduced-never-reduced", "error")
def unreduced_never_reduced(subject: Subject) -> Iterator[Sighting]:
    """Partial sums are used as if they were complete.

    Two forms of one fault that gives wrong numbers without an error (openxla/xla#40034).

    A `shard_map` with `check_vma=False` returns a value that differs along an axis which its
    `out_specs` leave out: the `psum` was forgotten, or runs over another axis. It is reported where
    the value comes from blocks of an argument with nothing in between that may make them the same:
    past a sum or gather over that axis they are, and past another collective over it, a custom
    call, or in a loop with one it is not followed, and not reported.

    A value that is annotated `unreduced` over an axis, in a program whose compiled form has no
    reduction over that axis, and that does not return it so. This takes the compiled program.
    """
    subject.require_shardy()
    yield from _of_bodies(subject)
    yield from _of_annotations(subject)


# What a shard_map returns.


def _of_bodies(subject: Subject) -> Iterator[Sighting]:
    graph = subject.graph
    for op, axis, body in manual_bodies(subject):
        end = graph.children(op)[-1]
        for (producer, edge), sharding in zip(graph.operands(end), op.out_shardings, strict=False):
            if axis in {axis.name for axis in sharding.axes()}:
                continue
            if body.varies((producer.id, edge.result)) == "yes":
                fact = OutputDiffers(edge.operand, axis)
                yield Sighting(fact, op.scope, "shard_map output", op.source)


# What is annotated as unreduced.


def _of_annotations(subject: Subject) -> Iterator[Sighting]:
    pending = [
        annotation
        for annotation in subject.annotations
        if _unreduced(annotation) and _has_parts(subject.graph, annotation)
    ]
    if not pending:
        return
    reducing = {
        axis.name
        for collective in subject.collectives.collectives
        if collective.kind in ("all-reduce", "reduce-scatter")
        for axis in collective.axes or ()
    }
    kept = {name for tensor in pending if tensor.kind == "result" for name in _unreduced(tensor)}
    for tensor in pending:
        if tensor.kind == "result":
            continue
        for axis in _unreduced(tensor):
            if axis in reducing or axis in kept or subject.mesh.shape.get(axis, 1) == 1:
                continue
            yield subject.at_annotation(tensor, NeverReduced(axis, tensor.text))


def _has_parts(graph: OpGraph, annotation: Annotation) -> bool:
    """Whether devices may really have partial sums: of a whole value it is but a way to write."""
    if annotation.kind != "constraint":
        return True
    operands, uses = graph.operands(annotation.op), graph.uses(annotation.op)
    if uses and all(user.kind == "func.return" for user, _ in uses):
        return False  # the caller gets it so
    return bool(operands) and operands[0][0].mnemonic in _SUMMING


def _unreduced(annotation: Annotation) -> tuple[str, ...]:
    if not isinstance(annotation.sharding, TensorSharding):
        return ()
    return tuple(axis.name for axis in annotation.sharding.unreduced_axes)
