"""A reader of XLA's dumps of HLO that shares nothing with ``sdyscope.hlo`` and ``sdyscope.graph``.

XLA's own parser reads a dump, and prints each instruction on a line; shardings are laid out by
``HloSharding``. What is left to regular expressions are the attributes at the end of such a line.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np

from sdyscope.stages.audit.facts import AuditedCollective, Layout

_ARRAY = re.compile(r"([a-z]\w*)\[([\d,<=]*)\]")
_BITS = re.compile(r"[a-z]+?(\d+)")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_CALLED = re.compile(
    r"(?:to_apply|calls|body|condition|true_computation|false_computation)=%([^\s,)]+)"
)
_BODY = re.compile(r"body=%([^\s,)]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_OP_NAME = re.compile(r'metadata=\{[^{}]*?op_name="((?:[^"\\]|\\.)*)"')
_IOTA = re.compile(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_PARAMETER = re.compile(r" parameter\((\d+)\)")
_INDEX = re.compile(r", index=(\d+)")
_PAIRS = re.compile(r"\{([\d,]+)\}")
_ORDER = r"(?:\[([\d,]+)\](?:T\(([\d,]+)\))?|([\d,]+))"
_OF_MESH = re.compile(rf"mesh\[([^\]]*)\](?:, device_ids=\({_ORDER}\))?\s*\{{([^}}]*)\}}")

#: Opcodes that only put elements elsewhere, and what tells them where.
_MOVING = frozenset(
    {
        "bitcast",
        "constant",
        "copy",
        "dynamic-slice",
        "get-tuple-element",
        "iota",
        "pad",
        "parameter",
        "partition-id",
        "reshape",
        "slice",
        "transpose",
        "tuple",
    }
)
#: Those that make what was not there.
_GIVING = frozenset({"constant", "iota", "parameter", "partition-id"})

_TIMES_THE_REST = {"all-gather": 1, "reduce-scatter": 1, "all-to-all": 1, "all-reduce": 2}
_KINDS = (
    *_TIMES_THE_REST,
    "ragged-all-to-all",
    "collective-permute",
    "collective-broadcast",
)
#: Collectives that give each device other elements in place of its own.
_EXCHANGING = ("all-to-all", "collective-permute")
#: Those that give the elements that they take.
SHIFTING = frozenset({"all-gather", "collective-broadcast", *_EXCHANGING})


@dataclass(frozen=True)
class DumpedInstruction:
    """One instruction.

    Attributes:
        name: without ``%``.
        opcode: HLO's.
        line: as XLA prints it.
        operands: names of its operands.
        computation: the name of that which it is in.
        is_root: whether it is what that returns.
    """

    name: str
    opcode: str
    line: str
    operands: tuple[str, ...]
    computation: str
    is_root: bool

    @cached_property
    def type(self) -> str:
        """The text of its type."""
        rest = self.line.partition(" = ")[2]
        end = _closing(rest, 0) + 1 if rest.startswith("(") else rest.index(" ")
        return rest[:end]

    @property
    def bytes(self) -> int:
        """What its result takes on one device."""
        return _bytes(self.type)

    @cached_property
    def op_name(self) -> str:
        """The ``op_name`` of its metadata; empty without one."""
        # The sharding can have metadata of its own, and stands before.
        names = _OP_NAME.findall(self.line)
        return names[-1] if names else ""

    @cached_property
    def parameter(self) -> int | None:
        """Which parameter of its computation it is."""
        number = _PARAMETER.search(self.line)
        return int(number[1]) if self.opcode == "parameter" and number else None

    @cached_property
    def index(self) -> int | None:
        """Which element of a tuple it takes out."""
        index = _INDEX.search(self.line)
        return int(index[1]) if self.opcode == "get-tuple-element" and index else None

    @property
    def op_names(self) -> set[str]:
        """Those of the instructions that XLA made one."""
        return set(filter(None, self.op_name.split(";")))

    @cached_property
    def sharding(self) -> str:
        """What is written after ``sharding=``; empty where nothing is."""
        start = self.line.find(", sharding={")
        if start < 0:
            return ""
        start += len(", sharding=")
        return self.line[start : _closing(self.line, start) + 1]


@dataclass(frozen=True)
class DumpedHlo:
    """A dumped module.

    Attributes:
        instructions: all of them, by name.
        entry: the name of the computation that a device runs.
        computations: the instructions of each.
    """

    instructions: dict[str, DumpedInstruction]
    entry: str
    computations: dict[str, list[DumpedInstruction]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str, hlo: Any) -> DumpedHlo:
        """Reads a dump with XLA's parser.

        Args:
            text: the dump.
            hlo: jaxlib's module of HLO bindings.

        Raises:
            Exception: XLA's error, where it can't.
        """
        module = hlo.hlo_module_from_text(text)
        printed = module.to_string()
        roots = set(re.findall(r"^\s+ROOT %?([^\s]+) = ", printed, re.MULTILINE))
        computations: dict[str, list[DumpedInstruction]] = {}
        for computation in module.computations():
            inside = list(computation.instructions())
            computations[computation.name] = [
                _instruction(instruction, computation.name, instruction.name in roots)
                for instruction in inside
            ]
        (entry,) = re.findall(r"^ENTRY %?([^\s(]+)", printed, re.MULTILINE)
        every = {
            instruction.name: instruction
            for inside in computations.values()
            for instruction in inside
        }
        return cls(every, entry, computations)

    @cached_property
    def parameters(self) -> list[DumpedInstruction]:
        """Those of the entry, in order."""
        instructions = [
            instruction
            for instruction in self.computations[self.entry]
            if instruction.opcode == "parameter"
        ]
        return sorted(
            instructions,
            key=lambda instruction: int(instruction.line.partition("parameter(")[2].split(")")[0]),
        )

    @cached_property
    def users(self) -> dict[str, list[tuple[DumpedInstruction, int]]]:
        """By instruction those that take what it makes, each with the place as which."""
        users: dict[str, list[tuple[DumpedInstruction, int]]] = defaultdict(list)
        for instruction in self.instructions.values():
            for place, operand in enumerate(instruction.operands):
                users[operand].append((instruction, place))
        return users

    @cached_property
    def callers(self) -> dict[str, list[DumpedInstruction]]:
        """The instructions that run each computation."""
        callers: dict[str, list[DumpedInstruction]] = defaultdict(list)
        for instruction in self.instructions.values():
            for name, _ in self.called(instruction):
                callers[name].append(instruction)
        return callers

    @cached_property
    def given(self) -> dict[str, dict[int, str]]:
        """The parameters of each computation, by their numbers."""
        return {
            computation: {
                each.parameter: each.name for each in inside if each.parameter is not None
            }
            for computation, inside in self.computations.items()
        }

    def root(self, computation: str) -> DumpedInstruction:
        """What a computation returns."""
        return next(
            instruction for instruction in self.computations[computation] if instruction.is_root
        )

    def called(self, caller: DumpedInstruction) -> Iterator[tuple[str, int]]:
        """The computations that an instruction runs, and how often, by XLA's own trip counts."""
        trips = _TRIPS.search(caller.line)
        times = int(trips[1]) if caller.opcode == "while" and trips else 1
        for name in _CALLED.findall(caller.line):
            yield name, times
        for branches in _BRANCHES.findall(caller.line):
            for name in branches.split(","):
                yield name.strip().lstrip("%"), 1

    def body(self, loop: DumpedInstruction) -> str:
        """The computation that a loop repeats."""
        (body,) = _BODY.findall(loop.line)
        return str(body)

    def behind(self, instruction: DumpedInstruction) -> list[DumpedInstruction]:
        """What makes what one takes: the instructions that only move it, and what they move."""
        behind = {instruction.name: instruction}
        ahead = [instruction]
        for each in ahead:
            for name in each.operands:
                operand = self.instructions[name]
                if name not in behind and operand.opcode not in _GIVING:
                    behind[name] = operand
                    ahead += [operand] if self.only_moves(operand) else []
        return [*behind.values()][1:]

    def only_moves(self, instruction: DumpedInstruction) -> bool:
        """Whether an instruction gives the elements that it takes, or some of them."""
        if instruction.opcode == "fusion":
            (called,) = _CALLED.findall(instruction.line)
            return all(each.opcode in _MOVING for each in self.computations[called])
        kind = instruction.opcode.removesuffix("-start").removesuffix("-done")
        return kind in _MOVING or kind in SHIFTING

    @cached_property
    def times(self) -> dict[str, int]:
        """How often a step runs each computation."""
        callers: dict[str, list[tuple[str, int]]] = defaultdict(list)
        for inside in self.computations.values():
            for instruction in inside:
                for name, times in self.called(instruction):
                    callers[name].append((instruction.computation, times))

        @cache
        def count(name: str) -> int:
            if name == self.entry:
                return 1
            return sum(times * count(caller) for caller, times in callers[name])

        return {name: count(name) for name in self.computations}


