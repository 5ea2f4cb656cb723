"""A rule about partial sums that are never added up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

from sdyscope.analysis.collectives.axes import axes_of_op
from sdyscope.annotations import Annotation
from sdyscope.facts.propagated import ValueId
from sdyscope.graph import Op, OpGraph
from sdyscope.lint.rule import Message, rule
from sdyscope.lint.subject import Subject
from sdyscope.values.mesh import Mesh
from sdyscope.values.sharding import ManualAxes, TensorSharding, TensorShardingPerValue

_Varies: TypeAlias = Literal["no", "yes", "unknown"]
"""Whether a value differs between the devices along an axis."""

#: What devices exchange, and what else may make them differ or not.
_COLLECTIVES = frozenset(
    {
        "all_gather",
        "all_reduce",
        "all_to_all",
        "collective_broadcast",
        "collective_permute",
        "custom_call",
        "infeed",
        "partition_id",
        "recv",
        "reduce_scatter",
        "replica_id",
        "send",
        "manual_computation",
    }
)


#: Collectives whose results are the same on all devices of a group.
_JOINING = frozenset({"all_gather", "all_reduce"})

#: Those that say along which axes they run, and leave others as they are.
_ALONG_AXES = _JOINING | {"all_to_all", "collective_permute", "reduce_scatter"}

#: Ops that sum over what may be in pieces.
_SUMMING = frozenset({"convolution", "dot", "dot_general", "reduce", "reduce_window", "scatter"})


@rule("unreduced-never-reduced", "error")
def unreduced_never_reduced(subject: Subject) -> Iterator[Message]:
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


def _of_bodies(subject: Subject) -> Iterator[Message]:
    graph = subject.graph
    for op in graph.operations():
        written = op.attributes.get("out_shardings")
        manual = op.attributes.get("manual_axes")
        if op.kind != "sdy.manual_computation" or not isinstance(written, TensorShardingPerValue):
            continue
        end = graph.children(op)[-1]
        for axis in manual.axes if isinstance(manual, ManualAxes) else ():
            body = _Body(graph, subject.mesh, op, axis)
            for (producer, edge), sharding in zip(
                graph.operands(end), written.shardings, strict=False
            ):
                if axis in {axis.name for axis in sharding.axes()} or _size(subject, axis) == 1:
                    continue
                if body.varies((producer.id, edge.result)) == "yes":
                    yield Message(
                        f"Output {edge.operand} of this shard_map differs along {axis!r}, its "
                        "out_specs say it does not, and nothing on its way reduces over "
                        f"{axis!r}: each device uses its own part as the whole.",
                        tensor=op.scope,
                        kind="shard_map output",
                        source=op.source,
                        hint=f"Sum over it in the body (jax.lax.psum(..., {axis!r})), or name the "
                        "axis in out_specs. check_vma=True makes JAX look for this.",
                    )


def _size(subject: Subject, axis: str) -> int:
    return subject.mesh.shape.get(axis, 1)


class _Body:
    """Which values of a ``shard_map``'s body differ along an axis."""

    def __init__(self, graph: OpGraph, mesh: Mesh, op: Op, axis: str) -> None:
        self.graph, self.mesh, self.op, self.axis = graph, mesh, op, axis
        self._known: dict[ValueId, _Varies] = {}
        given = op.attributes.get("in_shardings")
        self._given = given.shardings if isinstance(given, TensorShardingPerValue) else ()

    def varies(self, value: ValueId) -> _Varies:
        """Whether a value differs between the devices along the axis."""
        waiting = [value]
        while waiting:
            at = waiting[-1]
            if at in self._known:
                waiting.pop()
                continue
            before = self._before(at)
            missing = [operand for operand in before if operand not in self._known]
            if missing:
                waiting += missing
                continue
            waiting.pop()
            self._known[at] = self._own(at) or _joined([self._known[operand] for operand in before])
        return self._known[value]

    def _own(self, value: ValueId) -> _Varies | None:
        """What is known of a value by itself."""
        op = self.graph.ops[value[0]]
        if op.is_argument and op.parent == self.op.id:
            sharding = self._given[op.argument] if op.argument < len(self._given) else None
            named = sharding is not None and any(
                axis.name == self.axis for dim in sharding.dim_shardings for axis in dim.axes
            )
            return "yes" if named else "no"
        if op.is_argument:
            return "unknown"  # of a loop: what its body makes of it is not followed
        if op.mnemonic in _JOINING and self._runs_over(op) == "all of it":
            return "no"
        inside = [op, *self.graph.inside([op])]
        if any(op.mnemonic in _COLLECTIVES and self._runs_over(op) != "others" for op in inside):
            return "unknown"
        return None

    def _runs_over(self, op: Op) -> Literal["all of it", "others", "unknown"]:
        """What a collective runs over: all of the axis, or other axes alone."""
        axes = axes_of_op(op, self.mesh) if op.mnemonic in _ALONG_AXES else None
        own = [axis for axis in axes or () if axis.name == self.axis]
        if axes is None or any(axis.sub_axis_info is not None for axis in own):
            return "unknown"
        return "all of it" if own else "others"

    def _before(self, value: ValueId) -> list[ValueId]:
        """What a value is made from, inside the body."""
        op = self.graph.ops[value[0]]
        if self._own(value) is not None:
            return []
        producers = [(producer.id, edge.result) for producer, edge in self.graph.operands(op)]
        return [producer for producer in producers if self._is_inside(producer[0])]

    def _is_inside(self, node: int) -> bool:
        at: int | None = node
        while at is not None:
            at = self.graph.ops[at].parent
            if at == self.op.id:
                return True
        return False


def _joined(answers: list[_Varies]) -> _Varies:
    if "unknown" in answers:
        return "unknown"
    return "yes" if "yes" in answers else "no"


# What is annotated as unreduced.


def _of_annotations(subject: Subject) -> Iterator[Message]:
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
            if axis in reducing or axis in kept or _size(subject, axis) == 1:
                continue
            yield Message(
                f"It is unreduced over {axis!r}, a sum still pending over the devices along it, "
                "and the compiled program has no reduction over that axis.",
                tensor=tensor.path,
                kind=tensor.kind,
                source=tensor.source,
                partitioner=subject.partitioner,
                found=tensor.text,
                hint=f"Reduce it explicitly (jax.lax.psum over {axis!r}, or a reshard to a "
                "sharding without it), and compare the numbers: sdyscope run does.",
            )


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
