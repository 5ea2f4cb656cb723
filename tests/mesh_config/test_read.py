"""Mesh configurations from TOML, YAML and plain data."""

import re

import pytest

from sdyscope.errors import TargetError
from sdyscope.mesh_config import MappedMesh, MeshRules, mesh_config_of, read_mesh_config

BOTH = """
[rules]
mesh_axis_names = ["pipeline", "data", "expert", "fsdp", "seq", "track", "model"]
mesh_shape = [1, -1, 1, 256, 1, 8, 1]
mesh_rules = [
    ["tpu-v5p-.*-2", {data = -1, fsdp = 128, track = 4}],
    ["hybrid", {ici = {fsdp = 256, track = 8}, dcn = {data = -1}}],
]

[trainer.mesh]
axes = {context = 4}
shared_mapping = {position = "context"}
compute_mapping = {batch = ["replica_dcn", "replica", "data"]}
"""

YAML = """
trainer:
  mesh:
    axes: {data: -1, replica: 1, context: 4, model: 1}
    dcn_axes: {replica_dcn: -1}
    shared_mapping:
      position: context
    compute_mapping:
      batch: [replica_dcn, replica, data]
"""


@pytest.fixture
def written(tmp_path):
    def write(text, name="mesh.toml"):
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write


def test_shapes_and_rules_from_toml(written):
    config = read_mesh_config(written(BOTH), "rules")
    assert isinstance(config, MeshRules)
    assert config.select().over(32_768).shape == (1, 16, 1, 256, 1, 8, 1)
    assert config.select("tpu-v5p-4096-2").over(8192).shape == (1, 16, 1, 128, 1, 4, 1)
    hybrid = config.select("hybrid").over(32_768, 16)
    assert hybrid.dcn == (1, 16, 1, 1, 1, 1, 1)
    assert hybrid.ici == (1, 1, 1, 256, 1, 8, 1)


def test_mappings_from_toml(written):
    config = read_mesh_config(written(BOTH), "trainer.mesh")
    assert config == MappedMesh(
        axes={"context": 4},
        shared_mapping={"position": "context"},
        compute_mapping={"batch": ["replica_dcn", "replica", "data"]},
    )


def test_yaml_says_the_same(written):
    config = read_mesh_config(written(YAML, "mesh.yaml"))
    toml = read_mesh_config(written(BOTH), "trainer.mesh")
    assert config.over(32, 2) == toml.over(32, 2)
    assert config.resolved_compute_mapping == toml.resolved_compute_mapping


def test_the_only_section_need_not_be_named(written):
    assert read_mesh_config(written("[a.b]\naxes = {model = 2}\n[other]\nx = 1")).over(4).sizes
    assert read_mesh_config(written("mesh_shape = {data = -1}")).select().over(4).shape == (4,)


def test_names_of_axes_can_come_from_the_sizes():
    config = mesh_config_of({"mesh_shape": {"data": -1, "model": 2}})
    assert config.select().over(8).sizes == {"data": 4, "model": 2}
    config = mesh_config_of({"mesh_shape": {"ici": {"fsdp": -1}, "dcn": {"data": -1}}})
    assert config.select().over(8, 2).sizes == {"fsdp": 4, "data": 2}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"mesh_shap": [1]}, "has no 'mesh_shap'.\nDid you mean 'mesh_shape'?"),
        ({"mesh_shape": {"a": 1}, "axes": {}}, "mesh_shape and axes are two ways"),
        ({"mesh_shape": [1, 2]}, "mesh_shape is a list of sizes, and mesh_axis_names does not"),
        ({"mesh_shape": 8}, "mesh_shape is 8, neither a list of sizes nor a table of them."),
        ({"mesh_shape": {1: 4, 2: 2}}, "1 is not the name of a mesh axis.\nA name is a string."),
        ({"mesh_shape": {"ici": [1], "dcn": [1], "c": 1}}, "has ici, dcn and c, where ici and dcn"),
        ({"mesh_shape": {"ici_mesh_shape": [1]}}, "has ici_mesh_shape, where ici and dcn are"),
        ({"mesh_rules": {"x": {"a": 1}}}, "mesh_rules is a table, not a list.\nSuch as [["),
        (
            {"mesh_shape": {"a": 1}, "mesh_rules": [["x", None]]},
            "Mesh rule 1, 'x': the shape is emp",
        ),
        (
            {"mesh_shape": {"a": 1}, "mesh_rules": [["x", {"b": 1}]]},
            "'x': The mesh has no axis 'b'.",
        ),
        ([], "A mesh configuration is [], not a table"),
        ({"mesh_shape": {"a": 1.5}}, "'a' is 1.5, not a whole number"),
        ({"mesh_shape": {"ici": {"a": 1}}}, "mesh_shape has ici, where ici and dcn are needed"),
        ({"mesh_axis_names": "data"}, "mesh_axis_names is 'data', not a list."),
        ({"mesh_axis_names": ["data"], "mesh_shape": {"dta": 1}}, "no axis 'dta'.\nDid you mean"),
        ({"mesh_axis_names": ["data"]}, "neither a mesh_shape nor a mesh rule"),
        (
            {"mesh_shape": {"a": 1}, "mesh_rules": [["x"]]},
            "Mesh rule 1 is ['x'], not a pattern and a",
        ),
        (
            {"mesh_shape": {"a": 1}, "mesh_rules": [["x", 3]]},
            "Mesh rule 1, 'x': the shape is 3, neither",
        ),
        ({"mesh_shape": {"a": 1}, "mesh_rules": [["(", {"a": 1}]]}, "'(' of a mesh rule is no"),
        ({"axes": [1, 2]}, "axes is [1, 2], not a table"),
        ({"axes": {"data": -1, "model": -1}}, "sizes of data and model are -1"),
        ({"param_mapping": "embed"}, "param_mapping is 'embed', not a table"),
        ({"batch_axis_name": 3}, "batch_axis_name is 3, not the name of a logical axis"),
    ],
)
def test_what_is_wrong_is_said(data, words):
    with pytest.raises(TargetError, match=re.escape(words)):
        mesh_config_of(data)


