"""Which ops of the program a collective was made for: those that XLA says, or that were followed.

Until JAX 0.10 XLA names a collective after the op that needs it. Since 0.11 it names many that move
a value after what makes the value, be that an argument, and others not at all. Then the value is
followed through the compiled program to the next instructions with a name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeAlias

from sdyscope.analysis.collectives.instruction_flow import (
    INLINE,
    InstructionFlow,
    ValuePlace,
    WalkEnds,
)
from sdyscope.analysis.naming.scopes import scope_of
from sdyscope.facts.traffic import CollectiveKind
from sdyscope.hlo import CallSites, Computation, HloModule, Instruction
from sdyscope.values.passing import opcodes

Moved: TypeAlias = Literal["", "exchanged", "permuted"]
"""How devices gave each other their blocks of a value right before it is gathered: not at all,
somehow, or by a permutation whose result is gathered as it is."""

Tags: TypeAlias = tuple[tuple[int, ...], ...]
"""Ops that an instruction was made from: of each the calls that it was inlined from, and the op."""

NamedAfter: TypeAlias = Literal["taker", "op", "value", "nothing"]
"""What XLA names a collective after: the op that takes the value, an op of which it is not known
whether it takes the value or makes it, what makes the value, or nothing."""

#: Kinds that are made where pieces of a value are, and are named after the op that makes these.
_SUMS = ("all-reduce", "reduce-scatter")

#: Kinds that XLA names after what makes the value, where it says that it generated them.
_OF_MAKER = ("all-gather", "collective-permute")
_GENERATED = 'is_spmd_generated="true"'

#: Collectives that only move a value, which others may be for than the one it goes on to.
_MOVES = frozenset({"all-gather", "all-to-all", "collective-broadcast", "collective-permute"})

#: Collectives that give devices other blocks of a value, each as many as it had.
_EXCHANGES = frozenset({"all-to-all", "collective-permute", "ragged-all-to-all"})

#: What gives devices other blocks of a value, or each a part of its own.
_CHANGES = _EXCHANGES | {"dynamic-slice"}

#: Instructions whose result is what they take, element for element, on the same device.
_SAME = frozenset({*opcodes("unchanged"), "bitcast", *INLINE})
#: CPUs compute bf16 in f32: what is communicated is converted, under the name that it has, or none.
_CONVERSIONS = opcodes("type")

#: Instructions that leave the elements of a value in its dimensions, all or a block of them.
_CUT_OR_LAID_OUT = ("copy", "dynamic-slice")

#: Ops of the program that are instructions of these, too: what they make can be a form only.
FORMING = frozenset(
    {
        "broadcast_in_dim",
        "concatenate",
        "convert",
        "dynamic_slice",
        "optimization_barrier",
        "pad",
        "reshape",
        "select",
        "slice",
        "transpose",
    }
)

#: Ops that the partitioner writes around a collective, and layouts; besides, what is fused.
_FORMS = frozenset(
    {
        *opcodes("unchanged", "shape", "order", "part"),
        "concatenate",
        "get-tuple-element",
        "pad",
        "select",
        "tuple",
        "all-gather",
        "all-reduce",
        "all-to-all",
        "collective-broadcast",
        "collective-permute",
        "ragged-all-to-all",
        *INLINE,
    }
)


#: Those of them that put several values together.
_JOINING = frozenset({"concatenate", "pad", "select"})

_PAIR = re.compile(r"(\d+),(\d+)")
#: What stands for many pairs; see ``read_collectives._of_numbers``.
_MANY_PAIRS = re.compile(r"([\d,]+) of 2")


@dataclass(frozen=True, slots=True)
class Purpose:
    """What a tensor is communicated for.

    Attributes:
        said: the instructions that say it; the first is for the scope, the first with a line for
            the line.
        tags: the ops that it is for.
        makers: the ops that make the value, where these are others and are known.
        argument: the parameter of the program that the value is, if it is one.
        result: the result of the program that it becomes, where no op is known that it is for.
        named_after: what XLA names it after. If it is not the op, that was followed to.
        is_own: whether the value is made under the same name, by a sum or by what is no form of
            another value: then it is what an op itself makes.
        is_single: whether nothing but a constant was joined to the value under the same name.
    """

    said: tuple[Instruction, ...] = ()
    tags: Tags = ()
    makers: Tags = ()
    argument: int | None = None
    result: int | None = None
    named_after: NamedAfter = "op"
    is_own: bool = False
    is_single: bool = False


@dataclass(frozen=True, slots=True)
class SentTensor:
    """One tensor of a collective.

    Attributes:
        computation: where the collective is.
        collective: the collective.
        value: the instruction whose result the tensor is: itself, what takes it out of its tuple,
            or of several that are joined to one what makes it.
    """

    computation: Computation
    collective: Instruction
    value: Instruction

    @property
    def given(self) -> ValuePlace:
        """The value behind the collective."""
        return ValuePlace(self.computation.name, self.value.name)

    @property
    def taken(self) -> list[ValuePlace]:
        """The values that the collective communicates; of several joined, this one."""
        operands: Sequence[str] = self.collective.operands
        if self.value is not self.collective and self.collective.name in self.value.operands[:1]:
            index = self.value.element
            if index is not None and index < len(operands):
                operands = operands[index : index + 1]
        elif self.value is not self.collective:
            operands = (self.value.name,)
        return [ValuePlace(self.computation.name, name) for name in operands]


class MadeFor:
    """Finds what the collectives of a module are for.

    Args:
        module: the program of one device.
        sites: which computations its instructions run.
        tags: by instruction, the ops that it was made from; empty where that is not known.
    """

    def __init__(self, module: HloModule, sites: CallSites, tags: Mapping[str, Tags]) -> None:
        self.tags = tags
        self.flow = InstructionFlow(module, sites)
        entry = module.computations[module.entry]
        self.parameters = {
            number: parameter
            for number, parameter in entry.parameters.items()
            if parameter.op_name and parameter.name not in tags
        }
        self.arguments = {each.op_name: number for number, each in self.parameters.items()}

    def purpose(self, sent: SentTensor, kind: CollectiveKind) -> Purpose:
        """What one tensor of a collective is for.

        Args:
            sent: the tensor.
            kind: the collective's kind.
        """
        around = self.flow.callers.get(sent.computation.name)
        own = [sent.value, sent.collective]
        if around is not None and around[1].opcode in INLINE:
            own.append(around[1])
        said = [op for op in own if self.is_named(op)]
        if kind in _SUMS or kind in ("send", "recv"):
            if said:
                return Purpose(tuple(said), self.of(said[:1]))
            return self.of_nothing(sent, users_first=False)
        if not said:
            return self.of_nothing(sent, users_first=True)
        return self.of_name(sent, said, kind)

    def of_name(
        self,
        sent: SentTensor,
        instructions: Sequence[Instruction],
        kind: CollectiveKind,
    ) -> Purpose:
        """Of a collective with a name, which is the op that needs the value or that makes it.

        Where both can be it is taken for the latter; ``origin_search`` asks the shardings.
        """
        is_generated = _GENERATED in sent.collective.rest
        key = self.key(instructions[0])
        exactly = Purpose(tuple(instructions), self.of(instructions[:1]))
        makers = self.makers(sent, key)
        argument = makers.boundary[0] if len(makers.boundary) == 1 else None
        maker = next(iter(makers.instructions), None)
        exactly = replace(
            exactly,
            makers=self.of(makers.instructions[:1]),
            argument=argument,
            is_own=maker is not None and not key.isdisjoint(self.key(maker)),
            is_single=self.is_single(sent, key),
            # As of JAX 0.11 what XLA generated can have the name of what makes the value.
            named_after="op" if is_generated else "taker",
        )
        if kind not in _OF_MAKER or not is_generated:
            return exactly
        if not self.tags and not self.is_made_by(sent, key):
            return exactly
        users = self.users(sent, key, is_permuted=kind == "collective-permute")
        if any(not key.isdisjoint(self.key(instruction)) for instruction in users.instructions):
            return replace(exactly, named_after="taker")  # it is in the middle of the op
        result = users.boundary[0] if users.boundary else None
        if not users.instructions and result is None:
            return exactly
        by = self.of(instructions[:1])
        # What goes into a loop is what is carried in it, where an op of that is named.
        is_carried = any(user.opcode == "while" for user in users.instructions)
        if (exactly.makers or not is_carried) and self.is_moved_by(sent, key):
            by = exactly.makers
        if users.instructions:
            followed = tuple(users.instructions)
            return Purpose(
                (*followed, *instructions),
                self.of(followed),
                by,
                argument=None if by else argument,
                named_after="value",
                is_own=exactly.is_own,
                is_single=exactly.is_single,
            )
        return Purpose(
            tuple(instructions),
            (),
            by,
            result=result,
            named_after="value",
            is_own=exactly.is_own,
            is_single=exactly.is_single,
        )

    def of_nothing(self, sent: SentTensor, *, users_first: bool) -> Purpose:
        """Of a collective without a name."""
        users = self.users(sent, frozenset())
        makers = self.makers(sent, frozenset())
        argument = self.arguments.get(sent.collective.op_name)
        after: NamedAfter = "nothing" if argument is None else "value"
        if argument is None and not makers.instructions and len(makers.boundary) == 1:
            argument = makers.boundary[0]
        to, by = tuple(users.instructions), tuple(makers.instructions[:1])
        if not users_first:
            to, by = by, ()
        said = (*to, *by)
        if not said and argument is not None and argument in self.parameters:
            said = (self.parameters[argument],)
        return Purpose(
            said,
            self.of(to),
            self.of(by),
            argument,
            users.boundary[0] if users.boundary and not to else None,
            named_after=after,
        )

    def users(
        self, sent: SentTensor, key: frozenset[object], *, is_permuted: bool = False
    ) -> WalkEnds:
        """What uses a value next, behind what has one of these names and is form only.

        Args:
            sent: the value.
            key: the names.
            is_permuted: whether a permutation gives it: what puts that together with what devices
                have, such as the edge of a block, is what it is for, and no form of it.
        """
        forms = (_FORMS | _CONVERSIONS) - (_JOINING if is_permuted else frozenset())
        return self.flow.forward(sent.given, self.passing(key, forms))

    def makers(self, sent: SentTensor, key: frozenset[object]) -> WalkEnds:
        """What makes the value that a collective communicates; of several joined, this one."""
        # An op makes what it sums: what that is made of is no form of it.
        passes = self.passing(key, (_FORMS | _CONVERSIONS).difference(_SUMS))

        def is_moved(instruction: Instruction) -> bool:
            return self.is_move(instruction) or passes(instruction)

        def is_round(loop: Instruction) -> bool:
            """XLA's own loop for a product, which hands blocks of an operand from device to device.

            The program's loops have names of their own.
            """
            is_own = self.is_named(loop) and not key.isdisjoint(self.key(loop))
            return is_own and scope_of(loop.op_name)[1] != "while"

        # What a sum is handed round for the loop makes as it goes.
        around = is_round if sent.collective.base == "collective-permute" else None
        ends = self.flow.backward(sent.taken, is_moved, around)
        return replace(ends, instructions=tuple(filter(self.is_named, ends.instructions)))

    def is_single(self, sent: SentTensor, key: frozenset[object]) -> bool:
        """Whether nothing but a constant was joined to a value under one of these names."""
        is_known = True
        passes = self.passing(key, (_FORMS | _CONVERSIONS).difference(_SUMS))

        def is_passed(instruction: Instruction) -> bool:
            nonlocal is_known
            if instruction.opcode in ("concatenate", "select"):
                is_known &= key.isdisjoint(self.key(instruction))
            return self.is_move(instruction) or passes(instruction)

        ends = self.flow.backward(sent.taken, is_passed)
        keys = {self.key(each) for each in ends.instructions if self.is_named(each)}
        others = sum(map(key.isdisjoint, keys)) + len(ends.boundary)
        return is_known and others == 1

    def is_moved_by(self, sent: SentTensor, key: frozenset[object]) -> bool:
        """Whether what has one of these names moved the value before, for another op, and no more.

        XLA then names what moves it on after that.
        """
        named: list[Instruction] = []

        def passes(instruction: Instruction) -> bool:
            if not key.isdisjoint(self.key(instruction)):
                named.append(instruction)
            return self.is_move(instruction)

        self.flow.backward(sent.taken, passes)
        return bool(named) and all(map(self.is_move, named))

    def is_move(self, instruction: Instruction) -> bool:
        """Whether an instruction moves a value, for whatever op that is: it makes nothing."""
        return instruction.base in _MOVES or instruction.name in self.of_moves

    @cached_property
    def of_moves(self) -> frozenset[str]:
        """What cuts or lays out otherwise what is moved for the op that it is named after, too.

        Other copies can be what a transpose of the program makes.
        """
        names = set[str]()
        for computation in self.flow.module.computations.values():
            for move in computation.instructions.values():
                if move.base in _MOVES and (key := self.key(move)):

                    def passes(instruction: Instruction, key: frozenset[object] = key) -> bool:
                        is_same = not key.isdisjoint(self.key(instruction))
                        if is_same and instruction.opcode in (*_CUT_OR_LAID_OUT, *INLINE):
                            names.add(instruction.name)
                            return True
                        return False

                    moved = SentTensor(computation, move, move)
                    self.flow.backward(moved.taken, passes)
                    self.flow.forward(moved.given, passes)
        return frozenset(names)

    def moved_before(self, sent: SentTensor) -> Moved:
        """How devices gave each other their blocks right before; of several joined, of this one."""
        if self.permuted_before(sent) is not None:
            return "permuted"

        def passes(instruction: Instruction) -> bool:
            return self.is_form(instruction) or instruction.base in _FORMS - _EXCHANGES

        ends = self.flow.backward(sent.taken, passes).instructions
        return "exchanged" if any(each.base in _EXCHANGES for each in ends) else ""

    def permuted_before(self, sent: SentTensor) -> Instruction | None:
        """The permutation whose result this takes as it is, if there is one."""
        before = self.ends_before(sent)
        is_one = len(before) == 1 and before[0].base == "collective-permute"
        return before[0] if is_one and len(before[0].operands) == 1 else None

    def is_all(self, sent: SentTensor) -> bool:
        """Whether it is all that moves the blocks of a value, as they were made, for an op.

        XLA may also cut them or move them on, be it before or after.
        """
        after = self.flow.forward(sent.given, self.is_form)
        cuts = _MOVES | {"dynamic-slice"}
        goes_on = any(
            end.base in cuts and self.may_be_named_alike(end, sent.value)
            for end in after.instructions
        )
        return not goes_on and self.is_made(sent)

    def is_made(self, sent: SentTensor) -> bool:
        """Whether a collective takes a value's blocks as they were made, neither cut nor moved.

        XLA may have cut or moved them for another op; other forms are the program's own by name.
        """
        forms, cuts = _FORMS.difference(_SUMS), _MOVES | {"dynamic-slice"}
        return not any(
            end.base in forms and (end.base in cuts or self.may_be_named_alike(end, sent.value))
            for end in self.ends_before(sent)
        )

    def is_moved_on(self, sent: SentTensor, purpose: Purpose) -> bool:
        """Whether XLA goes on to give devices other blocks, or each its own, of what is gathered.

        For the same op, or as part of the same change; more gathers are none of that.
        """
        key = self.key(sent.value)
        if any(end.base in _CHANGES for end in self._ends_behind(sent, key)):
            return True
        if purpose.named_after != "value":
            return False
        # What follows has the name of the op that takes it.
        taker = frozenset[object]().union(*map(self.key, purpose.said))
        return any(
            end.base in _CHANGES and (not self.is_named(end) or not taker.isdisjoint(self.key(end)))
            for end in self._ends_behind(sent, key | taker)
        )

    def _ends_behind(self, sent: SentTensor, key: frozenset[object]) -> tuple[Instruction, ...]:
        """What takes a value behind its forms of these names, or of none."""
        # Moves that XLA makes of several others are laid out under the same name, or none.
        forms = (_FORMS | _CONVERSIONS) - _MOVES - {"dynamic-slice"}
        is_same = self.passing(key, forms)

        def passes(instruction: Instruction) -> bool:
            is_form = instruction.opcode in forms and is_same(instruction)
            return is_form or self.is_form(instruction)

        return self.flow.forward(sent.given, passes).instructions

    def may_be_named_alike(self, instruction: Instruction, value: Instruction) -> bool:
        """Whether an instruction and a value may be named after the same op.

        What moves an argument is named after that, which tells nothing.
        """
        key, other = self.key(value), self.key(instruction)
        return not (key and other and key.isdisjoint(other))

    def ends_before(self, sent: SentTensor) -> tuple[Instruction, ...]:
        """What makes the blocks that a collective takes."""
        return self.flow.backward(sent.taken, self.is_form).instructions

    def gathered_before(self, sent: SentTensor) -> str:
        """The all-gather whose result, in whatever form, this one gathers further; else empty."""

        def passes(instruction: Instruction) -> bool:
            return self.is_form(instruction) or instruction.base in _FORMS - _MOVES

        ends = self.flow.backward(sent.taken, passes)
        before = ends.instructions if not ends.boundary else ()
        is_gather = len(before) == 1 and before[0].base == "all-gather"
        return before[0].name if is_gather else ""

    def is_made_by(self, sent: SentTensor, key: frozenset[object]) -> bool:
        """Whether the value is made by an instruction with one of these names."""
        instructions = self.makers(sent, key).instructions
        return bool(instructions) and not key.isdisjoint(self.key(instructions[0]))

    def passing(
        self, key: frozenset[object], forms: Container[str]
    ) -> Callable[[Instruction], bool]:
        """Whether an instruction is gone through: one without a name, or of these and form only."""

        def passes(instruction: Instruction) -> bool:
            if not self.is_named(instruction):
                return True
            is_form = instruction.opcode in forms or instruction.base in forms
            return is_form and not key.isdisjoint(self.key(instruction))

        return passes

    def is_form(self, instruction: Instruction) -> bool:
        """Whether its result is what it takes, element for element, on the same device."""
        is_own = instruction.opcode in _CONVERSIONS and not self.is_named(instruction)
        return is_own or instruction.opcode in _SAME

    def is_named(self, instruction: Instruction) -> bool:
        """Whether an instruction says what op it was made from."""
        if self.tags:
            return instruction.name in self.tags
        name = instruction.op_name
        return bool(name) and name not in self.arguments

    def key(self, instruction: Instruction) -> frozenset[object]:
        """What an instruction is named after."""
        if self.tags:
            return frozenset(self.tags.get(instruction.name, ()))
        return frozenset({instruction.op_name})

    def of(self, instructions: Sequence[Instruction]) -> Tags:
        """The ops that instructions were made from, each once."""
        return tuple(
            dict.fromkeys(
                path for instruction in instructions for path in self.tags.get(instruction.name, ())
            )
        )


def is_partial(pairs: str) -> bool:
    """Whether a permutation gives some devices nothing: these go on with zeros.

    XLA moves the edges of blocks so, and whatever only some devices lack. What puts that together
    with the rest is the op that it is for.

    Args:
        pairs: its source-target pairs as HLO writes them; empty of another collective.
    """
    each = _PAIR.findall(pairs)
    return {source for source, _ in each} != {target for _, target in each}


def leaves_out(pairs: str, devices: int) -> bool:
    """Whether a permutation has some of so many devices send or receive nothing.

    No device is the source of two pairs, or the target.

    Args:
        pairs: as of ``is_partial``; of many pairs of a prediction how many: ``127 of 2``.
        devices: how many devices run the program.
    """
    many = _MANY_PAIRS.fullmatch(pairs)
    count = len(_PAIR.findall(pairs)) if many is None else int(many[1].replace(",", ""))
    return 0 < count < devices
