"""What each rule says, for forms that list rules: those of lint, and those of CI alone."""

from __future__ import annotations

from sdyscope.lint import RULES
from sdyscope.words.ci import RULES as OWN

NAMES = frozenset({*RULES, *OWN})
"""The name of every rule."""


def rule_words(name: str) -> tuple[str, str]:
    """A line on a rule, and its explanation; the explanation is empty where there is none."""
    if name in RULES:
        return RULES[name].summary, RULES[name].explanation
    return OWN.get(name, name.replace("-", " ").capitalize() + "."), ""
