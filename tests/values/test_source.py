"""Blaming the line that a program's author can change."""

import json
from pathlib import Path

import pytest

import sdyscope
from sdyscope.values.source import SourceLocation, innermost_line, own_line


def test_text():
    assert str(SourceLocation("a/b.py", 3, 4, "f")) == "a/b.py:3"


def test_the_innermost_line_outside_the_given_folders():
    def user():
        json.loads("{")

    with pytest.raises(json.JSONDecodeError) as caught:
        user()
    line = innermost_line(caught.value, [Path(json.__file__).parent])
    assert (line.file, line.line) == (__file__, user.__code__.co_firstlineno + 1)
    assert line.function == "user"
    assert innermost_line(caught.value, []).file.endswith("json/decoder.py")
    assert innermost_line(caught.value, [Path("/")]) is None


def test_a_folder_is_not_a_prefix():
    with pytest.raises(ZeroDivisionError) as caught:
        _ = 1 // 0
    sibling = Path(__file__).with_suffix("")  # tests/values/test_source, beside this file
    assert innermost_line(caught.value, [sibling]).file == __file__


def test_a_line_that_python_can_not_read():
    with pytest.raises(SyntaxError) as caught:
        compile("x = 1\ndef f(:\n", "user.py", "exec")
    assert str(innermost_line(caught.value, [])) == "user.py:2"


def test_an_error_that_was_never_raised():
    assert innermost_line(ValueError(), []) is None


def test_a_library_is_only_blamed_where_there_is_no_other_line(tmp_path):
    path = tmp_path / "site-packages" / "layers.py"
    scope: dict[str, object] = {}
    exec(compile("def layer():\n    return 1 // 0\n", str(path), "exec"), scope)

    def user():
        scope["layer"]()

    with pytest.raises(ZeroDivisionError) as caught:
        user()
    line = innermost_line(caught.value, [])
    assert (line.file, line.function) == (__file__, "user")
    assert str(innermost_line(caught.value, [Path(__file__).parent])) == f"{path}:2"


def stack(*files):
    return [SourceLocation(file, line) for line, file in enumerate(files, 1)]


def own(*files):
    line = own_line(stack(*files))
    return line and line.line


FLAX = "/venv/lib/python3.11/site-packages/flax/linen/spmd.py"


def test_the_line_that_called_a_library():
    assert own(FLAX, "/home/me/model.py", "/home/me/train.py") == 2
    assert own("/home/me/model.py", FLAX, "/home/me/train.py") == 1
    assert own("<stdin>") == own("/tmp/ipykernel_7/1.py") == 1


def test_where_all_is_installed_the_innermost_line_counts():
    assert own() is None
    assert own(FLAX, "<frozen runpy>") == 1
    assert own(FLAX, "/venv/bin/train", "<string>") == 1
    assert (
        own(FLAX, "/usr/lib/python3.11/contextlib.py", "/usr/lib/python3/dist-packages/x.py") == 1
    )


def test_what_called_sdyscope_is_not_the_program():
    here = Path(sdyscope.__file__).parent
    assert own(FLAX, str(here / "stages" / "lower.py"), "/home/me/inspect.py") == 1
    assert own(FLAX, str(here / "models" / "gpt.py"), str(here / "inspection.py")) == 1 + (
        "site-packages" not in str(here)
    )