@pytest.mark.parametrize(
    ("text", "section", "words"),
    [
        ("axes = ]", None, "mesh.toml:1:8: The file is not TOML: Invalid value."),
        ("axes = ", None, "mesh.toml: The file is not TOML: Invalid value (at end of document)."),
        (
            b"\xff\xfe",
            None,
            "mesh.toml: The mesh configuration can't be read: it is not UTF-8 text.",
        ),
        ("x = 1", None, "no mesh configuration in the file"),
        (
            "mesh_shap = {a = 1}",
            None,
            "'mesh_shap' is not one of its keys: did you mean 'mesh_shape'?",
        ),
        ("[a]\nmesh_shap = {a = 1}", None, "did you mean 'mesh_shape'?"),
        (BOTH, None, "2 mesh configurations in the file, in rules and trainer.mesh.\nName one"),
        (BOTH, "trainer.msh", "no section 'trainer.msh'.\nDid you mean 'trainer.mesh'?"),
        (BOTH, "x", "no section 'x'.\nThere are some in rules and trainer.mesh."),
        (BOTH, "rules.mesh_shape", "rules.mesh_shape is [1, -1, 1, 256, 1, 8, 1], not a table"),
        (BOTH, "rules.mesh_rules", "rules.mesh_rules is a list, not a table"),
        ("axes = {data = 0}", None, "mesh.toml: The ICI size of mesh axis 'data' is 0"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(written, text, section, words):
    with pytest.raises(TargetError) as caught:
        read_mesh_config(written(text), section)
    assert words in str(caught.value)


def test_rules_have_the_axes_of_the_default_in_its_order():
    config = mesh_config_of(
        {"mesh_shape": {"b": 2, "a": 2}, "mesh_rules": [["x", {"a": 4}], ["y", {"a": 4, "b": 2}]]}
    )
    assert list(config.select("x").over(4).sizes.items()) == [("b", 1), ("a", 4)]
    assert list(config.select("y").over(8).sizes.items()) == [("b", 2), ("a", 4)]


def test_a_section_with_a_dot_in_its_name(written):
    path = written("['a.b']\nmesh_shape = {x = 2}\n[c]\nmesh_shape = {x = 3}")
    assert read_mesh_config(path, "a.b").select().ici == (2,)


def test_a_byte_order_mark_is_no_part_of_the_text(written):
    assert read_mesh_config(written(b"\xef\xbb\xbfaxes = {model = 2}")).axes == {"model": 2}


def test_a_file_of_another_kind_is_said_to_be_read_as_toml(written):
    with pytest.raises(TargetError, match=r"read as TOML, because its name does not end in \.yaml"):
        read_mesh_config(written('{"axes": 1}', "mesh.json"))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(TargetError, match=r"nope\.toml: .*No such file"):
        read_mesh_config(tmp_path / "nope.toml")


def test_wrong_yaml_is_one_sentence_with_its_place(written):
    with pytest.raises(TargetError, match=r"mesh\.yml:2:\d+: The file is not YAML: "):
        read_mesh_config(written("axes: {data: -1\nmodel: ]", "mesh.yml"))
    with pytest.raises(TargetError, match="has no table"):
        read_mesh_config(written("- 1\n- 2\n", "mesh.yml"))
    with pytest.raises(TargetError, match=r"not YAML: expected a single document.*, but found"):
        read_mesh_config(written("axes: {}\n---\naxes: {}\n", "mesh.yml"))


def test_yaml_that_names_an_axis_twice_is_refused(written):
    with pytest.raises(TargetError, match=r"mesh\.yml:1:18: .* 'data' is named twice\."):
        read_mesh_config(written("axes: {data: -1, data: 2}", "mesh.yml"))
    merged = "base: &base {data: 2, model: 4}\nmesh:\n  axes: {<<: *base, model: 2}\n"
    assert read_mesh_config(written(merged, "mesh.yml")).axes == {"data": 2, "model": 2}


def test_empty_yaml_has_no_configuration(written):
    for text in ("", "# nothing\n"):
        with pytest.raises(TargetError, match="There is no mesh configuration in the file"):
            read_mesh_config(written(text, "mesh.yml"))
    with pytest.raises(TargetError, match="mesh is empty, not a table"):
        read_mesh_config(written("mesh:\n", "mesh.yml"), "mesh")
    with pytest.raises(
        TargetError, match=r"True is not the name of a mesh axis\.\nA name is a string"
    ):
        read_mesh_config(written("mesh_shape: {on: 4, b: 2}", "mesh.yml"))


def test_yaml_that_is_nested_too_deep(written):
    with pytest.raises(TargetError, match="nested too deep"):
        read_mesh_config(written("[" * 5000, "mesh.yml"))
