"""Listings: as wide as they may be, with what a stranger wrote escaped."""

import io

import pytest

from sdyscope.process.output import Output
from sdyscope.terminal.listing import Listed, Listing, ListingNote, print_listing

NOTE = ListingNote("all-reduce over data=4 of 1 tensor sends 1.0 KiB, because P('data', None)")
LISTING = Listing(
    "model.py",
    ("sent", "line"),
    (
        Listed(("", "9"), "    def f(x):"),
        Listed(("1.0 KiB", "10"), "\treturn g(x, " + "long_argument, " * 8 + "y)", (NOTE,)),
        Listed(("", ""), None),
    ),
    ("data", "model"),
)


def listing_lines(listing, columns):
    stream = io.StringIO()
    print_listing(listing, Output(stream, False, columns))
    return stream.getvalue().splitlines()


@pytest.mark.parametrize("columns", [20, 40, 80, 120])
def test_no_line_is_wider_than_it_may_be_and_no_code_is_lost(columns):
    lines = listing_lines(LISTING, columns)
    assert max(map(len, lines)) <= columns
    assert all(line == line.rstrip() for line in lines)
    together = "".join("".join(lines).split())
    assert "".join(("long_argument," * 8 + "y)").split()) in together


def test_code_is_cut_between_words():
    """At a bracket where there is no space, and in a name where there is nothing else."""
    code = "logits = jax.lax.with_sharding_constraint(logits, NamedSharding(mesh, P('data', None)))"
    listing = Listing("", ("line",), (Listed(("1",), code),))
    cut = [line[6:] for line in listing_lines(listing, 56)[1:]]
    assert cut == [
        "logits = jax.lax.with_sharding_constraint(logits,",
        "    NamedSharding(mesh, P('data', None)))",
    ]
    name = "a" * 30 + "(" + "b" * 60
    lines = listing_lines(Listing("", ("line",), (Listed(("1",), name),)), 46)[1:]
    assert [line[6:].strip() for line in lines] == ["a" * 30 + "(", "b" * 36, "b" * 24]


def test_a_pipe_has_a_line_for_each():
    lines = listing_lines(LISTING, None)
    assert lines[:3] == ["model.py", "   sent  line", "            9      def f(x):"]
    assert lines[3].startswith("1.0 KiB    10      return g(x, long_argument")
    assert lines[4] == " " * 19 + "^ " + NOTE.text
    assert lines[5].strip() == "..."


def test_control_characters_of_a_file_are_escaped():
    listing = Listing("a\x1b.py", ("line",), (Listed(("1",), "x = '\x1b[31m'"),))
    assert "\x1b" not in "".join(listing_lines(listing, None))


def test_axes_have_colours_on_a_terminal_alone(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    printed = {}
    for terminal in (True, False):
        stream = io.StringIO()
        print_listing(LISTING, Output(stream, terminal, None))
        printed[terminal] = stream.getvalue()
    assert "P('\x1b[36mdata\x1b[0m', None)" in printed[True]
    assert "\x1b" not in printed[False]
    assert printed[False].splitlines() == listing_lines(LISTING, None)
