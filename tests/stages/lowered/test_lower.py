"""Lowering: both partitioners, no devices, any size of mesh, and what JAX refuses."""

import os
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from programs import AUTO, EXPLICIT, PROGRAMS, array, constrain

from sdyscope.errors import CompilerError, TargetError
from sdyscope.facts.program import Program
from sdyscope.graph import build
from sdyscope.inspection import Inspection
from sdyscope.stages import compat
from sdyscope.stages.compiled.compiler import partitions
from sdyscope.stages.lowered.lower import LoweredModule, NotLowerable, lower, trace
from sdyscope.values.mesh import Mesh

BOTH = ("shardy", "gspmd")


def program(name="straight"):
    return Program(name, *PROGRAMS[name])


def test_one_trace_lowers_under_both():
    stage = trace(program())
    first, second, again = (lower(stage, name) for name in ("shardy", "gspmd", "shardy"))
    assert (first.written_for, second.written_for, again.written_for) == (
        "shardy",
        "gspmd",
        "shardy",
    )
    assert first.text() == again.text() != second.text()
    assert "sdy.sharding_constraint" in first.text()
    assert "@Sharding" in second.text()


@pytest.mark.parametrize("partitioner", BOTH)
@pytest.mark.parametrize("name", ["straight", "scan_grad", "shard_map", "jit_with_shardings"])
def test_the_text_is_jaxs_own(name, partitioner):
    stage = trace(program(name))
    lowered = lower(stage, partitioner)
    with compat.partitioner(partitioner):
        assert lowered.text() == stage.lower(lowering_platforms=("cpu",)).as_text(debug_info=True)
        jax.clear_caches()
        # Traced anew under this partitioner, as by a user who sets the flag first.
        fun, args = PROGRAMS[name]
        text = fun.trace(*args).lower(lowering_platforms=("cpu",)).as_text()
    assert lowered.text(debug_info=False) == text


def test_the_configuration_is_as_before():
    before = jax.config.jax_use_shardy_partitioner
    for name in BOTH:
        lower(program(), name)
    with pytest.raises(NotLowerable):
        lower(Program("broken", jax.jit(lambda x: x @ x), (array((2, 3)),)), "gspmd")
    assert jax.config.jax_use_shardy_partitioner == before


def test_what_is_known_of_a_module():
    lowered = lower(program(), "shardy")
    assert lowered.meshes == {"mesh": Mesh.of({"data": 4, "model": 2})}
    assert (lowered.num_partitions, lowered.num_devices) == (8, 8)
    assert lowered.kept_arguments == (0, 1)
    assert lowered.platforms == ("cpu",)
    assert lowered.jax_version == jax.__version__
    assert lowered.bytecode().startswith(b"ML\xefR")
    assert lower(program(), "gspmd").meshes == {}


@pytest.mark.parametrize("partitioner", BOTH)
def test_any_size_of_mesh_without_devices(partitioner):
    sizes = dict(zip("abcdefg", (1, 16, 1, 256, 1, 8, 1), strict=True))
    mesh = compat.abstract_mesh(Mesh.of(sizes))
    shape = jax.ShapeDtypeStruct(
        (256, 2048), jnp.float32, sharding=NamedSharding(mesh, P("b", "d"))
    )
    lowered = lower(Program("big", jax.jit(lambda x: x * 2), (shape,)), partitioner)
    assert lowered.num_devices == 32768
    assert lowered.written_for == partitioner
    assert len(lowered.text()) < 10_000


@pytest.mark.parametrize("partitioner", BOTH)
def test_on_the_devices_that_are_there(partitioner):
    mesh = compat.device_mesh(Mesh.of({"data": 4, "model": 2}), jax.devices())
    value = jax.device_put(np.ones((8, 4), np.float32), NamedSharding(mesh, P("data", "model")))
    lowered = lower(
        Program("real", jax.jit(lambda x: x * 2), (value,)), partitioner, platforms=None
    )
    assert lowered.written_for == partitioner
    assert lowered.num_devices == 8
    assert lowered.platforms == ("cpu",)


def test_other_platforms():
    assert lower(program(), "shardy", platforms=("tpu",)).platforms == ("tpu",)


def test_a_mesh_larger_than_the_machine():
    with pytest.raises(CompilerError, match="16 devices, and there are 8"):
        compat.device_mesh(Mesh.of({"data": 16}), jax.devices())


