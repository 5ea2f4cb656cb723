"""The audit agrees with what is right, and names each thing that is made wrong."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import msgspec
import pytest
import user_programs
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from sharded_programs import Recipe, Step
from sharded_programs import mesh as devices_mesh

from sdyscope.analysis.collectives.comms import collectives_under
from sdyscope.analysis.collectives.origin_needs import Needs
from sdyscope.analysis.verify.causes import causes_stage
from sdyscope.analysis.verify.compiled import collectives_stage, memory_stage
from sdyscope.analysis.verify.values import lowered_stage, numbers, propagated_stage
from sdyscope.errors import CompilerError
from sdyscope.facts.origins import Together
from sdyscope.facts.program import Program
from sdyscope.inspection import Inspection
from sdyscope.models import mlp
from sdyscope.stages import compat
from sdyscope.stages.audit.audit import audit
from sdyscope.stages.propagated.what_if import Wish
from sdyscope.values.mesh import AxisRef, Mesh

pytestmark = [
    pytest.mark.compiles,
    pytest.mark.skipif(
        compat.version_tuple() < (0, 10), reason="HLO's bindings do not show a computation's ops"
    ),
]

PARTITIONERS = ("shardy", "gspmd")
MESH = compat.abstract_mesh(Mesh.of({"data": 4, "model": 2}))


def several(mesh):
    """Loops, a function called with two shardings, ops with several results, a shard_map."""

    @jax.jit
    def called(x):
        return jnp.sin(x) * 2

    def step(x, w):
        def body(carry, _):
            return jnp.tanh(carry @ w), carry.sum()

        carried, sums = jax.lax.scan(body, x, None, length=3)
        keys, others = jax.lax.sort((carried, carried * 2), dimension=1)
        mapped = jax.shard_map(
            lambda y: jax.lax.psum(y, "data"), mesh=mesh, in_specs=P("data"), out_specs=P()
        )(keys)
        return called(others), called(w), mapped, jnp.argmax(keys, 1), sums

    def array(shape, *spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    return Program("several", jax.jit(step), (array((16, 8), "data"), array((8, 8), None, "model")))


@pytest.mark.parametrize(
    "make",
    [
        several,
        user_programs.gradients,
        user_programs.mapped,
        # JAX tells XLA which of LAPACK's calls can be partitioned.
        user_programs.decomposed,
    ],
)
def test_everything_agrees_under_both_partitioners(make):
    verification = Inspection(make(MESH)).verify(causes=1)
    assert not verification.not_verified
    for program in verification.programs:
        stages = {stage.stage: stage for stage in program.stages}
        assert [stage.disagreements for stage in program.stages] == [()] * 7
        assert stages["lowered"].compared > 5
        assert stages["propagated"].compared > 4
        assert stages["collectives"].compared or make is user_programs.mapped
        assert stages["memory"].compared >= 6
    assert verification.agrees
    assert [program.partitioner for program in verification.programs] == ["shardy", "gspmd"]


def test_what_a_loop_passes_on_is_what_it_begins_with():
    """The body needs it sharded and gets a copy; what is returned is the argument, as it was."""

    @jax.jit
    def scaled(x, mass):
        return x * mass[:, None], mass

    def step(x, mass):
        return jax.lax.fori_loop(0, 3, lambda _, carry: scaled(*carry), (x, mass))

    arguments = (
        user_programs.abstract(MESH, (16, 8), "data"),
        user_programs.abstract(MESH, (16,), None),
    )
    verification = Inspection(Program("step", jax.jit(step), arguments)).verify(causes=0)
    assert verification.agrees
    assert all(
        stage.compared and not stage.disagreements
        for program in verification.programs
        for stage in program.stages
        if stage.stage in ("lowered", "propagated", "memory")
    )


#: Programs of which an audit once disagreed under Shardy: how XLA sees them, and how many causes.
ONCE = {
    # One element of a sharded tensor is gathered by a sum, to which no other sum's cause belongs.
    "an element of a sharded tensor": Recipe(
        ((None, ("b", "a")), ("b", "a")),
        (Step("reshape", (1,), ()), Step("cond", (2, 1), ())),
        (3, 2),
        (("a", "b"), ("a", "b")),
    ),
    # XLA concatenates with another sharding than Shardy gives the result, and copies.
    "concatenated along a sharded dimension": Recipe(
        ((None, ("b", "a")), (None, "b")), (Step("concatenate", (1, 0), ()),), (2,), (None,)
    ),
    # Of a square tensor, whose shape the transposition keeps.
    "transposed": Recipe(
        (("a", "b"), ("a", "b")), (Step("transpose", (1,), ()),), (2,), (("a", "b"),)
    ),
    # XLA splits the product over an axis that nothing is sharded on; and a sharding of a result
    # takes the place of an argument's.
    "a product that XLA splits": Recipe(
        ((None, "b"), (None, "b")),
        (Step("dot", (1, 1), ()), Step("cond", (2, 1), ())),
        (3, 2, 3),
        (("b", None), (None, "b"), ("a", "b")),
    ),
}


@pytest.mark.parametrize("name", ONCE)
def test_what_once_disagreed_agrees(name):
    (program,) = Inspection(ONCE[name].program(), ["shardy"]).verify(6).programs
    for stage in program.stages:
        disagreements = stage.disagreements
        if name.startswith("concatenated") and compat.version_tuple() >= (0, 11):
            # The edges that a slice takes of what is joined are still said to be an operand's.
            assert len(disagreements) <= 1
            disagreements = tuple(
                each for each in disagreements if not each.name.endswith("permute: the value")
            )
        assert disagreements == ()
    assert stage.stage == "causes"
    assert stage.compared


def _products(x, w, v):
    return jnp.einsum("abc,bcd,de->ae", x, w, v)


def _ragged(x, w, sizes):
    return jax.grad(lambda w: (jax.lax.ragged_dot(x, w, sizes) ** 2).sum())(w)


def _picked(x, at, w):
    return x[at[:, 0], at[:, 1]] @ w


def _looked_up(table, at, w):
    def body(carry, now):
        return jnp.tanh(carry @ w) + table[now], None

    return jax.lax.scan(body, jnp.zeros((8, 32)), at)[0]


def _scattered_twice(x, at):
    for _ in range(2):
        x = jax.ops.segment_sum(x, at, num_segments=8)
    return x


def _across(x, y, z):
    return (x + y).sum(0), y * z


def _positive(x, y):
    return jnp.maximum(x, 0).sum(0), jnp.maximum(y, 0)


def _added(h, w, at):
    return jnp.zeros((32, 16)).at[at].add(h @ w.T)


def _written(x, c, at):
    return jax.lax.dynamic_update_slice_in_dim(x, jnp.tanh(c)[:2], at[0], 0)


#: Functions, their arguments with shardings and how the result is sharded; programs whose causes
#: did not make their collectives go: for one, another took its place, which was not named.
REPLACED = {
    # By what the same value has on another dimension, and by what the product's result has.
    "another dimension": (
        _products,
        [
            ((8, 4, 16), (("model", "data"), None, None)),
            ((4, 16, 32), (None, None, ("model", "data"))),
            ((32, 8), ("data", "model")),
        ],
        (None, ("data", "model")),
    ),
    # By the axis that groups are split over, for the dimension that is summed.
    "groups": (
        _ragged,
        [((16, 32), ("model", None)), ((4, 32, 16), (None, "model", None)), ((4,), ("model",))],
        None,
    ),
    # XLA makes what is looked up with the table's axis, which the indices have too.
    "looked up": (
        _picked,
        [
            ((8, 16, 32), (None, None, "data")),
            ((16, 2), ("data", "model")),
            ((32, 32), ("model", "data")),
        ],
        None,
    ),
    "looked up in a loop": (
        _looked_up,
        [((64, 32), (None, "model")), ((4, 8), ("data", "model")), ((32, 32), ("data", None))],
        None,
    ),
    # By XLA, once the result's axis comes where the updates' was: both zeros are one to it.
    "scattered twice": (
        _scattered_twice,
        [((8, 16), ("model", None)), ((8,), (None,))],
        ("data", None),
    ),
    # By what another argument is multiplied by, whose own sharding says nothing to GSPMD.
    "across an argument": (
        _across,
        [((16, 16), ("data",)), ((16, 16), ()), ((16, 16), ("data",))],
        None,
    ),
    # By what meets the same zeros.
    "one constant": (_positive, [((16, 16), ("data",)), ((16, 16), ("data",))], None),
    # By nothing: XLA moves the product to other axes and gathers it over both, one after the other,
    # and names that after the product (JAX 0.11), of which an operand has the last of the axes.
    "gathered twice": (
        _added,
        [((8, 16), (None, "model")), ((16, 16), ("data", None)), ((8,), (None,))],
        ("data", "model"),
    ),
    # By nothing: it is what is written that is gathered, by a sum, and not what it is written into.
    "written": (
        _written,
        [((16,), (("data", "model"),)), ((16,), ("data",)), ((4,), (None,))],
        None,
    ),
}


@pytest.mark.parametrize(
    ("name", "partitioner"),
    [
        ("another dimension", "shardy"),
        ("groups", "shardy"),
        ("looked up", "gspmd"),
        ("scattered twice", "gspmd"),
        ("across an argument", "gspmd"),
        ("one constant", "gspmd"),
        ("gathered twice", "shardy"),
        ("written", "shardy"),
        pytest.param("another dimension", "gspmd", marks=pytest.mark.thorough),
        pytest.param("looked up in a loop", "gspmd", marks=pytest.mark.thorough),
    ],
)
def test_what_takes_the_place_of_a_cause_is_named(name, partitioner):
    function, arguments, result = REPLACED[name]
    args = tuple(
        jax.ShapeDtypeStruct(
            shape,
            # Sizes and indices.
            jnp.int32 if shape in ((4,), (8,), (16, 2), (4, 8)) else jnp.float32,
            sharding=NamedSharding(MESH, P(*spec)),
        )
        for shape, spec in arguments
    )
    sharded = {} if result is None else {"out_shardings": NamedSharding(MESH, P(*result))}
    program = Program(name, jax.jit(function, **sharded), args)
    (audited,) = Inspection(program, [partitioner]).verify(6).programs
    (stage,) = (stage for stage in audited.stages if stage.stage == "causes")
    assert stage.disagreements == ()
    assert stage.compared


def test_a_sum_that_xla_makes_of_itself_too_says_so(monkeypatch):
    """Without the updates' sharding XLA splits them all the same, which is said of the sum."""
    mesh = devices_mesh()

    def array(shape, dtype, *spec):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))

    program = Program(
        "scattered",
        jax.jit(lambda x, at, updates: x.at[at].add(updates)),
        (
            array((16, 32), jnp.float32, None, "b"),
            array((24,), jnp.int32, "b"),
            array((24, 32), jnp.float32, "a", "b"),
        ),
    )
    (audited,) = Inspection(program, ["shardy"]).verify(6).programs
    assert audited.stages[-1].disagreements == ()
    # Where that is not said, the updates are no cause without which the sum goes.
    monkeypatch.setattr(Needs, "is_torn", lambda *_: False)
    monkeypatch.setattr(Needs, "may_be_torn", lambda *_: False)
    (audited,) = Inspection(program, ["shardy"]).verify(6).programs
    (wrong,) = audited.stages[-1].disagreements
    assert wrong.shown == "updates"


