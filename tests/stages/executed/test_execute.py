"""Programs on eight virtual CPU devices: shards, results against one device, donation, failures."""

import functools

import jax
import jax.extend
import jax.numpy as jnp
import jaxlib.xla_client
import numpy as np
import pytest
import user_programs
from jax.experimental import layout
from jax.interpreters import mlir
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.analysis.run.run import ran as ran_on
from sdyscope.errors import CompilerError, TargetError
from sdyscope.facts.program import Program
from sdyscope.inspection import Inspection, inspect
from sdyscope.stages import compat
from sdyscope.stages.executed.device_arrays import device_memory, peak_bytes
from sdyscope.stages.executed.devices import find_devices
from sdyscope.stages.executed.execute import Runner
from sdyscope.stages.executed.one_device import compute_dtypes, draws_random_numbers, unsharded
from sdyscope.values.convert import to_placement
from sdyscope.values.mesh import Mesh
from sdyscope.values.sharding import NamedSharding as OurNamedSharding
from sdyscope.values.sharding import PartitionSpec

pytestmark = pytest.mark.compiles

MESH = Mesh.of({"data": 4, "model": 2})
ABSTRACT = compat.abstract_mesh(MESH)
DEVICES = jax.devices("cpu")[:8]


def on(mesh, *spec):
    return NamedSharding(mesh, P(*spec))


def abstract(shape, *spec, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=on(ABSTRACT, *spec))


def shard_index(array, device):
    return next(shard.index for shard in array.shards if shard.device == device)


@pytest.mark.parametrize("name", ["every_kind_of_argument", "scanned", "shard_map_full"])
def test_users_programs_agree_with_one_device(name):
    ran = inspect(user_programs.USER_PROGRAMS[name](ABSTRACT)).run(steps=1)
    assert not [finding for finding in ran.findings if finding.severity != "note"]
    for partitioner, execution in ran.executions.items():
        assert execution.failure == ""
        assert len(execution.step_seconds) == 1
        assert execution.compile_seconds > 0
        assert execution.memory.arguments > 0
        assert len(ran.numerics[partitioner]) == sum(t.tensor.kind == "result" for t in ran.tensors)


@pytest.mark.parametrize("donated", [(), (0,)])
def test_arguments_are_given_in_the_layout_that_jit_asks_for(donated):
    rows = on(compat.device_mesh(MESH, DEVICES), "data", "model")
    turned = layout.Format(layout.Layout((1, 0)), rows)
    step = jax.jit(lambda x, y: (x + y, y * 2), in_shardings=(turned, rows), donate_argnums=donated)
    x = jax.ShapeDtypeStruct((16, 64), jnp.float32)
    ran = inspect(step, x, x, partitioners=["shardy"]).run(steps=1)
    assert ran.executions["shardy"].failure == ""
    assert not [finding for finding in ran.findings if finding.severity != "note"]


def test_a_program_of_numbers_of_four_bits_runs():
    """As jit runs it; JAX 0.11 and older refuse such arguments of what is compiled before."""

    def step(q, x):
        return x @ q.astype(jnp.float32)

    arguments = abstract((64, 32), None, "model", dtype=jnp.int4), abstract((16, 64), "data")
    ran = inspect(jax.jit(step), *arguments).run(steps=1)
    assert {execution.failure for execution in ran.executions.values()} == {""}
    assert not [finding for finding in ran.findings if finding.severity != "note"]


@pytest.mark.skipif(jax.__version_info__ < (0, 9), reason="einsum has no unreduced out_sharding")
def test_partial_sums_run_and_are_not_compared():
    kinds = (jax.sharding.AxisType.Explicit,) * 2
    mesh = jax.sharding.Mesh(np.array(DEVICES).reshape(4, 2), ("data", "model"), axis_types=kinds)
    summed = P(None, None, unreduced={"model"})
    with jax.set_mesh(mesh):
        step = jax.jit(lambda x, w: jnp.einsum("ij,jk->ik", x, w, out_sharding=summed))
        x = jax.ShapeDtypeStruct((16, 64), jnp.float32, sharding=on(mesh, None, "model"))
        w = jax.ShapeDtypeStruct((64, 32), jnp.float32, sharding=on(mesh, "model"))
        ran = inspect(step, x, w, partitioners=["shardy"]).run(steps=1)
    execution = ran.executions["shardy"]
    assert execution.failure == ""
    assert "not reduced" in execution.notes[0].other
    assert {shard.replica_id for shard in execution.arrays[-1].shards} == set(range(8))


