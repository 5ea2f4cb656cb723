"""Files that are whole or absent, and the width that is kept to."""

import os
import stat
import subprocess
import sys

import pytest

from sdyscope.errors import TargetError
from sdyscope.process.output import columns, tidy, write_atomically


def test_writes_text_and_bytes(tmp_path):
    write_atomically(tmp_path / "a", "é\n")
    write_atomically(str(tmp_path / "b"), b"\xff")
    assert (tmp_path / "a").read_bytes() == b"\xc3\xa9\n"
    assert (tmp_path / "b").read_bytes() == b"\xff"


def test_a_new_file_has_the_usual_permissions(tmp_path):
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "a", "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def test_permissions_of_an_old_file_are_kept(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    path.chmod(0o604)
    write_atomically(path, "new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o604


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    write_atomically(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new"


def test_a_device_is_written_directly():
    write_atomically("/dev/null", "x")
    assert not stat.S_ISREG(os.stat("/dev/null").st_mode)


@pytest.mark.parametrize(
    ("path", "reason"),
    [("none/a", "No such file or directory"), ("folder", "Is a directory")],
)
def test_errors_are_one_sentence(tmp_path, path, reason):
    (tmp_path / "folder").mkdir()
    with pytest.raises(TargetError) as error:
        write_atomically(tmp_path / path, "x")
    assert str(error.value) == (
        f"{tmp_path / path}: cannot write this file: {reason}\nNothing was written."
    )


def test_a_failure_leaves_the_old_file_and_nothing_beside_it(tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.write_text("old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(TargetError, match="No space left on device"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("value", "terminal", "expected"),
    [
        ("100", True, 100),
        ("100", False, 100),
        ("", False, None),
        ("0", False, None),
        ("x", False, None),
    ],
)
def test_columns(monkeypatch, value, terminal, expected):
    monkeypatch.setenv("COLUMNS", value)
    assert columns(terminal) == expected


WRITER = """
import sys
from sdyscope.process.output import locked, write_atomically
for number in range(50):
    with locked(sys.argv[1]):
        before = open(sys.argv[1]).read()
        write_atomically(sys.argv[1], f"{before}{sys.argv[2]} {number}\\n")
"""


def test_writers_of_one_file_wait_for_each_other(tmp_path):
    path = tmp_path / "a"
    path.write_text("")
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, path, str(number)]) for number in range(3)
    ]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert len(path.read_text().splitlines()) == 150
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_whose_process_was_killed_has_its_cursor_back(monkeypatch, capsys, is_terminal):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal, raising=False)
    tidy()
    assert capsys.readouterr().err == ("\r\x1b[K\x1b[?25h" if is_terminal else "")
