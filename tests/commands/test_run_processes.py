"""`sdyscope run --processes`: real processes on this machine."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import time

import jsonschema
import pytest
from own_process import DEVICES_UNSAID, command_line, environment, in_own_process

from sdyscope.commands import document_type
from sdyscope.process import launch
from sdyscope.terminal.document import schema

pytestmark = pytest.mark.compiles

PROGRAMS = """
import os, signal, sys, time
import jax, numpy as np
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec as P
from sdyscope import Program

MESH = {"data": 8}

def step(mesh, inputs=None):
    rows = 2 * mesh.size
    x = jax.ShapeDtypeStruct((rows, 2), np.float32, sharding=NamedSharding(mesh, P("data")))
    ones = lambda: ((np.ones((rows, 2), np.float32),), {})
    made = (lambda: (inputs() if jax.process_index() else None) or ones())
    return Program("step", jax.jit(lambda x: (x * 2, x.sum())), (x,), inputs=made)

def killed(mesh):
    return step(mesh, lambda: os.kill(os.getpid(), signal.SIGKILL))

def hangs(mesh):
    return step(mesh, lambda: time.sleep(600))

def differs(mesh):
    return step(mesh, lambda: ((np.zeros((2 * mesh.size, 2), np.float32),), {}))

def plain(mesh):
    return step(mesh, lambda: None)

def exits(mesh):
    return step(mesh, lambda: sys.exit(3))

def other(mesh):
    factor = 2 + jax.process_index()
    x = jax.ShapeDtypeStruct((8,), np.float32, sharding=NamedSharding(mesh, P("data")))
    return Program("other", jax.jit(lambda x: x * factor), (x,))

def broken(mesh, fails: bool = False):
    # What the second process computes is wrong, on one device too.
    def add(block):
        if fails and jax.process_index():
            raise ValueError("no such luck")
        return np.asarray(block) + 5 * jax.process_index()

    real = jax.make_mesh(mesh.axis_sizes, mesh.axis_names, axis_types=mesh.axis_types)
    there = lambda x: jax.pure_callback(add, x, x, vmap_method="sequential")
    mapped = jax.shard_map(there, mesh=real, in_specs=P("data"), out_specs=P("data"))
    x = jax.ShapeDtypeStruct((8,), np.float32, sharding=NamedSharding(real, P("data")))
    inputs = lambda: ((np.ones(8, np.float32),), {})
    return Program("broken", jax.jit(mapped), (x,), inputs=inputs)

def halves(mesh):
    # A sum over a half of the devices: each process has its own, and the specs say there is one.
    inside = jax.shard_map(
        lambda x: jax.lax.psum(x.sum(keepdims=True), "model"), mesh=mesh,
        in_specs=P(("data", "model")), out_specs=P(), check_vma=False)
    x = jax.ShapeDtypeStruct(
        (8,), np.float32, sharding=NamedSharding(mesh, P(("data", "model"))))
    inputs = lambda: ((np.arange(8, dtype=np.float32),), {})
    return Program("halves", jax.jit(inside), (x,), inputs=inputs)