@pytest.mark.parametrize("partitioner", BOTH)
def test_a_mesh_that_only_the_body_names_is_lowered_for(partitioner):
    mesh = compat.abstract_mesh(Mesh.of({"data": 4, "model": 2}))
    fun = jax.jit(lambda x: constrain(x * 2, NamedSharding(mesh, P("data"))))
    inside = Program("inside", fun, (jax.ShapeDtypeStruct((8, 8), jnp.float32),))
    module = lower(inside, partitioner)
    assert partitions(module, build(module.module)) == 8
    if compat.version_tuple() < (0, 10):  # the mesh in the module is all that tells
        assert module.num_devices == 1
        return
    assert (module.num_devices, module.num_partitions) == (8, 8)
    assert compat.lowering_devices(module.lowered) is None


def test_a_program_without_shardings():
    lowered = lower(Program("plain", jax.jit(jnp.sin), (jnp.ones(3),)), "shardy")
    assert lowered.written_for == "none"
    assert lowered.num_devices == 1


def test_hoisted_constants_are_counted():
    table = jnp.arange(1000.0)
    old = jax.config.jax_use_simplified_jaxpr_constants
    jax.config.update("jax_use_simplified_jaxpr_constants", True)
    try:
        lowered = lower(
            Program("f", jax.jit(lambda x, y: y + table), (array((3,)), array((1000,), "data"))),
            "shardy",
        )
    finally:
        jax.config.update("jax_use_simplified_jaxpr_constants", old)
        jax.clear_caches()
    assert lowered.kept_arguments == (1,)
    arguments = lowered.text(debug_info=False).split("@main(")[1].split(")")[0].count("%arg")
    assert arguments == lowered.constants + 1


def test_not_lowerable_names_the_line_and_keeps_jaxs_words():
    def wrong(x):
        return x @ jnp.ones((7, 7))

    with pytest.raises(NotLowerable) as caught:
        trace(Program("wrong", jax.jit(wrong), (array((4, 4)),)))
    assert caught.value.file == __file__
    assert caught.value.line == wrong.__code__.co_firstlineno + 1
    assert "wrong can't be traced: TypeError: " in str(caught.value)
    assert "For simplicity, JAX has removed" not in caught.value.reason
    assert len(str(caught.value).splitlines()) == 1


def in_shard_map(x):
    return jax.shard_map(lambda x: x * 2, in_specs=P("data"), out_specs=P("data"))(x)


NEW = compat.version_tuple() >= (0, 9)
REAL = compat.device_mesh(Mesh.of({"data": 4, "model": 2}), jax.devices())


@pytest.mark.parametrize(
    ("jitted", "mesh"),
    [
        (jax.jit(lambda x: constrain(x, P("model"))), REAL),
        # JAX 0.7 wants devices for constraints too.
        (jax.jit(lambda x: constrain(x, P("model"))), AUTO if NEW else REAL),
        (jax.jit(in_shard_map), AUTO),
        (jax.jit(in_shard_map), REAL),
        (jax.jit(lambda x: x * 2, in_shardings=P("model"), out_shardings=P("data")), REAL),
    ],
)
def test_specs_without_a_mesh_mean_the_programs(jitted, mesh):
    shape = jax.ShapeDtypeStruct((16, 32), jnp.float32, sharding=NamedSharding(mesh, P("model")))
    plain = jax.ShapeDtypeStruct((16, 32), jnp.float32)
    told = Program("told", jitted, (shape,), mesh=mesh)
    for program in (told, Program("of its arguments", jitted, (shape,))):
        for partitioner in BOTH:
            lowered = lower(program, partitioner)
            assert (lowered.written_for, lowered.num_devices) == (partitioner, 8)
    with pytest.raises(NotLowerable) as caught:
        trace(Program("no_mesh", jitted, (plain,)))
    assert caught.value.hint == "Give the Program its mesh: Program(..., mesh=mesh)."


@pytest.mark.parametrize("partitioner", BOTH)
def test_what_does_not_divide_is_named(partitioner):
    """JAX tells its shape only, of which a model may have many."""
    jitted = jax.jit(lambda x, state: (x, state["w"] * 2))
    args = (array((8,), "data"), {"w": array((4, 6), None, "data")})
    with pytest.raises(NotLowerable) as caught:
        lower(Program("indivisible", jitted, args), partitioner)
    assert caught.value.hint == (
        "It is state['w'], whose dimension 1 of size 6 does not divide into 4: take another size "
        "or another mesh."
    )


