"""The options that say how fast a mesh axis is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from sdyscope.commands import options
from sdyscope.hardware.rates import parse_bandwidth, parse_latency

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
