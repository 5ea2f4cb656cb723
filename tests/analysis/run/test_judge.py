"""Verdicts about shards, replicas and numbers, from made-up executions. No jax in here."""

from dataclasses import replace

import numpy as np
import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st

from sdyscope.analysis.run.judge import judge
from sdyscope.facts.execution import (
    ExecutedArray,
    Execution,
    HostBlock,
    InputSource,
    Machine,
    Reference,
    Shard,
    UnequalReplica,
)
from sdyscope.facts.findings import NothingTold
from sdyscope.facts.program import RequestedTensor
from sdyscope.facts.tensors import TensorTable, tensor_table
from sdyscope.values.convert import to_hlo_sharding, to_placement
from sdyscope.values.mesh import Mesh
from sdyscope.values.sharding import UNCONSTRAINED, NamedSharding, PartitionSpec
from sdyscope.words.findings import finding_of
from sdyscope.words.run import random_numbers_text, reference_text

MESH = Mesh.of({"data": 4, "model": 2})
MACHINE = Machine("cpu", "cpu", tuple(f"cpu:{k}" for k in range(8)), 8, True)


def asked(sharding, shape, path="x", kind="argument", dtype="f32", index=0, **more):
    return RequestedTensor(kind, path, shape, dtype, sharding, index=index, **more)


def table(*tensors) -> TensorTable:
    return tensor_table(tensors, {})


def held(placement, shape, kind="argument", index=0):
    """An array that is where a placement says."""
    shards = []
    for device in range(placement.num_devices):
        block = tuple((part.start, part.stop) for part in placement.index(device, shape))
        shards.append(Shard(device, block, tuple(b - a for a, b in block), 0))
    text = str(to_hlo_sharding(placement, len(shape)))
    return ExecutedArray(kind, index, shape, text, len(shape), tuple(shards))


def run(tensors, *arrays, outputs=(), reference=None, **more):
    held = tuple((HostBlock.whole(output),) for output in outputs)
    execution = Execution("shardy", arrays=arrays, outputs=held, step_seconds=(1.0,), **more)
    return judge(
        "step", MACHINE, InputSource("made"), table(*tensors), [execution], reference or Reference()
    )


def spec(*entries):
    return NamedSharding(MESH, PartitionSpec(entries))


@st.composite
def placed(draw):
    """A request that divides its tensor, and the array that follows it."""
    mesh = draw(strategies.meshes(max_devices=64))
    rank = draw(st.integers(1, 3))
    sharding = draw(strategies.named_shardings(mesh, rank=rank, unconstrained=False))
    place = to_placement(sharding, rank)
    shape = tuple(shards * draw(st.integers(1, 3)) for shards in place.shards)
    return asked(sharding, shape), held(place, shape)


@given(placed())
def test_what_follows_the_request_is_as_placed(case):
    tensor, array = case
    found = run([tensor], array)
    assert found.tensors[0].verdicts == {"shardy": "as placed"}
    assert found.findings == ()
    assert found.passed


@given(placed(), st.data())
def test_one_shard_elsewhere_is_found_and_the_device_named(case, data):
    tensor, array = case
    device = data.draw(st.integers(0, len(array.shards) - 1))
    dim = data.draw(st.integers(0, len(array.shape) - 1))
    shard = array.shards[device]
    moved = list(shard.index)
    moved[dim] = (moved[dim][0] + 1, moved[dim][1] + 1)
    shards = list(array.shards)
    shards[device] = replace(shard, index=tuple(moved))
    found = run([tensor], replace(array, shards=tuple(shards)))
    assert found.tensors[0].verdicts == {"shardy": "differs"}
    (finding,) = map(finding_of, found.findings)
    assert (finding.rule, finding.tensor, finding.severity) == ("executed-differs", "x", "error")
    assert f"device {device} has [" in finding.message
    assert not found.passed


