"""What XLA propagates: every value is found, and it is what the compiled program says."""

import math
import re
import sys
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import user_programs
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from mlir_text import MIXED

from sdyscope.errors import CompilerError
from sdyscope.facts.program import Program
from sdyscope.facts.remarks import Remark
from sdyscope.graph import build
from sdyscope.models import fsdp_transformer, mlp
from sdyscope.stages import compat
from sdyscope.stages.align.tags import tag
from sdyscope.stages.align.target import AlignTarget
from sdyscope.stages.lowered.lower import NotLowerable, lower
from sdyscope.stages.lowered.read import read_bytes
from sdyscope.stages.propagated import xla_dump
from sdyscope.stages.propagated.xla_dump import _how_it_ended, propagated_by_xla
from sdyscope.syntax.hlo_sharding import parse_hlo_sharding
from sdyscope.values.convert import to_placement
from sdyscope.values.mesh import Mesh

pytestmark = pytest.mark.compiles

PARTITIONERS = ("shardy", "gspmd")
DATA_MODEL = compat.abstract_mesh(Mesh.of({"data": 4, "model": 2}))
FSDP_MODEL = compat.abstract_mesh(Mesh.of({"fsdp": 4, "model": 2}))
DEVICES = jax.sharding.Mesh(
    np.array(jax.devices("cpu")[:8]).reshape(4, 2),
    ("data", "model"),
    axis_types=(jax.sharding.AxisType.Auto,) * 2,
)
TINY = {
    "layers": 2,
    "d_model": 32,
    "heads": 4,
    "head_dim": 8,
    "d_ff": 64,
    "vocab": 64,
    "batch": 8,
    "sequence": 8,
}
TRANSFORMERS = {
    "constrained": {},
    "unconstrained": {"constrained": False},
    "scan": {"scan": True},
    "remat": {"remat": True},
    "scan, remat, unconstrained": {"scan": True, "remat": True, "constrained": False},
}
#: XLA refuses it: the branches of a conditional may not be constrained differently.
REFUSED = "branches"


def transformer(**settings):
    return fsdp_transformer.program(FSDP_MODEL, fsdp_transformer.Settings(**TINY, **settings))


def propagated(program, partitioner):
    lowered = lower(program, partitioner)
    graph = build(lowered.module)
    return lowered, graph, propagated_by_xla(lowered, graph)


@cache
def propagated_transformer(name, partitioner):
    return propagated(transformer(**TRANSFORMERS[name]), partitioner)


def from_constants(graph):
    """Values that no argument of the program bears on."""
    main = {argument.node for argument in graph.main.arguments}
    known = {}

    def is_constant(value):
        node, result = value
        if value not in known:
            known[value] = True  # What comes back to a loop changes nothing.
            known[value] = node not in main and all(map(is_constant, sources(node, result)))
        return known[value]

    def sources(node, result):
        op = graph.ops[node]
        carries = op.kind in ("stablehlo.while", "sdy.manual_computation")
        callee = graph.callee(op)
        if callee is not None or carries:
            inside = graph.children(callee.op if callee else node)[-1]
            for made, use in graph.operands(inside):
                if use.operand == result:
                    yield made.id, use.result
        if callee is None:
            for producer, _, edge in graph.nx.in_edges(node, data=True):
                mine = op.kind != "stablehlo.while" or edge["operand"] == result
                if edge["kind"] in ("data", "capture", "region", "call") and mine:
                    yield producer, edge["result"]

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    try:
        return {
            (op.id, k) for op in graph.ops for k in range(len(op.types)) if is_constant((op.id, k))
        }
    finally:
        sys.setrecursionlimit(limit)


def used(graph):
    """Nodes that something depends on that main returns."""
    main = graph.main.op
    returned = graph.children(main)[-1].id
    found, waiting = {returned}, [returned]
    while waiting:
        node = waiting.pop()
        op = graph.ops[node]
        around = [] if op.parent is None else [op.parent]
        for producer in [*graph.nx.predecessors(node), *around]:
            if producer not in found:
                found.add(producer)
                waiting.append(producer)
    return found


