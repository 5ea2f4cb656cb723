"""What is not known, in the browser: in every view that shows what it is about."""

import pytest

from sdyscope.__main__ import run_here
from sdyscope.inspection import Inspection
from sdyscope.stages.lowered.read import read
from sdyscope.words.account import account_lines, account_text
from tests.commands.test_account import MODULE
from tests.reports.conftest import made


@pytest.fixture(scope="module")
def unread(tmp_path_factory):
    path = tmp_path_factory.mktemp("account") / "malformed.mlir"
    path.write_text(MODULE)
    return made(Inspection(read(path)), str(path), compiled=False)


def test_each_view_says_it_and_leads_to_the_whole_account(open_page, unread, violations):
    account = unread.report.account
    page = open_page(unread.html, "#tensors")
    for view in ("tensors", "graph", "propagation", "communication", "memory", "findings", "ir"):
        page.evaluate(f"location.hash = '#{view}'")
        page.wait_for_selector(f"main[data-view={view}]")
        assert page.inner_text("#account").endswith(account_text(account)), view
    page.click("#account a")
    page.wait_for_selector("main[data-view=overview]")
    assert page.locator("#account").is_hidden()
    for line in account_lines(account):
        assert line in page.inner_text("[data-slot=notes]")
    assert violations(page) == []


def test_a_sharding_that_cannot_be_read_has_its_mark(open_page, unread, violations):
    page = open_page(unread.html, "#tensors?tensor=main(0)")
    marked = page.locator(".details .spec[data-tone=bad]").first
    assert marked.inner_text().startswith("! {devices=[3]<=[8}")
    assert page.inner_text(".details .verdict") == "! not known"
    assert violations(page) == []


def test_where_all_is_known_nothing_is_said(open_page, mlp):
    page = open_page(mlp.html, "#memory")
    assert page.locator("#account").is_hidden()


@pytest.mark.compiles
def test_a_refusal_is_said_once_in_every_form(open_page, tmp_path, capfd):
    path = tmp_path / "refused.mlir"
    path.write_text(MODULE.replace("[3]<=[8}", "[3]<=[3]}"))
    page, markdown = tmp_path / "page.html", tmp_path / "page.md"
    assert run_here(["report", str(path), "-o", str(page), "-o", str(markdown)]) == 0
    notes = open_page(page.read_text(), "").inner_text("[data-slot=notes]")
    folded = markdown.read_text().replace("\\", "").partition("not known (3)")[2]
    for said in (capfd.readouterr().err, notes, folded):
        for stage in ("propagated", "compiled"):
            assert said.count(f"GSPMD: not {stage}: ") == 1
        assert said.count("Number of tile assignment dimensions") == 2
        assert said.count("gives no placement: it is for a tensor of rank 1, not 2") == 1
