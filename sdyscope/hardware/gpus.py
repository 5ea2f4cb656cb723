"""GPUs that can be compiled for by name, and XLA's description of them.

The description is a ``GpuTargetConfigProto`` (``xla/stream_executor/device_description.proto``),
made of the figures in ``specs.toml``. One that was written on the GPU itself says more, and is the
better one to use.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from sdyscope.hardware.specs import Chip, chips


@cache
def gpus() -> Mapping[str, Chip]:
    """The GPUs by the word that stands for them: ``--on cuda:h100:1x1x8``."""
    return {key: chip for key, chip in chips().items() if chip.gpu is not None}


def target_config(chip: Chip) -> str:
    """XLA's description of a GPU: a ``GpuTargetConfigProto`` in text form."""
    gpu = chip.gpu
    assert gpu is not None
    major, minor = gpu.compute_capability
    # What is the same on all GPUs of compute capability 8.0, 9.0 and 10.0 stands here as it is.
    return f"""\
gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  threads_per_core_limit: 2048
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: {gpu.shared_memory_per_block}
  shared_memory_per_core: {gpu.shared_memory_per_core}
  core_count: {gpu.cores}
  fpus_per_core: {gpu.fpus_per_core}
  clock_rate_ghz: {gpu.clock_ghz}
  l2_cache_size: {gpu.l2_cache}
  memory_bandwidth: {chip.figures["hbm_bandwidth"].value:.0f}
  device_memory_size: {chip.figures["hbm_bytes"].value:.0f}
  cuda_compute_capability {{ major: {major} minor: {minor} }}
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 }}
device_description_str: "{chip.kinds[0]}"
"""
