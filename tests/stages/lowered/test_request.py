"""What is requested is what JAX lowers: names, order, source lines, under both partitioners."""

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from jax._src import core
from jax._src.sharding_impls import GSPMDSharding
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from programs import AUTO, EXPLICIT, PROGRAMS, array, constrain, on

from sdyscope.annotations import read_annotations
from sdyscope.facts.program import Program
from sdyscope.graph import build, written_scope
from sdyscope.inspection import Inspection
from sdyscope.stages import compat
from sdyscope.stages.lowered.lower import NotLowerable, lower, trace
from sdyscope.stages.lowered.request import argument_axes, from_jax_sharding, requested
from sdyscope.targets import resolve
from sdyscope.values.mesh import Mesh
from sdyscope.values.sharding import UNCONSTRAINED, PartitionSpec
from sdyscope.words.remarks import remark_text

#: What this JAX refuses, whoever asks.
REFUSED = {
    (0, 7): {"shard_map_over_one_axis", "explicit"},
}.get(compat.version_tuple()[:2], set())


def traced(name):
    fun, args = PROGRAMS[name]
    return trace(Program(name, fun, args))


def asm(attribute):
    return str(attribute).strip('"')


def constraints(module):
    """(kind, scope, file and line) of what is in a module, each function where first called.

    The scope is only known from the beginning of the function on.
    """
    functions = {
        asm(op.operation.attributes["sym_name"]): op.operation
        for op in module.body.operations
        if op.operation.name == "func.func"
    }
    seen = {"main"}

    def place(op):
        text = str(op.location)
        name = re.match(r'loc\("([^"]*)"[()]', text)  # around lines, or alone
        line = re.search(r'"(/[^"]*)":(\d+)', text)
        scope, _, last = (name[1] if name else "").rpartition("/")
        return scope, last, line and (line[1], int(line[2]))

    def visit(op):
        scope, last, line = place(op)
        kind = op.name
        if kind == "stablehlo.custom_call":
            kind = asm(op.attributes["call_target_name"])
        if kind in ("sdy.sharding_constraint", "Sharding"):
            if last in ("sharding_constraint", "reshard"):
                yield "constraint", scope, line
            elif last in ("", "jit:"):
                yield "jit", None, None
        elif kind == "sdy.manual_computation":
            yield "shard_map", scope, line
        elif kind in ("SPMDFullToShardShape", "SPMDShardToFullShape"):
            yield kind, scope, line
        elif kind == "func.call":
            callee = compat.ir.FlatSymbolRefAttr(op.attributes["callee"]).value
            if callee not in seen:
                seen.add(callee)
                yield from within(functions[callee])
        yield from within(op)

    def within(op):
        for region in op.regions:
            for block in region:
                for inner in block:
                    yield from visit(inner.operation)

    return list(within(functions["main"]))


def expected(tensors, partitioner):
    """The same list, of what was requested. GSPMD has an op for each input and output."""
    found, by_ordinal = [], {}
    for tensor in tensors:
        if tensor.ordinal >= 0:
            by_ordinal.setdefault(tensor.ordinal, []).append(tensor)
    for group in by_ordinal.values():
        first = group[0]
        # JAX knows no line of what custom_vjp's rule does in a function that is called twice.
        line = first.source and (first.source.file, first.source.line)
        if first.kind == "constraint":
            nested_jit = any(note.kind in ("jit input", "jit output") for note in first.notes)
            found.append(("jit", None, None) if nested_jit else ("constraint", first.path, line))
        elif partitioner == "shardy":
            found.append(("shard_map", first.path, line))
        else:
            kinds = {
                "shard_map input": "SPMDFullToShardShape",
                "shard_map output": "SPMDShardToFullShape",
            }
            found += [(kinds[tensor.kind], tensor.path, line) for tensor in group]
    return found


def without_outputs(items):
    """Under GSPMD an output comes after the body; the inputs keep the order."""
    return [item for item in items if item[0] != "SPMDShardToFullShape"]


