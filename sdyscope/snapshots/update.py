"""A snapshot file brought up to date: what did not change keeps its bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from sdyscope.facts.snapshots import Item
from sdyscope.snapshots.compare import compare
from sdyscope.snapshots.read import OLD_WORDS, FileBlock, ProgramSection, read_sections
from sdyscope.snapshots.values import Key, Snapshot
from sdyscope.snapshots.write import MARK, blocks, head, version_of

#: A stage as older versions call it, in the head of a program or before what is said of it.
_RENAMED = re.compile(rf"^( +(?:×\d+ +|stages (?:\w+, )*)?)({'|'.join(OLD_WORDS)})\b", re.MULTILINE)


def update(
    text: str,
    snapshots: Iterable[Snapshot],
    *,
    remove_unused: bool = False,
    file: str | Path | None = None,
) -> str:
    """The text of a file with what changed written anew.

    Blocks that say the same stay as they are, byte by byte, and so does a program that nothing new
    is known of. Comments stay with the block that they stand before, or with the first of those
    that take its place.

    Args:
        text: the file's text.
        snapshots: the programs as they are now.
        remove_unused: whether programs that are not among these leave the file.
        file: where the text is from, for errors.

    Raises:
        SyntaxTextError: the text is no snapshot.
    """
    sections = read_sections(text, file)
    first, _, _ = text.partition("\n")
    newline = "\r\n" if first.endswith("\r") else "\n"
    now = {snapshot.name: snapshot for snapshot in snapshots}
    before = {section.snapshot.name: section for section in sections}
    parts: list[str] = []
    names = [*before] if not now.keys() - before.keys() else sorted({*before, *now})
    for name in names:
        if name not in now:
            if not remove_unused:
                parts += [before[name].text, *(block.text for block in before[name].blocks)]
        elif name in before:
            parts += _updated(before[name], now[name], newline)
        else:
            blocks_now = [head(now[name]), *(text for _, text in blocks(now[name]))]
            parts += [_with_newlines(part, newline) for part in blocks_now]
    left = [now.get(name) or before[name].snapshot for name in names]
    needed = version_of(section for section in left if section.name in now or not remove_unused)
    made_first = first.rstrip("\r")
    if int(made_first.removeprefix(MARK)) < needed:
        made_first = f"{MARK} {needed}"
        parts = [_RENAMED.sub(lambda match: match[1] + OLD_WORDS[match[2]], part) for part in parts]
    return newline.join([made_first + newline, *parts])


def _updated(section: ProgramSection, now: Snapshot, newline: str) -> list[str]:
    was = section.snapshot
    comparison = compare(was, now)
    if comparison.is_same and not comparison.not_compared:
        return [section.text, *(block.text for block in section.blocks)]
    same_head = replace(was, items={}) == replace(now, items={})
    top = section.text if same_head else section.comments + _with_newlines(head(now), newline)
    at: dict[Key, int] = {}
    for number, block in enumerate(section.blocks):
        at.update(dict.fromkeys(block.says, number))
    taken: set[int] = set()
    parts = [top]
    for says, text in blocks(now):
        # The old blocks that said something of these.
        numbers = list(dict.fromkeys(at[key] for key in says if key in at))
        parts.append(_block(section.blocks, numbers, says, text, taken, newline))
    return parts


def _block(
    old: Sequence[FileBlock],
    numbers: Sequence[int],
    says: dict[Key, tuple[Item, ...]],
    text: str,
    taken: set[int],
    newline: str,
) -> str:
    if len(numbers) == 1 and old[numbers[0]].says == says:
        taken.add(numbers[0])
        return old[numbers[0]].text
    comments = "".join(old[number].comments for number in numbers if number not in taken)
    taken.update(numbers)
    return comments + _with_newlines(text, newline)


def _with_newlines(text: str, newline: str) -> str:
    return text.replace("\n", newline)
