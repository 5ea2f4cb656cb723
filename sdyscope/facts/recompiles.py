"""What was compiled again, and why."""

from __future__ import annotations

from dataclasses import dataclass

from sdyscope.facts.recorded import Line
from sdyscope.facts.sharded import Sharded
from sdyscope.values.source import SourceLocation


@dataclass(frozen=True, slots=True)
class ArgumentChange:
    """An argument, or a result, that is not what it was before.

    Attributes:
        kind: `argument` or `result`.
        name: its pytree path; its number where JAX has no name for it.
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
