import subprocess
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import sdyscope
from sdyscope import inspect
from sdyscope.errors import CompilerError, TargetError
from sdyscope.values.mesh import Mesh
from sdyscope.words.sharding import placed_text
from tests.programs import AUTO, array


def row(inspection, name):
    return next(tensor for tensor in inspection.tensors.tensors if tensor.name == name)


def test_a_jitted_function_with_its_arguments():
    @jax.jit
    def predict(x, w):
        return jnp.tanh(x @ w["out"][0])

    inspection = inspect(predict, array((16, 8), "data"), {"out": [array((8, 4), None, "model")]})
    assert inspection.name == "predict"
    w = row(inspection, "w['out'][0]")
    assert str(w.requested.sharding) == "P(None, 'model')"
    assert w.lowered["shardy"].text == '<@mesh, [{}, {"model"}]>'
    assert w.lowered["gspmd"].text == "{devices=[1,2,4]<=[4,2]T(1,0) last_tile_dim_replicate}"
    assert inspection.check().passed
    assert inspection.diff().same


def test_paths_survive_all_that_jit_does_with_arguments():
    table = np.arange(8, dtype=np.float32)

    @partial(jax.jit, static_argnums=(1,), donate_argnums=(3,), keep_unused=False)
    def update(unused, power, nothing, state, *rest, scale):
        return [state["a"] ** power + table * scale, None, *rest]

    inspection = inspect(
        update,
        array((3,), "data"),
        2,
        None,
        {"a": array((8,), "data"), "b": None},
        array((2, 2), "model"),
        scale=array((8,), "model"),
    )
    arguments = [t for t in inspection.tensors.tensors if t.kind == "argument"]
    assert [(t.path, t.requested.dropped, t.requested.donated) for t in arguments] == [
        ("unused", True, False),
        ("state['a']", False, True),
        ("rest[0]", False, False),
        ("scale", False, False),
    ]
    for tensor in arguments[1:]:
        for annotation in tensor.lowered.values():
            assert annotation.path == tensor.path
            assert annotation.shape == tensor.shape
    assert arguments[0].lowered == {}
    assert [f.rule for f in inspection.check().findings] == ["argument-dropped"]


def test_concrete_arrays_need_no_abstract_mesh():
    mesh = jax.make_mesh((4, 2), ("data", "model"))
    x = jax.device_put(jnp.ones((8, 4)), NamedSharding(mesh, P("data", "model")))
    inspection = inspect(jax.jit(lambda x: x * 2), x)
    assert row(inspection, "x").lowered["gspmd"].text == "{devices=[4,2]<=[8]}"
    assert inspection.check().passed


def test_one_partitioner():
    inspection = inspect(jax.jit(lambda x: x), array((8,), "data"), partitioners=("gspmd",))
    assert list(inspection.lowered) == ["gspmd"]
    with pytest.raises(TargetError, match="nothing to compare it with"):
        inspection.diff()


@pytest.mark.parametrize("partitioners", [("shardy", "gspmd"), ("gspmd",)])
def test_meshes_by_name_under_gspmd_too(partitioners):
    inspection = inspect(jax.jit(jnp.sin), array((8,), "data"), partitioners=partitioners)
    assert inspection.meshes == {"mesh": Mesh.of({"data": 4, "model": 2})}
    assert inspection.file is None


def test_two_programs():
    inspection = inspect(jax.jit(lambda x: x + 1), array((8, 8), "data"), name="one")
    two = inspect(jax.jit(lambda x: x + 1), array((8, 8), "data", "model"), name="two")
    (difference,) = inspection.diff(two).tensors
    assert (difference.tensor, difference.what) == ("x", ("placement",))
    assert [placed_text(side.sharding) for side in (difference.a, difference.b)] == [
        "dim 0 split 4 ways over data, dim 1 whole; replicated 2 times over model",
        "dim 0 split 4 ways over data, dim 1 split 2 ways over model",
    ]


def test_what_a_partitioner_cannot_lower_is_a_result():
    explicit = AbstractMesh((4, 2), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)
    w = jax.ShapeDtypeStruct((8, 8), jnp.float32, sharding=NamedSharding(explicit, P("data")))
    out = NamedSharding(explicit, P(None, None, unreduced={"data"}))

    @jax.jit
    def product(w):
        return jnp.einsum("ij,ik->jk", w, w, out_sharding=out)

    inspection = inspect(product, w)
    if jax.__version_info__ < (0, 8, 3):  # Explicit axes needed real devices
        with pytest.raises(CompilerError, match="Length of device assignment"):
            inspection.check()
        return
    check = inspection.check()
    if jax.__version_info__ < (0, 10):  # GSPMD could say unreduced
        assert check.passed
        assert list(inspection.lowered) == ["shardy", "gspmd"]
        return
    assert list(inspection.lowered) == ["shardy"]
    assert isinstance(inspection.failures["gspmd"], CompilerError)
    assert [f.rule for f in check.findings if f.partitioner == "gspmd"] == ["not-lowerable"]
    assert check.passed
    snapshot = inspection.snapshot()
    assert snapshot.partitioners == ("shardy",)
    assert {entry.name for entry in snapshot.tensors} >= {"w", "result"}
    assert snapshot.account == inspection.account
    assert [(unknown.kind, unknown.stage) for unknown in snapshot.account.unknowns] == [
        ("refused", "lowered")
    ]
    assert list(snapshot.account.refused) == ["gspmd"]


def test_a_program_that_does_not_trace_says_where():
    @jax.jit
    def wrong(x):
        return x @ x.T @ x.T

    with pytest.raises(CompilerError, match=r"test_inspection.py:\d+: wrong can't be traced"):
        inspect(wrong, array((8, 4), "data")).check()


