"""`ci` on terminals, for GitHub, as JUnit's XML and as SARIF: read back as their readers do."""

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import fix_cases
import jsonschema
import pytest
from ci_cases import NASTY, document

from sdyscope.ci.forms import FORMS, Reader
from sdyscope.ci.forms.sarif import render_fix
from sdyscope.ci.remedies import remedy_of
from sdyscope.commands import document_type
from sdyscope.commands.ci import command
from sdyscope.page.markdown import LIMIT
from sdyscope.terminal.document import schema

ASSETS = Path(__file__).parents[2] / "assets"


@pytest.fixture
def found(tmp_path):
    return document(tmp_path)


def form(name, answer, **options):
    return FORMS[name](answer, Reader(**options))


def terminal(answer, columns, **options):
    return form("text", answer, columns=columns, budgets=True, **options).decode()


def junit(answer):
    return form("junit", answer)


def sarif(answer):
    return form("sarif", answer)


def markdown(answer):
    return form("summary", answer).decode()


@pytest.mark.parametrize("name", FORMS)
def test_every_form_is_made_of_the_document_alone(found, name):
    assert form(name, found)
    assert form(name, found, notes=True).decode("utf-8")


@pytest.mark.parametrize("name", ["text", "github"])
def test_what_a_stream_can_not_show_is_escaped(found, name):
    assert r"\U0001f4a9" in form(name, found, encoding="ascii").decode("ascii")


def test_forms_that_are_files_are_options_of_the_command():
    options = {word for each in command.params for word in each.opts}
    assert {f"--{name}" for name in FORMS} - options == {"--text"}


def test_the_document_follows_its_schema(found):
    jsonschema.validate(json.loads(form("json", found)), schema(document_type("ci")))


@pytest.mark.parametrize("columns", [80, 120])
def test_a_terminal_shows_a_line_a_target(found, columns):
    lines = terminal(found, columns).split("\n")
    assert max(map(len, lines)) <= columns
    assert re.split("  +", lines[2]) == ["step", "1 warning", *["1 error"] * 3, "2.5 s"]
    assert lines[3].split() == ["broken", "error", "error", "error", "error", "-"]
    assert lines[4].split()[:2] == ["old", "skipped"]
    assert lines[6] == "3 targets: 1 failed, 1 errored, 1 skipped; 1 finding ignored"


def test_notes_are_told_when_asked_for(found):
    assert "argument-dropped" not in terminal(found, 80)
    assert "1 note: --notes" in terminal(found, 80)
    told = terminal(found, 80, notes=True)
    assert "argument-dropped" in told
    assert "not run: rule: because" in told


# As the runner undoes it: src/Runner.Common/ActionCommand.cs.
def unescaped(text, more=()):
    for code, character in (("%0D", "\r"), ("%0A", "\n"), *more, ("%25", "%")):
        text = text.replace(code, character)
    return text


def read_command(line):
    name, properties, message = re.fullmatch(r"::(\w+) (.*?)::(.*)", line).groups()
    pairs = dict(word.split("=", 1) for word in properties.split(","))
    more = (("%3A", ":"), ("%2C", ","))
    return name, {key: unescaped(value, more) for key, value in pairs.items()}, unescaped(message)


def test_annotations_say_the_same_to_github(found):
    lines = form("github", found).decode().removesuffix("\n").split("\n")
    assert not any("\r" in line for line in lines)
    read = [read_command(line) for line in lines]
    assert [name for name, _, _ in read] == ["error"] * 4 + ["warning"] * 3
    broken, odd = read[0], read[1]
    assert broken[1] == {
        "file": "step.py",
        "line": "9",
        "title": "broken: target errored",
    }
    assert broken[2].endswith(NASTY)
    assert odd[1]["file"] == "pyproject.toml"
    assert odd[2].startswith(NASTY)
    assert NASTY.split("\r")[0] in odd[1]["title"]
    places = {(place["file"], place["line"], place.get("col")) for _, place, _ in read}
    assert ("step.py", "2", "8") in places
    text = " ".join(place["title"] for _, place, _ in read)
    assert "known" not in text  # ignored
    assert "argument-dropped" not in text  # a note


def test_junit_counts_and_tells(found):
    data = junit(found)
    suites = ElementTree.fromstring(data)
    assert suites.attrib == {
        "name": "sdyscope ci",
        "time": "3.000",
        "tests": "7",
        "failures": "5",
        "errors": "1",
    }
    step, broken, old, configuration = suites
    assert old.get("skipped") == "1"
    assert [case.get("name") for case in step.findall("testcase")] == [
        *("check", "lint", "snapshot", "budgets")
    ]
    lint = step.findall("testcase")[1]
    (failure,) = lint.findall("failure")
    assert failure.get("type") == "odd"
    assert "It is well" not in failure.text
    assert "Ignored: It is well, 100%." in lint.find("system-out").text
    assert NASTY.replace("\r\n", "\n").replace("\x1b", "\N{REPLACEMENT CHARACTER}") in failure.text
    assert broken.find("testcase/error").get("message").startswith("step.py:9: 100%")
    assert old.find("testcase/skipped") is not None
    assert configuration.find("testcase/failure").get("type") == "unused-ignore"


#: What junit-10.xsd of Jenkins' xUnit plugin, the strictest reader, takes.
JUNIT = {
    "testsuites": {"name", "time", "tests", "failures", "errors"},
    "testsuite": {"name", "time", "tests", "failures", "errors", "skipped", "file"},
    "properties": set(),
    "property": {"name", "value"},
    "testcase": {"name", "time", "classname"},
    "failure": {"type", "message"},
    "error": {"type", "message"},
    "skipped": {"type", "message"},
    "system-out": set(),
}


