"""What was decided for values, and the annotations that their axes come from."""

from dataclasses import replace

import pytest

from sdyscope.analysis.propagation.decided import Decisions
from sdyscope.inspection import Inspection
from sdyscope.targets import resolve
from sdyscope.words.propagation import origin_text
from tests.analysis.propagations import of_model


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