@pytest.mark.skipif(jax.__version_info__ < (0, 9), reason="einsum has no unreduced out_sharding")
def test_partial_sums_are_taken_and_donated():
    kinds = (jax.sharding.AxisType.Explicit,) * 2
    mesh = jax.sharding.AbstractMesh((4, 2), ("data", "model"), axis_types=kinds)
    pending = NamedSharding(mesh, P("model", None, unreduced={"data"}))
    total = jax.ShapeDtypeStruct((16, 4), jnp.float32, sharding=pending)
    reduced = jax.ShapeDtypeStruct((16, 4), jnp.float32, sharding=on(mesh, "model", None))

    def step(total, x):
        return total + total, jax.sharding.reshard(total, on(mesh, "model", None)) + x

    fun = jax.jit(step, donate_argnums=0)
    ran = inspect(fun, total, reduced, partitioners=["shardy"]).run(steps=1)
    assert ran.executions["shardy"].failure == ""
    assert [numeric.within for numeric in ran.numerics["shardy"]] == [True]


def test_each_device_of_a_mesh_in_its_own_order_holds_its_block():
    mesh = jax.sharding.Mesh(np.array(DEVICES[::-1]).reshape(4, 2), ("data", "model"))
    fun = jax.jit(lambda x: x * 2, out_shardings=on(mesh, "model", "data"))
    x = jax.ShapeDtypeStruct((8, 4), jnp.float32, sharding=on(mesh, "data", "model"))
    runner = Runner(Program("double", fun, (x,), mesh=mesh), steps=1)
    assert list(runner.devices) == DEVICES[::-1]
    argument, result = runner.run("shardy").arrays
    ours = OurNamedSharding(MESH, PartitionSpec(("model", "data")))
    place = to_placement(ours, 2)
    for device in range(8):
        block = tuple((part.start, part.stop) for part in place.index(device, (8, 4)))
        assert shard_index(result, device) == block
    assert shard_index(argument, 0) == ((0, 2), (0, 2))


def test_inputs_of_the_program_are_used_and_donated_ones_survive():
    @functools.partial(jax.jit, donate_argnums=0, static_argnums=1)
    def step(state, power, nothing):
        return {"state": state**power, "none": nothing}

    host = np.arange(32, dtype=np.float32).reshape(8, 4)
    program = Program(
        "step",
        step,
        (abstract((8, 4), "data", "model"), 2, None),
        inputs=lambda: ((host, 2, None), {}),
    )
    runner = Runner(program, steps=3)
    execution = runner.run("shardy")
    np.testing.assert_array_equal(execution.outputs[0][0].values, host**2)
    np.testing.assert_array_equal(runner.reference().outputs[0], host**2)
    assert execution.memory.aliased > 0
    assert len(execution.step_seconds) == 3
    np.testing.assert_array_equal(host, np.arange(32, dtype=np.float32).reshape(8, 4))


def test_inputs_that_do_not_fit_are_said():
    args = (abstract((8, 4), "data"),)
    fun = jax.jit(lambda x: x + 1)
    other = Program("step", fun, args, inputs=lambda: ((np.ones(8), 1), {}))
    with pytest.raises(TargetError, match="differ in structure"):
        Runner(other)
    for value, kind in (
        (np.ones((4, 4)), r"float32\[4, 4\]"),
        (np.ones((8, 4), np.int64), r"int32\[8, 4\]"),
        ("eight by four", r"str\[\]"),
    ):
        small = Program("step", fun, args, inputs=lambda value=value: ((value,), {}))
        match = rf"The input x of step is {kind}, and the argument float32\[8, 4\]"
        with pytest.raises(TargetError, match=match):
            Runner(small)
    with pytest.raises(TargetError, match="are None, not a pair of arguments"):
        Runner(Program("step", fun, args, inputs=lambda: None))


def test_what_inputs_raises_is_the_author_s_error_with_its_line():
    def inputs():
        return jnp.ones(3) @ np.ones(4)

    program = Program("step", jax.jit(lambda x: x), (abstract((8,), "data"),), inputs=inputs)
    with pytest.raises(TargetError, match="The inputs of step can't be made: TypeError: ") as met:
        Runner(program)
    line = inputs.__code__.co_firstlineno + 1
    assert (met.value.file, met.value.line) == (__file__, line)


