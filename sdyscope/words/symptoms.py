"""Symptoms: what is seen of a program that goes wrong, and what docs/symptoms.md says of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from sdyscope.values.source import PathWords

_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_SEEN_AS = re.compile(r"^Seen as: (.+)$", re.MULTILINE)
_CODE = re.compile(r"`([^`]+)`")
_PAGE = re.compile(r"\[[^\]]+\]\((?:\.\./)?([\w/-]+)\.md[^)]*\)")
_FENCED = re.compile(r"^```.*?^```$\n?", re.MULTILINE | re.DOTALL)
_COMMANDS = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)

#: How many lines of a log are told of each symptom.
_LINES = 3


@dataclass(frozen=True, slots=True)
class Seen:
    """A line in which a symptom is seen.

    Attributes:
        line: its number, from 1.
        text: the line.
    """

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Symptom:
    """One symptom.

    Attributes:
        title: what it is.
        seen_as: what messages of JAX and XLA, and people, say of it; ``*`` stands for any text.
        commands: the command lines that find the cause, with TARGET for the program.
        about: what is said of it, in Markdown.
        seen: the first lines in which it is seen.
        lines: in how many lines it is seen; 0 where nothing was searched.
    """

    title: str
    seen_as: tuple[str, ...]
    commands: tuple[str, ...]
    about: str
    seen: tuple[Seen, ...] = ()
    lines: int = 0

    @property
    def prose(self) -> tuple[str, ...]:
        """The paragraphs on how the answers are read, each on one line, links as commands."""
        paragraphs = (
            _PAGE.sub(r"`sdyscope docs \1`", " ".join(text.split()))
            for text in _FENCED.sub("", self.about).split("\n\n")
        )
        return tuple(text for text in paragraphs if text and not text.startswith("Seen as:"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptoms:
    """The document of `sdyscope symptoms --json`.

    Attributes:
        schema: name and version of this form.
        source: the file that was searched, or the words; null where all symptoms are listed.
        symptoms: those that are seen in it, or all.
    """

    schema: Literal["sdyscope.symptoms/1"] = "sdyscope.symptoms/1"
    source: PathWords | None
    symptoms: tuple[Symptom, ...]


def read_symptoms(page: str) -> tuple[Symptom, ...]:
    """The symptoms of docs/symptoms.md: a section each that has a line `Seen as:`."""
    parts = _SECTION.split(page)
    symptoms = []
    for title, text in zip(parts[1::2], parts[2::2], strict=True):
        seen_as = _SEEN_AS.search(text)
        if seen_as is None:
            continue
        commands = [
            line for block in _COMMANDS.findall(text) for line in block.splitlines() if line
        ]
        symptoms.append(
            Symptom(title, tuple(_CODE.findall(seen_as[1])), tuple(commands), text.strip())
        )
    return tuple(symptoms)


def searched(
    symptoms: Sequence[Symptom], lines: Iterable[str], *, words: bool = False
) -> tuple[Symptom, ...]:
    """Those of the symptoms that are seen in a log, or that a person's words name.

    Args:
        symptoms: all of them.
        lines: the lines of the log, or the words as one.
        words: whether a person wrote them: then a word of a title is enough.
    """
    seen: dict[str, list[Seen]] = {symptom.title: [] for symptom in symptoms}
    count = dict.fromkeys(seen, 0)
    for number, line in enumerate(lines, 1):
        text = line.lower()
        for symptom in symptoms:
            if _is_seen(symptom, text, words):
                count[symptom.title] += 1
                if len(seen[symptom.title]) < _LINES:
                    seen[symptom.title].append(Seen(number, line.strip()))
    return tuple(
        Symptom(
            symptom.title,
            symptom.seen_as,
            symptom.commands,
            symptom.about,
            tuple(seen[symptom.title]),
            count[symptom.title],
        )
        for symptom in symptoms
        if count[symptom.title]
    )


@cache
def _phrase(phrase: str) -> re.Pattern[str]:
    """What finds a phrase in a line; ``*`` in it stands for any text."""
    return re.compile(".*".join(map(re.escape, phrase.split("*"))))


def _is_seen(symptom: Symptom, text: str, words: bool) -> bool:
    phrases = [phrase.lower() for phrase in symptom.seen_as]
    if any(_phrase(phrase).search(text) for phrase in phrases):
        return True
    asked = set(re.findall(r"\w{3,}", text)) if words else set()
    known = re.findall(r"\w+", " ".join((symptom.title.lower(), *phrases)))
    return bool(asked) and all(any(word in name for name in known) for word in asked)
