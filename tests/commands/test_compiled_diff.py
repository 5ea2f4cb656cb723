"""`sdyscope diff --at compiled`."""

# ruff: noqa: E501 - lines of HLO are long

import re

import jax
import pytest

from sdyscope.errors import CompilerError
from sdyscope.staged import Staged

PROGRAM = """
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
from sdyscope import Program

MESH = {"data": 4, "model": 2}

def program(mesh, turned=-1):
    turned = int(turned)

    def on(*spec):
        return NamedSharding(mesh, P(*spec))

    def step(x, w):
        for layer in range(3):
            with jax.named_scope(f"layer{layer}"):
                x = jnp.tanh(x @ w)
                x = jax.lax.with_sharding_constraint(x, on("data", None))
                if layer == turned:
                    x = jax.lax.with_sharding_constraint(x, on(None, "data"))
        return jax.lax.with_sharding_constraint(x, on("data", None))

    x = jax.ShapeDtypeStruct((16, 64), jnp.float32, sharding=on("data", None))
    w = jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=on(None, None))
    return Program("step", jax.jit(step), (x, w))

def turned(mesh):
    return program(mesh, 1)

def unreduced(mesh):
    # An unreduced result, which GSPMD has no form for.
    mesh = jax.sharding.AbstractMesh(
        tuple(MESH.values()), tuple(MESH), axis_types=(jax.sharding.AxisType.Explicit,) * 2
    )
    def on(*spec, **kinds):
        return NamedSharding(mesh, P(*spec, **kinds))

    def step(x, w):
        return jnp.einsum("ij,jk->ik", x, w, out_sharding=on("data", None, unreduced={"model"}))

    x = jax.ShapeDtypeStruct((16, 64), jnp.float32, sharding=on("data", "model"))
    w = jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=on("model", None))
    return Program("unreduced", jax.jit(step), (x, w))
"""

HLO = """HloModule jit_f, entry_computation_layout={{(f32[1024]{{0}})->f32[1024]{{0}}}}, num_partitions=8

ENTRY e {{
  %p = f32[1024]{{0}} parameter(0), metadata={{op_name="x"}}
  ROOT %r = f32[1024]{{0}} all-reduce(%p), channel_id=1, replica_groups={groups}, use_global_device_ids=true, metadata={{op_name="jit(f)/layer/psum" source_file="a.py" source_line=3}}
}}
"""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "layered.py"
    path.write_text(PROGRAM)
    return path


@pytest.fixture
def texts(tmp_path):
    paths = tmp_path / "before.txt", tmp_path / "after.txt"
    for path, groups in zip(paths, ("[4,2]<=[8]", "[2,4]<=[2,4]T(0,1)"), strict=True):
        path.write_text(HLO.format(groups=groups))
    return paths


@pytest.mark.compiles
def test_the_same_under_both_partitioners(sdyscope):
    done = sdyscope("diff", "mlp", "--at", "compiled")
    assert (done.status, done.err) == (0, "")
    first, second = done.out.splitlines()[:2]
    assert first.startswith("mlp: 2 collectives per step sending 103.7 KiB, and ")
    assert first.endswith(", the same under Shardy and GSPMD")
    assert second == "data=4 x model=2, 8 devices; compiled for cpu:8"


@pytest.mark.compiles
def test_a_constraint_is_named_with_what_it_costs(sdyscope, program):
    words = ("diff", f"{program}:program", f"{program}:turned", "--at", "compiled")
    found = sdyscope(*words, "--json")
    assert found.status == 1
    document = found.document("diff")
    assert (document["at"], document["same"]) == ("compiled", False)
    (compiled_program,) = document["compiled"]
    assert compiled_program["across"] == "programs"
    assert compiled_program["a"]["total"]["count"] == 0
    (cause,) = compiled_program["causes"]
    assert cause["begins"] is None
    constraint = cause["constraint"]
    assert (constraint["tensor"], constraint["change"]) == ("jit(step)/layer1", "only in b")
    assert constraint["a"] is None
    assert constraint["b"]["sharding"]["placement"] is not None
    assert cause["sent"] == compiled_program["b"]["total"]["sent"] > 0
    for difference in compiled_program["collectives"]:
        assert (difference["change"], difference["cause"]) == ("only in b", 0)
        assert difference["b"]["origins"]
    for columns in (60, 80, 120, None):
        done = sdyscope(*words, columns=columns)
        assert done.status == 1
        if columns is not None:
            assert max(map(len, done.out.splitlines())) <= columns
        flat = " ".join(done.out.split())
        assert "1. the constraint in layer1 at " in flat
        assert f": only in {compiled_program['b']['label']}" in flat