def test_callbacks_are_lowered_for_devices_that_are_not_there():
    jitted = jax.jit(lambda x: jax.pure_callback(np.sin, x, x))
    program = Program("callback", jitted, (array((8,), "data"),))
    if compat.version_tuple() < (0, 8):
        with pytest.raises(NotLowerable) as caught:
            lower(program, "shardy")
        assert "real devices" in caught.value.hint
        return
    lowered = lower(program, "shardy")
    assert "callback" in lowered.text()
    assert lowered.num_devices == array((8,), "data").sharding.mesh.size


@pytest.mark.skipif(compat.version_tuple() < (0, 9), reason="Explicit axes need devices")
@pytest.mark.parametrize("partitioner", BOTH)
@pytest.mark.parametrize("of_model", [AxisType.Explicit, AxisType.Auto])
def test_results_keep_the_explicit_axes_of_their_types_as_on_devices(partitioner, of_model):
    kinds = (AxisType.Explicit, of_model)
    abstract = AbstractMesh((4, 2), ("data", "model"), axis_types=kinds)
    devices = np.array(jax.devices("cpu")[:8]).reshape(4, 2)

    def text(mesh):
        jitted = jax.jit(lambda x: (x * 2, x.sum(1)))
        return lower(
            Program("step", jitted, (array((8, 4), "data", mesh=mesh),)), partitioner
        ).text(debug_info=False)

    on_devices = text(jax.sharding.Mesh(devices, abstract.axis_names, axis_types=kinds))
    assert text(abstract) == on_devices
    assert "sharding" in on_devices.partition("->")[2].partition("{\n")[0]


@pytest.mark.skipif(compat.version_tuple() < (0, 9), reason="einsum has no unreduced out_sharding")
def test_an_unreduced_result_stays_so_without_devices():
    sharding = NamedSharding(EXPLICIT, P(None, None, unreduced={"data"}))
    jitted = jax.jit(lambda x, y: jnp.einsum("ab,bc->ac", x, y, out_sharding=sharding))
    args = (array((4, 8), None, "data", mesh=EXPLICIT), array((8, 4), "data", mesh=EXPLICIT))
    inspection = Inspection(Program("unreduced", jitted, args), partitioners=["shardy"])
    (result,) = [t for t in inspection.tensors.tensors if t.kind == "result"]
    assert 'unreduced={"data"}' in result.lowered["shardy"].text
    assert inspection.collectives().collectives == ()


def test_unreduced_results_are_not_for_gspmd():
    sharding = NamedSharding(EXPLICIT, P(None, unreduced={"data"}))

    def unreduced(x, y):
        return jnp.einsum("ab,bc->ac", x, y, out_sharding=sharding)

    args = (array((4, 8), None, "data", mesh=EXPLICIT), array((8, 4), "data", mesh=EXPLICIT))
    program = Program("unreduced", jax.jit(unreduced), args)
    if (0, 8) <= compat.version_tuple() < (0, 10, 2):  # it had a form for them
        assert "last_tile_dims={unreduced, replicated}" in lower(program, "gspmd").text()
        return
    with pytest.raises(NotLowerable) as caught:
        lower(program, "gspmd")
    assert caught.value.partitioner == "gspmd"
    assert caught.value.reason


class OwnStage:
    """What a library's `trace` returns: something around JAX's."""

    def __init__(self, traced):
        self.traced = traced

    def lower(self):
        return self.traced.lower()


class OwnJit:
    """A library's jit: arguments of its own making, and stages of its own; as `nnx.jit`."""

    def __init__(self, fun):
        self.jitted = jax.jit(lambda split: fun(*split))

    def trace(self, *args):
        return OwnStage(self.jitted.trace(args))

    def lower(self, *args):
        return self.jitted.lower(args)


class OwnJitWithoutTrace:
    """As `eqx.filter_jit`, whose errors are its own, too."""

    def __init__(self, fun):
        self.jitted = jax.jit(lambda split: fun(*split))

    def lower(self, *args):
        try:
            return self.jitted.lower(args)
        except Exception as error:
            raise KeyError("hidden") from error


