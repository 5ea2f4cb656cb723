"""Findings in paragraphs."""

from sdyscope.facts.account import Account
from sdyscope.terminal.findings import check_paragraphs
from sdyscope.terminal.paragraphs import Paragraph, lines
from sdyscope.values.source import SourceLocation
from sdyscope.words.findings import Check, Finding

ERROR = Finding(
    "lowered-differs",
    "error",
    "The module's sharding is not the one requested.",
    "jit(step)/layer0",
    "constraint",
    SourceLocation("/elsewhere/model.py", 7),
    "gspmd",
    "dim 0 split 4 ways over data",
    "replicated on every device",
    "Do this.",
)
NOTE = Finding("argument-dropped", "note", "jit drops it.", "unused", "argument")


def paragraphs(*findings, compared=4, agreed=4):
    made = Check(
        name="mlp",
        passed=all(finding.severity == "note" for finding in findings),
        partitioners=("shardy", "gspmd"),
        tensors=2,
        compared=compared,
        agreed=agreed,
        findings=findings,
        account=Account(),
    )
    return made, list(check_paragraphs(made))


def test_errors_come_first_and_notes_are_quiet():
    made, found = paragraphs(ERROR, NOTE, agreed=3)
    assert not made.passed
    assert found == [
        Paragraph("mlp: 4 comparisons under Shardy and GSPMD, 1 disagrees", "bad", hang=2),
        Paragraph(""),
        Paragraph("1 error", "bad"),
        Paragraph(""),
        Paragraph(
            "constraint layer0 at …/elsewhere/model.py:7 under GSPMD [lowered-differs]",
            "heading",
            2,
            2,
        ),
        Paragraph("The module's sharding is not the one requested.", "plain", 4, 0),
        Paragraph("expected: dim 0 split 4 ways over data", "plain", 4, 10),
        Paragraph("found:    replicated on every device", "plain", 4, 10),
        Paragraph("Do this.", "muted", 4, 0),
        Paragraph(""),
        Paragraph("1 note", "muted"),
        Paragraph(""),
        Paragraph("argument unused [argument-dropped]", "muted", 2, 2),
        Paragraph("jit drops it.", "muted", 4, 0),
    ]


def test_one_hint_is_given_once():
    _, found = paragraphs(ERROR, ERROR, agreed=2)
    assert [paragraph.text for paragraph in found].count("Do this.") == 1
    assert found[0].text.endswith("2 disagree")


def test_a_whole_module():
    _, found = paragraphs(Finding("not-lowerable", "error", "It can't be lowered."))
    assert Paragraph("the module [not-lowerable]", "heading", 2, 2) in found


def test_paragraphs_hang():
    long = Paragraph("expected: dim 0 split 4 ways over data, dim 1 whole", indent=4, hang=10)
    assert lines(long, None) == ["    expected: dim 0 split 4 ways over data, dim 1 whole"]
    assert lines(long, 44) == [
        "    expected: dim 0 split 4 ways over data,",
        "              dim 1 whole",
    ]
    # No indent is kept that leaves no room for words.
    assert all(len(line) <= 20 for line in lines(long, 20))
