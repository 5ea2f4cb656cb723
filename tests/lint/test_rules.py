"""Every rule finds what it is for, and spares what comes close."""

import os
import re
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from sdyscope.analysis.collectives.comms import collectives_under
from sdyscope.inspection import inspect
from sdyscope.lint import RULES, linted, subject
from tests import lint_cases, lint_collective_cases, lint_wasted_cases
from tests.lint_cases import CASES
from tests.programs import on

assert lint_collective_cases  # Its cases are among them.
assert lint_wasted_cases  # Likewise.


def params():
    for case in CASES:
        marks = [pytest.mark.compiles] if case.compiled else []
        if (case.hardware or "").startswith("tpu"):
            marks.append(pytest.mark.libtpu)
        yield pytest.param(case, id=case.name, marks=marks)


@pytest.mark.parametrize("case", list(params()))
def test_rule(case):
    if jax.__version_info__ < case.since:
        pytest.skip("this JAX can't lower it")
    outcome = linted(
        case.make(),
        select=[case.rule],
        compiled=case.compiled,
        on=case.hardware,
        logical=case.logical,
    )
    assert [rule for rule in outcome.not_run if rule.applies] == []
    if case.tensor is None:
        assert outcome.findings == ()
        return
    assert outcome.findings
    first = outcome.findings[0]
    assert first.rule == case.rule
    assert case.tensor in first.tensor
    assert first.severity == (case.severity or RULES[case.rule].severity)
    assert first.message.endswith((".", "?")) or ": " in first.message
    for finding in outcome.findings:  # Lines are told as everywhere, from the working directory.
        for text in (finding.message, finding.expected, finding.found, finding.hint):
            assert os.getcwd() not in (text or "")
        for text in (finding.message, finding.hint):  # And so are axes.
            assert not re.search(r"\b(?:on|over|along|and) '", text or "")
    assert outcome.passed == (first.severity == "note")


#: No compiler says such things of any program: these are about our own reading of it.
UNREACHABLE = {"bytes-differ"}


def test_every_rule_has_a_program_that_it_finds_and_one_that_it_spares():
    rule = {case.rule for case in CASES if case.tensor is not None}
    spared = {case.rule for case in CASES if case.tensor is None}
    assert rule == set(RULES) - UNREACHABLE
    assert spared == set(RULES)


@pytest.mark.compiles
def test_no_dimension_is_named_that_the_axis_does_not_divide():
    """Two layers are not split over four devices, though they are outermost."""
    hints = {}
    for layers in (2, 64):
        outcome = linted(
            lint_cases.gathered_columns(layers), select=["layout-copied"], compiled=True
        )
        hints[layers] = {finding.hint for finding in outcome.findings}
    assert any("hard dimension 0, which is outermost" in hint for hint in hints[64])
    assert hints[2]
    assert not any("hard dimension 0" in hint for hint in hints[2])
    assert any("let the next op contract" in hint.lower() for hint in hints[2])


@pytest.mark.compiles
def test_what_a_product_contracts_already_is_not_advised():
    """The batch is over the same axis, which is why the weight is gathered."""
    program = lint_cases.program(
        lambda x, w: jnp.einsum("bd,fd->bf", x, w),
        lint_cases.array((64, 512), "data"),
        lint_cases.array((4096, 512), None, "data"),
    )
    (finding,) = linted(program, select=["layout-copied"], compiled=True).findings
    assert "along dimension 1" in finding.message
    assert "contract" not in finding.hint


