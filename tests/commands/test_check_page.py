"""What docs/check.md lists is what there is."""

import re
from pathlib import Path

from sdyscope.lint import Rule, requested

ROOT = Path(__file__).parents[2]


def test_the_rules_of_check_are_those_of_lint():
    page = (ROOT / "docs" / "check.md").read_text()
    listed = dict(re.findall(r"^\| `([a-z-]+)` \| (error|warning|note) \|", page, re.MULTILINE))
    known = {
        rule.name: rule.severity for rule in vars(requested).values() if isinstance(rule, Rule)
    }
    assert {name: listed.get(name) for name in known} == known
    # What is only worth knowing of one tensor is no rule of lint.
    assert set(listed) - set(known) <= {"axes-dropped", "request-note"}
