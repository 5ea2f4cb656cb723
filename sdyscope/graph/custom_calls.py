"""Custom calls by their targets: which are for the partitioner, and which only compute."""

from __future__ import annotations

import re

__all__ = ["RAGGED_ALL_TO_ALL", "is_for_partitioner", "sends_nothing"]

#: How StableHLO writes a ragged all-to-all, for which it has no op.
RAGGED_ALL_TO_ALL = "ragged_all_to_all"

#: They say something to the partitioner, or it takes them apart itself.
_FOR_PARTITIONER = re.compile(
    r"Sharding|SPMDFullToShardShape|SPMDShardToFullShape|xla\.sdy\..*|CustomSPMDPartitioning"
    r"|annotate_device_placement|MoveTo(Host|Device)|PinToDevice|LayoutConstraint|X64\w+|TopK"
    r"|ApproxTopK|PartialReduce|ReduceToMaximum|InspectSharding|BarrierStart|BarrierDone"
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


def is_for_partitioner(target: str) -> bool:
    """Whether a custom call says something to the partitioner, or it takes it apart itself."""
    return _FOR_PARTITIONER.fullmatch(target) is not None


def sends_nothing(target: str) -> bool:
    """Whether a custom call is known to send nothing from device to device by itself."""
    return is_for_partitioner(target) or _LOCAL.fullmatch(target) is not None
