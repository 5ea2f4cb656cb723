"""What each rule says, for forms that list rules: those of lint, and those of CI alone."""

from __future__ import annotations

from collections.abc import Mapping

from sdyscope.lint import RULES

_OWN: Mapping[str, str] = {
    "snapshot-changed": "A tensor or collective differs from the golden file.",
    "snapshot-removed": "The golden file has something that the program does not have.",
    "snapshot-added": "The program has something that the golden file does not have.",
    "snapshot-missing": "The golden file does not have the program.",
    "snapshot-older": "The golden file is of an older version: not all of it is compared.",
    "snapshot-unused": "The golden file has a program that is not a target.",
    "over-communication": "A step communicates more than its budget allows.",
    "over-replication": "A device holds more replicated bytes than its budget allows.",
    "over-memory": "A device needs more memory than its budget allows.",
    "budget-uncertain": "A budget could not be counted with certainty.",
    "not-known": "Something of the program is not known: not understood, impossible, refused, left "
    "out, approximate or not compared.",
    "unused-ignore": "An ignored finding does not occur.",
}

NAMES = frozenset({*RULES, *_OWN})
"""The name of every rule."""


def rule_words(name: str) -> tuple[str, str]:
    """A line on a rule, and its explanation; the explanation is empty where there is none."""
    if name in RULES:
        return RULES[name].summary, RULES[name].explanation
    return _OWN.get(name, name.replace("-", " ").capitalize() + "."), ""
