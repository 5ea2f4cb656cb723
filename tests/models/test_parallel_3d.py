"""Data, pipeline and tensor parallelism by hand: each against what it is without devices."""

import collections
import functools
import importlib.util
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh
from jax.sharding import PartitionSpec as P
from model_references import latent_attention_logits
from own_process import DEVICES_UNSAID, in_own_process

from sdyscope.errors import TargetError
from sdyscope.facts.findings import Regrouped
from sdyscope.inspection import Inspection
from sdyscope.models import _pipelines, parallel_3d
from sdyscope.targets import resolve

DOCS = Path(__file__).parents[2] / "docs"

TINY = {
    "layers": 4,
    "microbatches": 4,
    "batch": 2,
    "sequence": 4,
    "features": 8,
    "heads": 2,
    "latent": 8,
    "rotary": 4,
    "hidden": 16,
    "vocab": 8,
    "optimizer": "sgd",
    "donate": False,
}
#: Of what runs whole: a stage of one layer, and no more microbatches than stages.
TINIEST = {**TINY, "layers": 2, "microbatches": 2}


def mesh_of(*shape):
    devices = np.array(jax.devices()[: int(np.prod(shape))]).reshape(shape)
    return Mesh(devices, ("dp", "pp", "tp"), axis_types=(AxisType.Auto,) * 3)


def on_each(function, mesh, in_specs, out_specs):
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs))


# --- the parts ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stages", "microbatches"), [(1, 2), (2, 2), (2, 6), (4, 4), (4, 12), (8, 8), (8, 16)]
)
@pytest.mark.parametrize("schedule", [_pipelines.gpipe, _pipelines.one_at_a_time])
def test_the_schedule_is_right_and_its_bubble_is_the_formulas(schedule, stages, microbatches):
    """Each stage multiplies by its number and adds the microbatch's: no two orders are alike."""
    mesh = mesh_of(1, stages, 1)
    x = np.arange(microbatches * 3.0, dtype=np.float32).reshape(microbatches, 3)

    def body(x):
        stage = jax.lax.axis_index("pp")

        def work(x, number, seen):
            return x * (stage + 1) + number, seen.at[number].add(1)

        seen = jnp.zeros(microbatches) + 0 * stage
        outputs, idle, seen = schedule(work, x, False, seen)
        return outputs, idle[None], seen

    outputs, idle, seen = on_each(body, mesh, P("pp"), (P("pp"), P("pp"), P("pp")))(x)
    assert set(np.ravel(seen)) == {1}  # each stage remembers each microbatch
    numbers = np.arange(microbatches)[:, None]
    expected = functools.reduce(lambda x, stage: x * (stage + 1) + numbers, range(stages), x)
    np.testing.assert_allclose(outputs, expected, rtol=1e-6)
    if schedule is _pipelines.one_at_a_time:  # n steps each, as a batch without microbatches
        steps, ratio = stages * microbatches, _pipelines.bubble_ratio(stages, 1)
        assert list(idle) == [microbatches * (stages - 1)] * stages
    else:
        steps, ratio = stages + microbatches - 1, _pipelines.bubble_ratio(stages, microbatches)
        assert list(idle) == [stages - 1] * stages
    assert float(np.sum(idle)) / (stages * steps) == pytest.approx(ratio)


@pytest.mark.parametrize("remat", [True, False])
def test_nothing_comes_of_what_idle_stages_hold(remat):
    """A stage that makes NaN of what is no microbatch: neither values nor gradients have any."""
    numbers = np.arange(1.0, 9.0, dtype=np.float32)

    def body(x):
        def stage(x, number, _):
            return jnp.sqrt(jnp.where((number >= 0) & (number < 8), 1.0, -1.0)) * x * x, ()

        return jax.lax.psum(jnp.sum(_pipelines.gpipe(stage, x, remat)[0]), "pp")

    run = jax.value_and_grad(on_each(body, mesh_of(1, 4, 1), P("pp"), P()))
    value, gradient = run(numbers)
    np.testing.assert_allclose(value, np.sum(numbers**16), rtol=1e-5)
    np.testing.assert_allclose(gradient, 16 * numbers**15, rtol=1e-5)


