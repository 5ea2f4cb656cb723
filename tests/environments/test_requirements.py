"""The user's pins without JAX, and the extras that stand for its plugins."""

import pytest

from sdyscope.environments.requirements import (
    Requirements,
    of_sdyscope,
    read_requirements,
)
from sdyscope.errors import TargetError


def read(tmp_path, text):
    file = tmp_path / "requirements.txt"
    file.write_text(text)
    return read_requirements(str(file))


@pytest.mark.parametrize(
    ("text", "lines", "extras"),
    [
        ("jax==0.10.2\njaxlib==0.10.2\nflax==0.12.8", ["flax==0.12.8"], []),
        ("jax[cuda12]>=0.9\noptax", ["optax"], ["cuda12"]),
        ("libtpu==0.0.42.1", [], ["tpu"]),
        ("jax-cuda12-plugin==0.10.2\njax-cuda12-pjrt==0.10.2", [], ["cuda12-local"]),
        # As `pip freeze` lists what the extra cuda12 brings.
        ("jax-cuda12-plugin==0.10.2\nnvidia-cudnn-cu12==9.1", [], ["cuda12"]),
        ("nvidia-ml-py==13", ["nvidia-ml-py==13"], []),
        ("flax==1 --hash=sha256:ab \\\n  --hash=sha256:cd  # why", ["flax==1"], []),
        ("--extra-index-url https://x\n-e ./own", ["--extra-index-url https://x", "-e ./own"], []),
        ("JAX == 0.10.2 ; python_version > '3'\n\n# jaxlib", [], []),
        ("pip==26\nsetuptools==80\nnumpy==2", ["numpy==2"], []),
    ],
)
def test_jax_its_plugins_and_tools_are_left_out(tmp_path, text, lines, extras):
    assert read(tmp_path, text) == Requirements(tuple(lines), tuple(extras))


def test_files_that_a_file_includes_are_read(tmp_path):
    (tmp_path / "base.txt").write_text("numpy==2\njax==0.9.2")
    assert read(tmp_path, "-r base.txt\nflax").lines == ("numpy==2", "flax")


def test_the_dependencies_of_a_project_are_taken(tmp_path):
    file = tmp_path / "pyproject.toml"
    file.write_text('[project]\ndependencies = ["jax[tpu]>=0.9", "flax>=0.12"]')
    assert read_requirements(str(file)) == Requirements(("flax>=0.12",), ("tpu",))


def test_installed_is_what_is_installed_here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    names = {line.partition("==")[0] for line in read_requirements("installed").lines}
    assert {"click", "networkx"} <= names
    assert not {"jax", "jaxlib", "sdyscope", "pip"} & names


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("requirements.txt", None, "can't be read"),
        ("requirements.txt", "-r requirements.txt", "includes itself"),
        ("pyproject.toml", "[project", "not TOML"),
        ("pyproject.toml", "[project]", "no list of dependencies"),
    ],
)
def test_a_file_that_is_none_is_an_error(tmp_path, name, text, message):
    file = tmp_path / name
    if text is not None:
        file.write_text(text)
    with pytest.raises(TargetError, match=message):
        read_requirements(str(file))


def test_what_sdyscope_needs_is_told_without_jax():
    names = {line.partition(">")[0] for line in of_sdyscope()}
    assert {"click", "lark", "msgspec"} <= names
    assert not {"jax", "jaxlib", "pytest", "haliax"} & names
    assert any(line.startswith("haliax") for line in of_sdyscope("levanter"))
