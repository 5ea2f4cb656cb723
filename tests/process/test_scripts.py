"""What a command line of Python runs."""

import os

import pytest

from sdyscope.process.scripts import script_of


@pytest.mark.parametrize(
    ("words", "kind", "name", "arguments"),
    [
        (["python", "train.py", "--steps", "3"], "file", "train.py", ("--steps", "3")),
        (["python", "-u", "-X", "dev", "a/train.py"], "file", "a/train.py", ()),
        (["python", "-W", "error", "-m", "p.train", "-c"], "module", "p.train", ("-c",)),
        (["python", "-c", "import jax", "x"], "code", "", ("x",)),
        (["python", "-m"], "module", "", ()),
        (["python", "-"], "none", "", ()),
        (["python"], "none", "", ()),
    ],
)
def test_a_command_line(words, kind, name, arguments):
    script = script_of(words, "/work")
    assert (script.kind, script.name, script.arguments) == (kind, name, arguments)


def test_where_it_finds_its_modules(tmp_path):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").touch()
    (tmp_path / "link.py").symlink_to("code/train.py")
    # Python looks beside the file that a link leads to.
    assert script_of(["python", "link.py"], tmp_path).folder == os.path.realpath(tmp_path / "code")
    assert script_of(["python", "-m", "train"], tmp_path).folder == str(tmp_path)


@pytest.mark.parametrize("words", ["train.py --steps 3", "-m package.train"])
def test_as_it_is_typed(words):
    assert script_of(["python", *words.split()]).words == words


def test_long_command_lines_are_shown_by_their_beginning():
    script = script_of(["python", "train.py", *(f"layers={number}" for number in range(9))])
    assert script.shown == "train.py layers=0 layers=1 layers=2 layers=3 layers=4 ..."
