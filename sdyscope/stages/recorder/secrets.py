"""Command lines without what looks like a secret, since recordings are shared."""

from __future__ import annotations

import re
from collections.abc import Iterable

#: What stands where a secret was.
HIDDEN = "***"

_NAMES = r"(?:token|secret|passw(?:or)?d|passphrase|api[-_]?key|access[-_]?key|credential)s?"
#: `--hf-token`, whose value is the next word, and `--hf-token=...` or `HF_TOKEN=...`. What
#: is before the name is kept, so it is not searched for.
_OPTION = re.compile(rf"--?[\w-]{{0,60}}{_NAMES}", re.IGNORECASE)
_ASSIGNED = re.compile(rf"({_NAMES}=).+", re.IGNORECASE | re.DOTALL)
#: `https://user:password@host`.
_IN_URL = re.compile(r"((?<=\w)://[^/\s:@]{0,200}:)[^/\s@]{1,400}(?=@)")
#: Tokens that their makers mark: Hugging Face, GitHub, GitLab, Slack, AWS, Google, OpenAI and
#: others, Weights & Biases (40 hexadecimal digits alone), JSON web tokens.
_MARKED = re.compile(
    r"\b(?:hf_\w{16,}|gh[opsu]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|xox[abprs]-[\w-]{10,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{12,}|AIza[\w-]{20,}|sk-[\w-]{16,}|eyJ[\w-]{10,2000}\.[\w-]{1,2000}\.[\w-]{0,2000})"
    r"|^[0-9a-f]{40}$"
)


def redacted(words: Iterable[str]) -> list[str]:
    """The words of a command line, with what looks like a secret as `***`.

    By the names of options and variables, by the marks that makers of tokens put into them, and
    passwords in addresses. What looks like none of these is kept.
    """
    shown: list[str] = []
    follows = False
    for word in words:
        if follows and not word.startswith("-"):
            shown.append(HIDDEN)
        else:
            word = _ASSIGNED.sub(rf"\1{HIDDEN}", word)
            word = _IN_URL.sub(rf"\1{HIDDEN}", word)
            shown.append(_MARKED.sub(HIDDEN, word))
        follows = _OPTION.fullmatch(word) is not None
    return shown
