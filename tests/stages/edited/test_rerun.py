"""A script that is run again, up to where JAX lowers one of its programs."""

import gc
import os
import signal
import subprocess
import sys
import threading

import jax
import own_process
import pytest
from own_process import environment

from sdyscope.errors import TargetError
from sdyscope.process.scripts import script_of
from sdyscope.staged import Staged
from sdyscope.stages.edited.overlay import overlaid
from sdyscope.stages.edited.rerun import Rerun, ScriptProgram

MODEL = """
import jax
from jax.sharding import PartitionSpec as P

SPEC = P("data")
made = 0

@jax.jit
def step(w, x):
    return jax.lax.with_sharding_constraint(x @ w, SPEC)
"""

TRAIN = """
import os, sys
import jax, jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
import rerun_model

jax.config.update("jax_num_cpu_devices", len(jax.devices()))
os.environ["RERUN"] = "1"
assert sys.argv[1:] == ["--steps", "2"], sys.argv
rerun_model.made += 1
assert rerun_model.made == 1  # imported anew

mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
jax.set_mesh(mesh)
w = jax.device_put(jnp.ones((8, 16)), P(None, "model"))
for rows, spec in ((8, P("data")), (16, P("data")), (16, P("model"))):
    print(rerun_model.step(w, jax.device_put(jnp.ones((rows, 8)), spec)).sum())
open("went_on", "w").close()
"""


pytestmark = pytest.mark.usefixtures("others_frozen")


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Makes a script of a text, and how it was started."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "rerun_model.py").write_text(MODEL)

    def made(text=TRAIN):
        (tmp_path / "train.py").write_text(text)
        return script_of(["python", "train.py", "--steps", "2"], tmp_path)

    yield made
    sys.modules.pop("rerun_model", None)


def wanted(rows, number=0):
    types = ("f32[8,16]", f"f32[{rows},8]")
    return ScriptProgram("step", f"step ({', '.join(types)})", "jit_step", types, number)


def shardings(program):
    """Those of the arguments and the constraint; JAX versions differ in how they end."""
    return [
        str(asked.sharding.spec).replace(", None)", ")")
        for asked in Staged(program, ("shardy",)).requested
        if asked.kind in ("argument", "constraint")
    ]


@pytest.mark.parametrize(
    ("rows", "number", "batch"),
    [(8, 0, "P('data')"), (16, 0, "P('data')"), (16, 1, "P('model')")],
)
def test_the_program_is_what_the_script_lowers(script, tmp_path, capsys, rows, number, batch):
    before = sys.argv, os.getcwd(), sys.modules["__main__"], jax.config.update
    rerun = Rerun(script(), wanted(rows, number))
    for _ in range(2):
        program = rerun()
        assert program.name == "step"
        assert shardings(program) == ["P(None, 'model')", batch, "P('data')"]
        assert (sys.argv, os.getcwd(), sys.modules["__main__"], jax.config.update) == before
        assert "RERUN" not in os.environ
        assert "rerun_model" not in sys.modules
        assert not jax.sharding.get_abstract_mesh().axis_names
    assert rerun.count == 2
    assert not (tmp_path / "went_on").exists()
    assert capsys.readouterr() == ("", "")


def test_edited_text_is_what_runs(script, tmp_path):
    rerun = Rerun(script(), wanted(8))
    edits = {
        "rerun_model.py": (MODEL, 'SPEC = P("data")', 'SPEC = P(None, "data")'),
        "train.py": (TRAIN, '(8, P("data"))', '(8, P("model"))'),
    }
    texts = {
        str(tmp_path / name): text.replace(before, after)
        for name, (text, before, after) in edits.items()
    }
    with overlaid(texts):
        assert shardings(rerun())[1:] == ["P('model')", "P(None, 'data')"]
    assert shardings(rerun())[1:] == ["P('data')", "P('data')"]
    assert (tmp_path / "train.py").read_text() == TRAIN


def test_a_package_is_run_as_its_module(script, tmp_path):
    script()
    (tmp_path / "rerun_package").mkdir()
    (tmp_path / "rerun_package" / "__main__.py").write_text(TRAIN)
    started = script_of(["python", "-m", "rerun_package", "--steps", "2"], tmp_path)
    rerun = Rerun(started, wanted(16, 1))
    assert shardings(rerun())[1] == "P('model')"
    file = str(tmp_path / "rerun_package" / "__main__.py")
    with overlaid({file: TRAIN.replace('(None, "model")', '("model")')}):
        assert shardings(rerun())[0] == "P('model')"


