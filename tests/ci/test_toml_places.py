"""Places in TOML: of everything that tomllib reads, and of nothing else."""

import json
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdyscope.ci.toml_places import nearest, toml_places


def paths(value, path=()):
    """All paths of plain data."""
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in entries:
        yield (*path, key)
        if isinstance(inner, dict | list):
            yield from paths(inner, (*path, key))


KEYS = st.one_of(st.from_regex(r"[A-Za-z0-9_-]{1,3}", fullmatch=True), st.text(max_size=3))
DATES = ("1979-05-27 07:32:00", "1979-05-27T07:32:00Z")
TEXTS = ('"a # [b] = {c},"', "'a\"'", '"""a\n[x]\n"quoted""""', "'''\nb'''")
SCALARS = st.sampled_from(["1", "-1.5e3", "true", "0xff", "inf", *DATES, *TEXTS])
SPACES = st.sampled_from(["", " ", "\t "])
LINES = st.sampled_from(["", " ", "\n", " # a ] comment\n  "])


@st.composite
def values(draw, depth=2):
    """A value as TOML writes it."""
    kinds = ["scalar", "array", "table"] if depth else ["scalar"]
    match draw(st.sampled_from(kinds)):
        case "array":
            items = draw(st.lists(values(depth=depth - 1), max_size=3))
            joined = ",".join(draw(LINES) + item + draw(LINES) for item in items)
            return f"[{joined}{draw(LINES)}]"
        case "table":
            keys = draw(st.lists(KEYS, max_size=3, unique=True))
            pairs = [
                f"{written(key)}{draw(SPACES)}={draw(values(depth=depth - 1))}" for key in keys
            ]
            return f"{{{draw(SPACES)}{', '.join(pairs)}{draw(SPACES)}}}"
        case _:
            return draw(SCALARS)


def written(key):
    return key if key and key.isascii() and key.replace("-", "_").isidentifier() else quoted(key)


def quoted(key):
    return json.dumps(key).replace("\x7f", "\\u007f")


@st.composite
def documents(draw):
    """Pairs, tables and arrays of tables, with dotted keys; not all of them are valid."""
    lines = []
    for _ in range(draw(st.integers(0, 6))):
        key = draw(SPACES) + ".".join(map(written, draw(st.lists(KEYS, min_size=1, max_size=3))))
        form = draw(st.sampled_from(["{} = {}", "[{}]", "[[{}]]", "# {}", ""]))
        lines.append(form.format(key.replace("\n", ""), draw(values())))
    return "\n".join(lines) + draw(st.sampled_from(["", "\n"]))


@given(documents())
def test_all_that_tomllib_reads_has_a_place(text):
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    places = toml_places(text)
    assert set(places) == set(paths(data))
    lines = text.split("\n")
    for path, place in places.items():
        there = lines[place.line - 1][place.column - 1 :]
        if isinstance(path[-1], str):
            assert there.startswith((path[-1], quoted(path[-1])))


def test_the_places_of_tables_arrays_and_keys():
    text = 'a = 1\n[[b.c]]\nd = [\n  1, {e = 2},\n]\n[[b.c]]\n"f g".h = 3\n'
    places = toml_places(text)
    assert places["b", "c", 0, "d", 1, "e"] == (4, 7)
    assert places["b", "c", 1, "f g", "h"] == (7, 7)
    assert places["b", "c"] == places["b", "c", 0] == (2, 5)
    assert places["b", "c", 1] == (6, 5)


@pytest.mark.parametrize(
    ("path", "place"), [(("a", "b", "nope"), (2, 1)), (("a", "b"), (2, 1)), (("nope",), None)]
)
def test_what_has_no_place_has_that_of_what_is_around_it(path, place):
    assert nearest(toml_places("[a]\nb = {}\n"), path) == place