def _instruction(instruction: Any, computation: str, is_root: bool) -> DumpedInstruction:
    line = instruction.to_string()
    return DumpedInstruction(
        instruction.name,
        _opcode(line),
        line,
        tuple(operand.name for operand in instruction.operands()),
        computation,
        is_root,
    )


def _opcode(line: str) -> str:
    rest = line.partition(" = ")[2]
    end = _closing(rest, 0) + 1 if rest.startswith("(") else rest.index(" ")
    return rest[end:].strip().partition("(")[0]


def _closing(text: str, start: int) -> int:
    """Where the bracket that opens at ``start`` closes; what is quoted is skipped."""
    depth, quoted = 0, False
    for at in range(start, len(text)):
        character = text[at]
        if character == '"' and text[at - 1] != "\\":
            quoted = not quoted
        elif not quoted and character in "({[":
            depth += 1
        elif not quoted and character in ")}]":
            depth -= 1
            if depth == 0:
                return at
    return len(text) - 1


def shapes(type_: str) -> list[tuple[str, tuple[int, ...]]]:
    """The arrays of an HLO type: element type and dimensions."""
    plain = re.sub(r"/\*.*?\*/|\{[^}]*\}", "", type_)
    return [
        (dtype, tuple(int(size.lstrip("<=")) for size in dims.split(",") if size))
        for dtype, dims in _ARRAY.findall(plain)
    ]