def test_values_are_made_for_every_dtype_and_are_the_same_each_time():
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 8))
    args = (
        abstract((4, 2), "data", dtype=jnp.bfloat16),
        abstract((4,), "data", dtype=jnp.int8),
        abstract((4,), "data", dtype=jnp.bool_),
        abstract((4,), "data", dtype=jnp.complex64),
        jax.ShapeDtypeStruct(keys.shape, keys.dtype, sharding=on(ABSTRACT, "data")),
        jnp.arange(3),
    )
    program = Program("step", jax.jit(lambda *values: values), args)
    one, two = Runner(program), Runner(program)
    assert [value.shape for value in one.values] == [(4, 2), (4,), (4,), (4,), (8,), (3,)]
    assert [value.dtype for value in one.values] == [arg.dtype for arg in args]
    for a, b in zip(one.values, two.values, strict=True):
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(one.values[5], [0, 1, 2])
    execution = one.run("shardy")
    assert execution.failure == ""
    key_array = execution.arrays[4]
    assert (key_array.shape, key_array.rank) == ((8, 2), 1)
    assert shard_index(key_array, 7) == ((6, 8), (0, 2))


def test_a_mesh_that_only_the_body_names_is_run_on():
    if compat.version_tuple() < (0, 10):
        pytest.skip("JAX before 0.10 does not lower it")
    inside = jax.jit(lambda x: jax.lax.with_sharding_constraint(x * 2, on(ABSTRACT, "data")))
    ran = inspect(inside, jax.ShapeDtypeStruct((8, 4), jnp.float32)).run(steps=1)
    assert not ran.findings
    assert (len(ran.machine.devices), ran.mesh) == (8, MESH)
    result = ran.executions["shardy"].arrays[-1]
    assert shard_index(result, 7) == ((6, 8), (0, 4))
    assert [shard.bytes for shard in result.shards] == [2 * 4 * 4] * 8


def test_a_key_that_is_on_no_mesh_is_on_every_device():
    mesh = jax.sharding.Mesh(np.array(DEVICES).reshape(4, 2), ("data", "model"))
    x = jax.ShapeDtypeStruct((8, 4), jnp.float32, sharding=on(mesh, "data"))
    fun = jax.jit(lambda x, key: (x + jax.random.normal(key, x.shape), key))
    ran = inspect(fun, x, jax.random.key(3), partitioners=("shardy",)).run(steps=1)
    assert ran.passed


def test_a_copy_that_was_never_reduced_is_found():
    def partial_sum(x):
        return x.sum(keepdims=True)

    mapped = jax.shard_map(
        partial_sum, mesh=ABSTRACT, in_specs=P("data"), out_specs=P(), check_vma=False
    )
    ran = inspect(jax.jit(mapped), abstract((16,), "data")).run(steps=1)
    assert {finding.rule for finding in ran.findings} == {"replicas-differ"}
    assert not ran.passed


def test_a_program_that_ignores_its_mesh_agrees_with_nothing():
    def program(_=None):
        mesh = jax.sharding.Mesh(np.array(DEVICES), ("data",))
        summed = jax.shard_map(
            lambda x: 8 * jax.lax.psum(x, "data"), mesh=mesh, in_specs=P("data"), out_specs=P()
        )
        return Program("ignores", jax.jit(summed), (jax.ShapeDtypeStruct((16,), jnp.float32),))

    given = Inspection(program(), ("shardy",))
    own = ran_on(given, steps=1, on_mesh=program, meshes=({"data": 2},))
    assert own.reference.alone_failure == "its shard_maps are on 8 devices there, too"
    failures = {mesh.devices: mesh.failure for mesh in own.meshes}
    assert failures == dict.fromkeys((1, 2), "It runs on 8 devices there, too.") | {8: ""}


def test_what_raises_on_the_device_is_a_result():
    def fail(x):
        raise ValueError("no such luck")

    shape = jax.ShapeDtypeStruct((4,), jnp.float32)
    fun = jax.jit(lambda x: jax.pure_callback(fail, shape, x))
    ran = inspect(fun, jnp.ones(4), partitioners=("shardy",)).run(steps=1)
    assert "no such luck" in ran.executions["shardy"].failure
    assert "no such luck" in ran.reference.failure
    assert not ran.passed


def test_virtual_cpu_devices_run_beside_an_accelerator():
    # A client of its own that JAX prefers, as a machine's GPU is.
    other = jaxlib.xla_client.make_cpu_client()
    with jax.default_device(other.local_devices()[0]):
        ran = inspect(user_programs.USER_PROGRAMS["every_kind_of_argument"](ABSTRACT))
        ran = ran.run(devices=DEVICES, steps=1)
    assert [execution.failure for execution in ran.executions.values()] == ["", ""]
    assert not [finding for finding in ran.findings if finding.severity != "note"]


def test_too_few_devices():
    with pytest.raises(TargetError, match="needs 9 devices, and there are 8"):
        find_devices(9, "cpu")
    with pytest.raises(TargetError, match="needs 8 devices, and there are 4"):
        find_devices(8, at_most=4)
    with pytest.raises(TargetError, match="no tpu devices"):
        find_devices(1, "tpu")


