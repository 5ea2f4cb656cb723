"""What HLO text holds: a module, its computations, their instructions."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Final, NoReturn

from sdyscope.errors import SdyscopeError
from sdyscope.hlo.attributes import (
    end_of_operands,
    metadata_fields,
    metadata_op_name,
    metadata_text,
    operand_names,
    split_attributes,
)
from sdyscope.hlo.shape import Shape, parse_shape
from sdyscope.once import Once
from sdyscope.syntax.replica_groups import parse_replica_groups
from sdyscope.values.replica_groups import ReplicaGroups
from sdyscope.values.source import ONLY_SHARD, Sites, SourceLocation, callers, own_line, sites_of

#: The call stack of an instruction, and the op_name of one that only puts a sharding on a value.
_FRAME = re.compile(r"stack_frame_id=([0-9]+)")
_ONLY_SHARDS = re.compile(rf'op_name="[^"]*/(?:{"|".join(ONLY_SHARD)})"')

#: The computation of a fusion, found without taking the other attributes apart.
_FUSED = re.compile(r"calls=%?([^\s,}]+)")
_INDEX = re.compile(r"\bindex=(\d+)")

#: Attributes that name what a call runs, and what a conditional does.
CALLED: Final = ("to_apply", "calls", "called_computations")
BRANCHES: Final = ("branch_computations", "true_computation", "false_computation")

#: How many characters of a line are kept in a list of what is not understood.
_KEPT = 200

#: Of how many instructions it is remembered what they were taken apart into.
_REMEMBERED = 1 << 17


#: Opcodes that compute one transcendental function for each element.
TRANSCENDENTAL: Final = frozenset(
    {
        "atan2", "cbrt", "cosine", "erf", "exponential", "exponential-minus-one", "log",
        "log-plus-one", "logistic", "power", "rsqrt", "sine", "sqrt", "tan", "tanh",
    }
)  # fmt: skip

#: Opcodes that make each element of the operands' at its place.
ELEMENTWISE: Final = TRANSCENDENTAL | {
    "abs", "add", "and", "bitcast-convert", "ceil", "clamp", "compare", "complex", "convert",
    "count-leading-zeros", "divide", "floor", "imag", "is-finite", "maximum", "minimum", "multiply",
    "negate", "not", "or", "popcnt", "real", "reduce-precision", "remainder", "round-nearest-afz",
    "round-nearest-even", "select", "shift-left", "shift-right-arithmetic", "shift-right-logical",
    "sign", "stochastic-convert", "subtract", "xor",
}  # fmt: skip

#: Opcodes whose result is their first operand where that lies: not what may copy it.
IN_PLACE: Final = frozenset(
    {"add-dependency", "bitcast", "domain", "opt-barrier", "optimization-barrier"}
)

#: Opcodes of instructions for which a device runs nothing.
NOTHING_RUNS: Final = frozenset(
    {
        *IN_PLACE,
        "parameter",
        "constant",
        "tuple",
        "get-tuple-element",
        "after-all",
        "partition-id",
        "replica-id",
    }
)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction; what is not an attribute here is parsed when it is asked for.

    Attributes:
        name: without ``%``.
        opcode: ``all-gather``, ``fusion``, ...
        shape_text: its shape as it is written.
        rest: what is written behind the opcode's parenthesis: operands and attributes.
        is_root: whether it is the result of its computation.
        line: its line in the text, counted from 1.
    """

    name: str
    opcode: str
    shape_text: str
    rest: str
    is_root: bool
    line: int

    @property
    def shape(self) -> Shape:
        """Its shape.

        Raises:
            SdyscopeError: it can't be read.
        """
        try:
            return parse_shape(self.shape_text)
        except SdyscopeError as error:
            raise SdyscopeError(error.message, line=self.line) from error

    @property
    def operands(self) -> tuple[str, ...]:
        """Names of the operands, without ``%``; of a parameter or constant what stands there."""
        names = _operands(self.rest)
        return self._cut_off() if names is None else names

    @property
    def operand_text(self) -> str:
        """What stands between the parentheses."""
        end = end_of_operands(self.rest)
        return self._cut_off() if end < 0 else self.rest[:end]

    @property
    def base(self) -> str:
        """The opcode of what may run asynchronously, as if it did not."""
        return self.opcode.removesuffix("-start").removesuffix("-done")

    @property
    def parameter(self) -> int | None:
        """The number of a parameter; None of anything else."""
        text = self.operand_text.strip() if self.opcode == "parameter" else ""
        return int(text) if text.isdecimal() else None

    @property
    def element(self) -> int | None:
        """Which element of a tuple a `get-tuple-element` takes; None of anything else."""
        match = _INDEX.search(self.rest) if self.opcode == "get-tuple-element" else None
        return None if match is None else int(match[1])

    @property
    def attributes(self) -> Mapping[str, str]:
        """The attributes behind the operands, by name, as they are written."""
        attributes = _attributes(self.rest)
        return self._cut_off() if attributes is None else attributes

    @property
    def metadata(self) -> dict[str, str]:
        """The fields of ``metadata={...}``; strings without their quotes."""
        text = metadata_text(self.rest)
        return metadata_fields(self.attributes.get("metadata", "{}") if text is None else text)

    @property
    def op_name(self) -> str:
        """The scope path that JAX gave the op: ``jit(step)/jvp(layer0)/dot_general``."""
        name = _op_name(self.rest)
        return self.metadata.get("op_name", "") if name is None else name

    @property
    def call_target(self) -> str:
        """What a custom call calls; empty of any other instruction."""
        return self.attributes.get("custom_call_target", "").strip('"')

    @property
    def sharding(self) -> str:
        """The sharding as it is written; empty without one."""
        return self.attributes.get("sharding", "")

    @property
    def channel_id(self) -> int | None:
        """The channel that a collective communicates over; None without one."""
        text = self.attributes.get("channel_id", "")
        return int(text) if text.isdecimal() else None

    @property
    def replica_groups(self) -> ReplicaGroups | None:
        """Which devices work together; None where it does not say.

        Raises:
            SdyscopeError: they can't be read.
        """
        text = self.attributes.get("replica_groups")
        if text is None:
            return None
        try:
            return parse_replica_groups(text)
        except SdyscopeError as error:
            raise SdyscopeError(
                f"the replica groups of %{self.name} can't be read: {error.message}", line=self.line
            ) from error

    def called(self, *names: str) -> tuple[str, ...]:
        """Names of the computations in these attributes, in order."""
        if self.opcode == "fusion" and (match := _FUSED.search(self.rest)) is not None:
            return (match[1],) if "calls" in names else ()
        attributes = self.attributes
        return tuple(
            word.strip().removeprefix("%")
            for name in names
            if name in attributes
            for word in attributes[name].strip("{}").split(",")
            if word.strip()
        )

    def _cut_off(self) -> NoReturn:
        raise SdyscopeError(
            f"the operands of %{self.name} do not end; the text is cut off", line=self.line
        )