@pytest.mark.compiles
@pytest.mark.parametrize(
    ("op", "works"),
    [
        ("fft", lambda x, at: jnp.abs(jnp.fft.fft(x * 2))),
        (
            "dynamic_update_slice",
            lambda x, at: jax.lax.dynamic_update_slice(x * 2, jnp.ones((250, 8)), (0, at)),
        ),
        (
            "triangular_solve",
            lambda x, at: jax.lax.linalg.triangular_solve(jnp.eye(512), x.T * 2, left_side=True),
        ),
    ],
)
def test_what_works_on_a_whole_dimension_is_not_said_to_contract_it(op, works):
    """A Fourier transform, a write or a solver, along the dimension that is gathered for it."""
    arguments = lint_cases.array((250, 512), None, "data"), lint_cases.array((), dtype=jnp.int32)
    outcome = linted(lint_cases.program(works, *arguments), select=["layout-copied"], compiled=True)
    assert [finding.tensor.rpartition("/")[2] for finding in outcome.findings] == [op]
    assert [finding.hint for finding in outcome.findings] == [
        "Let the program have its dimensions in another order."
    ]


@pytest.mark.compiles
def test_dimensions_that_are_all_gathered_are_not_each_told_to_be_the_other():
    """XLA gives every device all of what it can't split, such as the operand of ``top_k``."""
    both = lint_cases.program(
        lambda x: jax.lax.top_k(x, 8), lint_cases.array((128, 32000), "data", "model")
    )
    outcome = linted(both, select=["layout-copied"], compiled=True)
    assert [finding.hint for finding in outcome.findings] == [
        "Shard dimension 0, which is outermost in the ops around it, instead of dimension 1."
    ]


@pytest.mark.compiles
def test_a_copy_is_at_the_op_that_needs_the_collective(monkeypatch):
    """XLA may name that after another, as of JAX 0.11; its origin says which needs it."""

    def as_xla_names(program, partitioner=None, on=None, *, origins=True):
        collectives = collectives_under(program, partitioner, on, origins=origins)
        if origins:
            return collectives
        return collectives.with_parts(
            lambda _, part: replace(part, source=None, scope="", primitive="elsewhere")
        )

    monkeypatch.setattr(subject, "collectives_under", as_xla_names)
    columns = lint_cases.gathered_whole(None, "data")
    outcome = linted(columns, select=["layout-copied"], compiled=True)
    (collective,) = columns.collectives().collectives
    assert [(finding.tensor, finding.source) for finding in outcome.findings] == [
        (collective.largest.primitive, collective.largest.source)
    ]


@pytest.mark.compiles
def test_how_often_stands_apart_from_the_size_of_the_axis():
    residual = lint_wasted_cases.residual_stream_on_its_features()
    outcome = linted(residual, select=["activation-gathered-repeatedly"], compiled=True)
    assert outcome.findings
    for finding in outcome.findings:
        assert re.search(r" are gathered \d+ times per step over data=4, ", finding.message)


@pytest.mark.compiles
def test_what_is_gathered_repeatedly_is_not_all_said_to_be_sharded_by_one_annotation():
    residual = lint_wasted_cases.residual_stream_on_its_features_at_two_lines()
    (finding,) = linted(residual, select=["activation-gathered-repeatedly"], compiled=True).findings
    assert "are gathered 5 times" in finding.message
    assert re.search(
        r", sharded by constraint at \S+ P\(None, 'data'\) and 1 more ", finding.message
    )


@pytest.mark.skipif(jax.__version_info__ < (0, 9), reason="modules for CPUs name no memory there")
@pytest.mark.parametrize("after", ["pinned_host", "device"])
def test_what_the_host_holds_twice_is_its_own_memory(after: str) -> None:
    """What is left on the device has no buffer in an argument's on the host."""
    before = on("data").with_memory_kind("pinned_host")
    state = jax.ShapeDtypeStruct((4096, 4096), jnp.float32, sharding=before)

    def step(w: Any) -> Any:
        moved = jax.device_put(w, on("data").with_memory_kind("device"))
        return jax.device_put(moved + jnp.sum(moved), on("data").with_memory_kind(after))

    step_program = jax.jit(step, out_shardings=on("data").with_memory_kind(after))
    outcome = linted(inspect(step_program, state), select=["state-not-donated"], compiled=False)
    saved = [finding.message.partition(" save up to ")[2] for finding in outcome.findings]
    kept = ["16.0 MiB of pinned_host memory per device."]
    assert saved == (kept if after == "pinned_host" else [])


