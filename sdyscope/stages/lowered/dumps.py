"""Directories of dumps: what JAX_DUMP_IR_TO and xla_dump_to make of a whole run."""

from __future__ import annotations

import re
from pathlib import Path

from sdyscope.errors import TargetError
from sdyscope.facts.recorded import is_recorded, read_record

#: How JAX names what JAX_DUMP_IR_TO makes it write: a counter, the function, the stage.
_JAX_DUMP = re.compile(r"jax_ir(\d+)_(.*?)(?:_compile)?\.mlir")
#: How XLA names a module as Shardy gets it, and as it is after propagation.
_INPUT, _AFTER_EXPORT = "00.input_module.mlir", "sdy_module_after_sdy_export.mlir"


def dumped_files(folder: Path | str) -> list[Path]:
    """The lowered modules in a directory of dumps, in the order in which they were written.

    Of what JAX_DUMP_IR_TO wrote, every module. Of what xla_dump_to wrote, each module as Shardy got
    it, else as Shardy left it (`sdy_module_after_sdy_export`, of which Shardy's guide speaks), or
    else as XLA got it (`before_optimizations`). Of a recorded run, each program's module for
    its own partitioner. Else every file that ends like a module.

    Raises:
        TargetError: there are none, or no such directory.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise TargetError("There is no such directory.", file=folder)
    if is_recorded(folder):
        programs = read_record(folder).programs
        return [folder / program.modules[program.partitioner] for program in programs]
    jax_dumps = sorted(
        (int(match[1]), path)
        for path in folder.glob("jax_ir*.mlir")
        if (match := _JAX_DUMP.fullmatch(path.name))
    )
    if jax_dumps:
        return [path for _, path in jax_dumps]
    patterns = (
        f"shardy/*/{_INPUT}",
        # XLA before it numbered its dumps; with or without a folder for each module.
        f"shardy/**/*{_AFTER_EXPORT}",
        "*before_optimizations.txt",
    )
    endings = ("*.mlir", "*.mlirbc", "*.hlo", "*.txt", "*.pb")
    for pattern in patterns:
        if found_files := sorted(folder.glob(pattern)):
            return found_files
    if found_files := sorted(path for ending in endings for path in folder.glob(ending)):
        return found_files
    raise TargetError(
        "There are no modules in this directory.",
        file=folder,
        hint="Make some: sdyscope record -o DIR -- python train.py.",
    )
