"""`sdyscope propagate`."""

import re

import pytest


def test_the_first_line_says_what_it_is_worth(sdyscope):
    done = sdyscope("propagate", "mlp", columns=100)
    assert (done.status, done.err) == (0, "")
    first, second, *_ = done.out.splitlines()
    assert re.fullmatch(r"Shardy: exact, from Shardy's passes of JAX \S+, run here", first)
    assert second == "mlp; data=4 x model=2, 8 devices"
    for part in ("arguments (9)", "results (8)", "jvp(block0) (5) in models/mlp.py"):
        assert part in done.out
    assert re.search(r"^14\d values: .*; \d+ steps$", done.out, re.MULTILINE)


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_it_keeps_to_the_width(sdyscope, columns):
    done = sdyscope("propagate", "mlp", columns=columns)
    assert max(map(len, done.out.splitlines())) <= columns


def test_what_is_left_out_is_counted_and_all_lists_it(sdyscope, monkeypatch):
    monkeypatch.setattr("sdyscope.views.propagate.LISTED", 10)
    done = sdyscope("propagate", "mlp")
    assert "more sharded values: --all lists them" in done.out
    assert "values inside are left out" in done.out
    everything = sdyscope("propagate", "mlp", "--all")
    assert "--all" not in everything.out
    assert len(everything.out.splitlines()) > len(done.out.splitlines())
    assert "folded" in everything.out


def test_every_value_is_in_the_document(sdyscope):
    document = sdyscope("propagate", "mlp", "--json").document("propagate")
    (propagation,) = document["propagations"]
    assert propagation["exactness"] == "exact"
    sections = [value["section"] for value in document["values"]]
    assert sections.count("result") == 8
    assert len(sections) == sum(propagation["counts"].values()) > 130
    assert all(all(value["as_requested"].values()) for value in document["values"])
    (tanh,) = [value for value in document["values"] if value["primitive"] == "tanh"]
    assert tanh["propagated"]["shardy"]["sharding"]["short"] == "P('data', None)"
    assert tanh["propagated"]["shardy"]["origins"][0]["kind"] == "constraint"


def test_match_is_by_path_scope_and_line(sdyscope):
    document = sdyscope("propagate", "mlp", "--match", "params*", "--json").document("propagate")
    assert [value["name"] for value in document["values"]] == ["params['w1']", "params['w2']"]
    assert document["hidden"] > 130
    document = sdyscope("propagate", "mlp", "--match", "*/tanh", "--json").document("propagate")
    assert [value["kind"] for value in document["values"]] == ["stablehlo.tanh"]
    document = sdyscope("propagate", "mlp", "--match", "*mlp.py:108", "--json").document(
        "propagate"
    )
    assert {value["source"]["line"] for value in document["values"]} == {108}
    sdyscope("propagate", "mlp", "--match", "zzz").said("Nothing has", "'*name*'")


def test_steps(sdyscope):
    done = sdyscope("propagate", "mlp", "--steps", "--all")
    assert done.status == 0
    assert "dim 1 of the result -> dim 0 of the operand" in done.out  # through the transpose
    assert re.search(r"^\d+ steps, \d+ moves of an axis$", done.out, re.MULTILINE)
    document = sdyscope("propagate", "mlp", "--steps", "--json").document("propagate")
    numbers = [step["step"] for step in document["steps"]]
    assert numbers == sorted(numbers)
    assert document["last_step"] == numbers[-1]
    some = sdyscope("propagate", "mlp", "--steps", "--match", "*loss*", "--json")
    steps = some.document("propagate")["steps"]
    assert 0 < len(steps) < len(numbers)
    assert all("loss" in step["through"]["name"] for step in steps)


