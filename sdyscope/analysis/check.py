"""check: what was requested against what is in each module, and the modules against each other.

Everything is compared by placement, so two spellings of one sharding agree. What placement does
not cover is compared beside it: which dimensions are open, which axes a ``shard_map`` is manual on,
and what Shardy alone can say (axes pinned as replicated, priorities).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sdyscope.annotations import Annotation
from sdyscope.errors import CompilerError
from sdyscope.facts.findings import (
    ArgumentDropped,
    DroppedAxes,
    Fact,
    MixedAttributes,
    NoPlacement,
    NotAligned,
    NotDivisible,
    NothingLowered,
    NotRequested,
    Observation,
    OtherManualAxes,
    OtherOpenDims,
    OtherPartitioner,
    OtherPlacement,
    OtherPriorities,
    OtherType,
    PinnedAxes,
    RequestNote,
    Severity,
    ShardingDropped,
    SilentFallback,
    UnreadAttribute,
)
from sdyscope.facts.program import Partitioner, RequestedTensor
from sdyscope.facts.sharded import (
    Sharded,
    requested_open_dims,
    requested_sharding,
    returned_sharding,
)
from sdyscope.facts.tensors import Tensor, TensorTable
from sdyscope.graph import OpGraph
from sdyscope.values.mesh import AxisRef, Mesh
from sdyscope.values.placement import axes_digits
from sdyscope.values.sharding import NamedSharding, TensorSharding
from sdyscope.values.tiling import HloSharding


@dataclass(frozen=True)
class CheckResult:
    """What a comparison of every row of the table came to.

    Attributes:
        observations: by tensor, in the order of the table.
        tensors: how many tensors were looked at.
        compared: how many comparisons of a requested sharding with a module's were made.
        agreed: how many of those agree.
    """

    observations: tuple[Observation, ...]
    tensors: int
    compared: int
    agreed: int


def check(table: TensorTable, of_modules: Sequence[Observation] = ()) -> CheckResult:
    """Compares every row of the table.

    Args:
        table: the rows.
        of_modules: what is already known about whole modules, listed first.
    """
    observations = list(of_modules)
    for partitioner, asked in table.unaligned:
        observations.append(
            Observation(
                "not-aligned",
                "error",
                NotAligned(asked),
                asked.path,
                asked.kind,
                asked.source,
                partitioner,
            )
        )
    compared = agreed = 0
    for tensor in table.tensors:
        of_tensor: list[Observation] = []
        for partitioner, annotation in tensor.lowered.items():
            comparison = list(_compare(tensor, partitioner, annotation))
            of_tensor += comparison
            if tensor.requested is not None:
                compared += 1
                agreed += not any(observation.severity == "error" for observation in comparison)
        if not any(observation.severity == "error" for observation in of_tensor):
            of_tensor += _between_partitioners(tensor)
        of_tensor += _about_tensor(tensor)
        observations += of_tensor
    # What a body is manual on is read off its boundary, so a wrong boundary would be blamed twice.
    errors = [observation for observation in observations if observation.severity == "error"]
    wrong = {error.partitioner for error in errors if "shard_map" in error.kind}
    observations += [
        observation
        for tensor in table.tensors
        if tensor.requested is None
        for partitioner, there in tensor.lowered.items()
        if partitioner not in wrong
        for observation in _compare_unrequested(tensor, partitioner, there)
    ]
    return CheckResult(tuple(observations), len(table.tensors), compared, agreed)


def agrees(tensor: Tensor, partitioner: Partitioner) -> bool:
    """Whether a module says of a tensor what was requested of it, placement and open dimensions.

    Args:
        tensor: a row of the table that was requested.
        partitioner: one that it has a cell for.
    """
    return not any(
        observation.severity == "error"
        for observation in _compare(tensor, partitioner, tensor.lowered[partitioner])
    )


def _observed(
    tensor: Tensor,
    rule: str,
    fact: Fact,
    partitioner: Partitioner | None = None,
    severity: Severity = "error",
) -> Observation:
    return Observation(rule, severity, fact, tensor.name, tensor.kind, tensor.source, partitioner)


def _compare(tensor: Tensor, partitioner: Partitioner, there: Annotation) -> Iterator[Observation]:
    asked = tensor.requested
    if there.problem:
        fact = NoPlacement(there.sharding, there.problem)
        yield _observed(tensor, "no-placement", fact, partitioner)
        return
    if asked is None:
        return
    named = asked.sharding or asked.returned
    lowered = there.sharded({}, None if named is None else named.mesh)
    if tensor.shape != there.shape or tensor.dtype != there.dtype:
        given = Sharded(asked.sharding, tensor.shape, tensor.dtype)
        yield _observed(tensor, "type-differs", OtherType(given, lowered), partitioner)
        return
    requested = requested_sharding(asked)
    if asked.sharding is None or requested is None:
        # JAX writes that every scalar is replicated (`jax/_src/interpreters/pxla.py`): it can't be
        # anything else. One PRNG key is a scalar to it, whose words are dimensions in the module.
        is_scalar = len(asked.shape) <= asked.key_dims
        is_array = tensor.kind in ("argument", "result") and not is_scalar
        by_maker = returned_sharding(asked)
        if by_maker is not None and lowered.placement == by_maker.placement:
            return
        if there.sharding is not None and is_array:
            yield _observed(tensor, "not-requested", NotRequested(lowered), partitioner, "note")
        return
    if requested.placement is None:
        yield _observed(tensor, "no-placement", NoPlacement(asked.sharding, requested.problem))
        return
    yield from _compare_sharding(
        tensor, asked, asked.sharding, requested, partitioner, there, lowered
    )


def _compare_sharding(
    tensor: Tensor,
    asked: RequestedTensor,
    sharding: NamedSharding,
    requested: Sharded,
    partitioner: Partitioner,
    there: Annotation,
    lowered: Sharded,
) -> Iterator[Observation]:
    assert requested.placement is not None
    if there.placement is None:
        if not asked.shape and requested.placement.is_replicated:
            return  # A scalar can live nowhere else, and JAX before 0.9 writes nothing on it.
        yield _observed(tensor, "sharding-dropped", ShardingDropped(requested), partitioner)
        return
    if there.placement.without_manual != requested.placement:
        fact = OtherPlacement(requested, lowered)
        yield _observed(tensor, "lowered-differs", fact, partitioner)
        return
    yield from _compare_open(tensor, asked, sharding, partitioner, lowered)
    yield from _compare_manual(tensor, asked, sharding.mesh, partitioner, there)
    yield from _dropped_axes(tensor, sharding, partitioner, lowered)
    if isinstance(there.sharding, TensorSharding):
        pinned = there.sharding.replicated_axes
        if pinned:
            forbidden = PinnedAxes(tuple(pinned), requested, lowered)
            yield _observed(tensor, "lowered-differs", forbidden, partitioner)
        written = [dim.priority or 0 for dim in there.sharding.dim_shardings]
        wanted = [priority or 0 for priority in asked.priorities] or [0] * len(written)
        if written != wanted:
            other = OtherPriorities(tuple(wanted), requested, lowered)
            yield _observed(tensor, "lowered-differs", other, partitioner)


def _dropped_axes(
    tensor: Tensor, sharding: NamedSharding, partitioner: Partitioner, lowered: Sharded
) -> Iterator[Observation]:
    """Axes that were asked for and that the module's sharding, placed alike, does not name."""
    if not isinstance(lowered.sharding, TensorSharding):
        return  # The classic HLO form names no axes at all.
    asked = dict.fromkeys((*sharding.spec.axis_names(), *sorted(sharding.spec.unreduced)))
    named = {axis.name for axis in lowered.sharding.axes()}
    dropped = tuple((name, sharding.mesh.shape[name]) for name in asked if name not in named)
    if dropped:
        fact = DroppedAxes(dropped, sharding, lowered)
        yield _observed(tensor, "axes-dropped", fact, partitioner, "note")


