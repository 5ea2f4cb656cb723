"""Text of others on a terminal."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdyscope.process.output import Output
from sdyscope.process.printable import printable
from sdyscope.terminal.paragraphs import Paragraph, print_paragraphs
from sdyscope.terminal.table import Cell, Column, Heading, Note, Table, print_table

EVIL = "a\x1b]0;title\x07b\x9b2Jc\u202ed\re\x00\ud800"
SAFE = r"a\u001b]0;title\u0007b\u009b2Jc\u202ed\u000de\u0000\ud800"


def test_what_controls_a_terminal_is_written_out():
    assert printable(EVIL) == SAFE
    assert printable("plain é 漢 \t\n") == "plain é 漢 \t\n"


@given(st.text())
def test_nothing_of_it_is_left_and_a_second_time_changes_nothing(text):
    once = printable(text)
    assert printable(once) == once
    assert all(one in "\t\n" or one.isprintable() or ord(one) > 0x9F for one in once)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_a_document_says_the_same(text):
    document = json.dumps({"name": text}, ensure_ascii=False)
    assert json.loads(printable(document)) == {"name": text}


@pytest.mark.parametrize("terminal", [False, True])
def test_everything_that_is_printed_goes_through_it(terminal):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="")
    here = Output(stream, terminal, 80)
    table = Table((Column("x"),), (Heading(EVIL), (EVIL,), (Cell(EVIL),), Note(EVIL)), EVIL)
    print_table(table, here)
    print_paragraphs([Paragraph(EVIL)], here)
    here.write(EVIL)
    stream.flush()
    written = stream.buffer.getvalue().decode()
    assert written.count(SAFE) == 7
    for bad in ("\x1b]", "\x07", "\x9b", "\u202e", "\r"):
        assert bad not in written


def test_a_document_goes_to_a_pipe_as_it_is_and_to_a_terminal_as_text():
    for terminal, name in ((False, "\x9b"), (True, r"\u009b")):
        stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        Output(stream, terminal, 80).write_bytes('{"name": "\x9b"}'.encode())
        assert stream.buffer.getvalue().decode() == f'{{"name": "{name}"}}'
