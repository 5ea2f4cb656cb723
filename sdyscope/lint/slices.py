"""A rule about loops that wait for the data centre's network."""

from __future__ import annotations

from collections.abc import Iterator

from sdyscope.analysis.collectives.totals import Collective, Part
from sdyscope.analysis.cost.links import dimensions_along
from sdyscope.facts.lint import SlicesCrossed
from sdyscope.lint.rule import NotApplicable, Sighting, Unavailable, rule, severity_of
from sdyscope.lint.subject import Subject
from sdyscope.words.lint import NO_HARDWARE


@rule("slices-crossed-in-loop", "warning", needs="compiled")
def slices_crossed_in_loop(subject: Subject) -> Iterator[Sighting]:
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
        members.sort(key=lambda pair: -pair[0].sent)
        collective, part = members[0]
        sending = subject.sending([each for each, _ in members])
        severity = severity_of(sending.sent, at_least=sending.is_unknown)
        yield subject.at_part(part, collective.name, SlicesCrossed(sending), severity)
