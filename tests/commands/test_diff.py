"""`sdyscope diff`."""

from pathlib import Path

import pytest
from own_process import in_own_process


def test_one_program_under_both_partitioners(sdyscope):
    done = sdyscope("diff", "mlp")
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("mlp: 22 tensors, the same under Shardy and GSPMD\n")
    document = sdyscope("diff", "mlp", "--json").document("diff")
    assert document["same"]
    assert document["programs"][0]["same_tensors"] == 22


def test_from_a_cold_start():
    done = in_own_process("diff", "mlp")
    assert (done.returncode, done.stderr) == (0, "")
    assert "the same under Shardy and GSPMD" in done.stdout


def changed(text):
    """The first argument sharded along its other dimension, and tanh called otherwise."""
    text = text.replace('<@mesh, [{}, {"model"}]>', '<@mesh, [{"model"}, {}]>', 1)
    return text.replace("stablehlo.tanh %", "stablehlo.sine %", 1)


@pytest.fixture
def other(mlp_files, mlp_texts):
    path = mlp_files.parent / "other.mlir"
    path.write_text(changed(mlp_texts["shardy"]))
    return path


def test_two_files(sdyscope, mlp_files, other):
    done = sdyscope("diff", mlp_files / "shardy.mlir", other)
    assert done.status == 1
    first, *rest = done.out.splitlines()
    assert first == (
        "jit_step: 1 of 22 tensors and 2 ops in 2 places differ between shardy.mlir and other.mlir"
    )
    assert "params['w1']  P(None, 'model')  P('model', None)" in done.out
    assert any("stablehlo.sine" in line and "+f32[16,128]" in line for line in rest)


def test_two_files_as_json(sdyscope, mlp_files, other):
    done = sdyscope("diff", mlp_files / "shardy.mlir", other, "--json")
    assert done.status == 1
    (program,) = done.document("diff")["programs"]
    (tensor,) = program["tensors"]
    assert (tensor["tensor"], tensor["what"]) == ("params['w1']", ["placement"])
    assert tensor["a"]["sharding"]["placement"]["shards"] == [1, 2]
    assert tensor["b"]["sharding"]["placement"]["shards"] == [2, 1]
    assert {op["kind"] for op in program["ops"]} == {"stablehlo.tanh", "stablehlo.sine"}


def test_a_program_and_a_file(sdyscope, mlp_files):
    assert sdyscope("diff", "mlp", mlp_files / "gspmd.mlir").status == 0
    # --set is for the program alone.
    done = sdyscope("diff", mlp_files / "gspmd.mlir", "mlp", "--set", "constrained=false")
    assert done.status == 1
    assert "constraints (5)" in done.out
    assert "not there" in done.out


def test_two_programs(sdyscope):
    done = sdyscope("diff", "mlp", "fsdp-transformer", "--set", "layers=1")
    assert done.status == 1
    assert "Compared under Shardy; --partitioner selects another." in done.out
    assert "Only mlp has this mesh: data=4 x model=2, 8 devices." in done.out
    assert "more places: --all lists them" in done.out
    everything = sdyscope("diff", "mlp", "fsdp-transformer", "--set", "layers=1", "--all")
    assert "more: --all lists them" not in everything.out
    assert len(everything.out) > len(done.out)


PLACED = """
import jax, numpy as np, sdyscope
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

def program(order=1, memory=None, **options):
    mesh = Mesh(np.array(jax.devices()[:4])[::order].reshape(2, 2), ("a", "b"))
    rows = NamedSharding(mesh, P("a"), memory_kind=memory)
    x = jax.ShapeDtypeStruct((16, 16), "float32", sharding=rows)
    return sdyscope.Program("step", jax.jit(lambda x: x * 2, **options), args=(x,))

def exact(): return program(compiler_options={"xla_allow_excess_precision": False})
def backwards(): return program(-1)
def offloaded(): return program(memory="pinned_host")
def paged(): return program(memory="unpinned_host")
"""


