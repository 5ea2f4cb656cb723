"""The pages of docs: none is missing from their list, and links lead somewhere."""

import re
from pathlib import Path

import pytest

from sdyscope.commands import COMMANDS

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(page for page in DOCS.glob("*.md") if page.name != "README.md")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def test_every_page_is_listed_once():
    linked = [link for link in LINK.findall((DOCS / "README.md").read_text()) if "/" not in link]
    assert sorted(linked) == sorted([*(page.name for page in PAGES), "schema"])


@pytest.mark.parametrize("page", [DOCS / "README.md", *PAGES], ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for link in LINK.findall(page.read_text()):
        assert (page.parent / link).exists(), link


def test_every_command_is_in_the_readme():
    readme = (DOCS.parent / "README.md").read_text()
    table = readme.partition("| command | does |")[2].partition("\n\n")[0]
    for name in COMMANDS:
        assert re.search(rf"`{name}\b", table), name
