"""MLIR locations, reduced to what JAX puts into them: a scope path and the call stack.

JAX writes `loc("jit(step)/jvp()/dot_general"(callsite("f"("a.py":5:2 to :9) at "g"("b.py":7:1))))`:
a name that is the scope, around frames of the call stack, innermost first, each frame a name that
is the Python function around a place in a file. A tag such as `sid7` or `scatter-add:` may be one
more name around it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from sdyscope.syntax.strings import label
from sdyscope.values.source import (
    EVERY_LINE,
    IN_TEXT,
    ONLY_SHARD,
    Sites,
    SourceLocation,
    callers,
    own_line,
    sites_of,
)


@dataclass(frozen=True)
class Location:
    """Where an op comes from.

    Attributes:
        scope: the scope path (`jit(step)/jvp(layer0)/dot_general`) as the author wrote it
            (`written_scope`), a pytree path for arguments; empty when there is none.
        in_body: of an op in the body of a scan the scope from there on; None elsewhere.
        frames: the call stack without JAX's own frames, innermost first.
        names: all names around the frames, outermost first: the scope and any tags.
        sites: which lines of the program tell its ops apart.
    """

    scope: str = ""
    frames: tuple[SourceLocation, ...] = ()
    names: tuple[str, ...] = ()
    sites: Sites = EVERY_LINE
    in_body: str | None = None

    @cached_property
    def source(self) -> SourceLocation | None:
        """The frame at which the program's author can do something (`own_line`)."""
        return own_line(self.frames, self.sites)

    @cached_property
    def callers(self) -> tuple[SourceLocation, ...]:
        """The frames behind that one (`callers`)."""
        return callers(self.frames, self.sites)

    @property
    def only_shards(self) -> bool:
        """Whether what stands here only puts a sharding on a value."""
        return self.scope.rpartition("/")[2] in ONLY_SHARD


UNKNOWN = Location()

#: Parts of a scope that JAX writes and no author did: a scan's body and how it takes its slices.
_OF_SCANS = re.compile(
    r"(?<![^/])(?:closed_call|eval_jaxpr|p?jit\(dynamic_(?:update_)?index_in_dim\))/"
)
#: A scope up to the body of the innermost scan that it is in.
_OF_BODIES = re.compile(r".*(?<![^/])(?:closed_call|eval_jaxpr)/")


#: What JAX calls a collective whose result is the same along the axis, by its type.
_INVARIANT: Mapping[str, str] = {"psum_invariant": "psum", "all_gather_invariant": "all_gather"}


def written_primitive(primitive: str) -> str:
    """``psum`` for ``psum_invariant``: what a program calls."""
    return _INVARIANT.get(primitive, primitive)


def written_scope(scope: str) -> str:
    """A scope path without what JAX has in it for itself, which each version calls otherwise.

    ``jit(step)/while/body/eval_jaxpr/layer0/dot_general`` is
    ``jit(step)/while/body/layer0/dot_general``. The last part names an op, and is kept, as the
    program calls it.
    """
    around, slash, primitive = _OF_SCANS.sub("", scope).rpartition("/")
    return f"{around}{slash}{written_primitive(primitive)}"


def scope_in(outer: str, scope: str) -> str:
    """The scope of an op with that of the call that it is in, or of another op around it.

    As XLA writes it of what it inlines; as it is where it has that already.
    """
    if not scope or not outer:
        return scope or outer
    around = written_scope(f"{outer}/")
    return scope if f"{scope}/".startswith(around) else f"{around}{scope}"


def shared_scope(scopes: Sequence[str]) -> str:
    """What some scopes have in common: how they begin, and their last part where it is the same."""
    if len(scopes) < 2:
        return "".join(scopes)
    parts = [scope.split("/") for scope in scopes]
    shared = [
        alike[0]
        for alike in itertools.takewhile(
            lambda alike: len({*alike}) == 1, zip(*(part[:-1] for part in parts), strict=False)
        )
    ]
    last = {part[-1] for part in parts}
    return "/".join([*shared, *(last if len(last) == 1 else ())])


def is_of_scan(scope: str) -> bool:
    """Whether the last part of a scope is what JAX calls a function that a scan makes."""
    return _OF_SCANS.fullmatch(f"{scope.rpartition('/')[2]}/") is not None


