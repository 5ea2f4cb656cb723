"""What holds for every grammar: no conflicts, readable errors, an entry in the README."""

import importlib.resources
import logging

import lark
import pytest
from lark.lexer import PatternStr

from sdyscope.syntax import hlo_sharding, partition_spec, replica_groups, sharding_rule, shardy
from sdyscope.syntax._parser import Language

LANGUAGES = [
    module.LANGUAGE
    for module in (shardy, hlo_sharding, replica_groups, sharding_rule, partition_spec)
]


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda language: language.grammar)
def test_a_grammar_has_no_conflicts(
    language: Language,
    caplog: pytest.LogCaptureFixture,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tables = str(tmp_path_factory.mktemp("tables"))  # made anew: those that are kept have no log
    monkeypatch.setenv("XDG_CACHE_HOME", tables)
    with caplog.at_level(logging.DEBUG, logger=lark.logger.name):
        language._load(debug=True)
    assert "onflict" not in caplog.text


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda language: language.grammar)
def test_every_terminal_has_a_readable_name(language: Language) -> None:
    ignored = set(language._parser.lexer_conf.ignore)
    for name, terminal in language._terminals.items():
        if name not in ignored:
            assert isinstance(terminal.pattern, PatternStr) or name in language.names


def test_the_readme_names_every_grammar() -> None:
    folder = importlib.resources.files("sdyscope.grammars")
    files = {entry.name for entry in folder.iterdir() if entry.name.endswith(".lark")}
    assert {language.grammar for language in LANGUAGES} | {"hlo_mesh.lark"} == files
    readme = (folder / "README.md").read_text()
    for name in files:
        assert f"`{name}`" in readme