# --- on one device --------------------------------------------------------------------------------


def collectives(x):
    index = jax.lax.axis_index("data") * 2 + jax.lax.axis_index("model")
    shifted = jax.lax.ppermute(x, "data", [(k, (k + 1) % 4) for k in range(4)])
    gathered = jax.lax.all_gather(x, "model", axis=1, tiled=True)
    turned = jax.lax.all_to_all(x, "model", split_axis=0, concat_axis=1, tiled=True)
    scattered = jax.lax.psum_scatter(gathered, "model", scatter_dimension=1, tiled=True)
    total = jax.lax.psum(x, ("data", "model"))
    return shifted + index, turned, scattered, total, jax.lax.pmax(x, "model")


def test_a_shard_map_is_the_same_on_one_device():
    out_specs = (
        P("data", "model"),
        P(("data", "model"), None),
        P("data", "model"),
        P(),
        P("data", None),
    )
    mapped = jax.shard_map(
        collectives,
        mesh=ABSTRACT,
        in_specs=P("data", "model"),
        out_specs=out_specs,
        check_vma=False,
    )
    ran = inspect(jax.jit(mapped), abstract((16, 8), "data", "model")).run(steps=1)
    assert ran.reference.failure == ""
    assert ran.findings == ()
    assert all(numeric.within for numeric in ran.numerics["shardy"])
    assert len(ran.numerics["shardy"]) == 5


def test_what_a_step_computes_in():
    def step(x, w):
        return (x @ w).astype(jnp.float32)

    half = abstract((8, 8), dtype=jnp.bfloat16)
    whole = abstract((8, 8))
    in_half, in_whole = (jax.jit(step).trace(a, a) for a in (half, whole))
    assert compute_dtypes(in_half, "cpu") == ("bf16", "f32")
    assert compute_dtypes(in_whole, "cpu") == ("f32",)
    assert compute_dtypes(in_whole, "gpu") == ("f32", "tf32")
    assert compute_dtypes(in_whole, "tpu") == ("bf16", "f32")
    with jax.default_matmul_precision("highest"):
        exact = jax.jit(step).trace(whole, whole)
    assert compute_dtypes(exact, "tpu") == ("f32",)
    assert not draws_random_numbers(in_half)
    noisy = jax.jit(lambda key: jax.random.normal(key, (4,))).trace(jax.random.key(0))
    assert draws_random_numbers(noisy)


def test_constants_on_a_mesh_come_to_one_device():
    mesh = jax.sharding.Mesh(np.array(DEVICES), ("data",))
    table = jax.device_put(np.arange(8.0), on(mesh, "data"))
    traced = jax.jit(lambda x: x + table).trace(
        jax.ShapeDtypeStruct((8,), jnp.float32, sharding=on(mesh, "data"))
    )
    (result,) = jax.jit(unsharded(traced))(np.ones(8, np.float32))
    np.testing.assert_array_equal(result, np.arange(8.0) + 1)
    assert len(result.sharding.device_set) == 1


# --- memory ---------------------------------------------------------------------------------------


class Device:
    def __init__(self, peak):
        self.peak = peak

    def memory_stats(self):
        return None if self.peak is None else {"peak_bytes_in_use": self.peak}


def test_peak_memory_is_the_fullest_devices_and_a_bound_where_it_was_there_before():
    compiled = jax.jit(lambda x: x + 1).lower(np.ones(4, np.float32)).compile()
    devices = [Device(30), Device(40)]
    assert peak_bytes(devices) == 40
    assert peak_bytes([Device(None)]) is None
    memory = device_memory(compiled, devices, before=10)
    assert (memory.arguments, memory.peak, memory.peak_is_bound) == (16, 40, False)
    assert device_memory(compiled, devices, before=40).peak_is_bound
    untold = device_memory(compiled, [Device(None)], before=None)
    assert (untold.peak, untold.peak_is_bound) == (None, False)


def test_a_program_that_a_cpu_does_not_lower_is_lowered_for_its_devices(monkeypatch):
    """As attention of cuDNN is: the platform of the devices is asked where a CPU refuses."""
    primitive = jax.extend.core.Primitive("on_a_gpu")
    primitive.def_abstract_eval(lambda x: x)
    lowering = mlir.lower_fun(jnp.tanh, multiple_results=False)
    mlir.register_lowering(primitive, lowering, platform="cuda")
    program = Program("step", jax.jit(primitive.bind), (jnp.ones(4),))
    with pytest.raises(CompilerError, match="on_a_gpu"):
        Runner(program)
    monkeypatch.setattr(compat, "lowering_platform", lambda device: "cuda")
    assert len(Runner(program).devices) == 1
