"""What was decided for values, and the annotations that their axes come from."""

from dataclasses import replace

import jax
import pytest

from sdyscope.analysis.propagation.decided import Decisions
from sdyscope.facts.program import Program
from sdyscope.inspection import Inspection
from sdyscope.stages import compat
from sdyscope.targets import resolve
from sdyscope.values.mesh import Mesh
from sdyscope.words.propagation import origin_text
from sdyscope.words.sharding import short
from tests.analysis.propagations import of_model
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
