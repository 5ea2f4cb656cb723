"""`sdyscope comms`."""

# ruff: noqa: E501 - lines of HLO are long

import json
from pathlib import Path

import pytest

from sdyscope.stages import compat
from sdyscope.stages.compiled.text import read_compiled

SUB_AXES = """
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
from sdyscope import Program

MESH = {"a": 4, "b": 2}

def program(mesh):
    def array(shape, *spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    @jax.jit
    def step(x, w):
        y = x.reshape(2, 4, 16)
        y = jax.lax.with_sharding_constraint(y, NamedSharding(mesh, P(P.UNCONSTRAINED, None, "b")))
        return jnp.tanh(y), x @ w

    return Program("step", step, (array((8, 16), "a", None), array((16, 32), None, "b")))
"""

PROGRAM = """
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
from sdyscope import Program

MESH = {"x": 2, "y": 4}

def program(mesh):
    def on(*spec):
        return NamedSharding(mesh, P(*spec))

    def step(a):
        b = jax.lax.with_sharding_constraint(jnp.sin(a), on("y", None, "x"))
        return jax.lax.with_sharding_constraint(b * 2, on(None, ("x", "y"), None))

    a = jax.ShapeDtypeStruct((8, 16, 32), jnp.float32, sharding=on("y", None, "x"))
    return Program("step", jax.jit(step), (a,))

def alone(mesh):
    a = jax.ShapeDtypeStruct((8,), jnp.float32, sharding=NamedSharding(mesh, P("x")))
    return Program("alone", jax.jit(jnp.sin), (a,))
"""

HLO = """HloModule jit_f, num_partitions=8

ENTRY e {
  %p = f32[1024]{0} parameter(0)
  ROOT %r = f32[1024]{0} all-reduce(%p), channel_id=1, replica_groups=[4,2]<=[8], use_global_device_ids=true, metadata={op_name="jit(f)/layer/psum" source_file="a.py" source_line=3}
}
"""

GSPMD = """module @jit_f attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<16xf32> {mhlo.sharding = "{devices=[8]<=[8]}"}) -> tensor<16xf32> {
    %0 = stablehlo.sine %arg0 : tensor<16xf32>
    return %0 : tensor<16xf32>
  }
}
"""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "communicating.py"
    path.write_text(PROGRAM)
    return path


@pytest.fixture
def hlo(tmp_path):
    path = tmp_path / "compiled.txt"
    path.write_text(HLO)
    return path


@pytest.mark.compiles
@pytest.mark.parametrize("columns", [60, 80, 120, None])
def test_the_total_comes_first_then_kinds_and_the_largest(sdyscope, columns):
    done = sdyscope("comms", "mlp", columns=columns)
    assert (done.status, done.err) == (0, "")
    lines = done.out.splitlines()
    assert columns is None or max(map(len, lines)) <= columns
    words = " ".join(done.out.split())
    assert words.startswith("mlp; data=4 x model=2, 8 devices; compiled for cpu:8 by JAX ")
    assert (
        "Shardy and GSPMD: 2 collectives per step for 4 tensors; a device sends 103.7 KiB" in words
    )
    assert "forward 166 B, backward 103.5 KiB" in words
    assert "all-reduce data=4 1 3 69.0 KiB 103.5 KiB" in words
    assert "mlp.py:99" in "".join(done.out.split()) or " 99" in words


MOVED = """
import jax, sdyscope
from jax.sharding import NamedSharding, PartitionSpec as P

def program(mesh):
    rows, columns = NamedSharding(mesh, P("data")), NamedSharding(mesh, P(None, "data"))

    def step(x):
        with jax.named_scope("moved"):
            slopes = jax.lax.with_sharding_constraint(jax.grad(lambda x: (x * x).sum())(x), rows)
            return jax.lax.with_sharding_constraint(slopes, columns)

    x = jax.ShapeDtypeStruct((16, 16), "float32", sharding=rows)
    return sdyscope.Program("step", jax.jit(step), (x,))

MESH = {"data": 4}
"""


