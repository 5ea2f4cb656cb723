"""Edits that a child process tries, against this process; and what becomes of a crash."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import NamedSharding as JaxNamedSharding
from jax.sharding import PartitionSpec as JaxP

from sdyscope.analysis.naming.resolve import resolve_value
from sdyscope.analysis.propagation.counterfactuals import Counterfactuals
from sdyscope.analysis.trials import child
from sdyscope.analysis.trials.trials import Trials
from sdyscope.errors import CrashError
from sdyscope.inspection import Inspection, inspect
from sdyscope.stages.propagated.annotate import DonatedArgument, NewConstraint, ShardingEdit
from sdyscope.targets import resolve
from sdyscope.values.sharding import NamedSharding, PartitionSpec
from sdyscope.views.explain import _counterfactual
from sdyscope.words.remarks import remark_text
from tests.crashing_child import crashing_on

P = PartitionSpec.of


@pytest.fixture(scope="module")
def program():
    return Inspection(resolve("mlp"), ("shardy",))


def edits(trials):
    """One of each kind that moves something, and a donation."""
    annotations = trials.program.annotations("shardy")
    argument = next(each for each in annotations if each.kind == "argument")
    kinds = [op.kind for op in trials.graph.ops]
    matmul = kinds.index("stablehlo.dot_general")
    placed = NamedSharding(trials.mesh, P("model", "data"))
    return [
        ShardingEdit(argument, placed),
        ShardingEdit(argument, unspecified=True),
        NewConstraint((matmul, 0), placed),
        DonatedArgument(argument),
    ]


def test_a_child_answers_what_this_process_answers(program):
    trials = Trials(program)
    for edit in edits(trials):
        for on_cpu in (False, True):
            here = trials.predict([edit], on_cpu=on_cpu)
            assert trials.tried([edit], on_cpu=on_cpu) == here
    assert trials.crashes == ()


def test_constants_of_complex_numbers():
    mesh = AbstractMesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)

    def padded(x, w):
        z = jnp.fft.rfft(x @ w, axis=1)
        return jnp.fft.irfft(jnp.zeros_like(z).at[:, :8].set(z[:, :8] * (1 + 2j)), axis=1)

    placed = [JaxNamedSharding(mesh, JaxP(*axes)) for axes in (("data",), (None, "model"))]
    args = [
        jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)
        for shape, sharding in zip([(16, 32), (32, 64)], placed, strict=True)
    ]
    trials = Trials(inspect(jax.jit(padded), *args))
    assert "complex<f32>" in trials.program.lowered["shardy"].text(debug_info=False)
    argument = trials.program.annotations("shardy")[0]
    whole = trials.predict([ShardingEdit(argument, unspecified=True)])
    assert trials.predict().held < whole.held


def test_a_crash_is_an_error_of_one_trial(program, monkeypatch):
    monkeypatch.setattr(child, "_spare", [])
    monkeypatch.setattr(child, "_worker", crashing_on(b"DonatedArgument"))
    trials = Trials(program)
    *others, donation = edits(trials)
    with pytest.raises(CrashError, match="SIGABRT"):
        trials.tried([donation])
    assert trials.tried(others[:1]) == trials.predict(others[:1])
    (remark,) = trials.crashes
    assert remark_text(remark) == (
        "Shardy crashed (SIGABRT) on 1 edit that was tried, and what it would do is not known."
    )


def test_an_explanation_says_what_a_crash_leaves_unknown(monkeypatch):
    mesh = AbstractMesh((2,), ("model",), axis_types=(AxisType.Auto,))
    placed = [JaxNamedSharding(mesh, JaxP(*axes)) for axes in ((None, None), (None, "model"))]
    arrays = [jax.ShapeDtypeStruct((8, 8), jnp.float32, sharding=each) for each in placed]
    program = inspect(jax.jit(jnp.matmul), *arrays, partitioners=("shardy",))
    answers = Counterfactuals(program)
    monkeypatch.setattr(child, "_spare", [])
    monkeypatch.setattr(child, "_worker", crashing_on(b"ShardingEdit"))
    value = resolve_value(program.graph("shardy"), "dot_general")[0].id
    answer = answers.without(value, "model")
    assert 0 < answer.crashed < answer.propagations
    assert (answer.remedies, answer.complete) == ((), False)
    (causes,) = answer.causes
    assert causes.necessary is None
    words = [paragraph.text for paragraph in _counterfactual(answer)]
    assert any(" crashed Shardy: what those edits do" in text for text in words)
    assert any("may be necessary: the program can't be propagated" in text for text in words)
