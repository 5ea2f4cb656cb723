"""Bytes a device: against the compiler's own, and what was donated or could be sharded further."""

from functools import partial

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.analysis.memory.held import group_of
from sdyscope.errors import CompilerError
from sdyscope.facts.program import Program
from sdyscope.hardware.names import parse_hardware
from sdyscope.inspection import Inspection, read
from sdyscope.stages import compat
from sdyscope.targets import resolve
from sdyscope.words.findings import finding_of
from sdyscope.words.memory import group_text
from tests.programs import AUTO, array, on

pytestmark = pytest.mark.compiles


def memory(fun, *args, partitioner="shardy"):
    program = Program("step", fun, args, mesh=AUTO)
    return Inspection(program, [partitioner]).memory()


def held(found, name):
    return next(one for one in found.tensors if one.name == name)


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("params['w']", "params"),
        ("args[0].layers[1].weight", "args[0]"),  # a model, given beside the batch as `*args`
        ("args[0][2]", "args[0]"),
        ("args[1]", "args"),
    ],
)
def test_trees_given_as_star_args_are_arguments_of_their_own(name, group):
    assert group_of(name, "argument") == group


@pytest.mark.parametrize(
    ("model", "partitioner"),
    [
        ("mlp", "shardy"),
        ("mlp", "gspmd"),
        ("fsdp-transformer", "shardy"),
        pytest.param("fsdp-transformer", "gspmd", marks=pytest.mark.thorough),
    ],
)
def test_models_take_what_the_compiler_counts(model, partitioner):
    small = {"layers": 1, "donate": True}
    inspection = Inspection(resolve(model, settings=small), [partitioner])
    found = inspection.memory()
    assert inspection.memory(partitioner) is found  # It is counted once.
    said = found.compiled.memory
    groups = found.groups
    arguments = sum(one.bytes_per_device for one in groups if one.kind == "argument")
    results = sum(one.bytes_per_device for one in groups if one.kind == "result")
    assert found.equal is True
    assert arguments == said.arguments
    assert results + 8 * sum(one.tensors for one in groups if one.kind == "result") == said.outputs
    assert sum(one.shared for one in groups if one.kind == "result") == said.aliases > 0
    assert sum(one.shared for one in groups if one.kind == "argument") == said.aliases
    assert [one.name for one in groups if one.kind == "argument"][:2] == ["params", "opt_state"]
    assert found.passed
    assert not found.findings


@pytest.mark.libtpu
@pytest.mark.parametrize("partitioner", ["shardy", "gspmd"])
@pytest.mark.parametrize(
    ("model", "hardware", "mesh"),
    [
        ("mlp", "tpu:v5e:4x4", {"data": 4, "model": 4}),
        ("mlp", "tpu:v5p:2x2x1x2slices", {"data": 4, "model": 2}),
        ("fsdp-transformer", "tpu:v5e:4x4", {"fsdp": 8, "model": 2}),
        ("fsdp-transformer", "tpu:v5p:2x2x2x2slices", {"data": 2, "fsdp": 4, "model": 2}),
    ],
)
def test_tpus_store_tiles(model, hardware, mesh, partitioner):
    settings = {"donate": True, **({"layers": 1} if model == "fsdp-transformer" else {})}
    program = resolve(model, mesh=mesh, settings=settings)
    found = Inspection(program, [partitioner]).memory(on=hardware)
    said = found.compiled.memory
    assert found.equal is True
    stored = sum(one.stored for one in found.groups if one.kind == "argument")
    assert stored == said.arguments
    assert stored > sum(one.bytes_per_device for one in found.groups if one.kind == "argument")
    results = sum(one.stored for one in found.groups if one.kind == "result")
    assert results == said.outputs - found.results_table
    # What a donated argument gives to a result is counted alike.
    assert sum(one.shared for one in found.groups if one.kind == "result") == said.aliases > 0