def summed(x, y, z):
    """Four sums with one name: XLA combines those of `b` and `c`, whose shapes differ."""
    c, b = x.sum(0), y.sum()
    a = (x * c).sum()
    d = (z * a).sum()
    return a, b, c, d


def test_sums_that_are_called_alike_are_told_apart_by_their_lines():
    """Without the sharding of `x`, the sum of `y` stands where that of `x * c` was."""
    sharded = NamedSharding(devices_mesh(), P(("a", "b")))
    args = [jax.ShapeDtypeStruct((64, 4), jnp.float32, sharding=sharded)] * 3
    subject = Inspection(Program("summed", jax.jit(summed), tuple(args)), ["shardy"])
    (program,) = subject.verify(6).programs
    assert program.stages[-1].compared
    assert program.stages[-1].disagreements == ()


@pytest.fixture(scope="module", params=PARTITIONERS)
def looked_at(request):
    program = Inspection(several(MESH), [request.param])
    return program, request.param, audit(program.lowered[request.param], request.param, 8)


def test_results_of_loops_sorts_and_reductions_are_compared(looked_at):
    _, _, read = looked_at
    kinds = {read.ops[number].kind for number in read.values}
    assert {"stablehlo.while", "stablehlo.sort", "stablehlo.reduce", "stablehlo.sine"} <= kinds
    assert read.carried
    assert len(read.arguments) == 2
    assert len(read.results) == 5