@pytest.mark.parametrize("jit", [OwnJit, OwnJitWithoutTrace])
def test_a_librarys_own_jit(jit):
    program = Program("own", jit(lambda x, y: x @ y), (array((4, 8), "data"), array((8, 4))))
    traced = trace(program)
    assert isinstance(traced, jax.stages.Traced)
    assert [argument.name for argument in compat.arguments(traced)] == ["split[0]", "split[1]"]
    assert lower(program, "gspmd").written_for == "gspmd"
    # JAX is as it was, for everyone else.
    assert isinstance(jax.jit(jnp.sin).trace(1.0).lower(), jax.stages.Lowered)


def test_a_lower_that_lowers_nothing():
    class Odd:
        def lower(self):
            return "odd"

    with pytest.raises(NotLowerable, match=r"Odd.lower lowers nothing"):
        trace(Program("odd", Odd()))


@pytest.mark.parametrize(
    ("fun", "message"),
    [(len, "is a builtin_function_or_method"), (lambda x: x, "is a function, not a jitted one")],
)
def test_what_can_not_be_traced(fun, message):
    with pytest.raises(TargetError, match=message):
        trace(Program("f", fun, ()))


def test_what_was_traced_or_lowered_already():
    fun, args = PROGRAMS["straight"]
    stage = fun.trace(*args)
    assert trace(Program("t", stage)) is stage
    with compat.partitioner("shardy"):
        lowered = stage.lower(lowering_platforms=("cpu",))
    assert lower(lowered, "shardy").name == "straight"
    assert lower(Program("mine", lowered), "shardy").name == "mine"
    with pytest.raises(NotLowerable, match="lowered already, under Shardy, not under GSPMD"):
        lower(lowered, "gspmd")
    with pytest.raises(TargetError, match="lowered already"):
        trace(Program("l", lowered))


def test_mixed_attributes_are_found():
    text = """
    module @mixed {
      sdy.mesh @mesh = <["a"=2]>
      func.func @main(%x: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}]>})
          -> (tensor<4xf32> {mhlo.sharding = "{devices=[2]<=[2]}"}) {
        return %x : tensor<4xf32>
      }
    }"""
    context = compat.new_context()
    module = compat.ir.Module.parse(text, context)
    assert LoweredModule("mixed", module, context).written_for == "both"


def test_standard_error_of_the_compiler_is_kept():
    fun, args = PROGRAMS["straight"]
    stage = fun.trace(*args)

    class Noisy(jax.stages.Traced):
        fun_name = "noisy"
        jaxpr = stage.jaxpr

        def __init__(self):
            pass

        def lower(self, **options):
            os.write(2, b"W0000 something from C++\n")
            return stage.lower(**options)

    assert lower(Noisy(), "shardy").stderr == "W0000 something from C++\n"


def test_a_jax_without_gspmd(monkeypatch):
    monkeypatch.setattr(compat.meshes, "config", SimpleNamespace())
    with pytest.raises(NotLowerable, match="no GSPMD partitioner any more"):
        lower(program(), "gspmd")
    assert lower(program(), "shardy").written_for == "shardy"


def test_importing_the_package_and_targets_leaves_jax_out():
    code = """
    import sys
    import sdyscope, sdyscope.facts.program, sdyscope.targets, sdyscope.facts.settings
    import sdyscope.values.source
    assert "jax" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


def custom(**defined):
    """A jitted function with custom_partitioning, defined with these rules or callbacks."""

    @custom_partitioning
    def double(x):
        return x * 2

    double.def_partition(
        partition=lambda mesh, args, result: (mesh, lambda x: x * 2, result.sharding, args),
        **defined,
    )
    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    argument = jax.ShapeDtypeStruct((8, 8), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    return Program("double", jax.jit(lambda x: double(x)), (argument,))


def infer(mesh, args, result):
    return args[0].sharding


def test_custom_partitioning_is_traced_for_each_partitioner():
    inspection = Inspection(custom(infer_sharding_from_operands=infer, sharding_rule="i j -> i j"))
    assert inspection.failures == {}
    for partitioner, module in inspection.lowered.items():
        text = module.text(debug_info=False)
        assert "@CustomSPMDPartitioning" in text
        assert ("sdy.sharding_rule" in text) == (partitioner == "shardy")
    with pytest.raises(NotLowerable, match="traced without infer_sharding_from_operands"):
        lower(inspection.traced, "gspmd")


def test_custom_partitioning_that_only_shardy_understands():
    inspection = Inspection(custom(sharding_rule="i j -> i j"))
    assert set(inspection.lowered) == {"shardy"}
    assert "infer_sharding_from_operands" in str(inspection.failures["gspmd"])