# Who looks at a program asks for the same again and again: its flow, its memory, its cost.
@lru_cache(_REMEMBERED)
def _operands(rest: str) -> tuple[str, ...] | None:
    end = end_of_operands(rest)
    return None if end < 0 else operand_names(rest[:end])


@lru_cache(_REMEMBERED)
def _op_name(rest: str) -> str | None:
    text = metadata_text(rest)
    return None if text is None else metadata_op_name(text)


@lru_cache(_REMEMBERED)
def _attributes(rest: str) -> Mapping[str, str] | None:
    end = end_of_operands(rest)
    return None if end < 0 else MappingProxyType(split_attributes(rest[end + 1 :]))


@dataclass(frozen=True)
class Computation(Once):
    """One computation.

    Attributes:
        name: without ``%``.
        instructions: in the order in which they are written, by name.
        is_entry: whether the module begins here.
        line: its first line, counted from 1.
    """

    name: str
    instructions: Mapping[str, Instruction]
    is_entry: bool
    line: int

    @property
    def root(self) -> Instruction | None:
        """The instruction that is its result: the one marked so, or the last."""
        return self.once("root", self._root)

    def _root(self) -> Instruction | None:
        last = None
        for last in self.instructions.values():
            if last.is_root:
                return last
        return last

    @property
    def results(self) -> tuple[str, ...]:
        """The names of what it gives: of a tuple its elements."""
        root = self.root
        if root is None:
            return ()
        return root.operands if root.opcode == "tuple" else (root.name,)

    @property
    def parameters(self) -> Mapping[int, Instruction]:
        """Its parameters by their numbers."""
        return self.once(
            "parameters",
            lambda: {
                number: instruction
                for instruction in self.instructions.values()
                if (number := instruction.parameter) is not None
            },
        )

    @property
    def users(self) -> Mapping[str, list[Instruction]]:
        """The instructions that take the result of another, by the name of that."""
        return self.once("users", self._users)

    def _users(self) -> Mapping[str, list[Instruction]]:
        users: dict[str, list[Instruction]] = {}
        for instruction in self.instructions.values():
            if instruction.opcode not in ("parameter", "constant"):
                for operand in dict.fromkeys(instruction.operands):
                    users.setdefault(operand, []).append(instruction)
        return users

    def operands(self, instruction: Instruction) -> list[Instruction | None]:
        """What makes the operands of one of its instructions; None of what is not in it."""
        return [self.instructions.get(name) for name in instruction.operands]

    def behind(self, name: str, opcodes: Container[str]) -> Instruction | None:
        """The instruction of a name, or what is behind those that pass it on.

        Args:
            name: its name.
            opcodes: what passes its first operand on.
        """
        instruction = self.instructions.get(name)
        while instruction is not None and instruction.opcode in opcodes:
            before = self.instructions.get(next(iter(instruction.operands), ""))
            if before is None:
                break
            instruction = before
        return instruction


@dataclass(frozen=True, slots=True)
class UnreadLine:
    """A line that the reader could make nothing of.

    Attributes:
        line: counted from 1.
        text: what stands there, cut to 200 characters.
    """

    line: int
    text: str

    @classmethod
    def of(cls, line: int, text: str) -> UnreadLine:
        """Such a line, cut to its beginning."""
        return cls(line, text.strip()[:_KEPT])