def test_junit_has_only_what_strict_readers_take(found):
    for element in ElementTree.fromstring(junit(found)).iter():
        assert set(element.attrib) <= JUNIT[element.tag], element.tag


def test_sarif_follows_its_schema(found):
    read = json.loads(sarif(found))
    schema = json.loads((ASSETS / "sarif-2.1.0-rtm.5.json").read_text())
    jsonschema.Draft4Validator(schema).validate(read)
    (run,) = read["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert all(rules[result["ruleIndex"]]["id"] == result["ruleId"] for result in run["results"])
    by_rule = {result["ruleId"]: result for result in run["results"]}
    place = by_rule["not-divisible"]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "step.py", "uriBaseId": "%SRCROOT%"}
    assert place["region"] == {"startLine": 2, "startColumn": 8}
    assert by_rule["known"]["suppressions"] == [
        {"kind": "external", "justification": "It is well, 100%."}
    ]
    assert "suppressions" not in by_rule["odd"]
    prints = [tuple(result["partialFingerprints"].values()) for result in run["results"]]
    assert len(set(prints)) == len(prints) == 8
    assert run["invocations"][0]["executionSuccessful"] is False
    notified = run["invocations"][0]["toolExecutionNotifications"]
    assert notified[0]["message"]["text"].startswith("broken: target errored: step.py:9")


def test_sarif_says_what_was_compiled_and_by_whom(found):
    step, *others = found.targets
    for hardware, compiled in (("cpu:8", {"step": "compiled for cpu:8 by JAX 0.10.2"}), ("", {})):
        targets = (replace(step, hardware=hardware, compiled_by="JAX 0.10.2"), *others)
        (run,) = json.loads(sarif(replace(found, targets=targets)))["runs"]
        assert run.get("properties", {}).get("compiled", {}) == compiled


def test_sarif_carries_the_edits_of_proven_remedies_alone(tmp_path):
    fix = fix_cases.fix(tmp_path)
    read = json.loads(render_fix(fix, str(tmp_path)))
    schema = json.loads((ASSETS / "sarif-2.1.0-rtm.5.json").read_text())
    jsonschema.Draft4Validator(schema).validate(read)
    proven, other = read["runs"][0]["results"]
    assert (proven["level"], other["level"]) == ("warning", "note")
    assert "fixes" not in other
    assert "Not proven" in other["message"]["text"]
    (change,) = proven["fixes"][0]["artifactChanges"]
    assert change["artifactLocation"] == {"uri": "step.py", "uriBaseId": "%SRCROOT%"}
    region = {"startLine": 2, "startColumn": 1, "endLine": 3, "endColumn": 1}
    assert change["replacements"] == [{"deletedRegion": region}]
    place = proven["locations"][0]["physicalLocation"]
    assert place["region"] == {"startLine": 2}


@pytest.fixture
def remedied(found, tmp_path):
    """The document, with a proven remedy of its first target."""
    fix = fix_cases.fix(tmp_path)
    remedy = remedy_of(fix, fix.proven[0], str(tmp_path))
    first, *others = found.targets
    return replace(found, targets=(replace(first, remedy=remedy), *others))


def test_a_remedy_is_in_every_form_that_can_carry_a_patch(remedied):
    remedy = remedied.targets[0].remedy
    assert remedy.patch.startswith("--- a/step.py\n+++ b/step.py\n@@ ")
    printed = FORMS["text"](remedied, Reader(columns=120)).decode()
    assert remedy.patch.rstrip() in printed
    assert remedy.gain in printed
    assert f"```diff\n{remedy.patch.rstrip()}\n```" in markdown(remedied)
    (run,) = json.loads(sarif(remedied))["runs"]
    result = run["results"][-1]
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "remedy"
    (change,) = result["fixes"][0]["artifactChanges"]
    assert change["artifactLocation"]["uri"] == "step.py"
    read = json.loads(FORMS["json"](remedied, Reader()))
    assert read["targets"][0]["remedy"]["patch"] == remedy.patch


def test_the_schema_refuses_what_is_no_sarif(found):
    read = json.loads(sarif(found))
    schema = json.loads((ASSETS / "sarif-2.1.0-rtm.5.json").read_text())
    del read["runs"][0]["results"][0]["message"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft4Validator(schema).validate(read)


def test_markdown_is_harmless_and_tells_what_fails(found):
    text = markdown(found)
    outside_code = re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", text)
    assert "<b>" in text
    assert "<b>" not in outside_code
    assert "| `step` | 1 warning | 1 error | 1 error | 1 error | 2.5 s |" in text
    assert "`snapshot-changed` `constraint layer0` at `golden.snap:1`" in text
    assert "| `step` | `memory` | Shardy | 2.0 KiB | 10 B | ❌ 20,480% |" in text
    assert "| `step` | `all-gather, count` | Shardy | 1 | 4 | 25% |" in text
    assert "- `step` `known` `layer0`: It is well, 100%." in text
    assert "argument-dropped" not in text


def test_markdown_is_never_longer_than_a_comment(tmp_path):
    from ci_cases import finding

    extra = [finding(tensor=f"jit(step)/layer{n}", message="x" * 500) for n in range(900)]
    text = markdown(document(tmp_path, extra=extra))
    assert 1_000 < len(text) <= LIMIT
    assert re.search(r"and \d+ more", text)
