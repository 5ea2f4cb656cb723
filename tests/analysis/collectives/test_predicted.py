"""Predicted collectives, against what programs are known to send, and against the compiler."""

from dataclasses import replace
from functools import cache, partial

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.analysis.collectives.comms import predicted_document
from sdyscope.analysis.collectives.predicted import Predictor
from sdyscope.analysis.collectives.read import collectives
from sdyscope.analysis.trials.traffic import reduce_scatters
from sdyscope.errors import CompilerError
from sdyscope.facts.account import Why
from sdyscope.facts.program import Program, Versions
from sdyscope.facts.remarks import Remark
from sdyscope.graph import build
from sdyscope.hlo import read_hlo
from sdyscope.inspection import Inspection
from sdyscope.stages import compat
from sdyscope.stages.compiled.spmd import spmd
from sdyscope.stages.lowered.read import read_bytes
from sdyscope.stages.propagated.annotate import ShardingEdit, annotate
from sdyscope.targets import resolve
from sdyscope.values.mesh import AxisRef, Mesh
from sdyscope.values.sharding import NamedSharding as OwnNamedSharding
from sdyscope.values.sharding import PartitionSpec
from sdyscope.words.remarks import remark_texts
from tests.analysis.collectives.test_read import AXES, BLOCK, KNOWN, names, size_of
from tests.user_programs import USER_PROGRAMS

AUTO = AxisType.Auto


def abstract(**axes):
    return AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=(AUTO,) * len(axes))


def array(mesh, shape, *spec, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))


def constrain(value, mesh, *spec):
    return jax.lax.with_sharding_constraint(value, NamedSharding(mesh, P(*spec)))


def predictor(fun, *arguments):
    inspection = Inspection(Program("f", jax.jit(fun), arguments), ("shardy",))
    return Predictor(inspection.lowered["shardy"], inspection.graph("shardy"))


def predicted(fun, *arguments, on_cpu=False):
    return predictor(fun, *arguments).predict(on_cpu=on_cpu)


def of_text(text):
    lowered = read_bytes(text.encode())
    return Predictor(lowered, build(lowered.module)).predict()


def sent(program_collectives):
    return {
        (tally.kind, tally.axes): tally.tally.sent for tally in program_collectives.by_kind_and_axes
    }


CUBE = abstract(a=2, b=2, c=2)
GRID = abstract(data=4, model=2)


class Imported:
    """One of the small programs of the tests, imported once."""

    def __init__(self, name):
        make = captured if name == "captured" else USER_PROGRAMS[name]
        inspection = Inspection(make(GRID), ("shardy",))
        self.lowered, self.graph = inspection.lowered["shardy"], inspection.graph("shardy")
        self.predictor = Predictor(self.lowered, self.graph)
        self.annotations = [
            annotation
            for annotation in inspection.annotations("shardy")
            if annotation.kind in ("argument", "result")
            and annotation.function == self.graph.main.name
        ]


def captured(mesh):
    """A loop that captures a weight of which nothing is said."""

    @jax.jit
    def fun(x, w):
        return jax.lax.scan(lambda x, _: (jnp.tanh(x @ w), None), x, length=3)[0]

    w = jax.ShapeDtypeStruct((16, 16), jnp.float32)
    return Program("captured", fun, (array(mesh, (16, 16), "data"), w))


of_user_program = cache(Imported)


def to_sharding(spec):
    return OwnNamedSharding(Mesh.of({"data": 4, "model": 2}), PartitionSpec.of(*spec))


# --- programs with known collectives --------------------------------------------------------------


def shard_mapped(body, mesh=CUBE):
    mapped = jax.shard_map(body, mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False)
    return predicted(mapped, array(mesh, (64, 64)))


@pytest.mark.parametrize("axes", AXES, ids="-".join)
@pytest.mark.parametrize("kind", KNOWN)
def test_a_shard_map_is_predicted_as_it_is_written(kind, axes):
    body, bytes_sent = KNOWN[kind]
    (collective,) = shard_mapped(partial(body, axes)).collectives.collectives
    assert (collective.kind, names(collective.axes)) == (kind, tuple(f'"{axis}"' for axis in axes))
    assert collective.group_size == size_of(axes)
    assert (collective.sent, collective.received) == (bytes_sent(size_of(axes)),) * 2
    assert collective.parts[0].source.file.endswith("test_read.py")


def sublayer(x, w1, w2):
    with jax.named_scope("mlp"):
        y = jax.lax.psum(jnp.tanh(x @ w1) @ w2, "model")
    with jax.named_scope("norm"):
        return y * jax.lax.pmean(jnp.mean(y), "data")


def layers(mesh, *, looped):
    """The gradients of a `shard_map`, alone, or in a loop with rematerialization."""
    specs = (P("data", None), P(None, "model"), P("model", None))
    layer = jax.shard_map(sublayer, mesh=mesh, in_specs=specs, out_specs=P("data", None))

    def loss(w1, w2, x):
        with jax.named_scope("block"):
            if not looped:
                return jnp.sum(layer(x, w1, w2))
            step = jax.checkpoint(lambda x, w: layer(x, *w))
            return jnp.sum(jax.lax.scan(lambda x, w: (step(x, w), None), x, (w1, w2))[0])

    more, size = ((None,), (3,)) if looped else ((), ())
    return Program(
        "layers",
        jax.jit(jax.grad(loss, (0, 1))),
        (
            array(mesh, (*size, 16, 32), *more, None, "model"),
            array(mesh, (*size, 32, 16), *more, "model", None),
            array(mesh, (8, 16), "data", None),
        ),
    )


