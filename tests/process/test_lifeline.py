"""Children end with a parent that was killed, and what it left is removed."""

import os
import signal
import subprocess
import sys
import time

import pytest

from sdyscope.errors import TargetError
from sdyscope.process import scratch
from sdyscope.process.python import python

PARENT = """
import subprocess, sys, time
from sdyscope.process.python import python
child = subprocess.Popen(python({code!r}))
print(child.pid, flush=True)
time.sleep(60)
"""

WAITS = "import time; print(1, flush=True); time.sleep(60)"
#: Sleeps in C, where no other thread runs, as MLIR's passes do.
SLEEP_IN_C = "ctypes.PyDLL(None).sleep(60)"
HOLDS_THE_INTERPRETER = f"import ctypes; print(1, flush=True); {SLEEP_IN_C}"


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ends(pid):
    """Whether a process ends soon."""
    end = time.monotonic() + 10
    while is_running(pid) and time.monotonic() < end:
        time.sleep(0.1)
    return not is_running(pid)


IN_C = pytest.mark.skipif(sys.platform != "linux", reason="it ends when the C function does")


@pytest.mark.parametrize("code", [WAITS, pytest.param(HOLDS_THE_INTERPRETER, marks=IN_C)])
def test_a_child_ends_with_a_parent_that_is_killed(code):
    parent = subprocess.Popen(python(PARENT.format(code=code)), stdout=subprocess.PIPE, text=True)
    words = {parent.stdout.readline().strip(), parent.stdout.readline().strip()}
    (pid,) = (int(word) for word in words if word != "1")
    assert is_running(pid)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert ends(pid)


def test_an_orphan_writes_no_file(tmp_path):
    code = (
        "import os; from sdyscope.process import lifeline, output; "
        "lifeline._tie[:] = [(os.getpid(), -1)]; "
        f"output.write_atomically({str(tmp_path / 'a')!r}, 'x')"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 2
    assert not (tmp_path / "a").exists()


def test_folders_of_killed_processes_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(scratch.tempfile, "tempdir", str(tmp_path))
    names = ["left", "young", "unmarked"]
    for name in names:
        folder = tmp_path / f"sdyscope-scratch-{name}"
        folder.mkdir()
        if name != "unmarked":
            (folder / ".made-by-sdyscope").touch()
    (tmp_path / "sdyscope-scratch-link").symlink_to(tmp_path)
    # A clone of the user's, say: whatever it is called, it is no folder of ours.
    (tmp_path / "sdyscope-clone").mkdir()
    long_ago = time.time() - 3600
    for name in ("sdyscope-scratch-left", "sdyscope-scratch-unmarked", "sdyscope-clone"):
        os.utime(tmp_path / name, (long_ago, long_ago))
    with scratch.scratch_folder() as used:
        os.utime(used, (long_ago, long_ago))
        scratch.sweep()
        assert os.path.isdir(used)
    assert {path.name for path in tmp_path.iterdir()} == {
        *("sdyscope-scratch-young", "sdyscope-scratch-unmarked", "sdyscope-scratch-link"),
        "sdyscope-clone",
    }


@pytest.mark.parametrize("made", [scratch.scratch_folder, scratch.scratch_file])
def test_no_place_for_temporary_files_is_said(monkeypatch, tmp_path, made):
    monkeypatch.setattr(scratch.tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(TargetError) as error, made():
        pass
    assert str(error.value) == (
        "There is no temporary folder to write to: No such file or directory\n"
        "Set TMPDIR to a folder that can be written."
    )


def test_a_closed_standard_output_is_said():
    done = subprocess.run(
        ["sh", "-c", '"$0" -m sdyscope models >&-', sys.executable],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: standard output is closed")


@pytest.mark.skipif(sys.platform != "linux", reason="what a limit ends differs")
@pytest.mark.parametrize("command", ["show mlp", "doctor"])
def test_too_little_memory_is_said(command):
    limited = f'ulimit -v 300000; exec "$0" -m sdyscope {command}'
    done = subprocess.run(
        ["sh", "-c", limited, sys.executable], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: memory ran out")


def test_an_interrupt_at_any_moment_has_no_traceback():
    command = [sys.executable, "-m", "sdyscope", "show", "mlp"]
    whole = subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout
    for delay in (0.05, 0.1, 0.2, 0.4, 0.8):
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
        # Python itself was still starting.
        if err.startswith(("Traceback", "Fatal Python error", "Could not import runpy")):
            assert "/sdyscope/__main__.py" not in err or "import signal\n" in err, (delay, err)
            continue
        assert not err.startswith("error:"), (delay, err)
        if process.returncode == 0:  # It had ended already.
            assert out == whole
            continue
        assert process.returncode == -signal.SIGINT, err
        assert out in ("", whole)  # It may have been about to end.


def test_a_child_that_ends_now_does_what_python_does_at_its_end():
    code = (
        "import atexit, threading, time; from sdyscope.process import lifeline; "
        "atexit.register(lambda: print('at exit')); "
        "threading.Thread(target=lambda: (time.sleep(0.1), print('thread'))).start(); "
        "kept = type('Kept', (), {'__del__': lambda self: print('freed')})(); "
        "print('buffered', end=' '); lifeline.end_now(1)"
    )
    child = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert (child.returncode, child.stdout) == (1, "buffered thread\nat exit\n")


@pytest.mark.parametrize("sleep", ["time.sleep(60)", pytest.param(SLEEP_IN_C, marks=IN_C)])
def test_a_fork_ends_with_the_process_that_it_is_of(sleep):
    code = f"""
import ctypes, os, time
from sdyscope.process import lifeline
if lifeline.fork() == 0:
    print(os.getpid(), flush=True)
    {sleep}
time.sleep(60)
"""
    parent = subprocess.Popen(python(f"exec({code!r})"), stdout=subprocess.PIPE, text=True)
    pid = int(parent.stdout.readline())
    assert is_running(pid)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert ends(pid)