@pytest.mark.compiles
def test_two_kinds_of_hardware(sdyscope):
    words = ("diff", "mlp", "--at", "compiled", "--on", "cpu", "--on", "cpu:8")
    done = sdyscope(*words)
    assert done.status == 0
    assert "the same on cpu and cpu:8" in done.out
    (compiled_program,) = sdyscope(*words, "--json").document("diff")["compiled"]
    assert [compiled_program[side]["label"] for side in "ab"] == ["cpu", "cpu:8"]
    assert (compiled_program["same"], compiled_program["causes"]) == (True, [])
    assert compiled_program["memory_compared"]


@pytest.mark.compiles
@pytest.mark.skipif(jax.__version_info__ < (0, 10, 2), reason="both partitioners take it, or none")
def test_what_one_partitioner_refuses_is_told(sdyscope, program):
    done = sdyscope("diff", f"{program}:unreduced", "--at", "compiled")
    assert done.status == 1
    assert done.out.startswith("unreduced: compiles under Shardy, not under GSPMD\n")
    assert "unreduced" in done.out.partition("GSPMD: ")[2]
    (compiled_program,) = sdyscope(
        "diff", f"{program}:unreduced", "--at", "compiled", "--json"
    ).document("diff")["compiled"]
    assert compiled_program["a"]["total"] is not None
    assert compiled_program["b"]["total"] is None
    assert compiled_program["b"]["failure"]


@pytest.mark.compiles
def test_a_compiler_that_fails_on_one_side_is_a_difference(sdyscope, monkeypatch):
    compiled = Staged.compiled

    def refuses(self, partitioner=None, on=None):
        if partitioner == "gspmd":
            raise CompilerError("XLA aborted on it.")
        return compiled(self, partitioner, on)

    monkeypatch.setattr(Staged, "compiled", refuses)
    done = sdyscope("diff", "mlp", "--at", "compiled")
    assert done.status == 1
    assert done.out.splitlines()[0] == "mlp: compiles under Shardy, not under GSPMD"
    assert "GSPMD: XLA aborted on it." in done.out
    sdyscope("diff", "mlp", "mlp", "--partitioner", "gspmd", "--at", "compiled").said(
        "XLA aborted on it."
    )


def test_texts_of_compiled_programs(sdyscope, texts):
    done = sdyscope("diff", *texts, "--at", "compiled", "--mesh", "data=4,model=2")
    assert done.status == 1
    assert "all-reduce" in done.out
    assert "model=2" in done.out
    assert "layer/psum" in done.out
    same = sdyscope("diff", texts[0], texts[0], "--at", "compiled")
    assert same.status == 0
    assert "1 collective per step sending 4.0 KiB, and 8.0 KiB that a device holds" in same.out
    document = sdyscope("diff", *texts, "--at", "compiled", "--json").document("diff")
    (compiled_program,) = document["compiled"]
    assert {row["kind"]: row["a"] for row in compiled_program["memory"]} == {
        "argument": 4096,
        "result": 4096,
        "total": 8192,
    }
    assert compiled_program["a"]["is_text"]


@pytest.mark.compiles
def test_a_text_and_the_program_that_it_is_of(sdyscope, program, tmp_path):
    from sdyscope.inspection import Inspection
    from sdyscope.targets import resolve

    resolved = resolve(f"{program}:turned")
    path = tmp_path / "compiled.txt"
    path.write_text(Inspection(resolved).compiled("shardy").hlo)
    done = sdyscope("diff", path, f"{program}:turned", "--at", "compiled")
    assert (done.status, done.err) == (0, "")
    other = sdyscope("diff", path, f"{program}:program", "--at", "compiled")
    assert other.status == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("mlp", "--on", "cpu:8"), "At lowered nothing is compiled"),
        (("mlp", "--at", "compiled", "--on", "cpu:3"), "cpu:3 has 3 devices"),
        (("mlp", "--at", "compiled", *["--on", "cpu:8"] * 3), "--on takes one value per side"),
        (("mlp", "--at", "compiled", "--on", "abacus"), "names no hardware"),
        (("mlp", "--at", "compiled", "--partitioner", "shardy"), "nothing to compare it with"),
    ],
)
def test_bad_usage(sdyscope, words, said):
    sdyscope("diff", *words).said(said)


