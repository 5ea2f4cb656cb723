"""What a device holds, in the browser."""

from dataclasses import replace

import pytest

from sdyscope.page import memory as report_memory
from sdyscope.page import page as report_page

pytestmark = pytest.mark.compiles


def test_both_partitioners_in_one_picture(open_page, differing):
    page = open_page(differing.html, "#memory")
    shardy, gspmd = (one.total for one in differing.report.memory.compiled)
    assert f"{shardy / gspmd:.1f} times the memory" in page.inner_text(".view-title")
    assert page.locator(".needs-stack").count() == 2
    words = page.locator(".needs-stack").first.get_attribute("aria-label")
    assert "temporaries: " in words
    widths = page.evaluate(
        """() => [...document.querySelectorAll('.needs-stack')].map((stack) =>
        [...stack.children].reduce((sum, part) => sum + part.getBoundingClientRect().width, 0))"""
    )
    assert widths[1] / widths[0] == pytest.approx(gspmd / shardy, rel=0.02)


def test_groups_are_those_of_the_memory_command(open_page, mlp):
    page = open_page(mlp.html, "#memory")
    rows = page.locator(".groups-table tbody tr:not(.groups-head)")
    groups = mlp.report.memory.compiled[0].groups
    assert rows.locator("th").all_inner_texts() == [group.name for group in groups]
    assert rows.first.locator("td").first.inner_text() == str(groups[0].tensors)
    rows.first.locator("a").click()
    page.wait_for_selector(".view[data-view=tensors]")
    assert page.input_value("[data-slot=search]") == groups[0].name


def test_suggestions_are_the_under_sharded(open_page, differing):
    page = open_page(differing.html, "#memory")
    compiled = differing.report.memory.compiled[0]
    saves = sum(tensor.saves for tensor in compiled.tensors if tensor.name in compiled.savings)
    data = report_memory.part(differing.report, None)
    assert sum(row["saves"] for row in data["programs"][0]["savings"]) == saves
    first = page.locator(".saving").first
    named = data["programs"][0]["savings"][0]
    assert named["best"] in first.inner_text()
    first.locator("a").first.click()
    page.wait_for_selector(".details")


def test_layers_that_could_be_sharded_are_one_row(differing):
    compiled = differing.report.memory.compiled[0]
    tensor = next(one for one in compiled.tensors if one.name in compiled.savings)
    layers = [replace(tensor, name=f"params['layers'][{n}]['b']") for n in range(80)]
    many = replace(compiled, tensors=(*compiled.tensors, *layers))
    report = replace(
        differing.report, memory=replace(differing.report.memory, compiled=(many, many))
    )
    rows = report_memory.part(report, None)["programs"][0]["savings"]
    folded = [row for row in rows if row["tensors"] == 80]
    assert [row["name"] for row in folded] == ["params['layers'][*]['b']"]
    assert folded[0]["saves"] == 80 * tensor.saves


def test_without_a_compile_it_says_so(open_page, unconstrained):
    for view in ("memory", "communication"):
        page = open_page(unconstrained.html, f"#{view}")
        assert "Not compiled" in page.inner_text(".missing")


def test_unknown_by_the_compiler(open_page, mlp):
    compiled = tuple(
        replace(one, compiled=replace(one.compiled, memory=None), equal=None)
        for one in mlp.report.memory.compiled
    )
    report = replace(mlp.report, memory=replace(mlp.report.memory, compiled=compiled))
    page = open_page(report_page.page(report, mlp.inspection), "#memory")
    assert "The compiler does not say" in page.inner_text(".memory")


def test_accessible(open_page, differing, violations):
    page = open_page(differing.html, "#memory")
    assert violations(page) == []
