"""Half the batch and rematerialization, each as a change that a compile confirms."""

import pytest

from sdyscope.analysis.memory.batches import half_batch
from sdyscope.analysis.memory.checkpoints import rematerialized
from sdyscope.analysis.memory.over_time import over_time_of
from sdyscope.analysis.memory.remedies import tried
from sdyscope.inspection import Inspection
from sdyscope.targets import resolve

pytestmark = pytest.mark.compiles

DEEP = """
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
from sdyscope import Program

MESH = {"data": 2}


def layer(w, x, function):
    for _ in range(4):
        x = function(x) ** 5
    return x @ w


def program(mesh):
    def on(shape, *spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    def loss(params, x):
        for w in params:
            x = layer(w, x, jnp.sin)
        return (x * x).sum()

    def step(params, batch):
        return jax.tree.map(lambda w, g: w - g, params, jax.grad(loss)(params, batch))

    jitted = jax.jit(step, donate_argnums=0)
    return Program("step", jitted, ([on((64, 64))] * 4, on((4096, 64), "data")))
"""


def test_a_smaller_batch_and_a_checkpoint_are_tried(tmp_path):
    file = tmp_path / "deep_layers.py"
    file.write_text(DEEP)

    def build():
        return resolve(f"{file}:program")

    program = Inspection(build(), ["shardy"])
    memory = program.memory()
    over_time = over_time_of(program, memory)
    remedies = tried(program, memory, over_time, None, 5, build)
    by_kind = {remedy.kind: remedy for remedy in remedies}
    batch = by_kind["batch"]
    assert (batch.names, batch.sizes) == (("batch",), (4096, 2048))
    assert 0 < batch.saves <= batch.hopes
    again = by_kind["rematerialize"]
    assert (again.name, again.source.line) == ("layer", 22)
    assert again.refused == ""
    assert again.peak < over_time.peak
    assert file.read_text() == DEEP


def test_of_what_is_not_trained_no_batch_is_known(tmp_path):
    program = Inspection(resolve("rng-gotcha", settings={"rows": 64}), ["shardy"])
    memory = program.memory()
    over_time = over_time_of(program, memory)
    assert half_batch(program, memory, over_time) is None
    assert not list(rematerialized(program, memory, over_time, lambda: resolve("rng-gotcha")))