def assert_same_order(stage, partitioner, of_results=0):
    """The requested constraints are the module's: as many, in order, from the same lines.

    But for the last, of what is returned, which JAX before 0.10 writes where types leave it open.
    """
    module = lower(stage, partitioner).module
    asked = [t for t in requested(stage) if t.kind not in ("argument", "result")]
    lowered, wanted = constraints(module), expected(asked, partitioner)
    outputs = [sum(item[0] == "SPMDShardToFullShape" for item in x) for x in (lowered, wanted)]
    assert outputs[0] == outputs[1]
    lowered, wanted = without_outputs(lowered), without_outputs(wanted)
    assert lowered[len(lowered) - of_results :] == [("jit", None, None)] * of_results
    lowered = lowered[: len(lowered) - of_results]
    assert [item[0] for item in lowered] == [item[0] for item in wanted]
    for (_, scope, line), (_, full_scope, asked_line) in zip(lowered, wanted, strict=True):
        if scope is not None:
            written = written_scope(f"{scope}/").removesuffix("/")
            assert f"/{full_scope}".endswith(f"/{written}" if written else "")
        if compat.version_tuple() >= (0, 9):  # before, the line of the loop or the call
            # A custom_vjp in a branch that is differentiated has no line in the jaxpr.
            assert line == asked_line or None in (line, asked_line)
    return len(wanted)


