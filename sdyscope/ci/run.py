"""Looks at all targets, each in a process of its own, several at a time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import msgspec

from sdyscope.ci.config import Config, Target
from sdyscope.ci.document import Ci, CiTarget, Outcome
from sdyscope.ci.golden import golden_files
from sdyscope.ci.judge import unjudged, unused_ignores
from sdyscope.ci.places import PlacedFinding, RepositoryPlaces
from sdyscope.errors import SdyscopeError, TargetError
from sdyscope.hardware.names import parse_devices
from sdyscope.process import child, children
from sdyscope.process.output import locked, say, write_atomically
from sdyscope.version import own_version
from sdyscope.words.ci import other_jax_text


def run(
    config: Config,
    targets: Sequence[Target],
    notify: Callable[[str, int, int], None],
    *,
    jobs: int | None = None,
    verbose: bool = False,
    updating: bool = False,
    remove_unused: bool = False,
    fixing: bool = False,
) -> Ci:
    """What came of targets; golden files are written where that is asked for.

    Args:
        config: the whole configuration.
        targets: those to look at.
        notify: told what is being done, how much of it is done, and of how much.
        jobs: how many targets at a time; None for as many as there are cores.
        verbose: whether what the compiler logs is passed on.
        updating: whether what changed in golden files is rewritten.
        remove_unused: whether programs that are no targets are removed from them then.
        fixing: whether remedies are looked for where a target fails.

    Raises:
        TargetError: no target is for the JAX that is installed.
    """
    start = time.perf_counter()
    jax = version("jax")
    running = [target for target in targets if target.is_for(jax)]
    if not running:
        # Green for ever, from the day on which JAX is a new one.
        raise TargetError(
            f"No target is for JAX {jax}, so nothing was checked.",
            file=config.file,
            hint="Change the targets' jax, or leave it out.",
        )
    outcomes = _outcomes(
        config,
        running,
        jobs or children.cores(),
        verbose,
        [*["--update"] * updating, *["--fix"] * fixing],
        notify,
    )
    general: list[PlacedFinding] = []
    if len(running) == len(config.targets):
        general += _unused_ignores(config, outcomes)
    with contextlib.ExitStack() as locks:
        golden = {target.snapshot.path for target in config.targets if target.snapshot is not None}
        # In one order, so that two runs can't wait for each other; a folder once.
        for folder in sorted({path.parent for path in golden}) if updating else ():
            locks.enter_context(locked(folder))
        files = list(golden_files(config, outcomes, updating=updating, remove_unused=remove_unused))
        updated = [file for file in files if file.wanted != file.text]
        for file in updated:
            write_atomically(file.path, file.wanted)
    general += (finding for file in files for finding in file.unused)
    return summed(
        config,
        [
            outcomes[target.name].target
            if target.name in outcomes
            else unjudged(config, target, skipped=other_jax_text(target.jax, jax))
            for target in targets
        ],
        general,
        jax=jax,
        seconds=time.perf_counter() - start,
        updated=[file.path for file in updated],
    )


def summed(
    config: Config,
    targets: Sequence[CiTarget],
    general: Sequence[PlacedFinding],
    *,
    jax: str,
    seconds: float,
    updated: Sequence[Path] = (),
) -> Ci:
    """The document of what came of all targets.

    Args:
        config: the configuration.
        targets: what came of each.
        general: findings about the configuration itself.
        jax: version of JAX.
        seconds: how long it took.
        updated: golden files that were written.
    """
    places = RepositoryPlaces(config.file)
    findings = places.findings(general, None)
    is_error = any(target.status == "error" for target in targets)
    failed = any(target.status == "failed" for target in targets) or any(
        finding.fails for finding in findings
    )
    return Ci(
        passed=not is_error and not failed,
        exit_status=2 if is_error else 1 if failed else 0,
        version=own_version(),
        jax=jax,
        config=places.path(str(config.file)) or str(config.file),
        seconds=seconds,
        targets=tuple(targets),
        findings=findings,
        updated=tuple(places.path(str(path)) or str(path) for path in updated),
    )


def _asked_for(target: Target) -> tuple[int, ...]:
    """How many devices a program finds that makes its own mesh, where the target says that."""
    if target.devices is None or target.mesh is not None or target.mesh_config is not None:
        return ()
    try:
        return (parse_devices(target.devices).count,)
    except TargetError:
        return ()  # The target's own process says it.


def _outcomes(
    config: Config,
    targets: Sequence[Target],
    jobs: int,
    verbose: bool,
    options: Sequence[str],
    notify: Callable[[str, int, int], None],
) -> dict[str, Outcome]:
    """What came of each target, by name; what its process says besides goes to standard error."""
    words = ["ci", "--outcome", "--config", str(config.file), *options]
    works = [
        children.ChildWork(
            f"target {target.name!r}",
            (*words, "--target", target.name),
            child.lowering(*_asked_for(target)),
            config.file.parent,
        )
        for target in targets
    ]
    notify("looking at targets", 0, len(works))
    answers = children.run_all(
        works, jobs, lambda done: notify("looking at targets", done, len(works))
    )
    outcomes: dict[str, Outcome] = {}
    for target, answer in zip(targets, answers, strict=True):
        if answer.data:
            outcomes[target.name] = msgspec.json.decode(answer.data, type=Outcome)
        else:
            said = answer.messages.strip().removeprefix("error: ")
            error = answer.error or SdyscopeError(said)
            outcomes[target.name] = Outcome(unjudged(config, target, error=error))
        # What the user's program prints while it is traced, and warnings.
        lines = answer.messages.splitlines() if answer.data or answer.error else []
        lines += [f"compiler: {line}" for line in answer.log] if verbose else []
        for line in lines:
            say(f"{target.name}: {line}")
    return outcomes


def _unused_ignores(config: Config, outcomes: Mapping[str, Outcome]) -> Iterator[PlacedFinding]:
    """Ignores for all targets that matched nothing, where everything could be looked at."""
    if any(outcome.target.status == "error" for outcome in outcomes.values()):
        return
    used = {
        config.ignores[number] for outcome in outcomes.values() for number in outcome.used_ignores
    }
    yield from unused_ignores(config.ignores, used)
