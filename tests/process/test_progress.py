"""What is shown while a command has no answer yet."""

import os
import pty
import re
import subprocess
import sys
import tempfile
import time
import types

import pytest

from sdyscope.process import progress

CODE = """
import sys, time
from sdyscope.process import progress
progress._PATIENCE, progress._TICK = {patience}, 0.02
with progress.shown("sdyscope show"):
    progress.doing("lowering \\x1b[2Jmlp")
    time.sleep(0.4)
    print("a note", file=sys.stderr)
    time.sleep(0.2)
    {more}
print("the end", file=sys.stderr)
"""


@pytest.fixture(autouse=True)
def _progress(monkeypatch):
    """The rest of the tests want none."""
    monkeypatch.delenv("SDYSCOPE_PROGRESS")


def on_a_terminal(patience, more=""):
    """What a terminal gets, and the status of the process."""
    text, _, status = said_on_a_terminal(
        [sys.executable, "-c", CODE.format(patience=patience, more=more)], COLUMNS="70"
    )
    return text, status


def said_on_a_terminal(words, folder=None, **environment):
    """What a command says on a terminal, what it answers elsewhere, and its status."""
    ours, theirs = pty.openpty()
    with tempfile.TemporaryFile() as answer:
        process = subprocess.Popen(
            words,
            stdout=answer,
            stderr=theirs,
            cwd=folder,
            env={**os.environ, "TERM": "xterm", **environment},
        )
        os.close(theirs)
        text = b""
        while True:
            try:
                data = os.read(ours, 65536)
            except OSError:  # Linux says so that nobody writes any more
                break
            if not data:
                break
            text += data
        os.close(ours)
        status = process.wait()
        answer.seek(0)
        return text.decode(), answer.read().decode(), status


def test_on_a_terminal_it_says_what_is_done_and_goes_away():
    text, status = on_a_terminal(0.05)
    assert status == 0
    assert "lowering \\u001b[2Jmlp" in text.replace("\x1b[0m", "")
    assert re.search(r"\b0 s\b", text)
    # What is said meanwhile stands in a line of its own, and the line with the progress is gone.
    assert "a note\r\n" in re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", text)
    assert text.endswith("the end\r\n")
    last = text.rpartition("lowering")[2]
    assert "\x1b[?25h" in last
    assert "\x1b[2K" in last


def test_what_is_quick_shows_nothing():
    assert on_a_terminal(60) == ("a note\r\nthe end\r\n", 0)


def test_a_log_gets_a_line_now_and_then(monkeypatch, capsys):
    monkeypatch.setattr(progress, "_LOGGED", 0.05)
    with progress.shown("sdyscope verify"):
        progress.doing("lowering mlp")
        progress._shown[0].ended.wait(0.2)
        progress.step("auditing", 3, 1_200)
        progress.doing("lowering another")  # a part of the step
        progress._shown[0].ended.wait(0.2)
        with progress.within("running train.py (2)"):
            progress._shown[0].ended.wait(0.2)
        progress._shown[0].ended.wait(0.2)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "sdyscope verify: lowering mlp, 0 s"
    assert lines[-1] == "sdyscope verify: auditing (3 of 1,200), 0 s"
    assert "sdyscope verify: auditing: running train.py (2) (3 of 1,200), 0 s" in lines


def test_nobody_is_told_who_wants_none(monkeypatch, capsys):
    monkeypatch.setenv("SDYSCOPE_PROGRESS", "0")
    monkeypatch.setattr(progress, "_LOGGED", 0.05)
    with progress.shown("sdyscope verify"):
        assert not progress._shown
    assert on_a_terminal(0.05) == ("a note\r\nthe end\r\n", 0)
    assert capsys.readouterr().err == ""


def test_nothing_is_shown_of_what_nobody_waits_for(capsys):
    progress.doing("lowering mlp")
    progress.step("auditing", 1, 2)
    assert capsys.readouterr().err == ""


def test_a_command_says_which_stage_it_is_at(tmp_path):
    (tmp_path / "slow.py").write_text(
        "import time\nimport jax\nfrom sdyscope import Program\n\n"
        "def f(x):\n    time.sleep(2)\n    return x * 2\n\n\n"
        "def program():\n    return Program('slow', jax.jit(f), (1.0,))\n"
    )
    words = [sys.executable, "-m", "sdyscope", "show", "slow.py:program"]
    text, answer, status = said_on_a_terminal(words, tmp_path, COLUMNS="100")
    assert status == 0
    assert "slow; no mesh" in answer
    assert "tracing slow" in text


class Notebook:
    """A notebook's shell, as far as progress asks it: displays by their number, and its events."""

    kernel = object()

    def __init__(self):
        self.events, self.callbacks, self.shown = self, [], []

    def register(self, event, callback):
        assert event == "post_run_cell"
        self.callbacks.append(callback)

    def unregister(self, event, callback):
        self.callbacks.remove(callback)

    def display(self, data, *, raw, display_id):
        assert (raw, display_id) == (True, True)
        self.shown.append(data)
        return self

    def update(self, data, *, raw):
        self.shown.append(data)

    def end_cell(self):
        for callback in [*self.callbacks]:
            callback(None)


@pytest.fixture
def notebook(monkeypatch):
    shell = Notebook()
    for name in ("IPython", "IPython.display"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    sys.modules["IPython"].get_ipython = lambda: shell
    sys.modules["IPython.display"].display = shell.display
    monkeypatch.setattr(progress, "_PATIENCE", 0.02)
    yield shell
    shell.end_cell()


def test_a_notebook_shows_it_until_the_cell_ends(notebook):
    progress.doing("compiling <step>")
    progress.doing("reading")
    progress.step("predicting", 3, 10)
    for _ in range(200):
        if len(notebook.shown) > 1:
            break
        time.sleep(0.02)
    assert notebook.shown[-1] == {
        "text/plain": "sdyscope: predicting (3 of 10), 0 s",
        "text/html": '<progress value="3" max="10"></progress> sdyscope: predicting (3 of 10), 0 s',
    }
    notebook.end_cell()
    assert notebook.shown[-1] == {"text/plain": "", "text/html": ""}
    assert notebook.callbacks == []
    progress.doing("the next cell")
    assert len(notebook.callbacks) == 1


def test_a_notebook_shows_nothing_of_what_is_quick(notebook):
    progress.doing("compiling")
    notebook.end_cell()
    assert notebook.shown == []


def test_a_shell_in_a_terminal_shows_nothing_by_itself(notebook, monkeypatch):
    monkeypatch.delattr(Notebook, "kernel")
    progress.doing("compiling")
    assert notebook.callbacks == []
