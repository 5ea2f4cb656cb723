"""Edits that a program's source can carry, each with what it would be in the lowered module."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import libcst as cst

from sdyscope.analysis.fix.expressions import Expression
from sdyscope.analysis.fix.workshop import Workshop
from sdyscope.annotations import Annotation
from sdyscope.errors import ConversionError, SdyscopeError, TargetError
from sdyscope.facts.edits import SourceEdit
from sdyscope.graph import OpGraph
from sdyscope.patches.source import Span, Splice
from sdyscope.patches.specs import SpecLiteral, spec_literals
from sdyscope.stages.edited.arguments import argument_shardings
from sdyscope.stages.propagated.annotate import Change, Constrain, Edit
from sdyscope.values.convert import to_named_sharding
from sdyscope.values.mesh import Mesh
from sdyscope.values.sharding import UNCONSTRAINED, NamedSharding, PartitionSpec, TensorSharding
from sdyscope.values.source import SourceLocation

if TYPE_CHECKING:
    from sdyscope.facts.program import RequestedTensor
    from sdyscope.staged import Staged

__all__ = [
    "ConstraintSite",
    "LiteralSite",
    "LiteralSites",
    "Proposal",
    "constraint_sites",
    "new_constraint",
    "spec_of",
    "specs_near",
]

Splices = Mapping[str, Sequence[Splice]]


@dataclass(frozen=True)
class Proposal:
    """One edit of the source that could pay.

    Attributes:
        edit: what it is, for its reader.
        trial: what it is in the lowered module; None where only tracing the edited source tells.
        write: the edits of the files; raises ``TargetError`` where it can't be written.
        weight: bytes that a device sends for what it is about; the more, the sooner it is tried.
        spans: the expressions whose names ``write`` needs.
    """

    edit: SourceEdit
    trial: tuple[Edit, ...] | None
    write: Callable[[], Splices] = field(compare=False)
    weight: float = 0.0
    spans: tuple[Span, ...] = ()


def spec_of(annotation: Annotation, graph: OpGraph, mesh: Mesh) -> PartitionSpec | None:
    """What is written, as JAX writes it; None where it has no such form, or is on another mesh."""
    sharding = annotation.sharding
    if not isinstance(sharding, TensorSharding):
        return None
    own = sharding.mesh if isinstance(sharding.mesh, Mesh) else graph.meshes.get(sharding.mesh)
    if own != mesh:
        return None
    try:
        return to_named_sharding(sharding, len(annotation.shape or ()), mesh).spec
    except ConversionError:
        return None


def specs_near(
    spec: PartitionSpec | None, shape: Sequence[int], mesh: Mesh, axes: Iterable[str] = ()
) -> list[PartitionSpec]:
    """Shardings that differ from one in the place of one axis; of the named axes first.

    Args:
        spec: the sharding; None for whole.
        shape: shape of the tensor.
        mesh: the mesh.
        axes: the axes that matter most.
    """
    sizes = {axis.name: axis.size for axis in mesh.axes if axis.size > 1}
    here = _dims(spec, len(shape))
    if any(axis not in sizes for dim in here for axis in dim if mesh.shape.get(axis, 2) > 1):
        return []
    wanted = [axis for axis in axes if axis in sizes]
    found: dict[PartitionSpec, None] = {}
    for axis in (*wanted, *(axis for axis in sizes if axis not in wanted)):
        bare = [tuple(one for one in dim if one != axis) for dim in here]
        for at in (*range(len(shape)), None):
            made = [(*dim, axis) if at == number else dim for number, dim in enumerate(bare)]
            if made == here:
                continue
            if all(
                size % _product(sizes.get(one, 1) for one in dim) == 0
                for size, dim in zip(shape, made, strict=True)
            ):
                found[_spec(made)] = None
    return list(found)


def _product(sizes: Iterable[int]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total


def _dims(spec: PartitionSpec | None, rank: int) -> list[tuple[str, ...]]:
    made: list[tuple[str, ...]] = []
    for entry in () if spec is None else spec.entries[:rank]:
        if isinstance(entry, tuple):
            made.append(entry)
        else:
            made.append((entry,) if isinstance(entry, str) else ())
    return made + [()] * (rank - len(made))


def _spec(dims: Sequence[tuple[str, ...]]) -> PartitionSpec:
    return PartitionSpec(tuple(dim[0] if len(dim) == 1 else dim or None for dim in dims))


# --- constraints that are there -------------------------------------------------------------------


@dataclass(frozen=True)
class ConstraintSite:
    """A call of the source that constrains values.

    Attributes:
        span: the call.
        annotations: the constraints that it makes, those of the backward pass included.
        spec: how it shards all of them; None where that differs, or has no such form.
        shape: shape of the first.
    """

    workshop: Workshop = field(repr=False, compare=False)
    mesh: Mesh
    span: Span
    annotations: tuple[Annotation, ...]
    spec: PartitionSpec | None
    shape: tuple[int, ...]

    @property
    def _call(self) -> cst.Call:
        call = self.workshop.source(self.span.file).expression(self.span)
        if not isinstance(call, cst.Call) or not call.args:
            raise TargetError("The constraint is not a call that could be edited.")
        return call

    @property
    def value_text(self) -> str:
        """What is constrained, as it is written."""
        source = self.workshop.source(self.span.file)
        return " ".join(source.written(self._call.args[0].value).split())

    def dropped(self, weight: float = 0.0) -> Proposal:
        """The edit after which the compiler decides."""
        trial = tuple(
            Change(
                one,
                NamedSharding(self.mesh, PartitionSpec((UNCONSTRAINED,) * len(one.shape or ()))),
            )
            for one in self.annotations
        )
        return Proposal(self._edit(None), trial, self._write_dropped, weight)

    def changed(self, spec: PartitionSpec, weight: float = 0.0) -> Proposal:
        """The edit after which it says another sharding."""
        trial = tuple(Change(one, NamedSharding(self.mesh, spec)) for one in self.annotations)
        return Proposal(
            self._edit(spec), trial, lambda: self._write_changed(spec), weight, (self.span,)
        )

    def _edit(self, after: PartitionSpec | None) -> SourceEdit:
        line = SourceLocation(self.span.file, self.span.line, 0, self.span.function)
        return SourceEdit(
            "constraint", self.value_text, self.spec, after, line, len(self.annotations)
        )

    def _write_dropped(self) -> Splices:
        source, call = self.workshop.source(self.span.file), self._call
        value = call.args[0].value
        text = source.written(value)
        if value.lpar or not isinstance(value, cst.Name | cst.Call | cst.Attribute | cst.Subscript):
            around = source.parent(call)
            if value.lpar or not isinstance(
                around, cst.Arg | cst.Assign | cst.AnnAssign | cst.Return | cst.Element
            ):
                text = f"({text})"
        start, end = source.extent(call)
        return {self.span.file: [Splice(start, end, text)]}

    def _write_changed(self, spec: PartitionSpec) -> Splices:
        source, call = self.workshop.source(self.span.file), self._call
        if self.spec is not None:
            own = source.extent(call)
            found: list[tuple[Splice, ...]] = []
            for literal in spec_literals(source, self.mesh.shape):
                at = source.extent(literal.node)
                if own[0] <= at[0] and at[1] <= own[1]:
                    made = literal.with_spec(self.spec, spec, len(self.shape))
                    if made:
                        found.append(made)
            if found:
                return {self.span.file: found[0]}
        text = self.workshop.sharding_text(self.span, self.mesh, spec)
        if text is None or len(call.args) != 2:
            raise TargetError("No name in scope leads to the mesh.")
        start, end = source.extent(call.args[1].value)
        return {self.span.file: [Splice(start, end, text)]}


def constraint_sites(
    workshop: Workshop, graph: OpGraph, annotations: Iterable[Annotation], mesh: Mesh
) -> list[ConstraintSite]:
    """The calls behind the constraints that the author wrote, in the order of the program."""
    groups: dict[Span, list[Annotation]] = {}
    for annotation in annotations:
        if annotation.kind != "constraint" or not annotation.is_authored or annotation.manual_axes:
            continue
        span = _site(workshop, annotation)
        if span is not None:
            groups.setdefault(span, []).append(annotation)
    sites = []
    for span, found in groups.items():
        specs = {spec_of(one, graph, mesh) for one in found}
        site = ConstraintSite(
            workshop,
            mesh,
            span,
            tuple(found),
            next(iter(specs)) if len(specs) == 1 else None,
            found[0].shape or (),
        )
        call = workshop.source(span.file).expression(span)
        if isinstance(call, cst.Call) and call.args:
            sites.append(site)
    return sites


def _site(workshop: Workshop, annotation: Annotation) -> Span | None:
    """The frame that tells a constraint apart (``values.source.own_line``), where it is editable."""
    frames = workshop.spans.get(annotation.op, ())
    wanted = annotation.source
    for frame in frames:
        if wanted is not None and (frame.file, frame.line, frame.column) == (
            wanted.file,
            wanted.line,
            wanted.column,
        ):
            return frame if workshop.editable(frame.file) else None
    return next((frame for frame in frames if workshop.editable(frame.file)), None)


# --- constraints that are not there ---------------------------------------------------------------


def new_constraint(
    workshop: Workshop, expression: Expression, mesh: Mesh, spec: PartitionSpec, weight: float
) -> Proposal:
    """The edit that constrains an expression."""
    span, sharding = expression.span, NamedSharding(mesh, spec)
    source = workshop.source(span.file)
    node = source.expression(span)
    text = "" if node is None else " ".join(source.written(node).split())

    def write() -> Splices:
        if node is None:
            raise TargetError("The expression was not found in its file.")
        call = workshop.constraint_call(span)
        written = workshop.sharding_text(span, mesh, spec)
        if call is None or written is None:
            raise TargetError(
                "No name in scope leads to JAX or to the mesh, so the constraint can't be written."
            )
        start, end = source.extent(node)
        if isinstance(node, cst.GeneratorExp | cst.Tuple):
            raise TargetError("The expression is not one array.")
        return {span.file: [Splice(start, start, f"{call}("), Splice(end, end, f", {written})")]}

    line = SourceLocation(span.file, span.line, 0, span.function)
    edit = SourceEdit("new constraint", text, None, spec, line, len(expression.values))
    trial = tuple(
        Constrain(value, sharding) for value in (*expression.values, *expression.cotangents)
    )
    return Proposal(edit, trial, write, weight, (span,))


# --- shardings of arguments and results -----------------------------------------------------------


@dataclass(frozen=True)
class LiteralSite:
    """A place in the source that says how arguments or results are sharded.

    Attributes:
        literal: the place.
        spec: what it says.
        shape: shape of the first tensor that it is about.
        tensors: the arguments and results that it is about: their kind and flat index.
        names: their paths.
    """

    literal: SpecLiteral
    spec: PartitionSpec
    shape: tuple[int, ...]
    tensors: tuple[tuple[str, int], ...]
    names: tuple[str, ...]
    mesh: Mesh

    def changed(
        self, spec: PartitionSpec, annotations: Mapping[tuple[str, int], Annotation], weight: float
    ) -> Proposal | None:
        """The edit after which it says another sharding; None where it can't."""
        rank = len(self.shape)
        splices = self.literal.with_spec(self.spec, spec, rank)
        if not splices:
            return None
        trial = tuple(
            Change(annotations[key], NamedSharding(self.mesh, spec))
            for key in self.tensors
            if key in annotations and len(annotations[key].shape or ()) == rank
        )
        kind = "result" if all(kind == "result" for kind, _ in self.tensors) else "argument"
        file = self.literal.source.file
        edit = SourceEdit(
            "argument" if kind == "argument" else "result",
            self.names[0],
            self.spec,
            spec,
            SourceLocation(file, self.literal.line),
            len(self.tensors),
        )
        return Proposal(edit, trial or None, lambda: {file: splices}, weight)