@pytest.mark.parametrize("partitioner", ["shardy", "gspmd"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_constraints_are_those_of_the_module_in_order(name, partitioner):
    if name in REFUSED:
        with pytest.raises(NotLowerable):
            lower(traced(name), partitioner)
    else:
        assert_same_order(traced(name), partitioner)


@pytest.mark.parametrize("partitioner", ["shardy", "gspmd"])
@pytest.mark.parametrize(
    ("word", "settings"),
    [
        ("mlp", {"layers": 3}),
        ("fsdp-transformer", {}),
        ("fsdp-transformer", {"scan": True, "remat": True}),
        ("fsdp-transformer", {"remat": True, "donate": True, "optimizer": "sgd"}),
    ],
)
def test_constraints_of_the_reference_models(word, settings, partitioner):
    stage = trace(resolve(word, settings=settings))
    assert assert_same_order(stage, partitioner) > 5
    module = lower(stage, partitioner)
    names, results = main_arguments(module)
    tensors = requested(stage)
    assert names == [t.path for t in tensors if t.kind == "argument" and not t.dropped]
    assert results == [t.path for t in tensors if t.kind == "result"]


@pytest.mark.parametrize(
    ("name", "constraint_count", "shard_map_count"),
    [
        ("dead_code", 0, 0),
        ("kept_dead_code", 1, 0),
        ("jit_twice", 1, 0),
        ("jit_with_shardings", 2, 0),
        ("while_loop_batched", 3, 0),
        ("linear_solve", 1, 0),
        ("shard_map", 1, 1),
        ("shard_map_grad", 0, 4),
        ("shard_map_over_nothing", 1, 0),
    ],
)
def test_counts(name, constraint_count, shard_map_count):
    tensors = [t for t in requested(traced(name)) if t.ordinal >= 0]
    constraint_ordinals = {t.ordinal for t in tensors if t.kind == "constraint"}
    ordinals = {t.ordinal for t in tensors}
    assert len(constraint_ordinals) == constraint_count
    assert len(ordinals - constraint_ordinals) == shard_map_count
    assert ordinals == set(range(len(ordinals)))


def of_kind(name, kind):
    return [tensor for tensor in requested(traced(name)) if tensor.kind == kind]


def test_specs_of_constraints():
    first, second = of_kind("straight", "constraint")
    assert first.sharding.mesh == Mesh.of({"data": 4, "model": 2})
    assert first.sharding.spec == PartitionSpec.of("data", "model")
    assert second.sharding.spec == PartitionSpec.of("data", UNCONSTRAINED)
    assert (first.shape, first.dtype) == ((16, 32), "f32")
    assert first.source.function == "straight"


def test_vmap_adds_a_free_dimension():
    (tensor,) = of_kind("vmap", "constraint")
    assert tensor.sharding.spec == PartitionSpec.of(UNCONSTRAINED, "model")
    (tensor,) = of_kind("vmap_over_axis", "constraint")
    assert tensor.sharding.spec == PartitionSpec.of("data", "model")


def test_shard_map_boundary():
    inputs = of_kind("shard_map", "shard_map input")
    (output,) = of_kind("shard_map", "shard_map output")
    assert [str(tensor.sharding.spec) for tensor in inputs] == ["P('data')", "P(None, 'model')"]
    assert [tensor.index for tensor in inputs] == [0, 1]
    assert {tensor.ordinal for tensor in (*inputs, output)} == {0}
    assert output.manual_axes == ("data", "model")
    assert {tensor.mapped for tensor in (*inputs, output)} == {""}  # a lambda
    assert output.shape == (4, 32)  # global: the sum over `data` leaves one block of it


@jax.custom_vjp
def attend(x):
    return jnp.tanh(x)


# What JAX traces in place of `attend` has frames of these two, and not of what is mapped.
attend.defvjp(lambda x: (jnp.tanh(x), x), lambda x, g: (g * x,))


def test_a_shard_map_has_the_name_of_what_it_maps():
    mesh = AbstractMesh((8,), ("data",), axis_types=(AxisType.Auto,))
    mapped = partial(jax.shard_map, mesh=mesh, in_specs=P("data"), out_specs=P("data"))

    def layer(scale, x):
        return attend(x) * scale

    def loss(x):
        for body in (attend, partial(layer, 2.0), jax.jit(attend), lambda x: attend(x)):
            x = mapped(body)(x)
        return x.sum()

    x = jax.ShapeDtypeStruct((16,), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    tensors = [
        tensor for tensor in requested(jax.jit(jax.grad(loss)).trace(x)) if tensor.ordinal >= 0
    ]
    by_ordinal = {tensor.ordinal: tensor.mapped for tensor in tensors}
    forward = ["attend", "layer", "attend"]  # Of the last one nothing is needed but its gradient.
    assert list(by_ordinal.values()) == [*forward, "", *reversed(forward)]


def test_shard_map_that_jax_does_not_write():
    (output,) = of_kind("shard_map_over_nothing", "shard_map output")
    assert output.ordinal == -1
    assert output.notes[0].kind == "no boundary"


def test_explicit_axes():
    (constraint,) = of_kind("explicit", "constraint")
    assert constraint.sharding.spec == PartitionSpec.of(None, "model")
    (result,) = of_kind("explicit", "result")
    assert (result.sharding, result.notes) == (None, ())
    assert result.returned.spec == PartitionSpec.of(None, "model")


def test_a_result_of_some_explicit_axes_says_its_type():
    kinds = (AxisType.Explicit, AxisType.Auto)
    mesh = AbstractMesh((4, 2), ("data", "model"), axis_types=kinds)
    stage = jax.jit(lambda x: x * 2).trace(array((16, 32), "data", mesh=mesh))
    (result,) = [t for t in requested(stage) if t.kind == "result"]
    assert result.returned is None
    assert remark_text(result.notes[0]).startswith("By its type, on Explicit axes, it is P")


def test_reshard_on_some_explicit_axes_is_no_partition_spec():
    kinds = (AxisType.Explicit, AxisType.Auto)
    mesh = AbstractMesh((4, 2), ("data", "model"), axis_types=kinds)
    jitted = jax.jit(lambda x: jax.sharding.reshard(x * 2, on(None, "data", mesh=mesh)))
    stage = jitted.trace(array((16, 32), "data", mesh=mesh))
    (constraint,) = [t for t in requested(stage) if t.kind == "constraint"]
    assert constraint.sharding is None
    assert constraint.notes[1].kind == "Explicit axes alone"
    for partitioner in ("shardy", "gspmd"):
        of_results = int(jax.__version_info__ < (0, 10))
        assert assert_same_order(stage, partitioner, of_results) == 1


def test_constraints_on_some_explicit_axes_keep_those_of_the_type():
    kinds = (AxisType.Explicit, AxisType.Auto)
    mesh = AbstractMesh((4, 2), ("data", "model"), axis_types=kinds)
    jitted = jax.jit(lambda x: constrain(x * 2, on(None, "model", mesh=mesh)))
    stage = jitted.trace(array((16, 32), "data", mesh=mesh))
    (constraint,) = [t for t in requested(stage) if t.kind == "constraint"]
    assert constraint.sharding.spec == PartitionSpec.of("data", "model")


# --- any nesting ----------------------------------------------------------------------------------

SPECS = [
    on("data"),
    on("model"),
    on("data", "model"),
    on(None, "data"),
    on("data", P.UNCONSTRAINED),
]


def call_twice(f):
    jitted = jax.jit(f)
    return lambda x: jitted(jitted(x))


def in_scan(unroll):
    return lambda f: (
        lambda x: jax.lax.scan(lambda c, _: (f(c), None), x, None, length=3, unroll=unroll)[0]
    )


def in_while(f):
    return lambda x: jax.lax.while_loop(lambda c: c[1] < 3, lambda c: (f(c[0]), c[1] + 1), (x, 0))[
        0
    ]


def in_custom_vjp(f):
    wrapped = jax.custom_vjp(f)
    wrapped.defvjp(lambda x: (f(x), None), lambda _, g: (f(g),))
    return wrapped


WRAPPERS = {
    "jit twice": call_twice,
    "scan": in_scan(1),
    "scan by two": in_scan(2),
    "cond": lambda f: lambda x: jax.lax.cond(x.sum() > 0, f, lambda x: x, x),
    "checkpoint": jax.checkpoint,
    "vmap": lambda f: lambda x: jax.vmap(f)(x[None])[0],
    "scope": lambda f: jax.named_scope("scope")(f),
    "custom_vjp": in_custom_vjp,
    "while": in_while,
}

leaves = st.sampled_from(SPECS).map(lambda sharding: lambda x: constrain(jnp.sin(x), sharding))
functions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(
            lambda parts: lambda x: [x := part(x) for part in parts][-1]
        ),
        st.tuples(st.sampled_from(list(WRAPPERS)), inner).map(
            lambda pair: WRAPPERS[pair[0]](pair[1])
        ),
    ),
    max_leaves=4,
)


@given(functions, st.booleans())
@example(
    in_custom_vjp(in_custom_vjp(WRAPPERS["vmap"](lambda x: constrain(jnp.sin(x), on("data"))))),
    True,
)
def test_constraints_of_any_nesting(function, differentiated):
    forward = jax.jit(lambda x: function(x).sum())
    backward = jax.jit(jax.grad(lambda x: function(x).sum()))
    argument = array((16, 32), "data")
    try:
        stage = trace(Program("nested", backward if differentiated else forward, (argument,)))
    except NotLowerable as refused:
        while_loop_differentiated = "Reverse-mode differentiation" in refused.reason
        assume(not while_loop_differentiated)
        raise
    for partitioner in ("shardy", "gspmd"):
        assert_same_order(stage, partitioner)


# --- arguments and results ------------------------------------------------------------------------

TABLE = np.arange(640.0, dtype=np.float32).reshape(10, 64)
DEVICE_TABLE = jnp.asarray(TABLE)


@partial(
    jax.jit,
    static_argnums=(2,),
    static_argnames=("flag",),
    donate_argnums=(0,),
    donate_argnames=("kw",),
)
def awkward(params, x, n, *rest, unused=None, kw=None, flag=True, **more):
    y = x @ params["w"] + n + TABLE.sum() + DEVICE_TABLE[:1] * flag
    return {"a": y, "none": None, "b": [kw["z"] * 2, kw["z"]]}, rest[1]["q"] + more["m"]


def awkward_arguments():
    args = (
        {"w": array((64, 64), None, "model"), "v": None},
        array((16, 64), "data"),
        3,
        array((2,)),
        {"q": array((2,))},
    )
    kwargs = {"kw": {"z": array((8,))}, "flag": False, "m": array((2,)), "unused": array((5,))}
    return args, kwargs


def main_arguments(module):
    line = next(line for line in module.text().splitlines() if "@main(" in line)
    head, _, tail = line.partition(") -> ")
    return re.findall(r'%arg\d+:.*?loc\("([^"]*)"\)', head), re.findall(
        r'jax.result_info = "([^"]*)"', tail
    )


@pytest.mark.parametrize("simplified", [False, True])
def test_arguments_keep_their_names(simplified):
    args, kwargs = awkward_arguments()
    with jax.enable_checks(False):
        old = jax.config.jax_use_simplified_jaxpr_constants
        jax.config.update("jax_use_simplified_jaxpr_constants", simplified)
        jax.clear_caches()
        try:
            stage = trace(Program("awkward", awkward, args, kwargs))
            modules = [lower(stage, name) for name in ("shardy", "gspmd")]
        finally:
            jax.config.update("jax_use_simplified_jaxpr_constants", old)
            jax.clear_caches()
    tensors = requested(stage)
    arguments = [tensor for tensor in tensors if tensor.kind == "argument"]
    assert [(t.path, t.dropped, t.donated, t.index) for t in arguments] == [
        ("params['w']", False, True, 0),
        ("x", False, False, 1),
        ("rest[0]", True, False, 2),
        ("rest[1]['q']", False, False, 3),
        ("kw['z']", False, True, 4),
        ("more['m']", False, False, 5),
        ("unused", True, False, 6),
    ]
    results = [tensor for tensor in tensors if tensor.kind == "result"]
    assert [t.path for t in results] == [
        "result[0]['a']",
        "result[0]['b'][0]",
        "result[0]['b'][1]",
        "result[1]",
    ]
    for module in modules:
        assert module.kept_arguments == tuple(t.index for t in arguments if not t.dropped)
        names, result_names = main_arguments(module)
        assert names[-len(module.kept_arguments) :] == [t.path for t in arguments if not t.dropped]
        assert result_names == [t.path for t in results]


def test_arguments_of_a_lowered_stage():
    args, kwargs = awkward_arguments()
    stage = awkward.trace(*args, **kwargs)
    of_traced = [t for t in requested(stage) if t.kind in ("argument", "result")]
    of_lowered = requested(stage.lower(lowering_platforms=("cpu",)))
    assert [(t.path, t.shape, t.dropped, t.donated) for t in of_lowered] == [
        (t.path, t.shape, t.dropped, t.donated) for t in of_traced
    ]
    assert [t.sharding for t in of_lowered if not t.dropped] == [
        t.sharding for t in of_traced if not t.dropped
    ]


def test_shardings_given_to_jit():
    jitted = jax.jit(
        lambda a, b: (a + 1, b),
        in_shardings=(on("data"), None),
        out_shardings=(on("model"), None),
    )
    shape = jax.ShapeDtypeStruct((8, 4), jnp.float32)
    a, b, first, second = requested(jitted.trace(shape, array((8, 4), "model")))
    assert a.sharding.spec == PartitionSpec.of("data")
    assert b.sharding.spec == PartitionSpec.of("model")
    assert first.sharding.spec == PartitionSpec.of("model")
    assert second.sharding is None


def test_two_minds_about_an_argument_are_noted():
    jitted = jax.jit(lambda a: a + 1, in_shardings=on("data"))
    argument, _ = requested(jitted.trace(array((8, 4), "model")))
    assert argument.sharding.spec == PartitionSpec.of("data")
    assert argument.notes[0].kind == "two shardings"


def test_arrays_on_devices():
    mesh = compat.device_mesh(Mesh.of({"data": 4, "model": 2}), jax.devices())
    committed = jax.device_put(np.zeros((8, 4)), NamedSharding(mesh, P("data", "model")))
    plain = jnp.zeros((3,))
    on_one = jax.device_put(np.zeros((3,)), jax.devices()[1])
    a, b, _ = requested(jax.jit(lambda a, b: a.sum() + b.sum()).trace(committed, plain))
    assert a.sharding.spec == PartitionSpec.of("data", "model")
    assert a.sharding.mesh == Mesh.of({"data": 4, "model": 2})
    assert b.sharding is None
    assert b.notes == ()
    (c, _) = requested(jax.jit(lambda c: c + 1).trace(on_one))
    assert c.sharding is None
    assert "SingleDeviceSharding" in c.notes[0].said


def test_a_mesh_in_another_order_is_counted_by_position():
    mesh = compat.device_mesh(Mesh.of({"data": 8}, tuple(range(8))[::-1]), jax.devices())
    assert [device.id for device in mesh.devices.flat] == list(range(8))[::-1]
    converted, _ = from_jax_sharding(NamedSharding(mesh, P("data")), 1)
    assert converted.mesh == Mesh.of({"data": 8})


def test_random_keys_have_one_more_dimension():
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 8))
    keys = jax.ShapeDtypeStruct(keys.shape, keys.dtype, sharding=on("data"))
    argument, _ = requested(jax.jit(lambda k: jax.random.key_data(k)).trace(keys))
    assert (argument.shape, argument.dtype) == ((8, 2), "ui32")
    assert argument.sharding.spec == PartitionSpec.of("data")
    assert argument.notes[0].kind == "key array"


