"""Environments are made once and kept; a half-made one is made again. No index is asked."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from sdyscope.environments.environment import Environment, Maker, existing, kept_releases
from sdyscope.environments.linked import linked
from sdyscope.environments.releases import Release
from sdyscope.environments.requirements import Requirements
from sdyscope.errors import TargetError
from sdyscope.facts.program import Versions

RELEASE = Release("0.10.2", sys.version_info[:2])

#: Makes a folder whose Python is this one, and a line for each time that it was made.
CREATE = """
import os, sys
folder, log, python = sys.argv[1:]
os.makedirs(os.path.join(folder, "bin"))
path = os.path.join(folder, "bin", "python")
with open(path, "w") as file:
    file.write(f'#!/bin/sh\\nexec {python} "$@"\\n')
os.chmod(path, 0o755)
with open(log, "a") as file:
    file.write("made\\n")
"""


@dataclass(frozen=True)
class FakeTools:
    """What makes environments without an index."""

    log: Path
    fails: str = ""
    sleeps: float = 0.0

    @property
    def pythons(self):
        return {}

    def create(self, folder, python):
        return [sys.executable, "-c", CREATE, str(folder), str(self.log), sys.executable]

    def install(self, folder, words):
        code = f"import sys, time; time.sleep({self.sleeps}); print({self.fails!r})"
        return [sys.executable, "-c", f"{code}; sys.exit({int(bool(self.fails))})"]


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def made(log):
    return log.read_text().count("made") if log.exists() else 0


def test_an_environment_is_made_once_and_has_its_versions(tmp_path):
    maker = Maker(FakeTools(tmp_path / "log"))
    first = maker.make(RELEASE, Requirements())
    second = maker.make(RELEASE, Requirements())
    assert (first.is_new, second.is_new, made(tmp_path / "log")) == (True, False, 1)
    assert first.python_version[:2] == sys.version_info[:2]
    assert first.versions.jax == first.packages["jax"]
    assert kept_releases() == {RELEASE}
    # Other requirements are another one.
    assert maker.make(RELEASE, Requirements(("numpy==2",))).is_new


def test_one_that_was_half_made_is_made_again(tmp_path):
    maker = Maker(FakeTools(tmp_path / "log"))
    folder = maker.make(RELEASE, Requirements()).python.parent.parent
    (folder / "sdyscope-environment.json").unlink()
    (folder / "left over").touch()
    assert maker.make(RELEASE, Requirements()).is_new
    assert not (folder / "left over").exists()


CONFLICT = """Collecting jax
ERROR: Cannot install -r x/requirements.txt (line 1) and jax==0.10.2 because these conflict.
The conflict is caused by:
    The user requested jax==0.10.2
    flax 0.12.8 depends on jax>=0.11
ERROR: ResolutionImpossible: for help visit https://pip.pypa.io
"""
UV = """  × No solution found when resolving dependencies:
  ╰─▶ Because flax==0.12.8 depends on jax>=0.11 and you require
      jax==0.10.2, we can conclude that your requirements are unsatisfiable.
"""
NEWER_UV = """Using Python 3.12.1 environment at: x
error: No solution found when resolving dependencies
  cause: Because flax==0.12.8 depends on jax>=0.11 and you require jax==0.10.2, it can't be met.
