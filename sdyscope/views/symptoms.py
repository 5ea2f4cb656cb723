"""Symptoms: where each is seen, what finds its reason, and how that is read."""

from __future__ import annotations

from collections.abc import Iterator

from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.words.counts import counted
from sdyscope.words.symptoms import Symptom, Symptoms

#: Characters of a line of a log that tell enough.
_LONG = 200


def paragraphs(symptoms: Symptoms) -> Iterator[Paragraph]:
    """All symptoms with what they are seen as, or what to do about those that were found."""
    if symptoms.source is None:
        for entry in symptoms.symptoms:
            yield Paragraph(entry.title, "heading")
            yield Paragraph(", ".join(entry.seen_as), "muted", indent=2)
        yield Paragraph("")
        yield Paragraph(
            "`sdyscope symptoms FILE` searches a log for these, and says which commands find "
            "the cause."
        )
        return
    if not symptoms.symptoms:
        yield Paragraph(f"No known symptom in {symptoms.source}. `sdyscope symptoms` lists them.")
    for number, symptom in enumerate(symptoms.symptoms):
        if number:
            yield Paragraph("")
        yield from _about(symptom, symptoms.source)


def _about(symptom: Symptom, source: str) -> Iterator[Paragraph]:
    yield Paragraph(symptom.title, "heading")
    for seen in symptom.seen:
        if seen.text == source:  # words of the command line, which have no lines
            continue
        text = seen.text if len(seen.text) <= _LONG else f"{seen.text[:_LONG]}..."
        yield Paragraph(f"line {seen.line:,}: {text}", "muted", indent=2)
    if symptom.lines > len(symptom.seen):
        yield Paragraph(
            f"and {counted(symptom.lines - len(symptom.seen), 'more line')}", "muted", indent=2
        )
    yield Paragraph("")
    for command in symptom.commands:
        yield Paragraph(command, indent=2)
    for text in symptom.prose:
        yield Paragraph("")
        yield Paragraph(text, indent=2)
