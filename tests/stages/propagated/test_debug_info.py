"""Origins and steps are another run, which neither changes the answer nor takes it down."""

import functools
import json

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from user_programs import USER_PROGRAMS

from sdyscope.analysis.propagation.explain import explain_document
from sdyscope.analysis.propagation.propagate import propagate_document
from sdyscope.facts.program import Program
from sdyscope.facts.remarks import Remark
from sdyscope.inspection import Inspection
from sdyscope.models import fsdp_transformer
from sdyscope.process.worker import WorkerDiedError
from sdyscope.stages import compat
from sdyscope.stages.propagated import debug_info
from sdyscope.terminal.document import encode
from sdyscope.values.mesh import Mesh, MeshAxis
from sdyscope.values.sharding import TensorSharding
from sdyscope.views import explain, propagate
from sdyscope.words.remarks import remark_text

MESH = compat.abstract_mesh(Mesh((MeshAxis("data", 4), MeshAxis("model", 2))))


def of(shape, *spec):
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(MESH, P(*spec)))


def rematerialized():
    inside = functools.partial(jax.shard_map, mesh=MESH, in_specs=P("data"), out_specs=P("data"))
    kept = jax.checkpoint(inside(jnp.exp))
    return Program(
        "rematerialized", jax.jit(jax.grad(lambda x: jnp.sum(kept(x)))), (of((64,), "data"),)
    )


def scanned():
    inside = jax.shard_map(lambda x: x * 2, mesh=MESH, in_specs=P("data"), out_specs=P("data"))

    def step(x, w):
        return jax.lax.scan(lambda x, w: (inside(x) @ w, None), x, w)[0]

    return Program("scanned", jax.jit(step), (of((16, 16), "data"), of((4, 16, 16))))


@pytest.mark.parametrize("program", [rematerialized, scanned])
def test_where_shardy_crashes_writing_origins_down_the_answer_and_the_steps_are_there(program):
    propagated = Inspection(program(), ("shardy",)).propagated()
    assert propagated.exactness == "exact"
    placed = {str(value.sharding) for value in propagated.values.values() if value.sharding}
    assert any('"data"' in sharding for sharding in placed)
    assert propagated.notes == ()
    if propagated.debug_info.notes:
        (note,) = propagated.debug_info.notes
        assert (note.process, note.said[:3]) == ("crashed", "SIG")
        assert propagated.debug_info.origins_missing
        assert not any(value.origins for value in propagated.values.values())
    else:
        assert any(value.origins for value in propagated.values.values())
    assert len(propagated.steps) > 0


def test_without_a_process_to_ask_the_answer_is_there(monkeypatch):
    def die(request):
        raise WorkerDiedError(-11)

    monkeypatch.setattr(debug_info._worker, "ask", die)
    propagated = Inspection(USER_PROGRAMS["nested_jit"](MESH), ("shardy",)).propagated()
    assert propagated.values
    assert len(propagated.steps) == 0
    (note,) = propagated.debug_info.notes
    assert note == Remark("no steps", "SIGSEGV", process="crashed")


def test_what_python_ends_is_no_crash_of_shardy_s(monkeypatch):
    def die(request):
        raise WorkerDiedError(1)

    monkeypatch.setattr(debug_info._worker, "ask", die)
    propagated = Inspection(USER_PROGRAMS["nested_jit"](MESH), ("shardy",)).propagated()
    (note,) = propagated.debug_info.notes
    assert note == Remark("no steps", "exit status 1", process="ended")


def test_where_no_process_can_start_the_answer_is_there(monkeypatch):
    def refuse(request):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(debug_info._worker, "ask", refuse)
    propagated = Inspection(USER_PROGRAMS["nested_jit"](MESH), ("shardy",)).propagated()
    assert propagated.values
    (note,) = propagated.debug_info.notes
    assert note == Remark("no steps", "Cannot allocate memory", process="not started")


def test_what_is_computed_from_constants_has_its_origins():
    """With origins Shardy keeps ops apart which it makes one without: they are told by name."""
    settings = fsdp_transformer.Settings(layers=1, d_model=16, heads=2, head_dim=4, d_ff=32)
    mesh = compat.abstract_mesh(Mesh((MeshAxis("fsdp", 4), MeshAxis("model", 2))))
    propagated = Inspection(fsdp_transformer.program(mesh, settings), ("shardy",)).propagated()
    broadcasts = [
        value
        for value in propagated.values.values()
        if value.node is not None
        and propagated.graph.ops[value.node].kind == "stablehlo.broadcast_in_dim"
        and isinstance(value.sharding, TensorSharding)
        and any(dim.axes for dim in value.sharding.dim_shardings)
    ]
    assert len(broadcasts) > 5
    assert all(value.origins for value in broadcasts)


def test_nobody_who_only_asks_for_shardings_waits_for_another_run(monkeypatch):
    def die(request):
        raise AssertionError("asked")

    monkeypatch.setattr(debug_info._worker, "ask", die)
    propagated = Inspection(USER_PROGRAMS["nested_jit"](MESH), ("shardy",)).propagated()
    assert propagated.counts
    assert not propagated.is_explained


@pytest.mark.parametrize("program", [rematerialized, scanned])
def test_origins_that_can_not_be_written_down_are_followed_in_every_form(program):
    inspection = Inspection(program(), ("shardy",))
    if not inspection.propagated().debug_info.notes:
        pytest.skip("this Shardy can write them down")
    (note,) = inspection.propagated().debug_info.notes
    assert note.kind == "no origins"
    decided = propagate_document(inspection)
    table = propagate.table(decided)
    (result,) = [row for row in table.cells if row[0].text.startswith("result")]
    assert result[-1].text.endswith(" (followed)")
    said = [line.text for line in propagate.footer(decided, table)]
    assert remark_text(note) in said
    assert any("followed: along Shardy's steps, not recorded by Shardy" in line for line in said)
    explained = explain_document(inspection, "result")
    assert remark_text(note) in [line.text for line in explain.footer(explained)]
    for value in (json.loads(encode(one))["values"] for one in (decided, explained)):
        assert '"recorded": false' in json.dumps(value)
        assert '"recorded": true' not in json.dumps(value)
