"""The pages of docs: all are listed, links lead somewhere, what is made of the code is current."""

import importlib.util
import re
from pathlib import Path

import pytest

from sdyscope.commands import COMMANDS
from sdyscope.lint import RULES

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(page for page in DOCS.glob("*.md") if page.name != "README.md")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")

_spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
generate = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(generate)
GENERATED = dict(generate.generated())


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: path.name)
def test_what_is_made_of_the_code_is_current(path):
    """`python docs/generate.py` writes it."""
    assert path.read_text(encoding="utf-8") == GENERATED[path]


def test_no_schema_is_left_over():
    assert {path for path in GENERATED if path.suffix == ".json"} == set(
        generate.SCHEMAS.glob("*.json")
    )


def test_every_schema_is_marked_as_generated_for_reviewers():
    attributes = (DOCS.parent / ".gitattributes").read_text().splitlines()
    assert "docs/schema/*.json linguist-generated" in attributes


@pytest.mark.parametrize("schema", sorted((DOCS / "schema").glob("*.json")), ids=lambda s: s.stem)
def test_a_document_with_more_fields_is_of_its_version(schema):
    """A version promises that fields are only added (docs/README.md)."""
    assert '"additionalProperties": false' not in schema.read_text()


def test_every_rule_has_an_anchor():
    text = GENERATED[DOCS / "lint.md"]
    assert all(f"### `{name}`\n" in text for name in RULES)


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