@pytest.mark.compiles
def test_a_gather_that_a_constraint_asks_for_is_not_one_that_another_constraint_saves():
    router = lint_wasted_cases.layers_gathered_by_a_constraint()
    (finding,) = linted(router, select=["activation-gathered-repeatedly"], compiled=True).findings
    assert re.match(
        r"It is required by constraint at \S+ P\(None, None\) itself: keep data in its spec if ",
        finding.hint,
    )


@pytest.mark.compiles
def test_no_constraint_saves_the_gather_of_what_an_fft_transforms():
    """As was advised for JAX-CFD's pressure; what is advised now sends less."""
    whole = lint_wasted_cases.transformed_by_one_op()
    (finding,) = linted(whole, select=["op-not-split"], compiled=True).findings
    assert "XLA gathers that whatever is constrained: " in finding.message

    def constrained(field):
        rows = jnp.fft.fft(
            jax.lax.with_sharding_constraint(field, on("d", None, mesh=lint_wasted_cases.LINE))
        )
        return jnp.fft.fft(
            jax.lax.with_sharding_constraint(rows, on(None, "d", mesh=lint_wasted_cases.LINE)),
            axis=0,
        )

    sent = [
        lint_wasted_cases.steps_of_a_spectral_solver(transform).collectives().total.sent
        for transform in (
            lint_wasted_cases.transformed_in_a_shard_map,
            jnp.fft.fft2,
            constrained,
        )
    ]
    assert sorted(sent) == sent
    assert 2 * sent[0] < sent[1]


@pytest.mark.compiles
def test_a_gradient_summed_in_a_loop_of_a_shard_map_is_cast_before_the_loop():
    """The loop is mapped already, and has no total to return: `pcast` moves its sum behind it."""
    program = lint_wasted_cases.gradients_summed_in_a_mapped_loop()
    (finding,) = program.lint(select=["reduced-in-loop"])
    # It is where `comms` has the sum, and says where the loop is.
    sums = [each for each in program.collectives("shardy").collectives if each.count > 1]
    assert finding.source in [part.source for each in sums for part in each.parts]
    named = re.search(r"of the loop at (\S+):(\d+), which only adds", finding.message)
    assert named
    assert int(named[2]) > finding.source.line
    assert finding.hint.startswith("Before the loop, make what it reads and is the same over data")
    assert "jax.lax.pcast(params, 'data', to='varying')" in finding.hint


@pytest.mark.compiles
@pytest.mark.parametrize(
    ("rule", "before", "after"),
    [
        ("op-not-split", "largest_along_what_is_sharded", "largest_of_blocks_and_of_those"),
        (
            "reshape-not-split",
            "sharded_sequence_joined_to_its_batch",
            "sharded_sequence_beside_its_batch",
        ),
        (
            "reshape-not-split",
            "sharded_sequence_joined_to_its_batch",
            "sequence_joined_to_its_sharded_batch",
        ),
        ("batched-loop-in-step", "examples_that_end_together", "examples_that_end_where_they_are"),
        (
            "window-not-split",
            "cache_filled_along_its_sharded_positions",
            "cache_filled_by_its_rows",
        ),
        ("window-not-split", "window_of_a_cache_read", "rows_of_a_cache_read"),
    ],
)
def test_what_is_advised_sends_hardly_anything(rule: str, before: str, after: str) -> None:
    programs = [getattr(lint_wasted_cases, name)() for name in (before, after)]
    assert linted(programs[0], select=[rule], compiled=True).findings
    sent = [program.collectives().total.sent for program in programs]
    assert 20 * sent[1] < sent[0] or sent[1] == 0


