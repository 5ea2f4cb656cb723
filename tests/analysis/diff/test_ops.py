"""diff of two modules: what ops compute and from what, whatever their order and names."""

import random
import re
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental.xla_metadata import set_xla_metadata
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.facts.program import Program
from sdyscope.inspection import Inspection
from sdyscope.stages import compat
from sdyscope.stages.lowered.read import read_bytes
from sdyscope.targets import resolve
from sdyscope.values.mesh import Mesh
from sdyscope.words.differences import (
    compiled_verdict,
    lowered_notes,
    lowered_verdict,
    propagated_verdict,
)

PARTITIONERS = ("shardy", "gspmd")


@cache
def mesh():
    return compat.abstract_mesh(Mesh.of({"a": 4, "b": 2}))


def constrained(x, *spec):
    return lax.with_sharding_constraint(x, NamedSharding(mesh(), P(*spec)))


@partial(jax.jit, static_argnums=1)
def doubled(x, axis):
    return constrained(x * 2, axis)


def halves(x, y):
    first = constrained(x[:8], "a")
    return first, constrained(x[8:], "b")


def halves_exchanged(x, y):
    second = constrained(x[8:], "a")
    return constrained(x[:8], "b"), second


def scanned(x):
    return lax.scan(lambda carry, row: (carry + row, (carry * row, carry - row)), x[0], x)[1]


def loop(x, y):
    first, second = scanned(x)
    return constrained(first, "a"), constrained(second, "b")


def loop_exchanged(x, y):
    first, second = scanned(x)
    second = constrained(second, "a")
    return constrained(first, "b"), second


def calls(x, y):
    return doubled(x, "a"), doubled(y, "b")


def calls_exchanged(x, y):
    second = doubled(y, "a")
    return doubled(x, "b"), second


def with_metadata(value, x):
    with set_xla_metadata(kept=value):
        return jnp.sin(x)


DIFFERENT = {
    "operands": (lambda x, y: x - y, lambda x, y: y - x),
    "results": (lambda x, y: (x + 1, y + 1), lambda x, y: (y + 1, x + 1)),
    "the value of a constraint": (
        lambda x, y: (constrained(x * 2, "a"), y * 2),
        lambda x, y: (x * 2, constrained(y * 2, "a")),
    ),
    "what uses a constraint": (
        lambda x, y: (jnp.sin(constrained(x, "a")), jnp.cos(x)),
        lambda x, y: (jnp.sin(x), jnp.cos(constrained(x, "a"))),
    ),
    "the order of constraints": (
        lambda x, y: constrained(constrained(x + y, "a"), "b"),
        lambda x, y: constrained(constrained(x + y, "b"), "a"),
    ),
    "the halves that are constrained": (halves, halves_exchanged),
    "the results of a loop that are constrained": (loop, loop_exchanged),
    "the calls that constrain": (calls, calls_exchanged),
    "attributes of two ops": (
        lambda x, y: (jnp.dot(x, y, precision="highest"), jnp.dot(y, x)),
        lambda x, y: (jnp.dot(x, y), jnp.dot(y, x, precision="highest")),
    ),
    "the bodies of two reductions": (
        lambda x, y: (jnp.sin(jnp.max(x)), jnp.cos(jnp.min(x))),
        lambda x, y: (jnp.sin(jnp.min(x)), jnp.cos(jnp.max(x))),
    ),
    "what a custom call is told": (
        lambda x, y: lax.approx_max_k(x, 2, recall_target=0.9),
        lambda x, y: lax.approx_max_k(x, 2, recall_target=0.5),
    ),
    "metadata": (lambda x, y: with_metadata("1", x), lambda x, y: with_metadata("2", x)),
    "the sign of zero": (lambda x, y: x * jnp.float32(0.0), lambda x, y: x * jnp.float32(-0.0)),
}
SAME = {
    "the order of ops": (
        lambda x, y: (jnp.sin(x), jnp.cos(y)),
        lambda x, y: (jnp.cos(y), jnp.sin(x))[::-1],
    ),
    "names": (lambda x, y: doubled(x, "a"), lambda x, y: (lambda z: doubled(z, "a"))(x)),
}


