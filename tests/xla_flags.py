"""XLA's flags for tests that compile and run on CPUs."""

from importlib import metadata

from packaging.version import Version

#: LLVM's optimizations change no HLO, and take a third of the time of a compile and more.
WITHOUT_LLVM = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
#: MLIR's emitters take two thirds of the rest, and put single ops into fusions of their own.
WITHOUT_EMITTERS = (
    " --xla_cpu_use_fusion_emitters=false"
    if Version(metadata.version("jax")) < Version("0.11")
    else ""
)
#: For programs that are run, and compiled for nothing else.
QUICK = WITHOUT_LLVM + WITHOUT_EMITTERS
