"""Commands in a child process: aborts, signals, broken pipes, streams that do not mix.

The commands that misbehave are made here: a `sitecustomize` module, which Python imports in every
process, adds them to the command line, in the parent and in the child alike.
"""

import os
import pty
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from own_process import in_own_process

from sdyscope.process.child import GRACE

SITECUSTOMIZE = """
import sdyscope.commands
sdyscope.commands.__path__.append({folder!r})
sdyscope.commands.COMMANDS += ("misbehave",)
"""

MISBEHAVE = '''
import click
from sdyscope.commands import options
from sdyscope.process import output

@options.command(environment=lambda **_: {"SDYSCOPE_TEST_DEFAULT": "from the command"})
@click.argument("code")
def command(code):
    """Run some code."""
    answer = output.answers()
    answer.write("half an answer")
    names = {"answer": answer}
    exec(code, names)
    return names.get("status", 0)
'''


@pytest.fixture
def start(tmp_path):
    """Starts `sdyscope misbehave CODE`; the streams are pipes unless told otherwise."""
    commands = tmp_path / "commands"
    commands.mkdir()
    (commands / "misbehave.py").write_text(MISBEHAVE)
    (tmp_path / "sitecustomize.py").write_text(SITECUSTOMIZE.format(folder=str(commands)))
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    def run(code, *options, environment=(), **streams):
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
        return subprocess.Popen(
            [sys.executable, "-m", "sdyscope", "misbehave", textwrap.dedent(code), *options],
            env={
                **os.environ,
                "PYTHONPATH": str(tmp_path),
                "TMPDIR": str(scratch),
                **dict(environment),
            },
            text=True,
            **streams,
        )

    yield run
    assert list(scratch.iterdir()) == [], "temporary files were left behind"


def end(process):
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


@pytest.mark.parametrize("status", [0, 1])
def test_answer_and_status_are_passed_on(start, status):
    assert end(start(f"status = {status}")) == (status, "half an answer\n", "")


def test_documents_are_passed_on_in_utf_8(start):
    process = start("answer.write_bytes('\u00e9\u20ac\\x1b\\n'.encode())")
    out = process.stdout.buffer.read()
    assert process.wait() == 0
    # A pipe gets the bytes: where text is written, it is made visible.
    assert out == b"half an answer\n" + "é€\x1b\n".encode()


def test_abort_is_one_sentence_and_no_half_answer(start):
    code = """
    import os
    os.write(2, b"I1120 09:22:34.845518 8444 a.cc:1] starting\\n")
    os.write(2, b"F1120 09:22:34.845518 8444 mesh.cc:234] Check failed: x == y (1 vs. 2)\\n")
    os.abort()
    """
    status, out, err = end(start(code))
    assert (status, out) == (2, "")
    assert err.splitlines() == [
        "error: sdyscope misbehave aborted inside the compiler (SIGABRT): "
        "Check failed: x == y (1 vs. 2) (mesh.cc:234)",
        "Nothing was written. Is the input a whole module of this JAX's version? "
        "--verbose prints the compiler's log.",
    ]


def test_after_a_crash_in_propagation_it_is_run_again_with_that_apart(start):
    code = """
    import os
    from sdyscope.process import progress, worker
    progress.doing("propagating mlp with Shardy")
    progress.passing("Shardy's pass symbol-dce")
    if worker.is_apart():
        os.abort()
    answer.write("and the rest")
    """
    assert end(start(code)) == (0, "half an answer\nand the rest\n", "")


@pytest.mark.parametrize(
    ("doings", "words", "hint"),
    [
        (["reading m.mlir"], " while reading m.mlir", "Is the input a whole module"),
        (
            [
                "tracing mlp",
                "lowering mlp for Shardy",
                "propagating mlp with Shardy",
                "\tShardy's pass symbol-dce",
            ],
            " while propagating mlp with Shardy, in Shardy's pass symbol-dce",
            "JAX lowers the program, so the error is in the compiler.",
        ),
        # That pass was done.
        (
            ["propagating mlp", "\tShardy's pass symbol-dce", "\t"],
            " while propagating mlp",
            "Is the input",
        ),
    ],
)
def test_an_abort_names_what_was_done_and_blames_no_program(start, doings, words, hint):
    code = """
    import os
    from sdyscope.process import progress
    for what in {doings}:
        progress.passing(what[1:]) if what[0] == "\\t" else progress.doing(what)
    os.write(2, b"F1120 09:22:34.845518 8444 mesh.cc:234] Check failed: x == y (1 vs. 2)\\n")
    os.abort()
    """
    status, out, err = end(start(code.format(doings=doings)))
    assert (status, out) == (2, "")
    said, advice = err.splitlines()
    assert said == (
        f"error: sdyscope misbehave aborted inside the compiler (SIGABRT){words}: "
        "Check failed: x == y (1 vs. 2) (mesh.cc:234)"
    )
    assert hint in advice


