"""The peak of a program in the document of `sdyscope memory`, and the sizes that fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sdyscope.analysis.memory.memory import Memory, MemoryDocument, memory_of
from sdyscope.analysis.memory.over_time import over_time_of
from sdyscope.analysis.memory.remedies import tried
from sdyscope.errors import CompilerError, SdyscopeError
from sdyscope.facts.over_time import Fit, MemoryOverTime, PeakRemedy, SizeTrial, Varied, Wanted
from sdyscope.hardware.names import Hardware
from sdyscope.process.progress import doing
from sdyscope.staged import Staged

if TYPE_CHECKING:
    from sdyscope.analysis.fix.workshop import Rebuild


@dataclass(frozen=True, slots=True)
class VaryingSize:
    """A size of a program that is varied.

    Attributes:
        name: the setting, or the mesh axis.
        wanted: whether its largest value is looked for, or the fewest devices.
        given: its value.
        make: makes the program with another value, and says what to compile it for.
    """

    name: str
    wanted: Wanted
    given: int
    make: Callable[[int], tuple[Staged, Hardware | str | None]]


def with_peak(
    document: MemoryDocument,
    program: Staged,
    on: Hardware | str | None,
    tries: int,
    rebuild: Rebuild | None = None,
) -> MemoryDocument:
    """A document with memory over a step, and what lowers the peak.

    Args:
        document: the document of the program.
        program: the program.
        on: what it was compiled for.
        tries: how many changes to compile under the first partitioner.
        rebuild: builds the program anew, to try edits of its source; None to try none.

    Raises:
        SdyscopeError: a compiled program's text is not scheduled.
    """
    doing(f"following what {program.name} holds over a step")
    every = tuple(over_time_of(program, memory) for memory in document.compiled)
    remedies: tuple[PeakRemedy, ...] = ()
    if tries and every:
        remedies = tried(program, document.compiled[0], every[0], on, tries, rebuild)
    return replace(document, over_time=every, remedies=remedies)


def with_fits(
    document: MemoryDocument,
    program: Staged,
    limit: int,
    vary: VaryingSize | None = None,
) -> MemoryDocument:
    """A document with whether the program fits, and how far a size can go.

    Args:
        document: the document of the program.
        program: the program.
        limit: bytes of a device.
        vary: what to vary; None to vary nothing.

    Raises:
        SdyscopeError: a compiled program's text is not scheduled, or the program can't be compiled
            with any value that was tried.
    """
    fits = tuple(
        Fit(
            memory.partitioner,
            limit,
            needed(memory, over_time_of(program, memory, origins=False)),
        )
        for memory in document.compiled
    )
    document = replace(document, fits=fits)
    if vary is None:
        return document
    partitioner = document.compiled[0].partitioner

    def measure(value: int) -> int:
        if value == vary.given:
            return fits[0].needs
        doing(f"trying {vary.name}={value:,}")
        other, hardware = vary.make(value)
        memory = memory_of(other, partitioner, hardware)
        return needed(memory, over_time_of(other, memory, origins=False))

    return replace(document, varied=varied(vary.name, vary.wanted, vary.given, limit, measure))


# --- How large it can be made ---------------------------------------------------------------------
# A size of the program that memory grows with (a batch, a sequence) is tried upwards, the number of
# devices along an axis downwards; each size is compiled.

#: In what part of a size that fits it is looked how much more fits.
_FINE = 8

#: How many sizes are compiled at most.
_MOST = 16


def needed(memory: Memory, over_time: MemoryOverTime) -> int:
    """Bytes that a device needs to run a program.

    What the compiler reserves for arguments, results, temporaries and code; where it does not say
    what temporaries take, the peak and the code.
    """
    compiler = memory.compiler
    if compiler is None:
        return over_time.peak
    return max(compiler.total, over_time.peak + compiler.generated_code)


def varied(
    name: str, wanted: Wanted, given: int, limit: int, measure: Callable[[int], int]
) -> Varied:
    """The largest size that fits, or the fewest devices.

    Args:
        name: what is varied.
        wanted: which of the two.
        given: where to begin.
        limit: bytes that a device has.
        measure: compiles the program with a value and says what a device needs; raises
            ``SdyscopeError`` where it can't be.

    Raises:
        CompilerError: the program can't be compiled with any value that was tried.
    """
    return _Search(name, wanted, given, limit, measure).varied()


class _Search:
    """Doubles or halves until the limit is passed, then goes to where a straight line passes it."""

    def __init__(
        self, name: str, wanted: Wanted, given: int, limit: int, measure: Callable[[int], int]
    ) -> None:
        self.name = name
        self.wanted = wanted
        self.given = given
        self.limit = limit
        self.measure = measure
        self.trials: dict[int, SizeTrial] = {}
        # A batch of 24 in eights: what divides it now is divided by it then.
        self.step = given & -given

    def varied(self) -> Varied:
        if self.wanted == "fewest":
            self.fewest()
        else:
            self.largest()
        fitting = [value for value in self.trials if self.fits(value)]
        if all(trial.needs is None for trial in self.trials.values()):
            first = next(iter(self.trials.values()))
            raise CompilerError(first.refused)
        best = (min if self.wanted == "fewest" else max)(fitting, default=None)
        ordered = tuple(self.trials[value] for value in sorted(self.trials))
        return Varied(self.name, self.wanted, self.given, best, self.step, ordered)

    def needs(self, value: int) -> int | None:
        if value not in self.trials:
            try:
                self.trials[value] = SizeTrial(value, self.measure(value))
            except SdyscopeError as error:
                self.trials[value] = SizeTrial(value, None, error.message)
        return self.trials[value].needs

    def fits(self, value: int) -> bool:
        needs = self.needs(value)
        return needs is not None and needs <= self.limit

    def fewest(self) -> None:
        """Powers of two: devices come in these, and dimensions are divided by them."""
        value = self.given
        self.step = 1
        if self.fits(value):
            while value % 2 == 0 and self.fits(value // 2):
                value //= 2
            return
        while len(self.trials) < _MOST and not self.fits(value):
            value *= 2

    def largest(self) -> None:
        low, high = 0, 0
        value = self.given
        if self.fits(value):
            while len(self.trials) < _MOST and self.fits(value):
                low, value = value, value * 2
            high = value
        else:
            while value and not self.fits(value):
                high, value = value, value // 2
            low = value
            self.step = max(low // _FINE, 1)
        while high - low > self.step and len(self.trials) < _MOST:
            middle = self.between(low, high)
            if self.fits(middle):
                low = middle
            else:
                high = middle

    def between(self, low: int, high: int) -> int:
        """A multiple of the step between two sizes: where a straight line passes the limit."""
        needs, more = self.needs(low), self.needs(high)
        share = 0.5
        if needs is not None and more is not None and more > needs:
            share = (self.limit - needs) / (more - needs)
        middle = low + int(share * (high - low)) // self.step * self.step
        return min(max(middle, low + self.step), high - self.step)
