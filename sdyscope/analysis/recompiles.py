"""Why functions of a recorded run were compiled more than once.

A function is known by its name and line, and so are its gradient and whatever else JAX makes of it,
which are other programs. Two programs are one function compiled again where they are made of the
same ops, or are called from one line and return the same tree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from sdyscope.analysis.naming.next_values import next_values
from sdyscope.analysis.naming.paths import Leaf
from sdyscope.annotations import Annotation
from sdyscope.facts.recompiles import ArgumentChange, OpChange, Recompile
from sdyscope.facts.recorded import Line, Record, RecordedProgram
from sdyscope.facts.sharded import Sharded
from sdyscope.graph import Op, OpGraph
from sdyscope.graph.donation import ALIASED, DONOR
from sdyscope.graph.scalars import type_text
from sdyscope.staged import Staged
from sdyscope.values.mesh import only_mesh
from sdyscope.values.placement import Placement

#: Ops that JAX writes for other shapes or for constants.
_PASSED_OVER = frozenset(
    {
        "stablehlo.constant",
        "stablehlo.broadcast_in_dim",
        "stablehlo.reshape",
    }
)
#: What JAX calls functions, numbers as they come, and what follows from the ops inside.
_NAMES = ("sym_name", "callee", "arg_attrs", "res_attrs", "function_type")
#: Attributes that only say where values are, or which buffers they may take.
_PLACING = ("sdy.", "mhlo.sharding", ALIASED, DONOR)


def recompiles(record: Record, programs: Sequence[Staged]) -> tuple[Recompile, ...]:
    """What was compiled again, in the order in which that happened; functions of JAX left out.

    Args:
        record: what was recorded.
        programs: its programs, called by their labels; what can't be read is not told of.
    """
    staged = {program.name: program for program in programs}
    functions: dict[tuple[str, Line | None], list[_Program]] = {}
    events: list[Recompile] = []
    for known in record.own:
        if known.label not in staged or known.is_eager:
            continue
        program = _Program(known, staged[known.label])
        earlier = functions.setdefault(known.function, [])
        alike = [other for other in earlier if program.is_again(other)]
        if alike:
            events.append(_recompile(program, max(reversed(alike), key=program.likeness)))
        events += _again(known)
        earlier.append(program)
    return tuple(events)


class _Program:
    """A recorded program, and what of its module tells it apart."""

    def __init__(self, recorded: RecordedProgram, staged: Staged) -> None:
        self.recorded = recorded
        self.staged = staged
        #: Whose module is compared: what was compiled, where that is looked at.
        self.partitioner = staged.chosen(
            recorded.partitioner if recorded.partitioner in staged.lowered else None
        )

    @cached_property
    def graph(self) -> OpGraph:
        """The graph of its ops."""
        return self.staged.graph(self.partitioner)

    @cached_property
    def every(self) -> tuple[Op, ...]:
        """Its ops."""
        operations = self.graph.operations()
        return tuple(op for op in operations if op.kind not in ("sdy.mesh", "builtin.module"))

    @cached_property
    def ops(self) -> tuple[Op, ...]:
        """Its ops, without those that only place values."""
        return tuple(op for op in self.every if not op.is_constraint)

    @cached_property
    def body(self) -> tuple[str, ...]:
        """What its ops are, whatever the shapes."""
        return tuple(op.kind for op in self.ops if op.kind not in _PASSED_OVER)

    @cached_property
    def boundary(self) -> Mapping[str, tuple[Annotation, ...]]:
        """Its arguments and results, as they are in the module."""
        boundary: dict[str, tuple[Annotation, ...]] = {"argument": (), "result": ()}
        for annotation in self.staged.annotations(self.partitioner):
            if annotation.kind in boundary:
                boundary[annotation.kind] += (annotation,)
        return boundary

    @property
    def tree(self) -> tuple[str, ...]:
        """What its results are called."""
        return tuple(annotation.path for annotation in self.boundary["result"])

    def is_again(self, earlier: _Program) -> bool:
        """Whether it is the function that another program is, compiled again."""
        ours, before = self.recorded, earlier.recorded
        if (ours.partitioner, ours.versions) != (before.partitioner, before.versions):
            return False  # Another run's: each JAX writes ops of its own.
        if self.body == earlier.body:
            return True
        # An argument that is static, or Python that branches, makes other ops of one function.
        lines = set(self.recorded.called) & set(earlier.recorded.called)
        return bool(lines) and self.tree == earlier.tree

    def likeness(self, earlier: _Program) -> int:
        """How like another program it is: by its arguments' types, then by its ops."""
        ours, theirs = self.recorded.arguments or (), earlier.recorded.arguments or ()
        alike = sum(own == two for own, two in zip(ours, theirs, strict=False))
        return 2 * (alike - abs(len(ours) - len(theirs))) + (self.body == earlier.body)


