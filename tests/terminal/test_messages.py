"""Messages on standard error: folded where a person reads them, in one line for all else."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdyscope.terminal.messages import folded

WORDS = st.sampled_from(
    [
        "error:",
        "a",
        "tensor",
        "can't",
        "P('data', None)",
        "dir/model.py:12:4:",
        "'long",
        "of`",
        "x'",
    ]
)


@given(st.lists(WORDS, min_size=1, max_size=30).map(" ".join), st.integers(40, 90))
def test_words_stay_whole_and_in_order(text, columns):
    lines = list(folded(text, columns))
    assert " ".join(line.strip() for line in lines) == text
    assert all(len(line) <= columns for line in lines)
    assert all("dir/model.py:12:4:" in line for line in lines if "model" in line)
    assert [line[:2] == "  " for line in lines] == [False] + [True] * (len(lines) - 1)


def test_what_is_short_is_as_it_is():
    assert list(folded("error: no such file.\nTry another.", 80)) == [
        "error: no such file.",
        "Try another.",
    ]


def test_paths_places_and_code_are_not_broken():
    place = "/home/user/some experiments/with a very long name/of a folder/train.py:12:4"
    snippet = "  #sdy.sharding<@mesh, [{" + '"a", ' * 20 + "}]>\n" + " " * 60 + "^"
    text = f"error: {place}: This is neither StableHLO nor HLO.\n{snippet}\nGive another file."
    lines = list(folded(text, 50, whole=f"error: {place}"))
    assert lines[0] == f"error: {place}:"
    assert "\n".join(lines[-3:]) == f"{snippet}\nGive another file."


@pytest.mark.parametrize(
    "command",
    [
        "cd /opt/sdyscope && python3 -m venv .venv && .venv/bin/pip install .",
        "/opt/venv/bin/python -m pip install 'jax[cuda12-local]==0.10.2'",
        "sdyscope snapshot TARGET --check -o models.snap --strict",
        "def program(): return sdyscope.Program('step', jitted, args=(...)).",
    ],
)
def test_a_command_to_copy_is_one_line(command):
    lines = list(folded(f"Make an environment that has it, and use its Python: {command}", 60))
    assert lines == ["Make an environment that has it, and use its Python:", f"  {command}"]


def test_a_command_alone_is_one_line_and_a_sentence_about_one_is_not():
    command = "pip install 'jax[cuda12-local]==0.10.2' 'jaxlib==0.10.2'"
    assert list(folded(command, 40)) == [command]
    sentence = "error: sdyscope needs click, which is not installed for this Python: python is old"
    assert len(list(folded(sentence, 40))) == 3


def test_a_command_inside_of_a_sentence_is_one_line():
    text = "Write it with `sdyscope ci --update`, or with sdyscope ci --update --remove-unused."
    for columns in range(40, 90):
        lines = "\n".join(folded(text, columns))
        assert "`sdyscope ci --update`" in lines
        assert "sdyscope ci --update --remove-unused." in lines


def test_a_traceback_stays_as_python_prints_it():
    traceback = (
        'Traceback (most recent call last):\n  File "x.py", line 1\nValueError: ' + "a " * 60
    )
    text = f"error: it failed.\n{traceback}"
    assert "\n".join(folded(text, 60)) == text


def said(*words, columns=None, **variables):
    """What a command says on standard error: to a terminal of that width, or into a pipe."""
    command = [sys.executable, "-m", "sdyscope", *words]
    environment = {name: text for name, text in os.environ.items() if name != "COLUMNS"} | variables
    if columns is None:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return done.stderr
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=theirs
    ) as process:
        os.close(theirs)
        text = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:  # Nobody holds the other end any more.
                break
            if not part:
                break
            text += part
        process.wait()
    os.close(ours)
    return text.decode().replace("\r\n", "\n")


def test_errors_are_as_wide_as_the_terminal_and_one_line_in_a_pipe():
    piped = said("show", "nosuch")
    assert len(piped.splitlines()) == 2
    shown = said("show", "nosuch", columns=60)
    lines = shown.splitlines()
    assert len(lines) > 3
    assert max(map(len, lines)) <= 60
    assert shown.split() == piped.split()


def test_errors_keep_to_columns_that_are_set_as_tables_do():
    file = "/nosuch/a folder/that is longer than a line/of-so-few-columns/models.snap"
    assert said("snapshot", "mlp", "--check", "-o", file, COLUMNS="60").splitlines() == [
        f"error: {file}:",
        "  There is no such file to compare with.",
        "--update writes it.",
    ]
    assert said("comms", "mlp", "--on", "tpu:v9", COLUMNS="60").splitlines() == [
        "error: Invalid value for '--on': 'tpu:v9' names no hardware",
        "  to compile for. Write cpu:8, tpu:v5e:4x4,",
        "  tpu:v6e:16x16x2slices, cuda:h100:1x128x8, or devices",
        "  (those present).",
        "Try 'sdyscope comms --help'.",
    ]
