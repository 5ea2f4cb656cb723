"""Which values a word names, and that the name of every row does."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from sdyscope.analysis.naming.resolve import resolve_value
from sdyscope.analysis.propagation.propagate import propagate_document
from sdyscope.errors import TargetError
from sdyscope.facts.program import Program
from sdyscope.graph.locations import shared_scope
from sdyscope.inspection import Inspection
from sdyscope.stages import compat
from sdyscope.targets import resolve
from sdyscope.terminal.table import Heading
from sdyscope.values.mesh import Mesh
from sdyscope.views import propagate
from tests.user_programs import abstract


def program():
    """Two `shard_map`s of one line, a loop, and an argument that nothing uses."""
    mesh = compat.abstract_mesh(Mesh.of({"data": 4, "model": 2}))

    def rows(x, y):
        return x + y

    def columns(x, y):
        return x * y

    def step(x, layers, unused):
        def body(carry, w):
            return jnp.tanh(carry @ w), None

        x = jax.lax.scan(body, x, layers)[0]
        for each, spec in ((rows, P("data")), (columns, P(None, "model"))):
            x = jax.shard_map(each, mesh=mesh, in_specs=(spec, spec), out_specs=spec)(x, jnp.sin(x))
        return x

    arrays = abstract(mesh, (8, 8), "data"), abstract(mesh, (3, 8, 8)), abstract(mesh, (8,))
    return Program("step", jax.jit(step), arrays, mesh=mesh)


@pytest.fixture(scope="module")
def inspection():
    return Inspection(program(), ["shardy", "gspmd"])


@pytest.mark.parametrize(
    ("partitioner", "name", "kinds"),
    [
        # What goes into the second `shard_map` comes out of the first.
        ("shardy", "jit(step) #0 input of rows", ["while", "manual_computation"]),
        ("shardy", "jit(step) #1 input", ["sine", "sine"]),
        ("shardy", "jit(step) #0 output of columns", ["manual_computation"] * 2),
        # GSPMD has an op of its own for each.
        ("gspmd", "jit(step) #0 input of rows", ["custom_call"] * 2),
        ("gspmd", "jit(step) #0 output", ["custom_call"] * 2),
        ("shardy", "dot_general (×2)", ["dot_general"]),
    ],
)
def test_a_row_is_named_as_it_is_shown(inspection, partitioner, name, kinds):
    named = resolve_value(inspection.graph(partitioner), name)
    assert [value.kind.rpartition(".")[2] for value in named] == kinds


@pytest.mark.parametrize("partitioner", ["shardy", "gspmd"])
@pytest.mark.parametrize("name", ["jit(step) #2 input", "jit(step) #1 output", "body #0 input"])
def test_there_is_no_such_row(inspection, partitioner, name):
    with pytest.raises(TargetError, match="No value is called"):
        resolve_value(inspection.graph(partitioner), name)


def test_a_line_tells_rows_of_one_name_apart(inspection):
    graph = inspection.graph("shardy")
    every = resolve_value(graph, "sin")
    assert len(every) == 2
    (line,) = {value.source.line for value in every}
    for place in (f"line {line}", f"…/naming/test_resolve.py:{line}", f"test_resolve.py:{line}"):
        assert resolve_value(graph, f"sin {place}") == every
    with pytest.raises(TargetError):
        resolve_value(graph, f"sin line {line + 1}")


def test_an_argument_that_is_dropped_is_said_to_be(inspection):
    graph = inspection.graph("shardy")
    with pytest.raises(TargetError, match="nothing uses it, and jit drops"):
        resolve_value(graph, "unused", inspection.tensors)
    with pytest.raises(TargetError, match="No value is called"):
        resolve_value(graph, "unused")


def names_of_rows(inspection, columns=None):
    table = propagate.table(propagate_document(inspection), columns=columns)
    return [str(row[0]) for row in table.rows if not isinstance(row, Heading)]


def test_every_row_of_a_table_of_values_names_its_value(inspection):
    model = Inspection(resolve("mlp"), ["shardy"])
    for subject, rows in ((inspection, 15), (model, 30)):
        names = {*names_of_rows(subject), *names_of_rows(subject, 80)} - {"unused"}
        assert len(names) > rows
        for name in names:
            assert resolve_value(subject.graph("shardy"), name), name


def test_rows_of_repeated_layers_name_all_of_them():
    inspection = Inspection(resolve("fsdp-transformer", settings={"layers": "4"}), ["shardy"])
    layered = [name for name in names_of_rows(inspection) if "{0..3}" in name]
    assert layered
    for name in layered[::4]:
        assert len(resolve_value(inspection.graph("shardy"), name)) % 4 == 0


def calling(x, y):
    """Functions of JAX: one of a line, and one that two lines call."""
    with jax.named_scope("first"):
        x = jnp.where(x > 0, x, 0.0)
        variance = jnp.var(x, axis=0)
    with jax.named_scope("second"):
        return jnp.where(x > 1, x, 0.0), jnp.fft.fft(y), variance


def test_what_stands_in_a_function_of_jax_has_the_scope_and_the_line_of_its_call():
    mesh = compat.abstract_mesh(Mesh.of({"data": 4, "model": 2}))
    arrays = abstract(mesh, (8, 16), "data"), abstract(mesh, (16, 8), "data")
    inspection = Inspection(Program("calling", jax.jit(calling), arrays, mesh=mesh), ["shardy"])
    graph, line = inspection.graph("shardy"), calling.__code__.co_firstlineno
    rows = propagate_document(inspection).values
    inside = [row for row in rows if row.section == "inside" and ":" in row.ssa]
    assert len(inside) > 20
    assert all(row.name.startswith(("first/jit(", "second/jit(", "jit(_where)")) for row in inside)
    (fft,) = [row for row in inside if row.primitive == "fft"]
    assert (fft.name, fft.source.line) == ("second/jit(fft)", line + 6)
    assert {row.name: row.source.line for row in inside if "_var" in row.name} == {
        "first/jit(_var)": line + 4,
        "first/jit(_var)/jit(_where)": line + 4,
    }
    # JAX calls one function for both, or makes one for each; some versions say where the first is.
    selects = {row.name: row.source for row in inside if row.primitive == "select_n"}
    if "jit(_where)" in selects:
        named = selects["jit(_where)"]
        assert named is None or (jax.__version_info__ < (0, 8) and named.line == line + 3)
    else:
        lines = {name: source.line - line for name, source in selects.items()}
        assert lines["first/jit(_where)"] == 3
        assert lines["second/jit(_where)"] == 6
    (named,) = resolve_value(graph, f"fft test_resolve.py:{line + 6}")[-1:]
    assert (named.name, named.source.line) == ("second/jit(fft)/fft", line + 6)
    for name in names_of_rows(inspection):
        assert resolve_value(graph, name), name


@pytest.mark.parametrize(
    ("scopes", "shared"),
    [
        ([], ""),
        (["jit(f)/a/clip"], "jit(f)/a/clip"),
        (["jit(f)/a/clip", "jit(f)/b/clip"], "jit(f)/clip"),
        (["jit(f)/a/clip", "jit(f)/a/b/clip"], "jit(f)/a/clip"),
        (["jit(f)/a", "jit(f)/b"], "jit(f)"),
        (["clip", "jit(f)/clip"], "clip"),
    ],
)
def test_what_the_scopes_of_several_calls_have_in_common(scopes, shared):
    assert shared_scope(scopes) == shared
