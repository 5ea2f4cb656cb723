"""What a bisection looks for: a figure, collectives or a tensor, as `--what` names it."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sdyscope.analysis.collectives.totals import Collective, Collectives, Part, with_part
from sdyscope.analysis.diff.stages import ProgramStages
from sdyscope.analysis.figures import FIGURES, unit_of
from sdyscope.analysis.naming.globs import glob
from sdyscope.analysis.naming.resolve import resolve_value
from sdyscope.errors import TargetError
from sdyscope.facts.traffic import KINDS, CollectiveKind, Tally
from sdyscope.facts.versions import Kind, Reading
from sdyscope.hardware.rates import parse_size
from sdyscope.upgrade.carried import Carried, CarriedProgram
from sdyscope.values.source import SourceLocation

#: What is looked for without `--what`: every collective of a step.
DEFAULT: Final = "collectives"


_COMPARED: Final = re.compile(r"(?P<figure>\S+)\s*(?P<how>>=|<=|==|!=|>|<)\s*(?P<than>\S.*)")
_HOW: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}
_COLLECTIVES: Final = re.compile(
    rf"(?P<kind>{'|'.join(KINDS)}|collectives)(?: over (?P<axis>\S+))?(?: for (?P<name>.+))?"
)
#: A figure of a kind of collective or of a mesh axis.
_OF_COMMS: Final = re.compile(r"comms\.[^.\s]+\.(?:bytes|count)")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is looked for.

    Attributes:
        text: as it was written.
        kind: what it is.
        figure: of a figure, its name.
        how: how it is compared with a number; empty where it is compared with the good version's.
        than: that number.
        collective: of collectives, their kind; None for any.
        axis: a mesh axis that they run over, alone or with others; empty for any.
        name: a glob of the ops that they are for; empty for any.
        program: the program that is looked at, of several; empty for all.
    """

    text: str
    kind: Kind
    figure: str = ""
    how: str = ""
    than: float = 0.0
    collective: CollectiveKind | None = None
    axis: str = ""
    name: str = ""
    program: str = ""

    @property
    def needs_compile(self) -> bool:
        """Whether the program has to be compiled for it."""
        return self.kind != "tensor"

    def checked(self, good: Reading, label: str) -> Reading:
        """The good version's, where it is good.

        Raises:
            TargetError: it is not below the limit itself, or the figure is not known of it.
        """
        if self.kind == "figure" and good.number is None:
            raise TargetError(f"{self.figure} is not known of {label}.")
        if not self.is_good(good, good):
            raise TargetError(f"{self.text} holds in {label} already.")
        return good

    def is_good(self, reading: Reading, good: Reading) -> bool:
        """Whether a version is as the good one: what is looked for is the same, or not so large."""
        if self.how:
            return reading.number is None or not _HOW[self.how](reading.number, self.than)
        return reading.key == good.key

    def read(self, carried: Carried) -> Reading:
        """What a version has of it.

        Raises:
            TargetError: the version has no such program, or what is looked for is not known of it.
        """
        programs = self._programs(carried)
        if self.kind == "tensor":
            return self._tensor(programs)
        stages = [program.stages for program in programs if program.stages is not None]
        for program_stages in stages:
            if program_stages.compiled.failure:
                raise TargetError(
                    f"{program_stages.name} was not compiled: {program_stages.compiled.failure}"
                )
        if self.kind == "figure":
            number, program = self._figure(programs)
            sources = tuple(self._sources(stages)) if self.figure.startswith("comms.") else ()
            unit = unit_of(self.figure)
            return Reading("figure", unit, number, sources=sources, program=program, key=number)
        parts = list(self._parts(programs))
        tally = Tally()
        seen: set[int] = set()
        for collective, part in parts:
            tally = with_part(tally, collective, part, id(collective) not in seen)
            seen.add(id(collective))
        lines = dict.fromkeys(part.source for _, part in parts if part.source is not None)
        return Reading("collectives", tally=tally, sources=tuple(lines), key=_key(parts))

    def _programs(self, carried: Carried) -> list[CarriedProgram]:
        programs = [program for program in carried.programs if program.is_called(self.program)]
        if not programs:
            names = ", ".join(program.name for program in carried.programs) or "none"
            raise TargetError(f"It has no program {self.program!r}; it has {names}.")
        for program in programs:
            if program.stages is None:
                raise TargetError(program.error or f"{program.name} was not looked at.")
        return programs

    def _figure(self, programs: list[CarriedProgram]) -> tuple[float | None, str]:
        """The figure, and the name of the program that it is of, where that is one of several.

        Programs run one after another: of memory it is what the one holds that holds most. Other
        figures are added up, a function that was compiled again counting once, as its largest.
        """
        if self.figure == "compiles":
            compiles = [program.recorded.compiles for program in programs if program.recorded]
            return sum(compiles) if compiles else None, ""
        numbers = [
            (program.stages.figures[self.figure], program)
            for program in programs
            if program.stages is not None and self.figure in program.stages.figures
        ]
        if not numbers:
            return None, ""
        if self.figure.startswith("memory."):
            number, largest = max(numbers, key=operator.itemgetter(0))
            return number, largest.name if len(programs) > 1 else ""
        functions: dict[Hashable, float] = {}
        for number, program in numbers:
            functions[program.function] = max(number, functions.get(program.function, number))
        return sum(functions.values()), ""

    def _tensor(self, programs: list[CarriedProgram]) -> Reading:
        error: TargetError | None = None
        for program in programs:
            assert program.stages is not None
            side = program.stages.propagated
            try:
                named = resolve_value(program.stages.lowered.graph, self.text)
            except TargetError as raised:
                error = error or raised
                continue
            if side is None:
                raise TargetError(
                    f"{program.name} can't be propagated: {program.stages.propagation_missing}"
                )
            shardings = tuple(side.decisions.sharded(value.id) for value in named)
            placed = tuple(
                (
                    sharding.placement if sharding.placement is not None else sharding.text,
                    sharding.shape,
                )
                for sharding in shardings
            )
            lines = dict.fromkeys(value.source for value in named if value.source is not None)
            return Reading("tensor", shardings=shardings, sources=tuple(lines), key=placed)
        assert error is not None
        raise error

    def _parts(self, programs: list[CarriedProgram]) -> Iterator[tuple[Collective, Part]]:
        """What is looked for of each program; of one compiled again, where it is not the same."""
        known: set[tuple[Hashable, Hashable]] = set()
        for program in programs:
            parts = list(self._parts_of(program))
            if (program.function, _key(parts)) not in known:
                known.add((program.function, _key(parts)))
                yield from parts

    def _parts_of(self, program: CarriedProgram) -> Iterator[tuple[Collective, Part]]:
        pattern = glob(self.name) if self.name else None
        if program.stages is not None:
            collectives = program.stages.compiled.collectives
            for collective in () if collectives is None else collectives.collectives:
                if self.collective is not None and collective.kind != self.collective:
                    continue
                if self.axis and not any(ref.name == self.axis for ref in collective.axes or ()):
                    continue
                for part in collective.parts:
                    if pattern is None or pattern.fullmatch(part.path):
                        yield collective, part

    def _sources(self, stages: list[ProgramStages]) -> Iterator[SourceLocation]:
        of: list[Collectives] = [
            program_stages.compiled.collectives
            for program_stages in stages
            if program_stages.compiled.collectives is not None
        ]
        parts = (
            part
            for collectives in of
            for collective in collectives.collectives
            for part in collective.parts
        )
        yield from dict.fromkeys(part.source for part in parts if part.source is not None)


