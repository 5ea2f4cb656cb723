"""Traces of GPUs: one of an H200, of three steps of a loop of four matmuls and a softmax.

JAX 0.11.2 wrote it: without Python's events, ``XLA_FLAGS`` unset.
"""

import gzip
from pathlib import Path

import pytest

from sdyscope.analysis.profile.measured import measured
from sdyscope.facts.measured import COMMAND_BUFFER, TracedProgram
from sdyscope.stages.executed.traces import read_trace

H200 = Path(__file__).parents[2] / "assets/h200.xplane.pb.gz"


@pytest.fixture
def traced(tmp_path: Path) -> TracedProgram:
    file = tmp_path / "h200.xplane.pb"
    file.write_bytes(gzip.decompress(H200.read_bytes()))
    (program,) = read_trace(file).programs
    return program


def test_the_outermost_range_of_a_gpu_is_a_run(traced: TracedProgram) -> None:
    assert (traced.name, traced.devices, traced.steps) == ("jit_step", 1, 3)
    assert len(traced.occurrences["gemm_fusion_dot.2"]) == 3


def test_kernels_of_a_command_buffer_are_of_instructions(traced: TracedProgram) -> None:
    hidden = [op for op in traced.occurrences if op.startswith(COMMAND_BUFFER)]
    assert hidden
    assert traced.kernels
    step = measured(traced)
    assert step.unknown == ()
    counts = {op.name: op.count for op in step.ops}
    assert counts == {
        "copy.8": 1,
        "copy.9": 1,
        "fusion-start": 4,
        "gemm_fusion_dot.1": 4,
        "loop_add_fusion": 4,
        "loop_reduce_fusion": 4,
        "gemm_fusion_dot.2": 1,
        "triton_softmax.2": 1,
    }
    assert all(op.opcode for op in step.ops)
    assert sum(op.seconds for op in step.ops) == pytest.approx(traced.seconds / 3)
