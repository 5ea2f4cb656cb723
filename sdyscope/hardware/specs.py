"""What chips can do: arithmetic, memory and links, each figure with the document it is from.

The figures are in ``specs.toml`` beside this module. What no source was found for is
unknown, and stays so.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal, TypeAlias, get_args

#: What can be known of a chip; specs.toml says what each is.
FIGURES = (
    "flops_bf16",
    "flops_int8",
    "flops_fp8",
    "flops_tf32",
    "hbm_bytes",
    "hbm_bandwidth",
    "ici_link",
    "die_to_die",
    "dcn",
    "nvlink",
    "network",
    "hop_latency",
)


@dataclass(frozen=True, slots=True)
class SpecSource:
    """A document.

    Attributes:
        title: what it is called.
        url: where it is.
        date: of the document, or on which it was read: ``2026-11-21``.
    """

    title: str
    url: str
    date: str


@dataclass(frozen=True, slots=True)
class SpecFigure:
    """A number, and where it is from.

    Attributes:
        value: in operations a second, bytes, bytes a second or seconds.
        source: the document.
    """

    value: float
    source: SpecSource


@dataclass(frozen=True, slots=True)
class GpuDetails:
    """What XLA asks of a GPU besides, to compile for it; sizes in bytes.

    Attributes:
        source: the document.
        compute_capability: major and minor.
        cores: streaming multiprocessors that are enabled.
        fpus_per_core: float32 units of one of them.
        clock_ghz: boost clock.
        shared_memory_per_core: shared memory of one streaming multiprocessor.
        shared_memory_per_block: of it the most that one thread block can ask for.
        l2_cache: L2 cache.
    """

    source: SpecSource
    compute_capability: tuple[int, int]
    cores: int
    fpus_per_core: int
    clock_ghz: float
    shared_memory_per_core: int
    shared_memory_per_block: int
    l2_cache: int


@dataclass(frozen=True, slots=True)
class Chip:
    """A chip.

    Attributes:
        key: its name in the table: ``v5e``, ``h100``.
        name: what it is called.
        kinds: what JAX calls its devices (``device_kind``).
        figures: what is known of it, by the names in ``FIGURES``.
        devices: how many devices JAX makes of it.
        torus: of TPUs how many dimensions the torus has that chips of a slice form; 0 of GPUs.
        wraps_at: chips that a dimension of a slice must have to be a ring; None for another rule.
        wraps_in: what all dimensions of a slice must be multiples of to be rings; None likewise.
        nvlink_domain: GPUs that NVLink connects with each other; None of TPUs.
        gpu: what else XLA asks of a GPU; None of TPUs.
    """

    key: str
    name: str
    kinds: tuple[str, ...]
    figures: Mapping[str, SpecFigure]
    devices: int = 1
    torus: int = 0
    wraps_at: int | None = None
    wraps_in: int | None = None
    nvlink_domain: int | None = None
    gpu: GpuDetails | None = None

    __document__ = ("name", "figures")

    def value(self, figure: str) -> float | None:
        """A figure's value; None where it is not known."""
        known = self.figures.get(figure)
        return None if known is None else known.value

    @property
    def titles(self) -> tuple[str, ...]:
        """What the documents are called that its figures are from, each once."""
        return tuple(dict.fromkeys(figure.source.title for figure in self.figures.values()))

    @property
    def flops_per_byte(self) -> float:
        """bf16 FLOPs in the time in which it sends a byte over one mesh axis.

        An axis of a TPU has the two links of one dimension of the torus, one of a GPU has NVLink.
        """
        link = self.figures["nvlink" if self.gpu is not None else "ici_link"].value
        links = 1 if self.gpu is not None else 2
        return self.figures["flops_bf16"].value / (links * link)

    def is_ring(self, size: int, slice_sizes: tuple[int, ...]) -> bool:
        """Whether a dimension of a slice is closed to a ring.

        Args:
            size: chips along this dimension.
            slice_sizes: chips along each dimension of the slice.
        """
        if self.wraps_at is not None:
            return size == self.wraps_at
        if self.wraps_in is not None:
            each = (*slice_sizes, *[1] * (self.torus - len(slice_sizes)))
            return all(length % self.wraps_in == 0 for length in each)
        return False


Estimated: TypeAlias = Literal["steps", "collectives", "matmuls", "elementwise", "copies"]
"""What has an estimate: a whole step; a collective; an op with dots or convolutions, with other
arithmetic, or that only moves bytes."""


@dataclass(frozen=True, slots=True)
class EstimateError:
    """How far estimates were off when they were compared with a run, as a part of what it took.

    Attributes:
        of: what was estimated.
        median: the median error; of ops that send nothing, half of their time is in those that are
            off by less.
        measured: what was run, where the table of hardware says; empty for traces that were given.
        count: how many were compared; 0 where the table does not say.
        held_out: the same of each trace by rates that were fitted to the other traces; None where
            that is not known, as of one trace.
    """

    of: Estimated
    median: float
    measured: str = ""
    count: int = 0
    held_out: float | None = None

    @property
    def expected(self) -> float:
        """The error to expect of another program: that of other traces, where it is known."""
        return self.median if self.held_out is None else self.held_out


def measured_rates(device_kind: str) -> Mapping[str, Any]:
    """What programs ran at on such a device; empty where none was measured.

    Args:
        device_kind: what JAX calls it.

    Returns:
        The fields of ``ComputeRates``, and `stretch`: how many times as long as its schedule a step
        took, the median over programs.
    """
    chip = chip_of(device_kind)
    rates: Mapping[str, Any] = {} if chip is None else _table()["rates"].get(chip.key, {})
    return rates


def estimate_errors(device_kind: str) -> tuple[EstimateError, ...]:
    """How far estimates for a device were off; none where none was compared with a run.

    Args:
        device_kind: what JAX calls it.
    """
    chip = chip_of(device_kind)
    each = _table()["errors"].get(device_kind if chip is None else chip.key, {})
    measured = each.get("measured", "")
    return tuple(EstimateError(of, each[of], measured) for of in get_args(Estimated) if of in each)


@cache
def sources() -> Mapping[str, SpecSource]:
    """The documents, by the names that the table has for them."""
    return {key: SpecSource(**fields) for key, fields in _table()["sources"].items()}


@cache
def chips() -> Mapping[str, Chip]:
    """The chips, by their names in the table."""
    chips_by_name: dict[str, Chip] = {}
    for key, fields in _table()["chips"].items():
        figures = {
            name: SpecFigure(float(value), sources()[source])
            for name, (value, source) in fields.pop("figures").items()
        }
        kinds = tuple(fields.pop("kinds"))
        gpu = _gpu(**fields.pop("gpu")) if "gpu" in fields else None
        chips_by_name[key] = Chip(key, kinds=kinds, figures=figures, gpu=gpu, **fields)
    return chips_by_name


def chip_of(device_kind: str) -> Chip | None:
    """The chip that JAX calls so; None where the table has none, as for CPUs."""
    return next((chip for chip in chips().values() if device_kind in chip.kinds), None)


def _gpu(source: str, compute_capability: Sequence[int], **rest: Any) -> GpuDetails:
    major, minor = compute_capability
    return GpuDetails(sources()[source], (major, minor), **rest)


def _table() -> dict[str, dict[str, dict[str, Any]]]:
    return tomllib.loads(files("sdyscope.hardware").joinpath("specs.toml").read_text("utf-8"))
