"""Layers that declare their parameters, the step that is made of them, experts and tracks."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

from sdyscope.errors import TargetError
from sdyscope.facts.program import Program
from sdyscope.inspection import Inspection
from sdyscope.mesh_config import mesh_shape_from_axes
from sdyscope.models import axlearn_transformer
from sdyscope.models._adafactor import moment_specs, scale_by_factored_rms
from sdyscope.models._axlearn_layers import Context, Embedding, Linear, MixtureOfExperts
from sdyscope.models._parameter_specs import (
    FactorizationSpec,
    Layer,
    ParameterSpec,
    abstract,
    initial,
    partition_specs,
)
from sdyscope.models.axlearn_transformer import Settings, build
from sdyscope.models.fsdp_transformer import Positions
from sdyscope.targets import resolve

TINY = {
    "d_model": 16,
    "heads": 2,
    "head_dim": 8,
    "d_ff": 32,
    "vocab": 32,
    "sequence": 8,
}


@pytest.fixture(scope="module")
def inspection():
    return Inspection(resolve("axlearn-transformer", settings=TINY))


@pytest.fixture(scope="module")
def program():
    return resolve("axlearn-transformer", settings=TINY)


def abstract_mesh(**axes):
    return AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))


# --- declarations ---------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Pair(Layer):
    first: Linear
    rest: tuple[Linear, ...]


def test_specs_are_collected_into_a_tree_that_mirrors_the_layers():
    sharded = Linear(4096, 1024, ("fsdp", "model"))
    specs = Pair(sharded, (Linear(8, 4), Linear(4, 2, bias=False))).collect()
    assert specs["first"] == {
        "weight": ParameterSpec(
            (4096, 1024),
            mesh_axes=("fsdp", "model"),
            factorization=FactorizationSpec(("row", "col")),
        ),
        "bias": ParameterSpec(
            (1024,), mesh_axes=("model",), initializer="zeros", weight_decay_scale=0.0
        ),
    }
    assert partition_specs(specs) == {
        "first": {"weight": PartitionSpec("fsdp", "model"), "bias": PartitionSpec("model")},
        # Replicated, unless whoever builds the model says otherwise.
        "layer0": {"weight": PartitionSpec(None, None), "bias": PartitionSpec(None)},
        "layer1": {"weight": PartitionSpec(None, None)},
    }


def test_a_spec_without_mesh_axes_is_replicated_and_a_stack_is_on_its_own_axis():
    scale = ParameterSpec((6,), initializer="ones")
    assert partition_specs({"scale": scale}) == {"scale": PartitionSpec(None)}
    stacked = scale.stacked(4, "track")
    assert (stacked.shape, stacked.mesh_axes) == ((4, 6), ("track", None))
    assert np.all(stacked.initial(np.random.default_rng(0)) == 1)


def test_initial_values_have_the_variance_of_their_fan_in():
    spec = ParameterSpec((3, 400, 50), mesh_axes=("expert", None, None))
    values = spec.initial(np.random.default_rng(0))
    assert values.shape == spec.shape
    assert values.std() == pytest.approx(1 / 20, rel=0.02)


def test_an_embeddings_fan_in_is_its_rows_length():
    (spec,) = Embedding(50, 400).parameter_specs().values()
    values = spec.initial(np.random.default_rng(0))
    assert values.std() == pytest.approx(1 / 20, rel=0.02)


def test_a_device_holds_16_of_4096_rows_on_fsdp_256():
    sizes = mesh_shape_from_axes(data=-1, fsdp=256, track=8).over(32_768).sizes
    (weight,) = abstract(
        Linear(4096, 1024, ("fsdp", None), bias=False).collect(), abstract_mesh(**sizes)
    ).values()
    assert weight.sharding.shard_shape(weight.shape) == (16, 1024)


def test_a_repeated_block_is_stacked_along_no_axis():
    once = build(Settings()).collect()["layer0"]
    repeated = build(Settings(blocks=3, repeat=True)).collect()
    assert list(repeated) == ["emb", "blocks", "output_norm"]
    stacked = repeated["blocks"]["block"]
    assert jax.tree.structure(stacked) == jax.tree.structure(once)
    for one, many in zip(jax.tree.leaves(once), jax.tree.leaves(stacked), strict=True):
        assert (many.shape, many.mesh_axes) == ((3, *one.shape), (None, *one.mesh_axes))


def test_the_models_tree():
    specs = build(Settings()).collect()
    assert list(specs) == ["emb", "layer0", "output_norm"]
    dense, experts = (specs["layer0"]["track"][f"layer{index}"] for index in range(2))
    assert dense["self_attention"]["q_proj"]["weight"].mesh_axes == ("track", "fsdp", "model")
    assert set(dense["feed_forward"]) == {"linear1", "linear2"}
    assert experts["feed_forward"]["wi_weight"].mesh_axes == ("track", "expert", "fsdp", "model")
    assert experts["feed_forward"]["gate_weight"].shape == (2, 64, 4)


# --- the step -------------------------------------------------------------------------------------


def test_the_state_goes_in_and_out_alike_and_is_donated(program):
    lowered = program.fun.trace(*program.args).lower(lowering_platforms=("cpu",))
    state, batch = lowered.args_info[0]
    assert all(leaf.donated for leaf in jax.tree.leaves(state))
    assert not any(leaf.donated for leaf in jax.tree.leaves(batch))
    asked, _ = program.args
    moments = [leaf for leaf in jax.tree.leaves(asked.learner) if leaf.shape]
    params = jax.tree.leaves(asked.model)
    assert [(m.shape, m.sharding) for m in moments] == 2 * [(p.shape, p.sharding) for p in params]
    kept = resolve("axlearn-transformer", settings={**TINY, "donate": False})
    info = kept.fun.trace(*kept.args).lower(lowering_platforms=("cpu",)).args_info
    assert not any(leaf.donated for leaf in jax.tree.leaves(info))


def test_inputs_have_the_structure_of_the_arguments(program):
    args, _ = program.inputs()
    for value, declared in zip(jax.tree.leaves(args), jax.tree.leaves(program.args), strict=True):
        assert (value.shape, value.dtype) == (declared.shape, declared.dtype)


def test_only_weights_decay():
    """With a gradient of zero nothing but decay moves a parameter."""
    specs = Linear(3, 2).collect()
    learner = axlearn_transformer.make_learner("adamw", specs)
    ones = {"weight": np.ones((3, 2)), "bias": np.ones(2)}
    updates, _ = learner.update(jax.tree.map(np.zeros_like, ones), learner.init(ones), ones)
    assert {name: bool(np.any(update)) for name, update in updates.items()} == {
        "weight": True, "bias": False
    }  # fmt: skip


def test_what_is_lowered_is_what_was_requested(inspection):
    assert inspection.check().passed
    assert inspection.failures == {}
    (loss,) = [asked for asked in inspection.requested if asked.path == "result[1]['loss']"]
    assert loss.sharding is None  # as in out_shardings=(..., dict(loss=None))


@pytest.mark.compiles
def test_repeated_blocks_compute_what_blocks_one_after_the_other_do():
    settings = Settings(**TINY, blocks=2)
    unrolled, repeated = build(settings), build(dataclasses.replace(settings, repeat=True))
    params = initial(unrolled.collect(), np.random.default_rng(0))
    stacked = jax.tree.map(lambda *each: np.stack(each), params["layer0"], params["layer1"])
    tokens = np.arange(16).reshape(2, 8)
    context = Context(abstract_mesh(x=1), Positions.of(8, 8), lambda value, _: value)
    logits, aux = jax.jit(lambda params: unrolled(params, tokens, context))(params)
    alike = jax.jit(lambda params: repeated(params, tokens, context))(
        {**params, "blocks": {"block": stacked}}
    )
    np.testing.assert_allclose(alike[0], logits, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(alike[1], aux, rtol=1e-5)


@pytest.mark.parametrize("axes", [{"seq": 2, "model": 2}, {"data": 2, "fsdp": 2}])
def test_every_axis_of_the_mesh_is_of_use(axes):
    sizes = mesh_shape_from_axes(track=2, **axes).over(8).sizes
    large = Inspection(resolve("axlearn-transformer", mesh=sizes, settings=TINY), ["shardy"])
    assert large.check().passed
    assert "unused-mesh-axis" not in {one.rule for one in large.lint(compiled=False)}


def test_odd_heads_are_refused():
    with pytest.raises(TargetError, match="head_dim=7 must be even"):
        resolve("axlearn-transformer", settings={"head_dim": 7})


@pytest.mark.parametrize(
    ("axes", "settings", "said"),
    [
        ({"pipeline": 2}, {}, "pipeline=2, and only repeated blocks can be its stages"),
        (
            {"pipeline": 2},
            {"repeat": True, "blocks": 3},
            "blocks=3 must be divisible by pipeline=2",
        ),
        ({}, {"microbatches": 2}, "which only repeated blocks can be"),
        ({}, {"repeat": True, "microbatches": 3}, "batch=8 must be divisible by microbatches=3"),
    ],
)
def test_what_can_be_no_pipeline_is_refused(axes, settings, said):
    sizes = mesh_shape_from_axes(fsdp=-1, **axes).over(8).sizes
    with pytest.raises(TargetError, match=said):
        resolve("axlearn-transformer", mesh=sizes, settings=settings)


def test_the_stages_of_a_pipeline_have_their_blocks():
    sizes = mesh_shape_from_axes(pipeline=2, fsdp=2, track=2).over(8).sizes
    settings = {**TINY, "repeat": True, "blocks": 4, "microbatches": 2}
    found = Inspection(resolve("axlearn-transformer", mesh=sizes, settings=settings), ["shardy"])
    assert found.check().passed
    assert "unused-mesh-axis" not in {one.rule for one in found.lint(compiled=False)}
    rows = {row.name: row for row in found.tensors.tensors}
    name = "state.model['blocks']['block']['track']['layer0']['self_attention']['q_proj']['weight']"
    assert rows[name].lowered["shardy"].placement.local_shape((4, 2, 16, 16)) == (2, 1, 8, 16)


@pytest.mark.compiles
def test_experts_are_reached_by_all_to_all_and_tracks_do_not_talk_inside(inspection):
    found = inspection.collectives("shardy").collectives
    exchanged = [one for one in found if one.kind == "all-to-all"]
    # There and back, forward and backward.
    assert len(exchanged) == 4
    assert {axis.name for one in exchanged for axis in one.axes} == {"expert"}
    over_track = [
        (one.kind, part.scope)
        for one in found
        for part in one.parts
        if any(axis.name == "track" for axis in one.axes or ())
    ]
    assert ("all-reduce", "jvp(block0)/synchronize") in over_track
    # Besides, the gradient of what all tracks read, and the mean of the auxiliary losses.
    assert {kind for kind, _ in over_track} == {"all-reduce"}
    assert [scope for _, scope in over_track if "vmap(layer1)" in scope] == []
    assert inspection.compiled("shardy").rematerializations == ()


def test_the_configuration_for_32768_devices():
    sizes = mesh_shape_from_axes(data=-1, fsdp=256, track=8).over(32_768).sizes
    assert tuple(sizes.values()) == (1, 16, 1, 256, 1, 8, 1)
    settings = {**TINY, "tracks": 8, "d_model": 4096, "batch": 4096}
    large = Inspection(resolve("axlearn-transformer", mesh=sizes, settings=settings), ["shardy"])
    assert large.lowered["shardy"].num_devices == 32_768
    assert large.check().passed
    rows = {row.name: row for row in large.tensors.tensors}
    name = "state.model['layer0']['track']['layer0']['self_attention']['q_proj']['weight']"
    place = rows[name].lowered["shardy"].placement
    assert place.local_shape((8, 4096, 16)) == (1, 16, 16)


# --- Adafactor ------------------------------------------------------------------------------------


def test_statistics_are_on_what_is_left_of_their_weights_axes():
    spec = ParameterSpec(
        (4, 64, 128),
        mesh_axes=("expert", "fsdp", "model"),
        factorization=FactorizationSpec((None, "row", "col")),
    ).stacked(2, "track")
    factors = moment_specs(spec)
    assert (factors.row.shape, factors.row.mesh_axes) == ((2, 4, 64), ("track", "expert", "fsdp"))
    assert (factors.col.shape, factors.col.mesh_axes) == ((2, 4, 128), ("track", "expert", "model"))
    # What is no matrix keeps its second moment whole.
    whole = moment_specs(ParameterSpec((64,), mesh_axes=("model",)))
    assert (whole.shape, whole.mesh_axes) == ((64,), ("model",))


@pytest.mark.parametrize("axes", [("row", "row"), ("row", None), (None, "row", "col")])
def test_a_factorization_has_one_row_one_column_and_the_shapes_dimensions(axes):
    with pytest.raises(ValueError, match=r"factorization|FactorizationSpec"):
        ParameterSpec((4, 8), factorization=FactorizationSpec(axes))


def test_optax_scales_gradients_alike():
    """Optax takes the two largest dimensions for the matrix, which these are."""
    factored = FactorizationSpec((None, "row", "col"))
    specs = {
        "w": ParameterSpec((3, 8, 16), factorization=factored),
        "b": ParameterSpec((5,), initializer="ones"),
    }
    ours = scale_by_factored_rms(specs)
    theirs = optax.scale_by_factored_rms(min_dim_size_to_factor=4)
    rng = np.random.default_rng(0)
    params = initial(specs, rng)
    states = [one.init(params) for one in (ours, theirs)]
    for _ in range(4):
        gradients = jax.tree.map(lambda leaf: rng.standard_normal(leaf.shape, np.float32), params)
        scaled = []
        for at, one in enumerate((ours, theirs)):
            found, states[at] = one.update(gradients, states[at], params)
            scaled.append(found)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5), *scaled)


def test_the_state_of_adafactor_is_requested_lowered_and_small():
    small = {**TINY, "learner": "adafactor"}
    found = Inspection(resolve("axlearn-transformer", settings=small), ["shardy"])
    assert found.check().passed
    rows = {row.name: row for row in found.tensors.tensors}
    weight = "state.learner[0].moments['layer0']['track']['layer1']['feed_forward']['wi_weight']"
    for factor, axes in (("row", "'fsdp'"), ("col", "'model'")):
        spec = rows[f"{weight}.{factor}"].requested.sharding.spec
        assert str(spec) == f"P('track', 'expert', {axes})"
    inputs, _ = found.program.inputs()
    assert jax.tree.structure(inputs) == jax.tree.structure(found.program.args)


@pytest.mark.compiles
def test_eight_devices_learn_with_adafactor_what_one_does():
    small = {**TINY, "learner": "adafactor"}
    assert (
        Inspection(resolve("axlearn-transformer", settings=small), ["shardy"]).run(steps=1).passed
    )


# --- experts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("capacity", [0, -1.0, float("inf")])
def test_experts_without_room_are_refused(capacity):
    with pytest.raises(TargetError, match="leaves no token room"):
        resolve("axlearn-transformer", settings={"capacity": capacity})


@pytest.mark.parametrize("capacity", [4.0, 0.5])
def test_a_token_goes_to_its_expert_while_there_is_room(capacity):
    layer = MixtureOfExperts(8, 12, 4, capacity)
    rng = np.random.default_rng(0)
    params = initial(layer.collect(), rng)
    x = rng.standard_normal((2, 8, 8)).astype(np.float32)
    context = Context(abstract_mesh(x=1), None, lambda value, _: value)
    out, _ = layer(params, jnp.asarray(x), context)

    gates = np.asarray(jax.nn.softmax(x @ params["gate_weight"], axis=-1))
    expected = np.zeros_like(x)
    dropped = 0
    for b in range(2):
        room = dict.fromkeys(range(4), int(np.ceil(capacity * 8 / 4)))
        for s in range(8):
            expert = int(np.argmax(gates[b, s]))
            if not room[expert]:
                dropped += 1
                continue
            room[expert] -= 1
            hidden = np.asarray(jax.nn.gelu(x[b, s] @ params["wi_weight"][expert]))
            expected[b, s] = gates[b, s, expert] * (hidden @ params["wo_weight"][expert])
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)
    assert (dropped > 0) == (capacity < 1)


# --- the document's example -----------------------------------------------------------------------


@pytest.mark.compiles
def test_a_weight_on_fsdp_256_is_gathered_and_its_gradient_reduced():
    """Section 4.3 of the document: f32[4096,1024] as P('fsdp', None), 16 rows a device."""
    mesh = abstract_mesh(fsdp=256)

    def array(*shape):
        sharding = NamedSharding(mesh, PartitionSpec("fsdp", None))
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)

    def step(weight, batch):
        gradient = jax.grad(lambda weight: jnp.mean(jnp.square(batch @ weight)))(weight)
        return weight - 0.1 * gradient

    weight, batch = array(4096, 1024), array(512, 4096)
    jitted = jax.jit(step, out_shardings=weight.sharding)
    found = Inspection(Program("step", jitted, (weight, batch)), ["shardy"])
    row = next(row for row in found.tensors.tensors if row.name == "weight")
    place = row.lowered["shardy"].placement
    assert place.local_shape(weight.shape) == (16, 1024)
    rows = {device: place.index(device, weight.shape)[0] for device in (0, 1, 255)}
    assert rows == {0: slice(0, 16), 1: slice(16, 32), 255: slice(4080, 4096)}

    size = 4096 * 1024 * 4
    sent = {
        (one.kind, part.scope): part.sent
        for one in found.collectives("shardy").collectives
        for part in one.parts
        if part.bytes == size
    }
    # The weight, of which a device has a 256th, before its use; every device's gradient of it all.
    assert sent == {
        ("all-gather", "jvp()"): size * 255 // 256,
        ("all-reduce", "transpose(jvp())"): 2 * size * 255 // 256,
    }
