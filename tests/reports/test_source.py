"""The author's source, in the browser."""

from pathlib import Path

import pytest

from sdyscope.page import page as report_page
from sdyscope.page import source as report_source
from sdyscope.page.columns import Pool
from sdyscope.words.counts import size
from sdyscope.words.paths import file_text, paths_from

pytestmark = pytest.mark.compiles


def model(made):
    """The file of the model and its lines."""
    return next(file for file in made.report.source.files if file.file.endswith("mlp.py"))


def busiest(made):
    """The line that sends most, and the text that names it."""
    file = model(made)
    line = max(file.lines, key=lambda line: line.sent.get("shardy", 0))
    return line, f"{file_text(file.file)}:{line.line}"


def test_each_line_has_its_text_and_what_it_sends(open_page, mlp):
    page = open_page(mlp.html, "#source")
    file = model(mlp)
    section = page.locator(".source-section", has_text=file_text(file.file))
    texts = section.locator(".source-code").all_inner_texts()
    assert [text.rstrip() for text in texts] == [line.text.rstrip() for line in file.lines]
    line, _ = busiest(mlp)
    row = section.locator(".source-line", has=page.get_by_role("button", name=f"Line {line.line}"))
    assert row.locator(".source-figure").first.inner_text() == size(line.sent["shardy"])
    assert "all-reduce" in row.locator(".source-beside").inner_text()
    # An axis has one colour on the page, in the margin too.
    assert row.locator(".source-beside .axis[data-axis]").count() > 0


def test_numbers_of_lines_stand_below_each_other_on_a_phone(open_page, mlp):
    page = open_page(mlp.html, "#source", width=390, height=844)
    edges = page.eval_on_selector_all(
        ".source-line .source-number",
        "numbers => numbers.map((number) => Math.round(number.getBoundingClientRect().right))",
    )
    assert len(edges) > 10
    assert max(edges) - min(edges) <= 1
    # A line without values takes one row: its code is beside its number.
    quiet = page.locator(".source-line[data-quiet]").first
    boxes = [quiet.locator(part).bounding_box() for part in (".source-number", ".source-code")]
    assert boxes[1]["x"] >= boxes[0]["x"] + boxes[0]["width"]
    # Code is equally far in with and without values, so that indentation is seen.
    starts = page.eval_on_selector_all(
        ".source-line .source-code",
        "lines => lines.map((line) => Math.round(line.getBoundingClientRect().left))",
    )
    assert max(starts) - min(starts) <= 1


def test_a_line_opens_with_its_causes_and_leads_to_its_collectives_and_back(open_page, mlp):
    page = open_page(mlp.html, "#source")
    line, name = busiest(mlp)
    section = page.locator(".source-section", has_text=name.rpartition(":")[0])
    section.get_by_role("button", name=f"Line {line.line}").click()
    details = page.locator(".source-details")
    assert "because it sums a dimension sharded over data" in details.inner_text()
    assert name in page.evaluate("decodeURIComponent(location.hash)")
    details.get_by_role("link", name="In Communication").click()
    page.wait_for_selector(".view[data-view=communication]")
    page.locator(".collective-line").first.click()
    page.locator(".member-part code.source a").first.click()
    page.wait_for_selector(".source-details")
    assert page.locator(".source-line[data-open] button").inner_text() == str(line.line)
    page.go_back()
    page.wait_for_selector(".view[data-view=communication]")


def test_the_editor_opens_the_file_where_it_is(open_page, mlp, tmp_path):
    line, name = busiest(mlp)
    folder = tmp_path.resolve()
    absolute = (folder / ".." / name.rpartition(":")[0]).resolve()
    assert absolute.is_absolute()
    html = report_page.page(
        mlp.report, mlp.inspection, editor="idea://open?file={file}&line={line}", folder=".."
    )
    page = open_page(html, f"#source?line={name}")
    href = page.get_by_role("link", name="Open in the editor").get_attribute("href")
    assert href == f"idea://open?file={absolute}&line={line.line}"
    assert str(Path.cwd()) not in html.replace("idea://", "")


def test_a_page_that_does_not_know_the_folder_links_to_no_editor(open_page, mlp):
    _, name = busiest(mlp)
    page = open_page(
        report_page.page(mlp.report, mlp.inspection, folder=None), f"#source?line={name}"
    )
    page.wait_for_selector(".source-details")
    assert page.get_by_role("link", name="Open in the editor").count() == 0


def test_a_file_elsewhere_has_its_name_and_line_and_no_link_that_leads_nowhere(open_page, mlp):
    line, name = busiest(mlp)
    short = "…/" + "/".join(name.split("/")[-2:])
    with paths_from("/somewhere/that/is/else"):
        html = report_page.page(mlp.report, mlp.inspection)
    page = open_page(html, f"#source?line={short}")
    assert page.locator(".source-line[data-open] button").inner_text() == str(line.line)
    assert page.get_by_role("link", name="Open in the editor").count() == 0
    assert page.get_by_role("link", name="In Communication").count() == 1


def test_a_line_without_ops_is_said_to_have_none(open_page, mlp):
    page = open_page(mlp.html, "#source?line=elsewhere.py:3")
    assert page.inner_text(".source-gone") == "No op of the program is on elsewhere.py:3."


def test_without_the_text_lines_say_their_function(mlp):
    from dataclasses import replace

    from sdyscope.lint.source import source_of

    report = mlp.report
    source = source_of(
        mlp.inspection, report.propagate, report.comms, report.lint.findings, text=False
    )
    part = report_source.part(replace(report, source=source), Pool({}, 8))
    lines = [line for file in part["files"] for line in file["lines"]]
    assert lines
    assert {line["text"] for line in lines} == {None}
    assert {file["unread"] for file in part["files"]} == {"the text is left out"}
    assert "einsum(" not in str(part)
