"""Tables at every width, in every encoding, with and without colour."""

import io

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sdyscope.process.output import Output
from sdyscope.terminal.table import (
    Cell,
    Column,
    Heading,
    Note,
    Table,
    column_widths,
    fitted,
    fold,
    number,
    print_table,
    print_text,
    shape,
)
from sdyscope.words.counts import size

TABLE = Table(
    title="requested",
    columns=(Column("tensor"), Column("sharding"), number("bytes a device")),
    rows=(
        ("params['layers'][0]['attention']['wq']", "P('fsdp', 'model')", size(3 << 19)),
        (Cell("jit(step)/jvp(layer0)/dot_general", "bad"), 'S[{"data", ?}, {"b":(2)2}]', size(12)),
    ),
)


def drawn(table, columns=None, *, encoding="utf-8", terminal=False):
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, errors="strict")
    print_table(table, Output(stream, terminal, columns))
    stream.flush()
    return raw.getvalue().decode(encoding)


def test_without_a_width_a_row_is_one_line():
    assert drawn(TABLE).splitlines() == [
        "requested",
        "tensor                                  sharding                    bytes a device",
        "─" * 82,
        "params['layers'][0]['attention']['wq']  P('fsdp', 'model')                 1.5 MiB",
        'jit(step)/jvp(layer0)/dot_general       S[{"data", ?}, {"b":(2)2}]            12 B',
    ]


def test_narrow_folds_at_sensible_places():
    assert drawn(TABLE, 60).splitlines() == [
        "requested",
        "tensor                     sharding           bytes a device",
        "─" * 60,
        "params['layers'][0]        P('fsdp',                 1.5 MiB",
        "['attention']['wq']        'model')",
        'jit(step)/jvp(layer0)/     S[{"data", ?},               12 B',
        'dot_general                {"b":(2)2}]',
    ]


@pytest.mark.parametrize("columns", [1, 5, 20, 40, 80, 120, 200])
def test_no_line_is_wider_than_asked(columns):
    least = 3 * 1 + 2 * 2
    assert all(len(line) <= max(columns, least) for line in drawn(TABLE, columns).splitlines())


@pytest.mark.parametrize("columns", [10, 30, 60, None])
def test_nothing_is_lost_by_folding(columns):
    for row in TABLE.rows:
        text = row[0] if isinstance(row[0], str) else row[0].text
        only = Table(columns=(Column(""),), rows=((text,),))
        lines = drawn(only, columns).splitlines()
        assert "".join(lines[2:]) == text


def test_ascii_output_has_only_ascii():
    text = drawn(TABLE, 80, encoding="ascii")
    assert "\n" + "-" * 80 + "\n" in text


def test_brackets_are_text_not_markup():
    table = Table(columns=(Column("[bold]"),), rows=(("a[red]b[/red] :smile:",),))
    assert drawn(table).splitlines()[-1] == "a[red]b[/red] :smile:"
    assert drawn(table).splitlines()[0] == "[bold]"


