"""`sdyscope run`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from sdyscope.commands import mesh_choice, opening, options
from sdyscope.program import Partitioner
from sdyscope.stages.doctor import MOST_CPU_DEVICES

if TYPE_CHECKING:
    from sdyscope.inspection import Inspection

#: How many virtual CPU devices there are unless the mesh needs more.
VIRTUAL = 8


def environment(
    mesh: Mapping[str, int] | None,
    devices: int | mesh_choice.Devices | None = None,
    platform: str | None = None,
    mesh_config: str | None = None,
    mesh_selector: str | None = None,
    **_: Any,
) -> dict[str, str]:
    """What JAX reads once, when it is imported: how many CPU devices, and whether only those."""
    wanted = {}
    if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        asked = mesh_choice.known_devices(mesh, mesh_config, mesh_selector)
        given = devices.count if isinstance(devices, mesh_choice.Devices) else devices
        count = given or max(VIRTUAL, asked)
        wanted["JAX_NUM_CPU_DEVICES"] = str(min(count, MOST_CPU_DEVICES))
    if platform == "cpu":
        wanted["JAX_PLATFORMS"] = "cpu"
    return wanted


@options.command(environment=environment)
@options.target
@options.mesh
@options.partitioner()
@options.settings
@click.option(
    "--devices",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many devices to use at most; of virtual CPU devices, how many to make.",
)
@click.option(
    "--platform",
    type=click.Choice(["cpu", "gpu", "tpu"]),
    help="What to run on. By default an accelerator that has enough devices, else the CPU.",
)
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    metavar="N",
    help="How many steps to time, after a warm-up.",
)
@options.json
def command(
    target: str,
    mesh: dict[str, int] | None,
    partitioners: tuple[Partitioner, ...],
    settings: dict[str, str],
    devices: int | None,
    platform: str | None,
    steps: int,
    as_json: bool,
) -> int:
    """Run the program on real devices; compare shards and numbers.

    Every shard of every argument and result is compared with the placement that was asked for and
    lowered, every result with the same step on one device, within a tolerance for its dtype. Steps
    are timed and memory is counted. Exit status 1 if there is anything worse than a note.
    """
    from sdyscope.stages import devices as finding
    from sdyscope.views import document, output, paragraphs, progress, run, run_table, table

    inspection = opening.open_one(target, mesh=mesh, settings=settings, partitioners=partitioners)
    if inspection.program is not None and devices is None:
        finding.more_cpu_devices(max(VIRTUAL, finding.devices_needed(inspection.program)))
    with progress.progress_bar(not as_json) as notify:
        ran = inspection.run(
            steps=steps,
            devices=devices_for(inspection, platform, devices),
            notify=notify,
        )
    found = run.document(ran)
    here = output.answers()
    if as_json:
        here.write_bytes(document.encode(found))
        return 0 if found.passed else 1
    table.print_text(run_table.heading(found), "heading")
    here.write("")
    table.print_table(run_table.summary(found))
    here.write("")
    if any(one.ran for one in found.partitioners):
        table.print_table(run_table.tensors(found))
        here.write("")
    if any(one.errors for one in found.partitioners):
        table.print_table(run_table.numerics(found))
        here.write("")
    paragraphs.print_paragraphs(run_table.footer(found))
    return 0 if found.passed else 1


def devices_for(
    inspection: Inspection, platform: str | None = None, at_most: int | None = None
) -> tuple[Any, ...] | None:
    """What to run on; None for a program that names its devices, and for what can't be run."""
    from sdyscope.stages import compat
    from sdyscope.stages.devices import find_devices

    if inspection.program is None:
        return None
    modules = inspection.lowered.values()
    if any(compat.lowering_devices(module.lowered) is not None for module in modules):
        return None
    needed = max(module.num_devices for module in modules)
    return find_devices(needed, platform, at_most)
