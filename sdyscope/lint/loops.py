"""Rules about loops: what is sent in every iteration although once would do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sdyscope.analysis.collectives.totals import Collective
from sdyscope.facts.propagated import ValueId
from sdyscope.graph import Op, OpGraph
from sdyscope.hlo import Computation, Instruction, call_sites
from sdyscope.hlo.loops import given_element
from sdyscope.lint.rule import Message, rule, severity_of
from sdyscope.lint.subject import Subject
from sdyscope.values.passing import opcodes
from sdyscope.values.placement import Placement
from sdyscope.words.counts import size, times_text
from sdyscope.words.mesh import over_text

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
def gathered_in_loop(subject: Subject) -> Iterator[Message]:
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
    callers = {
        called: (caller, instruction)
        for caller, sites in call_sites(module).items()
        for instruction, called in sites
    }
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
            body = module.computations[caller]
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


def _gathered(subject: Subject, collective: Collective) -> Message:
    explained = {
        collective.name: collective for collective in subject.explained_collectives.collectives
    }
    part = explained.get(collective.name, collective).largest
    origin = part.origin
    value = origin.value if origin is not None else ""
    saves = (collective.count - 1) * sum(part.sent for part in collective.parts)
    times = times_text(collective.count, unknown=collective.unknown_trips)
    over = over_text(collective.axes, subject.collectives.mesh)
    source = part.source or (origin.source if origin is not None else None)
    return Message(
        f"The same value is gathered over {over or 'devices'} in each iteration of a loop, {times}"
        f": a device sends {size(saves)} for data it already had.",
        tensor=value or f"{part.scope}/{part.primitive}".strip("/") or collective.name,
        kind="collective",
        source=source,
        partitioner=subject.partitioner,
        hint="Gather it once before the loop, with a constraint there, if a device can hold "
        f"{size(part.bytes)} meanwhile; else it is the price of memory, and can be ignored.",
        severity=severity_of(saves, at_least=collective.unknown_trips),
    )


@rule("scanned-dimension-sharded", "warning", needs="propagated")
def scanned_dimension_sharded(subject: Subject) -> Iterator[Message]:
    """A loop runs over a sharded dimension.

    The layers of a scan are stacked along a dimension, and that dimension is sharded over a mesh
    axis, as when a rule for all parameters shards the first dimension. Each layer is then on only
    one group of devices: each iteration sends it to all others, or gathers the whole stack. Do not
    shard the scanned dimension.

    Stacks that are sharded on their other dimensions are FSDP or tensor parallelism, and not
    reported. Nor is pipelining with `shard_map`, where each device loops over its own.
    """
    graph = subject.graph
    reported: set[str] = set()
    for op in graph.operations():
        name = op.mnemonic
        if name not in ("dynamic_slice", "dynamic_update_slice") or not _in_loop(graph, op):
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
                yield _scanned_finding(subject, op, stack, dim, place, what, name)


def _in_loop(graph: OpGraph, op: Op) -> bool:
    """Whether an op is in the body of a loop, or in a function that is called there."""
    seen: set[str] = set()
    at: Op | None = op
    while at is not None:
        if at.kind.endswith(".while"):
            return True
        if at.kind == "func.func":
            callers = [] if at.function in seen else graph.callers(at.function)
            seen.add(at.function)
            return any(_in_loop(graph, caller) for caller in callers)
        at = None if at.parent is None else graph.ops[at.parent]
    return False


def _cut(
    whole: tuple[int | None, ...], part: tuple[int | None, ...], place: Placement
) -> Iterator[int]:
    """The dimensions of which one element is taken, and that are in pieces."""
    for dim, (extent, taken) in enumerate(zip(whole, part, strict=True)):
        if taken == 1 and extent is not None and extent > 1 and place.shards[dim] > 1:
            yield dim


def _scanned_finding(
    subject: Subject, op: Op, stack: ValueId, dim: int, place: Placement, what: str, name: str
) -> Message:
    size = (subject.graph.ops[stack[0]].types[stack[1]].shape or ())[dim]
    does = "takes one of" if name == "dynamic_slice" else "puts one into"
    return Message(
        f"A loop {does} the {size} elements of dimension {dim} in each iteration, and that "
        "dimension is sharded: each iteration moves all of it, or all but one device wait.",
        tensor=what,
        kind="op",
        source=op.source,
        partitioner=subject.partitioner,
        found=subject.words(place),
        hint="Leave the scanned dimension unsharded, and shard another one.",
    )
