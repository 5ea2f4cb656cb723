"""Where two partitioners begin to differ, in the browser."""

import re

import jax
import jax.numpy as jnp
import pytest

from sdyscope.analysis.diff.sides import notes_between
from sdyscope.commands import snapshot_diff
from sdyscope.facts.differences import LoneMesh, LoweredDiff
from sdyscope.hardware.names import parse_hardware
from sdyscope.inspection import Inspection, inspect
from sdyscope.page import differences as report_differences
from sdyscope.page import document as report
from sdyscope.page import page as report_page
from sdyscope.page.columns import Pool
from sdyscope.snapshots import write
from sdyscope.targets import resolve
from sdyscope.words.differences import compiled_verdict, propagated_verdict
from sdyscope.words.remarks import remark_texts

pytestmark = pytest.mark.compiles


def test_the_root_cause_comes_first(open_page, differing):
    page = open_page(differing.html, "#differences")
    title = page.inner_text(".view-title")
    assert title.startswith("Under GSPMD a device sends")
    assert " less (" in title
    first = page.locator(".place").first
    text = first.inner_text()
    assert "jvp(embed)/gather" in text
    assert "P(None, None, 'fsdp')" in text
    assert "P('fsdp', None, None)" in text
    assert "values are sharded differently from here on" in text
    assert first.locator(".compared tbody tr").count() > 5


def test_stages_say_what_the_analyses_say(open_page, differing):
    found = differing.inspection.propagated_diff()
    page = open_page(differing.html, "#differences")
    words = page.locator(".compared-words").all_inner_texts()
    assert words[0].endswith(" tensors, the same under Shardy and GSPMD")
    assert words[1] == propagated_verdict(found)
    assert words[2] == compiled_verdict(differing.inspection.compiled_diff())


def test_every_value_that_follows_can_be_listed_and_leads_to_its_row(open_page, differing):
    found = differing.inspection.propagated_diff().beginnings[0]
    page = open_page(differing.html, "#differences")
    page.click("text=/Show .* more values/")
    rows = page.locator(".follows tbody tr")
    assert rows.count() == len(found.follows)
    assert "list=1" in page.evaluate("location.hash")
    # On a narrow screen the table scrolls in its frame: no column gets a few letters.
    page.set_viewport_size({"width": 400, "height": 800})
    widths = "[...document.querySelectorAll('.follows thead th')].map((cell) => cell.offsetWidth)"
    assert min(page.evaluate(widths)) > 60
    rows.first.locator("a").click()
    page.wait_for_selector(".details")
    assert found.follows[0].value.ssa in page.inner_text(".details")


def test_places_open_by_address_and_keys(open_page, differing):
    page = open_page(differing.html, "#differences?open=2")
    assert page.locator(".place").nth(1).get_attribute("data-open") == ""
    page.keyboard.press("k")
    assert page.locator(".place").first.get_attribute("data-open") == ""
    page.locator(".place-head").first.click()
    assert page.locator(".place[data-open]").count() == 0


def test_alike_is_said(page):
    page.evaluate("location.hash = '#differences'")
    page.wait_for_selector(".compared-stages")
    marks = page.locator(".compared-stage").evaluate_all("all => all.map(one => one.dataset.tone)")
    assert marks[0] == "good"


def test_without_a_compile_the_other_stages_are_there(open_page, unconstrained):
    page = open_page(unconstrained.html, "#differences")
    assert page.locator(".place").count() > 0
    assert page.locator(".compared-stage[data-tone=muted]").count() == 1
    assert "values that" not in page.inner_text(".view-title")
    assert "sharded differently" in page.inner_text(".view-title")


def test_accessible(open_page, differing, violations):
    page = open_page(differing.html, "#differences")
    assert violations(page) == []


# --- other sides ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def golden(tmp_path_factory):
    """Two snapshot files of one program, before and after its activations are constrained."""
    made = []
    for constrained in (False, True):
        settings = {"layers": 1, "constrained": constrained}
        inspection = Inspection(resolve("fsdp-transformer", settings=settings), ("shardy",))
        path = tmp_path_factory.mktemp("golden") / f"constrained-{constrained}.txt"
        path.write_text(write([inspection.snapshot()]))
        made.append(str(path))
    return made