@pytest.mark.compiles
def test_what_is_sent_in_no_pass_alone_is_not_split_into_passes(sdyscope, tmp_path):
    (tmp_path / "moved.py").write_text(MOVED)
    done = sdyscope("comms", f"{tmp_path}/moved.py:program", "--partitioner", "shardy")
    assert "a device sends 192 B" in done.out
    assert "other 192 B" not in done.out


@pytest.mark.compiles
def test_json_has_all_of_it(sdyscope):
    document = sdyscope("comms", "mlp", "--json", "--partitioner", "shardy").document("comms")
    (program,) = document["programs"]
    assert (document["hardware"], program["partitioner"], program["devices"]) == (
        "cpu:8",
        "shardy",
        8,
    )
    assert program["total"] == {
        "count": 2,
        "tensors": 4,
        "bytes": 70820,
        "sent": 106150,
        "received": 106150,
    }
    assert [entry["axes"] for entry in program["by_axes"]] == [
        ["data"],
        ["model"],
    ]
    assert program["mesh"]["axes"] == {"data": 4, "model": 2}
    largest = program["collectives"][0]
    assert largest["parts"][0]["source"]["file"].endswith("mlp.py")
    assert sum(tally["sent"] for tally in program["by_scope"].values()) == 106150
    assert program["with_source"] == 4


@pytest.mark.compiles
def test_a_rematerialization_is_told_at_its_line(sdyscope, program):
    done = sdyscope("comms", f"{program}:program")
    line = 1 + PROGRAM.splitlines().index(
        '        b = jax.lax.with_sharding_constraint(jnp.sin(a), on("y", None, "x"))'
    )
    assert "involuntary full rematerialization of f32[2,16,16] in sharding_constraint" in done.out
    assert f"communicating.py:{line}" in done.out


@pytest.mark.compiles
def test_a_program_that_sends_nothing(sdyscope, program):
    done = sdyscope("comms", f"{program}:alone")
    assert done.status == 0
    assert "Shardy and GSPMD: no collectives, nothing is sent" in done.out
    assert "collective  " not in done.out


def test_a_file_of_hlo_is_read_as_it_is(sdyscope, hlo):
    done = sdyscope("comms", hlo)
    assert "jit_f" in done.out
    assert "1 collective per step; a device sends 4.0 KiB" in done.out
    assert "groups of 2" in done.out
    assert "No known mesh fits" in done.out
    named = sdyscope("comms", hlo, "--mesh", "data=4,model=2")
    assert "all-reduce  model=2  1  f32[1024]  4.0 KiB  layer  a.py:3" in named.out


def test_what_a_compiled_program_cannot_be_asked(sdyscope, hlo):
    sdyscope("comms", hlo, "--on", "cpu:8").said("is a compiled program", "Leave --on out")
    words = ("is a compiled program", "Leave --partitioner out")
    sdyscope("comms", hlo, "--partitioner", "gspmd").said(*words)
    sdyscope("comms", hlo, "--module", "f").said("not a directory", "Leave --module out")


@pytest.mark.parametrize("command", ["comms", "memory", "cost"])
def test_a_compiled_proto_is_one_sentence(sdyscope, tmp_path, command):
    path = tmp_path / "compiled.pb"
    module = compat.hlo.hlo_module_from_text(
        HLO.replace(
            "ENTRY",
            "add {\n  %a = f32[] parameter(0)\n  %b = f32[] parameter(1)\n"
            "  ROOT %c = f32[] add(%a, %b)\n}\n\nENTRY",
        ).replace("use_global_device_ids=true", "use_global_device_ids=true, to_apply=add")
    )
    path.write_bytes(module.as_serialized_hlo_module_proto())
    sdyscope(command, path).said("compiled already", "compiled.as_text()")


