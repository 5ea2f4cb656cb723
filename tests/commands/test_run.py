"""`sdyscope run`."""

import json

import jsonschema
import pytest
from own_process import DEVICES_UNSAID, in_own_process

from sdyscope.commands import document_type
from sdyscope.commands import run as run_command
from sdyscope.terminal.document import schema

pytestmark = pytest.mark.compiles

PROGRAMS = """
import os, time
import jax
import jax.numpy as jnp
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec as P
from sdyscope import Program

def double(devices: int = 16):
    mesh = AbstractMesh((devices,), ("data",), axis_types=(AxisType.Auto,))
    x = jax.ShapeDtypeStruct((devices, 2), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    return Program("double", jax.jit(lambda x: x * 2), (x,))

def never_reduced(mesh):
    mapped = jax.shard_map(
        lambda x: x.sum(keepdims=True), mesh=mesh, in_specs=P("data"), out_specs=P(),
        check_vma=False)
    x = jax.ShapeDtypeStruct((8,), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    return Program("never_reduced", jax.jit(mapped), (x,))

def aborts(mesh):
    # GSPMD alone asks how to infer a sharding.
    real = jax.make_mesh(mesh.axis_sizes, mesh.axis_names, axis_types=mesh.axis_types)
    twice = custom_partitioning(lambda x: x * 2)
    twice.def_partition(
        partition=lambda mesh, args, result: (
            mesh, lambda x: x * 2, args[0].sharding, (args[0].sharding,)),
        infer_sharding_from_operands=lambda mesh, args, result: os.abort(),
        sharding_rule="i -> i")
    x = jax.ShapeDtypeStruct((8,), jnp.float32, sharding=NamedSharding(real, P("data")))
    return Program("aborts", jax.jit(lambda x: twice(x)), (x,))

def sharded(shape, mesh, *spec):
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

def reduced(mesh, again):
    def local(w, x):
        gradient = jax.grad(lambda w: jnp.sum((x @ w) ** 2))(w)
        return jax.lax.psum(gradient, "data") if again else gradient
    mapped = jax.shard_map(local, mesh=mesh, in_specs=(P(), P("data")), out_specs=P())
    arguments = sharded((16, 4), mesh), sharded((64, 16), mesh, "data")
    return Program("reduced", jax.jit(mapped), arguments)

def reduced_once(mesh):
    return reduced(mesh, False)

def reduced_twice(mesh):
    return reduced(mesh, True)

def cut(mesh):
    # Softmax over a device's own columns.
    mapped = jax.shard_map(
        jax.nn.softmax, mesh=mesh, in_specs=P(None, "data"), out_specs=P(None, "data"))
    return Program("cut", jax.jit(mapped), (sharded((4, 8), mesh, None, "data"),))

def dense(w, x):
    return jax.grad(lambda w: jnp.sum((x @ w) ** 2))(w)

def other(w, x):
    return dense(w, x), w

def for_these(mesh):
    mapped = jax.shard_map(
        lambda x: x * 2, mesh=mesh, in_specs=P("data"), out_specs=P("data"))
    one = sharded((2 * mesh.shape["data"],), mesh, "data")
    return Program("for_these", jax.jit(mapped), (one,))

def asleep(mesh):
    x = jax.ShapeDtypeStruct((8,), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    return Program("asleep", jax.jit(lambda x: x), (x,), inputs=lambda: time.sleep(600))

MESH = {"data": 4}
"""


def run(*words, **environment):
    return in_own_process("run", *words, **DEVICES_UNSAID | environment)


@pytest.fixture
def programs(tmp_path):
    path = tmp_path / "programs.py"
    path.write_text(PROGRAMS)
    return path


@pytest.mark.usefixtures("new_processes")
def test_mlp_in_80_columns():
    done = run("mlp", "--steps", 2, COLUMNS="80")
    assert (done.returncode, done.stderr) == (0, "")
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    assert done.stdout.startswith("mlp on 8 virtual CPU devices; data=4 x model=2\n")
    assert "17 of 17, 136 shards" in done.stdout


