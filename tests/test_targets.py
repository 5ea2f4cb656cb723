"""What a word on the command line names."""

import subprocess
import sys
import textwrap
from pathlib import Path

import jax
import pytest
from jax.sharding import AbstractMesh
from jax.sharding import Mesh as JaxMesh
from own_process import in_own_process

from sdyscope.errors import SdyscopeError, TargetError
from sdyscope.facts.program import Program
from sdyscope.inspection import Inspection
from sdyscope.stages.lowered.lower import NotLowerable, lower
from sdyscope.targets import function_of, reference_models, resolve, resolve_program
from sdyscope.values.mesh import Mesh

USER_FILE = """
from dataclasses import dataclass, field
import jax, jax.numpy as jnp
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec as P
from helper import WIDTH
from sdyscope.facts.program import Program

jitted = jax.jit(lambda x: x + 1)
ready = Program("ready", jitted, (jnp.ones(3),))
traced = jitted.trace(jnp.ones(3))
lowered = traced.lower()
number = 3

def built(mesh, rows: int = 16, kind=None):
    shape = jax.ShapeDtypeStruct((rows, WIDTH), jnp.float32, sharding=NamedSharding(mesh, P("a")))
    return Program("built", jitted, (shape,), mesh=mesh, settings={"rows": rows})

def simple():
    return traced

def wants(rows):
    return ready

def fails():
    raise KeyError("gone")

def returns_nothing(): pass

def returns_a_stage_of_flax(): return type("Traced", (), {"__module__": "flax.nnx.compilation"})()

class Holder:
    program = ready

@dataclass(frozen=True)
class Settings:
    rows: int = field(default=8, metadata={"help": "rows"})

MESH = {"a": 2}

def program(mesh, settings: Settings):
    return built(mesh, settings.rows)
"""