def test_functions_without_a_readable_signature():
    jitted = jax.jit(partial(jax.tree.map, jnp.sin))
    argument, result = requested(jitted.trace({"w": array((8,))}))
    assert argument.path.endswith("['w']")
    assert result.path == "result['w']"


@pytest.mark.parametrize("partitioner", ["shardy", "gspmd"])
def test_what_a_ref_is_set_to_is_a_result(partitioner):
    mesh = compat.device_mesh(Mesh.of({"data": 8}), jax.devices())
    weight = jax.device_put(jnp.ones(8), NamedSharding(mesh, P("data")))
    state = {"unused": new_ref(jnp.ones(2)), "w": new_ref(weight)}
    counter = new_ref(jax.device_put(jnp.ones(()), NamedSharding(mesh, P())))

    def step(state, x):
        state["w"][...] = state["w"][...] + x.sum()
        counter[...] += 1
        return {"loss": x.sum()}

    traced = jax.jit(step).trace(state, jax.device_put(jnp.ones((16, 4)), weight.sharding))
    unused, given, _, loss, changed = requested(traced)
    assert (unused.dropped, changed.path, changed.index) == (True, "result.state['w']", 1)
    assert (changed.shape, changed.sharding, loss.sharding) == ((8,), given.sharding, None)
    module = lower(traced, partitioner)
    main = build(module.module).main
    # JAX moves what a function closes over behind the others, and it has no path.
    assert [each.name for each in main.arguments] == ["state['w']", "x", ""]
    assert [each.name for each in main.results] == ["result['loss']", "result.state['w']", ""]
    assert Inspection(Program("step", traced)).check().passed


