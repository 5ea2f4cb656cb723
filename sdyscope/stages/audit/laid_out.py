"""How the module before partitioning lays out what every op makes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from sdyscope.stages import compat
from sdyscope.stages.audit.facts import AuditedOp, Layout
from sdyscope.stages.audit.hlo_dump import DumpedHlo, DumpedInstruction, layout, shapes
from sdyscope.stages.audit.names import commutes, named_ops, opcodes_of, types_of

Array: TypeAlias = tuple[str, tuple[int, ...]]
"""The type of an array in HLO: its element type and dimensions."""


class Layouts:
    """Numbers layouts, each text and rank once.

    Attributes:
        layouts: by number.
    """

    def __init__(self) -> None:
        self.layouts: list[Layout] = []
        self._known: dict[tuple[str, int], int] = {}

    def of(self, text: str, rank: int) -> int:
        """Of what XLA writes of an array with ``rank`` dimensions."""
        key = text, rank
        if key not in self._known:
            self._known[key] = len(self.layouts)
            self.layouts.append(layout(text, rank, compat.hlo))
        return self._known[key]

    def each(self, instruction: DumpedInstruction) -> list[int]:
        """Of each array of an instruction's type."""
        arrays = shapes(instruction.type)
        if not arrays:  # Of an empty tuple, as of a callback without results, XLA writes one.
            return []
        texts = [instruction.sharding] * len(arrays)
        if instruction.sharding.startswith("{{"):
            parts = compat.hlo.HloSharding.from_string(instruction.sharding).tuple_elements()
            texts = [str(part) for part in parts]
        return [self.of(text, len(dims)) for text, (_, dims) in zip(texts, arrays, strict=True)]

    def alike(
        self, wanted: Sequence[Array], arrays: Sequence[Array], own: Sequence[int]
    ) -> list[int]:
        """The layouts of arrays that are there in an unknown order; -1 for what is not known.

        What there is of a type is told apart only where there is but one, or all of it is laid out
        alike.
        """
        of_type: dict[Array, list[int]] = defaultdict(list)
        for array, number in zip(arrays, own, strict=True):
            of_type[array].append(number)
        counts = Counter(wanted)
        return [
            of_type[array][0]
            if len(set(of_type[array])) == 1 and len(of_type[array]) >= counts[array]
            else -1
            for array in wanted
        ]

    def carried(self, op: AuditedOp, instruction: DumpedInstruction, behind: int) -> list[int]:
        """Of each array that a loop carries, as the lowered module counts them.

        XLA has behind the rest what the loop never changes, in the order in which that is used.

        Args:
            op: the loop.
            instruction: what has the type of the loop.
            behind: how many of the last that XLA has are never changed.
        """
        wanted, arrays, own = [*types_of(op)], shapes(instruction.type), self.each(instruction)
        changed = [place for place in range(len(wanted)) if place not in op.kept]
        first = len(arrays) - behind
        if behind != len(op.kept) or arrays[:first] != [wanted[place] for place in changed]:
            return self.alike(wanted, arrays, own)
        kept = self.alike([wanted[place] for place in op.kept], arrays[first:], own[first:])
        by_place = {
            **dict(zip(changed, own, strict=False)),
            **dict(zip(op.kept, kept, strict=True)),
        }
        return [by_place[place] for place in range(len(wanted))]


@dataclass(frozen=True)
class LaidOut:
    """How the module before partitioning lays out what ops make, by the ops' numbers.

    Attributes:
        values: the results of an op, each time that it is there.
        resharded: the layouts that each of those is copied to under its name.
        carried: what a loop is given, likewise.
    """

    values: dict[int, list[list[int]]] = field(default_factory=lambda: defaultdict(list))
    resharded: dict[int, list[list[int]]] = field(default_factory=dict)
    carried: dict[int, list[list[int]]] = field(default_factory=lambda: defaultdict(list))

    def alike(self, layouts: Layouts) -> dict[int, Layout]:
        """The layouts of ops with one result that have the same wherever XLA has them."""
        return {
            number: layouts.layouts[own[0]]
            for number, instances in self.values.items()
            if all(each == instances[0] for each in instances)
            and len(own := instances[0]) == 1
            and own[0] >= 0
        }


def laid_out(module: DumpedHlo, ops: Sequence[AuditedOp], layouts: Layouts) -> LaidOut:
    """How XLA lays out what each op makes.

    Args:
        module: XLA's module behind propagation, whose instructions are called by their ops.
        ops: those of the lowered module.
        layouts: numbers what there is.
    """
    laid = LaidOut()
    makers: dict[int, list[str]] = defaultdict(list)
    copies: dict[int, list[DumpedInstruction]] = defaultdict(list)
    returned: dict[int, list[DumpedInstruction]] = defaultdict(list)
    for instruction in module.instructions.values():
        for number in named_ops(instruction.op_name):
            if number >= len(ops):
                continue
            op = ops[number]
            if _returns_from(instruction, op):
                returned[number].append(instruction)
            elif _is(instruction, op):
                makers[number].append(instruction.name)
                if instruction.opcode != "while":
                    laid.values[number].append(layouts.each(instruction))
                    continue
                inside = module.computations[module.body(instruction)]
                (given,) = (each for each in inside if each.opcode == "parameter")
                behind = _kept(module, given)
                laid.values[number].append(layouts.carried(op, instruction, behind))
                laid.carried[number].append(layouts.carried(op, given, behind))
            elif instruction.opcode == "copy":
                copies[number].append(instruction)
    for number, instructions in returned.items():
        laid.values[number] = [_returned(module, ops[number], instructions, layouts)]
    for number, unnamed in _unnamed(module, ops, makers).items():
        laid.values[number] = [layouts.each(instruction) for instruction in unnamed]
    for number, instructions in copies.items():
        laid.resharded[number] = _copied(makers[number], instructions, layouts)
    return laid


