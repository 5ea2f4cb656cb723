"""`sdyscope memory`."""

import json

import pytest

from sdyscope.words.partitioners import partitioner_name

pytestmark = pytest.mark.compiles

PROGRAM = """
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
from sdyscope import Program

MESH = {"data": 4, "model": 2}

def program(mesh):
    def array(shape, *spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    def step(layers, x):
        for w in layers:
            x = jnp.tanh(x @ w["w"])
        return [{"w": w["w"] * 2} for w in layers], x

    jitted = jax.jit(step, donate_argnums=0, out_shardings=NamedSharding(mesh, P("data")))
    layers = [{"w": array((16, 16), None, "model")} for _ in range(3)]
    return Program("step", jitted, (layers, array((8, 16), "data")))
"""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "memory_program.py"
    path.write_text(PROGRAM)
    return f"{path}:program"


def rows(done):
    """The tables' lines as lists of cells, by their first cell."""
    lines = [line.split("  ") for line in done.out.splitlines()]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    found = {}
    for line in cells:
        if line:
            found.setdefault(line[0], line[1:])
    return found


def test_groups_and_savings(sdyscope):
    done = sdyscope("memory", "mlp", "--set", "donate=true")
    assert (done.status, done.err) == (0, "")
    cells = rows(done)
    assert cells["params"] == ["2", "138.0 KiB", "69.0 KiB", "51.8 KiB", "69.0 KiB"]
    assert cells["batch"] == ["2", "8.6 KiB", "2.2 KiB", "1.1 KiB", "-"]
    assert cells["result[0]"] == ["2", "138.0 KiB", "69.0 KiB", "51.8 KiB", "69.0 KiB"]
    assert cells["arguments"] == []
    assert cells["other results"] == ["68 B"]
    w1 = ["f32[128,256]", "P(None, 'model')", "4", "P('data', 'model')", "48.0 KiB"]
    assert cells["params['w1']"] == w1
    assert "compiled for cpu:8 under Shardy by JAX" in done.out
    assert "to the byte" in done.out


@pytest.mark.parametrize("columns", [80, 120])
def test_reads_well_at_every_width(sdyscope, columns):
    done = sdyscope("memory", "mlp", "--partitioner", "both", columns=columns)
    assert done.status == 0
    lines = done.out.splitlines()
    assert max(map(len, lines)) <= columns
    assert all(line == line.rstrip() for line in lines)
    # What is the same under both is told once.
    assert done.out.count("total") == 1
    assert "under Shardy and GSPMD" in " ".join(lines)


def test_donations_of_no_use_and_layers_in_one_row(sdyscope, program):
    done = sdyscope("memory", program, columns=80)
    assert done.status == 1
    assert "3 warnings" in done.out
    assert "argument layers[0]['w'] under Shardy [donation-unused]" in done.out
    row = rows(done)["layers[*]['w'] (3)"]
    assert row == ["P(None, 'model')", "4", "P('data', 'model')", "1.1 KiB"]


def test_top(sdyscope):
    done = sdyscope("memory", "mlp", "--top", "1")
    assert "7 rows left out by --top" in done.out
    assert "params['w2']" not in done.out
    done = sdyscope("memory", "mlp", "--top", "0")
    assert "left out" not in done.out


def test_the_document(sdyscope, program):
    done = sdyscope("memory", program, "--partitioner", "both", "--json")
    document = done.document("memory")
    assert (done.status, document["passed"]) == (1, False)
    assert document["account"] == {"unknowns": []}
    assert [compiled_program["partitioner"] for compiled_program in document["compiled"]] == [
        "shardy",
        "gspmd",
    ]
    for compiled_program in document["compiled"]:
        assert compiled_program["equal"] is True
        assert compiled_program["compiler"]["arguments"] == 3 * 16 * 8 * 4 + 2 * 16 * 4
        assert {finding["rule"] for finding in compiled_program["findings"]} == {"donation-unused"}
        first = compiled_program["tensors"][0]
        assert (first["name"], first["best"]) == ("layers[0]['w']", "P('data', 'model')")
        assert first["options"][0] == {"dim": 0, "axis": "data", "saves": 384}