"""


@pytest.fixture
def programs(tmp_path):
    path = tmp_path / "programs.py"
    path.write_text(PROGRAMS)
    return path


def command(target, *words):
    return "run", target, "--partitioner", "shardy", "--steps", 1, *words


def run(target, *words, processes=2, **variables):
    words = command(target, "--processes", processes, *words)
    return in_own_process(*words, timeout=120, COLUMNS="80", **DEVICES_UNSAID | variables)


def is_there(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.usefixtures("new_processes")
def test_two_processes_check_what_each_holds():
    # In a pod, and in the shell of an allocation, of which they are no part.
    cluster = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "SLURM_JOB_ID": "1"}
    done = run("mlp", "--devices", 4, "--json", **cluster)
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    jsonschema.validate(document, schema(document_type("run")))
    assert document["passed"]
    (shardy,) = document["partitioners"]
    assert (shardy["arrays"], shardy["shards"], shardy["differing"]) == (17, 136, 0)
    assert len(shardy["errors"]) == 8
    assert all(error["within"] for error in shardy["errors"])
    first, second = document["processes"]
    assert [len(first["devices"]), len(second["devices"])] == [4, 4]
    assert not {*first["devices"]} & {*second["devices"]}
    assert first["pid"] != second["pid"]
    assert first["host"] == second["host"] == socket.gethostname()
    for process in (first, second):
        checked = process["checked"]["shardy"]
        assert (checked["shards"], checked["differing"], checked["step"]["steps"]) == (68, 0, 1)


def test_uneven_placement_and_a_table_of_80_columns(programs):
    done = run(f"{programs}:plain", "--mesh", "data=5")
    assert (done.returncode, done.stderr) == (0, "")
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    assert done.stdout.startswith("step on 5 virtual CPU devices of 2 processes; data=5\n")
    assert re.search(r"0 .* 3 from .* 9 shards, .*s$", done.stdout, re.M)
    assert re.search(r"1 .* 2 from .* 6 shards, .*s$", done.stdout, re.M)


def test_a_mesh_that_does_not_fit_is_said_once(programs):
    done = run(f"{programs}:plain", "--devices", 3)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: The program needs 8 devices, and there are 6 (CPU), of 2 processes.\n"
        "Give a smaller --mesh, --devices 4, which counts those of one process, or more\n"
        "  --processes.\n"
    )


def test_copies_that_differ_between_processes_are_found_and_named(programs):
    done = run(f"{programs}:halves", "--mesh", "data=2,model=2")
    assert (done.returncode, done.stderr) == (1, "")
    said = " ".join(done.stdout.split())
    host = socket.gethostname()
    # 0 + 1 + 2 + 3 in one process, 4 + 5 + 6 + 7 in the other.
    assert "2 of 4 devices hold a different value" in said
    assert f"device 2 (process 1 on {host}) and device 0 (process 0 on {host}) by 2.7" in said


def test_inputs_that_differ_are_said(programs):
    done = run(f"{programs}:differs")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: The argument x is not the same in process 1 of 2 (pid ")


def test_a_step_that_fails_in_one_process_is_a_finding(programs):
    start = time.monotonic()
    done = run(f"{programs}:broken", "--set", "fails=true")
    assert time.monotonic() - start < 60  # and nobody waits for it at the end
    assert done.returncode == 1
    said = " ".join(done.stdout.split())
    assert re.search(
        r"It does not run under Shardy: process 1 of 2 \(pid \d+ on [^:]*\): "
        r"[^.]*ValueError: no such luck",
        said,
    ), said


def test_a_process_that_lowers_something_else_is_named(programs):
    done = run(f"{programs}:other")
    assert (done.returncode, done.stdout) == (2, "")
    assert re.match(
        r"error: process 1 of 2 \(pid \d+ on .*\) "
        r"has lowered a different program than\s+process 0.\n",
        done.stderr,
    )


def test_wrong_results_of_one_process_are_found_and_placed(programs):
    done = run(f"{programs}:broken")
    assert (done.returncode, done.stderr) == (1, "")
    assert "[numerics-differ]" in done.stdout
    only = f"Of result only what process 1 on {socket.gethostname()} holds is wrong."
    assert only in " ".join(done.stdout.split())
    place = f"6 where one device has 1, at [4] on device 4 (process 1 on {socket.gethostname()})"
    assert place in " ".join(done.stdout.split())


def test_a_process_that_ends_itself_is_named_at_once(programs):
    done = run(f"{programs}:exits", "--timeout", 100)
    assert (done.returncode, done.stdout) == (2, "")
    assert "The program exited (status 3) before" in done.stderr


def test_a_killed_process_is_named_and_the_other_one_stopped(programs):
    start = time.monotonic()
    done = run(f"{programs}:killed", "--timeout", 100)
    assert time.monotonic() - start < 60
    assert (done.returncode, done.stdout) == (2, "")
    host = re.escape(socket.gethostname())
    assert re.match(
        rf"error: sdyscope run, process 1 of 2 \(pid \d+ on {host}\), was killed \(SIGKILL\)",
        done.stderr,
    )
    assert "It was making the inputs." in done.stderr


@pytest.mark.thorough
def test_a_process_that_hangs_is_named_within_the_time(programs):
    done = run(f"{programs}:hangs", "--timeout", 8)
    assert (done.returncode, done.stdout) == (2, "")
    said = re.match(
        r"error: process 1 of 2 \(pid (\d+) on .*\) made no progress for 8 s: it was making the "
        r"inputs. Process 0 was waiting for the others. ",
        " ".join(done.stderr.split()),
    )
    assert said, done.stderr
    assert not is_there(int(said[1]))


def test_nobody_is_left_when_the_command_itself_is_killed(programs, tmp_path):
    pids = tmp_path / "pids"
    programs.write_text(
        PROGRAMS.replace(
            "time.sleep(600)",
            f"(open({str(pids)!r}, 'w').write(str(os.getpid())), time.sleep(600))",
        )
    )
    words = command(f"{programs}:hangs", "--processes", 2)
    with subprocess.Popen(
        command_line(*words), env=environment(**DEVICES_UNSAID), stderr=subprocess.PIPE
    ) as process:
        until(lambda: pids.exists() and pids.read_text())
        process.send_signal(signal.SIGKILL)
    until(lambda: not is_there(int(pids.read_text())))


def until(holds, seconds=60.0):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.thorough
def test_the_processes_of_a_slurm_job_find_each_other(programs):
    job = str(os.getpid())  # JAX derives the coordinator's port from it
    words = command(f"{programs}:plain", "--processes", "auto", "--devices", 4)
    tasks = [
        subprocess.Popen(
            command_line(*words),
            env=environment(
                **DEVICES_UNSAID,
                JAX_PLATFORMS="cpu",
                SLURM_JOB_ID=job,
                SLURM_STEP_NODELIST="localhost",
                SLURM_STEP_NUM_NODES="1",
                SLURM_NTASKS="2",
                SLURM_PROCID=str(number),
                SLURM_LOCALID=str(number),
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    said = [task.communicate(timeout=120) for task in tasks]
    assert [task.returncode for task in tasks] == [0, 0]
    assert said[0][0].startswith("step on 8 virtual CPU devices of 2 processes; data=8\n")
    assert said[1] == ("", "")


def test_no_cluster_is_said():
    done = run("mlp", processes="auto")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: JAX finds no cluster that has started this process.\n")
    done = run("mlp", processes="auto", KUBERNETES_SERVICE_HOST="10.0.0.1")
    assert "pip install 'jax[k8s]'" in done.stderr


def test_nobody_takes_the_port_before_the_first_process_listens_on_it():
    with contextlib.ExitStack() as stack, socket.socket() as other, socket.socket() as grpc:
        port = launch.reserved_port(stack)
        with pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        grpc.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        grpc.bind(("127.0.0.1", port))


def test_wrong_usage_is_said_before_anything_is_started():
    done = run("mlp", processes="none")
    assert "'none' is neither a positive number nor 'auto'" in " ".join(done.stderr.split())
    done = run("mlp", "--platform", "gpu")
    assert (done.returncode, done.stdout) == (2, "")
    assert "virtual CPU devices" in done.stderr