@dataclass(frozen=True)
class StackFrames:
    """The tables that ``stack_frame_id`` refers to; numbers count from 1.

    Attributes:
        files: ``FileNames``.
        functions: ``FunctionNames``.
        locations: ``FileLocations``: (file, function, line, column).
        frames: ``StackFrames``: (location, parent frame); the parent 0 is none.
    """

    files: dict[int, str] = field(default_factory=dict)
    functions: dict[int, str] = field(default_factory=dict)
    locations: dict[int, tuple[int, int, int, int]] = field(default_factory=dict)
    frames: dict[int, tuple[int, int]] = field(default_factory=dict)

    def innermost(self) -> set[int]:
        """The frames that call no other."""
        return self.frames.keys() - {parent for _, parent in self.frames.values()}

    def place(self, frame: int) -> int:
        """The location of a frame; 0 of one that is not there."""
        return self.frames.get(frame, (0, 0))[0]

    def stack(self, frame: int) -> tuple[SourceLocation, ...]:
        """The lines of a frame and of those that called it, innermost first."""
        sources: list[SourceLocation] = []
        seen: set[int] = set()
        while frame in self.frames and frame not in seen:
            seen.add(frame)
            location, frame = self.frames[frame]
            if location in self.locations:
                file, function, line, column = self.locations[location]
                name = self.functions.get(function, "")
                sources.append(SourceLocation(self.files.get(file, ""), line, column, name))
        return tuple(sources)


@dataclass(frozen=True)
class HloModule(Once):
    """A module.

    Attributes:
        name: its name.
        attributes: those in its first line, by name, as they are written.
        computations: by name, in the order of the text.
        entry: name of the computation that it begins with.
        stack_frames: its tables of source lines.
        not_understood: the first of the lines that could not be read.
        not_understood_count: how many there are.
    """

    name: str
    attributes: Mapping[str, str]
    computations: Mapping[str, Computation]
    entry: str
    stack_frames: StackFrames
    not_understood: tuple[UnreadLine, ...] = ()
    not_understood_count: int = 0

    @property
    def num_partitions(self) -> int:
        """For how many devices the module is partitioned; 1 where it does not say."""
        text = self.attributes.get("num_partitions", "1")
        return int(text) if text.isdecimal() else 1

    @property
    def replica_count(self) -> int:
        """How many times the partitions are there; 1 where it does not say."""
        text = self.attributes.get("replica_count", "1")
        return int(text) if text.isdecimal() else 1

    def instructions(self) -> Iterator[Instruction]:
        """Every instruction of every computation."""
        for computation in self.computations.values():
            yield from computation.instructions.values()

    def called(self, instruction: Instruction, *names: str) -> list[Computation]:
        """The computations in these attributes of an instruction, in order, that are there."""
        called = instruction.called(*names)
        return [self.computations[name] for name in called if name in self.computations]

    def fused(self, instruction: Instruction) -> Computation | None:
        """The computation of a fusion; None of anything else."""
        match = _FUSED.search(instruction.rest) if instruction.opcode == "fusion" else None
        return None if match is None else self.computations.get(match[1])

    def source(self, instruction: Instruction) -> SourceLocation | None:
        """The line of an instruction at which the program's author can do something."""
        return own_line(self.stack(instruction), self.sites)

    def callers(self, instruction: Instruction) -> tuple[SourceLocation, ...]:
        """The lines behind that one."""
        return callers(self.stack(instruction), self.sites)

    @cached_property
    def sites(self) -> Sites:
        """Which lines of the program tell its instructions apart, read once.

        The tables keep the lines of what the compiler has removed: of the constraints of one
        helper, say, one alone may be left. What stood there is told by what else stands there.
        """
        frames = {
            (int(match[1]), _ONLY_SHARDS.search(instruction.rest) is not None)
            for instruction in self.instructions()
            if (match := _FRAME.search(instruction.rest)) is not None
        }
        sharding = {self.stack_frames.place(frame) for frame, only in frames if only}
        frames.update(
            (frame, self.stack_frames.place(frame) in sharding)
            for frame in self.stack_frames.innermost() - {frame for frame, _ in frames}
        )
        return sites_of((self.stack_frames.stack(frame), only) for frame, only in sorted(frames))

    def stack(self, instruction: Instruction) -> tuple[SourceLocation, ...]:
        """The source lines of an instruction, innermost first; one where there are no tables."""
        metadata = instruction.metadata
        frame = metadata.get("stack_frame_id", "")
        if frame.isdecimal() and (sources := self.stack_frames.stack(int(frame))):
            return sources
        file = metadata.get("source_file", "")
        if not file:
            return ()
        line, column = (metadata.get(name, "") for name in ("source_line", "source_column"))
        return (SourceLocation(file, _whole(line), _whole(column)),)


def _whole(text: str) -> int:
    return int(text) if text.isdecimal() else 0
