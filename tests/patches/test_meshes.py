"""Edits of what a source says of its mesh, each made and read back."""

import pytest

from sdyscope.analysis.fix.rewrites import sizes_near
from sdyscope.patches.meshes import resized_meshes
from sdyscope.patches.source import read_source, spliced

AXES, BEFORE, AFTER = ("data", "model"), (2, 4), (8, 1)


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ('MESH = {"data": 2, "model": 4}', 'MESH = {"data": 8, "model": 1}'),
        ('jax.make_mesh((2, 4), ("data", "model"))', 'jax.make_mesh((8, 1), ("data", "model"))'),
        (
            'Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ["data", "model"])',
            'Mesh(np.array(jax.devices()[:8]).reshape(8, 1), ["data", "model"])',
        ),
        (
            "Mesh(create_device_mesh([2, 4]), axis_names=('data', 'model'))",
            "Mesh(create_device_mesh([8, 1]), axis_names=('data', 'model'))",
        ),
        ('MESH = {"data": 4, "model": 2}', None),
        ('MESH = {"model": 4, "data": 2}', None),
        ('MESH = {"data": 2, "model": 4, "other": 1}', None),
        ('make_mesh((n, 4), ("data", "model"))', None),
        ("f((2, 4), (3, 5))", None),
    ],
)
def test_a_mesh_gets_other_sizes_where_the_source_says_them(tmp_path, text, after):
    path = tmp_path / "mesh.py"
    path.write_text(f"x = 1\n{text}\n")
    source = read_source(str(path))
    edits = list(resized_meshes(source, AXES, BEFORE, AFTER))
    assert [line for line, _ in edits] == [2] * (after is not None)
    for _, splices in edits:
        assert spliced(source.text, splices) == f"x = 1\n{after}\n"


def test_the_nearest_sizes_come_first_and_none_is_left_out():
    assert sizes_near((4, 2)) == [(2, 4), (8, 1), (1, 8)]
    assert sizes_near((6,)) == []
    assert len(sizes_near((2, 2, 2))) == 9
