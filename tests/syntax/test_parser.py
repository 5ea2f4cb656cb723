"""What every language's parser shares: places, carets and words in errors, and lazy loading."""

import os
import pickle
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lark import Token, Transformer

from sdyscope.errors import ConversionError, SyntaxTextError
from sdyscope.syntax._parser import Language, end_position, quoted, rule_name, word_at


class Refusing(Transformer[Token, object]):
    """Makes lists, and refuses the axis called "bad" and meshes of three axes."""

    def STRING(self, token: Token) -> str:  # noqa: N802
        if token == '"bad"':
            raise ConversionError("bad is not a name", hint="Take another one.")
        return token[1:-1]

    def mesh(self, children: list[object]) -> list[object]:
        if len(children) == 4:
            raise ConversionError("three axes are too many")
        if len(children) == 5:
            raise ZeroDivisionError("a bug in a value class")
        return children


def made() -> Language:
    names = {"STRING": "a name in quotes", "INTEGER": "a number"}
    language = Language("shardy.lark", transformer=Refusing, names=names)
    for rule in ("mesh_text", "tensor_sharding_text"):
        language.parser(rule)
    return language


@pytest.fixture(scope="module")
def language() -> Language:
    return made()


def test_tables_are_made_once(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    text = '<["a"=2]>'
    first = made().parse("mesh_text", text)
    (kept,) = (tmp_path / "sdyscope").iterdir()
    with monkeypatch.context() as patch:
        patch.delattr("lark.lark.load_grammar")
        assert made().parse("mesh_text", text) == first
    kept.write_bytes(kept.read_bytes()[:-1000])
    assert made().parse("mesh_text", text) == first


class Planted:
    """Runs code when it is unpickled."""

    def __reduce__(self):
        return os.mkdir, ("ran",)


def test_a_planted_file_runs_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    first = made().parse("mesh_text", '<["a"=2]>')
    (kept,) = (tmp_path / "sdyscope").iterdir()
    kept.write_bytes(pickle.dumps(Planted()))
    assert made().parse("mesh_text", '<["a"=2]>') == first
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_tables_are_not_read_where_others_can_write(tmp_path, monkeypatch, mode):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "sdyscope").mkdir()
    (tmp_path / "sdyscope").chmod(mode)
    assert made().parse("mesh_text", '<["a"=2]>')
    assert not list((tmp_path / "sdyscope").iterdir())


def test_tables_are_not_read_through_a_link(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "sdyscope").symlink_to("elsewhere")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert made().parse("mesh_text", '<["a"=2]>')
    assert not list((tmp_path / "elsewhere").iterdir())


def test_tables_need_no_folder(tmp_path, monkeypatch):
    folder = tmp_path / "file"
    folder.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    assert made().parse("mesh_text", '<["a"=2]>')


def test_tables_are_not_kept_where_the_user_happens_to_be(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "~/.cache")  # what is found of a user without a home
    assert made().parse("mesh_text", '<["a"=2]>')
    assert not list(tmp_path.iterdir())


def error_of(language: Language, text: str) -> SyntaxTextError:
    with pytest.raises(SyntaxTextError) as caught:
        language.parse("mesh_text", text)
    return caught.value


def test_a_terminal_that_refuses_is_shown_where_it_stands(language: Language) -> None:
    error = error_of(language, '<["a"=2,\n  "bad"=3]>')
    assert str(error) == (
        'line 2, column 3: bad is not a name\n    "bad"=3]>\n    ^\nTake another one.'
    )
    assert isinstance(error.__cause__, ConversionError)


def test_a_rule_that_refuses_is_shown_where_it_begins(language: Language) -> None:
    error = error_of(language, ' #sdy.mesh<["a"=2, "b"=3, "c"=1]>')
    assert str(error) == (
        "line 1, column 11: three axes are too many\n"
        '   #sdy.mesh<["a"=2, "b"=3, "c"=1]>\n'
        "            ^"
    )


