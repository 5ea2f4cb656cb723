"""`sdyscope record`, and the other commands on what it recorded."""

import contextlib
import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import typing
from pathlib import Path

import jax
import pytest
from own_process import in_own_process

from sdyscope.commands import record_run
from sdyscope.facts.recorded import SCHEMA, Record
from sdyscope.facts.remarks import Remark
from sdyscope.stages.recorder.flags import flags_in
from sdyscope.terminal import document
from sdyscope.terminal.plain import json_text, members

TRAIN = """
import multiprocessing, os, sys

def other(name):
    import jax
    def function(x):
        return x * 2
    function.__name__ = name
    jax.jit(function, compiler_options={"xla_allow_excess_precision": False})(3.0)

if __name__ == "__main__":
    child = os.fork()
    if child == 0:
        other("forked")
        os._exit(0)
    os.waitpid(child, 0)
    spawned = multiprocessing.get_context("spawn").Process(target=other, args=("spawned",))
    spawned.start()
    spawned.join()

    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec as P

    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    def on(*spec):
        return NamedSharding(mesh, P(*spec))

    @jax.jit
    def train_step(params, batch):
        hidden = jax.lax.with_sharding_constraint(jnp.tanh(batch @ params["w"]), on(CONSTRAINT))
        return hidden.sum()

    w = jax.device_put(jnp.ones((8, 16)), on(None, "model"))
    for size in SIZES:
        train_step({"w": w}, jax.device_put(jnp.ones((size, 8)), on("data")))
    print("trained")
    END
"""


