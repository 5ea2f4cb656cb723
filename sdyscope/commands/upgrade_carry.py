"""What the process in another environment does: opens a TARGET, looks at it, hands that over."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sdyscope.commands import opening, options
from sdyscope.errors import SdyscopeError, TargetError
from sdyscope.facts.program import Partitioner
from sdyscope.hardware.names import Hardware
from sdyscope.process import output

if TYPE_CHECKING:
    from sdyscope.facts.recorded import Record, RecordedProgram
    from sdyscope.inspection import Inspection
    from sdyscope.upgrade.carried import CarriedProgram

#: Variables that tell the process more than its command line: a folder whose modules are not to be
#: imported, the keys of modules that are known, and the last stage that is needed: `lowered`,
#: `propagated` or, by default, `compiled`.
ELSEWHERE = "SDYSCOPE_NOT_FROM"
KNOWN = "SDYSCOPE_KNOWN_MODULES"
UP_TO = "SDYSCOPE_UP_TO"


@options.mesh
@click.option(
    "--partitioner",
    type=options.choice(Partitioner),
    help="The partitioner to look at. By default shardy, or that of the script.",
)
@options.on
@options.settings
@opening.module
def carry(
    file: Path,
    target: str,
    page: Path | None,
    name: str,
    mesh: Mapping[str, int] | None,
    partitioner: Partitioner | None,
    on: Hardware | None,
    settings: Mapping[str, object],
    module: str | None,
) -> int:
    """Writes the stages of a TARGET's programs to a file.

    Args:
        file: the file.
        target: the TARGET; of a recorded run, its functions that are not JAX's are looked at.
        page: the page that is to be written, for which views are handed over too; None without one.
        name: the only program that matters; empty for all.
        mesh: axes of the mesh; None for the target's own.
        partitioner: under which; by default Shardy, or what a file is for.
        on: what to compile for.
        settings: settings of the target.
        module: which module of a directory.

    Raises:
        SdyscopeError: the TARGET can't be opened.
    """
    from sdyscope.analysis.recompiles import recompiles
    from sdyscope.stages import compat
    from sdyscope.upgrade import carried
    from sdyscope.words.upgrade import SEVERAL_PROGRAMS

    if opening.is_read(target):
        opened = opening.Opening(target, module=module).opened()
    else:
        subject = opening.Opening(target, mesh, settings, module)
        opened = subject.opened(subject.under(partitioner))
    own, record = opened.own, opened.record
    _check_imports(record)
    programs = []
    for program in own:
        word = target if record is None else program.name
        recorded = opened.program_of(program)
        carried_program = _program(program, recorded, on)
        if page is not None and carried_program.stages is not None:
            named = name in (program.name, recorded and recorded.name) if name else len(own) == 1
            views = _views(program, word, on, page) if named else SEVERAL_PROGRAMS
            carried_program = replace(carried_program, views=views)
        programs.append(carried_program)
    answer = carried.Carried(
        versions=compat.versions(),
        programs=tuple(programs),
        recompiles=() if record is None else recompiles(record, own),
        left_out=len(opened.programs) - len(own),
        problems=() if record is None else record.problems,
    )
    output.write_atomically(file, carried.encoded(answer))
    # The process that started this one takes an answer for success.
    output.answers().write(str(answer.versions))
    return 0


def _check_imports(record: Record | None) -> None:
    """Finds code that was imported from where it is not to come from: a checkout of another commit.

    Args:
        record: what was recorded of a script; None of a TARGET, which this process has imported.

    Raises:
        TargetError: a module is from there.
    """
    folder = os.environ.get(ELSEWHERE)
    if not folder:
        return
    files: dict[str, str] = {}
    for name, module in list(sys.modules.items()):
        files[getattr(module, "__file__", None) or ""] = name
    for program in () if record is None else record.programs:
        for line in (program.defined, *program.called):
            files["" if line is None else line.file] = program.name
    for file, name in files.items():
        if file.startswith(folder + os.sep) and "site-packages" not in file.split(os.sep):
            raise TargetError(
                f"{name} was imported from {file}, not from the commit's own files.",
                hint="Is it installed from that folder? Put it on PYTHONPATH instead, or name "
                "TARGET by its file.",
            )


def _program(
    program: Inspection, recorded: RecordedProgram | None, on: Hardware | None
) -> CarriedProgram:
    from sdyscope.analysis.diff.stages import stages_of
    from sdyscope.stages import compat
    from sdyscope.upgrade.carried import CarriedProgram

    try:
        key = _key(program)
        up_to = os.environ.get(UP_TO, "compiled")
        if up_to == "lowered" or key in os.environ.get(KNOWN, "").split(","):
            return CarriedProgram(program.name, None, key, recorded)
        stages = stages_of(program, compat.versions(), on, compiles=up_to == "compiled")
    except SdyscopeError as error:
        return CarriedProgram(program.name, None, "", recorded, str(error))
    return CarriedProgram(program.name, stages, key, recorded)


def _key(program: Inspection) -> str:
    """Digest of all that a program's stages depend on but source lines: two alike are one program.

    That is its module, the names of tensors and ops in it, and what compiles it otherwise: the
    order of devices and jit's `compiler_options`, of which the module has nothing.
    """
    partitioner = program.chosen(None)
    lowered = program.lowered[partitioner]
    named = [op.scope for op in program.graph(partitioner).ops]
    compiled_with = lowered.device_platform, lowered.device_order, lowered.compiler_options
    parts = lowered.text(debug_info=False), repr(named), repr(compiled_with)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _views(
    program: Inspection, word: str, on: Hardware | None, page: Path
) -> tuple[tuple[str, str, str], ...] | str:
    """What a page has of a program's views; why it has none."""
    from sdyscope.page import document as report
    from sdyscope.page import page as report_page
    from sdyscope.words.paths import page_folder

    try:
        document = report.document(program, word, on=on)
        return report_page.views_of(document, program, folder=page_folder(page))
    except SdyscopeError as error:
        return error.message
