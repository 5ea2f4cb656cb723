"""Reads the annotations off a module's op graph.

Shardy writes a constraint as ``sdy.sharding_constraint`` and a ``shard_map`` as
``sdy.manual_computation``; GSPMD writes custom calls to ``@Sharding``, ``@SPMDFullToShardShape``
and ``@SPMDShardToFullShape``. Either way they become the same ``Annotation`` here, in the order in
which JAX lowered them: the main function from its first op, a called function where it is first
called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import dropwhile
from typing import Literal, TypeAlias

from sdyscope.annotations.model import Annotation, AnnotationKind, split_scope
from sdyscope.errors import ConversionError, SyntaxTextError
from sdyscope.graph import Op, OpGraph, Sharding, TensorType
from sdyscope.graph.attributes import RESULT_SHARDING_NAMES
from sdyscope.graph.donation import ALIASED, DONOR, donation
from sdyscope.graph.model import AttributeValue
from sdyscope.graph.scalars import attribute_text
from sdyscope.syntax.hlo_sharding import parse_unspecified_dims
from sdyscope.values.convert import to_placement, unspecified_dims
from sdyscope.values.dtypes import TOKEN
from sdyscope.values.entry_layout import OWN_MEMORY
from sdyscope.values.mesh import AxisRef, Mesh
from sdyscope.values.placement import Digits, Placement, axes_digits, axes_union, without
from sdyscope.values.sharding import TensorSharding, TensorShardingPerValue
from sdyscope.values.source import SourceLocation, line_of, own_line
from sdyscope.values.tiling import HloSharding, TupleSharding


def read_annotations(graph: OpGraph) -> tuple[Annotation, ...]:
    """Every argument and result of the main function, then every annotated op in lowering order.

    Arguments and results of the main function are listed with or without a sharding, all else
    only with one.
    """
    walk = _Walk(graph)
    return tuple(walk.run())


def num_partitions(graph: OpGraph) -> int:
    """How many partitions the module is for.

    ``mhlo.num_partitions``; where that says 1, as it does when only constraints name a mesh, the
    largest mesh or tile assignment in the module.
    """
    declared = graph.attributes.get("mhlo.num_partitions")
    if isinstance(declared, int) and declared > 1:
        return declared
    sizes = [mesh.size for mesh in graph.meshes.values() if isinstance(mesh, Mesh)]
    shardings = [sharding for op in graph.ops for sharding in op.shardings]
    for function in graph.functions.values():
        shardings += [result.sharding for result in function.results]
    sizes += [
        sharding.tile_assignment.num_devices
        for sharding in shardings
        if isinstance(sharding, HloSharding) and sharding.tile_assignment is not None
    ]
    return max(sizes, default=1)


_Manual: TypeAlias = tuple[tuple[str, ...], Digits]


class _Walk:
    """One pass over a module, functions where they are first called."""

    def __init__(self, graph: OpGraph) -> None:
        self.graph = graph
        self.num_partitions = num_partitions(graph)
        self.seen: set[str] = set()
        self.unread = {item.text: item.error for item in graph.not_understood}
        self.ordinal = -1
        self.shard_maps: dict[int, int] = {}  # call of a body under GSPMD -> its ordinal

    def run(self) -> Iterator[Annotation]:
        main = self.graph.main
        if main is None:
            return
        yield from self.signature(main.name, inner=False)
        yield from self.body(main.op, ((), ()))
        # What main never reaches is annotated all the same: nothing is skipped.
        for name, function in self.graph.functions.items():
            if name not in self.seen:
                yield from self.signature(name, inner=True)
                yield from self.body(function.op, ((), ()))

    def signature(self, name: str, *, inner: bool) -> Iterator[Annotation]:
        self.seen.add(name)
        function = self.graph.functions[name]
        for argument in function.arguments:
            if (inner and argument.sharding is None) or argument.type.dtype == TOKEN:
                continue
            annotation = self.annotation(
                "inner argument" if inner else "argument",
                function.name_of(argument),
                argument.type,
                argument.sharding,
                memory="" if inner else _memory(argument.attributes),
                source=argument.location.source,
                index=argument.index,
                op=argument.node,
                name=f"%arg{argument.index}",
                function=name,
            )
            yield annotation if inner else self.with_attributes(annotation, argument.attributes)
        for result in function.results:
            if (inner and result.sharding is None) or result.type.dtype == TOKEN:
                continue
            annotation = self.annotation(
                "inner result" if inner else "result",
                function.name_of(result),
                result.type,
                result.sharding,
                memory="" if inner else _memory(result.attributes),
                index=result.index,
                op=function.op,
                function=name,
            )
            yield annotation if inner else self.with_attributes(annotation, result.attributes)

    def with_attributes(
        self, annotation: Annotation, attributes: Mapping[str, AttributeValue]
    ) -> Annotation:
        """An argument or result of main with what is not about its sharding."""
        donated = donation(attributes)
        to = ""
        if donated is not None and donated.result is not None and self.graph.main is not None:
            main = self.graph.main
            is_there = donated.result < len(main.results)
            to = main.name_of(main.results[donated.result]) if is_there else "no result"
        others = other_attributes(attributes)
        return replace(
            annotation, donated=donated is not None, donated_to=to, attributes=tuple(others)
        )

    def body(self, container: int, manual: _Manual) -> Iterator[Annotation]:
        for op in self.graph.children(container):
            if op.is_argument:
                continue
            if op.kind == "sdy.manual_computation":
                yield from self.manual_computation(op, manual)
                continue
            if op.kind in ("sdy.sharding_constraint", "sdy.reshard"):
                yield self.constraint(op, op.attributes.get("sharding"), manual)
            elif op.kind == "stablehlo.custom_call" and op.call_target in _GSPMD:
                yield from _GSPMD[op.call_target](self, op, manual)
            elif op.shardings.count(None) < len(op.shardings):
                yield from self.other(op)
            callee = self.graph.callee(op) if op.attributes else None
            if callee is not None and callee.name not in self.seen:
                inside = self.call_manual(op) or manual
                yield from self.signature(callee.name, inner=True)
                yield from self.body(callee.op, inside)
            yield from self.body(op.id, manual)

    def constraint(self, op: Op, sharding: Sharding | None, manual: _Manual) -> Annotation:
        self.ordinal += 1
        open_dims, problem = self.unspecified(op)
        annotation = self.of_op(
            "constraint",
            op,
            op.types[0],
            sharding,
            source=op.source or self.calling_line(op),
            open_dims=open_dims,
            ordinal=self.ordinal,
            name=op.names[0],
        )
        problem = annotation.problem or problem
        return replace(
            annotation,
            manual_axes=manual[0],
            manual=manual[1],
            around=manual[1],
            problem=problem,
            returned=self.is_returned(op),
            of_key=self.is_key(op, sharding),
        )

    def is_key(self, op: Op, sharding: Sharding | None) -> bool:
        """Whether a constraint is on the words of PRNG keys, on a mesh without axes."""
        mesh = self.mesh_of(sharding)
        return mesh is not None and not mesh.axes and op.types[0].dtype == "ui32"

    def is_returned(self, op: Op) -> bool:
        """Whether a constraint is on what a call returns, and located where that is."""
        return any(
            self.graph.callee(call) is not None and call.location.frames == op.location.frames
            for call, _ in self.graph.operands(op)
        )

    def other(self, op: Op) -> Iterator[Annotation]:
        for index, sharding in enumerate(op.shardings):
            if sharding is not None and op.types[index].dtype != TOKEN:
                source = op.source or self.calling_line(op)
                name = op.names[index]
                yield self.of_op(
                    "op", op, op.types[index], sharding, source=source, index=index, name=name
                )

    # Shardy's shard_map.

    def manual_computation(self, op: Op, around: _Manual) -> Iterator[Annotation]:
        self.ordinal += 1
        ordinal = self.ordinal
        names = op.manual_axes
        operands = [(producer.types[edge.result]) for producer, edge in self.graph.operands(op)]
        results = list(op.types)
        sides: tuple[tuple[AnnotationKind, list[TensorType], list[Sharding | None]], ...] = (
            ("shard_map input", operands, _each(op, "in_shardings", len(operands))),
            ("shard_map output", results, _each(op, "out_shardings", len(results))),
        )
        source = op.source or self.mapped_line(op, op.id)
        digits: Digits = ()
        rows: list[Annotation] = []
        for kind, types, shardings in sides:
            for index, (type_, sharding) in enumerate(zip(types, shardings, strict=True)):
                if type_.dtype == TOKEN:
                    continue
                problem = ""
                mesh = self.mesh_of(sharding)
                if mesh is not None:
                    digits, problem = self.manual_digits(mesh, names)
                annotation = self.of_op(
                    kind, op, type_, sharding, source=source, index=index, ordinal=ordinal
                )
                problem = annotation.problem or problem
                rows.append(
                    replace(
                        annotation,
                        manual_axes=names,
                        manual=digits,
                        around=around[1],
                        problem=problem,
                        tokens=_tokens(types[:index]),
                    )
                )
        inputs = [row for row in rows if row.kind == "shard_map input"]
        yield from inputs
        inside = axes_union(digits, around[1])
        yield from self.body(op.id, ((*around[0], *names), inside))
        yield from rows[len(inputs) :]

    def mapped_line(self, op: Op, body: int) -> SourceLocation | None:
        """The innermost line that leads to every op of a `shard_map`'s body, or into it.

        JAX has no line for a `shard_map` that it compiles as a function of its own, as under
        `@jax.jit @partial(jax.shard_map, ...)`, whose stacks begin in it.
        """
        inside = [each.location for each in self.graph.children(body) if each.location.frames]
        if not inside:
            return None
        lines = [{(frame.file, frame.line) for frame in each.frames} for each in inside]
        first = inside[0].frames
        frames = tuple(
            dropwhile(
                lambda frame: any((frame.file, frame.line) not in each for each in lines), first
            )
        )
        main = self.graph.main
        if not frames and main is not None and op.function != main.name:
            frames = first[-1:]
        return replace(inside[0], frames=frames).source

    def manual_digits(self, mesh: Mesh, names: tuple[str, ...]) -> tuple[Digits, str]:
        """The digits of manual axes, or why they have none."""
        try:
            return axes_digits(mesh, map(AxisRef, names)), ""
        except ConversionError as error:
            return (), error.message

    # GSPMD's.

    def sharding_call(self, op: Op, manual: _Manual) -> Iterator[Annotation]:
        targets = {user.call_target for user, _ in self.graph.uses(op)}
        if targets & {"SPMDFullToShardShape", "SPMDShardToFullShape"}:
            return  # Part of a shard_map's boundary, which is read as a whole.
        yield self.constraint(op, op.shardings[0], manual)

    def full_to_shard(self, op: Op, around: _Manual) -> Iterator[Annotation]:
        body, index = next(((user, edge.operand) for user, edge in self.graph.uses(op)), (None, 0))
        boundary = self.boundary("shard_map input", op, self.producer(op), op, body, index, around)
        passed = [] if body is None else self.graph.operands(body)[:index]
        types = [producer.types[edge.result] for producer, edge in passed]
        yield replace(boundary, tokens=_tokens(types))

    def shard_to_full(self, op: Op, around: _Manual) -> Iterator[Annotation]:
        local = self.producer(op)
        body, index = None, 0
        if local is not None:
            body, index = next(
                ((call, edge.result) for call, edge in self.graph.operands(local)), (None, 0)
            )
        boundary = self.boundary("shard_map output", op, op, local, body, index, around)
        yield replace(boundary, tokens=0 if body is None else _tokens(body.types[:index]))

    def producer(self, op: Op) -> Op | None:
        """The op whose result is the first operand."""
        return next((producer for producer, _ in self.graph.operands(op)), None)

    def shard_map_ordinal(self, body: Op | None) -> int:
        """One for all boundaries of the call of one body, in the order of first sight."""
        if body is None or body.id not in self.shard_maps:
            self.ordinal += 1
            if body is None:
                return self.ordinal
            self.shard_maps[body.id] = self.ordinal
        return self.shard_maps[body.id]

    def boundary(
        self,
        kind: Literal["shard_map input", "shard_map output"],
        op: Op,
        outer: Op | None,
        inner: Op | None,
        body: Op | None,
        index: int,
        around: _Manual,
    ) -> Annotation:
        """Of one of two custom calls, of which one says the sharding outside, one that inside."""
        type_ = (outer or op).types[0]
        other = (outer if inner is op else inner) or op
        open_dims, unread = self.unspecified(op)
        callee = None if body is None else self.graph.callee(body)
        annotation = self.of_op(
            kind,
            op,
            type_,
            _first(outer),
            open_dims=open_dims,
            source=op.source or (None if callee is None else self.mapped_line(op, callee.op)),
            index=index,
            ordinal=self.shard_map_ordinal(body),
        )
        within, problem = self.placed(_first(inner), type_, ())[:2]
        if within is None:
            problem = f"inside the shard_map: {problem or 'nothing is written'}"
        elif any(within.dims):
            problem = f"inside the shard_map it is {_first(inner)}, and should be whole"
        elif self.unspecified(op) != self.unspecified(other):
            problem = "its two halves leave different dimensions open"
        return replace(
            annotation,
            # Under GSPMD the axes of the shard_maps around this one are said again.
            manual=without(within.manual, around[1]) if within else (),
            problem=annotation.problem or unread or problem,
        )

    def call_manual(self, call: Op) -> _Manual | None:
        """What a called ``shard_map`` body is manual on, from what is passed to it."""
        for producer, _ in self.graph.operands(call):
            if producer.call_target == "SPMDFullToShardShape":
                place = self.placed(producer.shardings[0], producer.types[0], ())[0]
                return ((), place.manual if place else ())
        return None

    # Values.

    def unspecified(self, op: Op) -> tuple[tuple[int, ...], str]:
        """The dimensions that an op leaves open, or why they could not be read."""
        config = op.backend_config
        if not config:
            return (), ""
        try:
            return parse_unspecified_dims(str(config)), ""
        except SyntaxTextError:
            return (), f"its backend_config {config} could not be read"

    def mesh_of(self, sharding: Sharding | None) -> Mesh | None:
        if not isinstance(sharding, TensorSharding):
            return None
        mesh = (
            sharding.mesh
            if isinstance(sharding.mesh, Mesh)
            else self.graph.meshes.get(sharding.mesh)
        )
        return mesh if isinstance(mesh, Mesh) else None

    def of_op(
        self,
        kind: AnnotationKind,
        op: Op,
        type_: TensorType,
        sharding: Sharding | None,
        *,
        source: SourceLocation | None,
        open_dims: tuple[int, ...] = (),
        index: int | None = None,
        ordinal: int = -1,
        name: str = "",
    ) -> Annotation:
        return self.annotation(
            kind,
            op.scope,
            type_,
            sharding,
            open_dims=open_dims,
            source=source,
            index=index,
            ordinal=ordinal,
            op=op.id,
            name=name or op.name,
            function=op.function,
        )

    def calling_line(self, op: Op) -> SourceLocation | None:
        """The line that calls the function of an op without a line, where all calls have one line.

        JAX has no line for what is inside a function of its own, such as `jax.nn.relu`.
        """
        lines = {
            line_of(source): source
            for path in self.graph.call_paths(op.function)
            for source in [next((at for at in map(self.line, reversed(path)) if at), None)]
        }
        return next(iter(lines.values())) if len(lines) == 1 else None

    def line(self, node: int) -> SourceLocation | None:
        """The line of an op."""
        return self.graph.ops[node].source

    def annotation(
        self,
        kind: AnnotationKind,
        path: str,
        type_: TensorType,
        sharding: Sharding | None,
        *,
        open_dims: tuple[int, ...] = (),
        source: SourceLocation | None = None,
        index: int | None = None,
        ordinal: int = -1,
        op: int = -1,
        name: str = "",
        function: str = "",
        memory: str = "",
    ) -> Annotation:
        place, problem, opened = self.placed(sharding, type_, open_dims)
        primitive = ""
        if kind in _ON_OPS:
            path, primitive = split_scope(path)
        # As a jaxpr, which knows one equation at a time, tells it, too.
        frames = self.graph.ops[op].location.frames if ordinal >= 0 else ()
        return Annotation(
            kind=kind,
            path=path,
            primitive=primitive,
            shape=_static(type_),
            dtype=type_.dtype,
            sharding=sharding,
            placement=place,
            open_dims=opened,
            problem=problem,
            source=source,
            innermost=own_line(frames),
            index=index,
            ordinal=ordinal,
            op=op,
            name=name,
            function=function,
            memory=memory,
        )

    def placed(
        self, sharding: Sharding | None, type_: TensorType, open_dims: tuple[int, ...]
    ) -> tuple[Placement | None, str, tuple[int, ...]]:
        if sharding is None:
            return None, "", ()
        if isinstance(sharding, str):
            return None, self.unread.get(sharding, "it has no known form"), ()
        if isinstance(sharding, TupleSharding):
            if len(sharding.elements) != 1:
                return None, f"{len(sharding.elements)} shardings are written on one value", ()
            sharding = sharding.elements[0]
        rank = len(type_.shape or ())
        opened = tuple(sorted({*open_dims, *unspecified_dims(sharding, rank)}))
        try:
            mesh = self.mesh_of(sharding)
            return to_placement(sharding, rank, mesh, self.num_partitions), "", opened
        except ConversionError as error:
            return None, error.message, opened


_GSPMD: dict[str | None, Callable[[_Walk, Op, _Manual], Iterator[Annotation]]] = {
    "Sharding": _Walk.sharding_call,
    "SPMDFullToShardShape": _Walk.full_to_shard,
    "SPMDShardToFullShape": _Walk.shard_to_full,
}


def _first(op: Op | None) -> Sharding | None:
    return op.shardings[0] if op is not None and op.shardings else None


def _tokens(types: Sequence[TensorType]) -> int:
    return sum(type_.dtype == TOKEN for type_ in types)


#: What is read as something else of an argument or result.
_READ = frozenset({*RESULT_SHARDING_NAMES, "jax.result_info", "mhlo.memory_kind", ALIASED, DONOR})
#: The attribute of an argument or result with the layout that is asked for.
LAYOUT = "mhlo.layout_mode"
#: What JAX writes on all where it writes a layout on one.
_DEFAULT_LAYOUT = (LAYOUT, "default")


def other_attributes(attributes: Mapping[str, AttributeValue]) -> Iterator[str]:
    """What is written on an argument or result beside its sharding, memory, name and donation."""
    for name, value in sorted(attributes.items()):
        if name not in _READ and (name, value) != _DEFAULT_LAYOUT:
            yield f"{name} = {attribute_text(value)}"


_ON_OPS = ("constraint", "shard_map input", "shard_map output", "op")


def _memory(attributes: Mapping[str, AttributeValue]) -> str:
    """The kind of memory that JAX writes on an argument or result, if not the device's own."""
    kind = str(attributes.get("mhlo.memory_kind", ""))
    return "" if kind in OWN_MEMORY else kind


def _static(type_: TensorType) -> tuple[int, ...] | None:
    if type_.shape is None or None in type_.shape:
        return None
    return tuple(size for size in type_.shape if size is not None)


def _each(op: Op, attribute: str, count: int) -> list[Sharding | None]:
    """A sharding for each of ``count`` values; the text of all where it could not be read."""
    value = op.attributes.get(attribute)
    if isinstance(value, TensorShardingPerValue) and len(value.shardings) == count:
        return list(value.shardings)
    return [None if value is None else str(value)] * count
