"""What a step costs: textbook programs by hand, and what is not known is not guessed."""

import math
from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope import Program, inspect
from sdyscope.analysis.collectives.read import collectives
from sdyscope.analysis.collectives.slices import collectives_of
from sdyscope.analysis.cost.cost import CostDocument, Given, cost
from sdyscope.analysis.cost.remarks import basis, doubts, limits
from sdyscope.analysis.cost.schedule import with_step
from sdyscope.errors import TargetError
from sdyscope.facts.account import Account
from sdyscope.facts.calibration import ComputeRates
from sdyscope.facts.compiled import Compiled
from sdyscope.facts.remarks import Remark
from sdyscope.hardware.names import Hardware
from sdyscope.hardware.specs import chips, estimate_errors
from sdyscope.hardware.topology import DeviceDigit, Topology
from sdyscope.hlo import read_hlo
from sdyscope.inspection import Inspection
from sdyscope.targets import resolve
from sdyscope.values.mesh import AxisRef, Mesh, SubAxisInfo
from sdyscope.views.cost import heading, kinds, roofs, scopes
from sdyscope.words.cost import limit_texts
from sdyscope.words.remarks import remark_text

POD = Topology((DeviceDigit("y", 16, 1), DeviceDigit("x", 16, 1)))
SLICES = Topology((DeviceDigit("slice", 2, 1), DeviceDigit("y", 2, 1), DeviceDigit("x", 2, 1)))

HLO = """HloModule jit_f, num_partitions=256

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}

ENTRY %e (p: bf16[256,1024], q: bf16[1024,1024]) -> bf16[256,1024] {
  %p = bf16[256,1024]{1,0} parameter(0)
  %q = bf16[1024,1024]{1,0} parameter(1)
  %g = bf16[4096,1024]{1,0} all-gather(%p), channel_id=1, replica_groups=[16,16]<=[256], dimensions={0}, use_global_device_ids=true, metadata={op_name="jit(f)/jvp(gather)/x"}
  %d = bf16[4096,1024]{1,0} dot(%g, %q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %r = bf16[4096,1024]{1,0} all-reduce(%d), channel_id=2, replica_groups=[16,16]<=[16,16]T(1,0), use_global_device_ids=true, to_apply=%add, metadata={op_name="jit(f)/transpose(jvp(sum))/x"}
  ROOT %z = bf16[256,1024]{1,0} slice(%r), slice={[0:256], [0:1024]}
}
"""  # noqa: E501

MESH = Mesh.of({"data": 16, "model": 16})


def made(hlo=HLO, devices=256, kind="TPU v5 lite", topology=POD, xla=None):
    return Compiled(
        name="f",
        partitioner="shardy",
        hardware=Hardware("tpu", chip="v5e", topology="16x16"),
        devices=devices,
        device_kind=kind,
        hlo=hlo,
        cost=xla,
        topology=topology,
    )


def test_a_gathered_matmul_by_hand():
    program_cost = cost(made(), [MESH])
    gathered, product = 4096 * 1024 * 2, 2 * 4096 * 1024 * 1024
    ring = 9e10  # 45 GB/s each way
    model = 15 / 16 * gathered / ring + 8e-6
    data = 2 * (15 / 16 * gathered / ring + 8e-6)
    busy = {roof.axis or roof.resource: roof.seconds for roof in program_cost.roofs}
    assert math.isclose(busy["model"], model)
    assert math.isclose(busy["data"], data)
    # The sum counts one operation an element, at the same peak.
    assert math.isclose(busy["compute"], (product + 4096 * 1024) / 1.97e14)
    assert program_cost.limit.axis == "data"
    assert program_cost.overlapped == busy["data"]
    assert math.isclose(
        program_cost.sequential, max(busy["compute"], busy["memory"]) + model + data
    )
    assert [tally.seconds for tally in program_cost.by_phase.values()] == [model, data]
    assert list(program_cost.by_scope) == ["transpose(jvp(sum))", "jvp(gather)"]
    assert math.isclose(program_cost.communication.seconds, model + data)


def test_xla_s_count_is_kept_where_there_are_no_loops():
    xla = {"flops": 5e12, "bytes accessed": 8.19e9}
    program_cost = cost(made(xla=xla), [MESH])
    assert (program_cost.compute.flops, program_cost.compute.by_xla) == (5e12, 5e12)
    assert (program_cost.memory.bytes, program_cost.memory.seconds) == (8.19e9, 0.01)
    assert program_cost.limit.resource == "compute"