def new_ref(value):
    new = getattr(getattr(jax, "ref", None), "new_ref", None)
    return (new or core.mutable_array)(value)


def test_what_is_no_named_sharding():
    assert from_jax_sharding(None, 2) == (None, ())
    single = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    converted, (note,) = from_jax_sharding(single, 2)
    assert converted is None
    assert remark_text(note).startswith("Given as SingleDeviceSharding")


def test_a_sharding_of_gspmds_names_no_axes():
    """Which Shardy does not take: use a NamedSharding."""
    converted, (note,) = from_jax_sharding(GSPMDSharding.get_replicated(jax.devices()), 1)
    assert converted is None
    assert remark_text(note).startswith("Given as GSPMDSharding, which names no mesh axes")


def test_device_ids_are_read():
    """With which a NamedSharding says what a PositionalSharding did."""
    order = (7, 6, 5, 4, 3, 2, 1, 0)
    mesh = compat.device_mesh(Mesh.of({"data": 8}), jax.devices())
    converted, notes = from_jax_sharding(
        NamedSharding(mesh, P("data"), _logical_device_ids=order), 1
    )
    assert (notes, converted.mesh) == ((), Mesh.of({"data": 8}, order))


def test_unreduced_and_reduced_axes():
    converted, _ = from_jax_sharding(NamedSharding(EXPLICIT, P("data", unreduced={"model"})), 2)
    assert converted.spec == PartitionSpec.of("data", unreduced={"model"})
    converted, _ = from_jax_sharding(NamedSharding(EXPLICIT, P("data", reduced={"model"})), 2)
    assert converted.spec == PartitionSpec.of("data", reduced={"model"})