def assert_total(name, partitioner, graph, result):
    everything = {(op.id, k) for op in graph.ops for k in range(len(op.types))}
    assert set(result.values) == everything
    assert sum(result.counts.values()) == len(everything)
    assert result.exactness == "exact"
    assert not result.not_aligned
    constant, needed = from_constants(graph), used(graph)
    gone = []
    for value in result.values.values():
        op = graph.ops[value.id[0]]
        if value.node is not None:
            there = result.graph.ops[value.node].types[value.result]
            mine = op.types[value.id[1]]
            assert (there.shape, there.dtype) == (mine.shape, mine.dtype)
            assert value.fate == ("merged" if value.merged_with else "kept")
        elif value.fate == "folded" and value.id not in constant and op.id in needed:
            gone.append((op.name, op.kind, str(op.types[value.id[1]]), op.function))
    counts = {fate: f"{count / len(everything):.0%}" for fate, count in result.counts.items()}
    print(f"{name}, {partitioner}: {len(everything)} values, {counts}")
    return gone


@pytest.mark.parametrize("partitioner", PARTITIONERS)
@pytest.mark.parametrize("name", TRANSFORMERS)
def test_every_value_of_a_train_step_is_found(name, partitioner):
    _, graph, result = propagated_transformer(name, partitioner)
    assert assert_total(name, partitioner, graph, result) == []


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_every_value_of_the_mlp_is_found(partitioner):
    _, graph, result = propagated(mlp.program(DATA_MODEL, mlp.Settings()), partitioner)
    assert assert_total("mlp", partitioner, graph, result) == []


@pytest.mark.parametrize("partitioner", PARTITIONERS)
@pytest.mark.parametrize("name", sorted(set(user_programs.USER_PROGRAMS) - {REFUSED}))
def test_every_value_of_a_users_program_is_found(name, partitioner):
    try:
        _, graph, result = propagated(user_programs.USER_PROGRAMS[name](DATA_MODEL), partitioner)
    except NotLowerable:
        if compat.version_tuple() >= (0, 9) or name != "shard_map_partial":
            raise
        return  # JAX 0.7 can't constrain in there.
    assert assert_total(name, partitioner, graph, result) == []


def kinds(mesh):
    """Ops with regions, with several results, without sharding rules, and with effects."""

    @jax.jit
    def fun(x, w, which):
        x = jax.lax.cond(which > 0, lambda x: x * 2, lambda x: jnp.sin(x) + 1, x)
        x = jax.lax.switch(which, [jnp.cos, lambda x: jax.lax.fori_loop(0, 3, step, x), jnp.exp], x)
        keys, values = jax.lax.sort((x, x * 2), num_keys=1)
        top, indices = jax.lax.top_k(keys, 2)
        summed = jnp.cumsum(values, axis=0) + x.at[indices[:, 0] % 8].add(1.0)
        left, right = jax.lax.optimization_barrier((summed, x.max(axis=1)))
        triangular = jnp.linalg.cholesky(left.T @ left + jnp.eye(8))
        spectrum = jnp.abs(jnp.fft.fft(triangular))
        window = jax.lax.conv_general_dilated(x[None, None], w[None, None], (1, 1), "SAME")
        return (
            top.argmax(axis=1),
            right,
            spectrum,
            window,
            jax.lax.dynamic_slice(x, (which, 0), (4, 8)),
        )

    def step(i, x):
        return jax.lax.while_loop(lambda x: x.sum() < i, lambda x: x + 1, x)

    x = user_programs.abstract(mesh, (16, 8), "data", "model")
    w = user_programs.abstract(mesh, (4, 2), "data")
    return Program("kinds", fun, (x, w, jax.ShapeDtypeStruct((), jnp.int32)))


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_every_value_of_many_kinds_of_ops_is_found(partitioner):
    _, graph, result = propagated(kinds(DATA_MODEL), partitioner)
    assert assert_total("kinds", partitioner, graph, result) == []


@pytest.mark.parametrize("partitioner", PARTITIONERS)
@pytest.mark.parametrize("name", TRANSFORMERS)
def test_an_ops_operands_are_the_operands_of_the_op_that_it_is(name, partitioner):
    _, graph, result = propagated_transformer(name, partitioner)
    target, constant = AlignTarget(result.graph), from_constants(graph)
    called_once = {"main"} | {name for name in graph.functions if len(graph.callers(name)) == 1}
    wrong, compared = [], 0
    for op in graph.operations():
        value = result.values.get((op.id, 0))
        if value is None or value.node is None or op.function not in called_once:
            continue
        if result.graph.ops[value.node].kind != op.kind or op.kind == "stablehlo.while":
            continue
        there = target.sources(value.node, op.id)
        # Shardy may let all uses of a value follow a constraint on it.
        for node, _ in tuple(there):
            if result.graph.ops[node].kind == "sdy.reshard":
                there |= target.sources(node, -1)
        for producer, edge in graph.operands(op):
            operand = result.values[producer.id, edge.result]
            if operand.node is not None and operand.id not in constant:
                compared += 1
                if (operand.node, operand.result) not in there:
                    wrong.append((op.name, op.kind, op.function, producer.name))
    assert wrong == []
    assert compared > 500


