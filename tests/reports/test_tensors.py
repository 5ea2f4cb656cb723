"""The tensors' table in the browser: sorted, searched, linked to, opened."""

from dataclasses import replace
from urllib.parse import quote

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.inspection import inspect
from sdyscope.page import document as report
from sdyscope.page import page as report_page
from sdyscope.words.sharding import AT_MOST
from tests.reports.waiting import until

pytestmark = pytest.mark.compiles


@pytest.fixture
def tensors(open_page, mlp):
    return open_page(mlp.html, "#tensors")


def names(page):
    """The names of the rows that are no groups, in order, as far as they are in sight."""
    return page.evaluate(
        """() => [...document.querySelectorAll('.grid-body .grid-row[data-kind=leaf]')]
        .sort((a, b) => a.dataset.index - b.dataset.index)
        .map((row) => row.querySelector('.grid-cell').title)"""
    )


def test_rows_say_what_show_says(tensors, mlp):
    row = tensors.locator(".grid-row", has=tensors.locator("[title=\"params['w1']\"]"))
    text = row.inner_text().split("\n")
    assert text[:3] == ["['w1']", "f32[128,256]", "P(None, 'model')"]
    assert "64.0 KiB" in text
    assert "✓ as requested" in text
    assert tensors.inner_text("[data-slot=count]") == f"{len(mlp.report.propagate.values)} tensors"


def test_search_finds_as_one_types(tensors):
    tensors.keyboard.press("/")
    tensors.keyboard.type("opt_state w2 128")
    assert names(tensors) == []
    tensors.fill("[data-slot=search]", "opt_state w2 'model'")
    assert names(tensors) == ["opt_state[0].mu['w2']", "opt_state[0].nu['w2']"]
    assert tensors.evaluate("location.hash") == "#tensors?q=opt_state+w2+'model'"
    tensors.fill("[data-slot=search]", "no such tensor")
    assert "No tensor has all of this." in tensors.inner_text(".grid-empty")


def test_sorts_by_bytes_down_up_and_not(tensors):
    tensors.check("[data-slot=flat]")
    title = tensors.locator("[role=columnheader]", has_text="bytes").locator("button")

    def sizes():
        return tensors.evaluate(
            """() => [...document.querySelectorAll('.grid-body .grid-row')]
            .sort((a, b) => a.dataset.index - b.dataset.index).slice(0, 12)
            .map((row) => row.querySelectorAll('.end')[0].textContent)"""
        )

    def numbers():
        units = {"B": 1, "KiB": 1024, "MiB": 1024**2}
        found = [size.split() for size in sizes() if size != "–"]
        return [float(number) * units[unit] for number, unit in found]

    title.click()
    assert numbers() == sorted(numbers(), reverse=True)
    assert "sort=bytes:desc" in tensors.evaluate("location.hash")
    title.click()
    assert numbers() == sorted(numbers())
    title.click()
    assert "sort" not in tensors.evaluate("location.hash")


def test_a_link_opens_the_tensor(open_page, mlp):
    page = open_page(mlp.html, "#tensors?tensor=opt_state[0].nu['w1']")
    details = page.inner_text(".details")
    assert "opt_state[0].nu['w1']" in details
    assert "P(None, 'model')" in details
    assert '<@mesh, [{}, {"model"}]>' in details
    assert "devices=[1,2,4]" in details
    selected = page.locator(".grid-row[aria-selected=true]")
    assert selected.count() == 1


#: What is in the cells of each column in sight whose text is wider than they are.
CUT = """() => [...document.querySelectorAll('.grid-body .grid-cell, .grid-below')]
  .filter((one) => one.querySelector('code, .spec') && one.scrollWidth > one.clientWidth)
  .map((one) => one.textContent)"""


@pytest.mark.parametrize("width", [400, 1280, 2560])
@pytest.mark.parametrize("where", ["#tensors", "#tensors?tensor=%2523"])
def test_shardings_are_not_cut(open_page, differing, where, width):
    """Other columns give way to them; where there is no room at all they stand below the name."""
    page = open_page(differing.html, where, width=width)
    page.wait_for_selector(".grid-body .grid-row")
    assert page.locator(".grid-body .spec:visible").count() > 3
    assert page.evaluate(CUT) == []