def test_argument_axes_need_no_tracing():
    assert argument_axes(Program("p", None, (array((8, 8), ("data", "model")), 3))) == {
        "data",
        "model",
    }
    assert argument_axes(Program("p", None, (array((8, 8)),), {"k": array((4,), "data")})) == {
        "data"
    }
    assert AUTO.size == 8


@pytest.mark.parametrize("partitioner", ["shardy", "gspmd"])
def test_a_constraint_in_a_library_is_at_the_line_that_called_it(tmp_path, partitioner):
    """As Flax's logical constraints are, and Equinox's filter_shard."""
    path = tmp_path / "site-packages" / "layers.py"
    library = {"constrain": constrain}
    text = "def logically(x, sharding):\n    return constrain(x, sharding)\n"
    exec(compile(text, str(path), "exec"), library)

    def model(x):
        return library["logically"](jnp.sin(x), on("data"))

    line = model.__code__.co_firstlineno + 1
    traced = trace(Program("model", jax.jit(model), (array((16, 32)),)))
    (asked,) = (tensor for tensor in requested(traced) if tensor.kind == "constraint")
    assert (asked.source.file, asked.source.line) == (__file__, line)
    module = lower(traced, partitioner)
    annotations = read_annotations(build(module.module))
    (written,) = (one for one in annotations if one.kind == "constraint")
    assert (written.source.file, written.source.line) == (__file__, line)