def test_document_follows_its_schema():
    done = run("mlp", "--mesh", "data=2", "--partitioner", "shardy", "--steps", 1, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    jsonschema.validate(document, schema(document_type("run")))
    assert document["passed"]
    (shardy,) = document["partitioners"]
    assert (shardy["arrays"], shardy["shards"], shardy["differing"]) == (17, 34, 0)
    assert shardy["step"]["steps"] == 1
    x = next(tensor for tensor in document["tensors"] if tensor["path"] == "batch['x']")
    assert x["executed"]["shardy"]["blocks"] == [
        {"index": [[0, 8], [0, 128]], "shape": [8, 128], "devices": [0]},
        {"index": [[8, 16], [0, 128]], "shape": [8, 128], "devices": [1]},
    ]


@pytest.mark.usefixtures("new_processes")
def test_the_memory_of_gpus_is_left_to_others():
    # Where a GPU is found to be too few devices, JAX has started it all the same.
    variable = "XLA_PYTHON_CLIENT_PREALLOCATE"
    assert run_command.environment(None)[variable] == "false"
    assert run_command.environment({"data": 4}, platform="cpu")[variable] == "false"


def test_as_many_virtual_devices_as_the_program_needs(programs):
    done = run(f"{programs}:double", "--steps", 1)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("double on 16 virtual CPU devices; data=16\n")


def test_too_few_devices_is_one_sentence(programs):
    done = run(f"{programs}:double", "--devices", 4)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: The program needs 16 devices, and there are 4 (CPU).\n")
    done = run("mlp", XLA_FLAGS="--xla_force_host_platform_device_count=4")
    assert (done.returncode, done.stdout) == (2, "")
    assert "out of XLA_FLAGS" in done.stderr


def test_findings_are_exit_status_1(programs):
    done = run(f"{programs}:never_reduced", "--partitioner", "shardy", "--steps", 1)
    assert (done.returncode, done.stderr) == (1, "")
    assert "[replicas-differ]" in done.stdout


def test_what_aborts_under_one_partitioner_is_run_under_the_other(programs):
    done = run(f"{programs}:aborts", "--steps", 1, "--json")
    assert (done.returncode, done.stderr) == (1, "")
    document = json.loads(done.stdout)
    shardy, gspmd = document["partitioners"]
    assert shardy["passed"]
    assert gspmd["failure"] == "the process was ended by SIGABRT, compiling for GSPMD."
    done = run(f"{programs}:aborts", "--partitioner", "gspmd")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: sdyscope run was ended by SIGABRT, compiling for GSPMD.")


def test_a_run_alone_has_a_time_as_well(programs):
    done = run(f"{programs}:asleep", "--timeout", 5)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: It made no progress for 5 s: it was making the inputs.\n")


def test_a_file_has_no_values_to_run_on(sdyscope, mlp_files):
    sdyscope("run", mlp_files / "shardy.mlir").said("Name the program that it was lowered from.")


def found_by(programs, name):
    done = run(f"{programs}:{name}", "--steps", "1", "--json")
    return done.returncode, json.loads(done.stdout)


def test_a_second_sum_is_no_agreement(programs):
    status, document = found_by(programs, "reduced_twice")
    assert (status, document["reference"]["kind"]) == (1, "mapped")
    (finding,) = document["findings"]
    assert (finding["rule"], finding["severity"]) == ("depends-on-mesh", "error")
    said = (
        "is 4 times what the program computes on a mesh of one device: the size of data. The first"
    )
    assert said in finding["message"]
    text = " ".join(run(f"{programs}:reduced_twice", "--steps", "1").stdout.split())
    assert "verdict depends on the mesh depends on the mesh" in text
    assert "agrees" not in text


def test_one_sum_is_what_one_device_computes(programs):
    status, document = found_by(programs, "reduced_once")
    assert (status, document["reference"]["kind"], document["findings"]) == (
        0,
        "one-device mesh",
        [],
    )
    text = " ".join(run(f"{programs}:reduced_once", "--steps", "1").stdout.split())
    assert "verdict agrees with itself agrees with itself" in text
    assert "On a mesh of one device the program computes the same." in text


def test_what_depends_on_how_blocks_are_cut_is_a_note(programs):
    status, document = found_by(programs, "cut")
    assert (status, document["reference"]["kind"]) == (0, "mapped")
    (finding,) = document["findings"]
    assert (finding["rule"], finding["severity"]) == ("depends-on-mesh", "note")
    assert "is not what the program computes on a mesh of one device: the" in finding["message"]
    assert document["inside"] == []


def test_a_program_of_other_shapes_on_one_device_is_not_compared(programs):
    status, document = found_by(programs, "for_these")
    assert (status, document["reference"]["kind"]) == (0, "mapped")
    assert "other shapes" in document["reference"]["alone_failure"]
    text = " ".join(run(f"{programs}:for_these", "--steps", "1").stdout.split())
    assert "Not compared on a mesh of one device: its arguments or results have other" in text


def test_without_a_shard_map_nothing_of_a_mesh_is_in_the_reference(programs):
    document = found_by(programs, "double")[1]
    assert document["reference"]["kind"] == "unsharded"


# --- against a function, and on several meshes ----------------------------------------------------


def test_a_reference_is_what_results_are_compared_with(programs):
    words = ("--reference", f"{programs}:dense", "--steps", 1, "--partitioner", "shardy")
    done = run(f"{programs}:reduced_once", *words)
    assert (done.returncode, done.stderr) == (0, "")
    text = " ".join(done.stdout.split())
    assert "verdict agrees compared with programs.py:dense" in text
    assert "against programs.py:dense on one device (" in text
    done = run(f"{programs}:reduced_twice", *words, "--json")
    assert (done.returncode, done.stderr) == (1, "")
    document = json.loads(done.stdout)
    jsonschema.validate(document, schema(document_type("run")))
    assert (document["reference"]["kind"], document["reference"]["is_independent"]) == (
        "function",
        True,
    )
    (finding,) = document["findings"]
    assert finding["rule"] == "numerics-differ"
    assert "It is not what programs.py:dense computes. The first value inside" in finding["message"]
    (inside,) = document["inside"]
    first, line = inside["first"], 1 + PROGRAMS.splitlines().index(SECOND_SUM)
    assert (first["op"][:4], first["source"]["line"], first["ratio"]) == ("psum", line, 4.0)
    assert (first["axes"], first["unseen"]) == (["data"], 0)


SECOND_SUM = '        return jax.lax.psum(gradient, "data") if again else gradient'


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("programs.py:other", "The reference programs.py:other returns 2 arrays, and reduced 1."),
        ("programs.py:densf", "Did you mean dense?"),
        ("programs.py:MESH", "is a dict, not a function."),
        ("dense", "'dense' names no function."),
    ],
)
def test_a_reference_that_is_none_is_one_sentence(programs, function, said):
    word = str(programs.with_name(function)) if ":" in function else function
    done = run(f"{programs}:reduced_once", "--reference", word, "--steps", 1)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_several_processes_compare_with_a_reference_as_well(programs):
    words = ("--reference", f"{programs}:dense", "--steps", 1, "--processes", 2, "--json")
    done = run(f"{programs}:reduced_twice", *words, "--partitioner", "shardy")
    assert (done.returncode, done.stderr) == (1, "")
    document = json.loads(done.stdout)
    assert document["reference"]["function"] == "programs.py:dense"
    assert document["inside"] == [
        {"result": "result", "first": None, "why": "processes", "reason": ""}
    ]