def tell_apart(locations: Iterable[Location]) -> None:
    """Lets the locations of a module know which of its lines tell ops apart.

    That is known once all are, and before anybody else has one: they are completed in place, as
    tens of thousands of ops share them.
    """
    distinct = {id(location): location for location in locations if location.frames}
    # Thousands of locations share a hundred stacks, mostly as one object.
    stacks = {(id(each.frames), each.only_shards): each.frames for each in distinct.values()}
    sites = sites_of(dict.fromkeys((stack, only) for (_, only), stack in stacks.items()))
    for each in distinct.values() if sites != EVERY_LINE else ():
        object.__setattr__(each, "sites", sites)


def file_place(file: str, line: int, column: int) -> Location:
    """`"file":line:column`."""
    return Location(frames=(SourceLocation(label(file), line, column),))


def place_in_text(line: int) -> Location:
    """The place in a module's text of what has no location there, as MLIR's parser gives it."""
    return file_place(IN_TEXT, line, 0)


def of_argument(location: Location, around: Location) -> Location:
    """The location of a block argument, whose own MLIR does not write for a loop's.

    Its place in the text says nothing where the op around it has a line of the program.
    """
    return UNKNOWN if _is_in_text(location) and not _is_in_text(around) else location


def _is_in_text(location: Location) -> bool:
    return bool(location.frames) and location.frames[0].file == IN_TEXT


def named(name: str, child: Location, *, frame: bool) -> Location:
    """`"name"(child)`; with `frame`, the name is that of the Python function around a place."""
    name = label(name)
    if frame and not _is_scope(name):
        place = child.frames[0]
        return Location(frames=(SourceLocation(place.file, place.line, place.column, name),))
    if child is UNKNOWN and "/" not in name:
        # A tag, which nearly all names of a copy with tags are, each another.
        return Location(written_primitive(name), (), (name,))
    # The innermost name is the scope: what is around it are tags (`sid7`, `scatter-add:`).
    names = (name, *child.names)
    if child.scope:
        return replace(child, names=names)
    body = _OF_BODIES.match(name)
    in_body = None if body is None else written_scope(name[body.end() :])
    return Location(written_scope(name), child.frames, names, in_body=in_body)


def call_site(callee: Location, caller: Location) -> Location:
    """`callsite(callee at caller)`."""
    scoped = callee if callee.scope else caller
    return replace(scoped, frames=callee.frames + caller.frames, names=callee.names + caller.names)


def fused(parts: list[Location]) -> Location:
    """`fused[parts]`; the stack is that of the first part that has one."""
    return replace(
        next((part for part in parts if part.scope), UNKNOWN),
        frames=next((part.frames for part in parts if part.frames), ()),
        names=tuple(name for part in parts for name in part.names),
    )


def _is_scope(name: str) -> bool:
    """Whether a name directly around a place in a file is a scope, not a Python function."""
    return "/" in name or name.endswith(")")


class LocationReader:
    """Reads location objects of MLIR's Python bindings, each distinct one once.

    Location objects hash by identity, their attributes by content, so the latter are the keys.
    From JAX 0.10 on the bindings have a class a kind of location; before, one class with `is_a_*`.

    Attributes:
        known: the value of every location that was read, by its attribute.
    """

    def __init__(self) -> None:
        self.known: dict[Any, Location] = {}
        self._parts: dict[Any, Location] = {}

    def __call__(self, location: Any) -> Location:
        """The value of an op's or block argument's location."""
        attribute = location.attr
        known = self.known.get(attribute)
        if known is None:
            known = self.known[attribute] = self._read(location, _kind(location), whole=True)
        return known

    def _part(self, location: Any) -> Location:
        attribute = location.attr
        known = self._parts.get(attribute)
        if known is None:
            known = self._parts[attribute] = self._read(location, _kind(location), whole=False)
        return known

    def _read(self, location: Any, kind: str, *, whole: bool) -> Location:
        if kind == "NameLoc":
            child = location.child_loc
            frame = not whole and _kind(child) == "FileLineColLoc"
            return named(location.name_str, self._part(child), frame=frame)
        if kind == "CallSiteLoc":
            return call_site(self._part(location.callee), self._part(location.caller))
        if kind == "FileLineColLoc":
            return file_place(location.filename, location.start_line, location.start_col)
        if kind == "FusedLoc":
            return fused([self._part(part) for part in location.locations])
        return UNKNOWN


def _kind(location: Any) -> str:
    kind = type(location).__name__
    if kind != "Location" or not hasattr(location, "is_a_name"):
        return kind
    if location.is_a_name():
        return "NameLoc"
    if location.is_a_callsite():
        return "CallSiteLoc"
    if location.is_a_file():
        return "FileLineColLoc"
    return "FusedLoc" if location.is_a_fused() else "UnknownLoc"
