"""Copies that only change how a tensor lies in memory, right before or behind a collective.

A collective sends what lies together. Blocks that are gathered along a dimension that is not the
outermost lie apart, so the compiler lets the collective work in another layout than the ops around
it, and copies.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sdyscope.hlo import HloModule
from sdyscope.hlo.executions import executions
from sdyscope.hlo.model import IN_PLACE, Computation, Instruction
from sdyscope.hlo.shape import Shape

Side: TypeAlias = Literal["operand", "result"]

#: What hands a value on as it lies there; ``passing`` has copies too, which are looked for here.
_HANDS_ON = IN_PLACE | {"get-tuple-element"}


@dataclass(frozen=True, slots=True)
class LayoutCopy:
    """A copy of what a collective takes or makes.

    Attributes:
        collective: the collective's instruction.
        side: whether its operand is copied, or its result.
        before: the layout that is copied from: dimensions from the innermost, as HLO writes them.
        after: the layout that is copied to.
        bytes: bytes that a device copies in a step.
        dimension: the dimension that the collective works along; None where there is none.
    """

    collective: str
    side: Side
    before: tuple[int, ...]
    after: tuple[int, ...]
    bytes: int
    dimension: int | None = None

    @property
    def around(self) -> tuple[int, ...]:
        """The layout of the ops around the collective."""
        return self.before if self.side == "operand" else self.after


def layout_copies(module: HloModule, collectives: Iterable[str]) -> Iterator[LayoutCopy]:
    """The copies around some collectives, in the order of the module.

    Args:
        module: the compiled program.
        collectives: names of the collectives' instructions.

    Raises:
        SdyscopeError: a shape can't be read, or a computation calls itself.
    """
    wanted = set(collectives)
    times = executions(module)
    for computation in module.computations.values():
        here = [name for name in computation.instructions if name in wanted]
        if not here or computation.name not in times:
            continue
        users = _users(computation)
        count = times[computation.name].times
        for name in here:
            instruction = computation.instructions[name]
            for operand in instruction.operands:
                copied = _made_by_copy(module, computation, operand)
                if copied is not None:
                    yield _copy(instruction, "operand", *copied, count)
            for copied in _copies_of(module, computation, users, name):
                yield _copy(instruction, "result", *copied, count)


def _copy(
    collective: Instruction, side: Side, before: Shape, after: Shape, count: int
) -> LayoutCopy:
    written = collective.attributes.get("dimensions", "").strip("{}")
    return LayoutCopy(
        collective.name,
        side,
        _order(before),
        _order(after),
        count * after.bytes,
        int(written) if written.isdecimal() else None,
    )


def _order(shape: Shape) -> tuple[int, ...]:
    """The dimensions from the innermost; empty without a layout."""
    text = shape.layout.strip("{}").partition(":")[0]
    return tuple(int(number) for number in text.split(",") if number.strip().isdecimal())


def _users(computation: Computation) -> Mapping[str, list[Instruction]]:
    users: dict[str, list[Instruction]] = defaultdict(list)
    for instruction in computation.instructions.values():
        if instruction.opcode not in ("parameter", "constant"):
            for operand in instruction.operands:
                users[operand].append(instruction)
    return users


def _made_by_copy(
    module: HloModule, computation: Computation, name: str
) -> tuple[Shape, Shape] | None:
    """What a value was copied from and to, where it was made by a copy of the layout."""
    instruction = computation.instructions.get(name)
    while instruction is not None and instruction.opcode in _HANDS_ON:
        instruction = computation.instructions.get(next(iter(instruction.operands), ""))
    if instruction is None:
        return None
    if instruction.opcode == "fusion":
        inside = _fused(module, instruction)
        root = None if inside is None else inside.root
        return None if inside is None or root is None else _made_by_copy(module, inside, root.name)
    return _changes_layout(computation, instruction)


def _copies_of(
    module: HloModule, computation: Computation, users: Mapping[str, list[Instruction]], name: str
) -> Iterator[tuple[Shape, Shape]]:
    """The copies of a value that change its layout."""
    for user in users.get(name, ()):
        if user.opcode in _HANDS_ON or user.opcode.endswith("-done"):
            yield from _copies_of(module, computation, users, user.name)
        elif user.opcode == "fusion":
            inside = _fused(module, user)
            if inside is None:
                continue
            number = str(user.operands.index(name))
            for parameter in inside.instructions.values():
                if parameter.opcode == "parameter" and parameter.operand_text.strip() == number:
                    yield from _copies_of(module, inside, _users(inside), parameter.name)
        elif (copied := _changes_layout(computation, user)) is not None:
            yield copied


def _fused(module: HloModule, fusion: Instruction) -> Computation | None:
    called = fusion.called("calls")
    return module.computations.get(called[0]) if called else None


def _changes_layout(
    computation: Computation, instruction: Instruction
) -> tuple[Shape, Shape] | None:
    """The shapes before and behind a copy that moves dimensions in memory; None for another op."""
    if instruction.opcode != "copy":
        return None
    operand = computation.instructions.get(next(iter(instruction.operands), ""))
    if operand is None:
        return None
    before, after = operand.shape, instruction.shape
    if before.dimensions != after.dimensions or before.is_tuple:
        return None
    return (before, after) if _order(before) != _order(after) else None
