"""Half the batch and rematerialization, each as a change that a compile confirms."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from fix_cases import written

from sdyscope.analysis.memory.checkpoints import rematerialized
from sdyscope.analysis.memory.memory import memory_of
from sdyscope.analysis.memory.over_time import over_time_of
from sdyscope.analysis.memory.remedies import candidates, half_batch, tried
from sdyscope.errors import TargetError
from sdyscope.facts.program import Program
from sdyscope.inspection import Inspection
from sdyscope.staged import Staged
from sdyscope.stages import compat
from sdyscope.stages.propagated.what_if import Wish
from sdyscope.targets import resolve
from sdyscope.views.over_time import remedies_footer
from sdyscope.words.over_time import remedy_text

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


SCANNED = """
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
from sdyscope import Program

MESH = {"data": 8}


def layer(w, x, sharding):
    return jnp.sin(jax.lax.with_sharding_constraint(x, sharding) @ w)


def program(mesh):
    def on(shape, *spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    def loss(params, x):
        def body(x, w):
            return layer(w, x, NamedSharding(mesh, P("data", None))), None

        x, _ = jax.lax.scan(body, x, params)
        return (x * x).sum()

    def step(params, opt_state, batch):
        grads = jax.grad(loss)(params, batch)
        mu = 0.9 * opt_state["mu"] + grads
        return params - mu, {"mu": mu}

    jitted = jax.jit(step, donate_argnums=(0, 1))
    params = on((8, 1024, 1024))
    return Program("step", jitted, (params, {"mu": params}, on((131072, 1024), "data")))
"""


def test_a_smaller_batch_and_a_checkpoint_are_tried(tmp_path):
    file = tmp_path / "deep_layers.py"
    build = written(file, DEEP)
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


def test_constraints_of_one_scope_and_several_ranks_are_not_tried_as_one():
    """As Levanter's attention has them: queries have a dimension more than keys."""
    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)

    def on(*spec):
        return jax.NamedSharding(mesh, jax.P(*spec))

    def constrain(x, *spec):
        return jax.lax.with_sharding_constraint(x, on(*spec))

    def attend(x, wq, wk, w):
        with jax.named_scope("qkv"):
            queries = constrain(jnp.einsum("bd,dhk->bhk", x, wq), "data", None, None)
            keys = constrain(x @ wk, "data", None)
        with jax.named_scope("gate"):
            gate = constrain(jnp.einsum("bd,dhk->bhk", x, w), "data", None, None)
        return jnp.einsum("bhk,dhk->bd", jnp.sin(queries) * gate, w), keys

    def array(*shape, spec=()):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=on(*spec))

    wide = array(64, 4, 64)
    arguments = array(8192, 64, spec=("data",)), wide, array(64, 64), wide
    program = Inspection(Program("attend", jax.jit(attend), arguments), ["shardy"])
    memory = program.memory()
    remedies = candidates(program, memory, over_time_of(program, memory))
    constrained = [make for remedy, make in remedies if remedy.kind == "constrain"]
    assert constrained
    for make in constrained:
        assert make().lowered


@pytest.mark.skipif(
    compat.version_tuple() < (0, 10, 2), reason="XLA's CPU compiler refused memory kinds"
)
@pytest.mark.parametrize("partitioner", ["shardy", "gspmd"])
def test_arguments_are_offloaded_with_their_next_values(tmp_path, partitioner):
    file = tmp_path / "with_state.py"
    file.write_text(SCANNED)
    program = Inspection(resolve(f"{file}:program"), [partitioner])
    wishes = [Wish(name, offloaded=True) for name in ("opt_state['mu']", "result[1]['mu']")]
    memory = memory_of(program.with_wishes(wishes))
    on_host = [tensor.name for tensor in memory.tensors if tensor.stored.memory == "host"]
    assert on_host == ["opt_state['mu']", "result[1]['mu']"]
    assert memory.equal
    with pytest.raises(TargetError, match="neither an argument nor a result"):
        program.with_wishes([Wish("with_state.py:11", offloaded=True)])


def test_a_cpu_has_no_memory_to_offload_to(tmp_path):
    file = tmp_path / "with_state.py"
    file.write_text(SCANNED)
    program = Inspection(resolve(f"{file}:program"), ["shardy"])
    memory = program.memory()
    over_time = over_time_of(program, memory)
    kinds = {remedy.kind for remedy, _ in candidates(program, memory, over_time)}
    assert "batch" in kinds
    assert not kinds & {"offload", "offload activations"}
    *_, last = remedies_footer([], can_offload=memory.can_offload)
    assert last.text.startswith("offloading is not tried: a CPU has one memory")


@pytest.mark.libtpu
def test_offloading_is_tried_for_a_tpu(tmp_path):
    build = written(tmp_path / "with_state.py", SCANNED)
    on = "tpu:v5e:2x4"
    program = Inspection(build(), ["shardy"])
    memory = program.memory("shardy", on)
    over_time = over_time_of(program, memory)
    remedies = {remedy.kind: remedy for remedy in tried(program, memory, over_time, on, 9, build)}
    assert [remedy.refused for remedy in remedies.values()] == [""] * len(remedies)
    assert remedies["batch"].peak < over_time.peak
    state, activations = remedies["offload"], remedies["offload activations"]
    assert (state.names, state.name) == (("opt_state['mu']",), "opt_state")
    assert 0 < activations.saves <= activations.hopes
    assert activations.peak > remedies["rematerialize"].peak


def weighted(number):
    """A step with more frozen weights than it has of a batch, and perhaps for that batch alone."""

    def step(params, frozen, teacher, tokens, mask):
        def loss(params):
            x = params["w"][tokens.reshape(-1, 4)] @ frozen[0] @ frozen[1]
            return jnp.sum((x - teacher["w"][tokens.reshape(-1, 4)]) ** 2 * mask[0])

        if number:
            assert tokens.shape[0] == number
        return jax.tree.map(lambda w, g: w - g, params, jax.grad(loss)(params))

    def array(*shape, dtype="float32"):
        return jax.ShapeDtypeStruct(shape, dtype)

    weights = {"w": array(64, 64)}
    tokens, mask = array(16, dtype="int32"), array(16)
    fun = jax.jit(step, donate_argnums=0)
    return Staged(
        Program("step", fun, (weights, [array(64, 64)] * 2, weights, tokens, mask)), ("shardy",)
    )


def test_weights_that_are_not_trained_are_no_batch():
    program = weighted(number=0)
    memory = memory_of(program)
    remedy, make = half_batch(program, memory, over_time_of(program, memory))
    assert (remedy.names, remedy.sizes) == (("tokens", "mask"), (16, 8))
    assert remedy_text(remedy) == "half the batch: 8 instead of 16"
    unclear = remedy_text(replace(remedy, certain=False))
    assert unclear == "half tokens, mask: 8 instead of 16, if that is the batch"
    assert make().requested[4].shape == (8,)
    program = weighted(number=16)
    assert half_batch(program, memory, over_time_of(program, memory)) is None


def test_of_what_is_not_trained_no_batch_is_known(tmp_path):
    program = Inspection(resolve("rng-gotcha", settings={"rows": 64}), ["shardy"])
    memory = program.memory()
    over_time = over_time_of(program, memory)
    assert half_batch(program, memory, over_time) is None
    assert not list(rematerialized(program, memory, over_time, lambda: resolve("rng-gotcha")))
