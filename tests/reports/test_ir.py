"""The modules' text in the browser: folded, searched, each name linked, before and after."""

import re

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

from sdyscope.graph import build
from sdyscope.inspection import inspect
from sdyscope.page import document as report
from sdyscope.page import ir as report_ir
from sdyscope.page.columns import Pool
from sdyscope.page.ir import WIDTH, IrLine, broken, elided, lines_of, text_part, written_in
from sdyscope.stages import compat

pytestmark = pytest.mark.compiles


@pytest.fixture
def ir(open_page, differing):
    return open_page(differing.html, "#ir")


def line_of(page, number):
    found = page.locator(".ir-line", has=page.locator(f".ir-gutter:text-is('{number}')")).first
    return found.locator("code").inner_text()


def test_the_text_is_the_modules_text(ir, differing):
    lines = differing.inspection.lowered["shardy"].text(debug_info=False).splitlines()
    assert ir.inner_text("[data-slot=count]") == f"{len(lines):,} lines"
    assert line_of(ir, 2) == lines[1]
    ir.click("[data-slot=partitioner] >> text=GSPMD")
    other = differing.inspection.lowered["gspmd"].text(debug_info=False).splitlines()
    assert ir.inner_text("[data-slot=count]") == f"{len(other):,} lines"


def test_lines_of_ops_without_names():
    """Shardy's ops have none; each line is of the op that it is of where they have."""

    def step(w, x):
        def layer(x, _):
            x = jax.lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x @ w)
            low, high = jnp.sort(x), jnp.argmax(x, axis=1)
            return low + high[:, None], jnp.max(x)

        x, largest = jax.lax.scan(layer, x, length=3)
        return jax.lax.reduce_window(x, 0.0, jax.lax.add, (2, 2), (1, 1), "VALID"), largest

    mesh = AbstractMesh((2,), ("a",))
    rows = NamedSharding(mesh, PartitionSpec("a"))
    shapes = [jax.ShapeDtypeStruct((8, 8), jnp.float32, sharding=each) for each in (None, rows)]
    inspection = inspect(jax.jit(step), *shapes)
    propagated = inspection.propagated("shardy")
    context = inspection.lowered["shardy"].context
    named = build(compat.ir.Module.parse(propagated.text, context))
    pairs = [
        [None if op is None else op.id for _, op in lines_of(propagated.text, graph)]
        for graph in (propagated.graph, named)
    ]
    assert pairs[0] == pairs[1]
    assert len([node for node in pairs[0] if node is not None]) > 30


def test_a_name_shows_its_definition_and_uses(ir, differing):
    lines = differing.inspection.lowered["shardy"].text(debug_info=False).splitlines()
    ir.evaluate("location.hash = '#ir?value=%2523'")
    ir.wait_for_selector(".details")
    defined = next(at for at, line in enumerate(lines) if line.startswith("    %23 = "))
    uses = [at for at, line in enumerate(lines) if at != defined and re.search(r"%23\b", line)]
    assert f"line {defined + 1}" in ir.inner_text(".details .pairs")
    assert ir.locator(".ir-uses a").all_inner_texts() == [f"line {at + 1:,}" for at in uses]
    assert ir.locator(".ir-line[data-current]").first.inner_text().count("%23") == 1
    ir.locator(".ir-uses a").first.click()
    assert ir.locator(".ir-line[data-current] [data-chosen]").count() >= 1


def test_from_a_name_to_its_tensor_and_back(ir):
    ir.evaluate("location.hash = '#ir?value=%2523'")
    ir.click('.details .pairs a[href^="#tensors"] >> nth=0')
    ir.wait_for_selector(".view[data-view=tensors] .details")
    assert "%23" in ir.inner_text(".details")
    ir.click(".details >> text=%23 in the module")
    ir.wait_for_selector(".view[data-view=ir] .ir-line[data-current]")
    assert "of=%2523" in ir.evaluate("location.hash")


def test_the_second_module_leads_to_the_same_tensor(open_page, differing):
    """Its names are others; the row is that of the value in the first module."""
    page = open_page(differing.html, "#ir?under=gspmd&q=stablehlo.gather")
    page.wait_for_selector(".ir-line[data-match]")
    page.locator(".ir-line[data-match] [data-value]").first.click()
    page.wait_for_selector(".details")
    assert "P('fsdp', None, None)" in page.inner_text(".details .pairs")
    page.click('.details .pairs a[href^="#tensors"] >> nth=0')
    page.wait_for_selector(".view[data-view=tensors] .details")
    assert "gather" in page.inner_text(".details")


