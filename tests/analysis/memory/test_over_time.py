"""Memory over a step: against the compiler's own peak; what is held, and what lowers it."""

import importlib.util
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.analysis.memory.over_time import carried_tensors, over_time_of
from sdyscope.analysis.memory.peak import needed, varied
from sdyscope.analysis.memory.remedies import candidates, tried
from sdyscope.facts.program import Program, Versions
from sdyscope.inspection import Inspection
from sdyscope.targets import resolve

pytestmark = pytest.mark.compiles

NO_GPU_COMPILER = importlib.util.find_spec("jax_cuda12_plugin") is None


@pytest.fixture(scope="module")
def scanned():
    """A transformer's step, whose layers run in a loop."""
    program = resolve(
        "fsdp-transformer", settings={"layers": 2, "scan": True, "batch": 64, "sequence": 128}
    )
    return Inspection(program, ["shardy"])


@pytest.fixture(scope="module")
def memory(scanned):
    return scanned.memory()


@pytest.fixture(scope="module")
def over_time(scanned, memory):
    return over_time_of(scanned, memory)


def counted(over_time):
    return {one.figure: one for one in over_time.counted}


def test_the_compilers_figures_are_ours(over_time):
    figures = counted(over_time)
    without = figures["peak without temporaries"]
    assert without.ours == without.compiler
    assert figures["temporaries"].agrees
    assert over_time.unfollowed == 0


@pytest.mark.libtpu
@pytest.mark.parametrize("on", ["tpu:v3:2x2", "tpu:v5e:2x4"])
def test_on_tpus_the_peak_is_the_compilers(on):
    program = Inspection(resolve("mlp", settings={"batch": 512}), ["shardy"])
    found = over_time_of(program, program.memory(on=on), origins=False)
    (figure,) = found.counted
    assert figure.ours == figure.compiler


@pytest.mark.skipif(NO_GPU_COMPILER, reason="jax-cuda12-plugin is not installed")
def test_on_gpus_the_peak_is_the_compilers():
    program = Inspection(resolve("mlp", settings={"batch": 512}), ["shardy"])
    found = over_time_of(program, program.memory(on="cuda:h100:1x1x8"), origins=False)
    (figure,) = found.counted
    assert figure.ours == figure.compiler


def test_sums_are_the_same_everywhere(over_time):
    assert sum(over_time.by_category.values()) == over_time.peak
    assert sum(one.bytes for one in over_time.held) + over_time.by_category["constants"] == (
        over_time.peak - _table(over_time)
    )
    assert max(one.bytes for one in over_time.moments) == over_time.peak
    for moment in over_time.moments:
        assert sum(moment.by_category.values()) == moment.bytes
        assert moment.bytes >= over_time.least


def _table(over_time):
    """Bytes of the results' addresses, which no tensor holds."""
    results = sum(one.bytes for one in over_time.held if one.category == "results")
    return over_time.by_category["results"] - results


def test_arguments_are_told_apart_by_what_becomes_of_them(over_time, memory):
    groups = {one.name: one.stored for one in memory.groups if one.kind == "argument"}
    assert over_time.by_category["parameters"] == groups["params"]
    assert over_time.by_category["optimizer state"] == groups["opt_state"]
    assert over_time.by_category["inputs"] == groups["batch"]


def test_what_a_recorded_run_compiled_is_told_apart_by_its_module():
    """As MaxText has its state in one argument: the paths alone do not tell."""

    def step(state, batch):
        gradient = jax.grad(lambda w: jnp.sum(jnp.tanh(batch @ w)))(state["model"]["w"])
        mu = 0.9 * state["optimizer"]["mu"]["w"] + gradient
        return {"model": {"w": state["model"]["w"] - mu}, "optimizer": {"mu": {"w": mu}}}

    whole = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    state = {"model": {"w": whole}, "optimizer": {"mu": {"w": whole}}}
    program = Inspection(Program("step", jax.jit(step), (state, whole)), ["shardy"])
    memory = program.memory()
    ran = replace(
        memory.compiled, hardware=None, recorded_by=Versions("0.9.9"), recorded_platform="cpu"
    )
    held = over_time_of(program, replace(memory, compiled=ran)).by_category
    assert held["optimizer state"] == held["parameters"] == 64 * 64 * 4
    assert held == over_time_of(program, memory).by_category


def test_averages_of_parameters_are_no_optimizer_state():
    """Nothing is updated by them, as by moments; be that in a function of its own or in a loop."""

    def step(params, mu, ema, batch):
        def updated(state, x):
            w, mu = state
            mu = 0.9 * mu + jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w)))(w)
            return (w - 0.1 * mu, mu), None

        (params, mu), _ = jax.lax.scan(updated, (params, mu), batch)
        return params, mu, jax.jit(lambda ema, w: 0.99 * ema + 0.01 * w)(ema, params)

    whole = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    batch = jax.ShapeDtypeStruct((2, 64, 64), jnp.float32)
    jitted = jax.jit(step, donate_argnums=(0, 1, 2))
    program = Inspection(Program("step", jitted, (whole, whole, whole, batch)), ["shardy"])
    held = over_time_of(program, program.memory()).held
    categories = {each.name: each.category for each in held}
    named = [categories[name] for name in ("params", "mu", "ema")]
    assert named == ["parameters", "optimizer state", "state"]


