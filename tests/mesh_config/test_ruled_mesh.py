"""MaxText's mesh axes and logical axis rules: read as it writes them, placed as Flax does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdyscope.errors import TargetError
from sdyscope.mesh_config import RuledMesh, RuleMapping, mesh_config_of, read_mesh_config

#: Axes and rules in the form of MaxText's base.yml, alternatives and axes without a rule included.
MAXTEXT = """
run_name: ""
learning_rate: 3.e-5
mesh_axes: ['data', 'fsdp', 'fsdp_transpose', 'sequence', 'tensor', 'autoregressive']
logical_axis_rules: [
                      ['activation_batch', ['data', 'fsdp', 'fsdp_transpose',]],
                      ['activation_length', 'sequence'],
                      ['activation_vocab', ['tensor', 'sequence']],
                      ['activation_vocab', 'tensor'],
                      ['activation_vocab', 'sequence'],
                      ['mlp', ['fsdp_transpose', 'tensor', 'autoregressive']],
                      ['embed', ['fsdp', 'fsdp_transpose', 'sequence']],
                      ['embed', ['fsdp', 'sequence']],
                      ['heads', ['tensor', 'autoregressive']],
                      ['kv', []],
                    ]
dcn_data_parallelism: -1  # recommended DCN axis to be auto-sharded
dcn_fsdp_parallelism: 1
ici_data_parallelism: 1
ici_fsdp_parallelism: -1 # recommended ICI axis to be auto-sharded
ici_tensor_parallelism: 2
"""


@pytest.fixture
def config(tmp_path):
    pytest.importorskip("yaml")
    path = tmp_path / "base.yml"
    path.write_text(MAXTEXT)
    return path


def test_axes_and_sizes_are_read_among_all_else(config):
    mesh = read_mesh_config(config)
    assert isinstance(mesh, RuledMesh)
    assert mesh.over(32, slices=2).sizes == {
        "data": 2, "fsdp": 8, "fsdp_transpose": 1, "sequence": 1, "tensor": 2, "autoregressive": 1
    }  # fmt: skip


def test_of_alternatives_the_first_is_taken_whose_axes_are_free(config):
    mapping = read_mesh_config(config).resolved_param_mapping
    # `mlp` has fsdp_transpose already: the second rule of `embed`.
    assert str(mapping.partition_spec(["embed", "mlp"])) == (
        "P(('fsdp', 'sequence'), ('fsdp_transpose', 'tensor', 'autoregressive'))"
    )
    assert str(mapping.partition_spec(["embed", "kv"])) == (
        "P(('fsdp', 'fsdp_transpose', 'sequence'), None)"
    )
    logits = mapping.partition_spec(["activation_batch", "activation_length", "activation_vocab"])
    assert str(logits) == "P(('data', 'fsdp', 'fsdp_transpose'), 'sequence', 'tensor')"


AXES = st.lists(st.sampled_from(["data", "fsdp", "tensor"]), unique=True, max_size=2).map(tuple)
NAMES = st.sampled_from(["batch", "embed", "mlp", "heads"])


@given(st.lists(st.tuples(NAMES, AXES), max_size=6), st.lists(NAMES, unique=True, max_size=4))
def test_tensors_are_sharded_as_flax_has_it(rules, names):
    linen = pytest.importorskip("flax.linen")
    mapping = RuleMapping(tuple(rules))
    written = mapping.rules(["data", "fsdp", "tensor"])
    theirs = linen.logical_to_mesh_axes(names, written)
    ours = mapping.partition_spec(names).entries
    plain = [entry if isinstance(entry, tuple) else (entry,) if entry else () for entry in theirs]
    assert [
        entry if isinstance(entry, tuple) else (entry,) if entry else () for entry in ours
    ] == plain


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"logical_axis_rules": []}, "which is missing"),
        ({"mesh_axes": ["data"], "logical_axis_rules": [["batch"]]}, "not a pair of a name"),
        ({"mesh_axes": ["data"], "logical_axis_rules": "batch"}, "not a list of rules"),
        ({"mesh_axes": ["data"], "logical_axis_rules": [["batch", 3]]}, "neither a mesh axis nor"),
        ({"mesh_axes": ["data"], "logical_axis_rules": [["a", "dta"]]}, "has no such axis"),
        ({"mesh_axes": ["data"], "logical_axis_rules": [["a", ["data"] * 2]]}, "'data' twice"),
        (
            {"mesh_axes": ["data"], "logical_axis_rules": [], "ici_model_parallelism": 2},
            "mesh_axes has no axis 'model'",
        ),
    ],
)
def test_what_can_not_be_is_said(data, said):
    with pytest.raises(TargetError, match=said):
        mesh_config_of(data)


def test_two_dimensions_of_one_name_are_refused():
    with pytest.raises(TargetError, match="no rule can tell them apart"):
        RuleMapping((("embed", ("data",)),)).partition_spec(["embed", "embed"])
