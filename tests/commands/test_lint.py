"""`sdyscope lint`."""

from pathlib import Path

import jax
import pytest

from sdyscope.lint import RULES

ROOT = Path(__file__).parents[2]
INDIVISIBLE = f"{ROOT / 'docs' / 'indivisible.py'}:program"


def test_nothing_found(sdyscope):
    done = sdyscope("lint", "mlp", "--no-compile", columns=80)
    assert (done.status, done.err) == (0, "")
    compiled = [name for name, rule in RULES.items() if rule.needs == "compiled"]
    run = len(RULES) - len(compiled)
    assert f"mlp: {run} of {len(RULES)} rules under Shardy, nothing found" in done.out
    # However it is folded.
    assert f"{','.join(compiled)}:Itneedsthecompiled" in "".join(done.out.split())


def test_findings_and_exit_status(sdyscope):
    done = sdyscope("lint", INDIVISIBLE, "--no-compile", "--select", "not-*", columns=80)
    assert done.status == 1
    assert "1 warning" in done.out
    assert "constraint jit(step) at docs/indivisible.py:20 [not-divisible]" in done.out
    done = sdyscope("lint", INDIVISIBLE, "--no-compile", "--ignore", "not-*,constraint-*")
    assert done.status == 0


def test_a_text_that_mlir_cannot_read_is_linted_without_a_compile(sdyscope, tmp_path):
    """Written by a newer JAX: rules about the lowered module look at what is read of it."""
    path = tmp_path / "newer.mlir"
    path.write_text(
        """module @m attributes {mhlo.num_partitions = 8 : i32} {
  sdy.mesh @mesh = <["data"=4, "model"=2]>
  func.func public @main(
      %w: tensor<7x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}], later=max{"model"}>}
  ) -> tensor<7x4xf32> {
    %0 = stablehlo.add %w, %w
      {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"data"}, {}]>]>} : tensor<7x4xf32>
    return %0 : tensor<7x4xf32>
  }
}
"""
    )
    document = sdyscope("lint", path, "--json").document("lint")
    skipped = {entry["rule"]: entry["reason"] for entry in document["not_run"] if entry["applies"]}
    assert "not-divisible" not in skipped
    assert "MLIR's bindings could not read it" in skipped["donation-unused"]
    assert "MLIR's bindings could not read it" in skipped["constraint-overridden"]
    refused = [each for each in document["account"]["unknowns"] if each["kind"] == "refused"]
    assert sorted((each["stage"], each["count"]) for each in refused) == [
        ("compiled", 1),
        ("propagated", 1),
    ]
    (finding,) = document["findings"]
    assert (finding["rule"], "later=max" in finding["found"]) == ("no-placement", True)
    # What could not be read names the axis.
    assert "could not be read" in skipped["unused-mesh-axis"]
    done = sdyscope("source", path)
    assert (done.status, "No collectives: m can't be compiled" in done.out) == (0, True)


def test_whose_compile_is_judged_is_said(sdyscope):
    """Where a rule looks at a compiled program: for what hardware, by which JAX."""
    words = ("lint", "mlp", "--select", "under-sharded,unused-mesh-axis")
    by = f"JAX {jax.__version__}"
    done = sdyscope(*words)
    assert f"2 rules under Shardy, nothing found; compiled for cpu:8 by {by}" in done.out
    document = sdyscope(*words, "--json").document("lint")
    assert (document["hardware"], document["device_kind"]) == ("cpu:8", "cpu")
    assert document["compiled_by"] == by
    document = sdyscope(*words, "--no-compile", "--json").document("lint")
    assert [document[name] for name in ("hardware", "device_kind", "compiled_by")] == [None] * 3


def test_json(sdyscope):
    done = sdyscope("lint", INDIVISIBLE, "--no-compile", "--json", "--partitioner", "both")
    document = done.document("lint")
    assert done.status == 1
    assert document["partitioners"] == ["shardy", "gspmd"]
    (finding,) = [one for one in document["findings"] if one["rule"] == "not-divisible"]
    assert finding["source"]["line"] == 20
    assert finding["partitioner"] is None
    counts = {one["name"]: one["findings"] for one in document["rules"]}
    assert counts["not-divisible"] == 1
    missing = {(one["rule"], one["partitioner"]) for one in document["not_run"] if one["applies"]}
    assert ("full-rematerialization", "gspmd") in missing
    assert {rule for rule, under in missing if under == "shardy"} == {
        name for name, one in RULES.items() if one.needs == "compiled"
    }


def test_rules_are_listed_and_explained(sdyscope):
    done = sdyscope("lint", "--rules", columns=80)
    assert done.status == 0
    assert all(name in done.out for name in RULES)
    done = sdyscope("lint", "--explain", "gathered-in-loop", columns=80)
    assert done.status == 0
    assert done.out.startswith("gathered-in-loop\n")
    assert "FSDP is not reported" in done.out
    document = sdyscope("lint", "--rules", "--select", "not-*", "--json").document("lint")
    assert document["name"] is None
    assert [rule["name"] for rule in document["rules"]] == [
        name for name in RULES if name.startswith("not-")
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["mlp", "--select", "donation"], "There is no rule 'donation'"),
        (["mlp", "--ignore", "x"], "There is no rule 'x'"),
        (["--explain", "donation-unusd"], "Did you mean donation-unused"),
        ([], "There is no TARGET"),
        (["mlp", "--rules"], "Leave TARGET out"),
        (["mlp", "--no-compile", "--on", "cpu:8"], "compiles for no hardware"),
        (["nothing_here"], "nothing_here"),
    ],
)
def test_bad_usage(sdyscope, words, said):
    sdyscope("lint", *words).said(said)