def test_a_bandwidth_that_is_given_takes_the_place_of_the_table():
    program_cost = cost(made(), [MESH], Given({"data": 1e9}, {"data": 1e-3, "model": 0.0}))
    busy = {roof.axis: roof.seconds for roof in program_cost.roofs}
    gathered = 4096 * 1024 * 2
    assert math.isclose(busy["data"], 2 * (15 / 16 * gathered / 1e9 + 15e-3))
    assert math.isclose(busy["model"], 15 / 16 * gathered / 9e10)


def test_what_is_not_known_is_not_guessed():
    program_cost = cost(made(kind="cpu", topology=None), [MESH])
    assert program_cost.limit is program_cost.overlapped is program_cost.sequential is None
    assert program_cost.communication.unknown == program_cost.communication.tensors == 2
    assert {roof.seconds for roof in program_cost.roofs} == {None}
    half = cost(made(kind="cpu", topology=None), [MESH], Given({"model": 9e10}))
    assert half.limit.axis == "model"
    assert half.communication.unknown == 1
    # The mark stands in a table with times alone.
    assert "1 of 2 communicated tensors has no known time (+)" in _doubted(half)
    assert "No bandwidth is known for what the collectives run over" in _doubted(program_cost)


def _doubted(program_cost):
    return " ".join(map(remark_text, doubts(program_cost)))


def test_a_scope_whose_tensor_is_sent_with_others_counts_its_tensors():
    """XLA combines all-reduces, and the collective is counted with the largest of its tensors."""
    joined = """HloModule jit_f, num_partitions=4

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}

ENTRY %e (p: f32[64], q: f32[8]) -> f32[8] {
  %p = f32[64]{0} parameter(0)
  %q = f32[8]{0} parameter(1)
  %r = (f32[64]{0}, f32[8]{0}) all-reduce(%p, %q), channel_id=1, replica_groups=[1,4]<=[4], use_global_device_ids=true, to_apply=%add
  %x = f32[64]{0} get-tuple-element(%r), index=0, metadata={op_name="jit(f)/a/add"}
  ROOT %y = f32[8]{0} get-tuple-element(%r), index=1, metadata={op_name="jit(f)/b/add"}
}
"""  # noqa: E501
    program_cost = cost(made(joined, 4, "cpu", topology=None), [Mesh.of({"x": 4})])
    assert [row[:3] for row in scopes(program_cost, 0).rows] == [
        ("a", "1", "384 B"),
        ("b", "1", "48 B"),
    ]
    assert [row[2:4] for row in kinds(program_cost).rows] == [("1", "432 B")]


def test_without_an_estimate_nothing_is_said_of_its_error():
    """An axis that nothing is sent over is idle, which no rate is needed for."""
    lines = [line for line in HLO.splitlines() if "all-reduce" not in line]
    alone = "\n".join(lines).replace("slice(%r)", "slice(%d)")
    program_cost = cost(made(alone, kind="cpu", topology=None), [MESH])
    assert {roof.seconds for roof in program_cost.roofs} == {None, 0.0}
    assert not [remark for remark in basis(program_cost) if remark.kind.startswith("error")]


def test_axes_without_links_do_not_limit_a_step():
    """MaxText's meshes have ten axes of size 1."""
    mesh = Mesh.of({"data": 16, "stage": 1, "model": 16})
    step = cost(made(kind="cpu", topology=None), [mesh])
    assert [roof.axis for roof in step.roofs if roof.axis] == ["data", "model"]
    assert step.limit is None


def test_an_idle_axis_is_no_limit_while_other_times_are_unknown():
    over_model = HLO.replace("[16,16]<=[16,16]T(1,0)", "[16,16]<=[256]")
    step = cost(made(over_model, kind="cpu", topology=None), [MESH])
    assert [roof.axis for roof in step.roofs if roof.seconds is not None] == ["data"]
    assert step.limit is None
    assert limit_texts(limits(step)) == ["no time estimates: no rates are known for cpu"]


def test_what_has_no_known_time_is_sorted_by_bytes():
    step = cost(made(kind="cpu", topology=None), [MESH])
    gathered, summed = (entry.time.sent for entry in reversed(step.by_kind_and_axes))
    assert gathered < summed


def test_an_axis_that_is_not_there():
    with pytest.raises(TargetError, match="axes data, model, so nothing can run over 'tensor'"):
        cost(made(), [MESH], Given({"tensor": 1e9}))
    with pytest.raises(TargetError, match="no mesh that is known"):
        cost(made(), [], Given({"data": 1e9}))


