"""Capturing what is written to file descriptor 2."""

import os
import subprocess
import sys
import textwrap

from sdyscope.stages.stderr import captured_stderr


def test_captures_during_and_after_the_block(capfd):
    os.write(2, b"before\n")
    with captured_stderr() as said:
        os.write(2, b"one\n")
        assert said() == "one\n"
        os.write(2, b"two\n")
    assert said() == "one\ntwo\n"
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "before\nafter\n"


def test_nested_and_after_an_exception(capfd):
    with captured_stderr() as outer:
        try:
            with captured_stderr() as inner:
                os.write(2, b"inner\n")
                raise KeyError
        except KeyError:
            os.write(2, b"outer\n")
    assert (inner(), outer()) == ("inner\n", "outer\n")
    assert capfd.readouterr().err == ""


def run(code, **streams):
    text = "import os\nfrom sdyscope.stages.stderr import captured_stderr\n" + textwrap.dedent(code)
    return subprocess.run([sys.executable, "-c", text], check=False, text=True, **streams)


def test_without_a_standard_error():
    code = """
    os.close(2)
    with captured_stderr() as said:
        pass
    print(repr(said()))
    """
    assert run(code, stdout=subprocess.PIPE).stdout == "''\n"


def test_a_log_is_read_in_place_and_keeps_the_last_words(tmp_path):
    log = tmp_path / "log"
    code = """
    os.write(2, b"before\\n")
    with captured_stderr() as said:
        os.write(2, b"inside\\n")
    print(repr(said()), flush=True)
    with captured_stderr() as said:
        os.write(2, b"last words\\n")
        os.abort()
    """
    with open(log, "a+b") as file:
        done = run(code, stdout=subprocess.PIPE, stderr=file)
    assert done.stdout == "'inside\\n'\n"
    assert log.read_text() == "before\ninside\nlast words\n"