def inspected(function, partitioner, **options):
    sharding = NamedSharding(mesh(), P())
    whole = jax.ShapeDtypeStruct((16, 16), jnp.float32, sharding=sharding)

    def f(x, y):
        return function(x, y)

    return Inspection(Program("f", jax.jit(f, **options), (whole, whole)), [partitioner])


@pytest.mark.parametrize("partitioner", PARTITIONERS)
@pytest.mark.parametrize("name", [*DIFFERENT, *SAME])
def test_what_two_programs_compute(name, partitioner):
    functions = DIFFERENT.get(name) or SAME[name]
    one, two = (inspected(function, partitioner) for function in functions)
    for first, second in ((one, two), (two, one)):
        assert first.diff(second).same == (name in SAME), first.diff(second)


def test_only_what_has_other_operands_is_named():
    one, two = (
        inspected(lambda x, y, f=function: jnp.tanh(jnp.sin(f(x, y)) + 1), "shardy")
        for function in DIFFERENT["operands"]
    )
    (op,) = one.diff(two).ops
    assert (op.kind, op.size) == ("stablehlo.subtract", 1)
    assert op.attributes_a == {"operands = (x, y)": 1}
    assert op.attributes_b == {"operands = (y, x)": 1}
    (returned,) = (
        inspected(lambda x, y: (x, y), "shardy").diff(inspected(lambda x, y: (y, x), "shardy")).ops
    )
    assert returned.attributes_a == {"result[0] = x": 1, "result[1] = y": 1}
    assert returned.attributes_b == {"result[0] = y": 1, "result[1] = x": 1}


def test_an_op_that_comes_between_is_the_only_difference():
    one = inspected(lambda x, y: jnp.tanh(x + y), "shardy")
    two = inspected(lambda x, y: jnp.tanh(jnp.sin(x + y)), "shardy")
    assert [op.kind for op in one.diff(two).ops] == ["stablehlo.sine"]
    constraint = inspected(lambda x, y: jnp.tanh(constrained(x + y, "a")), "shardy")
    diff = one.diff(constraint)
    assert ([tensor.kind for tensor in diff.tensors], diff.ops) == (["constraint"], ())


# --- one thing at a time is changed in a module ---------------------------------------------------


def every_op(operation):
    for region in operation.regions:
        for block in region.blocks:
            for op in block.operations:
                yield op.operation
                yield from every_op(op.operation)


def of_its_block(op, argument):
    """The arguments of a block that an op in it could have instead of one."""
    return [other for other in op.block.arguments if other.type == argument.type]


def mutated(source, seed):
    """The module with one op that has another operand, and which op that is."""
    chance = random.Random(seed)
    context = compat.new_context()
    with context:
        module = compat.ir.Module.parse(source, context)
        arguments = {a for op in every_op(module.operation) for a in _arguments(op)}
        choices = [
            (op, number, other)
            for op in every_op(module.operation)
            for number, operand in enumerate(op.operands)
            if operand in arguments
            for other in of_its_block(op, operand)
            if other != operand
        ]
        op, number, other = chance.choice(choices)
        op.operands[number] = other
        return module.operation.get_asm(enable_debug_info=True), op.name


def _arguments(op):
    return [argument for region in op.regions for block in region for argument in block.arguments]


@cache
def source(model, partitioner):
    return Inspection(resolve(model), [partitioner]).lowered[partitioner].text()


@pytest.mark.parametrize("partitioner", PARTITIONERS)
@pytest.mark.parametrize(
    ("model", "seeds"),
    [
        ("mlp", range(12)),
        pytest.param("mlp", range(12, 60), marks=pytest.mark.thorough),
        pytest.param("fsdp-transformer", range(10), marks=pytest.mark.thorough),
        pytest.param("parallel-3d", range(10), marks=pytest.mark.thorough),
    ],
)
def test_every_operand_counts(model, seeds, partitioner):
    before = Inspection(read_bytes(source(model, partitioner).encode()))
    for seed in seeds:
        text, op = mutated(source(model, partitioner), seed)
        diff = before.diff(Inspection(read_bytes(text.encode())))
        assert not diff.same, (seed, op)
        assert diff.tensors or diff.ops


