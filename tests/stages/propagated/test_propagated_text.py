"""The text of a propagated module: the shardings of its graph, and nothing besides."""

import pytest

from sdyscope.graph import build
from sdyscope.inspection import Inspection
from sdyscope.stages import compat
from sdyscope.targets import resolve


@pytest.fixture(scope="module")
def mlp():
    return Inspection(resolve("mlp"))


@pytest.mark.compiles
@pytest.mark.parametrize("partitioner", ["shardy", "gspmd"])
def test_it_is_the_module_of_the_graph(mlp, partitioner):
    propagated = mlp.propagated(partitioner)
    graph = build(compat.ir.Module.parse(propagated.text, mlp.lowered[partitioner].context))
    kept = [(op.kind, op.types, op.shardings) for op in propagated.graph.ops]
    assert [(op.kind, op.types, op.shardings) for op in graph.ops] == kept
    if partitioner == "shardy":
        assert not any(op.name for op in propagated.graph.ops)
    else:
        assert [op.name for op in propagated.graph.ops] == [op.name for op in graph.ops]
    assert any(any(op.shardings) for op in graph.ops if not op.is_argument)


@pytest.mark.compiles
@pytest.mark.parametrize("partitioner", ["shardy", "gspmd"])
def test_steps_origins_rules_and_tags_are_left_out(mlp, partitioner):
    text = mlp.propagated(partitioner).text
    for written in ("propagation_edges", "sharding_origin", "sharding_rule", "sid", "loc("):
        assert written not in text


def test_propagating_again_is_not_disturbed(mlp):
    propagated = mlp.propagated("shardy")
    steps = len(propagated.steps)
    assert propagated.text == propagated.text
    assert len(propagated.steps) == steps > 0
