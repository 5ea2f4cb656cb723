"""The modules' text in the browser: folded, searched, each name linked."""

import re

import pytest

from sdyscope.views.report_ir import WIDTH, broken, elided

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
    ir.click(".details .pairs a >> nth=1")
    ir.wait_for_selector(".view[data-view=tensors] .details")
    assert "%23" in ir.inner_text(".details")
    ir.click(".details >> text=%23 in the module")
    ir.wait_for_selector(".view[data-view=ir] .ir-line[data-current]")
    assert "value=%2523" in ir.evaluate("location.hash")


def test_the_second_module_leads_to_the_same_tensor(open_page, differing):
    """Its names are others; the row is that of the value in the first module."""
    page = open_page(differing.html, "#ir?under=gspmd&q=stablehlo.gather")
    page.wait_for_selector(".ir-line[data-match]")
    page.locator(".ir-line[data-match] [data-value]").first.click()
    page.wait_for_selector(".details")
    assert "P('fsdp', None, None)" in page.inner_text(".details .pairs")
    page.click(".details .pairs a >> nth=1")
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
    short, number = elided(text)
    assert number == 1
    assert short == "%c = stablehlo.constant dense</* 1,004 characters */> : tensor<500xi8>"
    assert elided("dense<[1, 2]>") == ("dense<[1, 2]>", 0)


def test_broken_lines_are_the_same_tokens(differing):
    for module in differing.inspection.lowered.values():
        for line in module.text(debug_info=False).splitlines():
            pieces = list(broken(line))
            assert "".join("".join(pieces).split()) == "".join(line.split())
            assert len(pieces) == 1 or max(map(len, pieces)) < max(2 * WIDTH, len(line))


@pytest.mark.parametrize("dark", [False, True])
def test_accessible(open_page, differing, violations, dark):
    page = open_page(differing.html, "#ir?value=%2523", dark=dark)
    page.wait_for_selector(".details")
    assert violations(page) == []