def test_scopes_in_place_of_collectives(sdyscope, hlo):
    done = sdyscope("comms", hlo, "--scopes")
    assert "layer        1  4.0 KiB  4.0 KiB" in done.out
    assert "a.py:3" not in done.out


def test_a_mesh_of_another_size_is_refused(sdyscope, hlo):
    sdyscope("comms", hlo, "--mesh", "data=4").said("8 devices", "the mesh has 4")


@pytest.mark.parametrize(
    ("pairs", "alike"),
    [
        ("{{0,1}}", False),
        ("{{0,1},{1,0}}", False),
        ("{{0,1},{1,0},{2,3},{3,2},{4,5},{5,4},{6,7},{7,6}}", True),
    ],
)
def test_only_where_all_take_part_does_a_device_receive_as_many(sdyscope, hlo, pairs, alike):
    """The first stage of a pipeline receives nothing, and the last one sends nothing."""
    hlo.write_text(
        HLO.replace("all-reduce(", "collective-permute(").replace(
            "replica_groups=[4,2]<=[8], use_global_device_ids=true", f"source_target_pairs={pairs}"
        )
    )
    said = " ".join(sdyscope("comms", hlo).out.split())
    assert ("(it receives as many)" in said) == alike
    assert ("in some collective-permutes a device sends or receives nothing" in said) != alike


BRANCHES = """HloModule jit_f, num_partitions=8

add {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}

sums {
  %x = f32[1024]{0} parameter(0)
  ROOT %r = f32[1024]{0} all-reduce(%x), channel_id=1, replica_groups=[4,2]<=[8], use_global_device_ids=true, to_apply=add
}

keeps {
  ROOT %x = f32[1024]{0} parameter(0)
}

ENTRY e {
  %p = pred[] parameter(0)
  %q = f32[1024]{0} parameter(1)
  ROOT %r = f32[1024]{0} conditional(%p, %q, %q), true_computation=sums, false_computation=keeps
}
"""


def test_what_is_in_a_branch_is_at_most_that(sdyscope, hlo):
    hlo.write_text(BRANCHES)
    said = " ".join(sdyscope("comms", hlo).out.split())
    assert "at most 1 collective per step; a device sends at most 4.0 KiB" in said


@pytest.mark.parametrize("keep", [40, 120, 200, len(HLO) - 2])
def test_a_file_that_is_cut_off_is_one_sentence(sdyscope, hlo, keep):
    hlo.write_text(HLO[:keep])
    done = sdyscope("comms", hlo)
    done.said(str(hlo), ":")
    assert len(done.err.splitlines()) <= 4


def test_what_is_not_understood_is_said(sdyscope, hlo):
    hlo.write_text(HLO.replace("  ROOT", "  what is this\n  ROOT"))
    done = sdyscope("comms", hlo)
    assert done.status == 0
    assert "not known (1)\n  what is this could not be read: line 5 of the HLO" in done.out
    document = sdyscope("comms", hlo, "--json").document("comms")
    (unknown,) = document["account"]["unknowns"]
    assert (unknown["kind"], unknown["stage"]) == ("not understood", "compiled")
    assert sdyscope("comms", hlo, "--strict").status == 1


def test_bytes_that_are_no_text_do_no_harm(sdyscope, hlo):
    hlo.write_bytes(HLO.encode().replace(b"layer", b"l\xffyer\\377\\q").replace(b"a.py", b"\\377"))
    done = sdyscope("comms", hlo, "--json")
    assert done.status == 0
    json.loads(done.out)


@pytest.mark.compiles
def test_hardware_that_does_not_fit_is_one_sentence(sdyscope):
    sdyscope("comms", "mlp", "--on", "cpu:4").said("4")
    sdyscope("comms", "mlp", "--on", "abacus").said("abacus")


def test_the_page_shows_what_the_command_prints():
    page = (Path(__file__).parents[2] / "docs" / "comms.md").read_text()
    assert "schema/comms.json" in page
    for kind in ("all-gather", "reduce-scatter", "all-reduce", "all-to-all", "collective-permute"):
        assert kind in page


