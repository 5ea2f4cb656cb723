"""The text of files that a program names."""

import linecache
import os

import pytest

from sdyscope.analysis.source import text
from sdyscope.analysis.source.text import read_lines


def test_lines_are_those_of_the_file_in_its_own_encoding(tmp_path):
    path = tmp_path / "model.py"
    path.write_bytes("# -*- coding: latin-1 -*-\r\nx = 'é'\n".encode("latin-1"))
    assert read_lines(str(path))[:2] == ("# -*- coding: latin-1 -*-", "x = 'é'")


def test_a_module_does_not_make_other_files_readable(tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("secret\n")
    assert read_lines(str(secret)) == "not Python"
    assert read_lines("-") == "not Python"
    assert read_lines("/etc/passwd") == "not Python"


def test_a_link_to_what_is_no_python_file_is_not_followed(tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("secret\n")
    link = tmp_path / "link.py"
    link.symlink_to(secret)
    assert read_lines(str(link)) == "not Python"


def test_what_is_no_regular_file_is_not_waited_for(tmp_path):
    pipe = tmp_path / "pipe.py"
    os.mkfifo(pipe)
    assert read_lines(str(pipe)) == "not there"
    assert read_lines(str(tmp_path)) == "not Python"
    assert read_lines(str(tmp_path / "absent.py")) == "not there"


@pytest.mark.parametrize("data", [b"# coding: no-such\n", b"x = '\xff'\n"])
def test_what_python_can_not_read_is_said_to_be_unreadable(tmp_path, data):
    path = tmp_path / "odd.py"
    path.write_bytes(data)
    assert read_lines(str(path)) == "unreadable"
    assert read_lines("a\0b.py") in ("unreadable", "not there")


def test_a_large_file_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "MOST", 3)
    path = tmp_path / "large.py"
    path.write_text("x = 1\n")
    assert read_lines(str(path)) == "too large"


def test_the_cells_of_a_notebook_have_a_text(monkeypatch):
    cell = "<ipython-input-3-abc>"
    monkeypatch.setitem(linecache.cache, cell, (6, None, ["x = 1\n"], cell))
    assert read_lines(cell) == ("x = 1",)