@pytest.fixture
def user(tmp_path, monkeypatch):
    (tmp_path / "user_programs.py").write_text(USER_FILE)
    (tmp_path / "helper.py").write_text("WIDTH = 4\n")
    monkeypatch.setattr(sys, "path", sys.path[:])
    for name in ("user_programs", "helper"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return f"{tmp_path}/user_programs.py"


def sizes(program):
    return dict(program.mesh.shape)


# --- reference models -----------------------------------------------------------------------------


def test_reference_models_are_listed():
    models = {model.name: model for model in reference_models()}
    assert {"mlp", "fsdp-transformer"} <= set(models)
    assert models["mlp"].mesh == {"data": 4, "model": 2}
    for model in models.values():
        assert model.summary.endswith(".")
        assert all(setting.help for setting in model.settings)


@pytest.mark.parametrize("word", ["fsdp-transformer", "fsdp_transformer"])
def test_reference_models_by_name(word):
    program = resolve(word)
    assert isinstance(program, Program)
    assert isinstance(program.mesh, AbstractMesh)
    assert sizes(program) == {"fsdp": 4, "model": 2}


def test_mesh_and_settings():
    program = resolve("mlp", mesh={"data": 2, "model": 8}, settings={"layers": "3"})
    assert sizes(program) == {"data": 2, "model": 8}
    assert program.settings["layers"] == 3
    same = resolve("mlp", mesh=Mesh.of({"data": 2, "model": 8}), settings={"layers": 3})
    assert same.settings == program.settings


def test_a_program_is_never_a_file_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mlp").mkdir()
    assert resolve("mlp") == Path("mlp")
    assert sizes(resolve_program("mlp", mesh={"data": 2, "model": 8})) == {"data": 2, "model": 8}


def test_real_devices():
    program = resolve("mlp", devices=jax.devices())
    assert isinstance(program.mesh, JaxMesh)
    assert program.mesh.devices.shape == (4, 2)
    with pytest.raises(SdyscopeError, match="16 devices, and there are 8"):
        resolve("mlp", mesh={"data": 16}, devices=jax.devices())


def test_axes_that_a_model_does_not_need_are_fine():
    assert sizes(resolve("fsdp-transformer", mesh={"seq": 8, "fsdp": 4})) == {"seq": 8, "fsdp": 4}


@pytest.mark.parametrize(
    ("word", "given", "message"),
    [
        ("mlp", {"settings": {"layer": "3"}}, "mlp has no setting 'layer'."),
        ("mlp", {"settings": {"layers": "x"}}, "layers=x of mlp must be a whole number."),
        ("mlp", {"settings": {"optimizer": "adam"}}, "optimizer=adam of mlp must be adamw or sgd"),
        ("mlp", {"mesh": {"dta": 4, "model": 2}}, "mlp does not use the mesh axis 'dta'."),
        ("mlp", {"mesh": {"fsdp": 8}}, "mlp uses none of the axes of the mesh fsdp=8."),
        ("mpl", {}, "'mpl' is not a reference model, a file or a module:name."),
    ],
)
def test_wrong_words_for_reference_models(word, given, message):
    with pytest.raises(TargetError) as caught:
        resolve(word, **given)
    assert caught.value.message.startswith(message)
    assert caught.value.hint


@pytest.mark.parametrize("use", ["mesh.devices", "mesh.__enter__()"])
def test_what_only_a_mesh_of_devices_has_is_said_to_need_one(tmp_path, use):
    file = tmp_path / f"abstract_{len(use)}.py"
    file.write_text(
        "import jax, sdyscope\n"
        f"def build(mesh):\n    {use}\n"
        f"def traced(mesh):\n    return sdyscope.Program('f', jax.jit(lambda x: {use}), (1.0,))\n"
    )
    mesh = {"data": 4, "model": 2}
    hint = "jax.make_mesh(mesh.axis_sizes, mesh.axis_names)"
    with pytest.raises(TargetError) as caught:
        resolve(f"{file}:build", mesh=mesh)
    assert hint in caught.value.hint
    assert caught.value.line == 3
    with pytest.raises(NotLowerable) as refused:
        _ = Inspection(resolve(f"{file}:traced", mesh=mesh)).lowered
    assert hint in refused.value.hint


def test_suggestions():
    with pytest.raises(TargetError, match="Did you mean mlp"):
        resolve("mpl")
    with pytest.raises(TargetError, match="Did you mean 'data'"):
        resolve("mlp", mesh={"dta": 4, "model": 2})
    with pytest.raises(TargetError, match=r"The reference models are .*fsdp-transformer, .*mlp, "):
        resolve("xyzzy")


# --- Python objects -------------------------------------------------------------------------------


def test_objects_in_a_file(user):
    assert resolve(f"{user}:ready").name == "ready"
    assert resolve(f"{user}:Holder.program").name == "ready"
    assert isinstance(resolve(f"{user}:traced").fun, jax.stages.Traced)
    assert isinstance(resolve(f"{user}:lowered").fun, jax.stages.Lowered)
    assert isinstance(resolve(f"{user}:simple").fun, jax.stages.Traced)
    for name in ("ready", "traced", "lowered", "simple"):
        assert lower(resolve(f"{user}:{name}"), "shardy").written_for == "none"


def test_a_module_from_the_current_directory(user, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert resolve("user_programs:ready").name == "ready"


def test_a_function_that_takes_mesh_and_settings(user):
    program = resolve(f"{user}:built", mesh={"a": 4}, settings={"rows": "8", "kind": "x"})
    assert sizes(program) == {"a": 4}
    assert program.args[0].shape == (8, 4)


def test_a_file_that_looks_like_a_reference_model(user):
    assert sizes(resolve(f"{user}:program")) == {"a": 2}
    program = resolve(f"{user}:program", mesh={"a": 8}, settings={"rows": "24"})
    assert (sizes(program), program.args[0].shape) == ({"a": 8}, (24, 4))


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("jitted", {}, "is a jitted function, and its arguments are not known."),
        ("number", {}, "is an int, not a sdyscope.Program."),
        ("redy", {}, "user_programs has no 'redy'."),
        ("ready", {"mesh": {"a": 2}}, "is a finished Program: --mesh can't change it."),
        ("ready", {"settings": {"n": "2"}}, "is a finished Program: --set can't change it."),
        ("simple", {"mesh": {"a": 2}}, "takes no mesh, so --mesh can't change it."),
        ("simple", {"settings": {"n": "2"}}, "has no setting 'n'."),
        ("wants", {}, "needs a value for rows."),
        ("fails", {}, "can't be built: KeyError: 'gone'"),
        ("returns_nothing", {}, "returns_nothing returned None, not a sdyscope.Program."),
        ("returns_a_stage_of_flax", {}, "returned a Traced of flax, not a sdyscope.Program."),
        ("built", {"mesh": {"b": 2}}, "can't be built on the mesh b=2: ValueError: "),
        ("built", {"mesh": {"a": 2}, "settings": {"rows": "x"}}, "must be a whole number."),
    ],
)
def test_wrong_words_for_objects(user, name, given, message):
    with pytest.raises(TargetError) as caught:
        resolve(f"{user}:{name}", **given)
    assert message in caught.value.message


