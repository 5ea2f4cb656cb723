"""A process that answers one request after another, and may die of one."""

import os
import threading

import pytest

from sdyscope.process.worker import Worker, WorkerDiedError

START = """
import os, sys, time
from sdyscope.process import worker

def answer(request):
    if request.startswith(b"die"):
        os.kill(os.getpid(), int(request[3:]))
    if request == b"check":
        os.write(2, b"F1120 09:22:34.845518 8444 mesh.cc:234] Check failed: x == y\\n")
        os.abort()
    if request == b"wait":
        time.sleep(60)
    if request == b"leave":
        os._exit(7)
    if request == b"end slowly":
        import atexit
        atexit.register(time.sleep, 1.5)
        sys.exit(7)
    if request == b"print":
        print("noise", flush=True)
    return request[::-1] + b" %d" % os.getpid()

worker.serve(answer)
"""


@pytest.fixture
def worker():
    made = Worker(f"exec({START!r})")
    yield made
    made._end()


def test_one_process_answers_one_request_after_another(worker):
    first, pid = worker.ask(b"abc").split()
    assert first == b"cba"
    large = bytes(3_000_000)
    again, same = worker.ask(large).rsplit(b" ", 1)
    assert again == large
    assert pid == same != str(os.getpid()).encode()


def test_what_is_printed_is_no_answer(worker):
    assert worker.ask(b"print").split()[0] == b"tnirp"


def test_what_the_compiler_said_last_is_known(worker):
    with pytest.raises(WorkerDiedError) as died:
        worker.ask(b"check")
    assert died.value.words == "Check failed: x == y (mesh.cc:234)"
    with pytest.raises(WorkerDiedError) as died:
        worker.ask(b"die 6")
    assert died.value.words == ""


@pytest.mark.parametrize(
    ("request_", "how"),
    [
        (b"die 11", "SIGSEGV"),
        (b"die 6", "SIGABRT"),
        (b"leave", "status 7"),
        (b"end slowly", "status 7"),  # as JAX does
    ],
)
def test_a_death_is_told_and_the_next_request_has_a_new_process(worker, request_, how):
    _, pid = worker.ask(b"a").split()
    with pytest.raises(WorkerDiedError, match=how):
        worker.ask(request_)
    answer, other = worker.ask(b"a").split()
    assert answer == b"a"
    assert other != pid


def test_requests_of_several_threads_do_not_mix(worker):
    found = {}

    def ask(text):
        found[text] = worker.ask(text).split()[0]

    threads = [threading.Thread(target=ask, args=(bytes([97 + n]) * 50_000,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    assert all(answer == text for text, answer in found.items())


def test_it_ends_with_its_parent(worker):
    pid = int(worker.ask(b"a").split()[1])
    worker._process.stdin.close()
    assert os.waitpid(pid, 0)[1] == 0
    worker._process.returncode = 0


def test_one_that_is_not_to_start_again_is_ended_while_it_is_asked():
    worker = Worker(f"exec({START!r})", again=False)
    worker.ask(b"a")
    how = []

    def ask():
        try:
            worker.ask(b"wait")
        except WorkerDiedError as died:
            how.append(died.how)

    thread = threading.Thread(target=ask)
    thread.start()
    worker.end()
    thread.join()
    with pytest.raises(WorkerDiedError, match="SIGKILL"):
        worker.ask(b"a")
    assert how == ["SIGKILL"]


FORKING = """
import os, sys
from pathlib import Path
from sdyscope.process import worker

def act(request):
    print("said")
    print("logged", file=sys.stderr)
    if request == b"raise":
        raise ValueError("by itself")
    if request != b"go on":
        os.kill(os.getpid(), int(request))
    return 3

def answer(request):
    status = worker.forked(lambda: act(request), *map(Path, {paths!r}))
    return b"%d %d" % (status, os.getpid())

worker.serve(answer)
"""


def test_what_ends_a_fork_costs_one_request(tmp_path):
    said, log = tmp_path / "said", tmp_path / "log"
    worker = Worker(f"exec({FORKING.format(paths=[str(said), str(log)])!r})")
    answers = [worker.ask(request).split() for request in (b"go on", b"11", b"raise", b"go on")]
    assert [int(status) for status, _ in answers] == [3, -11, 1, 3]
    assert len({pid for _, pid in answers}) == 1
    assert (said.read_text(), log.read_text()) == ("said\n", "logged\n")
    worker.ask(b"raise")
    assert log.read_text().endswith("ValueError: by itself\n")
    worker.end()
