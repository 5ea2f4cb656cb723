"""`with sdyscope.recording() as programs:`, what JAX lowers inside a block of Python."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

from sdyscope.errors import TargetError, one_of
from sdyscope.facts.program import Program
from sdyscope.facts.recorded import Line
from sdyscope.inspection import Inspection

if TYPE_CHECKING:
    from sdyscope.stages.lowered.lower import LoweredModule
    from sdyscope.stages.recorder import hearing


class RecordedInspection(Inspection):
    """One program that JAX lowered, with everything that can be asked of an `Inspection`.

    What it was asked for is known, but flat: its requested shardings are those that JAX settled on
    for the arrays it was called with.

    Attributes:
        types: element type and shape of each flat argument, such as `f32[16,128]`.
        defined: where the function stands; None when not known.
        called: the line of the program that led to it; None likewise.
        by_jax: whether the function is JAX's own.
        compiles: how often JAX had it compiled.
    """

    def __init__(self, source: Program | LoweredModule, event: hearing.Lowering) -> None:
        super().__init__(source)
        defined, called = event.defined, event.called
        self.types = event.types
        self.defined = None if defined is None else Line(*defined)
        self.called = None if called is None else Line(*called)
        self.by_jax = event.by_jax
        self.compiles = 0


class Recording(Sequence[RecordedInspection]):
    """The programs of a block, in the order in which JAX lowered them.

    They are found by number, and by name where one alone has it. Filled from every thread.

    Attributes:
        problems: what could not be recorded, in sentences.
    """

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._programs: list[RecordedInspection] = []
        self._seen: list[tuple[Any, Any, Any]] = []
        self._compiled: dict[int, tuple[Any, RecordedInspection]] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} of {', '.join(program.name for program in self) or 'nothing'}>"
        )

    def __len__(self) -> int:
        return len(self._programs)

    @overload
    def __getitem__(self, index: int | str) -> RecordedInspection: ...

    @overload
    def __getitem__(self, index: slice) -> list[RecordedInspection]: ...

    def __getitem__(
        self, index: int | str | slice
    ) -> RecordedInspection | list[RecordedInspection]:
        """The program with this number or name.

        Raises:
            IndexError: there are not so many.
            TargetError: no program has the name, or several have it.
        """
        if not isinstance(index, str):
            return self._programs[index]
        programs = [program for program in self._programs if program.name == index]
        if len(programs) == 1:
            return programs[0]
        if programs:
            shapes = [f"({', '.join(program.types)})" for program in programs]
            raise TargetError(
                f"{len(programs)} programs are called {index!r}: with {one_of(shapes)}.",
                hint="Take them by number.",
            )
        names = list(dict.fromkeys(program.name for program in self.own))
        known = f"There are {', '.join(names)}." if names else "JAX lowered none of the program's."
        raise TargetError(
            f"No program called {index!r} was lowered.",
            hint=f"{known} What JAX has in its caches is not lowered again: jax.clear_caches().",
        )

    @property
    def own(self) -> tuple[RecordedInspection, ...]:
        """The programs that are not JAX's own functions, such as those of single primitives."""
        return tuple(program for program in self if not program.by_jax)

    # --- what JAX's functions tell, in whichever thread ---

    def lowered(self, event: hearing.Lowering) -> None:
        """Keeps a program, unless it is one of these that is lowered again to be looked at."""
        module = event.computation.stablehlo()
        with self._lock:
            # The same object is one that JAX had in a cache, for shardings that mean the same.
            if id(module) in self._compiled or event.is_among(self._seen):
                return
        program = RecordedInspection(_source(event), event)
        with self._lock:
            self._seen.append(event.key)
            self._programs.append(program)
            self._compiled[id(module)] = module, program

    def compiled(self, event: hearing.Compile) -> None:
        """Counts it."""
        with self._lock:
            if id(event.module) in self._compiled:
                self._compiled[id(event.module)][1].compiles += 1

    def problem(self, what: str) -> None:
        """Notes it down."""
        with self._lock:
            if what not in self.problems:
                self.problems.append(what)


def _source(event: hearing.Lowering) -> Program | LoweredModule:
    """The program as it was traced; where this JAX does not tell, its module alone."""
    name = event.caller.function or event.name.removeprefix("jit_")
    try:
        from sdyscope.stages.recorder.traced import traced_of

        return Program(name, traced_of(event.arguments, event.keywords, event.caller))
    except (ImportError, AttributeError, KeyError, TypeError, ValueError):
        from sdyscope.stages.lowered.read import read_bytes
        from sdyscope.stages.recorder.hearing import module_text, named

        text = named(module_text(event.computation.stablehlo()), event.caller.names, event.refs)
        return replace(read_bytes(text.encode()), name=name)


@contextmanager
def recording() -> Iterator[Recording]:
    """Records every program that JAX lowers inside the block, in any thread.

    Blocks can be nested and can overlap; each has what was lowered while it was open. JAX is as it
    was when the last one ends, whichever way it ends.

    Returns:
        The programs, which are there as soon as JAX has lowered them, and afterwards.
    """
    from sdyscope.stages.recorder import hearing

    recording_ = Recording()
    hearing.add(recording_)
    try:
        yield recording_
    finally:
        hearing.remove(recording_)