def test_abort_without_a_word(start):
    status, out, err = end(start("import os; os.abort()"))
    assert (status, out) == (2, "")
    assert err.startswith("error: sdyscope misbehave aborted inside the compiler (SIGABRT).\n")


@pytest.mark.parametrize(
    ("signum", "words"),
    [
        (signal.SIGSEGV, "was ended inside the compiler (SIGSEGV)."),
        (signal.SIGKILL, "was killed (SIGKILL), most often because memory ran out."),
    ],
)
def test_child_killed_by_a_signal(start, signum, words):
    code = f"import os; os.kill(os.getpid(), {int(signum)}); import time; time.sleep(60)"
    status, out, err = end(start(code))
    assert (status, out) == (2, "")
    assert err.startswith(f"error: sdyscope misbehave {words}")


LIMIT = "from sdyscope.process import child\nwith child.cpu_limit(0.1)"


def test_a_reader_that_finds_no_end_is_ended(start):
    status, out, err = end(start(f"{LIMIT}:\n    while True: pass"))
    assert (status, out) == (2, "")
    assert err.startswith("error: sdyscope misbehave was stopped: the compiler's parser did not")
    done = end(start(f"{LIMIT}: pass\nfor _ in range(10_000_000): pass"))
    assert done == (0, "half an answer\n", "")


@pytest.mark.parametrize("command", ["show", "lint"])
def test_what_the_system_refuses_is_no_internal_error(command):
    words = [command, "x" * 300]
    done = in_own_process(*words)
    assert done.returncode == 2
    assert done.stderr == f"error: File name too long: {'x' * 200}...\n"


@pytest.mark.parametrize("code", ["import os; os._exit(1)", "import sys; sys.exit(1)"])
def test_an_exit_on_the_way_is_not_the_command_s_status(start, code):
    status, out, err = end(start(code))
    assert (status, out) == (2, "")
    assert "exited (status 1) before" in err


def test_crash_after_the_answer_does_not_spoil_it(start):
    # C++ destructors run when the process ends.
    code = "import atexit, os; atexit.register(os.abort)"
    assert end(start(code)) == (0, "half an answer\n", "")


def test_expected_error(start):
    code = """
    from sdyscope.errors import TargetError
    raise TargetError("there is no such axis.", file="a.mlir", line=2, hint="Name another.")
    """
    assert end(start(code)) == (2, "", "error: a.mlir:2: there is no such axis.\nName another.\n")


def test_unforeseen_error(start):
    status, out, err = end(start("{}['x']"))
    assert (status, out) == (2, "")
    assert err.splitlines() == [
        "error: internal error: KeyError: 'x' (<string>:1)",
        "This is a bug in sdyscope: please report it, with what SDYSCOPE_DEBUG=1 shows.",
    ]


def test_unforeseen_error_with_its_traceback(start):
    status, out, err = end(start("{}['x']", environment={"SDYSCOPE_DEBUG": "1"}))
    assert (status, out) == (2, "")
    assert "Traceback (most recent call last)" in err


def test_memory_error(start):
    assert end(start("raise MemoryError")) == (2, "", "error: memory ran out.\n")


def test_what_a_program_prints_is_not_in_the_answer(start):
    code = """
    import os, sys
    print("from print")
    os.write(1, b"from the file descriptor\\n")
    sys.stderr.write("from stderr\\n")
    """
    status, out, err = end(start(code))
    assert (status, out) == (0, "half an answer\n")
    assert sorted(err.splitlines()) == [
        "from print",
        "from stderr",
        "from the file descriptor",
    ]


LOG = """
import os
os.write(2, b"I1120 09:22:34.845518 8444 a.cc:1] all is well\\n")
os.write(2, b"W1120 09:22:34.845518 8444 a.cc:2] Involuntary full rematerialization\\n")
os.write(2, b"E1120 09:22:34.845518 8444 a.cc:3] Unable to register cuFFT factory\\n")
"""


def test_the_compiler_s_log_is_kept_away(start):
    assert end(start(LOG)) == (0, "half an answer\n", "")


def test_the_compiler_s_log_on_demand(start):
    status, out, err = end(start(LOG, "--verbose"))
    assert (status, out) == (0, "half an answer\n")
    (line,) = err.splitlines()
    assert line.startswith("compiler: W1120")
    assert line.endswith("Involuntary full rematerialization")


