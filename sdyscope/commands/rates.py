"""The options that say how fast a mesh axis is, or what traces to fit that to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sdyscope.commands import options
from sdyscope.hardware.rates import parse_bandwidth, parse_latency

if TYPE_CHECKING:
    from sdyscope.facts.calibration import Calibration
    from sdyscope.values.mesh import Mesh

_Function = TypeVar("_Function", bound=Callable[..., Any])


def bandwidths(otherwise: str) -> Callable[[_Function], _Function]:
    """`--bandwidth AXIS=RATE`, repeatable; the parameter `bandwidths` is bytes a second, by axis.

    Args:
        otherwise: what counts without it, for the option's help.
    """
    return click.option(
        "--bandwidth",
        "bandwidths",
        multiple=True,
        metavar="AXIS=RATE",
        callback=_by_axis(parse_bandwidth, "AXIS=RATE"),
        help="The bandwidth of a device over a mesh axis, such as model=90GB/s, 84GiB/s or "
        "400Gbit/s. "
        f"Can be repeated. By default {otherwise}.",
    )


def latencies(function: _Function) -> _Function:
    """`--latency AXIS=TIME`, repeatable; the parameter `latencies` is seconds a hop, by axis."""
    return click.option(
        "--latency",
        "latencies",
        multiple=True,
        metavar="AXIS=TIME",
        callback=_by_axis(parse_latency, "AXIS=TIME"),
        help="The latency of a hop over a mesh axis, such as model=1us. Can be repeated.",
    )(function)


def traces(use: str) -> Callable[[_Function], _Function]:
    """`--calibrate TRACE`, repeatable; the parameter `calibrate` is the traces.

    Args:
        use: what is done with them, for the option's help.
    """
    return click.option(
        "--calibrate", multiple=True, metavar="TRACE", help=f"{use} Can be repeated."
    )


def calibration(calibrate: Sequence[str], meshes: Iterable[Mesh]) -> Calibration | None:
    """The rates of axes, arithmetic and memory at which programs ran in some traces.

    Args:
        calibrate: the traces; without any there are no rates.
        meshes: the meshes of the program, whose axes to name where there is one.
    """
    from sdyscope.analysis.cost.calibrate import calibrated
    from sdyscope.analysis.profile.measured import measured
    from sdyscope.analysis.profile.profile import traced_program
    from sdyscope.stages.executed.traces import read_trace
    from sdyscope.values.mesh import only_mesh

    if not calibrate:
        return None
    mesh = only_mesh(meshes)
    programs = {trace: traced_program(read_trace(Path(trace))) for trace in calibrate}
    measurements = {
        trace: measured(program, () if mesh is None else (mesh,))
        for trace, program in programs.items()
    }
    return calibrated(measurements, programs)


def _by_axis(
    parse: Callable[[str], float], form: str
) -> Callable[[click.Context, click.Parameter, Sequence[str]], dict[str, float]]:
    def read(_: click.Context, __: click.Parameter, words: Sequence[str]) -> dict[str, float]:
        rates: dict[str, float] = {}
        for word in words:
            axis, value = options.pair(word, form)
            if axis in rates:
                raise click.BadParameter(f"mesh axis {axis!r} is named twice.")
            with options.usage():
                rates[axis] = parse(value)
        return rates

    return read