@pytest.mark.parametrize("columns", [60, 80, 120, None])
def test_predictions_are_labelled(sdyscope, columns):
    done = sdyscope("comms", "mlp", "--predicted", columns=columns)
    said = " ".join(done.out.split())
    assert "predicted from Shardy's reshards for TPUs and GPUs, not compiled" in said
    assert "Shardy, predicted: 4 collectives per step; a device sends 103.7 KiB" in said
    assert "all 4 predicted collectives" in said
    assert "Without --predicted the program is compiled" in said
    assert "compiled for" not in said


def test_predictions_say_so_in_the_document_and_take_no_devices(sdyscope):
    mesh = ("--mesh", "data=8192,model=4", "--set", "batch=8192")
    done = sdyscope("comms", "mlp", "--predicted", "--json", *mesh)
    document = json.loads(done.out)
    (program,) = document["programs"]
    assert (program["partitioner"], program["predicted"]) == ("shardy", True)
    assert (program["devices"], document["hardware"]) == (32_768, None)
    assert program["total"]["count"] == 4
    axes = [entry["axes"][0] for entry in program["by_axes"]]
    assert axes == ["data", "model"]


def test_what_cannot_be_predicted(sdyscope, hlo):
    sdyscope("comms", hlo, "--predicted").said("is a compiled program", "the stages before")
    sdyscope("comms", "mlp", "--predicted", "--on", "cpu:8").said("no hardware", "--on")
    sdyscope("comms", "mlp", "--predicted", "--partitioner", "gspmd").said("Only Shardy's")


def test_a_file_of_gspmd_predicts_nothing(sdyscope, tmp_path):
    path = tmp_path / "gspmd.mlir"
    path.write_text(GSPMD)
    sdyscope("comms", path, "--predicted").said("GSPMD's shardings", "Leave --predicted out")


@pytest.mark.parametrize("command", ["comms", "cost"])
def test_ops_of_which_nothing_is_predicted_are_not_known(sdyscope, tmp_path, command):
    path = tmp_path / "calls.mlir"
    path.write_text("""module @m {
      sdy.mesh @mesh = <["a"=4]>
      func.func public @main(%x: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}]>})
          -> (tensor<8xf32>, tensor<4xf32>) {
        %0 = stablehlo.custom_call @kernel(%x) : (tensor<8xf32>) -> tensor<8xf32>
        %1 = stablehlo.slice %x [4:8] : (tensor<8xf32>) -> tensor<4xf32>
        return %0, %1 : tensor<8xf32>, tensor<4xf32>
      }
    }""")
    done = sdyscope(command, path, "--predicted", "--strict", columns=200)
    assert done.status == 1
    known, _, unknown = done.out.partition("not known (2)")
    for said in ("custom_call kernel (1)", "stablehlo.slice (1)"):
        assert (said in known, said in unknown) == (False, True)


@pytest.mark.compiles
def test_why_each_is_there(sdyscope):
    done = sdyscope("comms", "mlp", "--partitioner", "shardy", columns=100)
    assert done.status == 0
    words = " ".join(done.out.split())
    assert "params['w2'] P('model', None) 1 160 B 160 B" in words
    assert "because it sums a dimension sharded over model by constraint at" in words
    document = sdyscope("comms", "mlp", "--partitioner", "gspmd", "--json").document("comms")
    (program,) = document["programs"]
    assert program["with_origin"] == 4
    assert program["origins_missing"] == ""
    names = {entry["annotation"]["name"] for entry in program["by_annotation"]}
    assert "params['w2']" in names
    origins = [part["origin"] for each in program["collectives"] for part in each["parts"]]
    assert all(origin["known"] for origin in origins)
    assert {origin["kind"] for origin in origins} == {"reduction"}
    assert not any(entry["recorded"] for origin in origins for entry in origin["annotations"])