@given(st.floats(1e6, 1e13), st.floats(1, 1e3))
def test_a_faster_axis_is_never_busy_for_longer(bandwidth, faster):
    slow = cost(made(), [MESH], Given({"model": bandwidth}))
    quick = cost(made(), [MESH], Given({"model": bandwidth * faster}))
    assert quick.communication.seconds <= slow.communication.seconds
    assert quick.overlapped <= slow.overlapped <= slow.sequential


def test_many_devices_are_no_work():
    devices = 32768
    topology = Topology(
        (
            DeviceDigit("slice", 8, 1),
            DeviceDigit("z", 16, 1),
            DeviceDigit("y", 16, 1),
            DeviceDigit("x", 16, 1),
        )
    )
    hlo = HLO.replace("num_partitions=256", "num_partitions=32768")
    hlo = hlo.replace("[16,16]<=[256]", "[128,256]<=[32768]")
    hlo = hlo.replace("[16,16]<=[16,16]T(1,0)", "[256,128]<=[128,256]T(1,0)")
    mesh = Mesh.of({"data": 128, "model": 256})
    program_cost = cost(made(hlo, devices, "TPU v5", topology), [mesh])
    assert [level.name for level in program_cost.axes["data"]] == ["ICI", "DCN"]
    assert [span.ring for level in program_cost.axes["model"] for span in level.spans] == [
        True,
        True,
    ]


MEGASCALE = """HloModule jit_f, num_partitions=4

ENTRY e {
  %p = f32[8]{0} parameter(0)
  %t = token[] after-all()
  %send = (f32[8]{0}, u32[], token[]) send(%p, %t), channel_id=1, is_host_transfer=true, frontend_attributes={_xla_host_transfer_rendezvous="all-gather.1_0",_xla_megascale_target="{1,2}x{0:3}",_xla_megascale_transfer_type="ALL_GATHER"}
  %recv = (f32[16]{0}, u32[], token[]) recv(%t), channel_id=2, is_host_transfer=true, frontend_attributes={_xla_host_transfer_rendezvous="all-gather.1_0",_xla_megascale_target="{1,2}x{0:3}",_xla_megascale_transfer_type="ALL_GATHER"}
  %g = f32[16]{0} all-gather(%p), channel_id=3, replica_groups={{0,1},{2,3}}, dimensions={0}, use_global_device_ids=true
  ROOT %r = f32[32]{0} all-gather(%g), channel_id=4, replica_groups={{0,2},{1,3}}, dimensions={0}, use_global_device_ids=true
}
"""  # noqa: E501


@pytest.mark.parametrize(
    ("mesh", "axes"),
    [
        ({"data": 2, "a": 2, "b": 2}, ["data", "b", "a"]),
        ({"a": 4, "b": 2}, [("a", 1, 2), "b", ("a", 2, 2)]),
        ({"a": 8}, [("a", 1, 2), ("a", 4, 2), ("a", 2, 2)]),
    ],
)
def test_what_crosses_slices_is_the_collective_that_it_is(mesh, axes):
    program = made(MEGASCALE, 8, topology=SLICES)
    module = read_hlo(MEGASCALE)
    collectives = collectives_of(program, module, [Mesh.of(mesh)])
    expected = [
        AxisRef(axis) if isinstance(axis, str) else AxisRef(axis[0], SubAxisInfo(*axis[1:]))
        for axis in axes
    ]
    assert [collective.axes for collective in collectives.collectives] == [
        (axis,) for axis in expected
    ]
    assert [collective.kind for collective in collectives.collectives] == ["all-gather"] * 3
    between = collectives.collectives[0]
    assert (between.group_size, between.bytes, between.sent) == (2, 64, 32)
    assert (collectives.mesh, collectives.devices) == (Mesh.of(mesh), 8)
    times = cost(program, [Mesh.of(mesh)])
    assert math.isclose(times.collectives[0].each, 32 / 3.125e9)


def test_a_permutation_across_slices_sends_all_of_it():
    hlo = MEGASCALE.replace('"{1,2}x{0:3}"', "{{100000->200001},{200001->100000}}")
    program = made(hlo.replace("ALL_GATHER", "ONE_TO_ONE"), 8, topology=SLICES)
    mesh = Mesh.of({"data": 2, "a": 2, "b": 2})
    between = collectives_of(program, read_hlo(program.hlo), [mesh]).collectives[0]
    assert (between.kind, between.axes, between.sent) == ("collective-permute", None, 32)