def test_texts_have_nothing_to_compile(sdyscope, texts):
    sdyscope("diff", texts[0], "--at", "compiled").said("nothing to compare it with")
    sdyscope("diff", *texts, "--at", "compiled", "--on", "cpu:8").said("Leave --on out")
    sdyscope("diff", *texts, "--at", "compiled", "--mesh", "a=4").said("for 8 devices")


ENTRIES = """HloModule jit_f, is_scheduled=true, entry_computation_layout={{(f32[8,8]{{1,0}})->f32[{block}]{{1,0}}}}, num_partitions=8

ENTRY e {{
  %p = f32[8,8]{{1,0}} parameter(0), sharding={sharding}, metadata={{op_name="x"}}
  ROOT %r = f32[{block}]{{1,0}} slice(%p)
}}
"""


def entries(sdyscope, tmp_path, *texts):
    paths = [tmp_path / f"{name}.txt" for name in "ab"]
    for path, (sharding, block) in zip(paths, texts, strict=True):
        path.write_text(ENTRIES.format(sharding=sharding, block=block))
    done = sdyscope("diff", *paths, "--at", "compiled")
    (compiled_program,) = sdyscope("diff", *paths, "--at", "compiled", "--json").document("diff")[
        "compiled"
    ]
    return done, compiled_program["entries"]


def test_arguments_that_are_sharded_differently_are_never_the_same(sdyscope, tmp_path):
    """Their blocks, bytes and collectives are the same: only the placements differ."""
    rows, turned = "{devices=[8,1]<=[8]}", "{devices=[8,1]<=[2,4]T(1,0)}"
    done, found = entries(sdyscope, tmp_path, (rows, "8,8"), (turned, "8,8"))
    assert done.status == 1
    assert "1 argument or result is sharded differently in a.txt and b.txt" in done.out
    (difference,) = found["different"]
    assert (difference["name"], difference["change"]) == ("x", "sharding")


def test_what_a_text_does_not_say_is_not_compared(sdyscope, tmp_path):
    rows, written = "{devices=[8,1]<=[8]}", "{devices=[8,1]0,1,2,3,4,5,6,7}"
    done, found = entries(sdyscope, tmp_path, (rows, "8,8"), (written, "8,8"))
    assert (done.status, found["same"], found["different"]) == (0, 1, [])
    assert found["not_compared"] == [{"kind": "result", "names": ["result 0"], "side": ""}]
    assert "1 result is not compared: both sides do not say how result 0 is sharded" in done.out


def test_results_whose_blocks_differ_are_different(sdyscope, tmp_path):
    rows = "{devices=[8,1]<=[8]}"
    done, found = entries(sdyscope, tmp_path, (rows, "1,8"), (rows, "8,1"))
    assert done.status == 1
    assert [(difference["name"], difference["change"]) for difference in found["different"]] == [
        ("result 0", "sharding")
    ]


LOOP = """
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
from sdyscope import Program

MESH = {"data": 4, "model": 2}

def program(mesh):
    def step(x):
        body = lambda x: jnp.cos(x) * (x @ x).sum()
        return jax.lax.while_loop(lambda x: x[0, 0] < 1, body, x)

    x = jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=NamedSharding(mesh, SPEC))
    return Program("step", jax.jit(step), (x,))
"""


def test_loops_of_unknown_length_are_said_to_count_once(sdyscope, tmp_path, monkeypatch):
    """And a line that two versions of a file have in one place is told once."""
    monkeypatch.chdir(tmp_path)
    for folder, spec in (("old", "P('data', None)"), ("new", "P('data', 'model')")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "loop.py").write_text(LOOP.replace("SPEC", spec))
    sides = "old/loop.py:program", "new/loop.py:program"
    done = sdyscope("diff", *sides, "--at", "compiled", "--partitioner", "shardy", columns=200)
    assert done.status == 1
    counted = [line for line in done.out.splitlines() if "in loops of unknown trip count" in line]
    assert len(counted) == 2
    assert all("once: a step may send more, or less where a loop" in line for line in counted)
    ends = [line.split("  ")[-1].strip() for line in done.out.splitlines()]
    # JAX 0.7 knows the line of the loop alone.
    assert {"11", "12"} & set(ends)
    assert not {"11, 11", "12, 12"} & set(ends)
    explained = sdyscope("explain", sides[0], "all-reduce", "--partitioner", "shardy")
    assert re.search(
        r"^all-reduce\S* over data, .* per\s+step\s+with\s+loops\s+of\s+unknown\s+trip\s+count\s+run\s+once",
        explained.out,
        re.MULTILINE,
    )