def test_colour_on_a_terminal_only(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    assert "\x1b[1;31m" in drawn(TABLE, 100, terminal=True)
    assert "\x1b" not in drawn(TABLE, 100)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[1;31m" not in drawn(TABLE, 100, terminal=True)


def test_numbers_are_on_the_right():
    table = Table(columns=(number("n"), Column("m")), rows=(("1", "1"), ("1000", "1000")))
    assert drawn(table).splitlines()[2:] == ["   1  1", "1000  1000"]


def test_an_empty_table_is_its_header():
    assert drawn(Table(columns=(Column("a"), Column("b")), rows=())).splitlines() == [
        "a  b",
        "────",
    ]


def test_titles_and_notes_are_broken_between_words():
    """Files, specs and sizes stay whole, and a title goes on further in."""
    title = "step; data=4 x model=2, 8 devices; compiled for cpu:8 under Shardy by JAX 0.10.2"
    note = "because w is P(None, 'model') but constraint at lab/train.py:15 sends 4.0 KiB for it"
    table = Table(
        title=title, columns=(Column("a"),), rows=(("x",), Note(note), Heading(f"in {note}"))
    )
    for columns in range(40, 90):
        lines = drawn(table, columns).splitlines()
        assert max(map(len, lines)) <= columns
        for piece in ("P(None, 'model')", "lab/train.py:15", "4.0 KiB"):
            assert sum(piece in line for line in lines) == 2, (columns, piece)
        more = lines[1 : next(at for at, line in enumerate(lines) if line == "a")]
        assert all(line.startswith("  ") and line[2] != " " for line in more)


def test_a_row_of_another_length_is_refused():
    with pytest.raises(ValueError, match="1 cells under 2 columns"):
        Table(columns=(Column("a"), Column("b")), rows=(("x",),))


@given(st.text(alphabet=" ab/[].,-'0\n"), st.integers(1, 12))
def test_fold_keeps_everything_but_spaces_at_line_ends(text, width):
    lines = list(fold(text, width))
    assert all(len(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


@example([("", "[" * 17), ("[" * 19, "")], True, 30)
@given(
    st.lists(
        st.tuples(st.text(alphabet="ab/ [", max_size=60), st.text(alphabet="ab/ [", max_size=60)),
        max_size=4,
    ),
    st.booleans(),
    st.integers(3, 150),
)
def test_widths_use_the_room_and_no_more(rows, foldable, available):
    columns = (Column("first", fold=foldable), Column("second"))
    widths = column_widths(columns, rows, available)
    whole = column_widths(columns, rows, None)
    assert all(1 <= width <= most for width, most in zip(widths, whole, strict=True))
    assert sum(widths) + 2 <= max(available, 4)
    assert widths == whole or sum(widths) + 2 == max(available, 4)


def test_a_number_stays_on_its_line():
    assert list(fold("x=1,data=16, 8,192 devices", 16)) == ["x=1,data=16,", "8,192 devices"]
    assert list(fold("1,234,567 of f32[2,256,64]", 10)) == [
        "1,234,567", "of", "f32", "[2,256,64]",
    ]  # fmt: skip
    assert list(fold("f32[128,64] and 11", 12)) == ["f32[128,64]", "and 11"]
    assert list(fold("f32[128,64] and 11", 9)) == ["f32", "[128,64]", "and 11"]
    assert list(fold("blocks[0][12]", 9)) == ["blocks[0]", "[12]"]
    assert list(fold("[1024,4096,64]", 12)) == ["[1024,4096,", "64]"]
    # A list of device numbers is not one number.
    assert list(fold("7,6,5,4,3,2,1,0", 8)) == ["7,6,5,4,", "3,2,1,0"]


def test_print_text_folds():
    stream = io.StringIO()
    print_text("a b c d", output=Output(stream, False, 4))
    assert stream.getvalue() == "a b\nc d\n"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "-"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536 * 1024, "1.5 MiB"),
        (1024**2 - 1, "1.0 MiB"),
        (0.5, "0.5 B"),
        (3 * 1024**4, "3.0 TiB"),
        (3 * 1024**5, "3.0 PiB"),
    ],
)
def test_size(count, text):
    assert size(count) == text


def test_shape():
    assert shape((4096, 14336), "bf16") == "bf16[4096,14336]"
    assert shape((), "f32") == "f32[]"


def test_a_heading_goes_across_all_columns():
    rows = (Heading("arguments of the program"), ("x", "1"), Heading("results"), ("y", "2"))
    table = Table((Column("a"), Column("b")), rows)
    assert drawn(table).splitlines() == [
        "a  b",
        "────",
        "arguments of the program",
        "x  1",
        "",
        "results",
        "y  2",
    ]
    assert table.whole_width == 4
    assert [[cell.text for cell in row] for row in table.cells] == [["x", "1"], ["y", "2"]]


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("transpose(jvp(layer0))/mlp", 14, ["transpose(jvp(", "layer0))/mlp"]),
        ("P('data', None)", 9, ["P('data',", "None)"]),
        ("a_very_long_name_indeed", 12, ["a_very_long_", "name_indeed"]),
        ("models/mlp.py:98", 10, ["models/", "mlp.py:98"]),
        ("tunix/sft/peft_trainer.py:867", 17, ["tunix/sft/", "peft_trainer.py", ":867"]),
        ("train_step.py:211", 14, ["train_step.py", ":211"]),
        ("peft_trainer.py:361", 14, ["peft_", "trainer.py:361"]),
    ],
)
def test_names_are_cut_where_they_can_be_read(text, width, lines):
    assert list(fold(text, width)) == lines


def test_first_cells_have_lines_of_their_own_where_words_would_be_broken():
    columns = (Column("tensor"), Column("type", fold=False), Column("spec"), number("bytes"))
    rows = (
        Heading("arguments"),
        ("params['layers']['unembedding']", "bf16[80,28672,8192]", "P('fsdp')", "140.0 MiB"),
        Note("because of it"),
        ("step", "", "", ""),
    )
    assert drawn(Table(columns, rows), 50).splitlines() == [
        "tensor",
        "  type                 spec           bytes",
        "─" * 43,
        "arguments",
        "params['layers']['unembedding']",
        "  bf16[80,28672,8192]  P('fsdp')  140.0 MiB",
        "    because of it",
        "step",
    ]
    # Names that are whole beside the others stay there, and so do those that are broken rarely.
    assert drawn(Table(columns, rows), 80).splitlines()[0].split() == [
        "tensor", "type", "spec", "bytes",
    ]  # fmt: skip
    short = (("step", "i32[]", "P()", "4 B"),) * 9
    assert drawn(Table(columns, rows[1:2] + short), 50).splitlines()[0].startswith("tensor  ")