@pytest.mark.parametrize("name", ["unconstrained", "scan"])
def test_gspmd_gives_every_tensor_a_sharding(name):
    """Until jaxlib 0.9 they are lost from some kinds of ops on the way from HLO."""
    _, graph, result = propagated_transformer(name, "gspmd")
    without = {
        result.graph.ops[value.node].kind
        for value in result.values.values()
        if value.node is not None
        and value.sharding is None
        and graph.ops[value.id[0]].types[value.id[1]].shape
    }
    assert without <= {"stablehlo.constant"}


# Against what JAX says of the compiled program.


def placement_of(sharding, rank):
    return to_placement(parse_hlo_sharding(compat.hlo_sharding_text(sharding, rank)), rank, None, 8)


def whole(rank):
    return to_placement(parse_hlo_sharding("{replicated}"), rank, None, 8)


def assert_as_compiled(lowered, graph, result):
    with compat.partitioner(result.partitioner):
        compiled = lowered.lowered.compile()
    main = graph.main
    given = jax.tree.leaves(compiled.input_shardings)  # None, of those dropped, is no leaf.
    for argument, sharding in zip(main.arguments[lowered.constants :], given, strict=True):
        value = result.values[argument.node, 0]
        rank = len(argument.type.shape)
        assert (value.placement or whole(rank)) == placement_of(sharding, rank), argument.name
    produced = jax.tree.leaves(compiled.output_shardings)
    for mine, there, sharding in zip(
        main.results, result.graph.main.results, produced, strict=True
    ):
        assert mine.type == there.type
        rank = len(mine.type.shape)
        mesh = next((m for m in result.graph.meshes.values()), None)
        place = to_placement(there.sharding, rank, mesh, 8) if there.sharding else whole(rank)
        assert place == placement_of(sharding, rank), mine.name


@pytest.mark.parametrize("partitioner", PARTITIONERS)
@pytest.mark.parametrize(
    "name",
    [
        "two_layers",
        "gradients",
        "every_kind_of_argument",
        "jit_shardings",
        "nested_jit",
        "scanned",
        "mapped",
        "shard_map_full",
        "shard_map_gradient",
        "all_axes_on_one_dimension",
        "custom_rules",
    ],
)
def test_arguments_and_results_are_sharded_as_in_the_compiled_program(name, partitioner):
    assert_as_compiled(*propagated(user_programs.USER_PROGRAMS[name](DEVICES), partitioner))


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_arguments_and_results_of_the_mlp_are_as_in_the_compiled_program(partitioner):
    settings = mlp.Settings()
    assert_as_compiled(*propagated(mlp.program(DEVICES, settings), partitioner))


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_a_result_is_only_sharded_where_it_divides(partitioner):
    """Inside, values that do not divide are padded. JAX 0.12 can't say how the result is."""
    _, graph, result = propagated(user_programs.not_divisible(DATA_MODEL), partitioner)
    (product,) = (op for op in graph.operations() if op.kind == "stablehlo.multiply")
    assert all(result.values[product.id, 0].placement.dims)
    (there,) = result.graph.main.results
    mesh = next(iter(result.graph.meshes.values()), None)
    place = to_placement(there.sharding, 2, mesh, 8)
    for size, digits in zip(there.type.shape, place.dims, strict=True):
        assert size % math.prod(digit.size for digit in digits) == 0


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_what_is_free_is_what_jax_says_is_free(partitioner):
    def fun(x, y, z):
        return x @ y, constrain(z * 2, "data", P.UNCONSTRAINED)

    def constrain(value, *spec):
        return jax.lax.with_sharding_constraint(value, NamedSharding(DEVICES, P(*spec)))

    jitted = jax.jit(fun, out_shardings=(NamedSharding(DEVICES, P("data")), None))
    x = user_programs.abstract(DEVICES, (16, 8), "data")
    free = jax.ShapeDtypeStruct((8, 16), jnp.float32)
    lowered, graph, result = propagated(Program("free", jitted, (x, free, x)), partitioner)
    assert_as_compiled(lowered, graph, result)