def _key(parts: Sequence[tuple[Collective, Part]]) -> tuple[Hashable, ...]:
    """What collectives are compared by."""
    return tuple(
        sorted(
            (collective.kind, str(collective.axes), part.bytes, collective.count)
            for collective, part in parts
        )
    )


def parse_wanted(text: str, program: str = "") -> Wanted:
    """What `--what` names.

    Args:
        text: a figure (`comms.bytes`, `memory.total > 16GiB`); collectives (`all-gather`,
            `all-reduce over fsdp`, `collectives for *attention*`); or a tensor, as `explain` takes
            its name.
        program: the program to look at, of several.

    Raises:
        TargetError: it is none of these.
    """
    text = " ".join(text.split())
    if not text:
        raise TargetError("--what names nothing.", hint=_HINT)
    if match := _COLLECTIVES.fullmatch(text):
        kind: CollectiveKind | None = next(
            (known for known in KINDS if known == match["kind"]), None
        )
        axis, name = match["axis"] or "", match["name"] or ""
        return Wanted(text, "collectives", collective=kind, axis=axis, name=name, program=program)
    match = _COMPARED.fullmatch(text)
    figure = match["figure"] if match else text
    if figure in FIGURES or _OF_COMMS.fullmatch(figure):
        if match is None:
            return Wanted(text, "figure", figure, program=program)
        than = _number(match["than"], figure)
        return Wanted(text, "figure", figure, match["how"], than, program=program)
    if figure.partition(".")[0] in ("comms", "memory", "cost") and "/" not in figure:
        raise TargetError(f"There is no figure {figure!r}.", hint=_HINT)
    return Wanted(text, "tensor", program=program)


_HINT: Final = (
    f"The figures are {', '.join(FIGURES)}, and comms.KIND.bytes, comms.AXIS.count and the like. "
    "Or name collectives, such as all-gather over fsdp, or a tensor."
)


def _number(text: str, figure: str) -> float:
    if unit_of(figure) == "bytes":
        return parse_size(text, least=0)
    try:
        return float(text)
    except ValueError as error:
        raise TargetError(f"{text!r} is not a number.") from error
