"""The peak of a program in the document of `sdyscope memory`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sdyscope.analysis.memory.fits import needed, varied
from sdyscope.analysis.memory.memory import MemoryDocument, memory_of
from sdyscope.analysis.memory.over_time import over_time_of
from sdyscope.analysis.memory.remedies import tried
from sdyscope.facts.over_time import Fit, PeakRemedy, Wanted
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