def test_two_snapshots(open_page, golden, violations):
    found = snapshot_diff.between(*golden, at="lowered")
    (compared,) = found.snapshots
    page = open_page(report_page.snapshots_page(found, ("before", "after")), dark=True)
    title = page.inner_text(".view-title")
    assert f"{compared.different} of {compared.different + compared.same} tensors" in title
    assert page.is_visible("text=sdyscope report A B shows the graph, memory")
    rows = page.locator(".snapshots tbody tr")
    assert rows.count() == len(compared.changes)
    added = next(one for one in compared.changes if one.what == "added")
    row = rows.nth(compared.changes.index(added))
    assert row.locator("td").first.inner_text() == "not there"
    assert added.after[0].cells[0].text in row.inner_text()
    changed = next(one for one in compared.changes if one.what == "changed")
    row = rows.nth(compared.changes.index(changed))
    assert row.locator("dd[data-tone=warning]").count() >= 2
    assert violations(page) == []


def test_two_snapshots_alike(open_page, golden):
    found = snapshot_diff.between(golden[0], golden[0], at="lowered")
    page = open_page(report_page.snapshots_page(found, ("a", "b")))
    assert page.inner_text(".view-title").startswith("The same in a and b")
    assert page.locator(".snapshots").count() == 0


def test_two_kinds_of_hardware(open_page, violations):
    one = Inspection(resolve("mlp"))
    cpu = parse_hardware("cpu:8")
    page = open_page(report_page.differences_page(one, None, cpu, cpu))
    assert "mlp: cpu:8 (a) → cpu:8 (b)" in page.title()
    assert page.inner_text(".view-title") == "The same on cpu:8 (a) and cpu:8 (b)."
    marks = page.locator(".compared-stage").evaluate_all("all => all.map(one => one.dataset.tone)")
    assert marks == ["muted", "muted", "good"]
    assert violations(page) == []


@pytest.fixture(scope="module")
def across():
    """The page of one program on CPUs and on TPUs, which store and communicate differently."""
    one = Inspection(resolve("mlp"))
    return report_page.differences_page(one, None, parse_hardware("cpu:8"), parse_hardware(TPU))


TPU = "tpu:v5e:2x4"


@pytest.mark.libtpu
@pytest.mark.parametrize("width", [400, 1280, 2560])
def test_cpus_and_tpus_beside_each_other(open_page, across, violations, width):
    page = open_page(across, width=width)
    assert page.title().startswith(f"Differences · mlp: cpu:8 → {TPU}")
    assert TPU in page.inner_text(".view-title")
    words = page.locator(".compared-words").all_inner_texts()
    assert words[0] == "It is the same program on both, lowered for Shardy."
    # Whether they send as much is the compiler's affair, and the memory is never the same.
    assert re.search(r"a device (sends|needs) ", words[2])
    # Shardings are not compared between two kinds of hardware, so nothing is said of them.
    assert page.inner_text("#rest-title") == "Collectives that differ"
    cut = page.evaluate(
        """() => [...document.querySelectorAll('.compared-tables .compared-frame')]
        .filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.textContent)"""
    )
    assert cut == []
    name = page.locator(".bar-name").evaluate("one => [one.scrollWidth, one.clientWidth]")
    assert name[0] <= name[1] or width == 400
    assert violations(page) == []


@pytest.mark.libtpu
def test_groups_stand_below_what_they_are_part_of(open_page, across):
    page = open_page(across)
    rows = page.locator(".compared-tables .compared-frame").nth(1).locator("tbody tr")
    kinds = rows.evaluate_all("all => all.map(one => one.dataset.kind)")
    names = rows.locator("th").all_inner_texts()
    results = next(name for name in names if name in ("results", "other results"))
    assert names.index("arguments") < names.index("params") < names.index(results)
    assert kinds[names.index("params")] == "argument"
    assert kinds[names.index("result[0]")] == "result"
    assert names.index(results) < names.index("result[0]") < names.index("temporaries")
    assert kinds[-1] == "total"


def test_ops_that_differ_are_a_table(open_page):
    one, two = (
        inspect(jax.jit(function), jnp.ones(4), partitioners=("shardy",), name=name)
        for name, function in (("before", jnp.tanh), ("after", jnp.sin))
    )
    page = open_page(report_page.differences_page(one, two, "Not compiled."), "")
    assert "stablehlo.tanh" in page.inner_text("[aria-label='Ops that differ']")
    assert "[object" not in page.inner_text("main")