@pytest.mark.compiles
def test_each_reason_for_which_an_op_is_not_split_has_its_remedy():
    rows, both = (
        linted(make(), select=["op-not-split"], compiled=True).findings
        for make in (
            lint_wasted_cases.largest_of_rows_over_devices,
            lint_wasted_cases.largest_along_what_is_sharded,
        )
    )
    assert [finding.hint for finding in rows] == [
        "Run it in jax.shard_map over data, where each device takes its own block."
    ]
    assert sorted(finding.hint for finding in both) == [
        "In jax.shard_map over model, take the largest of each block, jax.lax.all_gather them, and "
        "take the largest of these: 8 of 4,096 elements.",
        "Run it in jax.shard_map over data, where each device takes its own block.",
    ]


@pytest.mark.compiles
def test_each_way_in_which_a_reshape_is_not_split_has_its_remedy():
    joined, cut = (
        linted(make(), select=["reshape-not-split"], compiled=True).findings[0]
        for make in (
            lint_wasted_cases.sharded_sequence_joined_to_its_batch,
            lint_wasted_cases.six_heads_of_four_blocks,
        )
    )
    assert joined.message.startswith(
        "This reshape of [16,64,512] to [1024,512] joins dimension 1, which is sharded over model, "
        "to dimension 0 before it: "
    )
    assert joined.hint.endswith(
        "Or shard dimension 0 over data and model, and dimension 1 not at all."
    )
    assert cut.message.startswith(
        "This reshape of [8,128,384] to [8,128,6,64] makes 6 x 64 of dimension 2, which is sharded "
        "4 ways over data, and 6 does not divide into 4. "
    )


@pytest.mark.compiles
def test_of_a_dimension_that_is_joined_and_cut_at_once_both_are_said():
    def regrouped(x: Any) -> Any:
        return jnp.tanh(x).reshape(10, 6, 512) * 2

    program = lint_cases.program(regrouped, lint_cases.array((12, 5, 512), "data"))
    (finding,) = linted(program, select=["reshape-not-split"], compiled=True).findings
    assert finding.message.startswith(
        "This reshape of [12,5,512] to [10,6,512] joins dimension 0, which is sharded 4 ways over "
        "data, to what follows as 10 x 6, and 10 does not divide into 4. "
    )


@pytest.mark.compiles
@pytest.mark.parametrize(
    ("name", "hint"),
    [
        (
            "cache_filled_along_its_sharded_positions",
            "Write them by their indices, x.at[:, start + jnp.arange(16)].set: a device writes "
            "those that it has.",
        ),
        (
            "cache_filled_at_places_of_each_example",
            "Write them by their indices, x.at[start + jnp.arange(16)].set: a device writes those "
            "that it has.",
        ),
        (
            "window_of_a_cache_read",
            "Take them by their indices, x[:, start + jnp.arange(16)]: they alone are sent.",
        ),
    ],
)
def test_a_window_is_advised_as_rows_of_the_function_that_is_mapped(name: str, hint: str) -> None:
    program = getattr(lint_wasted_cases, name)()
    (finding,) = linted(program, select=["window-not-split"], compiled=True).findings
    assert finding.hint == hint
    assert " of the 2,048 elements along dimension 1 of [8,2048,64]" in finding.message


@pytest.mark.compiles
@pytest.mark.parametrize(
    ("case", "begins"),
    [
        (lint_wasted_cases.products_added_up, "Run the loop in jax.shard_map(..., "),
        (lint_wasted_cases.over_time, "Run the loop whose backward pass it is in jax.shard_map("),
    ],
)
def test_a_loop_that_is_mapped_sums_once(case, begins):
    """What is advised sends what one iteration did: partial products, and an RNN's gradient."""
    (finding,) = case(mapped=False).lint(select=["reduced-in-loop"])
    assert finding.hint.startswith(begins)
    before, after = (case(mapped=how).collectives("shardy").total for how in (False, True))
    assert before.sent == 8 * after.sent > 0