def test_the_table_after_a_step(sdyscope):
    def sharded(*words):
        document = sdyscope("propagate", "mlp", "--json", *words).document("propagate")
        return sum(
            max(value["propagated"]["shardy"]["sharding"]["placement"]["shards"], default=1) > 1
            for value in document["values"]
            if value["propagated"]["shardy"]["sharding"]["placement"]
        )

    assert sharded("--at-step", 0) < sharded("--at-step", 20) < sharded()
    done = sdyscope("propagate", "mlp", "--at-step", 2)
    assert "; after step 2 of " in done.out
    sdyscope("propagate", "mlp", "--at-step", 1000).said("no step 1000", "The last step is")
    sdyscope("propagate", "mlp", "--at-step", 1, "--steps").said("Give one of them")


def test_steps_by_priority(sdyscope):
    done = sdyscope(
        "propagate", "mlp", "--steps", "--all",
        "--priority", "params['w2'][0]=2",
        "--priority", "result[0]['w2'][0]=2",
    )  # fmt: skip
    assert done.status == 0
    assert done.out.index("user priority 0") < done.out.index("user priority 2")


def test_what_if(sdyscope):
    done = sdyscope(
        "propagate", "mlp", "--set-sharding", "params['w1']=P('data', 'model')", columns=100
    )
    assert done.status == 0
    assert "with params['w1'] as P('data', 'model')" in done.out
    assert re.search(r"mlp under Shardy: \d+ of \d+ values are sharded differently", done.out)
    assert "after   P('data', 'model')" in done.out
    same = sdyscope("propagate", "mlp", "--set-sharding", "params['w1']=P(None, 'model')")
    assert "values, sharded the same way before and after" in same.out
    document = sdyscope(
        "propagate", "mlp", "--set-sharding", "batch['x']=P()", "--conservative", "--json"
    ).document("propagate")
    assert document["changes"] == ["batch['x'] as P()", "conservative propagation"]
    assert document["propagations"][0]["exactness"] == "approximate"
    assert document["changed"][0]["beginnings"]


def test_what_can_not_be_changed_is_said(sdyscope):
    def wish(text):
        return sdyscope("propagate", "mlp", "--set-sharding", text)

    wish("params['w3']=P()").said("No tensor is called params['w3']", "Did you mean")
    wish("params['w1']=P('zz')").said("unknown mesh axis", "data, model")
    wish("params['w1']=P('data'").said("unexpected end", "^")
    wish("params['w1']").said("how to shard what")
    sdyscope("propagate", "mlp", "--priority", "params['w1']=1").said("which priority")
    sdyscope("propagate", "mlp", "--partitioner", "gspmd", "--conservative").said("Only Shardy")


def test_a_file(sdyscope, mlp_files):
    done = sdyscope("propagate", mlp_files / "shardy.mlir")
    assert done.status == 0
    assert done.out.startswith("Shardy: exact")
    assert re.search(r"^14\d values: ", done.out, re.MULTILINE)


@pytest.mark.compiles
def test_a_file_for_gspmd(sdyscope, mlp_files):
    done = sdyscope("propagate", mlp_files / "gspmd.mlir")
    assert done.out.startswith("GSPMD: exact, from XLA's dump of a compile for 8 CPU devices\n")
    sdyscope("propagate", mlp_files / "gspmd.mlir", "--steps").said("no steps", "only Shardy's")


@pytest.mark.compiles
def test_both_partitioners(sdyscope):
    document = sdyscope("propagate", "mlp", "--partitioner", "both", "--json").document("propagate")
    assert [propagation["partitioner"] for propagation in document["propagations"]] == [
        "shardy",
        "gspmd",
    ]
    same = [value["same"] for value in document["values"]]
    assert False not in same
    assert same.count(True) > 120
    done = sdyscope("propagate", "mlp", "--partitioner", "both", columns=80)
    assert "=  as under Shardy, whose blocks are shown" in done.out


