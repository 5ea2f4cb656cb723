"""The edits that matter, and headlines that name their cause and line: page and Markdown."""

from dataclasses import replace

import pytest

from sdyscope.analysis.fix.values import Figures, Fix, Remedy
from sdyscope.facts.edits import Numbers, SourceEdit
from sdyscope.hardware.names import parse_hardware
from sdyscope.page import page as report_page
from sdyscope.page.headlines import headlines
from sdyscope.page.markdown import LIMIT, markdown
from sdyscope.syntax.partition_spec import parse_partition_spec
from sdyscope.words.places import source_text

pytestmark = pytest.mark.compiles

PATCH = "--- a/mlp.py\n+++ b/mlp.py\n@@ -1 +1 @@\n-x = '<b>```'\n+x = constrain('<b>```')\n"


def figures(sent, total):
    return Figures(3, sent, (), None, 1, 1, 1, total, None)


def fixed(source):
    """One remedy that is proven, and one that is not."""
    spec = parse_partition_spec("P('data', None)")
    edit = SourceEdit("new constraint", "x['<b>']", None, spec, source)
    proven = Remedy(
        (edit,),
        "pays",
        figures(1024, 4096),
        True,
        Numbers("same", 2, 2, devices="8 cpu devices"),
        PATCH,
    )
    open_ = replace(proven, numbers=Numbers("not compared", reason="it was not run"))
    return Fix(
        name="mlp", finding="", jax_version="0", hardware=parse_hardware("cpu:8"), meshes={},
        before=figures(2048, 8192), predicted=None, remedies=(proven, open_), tried=9, compiled=2,
    )  # fmt: skip


@pytest.fixture(scope="module")
def edited(mlp):
    """The report of the mlp with edits."""
    part = mlp.report.comms.programs[0].collectives[0].largest
    fix = fixed(part.source)
    report = mlp.report
    made = headlines(report.show, report.check, report.propagate, report.memory, report.comms,
                     (), fix)  # fmt: skip
    return replace(report, fix=fix, headlines=made), source_text(part.source)


def test_the_page_begins_with_the_edit_and_leads_to_its_line(open_page, mlp, edited, violations):
    report, line = edited
    page = open_page(report_page.page(report, mlp.inspection), "#overview", width=400)
    first = page.locator(".headline").first
    assert "sends 1.0 KiB per step, not 2.0 KiB, and needs 4.0 KiB, not 8.0 KiB" in (
        first.inner_text()
    )
    assert page.locator(".edit").count() == 1  # The other is not proven.
    edit = page.locator(".edit").inner_text()
    assert "proven" in edit
    assert "2 results of the edited program equal the original's on 8 cpu devices" in edit
    assert page.locator(".edit pre").inner_text() == PATCH
    assert not page.is_visible("[data-slot=notTried]")
    # On a narrow screen it is the patch that scrolls, not the page.
    assert page.evaluate("document.querySelector('.edit').getBoundingClientRect().right") <= 400
    assert violations(page) == []
    page.locator(".edit a").click()
    page.wait_for_selector(".source-line[data-open]")
    number = line.rpartition(":")[2]
    assert page.inner_text(".source-line[data-open] button") == number


def test_where_no_edits_were_asked_for_it_is_said_how(page):
    page.evaluate("location.hash = '#overview'")
    assert page.inner_text("[data-slot=notTried]") == (
        "Edits of the source were not tried: sdyscope report --fix looks for those that send or "
        "hold less."
    )
    assert not page.is_visible("[data-slot=edits]")


def test_markdown_has_it_with_its_patch(edited):
    report, line = edited
    text = markdown(report)
    assert "**The edits that matter.** 9 edits were tried, 2 compiled for cpu:8." in text
    assert f"(`{line}`)" in text
    assert "sent per step 2.0 KiB → **1.0 KiB**" in text
    # The fence is longer than any in the patch.
    assert "  ````diff\n  --- a/mlp.py\n" in text
    assert len(text) <= LIMIT


def test_without_looking_for_edits_there_are_none(mlp):
    assert mlp.report.fix is None
    assert "edits that matter" not in markdown(mlp.report)


def test_headlines_name_the_place_where_the_partitioners_begin_to_differ(open_page, unconstrained):
    headline = next(each for each in unconstrained.report.headlines if each.view == "differences")
    assert "embed" in headline.detail
    assert f" at {headline.line} is " in headline.detail
    assert "under Shardy but " in headline.detail
    page = open_page(unconstrained.html)
    page.click(f".headline a:has-text('{headline.words}')")
    page.wait_for_selector(".view[data-view=differences]")
    page.go_back()
    page.click(f".headline-detail a >> text={headline.line}")
    page.wait_for_selector(".source-line[data-open]")
    text = markdown(unconstrained.report)
    assert "beginning at" in text or "differences begin at" in text


def test_the_largest_collectives_are_folded_over_layers_and_have_their_cause(mlp):
    headline = next(each for each in mlp.report.headlines if each.view == "communication")
    assert headline.words.startswith("The largest collective")
    assert "0%" not in headline.words.replace("00%", "")
    assert f"for {headline.line}, because it sums a dimension" in headline.detail
    assert headline.query.startswith("open=")
