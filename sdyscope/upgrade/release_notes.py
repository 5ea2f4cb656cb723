"""What the notes of a release of JAX say of sharding.

JAX's wheels and sources in the index come without its changelog: it is read from a file, or from
JAX's repository.
"""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections.abc import Iterator

from packaging.version import InvalidVersion, Version

from sdyscope.errors import TargetError, read_text
from sdyscope.upgrade.bisected import ReleaseNote

#: Where JAX's changelog is as text, and as a page.
SOURCE = "https://raw.githubusercontent.com/jax-ml/jax/main/CHANGELOG.md"
PAGE = "https://docs.jax.dev/en/latest/changelog.html"

#: Seconds that the repository has to answer.
_PATIENCE = 10.0

_HEADING = re.compile(r"^## (?:jax(?:lib)? )?(?P<version>\d[\w.]*|Unreleased)\b.*$", re.I | re.M)
_ITEM = re.compile(r"^(?P<indent> *)[*-] ", re.MULTILINE)
#: What is about where tensors are.
_ABOUT = re.compile(
    r"shard|\bmesh|shardy|gspmd|partition|collective|\bspmd|all_gather|all_to_all|psum|ppermute"
    r"|pvary|\bpcast|unreduced|layout|replicat",
    re.IGNORECASE,
)


def read_changelog(file: str | None) -> str:
    """JAX's changelog: a file, or what its repository has.

    Raises:
        TargetError: it can't be read.
    """
    if file is not None:
        return read_text(file, "changelog")
    try:
        with urllib.request.urlopen(SOURCE, timeout=_PATIENCE) as answer:
            text: str = answer.read().decode("utf-8", "replace")
            return text
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", None) or error
        why = getattr(why, "strerror", None) or why
        raise TargetError(f"JAX's changelog can't be fetched: {why}") from error


def notes_of(release: str, changelog: str | None) -> ReleaseNote:
    """What the notes of a release say of sharding.

    Args:
        release: the release.
        changelog: a file with JAX's changelog; None for the one in its repository.
    """
    link = f"{PAGE}#jax-{release.replace('.', '-')}"
    try:
        text = read_changelog(changelog)
    except TargetError as error:
        return ReleaseNote(release, (), link, str(error))
    sections = list(_sections(text, release))
    if not sections:
        return ReleaseNote(release, (), link, f"The changelog has no notes of JAX {release}.")
    items = (item for section in sections for item in _items(section))
    return ReleaseNote(release, tuple(item for item in items if _ABOUT.search(item)), link)


def _sections(text: str, release: str) -> Iterator[str]:
    """What stands under the headings of a release: of JAX, and in older ones of jaxlib."""
    headings = list(_HEADING.finditer(text))
    ends = [match.start() for match in headings[1:]] + [len(text)]
    for match, end in zip(headings, ends, strict=True):
        try:
            same = Version(match["version"]) == Version(release)
        except InvalidVersion:
            same = False
        if same:
            yield text[match.end() : end]


def _items(section: str) -> Iterator[str]:
    """The items of a list, each with those below it, on one line; headings of lists left out."""
    starts = list(_ITEM.finditer(section))
    ends = [match.start() for match in starts[1:]] + [len(section)]
    for number, (match, end) in enumerate(zip(starts, ends, strict=True)):
        text = " ".join(section[match.end() : end].split())
        after = starts[number + 1] if number + 1 < len(starts) else None
        heads = after is not None and len(after["indent"]) > len(match["indent"])
        if text and not (heads and not text.endswith(".") and len(text.split()) < 6):
            yield text