def test_names_of_ops_are_broken_between_their_words(open_page):
    """On a telephone `stablehlo.exponential` is two lines, and not `exponentia` and `l`."""

    def named(x, function):
        with jax.named_scope("transformer_block/attention_projection"):
            return function(x)

    one, two = (
        inspect(
            jax.jit(lambda x, function=function: named(x, function)),
            jnp.ones((8, 8)),
            partitioners=("shardy",),
            name=name,
        )
        for name, function in (("before", jnp.tanh), ("after", jax.nn.softmax))
    )
    page = open_page(report_page.differences_page(one, two, "Not compiled."), "", width=420)
    lines = page.evaluate(
        """() => {
        const lines = [];
        for (const name of document.querySelectorAll("[aria-label='Ops that differ'] bdi")) {
            const range = document.createRange();
            for (const node of name.childNodes) {
                if (node.nodeType !== 3) continue;
                range.selectNodeContents(node);
                lines.push([node.data, range.getClientRects().length]);
            }
        }
        return lines;
        }"""
    )
    assert {"stablehlo.", "exponential", "attention_"} <= {word for word, _ in lines}
    assert [word for word, count in lines if count > 1] == []


def test_what_is_noted_of_a_comparison_is_on_the_page(open_page):
    """As the terminal says it: one of the two has another name for an axis."""
    sides = [
        inspect(
            jax.jit(jnp.tanh),
            jax.ShapeDtypeStruct(
                (4,),
                jnp.float32,
                sharding=jax.sharding.NamedSharding(
                    jax.sharding.AbstractMesh((2,), (axis,)), jax.sharding.PartitionSpec(axis)
                ),
            ),
            partitioners=("shardy",),
        )
        for axis in ("data", "rows")
    ]
    (note,) = remark_texts(notes_between(*sides))
    assert "rows" in note
    page = open_page(report_page.differences_page(*sides, "Not compiled."), "")
    assert note in page.locator(".note").all_inner_texts()


@pytest.fixture(scope="module")
def comparison():
    """Two programs of which one has another name for an argument and a scope, with all views."""

    def of(name, scope):
        def step(params, x):
            with jax.named_scope(scope):
                return jnp.tanh(x @ params[name])

        params = {name: jax.ShapeDtypeStruct((8, 4), jnp.float32)}
        x = jax.ShapeDtypeStruct((2, 8), jnp.float32)
        return inspect(jax.jit(step), params, x, partitioners=("shardy",), name=scope)

    one, two = of("w", "block"), of("kernel", "layer")
    documents = tuple(report.document(side, side.name, compiled=False) for side in (one, two))
    return report_page.differences_page(one, two, "Not compiled.", sides=documents)


def test_a_comparison_has_every_view_of_both_sides(open_page, comparison, violations):
    page = open_page(comparison)
    sides = page.locator(".side")
    assert sides.all_inner_texts() == ["Differences", "block", "layer"]
    assert sides.nth(0).get_attribute("aria-current") == "true"
    assert not page.is_visible(".tabs")
    assert violations(page) == []
    # From a row to the tensor on its side, and from there to the same view of the other side.
    page.click("[aria-label='Tensors that differ'] a >> text=params['kernel']")
    page.wait_for_selector(".details-name >> text=params['kernel']")
    assert page.evaluate("location.hash").startswith("#b/tensors?tensor=params['kernel']")
    assert page.locator(".tab:visible").count() == len(report_page.VIEWS)
    page.click(".tab >> text=Graph")
    page.wait_for_selector(".graph-item")
    page.click(".side >> text=block")
    page.wait_for_selector("html[data-ready] .side[data-side=a][aria-current]")
    page.wait_for_selector(".graph-item")
    assert page.evaluate("location.hash").startswith("#a/graph")
    page.click(".side >> text=Differences")
    page.wait_for_selector("html[data-ready] .view-title")


def test_what_has_another_name_is_one_row(open_page, comparison):
    page = open_page(comparison)
    rows = page.locator("[aria-label='Tensors that differ'] tbody tr").all_inner_texts()
    assert any("params['w'] → params['kernel']" in row for row in rows)
    assert not any("not there" in row for row in rows)


def test_the_title_is_of_the_last_stage_that_differs():
    alike, apart = (
        LoweredDiff(
            name="step",
            across="partitioners",
            a="shardy",
            b="gspmd",
            same_tensors=3,
            meshes=meshes,
        )
        for meshes in ((), (LoneMesh("shardy", "<[]>"),))
    )
    for stages, title in (
        ({"lowered": alike}, "The same under Shardy and GSPMD."),
        (
            {"lowered": alike, "compiled": "not compiled"},
            "The same under Shardy and GSPMD, as far as they were compared.",
        ),
        ({"lowered": "no"}, "Shardy and GSPMD could not be compared."),
        ({"lowered": apart, "propagated": alike}, "The meshes differ between Shardy and GSPMD."),
    ):
        labels, pool = ("shardy", "gspmd"), Pool({}, 1)
        drawn = report_differences._titled("step", "partitioners", labels, stages, pool)
        assert drawn["title"] == title
