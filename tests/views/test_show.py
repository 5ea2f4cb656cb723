"""The table of tensors where something is not as it was requested, or not known."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from programs import EXPLICIT, array

from sdyscope.analysis.naming.globs import glob
from sdyscope.analysis.show import sections, shown
from sdyscope.errors import CompilerError
from sdyscope.facts.tensors import TensorTable
from sdyscope.inspection import Inspection, inspect
from sdyscope.stages.lowered.read import read_bytes
from sdyscope.syntax.hlo_sharding import parse_hlo_sharding
from sdyscope.syntax.shardy import parse_tensor_sharding
from sdyscope.targets import resolve
from sdyscope.terminal.table import Cell
from sdyscope.values.convert import to_placement
from sdyscope.values.mesh import Mesh
from sdyscope.views import show
from sdyscope.words.places import shown_name
from sdyscope.words.sharding import short

MESH = Mesh.of({"data": 4, "model": 2})


def with_tensor(name, change):
    """The mlp's document with one row of its table changed."""
    inspection = Inspection(resolve("mlp"))
    rows = inspection.tensors.tensors
    changed = TensorTable(tuple(change(row) if row.name == name else row for row in rows))
    inspection.__dict__["tensors"] = changed
    return shown(inspection)


def cells(program, name, columns=None, **options):
    table = show.table(columns, program, **options)
    return {
        column.header: cell
        for row in table.cells
        for column, cell in zip(table.columns, row, strict=True)
        if row[0].text == name
    }


def footer(program, columns=None, **options):
    table = show.table(columns, program, **options)
    return "\n".join(paragraph.text for paragraph in show.footer(program, table))


def lowered_as(text, rank=2):
    def change(row):
        sharding = parse_tensor_sharding(text)
        there = replace(
            row.lowered["shardy"],
            sharding=sharding,
            placement=to_placement(sharding, rank, MESH),
            open_dims=tuple(k for k, d in enumerate(sharding.dim_shardings) if not d.is_closed),
        )
        return replace(row, lowered={**row.lowered, "shardy": there})

    return change


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ('<@mesh, [{"model"}, {}]>', "P('model', None)"),
        ('<@mesh, [{}, {"model", ?}]>', "[{}, {model, ?}]"),
        ('<@mesh, [{}, {"data":(1)2}]>', "[{}, {data:(1)2}]"),
        ("<@mesh, [{?}, {}]>", "P(UNCONSTRAINED, None)"),
    ],
)
def test_a_disagreement_is_marked(written, shown):
    program = with_tensor("params['w1']", lowered_as(written))
    row = cells(program, "params['w1']")
    assert row["Shardy"] == Cell(shown, "bad")
    assert row["GSPMD"] == Cell("=", "muted")
    assert "1 tensor is lowered otherwise than requested: sdyscope check says how" in footer(
        program
    )


def test_disagreements_keep_a_column_of_a_narrow_table():
    program = with_tensor("params['w1']", lowered_as('<@mesh, [{"model"}, {}]>'))
    row = cells(program, "params['w1']", columns=80)
    assert row["lowered"] == Cell("Shardy P('model', None)\nGSPMD =", "bad")
    assert cells(program, "params['w2']", columns=80)["lowered"] == Cell("=", "muted")
    assert "lowered as requested" not in footer(program, columns=80)
    assert "=  as requested" in footer(program, columns=80)


@pytest.mark.parametrize("differ", [False, True])
def test_what_jax_wrote_takes_no_columns_of_a_narrow_table(differ):
    """Nobody could request it: it stands where others have their request."""
    program = shown(Inspection(resolve("mlp")))
    at = [tensor.name for tensor in program.tensors].index("params['w1']")
    lowered = dict(program.tensors[at].lowered)
    if differ:
        lowered["gspmd"] = replace(
            lowered["gspmd"], sharding=parse_hlo_sharding("{manual}"), placement=None
        )
    by_jax = replace(
        program.tensors[at],
        name="by JAX",
        by_author=False,
        requested=None,
        agrees={},
        lowered=lowered,
    )
    program = replace(program, tensors=(*program.tensors[:at], by_jax, *program.tensors[at + 1 :]))
    assert {"requested", "Shardy", "GSPMD"} <= cells(program, "by JAX").keys()
    row = cells(program, "by JAX", columns=80)
    assert list(row)[2:4] == ["sharding", "block"]
    both = "P(None, 'model')"
    assert row["sharding"].text == (f"Shardy {both}\nGSPMD {{manual}}" if differ else both)
    assert cells(program, "params['w2']", columns=80)["sharding"].text == "P('model', None)"
    said = "every request is lowered as requested under Shardy and GSPMD"
    assert said in footer(program, columns=80)


