"""What code has names for at a line."""

from dataclasses import dataclass

import jax
from jax.sharding import AbstractMesh

from sdyscope.stages.edited.names import named_at
from sdyscope.values.mesh import Mesh

OUTSIDE = AbstractMesh((2,), ("outside",))


def around(mesh, hidden):
    def inner(x: jax.Array):
        hidden = [x]
        return hidden[0]  # asked here

    return inner


class Model:
    def __init__(self, mesh):
        self.mesh = mesh

    def call(self, x):
        return x  # asked in a method


@dataclass(frozen=True, slots=True)
class Settings:
    mesh: AbstractMesh


class Layer:
    """As a module of Flax or Equinox: it can be called."""

    def __init__(self, settings):
        self.settings = settings

    def __call__(self, x):
        return x  # asked in a module


def line(text):
    with open(__file__) as source:
        return next(at for at, row in enumerate(source, 1) if row.rstrip().endswith(f"# {text}"))


def names(text, act):
    _, found = named_at({__file__: frozenset([line(text)])}, act)
    return found[__file__, line(text)]


def test_names_of_the_function_around_are_in_scope_and_those_that_are_hidden_are_not():
    one, other = AbstractMesh((8,), ("data",)), AbstractMesh((4,), ("model",))
    found = names("asked here", lambda: around(one, other)(1))
    assert found.meshes == {"mesh": Mesh.of({"data": 8}), "OUTSIDE": Mesh.of({"outside": 2})}
    assert found.known["jax"] == "jax"


def test_attributes_of_objects_are_named_too():
    mesh = AbstractMesh((8,), ("data",))
    found = names("asked in a method", lambda: Model(mesh).call(1))
    assert found.meshes["self.mesh"] == Mesh.of({"data": 8})


def test_a_mesh_that_a_module_s_configuration_holds_is_named():
    """Modules are called, configurations are frozen: `self.settings.mesh`."""
    layer = Layer(Settings(AbstractMesh((8,), ("data",))))
    found = names("asked in a module", lambda: layer(1))
    assert found.meshes["self.settings.mesh"] == Mesh.of({"data": 8})
