"""The text of snapshots read, of every version that was ever written.

Lines are read one by one: a grammar would say no more than the few words that each begins with. An
error has the line, the column and a caret. The pieces keep their text, so that ``update`` can leave
it as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from sdyscope.errors import SyntaxTextError, TargetError
from sdyscope.facts.program import Partitioner
from sdyscope.facts.snapshots import STAGES, Item, Stage, StageText
from sdyscope.snapshots.folding import MOST, Range, Template, expanded, size
from sdyscope.snapshots.items import counted
from sdyscope.snapshots.values import KINDS, Key, Kind, Snapshot
from sdyscope.snapshots.write import EMPTY, MARK, ON, PLACES, VERSION
from sdyscope.words.mesh import axis_text

_PARTITIONERS: tuple[Partitioner, ...] = ("shardy", "gspmd")
_CONFLICT = re.compile(r"(<{7}|\|{7}|>{7})( |$)|={7}$")
_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|([\\{}]))")
_RANGE = re.compile(r"\{(\d{1,9}(?:\.\.\d{1,9})?(?:,\d{1,9}(?:\.\.\d{1,9})?)*)\}")
_COUNT = re.compile(r"×([1-9]\d{0,17}) +")
_PLACES = re.compile(rf" +{PLACES} (\d{{1,9}}(?:(?:,|\.\.|/)\d{{1,9}})*)")
_ON = re.compile(rf" +{ON} ([0-9a-f]{{8}}(?:,[0-9a-f]{{8}})*)")
_RUN = re.compile(r"(\d+)(?:\.\.(\d+)(?:/(\d+))?)?")
_LINE = re.compile(r"( +)(\S+) (.+)")
_HEADER = ("mesh", "partitioners", "stages", "hardware")

#: Shardy's form, as versions before 4 wrote it: of what has priorities with the mesh's symbol.
_QUOTED = re.compile(r"(\[.*\].*)|<@[^,]*, (\[.*)>")

#: What older files say in other words: of memory, of collectives, and a part of an axis with its
#: size, which it has in it.
_COPIES = re.compile(r"^(a device holds [\d,]+ B, [\d,]+ B of it )copies\b")
_A_STEP = re.compile(r"^([\d,]+ × )a step, ")
_SIZED_PART = re.compile(r"(:\(\d+\)(\d+))=\2\b")

#: Stages that had another name before this version.
_RENAMED = 3
OLD_WORDS: Mapping[str, Stage] = {"partitioned": "compiled"}


@dataclass(frozen=True)
class FileBlock:
    """One block of a file.

    Attributes:
        says: what it says of which keys.
        text: its lines as they are, comments before it included.
        comments: these alone.
    """

    says: dict[Key, tuple[Item, ...]]
    text: str
    comments: str


@dataclass
class ProgramSection:
    """What a file says of one program.

    Attributes:
        snapshot: what that comes to.
        text: the lines of its head as they are.
        comments: those before it alone.
        blocks: its blocks, in order.
    """

    snapshot: Snapshot
    text: str
    comments: str
    blocks: list[FileBlock] = field(default_factory=list)


def is_snapshot(path: str | Path) -> bool:
    """Whether a file begins as a snapshot does."""
    try:
        with open(path, "rb") as file:
            return file.read(len(MARK)) == MARK.encode()
    except OSError:
        return False


def read_snapshots(text: str, file: str | Path | None = None) -> tuple[Snapshot, ...]:
    """The programs in the text of a snapshot file.

    Args:
        text: the text.
        file: where it is from, for errors.

    Raises:
        SyntaxTextError: it is no such text, is of a version that is not known yet, or was damaged.
    """
    return tuple(section.snapshot for section in read_sections(text, file))


def read_file(path: str | Path) -> str:
    """The text of a file, with its newlines as they are.

    Raises:
        TargetError: it can't be read, or is no text.
    """
    try:
        return Path(path).read_bytes().decode()
    except UnicodeDecodeError as error:
        raise TargetError(
            f"This is not a snapshot: byte {error.start} is not UTF-8 text.", file=str(path)
        ) from None
    except OSError as error:
        raise TargetError(
            f"cannot read this file: {error.strerror or error}", file=str(path)
        ) from error


def read_sections(text: str, file: str | Path | None = None) -> list[ProgramSection]:
    """The same, with its text in pieces."""
    return _Reader(text, file).sections()


def named(key: Key, template: Template) -> Iterator[Key]:
    """The keys of a template, which otherwise are as ``key``."""
    return (replace(key, name=name) for name in expanded(template))


@dataclass(frozen=True)
class _Piece:
    """Lines without an empty one between them, the number of the first, and as they are."""

    first: int
    lines: list[str]
    raw: list[str]


class _Reader:
    def __init__(self, text: str, file: str | Path | None) -> None:
        self.text = text
        self.file = file

    def error(
        self, message: str, line: int, column: int = 1, *, hint: str | None = None
    ) -> SyntaxTextError:
        return SyntaxTextError(
            message,
            text=self.text.replace("\r\n", "\n"),
            line=line,
            column=column,
            file=self.file,
            hint=hint,
        )

    def sections(self) -> list[ProgramSection]:
        lines = self.text.split("\n")
        for number, line in enumerate(lines, 1):
            if _CONFLICT.match(line.rstrip("\r")):
                raise self.error(
                    "a merge conflict was left in this snapshot",
                    number,
                    hint="Take either side, then write it again with --update.",
                )
        self.old_words = OLD_WORDS if self.version(lines[0].rstrip("\r")) < _RENAMED else {}
        sections: list[ProgramSection] = []
        items: dict[Key, tuple[Item, ...]] = {}
        for piece in self.pieces():
            comments = [line for line in piece.lines if line.startswith("#")]
            rest = piece.lines[len(comments) :]
            said = "".join(piece.raw[: len(comments)])
            whole = "".join(piece.raw)
            if not rest:
                raise self.error(
                    "a comment belongs to what it stands before, without an empty line",
                    piece.first,
                )
            first = piece.first + len(comments)
            if rest[0].startswith("program  "):
                items = {}
                section = ProgramSection(self.program(rest, first, items), whole, said)
                if any(section.snapshot.name == existing.snapshot.name for existing in sections):
                    raise self.error("this program is in the file twice", first, 10)
                sections.append(section)
                continue
            if not sections:
                raise self.error("expected a program before what is said of it", first)
            says = self.block(rest, first, sections[-1].snapshot)
            for key in says:
                if key in items:
                    raise self.error(f"the {key.kind} {key.name} is in the file twice", first)
            items.update(says)
            sections[-1].blocks.append(FileBlock(says, whole, said))
        return sections

    def version(self, line: str) -> int:
        match = re.fullmatch(rf"{MARK} (\d+)", line)
        if match is None:
            raise self.error(
                "this is not a snapshot", 1, hint=f"The first line of one is {MARK} {VERSION}."
            )
        if not 1 <= int(match[1]) <= VERSION:
            raise self.error(
                f"this snapshot is of version {match[1]}, and version {VERSION} is the latest "
                "that is understood",
                1,
                len(MARK) + 2,
                hint="Check it with the sdyscope that wrote it, or a later one.",
            )
        return int(match[1])

    def pieces(self) -> Iterator[_Piece]:
        start, lines, raw = 0, list[str](), list[str]()
        for number, line in enumerate(self.text.split("\n"), 1):
            if number == 1:
                continue
            plain = line.rstrip("\r")
            if plain.strip(" "):
                if not lines:
                    start = number
                lines.append(plain)
                raw.append(line + "\n")
            elif lines:
                yield _Piece(start, lines, raw)
                lines, raw = [], []
        if lines:
            yield _Piece(start, lines, raw)

    # The parts.

    def program(self, lines: list[str], first: int, items: dict[Key, tuple[Item, ...]]) -> Snapshot:
        name = self.unescaped(lines[0][9:], first, 10)
        said: dict[str, str] = {}
        for number, line in enumerate(lines[1:], first + 1):
            match = _LINE.fullmatch(line)
            if match is None or match[2] not in _HEADER or match[2] in said:
                raise self.error(
                    f"expected one line each for {', '.join(_HEADER)}",
                    number,
                    len(line) - len(line.lstrip(" ")) + 1,
                )
            said[match[2]] = match[3]
            known = {"partitioners": _PARTITIONERS, "stages": STAGES}.get(match[2])
            if known is not None:
                for word in match[3].split(", "):
                    if self.old_words.get(word, word) not in known:
                        raise self.error(
                            f"there is no {match[2][:-1]} {word!r}; there is {', '.join(known)}",
                            number,
                            match.start(3) + 1 + match[3].index(word),
                        )
            else:
                said[match[2]] = self.unescaped(match[3], number, match.start(3) + 1)
        for word in ("partitioners", "stages"):
            # Only what was compiled has no partitioner's name.
            if word not in said and (word == "stages" or said.get("stages") != "compiled"):
                raise self.error(f"this program has no line for {word}", first)
        partitioners, stages = said.get("partitioners", "").split(", "), said["stages"].split(", ")
        stages = [self.old_words.get(word, word) for word in stages]
        return Snapshot(
            name,
            said.get("mesh", ""),
            tuple(partitioner for partitioner in _PARTITIONERS if partitioner in partitioners),
            tuple(stage for stage in STAGES if stage in stages),
            said.get("hardware", ""),
            items,
        )

    def block(
        self, lines: list[str], first: int, snapshot: Snapshot
    ) -> dict[Key, tuple[Item, ...]]:
        key, template = self.key(lines[0], first)
        items: list[Item] = []
        for number, line in enumerate(lines[1:], first + 1):
            indent = len(line) - len(line.lstrip(" "))
            if not indent:
                raise self.error("expected an empty line before the next block", number)
            if (match := _PLACES.fullmatch(line)) and items:
                places = _places(match[1], items[-1].count)
                if places is None or items[-1].places:
                    raise self.error(
                        f"expected {items[-1].count:,} places, ascending, such as 1,3..5",
                        number,
                        match.start(1) + 1,
                    )
                items[-1] = replace(items[-1], places=places)
                continue
            if (match := _ON.fullmatch(line)) and items:
                on = tuple(match[1].split(","))
                if len(on) != len(items[-1].places) or items[-1].on:
                    raise self.error(
                        "expected eight hexadecimal digits for each of the places before",
                        number,
                        match.start(1) + 1,
                    )
                items[-1] = replace(items[-1], on=on)
                continue
            count = _COUNT.match(line, indent)
            cell = self.cell(line, number, count.end() if count else indent, snapshot)
            if count or not items:
                items.append(Item((cell,), int(count[1]) if count else 1))
            else:
                items[-1] = replace(items[-1], cells=(*items[-1].cells, cell))
        if not items:
            raise self.error("nothing is said of this one", first)
        if size(template) > MOST:
            raise self.error(f"this stands for more than {MOST:,} tensors", first)
        taken = [place for item in items for place in item.places]
        if len(set(taken)) != len(taken):
            raise self.error("two of these have one place", first)
        return dict.fromkeys(named(key, template), counted(items))

    def key(self, line: str, number: int) -> tuple[Key, Template]:
        fields = line.split("  ")
        kinds: dict[str, Kind] = {kind: kind for kind in KINDS}
        kind = kinds.get(fields[0])
        if kind is None:
            raise self.error(
                f"unexpected {fields[0][:40]!r}", number, hint=f"A block is {', '.join(KINDS)}."
            )
        named_first = 2 if kind == "collective" else 1
        if not named_first + 1 <= len(fields) <= named_first + 2 or not all(fields):
            raise self.error(
                f"expected {kind}, then a name and a type, each behind two spaces",
                number,
                len(kind) + 1,
            )
        columns = [1]
        for text in fields:
            columns.append(columns[-1] + len(text) + 2)
        over = self.unescaped(fields[1], number, columns[1]) if kind == "collective" else ""
        template = self.template(fields[named_first], number, columns[named_first])
        type_ = ""
        if len(fields) > named_first + 1:
            type_ = self.unescaped(fields[-1], number, columns[named_first + 1])
        return Key(kind, "", type_, _SIZED_PART.sub(r"\1", over)), template

    def cell(self, line: str, number: int, start: int, snapshot: Snapshot) -> StageText:
        word, _, text = line[start:].partition(" ")
        named = self.old_words.get(word, word)
        stage = next((stage for stage in snapshot.stages if stage == named), None)
        if stage is None or not text:
            raise self.error(
                f"expected a stage of this snapshot: {', '.join(snapshot.stages)}",
                number,
                start + 1,
            )
        column = start + len(word) + 2
        for partitioner in _PARTITIONERS:
            if text.startswith(f"{partitioner}: "):
                by = len(partitioner) + 2
                return _cell(stage, self.unescaped(text[by:], number, column + by), partitioner)
        return _cell(stage, self.unescaped(text, number, column))

    def template(self, text: str, number: int, column: int) -> Template:
        if text == EMPTY:
            return ()
        parts: list[str | Range] = []
        at = 0
        for match in re.finditer(r"(?<!\\)(?:\\\\)*(\{[^}]*\})", text):
            written = _RANGE.fullmatch(match[1])
            numbers = None if written is None else _numbers(written[1])
            if numbers is None:
                raise self.error(
                    "expected numbers such as {0..23} or {0,2}, ascending, between braces",
                    number,
                    column + match.start(1),
                )
            if match.start(1) > at:
                parts.append(self.unescaped(text[at : match.start(1)], number, column + at))
            parts.append(numbers)
            at = match.end(1)
        if at < len(text):
            parts.append(self.unescaped(text[at:], number, column + at))
        return tuple(parts)

    def unescaped(self, text: str, number: int, column: int) -> str:
        if text == EMPTY:
            return ""
        characters: list[str] = []
        at = 0
        while at < len(text):
            if text[at] not in "\\{}":
                characters.append(text[at])
                at += 1
                continue
            match = _ESCAPE.match(text, at)
            code = int(match[1] or match[2] or match[3] or "0", 16) if match else 0
            if match is None or code > 0x10FFFF:
                raise self.error(
                    f"unexpected {text[at : at + 2]!r}",
                    number,
                    column + at,
                    hint="A backslash or brace of a name is written \\\\, \\{ or \\}.",
                )
            characters.append(match[4] or chr(code))
            at = match.end()
        return "".join(characters)


def _cell(stage: Stage, text: str, partitioner: Partitioner | None = None) -> StageText:
    """A cell in today's words; axes that an older version wrote in quotes have none."""
    text = _A_STEP.sub(r"\1per step, ", _COPIES.sub(r"\1replicated", text))
    shardy = _QUOTED.fullmatch(text)
    return StageText(stage, axis_text(shardy[1] or shardy[2]) if shardy else text, partitioner)


def _places(text: str, count: int) -> tuple[int, ...] | None:
    """The numbers of ``1,4..6,8..20/2``; None unless they ascend and are as many as they should."""
    places: list[int] = []
    for run in text.split(","):
        match = _RUN.fullmatch(run)
        if match is None:
            return None
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if not step or (last - first) // step >= count or (places and first <= places[-1]):
            return None
        places += range(first, last + 1, step)
    return tuple(places) if places and places[0] and len(places) == count else None


def _numbers(text: str) -> Range | None:
    """The numbers of ``0..3,7``; None unless they ascend and are not too many."""
    numbers: list[int] = []
    for run in text.split(","):
        first, dots, last = run.partition("..")
        start, end = int(first), int(last or first)
        if (dots and end <= start) or end - start > MOST or (numbers and start <= numbers[-1]):
            return None
        numbers += range(start, end + 1)
    return tuple(numbers) if len(numbers) > 1 else None
