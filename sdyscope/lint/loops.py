"""Rules about loops: what is sent in every iteration although once, or nothing, would do."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from sdyscope.analysis.collectives.totals import Collective
from sdyscope.facts.lint import BatchInStep, GatheredInLoop, ScannedSharded
from sdyscope.graph import Op, OpGraph
from sdyscope.hlo import Computation, Instruction
from sdyscope.hlo.executions import caller_of
from sdyscope.hlo.loops import given_element
from sdyscope.lint.rule import NotApplicable, Sighting, rule, severity_of
from sdyscope.lint.subject import Subject
from sdyscope.values.passing import opcodes
from sdyscope.values.placement import Placement

_PASSING = opcodes("unchanged", "shape")

#: Ops that are not the same each time although their operands are.
_VARYING = frozenset(
    {
        "custom-call",
        "infeed",
        "outfeed",
        "recv",
        "rng",
        "rng-bit-generator",
        "rng-get-and-update-state",
        "send",
        "while",
    }
)


@rule("gathered-in-loop", "warning", needs="compiled")
def gatheredin_loop(subject: Subject) -> Iterator[Sighting]:
    """The same value is gathered in every iteration of a loop.

    An all-gather inside a loop whose operand is the same each time: a weight that a scan over
    microbatches or decoding steps uses, gathered again in each of them. It was followed in the
    compiled loop: nothing it is computed from changes between iterations. Gathered once before the
    loop it is sent once, and held for the whole loop.

    FSDP is not reported. A scan over a stack of layers gathers a different layer in each iteration,
    and gathering it late is what saves the memory. Nor is a gather that runs once, or a layer that
    is gathered in the forward and again in the backward pass.

    Some compilers move such a gather out of the loop themselves: XLA's for CPUs does, the one for
    TPUs does not. So name the target hardware with `--on`.

    Where memory is short, gathering again is right: ignore the rule, with that as the reason. A
    note where it is less than 64 KiB per step.
    """
    module = subject.hlo
    callers = caller_of(module)
    homes = {
        name: computation
        for computation in module.computations.values()
        for name in computation.instructions
    }
    for collective in subject.collectives.collectives:
        if collective.kind != "all-gather" or collective.name not in homes:
            continue
        body, inside = homes[collective.name], list[tuple[Computation, Instruction]]()
        while body.name in callers and callers[body.name][1].opcode != "while":
            caller, site = callers[body.name]
            inside.append((body, site))
            body = caller
        if body.name not in callers or body.name not in callers[body.name][1].called("body"):
            continue
        same = _invariant(body)
        for called, site in reversed(inside):
            passed = [name in same for name in site.operands]
            same = _invariant(called, passed)
        if collective.name in same:
            yield _gathered(subject, collective)


def _invariant(body: Computation, passed: Sequence[bool] | None = None) -> frozenset[str]:
    """The instructions of a computation that have the same value in each iteration of a loop.

    Args:
        body: the loop's body, or what is called in it.
        passed: of what is called, which operands have the same value each time.
    """
    names: set[str] = set()
    root = body.root
    carried = root.operands if root is not None and root.opcode == "tuple" else ()
    for instruction in body.instructions.values():
        if instruction.opcode == "parameter":
            number = instruction.parameter
            if passed is not None and number is not None and any(passed[number : number + 1]):
                names.add(instruction.name)
            continue
        is_made = (
            instruction.operands
            and instruction.opcode not in _VARYING
            and names.issuperset(instruction.operands)
        )
        if is_made or instruction.opcode == "constant" or _is_carried(body, instruction, carried):
            names.add(instruction.name)
    return frozenset(names)


def _is_carried(body: Computation, instruction: Instruction, carried: Sequence[str]) -> bool:
    """Whether a value is an element of a loop's tuple that its body hands on as it is."""
    index = given_element(body, instruction)
    if index is None or index >= len(carried):
        return False
    return given_element(body, body.behind(carried[index], _PASSING)) == index


def _gathered(subject: Subject, collective: Collective) -> Sighting:
    explained = {
        collective.name: collective for collective in subject.explained_collectives.collectives
    }
    part = explained.get(collective.name, collective).largest
    origin = part.origin
    saves = (collective.count - 1) * sum(part.sent for part in collective.parts)
    severity = severity_of(saves, at_least=collective.unknown_trips)
    fact = GatheredInLoop(subject.sending([collective], saves), part.bytes)
    seen = subject.at_part(part, collective.name, fact, severity)
    if origin is None:
        return seen
    return replace(seen, tensor=origin.value or seen.tensor, source=part.source or origin.source)


