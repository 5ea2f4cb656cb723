"""What NCCL expects of its algorithms and protocols, from ``nccl.toml`` beside this module."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, TypeAlias

from sdyscope.hardware.specs import SpecSource

ByProtocol: TypeAlias = tuple[float, float, float]
"""Of LL, LL128 and Simple."""


@dataclass(frozen=True, slots=True)
class Ring:
    """A ring: latencies in seconds.

    Attributes:
        base: of starting it.
        nvlink: of a step to a neighbour on the same host.
        network: of one to another host.
        least_between_hosts: of every step where there are several hosts.
        simple_between_hosts: what an all-reduce takes of them in Simple, in times.
        ll128: what of the bandwidth LL128 uses.
    """

    base: ByProtocol
    nvlink: ByProtocol
    network: ByProtocol
    least_between_hosts: ByProtocol
    simple_between_hosts: float
    ll128: float


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree: latencies in seconds.

    Attributes:
        base: of starting it.
        nvlink: of a step on the same host.
        network: of one to another host.
        share: what of the bandwidth it uses.
        ll: bytes that LL sends for each.
        ll128: what of the bandwidth LL128 uses: on one host, on several.
        by_size: what of it is left for operands of 64, 128, ... bytes, by protocol.
    """

    base: ByProtocol
    nvlink: ByProtocol
    network: ByProtocol
    share: float
    ll: float
    ll128: tuple[float, float]
    by_size: tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class Nvls:
    """NVLink SHARP, where the switches reduce and copy.

    Attributes:
        latency: seconds on a host.
        network: seconds of a step to another host.
        most_channels: how many channels there are at most.
        fewest_gpus: of a host for which it is used.
    """

    latency: float
    network: float
    most_channels: int
    fewest_gpus: int


@dataclass(frozen=True, slots=True)
class GpuRates:
    """What NCCL expects of the GPUs of a compute capability, in bytes a second.

    Attributes:
        link: of one NVLink.
        link_sold: what it is sold as.
        ll: the most that LL sends: on one host, on several.
        network_speeds: of networks, of which the largest that a network has is used; empty where
            all of it is.
        nvls_share: what of a channel NVLS uses; 0 where there is none.
        nvls_speeds: of a channel of NVLS.
        nvls_tree: the most of a channel between hosts: two, more.
    """

    link: float
    link_sold: float
    ll: tuple[float, float]
    network_speeds: tuple[float, ...] = ()
    nvls_share: float = 0.0
    nvls_speeds: tuple[float, ...] = ()
    nvls_tree: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Nccl:
    """NCCL's own model.

    Attributes:
        source: where it is from.
        ring: rings.
        tree: trees.
        nvls: NVLink SHARP.
        gpus: what it expects of GPUs, by the first number of their compute capability.
        overhead: seconds that every collective of the published tables takes besides.
        factor: and how many times as long as NCCL expects.
    """

    source: SpecSource
    ring: Ring
    tree: Tree
    nvls: Nvls
    gpus: Mapping[int, GpuRates]
    overhead: float
    factor: float


@cache
def nccl() -> Nccl:
    """NCCL's own model."""
    text = files("sdyscope.hardware").joinpath("nccl.toml").read_text("utf-8")
    table: dict[str, Any] = _frozen(tomllib.loads(text))
    return Nccl(
        SpecSource(**table["source"]),
        Ring(**table["ring"]),
        Tree(**table["tree"]),
        Nvls(**table["nvls"]),
        {int(major): GpuRates(**rates) for major, rates in table["gpus"].items()},
        **table["fitted"],
    )


def _frozen(value: Any) -> Any:
    """With tuples for lists."""
    if isinstance(value, dict):
        return {key: _frozen(each) for key, each in value.items()}
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