CALL = "rerun_model.step(jnp.ones((8, 16)), jnp.ones((8, 8)))"


@pytest.mark.parametrize(
    "around",
    [
        f"try:\n    {CALL}\nexcept Exception:\n    pass\n",
        f"try:\n    {CALL}\nexcept BaseException:\n    raise ValueError\n",
        # JAX's context is a thread's own.
        f"""
import threading
def called():
    with jax.set_mesh(mesh):
        {CALL}
running = threading.Thread(target=called)
running.start()
running.join()
""",
    ],
)
def test_what_the_script_does_about_its_end_does_not_matter(script, monkeypatch, around):
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    text = TRAIN[: TRAIN.index("w = ")] + around
    assert Rerun(script(text), wanted(8))().name == "step"


@pytest.mark.parametrize(
    ("instead", "said"),
    [
        ("sys.exit(3)", "`train.py --steps 2` ended with exit status 3, and JAX has not lowered"),
        ("sys.exit()", "`train.py --steps 2` ended, and JAX has not lowered step (f32[8,16], "),
        ("1 / 0", "`train.py --steps 2` fails before JAX lowers step: ZeroDivisionError"),
        ("import no_such_module", "Install no_such_module where sdyscope is installed, or set"),
        ("jax.jit(lambda x, y: x)(1, 2); sys.exit()", "It lowered _lambda"),
    ],
)
def test_a_script_that_does_not_come_to_it(script, tmp_path, instead, said):
    text = TRAIN[: TRAIN.index("w = ")] + instead + "\n"
    with pytest.raises(TargetError) as error:
        Rerun(script(text), wanted(8))()
    assert said in str(error.value)
    assert error.value.file == str(tmp_path / "train.py")
    fails = instead.startswith(("1", "import"))
    assert error.value.line == (text.count("\n") if fails else None)
    assert os.getcwd() != str(tmp_path)


def test_flags_of_xla_that_a_script_sets_for_gpus_do_not_end_the_process(script, tmp_path):
    made = script('import os\nos.environ["XLA_FLAGS"] = "--xla_of_gpus=1"\n' + TRAIN)
    code = (
        "from sdyscope.stages.edited.rerun import Rerun, ScriptProgram\n"
        "from sdyscope.process.scripts import PythonScript\n"
        f"print(Rerun({made!r}, {wanted(8)!r})().name)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={**environment(JAX_NUM_CPU_DEVICES="8"), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stdout) == (0, "step\n"), ran.stderr


def test_flags_are_defined_anew(script):
    flags = pytest.importorskip("absl.flags")
    text = TRAIN.replace(
        "import rerun_model\n",
        'import rerun_model\nfrom absl import flags\nflags.DEFINE_integer("rerun_steps", 1, "")\n',
    )
    rerun = Rerun(script(text), wanted(8))
    for _ in range(2):
        assert rerun().name == "step"
        assert "rerun_steps" not in flags.FLAGS


def test_a_folder_that_is_gone(script, tmp_path):
    started = script_of(["python", "train.py"], tmp_path / "gone")
    with pytest.raises(TargetError, match=r"can't be entered: No such file"):
        Rerun(started, wanted(8))()


def test_what_a_run_left_is_gone_at_the_next(script):
    # As its compiled programs are left, with traces that refer to each other.
    text = TRAIN.replace(
        "import rerun_model\n",
        "import rerun_model, own_process, weakref\n"
        "class Left: pass\n"
        "left = Left()\n"
        "left.itself = left\n"
        "own_process.left.append(weakref.ref(left))\n",
    )
    own_process.left = []
    rerun = Rerun(script(text), wanted(8))
    gc.collect()
    gc.disable()
    try:
        for _ in range(2):
            rerun()
        first, second = own_process.left
        assert (first(), second() is None) == (None, False)
    finally:
        gc.enable()
        del own_process.left


@pytest.mark.parametrize("catching", [False, True])
def test_a_script_that_waits_is_stopped(script, monkeypatch, catching):
    monkeypatch.setattr("sdyscope.stages.edited.rerun._AGAIN", 0.05)
    wait = "while True: time.sleep(60)\n"
    if catching:
        wait = f"try:\n    time.sleep(60)\nexcept BaseException:\n    pass\n{wait}"
    text = TRAIN.replace("import rerun_model\n", f"import rerun_model, time\n{wait}")
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(TargetError, match=r"was stopped after 0 s, and JAX has not lowered step"):
        Rerun(script(text), wanted(8), limit=0.1)()
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert signal.getsignal(signal.SIGALRM) == before