@pytest.mark.compiles
@pytest.mark.parametrize("command", ["comms", "memory"])
def test_what_jax_lowered_as_hlo_is_compiled(sdyscope, tmp_path, command):
    path = tmp_path / "before.txt"
    path.write_text(
        "HloModule jit_f\n\nENTRY %main.1 (x.1: f32[4]) -> f32[4] {\n"
        "  %x.1 = f32[4]{0} parameter(0), sharding={devices=[2]<=[2]}\n"
        "  ROOT %sine.1 = f32[4]{0} sine(%x.1)\n}\n"
    )
    done = sdyscope(command, path)
    assert done.status == 0
    assert "compiled for cpu:2" in done.out


@pytest.mark.parametrize(
    "sharding",
    ["sharding={devices=[8]<=[8]}", "sharding={mesh['x'=8], [{'x'}]}", "sharding={replicated}"],
)
def test_what_still_says_how_to_shard_an_op_is_not_compiled(hlo, sharding):
    assert read_compiled(hlo) is not None
    product = f"%s = f32[1024]{{0}} multiply(%p, %p), {sharding}"
    hlo.write_text(HLO.replace("  ROOT", f"  {product}\n  ROOT"))
    assert read_compiled(hlo) is None
    hlo.write_text(hlo.read_text().replace("num_part", "is_scheduled=true, num_part"))
    assert read_compiled(hlo) is not None


def test_parameters_keep_their_shardings_when_a_program_is_partitioned(hlo):
    annotated = HLO.replace("parameter(0)", "parameter(0), sharding={devices=[8]<=[8]}")
    hlo.write_text(annotated)
    assert read_compiled(hlo).parameter_shardings == ("{devices=[8]<=[8]}",)
    hlo.write_text(annotated.replace("all-reduce", "copy").partition(", channel_id")[0] + "\n}\n")
    assert read_compiled(hlo) is None  # nothing shows that it was


@pytest.mark.compiles
def test_a_cause_is_one_sentence_everywhere(sdyscope, tmp_path):
    """A sub-axis through a reshape, and a result that nobody gave a sharding."""
    path = tmp_path / "sub_axes.py"
    path.write_text(SUB_AXES)
    target = f"{path}:program"
    document = sdyscope("comms", target, "--json", "--partitioner", "shardy").document("comms")
    collectives = document["programs"][0]["collectives"]
    origins = [part["origin"] for collective in collectives for part in collective["parts"]]
    if compat.version_tuple() >= (0, 10):  # before, XLA sends less for it
        assert (
            "tanh is [{a:(1)2}, {}, {b}] but is returned as result[0] P(None, None, 'b'); "
            "sharded over a:(1)2 by x P('a', None) (op followed)"
        ) in [origin["words"] for origin in origins]
        axes = [annotation["axes"] for origin in origins for annotation in origin["annotations"]]
        assert sorted(axes) == [
            ["a:(1)2"],
            ["a:(2)2"],
            ["a:(2)2"],
        ]
    shown = " ".join(sdyscope("comms", target, "--partitioner", "shardy").out.split())
    report = sdyscope("report", target, "--partitioner", "shardy", "--json").out
    page = sdyscope("report", target, "--partitioner", "shardy", "-o", tmp_path / "page.html")
    assert page.status == 0
    html = (tmp_path / "page.html").read_text()
    for origin in origins:
        assert f"because {origin['words']}" in shown
        assert json.dumps(origin["words"], ensure_ascii=False) in report
        words = json.dumps(origin["words"], ensure_ascii=False)[1:-1]
        assert words in html or words.replace("'", "\\u0027") in html
    assert '"a":(' not in shown


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), ("No rates are known for cpu", "--on tpu:v5e:2x4")),
        (("--predicted",), ("only a compiled program has an order of time",)),
        (("--scopes",), ("Leave --scopes or --schedule out",)),
    ],
)
def test_what_has_no_schedule(sdyscope, options, words):
    sdyscope("comms", "mlp", "--schedule", *options).said(*words)