def test_one_slice_is_read_as_it_is():
    module = read_hlo(HLO)
    alone = replace(collectives(module, [MESH]), partitioner=made().partitioner)
    assert collectives_of(made(), module, [MESH]) == alone


def megatron(mesh):
    """Forward of the MLP of Megatron-LM: a matmul by columns, one by rows."""

    def on(*spec):
        return NamedSharding(mesh, P(*spec))

    def step(x, up, down):
        return jax.lax.with_sharding_constraint(jnp.maximum(x @ up, 0) @ down, on("data", None))

    shapes = [
        ((1024, 512), ("data", None)),
        ((512, 2048), (None, "model")),
        ((2048, 512), ("model", None)),
    ]
    arguments = [
        jax.ShapeDtypeStruct(shape, jnp.float32, sharding=on(*spec)) for shape, spec in shapes
    ]
    return Program("megatron", jax.jit(step), tuple(arguments))


@pytest.mark.compiles
def test_a_megatron_mlp_is_one_all_reduce_of_its_output():
    program = megatron(AbstractMesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2))
    cost = inspect(program).cost(
        "shardy", bandwidths={"model": "10GB/s"}, latencies={"model": "1us"}
    )
    output = 1024 // 2 * 512 * 4
    assert [collective.collective.kind for collective in cost.collectives] == ["all-reduce"]
    assert math.isclose(cost.communication.seconds, 2 * (3 / 4 * output / 10e9 + 3e-6))
    assert cost.work.total.matmuls == {"f32": 2 * 2 * 512 * 512 * 512}
    assert cost.compute.seconds is None


LAYERS, WIDTH, HIDDEN, HEADS, VOCAB = 2, 256, 512, 8 * 32, 1024
TOKENS, SEQUENCE = 16 * 64, 64


@cache
def transformer(scan):
    mesh = {"fsdp": 8, "model": 2}
    program = resolve("fsdp-transformer", mesh=mesh, settings={"layers": str(LAYERS), "scan": scan})
    return Inspection(program, ("shardy",)).cost("shardy", "tpu:v5e:4x4")


@pytest.mark.compiles
@pytest.mark.libtpu
def test_a_transformer_step_by_hand():
    """6 operations a parameter and token (Kaplan et al., 2020), and attention's own."""
    program = transformer("false")
    devices = 16
    parameters = LAYERS * (4 * WIDTH * HEADS + 3 * WIDTH * HIDDEN) + VOCAB * WIDTH
    attention = 3 * LAYERS * 2 * 2 * TOKENS * SEQUENCE * HEADS
    products = sum(program.work.total.matmuls.values()) * devices
    assert math.isclose(products, 6 * parameters * TOKENS + attention, rel_tol=0.02)
    assert set(program.work.total.matmuls) == {"bf16"}
    assert math.isclose(program.compute.seconds, products / devices / 1.97e14, rel_tol=0.05)
    # Every matrix is gathered over fsdp at least once, in bf16 and half of it on a device.
    busy = {roof.axis: roof.seconds for roof in program.roofs}
    gathered = 2 * parameters / 2
    assert busy["fsdp"] > 7 / 8 * gathered / 67.5e9
    assert program.limit.axis == "fsdp"
    assert program.memory.hbm < program.memory.bytes


@pytest.mark.compiles
@pytest.mark.libtpu
def test_a_scanned_transformer_computes_what_an_unrolled_one_does():
    flops = [transformer(scan).compute.flops for scan in ("true", "false")]
    assert math.isclose(*flops, rel_tol=0.05)


def test_the_share_of_each_tensor_adds_up():
    program_cost = cost(made(), [MESH])
    for collective in program_cost.collectives:
        assert math.isclose(
            sum(map(collective.of_part, collective.collective.parts)), collective.seconds
        )
    empty = replace(program_cost.collectives[0], each=None)
    assert empty.seconds is None
    assert empty.of_part(empty.collective.parts[0]) is None


OFFLOADED = """HloModule jit_f, num_partitions=256

%inner (p: bf16[256,1024]) -> bf16[4096,1024] {
  %p = bf16[256,1024]{1,0} parameter(0)
  ROOT %g = bf16[4096,1024]{1,0} all-gather(%p), channel_id=1, replica_groups=[16,16]<=[256], dimensions={0}, use_global_device_ids=true
}

ENTRY %e (p: bf16[256,1024]) -> bf16[4096,1024] {
  %p = bf16[256,1024]{1,0} parameter(0)
  %s = ((bf16[256,1024]{1,0}), bf16[4096,1024]{1,0}, u32[]{:S(8)}) call-start(%p), async_execution_thread="sparsecore", to_apply=%inner
  ROOT %d = bf16[4096,1024]{1,0} call-done(%s)
}
"""  # noqa: E501


