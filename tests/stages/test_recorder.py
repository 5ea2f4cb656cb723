"""What hears of programs inside another program's Python."""

import functools
import json
import os
import subprocess
import sys
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax._src import core
from jax.sharding import PartitionSpec as P

from sdyscope.facts.program import Versions
from sdyscope.facts.recorded import RecordedCompile
from sdyscope.graph import build
from sdyscope.stages import recorder
from sdyscope.stages.lowered.read import read_bytes
from sdyscope.stages.recorder import hearing
from sdyscope.stages.recorder.keeping import Keeper


class Listener:
    def __init__(self, fails=False):
        self.fails, self.heard, self.problems = fails, [], []

    def lowered(self, event):
        if self.fails:
            raise RuntimeError("no luck\nat all")
        self.heard.append(event)

    def compiled(self, event):
        self.lowered(event)

    def problem(self, what):
        self.problems.append(what)


def function(x):
    return x * 2


@pytest.fixture
def listen():
    jax.clear_caches()
    added = []

    def start(listener):
        hearing.add(listener)
        added.append(listener)
        return listener

    yield start
    for listener in added:
        hearing.remove(listener)


@pytest.mark.compiles
def test_a_listener_that_fails_does_not_reach_the_program(listen):
    bad, good = listen(Listener(fails=True)), listen(Listener())
    assert float(jax.jit(function)(2.0)) == 4.0
    assert [type(event).__name__ for event in good.heard] == ["Lowering", "Compile"]
    assert bad.problems == [
        "A program that was lowered is not recorded: RuntimeError: no luck",
        "A program that was compiled is not recorded: RuntimeError: no luck",
    ]
    lowering, compiling = good.heard
    assert lowering.defined == (__file__, function.__code__.co_firstlineno)
    assert compiling.called[0] == __file__
    assert compiling.module is lowering.computation.stablehlo()


@pytest.mark.compiles
def test_the_order_of_the_devices_is_heard(listen):
    heard = listen(Listener()).heard
    devices = np.array(jax.devices()[:8])
    for order, runs in (
        (devices, [(0, 8, 1)]),
        (devices[::-1], [(7, 8, -1)]),
        (devices.reshape(4, 2).T.ravel(), [(0, 4, 2), (1, 4, 2)]),
    ):
        mesh = jax.sharding.Mesh(order, ("data",))
        rows = jax.sharding.NamedSharding(mesh, P("data"))
        jax.jit(function, out_shardings=rows).lower(np.ones(8, np.float32)).compile()
        assert heard[-1].device_runs == runs


@given(st.lists(st.integers(0, 40), max_size=20))
def test_runs_are_the_numbers(numbers):
    runs = hearing._runs(numbers)
    kept = RecordedCompile("", Versions(""), "cpu", (), None, device_runs=tuple(runs))
    assert kept.device_order == tuple(numbers)


class Doubling:
    def __call__(self, x):
        return x * 2


@pytest.mark.compiles
def test_an_object_and_a_partial_function_in_a_shard_map_have_their_line(listen):
    heard = listen(Listener()).heard
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    scaled = functools.partial(lambda scale, x: x * scale, 2.0)
    mapped = jax.shard_map(scaled, mesh=mesh, in_specs=P("data"), out_specs=P("data"))
    jax.jit(Doubling())(np.ones(8, np.float32))
    jax.jit(mapped).lower(np.ones(8, np.float32))
    lines = {event.defined for event in heard if isinstance(event, hearing.Lowering)}
    functions = (Doubling.__call__, scaled.func)
    assert lines == {(__file__, each.__code__.co_firstlineno) for each in functions}


@pytest.mark.compiles
def test_a_function_of_pmap_is_the_program_s(listen):
    if jax.__version_info__ < (0, 9, 2):
        pytest.skip("pmap lowers in a way of its own, or what JAX itself wraps")
    heard = listen(Listener()).heard
    jax.pmap(function)(jnp.ones((8, 2)))
    (mapped,) = [e for e in heard if isinstance(e, hearing.Lowering) and not e.by_jax]
    assert (mapped.caller.function, mapped.name) == ("function", "jit__fun")
    assert mapped.defined == (__file__, function.__code__.co_firstlineno)
    assert any(e.by_jax for e in heard if isinstance(e, hearing.Lowering))


