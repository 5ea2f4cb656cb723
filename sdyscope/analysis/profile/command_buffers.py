"""Which instructions the kernels of a GPU's command buffers are of.

XLA gives a GPU several instructions at once, as a CUDA graph, and the events of their kernels say
only which command buffer they are of. But kernels run in the order of the compiled program's
schedule, and XLA's own are called after the fusion that they are of, or after an earlier one that
is the same (``KernelReuseCache``, ``xla/backends/gpu/codegen/triton/fusion.cc`` and beside it).
Between two of these are those of libraries, for custom calls, and what clears or copies memory.
Where they can be distributed in more than one way, they stay without an instruction.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache

from sdyscope.facts.measured import COMMAND_BUFFER, Kernel, Occurrence, TracedProgram
from sdyscope.hlo import NOTHING_RUNS, Computation, HloModule, Instruction, trip_count
from sdyscope.hlo.model import BRANCHES

#: What clears or copies memory, whichever instruction it is for.
_MOVES = re.compile(r"(?i)mem(?:set|cpy)")

#: What no way costs.
_NEVER = 1 << 20

#: More steps of a schedule than a trace can have of kernels.
_MOST = 1 << 20


@dataclass(frozen=True, slots=True)
class _Launch:
    """An instruction that a GPU runs something for, and whether it may run nothing."""

    instruction: Instruction
    perhaps: bool = False


def of_instructions(traced: TracedProgram, module: HloModule) -> TracedProgram:
    """A program of a trace with the kernels of its command buffers by instruction.

    Args:
        traced: what ran.
        module: its program.

    Returns:
        The same, where all say which instruction they are of. What can't be told stays with its
        command buffer.
    """
    if not traced.kernels:
        return traced
    schedule = _Schedule(module)
    runs: dict[tuple[int, int], list[Kernel]] = defaultdict(list)
    for kernel in traced.kernels:
        runs[kernel.step, kernel.device].append(kernel)
    known: dict[tuple[tuple[str, str], ...], list[int | None]] = {}
    occurrences: dict[str, list[Occurrence]] = defaultdict(list)
    for (step, device), kernels in runs.items():
        names = tuple((kernel.op, kernel.name) for kernel in kernels)
        if names not in known:
            known[names] = _Alignment(schedule, names).places()
        before: tuple[str, int | None] | None = None
        for kernel, place in zip(kernels, known[names], strict=True):
            op = kernel.op if place is None else schedule.launches[place].instruction.name
            same = (op, place)
            if same == before:
                *_, start, seconds = occurrences[op][-1]
                occurrences[op][-1] = (step, device, start, seconds + kernel.seconds)
            else:
                occurrences[op].append((step, device, kernel.start, kernel.seconds))
            before = same
    for times in occurrences.values():
        times.sort(key=lambda time: time[2])
    others = {
        op: times
        for op, times in traced.occurrences.items()
        if op not in occurrences and not op.startswith(COMMAND_BUFFER)
    }
    return replace(traced, occurrences={**occurrences, **others}, kernels=())


class _Schedule:
    """What a program gives a GPU to run, in order."""

    def __init__(self, module: HloModule) -> None:
        self.module = module
        self.launches: list[_Launch] = []
        self.by_kernel: dict[str, Instruction] = {}
        for computation in module.computations.values():
            for instruction in computation.instructions.values():
                if instruction.opcode == "fusion":
                    self.by_kernel[_kernel_name(instruction.name)] = instruction
        self.alike = lru_cache(maxsize=None)(self._alike)
        for launch in self._of(module.computations[module.entry], perhaps=False):
            if len(self.launches) == _MOST:
                break
            self.launches.append(launch)

    def _of(self, computation: Computation, perhaps: bool) -> Iterator[_Launch]:
        for instruction in computation.instructions.values():
            match instruction.opcode:
                case "while":
                    yield from self._of_loop(computation, instruction, perhaps)
                case "call":
                    for called in self.module.called(instruction, "to_apply"):
                        yield from self._of(called, perhaps)
                case "conditional":
                    for branch in self.module.called(instruction, *BRANCHES):
                        yield from self._of(branch, perhaps=True)
                case opcode if opcode in NOTHING_RUNS or opcode.endswith(("-done", "-update")):
                    pass
                case _:
                    yield _Launch(instruction, perhaps)

    def _of_loop(
        self, computation: Computation, loop: Instruction, perhaps: bool
    ) -> Iterator[_Launch]:
        """Where XLA knows how often it runs, its condition may not run at all."""
        trips = trip_count(self.module, computation, loop)
        if trips is None:
            trips, perhaps = 1, True
        for _ in range(trips):
            for condition in self.module.called(loop, "condition"):
                yield from self._of(condition, perhaps=True)
            for body in self.module.called(loop, "body"):
                yield from self._of(body, perhaps)
        for condition in self.module.called(loop, "condition"):
            yield from self._of(condition, perhaps=True)

    def _alike(self, name: str, other: str) -> bool:
        """Whether two fusions compute the same, so that XLA makes one kernel of both."""
        return name == other or self._form(name) == self._form(other)

    def _form(self, kernel: str) -> object:
        instruction = self.by_kernel[kernel]
        inner = [
            sorted(
                (
                    each.opcode,
                    each.shape_text,
                    each.operand_text if each.opcode == "constant" else "",
                )
                for each in computation.instructions.values()
            )
            for computation in self.module.called(instruction, "calls")
        ]
        return instruction.shape_text, inner

    def is_of(self, kernel: str, launch: _Launch) -> bool:
        """Whether a kernel that is called after a fusion can be one of an instruction."""
        own = _kernel_name(launch.instruction.name)
        return own in self.by_kernel and self.alike(kernel, own)


class _Alignment:
    """The kernels of one run along the schedule."""

    def __init__(self, schedule: _Schedule, kernels: Sequence[tuple[str, str]]) -> None:
        self.schedule = schedule
        self.kernels = kernels

    def places(self) -> list[int | None]:
        """For each kernel the place in the schedule; None where that can't be told."""
        places: list[int | None] = [None] * len(self.kernels)
        at = -1  # the place of the last kernel that says which it is of
        gap: list[int] = []  # kernels since then
        for number, (op, name) in enumerate(self.kernels):
            if not self.says(op, name):
                gap.append(number)
                continue
            place = at if not gap and self.repeats(op, name, at) else self.next(op, name, at)
            if place is None:
                # It runs beside something else, or is of another program: no more is known.
                return places
            of_gap = self.distributed(gap, range(at + 1, place), place)
            if not self.all_ran(range(at + 1, place), of_gap.values()):
                return places
            for kernel, own in of_gap.items():
                places[kernel] = own
            places[number], at, gap = place, place, []
        rest = range(at + 1, len(self.schedule.launches))
        for kernel, own in self.distributed(gap, rest, None).items():
            places[kernel] = own
        return places

    def says(self, op: str, name: str) -> bool:
        """Whether a kernel says which instruction it is of."""
        return not op.startswith(COMMAND_BUFFER) or name in self.schedule.by_kernel

    def matches(self, op: str, name: str, place: int) -> bool:
        launch = self.schedule.launches[place]
        if not op.startswith(COMMAND_BUFFER):
            return launch.instruction.name == op
        return self.schedule.is_of(name, launch)

    def repeats(self, op: str, name: str, at: int) -> bool:
        """Whether a kernel is one more of the instruction that the last one was of."""
        after = at + 1 < len(self.schedule.launches) and self.matches(op, name, at + 1)
        return at >= 0 and not after and self.matches(op, name, at)

    def next(self, op: str, name: str, at: int) -> int | None:
        """The first place behind another one that a kernel can be of."""
        for place in range(at + 1, len(self.schedule.launches)):
            if self.matches(op, name, place):
                return place
        return None

    def distributed(
        self, kernels: Sequence[int], places: range, after: int | None
    ) -> Mapping[int, int | None]:
        """Kernels of libraries, and of memory, by the instructions that are between two others.

        Args:
            kernels: their numbers, in order.
            places: those of the instructions, in order.
            after: the place of what runs next, which memory may be cleared for.
        """
        waiting = [place for place in places if not self.is_skipped(place)]
        names = [self.kernels[number][1] for number in kernels]
        launches = [self.schedule.launches[place].instruction.opcode for place in waiting]
        of = _distributed(tuple(names), tuple(map(_is_library, launches)), after is not None)
        if of is None:
            return {}
        ways = [*waiting, after]
        return {number: ways[launch] for number, launch in zip(kernels, of, strict=True)}

    def all_ran(self, places: range, had: Iterable[int | None]) -> bool:
        """Whether no fusion was passed over that must have run before what ran next."""
        with_kernels = set(had)
        return all(
            place in with_kernels or launch.perhaps or launch.instruction.opcode != "fusion"
            for place in places
            for launch in [self.schedule.launches[place]]
        )

    def is_skipped(self, place: int) -> bool:
        """Whether an instruction ran nothing: its kernel would be called after it."""
        launch = self.schedule.launches[place]
        return launch.perhaps and launch.instruction.opcode == "fusion"


