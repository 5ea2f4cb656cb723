"""Two programs, or one under two partitioners, side by side at a stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sdyscope.analysis.collectives.origins import with_origins
from sdyscope.analysis.collectives.slices import collectives_of
from sdyscope.analysis.diff.compiled import CompiledDiff, CompiledSide, compiled_diff
from sdyscope.analysis.diff.lowered import Diff, Side, diff
from sdyscope.analysis.diff.propagated import PropagatedSide
from sdyscope.analysis.memory.memory import memory_of
from sdyscope.errors import CompilerError, SdyscopeError, TargetError
from sdyscope.facts.program import Partitioner, Program
from sdyscope.hardware.names import Hardware
from sdyscope.hlo import read_hlo
from sdyscope.staged import Staged, compile_together
from sdyscope.values.mesh import Mesh

__all__ = [
    "CompiledEnd",
    "compared",
    "compile_ends",
    "compiled",
    "compiled_ends",
    "compiled_side",
    "compiled_sides",
    "lowered_as",
    "propagated_side",
    "propagated_sides",
]


def compared(a: Staged, b: Staged | None = None) -> tuple[Diff, tuple[Side, Side]]:
    """Two lowered modules: what differs, and the two sides that were compared.

    Args:
        a: a program.
        b: another, which is compared under the first partitioner that both have; without one,
            ``a`` under its two partitioners.

    Raises:
        CompilerError: one of the modules can't be made.
        TargetError: there is only one module and nothing to compare it with.
    """
    if b is None:
        under = both_partitioners(a)
        sides = (_side(a, under[0], under[0]), _side(a, under[1], under[1]))
        return diff(*sides, across_partitioners=True), sides
    one, two = partitioner_of_both(a, b)
    labels = labels_of(a, b)
    sides = (_side(a, one, labels[0]), _side(b, two, labels[1]))
    return diff(*sides, across_partitioners=one != two), sides


def _side(program: Staged, partitioner: Partitioner | None, label: str) -> Side:
    return Side(label, program.graph(partitioner), program.annotations(partitioner))


def propagated_sides(
    a: Staged, b: Staged | None = None, partitioner: Partitioner | None = None
) -> tuple[PropagatedSide, PropagatedSide]:
    """Two propagations, to be compared.

    Args:
        a: a program.
        b: another; without one, ``a`` under its two partitioners.
        partitioner: for two programs, whose propagation; by default the first that both have.

    Raises:
        CompilerError: one of the two can't be propagated.
        TargetError: there is only one module and nothing to compare it with.
    """
    if b is None:
        under = both_partitioners(a)
        return propagated_side(a, under[0], under[0]), propagated_side(a, under[1], under[1])
    one, two = partitioner_of_both(a, b)
    labels = labels_of(a, b)
    return (
        propagated_side(a, partitioner or one, labels[0]),
        propagated_side(b, partitioner or two, labels[1]),
    )


def propagated_side(
    program: Staged, partitioner: Partitioner | None, label: str, *, conservative: bool = False
) -> PropagatedSide:
    """One propagation as it is compared with others.

    Raises:
        CompilerError: there is no such propagation.
    """
    found = program.propagated(partitioner, conservative=conservative)
    return PropagatedSide(label, program.graph(partitioner), found)


@dataclass(frozen=True)
class CompiledEnd:
    """What to compile for one side of a comparison.

    Attributes:
        program: the program.
        partitioner: under which; None for a program that was compiled already.
        on: for what hardware; None for virtual CPU devices.
        label: what to call this side.
    """

    program: Staged
    partitioner: Partitioner | None
    on: Hardware | str | None
    label: str


def compiled_ends(
    a: Staged,
    b: Staged | None = None,
    partitioner: Partitioner | None = None,
    on: Hardware | str | None = None,
    other_on: Hardware | str | None = None,
) -> tuple[CompiledEnd, CompiledEnd]:
    """What to compile to compare two programs, two kinds of hardware or two partitioners.

    Args:
        a: a program.
        b: another; without one, ``a`` on two kinds of hardware, or under its two partitioners.
        partitioner: under which, unless two partitioners are compared; by default the first that
            is there.
        on: what to compile for.
        other_on: what to compile the second side for; by default the same.

    Raises:
        CompilerError: the program can't be lowered under any partitioner.
        TargetError: there is only one module and nothing to compare it with.
    """
    if b is not None:
        one, two = partitioner_of_both(a, b)
        labels = labels_of(a, b)
        if on is None and other_on is None:
            a, b = as_recorded(a, b)
        if other_on is None:
            # What was compiled already is compared with what is compiled for it.
            compiled = a.is_compiled, b.is_compiled
            other_on = on if all(compiled) or not compiled[1] else None
            on = on if all(compiled) or not compiled[0] else None
        return (
            CompiledEnd(a, one if a.is_compiled else partitioner or one, on, labels[0]),
            CompiledEnd(b, two if b.is_compiled else partitioner or two, other_on, labels[1]),
        )
    if other_on is not None:
        chosen = a.chosen(partitioner)
        labels = str(on or "cpu"), str(other_on)
        if labels[0] == labels[1]:
            labels = f"{labels[0]} (a)", f"{labels[1]} (b)"
        return (
            CompiledEnd(a, chosen, on, labels[0]),
            CompiledEnd(a, chosen, other_on, labels[1]),
        )
    one, two = both_partitioners(a)
    return CompiledEnd(a, one, on, one), CompiledEnd(a, two, on, two)


def as_recorded(a: Staged, b: Staged) -> tuple[Staged, Staged]:
    """Programs as their recorded runs compiled them, if another JAX than this one made any.

    What this JAX compiles is compared with what it compiles, what each run's own compiler made with
    what the other's made.
    """
    others = [program.other_jax(one) for program in (a, b) for one in program.recorded]
    return (a.as_recorded(), b.as_recorded()) if any(others) else (a, b)


def compile_ends(ends: tuple[CompiledEnd, CompiledEnd]) -> None:
    """Compiles both sides at the same time; what is refused `compiled_side` raises.

    Raises:
        TargetError: one can't be compiled for its hardware.
    """
    compile_together([(end.program, end.partitioner, end.on) for end in ends])


def compiled_side(end: CompiledEnd, meshes: Mapping[str, Mesh] | None = None) -> CompiledSide:
    """Compiles one side of a comparison, unless it was compiled already.

    Args:
        end: the side.
        meshes: meshes to name axes of where the program names none itself.

    Raises:
        CompilerError: the compiler refuses the program or aborts on it.
        TargetError: it can't be compiled for this hardware.
    """
    program, partitioner = end.program, end.partitioner
    made = program.compiled(partitioner, end.on)
    found = collectives_of(made, read_hlo(made.hlo), (program.meshes or meshes or {}).values())
    notes = made.notes
    lowered = program.lowered_of(made)
    try:
        if lowered is not None:
            found = with_origins(
                found,
                lowered.graph(partitioner),
                lowered.propagated(partitioner),
                lowered.annotations(partitioner),
            )
    except SdyscopeError as error:
        notes += (f"Why collectives are there is not known: {error.message}",)
    try:
        held = memory_of(program, partitioner, end.on)
    except CompilerError as error:
        if lowered is not None:
            raise
        held, notes = None, (*notes, error.message)  # the text of an early pass
    return CompiledSide(end.label, found, made, held, notes=notes)


def compiled_sides(
    ends: tuple[CompiledEnd, CompiledEnd],
) -> tuple[CompiledSide | CompilerError, CompiledSide | CompilerError]:
    """Compiles both sides at the same time; of one that is refused there is the error.

    Raises:
        CompilerError: both sides are refused.
        TargetError: one can't be compiled for its hardware.
    """
    compile_ends(ends)
    sides: list[CompiledSide | CompilerError] = []
    for end, other in (ends, ends[::-1]):
        try:
            sides.append(compiled_side(end, other.program.meshes))
        except CompilerError as error:
            sides.append(error)
    if isinstance(sides[0], CompilerError) and isinstance(sides[1], CompilerError):
        raise sides[0]
    return sides[0], sides[1]


def compiled(
    ends: tuple[CompiledEnd, CompiledEnd], sides: tuple[CompiledSide, CompiledSide]
) -> CompiledDiff:
    """Compares two sides that were compiled, and finds where their differences begin.

    What can't be propagated is compared without that, and says so.
    """
    one, two = ends
    if one.program is two.program and one.partitioner == two.partitioner:
        return compiled_diff(*sides)
    if one.partitioner is None or two.partitioner is None:
        return compiled_diff(*sides, by_name=True)
    a, b = lowered_as(ends, sides)
    try:
        propagated = (
            propagated_side(a, one.partitioner, one.label),
            propagated_side(b, two.partitioner, two.label),
        )
    except SdyscopeError as error:
        note = f"Where differences begin is not known, as propagation failed: {error.message}"
        return compiled_diff(*sides, notes=(note,))
    if one.program is two.program:
        return compiled_diff(*sides, propagated)
    lowered = diff(
        _side(a, one.partitioner, one.label),
        _side(b, two.partitioner, two.label),
        across_partitioners=one.partitioner != two.partitioner,
    )
    return compiled_diff(*sides, propagated, annotations=lowered.tensors, by_name=True)


def lowered_as(
    ends: tuple[CompiledEnd, CompiledEnd], sides: tuple[CompiledSide, CompiledSide]
) -> tuple[Staged, Staged]:
    """The two programs as they were lowered for the hardware that they were compiled for."""
    one, two = (
        (None if side.compiled is None else end.program.lowered_of(side.compiled)) or end.program
        for end, side in zip(ends, sides, strict=True)
    )
    return one, two


def both_partitioners(program: Staged) -> tuple[Partitioner, Partitioner]:
    """The two that a program is looked at under.

    Raises:
        TargetError: there is only one.
    """
    if len(program.partitioners) < 2:
        what = "compiled program" if program.is_compiled else "module"
        raise TargetError(
            f"{program.name} is one {what}, so there is nothing to compare it with.",
            hint="Name a second target, or a program with --partitioner both.",
        )
    return program.partitioners[0], program.partitioners[1]


def partitioner_of_both(a: Staged, b: Staged) -> tuple[Partitioner | None, Partitioner | None]:
    """The first that both are lowered under, or the first of each; None of what is compiled."""
    shared = [p for p in a.compiled_under if p in b.compiled_under]
    if shared:
        return shared[0], shared[0]
    return a.compiled_under[0], b.compiled_under[0]


def labels_of(a: Staged, b: Staged) -> tuple[str, str]:
    """What to call two things: a program's name, as much of a file's path as tells them apart."""
    paths = [
        (source.name,) if isinstance(source, Program) or source.path is None else source.path.parts
        for source in (a.source, b.source)
    ]
    one = two = ""
    for length in range(1, max(map(len, paths)) + 1):
        one, two = ["/".join(parts[-length:]).replace("//", "/") for parts in paths]
        if one != two:
            return one, two
    return f"{one} (a)", f"{two} (b)"