def test_other_memory_and_another_order_of_devices_are_differences(sdyscope, tmp_path):
    file = tmp_path / "placed.py"
    file.write_text(PLACED)
    done = sdyscope("diff", f"{file}:program", f"{file}:offloaded", "--json")
    changed = done.document("diff")["programs"][0]["tensors"]
    assert [(tensor["tensor"], tensor["what"]) for tensor in changed] == [
        ("x", ["memory"]),
        ("result", ["memory"]),
    ]
    assert changed[0]["b"]["sharding"]["short"] == "P('a', None) in pinned_host"
    assert sdyscope("diff", f"{file}:offloaded", f"{file}:paged").status == 1
    same = sdyscope("diff", f"{file}:program", f"{file}:program")
    assert "another order" not in same.out
    assert "compiler_options" not in same.out
    exact = sdyscope("diff", f"{file}:program", f"{file}:exact")
    assert "other compiler_options or XLA_FLAGS: xla_allow_excess_precision=False." in exact.out
    for at in ("lowered", "propagated"):
        done = sdyscope("diff", f"{file}:program", f"{file}:backwards", "--at", at)
        assert (done.status, "devices in another order" in done.out) == (1, True)
        (diff,) = sdyscope(
            "diff", f"{file}:program", f"{file}:backwards", "--at", at, "--json"
        ).document("diff")["programs" if at == "lowered" else at]
        assert (diff["same"], diff["devices_reordered"]) == (False, True)
    text = tmp_path / "text.mlir"
    sdyscope("lower", f"{file}:program", "--partitioner", "shardy", "-o", text)
    done = sdyscope("diff", text, f"{file}:backwards", "--partitioner", "shardy")
    said = "in an order of its own; that of text.mlir is not known, and was not compared."
    assert said in " ".join(done.out.split())


RENAMED = """
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
import sdyscope

def program(rows, columns):
    mesh = jax.make_mesh((4, 2), (rows, columns), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    def of(*shape, spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, spec))
    args = of(8, 16, spec=P(None, rows)), of(16, 32, spec=P(rows, columns))
    return sdyscope.Program("step", jax.jit(lambda x, w: x @ w), args)

def first(): return program("x", "y")
def second(): return program("data", "y")
"""


@pytest.mark.compiles
def test_a_renamed_axis_is_said_and_sends_the_same(sdyscope, tmp_path):
    file = tmp_path / "renamed.py"
    file.write_text(RENAMED)
    said = "step: the second mesh has axes data in place of x."
    for at, status in (("lowered", 1), ("propagated", 0), ("compiled", 0)):
        done = sdyscope("diff", f"{file}:first", f"{file}:second", "--at", at)
        assert (done.status, said in " ".join(done.out.split())) == (status, True)
        assert said not in sdyscope("diff", f"{file}:first", f"{file}:first", "--at", at).out


@pytest.mark.parametrize("columns", [80, 120])
def test_keeps_to_the_width(sdyscope, mlp_files, other, columns):
    done = sdyscope("diff", "mlp", "fsdp-transformer", "--set", "layers=1", columns=columns)
    assert max(map(len, done.out.splitlines())) <= columns


def test_two_directories(sdyscope, mlp_files, mlp_texts, tmp_path):
    second = tmp_path / "second"
    second.mkdir()
    (second / "a.mlir").write_text(changed(mlp_texts["shardy"]))
    (second / "b.mlir").write_text(mlp_texts["gspmd"])
    (second / "c.mlir").write_text(mlp_texts["gspmd"].replace("@jit_step", "@jit_extra"))
    done = sdyscope("diff", mlp_files, second)
    assert done.status == 1
    first, second_line, *_ = done.out.splitlines()
    assert first == "2 programs in both: 1 differs"
    assert second_line == "only in the second: jit_extra"
    document = sdyscope("diff", mlp_files, second, "--json").document("diff")
    assert [program["same"] for program in document["programs"]] == [True, False]
    assert (document["only_a"], document["only_b"]) == ([], ["jit_extra"])
    # Of two directories, one module of each.
    assert sdyscope("diff", mlp_files, mlp_files, "--module", "shardy.mlir").status == 0


def test_a_file_that_cannot_be_read_is_a_difference(sdyscope, mlp_files, mlp_texts, tmp_path):
    second = tmp_path / "second"
    second.mkdir()
    for name, text in mlp_texts.items():
        (second / f"{name}.mlir").write_text(text)
    assert sdyscope("diff", mlp_files, second).status == 0
    (second / "zzz.mlir").write_text("module {")
    done = sdyscope("diff", mlp_files, second)
    assert done.status == 1
    assert "not read: " in done.out


