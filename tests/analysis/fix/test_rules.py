"""Rules that map logical axes to mesh axes."""

import pytest
from fix_cases import written

from sdyscope.analysis.fix.effort import Effort
from sdyscope.analysis.fix.fix import fixed
from sdyscope.analysis.fix.rules import edited_rules
from sdyscope.analysis.fix.workshop import Workshop
from sdyscope.inspection import Inspection
from sdyscope.targets import resolve
from sdyscope.values.mesh import Mesh
from sdyscope.words.edits import edit_text

#: Nothing shards what the rule of `mlp` is for.
STEP = """
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
from sdyscope import Program

MESH = {"data": 4, "model": 2}
RULES = (("batch", "data"), ("embed", None), ("mlp", None))


def program(mesh):
    def on(shape, *logical):
        rules = dict(RULES)
        sharding = NamedSharding(mesh, P(*[rules[name] for name in logical]))
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)

    def loss(params, x):
        return jnp.mean((jax.nn.relu(x @ params["up"]) @ params["down"]) ** 2)

    def step(params, x):
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params, x))

    params = {"up": on((64, 1024), "embed", "mlp"), "down": on((1024, 64), "mlp", "embed")}
    x = on((64, 64), "batch", "embed")
    return Program("step", jax.jit(step, donate_argnums=0), (params, x))
"""


#: The same, with the rules in a file, read where the module is imported.
CONFIGURED = STEP.replace(
    'RULES = (("batch", "data"), ("embed", None), ("mlp", None))',
    "import pathlib\nimport yaml\n"
    "CONFIG = yaml.safe_load(pathlib.Path(__file__).with_name('rules.yaml').read_text())",
).replace("dict(RULES)", "dict(CONFIG['logical_axis_rules'])")
RULES = """\
steps: 10
logical_axis_rules: [
    ['batch', ['data']],  # what else
    ['embed', []],
    ['mlp', []],
    ['heads', ['model']],
]
"""


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    file = tmp_path_factory.mktemp("rules") / "with_rules.py"
    file.write_text(STEP)
    return lambda: resolve(f"{file}:program")


@pytest.mark.compiles
def test_a_rule_is_another_where_that_pays(build):
    effort = Effort(expressions=0, arguments=0, edits=1, compiles=1, checks=0, predictions=40)
    found = fixed(Inspection(build(), ("shardy",)), build, effort=effort)
    best = found.remedies[0]
    assert best.proven
    assert edit_text(best.edits[0]) == "map the logical axis 'mlp' to 'data' instead of None"
    assert '("mlp", "data"))' in next(iter(best.texts.values()))
    assert best.after.sent < found.before.sent
    assert best.after.arguments < found.before.arguments


def test_what_is_not_sharded_comes_first_and_one_of_each_rule(build):
    workshop = Workshop(Inspection(build(), ("shardy",)), build)
    edits = edited_rules(workshop, Mesh.of({"data": 4, "model": 2}), lambda shape: 0.0)
    # Texts, for this file is read, too: pairs would be rules.
    assert [f"{each.edit.name}: {each.edit.after}" for each in edits] == [
        "embed: P('data')",
        "mlp: P('data')",
        "batch: P(('data', 'model'))",
        "embed: P('model')",
        "mlp: P('model')",
        "batch: P('model')",
        "batch: P(None)",
    ]


@pytest.mark.compiles
def test_a_rule_of_a_configuration_file_is_edited_there(tmp_path):
    file, rules = tmp_path / "configured.py", tmp_path / "rules.yaml"
    file.write_text(
        CONFIGURED.replace("P(*[", "P(*[tuple(").replace("[name] for", "[name]) or None for")
    )
    rules.write_text(RULES)
    build = lambda: resolve(f"{file}:program")  # noqa: E731 - as users write it
    effort = Effort(expressions=0, arguments=0, edits=1, compiles=1, checks=0, predictions=120)
    found = fixed(Inspection(build(), ("shardy",)), build, effort=effort, root=str(tmp_path))
    best = found.remedies[0]
    assert best.proven
    assert edit_text(best.edits[0]) == "map the logical axis 'mlp' to 'data' instead of None"
    assert str(best.edits[0].source).endswith("rules.yaml:5")
    assert best.texts == {str(rules.resolve()): RULES.replace("['mlp', []]", "['mlp', ['data']]")}
    assert "--- a/rules.yaml\n+++ b/rules.yaml\n" in best.patch
    assert rules.read_text() == RULES


def test_rules_of_arrays_of_most_weight_come_first_and_of_none_that_is_named_last(build):
    workshop = Workshop(Inspection(build(), ("shardy",)), build)
    weights = {(64, 1024): 1.0, (1024, 64): 1.0, (64, 64): 9.0}
    edits = [*edited_rules(workshop, Mesh.of({"data": 4, "model": 2}), weights.__getitem__)]
    assert [each.edit.name for each in edits[:3]] == ["embed", "batch", "mlp"]
    assert [each.weight for each in edits[:3]] == [11.0, 9.0, 2.0]


#: A result that is zero with any numbers proves nothing of an edit of code.
ZEROS = STEP.replace("return jax.tree.map(", "return jnp.zeros(4), jax.tree.map(").replace(
    "donate_argnums=0", ""
)


@pytest.mark.compiles
@pytest.mark.parametrize(
    ("text", "is_proven"),
    [
        (ZEROS, True),
        # With the rule another op is traced, too.
        (
            ZEROS.replace(
                "jax.nn.relu(", 'jax.nn.relu(2.0 * x @ params["up"] / 2.0 if RULES[2][1] else '
            ),
            False,
        ),
    ],
)
def test_an_edit_of_a_rule_is_one_of_annotations_if_only_shardings_differ(
    tmp_path, text, is_proven
):
    build = written(tmp_path / "zeros.py", text)
    effort = Effort(expressions=0, arguments=0, edits=1, compiles=1, checks=0, predictions=40)
    found = fixed(Inspection(build(), ("shardy",)), build, effort=effort)
    best = next(each for each in found.remedies if each.edits[0].name == "mlp")
    assert (best.numbers.compared, best.numbers.results) == (2, 3)
    assert best.proven == is_proven