def test_what_has_a_sharding_is_not_free_though_it_can_not_be_read():
    text = """module @m attributes {mhlo.num_partitions = 8 : i32} {
      func.func public @main(%a: tensor<8xf32> {mhlo.sharding = "{devices=[3]<=[8}"},
          %b: tensor<8xf32>) -> (tensor<8xf32>) {
        return %a : tensor<8xf32>
      }
    }"""
    graph = build(read_bytes(text.encode()).module)
    assert xla_dump.free_boundaries(graph) == {"parameters": [False, True], "results": [True]}


# The two partitioners beside each other.


def compared(name):
    """(op, its placement under each partitioner) of values that arguments bear on, in order."""
    sides = [propagated_transformer(name, partitioner)[1:] for partitioner in PARTITIONERS]
    operations = [
        [op for op in graph.operations() if op.types and op.kind != "sdy.mesh"]
        for graph, _ in sides
    ]
    constant = from_constants(sides[0][0])
    for ops in zip(*operations, strict=True):
        if ops[0].kind != "sdy.sharding_constraint":
            assert ops[0].kind == ops[1].kind
        values = [result.values[op.id, 0] for op, (_, result) in zip(ops, sides, strict=True)]
        rank = len(ops[0].types[0].shape or ())
        if rank < 2 or (ops[0].id, 0) in constant or any(value.node is None for value in values):
            continue
        yield ops[0], [value.placement or whole(rank) for value in values]


def test_the_known_difference_begins_at_the_embedding():
    """From `embedding[tokens]` on Shardy shards the features, and GSPMD the batch."""
    rows = list(compared("unconstrained"))
    differing = [(op, places) for op, places in rows if places[0] != places[1]]
    print(f"{len(differing)} of {len(rows)} values differ")
    assert 0.1 * len(rows) < len(differing) < 0.6 * len(rows)
    op, places = differing[0]
    assert op.kind == "stablehlo.gather"
    assert "embed" in op.scope
    assert [[bool(dim) for dim in place.dims] for place in places] == [
        [False, False, True],
        [True, False, False],
    ]


def test_with_constraints_nothing_in_the_main_function_differs():
    rows = [row for row in compared("constrained") if row[0].function == "main"]
    differing = [(op.name, op.kind, op.scope) for op, places in rows if places[0] != places[1]]
    assert len(rows) > 500
    assert differing == []


# Sizes, refusals, aborts.


def product(data, model, **options):
    mesh = compat.abstract_mesh(Mesh.of({"data": data, "model": model}))
    x = user_programs.abstract(mesh, (data, 32), "data")
    w = user_programs.abstract(mesh, (32, model), None, "model")
    return Program("product", jax.jit(jnp.matmul, **options), (x, w), mesh=mesh)


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_two_thousand_devices(partitioner):
    _, graph, result = propagated(product(64, 32), partitioner)
    (dot,) = (op for op in graph.operations() if op.kind == "stablehlo.dot_general")
    assert [len(dim) for dim in result.values[dot.id, 0].placement.dims] == [1, 1]
    assert result.source.devices == 2048


def test_a_module_for_other_hardware_says_what_compiled_it():
    lowered = lower(product(4, 2), "shardy", platforms=("tpu",))
    result = propagated_by_xla(lowered, build(lowered.module))
    assert Remark("simplified before", "tpu") in result.notes


def test_files_in_the_working_directory_are_not_imported(tmp_path, monkeypatch, own_compiles):
    xla_dump._worker.end()
    (tmp_path / "numpy.py").write_text("raise SystemExit('not this one')")
    monkeypatch.chdir(tmp_path)
    propagated(product(4, 2), "gspmd")


def test_a_module_read_from_a_file_is_for_whom_its_shardings_are():
    for partitioner in PARTITIONERS:
        lowered = read_bytes(lower(product(4, 2), partitioner).bytecode())
        assert propagated_by_xla(lowered, build(lowered.module)).partitioner == partitioner


