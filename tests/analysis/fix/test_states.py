"""Optimizer state that is sharded otherwise than its parameters."""

import pytest
from fix_cases import written

from sdyscope.analysis.fix.proposals import LiteralSites
from sdyscope.analysis.fix.states import like_parameters
from sdyscope.analysis.fix.workshop import Workshop
from sdyscope.inspection import Inspection
from sdyscope.patches.source import spliced
from sdyscope.values.sharding import PartitionSpec as P

STEP = """
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
from sdyscope import Program

MESH = {"data": 4, "model": 2}
SHAPES = {"up": (16, 32), "down": (32, 16)}
SPECS = {"up": P(None, "model"), "down": P("model", None)}


def program(mesh):
    def put(shape, spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, spec))

    def on(shape, *axes):
        return put(shape, P(*axes))

    def step(params, mu, x):
        loss = lambda params: jnp.mean(jnp.tanh(x @ params["up"]) @ params["down"])
        mu = jax.tree.map(lambda m, g: 0.9 * m + g, mu, jax.grad(loss)(params))
        return jax.tree.map(lambda p, m: p - m, params, mu), mu

    params = {name: put(SHAPES[name], SPECS[name]) for name in SHAPES}
    batch = on((64, 16), "data", None)
    mu = STATE
    return Program("step", jax.jit(step, donate_argnums=(0, 1)), (params, mu, batch))
"""


@pytest.mark.parametrize(
    ("state", "edited"),
    [
        (
            "{name: put(SHAPES[name], P()) for name in SHAPES}",
            "{name: put(SHAPES[name], SPECS[name]) for name in SHAPES}",
        ),
        (
            "jax.tree.map(lambda p: on(p.shape, None, None), params)",
            "jax.tree.map(lambda p: on(p.shape, *p.sharding.spec), params)",
        ),
        (
            "jax.tree.map(lambda p: put(p.shape, P('data', None)), params)",
            "jax.tree.map(lambda p: put(p.shape, p.sharding.spec), params)",
        ),
        # Nothing in scope says how the parameters are sharded.
        ("{'up': on((16, 32), None, None), 'down': on((32, 16), None, None)}", None),
    ],
)
def test_state_is_sharded_as_its_parameters_where_the_source_can_say_so(tmp_path, state, edited):
    file = tmp_path / f"step_{len(state)}.py"
    build = written(file, STEP.replace("STATE", state))
    program = Inspection(build(), ("shardy",))
    workshop = Workshop(program, build)
    sites = LiteralSites(workshop, program.only_mesh("shardy"))
    kept = next(each for each in program.requested if each.path == "mu['down']")
    site = sites.of(kept, kept.sharding.spec)
    annotations = {
        (each.kind, each.index): each
        for each in program.annotations("shardy")
        if each.kind in ("argument", "result")
    }
    index = {each.path: each.index for each in program.requested if each.kind == "argument"}
    parameters = {index[f"mu['{name}']"]: index[f"params['{name}']"] for name in ("up", "down")}
    proposal = like_parameters(workshop, site, parameters, annotations, 1.0)
    if edited is None:
        assert proposal is None
        return
    (splices,) = proposal.write().values()
    assert spliced(file.read_text(), splices) == STEP.replace("STATE", edited)
    assert (proposal.edit.kind, proposal.edit.after, proposal.edit.count) == (
        "optimizer state",
        None,
        2,
    )
    assert {edit.annotation.path: edit.sharding.spec for edit in proposal.trial} == {
        "mu['down']": P(("model", None)),
        "mu['up']": P((None, "model")),
    }
    # Where only some of what the place shards is kept of a parameter, nothing is said of the rest.
    only = {kept.index: parameters[kept.index]}
    assert like_parameters(workshop, site, only, annotations, 1.0) is None
