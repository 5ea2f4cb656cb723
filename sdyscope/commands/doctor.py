"""`sdyscope doctor`."""

from __future__ import annotations

import re
from typing import Any

import click

from sdyscope.commands import options
from sdyscope.process import child, output

#: The FILE of --write-gpu-config where none is named: it is called for the GPU.
_NAMED_FOR_GPU = "-"


def _environment(**_: Any) -> dict[str, str]:
    """Every platform that is installed is looked at."""
    return dict(child.SHARING)


@options.command(
    environment=_environment,
    examples=(
        "doctor",
        "doctor --write-gpu-config",
    ),
)
@click.option(
    "--write-gpu-config",
    metavar="[FILE]",
    is_flag=False,
    flag_value=_NAMED_FOR_GPU,
    help="Write XLA's description of this machine's GPU, for --on cuda:FILE:1x1x8 elsewhere. "
    "FILE defaults to its name, such as nvidia-h200.txtpb.",
)
@options.json("views.doctor:Doctor")
def command(write_gpu_config: str | None, as_json: bool) -> int:
    """Report what this JAX, machine and plugins support.

    Tries both partitioners on a one-line program, the MLIR and HLO bindings and every device that
    JAX can start, and lists the optional packages. Exit status 1 if something that every command
    needs is missing.
    """
    from sdyscope.stages import doctor
    from sdyscope.stages.compiled.gpu_config import gpu_config
    from sdyscope.terminal import document, table
    from sdyscope.views import doctor as view

    written = None
    if write_gpu_config is not None:
        config = gpu_config()
        file = _file(config.kind) if write_gpu_config == _NAMED_FOR_GPU else write_gpu_config
        output.write_atomically(file, config.text)
        written = view.WrittenGpuConfig(file=file, kind=config.kind, count=config.count)
    capabilities = view.document(doctor.examine(), written)
    if as_json:
        output.answers().write_bytes(document.encode(capabilities))
    else:
        table.print_table(view.table(capabilities))
        if written is not None:
            output.answers().write("")
            for line in view.wrote(written):
                table.print_text(line)
    return 0 if capabilities.well else 1


def _file(kind: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", kind.lower()).strip("-") + ".txtpb"