@pytest.mark.parametrize("name", ["jitted", "wants"])
def test_what_is_no_program_can_be_recorded(user, name):
    with pytest.raises(TargetError) as caught:
        resolve(f"{user}:{name}")
    assert caught.value.hint.endswith(f"Or record what it compiles: sdyscope record {user}")


@pytest.mark.parametrize(
    ("text", "name"),
    [("import numpy as nop\n", "nope"), ("from sdyscope import Program\n", "program")],
)
def test_neither_a_module_nor_a_class_is_a_guess_for_a_program(tmp_path, text, name):
    path = tmp_path / f"step_of_{name}.py"
    path.write_text(text)
    with pytest.raises(TargetError, match=f"has no '{name}'") as caught:
        resolve(f"{path}:{name}")
    assert "Did you mean" not in caught.value.hint


def test_the_line_in_the_users_file_is_named(user):
    with pytest.raises(TargetError) as caught:
        resolve(f"{user}:fails")
    assert caught.value.file == user
    assert USER_FILE.splitlines()[caught.value.line - 1] == '    raise KeyError("gone")'


def test_a_file_named_like_a_module(tmp_path, monkeypatch):
    import json

    monkeypatch.setattr(sys, "path", sys.path[:])
    (tmp_path / "json.py").write_text("from sdyscope import Program\np = Program('j', 0)")
    with pytest.raises(TargetError, match="is an int, not a jitted one"):
        lower(resolve(f"{tmp_path}/json.py:p"), "shardy")
    assert sys.modules["json"] is json


OWN_MESH = """
import jax, jax.numpy as jnp
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec as P
from sdyscope.facts.program import Program

MESH = AbstractMesh((4,), ("data",))

def own(mesh=None):
    x = jax.ShapeDtypeStruct((8,), jnp.float32, sharding=NamedSharding(MESH, P("data")))
    return Program("own", jax.jit(lambda x: x + 1), (x,))
"""


def test_a_program_that_stays_on_a_mesh_of_its_own_is_told_of(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path[:])
    (tmp_path / "own_mesh.py").write_text(OWN_MESH)
    word = f"{tmp_path}/own_mesh.py:own"
    assert resolve(word).name == "own"
    with pytest.raises(TargetError, match="over 4 devices, also on the mesh data=2"):
        resolve(word, mesh={"data": 2})


def test_a_mesh_is_needed(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path[:])
    (tmp_path / "needy.py").write_text("def program(mesh): ...\n")
    with pytest.raises(TargetError, match="needs a mesh"):
        resolve(f"{tmp_path}/needy.py:program")


@pytest.mark.parametrize(
    ("code", "line", "message"),
    [
        ("x = 1\n1 / 0\n", 2, "ZeroDivisionError: division by zero"),
        ("def f(:\n", 1, "SyntaxError: "),
        ("import not_there_at_all\n", 1, "ModuleNotFoundError: "),
        ("import sys\nsys.exit(3)\n", 2, "SystemExit: 3"),
    ],
)
def test_files_that_can_not_be_imported(code, line, message, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path[:])
    path = tmp_path / "broken_file.py"
    path.write_text(code)
    with pytest.raises(TargetError) as caught:
        resolve(f"{path}:x")
    assert (caught.value.file, caught.value.line) == (str(path), line)
    assert message in caught.value.message