def test_more_devices_than_the_cpu_client_has():
    with pytest.raises(CompilerError, match="at most 2,048"):
        propagated(product(64, 64), "shardy")


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_one_device_has_nothing_to_propagate(partitioner):
    _, graph, result = propagated(product(1, 1), partitioner)
    assert result.counts["kept"] == sum(len(op.types) for op in graph.ops)
    assert result.graph is graph


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_a_refusal_names_the_op_and_its_line(partitioner):
    with pytest.raises(CompilerError, match="Inconsistent conditional sharding") as caught:
        propagated(user_programs.USER_PROGRAMS[REFUSED](DATA_MODEL), partitioner)
    assert "cond/branch" in caught.value.message
    assert "sid" not in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.file.endswith("user_programs.py")


def test_a_refusal_of_a_text_names_no_tag_and_no_place_in_what_xla_was_handed():
    text = """
module @m attributes {mhlo.num_partitions = 8 : i32} {
  func.func public @main(%arg0: tensor<24x8xf32> {mhlo.sharding = "{devices=[3]<=[3]}"})
      -> tensor<24x8xf32> {
    return %arg0 : tensor<24x8xf32>
  }
}
"""
    lowered = read_bytes(text.encode())
    with pytest.raises(CompilerError, match="Number of tile assignment dimensions") as caught:
        propagated_by_xla(lowered, build(lowered.module), "gspmd")
    assert not re.search(r"sid\d|loc\(|unknown", caught.value.message)
    assert (caught.value.file, caught.value.line) == (None, None)


ABORTS = """
module @aborts attributes {mhlo.num_partitions = 8 : i32} {
  func.func public @main(%arg0: tensor<8x8xf32>) -> tensor<8x8xf32> {
    %0 = stablehlo.custom_call @Sharding(%arg0) {mhlo.sharding =
      "{mesh['a'=2,'b'=4], [{}, {}], replicated={'b','a'}}"}
      : (tensor<8x8xf32>) -> tensor<8x8xf32>
    return %0 : tensor<8x8xf32>
  }
}
"""


def test_an_abort_is_told_in_a_sentence():
    lowered = read_bytes(ABORTS.encode())
    with pytest.raises(CompilerError) as caught:
        propagated_by_xla(lowered, build(lowered.module), "gspmd")
    print(caught.value)
    assert "\n" not in caught.value.message
    assert xla_dump._worker.is_running


def test_how_a_child_ended():
    fatal = "F1120 10:17:03.385997    6534 hlo_sharding.cc:31] Check failed: a == b"
    assert _how_it_ended(-6, fatal) == (
        "XLA's compiler aborted (SIGABRT): Check failed: a == b (hlo_sharding.cc:31)."
    )
    assert "it said nothing" in _how_it_ended(-11, "")
    assert "status 1" in _how_it_ended(1, "ImportError: no jaxlib")
    assert "no dump" in _how_it_ended(0, "")


def test_a_silent_fall_back_to_gspmd_is_said():
    lowered = read_bytes(MIXED.encode())
    with pytest.raises(CompilerError) as caught:
        propagated_by_xla(lowered, build(lowered.module), "shardy")
    print(caught.value)
    if compat.version_tuple() < (0, 11):
        assert "fell back to GSPMD" in caught.value.message


def test_xlas_own_origins_and_steps():
    lowered = lower(user_programs.USER_PROGRAMS["two_layers"](DATA_MODEL), "shardy")
    graph = build(lowered.module)
    dump = xla_dump.xla_dump(tag(lowered.module, graph), graph, "shardy", 8, explained=True)
    assert "sdy.sharding_origins" in dump.text
    assert "sdy.propagation_edges" in dump.text


def test_results_that_nobody_uses_are_no_other_types():
    """GSPMD's dump has a tuple for an op of several results, and takes out what is used."""

    @jax.jit
    def largest(x):
        return jnp.linalg.svd(x, full_matrices=False)[1].max()

    x = jax.ShapeDtypeStruct((16, 8), jnp.float32, sharding=NamedSharding(DATA_MODEL, P("data")))
    lowered = lower(Program("largest", largest, (x,), mesh=DATA_MODEL), "gspmd")
    graph = build(lowered.module)
    propagated = propagated_by_xla(lowered, graph)
    assert propagated.not_aligned == ()
    (svd,) = [op for op in graph.operations() if len(op.types) > 1]
    fates = [propagated.values[svd.id, result].fate for result in range(len(svd.types))]
    assert fates == ["folded", "kept", "folded", "folded", "kept"]