def test_a_value_that_is_shown_otherwise_is_named(looked_at):
    program, partitioner, read = looked_at
    graph, propagated = program.graph(partitioner), program.propagated(partitioner)
    right = propagated_stage(graph, propagated, read)
    assert right.disagreements == ()
    wrong = 0
    for key, value in propagated.values.items():
        if value.placement is None or not any(value.placement.dims):
            continue
        dims = tuple(() for _ in value.placement.dims)
        whole = value._replace(placement=replace(value.placement, dims=dims), calls=())
        changed = replace(propagated, values={**propagated.values, key: whole})
        stage = propagated_stage(graph, changed, read)
        left_out = sum(stage.left_out.values()) - sum(right.left_out.values())
        assert len(stage.disagreements) + left_out in (0, 1, 2)
        wrong += bool(stage.disagreements)
    assert wrong > 10


def test_an_op_that_is_read_otherwise_is_named(looked_at):
    program, partitioner, read = looked_at
    graph = program.graph(partitioner)
    ops = list(read.ops)
    number = next(k for k, op in enumerate(ops) if op.kind == "stablehlo.sine")
    ops[number] = type(ops[number])("stablehlo.cosine", ops[number].types, ops[number].operands)
    (disagreement,) = lowered_stage(graph, type(read)(ops=ops)).disagreements
    assert "stablehlo.sine" in disagreement.shown
    assert "stablehlo.cosine" in disagreement.found
    (disagreement,) = lowered_stage(graph, type(read)(ops=ops[1:])).disagreements
    assert disagreement.name == "ops"