@pytest.mark.compiles
@pytest.mark.parametrize("looped", [False, True])
def test_in_a_shard_map_scopes_and_passes_are_those_of_the_compiled_program(looped):
    if looped and jax.__version_info__ < (0, 8):
        pytest.skip("JAX 0.7 leaves the scope of a loop to XLA, which adds it when it inlines")
    inspection = Inspection(layers(GRID, looped=looped), ("shardy",))
    program_collectives = inspection.predicted_collectives().collectives
    compiled = inspection.collectives(origins=False)

    def scopes(collectives):
        parts = (
            (collective, part)
            for collective in collectives.collectives
            for part in collective.parts
        )
        return sorted((one.kind, part.scope, part.phase, part.sent) for one, part in parts)

    assert scopes(program_collectives) == scopes(compiled)
    assert {
        part.phase for collective in program_collectives.collectives for part in collective.parts
    } == {
        "forward",
        "backward",
    }
    assert all(
        "block" in part.scope
        for collective in program_collectives.collectives
        for part in collective.parts
    )


def test_in_a_scan_in_a_shard_map_a_scope_is_said_once():
    """JAX before 0.12 calls the scan's body; its ops have the call's scope, without the map's."""

    def body(x, ws):
        def layer(x, w):
            with jax.named_scope("layer"):
                return jax.lax.psum(jnp.sin(x) @ w, "a"), None

        with jax.named_scope("layers"):
            return jax.lax.scan(layer, x, ws)[0]

    mapped = jax.shard_map(body, mesh=CUBE, in_specs=(P(), P()), out_specs=P(), check_vma=False)
    found = predicted(mapped, array(CUBE, (8, 8)), array(CUBE, (3, 8, 8))).collectives
    (collective,) = found.collectives
    assert collective.parts[0].scope == "shard_map/layers/while/body/layer"


def ragged(x):
    four = jnp.full((4,), 16, jnp.int32)
    offsets = jnp.arange(4, dtype=jnp.int32) * 16
    return jax.lax.ragged_all_to_all(
        x, jnp.zeros_like(x), offsets, four, offsets, four, axis_name="data"
    )


def ragged_program(mesh):
    mapped = jax.shard_map(
        ragged, mesh=mesh, in_specs=P("data"), out_specs=P("data"), check_vma=False
    )
    return Program("ragged", jax.jit(mapped), (array(mesh, (256, 128), "data"),))


def test_a_ragged_all_to_all_sends_at_most_its_operand():
    inspection = Inspection(ragged_program(GRID), ("shardy",))
    (collective,) = inspection.predicted_collectives().collectives.collectives
    assert (collective.kind, names(collective.axes), collective.group_size) == (
        "ragged-all-to-all",
        ('"data"',),
        4,
    )
    assert (collective.sent, collective.received) == (64 * 128 * 4,) * 2
    assert collective.at_most
    document = predicted_document(inspection)
    assert [unknown.reason for unknown in document.account.unknowns] == [Why.RAGGED]


@pytest.mark.compiles
def test_where_cpus_refuse_a_program_other_ways_are_named():
    inspection = Inspection(ragged_program(GRID), ("shardy",))
    with pytest.raises(CompilerError, match="refuses the program for cpu:8") as caught:
        inspection.compiled()
    assert "--on tpu:" in caught.value.hint
    assert "--predicted" in caught.value.hint


def test_loops_are_multiplied_out():
    def inner(x, _):
        return jnp.sin(jax.lax.psum(x, "a")), None

    def outer(x, _):
        return jax.lax.scan(inner, x, length=3)[0], None

    collectives = shard_mapped(lambda x: jax.lax.scan(outer, x, length=7)[0]).collectives
    (collective,) = collectives.collectives
    assert (collective.count, collective.unknown_trips) == (21, False)
    assert collectives.total.sent == 21 * BLOCK


@pytest.mark.parametrize(("start", "end", "step", "trips"), [(0, 9, 2, 5), (10, 0, -3, 4)])
def test_loops_count_up_and_down(start, end, step, trips):
    def body(x):
        def condition(state):
            return state[0] < end if step > 0 else state[0] > end

        def more(state):
            return state[0] + step, jnp.sin(jax.lax.psum(state[1], "a"))

        return jax.lax.while_loop(condition, more, (start, x))[1]

    (collective,) = shard_mapped(body).collectives.collectives
    assert (collective.count, collective.unknown_trips) == (trips, False)


def test_a_loop_of_unknown_length_says_so():
    def body(x):
        return jax.lax.while_loop(lambda x: x[0, 0] < 1, lambda x: jax.lax.psum(x, "a"), x)

    (collective,) = shard_mapped(body).collectives.collectives
    assert (collective.count, collective.unknown_trips) == (1, True)