def test_a_block_that_is_an_upper_bound_is_said_to_be(open_page):
    """What was requested leaves a dimension open: its block is, what propagation decides is not."""
    mesh = AbstractMesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    data, some = (NamedSharding(mesh, P("data", *rest)) for rest in ((), (P.UNCONSTRAINED,)))
    array = jax.ShapeDtypeStruct((16, 32), jnp.float32, sharding=data)
    fun = jax.jit(lambda x: jax.lax.with_sharding_constraint(x + 1, some) * 2)
    inspection = inspect(fun, array)
    document = report.document(inspection, "f", compiled=False)
    name = next(each.name for each in document.show.tensors if each.kind == "constraint")
    where = f"#tensors?tensor={quote(name)}"
    decided = open_page(report_page.page(document, inspection), where)
    decided.wait_for_selector(".stage-lines")
    assert decided.locator("[data-slot=bound]").is_hidden()
    assert AT_MOST in decided.locator(".stage-lines li", has_text="requested").inner_text()
    assert AT_MOST not in decided.locator(".stage-lines li", has_text="propagated").inner_text()
    written = open_page(report_page.page(replace(document, propagate=None), inspection), where)
    assert written.inner_text("[data-slot=bound]") == AT_MOST


def test_names_have_their_part_of_the_room(open_page, differing):
    page = open_page(differing.html, "#tensors?tensor=params['embedding']", width=2220)
    page.wait_for_selector(".details-name")
    grid = "document.querySelector('.grid').style.getPropertyValue('--grid-columns')"
    name, *_, verdict = (float(width.removesuffix("px")) for width in page.evaluate(grid).split())
    # Which needs 15 characters and likes 17; a name needs 26 and likes 38.
    assert name > 1.7 * verdict


def test_a_sharding_is_the_same_as_one_that_is_in_sight(open_page, mlp):
    """Where there is no room for what was requested, "=" would say nothing."""
    row = "[title=\"params['w1']\"]"
    wide = open_page(mlp.html, "#tensors", width=1280)
    assert wide.locator(".grid-row", has=wide.locator(row)).locator(".same").count() > 0
    narrow = open_page(mlp.html, "#tensors", width=400)
    cells = narrow.locator(".grid-row", has=narrow.locator(row))
    assert cells.locator(".same").count() == 0
    assert cells.locator(".grid-below").inner_text() == "P(None, 'model')"


def test_a_place_in_the_source_is_whole_or_not_there(open_page, differing):
    page = open_page(differing.html, "#tensors?tensor=%2523")
    cut = page.evaluate(
        """() => [...document.querySelectorAll('.grid-row[data-kind=leaf] .at')]
        .filter((one) => one.offsetTop < 20 && one.scrollWidth > one.clientWidth).length"""
    )
    assert cut == 0


def test_a_tensor_that_is_not_there_is_said(open_page, mlp):
    page = open_page(mlp.html, "#tensors?tensor=nobody")
    assert "No tensor of this program is called nobody." in page.inner_text(".split-side")


def test_the_address_of_what_is_shown_shows_it_again(tensors, open_page, mlp):
    tensors.fill("[data-slot=search]", "params")
    tensors.click(".grid-body .grid-row[data-kind=leaf] >> nth=1")
    tensors.wait_for_selector(".details")
    shared = tensors.evaluate("location.hash")
    other = open_page(mlp.html, shared)
    assert names(other) == names(tensors)
    # Both draw parts of the details once the code of other views is there.
    details = "document.querySelector('.details').innerText"
    until(other, details, lambda shown: shown == tensors.evaluate(details))


def test_the_keyboard_alone_reaches_everything(tensors):
    tensors.focus(".grid")
    for _ in range(3):
        tensors.keyboard.press("ArrowDown")
    tensors.keyboard.press("Enter")
    tensors.wait_for_selector(".details")
    first = tensors.inner_text(".details-name")
    tensors.keyboard.press("j")
    assert tensors.inner_text(".details-name") != first
    tensors.keyboard.press("k")
    assert tensors.inner_text(".details-name") == first
    tensors.keyboard.press("Escape")
    tensors.wait_for_selector(".details", state="hidden")