def test_what_could_be_sharded_further():
    def step(w, b, c):
        return (w.sum() + b.sum() + c.sum()).astype(jnp.float32)

    found = memory(
        jax.jit(step), array((16, 32), None, "model"), array((6,)), array((8,), ("data", "model"))
    )
    w, b, c = (held(found, name) for name in "wbc")
    assert (w.replicas, w.bytes_per_device, w.replicated) == (4, 16 * 16 * 4, 16 * 16 * 3)
    assert str(w.best) == "P('data', 'model')"
    assert w.saves == w.bytes_per_device * 3 // 4
    assert {(one.dim, one.axis, one.saves) for one in w.options} == {
        (0, "data", w.saves),
        (1, "data", w.saves),
    }
    # Only model's size, 2, divides 6.
    assert str(b.best) == "P('model')"
    assert [(one.dim, one.axis) for one in b.options] == [(0, "model")]
    assert (c.replicas, c.best, c.options, c.replicated) == (1, None, (), 0)
    assert [one.name for one in found.under_sharded] == ["w", "b"]


@pytest.mark.parametrize("is_read", [False, True])
def test_the_words_of_a_key_are_not_sharded(is_read, tmp_path):
    """JAX shards the keys of an array alone. A module doesn't say that they are keys."""
    keys = array((16,), "data", dtype=jax.random.key(0).dtype)
    step = jax.jit(lambda keys, w: (jax.vmap(jax.random.bits)(keys), w + 1))
    program = Program("step", step, (keys, array((16, 2), "data", dtype=jnp.uint32)), mesh=AUTO)
    inspection = Inspection(program, ["shardy"])
    if is_read:
        file = tmp_path / "step.mlir"
        file.write_text(inspection.lowered["shardy"].text())
        inspection = read(file)
    tensors = {each.name: each for each in inspection.memory().tensors}
    assert str(tensors["keys"].best) == "P(('data', 'model'), None)"
    assert {option.dim for option in tensors["keys"].options} == {0}
    # What is known to be no key is cut where it is whole.
    whole = str(tensors["keys"].best) if is_read else "P('data', 'model')"
    assert str(tensors["w"].best) == whole


def test_a_result_in_place_of_an_argument_is_not_told_again():
    fun = jax.jit(lambda a: (a + 1, a * 2), out_shardings=on("data", None))
    found = memory(fun, array((16, 32), "data"))
    assert [one.name for one in found.under_sharded] == ["a", "result[1]"]


def test_one_device_holds_one_replica():
    found = Inspection(Program("step", jax.jit(lambda a: a + 1), (jnp.ones(3),))).memory()
    assert [one.replicas for one in found.tensors] == [1, 1]
    assert found.equal is True


@pytest.mark.libtpu
def test_thousands_of_arguments_are_one_tuple_on_tpus():
    arrays = [array((8, 16), "data") for _ in range(2001)]
    program = Program("step", jax.jit(lambda a: a[0] + a[2000], keep_unused=True), (arrays,))
    found = Inspection(program, ["shardy"]).memory(on="tpu:v5e:2x4")
    assert found.compiled.memory.arguments > sum(
        one.stored.bytes for one in found.tensors if one.kind == "argument"
    )
    assert found.equal is True


def test_what_nothing_divides():
    # Nor is there anything to be saved of what has no elements.
    found = memory(jax.jit(lambda a, b: (a + 1, b + 1)), array((5, 3)), array((16, 0)))
    assert found.under_sharded == ()
    assert held(found, "a").replicated == 60 - 60 // 8


def test_what_is_left_to_the_compiler():
    free = jax.ShapeDtypeStruct((8, 8), jnp.float32)
    found = memory(
        jax.jit(lambda a, b: a + b, out_shardings=on("data")), array((8, 8), "data"), free
    )
    b = held(found, "b")
    assert b.origin == "compiled"
    assert held(found, "a").origin == "requested"
    assert b.bytes_per_device == b.stored.bytes
    assert found.equal is True


