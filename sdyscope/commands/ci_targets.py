"""Each target of `sdyscope ci` in a process of its own: what asks it, and what it answers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from sdyscope.errors import SdyscopeError

if TYPE_CHECKING:
    from sdyscope.ci import Config, Outcome, Target

__all__ = ["answer", "outcomes"]


def answer(config: Config, target: Target) -> int:
    """Looks at a target and answers what came of it, for the process that asked."""
    import msgspec

    from sdyscope.ci import Outcome, Trouble
    from sdyscope.views import output

    start = time.perf_counter()
    try:
        found = _judged(config, target)
    except SdyscopeError as error:
        found = Outcome(target.name, trouble=Trouble.of(error))
    found = replace(found, seconds=time.perf_counter() - start)
    output.answers().write_bytes(msgspec.json.encode(found))
    return 0


def _judged(config: Config, target: Target) -> Outcome:
    from sdyscope.ci import judge
    from sdyscope.commands import mesh_choice, named_axes, opening
    from sdyscope.hardware import parse_hardware

    on = None if target.on is None else parse_hardware(target.on)
    devices = None if target.devices is None else mesh_choice.parse_devices(target.devices)
    about = {"target": target.word, "on": on, "settings": target.settings}
    mesh = mesh_choice.chosen_mesh(
        target.mesh,
        target.mesh_config,
        target.mesh_selector,
        devices,
        about,
        has_config=target.lint,
    )
    inspection = opening.open_one(
        target.word,
        mesh=mesh,
        settings=target.settings,
        partitioners=target.partitioners,
        module=target.module,
    )
    logical, why_not = None, ""
    if target.lint:
        logical, why_not = named_axes.logical_axes(inspection, target.mesh_config)
    return judge(config, target, inspection, logical, why_not)


def outcomes(
    config: Config,
    targets: Sequence[Target],
    jobs: int | None,
    verbose: bool,
    notify: Callable[[str, int, int], None],
) -> dict[str, Outcome]:
    """What came of each target, by name.

    Args:
      config: the whole configuration.
      targets: the targets to look at.
      jobs: how many at a time; None for as many as there are cores.
      verbose: whether what the compiler logs is passed on.
      notify: told how many are done.
    """
    import msgspec

    from sdyscope import child, children
    from sdyscope.ci import Outcome, Trouble

    works = [
        children.Work(
            f"target {one.name!r}",
            ("ci", "--config", str(config.file), "--target", one.name, "--outcome"),
            child.LOWERING,
            config.file.parent,
        )
        for one in targets
    ]
    notify("looking at targets", 0, len(works))
    answers = children.run_all(
        works, jobs or _cores(), lambda done: notify("looking at targets", done, len(works))
    )
    found: dict[str, Outcome] = {}
    for target, answer in zip(targets, answers, strict=True):
        if answer.data:
            found[target.name] = msgspec.json.decode(answer.data, type=Outcome)
        else:
            said = answer.messages.strip().removeprefix("error: ")
            trouble = Trouble(str(answer.error or said))
            found[target.name] = Outcome(target.name, trouble=trouble)
        # What the user's program prints while it is traced, and warnings.
        lines = answer.messages.splitlines() if answer.data or answer.error else []
        lines += [f"compiler: {line}" for line in answer.log] if verbose else []
        for line in lines:
            click.echo(f"{target.name}: {line}", err=True)
    return found


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
