"""Whether a program fits in a device's memory, and how large it can be made.

A size of the program that memory grows with (a batch, a sequence) is tried upwards, the number of
devices along an axis downwards; each size is compiled.
"""

from __future__ import annotations

from collections.abc import Callable

from sdyscope.analysis.memory.memory import Memory
from sdyscope.errors import CompilerError, SdyscopeError
from sdyscope.facts.over_time import MemoryOverTime, SizeTrial, Varied, Wanted

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