def test_what_is_offloaded_to_sparse_cores_is_not_missed():
    program_cost = cost(made(OFFLOADED), [MESH])
    (gather,) = program_cost.collectives
    assert gather.collective.asynchronous
    assert math.isclose(gather.seconds, 15 / 16 * 4096 * 1024 * 2 / 9e10 + 8e-6)


GEMM = """HloModule jit_step, is_scheduled=true

ENTRY e {
  %p = bf16[8192,8192]{1,0} parameter(0)
  %c = (bf16[8192,8192]{1,0}, s8[4096]{0}) custom-call(%p, %p), custom_call_target="__cublas$gemm", backend_config={"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}}}
  ROOT %r = bf16[8192,8192]{1,0} get-tuple-element(%c), index=0
}
"""  # noqa: E501


def on_a_gpu(kind, hlo=GEMM):
    """XLA's cost analysis of a program that is one custom call says -1."""
    unknown = {"flops": -1.0, "bytes accessed": -1.0}
    compiled = made(hlo, devices=1, kind=kind, topology=None, xla=unknown)
    return with_step(cost(replace(compiled, hardware=Hardware("cuda", 1)), []))


def test_what_xla_marks_as_unknown_is_counted():
    program_cost = on_a_gpu("NVIDIA B200")
    assert program_cost.compute.flops == 2 * 8192**3
    assert program_cost.memory.bytes == 3 * 2 * 8192**2
    said = list(basis(program_cost))
    assert Remark("library calls added", count=1, names=(("__cublas$gemm", 1),)) in said
    assert "__cublas$gemm" in " ".join(map(remark_text, said))
    # Nothing was measured on one: peaks, and no step.
    assert program_cost.compute.peaks == {"bf16": chips()["b200"].value("flops_bf16")}
    assert program_cost.step is None


@pytest.mark.parametrize(
    ("kind", "seconds"), [("NVIDIA H200", 1.364e-3), ("NVIDIA H100 80GB HBM3", 1.49e-3)]
)
def test_rates_that_were_measured_take_the_place_of_peaks(kind, seconds):
    """What one ran this product in; benchmarks/gpu.py says how rates are fitted."""
    program_cost = on_a_gpu(kind)
    assert program_cost.given.measured
    assert program_cost.step == pytest.approx(seconds, rel=0.1)
    said = [remark.kind for remark in basis(program_cost)]
    assert "error measured" in said


def test_rates_that_are_given_take_the_place_of_measured_ones():
    rates = ComputeRates({"bf16": 1e15}, 1e15, 1e15, 1e12, 0.0, 1)
    compiled = made(GEMM, devices=1, kind="NVIDIA H200", topology=None)
    program_cost = cost(compiled, [], Given(compute=rates))
    assert program_cost.compute.peaks == {"bf16": 1e15}
    assert not program_cost.given.measured


def test_an_estimate_says_which_rates_it_is_by():
    program_cost = on_a_gpu("NVIDIA H200")
    document = CostDocument(
        name="step",
        programs=(program_cost,),
        errors=estimate_errors("NVIDIA H200"),
        account=Account(),
    )
    words = [str(paragraph.text) for paragraph in heading(document, program_cost, ("shardy",))]
    assert words[-1].startswith("by its schedule, at rates measured on NVIDIA H200, 1.4")
    assert words[-1].endswith("per step, known to be off by 16%")
    rows = {row[0]: row[-1] for row in roofs(program_cost).rows}
    assert rows["compute"] == "789 TFLOP/s bf16, as measured"
    assert rows["memory"] == "3.81 TB/s, as measured"


@pytest.mark.compiles
def test_scopes_are_those_of_comms():
    """Those of the ops that need a collective, which XLA may name after what makes the value."""
    inspection = Inspection(resolve("mlp"), ["shardy"])
    counted = inspection.collectives("shardy")
    program_cost = inspection.cost("shardy")
    timed = {each.collective.name: each.collective for each in program_cost.collectives}
    assert timed == {each.name: each for each in counted.collectives}
    assert all(part.origin is not None for each in timed.values() for part in each.parts)