def test_one_module_alone(sdyscope, mlp_files):
    sdyscope("diff", mlp_files / "shardy.mlir").said("nothing to compare it with")
    sdyscope("diff", mlp_files).said("There are 2 modules in this directory", "--module")
    sdyscope("diff", "mlp", "--partitioner", "shardy").said("nothing to compare it with")


@pytest.mark.compiles
def test_propagated_under_both_partitioners(sdyscope):
    done = sdyscope("diff", "mlp", "--at", "propagated")
    assert done.status == 0
    first, shardy, gspmd, *_ = done.out.splitlines()
    assert first == "mlp: 131 values, sharded the same way under Shardy and GSPMD"
    assert shardy.startswith("Shardy: exact, ")
    assert gspmd == "GSPMD: exact, XLA's dump of a compile for 8 CPU devices"


@pytest.mark.compiles
def test_propagated_differences_are_grouped_by_where_they_begin(sdyscope):
    words = ("diff", "fsdp-transformer", "--at", "propagated", "--set", "constrained=false")
    done = sdyscope(*words, columns=100)
    assert done.status == 1
    # The embedding's lookup, from which the residual stream is sharded otherwise.
    (begin,) = [line for line in done.out.splitlines() if line.startswith("1. ")]
    assert begin.startswith("1. jvp(embed)/gather bf16[16,64,256] at models/fsdp_transformer.py:")
    document = sdyscope(*words, "--json").document("diff")
    assert (document["at"], document["same"], document["programs"]) == ("propagated", False, [])
    (program,) = document["propagated"]
    first = program["beginnings"][0]
    assert tuple(first["begins"][side]["short"] for side in "ab") == (
        "P(None, None, 'fsdp')",
        "P('fsdp', None, None)",
    )
    assert first["values"] == len(first["follows"]) + 1
    assert (
        sum(beginning["values"] for beginning in program["beginnings"])
        == program["different_values"]
    )


def test_propagated_of_two_files(sdyscope, mlp_files, mlp_texts, other):
    alike = mlp_files.parent / "alike.mlir"
    renamed = mlp_texts["shardy"].replace("jit(step)", "jit(walk)")
    alike.write_text(renamed.replace("jit_step", "jit_walk"))
    done = sdyscope("diff", mlp_files / "shardy.mlir", alike, "--at", "propagated")
    assert done.status == 0, done.out
    done = sdyscope("diff", mlp_files / "shardy.mlir", other, "--at", "propagated")
    assert done.status == 1
    assert "sharded differently in shardy.mlir and other.mlir, beginning" in done.out
    assert "params['w1'] f32[128,256]" in done.out
    everything = sdyscope("diff", mlp_files / "shardy.mlir", other, "--at", "propagated", "--all")
    assert len(everything.out.splitlines()) > len(done.out.splitlines())


def test_propagated_of_two_programs_that_have_other_values(sdyscope):
    words = ("diff", "mlp", "fsdp-transformer", "--at", "propagated", "--partitioner", "shardy")
    done = sdyscope(*words, "--set", "layers=1")
    assert done.status == 1
    assert " values only in mlp; " in done.out.splitlines()[0]
    assert " values only in fsdp-transformer" in done.out.splitlines()[0]


def test_propagated_of_directories(sdyscope, mlp_files, mlp_texts, tmp_path):
    for number in (1, 2):
        folder = tmp_path / f"run{number}"
        folder.mkdir()
        (folder / "step.mlir").write_text(mlp_texts["shardy"])
        (folder / "other.mlir").write_text(mlp_texts["shardy"].replace("@jit_step", "@jit_other"))
    done = sdyscope("diff", tmp_path / "run1", tmp_path / "run2", "--at", "propagated")
    assert (done.status, done.out) == (0, "2 programs in both: all sharded the same\n")


def test_what_all_pairs_of_two_directories_have_in_common_is_said_once(
    sdyscope, mlp_texts, tmp_path, monkeypatch
):
    for folder in ("before", "after"):
        (tmp_path / folder).mkdir()
        for name in ("first", "second"):
            (tmp_path / folder / f"{name}.mlir").write_text(mlp_texts["shardy"])
    monkeypatch.setattr(
        "sdyscope.analysis.diff.sides._lowered_by",
        lambda inspection: f"JAX of {Path(inspection.file).parent.name}",
    )
    done = sdyscope("diff", tmp_path / "before", tmp_path / "after")
    assert "2 programs in both" in done.out
    assert done.out.count("JAX of before") == 1