@rule("scanned-dimension-sharded", "warning", needs="propagated")
def scanned_dimension_sharded(subject: Subject) -> Iterator[Sighting]:
    """A loop runs over a sharded dimension.

    The layers of a scan are stacked along a dimension, and that dimension is sharded over a mesh
    axis, as when a rule for all parameters shards the first dimension. Each layer is then on only
    one group of devices: each iteration sends it to all others, or gathers the whole stack. Do not
    shard the scanned dimension.

    Stacks that are sharded on their other dimensions are FSDP or tensor parallelism, and not
    reported. Nor is pipelining with `shard_map`, where each device loops over its own.

    A note where the whole stack, moved in each iteration, is less than 64 KiB per step.
    """
    graph = subject.graph
    reported: set[str] = set()
    for op in graph.operations():
        name = op.mnemonic
        if name not in ("dynamic_slice", "dynamic_update_slice") or not in_loop(graph, op):
            continue
        operands = graph.operands(op)
        if not operands:
            continue
        stack = (operands[0][0].id, operands[0][1].result)
        part = op.types[0].shape if name == "dynamic_slice" else operands[1][1].type.shape
        place = subject.placement(stack)
        whole = operands[0][1].type.shape
        if place is None or whole is None or part is None:
            continue
        for dim in _cut(whole, part, place):
            what = subject.names.name(stack)
            if what not in reported:
                reported.add(what)
                is_read = name == "dynamic_slice"
                count, dtype = whole[dim] or 0, operands[0][1].type.dtype
                fact = ScannedSharded(dim, count, is_read, subject.sharded(place))
                held = place.bytes_per_device([extent or 1 for extent in whole], dtype)
                severity = severity_of(held * math.prod(place.shards) * count)
                yield replace(subject.at_op(op, fact), tensor=what, severity=severity)


def in_loop(graph: OpGraph, op: Op) -> bool:
    """Whether an op is in the body of a loop, or in a function that is called there."""
    seen: set[str] = set()
    at: Op | None = op
    while at is not None:
        if at.kind.endswith(".while"):
            return True
        if at.kind == "func.func":
            callers = [] if at.function in seen else graph.callers(at.function)
            seen.add(at.function)
            return any(in_loop(graph, caller) for caller in callers)
        at = None if at.parent is None else graph.ops[at.parent]
    return False


def _cut(
    whole: tuple[int | None, ...], part: tuple[int | None, ...], place: Placement
) -> Iterator[int]:
    """The dimensions of which one element is taken, and that are in pieces."""
    for dim, (extent, taken) in enumerate(zip(whole, part, strict=True)):
        if taken == 1 and extent is not None and extent > 1 and place.shards[dim] > 1:
            yield dim


@rule("batched-loop-in-step", "note", needs="compiled")
def batched_loop_in_step(subject: Subject) -> Iterator[Sighting]:
    """Each iteration of a loop asks all devices whether an example of the batch goes on.

    Under `jax.vmap` a `while_loop` runs until the last example of the batch is done. Where the
    batch is sharded, that is a sum over the devices in each iteration: few bytes, but all devices
    wait for each other, and one whose examples are done goes on as long as the slowest
    (jax-ml/jax#20968). Samplers, solvers and simulations that are mapped over a batch are such
    loops. In a `jax.shard_map` over the batch's axes the loop of each device ends by itself.

    Only the sum that `vmap` adds is reported. A condition that the program itself takes over the
    batch, such as the norm of a residual, is what it asks for.
    """
    graph = subject.graph
    if not any(op.mnemonic == "while" for op in graph.operations()):
        raise NotApplicable("The program has no while_loop.")
    reported: set[object] = set()
    for collective in subject.collectives.collectives:
        for part in collective.parts:
            loops = {_mapped_loop(graph, graph.ops[path[-1]]) for path in part.tags} - {None}
            key = (collective.axes, part.source or (part.scope, part.primitive))
            if loops and key not in reported:
                reported.add(key)
                fact = BatchInStep(subject.sending([collective], part.sent))
                yield subject.at_part(part, collective.name, fact)


def _mapped_loop(graph: OpGraph, op: Op) -> int | None:
    """The loop whose condition an op takes over a batch for `vmap`, which names it as the loop."""
    if op.mnemonic != "reduce" or op.parent is None or op.region != 0:
        return None
    loop = graph.ops[op.parent]
    return loop.id if loop.mnemonic == "while" and loop.scope == op.scope else None
