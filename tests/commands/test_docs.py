"""`sdyscope docs`: the pages that are installed with the tool."""

from importlib.resources import files

import pytest

from sdyscope.commands import COMMANDS, document_type
from sdyscope.commands.docs import _shown, pages


def test_without_a_name_the_list_of_pages_is_printed(sdyscope):
    done = sdyscope("docs")
    assert (done.status, done.err) == (0, "")
    assert done.out == (files("sdyscope.docs") / "README.md").read_text()


@pytest.mark.parametrize("name", ["show", "show.md", "docs/show.md", "models/mlp", "schema/show"])
def test_pages_and_schemas_by_name(sdyscope, name):
    done = sdyscope("docs", name)
    assert done.status == 0
    known = pages()
    assert done.out in {known[one].read_text() for one in ("show", "models/mlp", "schema/show")}


def test_every_command_with_a_document_has_its_schema_printed():
    assert {f"schema/{name}" for name in COMMANDS if document_type(name)} == {
        name for name in pages() if name.startswith("schema/")
    }


def test_a_page_that_is_not_there(sdyscope):
    sdyscope("docs", "propogate").said("There is no page 'propogate'.\nDid you mean 'propagate'?")
    sdyscope("docs", "../setup").said("There is no page '../setup'.")


def test_on_a_terminal_markdown_is_set_within_its_width():
    shown = _shown("# Title\n\nA *word* and `code`, and " + "many words " * 20, 60)
    lines = shown.splitlines()
    assert "\x1b[" in shown
    assert "`" not in shown
    assert len(lines) > 4
