"""Levanter's document on its mesh, example by example and word by word where it is YAML.

What each example configures of `levanter-gpt2` is in tests/commands/test_mesh_mapping.py.
"""

import pytest
from levanter_document import CONTEXT, EXPLICIT, TENSOR

from sdyscope.errors import TargetError
from sdyscope.lint.mapping_findings import LogicalTensor, mapping_findings
from sdyscope.mesh_config import MappedMesh, mesh_config_of

BATCH = ("replica_dcn", "replica", "data")


def configured(text):
    yaml = pytest.importorskip("yaml")
    return mesh_config_of(yaml.safe_load(text)["trainer"]["mesh"])


def test_the_two_rules_that_keep_one_out_of_trouble():
    """`embed`, `batch`, and `mlp` and `heads` are what the default mappings key off."""
    mesh = MappedMesh()
    assert mesh.resolved_param_mapping.axes["embed"] == ("data",)
    assert mesh.resolved_compute_mapping.axes["batch"] == BATCH
    for mapping in (mesh.resolved_param_mapping, mesh.resolved_compute_mapping):
        assert mapping.axes["mlp"] == mapping.axes["heads"] == ("model",)


def test_the_default_mesh_and_its_sizes():
    mesh = MappedMesh()
    assert mesh.mesh_shape.axis_names == ("replica_dcn", "replica", "data", "model")
    assert mesh.ici_axes == {"replica": 1, "data": -1, "model": 1}
    assert mesh.slice_axes == {"replica_dcn": -1}
    # `data` is the absorber within a slice, `replica_dcn` across slices.
    assert mesh.over(32, slices=4).sizes == {"replica_dcn": 4, "replica": 1, "data": 8, "model": 1}


def test_the_default_behavior_in_one_sentence():
    """`batch` over all three for compute; `embed` over `data` for parameters alone."""
    mesh = MappedMesh()
    assert str(mesh.resolved_compute_mapping.partition_spec(["batch", "embed"])) == (
        "P(('replica_dcn', 'replica', 'data'), None)"
    )
    assert str(mesh.resolved_param_mapping.partition_spec(["embed", "mlp"])) == "P('data', 'model')"
    assert str(mesh.resolved_compute_mapping.partition_spec(["embed", "mlp"])) == "P(None, 'model')"


def test_replicas_scale_the_batch_and_not_the_shards_of_parameters():
    more = MappedMesh(axes={"replica": 4}).over(32).sizes
    less = MappedMesh().over(8).sizes
    batch = [sizes["replica"] * sizes["data"] for sizes in (more, less)]
    assert batch == [32, 8]
    assert more["data"] == less["data"] == 8


def test_what_the_default_is_explicitly():
    explicit, default = configured(EXPLICIT), MappedMesh()
    assert explicit.mesh_shape == default.mesh_shape
    assert explicit.resolved_compute_mapping == default.resolved_compute_mapping
    assert explicit.resolved_param_mapping == default.resolved_param_mapping


def test_tensor_parallelism_is_one_line():
    sizes = configured(TENSOR).over(8).sizes
    assert sizes == {"replica_dcn": 1, "replica": 1, "data": 4, "model": 2}


def test_other_names_of_heads_go_into_the_shared_mapping():
    mesh = MappedMesh(axes={"model": 2}, shared_mapping={"kv_head": "model", "kv_heads": "model"})
    for mapping in (mesh.resolved_param_mapping, mesh.resolved_compute_mapping):
        assert mapping.axes["kv_head"] == mapping.axes["kv_heads"] == ("model",)
        assert mapping.axes["heads"] == ("model",)


def test_context_parallelism_shards_queries_and_leaves_keys():
    mesh = configured(CONTEXT)
    assert mesh.over(8).sizes["context"] == 4
    for mapping in (mesh.resolved_param_mapping, mesh.resolved_compute_mapping):
        assert mapping.axes["position"] == ("context",)
    scores = mesh.resolved_compute_mapping.partition_spec(["heads", "position", "key_position"])
    assert str(scores) == "P('model', 'context', None)"


# --- the troubleshooting checklist ----------------------------------------------------------------


@pytest.mark.parametrize(("own", "default"), [("embeds", "embed"), ("batches", "batch")])
def test_names_that_do_not_match_the_mapping_keys(own, default):
    """If you changed axis names in a model, ensure they match the mapping keys."""
    names = {"embed": "embed", "batch": "batch", default: own}
    found = mapping_findings(
        MappedMesh(axes={"model": 2}),
        [
            LogicalTensor("up", (names["embed"], "mlp")),
            LogicalTensor("query", (names["embed"], "heads")),
        ],
        [LogicalTensor("x", (names["batch"], "position", names["embed"]))],
    )
    (unused,) = [each for each in found if each.rule == "logical-axis-unused"]
    assert unused.severity == "warning"
    assert f"No tensor has the logical axis '{default}'" in unused.message
    assert f"Did you mean '{own}'?" in unused.hint


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"axes": {"data": -1, "context": -1}}, "The ICI sizes of data and context are -1"),
        ({"dcn_axes": {"replica_dcn": -1, "pod": -1}}, "The DCN sizes of replica_dcn and pod"),
    ],
)
def test_only_one_axis_within_and_one_across_slices_may_be_inferred(fields, said):
    """If you add a new mesh axis, remember only one ICI axis and one DCN axis may use -1."""
    with pytest.raises(TargetError, match=said):
        MappedMesh(**fields)


def test_a_shape_error_names_the_mapping_that_would_do():
    """If you get shape errors, check the compute mapping against that of parameters."""
    config = MappedMesh(axes={"data": 4, "model": 2})
    weight = LogicalTensor("up", ("embed", "mlp"), (6, 8))
    (found,) = mapping_findings(
        config,
        [weight],
        [LogicalTensor("x", ("batch", "embed"), (8, 6))],
        sizes=config.over(8).sizes,
    )[-1:]
    assert found.message == (
        "Under param_mapping, dimension 'embed' of up has size 6, which does not divide into 4 "
        "over data=4."
    )
    assert "Under compute_mapping it does divide: was that one meant?" in found.hint