def _is_library(opcode: str) -> bool:
    """Whether an instruction is computed by a library, and does not only move memory."""
    return opcode not in ("fusion", "fusion-start", "copy", "copy-start")


def _distributed(
    kernels: Sequence[str], libraries: Sequence[bool], clears: bool
) -> list[int] | None:
    """Kernels by launches, where one way is more likely than all others.

    A launch of a library may clear memory, and runs at least one kernel of its own; every other
    one copies or clears memory.

    Args:
        kernels: what each is called, in order.
        libraries: for each launch, in order, whether it is one of a library.
        clears: whether what is left of kernels that clear memory is of what runs next.

    Returns:
        For each kernel the launch, or their number for what runs next; None where there is no way,
        or more than one.
    """
    moves = [_MOVES.match(kernel) is not None for kernel in kernels]
    sets = [kernel.lower().startswith("memset") for kernel in kernels]

    @cache
    def best(kernel: int, launch: int) -> tuple[int, int, int]:
        """(cost, ways of that cost, how many kernels this launch takes) of all from here on."""
        if launch == len(libraries):
            left = moves[kernel:]
            return (0 if not left or (clears and all(left)) else _NEVER, 1, len(left))
        options = []
        cost = 3 if libraries[launch] else 1
        for end in range(kernel, len(kernels) + 1):
            if end > kernel:
                own, cost = self_cost(kernel, end, libraries[launch])
                if not own:
                    break
            rest = best(end, launch + 1)
            options.append((cost + rest[0], rest[1], end - kernel))
        least = min(options)[0]
        alike = [option for option in options if option[0] == least]
        return least, sum(option[1] for option in alike), alike[0][2]

    def self_cost(start: int, end: int, library: bool) -> tuple[bool, int]:
        """Whether a launch can take some kernels, and what speaks against it."""
        own = range(start, end)
        if not library:
            odd = sum(sets[k] for k in own)
            return all(moves[k] for k in own), end - start - 1 + odd
        first = next((k for k in own if not moves[k]), end)
        if any(moves[k] for k in range(first, end)):
            return False, 0
        copies = sum(not sets[k] for k in range(start, first))
        return True, (3 if first == end else end - first - 1) + copies

    cost, ways, _ = best(0, 0)
    if cost >= _NEVER or ways > 1:
        return None
    of, kernel = [], 0
    for launch in range(len(libraries) + 1):
        taken = best(kernel, launch)[2]
        of += [launch] * taken
        kernel += taken
    return of


def _kernel_name(instruction: str) -> str:
    """What XLA calls the kernel of an instruction (``SanitizeFileName`` and beside it)."""
    return re.sub(r"[^A-Za-z0-9_]", "_", instruction)