def _compare_open(
    tensor: Tensor,
    asked: RequestedTensor,
    sharding: NamedSharding,
    partitioner: Partitioner,
    lowered: Sharded,
) -> Iterator[Observation]:
    expected = requested_open_dims(asked)
    if asked.is_partly_manual:
        # The other axes stay the compiler's, so JAX leaves every dimension open to them.
        expected = tuple(range(len(asked.shape)))
    if lowered.open_dims != expected:
        fact = OtherOpenDims(sharding, expected, lowered)
        yield _observed(tensor, "open-dims-differ", fact, partitioner)


def _compare_manual(
    tensor: Tensor,
    asked: RequestedTensor,
    mesh: Mesh,
    partitioner: Partitioner,
    there: Annotation,
) -> Iterator[Observation]:
    expected = axes_digits(mesh, map(AxisRef, asked.manual_axes))
    is_boundary = asked.kind.startswith("shard_map")
    if is_boundary:
        manual = there.manual
    else:
        # Inside a shard_map GSPMD says the manual axes on every sharding, Shardy on none.
        if isinstance(there.sharding, TensorSharding):
            expected = ()
        manual = there.placement.manual if there.placement is not None else ()
    if manual != expected:
        fact = OtherManualAxes(is_boundary, expected, manual, mesh.size, mesh)
        yield _observed(tensor, "manual-axes-differ", fact, partitioner)