MAPPINGS = """[trainer.mesh]
axes = {{model = 2}}
param_mapping = {{{} = "data"}}
"""


def test_mappings_of_a_mesh_configuration_meet_named_axes(sdyscope, tmp_path):
    pytest.importorskip("haliax")
    config = tmp_path / "mesh.toml"
    config.write_text(MAPPINGS.format("embde"))
    words = ("--select", "logical-*,parameter-not-sharded", "--no-compile", "--devices", "8")
    done = sdyscope("lint", "levanter-gpt2", *words, "--mesh-config", config)
    assert (done.status, done.err) == (1, "")
    assert "No tensor has the logical axis 'embde' of param_mapping" in done.out
    assert "Did you mean 'embed'?" in done.out
    assert "not applicable" not in done.out
    config.write_text(MAPPINGS.format("embed"))
    done = sdyscope("lint", "levanter-gpt2", *words, "--mesh-config", config)
    assert (done.status, done.err) == (0, "")
    assert "nothing found" in done.out


def test_mappings_without_named_axes_are_told(sdyscope, tmp_path):
    config = tmp_path / "mesh.toml"
    config.write_text(MAPPINGS.format("embed"))
    words = ("--select", "logical-*", "--no-compile", "--devices", "8", "--mesh-config", config)
    done = sdyscope("lint", "mlp", *words)
    assert done.status == 0
    assert "mesh.toml are not used. No argument of the program names its dim" in done.err
    config.write_text("[trainer.mesh]\naxes = {model = 2}\n")
    assert sdyscope("lint", "mlp", *words).err == ""
    found = sdyscope("lint", "mlp", "--select", "logical-*", "--no-compile", "--json")
    reasons = {rule["reason"] for rule in found.document("lint")["not_run"]}
    assert reasons == {"Mappings of logical axes are in a mesh configuration: --mesh-config."}


#: More devices than XLA compiles for on CPUs.
LARGE = ("mlp", "--mesh", "data=16,model=256", "--set", "batch=4096", "--set", "hidden=4096")


@pytest.mark.parametrize("partitioner", ["shardy", "gspmd"])
def test_on_a_mesh_that_can_not_be_compiled_for_the_other_rules_run(sdyscope, partitioner):
    done = sdyscope("lint", *LARGE, "--json", "--partitioner", partitioner)
    document = done.document("lint")
    assert (done.status, document["findings"]) == (0, [])
    reasons = {rule["rule"]: rule["reason"] for rule in document["not_run"] if rule["applies"]}
    compiled = {name for name, one in RULES.items() if one.needs == "compiled"}
    assert compiled <= set(reasons)
    assert {reasons[name] for name in compiled} == {
        "XLA compiles for at most 2,048 CPU devices, and the program has 4,096 partitions. "
        "Use a smaller --mesh, or compile for TPUs or GPUs with --on."
    }
    # What was asked for and can't be had is wrong usage, as ever.
    sdyscope("lint", *LARGE, "--on", "cpu:8").said("cpu:8 has 8 devices, and the program is for")
    plain = sdyscope("lint", *LARGE, "--no-compile", "--json", "--partitioner", partitioner)
    names = {rule["rule"] for rule in plain.document("lint")["not_run"] if rule["applies"]}
    assert names == set(reasons)


def test_a_directory_of_dumps(sdyscope, tmp_path):
    module = (
        'module { sdy.mesh @mesh = <["x"=4, "y"=2]> func.func @main(%a: tensor<8xf32> '
        "{sdy.sharding = #sdy.sharding<@mesh, [{AXES}]>}) -> tensor<8xf32> "
        "{ return %a : tensor<8xf32> } }"
    )
    (tmp_path / "fine.mlir").write_text(module.replace("AXES", '"x", "y"'))
    (tmp_path / "odd.mlir").write_text(module.replace("AXES", '"x"'))
    words = ("lint", tmp_path, "--no-compile", "--select", "unused-mesh-axis,bytes-differ")
    done = sdyscope(*words, columns=80)
    said = " ".join(done.out.split())
    assert done.status == 1
    assert f"{tmp_path}: 2 programs, 1 warning" in said
    assert "odd: 1 of 2 rules under Shardy, 1 warning" in said
    assert "nothing found in fine" in said
    assert said.count("not run bytes-differ: It needs the compiled program") == 1
    document = sdyscope(*words, "--json").document("lint")
    assert not document["passed"]
    found = {program["name"]: len(program["findings"]) for program in document["programs"]}
    assert found == {"fine": 0, "odd": 1}
    counts = {rule["name"]: rule["findings"] for rule in document["rules"]}
    assert counts == {"unused-mesh-axis": 1, "bytes-differ": 0}
    (tmp_path / "odd.mlir").write_text("module {")
    done = sdyscope(*words)
    assert done.status == 1  # what could not be read is not well
    assert "odd.mlir: left out: MLIR can't read it" in " ".join(done.out.split())
