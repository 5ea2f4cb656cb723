"""Keeps what propagation decides of a recorded run's programs, by the JAX that ran them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import msgspec

from sdyscope.commands.record_run import STARTING, lines_file, write_line
from sdyscope.facts.program import Partitioner, Versions
from sdyscope.facts.recorded import PROPAGATED, Record, RecordedProgram
from sdyscope.facts.remarks import Remark
from sdyscope.process.output import make_folder, write_atomically
from sdyscope.process.worker import Worker, WorkerDiedError
from sdyscope.stages.propagated.recording_child import KeptAnswer, ToKeep
from sdyscope.words.counts import sentence

#: Bytes of a module's text that are propagated in a second: the reference transformer of 40 layers
#: has 2.8 MB, and takes three.
_BYTES_A_SECOND = 1e6
#: How often the seconds that a program is expected to take it may take.
_PATIENCE = 20.0


def keep(folder: Path, record: Record, seconds: float | None) -> tuple[Remark, ...]:
    """Propagates the programs of a run in a process of its own, those of large modules first.

    Each under the partitioner that it ran under. Of programs that another JAX than sdyscope's own
    ran there is nothing to keep, nor of JAX's own functions.

    Args:
        folder: the run's folder.
        record: what was recorded.
        seconds: how many it may take, as far as that is known before; None for all programs.

    Returns:
        Of which programs there is nothing to keep, as another JAX ran them.

    Raises:
        TargetError: the folder can't be written.
    """
    own = Versions(_installed("jax"), _installed("jaxlib"))
    under = dict(_programs(record, own))
    sizes = {file: (folder / file).stat().st_size for file in under}
    left = None if seconds is None else seconds - STARTING
    programs: list[str] = []
    for file in sorted(sizes, key=sizes.__getitem__, reverse=True):
        expected = sizes[file] / _BYTES_A_SECOND
        if left is not None and expected > left:
            continue
        programs.append(file)
        left = None if left is None else left - expected
    others = dict.fromkeys(
        str(program.versions) for program in record.own if program.versions != own
    )
    remarks = tuple(Remark("propagation of another JAX", by, other=str(own)) for by in others)
    if not programs:
        return remarks
    worker = Worker(
        "from sdyscope.stages.propagated import recording_child; recording_child.serve()"
    )
    lines = lines_file(folder)
    make_folder(folder / PROPAGATED)
    for file in programs:
        patience = _PATIENCE * (STARTING + sizes[file] / _BYTES_A_SECOND)
        asked = ToKeep(str((folder / file).resolve()), under[file])
        answer = _asked(worker, asked, patience)
        name = hashlib.sha256(answer.kept).hexdigest()[:16] if answer.kept else ""
        if name:
            write_atomically(folder / PROPAGATED / f"{name}.json", answer.kept)
        write_line(
            lines,
            {
                "line": "propagated",
                "at": time.time(),
                "module": Path(file).stem,
                "jax": own.jax,
                "jaxlib": own.jaxlib,
                "file": name,
                "failed": answer.failed,
            },
        )
    worker.end()
    return remarks


def _programs(record: Record, own: Versions) -> Iterator[tuple[str, Partitioner]]:
    """The files of the modules that are to be propagated, and under which partitioner."""
    for program in record.own:
        if _is_to_keep(program, own):
            yield program.modules[program.partitioner], program.partitioner


def _is_to_keep(program: RecordedProgram, own: Versions) -> bool:
    return (
        program.versions == own
        and program.partitioner in program.modules
        and program.propagated is None
        and (program.devices or 0) != 1
    )


def _asked(worker: Worker, asked: ToKeep, patience: float) -> KeptAnswer:
    try:
        answer = worker.ask(msgspec.msgpack.encode(asked), patience)
        return msgspec.msgpack.decode(answer, type=KeptAnswer)
    except WorkerDiedError as died:
        return KeptAnswer(failed=sentence(f"its process ended with {died.how}"))
    except OSError as error:
        return KeptAnswer(failed=sentence(f"there is no process for it: {error.strerror}"))


def _installed(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