def test_a_tensor_that_a_module_lacks():
    def change(row):
        return replace(row, lowered={"gspmd": row.lowered["gspmd"]})

    row = cells(with_tensor("params['w1']", change), "params['w1']")
    assert row["Shardy"] == Cell("missing", "bad")


def test_files_and_shapes_that_are_not_known():
    text = """
    module @m {
      func.func public @main(%x: tensor<?xf32>, %y: tensor<4xf32> {mhlo.sharding = "{bad}"})
          -> tensor<?xf32> {
        return %x : tensor<?xf32>
      }
    }
    """
    program = shown(Inspection(read_bytes(text.encode())))
    x, y = program.tensors[:2]
    assert (x.shape, x.bytes) == (None, None)
    assert y.lowered["gspmd"].problem
    table = show.table(None, program)
    assert [row[1].text for row in table.cells] == ["f32[?]", "f32[4]", "f32[?]"]
    assert table.cells[1][2] == Cell("! {bad}", "bad")
    assert [cell.text for cell in table.cells[1][3:]] == ["!", "!", "!"]
    said = footer(program)
    assert "(1 tensor with an impossible sharding, not counted; 1 tensor of unknown" in said
    assert "!  a sharding that can't be read or is impossible" in said
    assert (
        "not known (1)\nargument main(1) at line 3 under GSPMD: {bad} could not be read: " in said
    )


def test_an_hlo_sharding_needs_a_mesh_to_be_a_partition_spec():
    inspection = Inspection(resolve("mlp"), ["gspmd"])
    there = next(a for a in inspection.annotations() if a.path == "params['w1']")
    assert short(there.sharded({}, MESH)) == "P(None, 'model')"
    assert short(there.sharded({}, None)) == there.text
    sharding = parse_hlo_sharding("{maximal device=3}")
    alone = replace(there, sharding=sharding, placement=to_placement(sharding, 2, MESH))
    assert short(alone.sharded({}, MESH)) == "device 3"


def test_a_partitioner_that_is_not_there():
    program = resolve("mlp")
    inspection = Inspection(program)
    inspection.__dict__["_lowered"] = (
        dict(Inspection(program, ["shardy"]).lowered),
        {"gspmd": CompilerError("This JAX has no GSPMD.")},
    )
    program = shown(inspection)
    assert program.partitioners == ("shardy",)
    assert "GSPMD: not lowered: This JAX has no GSPMD" in footer(program)
    assert cells(program, "params['w1']")["Shardy"] == Cell("=", "muted")


@pytest.mark.parametrize(
    ("pattern", "matches", "no_match"),
    [
        ("params['layers'][0]*", "params['layers'][0]['wq']", "params['layers'][1]['wq']"),
        ("*['w?']", "a['w1']", "a['w12']"),
        ("jit(f)/*", "jit(f)/x", "jit(g)/x"),
    ],
)
def test_globs_take_brackets_as_they_are(pattern, matches, no_match):
    assert glob(pattern).fullmatch(matches)
    assert not glob(pattern).fullmatch(no_match)


@pytest.mark.parametrize(
    ("name", "kind", "shown"),
    [
        ("jit(step)/jvp(layer0)", "constraint", "jvp(layer0)"),
        ("jit(step)", "constraint", "jit(step)"),
        ("params['a/b']", "argument", "params['a/b']"),
        ("jit(step)/attention #1", "shard_map input", "attention #1 input"),
    ],
)
def test_names_do_without_the_programs_own(name, kind, shown):
    assert shown_name(name, kind) == shown


def test_what_jax_wrote_is_what_the_annotations_say():
    """On Explicit axes, what a function returns has a constraint where it is called, too."""
    x = array((16, 32), "data", "model", mesh=EXPLICIT)
    inspection = inspect(jax.jit(lambda x: jax.nn.relu(jnp.tanh(x))), x, partitioners=["shardy"])
    written = inspection.annotations("shardy")
    by_jax = dict(sections(shown(inspection).tensors))["by JAX"]
    assert len(by_jax) == sum(each.named_kind == "type" for each in written) > 1