# --- what is no op's ------------------------------------------------------------------------------

MODULE = """
module @m attributes {{mhlo.num_partitions = 8 : i32{module}}} {{
  func.func public @main(%arg0: tensor<8x8xf32> {{jax.x = 1 : i32{argument}}} loc("x"))
      -> (tensor<8x8xf32> {{jax.result_info = "result"{result}}}) {{
    %0 = call @inner(%arg0) : (tensor<8x8xf32>) -> tensor<8x8xf32>
    return %0 : tensor<8x8xf32>
  }}
  func.func private @inner(%arg0: tensor<8x8xf32> {{jax.x = 1 : i32{inner}}})
      -> tensor<8x8xf32> {function} {{
    return %arg0 : tensor<8x8xf32>
  }}
}}
"""
PLAIN = dict.fromkeys(("module", "argument", "result", "inner", "function"), "")


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("module", ", mhlo.num_replicas = 2 : i32"),
        ("module", ', mhlo.frontend_attributes = {flag = "1"}'),
        ("argument", ', mhlo.layout_mode = "{0,1}"'),
        ("argument", ', mhlo.memory_kind = "pinned_host"'),
        ("argument", ", jax.buffer_donor = true"),
        ("argument", ", tf.aliasing_output = 0 : i32"),
        ("result", ', mhlo.layout_mode = "{0,1}"'),
        ("inner", ', mhlo.layout_mode = "{0,1}"'),
        ("function", "attributes {no_inline}"),
    ],
)
def test_what_is_written_on_modules_functions_and_arguments(place, text):
    plain = Inspection(read_bytes(MODULE.format(**PLAIN).encode()))
    changed = Inspection(read_bytes(MODULE.format(**{**PLAIN, place: text}).encode()))
    diff = plain.diff(changed)
    assert not diff.same
    assert len(diff.tensors) + len(diff.ops) == 1, diff


def test_a_default_layout_is_as_good_as_none():
    plain, changed = (
        Inspection(read_bytes(MODULE.format(**{**PLAIN, "argument": text}).encode()))
        for text in ("", ', mhlo.layout_mode = "default"')
    )
    assert plain.diff(changed).same


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_donation(partitioner):
    one = inspected(lambda x, y: x + y, partitioner)
    two = inspected(lambda x, y: x + y, partitioner, donate_argnums=1)
    (tensor,) = one.diff(two).tensors
    assert (tensor.tensor, tensor.what) == ("y", ("donation",))
    assert (tensor.a.donated, tensor.b.donated) == (False, True)
    assert two.diff(inspected(lambda x, y: x + y, partitioner, donate_argnums=1)).same


def test_another_order_of_devices_is_a_difference():
    devices = jax.devices()[:8]
    one, two = (
        Inspection(
            Program("f", jax.jit(jnp.sin), (jax.ShapeDtypeStruct((8,), "float32", sharding=s),)),
            ["shardy"],
        )
        for s in (
            NamedSharding(jax.sharding.Mesh(np.array(order), ("a",)), P("a"))
            for order in (devices, devices[::-1])
        )
    )
    diff = one.diff(two)
    assert (diff.same, diff.devices_reordered, diff.leaves_out) == (False, True, False)
    assert lowered_verdict(diff).endswith(", but on devices in another order")
    assert one.diff(one).same
    decided = one.propagated_diff(two)
    assert (decided.same, decided.different_values) == (False, 0)
    assert propagated_verdict(decided).endswith(", but on devices in another order")
    assert one.propagated_diff(one.under(("shardy",))).same


