"""Named axes, the mappings that place them, and the step that is made of them."""

import builtins
import collections
import dataclasses
import functools
import re
import subprocess
import sys
from contextlib import nullcontext

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec
from model_references import gpt2_logits

from sdyscope.errors import TargetError
from sdyscope.inspection import Inspection
from sdyscope.mesh_config import MappedMesh
from sdyscope.models.levanter_gpt2 import PARALLELISM
from sdyscope.targets import reference_models, resolve
from sdyscope.words.sharding import short

TINY = {"embed": 16, "heads": 2, "vocab": 32, "positions": 8, "batch": 8, "dtype": "float32"}
BATCH = ("replica_dcn", "replica", "data")
FSDP = {"replica_dcn": 1, "replica": 1, "data": 8, "model": 1}
CONTEXT = {"replica_dcn": 1, "replica": 1, "data": 2, "context": 2, "model": 2}
XL = {"layers": 48, "embed": 1600, "heads": 25, "vocab": 50257, "positions": 1024, "batch": 1024}


def need_haliax():
    return pytest.importorskip("haliax", reason="needs Haliax: pip install 'haliax>=1.4.dev0'")


def make(parallelism="tensor", mesh=None, **settings):
    need_haliax()
    if parallelism == "context" and mesh is None:
        mesh = CONTEXT
    return resolve(
        "levanter-gpt2", mesh=mesh, settings={**TINY, "parallelism": parallelism, **settings}
    )


def block(program):
    model, *_ = program.args
    return model.transformer.blocks.stacked


def spec(named):
    return named.array.sharding.spec


# --- without Haliax -------------------------------------------------------------------------------


def test_without_haliax_the_model_is_listed_and_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.partition(".")[0] == "haliax":
            raise ModuleNotFoundError("No module named 'haliax'", name="haliax")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    listed = {model.name: model for model in reference_models()}
    assert listed["levanter-gpt2"].mesh == {"replica_dcn": 1, "replica": 1, "data": 4, "model": 2}
    said = r"haliax is not installed\.\nInstall it: pip install 'haliax"
    with pytest.raises(TargetError, match=said):
        resolve("levanter-gpt2")


def test_nothing_of_haliax_is_imported_to_list_the_models():
    code = (
        "import sys; from sdyscope.targets import reference_models; reference_models();"
        "sys.exit('haliax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- mappings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parallelism", "c_fc", "c_attn", "c_fc_bias"),
    [
        ("data", (None, None, None), (None,) * 5, (None, None)),
        ("fsdp", (None, None, "data"), (None, None, None, None, "data"), (None, None)),
        (
            "tensor",
            (None, "model", "data"),
            (None, None, "model", None, "data"),
            (None, "model"),
        ),
    ],
)
def test_parameters_rest_where_their_names_are_mapped(parallelism, c_fc, c_attn, c_fc_bias):
    program = make(parallelism)
    assert spec(block(program).mlp.c_fc.weight) == PartitionSpec(*c_fc)
    assert spec(block(program).attn.c_attn.weight) == PartitionSpec(*c_attn)
    assert spec(block(program).mlp.c_fc.bias) == PartitionSpec(*c_fc_bias)
    assert spec(program.args[2]) == PartitionSpec(BATCH, None)


def test_positions_are_on_context_in_both_mappings():
    model, _, input_ids, _ = make("context", dropout=0.1).args
    positions = model.embeddings.position_embeddings.weight
    assert spec(positions) == PartitionSpec("context", "data")
    assert spec(input_ids) == PartitionSpec(BATCH, "context")


def test_context_needs_its_axis():
    with pytest.raises(TargetError, match="there is none"):
        make("context", mesh={"data": 4, "model": 2})


def test_axes_that_the_mesh_lacks_are_left_out():
    program = make("tensor", mesh={"data": 8}, batch=16)
    assert spec(block(program).mlp.c_fc.weight) == PartitionSpec(None, None, "data")
    assert spec(program.args[2]) == PartitionSpec("data", None)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"layers": 0}, "layers=0"),
        ({"heads": 3}, "heads=3"),
        ({"parallelism": "x"}, "parallelism"),
        ({"dropout": 1.0}, "less than 1"),
    ],
)
def test_impossible_settings_are_refused(settings, said):
    with pytest.raises(TargetError, match=said):
        make(**settings)


