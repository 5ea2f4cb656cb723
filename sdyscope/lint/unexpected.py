"""Rules about collectives that the parallelism a program is written for does not have."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from sdyscope.analysis.collectives.totals import Collective, Part
from sdyscope.analysis.naming.names import ValueNames
from sdyscope.errors import ConversionError
from sdyscope.facts.lint import BatchLost, ParameterGathered
from sdyscope.facts.over_time import Phase
from sdyscope.graph import OpGraph
from sdyscope.lint.placed import Placed, axes_of
from sdyscope.lint.rule import NotApplicable, Sighting, rule, severity_of
from sdyscope.lint.subject import Subject
from sdyscope.values.mesh import AxisRef
from sdyscope.values.passing import FORMS
from sdyscope.values.source import SourceLocation

#: Ops that do more work on each device where their operands are whole.
_PRODUCTS = frozenset({"conv_general_dilated", "dot_general"})


def _batch_axes(subject: Subject, *, leading: bool = False) -> frozenset[str]:
    """The axes that the batch is on.

    Args:
        subject: the program.
        leading: whether only its first dimension counts, along which examples stand.

    Raises:
        NotApplicable: there is no batch, or it is not sharded.
    """
    axes: set[str] = set()
    for batch in subject.batches:
        if batch.placement is None:
            continue
        try:
            by_dim = axes_of(batch.placement, subject.mesh)
        except ConversionError:
            continue
        axes.update(axis for dim in (by_dim[:1] if leading else by_dim) for axis in dim)
    if not axes:
        raise NotApplicable("No argument of the program is recognizably a sharded batch.")
    return frozenset(axes)


def _axes(collective: Collective) -> frozenset[str]:
    return frozenset(axis.name for axis in collective.axes or ())


def _explained(
    subject: Subject, is_candidate: Callable[[Collective], bool]
) -> Iterator[Collective]:
    """Some collectives with their origins, which are only looked for where there are such.

    Raises:
        Unavailable: there are such, and no origins are known.
    """
    if any(map(is_candidate, subject.collectives.collectives)):
        yield from filter(is_candidate, subject.caused_collectives.collectives)


# --- Parameters that are gathered -----------------------------------------------------------------


@rule("parameter-gathered", "warning", needs="compiled")
def parameter_gathered(subject: Subject) -> Iterator[Sighting]:
    """A parameter is gathered over an axis the batch is not sharded over.

    In tensor parallelism a weight is sharded so that each device computes with its own shard. Where
    the result is not sharded over the same axis, or another operand is sharded on another
    dimension, the partitioner gathers the weight, most often in the backward pass, and all devices
    along the axis do the same work.

    Arguments of two or more dimensions other than the batch are checked, and layers of a stack that
    a loop takes one by one. They are followed through casts and transpositions, and the result of
    the gather must be the argument, unsharded over the gathered axes.

    FSDP is not reported: there the batch is sharded over the axis, and gathering late is what saves
    the memory. Nor are gathered activations, nor lookup tables, for which a sharded lookup may cost
    more. A note where it is less than 64 KiB per step.
    """
    batch_axes = _batch_axes(subject)
    told_batches = {batch.name for batch in subject.batches}
    arguments = {
        argument.row.lowered[subject.under].index: argument
        for argument in subject.arguments
        if argument.name not in told_batches and len(argument.shape) > 1
    }
    gathered: dict[tuple[str, tuple[str, ...]], list[tuple[Collective, Part]]] = {}
    by_name: dict[str, Placed] = {}

    def is_candidate(collective: Collective) -> bool:
        return (
            collective.kind == "all-gather"
            and bool(collective.axes)
            and not _axes(collective) & batch_axes
        )

    for collective in _explained(subject, is_candidate):
        for part in collective.parts:
            argument = _moved(subject, part, arguments)
            if argument is not None and _is_whole(argument, collective, part, subject):
                by_name[argument.name] = argument
                key = (argument.name, tuple(axis.name for axis in collective.axes or ()))
                gathered.setdefault(key, []).append((collective, part))
    for (name, axes), gathers in gathered.items():
        yield _gathered(subject, by_name[name], axes, gathers)


def _moved(subject: Subject, part: Part, arguments: Mapping[int | None, Placed]) -> Placed | None:
    """The argument that a collective moves; None where it moves something else, or may."""
    origin = part.origin
    if origin is None or origin.uncertain or origin.kind != "resharding":
        return None
    if origin.op not in _PRODUCTS or origin.carried:
        return None  # What a loop carries has the name of what it begins with.
    named = next(
        (argument for argument in arguments.values() if argument.name == origin.value), None
    )
    if named is not None:
        return named
    # A function that several calls give an argument each: theirs is known by the call.
    causes = {annotation.name for annotation in origin.annotations if annotation.role == "has"}
    names = ValueNames(subject.graph)
    for tag in part.tags:
        for number in range(len(subject.graph.operands(tag[-1])) if tag else 0):
            value = subject.graph.operand(tag[-1], number)
            if value is None or names.name(value) != origin.value:
                continue
            index = _argument(subject.graph, tag, number)
            argument = arguments.get(index) if index is not None else None
            if argument is not None and argument.name in causes:
                return argument
    return None


def _argument(graph: OpGraph, path: Sequence[int], number: int) -> int | None:
    """Which argument of main an operand is, or is a part of.

    Args:
        graph: op graph of the lowered module.
        path: the calls that lead to an op, and the op.
        number: which of its operands.
    """
    *calls, op = (graph.ops[node] for node in path)
    seen: set[tuple[int, int]] = set()
    while (op.id, number) not in seen:
        seen.add((op.id, number))
        operands = graph.operands(op)
        if number >= len(operands):
            return None
        producer, edge = operands[number]
        if producer.is_argument and producer.parent is not None:
            around, number = graph.ops[producer.parent], producer.argument
            if graph.main is not None and around.id == graph.main.op:
                return number
            if around.kind.endswith(".while"):
                op = around
            elif around.kind == "func.func":
                above = [calls.pop()] if calls else graph.callers(around.function)
                if not above:
                    return None
                op = above[0]
            else:
                return None
        elif producer.mnemonic == "call" and (callee := graph.callee(producer)) is not None:
            # What a function returns: its last op hands it on.
            calls.append(producer)
            op, number = graph.children(callee.op)[-1], edge.result
        elif producer.passing in (*FORMS, "part"):
            op, number = producer, edge.result
        else:
            return None
    return None


def _is_whole(argument: Placed, collective: Collective, part: Part, subject: Subject) -> bool:
    """Whether what a device has after a gather is the argument, whole on the gathered axes.

    Of a stack of layers it is one layer; the order of the dimensions is the compiler's.
    """
    if argument.placement is None or len(part.shape.leaves) != 1:
        return False
    gathered = _axes(collective)
    sizes = subject.mesh.shape
    try:
        by_dim = axes_of(argument.placement, subject.mesh)
    except ConversionError:
        return False
    if not gathered <= {axis for dim in by_dim for axis in dim}:
        return False
    # Axes of the batch may be gathered by another collective, before this one or after it.
    kept = [[axis for axis in dim if axis not in gathered] for dim in by_dim]
    least = [
        -(-size // math.prod(sizes[axis] for axis in dim))
        for size, dim in zip(argument.shape, kept, strict=True)
    ]
    shape = sorted(part.shape.leaves[0].dimensions)
    for dims in (least, list(argument.shape)):
        layers = [sorted(dims[:k] + dims[k + 1 :]) for k in range(len(dims))]
        without_ones = [size for size in shape if size != 1]
        if shape == sorted(dims) or shape in layers or without_ones in layers:
            return True
    return False


def _gathered(
    subject: Subject,
    argument: Placed,
    axes: Sequence[str],
    gathers: Sequence[tuple[Collective, Part]],
) -> Sighting:
    sent = sum(collective.count * part.sent for collective, part in gathers)
    passes: tuple[Phase, ...] = ()
    if subject.collectives.differentiated:
        passes = tuple(sorted({part.phase for _, part in gathers} - {"other"}, reverse=True))
    sending = replace(
        subject.sending([collective for collective, _ in gathers], sent),
        axes=tuple(map(AxisRef, axes)),
    )
    fact = ParameterGathered(sending, passes, argument.sharded)
    seen = subject.at_argument(argument, fact, severity_of(sent), of_all=False)
    return replace(seen, kind="argument", source=_source(gathers))


def _source(parts: Sequence[tuple[Collective, Part]]) -> SourceLocation | None:
    """The line of what sends most, or of the next that has one."""
    ordered = sorted(parts, key=lambda pair: -pair[0].count * pair[1].sent)
    for _, part in ordered:
        source = part.source or (part.origin.source if part.origin is not None else None)
        if source is not None:
            return source
    return None


# --- Sums over the axes of the batch --------------------------------------------------------------


@rule("batch-sharding-lost", "warning", needs="compiled")
def batch_sharding_lost(subject: Subject) -> Iterator[Sighting]:
    """In the forward pass a product is summed over an axis the batch is sharded over.

    Under FSDP a weight and the batch are sharded over the same axis. If the activations keep their
    batch sharded there, the weight is gathered. If they lose it (after an embedding that is sharded
    by feature, say), they are sharded by feature instead: every device has all examples, and each
    product is summed over the devices. This is the most frequent difference between Shardy and
    GSPMD in programs without constraints.

    It is reported where a product in the forward pass is reduced over an axis of the first
    dimension of the batch, and the summed dimension has that axis because of a parameter, by the
    annotations that the partitioner recorded or that were followed. Gradients are sums over the
    batch and not reported, nor are losses, nor products that sum over the batch itself, nor what
    the optimizer does with gradients, which have no examples. A note where it is less than 64 KiB
    per step.
    """
    batch_axes = _batch_axes(subject, leading=True)
    is_batch = {batch.name for batch in subject.batches}
    groups: dict[object, list[tuple[Collective, Part]]] = {}

    def is_candidate(collective: Collective) -> bool:
        if (
            collective.kind not in ("all-reduce", "reduce-scatter")
            or not _axes(collective) & batch_axes
        ):
            return False
        # A loss is a scalar, and summed in every train step.
        return any(
            part.phase == "forward" and any(leaf.dimensions for leaf in part.shape.leaves)
            for part in collective.parts
        )

    for collective in _explained(subject, is_candidate):
        for part in collective.parts:
            if part.phase == "forward" and _is_lost(part, batch_axes, is_batch):
                key = part.source or (part.scope, part.primitive)
                groups.setdefault((key, _axes(collective) & batch_axes), []).append(
                    (collective, part)
                )
    for members in groups.values():
        yield _lost(subject, batch_axes, members)


def _is_lost(part: Part, batch_axes: frozenset[str], is_batch: set[str]) -> bool:
    """Whether a product is summed over an axis of the batch that a parameter has it from."""
    origin = part.origin
    if origin is None or origin.uncertain or origin.kind != "reduction":
        return False
    if origin.op not in _PRODUCTS or origin.is_over_chosen_axes:
        return False
    causes = [
        annotation
        for annotation in origin.annotations
        if annotation.role == "has" and any(axis.name in batch_axes for axis in annotation.axes)
    ]
    return bool(causes) and all(
        cause.kind == "argument" and cause.name not in is_batch for cause in causes
    )


def _lost(
    subject: Subject, batch_axes: frozenset[str], members: Sequence[tuple[Collective, Part]]
) -> Sighting:
    collective, part = max(members, key=lambda pair: pair[0].count * pair[1].sent)
    sent = sum(each.count * of.sent for each, of in members)
    origin = part.origin
    assert origin is not None
    fact = BatchLost(
        subject.sending([collective], sent),
        tuple(axis.name for axis in collective.axes or () if axis.name in batch_axes),
        part.shape.leaves[0],
        tuple(annotation for annotation in origin.annotations if annotation.role == "has"),
    )
    seen = subject.at_part(part, collective.name, fact, severity_of(sent))
    return replace(seen, kind="op", source=part.source or origin.source)