def test_columns_give_to_each_other_what_saves_lines():
    columns = (Column("tensor"), Column("requested"))
    long = ("transpose(jvp(block0)) models/mlp.py:102 and much more", "P()")
    rows = [("opt_state[0].mu['w1']", "P(None, 'model')")] * 20 + [long]
    # Without the twenty rows that just fit, the long one would have nearly all of the room.
    assert column_widths(columns, rows, 40) == [22, 16]
    assert column_widths(columns, [long], 40)[0] > 22


def test_a_note_stands_below_its_row_and_does_not_widen_it():
    table = Table((Column("a"), Column("b")), (("1", "2"), Note("because of a thing or two")))
    assert drawn(table).splitlines() == ["a  b", "─" * 4, "1  2", "    because of a thing or two"]
    assert drawn(table, 20).splitlines()[3:] == ["    because of a", "    thing or two"]
    assert table.cells == [(Cell("1"), Cell("2"))]


@pytest.mark.parametrize(
    ("columns", "shown"), [(None, "wide"), (11, "wide"), (10, "brief"), (1, "brief")]
)
def test_a_table_is_brief_where_its_line_is_too_short(columns, shown):
    def make(brief):
        return Table((Column("word"), Column("say")), (("brief" if brief else "wide", "12345"),))

    # "wide" and "12345" take nine characters, the gap two.
    assert fitted(make)(columns).cells[0][0].text == shown


def test_a_word_of_a_million_characters_is_cut_short():
    cell = Cell(",".join(map(str, range(200_000))))
    assert len(cell.text) < 1_100
    assert cell.text.endswith("more characters)")


def test_axes_have_colours_of_their_own_composed_or_not(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = io.StringIO()
    text = "w  P(('data', 'fsdp'), None)"
    print_text(text, output=Output(stream, True, None), axes=("data", "fsdp"))
    assert "P(('\x1b[36mdata\x1b[0m', '\x1b[35mfsdp\x1b[0m'), None)" in stream.getvalue()
    plain = io.StringIO()
    print_text(text, output=Output(plain, False, None), axes=("data", "fsdp"))
    assert plain.getvalue() == f"{text}\n"


def test_paragraphs_keep_names_and_specs_whole():
    text = "from the argument params['w1'] P('data', None), w[0:1, :] of train_step.py:13"
    assert list(fold(text, 34, whole=True)) == [
        "from the argument params['w1']",
        "P('data', None), w[0:1, :] of",
        "train_step.py:13",
    ]
    # What fits into no line is broken as in a table.
    assert list(fold("at model/decoder/layer.py:7", 10, whole=True)) == [
        "at model/",
        "decoder/",
        "layer.py:7",
    ]


@given(st.text("ab P('),[]\n", max_size=40), st.integers(1, 30))
def test_nothing_is_lost_of_paragraphs(text, width):
    lines = list(fold(text, width, whole=True))
    assert all(len(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


def test_a_long_cell_that_is_not_the_first_stands_below_its_row():
    """Beside the others it would be a column of many short lines."""
    scope = "transpose(jvp(transformer))/scan(layers)/while/body/checkpoint/mlp/Linear/dot_general"
    columns = (Column("collective"), Column("over"), number("sent"), Column("scope"), Column("at"))
    rows = (
        ("all-reduce", "data=4", size(302_000), scope, "models/_gpt2.py:230"),
        Note("because it sums a dimension sharded over data"),
        ("all-gather", "data=4", size(1024), Cell("-", "muted"), "models/_gpt2.py:7"),
    )
    assert drawn(Table(columns, rows), 60).splitlines() == [
        "collective  over         sent  at",
        "  scope",
        "─" * 60,
        "all-reduce  data=4  294.9 KiB  models/_gpt2.py:230",
        "  transpose(jvp(transformer))/scan(layers)/while/body/",
        "  checkpoint/mlp/Linear/dot_general",
        "    because it sums a dimension sharded over data",
        "all-gather  data=4    1.0 KiB  models/_gpt2.py:7",
    ]