def test_a_collective_that_is_shown_otherwise_is_named(looked_at):
    program, partitioner, read = looked_at
    shown = program.collectives(partitioner)
    assert collectives_stage(shown, read).disagreements == ()
    first, *rest = shown.collectives
    for changed in (
        replace(first, count=first.count + 1),
        replace(first, kind="all-to-all"),
        replace(first, groups="{{0},{1},{2},{3},{4},{5},{6},{7}}"),
        replace(first, parts=(replace(first.parts[0], sent=3),)),
        replace(first, parts=(replace(first.parts[0], bytes=3),)),
        replace(first, axes=(AxisRef("model"),) if first.axes != (AxisRef("model"),) else ()),
    ):
        stage = collectives_stage(replace(shown, collectives=(changed, *rest)), read)
        assert stage.disagreements, changed
    assert collectives_stage(replace(shown, collectives=tuple(rest)), read).disagreements


def test_a_figure_that_is_shown_otherwise_is_named(looked_at):
    program, partitioner, read = looked_at
    shown = program.memory(partitioner)
    assert memory_stage(shown, read).disagreements == ()
    memory = replace(shown.compiled.memory, temporaries=1)
    changed = replace(shown, compiled=replace(shown.compiled, memory=memory))
    (disagreement,) = memory_stage(changed, read).disagreements
    assert disagreement.name == "temporaries"
    (disagreement,) = memory_stage(replace(shown, tensors=shown.tensors[1:]), read).disagreements
    assert disagreement.name == "arguments by their shardings"


def causes(program):
    """A program's collectives, and what says of some that are shown whether their causes are."""
    read = audit(program.lowered["shardy"], "shardy", 8)

    def changed(names):
        return program.with_wishes([Wish(name, unspecified=True) for name in names])

    def without(names):
        return audit(changed(names).lowered["shardy"], "shardy", 8)

    def explained(names):
        return collectives_under(changed(names), "shardy")

    def stage(shown):
        return causes_stage(shown, read, program.tensors, without, explained, 4)

    return program.collectives("shardy"), stage


