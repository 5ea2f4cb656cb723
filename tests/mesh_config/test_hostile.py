"""Mesh configurations that a stranger wrote to take the reader down."""

import time

import pytest

from sdyscope.errors import TargetError
from sdyscope.mesh_config.mesh_shape import parse_mesh_shape
from sdyscope.mesh_config.read import read_mesh_config

DIGITS = "9" * 5_000


def nested_aliases(form):
    """Ten levels, each naming the one before nine times: nine to the ninth values."""
    lines = ["a0: &a0 {k: 1}"]
    for level in range(1, 10):
        before = [f"*a{level - 1}"] * 9
        lines.append(f"a{level}: &a{level} {form(before)}")
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (nested_aliases(lambda one: "{<<: [" + ", ".join(one) + "]}"), "more than 100,000 values"),
        (nested_aliases(lambda one: f"[{', '.join(one)}]"), "more than 100,000 values"),
        ("x: &x\n  y: *x\n", "nested too deep"),
        ("mesh_shape: &m\n  ici: *m\n  dcn: {a: 1}\n", "nested too deep"),
        (f"mesh_shape: {{a: {DIGITS}}}", "a number of too many digits"),
        ("mesh_axis_names: [2, b]\nmesh_shape: [2, 2]", "2 is not the name of a mesh axis"),
        ("mesh_axis_names: [a, -1]\nmesh_shape: {b: 2}", "-1 is not the name of a mesh axis"),
        (
            "mesh_axis_names: [a, b: ]\nmesh_shape: {c: 2}",
            "{'b': None} is not the name of a mesh axis",
        ),
        ("mesh_shape: {a: 2021-13-99}", "a value that can't be"),
    ],
)
def test_yaml(tmp_path, text, said):
    path = tmp_path / "mesh.yaml"
    path.write_text(text)
    start = time.perf_counter()
    with pytest.raises(TargetError, match=said):
        read_mesh_config(path)
    assert time.perf_counter() - start < 10


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a." * 10_000 + "b = 1", "nested too deep"),
        (f"mesh_shape = {{a = {DIGITS}}}", "a number of too many digits"),
        (f"mesh_shape = {{a = 0x{'f' * 5_000}}}", "more than 2,147,483,647 devices"),
    ],
)
def test_toml(tmp_path, text, said):
    path = tmp_path / "mesh.toml"
    path.write_text(text)
    with pytest.raises(TargetError, match=said):
        read_mesh_config(path)


@pytest.mark.parametrize("text", ["data=1000000000000", "a=65536,b=32768", "a=-1,b=2147483648"])
def test_a_mesh_of_more_devices_than_jax_can_number(text):
    with pytest.raises(TargetError, match="JAX numbers no more"):
        parse_mesh_shape(text)