def test_a_buffer_of_another_shape_is_found():
    array = held(to_placement(spec("data"), 2), (8, 4))
    shards = (replace(array.shards[0], shape=(2, 3)), *array.shards[1:])
    found = run([asked(spec("data"), (8, 4))], replace(array, shards=shards))
    assert "in a buffer of [2, 3]" in finding_of(found.findings[0]).message


def test_what_nobody_asked_for_is_chosen_and_its_placement_is_known():
    place = to_placement(spec("model", "data"), 2)
    found = run([asked(None, (8, 4))], held(place, (8, 4)))
    assert found.tensors[0].verdicts == {"shardy": "chosen"}
    assert found.tensors[0].placements == {"shardy": place}


def test_an_open_dimension_is_the_compilers():
    request = asked(spec("data", UNCONSTRAINED), (8, 4))
    chosen = run([request], held(to_placement(spec("data", "model"), 2), (8, 4)))
    assert chosen.tensors[0].verdicts == {"shardy": "chosen"}
    left = run([request], held(to_placement(spec("data", None), 2), (8, 4)))
    assert left.tensors[0].verdicts == {"shardy": "as placed"}
    wrong = run([request], held(to_placement(spec(None, "model"), 2), (8, 4)))
    assert wrong.tensors[0].verdicts == {"shardy": "differs"}


def test_dropped_arguments_and_what_did_not_run():
    tensor = asked(spec("data"), (8, 4), dropped=True)
    assert run([tensor]).tensors[0].verdicts == {"shardy": "dropped"}
    failed = run([tensor], failure="XLA: no")
    assert failed.tensors[0].verdicts == {"shardy": "not run"}
    assert [finding.rule for finding in failed.findings] == ["not-run"]
    assert not failed.passed


def test_a_partitioner_that_refuses_is_a_note_while_the_other_runs():
    executions = [Execution("shardy"), Execution("gspmd", failure="no GSPMD", refused=True)]
    found = judge("step", MACHINE, InputSource("made"), table(), executions, Reference())
    assert [(f.rule, f.severity) for f in found.findings] == [("not-lowerable", "note")]
    assert found.passed
    alone = judge("step", MACHINE, InputSource("made"), table(), executions[1:], Reference())
    assert not alone.passed


def test_wrong_results_are_one_finding_that_names_the_worst():
    tensors = [asked(None, (4,), f"result[{k}]", "result", index=k) for k in range(3)]
    right = (np.ones(4), np.ones(4), np.ones(4))
    found = run(
        tensors,
        outputs=(np.ones(4), np.full(4, 3.0), np.full(4, 1.5)),
        reference=Reference(outputs=right, compute_dtypes=("f32",)),
    )
    assert [numeric.within for numeric in found.numerics["shardy"]] == [True, False, False]
    (finding,) = map(finding_of, found.findings)
    assert (finding.rule, finding.tensor) == ("numerics-differ", "result[1]")
    assert "2 of 3 results" in finding.message
    assert "result[2]" in finding.message
    assert finding.found == "an error of 2: 3 where one device has 1, at [0]"


def test_a_wrong_number_is_told_with_its_place_and_its_device():
    wrong = np.zeros((8, 2))
    wrong[5, 1] = np.nan
    found = run(
        [asked(spec("data", None), (8, 2), "result", "result", index=0)],
        held(to_placement(spec("data", None), 2), (8, 2), "result"),
        outputs=(wrong,),
        reference=Reference(outputs=(np.zeros((8, 2)),)),
    )
    (finding,) = map(finding_of, found.findings)
    assert finding.found == "an error of inf: nan where one device has 0, at [5, 1] on device 4"


