"""Edits of how values are sharded on Explicit axes, where the source says that.

There the sharding is part of a value's type, and that of one value decides those of others: only
tracing the edited source tells what is sent then, and whether JAX takes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import zip_longest

import libcst as cst

from sdyscope.analysis.fix.evidence import Evidence, Weight
from sdyscope.analysis.fix.proposals import Proposal, Splices, dims_of, spec_of, specs_near
from sdyscope.analysis.fix.workshop import Workshop
from sdyscope.annotations import Annotation
from sdyscope.facts.edits import EditKind, SourceEdit
from sdyscope.graph import OpGraph
from sdyscope.patches.out_shardings import (
    RESHARD,
    OutSharding,
    out_shardings,
    sharding_argument,
)
from sdyscope.patches.rewrites import without_call
from sdyscope.patches.source import Source, Splice, last_name, one_line
from sdyscope.patches.specs import padded
from sdyscope.values.mesh import Mesh
from sdyscope.values.sharding import PartitionSpec


def is_type(annotation: Annotation) -> bool:
    """Whether it is of a value on Explicit axes: of its type, or what it is resharded to."""
    return annotation.named_kind == "type" or annotation.primitive == "reshard"


def edited_types(
    workshop: Workshop,
    graph: OpGraph,
    annotations: Iterable[Annotation],
    mesh: Mesh,
    about: Evidence,
) -> Iterator[Proposal]:
    """The edits after which the source says another sharding of values that much is sent for.

    One of each place comes first, those that most is sent for, then the next of each.

    Args:
        workshop: the program.
        graph: op graph of its module under Shardy.
        annotations: those of the module.
        mesh: its mesh.
        about: what is sent for what.
    """
    said = {file: list(out_shardings(workshop.source(file), mesh.shape)) for file in workshop.files}
    calls = {call for sites in said.values() for site in sites for call in site.calls}
    by_call: dict[cst.BaseExpression, list[Annotation]] = {}
    for annotation in filter(is_type, annotations):
        for frame in workshop.spans.get(annotation.op, ()):
            if not workshop.editable(frame.file):
                continue
            node = workshop.source(frame.file).expression(frame)
            if node in calls:
                by_call.setdefault(node, []).append(annotation)
                break
    of_sites = [
        list(_of_site(site, own, graph, mesh, about))
        for sites in said.values()
        for site in sites
        if (own := [annotation for call in site.calls for annotation in by_call.get(call, ())])
    ]
    of_sites.sort(key=lambda edits: -edits[0].weight if edits else 0.0)
    for each in zip_longest(*of_sites):
        yield from (proposal for proposal in each if proposal is not None)


def _of_site(
    site: OutSharding,
    annotations: Sequence[Annotation],
    graph: OpGraph,
    mesh: Mesh,
    about: Evidence,
) -> Iterator[Proposal]:
    """The edits of one place, if it says the same of all that is made with it."""
    literal = site.literal
    source = literal.source
    own = [
        (annotation, spec)
        for annotation in annotations
        if annotation.shape
        and (spec := spec_of(annotation, graph, mesh)) is not None
        and literal.says(spec, len(annotation.shape)) is not None
    ]
    specs = {padded(spec, len(annotation.shape or ())) for annotation, spec in own}
    if len(specs) != 1:
        return
    first, spec = own[0]
    shape = first.shape or ()
    weights = list(_weights([annotation for annotation, _ in own], about))
    sent = sum(weight.sent for weight in weights)
    if not sent:
        return
    name, line = _result_of(source, site.calls[0]), source.location(literal.node)
    axes = [axis for weight in weights for axis in weight.names]
    near = specs_near(spec, shape, mesh, axes)
    options: list[tuple[PartitionSpec | None, Sequence[Splice] | None]] = [
        (after, literal.with_spec(spec, after, len(shape)))
        for after in sorted(near, key=lambda after: _unlikeliness(spec, after, len(shape)))
    ]
    call = site.calls[0]
    is_first = call.args[0] is sharding_argument(call)
    if len(site.calls) == 1 and last_name(call.func) == RESHARD and not is_first:
        options.insert(1, (None, without_call(source, call)))
    for option, splices in options:
        if splices:
            kind: EditKind = "reshard" if option is None else "type"
            edit = SourceEdit(kind, name, spec, option, line, len(own))
            written: Splices = {source.file: splices}
            yield Proposal(edit, None, partial(dict, written), sent)


def _unlikeliness(before: PartitionSpec, after: PartitionSpec, rank: int) -> tuple[int, int]:
    """How soon an edit is traced: what shards one dimension more comes first, the last of these."""
    was, now = dims_of(before, rank), dims_of(after, rank)
    more = sum(map(len, now)) - sum(map(len, was))
    if more > 0:
        at = next(number for number, dim in enumerate(now) if dim != was[number])
        return (2 if was[at] else 0), -at
    is_exchange = sorted(was) == sorted(now)
    return (1 if more < 0 or is_exchange else 3), 0


def _weights(annotations: Iterable[Annotation], about: Evidence) -> Iterator[Weight]:
    """What is sent for annotations, each place once, and for their values."""
    written = tuple(annotations)
    known = {id(weight): weight for each in written if (weight := about.of(each))}
    yield from known.values()
    if (weight := about.of_values([(each.op, 0) for each in written])).sent:
        yield weight


def _result_of(source: Source, call: cst.Call) -> str:
    """What is made by a call: the name that it is given, else the call without its sharding."""
    around = source.parent(call)
    if isinstance(around, cst.Assign) and len(around.targets) == 1:
        return source.written(around.targets[0].target)
    given = sharding_argument(call)
    texts = [
        (f"{each.keyword.value}=" if each.keyword else each.star) + source.written(each.value)
        for each in call.args
        if each is not given
    ]
    if last_name(call.func) == RESHARD:
        return one_line(texts[0])
    return one_line(f"{source.written(call.func)}({', '.join(texts)})")
