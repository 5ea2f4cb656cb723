"""Two programs, or one under two partitioners, side by side at a stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from sdyscope.analysis.collectives.comms import collectives_under
from sdyscope.analysis.collectives.compiled import compiled_collectives
from sdyscope.analysis.diff.compiled import CompiledSide, compiled_diff
from sdyscope.analysis.diff.lowered import LoweredSide, lowered_diff, other_order
from sdyscope.analysis.diff.propagated import PropagatedSide, propagated_diff
from sdyscope.analysis.memory.memory import memory_of
from sdyscope.analysis.propagation.decided import Decisions
from sdyscope.errors import CompilerError, SdyscopeError, TargetError
from sdyscope.facts.differences import (
    AFTER,
    BEFORE,
    Across,
    CompiledDiff,
    LoweredDiff,
    PropagatedDiff,
)
from sdyscope.facts.program import Partitioner, Program
from sdyscope.facts.remarks import Remark
from sdyscope.hardware.names import Hardware
from sdyscope.staged import Staged, compile_together
from sdyscope.values.mesh import Mesh, only_mesh, ranks, renamed_axes

#: The words for where the partitioners begin to shard a program differently.
FIRST_DIFFERENCE = "first-difference"


def lowered_between(a: Staged, b: Staged | None = None) -> LoweredDiff:
    """What two lowered modules differ in.

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
        sides = lowered_side(a, under[0], under[0]), lowered_side(a, under[1], under[1])
        return lowered_diff(a.name, *sides, "partitioners", across_partitioners=True)
    first, second = partitioner_of_both(a, b)
    labels = labels_of(a, b)
    sides = lowered_side(a, first, labels[0]), lowered_side(b, second, labels[1])
    return lowered_diff(a.name, *sides, "programs", across_partitioners=first != second)


def lowered_side(program: Staged, partitioner: Partitioner | None, label: str) -> LoweredSide:
    """One module as it is compared with others.

    Raises:
        CompilerError: there is no such module.
    """
    return LoweredSide(
        label,
        program.graph(partitioner),
        program.annotations(partitioner),
        only_mesh(program.meshes.values()),
        program.device_order,
        program.device_platform,
    )


def devices_reordered(a: Staged, b: Staged) -> bool:
    """Whether two programs have their devices in another order; see ``other_order``."""
    platforms = a.device_platform, b.device_platform
    return other_order(a.device_order, b.device_order, platforms)


def notes_between(first: Staged, second: Staged | None) -> Iterator[Remark]:
    """What is to be said of a comparison: orders of devices, names of axes, two JAX, options.

    Args:
        first: a program.
        second: another; without one there is nothing to say.
    """
    if second is None:
        return
    orders = first.device_order, second.device_order
    known = [ranks(order) != tuple(range(len(order))) for order in orders]
    if devices_reordered(first, second):
        yield Remark("device order", first.name)
    elif any(known) and not all(orders):
        labels = labels_of(first, second)
        ordered, other = (labels[known.index(is_known)] for is_known in (True, False))
        yield Remark("device order unknown", first.name, names=((other, 0),), other=ordered)
    meshes = (only_mesh(program.meshes.values()) for program in (first, second))
    changed = {name: other for other, name in renamed_axes(*meshes).items() if name != other}
    if changed:
        names = tuple((name, 0) for name in changed)
        yield Remark("axis names", first.name, names=names, other=", ".join(changed.values()))
    if not (first.is_compiled or second.is_compiled) and first.lowered and second.lowered:
        left, right = map(_lowered_by, (first, second))
        if left != right:
            yield Remark("lowered by two JAX", left, other=right)
        given = [
            set(module.compiler_options)
            for program in (first, second)
            for module in list(program.lowered.values())[:1]
        ]
        if len(given) > 1 and (differ := sorted(given[0] ^ given[1], key=str)):
            options = tuple((f"{name}={value}", 0) for name, value in differ)
            yield Remark("compiler options", first.name, names=options)


