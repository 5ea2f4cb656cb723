"""Reads HLO text line by line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from sdyscope.errors import SdyscopeError
from sdyscope.hlo.attributes import end_of_operands, split_attributes, unescaped
from sdyscope.hlo.model import Computation, HloModule, Instruction, StackFrames, UnreadLine

# The shape may be a tuple with spaces in it; but only an opcode is a word after a space with a
# parenthesis right behind it.
_INSTRUCTION = re.compile(r"\s*(ROOT )?%?([^\s=%(){}]+) = (\S.*?) ([a-z][a-z0-9\-]*)\((.*)", re.S)
_COMPUTATION = re.compile(r"(ENTRY )?%?([^\s=%(){}]+) (?:\(.*\) -> .*)?\{$", re.S)
_HEADER = re.compile(r"HloModule ([^\s,]+)(?:, (.*))?", re.S)
_NAMED = re.compile(r'(\d+) "((?:[^"\\]|\\.)*)"$')
_NUMBERED = re.compile(r"(\d+) \{(.*)\}$")
_NUMBER = re.compile(r"(\w+)=(-?\d+)")
_SECTIONS = frozenset({"FileNames", "FunctionNames", "FileLocations", "StackFrames"})

#: How many lines that are not understood are listed; all are counted.
_LISTED = 50


def read_hlo(text: str | Iterable[str]) -> HloModule:
    """Reads the text of a module, in one pass over its lines.

    Args:
        text: the text, or its lines.

    Raises:
        SdyscopeError: it does not begin as HLO does, has no entry computation, or ends inside one;
            with the line.
    """
    return _Reader().read(_lines(text) if isinstance(text, str) else text)


def _lines(text: str) -> Iterator[str]:
    """The lines of a text, one after the other, without a list of all."""
    start = 0
    while (end := text.find("\n", start)) >= 0:
        yield text[start:end]
        start = end + 1
    yield text[start:]


class _Reader:
    """What has been read so far."""

    def __init__(self) -> None:
        self.name = ""
        self.attributes: dict[str, str] = {}
        self.computations: dict[str, Computation] = {}
        self.entry = ""
        self.frames = StackFrames()
        self.section = ""
        self.open: Computation | None = None
        self.instructions: dict[str, Instruction] = {}
        self.last: Instruction | None = None
        self.unread: list[UnreadLine] = []
        self.unread_count = 0

    def read(self, lines: Iterable[str]) -> HloModule:
        number = 0
        match_instruction = _INSTRUCTION.match
        for number, raw in enumerate(lines, 1):
            line = raw.rstrip()
            if self.open is not None:
                match = match_instruction(line)
                if match is not None:
                    root, name, shape, opcode, rest = match.groups()
                    self.last = Instruction(name, opcode, shape, rest, root is not None, number)
                    self.instructions[name] = self.last
                elif line.startswith("}"):
                    self.open = None
                    self.last = None
                elif line:
                    self.strange(number, line)
            elif line:
                self.outside(number, line)
        return self.module(number)

    def outside(self, number: int, line: str) -> None:
        """A line that is in no computation."""
        if not self.name:
            header = _HEADER.match(line)
            if header is not None:
                self.name = header[1]
                self.attributes = split_attributes(header[2] or "")
            elif not line.lstrip().startswith("//"):
                raise SdyscopeError(
                    "This is not HLO text, which begins with HloModule.", line=number
                )
        elif line in _SECTIONS:
            self.section = line
        elif line[0].isdigit() and self.section:
            if not self.row(line):
                self.unknown(number, line)
        elif (match := _COMPUTATION.match(line)) is not None:
            self.section = ""
            self.instructions = {}
            self.open = Computation(match[2], self.instructions, match[1] is not None, number)
            self.computations[match[2]] = self.open
            if match[1]:
                self.entry = match[2]
        elif not line.lstrip().startswith("//"):
            self.unknown(number, line)

    def row(self, line: str) -> bool:
        """A row of one of the tables of source lines; whether it could be read."""
        if self.section in ("FileNames", "FunctionNames"):
            match = _NAMED.match(line)
            if match is None:
                return False
            names = self.frames.files if self.section == "FileNames" else self.frames.functions
            names[int(match[1])] = unescaped(match[2])
            return True
        match = _NUMBERED.match(line)
        if match is None:
            return False
        fields = {name: int(value) for name, value in _NUMBER.findall(match[2])}
        if self.section == "FileLocations":
            self.frames.locations[int(match[1])] = (
                fields.get("file_name_id", 0),
                fields.get("function_name_id", 0),
                fields.get("line", 0),
                fields.get("column", 0),
            )
        else:
            # XLA prints the parent plus one, and a frame without parent as its child of frame 0.
            parent = fields.get("parent_frame_id", 1) - 1
            self.frames.frames[int(match[1])] = (fields.get("file_location_id", 0), parent)
        return True

    def strange(self, number: int, line: str) -> None:
        """A line in a computation that begins no instruction: it may go on with one."""
        before = self.last
        if before is not None and end_of_operands(before.rest) < 0:
            rest = f"{before.rest}\n{line}"
            self.last = Instruction(
                before.name, before.opcode, before.shape_text, rest, before.is_root, before.line
            )
            self.instructions[before.name] = self.last
        elif not line.lstrip().startswith("//"):
            self.unknown(number, line)

    def unknown(self, number: int, line: str) -> None:
        self.unread_count += 1
        if len(self.unread) < _LISTED:
            self.unread.append(UnreadLine.of(number, line))

    def module(self, lines: int) -> HloModule:
        if not self.name:
            raise SdyscopeError("This is not HLO text, which begins with HloModule.", line=1)
        if self.open is not None:
            raise SdyscopeError(
                f"The text ends inside the computation {self.open.name}, which began in line "
                f"{self.open.line}.",
                line=lines,
                hint="The file is cut off: dump or copy it again.",
            )
        if not self.entry:
            raise SdyscopeError(
                "The text has no entry computation.",
                line=lines,
                hint="The file is cut off, or is not the text of a whole module.",
            )
        return HloModule(
            self.name,
            self.attributes,
            self.computations,
            self.entry,
            self.frames,
            tuple(self.unread),
            self.unread_count,
        )
