"""The table of propagated values as it is printed."""

import re
from dataclasses import replace

import jax
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.analysis.propagation.propagate import propagate_document
from sdyscope.facts.failures import Failure
from sdyscope.facts.program import Program
from sdyscope.facts.propagated import DebugInfo
from sdyscope.facts.remarks import PropagationSource, Remark
from sdyscope.inspection import Inspection
from sdyscope.targets import resolve
from sdyscope.terminal.table import Heading
from sdyscope.views import propagate


@pytest.fixture(scope="module")
def mlp():
    return propagate_document(Inspection(resolve("mlp"), ["shardy"]))


def texts(paragraphs):
    return [paragraph.text for paragraph in paragraphs]


def test_what_is_approximate_and_what_is_missing_comes_first(mlp):
    (exact,) = mlp.propagations
    approximate = replace(
        exact, source=PropagationSource("lowered module"), doubts=(Remark("conservative"),)
    )
    changed = replace(
        mlp, propagations=(approximate,), failures=(Failure("gspmd", "it is no more."),)
    )
    first, second, *_ = propagate.heading(changed)
    assert (first.text, first.tone) == ("Shardy: approximate, from the lowered module", "warning")
    assert (second.text, second.tone) == ("nothing under GSPMD: it is no more.", "warning")
    table = propagate.table(changed)
    assert (
        texts(propagate.footer(changed, table))[-1]
        == "Conservative propagation is not what XLA runs."
    )


def test_a_narrow_table_has_fewer_columns_and_no_folders(mlp):
    wide, narrow = propagate.table(mlp), propagate.table(mlp, columns=80)
    assert [column.header for column in wide.columns] == [
        "value", "type", "requested", "Shardy", "block", "bytes", "replicas", "from"
    ]  # fmt: skip
    assert [column.header for column in narrow.columns] == [
        "value", "type", "Shardy", "bytes", "x", "from"
    ]  # fmt: skip
    assert ["data <- models/mlp.py:98" in row[-1].text for row in wide.cells].count(True) == 1
    assert ["data <- mlp.py:98" in row[-1].text for row in narrow.cells].count(True) == 1


def test_a_request_that_was_not_kept_is_shown_and_counted(mlp):
    values = [
        replace(value, as_requested={"shardy": False}) if value.name == "batch['x']" else value
        for value in mlp.values
    ]
    changed = replace(mlp, values=tuple(values))
    table = propagate.table(changed, columns=80)
    assert "requested" in [column.header for column in table.columns]
    (row,) = [row for row in table.cells if row[0].text == "batch['x']"]
    assert row[3].tone == "bad"
    assert "1 tensor is not where it was requested" in texts(propagate.footer(changed, table))


def test_rows_that_say_the_same_are_one(mlp):
    names = [row[0].text for row in propagate.table(mlp).cells]
    assert any(name.endswith(" (×4)") for name in names)
    headings = [row.text for row in propagate.table(mlp).rows if isinstance(row, Heading)]
    # The count is of values, not of rows; an einsum is no scope of its own.
    assert "jvp(block0) (5) in models/mlp.py" in headings


def test_rows_are_limited_and_the_rest_is_counted(mlp, monkeypatch):
    monkeypatch.setattr(propagate, "LISTED", 10)
    table = propagate.table(mlp)
    inside = propagate.rows_inside(mlp, everything=False)
    shown = sum(
        int(re.search(r"\((\d+)\)", row.text)[1])
        for row in table.rows
        if isinstance(row, Heading) and not row.text.startswith(("arguments", "results", "constr"))
    )
    assert 10 <= shown < len(inside)
    rest = len(inside) - shown
    found = texts(propagate.footer(mlp, table))
    assert f"{rest} more sharded values: --all lists them" in found
    everything = propagate.rows_inside(mlp, everything=True)
    assert len(everything) == len([value for value in mlp.values if value.section == "inside"])