def test_a_jax_without_the_functions_is_told():
    listener = Listener()
    hearing._wrap(types.ModuleType("jax._src.compiler"), listener)
    (problem,) = listener.problems
    assert problem.endswith("has no jax._src.compiler.compile_or_get_cached, which is listened to.")


@pytest.mark.compiles
def test_what_is_identical_is_kept_once(listen, tmp_path):
    listen(Keeper(str(tmp_path), both=True))
    array = jax.ShapeDtypeStruct((3,), jnp.float32)
    for _ in range(2):
        jax.jit(function).lower(array)
        jax.clear_caches()
    (file,) = (tmp_path / "processes").iterdir()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["line"] for line in lines] == ["process", "lowered", "lowered"]
    assert lines[1]["module"] == lines[2]["module"]
    assert list(lines[1]["others"]) == ["gspmd"]
    kept = {line["module"] for line in lines[1:]} | {lines[1]["others"]["gspmd"]}
    assert {path.stem for path in (tmp_path / "modules").iterdir()} == kept


@pytest.mark.compiles
def test_what_is_lowered_a_second_time_has_the_same_lines(listen, tmp_path):
    """JAX gives the boundaries of a shard_map the innermost line of the stack."""
    listen(Keeper(str(tmp_path), both=True))
    mesh = jax.make_mesh((2,), ("a",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("a")
    jax.jit(jax.shard_map(function, mesh=mesh, in_specs=spec, out_specs=spec))(jnp.ones(4))
    texts = [path.read_text() for path in (tmp_path / "modules").iterdir()]
    texts = [text for text in texts if "shard_map" in text]
    assert len(texts) == 2
    assert all(__file__ in text and "keeping.py" not in text for text in texts)


def test_the_program_s_own_sitecustomize_runs(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("print('mine')")
    path = os.pathsep.join((str(Path(recorder.__file__).parent), str(tmp_path)))
    environment = {**os.environ, "PYTHONPATH": path, "SDYSCOPE_RECORD_TO": str(tmp_path / "runs")}
    code = "import sys; print('jax' in sys.modules, [p for p in sys.path if 'recorder' in p])"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("mine\nFalse []\n", "")
    assert not (tmp_path / "runs").exists()


def test_the_calling_line_is_the_users(tmp_path):
    """A wrapper of an installed package, such as Equinox's, is no line of the program."""
    from sdyscope.stages.recorder import hearing

    wrapper = compile(
        "\n\ndef wrapped(function):\n    return function()",
        str(tmp_path / "lib" / "site-packages" / "package" / "jit.py"),
        "exec",
    )
    there = {}
    exec(wrapper, there)
    file, line = there["wrapped"](hearing.calling_line)
    assert file == __file__
    assert "hearing.calling_line" in Path(file).read_text().splitlines()[line - 1]


@pytest.mark.compiles
def test_a_program_with_refs_keeps_its_names(listen):
    """JAX knows none for what Refs are lowered to."""
    heard = listen(Listener()).heard
    new = getattr(getattr(jax, "ref", None), "new_ref", None) or core.mutable_array
    state, counter = {"unused": new(jnp.ones(2)), 'a "w"': new(jnp.ones(8))}, new(jnp.ones(()))

    @jax.jit
    def step(state, x):
        state['a "w"'][...] += x
        counter[...] += 1
        return {"loss": x.sum()}

    step.lower(state, jnp.ones(8))
    (event,) = (each for each in heard if getattr(each, "name", "") == "jit_step")
    text = hearing.named(hearing.module_text(event.computation.stablehlo()), {}, event.refs)
    main = build(read_bytes(text.encode()).module).main
    # JAX moves what a function closes over behind the others, and it has no path.
    assert [each.name for each in main.arguments] == ["state['a \"w\"']", "x", ""]
    assert [each.name for each in main.results][:2] == ["result['loss']", "result.state['a \"w\"']"]
