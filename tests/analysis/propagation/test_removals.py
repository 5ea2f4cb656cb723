"""What removes a collective, a rematerialization, a first difference: against what_if."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sdyscope import Program
from sdyscope.analysis.propagation.counterfactuals import without_axes
from sdyscope.analysis.propagation.removals import RemovalTrials, explained_removals
from sdyscope.errors import TargetError
from sdyscope.facts.origins import OriginAnnotation
from sdyscope.inspection import Inspection, of_modules
from sdyscope.targets import resolve
from sdyscope.values.sharding import PartitionSpec as P
from sdyscope.words.edits import edit_text


def name_of(cause):
    """What `what_if` calls an annotation."""
    if cause.kind in ("constraint", "new constraint"):
        return f"{cause.source.file}:{cause.source.line}"
    return cause.name


def differing(program):
    """The names of the values that the partitioners shard differently."""
    return {
        each.value.name
        for begun in program.propagated_diff().beginnings
        for each in begun.all_values
    }


@pytest.fixture(scope="module")
def reshaped():
    """A sharded batch is split in two dimensions, and results are left to the compiler."""
    devices = jax.devices()
    mesh = jax.sharding.Mesh(np.array(devices[:8]).reshape(4, 2), ("data", "model"))

    def step(w, x):
        return jnp.tanh(x @ w).reshape(2, 16, 4, 32).sum(1)

    def sharded(shape, *spec):
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)

    arguments = sharded((32, 128), None, "model"), sharded((32, 32), "data", None)
    return Inspection(Program("step", jax.jit(step), arguments))


@pytest.fixture(scope="module")
def difference(reshaped):
    (difference,) = explained_removals(reshaped, "first-difference").differences
    return difference


OLD = pytest.mark.skipif(
    jax.__version_info__ < (0, 10), reason="the partitioners of that JAX shard the results alike"
)


@OLD
@pytest.mark.compiles
def test_the_first_difference_goes_with_what_is_necessary_for_it(reshaped, difference):
    name = difference.begins.value.name
    assert name in differing(reshaped)
    removals = difference.removals
    assert (removals.is_found, removals.differing) == (True, len(differing(reshaped)))
    assert {tried.cause.name: tried.necessary for tried in removals.causes} == {
        "w": False,
        "x": True,
    }
    for tried in removals.causes:
        without = reshaped.what_if({name_of(tried.cause): None})
        assert (name not in differing(without)) == tried.necessary
    ((edit,),) = [remedy.edits for remedy in removals.remedies]
    assert edit.name == "x"


@OLD
@pytest.mark.compiles
def test_of_a_recorded_program_both_modules_are_changed(reshaped, difference):
    recorded = of_modules(reshaped.lowered, {})
    (again,) = explained_removals(recorded, "first-difference").differences
    assert again.removals.is_found
    assert again.removals.causes == difference.removals.causes


def test_an_annotation_without_a_name_or_line_is_none_of_the_others():
    """As in an inner function of JAX's, whose constraints have neither."""
    from sdyscope.stages.lowered.read import read_bytes

    text = """
module @m attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["data"=4, "model"=2]>
  func.func public @main(%arg0: tensor<8xf32>) -> tensor<8xf32> {
    %0 = sdy.sharding_constraint %arg0 <@mesh, [{"data"}]> : tensor<8xf32> loc(unknown)
    return %0 : tensor<8xf32> loc(unknown)
  } loc(unknown)
} loc(unknown)
"""
    trials = RemovalTrials(Inspection(read_bytes(text.encode())))
    (group,) = [group for group in trials.answers.groups if group.first.kind == "constraint"]
    assert (group.first.path, group.first.source) == ("", None)
    unnamed = OriginAnnotation("constraint", "", P(("data",)), (), "has", None, True)
    assert list(trials._named(unnamed)) == []
    assert edit_text(group.edit(None)) == "remove the constraint P('data')"


@OLD
@pytest.mark.compiles
def test_one_more_annotation_makes_the_partitioners_agree(reshaped, difference):
    (remedy,) = difference.removals.constraints
    (edit,) = remedy.edits
    assert (edit.kind, edit.after, remedy.differing) == ("result", P((None, "model", None)), 0)
    assert differing(reshaped.what_if({edit.name: edit.after})) == set()