def _bytes(type_: str) -> int:
    total = 0
    for dtype, dims in shapes(type_):
        bits = 8 if dtype == "pred" else int(match[1]) if (match := _BITS.match(dtype)) else 0
        total += -(-bits * math.prod(dims) // 8)
    return total


def layout(text: str, rank: int, hlo: Any) -> Layout:
    """How XLA lays out an array of ``rank`` dimensions with a sharding.

    Args:
        text: what is written in HLO, with its braces; empty for nothing.
        rank: how many dimensions the array has.
        hlo: jaxlib's module of HLO bindings.
    """
    if not text:
        return Layout("", [[0] * rank])
    return of_sharding(hlo.HloSharding.from_string(text), rank)


def of_sharding(sharding: Any, rank: int) -> Layout:
    """The same of an ``HloSharding``."""
    text = str(sharding)
    if "mesh[" in text and hasattr(sharding, "v3_to_v2_sharding"):
        sharding = type(sharding).v3_to_v2_sharding(sharding)
    if not sharding.is_tiled():
        return Layout(text, [[0] * rank])
    tiles = list(sharding.tile_assignment_dimensions())
    devices = np.array(sharding.tile_assignment_devices()).reshape(tiles)
    blocks = np.zeros((devices.size, rank), int)
    for dimension in range(rank):
        index = np.arange(tiles[dimension]).reshape([-1] + [1] * (len(tiles) - dimension - 1))
        blocks[devices.reshape(-1), dimension] = np.broadcast_to(index, tiles).reshape(-1)
    return Layout(text, blocks.tolist() if blocks.any() else [[0] * rank])


def moved(pairs: Iterable[Sequence[int]], layouts: Iterable[Layout]) -> tuple[int, ...]:
    """The dimensions whose blocks differ between devices that send and receive."""
    differ = {
        dimension
        for each in layouts
        if len(each.blocks) > 1
        for source, target in pairs
        for dimension, (own, other) in enumerate(
            zip(each.blocks[source], each.blocks[target], strict=True)
        )
        if own != other
    }
    return tuple(sorted(differ))


def groups_of(text: str, num_devices: int) -> list[list[int]]:
    """Replica groups, or (source, target), as HLO writes them; nothing written is all devices."""
    if match := _IOTA.fullmatch(text.strip()):
        dims, reshaped, order = map(_integers, match.groups())
        devices = np.arange(math.prod(reshaped)).reshape(reshaped)
        if order:
            devices = devices.transpose(order)
        return [list(map(int, row)) for row in devices.reshape(dims[0], -1)]
    if match := _OF_MESH.search(text):
        return _of_mesh(*match.groups())
    pairs = [_integers(pair) for pair in _PAIRS.findall(text)]
    return pairs or [list(range(num_devices))]


def groups_of_line(line: str, num_devices: int) -> list[list[int]]:
    """The same of a collective, as XLA prints it."""
    name = "source_target_pairs=" if "source_target_pairs=" in line else "replica_groups="
    return groups_of(_attribute(line, name), num_devices)


def _integers(text: str | None) -> list[int]:
    return [int(part) for part in (text or "").split(",") if part]


def _of_mesh(
    axes: str, shape: str | None, order: str | None, ids: str | None, over: str
) -> list[list[int]]:
    sizes = {name: int(size) for name, size in re.findall(r"'([^']+)'=(\d+)", axes)}
    devices = np.arange(math.prod(sizes.values()))
    if shape is not None:
        devices = devices.reshape(_integers(shape)).transpose(_integers(order) or None).ravel()
    elif ids is not None:
        devices = np.array(_integers(ids))
    return over_axes(
        [
            (name, int(pre or 1), int(size or sizes[name]))
            for name, pre, size in re.findall(r"'([^']+)'(?::\((\d+)\)(\d+))?", over)
        ],
        sizes,
        devices.tolist(),
    )


def over_axes(
    axes: Sequence[tuple[str, int, int]], sizes: dict[str, int], devices: Sequence[int]
) -> list[list[int]]:
    """The groups of devices that differ along some axes only.

    Args:
        axes: name, size of the parts before, and own size of each axis or part of one.
        sizes: the mesh, in order.
        devices: the device at each place of the mesh.
    """
    place = np.indices(tuple(sizes.values())).reshape(len(sizes), -1)
    along = dict(zip(sizes, place, strict=True))
    rest = {name: along[name].copy() for name in sizes}
    for name, pre, size in axes:
        after = sizes[name] // (pre * size)
        rest[name] = rest[name] - rest[name] // after % size * after
    groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for position, key in enumerate(zip(*(rest[name].tolist() for name in sizes), strict=True)):
        groups[key].append(devices[position])
    return list(groups.values())


def collectives(module: DumpedHlo, num_devices: int) -> Iterator[AuditedCollective]:
    """The collectives of a final module; ``ops`` is left empty, ``scopes`` has the name."""
    for instruction in module.instructions.values():
        kind = instruction.opcode.removesuffix("-start")
        if kind not in _KINDS or instruction.opcode.endswith("-done"):
            continue
        count = module.times[instruction.computation]
        if count == 0:
            continue
        groups = groups_of_line(instruction.line, num_devices)
        size = sum(module.instructions[name].bytes for name in instruction.operands)
        if kind == "all-gather":
            size = instruction.bytes - (size if instruction.opcode.endswith("-start") else 0)
        sent = _sent(kind, size, len(groups[0]))
        behind = module.behind(instruction)
        along = _integers(_attribute(instruction.line, "dimensions=").strip("{}"))
        yield AuditedCollective(
            name=instruction.name,
            kind=kind,
            groups=groups,
            bytes=size,
            sent=sent,
            received=sent,
            count=count,
            ops=[],
            scopes=[instruction.op_name],
            dims=[dims for _, dims in shapes(instruction.type)],
            along=tuple(along),
            is_of_result=any(
                not instruction.op_names.isdisjoint(each.op_names)
                for each in behind
                if not module.only_moves(each)
            ),
            is_moved_before=any(each.opcode.startswith(_EXCHANGING) for each in behind),
        )


def _attribute(line: str, name: str) -> str:
    start = line.find(f" {name}")
    if start < 0:
        return ""
    start += len(name) + 1
    if line.startswith("mesh[", start):
        return line[start : _closing(line, line.index("{", start)) + 1]
    if line[start] == "[":
        return (re.match(r"[^\s]+?(?=, |$)", line[start:]) or [""])[0]
    return line[start : _closing(line, start) + 1]


def _sent(kind: str, size: int, members: int) -> int:
    factor = _TIMES_THE_REST.get(kind)
    if factor is None:
        return size if members > 1 else 0
    return math.ceil(factor * (members - 1) * size / members)
