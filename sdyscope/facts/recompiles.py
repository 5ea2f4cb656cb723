"""What was compiled again, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from sdyscope.facts.recorded import Line
from sdyscope.facts.sharded import Sharded
from sdyscope.formatters import in_place
from sdyscope.values.source import SourceLocation

ArgumentChangeKind: TypeAlias = Literal["tree", "mesh", "weak", "type", "sharding"]
"""What changed of an argument: whether it is there; the mesh that its type names; whether its type
is weak; its type; its sharding."""


@dataclass(frozen=True, slots=True)
class ArgumentChange:
    """An argument, or a result, that is not what it was before.

    Attributes:
        kind: `argument` or `result`.
        name: its pytree path; its number where JAX has no name for it.
        change: what changed.
        was_type: element type and shape before; empty where it was not there.
        type: the same in the program that was compiled again; empty where it is not there any more.
        was: its sharding before; null where its type changed, or it has none.
        now: its sharding afterwards; null likewise.
        moved: whether its blocks lie on other devices; null where its type changed, a placement is
            not known, or it is on a mesh only once.
        returned_as: the result of the program before that may be its next value and lies where it
            lies now; empty where there is none.
        is_next_value: whether that is its next value by what it is made from, and not by its path
            or its type alone.
        weak: whether its type is weak now, and was not before; null where that did not change.
        meshes: the mesh that its type names before, and now, such as `data=8`, of a module that is
            the same; empty for none; null where that did not change.
    """

    kind: str
    name: str
    was_type: str
    type: str
    was: Sharded | None = None
    now: Sharded | None = None
    moved: bool | None = None
    returned_as: str = ""
    is_next_value: bool = False
    weak: bool | None = None
    meshes: tuple[str, str] | None = None

    __document__ = in_place(name=("name", "change"))

    @property
    def change(self) -> ArgumentChangeKind:
        """What changed."""
        if not (self.was_type and self.type):
            return "tree"
        if self.meshes is not None:
            return "mesh"
        if self.weak is not None:
            return "weak"
        return "type" if self.was_type != self.type else "sharding"

    @property
    def was_placed(self) -> bool:
        """Whether it was said to be on a mesh before."""
        return self.was is not None and self.was.sharding is not None and self.was.is_on_mesh

    @property
    def is_cut(self) -> bool:
        """Whether its blocks are known to differ from device to device afterwards."""
        place = None if self.now is None else self.now.placement
        return place is not None and not place.is_replicated

    @property
    def commits(self) -> bool:
        """Whether an array of a program on one device was committed to it, or is not any more."""
        sides = (self.was, self.now)
        written = [each for each in sides if each is not None and each.sharding is not None]
        return len(written) == 1 and not written[0].is_on_mesh


@dataclass(frozen=True, slots=True)
class OpChange:
    """The first op that is not what it was before.

    Attributes:
        was: its kind before; empty where there were fewer ops.
        now: its kind now; empty where there are fewer ops.
        attribute: which of its attributes differs, `type` for what it results in; empty where it is
            another op.
        was_text: that attribute before.
        now_text: that attribute now.
        source: the line of user code.
    """

    was: str
    now: str
    attribute: str
    was_text: str
    now_text: str
    source: SourceLocation | None


@dataclass(frozen=True, slots=True)
class Recompile:
    """A function that was compiled again.

    Attributes:
        name: its name.
        defined: where it stands; null when not known.
        program: label of the program that it was compiled to.
        before: label of the earlier program that it is most like; the same label where JAX lowered
            an identical module again.
        times: how often it was lowered for that; more than once in several processes, too.
        lowering_seconds: how long that took; of an identical module by its share of all.
        compile_seconds: how long compiling it took, likewise.
        called: the lines of the program that led to it.
        arguments: the arguments that changed, and the results, whose shardings were asked for.
        meshes: whether they are on other meshes.
        op: the first op that differs; null where the ops are the same, and where types differ or
            name other meshes, which ops go by.
        reordered: whether an identical module is for the devices in another order.
        donated: the arguments that are donated in one of the two alone.
        cached: whether JAX read all compiles of the program from its cache on disk.
    """

    name: str
    defined: Line | None
    program: str
    before: str
    times: int
    lowering_seconds: float
    compile_seconds: float
    called: tuple[Line, ...]
    arguments: tuple[ArgumentChange, ...] = ()
    meshes: bool = False
    op: OpChange | None = None
    reordered: bool = False
    donated: tuple[str, ...] = ()
    cached: bool = False

    @property
    def cause(self) -> object:
        """What is alike for recompiles that are told of together."""
        arguments = tuple(
            (a.name, a.change, a.weak, a.meshes, a.moved, a.returned_as, a.is_next_value)
            for a in self.arguments
        )
        op = None if self.op is None else (self.op.attribute, self.op.source)
        again = self.program == self.before, self.reordered
        return again, arguments, self.meshes and not arguments, op, self.donated