@OLD
@pytest.mark.compiles
def test_an_annotation_that_only_moves_the_difference_is_no_remedy():
    """The slice of a concatenation: sharded as Shardy does, the next two values differ."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("data", "model"))

    def array(shape, *spec):
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)

    step = jax.jit(lambda x, w: jnp.concatenate([x @ w, x], -1)[:, 3:])
    program = Program("step", step, (array((12, 10), "data"), array((10, 6), None, "model")))
    (difference,) = explained_removals(Inspection(program), "first-difference").differences
    (remedy,) = difference.removals.constraints
    assert remedy.edits[0].after == P((None, None))
    assert remedy.differing == 0


@pytest.mark.compiles
def test_a_rematerialization_goes_with_either_end_of_its_resharding():
    from tests.lint_cases import no_way_there

    program = no_way_there().under(("shardy",))
    (causes,) = explained_removals(program, "full-rematerialization").rematerializations
    assert causes.removals.is_found
    assert causes.removals.remedies
    for tried in causes.removals.causes:
        without = program.what_if({name_of(tried.cause): None})
        logged = without.collectives("shardy", origins=False).rematerializations
        assert (not logged) == tried.necessary
    for remedy in causes.removals.remedies:
        without = program.what_if(dict.fromkeys(map(name_of, remedy.edits)))
        assert not without.collectives("shardy", origins=False).rematerializations


@pytest.mark.compiles
def test_there_has_to_be_something_of_that_name():
    program = Inspection(resolve("mlp"))
    for name, axis, words in (
        ("first-difference", "", "shard every value that can be compared the same way"),
        ("full-rematerialization", "", "logs no full rematerialization"),
        ("all-gather", "", "has no all-gather"),
        ("all-reduce.4", "model", "No all-reduce.4 of the compiled program runs over 'model'"),
        ("all-reduce", "other", "no axis 'other'"),
    ):
        with pytest.raises(TargetError, match=words):
            explained_removals(program, name, axis)


@pytest.mark.compiles
def test_what_is_sent_is_what_the_compiled_program_sends():
    """CPUs send bf16 as f32, which is not yet so behind partitioning."""
    kinds = (jax.sharding.AxisType.Auto,) * 2
    mesh = jax.sharding.AbstractMesh((4, 2), ("data", "model"), axis_types=kinds)

    def array(shape, *spec):
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=sharding)

    step = jax.jit(lambda x, w: jnp.sin(x @ w))
    program = Inspection(
        Program("step", step, (array((16, 8), "data", "model"), array((8, 4), "model"))),
        ("shardy",),
    )
    (collective,) = explained_removals(program, "all-reduce").collectives
    sent = program.collectives("shardy").total.sent
    assert collective.sent == collective.removals.sent == sent == 4 * 4 * 4


def kinds(changed):
    """What the partitioner makes the program send: by kind, axes, scope and primitive."""
    from sdyscope.analysis.collectives.read import collectives
    from sdyscope.hlo import read_hlo
    from sdyscope.stages.compiled.spmd import spmd

    text = spmd(changed.lowered["shardy"], changed.graph("shardy")).hlo
    return {
        (
            collective.kind,
            tuple(axis.name for axis in collective.axes or ()),
            part.scope,
            part.primitive,
        )
        for collective in collectives(read_hlo(text), (changed.only_mesh("shardy"),)).collectives
        for part in collective.parts
    }


@pytest.mark.compiles
@pytest.mark.thorough
@pytest.mark.parametrize(("over", "lost"), [("model", ""), ("data", ""), ("data", "data")])
def test_a_collective_goes_with_what_it_needs_and_stays_with_what_it_does_not(over, lost):
    """Against the program partitioned anew with the annotations changed by what_if."""
    program = Inspection(resolve("mlp"), ("shardy",))
    asked = max(
        (
            collective
            for collective in program.collectives("shardy").collectives
            if [axis.name for axis in collective.axes or ()] == [over]
        ),
        key=lambda collective: collective.sent,
    )
    collective = RemovalTrials(program, lost).collective(asked)
    removals = collective.removals
    assert (collective.name, collective.axes, removals.is_found) == (asked.name, (over,), True)
    assert removals.causes
    key = (asked.kind, collective.axes, asked.largest.scope, asked.largest.primitive)
    assert key in kinds(program)

    def wish(spec):
        """Nothing at all, or the same without the axis."""
        return without_axes(spec, [lost]) if lost else None

    for tried in removals.causes:
        without = kinds(program.what_if({name_of(tried.cause): wish(tried.cause.spec)}))
        assert (key in without) != tried.necessary
        others = {name_of(each.cause): wish(each.cause.spec) for each in removals.causes}
        del others[name_of(tried.cause)]
        assert (key in kinds(program.what_if(others))) == tried.sufficient
    for remedy in removals.remedies:
        wishes = {name_of(edit): edit.after for edit in remedy.edits}
        assert key not in kinds(program.what_if(wishes))