def test_standard_error_is_the_terminal_that_it_was(start):
    ours, theirs = pty.openpty()
    process = start(
        "import sys; answer.write(f'{sys.stderr.isatty()} {sys.stdout.isatty()}')", stderr=theirs
    )
    os.close(theirs)
    out, _ = process.communicate(timeout=60)
    os.close(ours)
    assert out == "half an answer\nTrue True\n"


def test_the_user_s_environment_comes_first(start):
    code = "import os; answer.write(os.environ['SDYSCOPE_TEST_DEFAULT'])"
    assert end(start(code))[1].endswith("from the command\n")
    theirs = {"SDYSCOPE_TEST_DEFAULT": "from the user"}
    assert end(start(code, environment=theirs))[1].endswith("from the user\n")


def test_foreign_files_in_the_working_directory_are_not_imported(start, tmp_path):
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "msgspec.py").write_text("raise SystemExit('imported')")
    script = Path(sys.executable).parent / "sdyscope"
    done = subprocess.run(
        [script, "doctor", "--json"], cwd=foreign, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_reader_that_goes_away(start):
    process = start("answer.write('x' * 10_000_000)")
    process.stdout.read(10)
    process.stdout.close()
    assert process.wait(timeout=60) == 0
    assert process.stderr.read() == ""


def test_full_disk(start):
    with open("/dev/full", "w") as full:
        process = start("pass", stdout=full)
        assert process.wait(timeout=60) == 2
    assert process.stderr.read() == (
        "error: cannot write to standard output: No space left on device\n"
    )


#: Says who it is, then stays where Python handles no signal: in one C call, the signal blocked.
STUBBORN = """
import os, signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
os.write(1, f"{os.getpid()}\\n".encode())
time.sleep(60)
"""

OBEDIENT = STUBBORN.replace("signal.pthread_sigmask", "# ")


@pytest.mark.parametrize(
    ("code", "signum"),
    [
        pytest.param(OBEDIENT, signal.SIGINT, id="obedient-2"),
        pytest.param(OBEDIENT, signal.SIGTERM, id="obedient-15"),
        pytest.param(OBEDIENT, signal.SIGHUP, id="obedient-1"),
        # These take the seconds that it is waited for.
        pytest.param(STUBBORN, signal.SIGTERM, id="stubborn-15"),
        pytest.param(STUBBORN, signal.SIGINT, id="stubborn-2", marks=pytest.mark.thorough),
        pytest.param(STUBBORN, signal.SIGHUP, id="stubborn-1", marks=pytest.mark.thorough),
    ],
)
def test_stopping_leaves_no_orphan(start, code, signum):
    process = start(code)
    child = int(process.stderr.readline())
    process.send_signal(signum)
    assert process.wait(timeout=30) == -signum
    assert process.stdout.read() == ""
    assert "Traceback" not in process.stderr.read()
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_ctrl_c_reaches_both_and_ends_at_once(start):
    process = start(OBEDIENT, start_new_session=True)
    process.stderr.readline()
    began = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=30) == -signal.SIGINT
    assert time.monotonic() - began < GRACE
    assert "Traceback" not in process.stderr.read()


def test_a_signal_during_an_import_is_not_the_module_s_fault(tmp_path):
    (tmp_path / "slow_import.py").write_text(
        "import pathlib, time\npathlib.Path('begun').touch()\ntime.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "sdyscope", "show", "slow_import.py:program"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for _ in range(600):
        if (tmp_path / "begun").exists():
            break
        time.sleep(0.05)
    process.terminate()
    message = "sdyscope was stopped by SIGTERM before it had an answer.\n"
    assert process.communicate(timeout=30) == ("", message)
    assert process.returncode == -signal.SIGTERM


#: Is interrupted in a finalizer, where Python drops every exception and prints it.
FINALIZER = """
import os, time
class Held:
    def __del__(self):
        os.write(1, f"{os.getpid()}\\n".encode())
        time.sleep(0.5)
Held()
time.sleep(60)
"""


def test_a_signal_in_a_finalizer_stops_the_child_with_its_sentence_alone(start):
    process = start(FINALIZER)
    process.stderr.readline()
    began = time.monotonic()
    process.terminate()
    assert process.wait(timeout=30) == -signal.SIGTERM
    assert time.monotonic() - began < GRACE
    said = process.stderr.read()
    assert said == "sdyscope was stopped by SIGTERM before it had an answer.\n"
