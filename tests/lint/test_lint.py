"""How rules are chosen and run, what is said of those that can't be, and what is said once."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from mlir_text import MIXED

from sdyscope.analysis.collectives.totals import Collectives
from sdyscope.errors import TargetError
from sdyscope.facts.program import Program
from sdyscope.inspection import Inspection, read
from sdyscope.lint import RULES, chosen_rules, linted, rule, subject
from sdyscope.lint.subject import NOT_COMPILED
from sdyscope.stages import compat
from sdyscope.values.mesh import Mesh
from tests.lint_cases import (
    annotated_for_both,
    large_step,
    one_axis_of_two,
    plain,
    program,
    split_along_the_only_dimension_that_divides,
    step,
    train,
    with_callback,
)
from tests.programs import EXPLICIT, array, on

UNREDUCED = """
module @m attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["data"=4, "model"=2]>
  func.func public @main(
      %x: tensor<16x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"data"}]>},
      %w: tensor<32x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>}
  ) -> (tensor<16x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"model"}]>}) {
    %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
        : (tensor<16x32xf32>, tensor<32x16xf32>) -> tensor<16x16xf32>
    %1 = sdy.sharding_constraint %0 <@mesh, [{}, {}], unreduced={"data"}> : tensor<16x16xf32>
    %2 = sdy.sharding_constraint %1 <@mesh, [{}, {}]> : tensor<16x16xf32>
    return %2 : tensor<16x16xf32>
  }
}
"""


def test_names_are_stable_words():
    for name, rule_ in RULES.items():
        assert name == rule_.name == name.lower()
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyz-")
        assert rule_.summary.endswith(".")
        assert rule_.explanation.rstrip().endswith(".")


def test_rules_are_chosen_by_globs():
    assert [chosen.name for chosen in chosen_rules(["not-*"], ["not-a*"])] == [
        name for name in RULES if name.startswith("not-") and not name.startswith("not-a")
    ]
    assert chosen_rules() == tuple(RULES.values())
    with pytest.raises(TargetError, match="no rule 'donation-unusd'") as error:
        chosen_rules(["donation-unusd"])
    assert "donation-unused" in (error.value.hint or "")
    with pytest.raises(TargetError):
        rule("")


def test_lint_is_public():
    inspection = one_axis_of_two()
    (finding,) = inspection.lint(select=["unused-*"], compiled=False)
    assert finding.rule == "unused-mesh-axis"


def test_rules_that_need_a_compile_are_listed():
    outcome = linted(plain(), compiled=False)
    missing = {rule.rule for rule in outcome.not_run if rule.reason == NOT_COMPILED}
    assert missing == {rule.name for rule in RULES.values() if rule.needs == "compiled"}


def test_what_a_program_leaves_to_the_compiler_is_not_run_without_compiling():
    outcome = linted(train(out_shardings=None), select=["next-value-differs"], compiled=False)
    assert outcome.findings == ()
    (missing,) = outcome.not_run
    assert missing.applies
    assert "leaves the sharding of 8 next values to the compiler" in missing.reason


def test_a_gradient_is_not_called_the_next_value():
    def loss(params, x):
        return (jnp.tanh(x @ params["up"]) ** 2).mean()

    params, x = {"up": array((16, 32), None, "model")}, array((32, 16), "data")
    kept, moved = {"up": on(None, "model")}, {"up": on("data")}
    (finding,) = linted(
        program(jax.grad(loss), params, x, out_shardings=moved),
        select=["next-value-differs"],
        compiled=False,
    ).findings
    assert finding.message == (
        "result['up'] is its gradient, but returned with another sharding: the update has to "
        "reshard one of them first."
    )
    same = program(jax.grad(loss), params, x, out_shardings=kept)
    assert linted(same, select=["next-value-differs"], compiled=False).findings == ()


def test_next_values_are_not_compared_on_several_meshes(monkeypatch):
    inspection = train()
    monkeypatch.setattr(Inspection, "only_mesh", lambda *_: None)
    outcome = linted(inspection, select=["next-value-differs"], compiled=False)
    (missing,) = outcome.not_run
    assert missing.reason == "The program has no mesh, or more than one."


def test_one_thing_under_both_partitioners_is_said_once():
    inspection = Inspection(one_axis_of_two().source, ("shardy", "gspmd"))
    (finding,) = inspection.lint(select=["unused-mesh-axis"], compiled=False)
    assert finding.partitioner is None


def test_errors_come_first():
    outcome = annotated_for_both().lint(compiled=False)
    ranks = [("error", "warning", "note").index(finding.severity) for finding in outcome]
    assert ranks == sorted(ranks)


@pytest.mark.compiles
@pytest.mark.skipif(jax.__version_info__ >= (0, 11), reason="XLA refuses mixed modules since")
def test_what_xla_does_with_both_kinds_of_annotations(tmp_path):
    path = tmp_path / "mixed.mlir"
    path.write_text(MIXED)
    outcome = linted(read(path, trusted=True), select=["silent-fallback"])
    assert [finding.message for finding in outcome.findings] == [
        "XLA did not run Shardy on this module, which has GSPMD's shardings too, but fell back "
        "to GSPMD silently."
    ]


@pytest.mark.compiles
def test_an_unreduced_value_meets_a_reduction(tmp_path, monkeypatch):
    path = tmp_path / "unreduced.mlir"
    path.write_text(UNREDUCED)
    inspection = read(path, trusted=True)
    assert inspection.lint(select=["unreduced-never-reduced"]) == ()
    # No installed compiler leaves it out (openxla/xla#40034 did): take its reductions away.
    real = inspection.collectives()
    assert {collective.kind for collective in real.collectives} <= {"all-reduce", "reduce-scatter"}
    none = Collectives((), 8, real.mesh, False)
    monkeypatch.setattr(subject, "collectives_under", lambda *_, **__: none)
    (finding,) = inspection.lint(select=["unreduced-never-reduced"])
    assert finding.severity == "error"
    assert "unreduced over data," in finding.message


@pytest.mark.compiles
def test_a_program_that_cannot_be_compiled_is_looked_at_as_far_as_it_goes():
    from tests.lint_cases import kernel_on_pieces

    outcome = linted(kernel_on_pieces())
    assert {finding.rule for finding in outcome.findings} == {
        "collective-before-custom-call",
        "unused-mesh-axis",
    }
    refused = [rule for rule in outcome.not_run if rule.applies]
    assert {"donation-unused", "gathered-in-loop"} <= {refusal.rule for refusal in refused}
    assert all("a_kernel" in refusal.reason for refusal in refused)


@pytest.mark.compiles
def test_a_constraint_that_gspmd_does_not_keep():
    """What JAX itself returns is sharded otherwise than the last constraint says."""
    from sdyscope.facts.program import Program
    from tests.programs import PROGRAMS

    fun, arguments = PROGRAMS["shard_map"]
    inspection = Inspection(Program("shard_map", fun, arguments), ("gspmd",))
    (finding,) = inspection.lint(select=["constraint-overridden"])
    assert (finding.expected, finding.found) == (
        "dim 0 split 4 ways over data, dim 1 whole; replicated 2 times over model",
        "dim 0 split 4 ways over data, dim 1 split 2 ways over model",
    )
    assert inspection.compiled().result_shardings == ("{devices=[4,2]<=[8]}",)


@pytest.mark.compiles
def test_a_remat_is_predicted_and_confirmed_alike():
    from tests.lint_cases import all_to_all, no_way_there

    inspection = no_way_there()
    (confirmed,) = inspection.lint(select=["full-rematerialization"])
    (predicted,) = inspection.lint(select=["full-rematerialization"], compiled=False)
    assert (confirmed.expected, confirmed.found) == (predicted.expected, predicted.found)
    assert (confirmed.source.file, confirmed.source.line) == (
        predicted.source.file,
        predicted.source.line,
    )
    assert "predicted" in predicted.message
    assert all_to_all().lint(select=["full-rematerialization"]) == ()


@pytest.mark.skipif(jax.__version_info__ < (0, 8), reason="it takes jax.set_mesh to lower there")
def test_unreduced_results_are_the_callers():
    def fun(x, w):
        spec = jax.sharding.PartitionSpec(None, None, unreduced={"data"})
        sharding = jax.sharding.NamedSharding(EXPLICIT, spec)
        return jax.numpy.einsum("bd,df->bf", x, w, out_sharding=sharding)

    arguments = array((16, 32), None, "data", mesh=EXPLICIT), array((32, 16), "data", mesh=EXPLICIT)
    from tests.lint_cases import program

    outcome = linted(program(fun, *arguments), select=["unreduced-never-reduced"], compiled=False)
    assert outcome.findings == ()
    assert replace(outcome, not_run=()).passed


def test_what_has_no_line_has_that_of_the_function():
    (finding,) = train(batch=()).lint(select=["batch-not-sharded"], compiled=False)
    code = step.__code__
    assert (finding.source.file, finding.source.line) == (code.co_filename, code.co_firstlineno)


def test_what_a_callback_in_a_loop_takes_is_the_carry():
    """Not the argument that the loop begins with."""

    def fun(x):
        def body(_, y):
            jax.debug.callback(lambda _: None, y)
            return jax.numpy.sin(y)

        return jax.lax.fori_loop(0, 3, body, x)

    outcome = linted(with_callback(fun), select=["host-callback-gathers"], compiled=False)
    assert "takes the carry x whole" in outcome.findings[0].message


@pytest.mark.compiles
def test_a_next_value_names_the_partitioner_where_each_places_it_otherwise():
    """The batch of 64 over 8 of data becomes 4 x 16: GSPMD shards the result, Shardy does not."""

    def step(state, x):
        moved = jax.numpy.tanh(x @ state["w"]).reshape(4, 16, 4, 32).sum(1)
        return {"w": state["w"], "mean": moved}

    mesh = compat.abstract_mesh(Mesh.of({"data": 8, "model": 2}))

    def abstract(shape, *spec):
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))
        return jax.ShapeDtypeStruct(shape, jax.numpy.float32, sharding=sharding)

    state = {"w": abstract((32, 128), None, "model"), "mean": abstract((4, 4, 32))}
    program = Program("step", jax.jit(step, keep_unused=True), (state, abstract((64, 32), "data")))
    inspection = Inspection(program, ("shardy", "gspmd"))
    findings = inspection.lint(select=["next-value-differs"])
    of_mean = {each.partitioner: each.found for each in findings if "mean" in each.tensor}
    assert set(of_mean) == {"shardy", "gspmd"}
    assert of_mean["shardy"] != of_mean["gspmd"]


def test_a_module_says_itself_what_is_donated(tmp_path):
    """As of a recorded program: nobody else says it."""
    path = tmp_path / "step.mlir"
    for options, tensors in (({}, ["w['w']"]), ({"donate_argnums": 0}, [])):
        path.write_text(large_step(**options).lowered["shardy"].text())
        outcome = linted(read(path), select=["state-not-donated"], compiled=False)
        assert [finding.tensor for finding in outcome.findings] == tensors


def test_a_dimension_that_is_split_already_is_split_further():
    outcome = linted(
        split_along_the_only_dimension_that_divides(), select=["under-sharded"], compiled=False
    )
    assert outcome.findings[0].hint == "Shard dimension 3 on data as well."
