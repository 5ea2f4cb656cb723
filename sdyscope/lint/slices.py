"""A rule about loops that wait for the data centre's network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sdyscope.analysis.collectives.totals import Collective, Part
from sdyscope.analysis.cost.links import dimensions_along
from sdyscope.facts.program import Partitioner
from sdyscope.lint.rule import Message, NotApplicable, Unavailable, rule, severity_of
from sdyscope.lint.subject import NO_HARDWARE, Subject
from sdyscope.words.counts import size, times_text
from sdyscope.words.mesh import listed_axes


@rule("slices-crossed-in-loop", "warning", needs="compiled")
def slices_crossed_in_loop(subject: Subject) -> Iterator[Message]:
    """A collective in a loop crosses slices.

    Slices are connected by the data centre's network (DCN), which is far slower than the links
    within a slice. It suits gradients that are summed once per step. Communication inside a loop
    over layers, such as activations of tensor parallelism or weights of FSDP, waits for it in every
    layer: most often the first mesh axis is not the one for data parallelism.

    Only checked where the program is compiled for several slices, such as `--on
    tpu:v6e:16x16x2slices`, and in loops: unrolled layers are not reported. Nor are sums outside the
    forward pass, each of which may be a layer's gradient. A note where it is less than 64 KiB per
    step.
    """
    if subject.compiled.is_text:
        raise Unavailable(NO_HARDWARE)
    topology = subject.compiled.topology
    if topology is None or topology.size("slice") < 2:
        raise NotApplicable("What the program is compiled for is one slice.")
    collectives = subject.collectives
    mesh = collectives.mesh
    if mesh is None or mesh.size != topology.num_devices:
        raise NotApplicable("The mesh is not that of the devices, so placement is not known.")

    def crosses(collective: Collective) -> bool:
        if not collective.axes or (collective.count < 2 and not collective.unknown_trips):
            return False
        along = dimensions_along(collective.axes, mesh, topology)
        return along is not None and "slice" in along

    crossing = {each.name for each in collectives.collectives if crosses(each)}
    groups: dict[object, list[tuple[Collective, Part]]] = {}
    # With origins: XLA can name a collective after another op than the one that needs it.
    for collective in subject.explained_collectives.collectives if crossing else ():
        if collective.name not in crossing:
            continue
        part = collective.largest
        if collective.kind in ("all-reduce", "reduce-scatter") and part.phase != "forward":
            continue  # A gradient, or it may be one: each is summed once.
        where = part.source or (part.scope, part.primitive)
        groups.setdefault((collective.kind, collective.axes, where), []).append((collective, part))
    for members in groups.values():
        yield _finding(subject.partitioner, members)


def _finding(
    partitioner: Partitioner | None, members: Sequence[tuple[Collective, Part]]
) -> Message:
    collective, part = max(members, key=lambda pair: pair[0].sent)
    sent = sum(each.sent for each, _ in members)
    times = sum(each.count for each, _ in members)
    over = listed_axes(collective.axes or ())
    often = times_text(times, unknown=collective.unknown_trips)
    return Message(
        f"This {collective.kind} over {over} is in a loop, runs {often}, and crosses slices: each "
        f"iteration waits for the data centre's network. A device sends {size(sent)} per step "
        "for it.",
        tensor=f"{part.scope}/{part.primitive}".strip("/") or collective.name,
        kind="collective",
        source=part.source,
        partitioner=partitioner,
        hint="Let only a data-parallel axis cross slices: put it first in the mesh, with as "
        "many devices as there are slices, and keep the others within a slice.",
        severity=severity_of(sent, at_least=collective.unknown_trips),
    )