# --- the step -------------------------------------------------------------------------------------


def test_moments_rest_where_their_parameters_do_and_all_is_donated():
    program = make(dropout=0.1)
    model, opt_state, *_ = program.args
    moments = [leaf for leaf in jax.tree.leaves(opt_state) if leaf.shape]
    expected = 2 * [(p.shape, p.sharding) for p in jax.tree.leaves(model)]
    assert [(m.shape, m.sharding) for m in moments] == expected
    lowered = program.fun.trace(*program.args).lower(lowering_platforms=("cpu",))
    *state, input_ids, keys = lowered.args_info[0]
    assert all(leaf.donated for leaf in jax.tree.leaves(state))
    assert not any(leaf.donated for leaf in jax.tree.leaves((input_ids, keys)))


@pytest.fixture(scope="module")
def program():
    made = make("context", dropout=0.1)
    # The initial values take seconds to compile.
    return dataclasses.replace(made, inputs=functools.cache(made.inputs))


def test_inputs_have_the_structure_of_the_arguments(program):
    args, _ = program.inputs()
    assert jax.tree.structure(args) == jax.tree.structure(program.args)
    for value, declared in zip(jax.tree.leaves(args), jax.tree.leaves(program.args), strict=True):
        assert (value.shape, value.dtype) == (declared.shape, declared.dtype)


@pytest.mark.compiles
def test_a_position_sees_itself_and_what_is_before_and_is_to_tell_what_comes_next(program):
    from sdyscope.models._gpt2 import next_token_loss

    (model, _, input_ids, _), _ = program.inputs()
    text = input_ids.array
    other = text.copy()
    other[:, 5] = (other[:, 5] + 1) % TINY["vocab"]
    forward = jax.jit(lambda model, ids: model(ids))
    logits = forward(model, input_ids)
    changed = forward(model, dataclasses.replace(input_ids, array=other))
    same = np.all(np.asarray(logits.array) == np.asarray(changed.array), axis=(0, 2))
    assert list(same) == [True] * 5 + [False] * 3

    axes = tiny_axes()
    entropy = -np.asarray(jax.nn.log_softmax(logits.array))
    expected = np.take_along_axis(entropy[:, :-1], text[:, 1:, None], axis=-1).mean()
    np.testing.assert_allclose(next_token_loss(axes, logits, input_ids), expected, rtol=1e-5)


def test_gradient_checkpointing_computes_blocks_again():
    texts = {
        again: str(jax.make_jaxpr(program.fun)(*program.args))
        for again in (True, False)
        for program in [make(gradient_checkpointing=again)]
    }
    assert "remat" in texts[True]
    assert "remat" not in texts[False]


@pytest.mark.parametrize("parallelism", PARALLELISM)
def test_what_is_lowered_is_what_was_requested(parallelism):
    inspection = Inspection(make(parallelism))
    assert inspection.check().passed
    assert inspection.failures == {}


def test_gpt2_xl_on_1280_devices():
    need_haliax()
    mesh = {"replica_dcn": 4, "replica": 1, "data": 64, "model": 5}
    inspection = Inspection(resolve("levanter-gpt2", mesh=mesh, settings=XL), ["shardy"])
    rows = {row.name: row for row in inspection.tensors.tensors}
    arguments = [row for name, row in rows.items() if name.startswith("model.")]
    assert sum(np.prod(row.shape) for row in arguments) == 1_557_611_200
    name = "model.transformer.blocks.stacked.attn.c_attn.weight[0]"
    place = rows[name].lowered["shardy"].placement
    assert place.local_shape((48, 3, 25, 64, 1600)) == (48, 3, 5, 64, 25)