def test_a_cause_that_is_none_is_named():
    shown, stage_of = causes(Inspection(mlp.program(MESH, mlp.Settings()), ["shardy"]))
    right = stage_of(shown)
    assert (right.compared, right.disagreements) == (2, ())
    # The labels are sharded over another axis than the sum is over.
    part = shown.collectives[0].largest
    another = replace(part.origin.annotations[0], kind="argument", name="batch['y']")
    origin = replace(part.origin, annotations=(another,), together=Together())
    one = replace(shown.collectives[0], parts=(replace(part, origin=origin),))
    alone = replace(shown, collectives=(one,))
    stage = stage_of(alone)
    (wrong,) = stage.disagreements
    assert wrong.shown == "batch['y']"
    assert "still there" in wrong.found
    unsure = replace(one, parts=(replace(part, origin=replace(origin, uncertain=True)),))
    alone = replace(shown, collectives=(unsure,))
    stage = stage_of(alone)
    assert (stage.compared, stage.left_out) == (0, {"uncertain": 1})


def test_what_shards_a_value_and_what_requires_it_are_each_a_cause():
    """Without the other one the collective goes, which proves nothing of either."""
    x, unused = (
        jax.ShapeDtypeStruct((16, 8), jnp.float32, sharding=NamedSharding(MESH, P("data")))
        for _ in range(2)
    )
    whole = NamedSharding(MESH, P())
    program = Program(
        "gathered",
        jax.jit(lambda x, unused: (jnp.tanh(x), unused), out_shardings=(whole, None)),
        (x, unused),
    )
    shown, stage_of = causes(Inspection(program, ["shardy"]))
    (gathered,) = shown.collectives
    origin = gathered.largest.origin
    stage = stage_of(shown)
    assert (stage.compared, stage.disagreements) == (1, ())
    has, needed = origin.annotations
    assert (has.name, needed.name) == ("x", "result[0]")
    for annotations in (
        (replace(has, name="unused"), needed),
        (has, replace(needed, kind="argument", name="unused")),
    ):
        changed = replace(
            origin, annotations=annotations, together=Together(), needed_together=Together()
        )
        parts = (replace(gathered.largest, origin=changed),)
        stage = stage_of(replace(shown, collectives=(replace(gathered, parts=parts),)))
        assert [each.shown for each in stage.disagreements] == ["unused"]


@pytest.mark.parametrize(
    ("changed", "is_gone"),
    [
        (lambda _: {}, False),
        (lambda _: {"along": (1,)}, True),  # of a square tensor
        (lambda each: {"ops": [op - 1 for op in each.ops]}, True),  # of this name on this line
        (lambda each: {"is_of_result": not each.is_of_result}, True),
        (lambda each: {"is_moved_before": not each.is_moved_before}, True),
    ],
    ids=["itself", "dimension", "op", "operand", "exchanged"],
)
def test_what_moves_as_many_bytes_is_not_always_the_same_collective(changed, is_gone):
    program = Inspection(mlp.program(MESH, mlp.Settings()), ["shardy"])
    shown, read = program.collectives("shardy"), audit(program.lowered["shardy"], "shardy", 8)
    without = msgspec.structs.replace(
        read,
        collectives=[msgspec.structs.replace(each, **changed(each)) for each in read.collectives],
    )
    stage = causes_stage(shown, read, program.tensors, lambda _: without, lambda _: shown, 4)
    assert stage.compared == 2
    assert (stage.disagreements == ()) is is_gone


def _norms(x, scale, unused):
    return ((x * scale) ** 2).sum() + jnp.sqrt((scale**2).sum()) + unused.sum(1).max()