def test_search_steps_through_lines(ir):
    ir.keyboard.press("/")
    ir.keyboard.type("dot_general layer1")
    assert re.fullmatch(r"\d+ lines found", ir.inner_text("[data-slot=count]"))
    ir.keyboard.press("Enter")
    assert ir.inner_text("[data-slot=count]").startswith("1 of ")
    ir.keyboard.press("Enter")
    assert ir.inner_text("[data-slot=count]").startswith("2 of ")
    assert "dot_general" in ir.locator(".ir-line[data-current]").first.inner_text()


def test_functions_fold(ir):
    before = ir.locator(".ir-body").evaluate("one => one.offsetHeight")
    ir.click("[data-slot=foldAll]")
    assert ir.locator(".ir-body").evaluate("one => one.offsetHeight") < before
    assert "fold=" in ir.evaluate("location.hash")
    ir.focus(".ir-pane")
    ir.keyboard.press("End")
    folded = ir.locator(".ir-folded").count()
    assert folded >= 1
    ir.locator("button.ir-fold[aria-expanded=false]").first.click()
    address = ir.evaluate("location.hash")
    assert "fold=all" not in address
    assert len(address.partition("fold=")[2].partition("&")[0].split(".")) == folded - 1
    ir.click("[data-slot=foldAll]")
    ir.evaluate("location.hash = '#ir?fold=all&line=30'")
    assert line_of(ir, 30)


def test_where_values_end_is_beside_their_line(ir):
    ir.evaluate("location.hash = '#ir?value=%2523'")
    place = ir.locator(".ir-line[data-current]")
    assert ir.locator(".ir-place").count() > 3
    assert place.count() >= 1
    ir.uncheck("[data-slot=places]")
    assert ir.locator(".ir-place").count() == 0


def test_few_lines_are_elements(ir):
    assert ir.locator(".ir-line").count() < 120


def test_what_is_not_there_is_said(open_page, differing):
    page = open_page(differing.html, "#ir?value=%25nothing&line=999999")
    assert "No value of this module is called %nothing." in page.inner_text(".missing")


def test_large_constants_are_left_out():
    text = f'%c = stablehlo.constant dense<"0x{"0F" * 500}"> : tensor<500xi8>'
    assert elided(text) == "%c = stablehlo.constant dense</* 1,004 characters */> : tensor<500xi8>"
    assert elided("dense<[1, 2]>") == "dense<[1, 2]>"


def test_what_is_donated_is_left_out_of_a_modules_first_line():
    each = '{alias = {kind = "may_alias", parameter_index = array<i64>}, output_index = array<i64>}'
    donated = ", ".join([each] * 20)
    text = f"module @jit_f attributes {{mhlo.input_output_alias = [{donated}], a = 1}} {{"
    short = elided(text)
    assert re.fullmatch(
        r"module @jit_f attributes \{mhlo.input_output_alias = "
        r"\[/\* [\d,]+ characters \*/\], a = 1\} \{",
        short,
    )
    assert elided(text.replace(donated, each)).count("may_alias") == 1


def test_broken_lines_are_the_same_tokens(differing):
    for module in differing.inspection.lowered.values():
        for line in module.text(debug_info=False).splitlines():
            pieces = list(broken(line, written_in(line)))
            assert "".join("".join(pieces).split()) == "".join(line.split())
            assert len(pieces) == 1 or max(map(len, pieces)) < max(2 * WIDTH, len(line))


def test_a_sharding_stays_in_one_piece(differing):
    for partitioner in ("shardy", "gspmd"):
        written = re.compile(r"sdy\.sharding = #sdy[^}]*|mhlo\.sharding = \"[^\"]*\"")
        for line in differing.inspection.propagated(partitioner).text.splitlines():
            pieces = list(broken(line, written_in(line)))
            for sharding in written.findall(line):
                assert any(sharding in piece for piece in pieces), line
            assert len(pieces) == 1 or max(map(len, pieces)) < max(2 * WIDTH, len(line))


@pytest.mark.parametrize("under", ["shardy", "gspmd"])
def test_the_text_after_propagation_is_the_compilers(open_page, differing, under):
    page = open_page(differing.html, f"#ir?under={under}&at=propagated")
    page.wait_for_selector(".ir-line")
    lines = differing.inspection.propagated(under).text.splitlines()
    mark = "sdy.sharding = #sdy.sharding_per_value" if under == "shardy" else "mhlo.sharding = "
    ops = [line for line in lines if re.match(r" +%[\w.$-]+(:\d+)? = ", line)]
    # Nothing is constrained inside: all that stands on an op there, propagation added.
    added = sum(mark in line for line in ops)
    assert page.inner_text("[data-slot=count]") == (
        f"{len(lines):,} lines · + {added:,} shardings added"
    )
    page.fill("[data-slot=search]", "stablehlo.gather")
    page.wait_for_selector(".ir-line[data-match]")
    marked = page.locator(".ir-change").first
    assert marked.inner_text().startswith(mark)
    assert marked.get_attribute("title") == "Propagation added this sharding."


