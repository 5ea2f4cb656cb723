"""The page as a whole: its frame, its keys, its colours, what it never does."""

import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

from sdyscope.inspection import inspect
from sdyscope.page import document as report
from sdyscope.page import page as report_page
from sdyscope.page.page import VIEWS
from sdyscope.words.findings import Finding

pytestmark = pytest.mark.compiles

NAMES = [view.name for view in VIEWS]


def test_the_same_report_gives_the_same_page(mlp):
    assert report_page.page(mlp.report, mlp.inspection) == mlp.html


def test_mlp_is_small(mlp):
    assert len(mlp.html.encode()) < 1_000_000


def test_nothing_in_it_names_the_network(mlp):
    without_data = re.sub(r"<script type.*?</script>", "", mlp.html, flags=re.DOTALL)
    assert not re.findall(r"""(?:src|href)=["'](?!#|data:)[^"']*""", without_data)


def test_every_view_opens_by_its_tab(page):
    for name in reversed(NAMES):
        page.click(f".tab[data-view={name}]")
        page.wait_for_selector(f"main .view[data-view={name}]")
        assert page.get_attribute(f".tab[data-view={name}]", "aria-current") == "page"
        assert page.evaluate("location.hash") == f"#{name}"
        assert page.locator("main .missing[data-tone]").count() == 0


@pytest.mark.parametrize("name", NAMES)
def test_everybody_can_use_every_view(open_page, mlp, violations, name):
    page = open_page(mlp.html, f"#{name}")
    page.wait_for_selector(f".view[data-view={name}]")
    assert violations(page) == []


def sine(axes):
    """The report of one op on a mesh, and its page."""
    kinds = (AxisType.Auto,) * len(axes)
    mesh = AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=kinds)
    spec = NamedSharding(mesh, PartitionSpec(tuple(axes)))
    asked = jax.ShapeDtypeStruct((mesh.size,), jnp.float32, sharding=spec)
    inspection = inspect(jax.jit(jnp.sin), asked, partitioners=("shardy",))
    made = report.document(inspection, "sin", compiled=False)
    return made, report_page.page(made, inspection)


@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize(
    "axes",
    [
        {"pipeline": 1, "data": 1, "expert": 2, "fsdp": 2, "seq": 1, "track": 2, "model": 1},
        {"expert_parallel": 2, "fully_sharded_data_parallel": 2, "sequence": 2, "tensor": 2},
        {"a": 64, "fully_sharded_data_parallel": 32, "sequence_parallel": 8, "tensor": 4},
    ],
)
def test_the_names_of_a_meshs_axes_do_not_cover_each_other(open_page, axes, width):
    page = open_page(sine(axes)[1], "#overview", width=width)
    page.wait_for_selector(".mesh-axis")
    boxes = page.evaluate(
        """() => [...document.querySelectorAll('.mesh-axis')].map((one) => {
          const { left, right, top, bottom } = one.getBoundingClientRect();
          return { words: one.textContent, left, right, top, bottom };
        })"""
    )
    over = [
        (a["words"], b["words"])
        for at, a in enumerate(boxes)
        for b in boxes[at + 1 :]
        if a["left"] < b["right"] - 1
        and b["left"] < a["right"] - 1
        and a["top"] < b["bottom"] - 3
        and b["top"] < a["bottom"] - 3
    ]
    assert over == []
    assert max(box["right"] for box in boxes) <= width
    said = page.get_attribute(".mesh", "aria-label")
    assert all(f"{name} {size}" in said for name, size in axes.items())


@pytest.mark.parametrize("width", [400, 1280, 2560])
def test_nothing_is_wider_than_the_window(open_page, mlp, width):
    page = open_page(mlp.html, width=width)
    for name in NAMES:
        page.evaluate(f"location.hash = '#{name}'")
        page.wait_for_selector(f"main .view[data-view={name}]")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        assert page.evaluate("document.querySelector('main').scrollWidth") <= width, name


def test_keys_open_views_and_the_list_of_keys(page):
    page.keyboard.press("g")
    page.keyboard.press("t")
    page.wait_for_selector(".view[data-view=tensors]")
    page.keyboard.press("?")
    listed = page.inner_text("dialog.help")
    assert "Search" in listed
    assert "Overview" in listed
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog.help", state="detached")
    page.keyboard.press("g")
    page.keyboard.press("o")
    page.wait_for_selector(".view[data-view=overview]")