def test_partitioners_that_differ_are_counted(mlp):
    (shardy,) = mlp.propagations
    values = [
        replace(
            value,
            propagated={**value.propagated, "gspmd": value.propagated["shardy"]},
            same=value.primitive != "tanh",
        )
        for value in mlp.values
    ]
    both = (shardy, replace(shardy, partitioner="gspmd", read_debug_info=DebugInfo))
    changed = replace(mlp, values=tuple(values), propagations=both)
    table = propagate.table(changed, columns=80)
    assert [column.header for column in table.columns][2:] == ["Shardy", "GSPMD", "bytes", "x"]
    (row,) = [row for row in table.cells if row[0].text.startswith("tanh")]
    assert [cell.text for cell in row[2:4]] == ["P('data', None)"] * 2
    assert all(row[3].text == "=" for row in table.cells if row[0].text == "params['w1']")
    footer = texts(propagate.footer(changed, table))
    assert any(text.startswith("1 value differs between Shardy and GSPMD") for text in footer)
    assert any("in a wider terminal" in text for text in footer)


@pytest.mark.compiles
@pytest.mark.parametrize("partitioner", ["shardy", "gspmd"])
def test_a_result_is_where_it_is_returned_not_where_it_is_made(partitioner):
    """XLA reshards the op's value to what was asked of the result."""
    mesh = AbstractMesh((4,), ("data",), axis_types=(AxisType.Auto,))
    x = jax.ShapeDtypeStruct((8, 4), "float32", sharding=NamedSharding(mesh, P("data")))
    step = jax.jit(lambda x: x * 2, out_shardings=NamedSharding(mesh, P()))
    inspection = Inspection(Program("gathers", step, (x,)), [partitioner])
    document = propagate_document(inspection)
    (result,) = [value for value in document.values if value.section == "result"]
    assert result.propagated[partitioner].sharding.local_shape == (8, 4)
    assert result.as_requested == {partitioner: True}


@pytest.mark.compiles
def test_constraints_that_jax_wrote_for_types_are_apart_and_have_the_line_of_the_call():
    mesh = AbstractMesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    x = jax.ShapeDtypeStruct((8, 4), "float32", sharding=NamedSharding(mesh, P("x", "y")))

    def step(x):
        x = jax.nn.relu(x)
        return jax.sharding.reshard(x, P("x", None))

    document = propagate_document(Inspection(Program("typed", jax.jit(step), (x,)), ["shardy"]))
    sections = [(value.section, value.source.line) for value in document.values if value.source]
    first = step.__code__.co_firstlineno
    assert ("constraint", first + 2) in sections
    assert ("by JAX", first + 1) in sections
    assert ("by JAX", first + 2) not in sections
    origins = {
        (origin.kind, origin.source.line if origin.source else None)
        for value in document.values
        if value.kind == "stablehlo.maximum"
        for origin in value.propagated["shardy"].origins
    }
    assert origins == {("type", first + 1)}
    headings = [row.text for row in propagate.table(document).rows if isinstance(row, Heading)]
    assert any(heading.startswith("constraints that JAX wrote") for heading in headings)


def called_differently():
    mesh = AbstractMesh((2, 4), ("a", "b"), axis_types=(AxisType.Auto,) * 2)

    @jax.jit
    def twice(x):
        return x * 2

    def step(x, y):
        constrained = jax.lax.with_sharding_constraint(twice(x), NamedSharding(mesh, P("a", None)))
        return constrained, twice(y), x @ y.T

    given = [
        jax.ShapeDtypeStruct((16, 8), "float32", sharding=NamedSharding(mesh, spec))
        for spec in (P("a", "b"), P("b", "a"))
    ]
    return Inspection(Program("called", jax.jit(step), tuple(given)))


@pytest.mark.compiles
@pytest.mark.parametrize(
    "name", ["called", pytest.param("parallel-3d", marks=pytest.mark.thorough)]
)
def test_values_that_differ_are_those_of_the_diff(name):
    inspection = called_differently() if name == "called" else Inspection(resolve(name))
    document = propagate_document(inspection)
    diff = inspection.propagated_diff()
    assert len(document.compared) == diff.compared
    assert document.differing == diff.different_values
