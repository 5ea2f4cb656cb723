"""Snapshots as text. The format is described in docs/snapshot.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from sdyscope.facts.snapshots import Item, Stage, StageText
from sdyscope.graph.collection import no_collection
from sdyscope.snapshots.folding import Range, Template, fold
from sdyscope.snapshots.items import has_devices
from sdyscope.snapshots.values import Key, Kind, Snapshot
from sdyscope.words.sharding import has_buffer
from sdyscope.words.snapshots import places_text

#: The latest version of the format. A file is written in the first that can say what is in it.
VERSION: Final = 9

#: Kinds of blocks and stages that came later than the first version.
_SINCE: Mapping[Kind, int] = {"memory": 2}
_STAGE_SINCE: Mapping[Stage, int] = {"compiled": 3}

#: Since when Shardy's form of a sharding has no quotes.
_UNQUOTED_SINCE = 4

#: Since when it is written which of several tensors of one key is which.
_PLACES_SINCE = 5

#: Since when it is written what each of them is computed from.
_ON_SINCE = 6

#: Since when it is written in which order the devices of a collective work together.
_DEVICES_SINCE = 7

#: Since when there are compiled programs' texts, which are for no partitioner that they name.
_TEXTS_SINCE = 8

#: Since when it is written what is donated, and which layouts are asked for.
_BUFFERS_SINCE = 9

#: What the lines begin with that say so.
PLACES: Final = "places"
ON: Final = "on"

#: What every file begins with; the version follows.
MARK: Final = "sdyscope snapshot"

#: What stands for a text without a character.
EMPTY: Final = "."

_SPECIAL = frozenset("\\{}")


@no_collection()
def write(snapshots: Iterable[Snapshot]) -> str:
    """The text of a file with some programs, sorted by name."""
    ordered = sorted(snapshots, key=lambda snapshot: snapshot.name)
    parts = [f"{MARK} {version_of(ordered)}\n"]
    for snapshot in ordered:
        parts += [head(snapshot), *(text for _, text in blocks(snapshot))]
    return "\n".join(parts)


def version_of(snapshots: Iterable[Snapshot]) -> int:
    """The first version of the format that can say what is in some snapshots."""
    listed = list(snapshots)
    return max(
        [_SINCE.get(key.kind, 1) for snapshot in listed for key in snapshot.items]
        + [_STAGE_SINCE.get(stage, 1) for snapshot in listed for stage in snapshot.stages]
        + [_UNQUOTED_SINCE for snapshot in listed if _has_shardys_form(snapshot)]
        + [_PLACES_SINCE for snapshot in listed if _has(snapshot, lambda item: item.places)]
        + [_ON_SINCE for snapshot in listed if _has(snapshot, lambda item: item.on)]
        + [_DEVICES_SINCE for snapshot in listed if _has_devices(snapshot)]
        + [_BUFFERS_SINCE for snapshot in listed if _has_buffers(snapshot)]
        + [_TEXTS_SINCE for snapshot in listed if not snapshot.partitioners],
        default=1,
    )


def _has_shardys_form(snapshot: Snapshot) -> bool:
    return _has(snapshot, lambda item: [c for c in item.cells if c.text.startswith("[")])


def _has_buffers(snapshot: Snapshot) -> bool:
    return _has(snapshot, lambda item: [c for c in item.cells if has_buffer(c.text)])


def _has_devices(snapshot: Snapshot) -> bool:
    return any(
        has_devices(items) for key, items in snapshot.items.items() if key.kind == "collective"
    )


def _has(snapshot: Snapshot, part: Callable[[Item], Sequence[object]]) -> bool:
    return any(part(item) for items in snapshot.items.values() for item in items)


def head(snapshot: Snapshot) -> str:
    """What is said of a whole program."""
    lines = [f"program  {escaped(snapshot.name)}"]
    if snapshot.mesh:
        lines.append(f"  mesh {escaped(snapshot.mesh)}")
    if snapshot.partitioners:
        lines.append(f"  partitioners {', '.join(snapshot.partitioners)}")
    lines.append(f"  stages {', '.join(snapshot.stages)}")
    if snapshot.hardware:
        lines.append(f"  hardware {escaped(snapshot.hardware)}")
    return "\n".join(lines) + "\n"


def blocks(snapshot: Snapshot) -> Iterator[tuple[dict[Key, tuple[Item, ...]], str]]:
    """Each block: what it says of which keys, and its text."""
    from sdyscope.snapshots.read import named

    for first, template, items in fold(snapshot.items):
        keys = named(first, template)
        yield dict.fromkeys(keys, items), block(first, template, items)


def block(key: Key, template: Template, items: Sequence[Item]) -> str:
    """One block of text, with a newline at its end."""
    fields = [key.kind, template_text(template)]
    if key.kind == "collective":
        fields.insert(1, escaped(key.over))
    if key.type:
        fields.append(escaped(key.type))
    lines = ["  ".join(fields)]
    counted = len(items) > 1 or any(item.count != 1 for item in items)
    width = max(len(str(item.count)) for item in items) + 2 if counted else 0
    for item in items:
        for number, cell in enumerate(item.cells):
            count = f"×{item.count}" if counted and number == 0 else ""
            lines.append(f"  {count:<{width}}{_cell(cell)}")
        if item.places:
            lines.append(f"  {'':<{width}}{PLACES} {places_text(item.places)}")
        if item.on:
            lines.append(f"  {'':<{width}}{ON} {','.join(item.on)}")
    return "\n".join(lines) + "\n"


def _cell(cell: StageText) -> str:
    by = f" {cell.partitioner}:" if cell.partitioner else ""
    text = escaped(cell.text)
    if not by and text.startswith(("shardy:", "gspmd:")):
        text = _code(text[0]) + text[1:]
    return f"{cell.stage}{by} {text}"


def template_text(template: Template) -> str:
    """``params['layers'][{0..23}]['w1']``."""
    text = "".join(_escaped(part) if isinstance(part, str) else _range(part) for part in template)
    return EMPTY if not text else _code(EMPTY) if text == EMPTY else text


def _range(numbers: Range) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    words = []
    for run in runs:
        if len(run) > 1:
            words.append(f"{run[0]}..{run[-1]}")
        else:
            words.append(str(run[0]))
    return "{" + ",".join(words) + "}"


def escaped(text: str) -> str:
    """A text in one line, without braces of its own and without two spaces in a row."""
    escaped = _escaped(text)
    return EMPTY if not escaped else _code(EMPTY) if escaped == EMPTY else escaped


def _escaped(text: str) -> str:
    characters: list[str] = []
    for place, char in enumerate(text):
        if char == " ":
            # A single space between other characters reads best; any other might be lost.
            inside = 0 < place < len(text) - 1 and text[place - 1] != " "
            characters.append(char if inside else _code(char))
        elif char in _SPECIAL:
            characters.append("\\" + char)
        else:
            characters.append(char if char.isprintable() else _code(char))
    return "".join(characters)


def _code(char: str) -> str:
    number = ord(char)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
