"""Explanations as they are printed."""

from dataclasses import replace

import pytest

from sdyscope.analysis.propagation.explain import explain_document
from sdyscope.facts.counterfactuals import CollectiveCauses, Removals
from sdyscope.facts.moves import Absence, Closed, OpTensor, TensorDim
from sdyscope.inspection import Inspection
from sdyscope.targets import resolve
from sdyscope.values.mesh import AxisRef, SubAxisInfo
from sdyscope.views import explain


@pytest.fixture(scope="module")
def found():
    return explain_document(Inspection(resolve("mlp"), ["shardy"]), "%2")


def texts(document, **options):
    return [paragraph.text for paragraph in explain.details(document, **options)]


def with_value(document, **changes):
    return replace(document, values=(replace(document.values[0], **changes),))


def test_a_long_chain_is_cut_in_the_middle(found):
    (why, *_) = found.values[0].chains
    long = with_value(found, chains=(replace(why, moves=why.moves * 20),))
    lines = texts(long)
    assert "8 more moves: --all lists them" in lines
    assert sum("sharding_constraint" in line for line in lines) == 2 * explain.ENDS
    assert sum("sharding_constraint" in line for line in texts(long, everything=True)) == 20
    # One is not left out: the line that says so would take its place.
    almost = with_value(found, chains=(replace(why, moves=why.moves * 13),))
    assert texts(almost) == texts(almost, everything=True)


def test_what_no_annotation_was_found_for_is_said(found):
    (why, *_) = found.values[0].chains
    lines = texts(with_value(found, chains=(replace(why, beginning=None, moves=()),)))
    assert "dim 0 on data: no annotation was found" in lines


@pytest.mark.parametrize(
    ("fate", "words"), [("folded", "folded away"), ("not partitioned", "not partitioned")]
)
def test_what_has_no_sharding_is_said(found, fate, words):
    (value,) = found.values
    gone = replace(value.decided["shardy"], fate=fate)
    assert words in texts(with_value(found, decided={"shardy": gone}, chains=()))


def test_priorities_and_how_often(found):
    (why, *_) = found.values[0].chains
    begins = replace(why.beginning, priority=3)
    place = TensorDim(None, OpTensor("result", 0, "stablehlo.tanh", 1))
    stop = Closed(0, begins.written)
    axis, through = why.axis, why.moves[0].through
    stopped = Absence(axis, None, through, place, None, "closed", stop, repeated=2)
    chains = (replace(why, beginning=begins),)
    lines = texts(with_value(found, chains=chains, absences=(stopped,)))
    assert any("jvp(block0), priority 3 at models/mlp.py:100" in line for line in lines)
    (line,) = [line for line in lines if line.startswith("not on data: the result of ")]
    assert line.endswith(". The same rule stopped 2 more tensors.")


def test_the_values_of_a_helper_are_told_by_who_calls_it(tmp_path):
    (tmp_path / "helper.py").write_text(
        """\
import jax, jax.numpy as jnp, sdyscope

def double(x):
    return 2 * x

def step(x):
    y = double(jnp.sin(x))
    return double(jnp.cos(y))

def program(mesh):
    return sdyscope.Program("step", jax.jit(step), (jax.ShapeDtypeStruct((8,), jnp.float32),))
"""
    )
    word = f"{tmp_path / 'helper.py'}:program"
    inspection = Inspection(resolve(word, mesh={"data": 8}), ["shardy"])
    titles = [text for text in texts(explain_document(inspection, "helper.py:4")) if "mul" in text]
    called = dict.fromkeys(title.partition("called at ")[2] for title in titles)
    assert list(called) == ["line 7", "line 8"]
    (sine,) = [text for text in texts(explain_document(inspection, "helper.py:7")) if "sin" in text]
    assert "called" not in sine


def test_the_part_of_an_axis_that_a_collective_runs_over_is_said(found):
    """And what is in a loop of unknown length is said to count once."""
    tried = Removals(True, "", (), (), (), False, True, None, None, 1)
    over = (AxisRef("data", SubAxisInfo(1, 2)),)
    causes = CollectiveCauses(
        "all-gather.1", "all-gather", ("data",), 48, None, None, tried, counted_once=True, over=over
    )
    lines = [part.text for part in explain.removals(replace(found, collectives=(causes,)))]
    assert (
        "all-gather.1 over data:(1)2, 48 B per step with loops of unknown trip count run once"
    ) in lines
