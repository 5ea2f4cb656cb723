"""GPUs that can be compiled for by name, from what NVIDIA publishes about them.

The numbers are those of the CUDA C++ Programming Guide ("Technical Specifications per Compute
Capability") and of NVIDIA's data sheets and architecture papers of the A100, H100, H200 and B200.
They are what XLA's ``GpuTargetConfigProto`` (``xla/stream_executor/device_description.proto``) asks
for; a description that was written on the GPU itself says more, and is the better one to use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["GPUS", "Gpu", "target_config"]

_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True, slots=True)
class Gpu:
    """A kind of GPU.

    Attributes:
        name: what its driver calls it.
        capability: compute capability, major and minor.
        cores: streaming multiprocessors that are enabled.
        lanes: float32 units of one of them.
        clock: boost clock, in GHz.
        shared: shared memory of one of them, in bytes.
        shared_block: of it the most that one thread block can ask for.
        cache: L2 cache, in bytes.
        memory: device memory, in bytes.
        bandwidth: of the device memory, in bytes a second.
    """

    name: str
    capability: tuple[int, int]
    cores: int
    lanes: int
    clock: float
    shared: int
    shared_block: int
    cache: int
    memory: int
    bandwidth: int


#: By the word that stands for it: `--on cuda:h100:1x1x8`.
GPUS: Mapping[str, Gpu] = {
    "a100": Gpu(
        "NVIDIA A100-SXM4-80GB",
        (8, 0), 108, 64, 1.41, 164 * _KIB, 163 * _KIB, 40 * _MIB, 80 * _GIB, 2_039_000_000_000,
    ),
    "h100": Gpu(
        "NVIDIA H100 80GB HBM3",
        (9, 0), 132, 128, 1.98, 228 * _KIB, 227 * _KIB, 50 * _MIB, 80 * _GIB, 3_352_000_000_000,
    ),
    "h200": Gpu(
        "NVIDIA H200",
        (9, 0), 132, 128, 1.98, 228 * _KIB, 227 * _KIB, 50 * _MIB, 141_000_000_000,
        4_800_000_000_000,
    ),
    "b200": Gpu(
        "NVIDIA B200",
        (10, 0), 148, 128, 1.965, 228 * _KIB, 227 * _KIB, 126 * _MIB, 180_000_000_000,
        8_000_000_000_000,
    ),
}  # fmt: skip


def target_config(gpu: Gpu) -> str:
    """XLA's description of a GPU: a ``GpuTargetConfigProto`` in text form."""
    major, minor = gpu.capability
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
  shared_memory_per_block: {48 * _KIB}
  shared_memory_per_block_optin: {gpu.shared_block}
  shared_memory_per_core: {gpu.shared}
  core_count: {gpu.cores}
  fpus_per_core: {gpu.lanes}
  clock_rate_ghz: {gpu.clock}
  l2_cache_size: {gpu.cache}
  memory_bandwidth: {gpu.bandwidth}
  device_memory_size: {gpu.memory}
  cuda_compute_capability {{ major: {major} minor: {minor} }}
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 }}
device_description_str: "{gpu.name}"
"""
