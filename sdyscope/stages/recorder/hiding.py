"""What looks like a secret in a command line is not recorded.

It imports nothing of the package: it runs in programs that are recorded, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["HIDDEN", "without_secrets"]

#: What stands for a secret.
HIDDEN = "(hidden)"

#: Names whose value is a secret.
_NAME = re.compile(
    r"(?i)(?:^|[-_.])(?:token|secret|passw(?:or)?d|passwd|pwd|passphrase|credentials?|bearer|"
    r"api[-_]?key|access[-_]?key|private[-_]?key|auth(?:orization)?|\w{0,40}key[-_]?secret)(?:$|[-_.])"
    r"|(?i:^-{0,2}\w{0,40}(?:token|secret|password|apikey)$)"
)

#: An assignment within a word, as in `--token=x`, `WANDB_API_KEY=x`, `{"token": "x"}`.
_ASSIGNED = re.compile(
    r"(?<![\w.-])(?P<name>[\w.-]{1,80})(?P<quote>['\"]?\s{0,9}[=:]\s{0,9}['\"]?)(?P<value>[^'\"\s,;&}]+)"
)

#: Forms of keys that services give out, and passwords in addresses.
_KNOWN = re.compile(
    r"\b(?:hf_|gh[opsur]_|github_pat_|glpat-|sk-|xox[abeprs]-|AKIA|ASIA|AIza|ya29\.|pypi-)"
    r"[\w.-]{8,}"
    r"|\beyJ[\w-]{8,2000}\.[\w-]{8,2000}\.[\w-]*"
    r"|(?<![\w])[0-9a-f]{40}(?![\w])"
    r"|(?<=://)[^/\s:@]{0,200}:[^/\s@]{1,400}(?=@)"
)


def without_secrets(words: Iterable[str]) -> list[str]:
    """The words of a command line with what looks like a secret replaced by ``HIDDEN``."""
    made: list[str] = []
    value_follows = False
    for word in words:
        if value_follows and not word.startswith("-"):
            made.append(HIDDEN)
            value_follows = False
            continue
        value_follows = word.startswith("-") and "=" not in word and bool(_NAME.search(word))
        made.append(_KNOWN.sub(HIDDEN, _ASSIGNED.sub(_hidden_value, word)))
    return made


def _hidden_value(found: re.Match[str]) -> str:
    if not _NAME.search(found["name"]):
        return found[0]
    return f"{found['name']}{found['quote']}{HIDDEN}"
