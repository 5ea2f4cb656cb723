"""Reads the tags that ``tags.tag_names`` wrote back from HLO text, and takes them out of it.

An op's tag precedes its name: ``sid12/jit(step)/dot_general``. Of what was inlined, the names of
the calls come first, each with its own tag (``sid5/jit(step)/jit(silu)/sid40/mul``); of what was
made from several ops, the names are joined (``NAME;NAME``, and ``(NAME:NAME)``, or with what they
begin with in common before the parenthesis).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeAlias

TagPath: TypeAlias = tuple[int, ...]
"""Nodes in the op graph: the calls that an op was inlined from, outermost first, then the op."""

_TAG = re.compile(r"sid(\d+)/")
_OP_NAME = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
_INSTRUCTION = re.compile(r"\s*(?:ROOT )?%?([^\s=]+) = ")
_FRAME = re.compile(r" ?stack_frame_id=(\d+)")
_TAGGED = re.compile(r'(\d+) "sid(\d+)/.*"')
_NAMED = ("FileNames", "FunctionNames")
_PLACE = re.compile(r"(\d+) \{file_(?:name|location)_id=(\d+)")
_JOINED = re.compile(r"(.*?)\((sid\d+/.*)\)")


def read_tags(text: str, names: Sequence[str]) -> tuple[str, dict[str, tuple[TagPath, ...]]]:
    """HLO text without tags, and the tags of each instruction.

    Args:
        text: text of a module that was compiled with tags.
        names: name of each op's location in the module before, by its node; empty for none.
    """
    tags: dict[str, tuple[TagPath, ...]] = {}
    lines = text.split("\n")
    made_up = _made_up_frames(lines, names)
    for number, line in enumerate(lines):
        match = _OP_NAME.search(line)
        if match is None or "sid" not in match[1]:
            continue
        paths, name = _read(match[1], names)
        if not paths:
            continue
        frame = _FRAME.search(line, match.end())
        if frame is not None and frame[1] in made_up:
            line = line[: frame.start()] + line[frame.end() :]
        instruction = _INSTRUCTION.match(line)
        if instruction is not None:
            tags[instruction[1]] = paths
        lines[number] = _replaced(line, match, name)
    return "\n".join(lines), tags


def untagged(text: str, names: Sequence[str]) -> str:
    """Any other text of the compiler, such as its log, without the tags in it.

    Args:
        text: the text. It may quote names that are cut off.
        names: as ``read_tags`` takes them.
    """

    def without(match: re.Match[str]) -> str:
        name = _own(match, names)
        if name is None:
            return match[0]
        following = re.split(r'["\\\n;:]', text[match.end() : match.end() + len(name)])[0]
        return "" if name.startswith(following) else match[0]

    return _TAG.sub(without, text)


def _made_up_frames(lines: list[str], names: Sequence[str]) -> set[str]:
    """The stack frames of ops without a location, which have the tag for a file.

    The files of named ops without a line are written as without tags.
    """
    files: set[str] = set()
    places: set[str] = set()
    frames: set[str] = set()
    section = ""
    for number, line in enumerate(lines):
        if line.startswith(("HloModule ", "%", "ENTRY ")) and section:
            break
        if line in (*_NAMED, "FileLocations", "StackFrames"):
            section = line
        elif section in _NAMED and (match := _TAGGED.fullmatch(line)) is not None:
            name = names[int(match[2])] if int(match[2]) < len(names) else match[0]
            if name:
                lines[number] = line.replace(f"sid{match[2]}/", "", 1)
            else:
                files |= {match[1]} if section == "FileNames" else set()
                lines[number] = f'{match[1]} ""'
        elif files and section == "FileLocations" and (match := _PLACE.match(line)) is not None:
            places |= {match[1]} if match[2] in files else set()
        elif places and section == "StackFrames" and (match := _PLACE.match(line)) is not None:
            frames |= {match[1]} if match[2] in places else set()
    return frames


def _replaced(line: str, match: re.Match[str], name: str) -> str:
    if name:
        return f"{line[: match.start(1)]}{name}{line[match.end(1) :]}"
    # Without its name the op may have no metadata at all.
    start, end = match.span()
    if line[end : end + 1] == " ":
        return line[:start] + line[end + 1 :]
    whole = ", metadata={" + match[0] + "}"
    if whole in line:
        return line.replace(whole, "", 1)
    return line[:start].rstrip() + line[end:]


def _read(op_name: str, names: Sequence[str]) -> tuple[tuple[TagPath, ...], str]:
    """The tags in a name, and the name without them."""
    paths: dict[TagPath, None] = {}
    names_of_parts: list[str] = []
    calls: TagPath = ()
    for number, part in enumerate(re.split(r";(?=sid\d+/)", op_name)):
        joined = _JOINED.fullmatch(part)
        prefix, inside = ("", part) if joined is None else joined.groups()
        each = [inside] if joined is None else re.split(r":(?=sid\d+/)", inside)
        read = [_name_without(prefix + name, names) for name in each]
        # Names that were joined before they were inlined say only once from where.
        paths.update(dict.fromkeys((*calls, *path) for path, _ in read if path))
        known = [name for _, name in read]
        name = known[0] if len(set(known)) == 1 else _rejoined(known)
        if name and not any(
            other == name or other.endswith(f"/{name}") for other in names_of_parts
        ):
            names_of_parts.append(name)
        if not number:
            calls = read[0][0][:-1]
    return tuple(paths), ";".join(names_of_parts)


def _name_without(text: str, names: Sequence[str]) -> tuple[TagPath, str]:
    path: list[int] = []

    def without(match: re.Match[str]) -> str:
        name = _own(match, names)
        # A scope of the program may be called sid12, too.
        if name is None or not text.startswith(name, match.end()):
            return match[0]
        path.append(int(match[1]))
        return ""

    left = _TAG.sub(without, text)
    if path and not any(names[node] for node in path):
        left = ""  # only kinds of ops, which stood for names
    elif path and not names[path[-1]]:
        left = left.rpartition("/")[0]
    return tuple(path), left


def _own(match: re.Match[str], names: Sequence[str]) -> str | None:
    node = int(match[1])
    return names[node] if node < len(names) else None


def _rejoined(names: Sequence[str]) -> str:
    """As XLA joins names: what they begin with in common, and the rests."""
    parts = [name.split("/") for name in names]
    shared = 0
    while all(len(part) > shared + 1 and part[shared] == parts[0][shared] for part in parts):
        shared += 1
    rests = ":".join("/".join(part[shared:]) for part in parts)
    return "/".join([*parts[0][:shared], f"({rests})"])