def test_a_donation_that_no_result_has_the_shape_of():
    fun = jax.jit(lambda w, x: (w @ x).sum(), donate_argnums=0)
    found = memory(fun, array((16, 32), "data"), array((32, 8)))
    (finding,) = map(finding_of, found.findings)
    assert (finding.rule, finding.severity, finding.tensor) == ("donation-unused", "warning", "w")
    assert "512 B per device" in finding.message
    assert "no result is f32[16,32]" in finding.message
    assert not found.passed


@pytest.mark.parametrize("partitioner", ["shardy", "gspmd"])
def test_a_donation_whose_result_is_placed_otherwise(partitioner):
    fun = jax.jit(lambda w: w + 1, donate_argnums=0, out_shardings=on("data"))
    found = memory(fun, array((16, 32), None, "model"), partitioner=partitioner)
    (finding,) = map(finding_of, found.findings)
    assert "no f32[16,32] result has its placement, P(None, 'model')" in finding.message
    assert "result is P('data', None)" in finding.message
    assert "out_shardings" in finding.hint
    assert finding.partitioner == partitioner


def test_a_donation_that_came_too_late():
    fun = jax.jit(lambda v, w: v + w, donate_argnums=(0, 1), out_shardings=on("data"))
    found = memory(fun, array((16, 32), "data"), array((16, 32), "data"))
    (finding,) = map(finding_of, found.findings)
    assert "took another argument's buffer" in finding.message


def test_a_donation_whose_buffer_is_another_arguments_place():
    """One argument's next value is stored otherwise; its buffer goes to the others' next values."""

    def step(a, b, c):
        return a + 1, b + 1, c + 1

    shardings = on("data"), on("data"), on(None, "data")
    fun = jax.jit(step, donate_argnums=(0, 1, 2), out_shardings=shardings)
    # A block of a is as large as one of b and c, and no result is stored as a is.
    arguments = array((4, 32)), array((16, 32), "data"), array((16, 32), "data")
    found = memory(fun, *arguments)
    late = [
        finding
        for finding in map(finding_of, found.findings)
        if "took another argument's buffer" in finding.message
    ]
    assert late
    for finding in late:
        assert "a is reused for a result of another shape or sharding" in finding.message
        assert finding.hint.startswith("Return the next value of a with the sharding")


def test_a_donation_of_what_is_not_used():
    fun = jax.jit(lambda v, w: v + 1, donate_argnums=(0, 1))
    found = memory(fun, array((16, 32), "data"), array((3,)))
    (finding,) = map(finding_of, found.findings)
    assert (finding.severity, finding.tensor) == ("note", "w")
    assert found.passed


def test_donations_of_use():
    fun = jax.jit(lambda w: w + 1, donate_argnums=0, out_shardings=on("data"))
    found = memory(fun, array((16, 32), "data"))
    assert found.findings == ()
    assert held(found, "w").shares == held(found, "result").name
    assert held(found, "result").shares == "w"


@pytest.mark.parametrize(
    ("hardware", "kind"),
    [
        ("cpu:4", "pinned_host"),
        ("cpu:4", "unpinned_host"),
        pytest.param("tpu:v5e:2x2", "pinned_host", marks=pytest.mark.libtpu),
    ],
)
def test_what_is_offloaded_is_the_hosts(hardware, kind):
    if hardware.startswith("cpu") and compat.version_tuple() < (0, 10, 2):
        pytest.skip("XLA's CPU compiler forgot memory kinds, or refused them")
    mesh = AbstractMesh((4,), ("data",), axis_types=(AxisType.Auto,))
    device, host = (NamedSharding(mesh, P("data"), memory_kind=k) for k in ("device", kind))
    args = [jax.ShapeDtypeStruct((1024, 8), "float32", sharding=s) for s in (device, host)]

    @partial(jax.jit, out_shardings=(device, host))
    def step(params, state):
        state = jax.device_put(state, device) + params
        return params - state, jax.device_put(state, host)

    program = Program("offloads", step, tuple(args))
    found = Inspection(program).memory("shardy", parse_hardware(hardware))
    assert [group_text(group.title) for group in found.groups] == [
        "params",
        "state, on the host",
        "result[0]",
        "result[1], on the host",
    ]
    assert found.equal
    said = found.compiled.memory
    stored = {one.name: one.stored.bytes for one in found.tensors}
    if hardware.startswith("tpu"):
        assert said.arguments == stored["params"]
        assert (said.host_arguments, said.host_outputs) == (stored["state"], stored["result[1]"])
        assert said.host >= stored["state"] + stored["result[1]"]
    else:
        assert said.arguments == stored["params"] + stored["state"]
        assert said.host == 0