def test_keys_lie_otherwise_than_queries_though_they_are_made_together(program):
    """Those of the forward pass, all of which c_attn makes with positions on `context`."""
    forward = re.compile(r"jit\(train_step\)/jvp\(transformer\)/.*/attn")
    wanted = collections.Counter(
        str(one.sharding.spec)
        for one in Inspection(program, ["shardy"]).requested
        if one.kind == "constraint" and forward.fullmatch(one.path)
    )
    parts, whole = (
        f"P(('replica_dcn', 'replica', 'data'), {place}, 'model', None)"
        for place in ("'context'", "None")
    )
    assert set(wanted) == {parts, whole}
    assert wanted[whole] == 2  # keys and values


# --- dropout and what else can be chosen ----------------------------------------------------------


def tiny_axes():
    from sdyscope.models._gpt2 import Axes

    return Axes.of(batch=8, position=8, embed=16, heads=2, head_size=8, mlp=64, vocab=32, layers=2)


def test_an_example_has_a_key_where_it_is_and_without_dropout_there_are_none():
    assert make().args[3] is None
    keys = make("context", dropout=0.1).args[3]
    assert keys.array.shape == (8, 2)
    assert spec(keys) == PartitionSpec(BATCH, None)


def test_keys_are_split_by_example_and_layer():
    need_haliax()
    import haliax as hax

    from sdyscope.models._gpt2 import split

    axes = tiny_axes()
    words = jax.random.key_data(jax.random.split(jax.random.key(0), 8))
    of_examples = hax.NamedArray(words, (axes.batch, hax.Axis("key", 2)))
    of_layers = split(of_examples, axes.layers)
    assert [axis.name for axis in of_layers.axes] == ["batch", "layers", "key"]
    assert len(np.unique(of_layers.array.reshape(-1, 2), axis=0)) == 16
    assert split(None, axes.layers) is None


@pytest.mark.compiles
def test_examples_are_dropped_by_their_own_keys_and_nothing_for_inference(program):
    import haliax as hax

    (model, _, input_ids, example_keys), _ = program.inputs()
    keys = example_keys.array

    @functools.partial(jax.jit, static_argnames="inference")
    def forward(ids, keys, *, inference):
        named = hax.NamedArray(ids, input_ids.axes), hax.NamedArray(keys, example_keys.axes)
        return model(named[0], key=named[1], inference=inference).array

    text = input_ids.array
    dropped = np.asarray(forward(text, keys, inference=False))
    turned = np.asarray(forward(text[::-1], keys[::-1], inference=False))
    np.testing.assert_allclose(turned[::-1], dropped, rtol=1e-5, atol=1e-6)
    of_others = np.asarray(forward(text, keys[::-1], inference=False))
    assert np.all(np.max(np.abs(of_others - dropped), axis=(1, 2)) > 1e-3)
    whole = np.asarray(forward(text, keys, inference=True))
    again = np.asarray(forward(text, keys[::-1], inference=True))
    np.testing.assert_array_equal(whole, again)


def test_dropout_drops_as_many_as_it_says_and_keeps_the_mean():
    need_haliax()
    import haliax as hax
    import haliax.nn as hnn

    from sdyscope.models._gpt2 import drop

    batch = tiny_axes().batch
    ones = hax.ones((batch, hax.Axis("numbers", 4096)))
    words = jax.random.key_data(jax.random.split(jax.random.key(0), 8))
    keys = hax.NamedArray(words, (batch, hax.Axis("key", 2)))
    left = np.asarray(drop(hnn.Dropout(0.25), ones, key=keys, inference=False).array)
    assert set(np.unique(left)) == {np.float32(0), np.float32(1 / 0.75)}
    np.testing.assert_allclose((left == 0).mean(axis=1), 0.25, atol=0.03)
    with pytest.raises(RuntimeError, match="requires a key"):
        drop(hnn.Dropout(0.25), ones, key=None, inference=False)
    assert drop(hnn.Dropout(0.25), ones, key=None, inference=True) is ones