def _again(known: RecordedProgram) -> Iterator[Recompile]:
    """Its module lowered again, by the arguments whose types differ in what it does not say.

    Or compiled again alone: JAX may lower once for two orders of one set of devices.
    """
    lowered = max(known.lowerings - len(known.processes), 0)
    reordered = max(known.orders - 1, 0)
    times = max(lowered, reordered)
    if not times:
        return
    lowerings = [*zip(known.weak, known.meshes, strict=True)]
    changes = Counter(
        (*_weakened(known, now, known, was), *_remeshed(known, meshes, before))
        for (was, before), (now, meshes) in pairwise(lowerings if len(known.processes) == 1 else ())
    )
    changes[()] += times - changes.total()
    whys = [(arguments, alike, False) for arguments, alike in changes.items() if arguments]
    reordered = min(reordered, changes[()])
    whys += [((), reordered, True), ((), changes[()] - reordered, False)]
    # Only the sum of all is known, the first one's in each process among them.
    compiled = max(known.compiles - len(known.processes), 0) / max(known.compiles, 1)
    for arguments, alike, in_other_order in whys:
        if alike:
            yield Recompile(
                known.name,
                known.defined,
                known.label,
                known.label,
                alike,
                round(
                    known.lowering_seconds * lowered / max(known.lowerings, 1) * alike / times, 6
                ),
                round(known.compile_seconds * compiled * alike / times, 6),
                known.called,
                arguments,
                reordered=in_other_order,
                cached=known.is_cached,
            )


def _weakened(
    program: RecordedProgram, now: Sequence[int], before: RecordedProgram, was: Sequence[int]
) -> Iterator[ArgumentChange]:
    """The arguments whose type is weak in one of two lowerings alone, and otherwise the same."""
    if program.arguments is None or program.arguments != before.arguments:
        return
    names, types = list(_named_types(program)), program.arguments
    for number in sorted({*was} ^ {*now}):
        yield ArgumentChange(
            "argument", names[number], types[number], types[number], weak=number in now
        )


def _remeshed(
    program: RecordedProgram, now: Sequence[str], was: Sequence[str]
) -> Iterator[ArgumentChange]:
    """The arguments whose types name another mesh, of the same placement, in two lowerings."""
    types = program.arguments or ()
    before, meshes = (each or ("",) * len(types) for each in (was, now))
    for (name, type_), *both in zip(_named_types(program).items(), before, meshes, strict=False):
        if both[0] != both[1]:
            yield ArgumentChange("argument", name, type_, type_, meshes=(both[0], both[1]))


def _recompile(program: _Program, before: _Program) -> Recompile:
    known = program.recorded
    types = tuple(_types(program, before))
    earlier = before.recorded
    if known.weak and earlier.weak:
        types += tuple(_weakened(known, known.weak[0], earlier, earlier.weak[-1]))
    shardings = tuple(_shardings(program, before, {change.name for change in types}))
    own, theirs = (
        {mesh for mesh in each.staged.meshes.values() if mesh.axes} for each in (program, before)
    )
    # What JAX lowers goes by the types of the arguments, and these name the mesh that each is on.
    retyped = bool(types) or known.meshes[:1] != earlier.meshes[-1:]
    meshes: tuple[ArgumentChange, ...] = ()
    if own == theirs and known.meshes and earlier.meshes and known.arguments == earlier.arguments:
        # in_shardings may put an array that came from elsewhere where the next call's already is.
        said = {change.name for change in (*types, *shardings)}
        remeshed = _remeshed(known, known.meshes[0], earlier.meshes[-1])
        meshes = tuple(change for change in remeshed if change.name not in said)
    arguments, donated = (*types, *shardings, *meshes), tuple(_donated(program, before))
    op = None if retyped else _first_change(program.ops, before.ops)
    if op is None and not (retyped or arguments or donated or own != theirs):
        op = _first_use(program, before)
    return Recompile(
        known.name,
        known.defined,
        known.label,
        before.recorded.label,
        len(known.processes),
        known.lowering_seconds,
        known.compile_seconds,
        known.called,
        arguments,
        own != theirs,
        op,
        donated=donated,
        cached=known.is_cached,
    )


def _donated(program: _Program, before: _Program) -> Iterator[str]:
    """The arguments that are donated in one of two programs alone."""
    ours, theirs = (each.boundary["argument"] for each in (program, before))
    if len(ours) == len(theirs):
        for number, (now, was) in enumerate(zip(ours, theirs, strict=True)):
            if now.donated != was.donated:
                yield now.path or f"argument {number}"


def _types(program: _Program, before: _Program) -> Iterator[ArgumentChange]:
    """The arguments whose element type or shape changed, and those that came or went."""
    ours, theirs = _named_types(program.recorded), _named_types(before.recorded)
    for name in dict.fromkeys((*theirs, *ours)):
        was, now = theirs.get(name, ""), ours.get(name, "")
        if was != now:
            yield ArgumentChange("argument", name, was, now)


def _named_types(known: RecordedProgram) -> dict[str, str]:
    types = known.arguments or ()
    paths = known.paths or ("",) * len(types)
    return {
        path or f"argument {number}": type_
        for number, (path, type_) in enumerate(zip(paths, types, strict=False))
    }


