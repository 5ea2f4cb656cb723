"""Custom calls by their targets: collectives, what is for the partitioner, what only computes."""

from __future__ import annotations

import re

#: How StableHLO writes a ragged all-to-all, for which it has no op.
RAGGED_ALL_TO_ALL = "ragged_all_to_all"

#: What XLA asks Python about: which device does what, as ``custom_partitioning`` was given.
CUSTOM_PARTITIONING = "CustomSPMDPartitioning"

#: Collectives that JAX writes as two custom calls from 0.12 on (``psum_scatter_start`` and the
#: like), by the first of the two: StableHLO has no ops for them.
_STARTED = {
    "all-gather-start": "stablehlo.all_gather",
    "all-reduce-start": "stablehlo.all_reduce",
    "all-to-all-start": "stablehlo.all_to_all",
    "collective-permute-start": "stablehlo.collective_permute",
    "reduce-scatter-start": "stablehlo.reduce_scatter",
}
_DONE = frozenset(target.replace("-start", "-done") for target in _STARTED)

#: JAX's primitives that it writes as custom calls for GSPMD, by their targets.
_PRIMITIVES = {
    "Sharding": "sharding_constraint",
    "SPMDFullToShardShape": "shard_map",
    "SPMDShardToFullShape": "shard_map",
}

#: They say something to the partitioner, or it takes them apart itself.
_FOR_PARTITIONER = re.compile(
    r"Sharding|SPMDFullToShardShape|SPMDShardToFullShape|xla\.sdy\..*"
    rf"|{CUSTOM_PARTITIONING}|annotate_device_placement|MoveTo(Host|Device)|PinToDevice"
    r"|LayoutConstraint|X64\w+|TopK|ApproxTopK|PartialReduce|ReduceToMaximum|InspectSharding|BarrierStart|BarrierDone"
)
#: JAX's linear algebra, random numbers, FFTs and callbacks, XLA's own rewrites, and ops of other
#: dialects: what they compute is on one device. Kernels of Pallas are not here: they may send.
_LOCAL = re.compile(
    r"(lapack|blas|cu|cublas|cusolver|cusparse|cudnn|hip|hipsolver|hipblas)_\w+"
    r"|__(onednn|cudnn|cublas)\$.*|(mhlo|chlo)\.\w+"
    r"|Qr|Eigh|Cholesky|LuDecomposition|Householder\w*|ProductOfElementaryHouseholderReflectors"
    r"|threefry2x32|\w*_threefry2x32\w*|ducc_fft|dynamic_ducc_fft|tridiagonal_solve\w*"
    r"|xla_(ffi_)?(partitioned_)?(python|buffer_python)\w*callback|shape_assertion"
)

#: Kernels: they hold the lines that they come from.
_KERNEL = re.compile(r"tpu_custom_call|mosaic_gpu\w*|__gpu\$xla\.gpu\.triton|triton_kernel_call")
_CALLBACK = re.compile(r"xla_\w*callback")
#: What JAX or Python knows by a number or address of the process, or shardings say.
_NUMBERED = re.compile(
    rf"{_CALLBACK.pattern}|{CUSTOM_PARTITIONING}|InspectSharding|Sharding|SPMD\w+"
)


def is_kernel(target: str) -> bool:
    """Whether a custom call is a kernel, whose code with its source lines it is configured with."""
    return _KERNEL.fullmatch(target) is not None


def is_callback(target: str) -> bool:
    """Whether a custom call calls back into Python, by a number or address of the process."""
    return _CALLBACK.fullmatch(target) is not None


def has_own_configuration(target: str) -> bool:
    """Whether what a custom call is configured with is the same each time that it is lowered."""
    return not is_kernel(target) and _NUMBERED.fullmatch(target) is None


def collective_of(target: str | None) -> str | None:
    """The collective that a custom call is or starts; None for any other, what ends one too.

    Returns:
        ``RAGGED_ALL_TO_ALL``, or the name of the StableHLO op that does the same synchronously.
    """
    return target if target == RAGGED_ALL_TO_ALL else _STARTED.get(target or "")


def primitive_of(target: str | None) -> str | None:
    """JAX's primitive that a custom call is written for under GSPMD; None for any other."""
    return _PRIMITIVES.get(target or "")


def is_for_partitioner(target: str) -> bool:
    """Whether a custom call says something to the partitioner, or it takes it apart itself."""
    return _FOR_PARTITIONER.fullmatch(target) is not None


def sends_nothing(target: str) -> bool:
    """Whether a custom call is known to send nothing from device to device by itself."""
    return target in _DONE or is_for_partitioner(target) or _LOCAL.fullmatch(target) is not None