def test_back_returns_to_the_view_before(page):
    page.click(".tab[data-view=tensors]")
    page.wait_for_selector(".view[data-view=tensors]")
    page.click(".tab[data-view=findings]")
    page.wait_for_selector(".view[data-view=findings]")
    page.go_back()
    page.wait_for_selector(".view[data-view=tensors]")


def test_an_address_of_no_view_shows_the_first(open_page, mlp):
    page = open_page(mlp.html, "#nothing?x=1")
    assert page.get_attribute("main .view", "data-view") == "overview"


def test_the_button_changes_the_colours(page):
    def background():
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    light = background()
    page.click("#theme")
    assert background() == light  # light, as the system
    page.click("#theme")
    assert background() != light
    assert page.get_attribute("#theme", "aria-label") == "Colours: dark"


def test_without_javascript_it_says_so(open_page, mlp, browser, tmp_path):
    file = tmp_path / "plain.html"
    file.write_text(mlp.html)
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(file.as_uri())
    assert "JavaScript" in page.inner_text("noscript")
    context.close()


def test_headlines_lead_to_views_that_there_are(mlp, unconstrained):
    for made in (mlp, unconstrained):
        assert {headline.view for headline in made.report.headlines} <= set(NAMES)


def test_a_headline_leads_to_what_it_is_about(page):
    page.click(".headline a >> nth=0")
    page.wait_for_selector("main .view:not([data-view=overview])")


def test_a_view_that_there_is_not_is_said(open_page, mlp):
    page = open_page(mlp.html, "#nowhere")
    assert page.inner_text("main > .missing") == "This page has no view called “nowhere”."
    page.click(".tab[data-view=tensors]")
    page.wait_for_selector(".view[data-view=tensors]")
    assert page.locator("main > .missing").count() == 0


def test_where_nothing_was_found_there_is_nothing_to_filter(open_page):
    made, html = sine({"data": 4, "model": 2})
    assert made.findings == ()
    page = open_page(html, "#findings")
    page.wait_for_selector(".findings-none")
    left_out = {one.rule for one in made.lint.not_run if one.applies}
    looked = len(made.lint.rules) - len(left_out)
    assert "Nothing was found." in page.inner_text(".findings-none")
    assert f"{looked} rules looked" in page.inner_text(".findings-none")
    assert page.is_hidden("[data-slot=severity]")


def test_rules_that_could_not_be_run_are_said(open_page, unconstrained):
    page = open_page(unconstrained.html, "#findings")
    page.wait_for_selector(".findings")
    for one in unconstrained.report.lint.not_run:
        if one.applies:
            assert one.rule in page.inner_text(".findings")
            assert one.reason in page.inner_text(".findings")


def test_where_nothing_is_requested_that_is_what_is_said():
    inspection = inspect(jax.jit(jnp.sin), jax.ShapeDtypeStruct((8,), jnp.float32))
    made = report.document(inspection, "sin", compiled=False)
    assert made.headlines[0].words.startswith("No sharding is requested")
    requested = made.stages[0]
    assert (requested.state, requested.verdict) == ("unknown", "nothing")
    assert requested.words == "No sharding is requested: 2 tensors are left to the compiler."


def test_what_to_do_stands_at_its_finding(open_page, mlp):
    """Once for all findings of a rule that have it in common."""
    finding = Finding("a-rule", "note", "It is so.", hint="Do this.")
    other = replace(finding, message="It is so, too.", hint="Do that.")
    alike = replace(finding, rule="another")
    lint = replace(
        mlp.report.lint, findings=(finding, other, alike, replace(alike, message="And this."))
    )
    html = report_page.page(replace(mlp.report, lint=lint), mlp.inspection)
    page = open_page(html, "#findings")
    page.wait_for_selector(".finding")
    assert page.locator(".finding .finding-hint").all_inner_texts() == ["Do this.", "Do that."]
    assert page.locator(".finding-group > .finding-hint").all_inner_texts() == ["Do this."]