def _shardings(program: _Program, before: _Program, changed: set[str]) -> Iterator[ArgumentChange]:
    """The arguments and results that are sharded otherwise, or whose sharding is written so."""
    returned = _returned(before)
    # What is made of arrays that are committed to no device is on none either.
    is_placed = any(each.text for each in before.boundary["argument"])
    for kind, ours in program.boundary.items():
        theirs = before.boundary[kind]
        if len(ours) != len(theirs):
            continue
        for number, (now, was) in enumerate(zip(ours, theirs, strict=True)):
            name = now.path or f"{kind} {number}"
            if name in changed or (now.shape, now.dtype) != (was.shape, was.dtype):
                continue
            new, old = _sharded(program, now), _sharded(before, was)
            is_written = new.sharding is not None or old.sharding is not None
            if not is_written or (new.text, new.mesh) == (old.text, old.mesh):
                continue
            moved = None
            # An array on no mesh is on one device, or wherever it is needed.
            is_known = new.is_on_mesh == old.is_on_mesh
            if is_known and new.placement is not None and old.placement is not None:
                moved = new.placement != old.placement
            result = returned.get(number) if kind == "argument" else None
            lies = result is not None and result.placement == new.placement is not None
            lies = lies and is_placed
            yield ArgumentChange(
                kind,
                name,
                _type_text(was),
                _type_text(now),
                old,
                new,
                moved,
                result.path if lies and result is not None else "",
                lies and result is not None and result.is_certain,
            )


def _type_text(annotation: Annotation) -> str:
    shape = "?" if annotation.shape is None else ",".join(map(str, annotation.shape))
    return f"{annotation.dtype}[{shape}]"


def _sharded(program: _Program, annotation: Annotation) -> Sharded:
    graph = program.staged.graph(program.partitioner)
    return annotation.sharded(graph.meshes, only_mesh(program.staged.meshes.values()))


class _Returned(NamedTuple):
    """A result that may be an argument's next value, and where it was put."""

    path: str
    placement: Placement
    is_certain: bool


def _returned(before: _Program) -> dict[int, _Returned]:
    """By an argument's number, the result that may be its next value."""
    compiled = before.staged.recorded.get(before.recorded.partitioner)
    if compiled is None:
        return {}
    leaves = {kind: [*map(Leaf.of, ours)] for kind, ours in before.boundary.items()}
    mesh = only_mesh(before.staged.meshes.values())
    results, arguments = (
        [(leaf, each.index) for leaf, each in zip(leaves[kind], before.boundary[kind], strict=True)]
        for kind in ("result", "argument")
    )
    known = next_values(results, arguments, before.staged.graph(before.partitioner))
    aliases: dict[int, _Returned] = {}
    for result, value in known.items():
        if value.relation == "gradient":
            continue
        leaf = leaves["result"][result]
        place = compiled.placement("result", result, len(leaf.shape), mesh)
        if place is not None:
            is_certain = value.relation == "next value"
            aliases[value.argument] = _Returned(leaf.path, place, is_certain)
    return aliases


def _first_use(program: _Program, before: _Program) -> OpChange | None:
    """The first constraint, or op by its operands, that differs; None where none does."""
    change = _first_change(program.every, before.every, _NAMES)
    if change is not None:
        return change
    for now, was in zip(program.every, before.every, strict=True):
        if program.graph.operand_values[now.id] != before.graph.operand_values[was.id]:
            old, new = _operands(before.graph, was), _operands(program.graph, now)
            return OpChange(was.kind, now.kind, "operands", old, new, now.source)
    return None


def _operands(graph: OpGraph, op: Op) -> str:
    operands = [producer for producer, _ in graph.operands(op)]
    return ", ".join((op.argument >= 0 and op.scope) or op.name for op in operands)


def _first_change(
    ours: Sequence[Op], theirs: Sequence[Op], passed: tuple[str, ...] = (*_PLACING, *_NAMES)
) -> OpChange | None:
    """The first op that differs; None where none does.

    Args:
        ours: ops.
        theirs: what they were before.
        passed: beginnings of the names of attributes that are not compared; by default also those
            that only say where values are.
    """
    for now, was in zip(ours, theirs, strict=False):
        if now.kind != was.kind:
            return OpChange(was.kind, now.kind, "", "", "", now.source)
        if now.types != was.types:
            old_types, new_types = (", ".join(map(type_text, op.types)) for op in (was, now))
            return OpChange(was.kind, now.kind, "type", old_types, new_types, now.source)
        for name in (*was.attributes, *now.attributes):
            old, new = was.attributes.get(name), now.attributes.get(name)
            if name.startswith(passed):
                continue
            if str(old) != str(new):
                return OpChange(was.kind, now.kind, name, str(old), str(new), now.source)
    if len(ours) == len(theirs):
        return None
    longer = ours if len(ours) > len(theirs) else theirs
    first = longer[min(len(ours), len(theirs))]
    was_kind, kind = (first.kind, "") if longer is theirs else ("", first.kind)
    return OpChange(was_kind, kind, "", "", "", first.source)
