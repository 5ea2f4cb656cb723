"""Copies that only change how a tensor lies in memory, right before or behind a collective.

A collective sends what lies together. Blocks that are gathered along a dimension that is not the
outermost lie apart, so the compiler lets the collective work in another layout than the ops around
it, and copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sdyscope.facts.lint import Side
from sdyscope.hlo import HloModule
from sdyscope.hlo.executions import executions
from sdyscope.hlo.model import IN_PLACE, Computation, Instruction
from sdyscope.hlo.shape import Shape

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
        count = times[computation.name].times
        for name in here:
            instruction = computation.instructions[name]
            for operand in instruction.operands:
                copied = _made_by_copy(module, computation, operand)
                if copied is not None:
                    yield _copy(instruction, "operand", *copied, count)
            for copied in _copies_of(module, computation, name):
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


def _made_by_copy(
    module: HloModule, computation: Computation, name: str
) -> tuple[Shape, Shape] | None:
    """What a value was copied from and to, where it was made by a copy of the layout."""
    instruction = computation.behind(name, _HANDS_ON)
    if instruction is None:
        return None
    if instruction.opcode == "fusion":
        inside = module.fused(instruction)
        root = None if inside is None else inside.root
        return None if inside is None or root is None else _made_by_copy(module, inside, root.name)
    return _changes_layout(computation, instruction)


def _copies_of(
    module: HloModule, computation: Computation, name: str
) -> Iterator[tuple[Shape, Shape]]:
    """The copies of a value that change its layout."""
    for user in computation.users.get(name, ()):
        if user.opcode in _HANDS_ON or user.opcode.endswith("-done"):
            yield from _copies_of(module, computation, user.name)
        elif user.opcode == "fusion":
            inside = module.fused(user)
            number = user.operands.index(name)
            if inside is not None and number in inside.parameters:
                yield from _copies_of(module, inside, inside.parameters[number].name)
        elif (copied := _changes_layout(computation, user)) is not None:
            yield copied


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