# --- the text of a compiled program --------------------------------------------------------------

HLO = r"""HloModule jit_step, is_scheduled=true, input_output_alias={ {0}: (1, {}, may-alias) }, buffer_donor={ (2, {}) }, entry_computation_layout={(f32[4]{0}, bf16[8,2]{1,0:T(8,128)(2,1)}, s32[]{:S(5)})->(bf16[8,2]{1,0:T(8,128)(2,1)}, f32[])}, num_partitions=4

ENTRY e {
  %p = f32[4]{0} parameter(0), metadata={op_name="params[\'w\'].x"}
  %q = bf16[8,2]{1,0} parameter(1), metadata={op_name="params[\'v\']"}
  %r = s32[] parameter(2)
  %z = f32[] constant(0)
  ROOT %t = (bf16[8,2]{1,0}, f32[]) tuple(%q, %z)
}
"""  # noqa: E501


def of_text(tmp_path, text):
    path = tmp_path / "compiled.txt"
    path.write_text(text)
    return read(path).memory()


def test_names_groups_and_shared_buffers_of_a_text(tmp_path):
    found = of_text(tmp_path, HLO)
    said = [
        (one.name, one.group, one.stored.bytes, one.donated, one.shares) for one in found.tensors
    ]
    assert said == [
        ("params['w'].x", "params", 16, False, ""),
        ("params['v']", "params", 8 * 128 * 2, True, "result 0"),
        ("argument 2", "arguments", 4, True, ""),
        ("result 0", "results", 8 * 128 * 2, False, "params['v']"),
        ("result 1", "results", 4, False, ""),
    ]
    assert [(one.name, one.memory, one.stored, one.shared) for one in found.groups] == [
        ("params", "device", 16 + 2048, 2048),
        ("arguments", "host", 4, 0),
        ("results", "device", 2052, 2048),
    ]
    assert (found.devices, found.stored) == (4, 16 + 2048 + 4 + 4)
    assert [finding.tensor for finding in found.findings] == ["argument 2"]


def test_a_text_without_a_layout_says_nothing(tmp_path):
    text = HLO.replace("entry_computation_layout", "other_layout")
    with pytest.raises(CompilerError, match="does not say how it stores"):
        of_text(tmp_path, text)


def test_parameters_in_one_tuple_have_numbers(tmp_path):
    text = HLO.replace("={(f32[4]{0}, ", "={((f32[4]{0}, ").replace(")->", "))->")
    found = of_text(tmp_path, text)
    assert [one.name for one in found.tensors][:3] == ["argument 0", "argument 1", "argument 2"]


@pytest.mark.compiles
@pytest.mark.parametrize("model", ["mlp", "fsdp-transformer"])
def test_a_text_is_what_the_compiler_counts(model, tmp_path):
    program = resolve(model, settings={"layers": 1, "donate": True})
    made = Inspection(program, ["shardy"]).compiled()
    found = of_text(tmp_path, made.hlo)
    said = made.memory
    assert said is not None
    arguments = [one for one in found.tensors if one.kind == "argument"]
    results = [one for one in found.tensors if one.kind == "result"]
    assert sum(one.stored.bytes for one in arguments) == said.arguments
    assert sum(one.stored.bytes for one in results) + 8 * len(results) == said.outputs
    assert sum(one.stored.bytes for one in results if one.shares) == said.aliases > 0
    assert [group.name for group in found.groups] == ["params", "opt_state", "batch", "results"]
