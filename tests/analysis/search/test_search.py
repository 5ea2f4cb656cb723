"""Searches of programs whose best sharding is known."""

import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from sdyscope.analysis.search import search as searching
from sdyscope.analysis.search.searched import searched
from sdyscope.analysis.search.strategy import Budget
from sdyscope.analysis.search.values import Trial
from sdyscope.analysis.trials import child, predict_all
from sdyscope.analysis.trials.cost import Rates
from sdyscope.errors import TargetError
from sdyscope.facts.remarks import Remark
from sdyscope.inspection import Inspection, inspect
from sdyscope.targets import resolve
from sdyscope.views.search import _times, footer
from tests.crashing_child import crashing_on
from tests.programs import array, on

PREDICTED = {"checks": 0, "compiles": 0}


def changes(candidate):
    return {change.decision.name: str(change.after) for change in candidate.changes}


def forward(w1, w2, x):
    return jnp.tanh(x @ w1) @ w2


def mlp(batch=64, width=256, spec=()):
    """A layer of an MLP in training: weights, and their next values, sharded as `spec` says."""

    def step(w1, w2, x):
        grads = jax.grad(lambda w: jnp.sum(forward(*w, x) ** 2))((w1, w2))
        return w1 - grads[0], w2 - grads[1]

    weights = array((width, 4 * width), *spec), array((4 * width, width), *spec)
    jitted = jax.jit(step, out_shardings=(on(*spec),) * 2, donate_argnums=(0, 1))
    return inspect(jitted, *weights, array((batch, width), "data"), partitioners=("shardy",))


