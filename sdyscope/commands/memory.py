"""`sdyscope memory`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from sdyscope.commands import opening, options
from sdyscope.errors import TargetError, one_of
from sdyscope.hardware.names import Hardware
from sdyscope.process import output

if TYPE_CHECKING:
    from sdyscope.analysis.memory.peak import VaryingSize
    from sdyscope.inspection import Inspection
    from sdyscope.staged import Staged
    from sdyscope.terminal.answer import Block


@options.command(
    examples=(
        "memory mlp",
        "memory fsdp-transformer --on cuda:h100:1x1x8",
        "memory train.py:step --predicted --mesh data=512,model=64",
        "memory train.py:step --on tpu:v5e:4x4 --peak",
        "memory train.py:step --on tpu:v5e:4x4 --fits 16GiB --vary batch",
        "memory fsdp-transformer --training",
    ),
)
@opening.target
@options.on
@options.one_partitioner("The partitioner to compile under.")
@click.option(
    "--predicted",
    is_flag=True,
    help="Use propagated shardings instead of compiling: any mesh, no devices.",
)
@click.option(
    "--training",
    is_flag=True,
    help="Also show what a train step keeps of its parameters, gradients and optimizer state, and "
    "what data parallelism and each ZeRO stage would hold and send.",
)
@click.option(
    "--axes",
    metavar="AXIS,...",
    help="With --training: the mesh axes that the stages shard over.  [default: the batch's]",
)
@click.option(
    "--peak",
    is_flag=True,
    help="Show memory over the step, what is held at the peak, and what lowers it.",
)
@click.option(
    "--try",
    "tries",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    metavar="N",
    help="With --peak: compile up to N changes that may lower the peak.",
)
@click.option(
    "--fits",
    "limit",
    metavar="SIZE",
    callback=options.byte_count,
    help="Say whether the program fits in a device of this size, such as 16GiB. Exit status 1 if "
    "it does not.",
)
@click.option(
    "--vary",
    metavar="NAME",
    help="With --fits: find the largest value of this setting that fits, such as batch, or the "
    "fewest devices along this mesh axis. Each value is compiled.",
)
@options.top(10, "rows to show of what could be sharded further, or is held at the peak")
@options.strict
@options.json("analysis.memory.memory:MemoryDocument")
def command(
    target: opening.Opening,
    on: Hardware | None,
    partitioner: str | None,
    predicted: bool,
    peak: bool,
    tries: int,
    limit: int | None,
    vary: str | None,
    training: bool,
    axes: str | None,
    top: int,
    strict: bool,
    as_json: bool,
) -> int:
    """Show what a device holds, and which bytes it could save.

    The program is compiled, not run. Shows the bytes per device of each argument and result,
    which of them share a buffer, what else the program needs, and which tensors could be
    sharded further along which axes. Exit status 1 if a donation is unused, or bytes disagree
    with the compiler's.

    TARGET may also be the HLO text of a compiled program, as `compiled.as_text()` and XLA's dumps
    have it, which says what arguments and results take, and which share a buffer; --mesh names its
    mesh.

    With --predicted nothing is compiled: arguments and results are where propagation puts them, and
    temporaries are not known.

    With --training the ZeRO stages are tried on the program: its state gets their shardings, and
    XLA's partitioner says what a device sends then.

    With --peak: what a device holds from the first instruction to the last, in the order in which
    the compiled program runs; at the peak, each tensor with its source line and the annotations
    that its sharding comes from; and which changes lower it, each compiled.
    """
    from sdyscope.analysis.memory.memory import memory_document, predicted_document
    from sdyscope.analysis.memory.peak import with_fits, with_peak
    from sdyscope.analysis.search.zero import training_state
    from sdyscope.terminal.answer import print_answer
    from sdyscope.views import memory, over_time

    if predicted and on is not None:
        raise TargetError(
            "--predicted compiles for no hardware.", hint="Leave --on out, or --predicted."
        )
    if predicted and (peak or limit is not None):
        raise TargetError(
            "--predicted compiles nothing, and the peak is known of a compiled program alone.",
            hint="Leave --predicted out.",
        )
    if vary is not None and limit is None:
        raise TargetError("--vary needs a limit.", hint="Give one, such as --fits 16GiB.")
    inspection = target.inspection_under(partitioner)
    if axes is not None and not training:
        raise TargetError("--axes names the axes of --training.", hint="Add --training.")
    answer = predicted_document(inspection) if predicted else memory_document(inspection, on)
    if training:
        over = [axis.strip() for axis in axes.split(",")] if axes else []
        answer = dataclasses.replace(answer, training=training_state(inspection, over))
    if peak:
        answer = with_peak(answer, inspection, on, tries, target.build)
    if limit is not None:
        varied = None if vary is None else _varying_size(vary, target, inspection, partitioner, on)
        answer = with_fits(answer, inspection, limit, varied)
    fit = all(row.fits for row in answer.fits)
    columns = output.answers().columns

    def parts() -> Iterator[Block]:
        if answer.predicted is not None:
            yield from memory.predicted(answer, answer.predicted, top, columns)
        if peak:
            yield from over_time.peaks(answer, top, columns)
        if limit is not None:
            yield from over_time.fitting(answer, limit)
        if not peak and limit is None:
            yield from memory.compiled(answer, top, columns)
        if answer.training is not None:
            yield from memory.trained(answer.training)

    print_answer(answer, parts, as_json=as_json)
    return 0 if answer.passed and fit and not (strict and answer.account) else 1


# --- --vary NAME: the sizes that can be tried, and how each is made -------------------------------


def _varying_size(
    name: str,
    target: opening.Opening,
    inspection: Inspection,
    partitioner: str | None,
    on: Hardware | None,
) -> VaryingSize:
    """The size of a program that has a name.

    Args:
        name: a setting with a whole number, or a mesh axis.
        target: the TARGET.
        inspection: the program as it is.
        partitioner: as the command takes it.
        on: likewise.

    Raises:
        TargetError: there is no such size, or it can't be varied.
    """
    from sdyscope.analysis.memory.peak import VaryingSize
    from sdyscope.targets import settings_of

    known = {setting.name: setting for setting in settings_of(target.word)}
    axes = {axis: size for own in inspection.meshes.values() for axis, size in own.shape.items()}
    if name in known:
        text = target.settings.get(name, known[name].default)
        if not str(text).isdecimal() or not int(str(text)):
            raise TargetError(f"{name} is {text}, not a whole number that can be varied.")

        def with_setting(value: int) -> tuple[Staged, Hardware | None]:
            changed = replace(target, settings={**target.settings, name: str(value)})
            return changed.inspection(target.under(partitioner)), on

        return VaryingSize(name, "largest", int(str(text)), with_setting)
    if name in axes:

        def with_axis(value: int) -> tuple[Staged, Hardware | None]:
            changed = {**axes, name: value}
            inspection = replace(target, mesh=changed).inspection(target.under(partitioner))
            return inspection, _hardware_for(on, math.prod(changed.values()))

        return VaryingSize(name, "fewest", axes[name], with_axis)
    numbers = [setting.name for setting in known.values() if setting.type is int]
    raise TargetError(
        f"{target.word} has no size {name!r} to vary.",
        hint=f"Name {one_of([*numbers, *axes])}."
        if numbers or axes
        else "Let a function return the program, with the size as a parameter.",
    )


def _hardware_for(on: Hardware | None, devices: int) -> Hardware | None:
    """The same hardware with another number of devices.

    Raises:
        TargetError: it is a TPU slice, whose shape nobody can know.
    """
    if on is None or on.platform == "cpu":
        return None
    if on.platform == "cuda" and on.config:
        hosts = -(-devices // 8)
        topology = f"1x1x{devices}" if hosts == 1 else f"1x{hosts}x8"
        return replace(on, count=devices, topology=topology)
    raise TargetError(
        f"The number of devices of {on} can't be varied.",
        hint="Vary a setting, or give another --on and --mesh.",
    )
