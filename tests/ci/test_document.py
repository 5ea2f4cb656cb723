"""The document of `ci`: where findings are shown, what fails, and what is found again."""

import dataclasses

import pytest
from ci_cases import document, finding

from sdyscope.terminal.document import encode


def by_rule(answer):
    return {finding.finding.rule: finding for finding in answer.every_finding}


def test_findings_are_shown_in_files_of_the_repository(tmp_path):
    found = by_rule(document(tmp_path))
    assert (found["not-divisible"].file, found["not-divisible"].line) == ("step.py", 2)
    assert found["not-divisible"].column == 8
    # One in somebody else's file is shown where the target is configured.
    assert (found["far"].file, found["far"].line) == ("pyproject.toml", 1)
    assert found["far"].finding.source.file.endswith("lib.py")
    assert str(tmp_path.parent) not in encode(document(tmp_path)).decode()
    assert (found["snapshot-changed"].file, found["snapshot-changed"].column) == (
        "golden.snap",
        None,
    )


def test_paths_are_told_from_github_s_folder_on(tmp_path, monkeypatch):
    inner = tmp_path / "project"
    inner.mkdir()
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    found = by_rule(document(inner))["not-divisible"]
    assert found.file == "project/step.py"
    # Its heading says the same, wherever the command was started.
    assert found.finding.source.file == "project/step.py"


def test_what_was_expected_and_what_was_found_are_lines_of_the_text(tmp_path):
    entry = by_rule(document(tmp_path))["snapshot-changed"]
    other = dataclasses.replace(entry.finding, found="P('b')")
    text = dataclasses.replace(entry, finding=other).text
    assert text.splitlines()[1:3] == ["Expected: P('a')", "Found: P('b')"]


def test_what_fails(tmp_path):
    found = document(tmp_path)
    assert [target.status for target in found.targets] == ["failed", "error", "skipped"]
    assert (found.exit_status, found.passed) == (2, False)
    fails = {finding.finding.rule for finding in found.every_finding if finding.fails}
    assert fails == {
        *("not-divisible", "odd", "far", "snapshot-changed", "over-memory", "unused-ignore")
    }
    statuses = {check.check: check.status for check in found.targets[0].checks}
    assert set(statuses.values()) == {"failed"}


def test_fail_on_error_lets_warnings_pass(tmp_path):
    found = document(tmp_path, fail_on="error")
    rules = {finding.finding.rule for finding in found.targets[0].findings if finding.fails}
    assert rules == {"odd", "snapshot-changed", "over-memory"}
    statuses = {check.check: check.status for check in found.targets[0].checks}
    assert statuses["check"] == "passed"


def test_an_update_is_no_failure(tmp_path):
    found = document(tmp_path, is_update=True)
    statuses = {check.check: check.status for check in found.targets[0].checks}
    assert (statuses["snapshot"], statuses["lint"]) == ("updated", "failed")
    assert "snapshot-changed" not in by_rule(found)


def test_errors_have_their_line(tmp_path):
    error = document(tmp_path).targets[1].error
    assert (error.file, error.line) == ("step.py", 9)
    assert error.text.startswith("step.py:9: ")


def test_a_fingerprint_outlives_lines_and_other_findings(tmp_path):
    before = by_rule(document(tmp_path))["not-divisible"].fingerprint
    moved = document(tmp_path, line=33, extra=[finding(tensor="other")])
    same = [
        one
        for one in moved.every_finding
        if (one.finding.rule, one.finding.tensor) == ("not-divisible", "jit(step)/layer0")
    ]
    assert [one.fingerprint for one in same] == [before]
    assert same[0].line == 33


@pytest.mark.parametrize("changed", [{"tensor": "b"}, {"partitioner": "gspmd"}, {"kind": "op"}])
def test_a_fingerprint_is_one_finding_s(tmp_path, changed):
    first = finding(rule="again", tensor="a")
    extra = [first, first, dataclasses.replace(first, **changed)]
    findings = document(tmp_path, extra=extra).targets[0].findings
    prints = [one.fingerprint for one in findings]
    assert len(set(prints)) == len(prints) == 10
