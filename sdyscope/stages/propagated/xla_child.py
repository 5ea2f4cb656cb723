"""The process in which XLA compiles modules just far enough to write down what it decided.

Each request names a folder with ``module.mlirbc`` and ``options.json``. A fork of this process
compiles for as many virtual CPU devices as the module has partitions, and ends as soon as the dump
is written there: what comes after takes most of the time. What XLA crashes on ends that fork alone.
This process imports jaxlib and not JAX, which saves a second, and has the same names in all
versions; but for a module with custom calls, of which JAX tells XLA which ones can be partitioned.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

from jaxlib import _jax, xla_client

from sdyscope.process import worker
from sdyscope.stages import inspections
from sdyscope.stages.compile_options import compile_options

MODULE = "module.mlirbc"
OPTIONS = "options.json"
#: What the fork writes to its standard output and standard error.
SAID = "said.txt"
LOG = "log.txt"
#: How the fork ends when XLA says what is wrong, which is then on standard output.
REFUSED = 3

#: The dumps with the propagated shardings, and what of Shardy's is written next.
AFTER_SHARDY = "shardy/*/02.after_propagation.mlir"
_NEXT_OF_SHARDY = "shardy/*/03*.mlir"
AFTER_GSPMD = "*after_sharding-propagation*.txt"
#: The dump of what one device runs, before anything is made of it that is special to CPUs.
AFTER_PARTITIONING = "*after_spmd-partitioning*.txt"

_POLL = 0.01


def finished(folder: Path, partitioned: bool = False) -> Path | None:
    """The dump with the propagated shardings, or of the partitioned program, once it is there."""
    if partitioned:
        return _whole(folder, AFTER_PARTITIONING)
    for path in folder.glob(AFTER_SHARDY):
        return path if any(folder.glob(_NEXT_OF_SHARDY)) else None
    return _whole(folder, AFTER_GSPMD)


def _whole(folder: Path, pattern: str) -> Path | None:
    # TPUs propagate twice: the last is what counts. A text is whole when its entry, which comes
    # last, is closed.
    for path in sorted(folder.glob(pattern), reverse=True):
        text = path.read_bytes()
        return path if b"\nENTRY " in text and text.endswith(b"}\n\n") else None
    return None


def _watch(folder: Path, partitioned: bool) -> None:
    while finished(folder, partitioned) is None:
        time.sleep(_POLL)
    os._exit(0)


def _options(
    folder: Path,
    *,
    num_partitions: int,
    shardy: bool,
    explained: bool,
    partitioned: bool,
    parameters: list[bool],
    results: list[bool],
) -> Any:
    passes = ("shardy-verbose" if explained else "shardy-xla") if shardy else "sharding-propagation"
    if partitioned:
        passes = "spmd-partitioning"
    options = compile_options(
        range(num_partitions), shardy=shardy, parameters=parameters, results=results
    )
    options.env_option_overrides = [
        ("xla_dump_to", str(folder)),
        ("xla_dump_hlo_pass_re", passes),
        # Shardy's own dumps come whatever this says.
        ("xla_dump_hlo_module_re", "NOTHING" if shardy and not partitioned else "."),
        ("xla_dump_hlo_as_text", True),
    ]
    return options


def _compile(folder: Path, given: dict[str, Any]) -> int:
    """Compiles what is in ``folder``; the process's exit status."""
    client: Any = xla_client.make_cpu_client(num_devices=given["num_partitions"])
    options = _options(folder, **given)
    threading.Thread(target=_watch, args=(folder, given["partitioned"]), daemon=True).start()
    try:
        devices = _jax.DeviceList(tuple(client.devices()))
        bytecode = inspections.answered((folder / MODULE).read_bytes())
        client.compile_and_load(bytecode, devices, options)
    except Exception as error:  # XlaRuntimeError, by several names
        print(error)
        return REFUSED
    return 0


def serve() -> None:
    """Compiles what is in the folders that the parent names, until it ends."""
    worker.serve(_answer)


def _answer(request: bytes) -> bytes:
    """Compiles what is in a folder; the exit status of the process that did."""
    folder = Path(os.fsdecode(request))
    given = json.loads((folder / OPTIONS).read_text())
    if given.pop("registers_calls"):
        import jax  # noqa: F401 - for what it registers
    status = worker.forked(lambda: _compile(folder, given), folder / SAID, folder / LOG)
    return str(status).encode()
