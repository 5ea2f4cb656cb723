"""Passes of Shardy's, and what is known of the one that ends the process."""

import pytest

from sdyscope.errors import CompilerError
from sdyscope.inspection import Inspection
from sdyscope.process import progress
from sdyscope.stages.align.tags import copy
from sdyscope.stages.propagated.passes import pass_name, propagation_passes, run
from sdyscope.stages.propagated.propagate import imported
from sdyscope.targets import resolve


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("symbol-dce", "symbol-dce"),
        ("sdy-user-priority-propagate{debug=false x=(a)}", "sdy-user-priority-propagate"),
        ("func.func(sdy-sink-data-flow-edges{sink=false})", "sdy-sink-data-flow-edges"),
    ],
)
def test_names(text, name):
    assert pass_name(text) == name


def test_the_pass_that_runs_is_written_down(tmp_path, monkeypatch):
    """One by one they make the same module."""
    inspection = Inspection(resolve("mlp"), ["shardy"])
    module, _ = imported(inspection.lowered["shardy"], inspection.graph("shardy"))
    together, apart = copy(module), copy(module)
    passes = propagation_passes(together.context)
    run(together, *passes)
    monkeypatch.setattr(progress, "_trail", [])
    progress.leave_trail(str(tmp_path / "doing"))
    progress.doing("lowering mlp for Shardy")
    progress.doing("propagating mlp")
    run(apart, *passes)
    assert str(apart) == str(together)
    trail = progress.Trail.read(str(tmp_path / "doing"))
    assert trail == progress.Trail("propagating mlp", "", lowered=True)
    with pytest.raises(CompilerError):
        run(apart, "symbol-dce", "func.func(no-such-pass)")
    assert progress.Trail.read(str(tmp_path / "doing")).compiler_pass == "no-such-pass"