@pytest.mark.parametrize(
    ("here", "there", "rules"),
    [
        (np.nan, np.nan, ["not-compared", "not-finite"]),
        (np.inf, np.inf, ["not-compared", "not-finite"]),
        (np.inf, -np.inf, ["numerics-differ"]),
        (0.0, 0.0, ["not-compared"]),
        (1.0, 1.0, []),
        (0.0, np.nan, ["numerics-differ"]),
        (1.0, 0.0, ["numerics-differ"]),
    ],
)
def test_results_that_are_nothing_are_not_compared(here, there, rules):
    found = run(
        [asked(None, (4,), "result", "result", index=0)],
        outputs=(np.full(4, here),),
        reference=Reference(outputs=(np.full(4, there),), compute_dtypes=("f32",)),
    )
    assert [finding_of(finding).rule for finding in found.findings] == rules


def test_elements_that_are_not_finite_are_counted():
    here = np.array([[1.0, np.nan], [np.inf, 2.0]])
    whole = np.array([1.0, np.nan, 3.0])
    found = run(
        [
            asked(None, shape, f"result[{k}]", "result", index=k)
            for k, shape in enumerate([(2, 2), (3,), (1,)])
        ],
        outputs=(here, whole, np.ones(1)),
        reference=Reference(outputs=(here, whole, np.ones(1)), compute_dtypes=("f32",)),
    )
    (finding,) = map(finding_of, found.findings)
    assert (finding.rule, finding.severity, finding.tensor) == ("not-finite", "note", "result[0]")
    assert finding.message == (
        "2 of 4 elements and some of 1 other result are NaN or infinite, also on one device; "
        "errors are of finite elements alone."
    )
    assert found.passed


def test_no_reference_is_said():
    found = run([], reference=Reference(failure="out of memory"))
    assert [(f.rule, f.severity) for f in found.findings] == [("not-compared", "note")]
    assert "out of memory" in finding_of(found.findings[0]).message


@pytest.mark.parametrize(("error", "severity"), [(1.4, "error"), (1e-7, "note")])
def test_copies_that_differ(error, severity):
    array = held(to_placement(spec(), 1), (4,), "result")
    array = replace(array, unequal=(UnequalReplica(5, 0, error),))
    found = run([asked(None, (4,), "result", "result")], array)
    (finding,) = map(finding_of, found.findings)
    assert (finding.rule, finding.severity) == ("replicas-differ", severity)
    assert "device 5 and device 0" in finding.message


def test_replicas_of_which_each_went_its_own_way_in_a_small_step():
    """A gradient that was never reduced, added to parameters in f32 and computed in bf16."""
    before, after = np.ones(4), np.full(4, 1.001)
    array = held(to_placement(spec(), 1), (4,), "result")
    array = replace(array, unequal=(UnequalReplica(5, 0, 1.5e-3),))
    small = Reference(outputs=(after,), compute_dtypes=("bf16",))
    asked_for = [asked(None, (4,), "result", "result")]
    found = run(asked_for, array, outputs=(after,), reference=replace(small, before=(before,)))
    (finding,) = map(finding_of, found.findings)
    assert (finding.rule, finding.severity) == ("replicas-differ", "error")
    assert "by 1.5 of the norm of what the step changes in it." in finding.message
    found = run(asked_for, array, outputs=(after,), reference=small)
    assert [finding.severity for finding in found.findings] == ["note"]


def test_what_is_noise_on_a_mesh_of_one_device_is_named():
    one = Reference(
        outputs=(np.ones(4),), compute_dtypes=("bf16",), has_shard_maps=True, noise=(0,)
    )
    found = run([asked(None, (4,), "result", "result")], outputs=(np.ones(4),), reference=one)
    (finding,) = found.findings
    assert finding.fact == NothingTold((), (), ("result",))
    assert reference_text(found.reference).endswith("computes the same, but for rounding noise.")


def test_random_numbers_are_said():
    on = run([], reference=Reference(draws_random_numbers=True))
    off = run([], reference=Reference(draws_random_numbers=True, threefry_partitionable=False))
    assert "jax_threefry_partitionable on" in random_numbers_text(on.reference)
    assert "jax_threefry_partitionable is off" in random_numbers_text(off.reference)
    assert random_numbers_text(run([]).reference) == ""
