"""What a target's checks come to."""

from types import SimpleNamespace

from sdyscope.ci.config import Ignore
from sdyscope.ci.judge import Done, _compiled, _not_known, unused_ignores
from sdyscope.ci.places import PlacedFinding
from sdyscope.errors import CompilerError
from sdyscope.facts.account import Account, Unknown, Why
from sdyscope.values.source import SourceLocation
from sdyscope.words.findings import Finding

PLACE = SourceLocation("pyproject.toml", 3)
TARGET = SimpleNamespace(strict=True, place=PLACE)


def not_known(unknown, *findings):
    entries = tuple(PlacedFinding("lint", finding, PLACE, PLACE) for finding in findings)
    account = Account.of([unknown])
    return [
        found.finding.tensor
        for found in _not_known(TARGET, account, {"lint": Done(entries=entries)})
    ]


def test_what_is_not_known_is_hidden_by_the_finding_about_its_text_alone():
    left_out = Unknown("left out", "propagated", Why.OTHER_TYPES, name="loss/iota")
    about_nothing = Finding("layout-copied", "note", "It is copied.", found="")
    assert not_known(left_out) == not_known(left_out, about_nothing) == ["loss/iota"]
    text = '#sdy.sharding<@mesh, [{"a"}]>'
    impossible = Unknown("impossible", "lowered", "no such axis", name="x", text=text)
    assert not_known(impossible, about_nothing) == ["x"]
    assert not_known(impossible, Finding("no-placement", "error", "No.", found=text)) == []


def test_a_rule_of_ci_alone_is_one():
    """What is not known can be ignored, and is no unknown rule once nothing is."""
    place = SourceLocation("pyproject.toml", 3)
    ignores = [Ignore(rule, "*", "so", place) for rule in ("not-known", "not-knwon")]
    known, unknown = [each.finding for each in unused_ignores(ignores, ())]
    assert known.message == "No finding matches this ignore: not-known of *."
    assert known.hint == "Take it out."
    assert unknown.message == "There is no rule 'not-knwon', so this ignores nothing."
    assert unknown.hint == "Did you mean 'not-known'?"


def test_a_program_that_the_compiler_refuses_is_judged_all_the_same():
    def refuse(partitioner, on):
        raise CompilerError("The compiler refuses the program.")

    target = SimpleNamespace(budgets=None, lint=True, compiles=True, on=None)
    assert _compiled(SimpleNamespace(compiled=refuse), target) is None