def test_a_group_closes_and_the_address_remembers(tensors, open_page, mlp):
    assert names(tensors)[0] == "params['w1']"
    tensors.click(".grid-row:has(.node:text-is('params'))")
    assert names(tensors)[0] == "opt_state[0].count"
    other = open_page(mlp.html, tensors.evaluate("location.hash"))
    assert names(other)[0] == "opt_state[0].count"


def test_where_partitioners_differ_is_marked(open_page, unconstrained):
    page = open_page(unconstrained.html, "#tensors?verdict=partitioners&flat=1")
    differing = [v for v in unconstrained.report.propagate.values if v.same is False]
    assert differing
    assert page.inner_text("[data-slot=count]").startswith(f"{len(differing)} of ")
    row = page.locator(".grid-body .grid-row").first
    assert row.locator("[data-tone=warning]").count() >= 2
    assert "Shardy ≠ GSPMD" in row.inner_text()


def test_paper_has_every_row_in_light_colours(open_page, mlp):
    page = open_page(mlp.html, "#tensors", dark=True)
    count = int(page.get_attribute(".grid", "aria-rowcount")) - 1
    assert page.locator(".grid-body .grid-row").count() < count
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator(".grid-body .grid-row").count() == count
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(27, 31, 38)"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator(".grid-body .grid-row").count() < count
    assert page.evaluate("getComputedStyle(document.body).color") != "rgb(27, 31, 38)"


def test_what_was_run_has_a_column(open_page):
    from sdyscope.inspection import Inspection
    from sdyscope.page import document as report
    from sdyscope.page import page as report_page
    from sdyscope.targets import resolve

    inspection = Inspection(resolve("mlp"))
    document = report.document(
        inspection, "mlp", compiled=False, run=lambda: inspection.run(steps=1)
    )
    html = report_page.page(document, inspection)
    page = open_page(html, "#tensors?tensor=params['w1']", width=2000)
    assert "executed" in page.inner_text(".grid-head")
    assert "as placed" in page.inner_text(".details")


def test_details_lead_to_the_other_views(open_page, mlp):
    page = open_page(mlp.html, "#tensors?tensor=params['w1']")
    page.click(".details-verdict a:has-text('Propagation')")
    page.wait_for_selector(".view[data-view=propagation]")
    page.go_back()
    page.click(".details-verdict a:has-text('Graph')")
    page.wait_for_selector(".view[data-view=graph]")


def test_groups_follow_the_search_and_escape_closes_before_it_clears(open_page, mlp):
    page = open_page(mlp.html, "#tensors")
    total = ".grid-row:has(.node:text-is('params')) .muted >> nth=-1"
    whole = page.inner_text(total)
    page.fill("input[type=search]", "params['w1']")
    page.press("input[type=search]", "Enter")
    page.wait_for_selector(".details")
    assert page.inner_text(total) != whole
    w1 = page.locator(".grid-row:has(.leaf:text-is(\"['w1']\"))").first.inner_text()
    assert page.inner_text(total) in w1
    page.focus("input[type=search]")
    page.keyboard.press("Escape")
    page.wait_for_selector(".details", state="hidden")
    assert page.input_value("input[type=search]") == "params['w1']"
    page.keyboard.press("Escape")
    assert page.input_value("input[type=search]") == ""
    assert page.inner_text(total) == whole


def test_flat_rows_keep_their_path_and_details_begin_with_why(open_page, mlp):
    page = open_page(mlp.html, "#tensors?flat=1&q=w1&tensor=params['w1']")
    rows = page.locator(".grid-body .grid-row").all_inner_texts()
    assert any("['w1']" in row and "opt_state[0].mu" in row for row in rows)
    page.wait_for_selector(".details .path-line")
    titles = page.locator(".details h3:visible").all_inner_texts()
    assert titles[:3] == ["Where its axes come from", "How it came there", "Through the stages"]
    assert titles.index("In each notation") > titles.index("Placement")