def test_of_two_faults_the_one_against_the_grammar_is_told(language: Language) -> None:
    error = error_of(language, '<["bad"=2, "b"]>')
    assert (error.line, error.column) == (1, 15)
    assert error.expected == ("'='",)


def test_other_exceptions_are_bugs_and_pass(language: Language) -> None:
    with pytest.raises(ZeroDivisionError):
        language.parse("mesh_text", '<["a"=2, "b"=3, "c"=1, "d"=1]>')


@pytest.mark.parametrize(
    ("text", "message", "line", "column", "expected"),
    [
        ("", "unexpected end of the text in a mesh", 1, 1, ("'<'", "'#sdy.mesh<'", "'#sdy<'")),
        ('<["a"', "unexpected end of the text in a mesh", 1, 6, ("'='",)),
        ('<["a"\n\n  ', "unexpected end of the text in a mesh", 1, 6, ("'='",)),
        ('<[\n"a"', "unexpected end of the text in a mesh", 2, 4, ("'='",)),
        ('<["a"=2]> more', "unexpected 'more' in a mesh", 1, 11, ("the end of the text",)),
        ('<["a"=two]>', "unexpected 'two' in a mesh", 1, 7, ("a number",)),
        ('<["a"=2 "b"=3]>', "unexpected '\"b\"' in a mesh", 1, 9, ("','", "']'")),
        ("<[\t\té]>", "unexpected 'é' in a mesh", 1, 5, ("']'", "a name in quotes")),
        ('<["a"=2],\r\n device_id=[0]>', "unexpected 'device_id' in a mesh", 2, 2, None),
    ],
)
def test_place_and_expectation(
    text: str, message: str, line: int, column: int, expected: tuple[str, ...] | None
) -> None:
    from sdyscope.syntax.shardy import LANGUAGE

    error = error_of(LANGUAGE, text)
    assert (error.message, error.line, error.column) == (message, line, column)
    assert expected is None or sorted(error.expected) == sorted(expected)


@given(st.integers(0, 300), st.integers(0, 300), st.sampled_from(["", "\t", "  \t"]))
def test_the_caret_stands_under_the_place(before: int, after: int, indent: str) -> None:
    from sdyscope.syntax.shardy import LANGUAGE

    names = "".join(f'"axis_{i}"=2,' for i in range(before))
    tail = "".join(f', "x{i}"=3' for i in range(after))
    error = error_of(LANGUAGE, f"\n{indent}<[{names}!{tail}]>\n")
    _, source, caret, *_ = str(error).split("\n")
    assert source[caret.index("^")] == "!"
    assert len(source) <= 100
    assert caret.strip() == "^"


def test_ends_words_and_quotes() -> None:
    assert end_position("ab\ncd  \n") == (2, 3)
    assert end_position("") == (1, 1)
    assert word_at("@mesh, x", 0) == "@"
    assert word_at("mesh, x", 0) == "mesh"
    assert quoted("x" * 100) == "'" + "x" * 37 + "...'"
    assert rule_name("axis_ref") == "an axis ref"
    assert rule_name("tensor_sharding_text") == "a tensor sharding"
    assert rule_name("manual_axes") == "manual axes"
    assert rule_name("mesh_axis") == "a mesh axis"


def test_a_rule_is_asked_for_before_a_language_parses() -> None:
    language = made()
    parse = language.parser("mesh_text")
    assert parse.__doc__ == Language.parse.__doc__
    with pytest.raises(SyntaxTextError):
        parse("no mesh")
    with pytest.raises(ValueError, match="asked for after the language has parsed"):
        language.parser("tensor_sharding_text")


def test_importing_loads_no_grammar() -> None:
    # A grammar takes tens of milliseconds: the first parse pays, not every command.
    script = (
        "from sdyscope.syntax.shardy import LANGUAGE, parse_mesh\n"
        "assert '_parser' not in vars(LANGUAGE)\n"
        "parse_mesh('<[]>')\n"
        "assert '_parser' in vars(LANGUAGE)\n"
        "assert '_tree_parser' not in vars(LANGUAGE)\n"
        "import sys\n"
        "assert 'jax' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