def test_a_branch_says_so():
    def body(x):
        return jax.lax.cond(x[0, 0] > 0, lambda x: jax.lax.psum(x, "a"), lambda x: x, x)

    (collective,) = shard_mapped(body).collectives.collectives
    assert (collective.count, collective.conditional) == (1, True)


def test_axes_left_to_the_compiler_cut_the_blocks_of_a_shard_map():
    def body(x):
        return jax.lax.psum(x, "data")

    mapped = jax.shard_map(body, mesh=GRID, in_specs=P("data"), out_specs=P(), axis_names={"data"})
    prediction = predicted(lambda x: mapped(jnp.sin(x)), array(GRID, (16, 8), "data", "model"))
    (collective,) = prediction.collectives.collectives
    assert names(collective.axes) == ('"data"',)
    assert str(collective.parts[0].shape) == "f32[4,4]"


@pytest.mark.parametrize(
    ("before", "after", "kind", "axes", "sent"),
    [
        (("data",), (), "all-gather", ('"data"',), 3 * 128 * 4 // 4),
        ((), ("data",), None, (), 0),
        (("data",), (None, "data"), "all-to-all", ('"data"',), 3 * 32 * 4 // 4),
        ((("data", "model"),), (("model", "data"),), "collective-permute", None, 16 * 4),
        ((("data", "model"),), ("data",), "all-gather", ('"model"',), 16 * 4),
    ],
)
def test_a_resharding_is_what_it_takes(before, after, kind, axes, sent):
    collectives = predicted(
        lambda x: constrain(jnp.sin(x), GRID, *after), array(GRID, (16, 8), *before)
    ).collectives
    assert [collective.kind for collective in collectives.collectives] == ([kind] if kind else [])
    assert collectives.total.sent == sent
    for collective in collectives.collectives:
        assert names(collective.axes) == (axes or ('"data"', '"model"'))


def test_the_same_value_is_gathered_once():
    def fun(x, y):
        return constrain(x, GRID) @ y + jnp.sin(constrain(x, GRID)) @ y

    collectives = predicted(fun, array(GRID, (16, 16), "data"), array(GRID, (16, 16))).collectives
    assert collectives.by_kind["all-gather"].tensors == 1


def test_a_sum_of_reductions_is_one_but_on_cpus():
    def fun(x, y, v, w):
        return x @ v + y @ w

    inputs = [array(GRID, (16, 8), None, "data")] * 2 + [array(GRID, (8, 4), "data")] * 2
    ready = predictor(fun, *inputs)
    assert ready.predict().collectives.total.count == 1
    assert ready.predict(on_cpu=True).collectives.total.count == 2


def test_cpus_reduce_one_dimension_after_the_other_and_send_bf16_as_f32():
    given = array(GRID, (16, 8, 4), "data", "model", dtype=jnp.bfloat16)
    ready = predictor(lambda x: x.sum((0, 1), dtype=jnp.bfloat16), given)
    both, data, model = (
        (AxisRef("data"), AxisRef("model")),
        (AxisRef("data"),),
        (AxisRef("model"),),
    )
    assert set(sent(ready.predict().collectives)) == {("all-reduce", both)}
    collectives = ready.predict(on_cpu=True).collectives
    assert set(sent(collectives)) == {("all-reduce", data), ("all-reduce", model)}
    assert {
        str(part.shape) for collective in collectives.collectives for part in collective.parts
    } == {"f32[4]"}


# --- textbook formulas ----------------------------------------------------------------------------

BATCH, WIDTH, HIDDEN, LAYERS = 16, 32, 64, 3


def train_step(mesh, first, second, batch, rows=BATCH, scale=1):
    def loss(params, x):
        for up, down in params:
            x = constrain(jnp.tanh(x @ up) @ down, mesh, *batch)
        return (x**2).sum()

    def step(params, x):
        gradients = jax.grad(loss)(params, x)
        return jax.tree.map(
            lambda p, g, s: constrain(p - 0.1 * g, mesh, *s),
            params,
            gradients,
            [(P(*first), P(*second))] * LAYERS,
        )

    shapes = ((WIDTH * scale, HIDDEN * scale), (HIDDEN * scale, WIDTH * scale))
    layer = (array(mesh, shapes[0], *first), array(mesh, shapes[1], *second))
    return predicted(step, [layer] * LAYERS, array(mesh, (rows, WIDTH * scale), *batch))


def test_a_megatron_mlp_reduces_activations_once_a_pass_and_layer():
    collectives = train_step(abstract(model=8), (None, "model"), ("model",), ()).collectives
    assert collectives.predicted
    assert set(collectives.by_kind) == {"all-reduce"}
    assert collectives.total.sent == (2 * LAYERS - 1) * 2 * 7 * (BATCH * WIDTH * 4) // 8
    assert collectives.by_phase["forward"].tensors == LAYERS
    assert collectives.by_phase["backward"].tensors == LAYERS - 1


@pytest.mark.parametrize(("devices", "scale"), [(8, 1), (32_768, 2_048)])
def test_fsdp_gathers_weights_and_scatters_gradients(devices, scale):
    # With fewer rows it is cheaper to move the activations, as Shardy would, and XLA would not.
    rows = 8 * HIDDEN * scale
    program = train_step(abstract(fsdp=devices), ("fsdp",), (None, "fsdp"), ("fsdp",), rows, scale)
    weights = 2 * LAYERS * WIDTH * HIDDEN * scale**2 * 4
    share = (devices - 1) * weights // devices
    assert {kind: tally.sent for kind, tally in program.collectives.by_kind.items()} == {
        "all-gather": share,
        "reduce-scatter": share,
    }
    assert program.collectives.devices == devices
    assert program.argument_bytes == (weights + rows * WIDTH * scale * 4) // devices
    assert program.result_bytes == weights // devices


def moved(prediction, kind="products moved"):
    """Of each remark on products that XLA computes otherwise: how many, and bytes."""
    notes = prediction.collectives.notes
    return [(note.count, note.of) for note in notes if note.kind == kind]


def test_products_with_fewer_rows_than_weights_are_those_that_xla_computes_otherwise():
    mesh, share = abstract(fsdp=8), 7 * WIDTH * HIDDEN * 4 // 8
    few, many = (
        train_step(mesh, ("fsdp",), (None, "fsdp"), ("fsdp",), rows) for rows in (8, 8 * HIDDEN)
    )
    assert moved(many) == []
    ((count, size),) = moved(few)
    assert (size, count > LAYERS) == (count * share, True)
    texts = remark_texts(few.collectives.notes)
    assert texts[-2].startswith(f"In {count} products, Shardy moves one operand and the result")
    # The gradients of the last layer, whose examples are moved as they are.
    assert moved(many, "products summed") == []
    assert moved(few, "products summed") == [(2, 2 * share)]
    assert texts[-1].startswith("In 2 products, Shardy moves both operands")
    # Over the axes of tensor parallelism nothing is moved there and back.
    for first, second, batch in (((None, "model"), ("model",), ()), ((), (), ("model",))):
        assert moved(train_step(abstract(model=8), first, second, batch, 8)) == []


@pytest.mark.parametrize(
    ("subscripts", "left", "right", "result", "expected"),
    [
        ("ij,jk->ik", "d,.", ".,d", "d,.", 1),
        ("ij,jk->ik", "d,.", ".,d", ".,.", 0),  # which XLA gathers as well
        ("ij,jk->ik", ".,d", "d,.", ".,.", 0),
        ("bij,bjk->bik", "d,.,.", ".,.,d", "d,.,.", 0),  # a batch that the other has, too
        ("bij,bjk->bik", ".,d,.", ".,.,d", ".,d,.", 1),
        ("ij,jk->ik", "d,.", ".,d", ".,d", 0),
    ],
)
def test_a_product_is_moved_where_its_result_is_where_the_operand_was(
    subscripts, left, right, result, expected
):
    mesh = abstract(data=8)
    sizes = {"b": 16, "i": 16, "j": 256, "k": 512}

    def spec(dims):
        return ["data" if dim == "d" else None for dim in dims.split(",")]

    def given(letters, dims):
        return array(mesh, tuple(sizes[letter] for letter in letters), *spec(dims))

    taken, _, gives = subscripts.partition("->")
    inputs = [given(*each) for each in zip(taken.split(","), (left, right), strict=True)]
    out = given(gives, result).sharding
    step = jax.jit(lambda x, y: jnp.einsum(subscripts, x, y), out_shardings=out)
    prediction = Inspection(Program("step", step, tuple(inputs)), ("shardy",))
    assert len(moved(prediction.predicted_collectives())) == expected


def test_of_a_moved_product_the_operand_is_gathered_before_it_is_cut():
    mesh = abstract(data=4, model=2)
    inputs = array(mesh, (16, 32), "data"), array(mesh, (32, 256), "data")
    out = array(mesh, (16, 256), "data", "model").sharding
    step = jax.jit(jnp.dot, out_shardings=out)
    prediction = Inspection(Program("step", step, inputs), ("shardy",)).predicted_collectives()
    assert moved(prediction) == [(1, 3 * 32 * 256 * 4 // 4)]


@pytest.mark.parametrize(
    ("left", "right", "result", "rows", "expected"),
    [
        # What XLA sums was compared with its compiled programs: a sum, and each device's part.
        (["data"], ["data", "model"], ["data", "model"], 64, [(1, 3 * 256 * 512 * 4 // 8)]),
        (["data"], ["data"], ["model", "data"], 64, [(1, 3 * 256 * 512 * 4 // 8)]),
        (["model", "data"], ["model"], ["data", "model"], 64, [(1, 256 * 512 * 4 // 8)]),
        (["data"], ["data", "model"], ["data", "model"], 4096, []),  # summed by Shardy as well
        (["data"], [None, "model"], ["data", "model"], 64, []),
        (["data"], ["data"], [], 8, []),
    ],
)
def test_of_a_product_that_is_summed_shardy_may_move_the_operands(
    left, right, result, rows, expected
):
    mesh = abstract(data=4, model=2)
    inputs = array(mesh, (rows, 256), *left), array(mesh, (rows, 512), *right)
    out = array(mesh, (256, 512), *result).sharding
    step = jax.jit(lambda x, y: jnp.einsum("td,tf->df", x, y), out_shardings=out)
    prediction = Inspection(Program("step", step, inputs), ("shardy",)).predicted_collectives()
    assert moved(prediction, "products summed") == expected


def test_what_another_jax_lowered_its_own_shardy_may_move_otherwise():
    mesh = abstract(fsdp=8)
    inputs = array(mesh, (8, 64), "fsdp"), array(mesh, (64, 64), "fsdp")
    inspection = Inspection(Program("step", jax.jit(jnp.dot), inputs), ("shardy",))
    assert "it, and JAX" not in str(
        remark_texts(inspection.predicted_collectives().collectives.notes)
    )
    lowered = inspection.lowered["shardy"]
    inspection.lowered["shardy"] = replace(lowered, recorded_by=Versions("0.1.0", "0.1.0"))
    notes = remark_texts(inspection.predicted_collectives().collectives.notes)
    assert notes[0].startswith("JAX 0.1.0 lowered it, and JAX ")


# --- against the compiler -------------------------------------------------------------------------


@pytest.mark.compiles
@pytest.mark.parametrize("times", [1, 5])
def test_xla_gathers_what_shardy_leaves(times):
    mesh = abstract(fsdp=8)

    def step(w, x):
        body = lambda x, _: (constrain(jnp.tanh(x @ w), mesh, "fsdp"), None)  # noqa: E731
        return jax.lax.scan(body, x, None, length=times)[0]

    inputs = array(mesh, (64, 64), "fsdp"), array(mesh, (8, 64), "fsdp")
    inspection = Inspection(Program("step", jax.jit(step), inputs), ("shardy",))
    prediction = inspection.predicted_collectives()
    assert "all-gather" not in prediction.collectives.by_kind
    assert moved(prediction) == [(times, times * 7 * 64 * 64 * 4 // 8)]
    compiled = inspection.collectives(origins=False)
    assert set(compiled.by_kind) == {"all-gather"}
    # Compiled, it gathers a weight once that no trip of the loop changes.
    assert compiled.total.sent in (7 * 64 * 64 * 4 // 8, times * 7 * 64 * 64 * 4 // 8)


#: Meshes with the specs of two weights and of the batch: FSDP, with tensor parallelism, hybrid.
FSDP = {
    "fsdp": (abstract(fsdp=8), ("fsdp",), (None, "fsdp"), ("fsdp",)),
    "tensor": (abstract(fsdp=4, model=2), ("fsdp", "model"), ("model", "fsdp"), ("fsdp",)),
    "hybrid": (abstract(data=2, fsdp=4), ("fsdp",), (None, "fsdp"), (("data", "fsdp"),)),
}


def fsdp_step(layout, *, looped):
    """One step of SGD on weights that are sharded over axes that the batch is on."""
    mesh, first, second, batch = FSDP[layout]
    more, size = ((None,), (LAYERS,)) if looped else ((), ())

    def layer(x, weights):
        return constrain(jnp.tanh(x @ weights[0]) @ weights[1], mesh, *batch), None

    def loss(weights, x):
        x = jax.lax.scan(layer, x, weights)[0] if looped else layer(x, weights)[0]
        return (x**2).sum()

    def step(weights, x):
        gradients = jax.grad(loss)(weights, x)
        return jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients)

    weights = (
        array(mesh, (*size, WIDTH, HIDDEN), *more, *first),
        array(mesh, (*size, HIDDEN, WIDTH), *more, *second),
    )
    inputs = weights, array(mesh, (8 * HIDDEN, WIDTH), *batch)
    shardings = [weight.sharding for weight in weights]
    jitted = jax.jit(step, out_shardings=tuple(shardings))
    return Inspection(Program("step", jitted, inputs), ("shardy",))


def reductions(program_collectives, counted=True):
    """What is summed over devices, without scalars: kind, axes, shape, times."""
    return sorted(
        (
            collective.kind,
            names(collective.axes),
            str(part.shape),
            collective.count if counted else 0,
        )
        for collective in program_collectives.collectives
        for part in collective.parts
        if collective.kind in ("all-reduce", "reduce-scatter") and part.shape.dimensions
    )


@pytest.mark.compiles
@pytest.mark.parametrize("looped", [False, True])
@pytest.mark.parametrize("layout", FSDP)
def test_gradients_are_scattered_or_summed_whole_as_xla_partitions_them(layout, looped):
    inspection = fsdp_step(layout, looped=looped)
    module = read_hlo(spmd(inspection.lowered["shardy"], inspection.graph("shardy")).hlo)
    partitioned = reduce_scatters(collectives(module, inspection.meshes.values()), module)
    found = reductions(inspection.predicted_collectives().collectives)
    # XLA of JAX 0.12 says how often a loop runs when it has partitioned it, and not yet here.
    counted = not any(collective.unknown_trips for collective in partitioned.collectives)
    assert counted or looped
    if not counted:
        found = reductions(inspection.predicted_collectives().collectives, counted)
    assert found == reductions(partitioned, counted)
    scattered = {axes for kind, axes, _, _ in found if kind == "reduce-scatter"}
    assert scattered == {('"fsdp"',)}
    # Over the axes of the batch that no weight is on, each device's slice is summed.
    assert (("all-reduce", ('"data"',)) in {one[:2] for one in found}) == (layout == "hybrid")


@pytest.mark.compiles
def test_hybrid_gradients_on_cpus_are_two_all_reduces():
    inspection = fsdp_step("hybrid", looped=False)
    collectives = inspection.predicted_collectives(on_cpu=True).collectives
    assert sent(collectives) == sent(inspection.collectives(origins=False))
    assert "reduce-scatter" not in collectives.by_kind


@pytest.mark.compiles
def test_mlp_is_predicted_as_it_is_compiled():
    inspection = Inspection(resolve("mlp"), ("shardy",))
    prediction = inspection.predicted_collectives(on_cpu=True)
    program = inspection.compiled("shardy")
    compiled = collectives(read_hlo(program.hlo), inspection.graph("shardy").meshes.values())
    assert sent(prediction.collectives) == sent(compiled)
    assert prediction.argument_bytes == program.memory.arguments
    scopes = {scope: tally.sent for scope, tally in compiled.by_scope.items()}
    assert {scope: tally.sent for scope, tally in prediction.collectives.by_scope.items()} == scopes
    if (0, 8, 2) <= compat.version_tuple() < (0, 9):
        return  # Frames are others there.
    lines = {part.source.line for collective in compiled.collectives for part in collective.parts}
    assert {
        part.source.line
        for collective in prediction.collectives.collectives
        for part in collective.parts
    } == lines


def product(x, first, second):
    return jnp.tanh(x @ first) @ second


@st.composite
def matmuls_without_conflict(draw):
    """Axes of the batch, the two contracted dimensions and the result's features."""
    placed = draw(st.tuples(*[st.integers(0, 4)] * 3))
    factors = [[], [], [], [], []]
    for axis, factor in zip("abc", placed, strict=True):
        factors[factor].append(axis)
    return [tuple(axes) for axes in factors[:4]]


@pytest.mark.compiles
@settings(max_examples=20)
@given(matmuls_without_conflict())
def test_matmuls_that_fit_together_are_predicted_as_they_are_compiled(factors):
    rows, inner, hidden, features = factors
    mesh = jax.make_mesh((2, 2, 2), ("a", "b", "c"), axis_types=(AUTO,) * 3)
    arguments = [
        array(mesh, (16, 32), rows, inner),
        array(mesh, (32, 64), inner, hidden),
        array(mesh, (64, 16), hidden, features),
    ]
    jitted = jax.jit(product, out_shardings=NamedSharding(mesh, P(rows, features)))
    inspection = Inspection(Program("f", jitted, tuple(arguments)), ("shardy",))
    program_collectives = inspection.predicted_collectives(on_cpu=True).collectives
    text = jitted.lower(*arguments).compile().as_text()
    compiled = collectives(read_hlo(text), [Mesh.of({"a": 2, "b": 2, "c": 2})])
    assert sent(program_collectives) == sent(compiled)


# --- other annotations, what is not known, refusals -----------------------------------------------


SPECS = st.sampled_from(
    [P(), P("data"), P(None, "data"), P("model"), P("model", "data"), P(("data", "model"))]
)


@settings(max_examples=25)
@given(st.sampled_from(["two_layers", "gradients", "scanned", "captured"]), st.data())
def test_other_shardings_of_arguments_need_no_new_import(name, data):
    """What is written into the imported module is what is imported of the changed one."""
    found = of_user_program(name)
    chosen = data.draw(
        st.lists(
            st.sampled_from(found.annotations),
            max_size=3,
            unique_by=lambda annotation: annotation.path,
        )
    )
    changes = [
        ShardingEdit(one, to_sharding(data.draw(SPECS)))
        for one in chosen
        if len(one.shape or ()) > 1
    ]
    changed = annotate(found.lowered, found.graph, changes)
    expected = Predictor(changed, found.graph).predict()
    assert found.predictor.predict(changes) == expected


CUSTOM_CALL = """module @m {
  sdy.mesh @mesh = <["a"=4]>
  func.func public @main(%x: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}]>})
      -> tensor<8xf32> {
    %0 = stablehlo.custom_call @unknown(%x) : (tensor<8xf32>) -> tensor<8xf32>
    return %0 : tensor<8xf32>
  }
}"""


def test_what_no_rule_is_known_for_is_listed():
    read = of_text(CUSTOM_CALL)
    assert not read.collectives.collectives
    (note,) = (note for note in read.collectives.notes if note.kind == "no rule")
    assert note.names == (("custom_call unknown", 1),)


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (lambda x: x[:, -1], ["stablehlo.slice"]),
        (lambda x: jnp.roll(x, 1, axis=1), ["stablehlo.concatenate", "stablehlo.slice"]),
        (lambda x: jnp.cumsum(x, axis=1), ["stablehlo.reduce_window"]),
        (lambda x: x[:, ::-1], ["stablehlo.reverse"]),
        # XLA gathers what it does not partition, along whatever dimension.
        (lambda x: jnp.fft.fft(x, axis=0), ["stablehlo.fft"]),
        (lambda x: jax.lax.top_k(x.T, 2)[0], ["mhlo.topk"]),
        # Into a cache that is sharded over its positions: several, or only one.
        (
            lambda x: jax.lax.dynamic_update_slice(x, jnp.ones((8, 2)), (0, 3)),
            ["stablehlo.dynamic_update_slice"],
        ),
        (lambda x: jax.lax.dynamic_update_slice(x, jnp.ones((8, 1)), (0, 3)), []),
        (lambda x: x.at[3].set(jnp.ones(64)), []),
        # Along a dimension that is not sharded.
        (lambda x: jnp.roll(x, 1, axis=0), []),
        (lambda x: jnp.pad(x, ((1, 1), (0, 0)))[1:], []),
    ],
)
def test_what_crosses_from_block_to_block_is_not_predicted_and_named(body, names):
    """XLA sends halos, shifts and, for a cumulative sum, all of it; Shardy leaves that to it."""
    mesh = abstract(a=4)
    x = jax.ShapeDtypeStruct((8, 64), jnp.float32, sharding=NamedSharding(mesh, P(None, "a")))
    read = of_text(jax.jit(body).trace(x).lower(lowering_platforms=("cpu",)).as_text())
    named = [note.names for note in read.collectives.notes if note.kind == "between blocks"]
    assert [name for each in named for name, _ in each] == names
    assert read.collectives.is_partly_predicted == bool(names)


def test_what_is_written_into_a_tensor_that_is_only_now_cut_is_not_predicted_and_named():
    """XLA gathers the rows, writes them into all of it, and cuts that."""
    mesh = abstract(a=4)

    def written(whole, row):
        return whole.at[3].set(row)

    read = predicted(written, array(mesh, (8, 64)), array(mesh, (64,), "a")).collectives
    assert not read.collectives
    assert read.is_partly_predicted


@pytest.mark.parametrize("devices", [8, 128])
def test_a_permutation_that_leaves_devices_out_is_known_among_many(devices):
    """Of so many devices the pairs are not written out."""

    def read(pairs):
        mesh = abstract(a=devices)
        handed_on = jax.shard_map(
            lambda x: jax.lax.ppermute(x, "a", pairs), mesh=mesh, in_specs=P("a"), out_specs=P("a")
        )
        return predicted(handed_on, array(mesh, (devices, 8), "a")).collectives

    line = [(at, at + 1) for at in range(devices - 1)]
    assert read(line).some_idle
    assert not read([*line, (devices - 1, 0)]).some_idle


RULED_CALL = """module @m {
  sdy.mesh @mesh = <["a"=4]>
  func.func public @main(%x: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{SHARDING}]>})
      -> tensor<8x8xf32> {
    %0 = stablehlo.custom_call @TARGET(%x) {
      sdy.sharding_rule = #sdy.op_sharding_rule<([i, j])->([i, k]) {i=8, j=8, k=8}, custom>}
      : (tensor<8x8xf32>) -> tensor<8x8xf32>
    return %0 : tensor<8x8xf32>
  }
}"""


@pytest.mark.parametrize(
    ("target", "sharding", "note"),
    [
        ("lapack_sgeqrf_ffi", '{}, {"a"}', ("between blocks", "custom_call lapack_sgeqrf_ffi")),
        ("lapack_sgeqrf_ffi", '{"a"}, {}', None),
        # What it does on each device is a function of its author's.
        ("CustomSPMDPartitioning", '{"a"}, {}', ("unknown calls", "CustomSPMDPartitioning")),
        ("CustomSPMDPartitioning", "{}, {}", None),
        ("put_signal", '{"a"}, {}', ("unknown calls", "put_signal")),
    ],
)
def test_what_custom_calls_with_a_rule_may_send_is_named(target, sharding, note):
    text = RULED_CALL.replace("TARGET", target).replace("{SHARDING}", sharding)
    read = of_text(text)
    notes = [(note.kind, *(name for name, _ in note.names)) for note in read.collectives.notes]
    assert notes == ([] if note is None else [note])
    assert not read.collectives.collectives


def test_custom_calls_in_a_shard_map_that_may_send_are_named():
    def body(x):
        x = jax.ffi.ffi_call("lapack_sgeqrf_ffi", jax.ShapeDtypeStruct(x.shape, x.dtype))(x)
        return jax.ffi.ffi_call("put_signal", jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

    collectives = shard_mapped(body).collectives
    assert not collectives.collectives
    assert collectives.notes == (Remark("unknown calls", names=(("put_signal", 1),)),)


def test_gspmd_s_shardings_predict_nothing():
    text = """module @m {
      func.func public @main(%x: tensor<8xf32> {mhlo.sharding = "{devices=[4]<=[4]}"})
          -> tensor<8xf32> {
        return %x : tensor<8xf32>
      }
    }"""
    with pytest.raises(CompilerError, match="GSPMD's shardings"):
        of_text(text)


@pytest.mark.skipif(compat.version_tuple() < (0, 12), reason="StableHLO has no such groups yet")
def test_groups_may_be_written_as_axes_of_a_mesh():
    read = of_text(
        """module @m {
          sdy.mesh @mesh = <["a"=4, "b"=2]>
          func.func public @main(%x: tensor<8xf32>) -> tensor<8xf32> {
            %0 = "stablehlo.all_reduce"(%x) <{
              channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
              replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [
                #stablehlo.axis_ref<name = "a", sub_axis_info = (2)2>,
                #stablehlo.axis_ref<name = "b">]>, use_global_device_ids}> ({
              ^bb0(%p: tensor<f32>, %q: tensor<f32>):
                %s = stablehlo.add %p, %q : tensor<f32>
                stablehlo.return %s : tensor<f32>
            }) : (tensor<8xf32>) -> tensor<8xf32>
            return %0 : tensor<8xf32>
          }
        }"""
    )
    (collective,) = read.collectives.collectives
    assert (names(collective.axes), collective.group_size) == (('"a":(2)2', '"b"'), 4)


GROUPS = '"replica_groups": [[0, 1], [2, 3], [4, 5], [6, 7]], "use_global_device_ids": true'
STARTED = {
    "all-gather": (GROUPS, 64, 32 * 4),
    "all-reduce": (GROUPS, 32, 2 * 16 * 4),
    "reduce-scatter": (GROUPS, 16, 16 * 4),
    "all-to-all": (GROUPS, 32, 16 * 4),
    "collective-permute": ('"permutation": [[0, 1], [1, 0], [2, 3], [3, 2]]', 32, 32 * 4),
}


def started(kind, config, dims):
    """A `shard_map` with an asynchronous collective over an axis of two, as JAX 0.12 writes it."""
    config = config.replace('"', "\\22")
    return f"""module @m attributes {{mhlo.num_partitions = 8 : i32}} {{
      sdy.mesh @mesh = <["a"=4, "b"=2]>
      func.func public @main(%x: tensor<64xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"b"}}]>}})
          -> tensor<{2 * dims}xf32> {{
        %0 = sdy.manual_computation(%x) in_shardings=[<@mesh, [{{"b"}}]>]
            out_shardings=[<@mesh, [{{"b"}}]>] manual_axes={{"a", "b"}} (%y: tensor<32xf32>) {{
          %1 = stablehlo.custom_call @"{kind}-start"(%y) {{backend_config = "",
              mhlo.frontend_attributes = {{async_collective_config = "{{{config}}}"}}}}
              : (tensor<32xf32>) -> tensor<{dims}xf32>
          %2 = stablehlo.custom_call @"{kind}-done"(%1) {{backend_config = ""}}
              : (tensor<{dims}xf32>) -> tensor<{dims}xf32>
          sdy.return %2 : tensor<{dims}xf32>
        }} : (tensor<64xf32>) -> tensor<{2 * dims}xf32>
        return %0 : tensor<{2 * dims}xf32>
      }}
    }}"""


@pytest.mark.parametrize("kind", STARTED)
def test_a_collective_that_the_program_starts_counts_as_what_it_is(kind):
    config, made, bytes_sent = STARTED[kind]
    collectives = of_text(started(kind, config, made)).collectives
    (collective,) = collectives.collectives
    assert (collective.kind, names(collective.axes), collective.group_size) == (kind, ('"b"',), 2)
    assert (collective.sent, collective.received) == (bytes_sent,) * 2
    assert collective.asynchronous
    assert collectives.notes == ()


@pytest.mark.parametrize("config", ["", '"replica_groups": 3', '"permutation": [["a"]]'])
def test_what_a_started_collective_does_not_say_is_not_counted(config):
    collectives = of_text(started("all-to-all", config, 32)).collectives
    assert collectives.collectives == ()
    assert collectives.not_understood_count == 1


@pytest.mark.skipif(compat.version_tuple() < (0, 12), reason="JAX has no psum_scatter_start yet")
@pytest.mark.parametrize("manual", [("a", "b", "c"), ("a",)])
def test_what_jax_starts_is_predicted_as_it_is_compiled(manual):
    def body(x):
        return jax.lax.psum_scatter_start(x, "a", tiled=True).done()

    mapped = jax.shard_map(
        body, mesh=CUBE, in_specs=P(), out_specs=P("a"), axis_names=set(manual), check_vma=False
    )
    program = Program("f", jax.jit(mapped), (array(CUBE, (64, 64), None, "b"),))
    inspection = Inspection(program, ("shardy",))
    collectives = inspection.predicted_collectives().collectives
    (one,) = (
        collective for collective in collectives.collectives if collective.kind == "reduce-scatter"
    )
    (made,) = (
        collective
        for collective in inspection.collectives().collectives
        if collective.kind == "reduce-scatter"
    )
    assert (one.axes, one.sent) == (made.axes, made.sent)
    (part,) = made.parts
    assert part.origin.kind == "program"
    assert any("reduce-scatter-start (1)" in note for note in remark_texts(collectives.notes)) == (
        len(manual) == 1
    )
