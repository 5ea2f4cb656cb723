"""`sdyscope memory`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sdyscope.commands import compiled_file, opening, options

if TYPE_CHECKING:
    from pathlib import Path

    from sdyscope.hardware.names import Hardware


@options.command()
@options.target
@options.mesh
@options.on
@options.one_partitioner("Under which to compile.")
@options.settings
@opening.module
@options.top(10, "rows to show of what could be sharded further")
@options.json("views.memory:Memory")
def command(
    target: str,
    mesh: dict[str, int] | None,
    on: Hardware | None,
    partitioner: str | None,
    settings: dict[str, str],
    module: str | None,
    top: int,
    as_json: bool,
) -> int:
    """Show what a device holds, and which bytes it could save.

    The program is compiled, not run: by argument and result the bytes a device, which of them share
    a buffer, what the program needs besides, and which tensors could be sharded further along which
    axes. Exit status 1 if a donation is of no use, or bytes are not what the compiler says.

    TARGET may also be the HLO text of a compiled program, as `compiled.as_text()` and XLA's dumps
    have it, which says what arguments and results take, and which share a buffer.
    """
    from sdyscope.process import output
    from sdyscope.terminal import document, paragraphs, table
    from sdyscope.views import memory, memory_table

    file = compiled_file.compiled_file(target)
    if file is not None:
        given = {"--on": on, "--mesh": mesh, "--module": module, "--partitioner": partitioner}
        return _of_text(file, [option for option, value in given.items() if value], top, as_json)
    inspection = opening.open_under(
        target, partitioner, mesh=mesh, settings=settings, module=module
    )
    found = memory.document(inspection, on)
    here = output.answers()
    if as_json:
        here.write_bytes(document.encode(found))
        return 0 if found.passed else 1
    for number, (compiled, partitioners) in enumerate(memory_table.told(found)):
        if number:
            here.write("")
        table.print_text(memory_table.heading(found, compiled, partitioners), "heading")
        here.write("")
        table.print_table(memory_table.groups(compiled))
        here.write("")
        if compiled.savings:
            table.print_table(memory_table.savings(compiled, top, here.columns))
            here.write("")
        paragraphs.print_paragraphs(memory_table.footer(compiled, top, partitioners))
    paragraphs.print_paragraphs(memory_table.failures(found))
    return 0 if found.passed else 1


def _of_text(file: Path, given: list[str], top: int, as_json: bool) -> int:
    from sdyscope.analysis.memory.text import text_memory
    from sdyscope.errors import SdyscopeError, TargetError
    from sdyscope.process import output
    from sdyscope.terminal import document, paragraphs, table
    from sdyscope.views import memory_text

    if given:
        raise TargetError(
            f"{file} is the text of a program that was compiled already.",
            hint=f"Leave {given[0]} out.",
        )
    module = compiled_file.read_module(file)
    try:
        found = text_memory(module)
    except SdyscopeError as error:
        error.file = str(file)
        raise
    made = memory_text.document(module.name, str(file), found)
    if as_json:
        output.answers().write_bytes(document.encode(made))
        return 0
    here = output.answers()
    table.print_text(memory_text.heading(made, found), "heading")
    here.write("")
    table.print_table(memory_text.groups(found))
    here.write("")
    table.print_table(memory_text.largest(found, top))
    here.write("")
    paragraphs.print_paragraphs(memory_text.footer(found, top))
    return 0