@pytest.mark.compiles
def test_scores_of_later_layers_are_smaller_where_asked():
    need_haliax()
    import haliax as hax

    from sdyscope.models._gpt2 import Gpt2Attention, Gpt2Config

    axes = tiny_axes()
    x = hax.random.normal(jax.random.key(1), (axes.batch, axes.position, axes.embed))

    @functools.partial(jax.jit, static_argnames="scaled")
    def attention(layer_idx, queries, *, scaled):
        config = Gpt2Config(axes, scale_by_inverse_layer_idx=scaled)
        made = Gpt2Attention.init(config, key=jax.random.key(0))
        weight = made.c_attn.weight
        # Of queries, keys and values the queries alone.
        factors = hax.named(jax.numpy.array([1.0, 1.0, 1.0]).at[0].set(queries), "qkv")
        scaled_weight = (weight * factors).rearrange(weight.axes)
        linear = dataclasses.replace(made.c_attn, weight=scaled_weight)
        made = dataclasses.replace(made, c_attn=linear)
        return made(x, hax.named(layer_idx, ()), key=None, inference=False).array

    third = attention(2, 1.0, scaled=True)
    np.testing.assert_allclose(third, attention(2, 1 / 3, scaled=False), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(attention(0, 1.0, scaled=True), attention(0, 1.0, scaled=False))
    assert np.max(np.abs(third - attention(2, 1.0, scaled=False))) > 1e-3


def test_bfloat16_halves_what_is_sent_and_nothing_at_rest():
    """A policy of compute=bfloat16, parameters=f32: by prediction, nothing is compiled."""
    sent = {}
    for dtype in ("float32", "bfloat16"):
        found = Inspection(make("fsdp", mesh=FSDP, layers=1, dtype=dtype), ["shardy"])
        at_rest = {row.dtype for row in found.requested if row.path.startswith(("model", "opt"))}
        assert at_rest == {"f32", "i32"}  # the count of steps
        sent[dtype] = collections.Counter()
        for one in found.predicted_collectives().collectives.collectives:
            sent[dtype][one.kind] += one.bytes * one.count
    for kind in ("all-gather", "reduce-scatter"):
        assert sent["float32"][kind] == 2 * sent["bfloat16"][kind] > 0


@pytest.mark.parametrize("upcast", [True, False])
def test_scores_are_made_of_float32_where_asked(upcast):
    program = make(upcast=upcast, dtype="bfloat16")
    text = str(jax.make_jaxpr(program.fun)(*program.args))
    # [batch, heads, position, key_position], and what has the same shape.
    products = re.findall(r":(\w+)\[8,2,8,8\] = dot_general", text)
    assert "bf16" in products
    assert ("f32" in products) == upcast


@pytest.mark.compiles
def test_dropout_sends_nothing():
    """With heads, positions and examples in parts: all that masks are drawn along."""
    collective = re.compile(r" = (\S+) (all-\w+|reduce-scatter|collective-permute)(?:-start)?\(")

    def sent(dropout):
        program = make("context", dropout=dropout, layers=1, gradient_checkpointing=False)
        lowered = Inspection(program, ["shardy"]).lowered["shardy"].lowered
        text = lowered.compile(device_assignment=tuple(jax.devices())).as_text()
        return collections.Counter(collective.findall(text))

    without = sent(0.0)
    assert {kind for _, kind in without} >= {"all-gather", "all-reduce"}
    assert sent(0.1) == without


@pytest.mark.compiles
def test_eight_devices_compute_and_drop_what_one_does(program):
    ran = Inspection(program, ["shardy"]).run(steps=1)
    assert ran.passed
    assert {len(one.shards) for run in ran.executions.values() for one in run.arrays} == {8}


# --- decoding -------------------------------------------------------------------------------------


def likeliest(model, tokens):
    """The next token of each example, by the formulas of GPT-2 alone."""
    return np.argmax(gpt2_logits(model, tokens)[:, -1], -1)


SEQUENCE = {"shared_mapping": {"key_position": "context"}}


@pytest.mark.compiles
@pytest.mark.parametrize(
    "mapping",
    [
        pytest.param(None, id="heads", marks=pytest.mark.thorough),
        pytest.param(SEQUENCE, id="sequence"),
    ],
)
def test_a_prompt_goes_on_greedily_as_the_whole_model_does(mapping):
    need_haliax()
    from sdyscope.mesh_config import MappedMesh
    from sdyscope.models import levanter_gpt2

    mesh = jax.make_mesh(tuple(CONTEXT.values()), tuple(CONTEXT), (jax.sharding.AxisType.Auto,) * 5)
    settings = levanter_gpt2.Settings(**TINY, parallelism="tensor", donate=False, prompt=4)
    mapped = mapping and MappedMesh(axes={"data": 2, "context": 2, "model": 2}, **mapping)
    prefill, step = (
        make(mesh, settings, mapped) for make in (levanter_gpt2.prefill, levanter_gpt2.decode)
    )
    model, prompt = prefill.inputs()[0]
    keys = step.args[1]["attention"].keys
    assert spec(keys) == PartitionSpec(None, BATCH, "context" if mapping else None, "model", None)
    shardings = jax.tree.map(lambda leaf: leaf.sharding, prefill.args)
    placed, prompt = jax.device_put((model, prompt), shardings)
    ids, cache = prefill.fun(placed, prompt)
    text = np.asarray(prompt.array)
    for _ in range(TINY["positions"] - settings.prompt):
        wanted = likeliest(model, text)
        np.testing.assert_array_equal(ids.array, wanted)
        text = np.concatenate([text, wanted[:, None]], 1)
        ids, cache = step.fun(placed, cache, ids)
    assert int(cache["length"]) == TINY["positions"]
    assert spec(cache["attention"].keys) == spec(keys)


def test_a_prompt_longer_than_the_cache_is_refused():
    need_haliax()
    with pytest.raises(TargetError, match="prompt=9 must be at most positions=8"):
        resolve("levanter-gpt2:prefill", settings={**TINY, "prompt": 9})


@pytest.mark.parametrize("step", ["prefill", "decode"])
def test_steps_of_inference_are_lowered_as_they_were_asked_for(step):
    need_haliax()
    assert Inspection(resolve(f"levanter-gpt2:{step}", settings=TINY)).check().passed


def test_what_training_leaves_elsewhere_than_decoding_has_it():
    """Stored in shards over data, and whole there for compute."""
    need_haliax()
    training, serving = (
        Inspection(resolve(word, settings=TINY), ["shardy"])
        for word in ("levanter-gpt2", "levanter-gpt2:decode")
    )
    found = training.diff(serving)
    both = [row for row in found.tensors if row.a and row.b and row.tensor.startswith("model.")]
    moved = [row for row in both if "placement" in row.what]
    assert len(moved) == 14
    assert all("donation" in row.what for row in both)
    assert all("'data'" in short(row.a.sharding) for row in moved)
    assert not any("'data'" in short(row.b.sharding) for row in moved)


@pytest.mark.parametrize(
    ("step", "names", "array"),
    [
        # Each parameter is gathered, and no array that the step computes has both.
        ("", ("heads", "embed"), ""),
        (":decode", ("position", "batch"), ""),
        ("", ("batch", "position"), "input_ids [batch, position]"),
        (":prefill", ("heads", "embed"), ".c_attn.weight [layers, qkv, heads, head_size, embed]"),
        ("", ("heads", "head_size"), "shards [batch, position, qkv, heads, head_size]"),
    ],
)
def test_two_names_are_on_one_mesh_axis_where_no_array_has_both(step, names, array):
    need_haliax()
    mapping = MappedMesh(
        shared_mapping={"mlp": [], "heads": []},
        param_mapping={"embed": []},
        compute_mapping={"batch": [], **dict.fromkeys(names, "data")},
    )
    mesh = {**FSDP, "data": 2}
    tried = pytest.raises(TargetError, match=re.escape(array)) if array else nullcontext()
    with tried as caught:
        program = resolve(f"levanter-gpt2{step}", mesh=mesh, settings={**TINY, "mapping": mapping})
        assert Inspection(program, ["shardy"]).lowered
    if array:
        assert "compute_mapping shards" in caught.value.message
        assert f"Map {names[1]!r} to another mesh axis" in caught.value.hint