def record(folder, script, *options, constraint='"data", "model"', sizes=(8, 16, 8), end="0"):
    text = TRAIN.replace("CONSTRAINT", constraint).replace("SIZES", str(sizes)).replace("END", end)
    script.write_text(text)
    return in_own_process("record", "-o", folder, *options, "--", script, cwd=folder.parent)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs of a script: `before` under both partitioners, `after` with another constraint."""
    root = tmp_path_factory.mktemp("recorded")
    done = {
        "before": record(
            root / "before", root / "train.py", "--partitioner", "both", "--propagate",
            end="sys.exit(3)",
        ),
        "after": record(
            root / "after", root / "train.py", constraint='"data"', sizes=(8, 32),
            end=f"os.kill(os.getpid(), {int(signal.SIGKILL)})",
        ),
    }  # fmt: skip
    return root, done


@pytest.fixture
def recorded(runs, monkeypatch):
    monkeypatch.chdir(runs[0])
    return runs[1]


pytestmark = pytest.mark.compiles


def test_the_script_runs_as_it_would(recorded):
    before, after = recorded["before"], recorded["after"]
    assert (before.returncode, before.stdout) == (3, "trained\n")
    assert "The script ended with exit status 3.\n" in before.stderr
    assert "before: 4 programs, compiled 4 times in " in " ".join(before.stderr.split())
    assert "What propagation decides is kept of 2 of 4 programs." in before.stderr
    assert after.returncode == 128 + signal.SIGKILL
    assert "The script was ended by SIGKILL.\n" in after.stderr
    assert "after: 4 programs, compiled 4 times in " in " ".join(after.stderr.split())
    assert "Traceback" not in before.stderr + after.stderr


def test_an_overview(sdyscope, recorded):
    done = sdyscope("show", "before", columns=120)
    assert done.status == 0
    lines = done.out.splitlines()
    rows = [line.split()[0] for line in lines[3:7]]
    assert rows == ["forked", "spawned", "train_step.1", "train_step.2"]
    assert "Shardy, GSPMD" in lines[5]
    assert "in 3 processes, by JAX" in done.out
    said = " ".join(done.out.split())
    assert re.search(r"train_step at train\.py:\d+ was compiled again once in [\d.]+ s", said)
    assert "train_step.2: argument batch was f32[8,8], then f32[16,8]" in said
    assert "of JAX not listed: --all lists them" in said
    assert "functions of JAX (" in sdyscope("show", "before", "--all").out
    assert max(map(len, sdyscope("show", "before", columns=80).out.splitlines())) <= 80


def test_where_width_is_short_lines_have_the_folders_that_tell_files_apart(
    sdyscope, recorded, runs, monkeypatch
):
    root, _ = runs
    monkeypatch.chdir(root.parent)
    wide, narrow = (
        next(
            line
            for line in sdyscope("show", f"{root.name}/before", columns=columns).out.splitlines()
            if line.startswith("train_step.1")
        )
        for columns in (200, 80)
    )
    assert f" {root.name}/train.py:" in wide
    assert " train.py:" in narrow


def test_the_index_is_the_document(sdyscope, recorded, runs):
    index = json.loads((runs[0] / "before" / "record.json").read_text())
    found = sdyscope("show", "before", "--json").document("show")
    assert found["recorded"] == index
    assert index["runs"][0]["status"] == 3
    assert str(runs[0]) not in json.dumps(index)
    program = index["programs"][-1]
    assert program["paths"] == ["params['w']", "batch"]
    assert (program["name"], program["devices"]) == ("train_step", 8)
    assert list(program["modules"]) == ["shardy", "gspmd"]
    files = {file for one in index["programs"] for file in one["modules"].values()}
    stored = {f"modules/{path.name}" for path in (runs[0] / "before" / "modules").iterdir()}
    assert files == stored


def test_the_index_has_every_value_in_the_form_that_documents_have():
    def types(hint):
        yield hint
        for part in typing.get_args(hint):
            yield from types(part)
        if dataclasses.is_dataclass(hint) and hint not in document._FORMS:
            for _, own in members(hint, document._WRITTEN.get(hint, {})).values():
                yield from types(own)

    formed = {hint for hint in types(Record) if isinstance(hint, type)} & {
        *document._FORMS,
        *document._WRITTEN,
    }
    assert formed == set(record_run._plain.forms)
    record = Record(problems=(Remark("unreadable lines", "a.jsonl", 1, 2), "no memory"))
    assert json_text(record_run._plain(record)) == document.encode(record)


def test_one_program_of_a_run_is_a_target(sdyscope, recorded):
    done = sdyscope("show", "before:train_step.1", "--kind", "argument")
    assert "params['w']  f32[8,16]  P(None, 'model')  P(None, 'model')" in done.out
    assert sdyscope("diff", "before:train_step.1").status == 0
    assert sdyscope("propagate", "before:train_step.2").status == 0
    assert sdyscope("comms", "after:jit_forked", "--predicted").status == 0
    last = sdyscope("show", "before:train_step")
    assert (last.status, "train_step.2 (before:train_step.2)" in last.out) == (0, True)
    assert "train_step.2, the last of 2 programs compiled from that function" in last.err
    sdyscope("show", "before:train_stop.1").said("Did you mean train_step.1?")
    sdyscope("comms", "before").said("4 of them not functions of JAX", "before:NAME")
    sdyscope("show", "before:spawned", "--module", "x").said("Leave --module out")
    sdyscope("show", "after:spawned", "--partitioner", "gspmd").said("--partitioner both")
    # GSPMD's module names no mesh: it is that of Shardy's.
    under = sdyscope("show", "before:train_step.1", "--partitioner", "gspmd", "--kind", "argument")
    assert "params['w']  f32[8,16]  P(None, 'model')" in under.out
    for partitioner in ("both", "gspmd"):
        held = sdyscope("memory", "before:train_step.1", "--partitioner", partitioner)
        assert (held.out.count("train_step.1; "), "no name here" in held.out) == (1, False)
    every = sdyscope("show", "before", "--partitioner", "gspmd", columns=120)
    assert (every.status, "train_step at train.py" in every.out) == (0, True)
    sdyscope("check", "before:spawned", "--mesh", "data=2").said("--mesh can't change")


AGAIN = """
import os
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
from functools import partial
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((8, 1), ("data", "one"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
def put(x, *spec):
    return jax.device_put(x, NamedSharding(mesh, P(*spec)))

def loss(w, batch):
    return jnp.sum(jnp.tanh(batch @ w))

@jax.jit
def step(w, batch):
    return w - jax.grad(loss)(w, batch)

w, batch = put(jnp.ones((8, 8))), put(jnp.ones((16, 8)), "data", None)
w = step(w, batch); w.sharding
jax.jit(loss)(w, batch)
jax.jit(jax.grad(loss))(w, batch)

@partial(jax.jit, out_shardings=NamedSharding(mesh, P(None, "data")))
def turned(w):
    return w * 2
v = put(jnp.ones((8, 8)))
for _ in range(3):
    v = turned(v)

other = jax.make_mesh((8, 1), ("x", "y"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
@partial(jax.jit, in_shardings=NamedSharding(mesh, P()), out_shardings=NamedSharding(mesh, P()))
def renamed(r):
    return r * 2
r = jax.device_put(jnp.ones(8), NamedSharding(other, P()))
for _ in range(3):
    r = renamed(r)

@jax.jit
def backwards(x):
    return x - 1
for devices in (jax.devices(), jax.devices()[::-1]):
    rows = NamedSharding(jax.sharding.Mesh(devices, ("data",)), P("data"))
    backwards(jax.device_put(np.ones(8, np.float32), rows))

@jax.jit
def settled(s, p):
    return s + p
s, p = jnp.ones(8), jax.device_put(jnp.ones(8), jax.devices()[0])
for _ in range(2):
    s = settled(s, p)

@jax.jit
def same(x, y):
    return x + y
same(put(w, "data"), put(w))
same(put(w, ("data", "one")), put(w, None, "data"))

@partial(jax.jit, static_argnums=1)
def scaled(x, n):
    return x * n
@partial(jax.jit, static_argnums=1)
def unrolled(x, n):
    for _ in range(n):
        x = jnp.sin(x)
    return x
@partial(jax.jit, static_argnums=1)
def stacked(x, n):
    return jnp.zeros((n, *x.shape)) + x
for n in (1, 2, 3):
    scaled(w, float(n))
    stacked(w, n + 1)
    unrolled(w, n)
    jax.jit(lambda x: jnp.cos(x))(w)

@jax.jit
def counted(n, w):
    return n + 1, w * 2
n, v = jnp.zeros((), jnp.int32), put(w, None, "data")
for _ in range(2):
    n, v = counted(n, v)

@jax.jit
def numbered(n, w):
    return w * n
for n in (put(jnp.asarray(1)), put(jnp.int32(1))):
    numbered(n, w)

@jax.jit
def doubled(x):
    return jnp.sin(x) * 2
@jax.jit
def fitted(state, x):
    return {name: doubled(value) + doubled(x) for name, value in state.items()}
state, placed = {"m": jnp.zeros((8, 8)), "v": jnp.zeros((8, 8))}, put(jnp.ones((8, 8)), "data")
for _ in range(2):
    state = fitted(state, placed)

@partial(jax.jit, in_shardings=NamedSharding(mesh, P()), out_shardings=NamedSharding(mesh, P()))
def seeded(r, x):
    return doubled(r) + doubled(x)
r = jnp.zeros((8, 8))
for _ in range(2):
    r = seeded(r, put(w))
"""


@pytest.fixture(scope="module")
def again(tmp_path_factory):
    root = tmp_path_factory.mktemp("again")
    (root / "again.py").write_text(AGAIN)
    words = [sys.executable, "-m", "sdyscope", "record", "-o", str(root / "run"), "--"]
    subprocess.run([*words, str(root / "again.py")], check=True, capture_output=True)
    return root


def test_why_functions_were_compiled_again(sdyscope, again, monkeypatch):
    monkeypatch.chdir(again)
    found = sdyscope("show", "run", "--json").document("show")["recompiles"]
    changes = {one["program"]: one for one in found}
    # A loss and its gradient are two programs, neither of them compiled again.
    names = {
        "turned",
        "backwards",
        "same",
        "scaled",
        "unrolled",
        "stacked",
        "_lambda",
        "counted",
        "numbered",
        "settled",
        "renamed",
        "fitted",
        "seeded",
    }
    assert {one["name"] for one in found} == names
    assert all(one["compile_seconds"] > 0 for one in found)
    (moved,) = [one for one in changes["turned.2"]["arguments"] if one["kind"] == "argument"]
    assert (moved["name"], moved["moved"], moved["returned_as"]) == ("w", True, "result")
    x, y = changes["same.2"]["arguments"][:2]
    assert (x["name"], x["moved"]) == ("x", False)  # an axis of size 1 moves nothing
    assert (y["name"], y["moved"]) == ("y", True)
    assert changes["scaled.2"]["op"]["attribute"] == "value"
    # What a static argument changes of results is told by the op that first has it.
    stacked = changes["stacked.2"]["op"]
    assert (stacked["now"], stacked["attribute"]) == ("stablehlo.broadcast_in_dim", "type")
    assert (stacked["was_text"], stacked["now_text"]) == ("f32[2,8,8]", "f32[3,8,8]")
    assert changes["unrolled.2"]["op"]["now"] == "stablehlo.sine"
    assert changes["_lambda"]["before"] == "_lambda"
    assert changes["_lambda"]["times"] == 2
    # By the type of what is on the mesh, JAX calls another function for what is not on it yet.
    assert changes["fitted.2"]["op"] is None
    # What in_shardings place alike had other types before, which is all that differs.
    (seeded,) = changes["seeded.2"]["arguments"]
    assert (seeded["name"], seeded["meshes"][0]) == ("r", "")

    said = " ".join(sdyscope("show", "run").out.split())
    # Older JAX writes no sharding on a scalar: its modules are identical then.
    if "counted" in changes:
        assert jax.__version_info__ < (0, 10)
        assert (
            "argument n was on no mesh, then on a mesh data=8,one=1; an identical module Place n on"
        ) in said
    else:
        assert "argument n was on no mesh, then replicated" in said
        assert "Place n on the mesh before the first call, with jax.device_put." in said
    assert "argument s was not committed to a device, then committed to one device" in said
    assert "Commit s to the device before each call, with jax.device_put(x, device)." in said
    assert (
        "renamed: argument r was on a mesh x=8,y=1, then on a mesh data=8,one=1; an identical "
        "module Place r on a mesh data=8,one=1 before the first call"
    ) in said
    assert "seeded.2: argument r was on no mesh, then on a mesh data=8,one=1 Place r on" in said
    weakly = "numbered: argument n was i32[] (weakly typed), then i32[]; an identical module"
    assert weakly in said
    assert "weakly typed: give n a dtype before each call, as jnp.asarray(x, dtype) does" in said
    assert "another mesh" not in said
    assert (
        "backwards: an identical module, for the devices in another order Create the mesh once, "
        "with its devices in one order"
    ) in said
    assert [changes[name]["reordered"] for name in ("backwards", "_lambda")] == [True, False]
    assert (
        "fitted.2: argument state['m'] was without a sharding, then P('data', None), as fitted.1 "
        "returns result['m'], and 1 more likewise Place state['m'] and state['v'] "
        "on the mesh before the first call, with jax.device_put, sharded as fitted.1 returns them."
    ) in said
    lines = AGAIN.splitlines()
    line = lines.index("    v = turned(v)") + 1
    seconds = changes["turned.2"]["compile_seconds"]
    assert f"was compiled again once in {seconds:.2f} s, called from again.py:{line}" in said
    assert "argument w was replicated, then P(None, 'data'), as turned.1 returns result" in said
    assert "Place w as P(None, 'data') before the first call, or keep result as replicated" in said
    assert "then P(('data', 'one'), None), the same placement written" in said
    assert "scaled.2, scaled.3: value of stablehlo.constant" in said
    assert "pass what changes from call to call as an array" in said
    assert "stablehlo.sine where unrolled.1 has func.return" in said
    assert "create the function and its jax.jit once, outside loops and calls" in said
    assert "loss" not in said.partition("functions of JAX not listed")[2]


def test_the_whole_run_is_looked_at(sdyscope, recorded):
    words = ("lint", "before", "--no-compile", "--select", "under-sharded,batch-*")
    document = sdyscope(*words, "--json").document("lint")
    names = [one["name"] for one in document["programs"]]
    assert names == ["forked", "spawned", "train_step.1", "train_step.2"]
    assert document["partitioners"] == ["shardy", "gspmd"]
    assert "before: 4 programs, nothing found" in sdyscope(*words).out
    everything = sdyscope(*words, "--all", "--json").document("lint")["programs"]
    assert len(everything) > 4
    # On hardware that one of them is not for, the rules that need it are listed for that one.
    on = sdyscope("lint", "before", "--on", "cpu:8", "--select", "bytes-differ", "--json")
    missing = {one["name"]: one["not_run"] for one in on.document("lint")["programs"]}
    assert {one["reason"] for one in missing["forked"]} == {
        "cpu:8 has 8 devices, and the program is for 1 device."
    }
    assert missing["train_step.1"] == []


def test_a_golden_file_of_a_run_has_none_of_jaxs_own_functions(sdyscope, recorded, tmp_path):
    stages = ("--stages", "lowered")
    done = sdyscope("snapshot", "before", "-o", "run.snap", *stages)
    assert "of JAX's own functions are left out; before:NAME writes one of them" in done.err
    written = Path("run.snap").read_text()
    names = [line.split()[1] for line in written.splitlines() if line.startswith("program")]
    assert names == ["forked", "spawned", "train_step.1", "train_step.2"]
    assert sdyscope("snapshot", "before", "-o", "run.snap", "--check").status == 0


def test_a_partitioner_that_is_not_there_is_said(sdyscope, recorded):
    both = sdyscope("propagate", "after:train_step.1", "--partitioner", "both")
    assert both.err == (
        "note: after:train_step.1 is there for Shardy alone, and is shown under that; its script "
        "has both (--rerun).\n"
    )
    assert "Shardy:" in both.out
    assert sdyscope("propagate", "before:train_step.1", "--partitioner", "both").err == ""
    assert sdyscope("propagate", "after:train_step.1").err == ""


def test_two_runs_are_compared(sdyscope, recorded):
    done = sdyscope("diff", "before", "after")
    assert done.status == 1
    assert "4 programs in both: 2 differ" in done.out
    assert "before:train_step.1  after:train_step.1" in done.out
    # What is left of a name is compared although its shapes differ.
    assert "train_step.2: 2 of 4 tensors" in done.out
    assert "of JAX's own functions were left out; --all compares them" in done.out
    assert sdyscope("diff", "before", "before").status == 0
    both = sdyscope("diff", "before")
    assert (both.status, "4 programs in both: all tensors the same" in both.out) == (0, True)
    assert "Ops not compared" in both.out
    sdyscope("diff", "after").said("was recorded under one partitioner")
    single = sdyscope("diff", "after:train_step.1", "--partitioner", "both")
    single.said(
        "train_step.1 was recorded under one partitioner, so there is nothing to compare it with.",
        "Name a second target, or record the run again with --partitioner both.",
    )


def test_what_it_is_compiled_with_is_recorded(sdyscope, recorded, tmp_path):
    file = str(tmp_path / "forked.mlir")
    done = sdyscope("lower", "before:forked", "--partitioner", "shardy", "-o", file)
    assert done.status == 0
    done = sdyscope("diff", "before:forked", file)
    assert "other compiler_options or XLA_FLAGS: " in done.out
    assert "xla_allow_excess_precision=False" in done.out


@pytest.mark.compiles
def test_a_run_is_compiled_again_with_its_own_flags(sdyscope, recorded, monkeypatch):
    flags = os.environ.get("XLA_FLAGS", "")
    (step,) = [
        program
        for program in json.loads(Path("before/record.json").read_text())["programs"]
        if program["label"] == "train_step.1"
    ]
    assert step["compiled"]["flags"] == list(map(list, flags_in(flags)))
    said = "XLA_FLAGS says here, and did not in the recorded run: "
    monkeypatch.setenv("XLA_FLAGS", f"{flags} --xla_cpu_enable_fast_min_max=true")
    done = sdyscope("memory", "before:train_step.1")
    assert f"{said}xla_cpu_enable_fast_min_max=True." in " ".join(done.out.split())


def test_devices_in_another_order_are_a_difference_of_runs(sdyscope, recorded, runs, tmp_path):
    copy = runs[0] / "turned"
    shutil.copytree(runs[0] / "after", copy)
    golden = tmp_path / "run.snap"
    assert sdyscope("snapshot", "after:train_step.1", "--output", golden).status == 0
    assert sdyscope("diff", "after", "turned").status == 0
    for path in (copy / "processes").glob("*.jsonl"):
        path.write_text(path.read_text().replace("[[0, 8, 1]]", "[[7, 8, -1]]"))
    for at in ("lowered", "propagated", "compiled"):
        done = sdyscope("diff", "after:train_step.1", "turned:train_step.1", "--at", at)
        assert (done.status, "but on devices in another order" in done.out) == (1, True)
    whole = sdyscope("diff", "after", "turned")
    assert (whole.status, "another order" in whole.out) == (1, True)
    checked = sdyscope("snapshot", "turned:train_step.1", "--check", "--output", golden)
    assert checked.status == 1
    assert "; devices 7,6,5,4,3,2,1,0" in checked.out


def as_of_another_jax(run, program, made_of):
    """A copy of a run as JAX 0.9.9 would have made it, whose compiler made of a program this."""
    copy = run.parent / "other"
    shutil.copytree(run, copy)
    document = json.loads((run / "record.json").read_text())
    own = {one["label"]: one["compiled"]["file"] for one in document["programs"] if one["compiled"]}
    theirs = (copy / own[program]).stem
    shutil.copy(made_of, copy / "compiled" / f"{theirs}.hlo")
    for path in (copy / "processes").glob("*.jsonl"):
        text = re.sub(r'"(jax|jaxlib)": "[^"]*"', r'"\1": "0.9.9"', path.read_text())
        path.write_text(text)
    return copy


def test_what_was_made_for_a_gpu_is_shown_as_it_was_made(sdyscope, recorded, runs):
    root = runs[0]
    copy = root / "accelerated"
    shutil.copytree(root / "before", copy)
    for path in (copy / "processes").glob("*.jsonl"):
        text = path.read_text().replace('"platform": "cpu"', '"platform": "gpu"')
        path.write_text(text.replace('"device_kind": "cpu"', '"device_kind": "NVIDIA H200"'))
    program = "accelerated:train_step.1"
    ran = (program, "--partitioner", "shardy")
    here = sdyscope("comms", "before:train_step.1", "--json").document("comms")["programs"][0]
    done = sdyscope("comms", *ran, "--strict", columns=200)
    assert done.status == 0, done.out
    assert "; compiled for NVIDIA H200 by JAX " in done.out
    assert "compiled it for gpu in the recorded run." in done.out
    there = sdyscope("comms", *ran, "--json").document("comms")["programs"][0]
    assert there["total"] == here["total"]
    origins = [part["origin"] for each in there["collectives"] for part in each["parts"]]
    assert origins
    assert not any(origins)
    memory = sdyscope("memory", *ran, columns=200).out
    assert "; compiled for NVIDIA H200 under Shardy by JAX " in memory
    assert "match the compiler's count, to the byte" in memory
    assert "TFLOP/s f32, as measured" in sdyscope("cost", *ran, columns=200).out
    assert "; compiled for NVIDIA H200 by JAX " in sdyscope("source", *ran, columns=200).out
    assert "; compiled for NVIDIA H200 by JAX " in sdyscope("lint", *ran, columns=200).out
    sdyscope("report", *ran, "-o", "gpu.html")
    page = (root / "gpu.html").read_text()
    assert "for NVIDIA H200" in page
    assert "for None" not in page
    markdown = sdyscope("report", *ran, "-o", "gpu.md")
    assert "compiled for NVIDIA H200 " in (root / "gpu.md").read_text(), markdown.err
    # What is compared with another partitioner, tried or audited is compiled here.
    for words in (
        ["comms", program],
        ["comms", *ran, "--on", "cpu"],
        ["explain", *ran, "all-reduce"],
    ):
        said = " ".join(sdyscope(*words).out.split())
        assert "approximate, as compiled: The recorded run compiled it for gpu" in said
    assert "is necessary" in sdyscope("explain", *ran, "all-reduce").out
    done = sdyscope("diff", "before:train_step.1", program, "--at", "compiled", columns=200)
    assert "compiled it for gpu in the recorded run" in done.out
    audit = sdyscope("verify", program, "--json").document("verify")["programs"][0]
    assert not any(stage["disagreements"] for stage in audit["stages"])


def test_what_another_jax_made_is_not_made_again(sdyscope, recorded, runs):
    root = runs[0]
    known = json.loads((root / "after" / "record.json").read_text())["programs"]
    (made,) = (one["compiled"] for one in known if one["label"] == "train_step.1")
    assert (made["platform"], len(made["results"])) == ("cpu", 1)
    as_of_another_jax(root / "before", "train_step.1", root / "after" / made["file"])
    program = "other:train_step.1"
    # The modules are the same, and their two compilers made different programs of them.
    done = sdyscope("diff", "before:train_step.1", program)
    assert done.status == 0
    assert " lowered the first and JAX 0.9.9 the second:" in " ".join(done.out.split())
    # What it costs is known for the platform that the run names.
    done = sdyscope("cost", program)
    assert done.status == 0
    assert "no rates are known for cpu" in done.out
    done = sdyscope("diff", "before:train_step.1", program, "--at", "compiled")
    assert done.status == 1, done.out
    for said in ("before:train_step.1: JAX 0.", f"{program}: JAX 0.9.9 compiled it for cpu in the"):
        assert said in done.out
    found = sdyscope("comms", program, "--json").document("comms")["programs"][0]
    others = sdyscope("comms", "after:train_step.1", "--json").document("comms")["programs"][0]
    assert found["total"] == others["total"]
    assert "JAX 0.9.9 compiled it for cpu in the recorded run" in sdyscope("comms", program).out
    assert "JAX 0.9.9 compiled it for cpu" in sdyscope("memory", program).out
    assert "; lowered by JAX 0.9.9; read by JAX 0." in sdyscope("show", program, columns=200).out
    # Its own compiler did not say what its collectives are for: rules about that see nothing.
    of_causes = ["batch-sharding-lost", "activation-gathered-repeatedly", "parameter-gathered"]
    select = [word for rule in of_causes for word in ("--select", rule)]
    linted = sdyscope("lint", program, *select, "--json").document("lint")
    skipped = {entry["rule"]: entry for entry in linted["not_run"] if entry["applies"]}
    assert skipped.keys() == {"activation-gathered-repeatedly", "parameter-gathered"}
    assert all("Origins are not known" in entry["reason"] for entry in skipped.values())
    assert "read by" not in sdyscope("show", "after:train_step.1", columns=200).out
    lowered = sdyscope("lower", program, "--partitioner", "shardy").out.splitlines()[0]
    assert "ops; lowered by JAX 0.9.9; read by JAX 0." in lowered
    sdyscope("report", program, "-o", "other.md", "--partitioner", "shardy")
    report = (root / "other.md").read_text().replace("\\", "")
    assert "compiled for cpu by JAX 0.9.9 · lowered by JAX 0.9.9; read by JAX 0." in report
    here = sdyscope("comms", program, "--on", "cpu:8", "--strict", "--partitioner", "shardy")
    assert here.status == 1
    assert "approximate, as compiled: JAX 0.9.9 lowered it, and this JAX compiled it" in here.out
    # What its own JAX propagates was kept: by its own numbers, whoever reads them.
    words = ("propagate", program, "--partitioner", "shardy")
    (propagated,) = sdyscope(*words, "--json").document("propagate")["propagations"]
    (own,) = sdyscope("propagate", "before:train_step.1", *words[2:], "--json").document(
        "propagate"
    )["propagations"]
    assert (propagated["exactness"], own["exactness"]) == ("exact", "exact")
    assert {**propagated, "source": None} == {**own, "source": None}
    said = sdyscope(*words, columns=200).out.splitlines()[0]
    assert said.endswith(f"passes of JAX {jax.__version__}, run when it was recorded")
    # Edited it is another program, which this JAX propagates; so is an older recording's.
    wish = ("--set-sharding", "batch=P(None, 'data')")
    edited = sdyscope("explain", program, "result", *wish, *words[2:])
    assert "JAX 0.9.9 lowered it, and JAX 0." in " ".join(edited.out.split()), edited.err
    shutil.rmtree(root / "other" / "propagated")
    assert "What its own JAX propagates of train_step is gone" in sdyscope("show", "other").out
    (propagated,) = sdyscope(*words, "--json").document("propagate")["propagations"]
    assert propagated["exactness"] == "approximate"
    assert "JAX 0.9.9 lowered it" in str(propagated)
    assert "With record --propagate a run keeps what JAX 0.9.9 itself" in sdyscope(*words).out
    # An older recording has not what it was compiled to: it is compiled here, and that is said.
    shutil.rmtree(root / "other" / "compiled")
    words = ("comms", program, "--strict", "--partitioner", "shardy")
    assert "JAX 0.9.9 lowered it, and this JAX compiled it" in sdyscope(*words).out
    assert "is gone: compiled/" in sdyscope("show", "other").out


def test_a_directory_that_is_not_fit(sdyscope, recorded, tmp_path):
    words = ("--", sys.executable, "-c", "pass")
    sdyscope("record", "-o", "before", *words).said("--overwrite replaces the run, --add adds")
    sdyscope("record", "-o", "train.py", *words).said("train.py: This is not a directory")
    (tmp_path / "mine").write_text("")
    sdyscope("record", "-o", tmp_path, "--overwrite", *words).said("is not empty")
    assert os.listdir(tmp_path) == ["mine"]


@pytest.mark.parametrize("how", ["--overwrite", "--add"])
def test_nothing_is_written_through_a_link(sdyscope, tmp_path, how):
    for name in ("processes", "record.json"):
        folder = tmp_path / f"runs-{name}"
        (folder / "processes").mkdir(parents=True)
        (folder / "processes" / "a.jsonl").write_text("")
        (folder / "record.json").write_text('{"schema": "sdyscope.record/1"}')
        (folder / name).rename(tmp_path / f"moved-{name}")
        (folder / name).symlink_to(tmp_path / f"moved-{name}")
        sdyscope("record", "-o", folder, how, "--", sys.executable, "-c", "pass").said(
            f"{name} in it is a link"
        )
    assert os.listdir(tmp_path / "moved-processes") == ["a.jsonl"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no command to record"),
        (["nothing.py"], "nothing.py: There is no such script"),
        ([sys.executable, "-X", "dev", "nothing.py"], "nothing.py: There is no such script"),
        (["-m", "nothing.at.all"], "There is no module 'nothing.at.all'"),
        (["nothing_at_all", "x"], "There is no program 'nothing_at_all'"),
    ],
)
def test_a_command_that_is_not_there(sdyscope, tmp_path, words, said):
    sdyscope("record", "-o", tmp_path / "runs", "--", *words).said(said)
    assert not (tmp_path / "runs").exists()


def test_overwriting_adding_and_what_a_script_does_to_the_directory(sdyscope, tmp_path):
    folder = tmp_path / "runs"

    def run(code, *options):
        command = ("--", sys.executable, "-c", f"folder = {str(folder)!r}; {code}")
        return sdyscope("record", "-o", folder, *options, *command)

    def commands():
        return len(json.loads((folder / "record.json").read_text())["runs"])

    done = run("import pathlib; pathlib.Path(folder, 'record.json').write_text('mine')")
    assert (done.status, commands()) == (0, 1)
    assert "JAX compiled nothing in the processes that were recorded. A script alone" in " ".join(
        done.err.split()
    )
    done = run("raise SystemExit(5)", "--add")
    assert (done.status, commands()) == (5, 2)
    assert done.err.rstrip().endswith("nothing in the processes that were recorded.")
    done = run("print('to standard error')", "--overwrite", "--json")
    assert (done.document("record")["runs"][0]["status"], commands()) == (0, 1)
    remove = "import shutil; shutil.rmtree(folder)"
    run(remove, "--overwrite").said("removed while the script ran")


EAGER = """
import jax, jax.numpy as jnp
from jax.sharding import PartitionSpec as P

mesh = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
double = jax.shard_map(lambda a: jnp.sin(a) * a, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
double(jnp.ones((16, 4)))
jax.grad(lambda a: double(a).sum())(jnp.ones((16, 4)))
"""


def test_ops_of_shard_maps_outside_of_jit_are_one_row(tmp_path, monkeypatch, sdyscope):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "eager.py").write_text(EAGER)
    words = [sys.executable, "-m", "sdyscope", "record", "-o", "run", "--", "eager.py"]
    subprocess.run(words, check=True, capture_output=True)
    shown = sdyscope("show", "run").out
    assert re.search(
        r"^_unnamed_\w+ \(\d+ ops of shard_maps outside of jit\) +eager.py:", shown, re.M
    )
    # Different ops are not one function that was compiled again, nor the one that is
    # differentiated; each can be looked at.
    assert shown.count("_unnamed_") == 1
    assert "compiled again" not in shown
    assert re.search(r"^_unnamed_\w+\.1 ", sdyscope("show", "run", "--all").out, re.M)


def test_lint_leaves_single_ops_of_shard_maps_alone(tmp_path, monkeypatch, sdyscope):
    """What one is given nobody shards but the map: there was advice on `args[1]` of each."""
    monkeypatch.chdir(tmp_path)
    jitted = "jax.jit(lambda a: double(a).sum())(jnp.ones((16, 4)))\n"
    (tmp_path / "eager.py").write_text(EAGER + jitted)
    words = [sys.executable, "-m", "sdyscope", "record", "-o", "run", "--", "eager.py"]
    subprocess.run(words, check=True, capture_output=True)
    done = sdyscope("lint", "run", "--no-compile")
    assert "ops of shard_maps outside of jit, each compiled alone, are left out" in done.err
    assert "_unnamed_" not in done.out
    everything = sdyscope("lint", "run", "--no-compile", "--all", "--json").document("lint")
    assert any("_unnamed_" in program["name"] for program in everything["programs"])


ASKING = """
import jax, jax.numpy as jnp
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))

@custom_partitioning
def double(x):
    return x * 2

double.def_partition(
    partition=lambda mesh, args, result: (
        mesh, lambda x: x * 2, result.sharding, (args[0].sharding,)
    ),
    sharding_rule="i j -> i j",
)
step = jax.jit(lambda x: double(x).sum())
step(jax.device_put(jnp.ones((16, 4)), NamedSharding(mesh, P("x"))))
"""


def test_what_the_run_s_own_python_partitioned_is_shown_as_it_was_compiled(
    tmp_path, monkeypatch, sdyscope
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "asking.py").write_text(ASKING)
    words = [sys.executable, "-m", "sdyscope", "record", "-o", "run", "--", "asking.py"]
    subprocess.run(words, check=True, capture_output=True)
    communicated = sdyscope("comms", "run")
    assert communicated.status == 0
    assert "Shardy: 1 collective per step; a device sends 7 B" in communicated.out
    assert "compiled it for cpu in the recorded run" in communicated.out
    assert sdyscope("comms", "run", "--on", "cpu:8").status == 2
    audited = sdyscope("verify", "run")
    assert audited.status == 1
    assert "custom_partitioning asks Python how to partition an op" in audited.out


def test_recorded_command_lines_hide_secrets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").write_text("import jax\njax.jit(lambda x: x + 1)(1.0)\n")
    words = [sys.executable, "-m", "sdyscope", "record", "-o", "run", "--"]
    subprocess.run([*words, "a.py", "--hf-token", "s3cret"], check=True, capture_output=True)
    written = [path.read_text() for path in (tmp_path / "run").rglob("*.json*")]
    assert written
    assert not any("s3cret" in text for text in written)
    assert any("***" in text for text in written)


def test_a_run_that_is_added_meanwhile_is_in_the_index(tmp_path, monkeypatch):
    (tmp_path / "processes").mkdir()
    line = {"line": "run", "at": 1.0, "schema": SCHEMA, "command": ["a"], "directory": "/"}
    ended = {"line": "ended", "at": 2.0, "status": 0}
    locked = record_run.locked

    def write(name):
        text = "".join(json.dumps(one) + "\n" for one in ({**line, "partitioner": ""}, ended))
        (tmp_path / "processes" / f"run-{name}.jsonl").write_text(text)

    @contextlib.contextmanager
    def waited(folder):
        write("another")
        with locked(folder):
            yield

    write("own")
    monkeypatch.setattr(record_run, "locked", waited)
    record_run.finish(tmp_path)
    assert len(json.loads((tmp_path / "record.json").read_text())["runs"]) == 2


MESHES = """
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P

def mesh_of(*names):
    return jax.make_mesh((4, 2), names, axis_types=(jax.sharding.AxisType.Auto,) * 2)

mesh, other = mesh_of("data", "model"), mesh_of("x", "y")
x = jax.device_put(jnp.ones((16, 8)), NamedSharding(mesh, P("data", "model")))

@jax.jit
def same(x):
    return jax.lax.with_sharding_constraint(x @ x.T, NamedSharding(mesh, P("data"))).sum()

@jax.jit
def inside(x):
    total = lambda x: jax.lax.psum(x, "y")
    return jax.shard_map(total, mesh=other, in_specs=P("x", "y"), out_specs=P("x"))(x)

@jax.jit
def elsewhere(x):
    return x.sum()

same(x), inside(x)
elsewhere = jax.jit(elsewhere, in_shardings=NamedSharding(other, P("x", "y")))
elsewhere(x)
"""


def test_under_gspmd_axes_have_the_names_of_the_one_mesh(sdyscope, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("meshes.py").write_text(MESHES)
    done = in_own_process("record", "-o", "run", "--partitioner", "gspmd", "--", "meshes.py")
    assert done.returncode == 0, done.stderr
    shown = sdyscope("show", "run", columns=120).out
    assert "data=4 x model=2" in shown
    arguments = sdyscope("show", "run:same", "--kind", "argument").out
    assert "x       f32[16,8]  P('data', 'model')" in arguments
    comms = sdyscope("comms", "run:same").out
    assert "model=2" in comms
    assert "No known mesh fits" not in comms
    linted = sdyscope("lint", "run:same").out
    assert "It reads Shardy's module.\n" in linted  # Not the advice to take it: there is none.
    # The constraint on a mesh of other names could be meant by either.
    two = sdyscope("show", "run:inside", "--kind", "argument").out
    assert ("no mesh is named" in two, "P('" in two) == (True, False)
    # Not the mesh that the arrays of the call were on.
    settled = sdyscope("show", "run:elsewhere", "--kind", "argument").out
    assert "x       f32[16,8]  P('x', 'y')" in settled
    assert sdyscope("verify", "run:same").status == 0


CACHED = """
import jax
import jax.numpy as jnp

jax.config.update("jax_compilation_cache_dir", "cache")
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

@jax.jit
def double(x):
    return x * 2

for size in (4, 8):
    double(jnp.ones(size))
"""


def test_what_is_read_from_the_compilation_cache_is_told_from_compiles(
    tmp_path, monkeypatch, sdyscope
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cached.py").write_text(CACHED)
    for run in ("first", "second"):
        in_own_process("record", "-o", run, "--", "cached.py", cwd=tmp_path)
    assert "JAX's compilation cache" not in sdyscope("show", "first").out
    shown = sdyscope("show", "second").out
    assert re.match(
        r"second: 2 programs, compiled 2 times in \S+ s, all read from JAX's compilation cache",
        shown,
    )
    assert re.search(r"double.1 .* 1 \(read\) ", shown)
    assert re.search(r"compiled again once in \S+ s, read from JAX's compilation cache", shown)
    programs = json.loads(sdyscope("show", "second", "--json").out)["recompiles"]
    assert [each["cached"] for each in programs] == [True]
