"""Passes of Shardy's, and what is known of the one that ends the process."""

import io
import re

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.errors import CompilerError, CrashError
from sdyscope.facts.program import Program
from sdyscope.inspection import Inspection
from sdyscope.process import progress
from sdyscope.process.worker import Worker
from sdyscope.stages import compat
from sdyscope.stages.align.tags import copy
from sdyscope.stages.conversion import through_hlo
from sdyscope.stages.lowered.read import read_bytes
from sdyscope.stages.propagated import passes
from sdyscope.stages.propagated.debug_info import propagation_of
from sdyscope.stages.propagated.passes import pass_name, propagation_passes, run, run_guarded
from sdyscope.stages.propagated.propagate import imported
from sdyscope.targets import resolve
from sdyscope.values.mesh import Mesh, MeshAxis


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
    sequence = propagation_passes(together.context)
    run(together, *sequence)
    monkeypatch.setattr(progress, "_trail", [])
    progress.leave_trail(str(tmp_path / "doing"))
    progress.doing("lowering mlp for Shardy")
    progress.doing("propagating mlp")
    run(apart, *sequence)
    assert str(apart) == str(together)
    trail = progress.Trail.read(str(tmp_path / "doing"))
    assert trail == progress.Trail("propagating mlp", "", lowered=True)
    with pytest.raises(CompilerError):
        run(apart, "symbol-dce", "func.func(no-such-pass)")
    assert progress.Trail.read(str(tmp_path / "doing")).inside == "Shardy's pass no-such-pass"


def mlp():
    inspection = Inspection(resolve("mlp"), ["shardy"])
    module, _ = imported(inspection.lowered["shardy"], inspection.graph("shardy"))
    return module, propagation_of(module)


def test_apart_they_make_the_same_module():
    module, asked = mlp()
    apart = run_guarded(copy(module), *asked.passes)
    run(module, *asked.passes)
    assert apart.operation.get_asm(enable_debug_info=True) == module.operation.get_asm(
        enable_debug_info=True
    )


def test_what_shardy_refuses_is_said_alike_apart():
    module, _ = mlp()
    with pytest.raises(CompilerError) as here:
        run(module, "func.func(no-such-pass)")
    with pytest.raises(CompilerError) as apart:
        run_guarded(module, "func.func(no-such-pass)")
    assert apart.value.message == here.value.message


def test_a_crash_is_an_error_in_the_program_that_asked(monkeypatch):
    """Whichever pass it is in, the process goes on, and the next question is answered."""
    crashing = Worker("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    monkeypatch.setattr(passes, "_worker", crashing)
    with pytest.raises(CrashError, match=r"\(SIGSEGV\) in Shardy's pass \S+\.$"):
        Inspection(resolve("mlp"), ["shardy"]).propagated()
    monkeypatch.undo()
    assert Inspection(resolve("mlp"), ["shardy"]).propagated().counts


DECLARED = """
func.func private @elsewhere(tensor<8xf32>) -> tensor<8xf32>
func.func public @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %y = call @elsewhere(%x) : (tensor<8xf32>) -> tensor<8xf32>
  return %y : tensor<8xf32>
}
"""


def test_a_function_without_a_body_ends_no_process_of_the_users():
    """XLA's conversion dies of it, and so does Shardy (SIGSEGV, JAX 0.7 to 0.12)."""
    with pytest.raises(CompilerError):
        Inspection(read_bytes(DECLARED.encode())).propagated()


def test_xla_converts_alike_apart():
    module = Inspection(resolve("mlp"), ["shardy"]).lowered["shardy"].module
    file = io.BytesIO()
    module.operation.write_bytecode(file)
    assert passes.through_hlo_guarded(file.getvalue()) == through_hlo(file.getvalue())
    with pytest.raises(Exception, match="unknown") as here:
        through_hlo(b"no module")
    with pytest.raises(RuntimeError) as apart:
        passes.through_hlo_guarded(b"no module")
    assert str(apart.value) == str(here.value)


def test_the_pass_that_crashes_is_named():
    """With origins on Shardy crashes in the pass that looks for them, in versions to JAX 0.12."""
    mesh = compat.abstract_mesh(Mesh((MeshAxis("data", 4),)))
    inside = jax.shard_map(jnp.exp, mesh=mesh, in_specs=P("data"), out_specs=P("data"))
    loss = jax.grad(lambda x: jnp.sum(jax.checkpoint(inside)(x)))
    x = jax.ShapeDtypeStruct((64,), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    inspection = Inspection(Program("rematerialized", jax.jit(loss), (x,)), ["shardy"])
    module, _ = imported(inspection.lowered["shardy"], inspection.graph("shardy"))
    asked = propagation_of(module)
    try:
        run_guarded(module, *asked.explained)
    except CrashError as error:
        crash = error.message
    else:
        pytest.skip("Shardy does not crash on it")
    assert re.search(r"\(SIG\w+\) in Shardy's pass sdy-apply-sharding-constraints\.$", crash)


def test_where_there_can_be_no_process_they_run_here(monkeypatch):
    def refuse(request):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(passes._worker, "ask", refuse)
    assert Inspection(resolve("mlp"), ["shardy"]).propagated().counts


def test_a_process_of_sdyscope_s_own_asks_no_other(tmp_path, monkeypatch):
    def ask(request):
        raise AssertionError("asked")

    monkeypatch.setattr(passes._worker, "ask", ask)
    monkeypatch.setattr(progress, "_trail", [])
    progress.leave_trail(str(tmp_path / "doing"))
    assert Inspection(resolve("mlp"), ["shardy"]).propagated().counts


def test_what_shardy_leaves_need_not_verify(monkeypatch):
    """Shardy of JAX 0.7 sums over an axis that a dimension has; such a module can't be parsed."""
    monkeypatch.setattr(passes, "_run_apart", lambda bytecode, passes: b"not a module")
    assert Inspection(resolve("mlp"), ["shardy"]).propagated().counts
