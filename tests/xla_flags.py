"""XLA's flags for tests that compile and run on CPUs."""

#: LLVM's optimizations change no HLO, and take a third of the time of a compile and more.
WITHOUT_LLVM = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
