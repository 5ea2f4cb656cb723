"""Rules for logical axes in configuration files."""

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sdyscope.patches.configuration import configured_rules
from sdyscope.patches.source import spliced

#: YAML reads the last as a truth value unless it is in quotes.
AXES = ("data", "model", "no")

#: Every way to write a rule, and what may stand beside them.
YAML = """\
# Where what lives.
mesh: {data: 4, model: 2}
lr: 0.1
rules:
  batch: data   # most often
  embed:
  kv: ~
  heads: [data, model]
  mlp:
  - model
  vocab:
    - data   # first
    - "model"
steps: 3
"""

#: As MaxText has them, with a further rule of a name.
PAIRS = """\
mesh_axes: ['data', 'model']
data_sharding: [['data', 'model']]
logical_axis_rules: [
    # activations
    ['activation_batch', ['data', 'model']],
    ['embed', []],
    ["mlp", 'model'],
    ['mlp', ['data']],
    ['model', 'model'],
]
"""


def rules(text, file="c.yaml"):
    return list(configured_rules(file, text, AXES))


def test_a_mapping_of_names_to_mesh_axes():
    assert [(rule.line, rule.name, rule.axes) for rule in rules(YAML)] == [
        (5, "batch", "data"),
        (6, "embed", None),
        (7, "kv", None),
        (8, "heads", ("data", "model")),
        (9, "mlp", "model"),
        (11, "vocab", ("data", "model")),
    ]


def test_a_sequence_of_pairs():
    assert [(rule.line, rule.name, rule.axes) for rule in rules(PAIRS)] == [
        (5, "activation_batch", ("data", "model")),
        (6, "embed", None),
        (7, "mlp", "model"),
        (8, "mlp", "data"),
        (9, "model", "model"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "mesh: {data: 4, model: 2}",
        "settings: {batch: data}",
        "settings: {batch: null, mlp: null}",
        "rules: {}",
        "rules: {batch: data, mlp: elsewhere}",
        "rules: {batch: data, mlp: null, depth: 3}",
        "axes: {data: model, model: data}",
        "axes: {data: model, batch: data}",
        "mapping: {data: model}",
        "rules: {batch: &b data, mlp: model}",
        "b: &b data\nrules: {batch: *b, mlp: model}",
        "rules: {batch: !axis data, mlp: model}",
        "rules: {batch: {of: data}, mlp: model}",
        "rules: {batch: data, mlp: [model",
        "- data\n- model",
        "data",
        "",
    ],
)
def test_what_is_no_rules_or_can_not_be_edited(text):
    assert rules(text) == []


def test_one_name_is_a_rule_where_it_is_called_so():
    text = "trainer: {mesh: {axes: {data: 4}, param_mapping: {embed: data}}}"
    assert [(rule.name, rule.axes) for rule in rules(text)] == [("embed", "data")]
    (rule,) = rules("axis_resources:\n  embed: null\n# of the axes data and model\n")
    assert (rule.name, rule.axes) == ("embed", None)


def test_what_an_alias_names_is_said_once():
    text = "one: &one\n  batch: data\n  mlp: null\nother: *one\n"
    assert [rule.line for rule in rules(text)] == [2, 3]


@pytest.mark.parametrize(
    ("name", "axes", "line"),
    [
        ("batch", None, "  batch: []   # most often"),
        ("batch", "no", "  batch: 'no'   # most often"),
        ("embed", "data", "  embed: data"),
        ("kv", ("data", "model"), "  kv: [data, model]"),
        ("heads", "model", "  heads: [model]"),
        ("mlp", ("model", "data"), "  mlp: [model, data]"),
        ("vocab", None, "  vocab: []"),
    ],
)
def test_an_edit_is_written_as_its_neighbours_are(name, axes, line):
    (rule,) = [rule for rule in rules(YAML) if rule.name == name]
    assert line in spliced(YAML, [rule.with_axes(axes)]).splitlines()


def test_pairs_keep_their_form():
    edits = [rule.with_axes("data") for rule in rules(PAIRS)[1:3]]
    assert "    ['embed', ['data']],\n    [\"mlp\", 'data'],\n" in spliced(PAIRS, edits)


_RULES = st.dictionaries(
    st.sampled_from(["batch", "embed", "mlp", "a b", "on", "1", "kv: heads", "é"]),
    st.one_of(
        st.none(),
        st.sampled_from(AXES),
        st.lists(st.sampled_from(AXES), max_size=3, unique=True),
    ),
    min_size=1,
)


@given(
    table=_RULES,
    form=st.sampled_from(["block", "flow", "mixed", "json", "indented json"]),
    is_mapping=st.booleans(),
    newline=st.sampled_from(["\n", "\r\n"]),
    after=st.one_of(st.none(), st.permutations(AXES).map(lambda axes: tuple(axes[:2]))),
    one=st.sampled_from(AXES),
    data=st.data(),
)
def test_an_edit_changes_one_rule_and_nothing_else(
    table, form, is_mapping, newline, after, one, data
):
    held = table if is_mapping else [[name, axes] for name, axes in table.items()]
    whole = {"before": [1, "é"], "rules": held, "after": {"x": 1.5}}
    if "json" in form:
        text = json.dumps(whole, indent=2 if form == "indented json" else None)
    else:
        flow = {"block": False, "flow": True, "mixed": None}[form]
        text = yaml.safe_dump(whole, default_flow_style=flow, sort_keys=False, allow_unicode=True)
    text = text.replace("\n", newline)
    file = "c.json" if "json" in form else "c.yml"
    read = json.loads if "json" in form else yaml.safe_load
    found = rules(text, file)
    assert [rule.name for rule in found] == list(table)
    rule = data.draw(st.sampled_from(found))
    for axes in (after, one):
        changed = read(spliced(text, [rule.with_axes(axes)]))
        then = dict(changed["rules"])
        said = then.pop(rule.name)
        assert (said or []) == ([*axes] if isinstance(axes, tuple) else axes or []) or said == [
            axes
        ]
        assert then == {name: own for name, own in table.items() if name != rule.name}
        assert (changed["before"], changed["after"]) == (whole["before"], whole["after"])