class LiteralSites:
    """Finds the places that say how an argument or result is sharded, by building the program.

    Args:
        workshop: the program.
        mesh: its mesh.
        most: how many places to try for one tensor.
    """

    def __init__(self, workshop: Workshop, mesh: Mesh, most: int = 8) -> None:
        self.workshop, self.mesh, self.most = workshop, mesh, most
        self._before: tuple[RequestedTensor, ...] = workshop.program.requested
        self._leaves = self._shardings(workshop.program)
        self._known: dict[tuple[str, int], LiteralSite | None] = {}
        self.built = 0

    def literals(self) -> Iterator[SpecLiteral]:
        """Every place in the author's files that puts axes on dimensions."""
        for file in self.workshop.files:
            yield from spec_literals(self.workshop.source(file), self.mesh.shape)

    def of(self, tensor: RequestedTensor, spec: PartitionSpec) -> LiteralSite | None:
        """The place that says how a tensor is sharded; None where none was found.

        Args:
            tensor: an argument or result.
            spec: how it is sharded.
        """
        rank, key = len(tensor.shape), (tensor.kind, tensor.index or 0)
        options = specs_near(spec, tensor.shape, self.mesh)
        if not options:
            return None
        tried = 0
        best: LiteralSite | None = None
        for literal in self.literals():
            place = (literal.source.file, literal.inside)
            if literal.with_spec(spec, options[0], rank) is None:
                continue
            known = self._known.get((literal.source.file, literal.inside))
            if place not in self._known:
                if tried == self.most:
                    break
                tried += 1
                known = self._known[place] = self._probed(literal, spec, tensor.shape, options)
            if known is None or key not in known.tensors or known.spec != spec:
                continue
            if best is None or len(known.tensors) < len(best.tensors):
                best = known
        return best

    def _probed(
        self,
        literal: SpecLiteral,
        spec: PartitionSpec,
        shape: tuple[int, ...],
        options: Sequence[PartitionSpec],
    ) -> LiteralSite | None:
        """What a place says, by what is other when it says something else."""
        for option in options[:2]:
            splices = literal.with_spec(spec, option, len(shape))
            if not splices:
                continue
            texts = self.workshop.texts({literal.source.file: splices})
            try:
                self.built += 1
                changed = self._differing(texts)
            except SdyscopeError:
                continue  # other dimensions that it is on may not divide
            except Exception:
                continue
            if changed:
                tensors = tuple((one.kind, one.index or 0) for one in changed)
                names = tuple(one.path for one in changed)
                return LiteralSite(literal, spec, shape, tensors, names, self.mesh)
        return None

    @staticmethod
    def _shardings(program: Staged) -> list[str] | None:
        return None if program.program is None else argument_shardings(program.program)

    def _differing(self, texts: Mapping[str, str]) -> list[RequestedTensor]:
        """The arguments, or else the results, that other text shards otherwise."""
        made = self.workshop.built(texts, trace=False)
        leaves = self._shardings(made)
        arguments = [one for one in self._before if one.kind == "argument"]
        if self._leaves is not None and leaves is not None and len(leaves) == len(self._leaves):
            if len(leaves) == len(arguments):
                changed = [
                    one
                    for one, old, new in zip(arguments, self._leaves, leaves, strict=True)
                    if old != new
                ]
                if changed:
                    return changed
        made = self.workshop.built(texts)
        return [
            old
            for old, new in zip(self._before, made.requested, strict=False)
            if old.kind in ("argument", "result") and old.sharding != new.sharding
        ]