def test_a_stack_is_named_after_what_the_loop_writes_there(over_time):
    kept = [one for one in over_time.held if one.category == "kept for backward"]
    softmax = next(one for one in kept if one.op == "exp")
    assert softmax.name.endswith("attention")
    assert softmax.source.file.endswith("fsdp_transformer.py")
    # Both layers' are in it: a block of four heads for 16 of 64 sequences.
    assert softmax.array.startswith("f32[2,16,4,128,128]")
    assert {str(origin.axis) for origin in softmax.origins} == {'"fsdp"', '"model"'}


def test_passes_and_loops(over_time):
    assert {"forward", "backward"} <= {one.phase for one in over_time.phases}
    assert over_time.phases[0].start == 0
    assert over_time.phases[-1].end == over_time.instructions
    assert [one.trips for one in over_time.loops] == [2, 2]


@pytest.mark.thorough
def test_what_lowers_the_peak_is_compiled(scanned, memory, over_time):
    found = candidates(scanned, memory, over_time)
    assert {remedy.kind for remedy, _ in found} >= {"donate", "constrain"}
    donation = next(remedy for remedy, _ in found if remedy.kind == "donate")
    assert donation.name == "params, opt_state"
    done = tried(scanned, memory, over_time, None, len(found))
    by_kind = {remedy.kind: remedy for remedy in done}
    assert by_kind["donate"].saves == over_time.peak - by_kind["donate"].peak
    assert 0 < by_kind["donate"].saves <= donation.hopes
    assert max(remedy.saves for remedy in done) == done[0].saves


def test_a_donation_that_is_tried_is_one():
    mesh = jax.sharding.AbstractMesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    state = jax.ShapeDtypeStruct(
        (64, 64), jnp.float32, sharding=NamedSharding(mesh, P("data", None))
    )

    @jax.jit
    def step(state):
        w = state["w"]
        return {"w": jnp.where(w > 0, w, jnp.sin(w @ w.T))}

    program = Inspection(Program("step", step, ({"w": state},), mesh=mesh), ["shardy"])
    memory = program.memory()
    found = tried(program, memory, over_time_of(program, memory), None, 5)
    donated = next(remedy for remedy in found if remedy.kind == "donate")
    assert donated.names == ("state['w']",)
    assert donated.peak is not None


def test_of_two_arguments_of_one_path_the_one_that_is_updated_has_parameters():
    def step(teacher, student, x):
        def loss(student):
            return ((x @ student["w"] - x @ teacher["w"]) ** 2).mean()

        return jax.tree.map(lambda p, g: p - 0.1 * g, student, jax.grad(loss)(student))

    params, x = (
        {"w": jax.ShapeDtypeStruct((64, 64), jnp.float32)},
        jax.ShapeDtypeStruct((8, 64), jnp.float32),
    )
    program = Inspection(Program("step", jax.jit(step), (params, params, x)), ["shardy"])
    memory = program.memory()
    held = over_time_of(program, memory, origins=False).held
    categories = {tensor.name: tensor.category for tensor in held}
    carried = carried_tensors(memory.tensors, program.graph())
    assert [argument.name for argument, _ in carried] == ["student['w']"]
    assert categories["teacher['w']"] == "inputs"
    assert categories["student['w']"] == "parameters"


def test_without_a_backward_pass_there_are_no_gradients():
    program = Inspection(resolve("rng-gotcha", settings={"rows": 64}), ["shardy"])
    found = over_time_of(program, program.memory())
    assert not {"gradients", "kept for backward", "parameters"} & set(found.by_category)


def test_the_text_of_a_compiled_program(tmp_path, memory):
    from sdyscope.inspection import read

    file = tmp_path / "step.txt"
    file.write_text(memory.compiled.hlo)
    again = read(file)
    found = over_time_of(again, again.memory())
    assert found.counted == ()
    # Without the compiler's figures the table of the results' addresses is not known.
    assert found.peak == pytest.approx(over_time_of(again, memory, origins=False).peak, rel=1e-3)


# Sizes that fit.


def measured(slope, base, refuses=()):
    def measure(value):
        if value in refuses:
            from sdyscope.errors import CompilerError

            raise CompilerError(f"{value} is refused.")
        return base + slope * value

    return measure


@pytest.mark.parametrize(
    ("given", "limit", "best"),
    [(16, 1000, 80), (16, 50, None), (24, 1000, 88), (128, 1000, 88), (2, 150, 4), (8, 125, 1)],
)
def test_the_largest_that_fits(given, limit, best):
    found = varied("batch", "largest", given, limit, measured(10, 110))
    assert found.best == best
    assert [one.value for one in found.trials] == sorted({one.value for one in found.trials})
    assert len(found.trials) <= 16


def test_sizes_that_are_refused_do_not_fit():
    found = varied("batch", "largest", 16, 1000, measured(10, 110, refuses={64, 80}))
    assert found.best == 48
    assert next(one for one in found.trials if one.value == 64).refused == "64 is refused."


def test_the_fewest_devices():
    found = varied("fsdp", "fewest", 8, 1000, lambda value: 3000 // value)
    assert found.best == 4
    assert [one.value for one in found.trials] == [2, 4, 8]


def test_what_a_device_needs_is_no_less_than_the_peak(memory, over_time):
    assert needed(memory, over_time) >= over_time.peak
