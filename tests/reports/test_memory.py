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
    assert sum(row["saves"] for row in data["holds"][0]["savings"]) == saves
    first = page.locator("[data-slot=savings] .saving").first
    named = data["holds"][0]["savings"][0]
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
    rows = report_memory.part(report, None)["holds"][0]["savings"]
    folded = [row for row in rows if row["tensors"] == 80]
    assert [row["name"] for row in folded] == ["params['layers'][*]['b']"]
    assert folded[0]["saves"] == 80 * tensor.saves


def test_without_a_compile_it_says_so(open_page, unconstrained):
    for view in ("memory", "communication"):
        page = open_page(unconstrained.html, f"#{view}")
        assert "Left out by --no-compile" in page.inner_text(".missing")


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


def test_memory_over_the_step_on_one_scale(open_page, differing):
    page = open_page(differing.html, "#memory")
    found = differing.report.memory.over_time
    assert page.locator(".step-svg").count() == len(found) == 2
    tops = page.locator(".step-scale span:first-child").all_inner_texts()
    assert len(set(tops)) == 1
    # The peak is as far up as it is large, of the larger one.
    top = max(one.peak for one in found)
    for number, one in enumerate(found):
        area = page.locator(".step-area").nth(number).bounding_box()
        mark = page.locator(".step-peak").nth(number).bounding_box()
        middle = mark["y"] + mark["height"] / 2
        assert (area["y"] + area["height"] - middle) / area["height"] == pytest.approx(
            one.peak / top, abs=0.02
        )
    words = page.locator(".step-readout").first.inner_text()
    assert f"instruction {found[0].position + 1:,} of" in words


def test_another_moment_is_chosen_by_keyboard_and_by_click(open_page, mlp):
    page = open_page(mlp.html, "#memory")
    over_time = mlp.report.memory.over_time[0]
    page.locator(".step-range").first.focus()
    page.keyboard.press("Home")
    first = over_time.moments[0]
    page.wait_for_function(
        "words => document.querySelector('.step-readout').innerText.includes(words)",
        arg=f"instruction {first.position + 1:,} of",
    )
    assert "at=0" in page.url
    box = page.locator(".step-area").first.bounding_box()
    page.mouse.click(box["x"] + box["width"] - 2, box["y"] + 20)
    last = over_time.moments[-1]
    assert f"instruction {last.position + 1:,} of" in page.inner_text(".step-readout")


def test_what_is_held_at_the_peak_leads_to_its_tensor(open_page, mlp):
    page = open_page(mlp.html, "#memory")
    over_time = mlp.report.memory.over_time[0]
    rows = page.locator(".holding")
    assert rows.first.locator(".collective-size").inner_text() != ""
    argument = next(one for one in over_time.held if not one.op)
    page.locator(".holding a", has_text=argument.name).first.click()
    page.wait_for_selector(".details")


@pytest.mark.parametrize(("width", "dark"), [(400, False), (2560, True)])
def test_the_picture_is_no_wider_than_the_window(open_page, differing, width, dark):
    page = open_page(differing.html, "#memory", width=width, dark=dark)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(".step-area").first.bounding_box()["width"] > width / 4
    # A figure is in its part of the bar, or it is not shown.
    parts = page.locator(".needs-stack .stack-part", has=page.locator("span"))
    assert parts.count()
    for part in parts.all():
        text = part.locator("span").bounding_box()
        assert text is None or text["width"] <= part.bounding_box()["width"]


def test_nothing_over_the_step_where_nothing_is_scheduled(open_page, mlp):
    report = replace(mlp.report, memory=replace(mlp.report.memory, over_time=()))
    page = open_page(report_page.page(report, mlp.inspection), "#memory")
    assert page.locator("[data-slot=step]").is_hidden()