def _copied(
    makers: Sequence[str], copies: Iterable[DumpedInstruction], layouts: Layouts
) -> list[list[int]]:
    """The layouts that what each instruction makes is copied to.

    A copy of a copy is one of what that is of; of another op, which XLA put in between, it is taken
    to be of each.
    """
    copied: list[list[int]] = [[] for _ in makers]
    of: dict[str, tuple[int, ...]] = {name: (place,) for place, name in enumerate(makers)}
    for copy in copies:
        places = of.get(copy.operands[0], tuple(range(len(makers))))
        of[copy.name] = places
        for place in places:
            copied[place] += layouts.each(copy)
    return copied


def _is(instruction: DumpedInstruction, op: AuditedOp) -> bool:
    """Whether an instruction is the op that it is called by, and none that was made on the way."""
    if instruction.opcode not in opcodes_of(op):
        return False
    # What a loop never changes is put behind the rest.
    return instruction.opcode == "while" or list(types_of(op)) == shapes(instruction.type)


def _returns_from(instruction: DumpedInstruction, op: AuditedOp) -> bool:
    """Whether an instruction gives a result of a ``shard_map``, of which each has its own."""
    return (
        op.kind == "sdy.manual_computation"
        and 'custom_call_target="SPMDShardToFullShape"' in instruction.line
    )


def _kept(module: DumpedHlo, given: DumpedInstruction) -> int:
    """How many of the last that a loop carries its body returns as they are given."""
    root = module.root(given.computation)
    count = 0
    for place, name in reversed([*enumerate(root.operands if root.opcode == "tuple" else ())]):
        returned = module.instructions[name]
        if returned.index != place or returned.operands != (given.name,):
            break
        count += 1
    return count


def _returned(
    module: DumpedHlo, op: AuditedOp, instructions: Sequence[DumpedInstruction], layouts: Layouts
) -> list[int]:
    """The layout of each result of a ``shard_map``; -1 for what is not known.

    What gives a result takes it out of what the body returns, at its place.
    """
    wanted = [*types_of(op)]
    arrays = [array for each in instructions for array in shapes(each.type)]
    own = [number for each in instructions for number in layouts.each(each)]
    places = [_place(module, each) for each in instructions]
    if len(own) != len(instructions) or None in places:
        return layouts.alike(wanted, arrays, own)
    return [
        layouts.alike([array], [array] * len(there), there)[0]
        for place, array in enumerate(wanted)
        for there in [[number for number, at in zip(own, places, strict=True) if at == place]]
    ]


def _place(module: DumpedHlo, instruction: DumpedInstruction) -> int | None:
    """Which of the results of a call an instruction gives, in whatever layout; None if of none."""
    taken = module.instructions[instruction.operands[0]]
    while taken.opcode == "copy":
        taken = module.instructions[taken.operands[0]]
    if taken.opcode == "call":
        return 0
    is_of_call = taken.operands and module.instructions[taken.operands[0]].opcode == "call"
    return taken.index if is_of_call else None


def _unnamed(
    module: DumpedHlo, ops: Sequence[AuditedOp], makers: Mapping[int, Sequence[str]]
) -> dict[int, list[DumpedInstruction]]:
    """The instructions of ops that XLA calls by no name, constants above all.

    Each is found as an operand, at its place, of an instruction that is known.
    """
    unnamed: dict[int, dict[str, DumpedInstruction]] = defaultdict(dict)
    pending = [(user, name) for user, names in makers.items() for name in names]
    while pending:
        user, name = pending.pop()
        taken = [module.instructions[operand] for operand in module.instructions[name].operands]
        if len(taken) != len(ops[user].operands):
            continue
        for place, (number, region, _) in enumerate(ops[user].operands):
            # What commutes has its constants last.
            candidates = taken if commutes(ops[user]) else taken[place : place + 1]
            own = [
                instruction
                for instruction in candidates
                if region < 0
                and number not in makers
                and not named_ops(instruction.op_name)
                and _is(instruction, ops[number])
            ]
            if len(own) == 1 and own[0].name not in unnamed[number]:
                unnamed[number][own[0].name] = own[0]
                pending.append((number, own[0].name))
    return {number: list(own.values()) for number, own in unnamed.items() if own}