@pytest.mark.compiles
def test_another_order_of_devices_is_a_difference_of_compiled_programs():
    devices = np.array(jax.devices()[:8])
    one, two, part = (
        Inspection(
            Program("f", jax.jit(jnp.sin), (jax.ShapeDtypeStruct((8,), "float32", sharding=s),)),
            ["shardy"],
        )
        for s in (
            NamedSharding(jax.sharding.Mesh(order, ("a",)), P("a"))
            for order in (devices[:4], devices[:4][::-1], devices[4:])
        )
    )
    diff = one.compiled_diff(two)
    assert (diff.same, diff.is_alike, diff.devices_reordered) == (False, True, True)
    assert compiled_verdict(diff).endswith(", but on devices in another order")
    assert one.compiled_diff(part).same


CONSTANT = """
module @m {{
  func.func public @main(%arg0: tensor<2xf32>) -> tensor<2xf32> {{
    %0 = stablehlo.constant dense_resource<{0}> : tensor<2xf32>
    %1 = stablehlo.add %arg0, %0 : tensor<2xf32>
    return %1 : tensor<2xf32>
  }}
}}
{1}
"""
RESOURCES = '{{-# dialect_resources: {{ builtin: {{ blob: "0x04000000{0}" }} }} #-}}'


def test_constants_that_stand_at_the_end_of_the_module():
    one, two = (
        Inspection(read_bytes(CONSTANT.format("blob", RESOURCES.format(values)).encode()))
        for values in ("0000803F00000040", "0000803F00004040")
    )
    (constant,) = [op for op in one.graph().ops if op.kind == "stablehlo.constant"]
    assert constant.attributes["value"].values == (1.0, 2.0)
    assert [op.kind for op in one.diff(two).ops] == ["stablehlo.constant"]
    assert not one.diff(two).constants_not_compared


def test_constants_that_were_left_out_are_said_to_be_not_compared():
    one, two = (
        Inspection(read_bytes(CONSTANT.format("__elided__", "").encode())) for _ in range(2)
    )
    diff = one.diff(two)
    assert (diff.same, diff.constants_not_compared) == (True, 1)
    assert lowered_verdict(diff).endswith("; 1 constant not compared")
    assert any(note.startswith("1 constant is not compared") for note in lowered_notes(diff))


def test_the_code_of_kernels_is_said_to_be_not_compared():
    form = """
module @m {{
  func.func public @main(%arg0: tensor<8xf32>) -> tensor<8xf32> {{
    %0 = stablehlo.custom_call @tpu_custom_call(%arg0) {{backend_config = "{0}"}} :
        (tensor<8xf32>) -> tensor<8xf32>
    return %0 : tensor<8xf32>
  }}
}}
"""
    one, two = (Inspection(read_bytes(form.format(code).encode())) for code in "ab")
    diff = one.diff(two)
    assert (diff.same, diff.kernels_not_compared) == (True, 1)
    assert lowered_verdict(diff).endswith("; code of 1 kernel not compared")
    assert any(re.match("Code of 1 kernel not compared", note) for note in lowered_notes(diff))
    assert not one.diff(one.__class__(read_bytes(form.format("a").encode()))).kernels_not_compared


def test_callbacks_are_said_to_be_not_compared():
    text = """
module @m {
  func.func public @main(%arg0: tensor<8xf32>) -> tensor<8xf32> {
    %0 = stablehlo.custom_call @xla_ffi_python_cpu_callback(%arg0)
        {mhlo.backend_config = {index = NUMBER : ui64}, api_version = 4 : i32} :
        (tensor<8xf32>) -> tensor<8xf32>
    return %0 : tensor<8xf32>
  }
}
"""
    one, two = (Inspection(read_bytes(text.replace("NUMBER", n).encode())) for n in "01")
    diff = one.diff(two)
    assert (diff.same, diff.callbacks_not_compared, diff.leaves_out) == (True, 1, True)
    assert lowered_verdict(diff).endswith("; 1 callback not compared")
    assert any("1 callback" in note for note in lowered_notes(diff))