def _lowered_by(program: Staged) -> str:
    """The JAX that lowered a program, here or in a recorded run; of a file, that read it."""
    lowered = next(iter(program.lowered.values()))
    version = lowered.recorded_by or f"JAX {lowered.jax_version}"
    return str(version)


def propagated_between(
    a: Staged, b: Staged | None = None, partitioner: Partitioner | None = None
) -> PropagatedDiff:
    """What two propagations differ in.

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
        sides = propagated_side(a, under[0], under[0]), propagated_side(a, under[1], under[1])
        return a.once(
            (propagated_diff, *under), lambda: propagated_diff(a.name, *sides, "partitioners")
        )
    first, second = partitioner_of_both(a, b)
    labels = labels_of(a, b)
    sides = (
        propagated_side(a, partitioner or first, labels[0]),
        propagated_side(b, partitioner or second, labels[1]),
    )
    return replace(
        propagated_diff(a.name, *sides, "programs"),
        devices_reordered=devices_reordered(a, b),
    )


def partitioners_differ(program: Staged) -> PropagatedDiff:
    """One program under its two partitioners, which shard something differently.

    Raises:
        CompilerError: one of them can't propagate it.
        TargetError: they shard all values alike, or there is only one module.
    """
    diff = propagated_between(program)
    if not diff.beginnings:
        raise TargetError("Shardy and GSPMD shard every value that can be compared the same way.")
    return diff


def what_if(
    before: Staged, after: Staged, *, conservative: bool = False
) -> Iterator[PropagatedDiff]:
    """What other annotations change, under each partitioner that propagates both programs.

    Args:
        before: the program as it is.
        after: the program with other annotations.
        conservative: whether Shardy is to propagate the second one conservatively.
    """
    for partitioner in after.lowered:
        if partitioner not in before.lowered:
            continue
        is_other = conservative and partitioner == "shardy"
        try:
            changed = propagated_side(after, partitioner, AFTER, conservative=is_other)
        except CompilerError:
            continue  # It is one of the failures.
        unchanged = propagated_side(before, partitioner, BEFORE)
        yield propagated_diff(after.name, unchanged, changed, "annotations")


def propagated_side(
    program: Staged, partitioner: Partitioner | None, label: str, *, conservative: bool = False
) -> PropagatedSide:
    """One propagation as it is compared with others.

    Raises:
        CompilerError: there is no such propagation.
    """
    propagated = program.propagated(partitioner, conservative=conservative)
    return PropagatedSide(label, Decisions.of(program, propagated))


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
        first, second = partitioner_of_both(a, b)
        labels = labels_of(a, b)
        if on is None and other_on is None:
            a, b = as_recorded(a, b)
        if other_on is None:
            # What was compiled already is compared with what is compiled for it.
            compiled = a.is_compiled, b.is_compiled
            other_on = on if all(compiled) or not compiled[1] else None
            on = on if all(compiled) or not compiled[0] else None
        return (
            CompiledEnd(a, first if a.is_compiled else partitioner or first, on, labels[0]),
            CompiledEnd(b, second if b.is_compiled else partitioner or second, other_on, labels[1]),
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
    first, second = both_partitioners(a)
    return CompiledEnd(a, first, on, first), CompiledEnd(a, second, on, second)


def as_recorded(a: Staged, b: Staged) -> tuple[Staged, Staged]:
    """Programs as their recorded runs compiled them, if one did so by another JAX, or for no CPU.

    What this JAX compiles is compared with what it compiles, what each run's own compiler made with
    what the other's made.
    """
    elsewhere = [
        program.other_jax(partitioner) or program.recorded_platform != "cpu"
        for program in (a, b)
        for partitioner in program.recorded
    ]
    return (a.as_recorded(), b.as_recorded()) if any(elsewhere) else (a, b)


def compiled_between(
    a: Staged,
    b: Staged | None = None,
    partitioner: Partitioner | None = None,
    on: Hardware | str | None = None,
    other_on: Hardware | str | None = None,
    *,
    of_both: bool = False,
) -> CompiledDiff:
    """Compiles both sides at the same time, compares them, and finds where differences begin.

    A side that the compiler refuses is told as such. What can't be propagated is compared without
    that, and says so.

    Args:
        a: a program.
        b: another; see ``compiled_ends``.
        partitioner: under which.
        on: what to compile for.
        other_on: what to compile the second side for.
        of_both: whether both have to be compiled.

    Raises:
        CompilerError: both sides are refused, or one of them that has to be compiled.
        TargetError: there is nothing to compare with, or no such hardware.
    """
    ends = first, second = compiled_ends(a, b, partitioner, on, other_on)
    across: Across = "partitioners" if other_on is None else "hardware"
    if b is not None:
        across = "programs"
    compile_together([(end.program, end.partitioner, end.on) for end in ends])
    sides = compiled_side(first, second.program.meshes), compiled_side(second, first.program.meshes)
    refused = [side.error for side in sides if side.error is not None]
    if len(refused) > (0 if of_both else 1):
        raise refused[0]
    reordered = b is not None and devices_reordered(a, b)
    compare = partial(compiled_diff, a.name, *sides, across, devices_reordered=reordered)
    if (
        refused
        or (first.program is second.program and first.partitioner == second.partitioner)
        or first.partitioner is None
        or second.partitioner is None
    ):
        return compare()
    modules = _lowered_as(ends, sides)
    try:
        propagated = (
            propagated_side(modules[0], first.partitioner, first.label),
            propagated_side(modules[1], second.partitioner, second.label),
        )
    except SdyscopeError as error:
        return compare(causes_missing=error.message)
    if first.program is second.program:
        return compare(propagated)
    lowered = lowered_diff(
        a.name,
        lowered_side(modules[0], first.partitioner, first.label),
        lowered_side(modules[1], second.partitioner, second.label),
        across,
        across_partitioners=first.partitioner != second.partitioner,
    )
    return compare(propagated, annotations=lowered.tensors)


def compiled_side(end: CompiledEnd, meshes: Mapping[str, Mesh] | None = None) -> CompiledSide:
    """Compiles one side of a comparison, unless it was compiled already.

    Args:
        end: the side.
        meshes: meshes to name axes of where the program names none itself.
    """
    program, partitioner = end.program, end.partitioner
    try:
        compiled = program.compiled(partitioner, end.on)
        lowered = program.lowered_of(compiled)
        if program.meshes:
            collectives = collectives_under(program, partitioner, end.on)
        else:
            collectives = compiled_collectives(compiled, (meshes or {}).values(), lowered)
    except CompilerError as error:
        return CompiledSide(end.label, error=error)
    no_origins = lowered is None or compiled.recorded_by is not None
    held, why = None, ""
    try:
        held = memory_of(program, partitioner, end.on)
    except CompilerError as error:
        if lowered is not None:
            return CompiledSide(end.label, error=error)
        why = error.message  # the text of an early pass
    return CompiledSide(
        end.label,
        collectives,
        compiled,
        held,
        origins_missing="" if no_origins else collectives.origins_missing,
        memory_missing=why,
    )


def _lowered_as(
    ends: tuple[CompiledEnd, CompiledEnd], sides: tuple[CompiledSide, CompiledSide]
) -> tuple[Staged, Staged]:
    """The two programs as they were lowered for the hardware that they were compiled for."""
    first, second = (
        (None if side.compiled is None else end.program.lowered_of(side.compiled)) or end.program
        for end, side in zip(ends, sides, strict=True)
    )
    return first, second


def both_partitioners(program: Staged) -> tuple[Partitioner, Partitioner]:
    """The two that a program is looked at under.

    Raises:
        TargetError: there is only one.
    """
    if len(program.partitioners) < 2:
        if program.recorded:
            raise TargetError(
                f"{program.name} was recorded under one partitioner, so there is nothing to "
                "compare it with.",
                hint="Name a second target, or record the run again with --partitioner both.",
            )
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
    first = second = ""
    for length in range(1, max(map(len, paths)) + 1):
        first, second = ["/".join(parts[-length:]).replace("//", "/") for parts in paths]
        if first != second:
            return first, second
    return f"{first} (a)", f"{second} (b)"
