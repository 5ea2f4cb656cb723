"""`sdyscope diff --at compiled`: two sides are compiled, or read as they were compiled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sdyscope.commands.compiled_file import read_compiled
from sdyscope.errors import CompilerError, TargetError

if TYPE_CHECKING:
    from sdyscope.analysis.diff.compiled import CompiledSide
    from sdyscope.analysis.memory.text import TextMemory
    from sdyscope.hardware.names import Hardware
    from sdyscope.hlo import HloModule
    from sdyscope.inspection import Inspection
    from sdyscope.views.compiled_diff import Across, CompiledDiff


def compare(one: Inspection, two: Inspection | None, on: Sequence[Hardware] = ()) -> CompiledDiff:
    """One program under two partitioners or on two kinds of hardware, or two programs.

    A side that the compiler refuses is told as such; the other one is then not compared.

    Args:
      one: the first program.
      two: the second; None for the first alone.
      on: what to compile for: both sides for one, or each for its own.

    Raises:
      CompilerError: both sides are refused.
      TargetError: there is nothing to compare with, or no such hardware.
    """
    from sdyscope.analysis.diff import sides as comparisons
    from sdyscope.views import compiled_diff, propagated

    first, second = (*on, None, None)[:2]
    ends = comparisons.compiled_ends(one, two, None, first, second)
    across: Across = "partitioners" if second is None else "hardware"
    if two is not None:
        across = "programs"
    comparisons.compile_ends(ends)
    sides: list[CompiledSide | CompilerError] = []
    for end in ends:
        try:
            sides.append(comparisons.compiled_side(end))
        except CompilerError as error:
            sides.append(error)
    a, b = sides
    if isinstance(a, CompilerError) or isinstance(b, CompilerError):
        if isinstance(a, CompilerError) and isinstance(b, CompilerError):
            raise a
        return compiled_diff.one_sided(
            one.name,
            across,
            (ends[0].label, ends[1].label),
            (
                a.message if isinstance(a, CompilerError) else a,
                b.message if isinstance(b, CompilerError) else b,
            ),
        )
    found = comparisons.compiled(ends, (a, b))
    describers = None
    if found.propagated is not None:
        modules = comparisons.lowered_as(ends, (a, b))
        describers = (
            propagated.describer(modules[0], found.propagated[0].propagated),
            propagated.describer(modules[1], found.propagated[1].propagated),
        )
    return compiled_diff.program(one.name, across, found, describers)


def compare_texts(
    one: Inspection | Path,
    two: Inspection | Path,
    on: Sequence[Hardware] = (),
    axes: dict[str, int] | None = None,
) -> CompiledDiff:
    """Two programs of which at least one is the HLO text of a compiled program.

    Args:
      one: the first, or the file with its text.
      two: the second likewise.
      on: what to compile for, what has to be compiled.
      axes: the mesh whose axes to name; by default that of the other side.

    Raises:
      CompilerError: the program is refused.
      SdyscopeError: a text can't be read.
    """
    from sdyscope.analysis.diff import sides as comparisons
    from sdyscope.analysis.diff.compiled import CompiledSide, compiled_diff
    from sdyscope.hlo import read_hlo
    from sdyscope.views import compiled_diff as view

    if on and isinstance(one, Path) and isinstance(two, Path):
        raise TargetError(
            "Both are texts of programs that were compiled already.", hint="Leave --on out."
        )
    sides: list[CompiledSide] = []
    names: list[str] = []
    for number, label in enumerate(_labels(one, two)):
        side, other = (one, two) if number == 0 else (two, one)
        if isinstance(side, Path):
            meshes = () if isinstance(other, Path) else other.meshes.values()
            module, found = read_compiled(side, axes, meshes)
            sides.append(CompiledSide(label, found, memory=_memory(module)))
            names.append(module.name)
        else:
            hardware = on[min(number, len(on) - 1)] if on else None
            end = comparisons.CompiledEnd(side, side.chosen(None), hardware, label)
            made = comparisons.compiled_side(end)
            assert made.compiled is not None
            # The same of it as of a text, to be compared with that.
            sides.append(replace(made, memory=_memory(read_hlo(made.compiled.hlo))))
            names.append(side.name)
    return view.program(names[0], "programs", compiled_diff(sides[0], sides[1]))


def _memory(module: HloModule) -> TextMemory | None:
    from sdyscope.analysis.memory.text import text_memory

    try:
        return text_memory(module)
    except CompilerError:
        return None  # A dump of an early pass does not say how it stores its parameters.


def _labels(one: Inspection | Path, two: Inspection | Path) -> tuple[str, str]:
    a = b = ""
    for named in (False, True):
        a, b = (
            side.name if not named or not isinstance(side, Path) else str(side)
            for side in (one, two)
        )
        if a != b:
            return a, b
    return f"{a} (a)", f"{b} (b)"
