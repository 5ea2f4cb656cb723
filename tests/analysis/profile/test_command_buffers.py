"""Kernels of command buffers, by the schedule of the program that they are of."""

from collections.abc import Iterable

from sdyscope.analysis.profile.command_buffers import of_instructions
from sdyscope.facts.measured import Kernel, TracedProgram
from sdyscope.hlo import read_hlo

HLO = """HloModule jit_step, is_scheduled=true

%fused_add (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %add.1 = f32[8]{0} add(%p, %p)
}

%fused_add.1 (q: f32[8]) -> f32[8] {
  %q = f32[8]{0} parameter(0)
  ROOT %add.2 = f32[8]{0} add(%q, %q)
}

%fused_tanh (r: f32[8]) -> f32[8] {
  %r = f32[8]{0} parameter(0)
  ROOT %tanh.1 = f32[8]{0} tanh(%r)
}

ENTRY %main (x: f32[8], m: f32[8,8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %m = f32[8,8]{1,0} parameter(1)
  %loop_add_fusion = f32[8]{0} fusion(%x), kind=kLoop, calls=%fused_add
  %gemm.1 = (f32[8], s8[64]) custom-call(%loop_add_fusion, %m), custom_call_target="__cublas$gemm"
  %one = f32[8]{0} get-tuple-element(%gemm.1), index=0
  %gemm.2 = (f32[8], s8[64]) custom-call(%one, %m), custom_call_target="__cublas$gemm"
  %two = f32[8]{0} get-tuple-element(%gemm.2), index=0
  %loop_add_fusion.1 = f32[8]{0} fusion(%two), kind=kLoop, calls=%fused_add.1
  ROOT %loop_tanh_fusion = f32[8]{0} fusion(%loop_add_fusion.1), kind=kLoop, calls=%fused_tanh
}
"""


def ran(*kernels: str) -> TracedProgram:
    """A program that ran some kernels, all in one command buffer, each for a second."""
    events = [
        Kernel("command_buffer_1", name, 0, 0, float(at), 1.0) for at, name in enumerate(kernels)
    ]
    times = [(0, 0, 0.0, float(len(kernels)))]
    return TracedProgram("jit_step", HLO, 1, 1, 1, {"command_buffer_1": times}, [0], kernels=events)


def seconds(kernels: Iterable[str]) -> dict[str, float]:
    traced = of_instructions(ran(*kernels), read_hlo(HLO))
    return {op: sum(time[3] for time in times) for op, times in traced.occurrences.items()}


def test_a_kernel_of_an_equal_fusion_is_of_the_next_that_is_equal() -> None:
    kernels = ("loop_add_fusion", "nvjet", "nvjet", "loop_add_fusion", "loop_tanh_fusion")
    assert seconds(kernels) == {
        "loop_add_fusion": 1,
        "gemm.1": 1,
        "gemm.2": 1,
        "loop_add_fusion.1": 1,
        "loop_tanh_fusion": 1,
    }


def test_what_clears_memory_is_of_what_runs_next() -> None:
    kernels = (
        *("Memset", "loop_add_fusion", "Memset", "nvjet", "Memset", "nvjet"),
        *("memset32", "loop_add_fusion", "loop_tanh_fusion"),
    )
    assert seconds(kernels) == {
        "loop_add_fusion": 2,
        "gemm.1": 2,
        "gemm.2": 2,
        "loop_add_fusion.1": 2,
        "loop_tanh_fusion": 1,
    }


def test_what_may_be_of_either_stays_with_its_command_buffer() -> None:
    kernels = ("loop_add_fusion", "nvjet", "splitk", "nvjet", "loop_add_fusion", "loop_tanh_fusion")
    assert seconds(kernels) == {
        "loop_add_fusion": 1,
        "command_buffer_1": 3,
        "loop_add_fusion.1": 1,
        "loop_tanh_fusion": 1,
    }


def test_where_a_fusion_is_passed_over_nothing_is_told() -> None:
    assert seconds(["loop_tanh_fusion", "loop_add_fusion"]) == {"command_buffer_1": 2}
    kernels = ("loop_add_fusion", "nvjet", "nvjet", "loop_tanh_fusion")
    assert seconds(kernels) == {"loop_add_fusion": 1, "command_buffer_1": 3}