def _compare_unrequested(
    tensor: Tensor, partitioner: Partitioner, there: Annotation
) -> Iterator[Observation]:
    """A constraint of JAX's own inside a ``shard_map``: GSPMD must say the manual axes on it."""
    if isinstance(there.sharding, HloSharding) and there.placement is not None:
        manual, expected = there.placement.manual, there.manual
        if tensor.kind == "constraint" and manual != expected:
            fact = OtherManualAxes(False, expected, manual, there.placement.num_devices, None)
            yield _observed(tensor, "manual-axes-differ", fact, partitioner)


def _between_partitioners(tensor: Tensor) -> Iterator[Observation]:
    if len(tensor.lowered) < 2 or any(there.problem for there in tensor.lowered.values()):
        return
    mesh = None if tensor.asked is None else tensor.asked.mesh
    (first, of_first), (second, of_second) = list(tensor.lowered.items())[:2]
    if (of_first.placement is None) != (of_second.placement is None):
        same = False
    elif of_first.placement is None or of_second.placement is None:
        same = True
    else:
        same = of_first.placement.without_manual == of_second.placement.without_manual
        same = same and of_first.open_dims == of_second.open_dims
    if not same:
        fact = OtherPartitioner(
            first, of_first.sharded({}, mesh), second, of_second.sharded({}, mesh)
        )
        yield _observed(tensor, "partitioners-differ", fact)


def _about_tensor(tensor: Tensor) -> Iterator[Observation]:
    asked = tensor.requested
    if asked is None:
        return
    if asked.dropped:
        yield _observed(tensor, "argument-dropped", ArgumentDropped(), severity="note")
    for note in asked.notes:
        yield _observed(tensor, "request-note", RequestNote(note), severity="note")
    requested = requested_sharding(asked)
    if requested is None or requested.placement is None or asked.dropped:
        return
    place = requested.placement
    for dim, padding in enumerate(place.padding(asked.shape)):
        if padding:
            fact = NotDivisible(dim, asked.shape[dim], place.shards[dim], padding, requested)
            yield _observed(tensor, "not-divisible", fact, severity="warning")


# --- whole modules --------------------------------------------------------------------------------


def not_lowerable(
    failures: Mapping[Partitioner, CompilerError], *, alone: bool
) -> Iterator[Observation]:
    """Why there is no module under a partitioner.

    Args:
        failures: what JAX said.
        alone: there is no module under any other one either.
    """
    for partitioner, error in failures.items():
        yield Observation(
            "not-lowerable",
            "error" if alone else "note",
            NothingLowered(partitioner, error.message, error.hint or ""),
            partitioner=partitioner,
        )


def fallback(partitioner: Partitioner, carried: str) -> Iterator[Observation]:
    """Annotations that are not, or not only, the partitioner's.

    Args:
        partitioner: whose were asked for.
        carried: whose there are: a partitioner's, ``both`` or ``none``.
    """
    if carried == "both":
        yield Observation("mixed-attributes", "error", MixedAttributes(), partitioner=partitioner)
    elif carried not in ("none", partitioner):
        fact = SilentFallback(partitioner, carried)
        yield Observation("silent-fallback", "error", fact, partitioner=partitioner)


def not_understood(
    partitioner: Partitioner, graph: OpGraph, annotations: Iterable[Annotation]
) -> Iterator[Observation]:
    """What could not be read in a module, but for shardings, each of which has a finding."""
    shardings = {annotation.text for annotation in annotations if annotation.is_unreadable}
    for item in graph.not_understood:
        if item.text in shardings:
            continue
        yield Observation(
            "not-understood",
            "warning",
            UnreadAttribute(item.attribute, item.text, item.error),
            kind="op",
            source=None if item.op is None else graph.ops[item.op].source,
            partitioner=partitioner,
        )
