"""What was decided for values, and the annotations that their axes come from."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from sdyscope.analysis.propagation.decided import Decisions
from sdyscope.analysis.propagation.propagate import propagate_document
from sdyscope.facts.program import Program
from sdyscope.inspection import Inspection
from sdyscope.stages import compat
from sdyscope.targets import resolve
from sdyscope.values.mesh import Mesh
from sdyscope.words.propagation import beginning_text, origin_text
from sdyscope.words.sharding import short
from tests.analysis.propagations import of_model
from tests.programs import inside
from tests.user_programs import abstract, constrain


def without_origins(propagated):
    """The same propagation where Shardy could write down its steps alone."""
    known = replace(propagated.debug_info, origins_missing=True)
    return replace(propagated, read_debug_info=lambda: known)


@pytest.mark.parametrize(
    ("name", "settings"),
    [("mlp", {}), ("fsdp-transformer", {}), ("fsdp-transformer", {"constrained": False})],
)
def test_what_is_followed_is_what_shardy_records(name, settings):
    case = of_model(name, **settings)
    recorded = Decisions(case.propagated, case.graph, case.annotations)
    followed = Decisions(without_origins(case.propagated), case.graph, case.annotations)
    compared = 0
    for value in case.propagated.values:
        wanted = recorded.decided(value).origins
        origins = followed.decided(value).origins
        assert all(one.recorded for one in wanted)
        assert not any(one.recorded for one in origins)
        assert {key(one) for one in origins} == {key(one) for one in wanted}, value
        compared += len(origins)
    assert compared > 80


def key(origin):
    return str(origin.axis), origin.kind, origin.name, str(origin.source), origin.own


def test_what_is_followed_says_so():
    case = of_model("mlp")
    followed = Decisions(without_origins(case.propagated), case.graph, case.annotations)
    texts = {
        origin_text(origin)
        for value in case.propagated.values
        for origin in followed.decided(value).origins
    }
    assert "data <- batch['x'] (followed)" in texts


def test_values_that_are_alike_have_one_sharding():
    """The page and the documents describe each distinct one once."""
    inspection = Inspection(resolve("fsdp-transformer"), ["shardy"])
    decisions = inspection.explainer("shardy").decisions
    sharded = [decisions.sharded(value) for value in decisions.propagated.values]
    assert len(set(map(id, sharded))) < len(sharded) / 4


def test_axes_are_those_of_the_mesh_that_the_author_wrote():
    """XLA names the axes of one mesh for all; what is written elsewhere is where it was."""
    one, other = (
        compat.abstract_mesh(Mesh.of(sizes))
        for sizes in ({"data": 4, "model": 2}, {"x": 2, "y": 2, "z": 2})
    )

    def step(w):
        return constrain(w * 2, other, ("x", "y"), "z") * 3

    program = Program("step", jax.jit(step), (abstract(one, (16, 64), "data"),))
    decisions = Inspection(program, ["shardy"]).explainer("shardy").decisions
    argument = decisions.graph.main.arguments[0].node
    assert short(decisions.sharded((argument, 0))) == "P('data', None)"
    (origin, *_) = decisions.decided((argument, 0)).origins
    assert (origin.kind, origin.name, origin.own) == ("argument", "w", True)
    explainer = Inspection(program, ["shardy"]).explainer("shardy")
    (chain, *_) = explainer.explain((argument, 0)).chains
    assert (chain.beginning.kind, chain.beginning.dimension) == ("argument", 0)


def in_a_shard_map_over_data():
    """A ``shard_map`` that leaves `model` to the compiler, and a constraint on that inside."""
    mesh = compat.abstract_mesh(Mesh.of({"data": 4, "model": 2}))

    def body(x, w):
        hidden = jnp.tanh(x @ w)
        return jax.lax.with_sharding_constraint(hidden, inside(mesh, None, "model"))

    def step(x, w):
        specs = {"in_specs": (P("data"), P()), "out_specs": P("data")}
        return jax.shard_map(body, mesh=mesh, axis_names={"data"}, **specs)(x, w)

    arguments = (abstract(mesh, (16, 8), "data"), abstract(mesh, (8, 8), None, "model"))
    return Inspection(Program("step", jax.jit(step), arguments), ["shardy"])


def test_an_axis_comes_from_an_annotation_that_has_it():
    """Shardy names a constraint that JAX wrote open, and the ``shard_map`` for an argument."""
    explainer = in_a_shard_map_over_data().explainer("shardy")
    decisions = explainer.decisions
    sources = {
        op.mnemonic: [
            (str(origin.axis), origin.kind, origin.own)
            for origin in decisions.decided((op.id, 0)).origins
        ]
        for op in decisions.graph.operations()
        if op.mnemonic in ("dot_general", "tanh")
    }
    constraint = [('"model"', "constraint", False)]
    assert sources == {"dot_general": constraint, "tanh": constraint}
    for op in decisions.graph.operations():
        for origin in decisions.decided((op.id, 0)).origins if op.types else ():
            (chain,) = (
                chain
                for chain in explainer.explain((op.id, 0)).chains
                if chain.axis.name == origin.axis.name
            )
            named = chain.beginning.kind, chain.beginning.name, chain.beginning.source
            assert (origin.kind, origin.name, origin.source) == named
    for argument in decisions.graph.main.arguments:
        (origin,) = decisions.decided((argument.node, 0)).origins
        assert (origin.kind, origin.own) == ("argument", True)


def test_what_enters_a_shard_map_may_come_from_elsewhere():
    document = propagate_document(in_a_shard_map_over_data())
    inputs = [
        [origin_text(o) for o in value.propagated["shardy"].origins if not o.own]
        for value in document.values
        if value.kind == "shard_map input"
    ]
    assert inputs == [[], ["model <- w (followed)"]]


def test_the_function_of_a_shard_map_tells_its_boundaries_apart():
    mesh = compat.abstract_mesh(Mesh.of({"data": 4, "model": 2}))

    def rows(x):
        return x * 2

    def columns(x):
        return x * 3

    def step(x, y):
        specs = {rows: P("data"), columns: P(None, "model")}
        mapped = [
            jax.shard_map(each, mesh=mesh, in_specs=spec, out_specs=spec)
            for each, spec in specs.items()
        ]
        return [each(jnp.tanh(value)) for each, value in zip(mapped, (x, y), strict=True)]

    shape = jax.ShapeDtypeStruct((8, 16), jnp.float32)
    inspection = Inspection(Program("step", jax.jit(step), (shape, shape), mesh=mesh), ["shardy"])
    explainer = inspection.explainer("shardy")
    ops = [op.id for op in explainer.graph.operations() if op.kind == "stablehlo.tanh"]
    (data,), (model,) = (explainer.decisions.decided((op, 0)).origins for op in ops)
    assert "data <- shard_map input of rows" in origin_text(data)
    assert "model <- shard_map input of columns" in origin_text(model)
    begin = [explainer.explain((op, 0)).chains[0].beginning for op in ops]
    assert [beginning_text(each) for each in begin] == [
        "the annotation {data} on dim 0 of an input of the shard_map rows",
        "the annotation {model} on dim 1 of an input of the shard_map columns",
    ]


def test_what_a_shard_map_calls_is_manual_as_the_shard_map_is():
    """JAX before 0.12 makes a function of the body of a scan, which stands in no ``shard_map``."""
    mesh = compat.abstract_mesh(Mesh.of({"data": 4, "model": 2}))

    def step(x):
        def body(x, _):
            return jnp.tanh(x) * 2, None

        return jax.lax.scan(body, x, None, length=3)[0]

    mapped = jax.shard_map(step, mesh=mesh, in_specs=P("data"), out_specs=P("data"))
    shape = jax.ShapeDtypeStruct((8, 16), jnp.float32)
    inspection = Inspection(Program("step", jax.jit(mapped), (shape,), mesh=mesh), ["shardy"])
    decisions = inspection.explainer("shardy").decisions
    tanh = [op for op in decisions.graph.operations() if op.kind == "stablehlo.tanh"]
    assert tanh
    for op in tanh:
        assert short(decisions.sharded((op.id, 0))) == "manual"