def test_the_lowered_text_has_no_marks(ir):
    assert "added" not in ir.inner_text("[data-slot=count]")
    assert ir.locator(".ir-change").count() == 0


def test_a_value_stays_chosen_in_the_other_text(open_page, differing):
    """Its name is another one there, and so is the line."""
    page = open_page(differing.html, "#ir?under=gspmd&q=stablehlo.gather")
    page.wait_for_selector(".ir-line[data-match]")
    page.locator(".ir-line[data-match] [data-value]").first.click()
    page.wait_for_selector(".details")
    name = page.inner_text(".details-name")
    tensor = page.locator(".details .pairs a", has_text="embed").inner_text()
    page.click("[data-slot=stage] >> text=Propagated")
    page.wait_for_selector(".ir-change")
    assert "stablehlo.gather" in page.inner_text(".ir-line[data-current]")
    assert page.locator(".details .pairs a", has_text="embed").inner_text() == tensor
    there = page.inner_text(".details-name")
    assert there != name
    page.click("[data-slot=partitioner] >> text=Shardy")
    page.wait_for_selector(".ir-change >> text=sdy.sharding")
    assert "stablehlo.gather" in page.inner_text(".ir-line[data-current]")
    page.click("[data-slot=partitioner] >> text=GSPMD")
    page.click(".details >> text=the same value there")
    assert page.inner_text(".details-name") == name
    assert "at=" not in page.evaluate("location.hash")


def test_the_line_in_sight_stays_in_sight_in_the_other_text(ir):
    ir.evaluate("location.hash = '#ir?q=layer1+rsqrt'")
    ir.keyboard.press("n")
    scope = ir.locator(".ir-line[data-current]").first.get_attribute("title")
    ir.keyboard.press("p")
    ir.wait_for_selector(".ir-change")
    there = ir.locator(".ir-line[data-current]").first
    assert there.get_attribute("title") == scope
    assert "stablehlo.rsqrt" in there.inner_text()


def test_what_is_gone_after_propagation_is_said(open_page, differing):
    inspection = differing.inspection
    gone = next(
        one.id for one in inspection.propagated("shardy").values.values() if one.fate == "folded"
    )
    name = inspection.graph("shardy").ops[gone[0]].name
    page = open_page(differing.html, f"#ir?at=propagated&of={name.replace('%', '%25')}")
    assert f"{name} is not in the module any more" in page.inner_text(".missing:not([hidden])")


@pytest.mark.parametrize("under", ["shardy", "gspmd"])
def test_a_sharding_that_propagation_filled_in_is_marked_as_changed(under):
    mesh = AbstractMesh((4, 2), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
    asked = jax.ShapeDtypeStruct(
        (8, 8), jnp.float32, sharding=NamedSharding(mesh, PartitionSpec("a"))
    )
    open_spec = PartitionSpec(PartitionSpec.UNCONSTRAINED, "b")

    def step(x):
        y = jax.lax.with_sharding_constraint(jnp.sin(x), NamedSharding(mesh, open_spec))
        return jnp.cos(y)

    inspection = inspect(jax.jit(step), asked, partitioners=(under,))
    made = report.document(inspection, "step", compiled=False)
    found = report_ir.later(made, Pool(inspection.meshes, 8), inspection)[f"ir-propagated-{under}"]
    assert found["counts"]["changed"] == 1
    lines = found["text"].split("\n")
    marks = found["marks"]
    each = (
        [marks["distinct"][code] for code in marks["codes"]]
        if "codes" in marks
        else (marks["values"])
    )
    changed = [
        line[mark[0] : mark[1]] for line, mark in zip(lines, each, strict=True) if "changed" in mark
    ]
    whole = {"shardy": '<@mesh, [{"a"}, {"b"}]>', "gspmd": 'mhlo.sharding = "{devices=[4,2]<=[8]}"'}
    assert changed == [whole[under]]


def test_marks_are_where_a_broken_line_has_them():
    line = f"    %0 = stablehlo.add {', '.join(f'%long_name_{n}' for n in range(12))} " + (
        '{sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"a"}]>]>} : tensor<4xf32>'
    )
    found = text_part(Pool({}, 1), [IrLine(line, changes=("added",))])
    lines = found["text"].split("\n")
    assert len(lines) > 1
    marks = [
        text[mark[0] : mark[1]]
        for text, mark in zip(lines, found["marks"]["values"], strict=True)
        if mark
    ]
    assert marks == ['sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"a"}]>]>']


@pytest.mark.parametrize("where", ["#ir?value=%2523", "#ir?at=propagated&of=%2523"])
def test_accessible(open_page, differing, violations, where):
    page = open_page(differing.html, where)
    page.wait_for_selector(".details")
    assert violations(page) == []
