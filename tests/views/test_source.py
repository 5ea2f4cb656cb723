"""The author's lines as they are printed, made of a document."""

from dataclasses import replace

import pytest

from sdyscope.values.source import SourceLocation
from sdyscope.views import source
from sdyscope.words.findings import Finding
from sdyscope.words.paths import file_text

pytestmark = pytest.mark.compiles


def notes(listing):
    return [note.text for line in listing.lines for note in line.notes]


def footer(document):
    return [paragraph.text for paragraph in source.footer(document)]


def test_each_partitioner_has_a_column_where_they_send_otherwise(lookup_lines):
    (listing,) = source.listings(lookup_lines)
    assert listing.columns == ("sent Shardy", "sent GSPMD", "block", "line")
    gather = next(line for line in listing.lines if line.margin[-1] == "14")
    assert gather.margin[:2] == ("1.1 KiB", "1.9 KiB")
    texts = notes(listing)
    assert sum(text.startswith("GSPMD: ") for text in texts) == 3
    assert sum(text.startswith("Shardy: ") for text in texts) == 1
    tones = {note.tone for line in listing.lines for note in line.notes if "begins" in note.text}
    assert tones == {"warning"}


def test_a_permutation_that_leaves_devices_out_is_said(lookup_lines):
    assert any("(it receives as many)" in text for text in footer(lookup_lines))
    (file,) = lookup_lines.files
    partial = tuple(
        replace(line, collectives=tuple(replace(c, some_idle=True) for c in line.collectives))
        for line in file.lines
    )
    texts = footer(replace(lookup_lines, files=(replace(file, lines=partial),)))
    assert any("a device sends or receives nothing" in text for text in texts)
    assert not any("receives as many" in text for text in texts)


def test_one_column_where_they_send_the_same(lookup_lines):
    (file,) = lookup_lines.files
    shardy = tuple(
        replace(line, collectives=tuple(c for c in line.collectives if c.partitioner == "shardy"))
        for line in file.lines
    )
    both = replace(lookup_lines, files=(replace(file, lines=shardy),))
    # The other one is compiled and sends nothing.
    (listing,) = source.listings(both)
    assert listing.columns == ("sent Shardy", "sent GSPMD", "block", "line")
    assert any(text.startswith("Shardy: all-") for text in notes(listing))
    meshes = {"shardy": lookup_lines.collective_meshes["shardy"]}
    (listing,) = source.listings(replace(both, collective_meshes=meshes))
    assert listing.columns == ("sent", "block", "line")
    assert not any(text.startswith(("Shardy: ", "GSPMD: ")) for text in notes(listing))


def test_libraries_are_left_out_beside_the_authors_files_and_counted(lookup_lines):
    (file,) = lookup_lines.files
    library = replace(file, file="/x/site-packages/flax/linen/linear.py", library=True)
    both = replace(lookup_lines, files=(file, library))
    assert [listing.title for listing in source.listings(both)] == [file_text(file.file)]
    assert len(list(source.listings(both, everything=True))) == 2
    left_out = "3 lines of libraries left out, of flax/linen/linear.py: --all shows them"
    assert left_out in footer(both)
    alone = replace(lookup_lines, files=(library,))
    assert [listing.title for listing in source.listings(alone)] == ["flax/linen/linear.py"]


def test_findings_stand_at_their_line_and_the_others_are_counted(lookup_lines):
    (file,) = lookup_lines.files
    place = SourceLocation(file.file, file.lines[0].line)
    findings = (
        Finding("some-rule", "error", "One.", source=place),
        Finding("some-rule", "error", "Two.", source=place),
        Finding("other-rule", "note", "Three."),
    )
    document = replace(lookup_lines, findings=findings)
    (listing,) = source.listings(document)
    (note,) = listing.lines[0].notes
    assert (note.text, note.tone) == ("error some-rule: One. And 1 more of this rule.", "bad")
    assert "1 finding without a line: sdyscope lint lists all" in footer(document)


def test_ways_into_libraries_are_one_line_unless_asked_for(lookup_lines):
    (file,) = lookup_lines.files
    frames = [SourceLocation(f"/x/site-packages/flax/{name}.py", 3, 0, name) for name in "abc"]
    ways = ((frames[0], frames[1]), (frames[0], frames[2]), (frames[1],))
    line = replace(file.lines[1], values=(), collectives=(), through=ways, callers=((frames[2],),))
    document = replace(lookup_lines, files=(replace(file, lines=(line,)),), findings=())
    (listing,) = source.listings(document)
    assert notes(listing) == ["through a at flax/a.py:3 and 1 other call"]
    (listing,) = source.listings(document, stacks=True)
    assert notes(listing) == [
        "through a at flax/a.py:3 > b at flax/b.py:3",
        "through a at flax/a.py:3 > c at flax/c.py:3",
        "through b at flax/b.py:3",
        "called by c at flax/c.py:3",
    ]


def test_a_program_that_was_not_compiled_says_so(lookup_lines):
    document = replace(lookup_lines, not_compiled="the program was not compiled")
    assert "No collectives: the program was not compiled" in footer(document)
