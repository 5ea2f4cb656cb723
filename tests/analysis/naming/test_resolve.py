"""Which values a word names, and that the name of every row does."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from sdyscope.analysis.naming.resolve import resolve_value
from sdyscope.analysis.propagation.propagate import propagate_document
from sdyscope.errors import TargetError
from sdyscope.facts.program import Program
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