@pytest.mark.parametrize("partitioner", ["shardy", "gspmd"])
def test_a_file(sdyscope, mlp_files, partitioner):
    done = sdyscope("memory", mlp_files / f"{partitioner}.mlir")
    assert (done.status, done.err) == (0, "")
    assert rows(done)["params"] == ["2", "138.0 KiB", "69.0 KiB", "51.8 KiB"]
    assert f"under {partitioner_name(partitioner)} by" in done.out
    assert ("params['w1']" in done.out) is (partitioner == "shardy")
    assert ("no name here for the axes" in done.out) is (partitioner == "gspmd")


def test_devices_that_are_not_there_are_cpus_and_a_sentence(sdyscope, monkeypatch):
    from sdyscope.stages.compiled import present

    monkeypatch.setattr(present, "accelerators", lambda: ())
    done = sdyscope("memory", "mlp", "--on", "devices", columns=80)
    assert done.status == 0
    words = " ".join(done.out.split())
    assert "compiled for cpu:8" in words
    assert "JAX finds no accelerator: compiled for 8 virtual CPU devices instead." in words
    sdyscope("memory", "mlp", "--on", "gpu").said("JAX finds no GPU on this machine", "doctor")


def test_what_can_not_be_compiled_for(sdyscope, mlp_files):
    sdyscope("memory", "mlp", "--on", "cpu:4").said("cpu:4 has 4 devices", "for 8 devices")
    sdyscope("memory", "mlp", "--on", "abacus").said("'abacus' names no hardware", "tpu:v5e:4x4")
    (mlp_files / "cut.mlir").write_text((mlp_files / "shardy.mlir").read_text()[:3000])
    sdyscope("memory", mlp_files / "cut.mlir").said("cut.mlir:", "can't read it")


HLO = """HloModule jit_step, input_output_alias={ {0}: (0, {}, may-alias) }, \
buffer_donor={ (1, {}) }, \
entry_computation_layout={(f32[1024]{0}, f32[4]{0})->(f32[1024]{0}, f32[])}, num_partitions=8

ENTRY e {
  %p = f32[1024]{0} parameter(0), metadata={op_name="w"}
  %x = f32[4]{0} parameter(1), metadata={op_name="x"}
  %z = f32[] constant(0)
  ROOT %t = (f32[1024]{0}, f32[]) tuple(%p, %z)
}
"""


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "compiled.txt"
    path.write_text(HLO)
    return path


@pytest.mark.parametrize("columns", [80, 120])
def test_the_text_of_a_compiled_program(sdyscope, text, columns):
    done = sdyscope("memory", text, "--top", "1", columns=columns)
    assert (done.status, done.err) == (1, "")
    assert max(map(len, done.out.splitlines())) <= columns
    cells = rows(done)
    assert cells["w"] == ["1", "4.0 KiB", "-", "4.0 KiB"]
    assert cells["results"] == []
    assert cells["arguments and results"] == ["4.0 KiB"]
    words = " ".join(done.out.split())
    assert "compiled for 8 devices" in words
    assert "3 left out by --top" in words
    assert "argument x [donation-unused]" in words
    assert "has neither temporaries" in words


def test_the_document_of_a_text(sdyscope, text):
    document = sdyscope("memory", text, "--json").document("memory")
    assert (document["name"], document["file"]) == (
        "jit_step",
        f"…/{text.parent.name}/compiled.txt",
    )
    (compiled_program,) = document["compiled"]
    assert (
        compiled_program["partitioner"],
        compiled_program["hardware"],
        compiled_program["compiler"],
    ) == (None, None, None)
    assert [tensor["stored"]["bytes"] for tensor in compiled_program["tensors"]] == [
        4096,
        16,
        4096,
        4,
    ]
    assert {(tensor["shape"], tensor["bytes"]) for tensor in compiled_program["tensors"]} == {
        (None, None)
    }