def test_meshes_are_compared_with_one_device(programs):
    words = ("--meshes", "data=3", "data=4", "data=2", "--partitioner", "shardy", "--steps", 1)
    done = run(f"{programs}:reduced_twice", *words, "--json")
    assert (done.returncode, done.stderr) == (1, "")
    document = json.loads(done.stdout)
    jsonschema.validate(document, schema(document_type("run")))
    # data=3 can't hold the batch of 64: the next takes its place.
    assert document["mesh"]["axes"] == {"data": 4}
    rows = {mesh["devices"]: mesh for mesh in document["meshes"]}
    assert [row["is_base"] for row in rows.values()] == [True, False, False, False]
    assert "not evenly divisible" in rows[3]["failure"]
    wrong = {
        count: one["compared"]["shardy"]["differing"] for count, one in rows.items() if count != 3
    }
    assert wrong == {1: 0, 4: 1, 2: 1}
    said = [
        finding["message"] for finding in document["findings"] if finding["severity"] == "error"
    ]
    assert [one.partition(" the program")[0] for one in said] == [
        "On data=4, result is 4 times what",
        "On data=2, result is 2 times what",
    ]
    # The smallest mesh is looked into.
    (inside,) = document["inside"]
    assert (inside["first"]["op"][:4], inside["first"]["ratio"]) == ("psum", 2.0)


def test_meshes_that_agree_are_a_table_in_any_spelling(programs):
    target = f"{programs}:reduced_once"
    rest = ("--partitioner", "shardy", "--steps", 1)
    done = run(target, "--meshes", "data=2 data=4", *rest)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("data=")]
    assert [(row[0], row[1]) for row in rows] == [("data=1", "1"), ("data=2", "2"), ("data=4", "4")]
    assert [row[2] for row in rows] == ["base", "the", "the"]
    # What follows the meshes is no mesh; a mesh that can't hold it counts where all is to be known.
    done = run(*rest, "--strict", "--meshes", "data=2", "data=3", target, "--json")
    assert (done.returncode, done.stderr) == (1, "")
    assert [mesh["devices"] for mesh in json.loads(done.stdout)["meshes"]] == [1, 2, 3]


def test_meshes_that_can_not_be_are_wrong_usage(programs):
    for words, said in (
        (("--meshes", "data=-1"), "written out"),
        (("--meshes", "data=x"), "is 'x'"),
        (("--meshes", "data=2", "--processes", 2), "in one process"),
    ):
        done = run(f"{programs}:reduced_once", *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert said in done.stderr
