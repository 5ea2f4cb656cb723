"""What one device computes and moves through its memory in a step, loops multiplied out.

XLA's cost analysis counts the body of a loop once ("we cannot precisely compute the cost of a while
node", ``xla/service/hlo_cost_analysis.cc``). So the work is counted here from the instructions by
the same rules, once in XLA's way and once with the loops' trip counts: what XLA says is kept, and
only what the further trips add to it is our own count.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from sdyscope.analysis.cost.flops import (
    elementwise_flops,
    estimated_flops,
    matmul_flops,
    matmul_type,
    transcendentals,
    window_size,
)
from sdyscope.facts.work import Work
from sdyscope.hlo import NOTHING_RUNS, Computation, HloModule, Instruction, Shape, trip_count
from sdyscope.hlo.model import BRANCHES, CALLED
from sdyscope.values.entry_layout import stored_array


@dataclass(frozen=True, slots=True)
class WorkCount:
    """The work of a module.

    Attributes:
        once: as XLA's cost analysis does it: with every loop's body counted once, and without
            custom calls, which it marks with -1 each.
        total: with loops as often as they run; those of unknown trip count once.
        loops: how many loops there are.
        unknown_trips: how many of them have a trip count that the text does not tell.
        conditionals: how many conditionals there are; of each the dearest branch counts.
        libraries: how many custom calls there are whose operations are known here, but not to XLA's
            cost analysis, by target: matrix products and convolutions of libraries.
        not_counted: how many custom calls there are whose operations are not known, by target.
    """

    once: Work
    total: Work
    loops: int
    unknown_trips: int
    conditionals: int
    libraries: Mapping[str, int]
    not_counted: Mapping[str, int]

    __document__ = ("loops", "unknown_trips", "conditionals", "libraries", "not_counted")


#: Ops that move nothing.
_FREE = NOTHING_RUNS | {"while", "conditional", "call"}

#: What was counted at its start.
_CONTINUED = re.compile(r"-(?:done|update)$")

#: Ops that apply a computation to their elements.
_APPLIED = frozenset({"map", "reduce-window", "scatter", "select-and-scatter"})

#: Ops that read only as much as they give.
_SLICES = frozenset({"dynamic-slice", "slice", "gather"})

#: What XLA's cost analysis says of a custom call (``HandleCustomCall``).
_UNKNOWN_TO_XLA = Work(other=-1.0, bytes=-1.0)

#: Custom calls whose last result is memory for themselves.
_WITH_WORKSPACE = ("__cublas$", "__cudnn$")

#: Custom calls that move data and compute nothing.
_ONLY_MOVES = frozenset({"ZeroCrop"})

#: Custom calls that are an assertion or bookkeeping of the compiler's own.
_BOOKKEEPING = frozenset(
    {
        "AllocateBuffer",
        "SliceId",
        "ConcatBitcast",
        "AsyncCollectiveStart",
        "AsyncCollectiveDone",
        "Sharding",
        "AssumeGatherIndicesInBound",
        "SPMDFullToShardShape",
        "SPMDShardToFullShape",
        "xla.sdy.GlobalToLocalShape",
        "xla.sdy.LocalToGlobalShape",
        "annotate_device_placement",
        "MoveToHost",
        "MoveToDevice",
    }
)


def count_work(module: HloModule) -> WorkCount:
    """The work of one run of a module, counted once; it must not call itself (``executions``)."""
    return module.once(count_work, lambda: _counted(module))


def _counted(module: HloModule) -> WorkCount:
    counter = _Counter(module)
    once, total = counter.computation(module.computations[module.entry], moves=True)
    return WorkCount(
        once,
        total,
        counter.loops,
        counter.unknown_trips,
        counter.conditionals,
        dict(counter.libraries.most_common()),
        dict(counter.not_counted.most_common()),
    )


def instruction_work(module: HloModule) -> Callable[[Computation, Instruction], Work]:
    """What counts the work of one instruction of a module, with all that it calls.

    Args:
        module: the module; it must not call itself.
    """
    counter = _Counter(module)

    def count(computation: Computation, instruction: Instruction) -> Work:
        pair = counter.instruction(computation, instruction, True)
        return Work() if pair is None else pair[1]

    return count


class _Counter:
    def __init__(self, module: HloModule) -> None:
        self.module = module
        self.known: dict[tuple[str, bool], tuple[Work, Work]] = {}
        self.loops = self.unknown_trips = self.conditionals = 0
        self.libraries: Counter[str] = Counter()
        self.not_counted: Counter[str] = Counter()

    def computation(self, computation: Computation, *, moves: bool) -> tuple[Work, Work]:
        """(once, total); ``moves`` is whether its instructions go through memory."""
        key = (computation.name, moves)
        if key not in self.known:
            self.known[key] = _sum(
                pair
                for instruction in computation.instructions.values()
                if (pair := self.instruction(computation, instruction, moves)) is not None
            )
        return self.known[key]

    def instruction(
        self, computation: Computation, instruction: Instruction, moves: bool
    ) -> tuple[Work, Work] | None:
        match instruction.opcode:
            case "while":
                return self.loop(computation, instruction, moves)
            case "conditional":
                return self.branches(instruction, moves)
            case "call" | "call-start" | "async-start":
                inner = self.module.called(instruction, *CALLED)
                pairs = [self.computation(computation, moves=moves) for computation in inner]
                return _sum(pairs)
            case "parameter" | "constant" | "tuple" | "get-tuple-element" | "bitcast":
                return None
        bytes_, on_chip = self.moved(computation, instruction) if moves else (0.0, 0.0)
        if instruction.opcode in ("fusion", "fusion-start"):
            inner = self.module.called(instruction, "calls")
            once, total = _sum(
                [self.computation(computation, moves=False) for computation in inner]
            )
            moved = Work(bytes=bytes_, on_chip=on_chip)
            return _sum([(once, total), (moved, moved)])
        both = self.flops(computation, instruction)
        if moves:
            both = both.plus(Work(bytes=bytes_, on_chip=on_chip))
        if not (both.flops or both.transcendentals or both.bytes):
            return None
        if _target(instruction) and not _target(instruction).startswith("tpu"):
            return _UNKNOWN_TO_XLA, both
        return both, both

    def flops(self, computation: Computation, instruction: Instruction) -> Work:
        matmul = matmul_flops(computation, instruction)
        if matmul is not None:
            if target := _target(instruction):
                self.libraries[target] += 1
            return Work({matmul_type(computation, instruction): matmul})
        if instruction.opcode in ("custom-call", "custom-call-start"):
            if target := _target(instruction):
                self.not_counted[target] += 1
            return Work()
        if instruction.opcode == "reduce":
            return Work(other=self.reduction(computation, instruction))
        if instruction.opcode in _APPLIED:
            return self.applied(computation, instruction)
        if instruction.opcode in ("all-reduce", "all-reduce-start", "reduce-scatter"):
            return Work(other=instruction.shape.count)
        functions = transcendentals(instruction)
        if functions:
            return Work(transcendentals=functions)
        return Work(
            other=elementwise_flops(instruction) or estimated_flops(computation, instruction)
        )

    def applied(self, computation: Computation, instruction: Instruction) -> Work:
        """What an op applies to elements: all but one of each window, each update, each element."""
        operands = computation.operands(instruction)
        sizes = [0 if each is None else math.prod(each.shape.dimensions) for each in operands]
        result = math.prod(instruction.shape.leaves[0].dimensions)
        times: dict[str, int] = {"to_apply": result}
        match instruction.opcode:
            case "reduce-window":
                times = {"to_apply": (window_size(instruction) - 1) * result}
            case "select-and-scatter":
                source = sizes[1]
                times = {"select": (window_size(instruction) - 1) * source, "scatter": source}
            case "scatter":
                # (operands, indices, updates)
                times = {"to_apply": sizes[len(sizes) // 2 + 1]}
        work = Work()
        for name, count in times.items():
            inner = self.module.called(instruction, name)
            each = _sum([self.computation(scalar, moves=False) for scalar in inner])
            work = work.plus(each[1], count)
        return work

    def reduction(self, computation: Computation, instruction: Instruction) -> float:
        """One run of the combining computation for each element that disappears."""
        operand = computation.instructions.get(next(iter(instruction.operands), ""))
        if operand is None:
            return 0
        gone = math.prod(operand.shape.dimensions)
        gone -= math.prod(instruction.shape.leaves[0].dimensions)
        each = _sum(
            [
                self.computation(computation, moves=False)
                for computation in self.module.called(instruction, "to_apply")
            ]
        )
        return gone * each[1].flops

    def loop(
        self, computation: Computation, instruction: Instruction, moves: bool
    ) -> tuple[Work, Work]:
        self.loops += 1
        trips = trip_count(self.module, computation, instruction)
        self.unknown_trips += trips is None
        body = _sum(
            [
                self.computation(computation, moves=moves)
                for computation in self.module.called(instruction, "body")
            ]
        )
        test = _sum(
            [
                self.computation(computation, moves=moves)
                for computation in self.module.called(instruction, "condition")
            ]
        )
        times = 1 if trips is None else trips
        tests = 1 if trips is None else trips + 1
        return body[0].plus(test[0]), Work().plus(body[1], times).plus(test[1], tests)

    def branches(self, instruction: Instruction, moves: bool) -> tuple[Work, Work]:
        self.conditionals += 1
        pairs = [
            self.computation(computation, moves=moves)
            for computation in self.module.called(instruction, *BRANCHES)
        ]
        dearest = max(pairs, key=lambda pair: (pair[1].flops, pair[1].bytes), default=None)
        return dearest or (Work(), Work())

    def moved(self, computation: Computation, instruction: Instruction) -> tuple[float, float]:
        """(bytes, of these on the chip) that an instruction reads and writes."""
        if instruction.opcode in _FREE or _CONTINUED.search(instruction.opcode):
            return 0, 0
        operands = computation.operands(instruction)
        shapes = [None if operand is None else operand.shape for operand in operands]
        result = instruction.shape
        if instruction.opcode == "custom-call":
            target = instruction.call_target
            if target in _BOOKKEEPING:
                return 0, 0
            if target.startswith(_WITH_WORKSPACE) and len(result.elements) > 1:
                # (result, ..., workspace)
                shapes += result.elements[1:-1]
                result = result.elements[0]
        if instruction.opcode in _SLICES:
            return _weighed([(result, 1.0), (_in_space(result, shapes[0]), 1.0)])
        if instruction.opcode == "dynamic-update-slice" and len(shapes) > 1:
            return _weighed([(shapes[1], 1.0), (_in_space(shapes[1], result), 1.0)])
        if instruction.opcode == "slice-start" and len(result.elements) > 1:
            # ((operand), slice, context)
            return _weighed(
                [(result.elements[1], 1.0), (_in_space(result.elements[1], shapes[0]), 1.0)]
            )
        if instruction.opcode.endswith("-start") and len(result.elements) > 1:
            # (operand or destination, result or source, context)
            return _weighed([(result.elements[0], 1.0), (result.elements[1], 1.0)])
        if instruction.opcode == "fusion":
            inner = self.module.called(instruction, "calls")
            if len(inner) == 1:
                return _fused(inner[0], shapes, result)
        return _weighed([(result, 1.0), *((shape, 1.0) for shape in shapes)])


def _target(instruction: Instruction) -> str:
    """What a custom call calls; empty where it is none, or computes nothing."""
    if instruction.opcode not in ("custom-call", "custom-call-start"):
        return ""
    target = instruction.call_target
    return "" if target in _BOOKKEEPING or target in _ONLY_MOVES else target


def _fused(inner: Computation, operands: list[Shape | None], result: Shape) -> tuple[float, float]:
    """What a fusion reads and writes: of what it only slices, and only updates, just that."""
    pieces: list[tuple[Shape | None, float]] = []
    for number, shape in enumerate(operands):
        parameter = inner.parameters.get(number)
        read = None if parameter is None else _read(parameter, inner)
        whole = 0 if shape is None else shape.bytes
        share = 1.0 if read is None or not whole else min(read / whole, 1.0)
        pieces.append((shape, share))
    leaves = result.elements if result.is_tuple else (result,)
    for name, leaf in zip(inner.results, leaves, strict=False):
        written = 1.0
        update_root = inner.behind(name, ("bitcast",))
        if update_root is not None and update_root.opcode == "dynamic-update-slice" and leaf.bytes:
            update = inner.instructions.get(update_root.operands[1])
            written = 1.0 if update is None else min(update.shape.bytes / leaf.bytes, 1.0)
        pieces.append((leaf, written))
    return _weighed(pieces)


def _read(parameter: Instruction, inner: Computation) -> int | None:
    """Bytes that a fusion reads of a parameter; None for all of it."""
    read = 0
    waiting = [parameter]
    while waiting:
        value = waiting.pop()
        for user in inner.users.get(value.name, ()):
            if user.opcode == "bitcast":
                waiting.append(user)
            elif user.opcode in _SLICES and user.operands[0] == value.name:
                read += user.shape.bytes
            elif user.opcode == "dynamic-update-slice" and user.operands[0] == value.name:
                continue
            else:
                return None
    return read


def _in_space(shape: Shape | None, other: Shape | None) -> Shape | None:
    """A shape in the memory that another one is in."""
    if shape is None or other is None or shape.is_tuple or other.is_tuple:
        return shape
    return Shape(shape.dtype, shape.dimensions, (), other.layout)


def _weighed(pieces: list[tuple[Shape | None, float]]) -> tuple[float, float]:
    total = on_chip = 0.0
    for shape, share in pieces:
        if shape is None:
            continue
        for leaf in shape.leaves:
            stored, is_on_chip = _stored(leaf)
            total += share * stored
            on_chip += share * stored * is_on_chip
    return total, on_chip


@lru_cache(1 << 14)
def _stored(leaf: Shape) -> tuple[int, bool]:
    """Bytes of an array with the padding of its tiles, and whether it is in memory on the chip."""
    if not leaf.bytes:
        return 0, False
    array = stored_array(f"{leaf}{leaf.layout}")
    return array.bytes, array.memory_space > 0


def _sum(pairs: Iterable[tuple[Work, Work]]) -> tuple[Work, Work]:
    once = total = Work()
    for once_more, all_ in pairs:
        if total is once and once_more is all_:  # So far nothing ran more than once.
            once = total = once.plus(once_more)
        else:
            once, total = once.plus(once_more), total.plus(all_)
    return once, total