def test_a_text_says_how_its_parameters_are_sharded(sdyscope, text):
    text.write_text(
        HLO.replace("jit_step, ", "jit_step, is_scheduled=true, ").replace(
            "parameter(0)", "parameter(0), sharding={devices=[4,2]<=[8] last_tile_dim_replicate}"
        )
    )
    document = sdyscope("memory", text, "--mesh", "data=4,model=2", "--json").document("memory")
    first = document["compiled"][0]["tensors"][0]
    assert (first["sharding"], first["replicas"], first["origin"]) == ("P('data')", 2, "compiled")
    assert first["replicated"] == 2048


def test_what_a_text_can_not_be_asked(sdyscope, text):
    for option in (["--on", "cpu:8"], ["--partitioner", "gspmd"]):
        sdyscope("memory", text, *option).said("is a compiled program", f"Leave {option[0]} out")
    sdyscope("memory", text, "--mesh", "a=4").said("8 devices", "the mesh has 4")
    sdyscope("memory", text, "--module", "f").said("not a directory", "Leave --module out")
    text.write_text(HLO.replace("entry_computation_layout", "other"))
    sdyscope("memory", text).said(str(text), "does not say how it stores")
    text.write_text(HLO[:-40].replace("jit_step, ", "jit_step, is_scheduled=true, "))
    sdyscope("memory", text).said(str(text), "cut off")


def test_the_peak(sdyscope):
    done = sdyscope("memory", "mlp", "--peak", "--top", "3", "--try", "2", columns=80)
    assert (done.status, done.err) == (0, "")
    lines = done.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.lstrip().startswith("▲ peak") or line.endswith("peak ▲") for line in lines)
    cells = rows(done)
    assert {"params['w1']", "opt_state[0].mu['w1']"} <= set(cells)
    assert cells["parameters"][-1].endswith("%")
    assert cells["donate params, opt_state"][1].startswith("-")
    assert "2 of 2 lower the peak" in done.out
    assert "counted so it is the same to the byte" in " ".join(done.out.split())


def test_the_peak_of_a_text(sdyscope, tmp_path):
    from sdyscope.inspection import Inspection
    from sdyscope.targets import resolve

    text = Inspection(resolve("mlp"), ["shardy"]).compiled().hlo
    scheduled, other = tmp_path / "step.txt", tmp_path / "other.txt"
    scheduled.write_text(text)
    other.write_text(text.replace(", is_scheduled=true", "", 1))
    done = sdyscope("memory", str(scheduled), "--peak")
    assert done.status == 0
    assert "peak: " in done.out
    done = sdyscope("memory", str(other), "--peak")
    assert (done.status, done.out) == (2, "")
    assert "not scheduled" in done.err


@pytest.mark.parametrize(("limit", "status"), [("1GiB", 0), ("100KiB", 1)])
def test_whether_it_fits(sdyscope, limit, status):
    done = sdyscope("memory", "mlp", "--fits", limit)
    assert (done.status, done.err) == (status, "")
    assert done.out.startswith("it fits:" if status == 0 else "it does not fit:")


@pytest.mark.thorough
def test_the_largest_batch_that_fits(sdyscope):
    done = sdyscope("memory", "mlp", "--fits", "600KiB", "--vary", "batch", "--json")
    varied = json.loads(done.out)["varied"]
    needs = {trial["value"]: trial["needs"] for trial in varied["trials"]}
    assert varied["given"] == 16
    assert needs[varied["best"]] <= 600 * 1024 < needs[varied["best"] + varied["step"]]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--vary", "batch"), "--vary needs a limit"),
        (("--fits", "1GiB", "--vary", "size"), "no size 'size' to vary"),
        (("--fits", "1GiB", "--vary", "dtype"), "not a whole number"),
        (("--fits", "much"), "not a size in bytes"),
        (("--peak", "--predicted"), "--predicted compiles nothing"),
    ],
)
def test_what_can_not_be_asked(sdyscope, words, said):
    done = sdyscope("memory", "mlp", *words)
    assert (done.status, done.out) == (2, "")
    assert said in " ".join(done.err.split())