@pytest.mark.parametrize("word", ["not_there_at_all:x", "json.not_there:x", "not.there:x"])
def test_modules_that_are_not_there(word):
    with pytest.raises(TargetError, match="There is no module"):
        resolve(word)


# --- files ----------------------------------------------------------------------------------------


def test_files_and_directories(tmp_path):
    path = tmp_path / "a:b.mlir"
    path.write_text("module {}")
    assert resolve(str(path)) == path
    assert resolve(str(tmp_path)) == tmp_path
    for option, given in (("--mesh", {"mesh": {"a": 2}}), ("--set", {"settings": {"n": "1"}})):
        with pytest.raises(TargetError, match=f"{option} can't change a module"):
            resolve(str(path), **given)


@pytest.mark.parametrize("word", ["gone.mlir", "some/where", "gone.py", "./x.hlo"])
def test_files_that_are_not_there(word):
    with pytest.raises(TargetError) as caught:
        resolve(word)
    assert str(caught.value) == f"{word}: There is no such file or directory."


def test_a_python_file_needs_a_name(user):
    with pytest.raises(TargetError, match="needs the name of a program in it") as caught:
        resolve(user)
    assert caught.value.hint == (
        f"Write {user}:ready, or another of its programs: "
        "traced, lowered, built, simple, wants, program."
    )


def test_the_programs_that_a_file_is_seen_to_have_are_named(tmp_path):
    path = tmp_path / "steps.py"
    path.write_text(
        "import gone\n"
        "def train(mesh):\n    return gone.Program('step', f)\n"
        "def helper():\n    return 1\n"
        "def _private():\n    return Program('p', f)\n"
        "def lowered():\n    if gone:\n        return f.lower(1)\n    return None\n"
        "step = Program('step', f)\n"
        "traced = f.trace(2)\n"
        "other = train(2)\n"
        "declared: Program = Program('d', f)\n"
        "MODE = gone.environ.get('MODE', 'Fast').lower()\n"
        "trace = gone.eye(3).trace()\n"
        "MAKE = Program\n"
        "def outer():\n    def inner():\n        return Program('i', f)\n    return 1\n"
    )
    with pytest.raises(TargetError) as caught:
        resolve(str(path))
    others = "lowered, step, traced, other, declared"
    assert caught.value.hint == f"Write {path}:train, or another of its programs: {others}."
    path.write_text("from sdyscope import Program\ndef step():\n    return Program('s', str)\n")
    with pytest.raises(TargetError) as caught:
        resolve(str(path))
    assert caught.value.hint == f"Write {path}:step."
    with pytest.raises(TargetError, match="has no 'else'") as caught:
        resolve(f"{path}:else")
    assert caught.value.hint == "Programs in it: step."
    for unread in ("def broken(:\n", f"y = {'-' * 100_000}1\n"):
        path.write_text(unread)
        with pytest.raises(TargetError, match="needs the name of a program") as caught:
            resolve(str(path))
        assert caught.value.hint.startswith(f"Write {path}:name. Name a sdyscope.Program")


def test_files_need_no_jax(tmp_path):
    (tmp_path / "a.mlir").write_text("module {}")
    code = f"""
    import sys
    from sdyscope.targets import resolve
    resolve({str(tmp_path / "a.mlir")!r})
    assert "jax" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


def test_functions(user):
    function = function_of(f"{user}:program")
    assert (callable(function), function.__name__) == (True, "program")
    for name, said in ((f"{user}:nothing", "has no 'nothing'"), ("function", "names no function")):
        with pytest.raises(TargetError, match=said):
            function_of(name)


@pytest.mark.parametrize("words", [("show", "mlp"), ("show", "own.py:program")])
def test_devices_that_jax_can_not_start_are_said(tmp_path, words):
    (tmp_path / "own.py").write_text(
        "import jax, sdyscope\n"
        "def program():\n"
        "    return sdyscope.Program('f', jax.jit(abs), (1.0,))\n"
    )
    done = in_own_process(*words, cwd=tmp_path, JAX_PLATFORMS="rocm")
    assert done.returncode == 2
    assert "JAX can't start its devices with JAX_PLATFORMS=rocm: unset it, or" in done.stderr