def test_more_devices_than_xla_has_are_a_result(sdyscope):
    words = ("--mesh", "fsdp=256,model=16", "--set", "d_ff=4096", "--set", "batch=256")
    words = (*words, "--set", "heads=16", "--set", "layers=1")
    done = sdyscope("propagate", "fsdp-transformer", "--partitioner", "both", *words)
    assert done.status == 0
    assert "Shardy: exact" in done.out
    assert "nothing under GSPMD: XLA compiles for at most 2,048 CPU devices" in done.out
    sdyscope("propagate", "fsdp-transformer", "--partitioner", "gspmd", *words).said("2,048")


SHARD_MAP = """
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope import Program

MESH = {"a": 4, "b": 2}


def program(mesh):
    def sharded(shape, *spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    def body(x, w):
        return jax.lax.psum(jnp.tanh(x @ w), "b")

    @jax.jit
    def f(x, w):
        inside = jax.shard_map(
            body, mesh=mesh, in_specs=(P("a", "b"), P("b", None)), out_specs=P("a", None)
        )
        return inside(x * 2, w) + 1

    return Program("f", f, (sharded((16, 32), "a"), sharded((32, 64), None, None)))
"""


PARTLY_MANUAL = """
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
from sdyscope import Program
MESH = {"a": 2, "b": 2}

def program(mesh):
    x = jax.ShapeDtypeStruct((8, 4), jnp.float32, sharding=NamedSharding(mesh, P(("a", "b"))))
    mapped = jax.shard_map(jnp.sin, mesh=mesh, in_specs=P("a"), out_specs=P("a"), axis_names={"a"})
    return Program("f", jax.jit(mapped), (x,), mesh=mesh)
"""


def test_a_shard_map_over_some_axes_leaves_the_others_to_the_partitioner(sdyscope, tmp_path):
    path = tmp_path / "mapped.py"
    path.write_text(PARTLY_MANUAL)
    document = sdyscope("propagate", f"{path}:program", "--json").document("propagate")
    entering, leaving = (v for v in document["values"] if v["kind"].startswith("shard_map "))
    for value in (entering, leaving):
        assert value["propagated"]["shardy"]["sharding"]["short"] == "P(('a', 'b'), None)"
        assert value["as_requested"] == {"shardy": True}


def test_what_jax_constrains_of_the_scalars_that_a_sum_adds_is_no_row(sdyscope, tmp_path):
    path = tmp_path / "summed.py"
    summed = PARTLY_MANUAL.replace("jnp.sin", "lambda x: jax.lax.psum(x * 2, 'a')")
    path.write_text(summed.replace('out_specs=P("a")', "out_specs=P()"))
    document = sdyscope("propagate", f"{path}:program", "--all", "--json").document("propagate")
    written = [value for value in document["values"] if value["section"] == "by JAX"]
    assert written
    assert all(value["propagated"]["shardy"]["fate"] != "not partitioned" for value in written)


@pytest.mark.compiles
def test_shard_map(sdyscope, tmp_path):
    path = tmp_path / "mapped.py"
    path.write_text(SHARD_MAP)
    words = ("propagate", f"{path}:program", "--partitioner", "both", "--json")
    document = sdyscope(*words).document("propagate")
    # What enters is sharded as the shard_map asks, wherever it comes from.
    (entering,) = [value for value in document["values"] if "#1 input of " in value["name"]]
    for partitioner in ("shardy", "gspmd"):
        assert entering["propagated"][partitioner]["sharding"]["short"] == "P('b', None)"
        assert entering["as_requested"][partitioner]
    # Inside, what a device has is the program's own doing.
    (tanh,) = [value for value in document["values"] if value["primitive"] == "tanh"]
    assert tanh["propagated"]["shardy"]["sharding"]["short"] == "manual"
    assert tanh["propagated"]["shardy"]["sharding"]["placement"]["replicas"] == 1
    assert not [value for value in document["values"] if value["same"] is False]
    done = sdyscope("explain", f"{path}:program", "tanh")
    assert "manual: each device has its own block, as in the shard_map" in done.out
    done = sdyscope("explain", f"{path}:program", "result")
    assert "from the annotation {a} on dim 0 of an output of the shard_map body at " in done.out