def test_of_sums_in_one_all_reduce_each_has_its_own_cause():
    """Without `x` that sum is there by `scale`, and without `scale` XLA joins nothing to it."""
    x, scale, unused = (
        jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(MESH, P(*spec)))
        for shape, spec in (((16, 8), ("model", "data")), ((8,), ("model",)), ((8, 4), ("data",)))
    )
    program = Program("norms", jax.jit(_norms), (x, scale, unused))
    shown, stage_of = causes(Inspection(program, ["shardy"]))
    (joined,) = (each for each in shown.collectives if len(each.parts) == 2)

    def of(**changes):
        part = joined.parts[0]
        origin = replace(part.origin, together=Together(), **changes)
        parts = (replace(part, origin=origin), joined.parts[1])
        return stage_of(replace(shown, collectives=(replace(joined, parts=parts),)))

    stage = of()
    assert (stage.compared, stage.disagreements) == (1, ())
    (annotation,) = joined.parts[0].origin.annotations
    stage = of(annotations=(replace(annotation, name="unused"),))
    assert [each.shown for each in stage.disagreements] == ["unused"]


@pytest.mark.parametrize(
    ("ops", "is_there"),
    [(lambda ops: [*ops, 0], True), (lambda _: [0, 1], False)],
    ids=["its own", "others"],
)
def test_what_is_there_at_once_with_others_is_still_there(ops, is_there):
    """Without what takes the place of a cause, XLA joins the sum to another that has come."""
    program = Inspection(mlp.program(MESH, mlp.Settings()), ["shardy"])
    shown, read = program.collectives("shardy"), audit(program.lowered["shardy"], "shardy", 8)
    alone = next(each for each in read.collectives if len(each.dims) == 1)
    joined = msgspec.structs.replace(
        alone,
        dims=[*alone.dims, (3,)],
        bytes=alone.bytes + 12,
        ops=ops(alone.ops),
        scopes=["another"] * len(ops(alone.ops)),
    )
    others = [each for each in read.collectives if each is not alone]
    left = {
        frozenset({"batch['y']"}): read.collectives,
        frozenset({"params['w1']"}): [*others, joined],
        frozenset({"batch['y']", "params['w1']"}): others,
    }
    collective = next(each for each in shown.collectives if each.name == alone.name)

    def by(name):
        part = collective.largest
        annotation = replace(part.origin.annotations[0], kind="argument", name=name)
        origin = replace(part.origin, annotations=(annotation,), together=Together())
        parts = (replace(part, origin=origin),)
        return replace(shown, collectives=(replace(collective, parts=parts),))

    stage = causes_stage(
        by("batch['y']"),
        *(read, program.tensors),
        lambda names: msgspec.structs.replace(read, collectives=left[names]),
        lambda _: by("params['w1']"),
        4,
    )
    assert stage.compared == 1
    assert (stage.disagreements == ()) is is_there


def test_what_is_no_program_without_its_cause_is_not_compared():
    """Without the type that says of a sum that it is unreduced, the compiler aborts."""
    program = Inspection(mlp.program(MESH, mlp.Settings()), ["shardy"])
    shown, read = program.collectives("shardy"), audit(program.lowered["shardy"], "shardy", 8)

    def abort(names):
        raise CompilerError("XLA's compiler aborted (SIGABRT).")

    stage = causes_stage(shown, read, program.tensors, abort, lambda _: shown, 4)
    assert (stage.compared, stage.disagreements) == (0, ())
    assert stage.left_out["not compiled"] > 0


def test_no_answer_to_what_xla_compiles_is_a_disagreement(monkeypatch):
    program = Inspection(mlp.program(MESH, mlp.Settings()), ["shardy"])

    def refuse(*_, **__):
        raise CompilerError("It was refused.")

    monkeypatch.setattr(Inspection, "propagated", refuse)
    verification = program.verify(causes=0)
    (audited,) = verification.programs
    (stage,) = (stage for stage in audited.stages if stage.disagreements)
    assert (stage.stage, stage.disagreements[0].shown) == ("propagated", "It was refused.")
    assert not verification.agrees


def test_xla_that_differs_from_itself_is_told_apart(monkeypatch):
    from sdyscope.analysis.verify import verify

    program = Inspection(mlp.program(MESH, mlp.Settings()), ["shardy"])
    real, times = audit, []

    def other_bytes(*given, **options):
        read = real(*given, **options)
        times.append(1)
        memory = {**read.memory, "temp_size": len(times)}
        return type(read)(
            **{name: getattr(read, name) for name in read.__struct_fields__} | {"memory": memory}
        )

    monkeypatch.setattr(verify, "audit", other_bytes)
    verification = program.verify(causes=0)
    (stage,) = (stage for stage in verification.programs[0].stages if stage.disagreements)
    assert stage.stage == "memory"
    assert all(disagreement.unstable for disagreement in stage.disagreements)
    assert verification.agrees


