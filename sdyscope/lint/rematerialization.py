"""A rule about reshardings that XLA can only do by making a whole tensor on every device."""

from __future__ import annotations

from collections.abc import Iterator

from sdyscope.analysis.collectives.rematerializations import rematerializations
from sdyscope.analysis.naming.resolve import plain_scope
from sdyscope.annotations import Annotation
from sdyscope.errors import CompilerError
from sdyscope.facts.lint import Replicating
from sdyscope.facts.rematerializations import Rematerialization
from sdyscope.graph.op_kinds import is_elementwise
from sdyscope.hlo import read_hlo
from sdyscope.lint.rule import Sighting, Unavailable, rule
from sdyscope.lint.subject import Subject
from sdyscope.values.placement import Placement


@rule("full-rematerialization", "warning", needs="propagated")
def full_rematerialization(subject: Subject) -> Iterator[Sighting]:
    """XLA replicates a tensor on every device to reshard it.

    XLA's partitioner goes from one sharding to another by slices, all-to-alls, permutes and
    all-gathers over some of the axes. Where it knows no such way, it gathers all of the tensor on
    every device and cuts it anew, and logs "Involuntary full rematerialization" without a word on
    where (jax-ml/jax#18591, openxla/xla#7148, openxla/xla#15402, jax-ml/jax#21562). Here it is
    traced to the op and its line.

    For a compiled program these are XLA's own messages: confirmed. Without compiling it is
    predicted, for the program's constraints: the reshardings into a constraint, or from one into an
    elementwise op with another sharding, as Shardy propagates them, are put into a module of their
    own, and XLA compiles that. Reshardings that no constraint asks for, and those of GSPMD, are
    only known for a compiled program.

    Resharding to or from a replicated tensor is not a rematerialization, and not reported.
    """
    if subject.compiles:
        try:
            yield from _confirmed(subject)
            return
        except CompilerError as error:
            yield from _predicted(subject)
            raise Unavailable(f"Only predicted, for constraints: {error.message}") from error
    yield from _predicted(subject)


def _confirmed(subject: Subject) -> Iterator[Sighting]:
    """What XLA itself logs, each line of the program once."""
    groups: dict[object, list[Rematerialization]] = {}
    logged = subject.collectives.rematerializations
    located = {(move.before, move.after) for move in logged if move.source is not None}
    for move in logged:
        if move.after.startswith("{maximal"):
            continue  # all of it on one device, for a callback: host-callback-gathers says so
        if move.source is None and (move.before, move.after) in located:
            continue  # the same once more, about an op that XLA put in between
        key = move.source or (plain_scope(move.scope), move.primitive)
        groups.setdefault((key, move.before, move.after), []).append(move)
    for alike in groups.values():
        first = alike[0]
        wanted, sharded = first.moved_to or first.after, first.moved_from or first.before
        name = f"{first.scope}/{first.primitive}".strip("/") or first.operation
        fact = Replicating(wanted, sharded, len(alike))
        yield Sighting(fact, name, "op", first.source, subject.partitioner)


def _predicted(subject: Subject) -> Iterator[Sighting]:
    """What XLA logs about the program's constraints alone, where they move a value."""
    from sdyscope.stages.compiled.reshard_probe import Probe, probe

    moves = _moves(subject)
    if not moves:
        return
    probes = [
        Probe(tensor.shape or (), tensor.dtype, before, after) for tensor, before, after in moves
    ]
    probed = probe(list(dict.fromkeys(probes)), subject.mesh)
    rematerialized = rematerializations(probed.rematerializations, read_hlo(probed.hlo))
    wrong = {move.primitive for move in rematerialized}
    names = {asked: name for name, asked in probed.names.items()}
    reported: set[object] = set()
    for (tensor, before, after), asked in zip(moves, probes, strict=True):
        key = (tensor.source or tensor.path, asked)
        if names[asked] not in wrong or key in reported:
            continue
        reported.add(key)
        fact = Replicating(subject.sharded(after), subject.sharded(before), 0)
        yield subject.at_annotation(tensor, fact)


def _moves(subject: Subject) -> list[tuple[Annotation, Placement, Placement]]:
    """The constraints that move a value from one sharding to another, neither of them whole."""
    if subject.partitioner != "shardy":
        raise Unavailable("What GSPMD will move is only known once the program is compiled.")
    moves = []
    for annotation in subject.annotations:
        if annotation.kind != "constraint" or annotation.manual or not annotation.shape:
            continue
        own = subject.placement((annotation.op, 0))
        operands = subject.graph.operands(annotation.op)
        before = subject.placement((operands[0][0].id, operands[0][1].result)) if operands else None
        steps = [(before, own)]
        for user, _ in subject.graph.uses(annotation.op):
            if (
                len(user.types) == 1
                and user.types[0].shape == annotation.shape
                and is_elementwise(user.kind)
            ):
                steps.append((own, subject.placement((user.id, 0))))
        for start, end in dict.fromkeys(steps):
            if start is not None and end is not None and _is_move(start, end):
                moves.append((annotation, start, end))
    return moves


def _is_move(before: Placement, after: Placement) -> bool:
    if before == after or before.is_replicated or after.is_replicated:
        return False
    return not (before.manual or after.manual or before.unreduced or after.unreduced)
