"""Rules about custom calls, which the partitioner can't look into."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from sdyscope.errors import SdyscopeError
from sdyscope.facts.lint import CallbackGathers, CallGathers, CallTakesPieces
from sdyscope.graph import Op
from sdyscope.graph.custom_calls import is_for_partitioner
from sdyscope.hlo import Computation, HloModule, Instruction
from sdyscope.lint.rule import Sighting, rule
from sdyscope.lint.subject import Subject
from sdyscope.values.passing import passing

_CALLBACK = re.compile(r"callback|host_compute|xla_python", re.IGNORECASE)

#: HLO ops that hold a value, or put zeros around it.
_AROUND = frozenset({"fusion", "get-tuple-element", "pad", "tuple"})
#: How far back a collective is looked for.
_STEPS = 8


def _calls(subject: Subject) -> Iterator[Op]:
    """The custom calls that are outside of every ``shard_map`` and are not the partitioner's."""
    graph = subject.graph
    for op in graph.operations():
        target = op.call_target
        if target is None or is_for_partitioner(target) or op.id in graph.inside_shard_maps:
            continue
        yield op


@rule("collective-before-custom-call", "warning", needs="propagated")
def collective_before_custom_call(subject: Subject) -> Iterator[Sighting]:
    """A custom call's operand needs a collective.

    The partitioner can't see into a custom call (an FFI kernel, LAPACK) and does not know how to
    split it: each device gets the whole operand and does all of the work
    (marin-community/marin#6470). Call it inside a `shard_map`, where each device calls it for its
    own block, or give it a rule.

    In a compiled program the collective itself is found, whatever the call's rule promised. Without
    compiling, and where the call can't be compiled here, it is predicted for calls that have a
    sharded operand and no sharding rule. Custom calls inside a `shard_map` and the partitioner's
    own are not reported.
    """
    calls = [op for op in _calls(subject) if not _CALLBACK.search(op.call_target or "")]
    if not calls:
        return
    if subject.compiles:
        try:
            module = subject.hlo
        except SdyscopeError:
            # A target that is not registered here can't be compiled here.
            yield from _predicted(subject, calls)
            return
        yield from _confirmed(subject, calls, module)
    else:
        yield from _predicted(subject, calls)


def _confirmed(subject: Subject, calls: list[Op], module: HloModule) -> Iterator[Sighting]:
    collectives = {collective.name: collective for collective in subject.collectives.collectives}
    lines = {(op.call_target, subject.source(op)) for op in calls}
    targets = {op.call_target for op in calls}
    reported: set[object] = set()
    for computation in module.computations.values():
        for instruction in computation.instructions.values():
            target = instruction.call_target
            if instruction.opcode != "custom-call" or target not in targets:
                continue
            stack = module.stack(instruction)
            source = next((line for line in stack if (target, line) in lines), None)
            source = source or next(
                (subject.source(op) for op in calls if op.call_target == target), None
            )
            for name in _behind(computation, instruction):
                collective = collectives.get(name)
                if collective is None or (target, source) in reported:
                    continue
                reported.add((target, source))
                tags = subject.compiled.tags.get(instruction.name, ())
                node = next((path[-1] for path in tags if path), None)
                scope = "" if node is None else subject.scope(subject.graph.ops[node])
                fact = CallGathers(target, subject.sending([collective]), collective.bytes)
                yield Sighting(fact, scope or target, "op", source, subject.partitioner)


def _behind(computation: Computation, instruction: Instruction) -> Iterator[str]:
    """What an instruction's operands are made from, through ops that change their form only."""
    level, seen = list(instruction.operands), set(instruction.operands)
    for _ in range(_STEPS):
        further: list[str] = []
        for name in level:
            yield name
            operand = computation.instructions.get(name)
            if operand is not None and (
                operand.opcode in _AROUND
                or operand.opcode.endswith("-done")
                or passing(operand.opcode) not in (None, "repeated")
            ):
                further += [behind for behind in operand.operands if behind not in seen]
                seen.update(operand.operands)
        level = further


def _predicted(subject: Subject, calls: list[Op]) -> Iterator[Sighting]:
    """Calls without a sharding rule of which an operand is in pieces."""
    for op in calls:
        if op.sharding_rule is not None:
            continue
        for producer, edge in subject.graph.operands(op):
            place = subject.placement((producer.id, edge.result))
            if place is None or not any(shards > 1 for shards in place.shards):
                continue
            operand = subject.named((producer.id, edge.result))
            fact = CallTakesPieces(op.call_target or "", operand, subject.sharded(place))
            yield subject.at_op(op, fact)
            break


@rule("host-callback-gathers", "warning", needs="propagated")
def host_callback_gathers(subject: Subject) -> Iterator[Sighting]:
    """A host callback gathers its operands.

    `jax.debug.callback`, `jax.debug.print`, `io_callback` and `pure_callback` outside of a
    `shard_map` run once, with whole arrays. Sharded operands are gathered for them, and a result
    goes back to every device. A print left in a train step costs a gather of what it prints, each
    step.

    Callbacks that take scalars or replicated values are not reported.
    """
    reported: set[object] = set()
    for op in _calls(subject):
        if not _CALLBACK.search(op.call_target or ""):
            continue
        sent, first = 0, None
        for producer, edge in subject.graph.operands(op):
            place = subject.placement((producer.id, edge.result))
            if place is None or math.prod(place.shards) == 1:
                continue
            sizes = [size or 0 for size in edge.type.shape or ()]
            sent += place.bytes_per_device(sizes, edge.type.dtype) * math.prod(place.shards)
            first = first or subject.named((producer.id, edge.result))
        source = subject.source(op)
        if first is None or not sent or (source, first) in reported:
            continue
        reported.add((source, first))
        yield subject.at_op(op, CallbackGathers(first, sent))