def test_what_xla_refuses_is_told_with_its_reason():
    program = Inspection(user_programs.USER_PROGRAMS["branches"](MESH), ["gspmd"])
    verification = program.verify()
    assert verification.programs == ()
    assert not verification.agrees
    (failure,) = verification.not_verified
    assert (failure.partitioner, failure.crashed) == ("gspmd", False)
    assert "XLA refuses it" in failure.reason


def test_a_value_without_elements_lies_nowhere():
    """XLA replicates what is empty, whatever is asked of it: no device holds anything."""
    array = jax.ShapeDtypeStruct((8, 16), jnp.float32, sharding=NamedSharding(MESH, P("data")))
    inspection = Inspection(Program("empty", jax.jit(lambda x: jnp.tanh(x)[:, 16:]), (array,)))
    verified = inspection.verify(causes=0).programs[0]
    stage = next(one for one in verified.stages if one.stage == "propagated")
    assert stage.agreed == stage.compared
    assert stage.left_out["empty"] > 0


def propagated_of(jitted, *shapes):
    inspection = Inspection(Program("step", jitted, shapes), ["shardy"])
    (program,) = inspection.verify(causes=0).programs
    (stage,) = (stage for stage in program.stages if stage.stage == "propagated")
    return inspection, stage


def test_what_is_copied_at_one_of_its_calls_is_compared_at_each():
    """XLA rolls with one sharding twice, and copies what the second call gives to the result's."""
    mesh = Mesh.of({"a": 2, "b": 2, "c": 2})
    array = jax.ShapeDtypeStruct((32, 32), jnp.float32, sharding=_on(mesh, ("b", "c"), "a"))
    jitted = jax.jit(
        lambda x: jnp.roll(jnp.roll(x, 1, -1), 1, -1), out_shardings=_on(mesh, ("b", "a"), None)
    )
    inspection, stage = propagated_of(jitted, array)
    values = inspection.propagated("shardy").values.values()
    assert any(len(set(value.calls)) > 1 for value in values)
    assert stage.disagreements == ()
    assert stage.compared > 3


def test_what_is_there_more_often_than_it_is_called_is_left_out(looked_at):
    """As what is computed from constants, once for each use, in a function that is called twice."""
    program, partitioner, read = looked_at
    graph, propagated = program.graph(partitioner), program.propagated(partitioner)
    by_layout = {}
    for node, number in numbers(graph).items():
        value = propagated.values.get((node, 0))
        instances = read.values.get(number, ())
        if value is None or value.node is None or len(graph.ops[node].types) != 1:
            continue
        if len(instances) == 1 and len(graph.ops[node].types[0].shape or ()) == 2:
            layout = instances[0][0]
            by_layout.setdefault(str(read.layouts[layout].blocks), (value, number, layout))
    (value, number, one), (other, _, two), (_, _, three), *_ = by_layout.values()
    calls = value.placed(2), other.placed(2)
    twice = value._replace(calls=calls, counterparts=((1, 0), (2, 0)))
    changed = replace(propagated, values={**propagated.values, value.id: twice})
    right = propagated_stage(graph, propagated, read)

    def stage_of(*layouts):
        there = {**read.values, number: [[layout] for layout in layouts]}
        return propagated_stage(graph, changed, msgspec.structs.replace(read, values=there))

    assert stage_of(one, two).disagreements == ()
    assert stage_of(one, two).compared == right.compared
    left_out = stage_of(one, two, three)
    assert left_out.disagreements == ()
    assert left_out.left_out["several in the dump"] == (
        right.left_out.get("several in the dump", 0) + 1
    )
    # As often as it is called, it is compared.
    assert len(stage_of(one, three).disagreements) == 1
    assert len(stage_of(one, one).disagreements) == 1


def _on(mesh, *spec):
    return NamedSharding(compat.abstract_mesh(mesh), P(*spec))