def test_a_program_is_traced_within_what_is_set_around_it():
    """Flax and others leave their constraints out where no mesh is set, and say nothing."""

    @jax.jit
    def step(x):
        set_mesh = jax.sharding.get_abstract_mesh()
        sharding = NamedSharding(AUTO, P("data"))
        return jax.lax.with_sharding_constraint(x, sharding) if set_mesh.axis_names else x

    x = jax.ShapeDtypeStruct((8, 8), jnp.float32)
    with jax.sharding.use_abstract_mesh(AUTO):
        inspection = inspect(step, x)
    assert [asked.kind for asked in inspection.requested] == ["argument", "result", "constraint"]


class _Trainer:
    """What is jitted may be a method, which JAX's own `lower` does not bind."""

    @partial(jax.jit, static_argnums=0)
    def step(self, params, x):
        return params * x


@pytest.mark.parametrize("bound", [lambda fun, w: fun, lambda fun, w: partial(fun, w)])
def test_a_jitted_method_and_a_partial_of_it_take_what_is_left(bound):
    w, x = array((8, 8), "data"), array((8, 8), None, "model")
    fun = bound(_Trainer().step, w)
    inspection = inspect(fun, x) if isinstance(fun, partial) else inspect(fun, w, x)
    arguments = [asked for asked in inspection.requested if asked.kind == "argument"]
    assert [(asked.path, str(asked.sharding)) for asked in arguments] == [
        ("params", "P('data')"),
        ("x", "P(None, 'model')"),
    ]
    program = sdyscope.Program("step", fun, (x,), inputs=lambda: (("of x",), {}))
    assert program.inputs()[0][-1] == "of x"
    assert len(program.inputs()[0]) == len(program.args)


def test_importing_is_quick_and_everything_public_is_there():
    code = (
        "import sys, sdyscope; print([m for m in ('jax', 'networkx', 'lark') if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"
    for name in sdyscope.__all__:
        assert getattr(sdyscope, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        sdyscope.nothing  # noqa: B018


def test_sdyscope_is_not_the_source_of_anything():
    """What JAX writes on its own account is located at the innermost frame that is a user's."""

    @jax.jit
    def split(key):
        return jax.random.split(key)

    key = jax.eval_shape(lambda: jax.random.key(0))
    for annotation in inspect(split, key).annotations("shardy"):
        assert annotation.source is None or annotation.source.file == __file__


def test_a_module_in_a_file(tmp_path):
    path = tmp_path / "step.mlir"
    path.write_text(inspect(jax.jit(lambda x: x + 1), array((8,), "data")).lowered["gspmd"].text())
    found = sdyscope.read(path)
    assert found.partitioners == ("gspmd",)
    assert found.file == str(path)
    assert row(found, "x").requested is None
    assert row(found, "x").lowered["gspmd"].placement.shards == (4,)
    assert found.check().passed


def test_damaged_bytecode_does_not_take_the_process_down(tmp_path):
    whole = inspect(jax.jit(jnp.sin), array((8,), "data")).lowered["shardy"].bytecode()
    path = tmp_path / "step.mlirbc"
    messages = []
    for position in range(40, len(whole), len(whole) // 4):
        path.write_bytes(whole[:position] + b"\xff\x7f" + whole[position + 2 :])
        try:
            sdyscope.read(path)  # damage in a name may go unnoticed
        except sdyscope.SdyscopeError as error:
            messages.append(str(error))
    assert messages
    assert all("step.mlirbc" in message for message in messages)


def test_a_propagation_is_made_once_and_so_is_its_failure(tmp_path):
    def step(x, w):
        return jnp.tanh(x @ w)

    arguments = (array((16, 8), "data"), array((8, 4), None, "model"))
    inspection = inspect(jax.jit(step), *arguments, partitioners=("shardy",))
    propagated = inspection.propagated()
    assert inspection.propagated("shardy") is propagated
    assert propagated.exactness == "exact"
    assert inspection.propagated(conservative=True) is not propagated
    (explanation,) = inspection.explain("step/dot_general")
    assert [chain.beginning.name for chain in explanation.chains] == ["x", "w"]
    with pytest.raises(TargetError, match="Conservative propagation is Shardy's"):
        inspection.propagated(by_xla=True, conservative=True)

    path = tmp_path / "gspmd.mlir"
    path.write_text(
        inspect(jax.jit(step), *arguments, partitioners=("gspmd",)).lowered["gspmd"].text()
    )
    # More partitions than XLA's CPU client takes.
    path.write_text(
        path.read_text().replace("mhlo.num_partitions = 8", "mhlo.num_partitions = 4096")
    )
    read = sdyscope.read(path)
    errors = []
    for _ in range(2):
        with pytest.raises(CompilerError, match="at most 2,048 CPU devices") as error:
            read.propagated()
        errors.append(error.value)
    assert errors[0] is errors[1]


def test_what_cannot_be_lowered_is_called_by_the_programs_name():
    inspection = inspect(jax.jit(lambda x: x), array((6, 4), "data"), name="train")
    with pytest.raises(CompilerError, match=r"^train can't be lowered under Shardy"):
        inspection.check()


def test_under_some_partitioners_nothing_is_done_again():
    both = inspect(jax.jit(jnp.tanh), array((16, 8), "data"))
    early = both.under(["shardy"])
    assert early.partitioners == tuple(early.lowered) == ("shardy",)
    assert early.traced is both.traced
    graph = both.graph("gspmd")
    late = both.under(["gspmd"])
    assert late.partitioners == ("gspmd",)
    assert late.graph() is graph
    assert late.lowered["gspmd"] is both.lowered["gspmd"]
    assert both.under(["gspmd", "shardy"]) is both
