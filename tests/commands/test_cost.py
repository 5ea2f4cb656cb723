"""`sdyscope cost`."""

import pytest

LOOPING = """
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
from sdyscope import Program

MESH = {"x": 4}

def program(mesh):
    def step(a):
        return jax.lax.while_loop(lambda a: a.sum() < 1.0, lambda a: a + 1.0, a)

    a = jax.ShapeDtypeStruct((8, 16), jnp.float32, sharding=NamedSharding(mesh, P("x")))
    return Program("step", jax.jit(step), (a,))
"""


@pytest.mark.compiles
@pytest.mark.parametrize("columns", [60, 80, 120, None])
def test_what_limits_the_step_comes_first(sdyscope, columns):
    given = (
        "--bandwidth",
        "data=10GB/s",
        "--bandwidth",
        "model=400Gbit/s",
        "--latency",
        "data=5us",
    )
    done = sdyscope("cost", "mlp", *given, columns=columns)
    assert (done.status, done.err) == (0, "")
    lines = done.out.splitlines()
    assert columns is None or max(map(len, lines)) <= columns
    words = " ".join(done.out.split())
    assert words.startswith(
        "mlp; data=4 x model=2, 8 devices; compiled for cpu:8 under Shardy by JAX "
    )
    # 2 x 3/4 of 70,660 bytes at 10 GB/s, and 2 x 3 hops.
    assert (
        "estimate, not measured: as far as known, the step is limited by axis data "
        "(as given): 40.6 us of communication" in words
    )
    assert "at least 40.6 us per step with communication fully overlapped, at least " in words
    assert "axis data=4 40.6 us" in words
    assert "XLA's cost analysis" in words


@pytest.mark.compiles
def test_bytes_and_operations_without_times(sdyscope):
    done = sdyscope("cost", "mlp", "--partitioner", "both")
    assert "\nno time estimates: no rates are known for cpu\n" in done.out
    assert "under Shardy and GSPMD" in done.out
    assert "peak not known" in done.out
    assert "No bandwidth is known for what the collectives run over" in done.out
    assert "communicated tensors" not in done.out
    assert "--bandwidth data=90GB/s gives them" in done.out


@pytest.mark.compiles
def test_json_says_that_it_is_an_estimate(sdyscope):
    done = sdyscope("cost", "mlp", "--json", "--bandwidth", "model=1GB/s")
    document = done.document("cost")
    assert "not a measurement" in document["estimate"]
    (program,) = document["programs"]
    assert program["limit"]["axis"] == "model"
    assert program["limit"]["levels"][0]["name"] == "given"
    assert program["compute"]["flops"] == program["compute"]["by_xla"]
    assert list(program["compute"]["matmuls"]) == ["f32"]
    assert program["communication"]["unknown"] == 3
    assert [roof["seconds"] is None for roof in program["roofs"]] == [False, True, True, True]
    sent = sum(time["sent"] for time in program["by_scope"].values())
    assert sent == program["communication"]["sent"] == 106150


@pytest.mark.compiles
def test_a_loop_of_unknown_length_is_told(sdyscope, tmp_path):
    path = tmp_path / "looping.py"
    path.write_text(LOOPING)
    done = sdyscope("cost", f"{path}:program")
    assert "1 of 1 loop has an unknown trip count and counts once" in done.out
    sent = sdyscope("comms", f"{path}:program", "--partitioner", "shardy")
    once = "1 collective per step; a device sends 6 B with loops of unknown trip count run once"
    assert once in " ".join(sent.out.split())
    assert "at least" not in done.out + sent.out
    predicted = sdyscope("cost", f"{path}:program", "--predicted", "--on", "tpu:v5e:2x2")
    assert "1 of 1 loop has an unknown trip count and counts once" in predicted.out
    assert "at least" not in predicted.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--bandwidth", "model=90"), "'90' is not a bandwidth. Write 90GB/s"),
        (("--bandwidth", "model"), "'model' does not have the form AXIS=RATE"),
        (("--bandwidth", "a=1GB/s", "--bandwidth", "a=2GB/s"), "mesh axis 'a' is named twice"),
        (("--latency", "model=1GB/s"), "'1GB/s' is not a latency. Write 1us"),
    ],
)
def test_bad_rates_are_one_sentence(sdyscope, words, said):
    sdyscope("cost", "mlp", *words).said(said)


def test_an_axis_that_is_not_there(sdyscope):
    sdyscope("cost", "mlp", "--bandwidth", "tensor=1GB/s").said("axes data, model", "'tensor'")


def test_the_text_of_a_compiled_program_does_not_say_what_for(sdyscope, tmp_path):
    path = tmp_path / "compiled.txt"
    path.write_text(
        "HloModule jit_f, num_partitions=8\n\nENTRY e {\n  ROOT p = f32[] parameter(0)\n}\n"
    )
    sdyscope("cost", path).said("is a compiled program", "sdyscope comms")
