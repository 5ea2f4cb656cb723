"""What each line does, beside what other commands say of the whole program."""

from collections import Counter

import pytest

from sdyscope.analysis.diff.sides import propagated_between
from sdyscope.analysis.source.lines import SourceLine, source_files
from sdyscope.values.source import SourceLocation

pytestmark = pytest.mark.compiles


def lines_of(document):
    (file,) = document.files
    return {line.line: line for line in file.lines}


def test_lines_and_the_rest_send_what_the_program_sends(lookup, lookup_lines):
    for partitioner in ("shardy", "gspmd"):
        by_line = sum(file.sent.get(partitioner, 0) for file in lookup_lines.files)
        without = lookup_lines.sent_without_line.get(partitioner, 0)
        total = lookup.collectives(partitioner, origins=False).total.sent
        assert by_line + without == total > 0


def test_every_value_with_a_line_is_on_it_once(lookup, lookup_lines, lookup_file):
    graph = lookup.graph("shardy")
    propagated = lookup.propagated("shardy")
    expected = Counter(
        graph.ops[value.id[0]].source.line
        for value in propagated.values.values()
        if str(lookup_file) == getattr(graph.ops[value.id[0]].source, "file", None)
        and value.fate in ("kept", "merged")
    )
    found = {
        number: sum(values.count for values in line.values)
        for number, line in lines_of(lookup_lines).items()
        if line.values
    }
    assert found == expected


def test_the_difference_begins_at_the_line_that_diff_names(lookup, lookup_lines):
    (beginning,) = propagated_between(lookup).beginnings
    begins = [
        number
        for number, line in lines_of(lookup_lines).items()
        if any(values.begins for values in line.values)
    ]
    assert begins == [beginning.begins.value.source.line]
    differing = sum(
        values.count
        for line in lines_of(lookup_lines).values()
        for values in line.values
        if values.same is False
    )
    assert differing == beginning.values


def test_the_text_is_that_of_the_file_with_its_surroundings(lookup_lines, lookup_file):
    text = lookup_file.read_text().splitlines()
    lines = lines_of(lookup_lines)
    assert all(line.text == text[number - 1] for number, line in lines.items())
    with_ops = [number for number, line in lines.items() if line.values]
    assert min(lines) == min(with_ops) - 1  # The line of the `def`.
    assert max(lines) == max(with_ops)  # What follows is blank.
    assert lines[with_ops[0]].function == "program.<locals>.step"


def test_a_file_that_became_shorter_is_said_to_be_another(tmp_path):
    path = tmp_path / "short.py"
    path.write_text("x = 1\n")
    (file,) = source_files((), {}, (), others=[SourceLocation(str(path), 40)])
    assert (file.cut, file.unread) == (True, None)
    assert file.lines == (SourceLine(40),)


def test_a_file_without_text_keeps_its_lines():
    place = SourceLocation("/nowhere/model.txt", 7, function="f")
    (file,) = source_files((), {}, (), others=[place])
    assert (file.unread, file.lines) == ("not Python", (SourceLine(7, function="f"),))