"""


@pytest.mark.parametrize(
    ("said", "message", "hint"),
    [
        (
            CONFLICT,
            r"Cannot install flax==0.12.8 and jax==0.10.2 because",
            "depends on jax>=0.11",
        ),
        (UV, "No solution found when resolving dependencies", "and you require jax==0.10.2, we"),
        (NEWER_UV, "No solution found when resolving dependencies", "and you require jax==0.10.2,"),
        ("ERROR: No matching distribution found for nothing", "found for nothing", "--verbose"),
        ("what", "ended with status 1", "--verbose"),
    ],
    ids=("conflict", "uv", "newer uv", "missing", "silent"),
)
def test_what_the_installer_says_is_the_error_and_nothing_is_left(tmp_path, said, message, hint):
    maker = Maker(FakeTools(tmp_path / "log", fails=said))
    with pytest.raises(TargetError, match=f"JAX 0.10.2 can't be made: .*{message}") as error:
        maker.make(RELEASE, Requirements(("flax==0.12.8",)))
    assert hint in error.value.hint
    assert kept_releases() == set()
    assert not [path for path in Path(tmp_path / "cache").rglob("bin") if path.is_dir()]


def test_two_at_a_time_make_one(tmp_path):
    tools = FakeTools(tmp_path / "log", sleeps=0.3)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); "
        "from pathlib import Path; import test_environment as t; "
        "t.Maker(t.FakeTools(Path(sys.argv[2]), sleeps=0.3)).make(t.RELEASE, t.Requirements())"
    )
    words = [sys.executable, "-c", code, str(Path(__file__).parent), str(tools.log)]
    running = [subprocess.Popen(words) for _ in range(2)]
    assert [one.wait() for one in running] == [0, 0]
    assert made(tools.log) == 1


def test_ctrl_c_leaves_no_half_made_one(tmp_path):
    from sdyscope.process.child import Stopped

    maker = Maker(FakeTools(tmp_path / "log", sleeps=30))

    def interrupt():
        while not made(tmp_path / "log"):
            time.sleep(0.05)
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(Stopped):
        maker.make(RELEASE, Requirements())
    assert not [path for path in Path(tmp_path / "cache").rglob("bin") if path.is_dir()]


def test_a_cache_that_others_can_write_to_is_not_used(tmp_path):
    (tmp_path / "cache" / "sdyscope").mkdir(parents=True)
    (tmp_path / "cache" / "sdyscope").chmod(0o777)
    with pytest.raises(TargetError, match="no cache folder of your own"):
        Maker(FakeTools(tmp_path / "log")).make(RELEASE, Requirements())


def test_a_folder_of_the_user_s_is_an_environment():
    found = existing(str(Path(sys.executable).parent.parent))
    assert found.versions.jax == found.packages["jax"]
    assert existing(sys.executable).versions == found.versions


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (None, "no environment here"),
        ("exit 3", "not a Python that runs"),
        ('echo \'{"python": [3, 12, 1], "packages": {}}\'', "JAX is not installed"),
        (
            'echo \'{"python": [3, 12, 1], "packages": {"jax": "0.6.0", "jaxlib": "0.6.0"}}\'',
            r"JAX 0\.6\.0 is too old",
        ),
    ],
)
def test_a_folder_that_is_none_is_an_error(tmp_path, script, message):
    if script is not None:
        (tmp_path / "bin").mkdir()
        python = tmp_path / "bin" / "python"
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
    with pytest.raises(TargetError, match=message):
        existing(str(tmp_path))


def test_what_an_environment_lacks_and_how_it_is_activated():
    found = Environment(
        Path("/e/bin/python"), Versions("0.12.0"), (3, 12, 1), packages={"click": "8.1.0"}
    )
    assert found.lacks(["click>=8.2", "lark>=1.2", "click>=8"]) == ("click>=8.2", "lark>=1.2")
    assert found.variables()["PATH"].startswith("/e/bin:")
    assert found.variables()["VIRTUAL_ENV"] == "/e"


def test_this_sdyscope_runs_from_links_in_a_python_without_it(tmp_path):
    path = linked(tmp_path)
    code = (
        "import sys; sys.meta_path[:] = [one for one in sys.meta_path if 'editable' not in "
        f"str(one).lower()]; sys.path.insert(0, {str(path)!r}); "
        "import sdyscope.models, sdyscope.grammars; from sdyscope.targets import model_names; "
        "import json; print(json.dumps([sdyscope.__file__, model_names()]))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    )
    file, models = json.loads(done.stdout)
    assert file == str(path / "sdyscope" / "__init__.py")
    assert "mlp" in models


def test_the_log_of_an_installer_is_told_with_verbose(tmp_path, capsys):
    Maker(FakeTools(tmp_path / "log", fails="what it says"), verbose=True)
    with pytest.raises(TargetError):
        Maker(FakeTools(tmp_path / "log", fails="what it says"), verbose=True).make(
            RELEASE, Requirements()
        )
    assert "what it says" in capsys.readouterr().err
