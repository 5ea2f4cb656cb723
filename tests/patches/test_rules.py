"""Where a source says which mesh axes its logical axes are."""

import pytest

from sdyscope.patches.rules import logical_rules
from sdyscope.patches.source import Source, spliced

AXES = ("data", "model")


def rules(text):
    return [(rule.name, rule.axes) for rule in logical_rules(Source("m.py", text), AXES)]


@pytest.mark.parametrize(
    "text",
    [
        "RULES = (('batch', 'data'), ('mlp', None))",
        "RULES = [['batch', ['data']], ['mlp', None]]",
        "RULES = {'batch': 'data', 'mlp': None}",
    ],
)
def test_rules_are_pairs_of_a_name_and_mesh_axes(text):
    assert rules(text) == [("batch", "data"), ("mlp", None)]


def test_a_rule_may_have_several_axes():
    assert rules("r = {'batch': ('data', 'model'), 'mlp': None}")[0] == ("batch", AXES)


@pytest.mark.parametrize(
    "text",
    [
        "MESH = {'data': 4, 'model': 2}",
        "SPECS = {'up': P('data'), 'down': P(None)}",
        "x = {'lr': None, 'decay': None}",
        "x = (('data', 'model'), ('model', 'data'))",
        "x = [('mlp', 'data')]",
        "x = {'mlp': 'data', **more}",
    ],
)
def test_other_pairs_are_no_rules(text):
    assert rules(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "param_mapping = {'mlp': 'data'}",
        "compute_axis_mapping: dict[str, str] = {'mlp': 'data'}",
        "self.rules = [('mlp', 'data')]",
        "named_jit(f, axis_resources={'mlp': 'data'})",
        "CONFIG = {'logical_axis_rules': (('mlp', 'data'),)}",
        "def f(rules=(('mlp', 'data'),)): ...",
    ],
)
def test_one_pair_is_a_rule_where_it_is_called_so(text):
    assert rules(text) == [("mlp", "data")]


def test_a_logical_axis_of_a_mesh_axis_name_is_one_where_it_is_called_so():
    assert rules("RULES = (('mlp', 'data'), ('model', 'model'))")[1] == ("model", "model")
    assert rules("x = (('mlp', 'data'), ('model', 'model'))") == []


def test_rules_that_shard_nothing_yet_are_rules_where_they_are_called_so():
    assert rules("RULES = {'mlp': None}") == [("mlp", None)]
    assert rules("RULES = {}") == []


@pytest.mark.parametrize(
    ("axes", "then"),
    [
        (None, 'r = (("batch", None), ("mlp", None))'),
        ("model", 'r = (("batch", "model"), ("mlp", None))'),
        (AXES, 'r = (("batch", ("data", "model")), ("mlp", None))'),
    ],
)
@pytest.mark.parametrize("before", ['"data"', '("data",)', '["data"]', '("data", "model")'])
def test_an_edit_writes_the_axes_and_nothing_else(before, axes, then):
    text = f'r = (("batch", {before}), ("mlp", None))'
    rule = next(logical_rules(Source("m.py", text), AXES))
    assert spliced(text, [rule.with_axes(axes)]) == then