def test_a_dense_layer_in_pieces_is_a_dense_layer():
    rng = np.random.default_rng(0)
    x, kernel, bias = (
        rng.standard_normal(shape).astype(np.float32) for shape in ((4, 6, 8), (8, 12), (12,))
    )
    specs = (P("dp", None, "tp"), {"kernel": P("tp", "dp"), "bias": P(None)})
    run = on_each(parallel_3d.dense, mesh_of(2, 1, 4), specs, P("dp", None, "tp"))
    np.testing.assert_allclose(
        run(x, {"kernel": kernel, "bias": bias}), x @ kernel + bias, rtol=1e-5, atol=1e-5
    )


def test_a_norm_and_rotary_angles_in_pieces_are_whole_ones():
    x = np.random.default_rng(0).standard_normal((2, 6, 3, 8)).astype(np.float32)
    spec = P(None, None, None, "tp")

    def body(x):
        ones = jnp.ones(x.shape[-1])
        angle = parallel_3d.own_channels(parallel_3d.angles(jnp.arange(6), 8))
        return parallel_3d.rms_norm(x, ones), parallel_3d.rotate(x, angle)

    pieces, whole = (on_each(body, mesh_of(1, 1, size), spec, (spec, spec))(x) for size in (4, 1))
    for one, other in zip(pieces, whole, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    norm, turned = whole
    np.testing.assert_allclose(np.mean(np.square(norm), axis=-1), 1, rtol=1e-4)
    # A rotation keeps lengths, and does nothing at the first position.
    np.testing.assert_allclose(
        np.linalg.norm(turned, axis=-1), np.linalg.norm(x, axis=-1), rtol=1e-5
    )
    np.testing.assert_allclose(turned[:, 0], x[:, 0], rtol=1e-6)


def test_what_is_dropped_is_the_same_on_any_mesh():
    x = np.ones((4, 64, 16), np.float32)
    spec = P("dp", None, "tp")

    def body(x, key):
        return tuple(parallel_3d.dropout(x, key, place, 0.25) for place in (0, 1))

    pieces, whole = (
        on_each(body, mesh_of(*shape), (spec, P()), (spec, spec))(x, jax.random.key(0))
        for shape in ((2, 1, 4), (1, 1, 1))
    )
    np.testing.assert_array_equal(pieces, whole)
    one, other = (np.asarray(each) for each in whole)
    assert {*np.unique(one)} == {np.float32(0), np.float32(1 / 0.75)}
    assert np.mean(one == 0) == pytest.approx(0.25, abs=0.03)
    # What differs by place, sequence, position or channel is dropped independently.
    for a, b in [(one, other), (one[:2], one[2:]), (one[:, :32], one[:, 32:])]:
        assert np.mean((a == 0) & (b == 0)) == pytest.approx(0.0625, abs=0.03)
    first, second = one[..., :8], one[..., 8:]
    assert np.mean((first == 0) & (second == 0)) == pytest.approx(0.0625, abs=0.03)


def test_specs_are_by_path_and_rank():
    declared = parallel_3d.parameters(parallel_3d.Settings())
    layers, embedding = declared["layers"], declared["embedding"]
    assert layers["attention"]["q"]["kernel"].axes == ("pp", "tp", "dp")
    assert layers["attention"]["q"]["bias"].axes == ("pp", None)
    assert layers["norm1"]["gamma"].axes == ("pp", "tp")
    assert embedding["norm"]["gamma"].axes == ("tp",)
    assert embedding["table"].axes == (None, None)


def test_a_stage_has_its_layers_and_a_device_its_features():
    """5 of 10 layers on pp=2, of a kernel from 4 to 8; 128 of 512 features on tp=4."""
    kernel = parallel_3d.parameters(parallel_3d.Settings(layers=10, features=4, hidden=8))
    kernel = kernel["layers"]["mlp"]["up"]["kernel"]
    on_stages = jax.sharding.NamedSharding(mesh_of(1, 2, 1), P(*kernel.axes))
    assert on_stages.shard_shape(kernel.shape) == (5, 4, 8)
    gamma = parallel_3d.parameters(parallel_3d.Settings(features=512))["layers"]["norm1"]["gamma"]
    indices = jax.sharding.NamedSharding(mesh_of(1, 1, 4), P(*gamma.axes)).devices_indices_map(
        gamma.shape
    )
    features = [(index[1].start or 0, index[1].stop) for index in indices.values()]
    assert features == [(0, 128), (128, 256), (256, 384), (384, 512)]


@pytest.mark.parametrize(
    ("mesh", "settings", "said"),
    [
        ({"dp": 2, "tp": 2}, {}, "The mesh has no axis 'pp'"),
        ({"dp": 1, "pp": 4, "tp": 1}, {"layers": 6}, "layers=6 must be divisible by pp=4"),
        (None, {"microbatches": 3}, "microbatches=3 must be divisible by pp=2"),
        (None, {"batch": 1}, "batch=1 must be divisible by dp=2"),
        (None, {"sequence": 5}, "sequence=5 must be divisible by tp=2"),
        (None, {"heads": 3}, "heads=3 must be divisible by tp=2"),
        (None, {"features": 62}, "features=62 must be divisible by heads=4"),
        (None, {"features": 60, "cut": "channels"}, "features=60 must be divisible by heads x tp"),
        (None, {"cut": "half"}, "cut=half of parallel-3d must be heads or channels"),
        (None, {"schedule": "zero"}, "schedule=zero of parallel-3d must be gpipe, naive or 1f1b"),
        ({"dp": 3, "pp": 1, "tp": 1}, {"batch": 3}, "features=64 must be divisible by dp=3"),
        (None, {"latent": 5}, "latent=5 must be divisible by dp=2"),
        (None, {"hidden": 9}, "hidden=9 must be divisible by dp=2"),
        (None, {"rotary": 6}, "rotary=6 must be divisible by 2 x tp=4"),
        (None, {"dropout": 1.0}, "dropout=1.0 must be from 0 to less than 1"),
    ],
)
def test_what_can_not_be_is_refused_in_a_sentence(mesh, settings, said):
    with pytest.raises(TargetError, match=said):
        resolve("parallel-3d", mesh=mesh, settings=settings)


@pytest.mark.parametrize("sizes", [(1, 8, 1), (1, 1, 4), (4, 1, 1), (8, 1, 1)])
def test_what_is_not_refused_can_be_traced(sizes):
    smallest = {"heads": 4, "features": 16, "latent": 8, "rotary": 8, "hidden": 8, "batch": 8}
    many = {"layers": 8, "microbatches": 8, "vocab": 3}
    mesh = dict(zip(("dp", "pp", "tp"), sizes, strict=True))
    program = resolve("parallel-3d", mesh=mesh, settings={**smallest, **many})
    assert len(program.fun.trace(*program.args).jaxpr.eqns) > 0


# --- the step -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def inspection():
    return Inspection(resolve("parallel-3d", settings=TINY))


def test_what_is_lowered_is_what_was_requested(inspection):
    assert inspection.check().passed
    assert set(inspection.lowered) == {"shardy", "gspmd"}


@pytest.mark.compiles
def test_what_is_propagated_is_what_was_requested(inspection):
    """Manual over every axis: nothing is left for either partitioner to decide."""
    text = str(inspection.snapshot(["requested", "lowered", "propagated"]))
    assert "  partitioners shardy, gspmd" in text.splitlines()
    tensors = [block for block in text.split("\n\n") if block.startswith(("argument", "result"))]
    assert len(tensors) > 20
    assert [block for block in tensors if not block.rstrip().endswith("\n  propagated =")] == []


BOTH = pytest.mark.parametrize("partitioner", ["shardy", "gspmd"])


@pytest.mark.compiles
@pytest.mark.parametrize(
    "partitioner", ["shardy", pytest.param("gspmd", marks=pytest.mark.thorough)]
)
def test_every_collective_is_the_lessons(inspection, partitioner):
    steps, kernels = 5, 2 * 10  # those of a stage's two layers
    found = collections.Counter()
    for one in inspection.collectives(partitioner).collectives:
        names = tuple(axis.name for axis in one.axes)
        found[one.kind, names] += one.count
        # All of a group skip what an idle stage skips: they are in one stage.
        assert not (one.conditional and "pp" in names)
    # Onwards and on the belt, forward and backward.
    assert found["collective-permute", ("pp",)] == 4 * steps
    # Forward, and again for the backward pass.
    assert found["all-gather", ("dp",)] == 2 * steps * kernels
    assert found["reduce-scatter", ("dp",)] == steps * kernels
    assert {names for kind, names in found if kind == "reduce-scatter"} == {("dp",), ("tp",)}
    assert {names for kind, names in found if kind == "all-to-all"} == {("tp",)}


@pytest.mark.compiles
@BOTH
def test_a_stage_has_the_logits_of_its_own_microbatches(inspection, partitioner):
    """[microbatches / pp, batch / dp, sequence / tp, vocab], and of no others."""
    text = inspection.compiled(partitioner).hlo
    assert "f32[2,1,2,8]" in text
    assert "f32[4,1,2,8]" not in text
    assert inspection.memory(partitioner).equal


def step(*shape, **settings):
    """The loss, and what a step of plain gradient descent changes."""
    settings = parallel_3d.Settings(**{**TINY, **settings})
    program = parallel_3d.program(mesh_of(*shape), settings)
    args, _ = program.inputs()
    placed = jax.device_put(args, jax.tree.map(lambda leaf: leaf.sharding, program.args))
    params, _, loss = program.fun(*placed)
    moved = jax.tree.map(lambda new, old: np.asarray(new) - old, params, args[0])
    return float(loss), jax.tree.leaves(moved)


@functools.cache
def alone(tp, *settings):
    """The same without data or pipeline parallelism, by GPipe."""
    return step(1, 1, tp, **dict(settings))


@pytest.mark.compiles
@pytest.mark.parametrize(
    ("shape", "schedule", "settings"),
    [
        pytest.param((2, 2, 2), "gpipe", {"dropout": 0.3}, marks=pytest.mark.thorough),
        ((2, 2, 2), "1f1b", {"dropout": 0.3}),
        pytest.param(
            (1, 4, 2), "1f1b", {"dropout": 0.3, "microbatches": 8}, marks=pytest.mark.thorough
        ),
        pytest.param((1, 4, 2), "naive", {"dropout": 0.3}, marks=pytest.mark.thorough),
        pytest.param((2, 1, 2), "gpipe", {"cut": "channels"}, marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_data_and_pipeline_parallelism_change_no_gradient(shape, schedule, settings):
    """With the lesson's cut `tp` decides which channels a head has: it is the same in both."""
    loss, moved = step(*shape, **settings, schedule=schedule)
    expected, moved_alone = alone(shape[-1], *settings.items())
    assert loss == pytest.approx(expected, rel=1e-5)
    for one, other in zip(moved, moved_alone, strict=True):
        assert np.max(np.abs(one - other)) <= 1e-3 * np.max(np.abs(other)) + 1e-8


@pytest.mark.parametrize(("stages", "microbatches"), [(2, 2), (4, 4), (4, 8)])
def test_one_forward_one_backward_is_the_gradient_and_keeps_few(stages, microbatches):
    """Each stage scales by its own weight: the gradient is that of the product of all of them."""
    x = np.arange(1.0, microbatches + 1, dtype=np.float32)
    weights = np.arange(2.0, stages + 2, dtype=np.float32)

    def body(w):
        place = jax.lax.axis_index("pp")
        first, last = place == 0, place == jax.lax.axis_size("pp") - 1

        def part(w, given, number):
            y = jnp.where(first, jnp.asarray(x)[number], given) * w
            return y, jnp.where(last, jnp.sum(y), 0)

        nothing = jnp.zeros(1) + 0 * place
        loss, gradients, idle = _pipelines.one_forward_one_backward(
            part, w + 0 * place, nothing, microbatches, 1.0
        )
        return jax.lax.psum(loss, "pp"), gradients, idle[None]

    run = on_each(body, mesh_of(1, stages, 1), P("pp"), (P(), P("pp"), P("pp")))
    loss, gradients, idle = run(weights)
    assert loss == pytest.approx(np.prod(weights) * np.sum(x))
    np.testing.assert_allclose(gradients, np.prod(weights) * np.sum(x) / weights, rtol=1e-5)
    # m steps forward and m backward, of which those that fall together are one.
    steps = microbatches + 2 * (stages - 1)
    together = [max(0, microbatches - 2 * (stages - 1 - stage)) for stage in range(stages)]
    assert list(idle) == [steps - (2 * microbatches - both) for both in together]


@pytest.mark.compiles
@pytest.mark.thorough
def test_with_the_lesson_s_cut_the_function_depends_on_the_mesh():
    loss, _ = step(1, 1, 1)
    assert step(1, 1, 1, cut="channels")[0] == pytest.approx(loss, rel=1e-5)
    assert abs(alone(2, ("cut", "channels"))[0] / loss - 1) > 1e-4


@pytest.mark.compiles
@pytest.mark.thorough
def test_what_depends_on_the_mesh_is_the_cut_of_heads_by_name():
    small = {"layers": 1, "microbatches": 1, "batch": 1, "latent": 4, "hidden": 4, "vocab": 4}

    def make(mesh):
        return resolve("parallel-3d", mesh=mesh, settings={**TINY, **small, "cut": "channels"})

    sizes = {"dp": 1, "pp": 1, "tp": 2}
    ran = Inspection(make(sizes), ["shardy"]).run(steps=1, on_mesh=make, meshes=[sizes])
    assert not ran.passed
    (first,) = [inside.first for inside in ran.inside]
    assert first.scope.endswith("/attention/heads_of_own_channels")
    assert (first.op, first.regrouped) == ("reshape", Regrouped(4, 8, 2, ("tp",)))


# --- checkpoints ----------------------------------------------------------------------------------

_spec = importlib.util.spec_from_file_location("checkpoint", DOCS / "checkpoint.py")
checkpoint = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(checkpoint)


def test_what_is_saved_on_one_mesh_is_placed_on_another(tmp_path):
    (_, (params, opt_state, _)), (after, _) = (
        checkpoint.on_mesh(dict(zip(("dp", "pp", "tp"), sizes, strict=True)), TINY)
        for sizes in ((2, 2, 2), (1, 4, 1))
    )
    checkpoint.save(tmp_path / "state.npz", (params, opt_state))
    loaded = checkpoint.load(tmp_path / "state.npz", after.args[:2])
    assert jax.tree.structure(loaded) == jax.tree.structure((params, opt_state))
    triples = (jax.tree.leaves(tree) for tree in (loaded, (params, opt_state), after.args[:2]))
    for here, there, wanted in zip(*triples, strict=True):
        np.testing.assert_array_equal(here, there)
        assert here.sharding == wanted.sharding
    kernel = ("layers", "mlp", "up", "kernel")
    was, is_now = (functools.reduce(dict.get, kernel, tree) for tree in (params, loaded[0]))
    assert was.addressable_shards[0].data.shape != is_now.addressable_shards[0].data.shape


@pytest.mark.compiles
@pytest.mark.thorough
def test_a_checkpoint_goes_on_alike_under_another_tp(tmp_path):
    losses = checkpoint.next_losses(checkpoint.SETTINGS, tmp_path / "state.npz")
    assert len(losses) == 4
    assert losses == pytest.approx(losses[:1] * 4, rel=1e-5)
    by_channels = {**checkpoint.SETTINGS, "cut": "channels"}
    meshes = ({"dp": 1, "pp": 1, "tp": 2}, {"dp": 1, "pp": 1, "tp": 4})
    losses = checkpoint.next_losses(by_channels, tmp_path / "state.npz", 1, meshes)
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert abs(losses[2] / losses[0] - 1) > 1e-3


# --- inference ------------------------------------------------------------------------------------


def likeliest(params, tokens, settings):
    """The next token of each sequence, by the formulas of the lesson alone."""
    logits = latent_attention_logits(params, tokens, settings.heads)
    return np.argmax(logits[:, -1], -1)


@pytest.mark.compiles
@pytest.mark.thorough
def test_a_prompt_goes_on_as_it_does_without_caches_and_devices():
    sizes = {"features": 16, "heads": 4, "rotary": 8, "vocab": 23, "positions": 8}
    settings = parallel_3d.Settings(**{**TINY, **sizes})
    mesh = mesh_of(2, 2, 2)
    prefill, decode = (make(mesh, settings) for make in (parallel_3d.prefill, parallel_3d.decode))
    values, _ = prefill.inputs()
    placed = jax.device_put(values, jax.tree.map(lambda leaf: leaf.sharding, prefill.args))
    tokens, cache = prefill.fun(*placed)
    made = [tokens]
    for _ in range(4):
        tokens, cache = decode.fun(placed[0], cache, tokens)
        made.append(tokens)
    assert int(cache["length"]) == settings.positions
    found = np.concatenate(made, -1).reshape(-1, 5)
    text = values[1].reshape(-1, settings.sequence)
    for number in range(5):
        wanted = likeliest(values[0], text, settings)
        np.testing.assert_array_equal(found[:, number], wanted)
        text = np.concatenate([text, wanted[:, None]], 1)


@pytest.mark.parametrize("step", ["prefill", "decode"])
def test_steps_of_inference_are_lowered_as_they_were_asked_for(step):
    inspected = Inspection(resolve(f"parallel-3d:{step}", settings=TINY))
    assert inspected.check().passed
    caches = [one for one in inspected.requested if "latent" in one.path.rpartition("'")[0][-8:]]
    assert {str(one.sharding.spec) for one in caches} == {"P('pp', None, 'dp', None, 'tp')"}


def test_parameters_are_where_training_leaves_them():
    training, serving = (
        {one.path: one.sharding for one in Inspection(resolve(word, settings=TINY)).requested}
        for word in ("parallel-3d", "parallel-3d:decode")
    )
    shared = {path for path in training if path.startswith("params")}
    assert len(shared) > 20
    assert {path: serving[path] for path in shared} == {path: training[path] for path in shared}


@pytest.mark.compiles
def test_caches_are_a_group_of_their_own_and_reused_and_read():
    inspection = Inspection(resolve("parallel-3d:decode", settings=TINY))
    memory = inspection.memory("shardy")
    (cache,) = [group for group in memory.groups if group.name == "cache"]
    # Of 4 layers, 4 microbatches, 2 sequences and 32 positions 12 channels, on 8 devices.
    assert cache.bytes_per_device == 4 * 4 * 2 * 32 * 12 * 4 // 8 + 4
    read = {one.name: one.bytes for one in inspection.cost("shardy").arguments}
    assert read == {group.name: group.stored for group in memory.groups if group.kind == "argument"}
    assert next(iter(read)) == "cache"


def test_a_prompt_longer_than_the_caches_is_refused():
    with pytest.raises(TargetError, match="positions=2 must be at least sequence=4"):
        resolve("parallel-3d:prefill", settings={**TINY, "positions": 2})


@pytest.mark.compiles
def test_eight_devices_compute_and_drop_what_one_does():
    program = resolve("parallel-3d", settings={**TINIEST, "dropout": 0.3})
    ran = Inspection(program, ["shardy"]).run(steps=1)
    assert ran.passed
    for execution in ran.executions.values():
        assert {len(one.shards) for one in execution.arrays} == {8}
    assert [finding.rule for finding in ran.findings if finding.rule == "not-compared"] == []


@pytest.mark.compiles
@pytest.mark.thorough
def test_stages_in_two_processes():
    settings = (f"{name}={value}" for name, value in TINIEST.items())
    done = in_own_process(
        *("run", "parallel-3d", "--mesh", "pp=2,dp=2,tp=2"),
        *(word for setting in settings for word in ("--set", setting)),
        *("--partitioner", "shardy", "--steps", "1", "--json"),
        *("--processes", "2", "--devices", "4"),
        timeout=300,
        **DEVICES_UNSAID,
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["passed"]
    assert [len(process["devices"]) for process in found["processes"]] == [4, 4]
