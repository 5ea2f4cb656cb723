"""Mesh configurations from TOML, YAML and plain data."""

import importlib
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
    pytest.importorskip("yaml")
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
        ({"mesh_shape": 8}, "mesh_shape is 8, not a list."),
        ({"mesh_shape": {"a": 1.5}}, "'a' is 1.5, not a whole number"),
        ({"mesh_shape": {"ici": {"a": 1}}}, "mesh_shape has only 'ici', and needs ici and dcn"),
        ({"mesh_axis_names": "data"}, "mesh_axis_names is 'data', not a list."),
        ({"mesh_axis_names": ["data"], "mesh_shape": {"dta": 1}}, "no axis 'dta'.\nDid you mean"),
        ({"mesh_axis_names": ["data"]}, "neither a mesh_shape nor a mesh rule"),
        ({"mesh_shape": {"a": 1}, "mesh_rules": [["x"]]}, "Mesh rule 1 is not a pattern and a"),
        ({"mesh_shape": {"a": 1}, "mesh_rules": [["x", 3]]}, "the shape of mesh rule 1 is 3, not"),
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
        ("axes = ]", None, "mesh.toml:1:8: The file is no TOML: Invalid value."),
        ("axes = ", None, "mesh.toml: The file is no TOML: Invalid value (at end of document)."),
        (b"\xff\xfe", None, "mesh.toml: The mesh configuration can't be read: it is no text."),
        ("x = 1", None, "no mesh configuration in the file"),
        (BOTH, None, "There are 2 mesh configurations in the file.\nName one: FILE:rules;"),
        (BOTH, "trainer.msh", "no section 'trainer.msh'.\nMesh configurations are in rules,"),
        (BOTH, "rules.mesh_shape", "rules.mesh_shape is [1, -1, 1, 256, 1, 8, 1], not a table"),
        ("axes = {data = 0}", None, "mesh.toml: The ICI size of mesh axis 'data' is 0"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(written, text, section, words):
    with pytest.raises(TargetError) as caught:
        read_mesh_config(written(text), section)
    assert words in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(TargetError, match=r"nope\.toml: .*No such file"):
        read_mesh_config(tmp_path / "nope.toml")


def test_wrong_yaml_is_one_sentence_with_its_place(written):
    pytest.importorskip("yaml")
    with pytest.raises(TargetError, match=r"mesh\.yml:2:\d+: The file is no YAML: "):
        read_mesh_config(written("axes: {data: -1\nmodel: ]", "mesh.yml"))
    with pytest.raises(TargetError, match="holds no table"):
        read_mesh_config(written("- 1\n- 2\n", "mesh.yml"))


def test_without_pyyaml_it_is_said(written, monkeypatch):
    whole = importlib.import_module

    def without(name, *rest):
        if name == "yaml":
            raise ModuleNotFoundError("No module named 'yaml'", name="yaml")
        return whole(name, *rest)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(TargetError, match="needs PyYAML, which is not installed") as caught:
        read_mesh_config(written(YAML, "mesh.yaml"))
    assert caught.value.hint.startswith("pip install 'sdyscope[yaml]'")
