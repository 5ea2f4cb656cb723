"""`sdyscope cost`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from sdyscope.commands import compiled_file, opening, options, propagation
from sdyscope.rates import parse_bandwidth, parse_latency

if TYPE_CHECKING:
    from sdyscope.hardware import Hardware


def _rates(
    parse: Callable[[str], float],
) -> Callable[[click.Context, click.Parameter, Sequence[str]], dict[str, float]]:
    """Reads `AXIS=VALUE`, repeatable, as a dict."""
    from sdyscope.errors import TargetError

    def read(_: click.Context, __: click.Parameter, words: Sequence[str]) -> dict[str, float]:
        found: dict[str, float] = {}
        for word in words:
            axis, equals, value = (part.strip() for part in word.partition("="))
            if not (axis and equals and value):
                raise click.BadParameter(f"{word!r} does not have the form AXIS=VALUE.")
            if axis in found:
                raise click.BadParameter(f"mesh axis {axis!r} is named twice.")
            try:
                found[axis] = parse(value)
            except TargetError as error:
                raise click.BadParameter(str(error).replace("\n", " ")) from error
        return found

    return read


@options.command()
@options.target
@options.mesh
@options.on
@click.option(
    "--partitioner",
    type=click.Choice(list(options.PARTITIONERS)),
    help="Under which to compile. By default shardy, or what a file is written for.",
)
@click.option(
    "--bandwidth",
    "bandwidths",
    multiple=True,
    metavar="AXIS=RATE",
    callback=_rates(parse_bandwidth),
    help="What a device sends over a mesh axis, such as model=90GB/s, 84GiB/s or 400Gbit/s, in "
    "place of the table of hardware. Can be repeated.",
)
@click.option(
    "--latency",
    "latencies",
    multiple=True,
    metavar="AXIS=TIME",
    callback=_rates(parse_latency),
    help="What a hop over a mesh axis takes, such as model=1us. Can be repeated.",
)
@options.settings
@opening.module
@click.option(
    "--top",
    type=click.IntRange(min=0),
    default=8,
    show_default=True,
    metavar="N",
    help="How many scopes to show; 0 for all.",
)
@options.json
def command(
    target: str,
    mesh: dict[str, int] | None,
    on: Hardware | None,
    partitioner: str | None,
    bandwidths: dict[str, float],
    latencies: dict[str, float],
    settings: dict[str, str],
    module: str | None,
    top: int,
    as_json: bool,
) -> int:
    """Estimate what limits a step: compute, memory or a mesh axis.

    The program is compiled, not run. How long arithmetic, memory and the links of each mesh axis
    are busy at least, by models of rings, tori and switches and by published figures of the
    hardware; and so what a step takes at least, with everything overlapped and with nothing. It is
    an estimate, not a measurement.
    """
    from sdyscope.errors import TargetError
    from sdyscope.views import cost, cost_table, document, output, paragraphs, table

    if compiled_file.compiled_file(target) is not None:
        raise TargetError(
            f"{target} is the text of a compiled program, which does not say what for.",
            hint="Name the program itself; `sdyscope comms` shows what the text sends.",
        )
    inspection = propagation.open_target(
        target, mesh=mesh, settings=settings, partitioner=partitioner, module=module
    )
    found = cost.document(inspection, on, bandwidths, latencies)
    here = output.answers()
    if as_json:
        here.write_bytes(document.encode(found))
        return 0
    for number, program in enumerate(found.programs):
        alike = cost_table.alike(found, number)
        if alike is None:
            continue
        if number:
            here.write("")
        paragraphs.print_paragraphs(cost_table.heading(found, program, alike))
        here.write("")
        table.print_table(cost_table.roofs(program))
        here.write("")
        if program.collectives:
            table.print_table(cost_table.kinds(program))
            here.write("")
            table.print_table(cost_table.scopes(program, top))
            here.write("")
        paragraphs.print_paragraphs(cost_table.footer(program, top))
    paragraphs.print_paragraphs(cost_table.failed(found))
    return 0