def test_megatron_is_found_where_weights_are_large():
    """Columns, then rows: one sum over `model`, and half of each gradient to sum over `data`."""
    program = mlp()
    search = searched(program, ["w*"], ["model"], **PREDICTED)
    assert changes(search.best) == {"w1": "P(None, 'model')", "w2": "P('model', None)"}
    start, best = search.start.prediction, search.best.prediction
    assert best.flops == start.flops / 2
    # Weights are 256 x 1024: their gradients are summed over data, 2 (n - 1) / n of what is held.
    weights = 2 * 256 * 1024 * 4
    assert start.sent == pytest.approx(2 * 3 / 4 * weights, rel=0.01)
    sums = [sent.sent for sent in best.traffic if sent.axes == ("data",)]
    assert sum(sums) == pytest.approx(2 * 3 / 4 * weights / 2, rel=0.01)
    # One sum of [16, 256] forward; backward there is none, as the input needs no gradient.
    (over_model,) = [sent for sent in best.traffic if sent.axes == ("model",)]
    assert over_model.sent == 16 * 256 * 4
    # Donated buffers count once: half of what was held, and the same batch.
    held = start.held - best.held
    assert (start.shared, best.shared, held) == (weights, weights // 2, weights // 2)


def test_replication_is_found_where_weights_are_tiny():
    program = inspect(
        jax.jit(forward),
        array((8, 8), None, "model"),
        array((8, 8), "data"),
        array((4096, 8), ("data", "model")),
        partitioners=("shardy",),
    )
    search = searched(program, ["w*"], **PREDICTED)
    assert changes(search.best) == {"w1": "P()", "w2": "P()"}
    assert search.best.prediction.sent == 0 < search.start.prediction.sent


def test_a_limit_of_memory_shards_the_weights():
    """FSDP: a quarter of the weights, gathered and scattered, for what an all-reduce would send."""
    program = mlp(batch=8192)
    start = searched(program, ["w*"], ["data"], budget=Budget(1), **PREDICTED).start.prediction
    weights = 2 * 256 * 1024 * 4
    search = searched(program, ["w*"], ["data"], limit=start.held - weights // 2, **PREDICTED)
    best = search.best.prediction
    assert len(search.best.changes) == 2
    assert all("data" in spec for spec in changes(search.best).values())
    assert best.held == start.held - weights * 3 // 4
    # An all-reduce is an all-gather and a reduce-scatter.
    assert start.sent == best.sent == 2 * weights * 3 // 4
    assert [sent.kind for sent in best.traffic] == ["all-gather", "reduce-scatter"]


def test_bandwidths_choose_between_axes():
    """With weights on one axis only, that is the fast one."""
    for fast, slow in (("data", "model"), ("model", "data")):
        program = inspect(
            jax.jit(forward),
            array((1024, 1024)),
            array((1024, 1024)),
            array((16, 1024)),
            partitioners=("shardy",),
        )
        rates = Rates({fast: 1e12, slow: 1e6}, flops_per_byte=1.0)
        search = searched(program, ["w*"], rates=rates, **PREDICTED)
        used = {axis for sent in search.best.prediction.traffic for axis in sent.axes}
        assert used == {fast}
        assert rates.seconds(search.best.prediction) < rates.seconds(search.start.prediction)


def test_the_same_seed_is_the_same_search():
    program = mlp()
    one, two = (searched(program, ["w*"], budget=Budget(40), seed=3, **PREDICTED) for _ in range(2))
    assert one.tried == two.tried <= 41
    assert one.best == two.best
    assert one.front == two.front


def test_options_that_are_not_tried_are_said():
    search = searched(mlp(), ["w1"], budget=Budget(2), **PREDICTED)
    said = "1 decision with more than 512 options"
    assert not any(said in paragraph.text for paragraph in footer(search))
    limited = tuple(replace(each, limited=True) for each in search.space.decisions[:1])
    space = replace(search.space, decisions=(*limited, *search.space.decisions[1:]))
    assert any(said in each.text for each in footer(replace(search, space=space)))


def test_complex_constants_are_searched_like_others():
    """Their value can't be read: they are not written as one constant each."""

    def step(w, x):
        hidden = jnp.fft.fft(x @ w)
        padded = jnp.zeros((64, 32), hidden.dtype).at[:, :8].set(hidden[:, :8])
        return w - (x.T @ jnp.fft.ifft(padded).real)

    program = inspect(
        jax.jit(step), array((32, 32)), array((64, 32), "data"), partitioners=("shardy",)
    )
    search = searched(program, ["w"], budget=Budget(6), **PREDICTED)
    assert search.tried > 1
    assert search.crashed == search.refused == 0


def test_plans_that_fail_for_one_reason_are_listed_under_it():
    search = searched(mlp(), ["w1"], budget=Budget(6), **PREDICTED)
    plans = [Trial(each, None, False, Remark("costs no less")) for each in search.front[:2]]
    assert len(plans) == 2
    texts = [paragraph.text for paragraph in footer(replace(search, trials=tuple(plans)))]
    at = texts.index("not taken, 2 plans: Once compiled, no cheaper than the program as it is.")
    assert all(text.startswith("w1 P(") for text in texts[at + 1 : at + 3])


def test_a_search_goes_on_behind_a_candidate_that_crashes_the_compiler(monkeypatch):
    program, bad = mlp(), "P('data', 'model')"
    monkeypatch.setattr(predict_all, "cores", lambda: 1)
    whole = searched(program, ["w1"], budget=Budget(12), **PREDICTED)
    assert (whole.crashed, whole.crash) == (0, None)
    monkeypatch.setattr(child, "_spare", [])
    monkeypatch.setattr(child, "_worker", crashing_on(bad.encode()))
    search = searched(program, ["w1"], budget=Budget(12), **PREDICTED)
    assert search.tried == whole.tried
    assert search.crashed == search.refused == 1
    (change,) = search.crash.changes
    assert (search.crash.how, change.name, str(change.after)) == ("SIGABRT", "w1", bad)
    assert search.refusal == ""
    words = [paragraph.text for paragraph in footer(search)]
    assert f"1 candidate crashed the compiler (SIGABRT), with w1 {bad}" in words
    others = [each for each in whole.front if bad not in changes(each).values()]
    assert {*others} <= {*search.front}


def test_results_that_were_left_open_follow_their_arguments():
    def step(w, x):
        return w - jax.grad(lambda w: jnp.sum((x @ w) ** 2))(w)

    program = inspect(
        jax.jit(step), array((64, 64)), array((128, 64), "data"), partitioners=("shardy",)
    )
    search = searched(program, [], ["data"], limit=10_000, **PREDICTED)
    (change,) = search.best.changes
    assert [member.kind for member in change.decision.members] == ["argument", "result"]
    # Both are held in quarters: no reshard is bought at the end.
    batch = 128 * 64 * 4 // 4
    assert search.best.prediction.arguments - batch == search.best.prediction.results == 64 * 64


def test_the_words_of_a_key_are_not_sharded():
    """JAX shards the keys of an array alone."""
    keys = jax.ShapeDtypeStruct((16,), jax.random.key(0).dtype, sharding=on("data"))

    def step(keys, w):
        constrained = jax.lax.with_sharding_constraint(keys, on("data"))
        return keys, w - jax.vmap(jax.random.normal)(constrained).sum()

    jitted = jax.jit(step, out_shardings=(on("data"), on()))
    program = inspect(jitted, keys, array((16, 16)), partitioners=("shardy",))
    search = searched(program, **PREDICTED)
    options = {each.name: each.options for each in search.space.decisions}
    of_keys = [option for name, of in options.items() if name != "w" for option in of if option]
    assert {"keys", "w"} < options.keys()
    assert {option[1:] for option in of_keys} <= {((),), (None,)}
    assert max(len(option[0] or ()) for option in of_keys) == 2


def test_what_jax_writes_for_keys_is_no_constraint_of_the_author():
    """The keys that a program returns have a sharding on a mesh without axes."""
    key = jax.eval_shape(lambda: jax.random.key(0))

    def step(w, key):
        return w + 1, jax.random.split(key)

    program = inspect(jax.jit(step), array((16, 16)), key, partitioners=("shardy",))
    assert any(each.of_key for each in program.annotations("shardy"))
    search = searched(program, **PREDICTED)
    assert [each.name for each in search.space.decisions] == ["w"]
    named = searched(program, ["w"], **PREDICTED)
    assert not named.notes


def test_what_can_not_be_searched_is_said():
    alone = inspect(jax.jit(forward), *[jnp.ones((4, 4))] * 3, partitioners=("shardy",))
    with pytest.raises(TargetError, match="not on one mesh"):
        searched(alone, ["w*"])
    weights = [array((4, 4))] * 3
    with pytest.raises(TargetError, match="GSPMD's shardings"):
        searched(inspect(jax.jit(forward), *weights, partitioners=("gspmd",)), ["w*"])


@pytest.mark.compiles
def test_what_is_found_is_partitioned_and_compiled():
    program = mlp(batch=32, width=128)
    search = program.search(["w*"], ["model"], checks=4, compiles=1)
    assert search.confirmed is search.best
    assert changes(search.best) == {"w1": "P(None, 'model')", "w2": "P('model', None)"}
    # Of a program without bf16 and reduce-scatters, all three say the same.
    (trial,) = search.trials
    sent = search.best.prediction.sent
    assert search.best.partitioned.sent == pytest.approx(sent, rel=0.01)
    assert trial.compiled.measured.sent == pytest.approx(sent, rel=0.01)
    assert trial.compiled.measured.arguments == search.best.prediction.arguments
    assert trial.compiled.measured.shared == search.best.prediction.shared
    assert trial.compiled.total < search.compiled_start.total
    # What the compiler makes is said, too, which may be less of a gain than is promised.
    (confirmed,) = [each.text for each in footer(search) if each.text.startswith("confirmed")]
    words = r": a device sends \d+% less \(.*\) and needs \d+% less .* in total$"
    assert re.search(words, confirmed)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [(1000, 999, "about as much (999 B)"), (1000, 950, "5% less (950 B)"), (5, 5, "as much (5 B)")],
)
def test_what_is_less_than_half_a_percent_is_about_as_much(before, after, words):
    assert _times(before, after) == words


@pytest.mark.thorough
@pytest.mark.compiles
def test_the_program_as_it_is_is_no_plan_to_compile(monkeypatch):
    def not_better(search, candidate, before, compile_):
        return Trial(candidate, None, False, Remark("costs no less"))

    monkeypatch.setattr(searching, "_trial", not_better)
    search = Inspection(resolve("mlp"), ("shardy",)).search(budget=Budget(20), checks=4, compiles=1)
    assert all(trial.candidate.changes for trial in search.trials)


@pytest.mark.compiles
def test_a_limit_that_the_compiler_exceeds_is_said():
    program = mlp(batch=32, width=128)
    held = searched(program, ["w*"], budget=Budget(1), **PREDICTED).start.prediction.held
    search = program.search(["w*"], ["data"], max_memory=held // 2, checks=0, compiles=1)
    assert search.confirmed is None
    assert search.trials[0].why == Remark("over the limit")


def test_a_constraint_inside_that_costs_more_than_it_brings_is_left_out():
    """Each layer's hidden values are constrained on one line, and gathered there."""

    def loss(weights, x):
        for w1, w2 in weights:
            hidden = jnp.tanh(x @ w1)
            x = jax.lax.with_sharding_constraint(hidden, on("data", None)) @ w2
        return x.sum()

    def step(weights, x):
        return jax.tree.map(lambda w, g: w - g, weights, jax.grad(loss)(weights, x))

    weights = [(array((64, 256), None, "model"), array((256, 64), "model"))] * 2
    shardings = jax.tree.map(lambda leaf: leaf.sharding, weights)
    jitted = jax.jit(step, out_shardings=shardings)
    program = inspect(jitted, weights, array((512, 64), "data"), partitioners=("shardy",))
    search = searched(program, axes=["model"], compiles=0, checks=4, budget=Budget(120))
    (inside,) = [decision for decision in search.space.decisions if decision.is_constraint]
    # Forward and backward, of two layers.
    assert (len(inside.members), inside.source.line > 0) == (4, True)
    assert str(inside.now) == "P('data', None)"
    assert search.plan
    gone = [change.after for change in search.best.changes if change.decision is inside]
    assert gone
    assert search.best.known.sent < search.start.known.sent
    # Who names arguments means them alone, and is told what stays.
    search = searched(program, ["weights*"], axes=["model"], budget=Budget(3), **PREDICTED)
    assert not any(decision.is_constraint for decision in search.space.decisions)
    assert Remark("constraints stay", count=4) in search.notes
