"""Meshes in headings."""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.inspection import inspect
from sdyscope.stages import compat
from sdyscope.values.mesh import IotaTile, Mesh, MeshAxis
from sdyscope.words.mesh import (
    mesh_document,
    mesh_documents,
    mesh_entry,
    mesh_words,
    mesh_words_of,
)


def test_in_words():
    meshes = {"mesh": Mesh.of({"data": 4, "model": 2}), "one": Mesh((), (3,)), "other": Mesh(())}
    documents = mesh_documents(meshes)
    assert [*map(mesh_words, documents)] == ["data=4 x model=2, 8 devices", "one: device 3 alone"]


def test_a_mesh_under_a_second_symbol_is_listed_once():
    mesh, other = Mesh.of({"data": 4, "model": 2}), Mesh.of({"data": 8})
    meshes = {"mesh": mesh, "mesh_0": mesh, "other": other}
    assert mesh_words_of(meshes) == ["data=4 x model=2, 8 devices", "other: data=8, 8 devices"]
    assert [document.name for document in mesh_documents(meshes)] == ["mesh", "other"]


def test_the_order_of_devices_is_told():
    axes = (MeshAxis("a", 2), MeshAxis("b", 8))
    iota = mesh_document("", Mesh(axes, IotaTile((8, 2), (1, 0))))
    assert mesh_words(iota) == "a=2 x b=8, 16 devices in the order [8,2]T(1,0)"
    turned = Mesh(axes, tuple(reversed(range(16))))
    assert mesh_words(mesh_document("", turned)).endswith(
        "16 devices in the order 15, 14, 13, 12, 11, 10, 9, 8, ..."
    )
    assert mesh_entry(Mesh(axes)) == "a=2, b=8"
    assert mesh_entry(turned).startswith("a=2, b=8; devices 15,14,")


def test_the_mesh_of_random_keys_is_none_of_the_programs():
    """JAX writes the sharding of keys that it leaves open on a mesh without axes."""
    mesh = compat.abstract_mesh(Mesh((MeshAxis("data", 4),)))
    x = jax.ShapeDtypeStruct((8,), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    key = jax.eval_shape(lambda: jax.random.key(0))
    inspection = inspect(jax.jit(lambda key, x: (jax.random.split(key), x)), key, x)
    assert any(not one.axes for one in inspection.meshes.values())
    assert [mesh_document.axes for mesh_document in mesh_documents(inspection.meshes)] == [
        {"data": 4}
    ]
