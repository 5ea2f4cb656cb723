"""Edits that a program's source can carry, each with what it would be in the lowered module."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import combinations, product
from typing import TYPE_CHECKING, TypeAlias

import libcst as cst

from sdyscope.analysis.fix.expressions import Expression
from sdyscope.analysis.fix.workshop import Workshop
from sdyscope.analysis.memory.donation import held_at_most, not_donated
from sdyscope.analysis.naming.next_values import next_values_of_rows, pairs_of_table
from sdyscope.analysis.propagation.counterfactuals import written_spec
from sdyscope.annotations import Annotation
from sdyscope.errors import TargetError
from sdyscope.facts.edits import SourceEdit
from sdyscope.facts.sharded import requested_sharding
from sdyscope.graph import OpGraph
from sdyscope.patches.jit import JitSite, jit_sites
from sdyscope.patches.rewrites import constrained_value, without_constraint
from sdyscope.patches.source import Source, Span, Splice
from sdyscope.patches.specs import SpecLiteral, spec_literals
from sdyscope.stages.edited.arguments import argument_positions, argument_shardings
from sdyscope.stages.propagated.annotate import (
    DonatedArgument,
    ModuleEdit,
    NewConstraint,
    ShardingEdit,
)
from sdyscope.values.dtypes import num_bytes
from sdyscope.values.mesh import Mesh
from sdyscope.values.placement import Placement
from sdyscope.values.sharding import UNCONSTRAINED, NamedSharding, PartitionSpec, TensorSharding

if TYPE_CHECKING:
    from sdyscope.facts.program import RequestedTensor
    from sdyscope.staged import Staged

Splices: TypeAlias = Mapping[str, Sequence[Splice]]
"""Edits by the path of the file."""


@dataclass(frozen=True)
class Proposal:
    """One edit of the source that could pay.

    Attributes:
        edit: what it is, for its reader.
        trial: what it is in the lowered module; None where only tracing the edited source tells.
        write: the edits of the files; raises ``TargetError`` where it can't be written.
        weight: bytes that a device sends for what it is about; the more, the sooner it is tried.
        spans: the expressions whose names ``write`` needs.
        names: paths of the arguments and results that it is about.
        saves: where there is no trial, the bytes that a device need not send with it.
        corrects: whether the program's numbers are wrong without it.
        frees: bytes that a device may hold less of values inside, which no prediction counts.
        site: the constraint that it edits, where it edits one.
    """

    edit: SourceEdit
    trial: tuple[ModuleEdit, ...] | None
    write: Callable[[], Splices] = field(compare=False)
    weight: float = 0.0
    spans: tuple[Span, ...] = ()
    names: tuple[str, ...] = ()
    saves: float = 0.0
    corrects: bool = False
    frees: float = 0.0
    site: ConstraintSite | None = field(default=None, repr=False, compare=False)


def spec_of(annotation: Annotation, graph: OpGraph, mesh: Mesh) -> PartitionSpec | None:
    """What is written, as JAX writes it; None where it has no such form, or is on another mesh."""
    sharding = annotation.sharding
    if not isinstance(sharding, TensorSharding):
        return None
    own = sharding.mesh if isinstance(sharding.mesh, Mesh) else graph.meshes.get(sharding.mesh)
    return written_spec(annotation, mesh) if own == mesh else None


def specs_near(
    spec: PartitionSpec | None, shape: Sequence[int], mesh: Mesh, axes: Iterable[str] = ()
) -> list[PartitionSpec]:
    """Shardings that differ from one in the place of one axis, or have two dimensions exchanged.

    Those that place a named axis otherwise come first.

    Args:
        spec: the sharding; None for whole.
        shape: shape of the tensor.
        mesh: the mesh.
        axes: the axes that matter most.
    """
    sizes = {axis.name: axis.size for axis in mesh.axes if axis.size > 1}
    here = dims_of(spec, len(shape))
    if any(axis not in sizes for dim in here for axis in dim if mesh.shape.get(axis, 2) > 1):
        return []
    wanted = [axis for axis in axes if axis in sizes]
    near: list[list[tuple[str, ...]]] = []
    for axis in (*wanted, *(axis for axis in sizes if axis not in wanted)):
        bare = [tuple(axis_name for axis_name in dim if axis_name != axis) for dim in here]
        for at in (*range(len(shape)), None):
            near.append([(*dim, axis) if at == number else dim for number, dim in enumerate(bare)])
    # A spec that is turned round is two moves away, and what is between them may be worse.
    for first, second in combinations([at for at, dim in enumerate(here) if dim], 2):
        exchanged = list(here)
        exchanged[first], exchanged[second] = here[second], here[first]
        near.append(exchanged)
    return list(
        dict.fromkeys(
            spec_of_dims(dims)
            for dims in near
            if dims != here
            and all(
                size % math.prod(sizes.get(axis_name, 1) for axis_name in dim) == 0
                for size, dim in zip(shape, dims, strict=True)
            )
        )
    )


def fuller_specs(
    spec: PartitionSpec | None, shape: Sequence[int], mesh: Mesh
) -> Iterator[PartitionSpec]:
    """Shardings that keep the axes of one where they are, and put all others on dimensions, too.

    Args:
        spec: the sharding; None for whole.
        shape: shape of the tensor.
        mesh: the mesh.
    """
    here = dims_of(spec, len(shape))
    used = {axis for dim in here for axis in dim}
    sizes = {axis.name: axis.size for axis in mesh.axes}
    free = [axis for axis, size in sizes.items() if size > 1 and axis not in used]
    for places in product(range(len(shape)), repeat=len(free)) if free else ():
        dims = [
            (*dim, *(axis for axis, at in zip(free, places, strict=True) if at == number))
            for number, dim in enumerate(here)
        ]
        if all(
            size % math.prod(sizes.get(axis, 1) for axis in dim) == 0
            for size, dim in zip(shape, dims, strict=True)
        ):
            yield spec_of_dims(dims)


def dims_of(spec: PartitionSpec | None, rank: int) -> list[tuple[str, ...]]:
    """The axes of each dimension."""
    dims: list[tuple[str, ...]] = []
    for entry in () if spec is None else spec.entries[:rank]:
        if isinstance(entry, tuple):
            dims.append(entry)
        else:
            dims.append((entry,) if isinstance(entry, str) else ())
    return dims + [()] * (rank - len(dims))


def spec_of_dims(dims: Sequence[tuple[str, ...]]) -> PartitionSpec:
    """The sharding with these axes on each dimension."""
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
    def _others(self) -> list[Source]:
        """The other files, of which one may have the function that constrains."""
        return self.workshop.sources(without=self.span.file)

    @property
    def value_text(self) -> str:
        """What is constrained, as it is written."""
        source = self.workshop.source(self.span.file)
        return source.on_one_line(constrained_value(source, self._call, self._others))

    def dropped(self, weight: float = 0.0) -> Proposal:
        """The edit after which the compiler decides."""
        trial = tuple(
            ShardingEdit(
                annotation,
                NamedSharding(
                    self.mesh, PartitionSpec((UNCONSTRAINED,) * len(annotation.shape or ()))
                ),
            )
            for annotation in self.annotations
        )
        frees = sum(map(self._held_again, self.annotations))
        return Proposal(
            self._edit(None), trial, self._write_dropped, weight, frees=frees, site=self
        )

    def _held_again(self, annotation: Annotation) -> float:
        """Bytes that a device holds of a value and would not if all axes sharded it."""
        if annotation.placement is None or annotation.shape is None:
            return 0.0
        whole = num_bytes(math.prod(annotation.shape), annotation.dtype)
        return whole / math.prod(annotation.placement.shards) - whole / self.mesh.size

    def changed(self, spec: PartitionSpec, weight: float = 0.0) -> Proposal:
        """The edit after which it says another sharding."""
        trial = tuple(
            ShardingEdit(annotation, NamedSharding(self.mesh, spec))
            for annotation in self.annotations
        )
        return Proposal(
            self._edit(spec),
            trial,
            lambda: self._write_changed(spec),
            weight,
            (self.span,),
            site=self,
        )

    @property
    def block(self) -> int:
        """Bytes of the largest value where all axes shard it."""
        sizes = [num_bytes(math.prod(each.shape or ()), each.dtype) for each in self.annotations]
        return max(sizes) // self.mesh.size

    def _edit(self, after: PartitionSpec | None) -> SourceEdit:
        line = self.span.location
        return SourceEdit(
            "constraint", self.value_text, self.spec, after, line, len(self.annotations)
        )

    def _write_dropped(self) -> Splices:
        source = self.workshop.source(self.span.file)
        return {self.span.file: without_constraint(source, self.span, self._others)}

    def _write_changed(self, spec: PartitionSpec) -> Splices:
        source, call = self.workshop.source(self.span.file), self._call
        if self.spec is not None:
            own = source.extent(call)
            changes: list[tuple[Splice, ...]] = []
            for literal in spec_literals(source, self.mesh.shape):
                at = source.extent(literal.node)
                if own[0] <= at[0] and at[1] <= own[1]:
                    splices = literal.with_spec(self.spec, spec, len(self.shape))
                    if splices:
                        changes.append(splices)
            if changes:
                return {self.span.file: changes[0]}
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
    for span, members in groups.items():
        specs = {spec_of(annotation, graph, mesh) for annotation in members}
        site = ConstraintSite(
            workshop,
            mesh,
            span,
            tuple(members),
            next(iter(specs)) if len(specs) == 1 else None,
            members[0].shape or (),
        )
        call = workshop.source(span.file).expression(span)
        if isinstance(call, cst.Call) and call.args:
            sites.append(site)
    return sites


def _site(workshop: Workshop, annotation: Annotation) -> Span | None:
    """The frame that tells a constraint apart (``own_line``), where its file is the author's."""
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
    text = "" if node is None else source.on_one_line(node)

    def write() -> Splices:
        if node is None:
            raise TargetError("The expression was not found in its file.")
        call = workshop.constraint_call(span)
        written = workshop.sharding_text(span, mesh, spec)
        if call is None or written is None:
            missing = "JAX" if call is None else "the mesh"
            raise TargetError(
                f"No name in scope leads to {missing}, so the constraint can't be written."
            )
        start, end = source.extent(node)
        if isinstance(node, cst.GeneratorExp | cst.Tuple):
            raise TargetError("The expression is not one array.")
        return {span.file: [Splice(start, start, f"{call}("), Splice(end, end, f", {written})")]}

    line = span.location
    edit = SourceEdit("new constraint", text, None, spec, line, len(expression.values))
    trial = tuple(
        NewConstraint(value, sharding) for value in (*expression.values, *expression.cotangents)
    )
    return Proposal(edit, trial, write, weight, (span,))


# --- donations ------------------------------------------------------------------------------------


def donations(workshop: Workshop) -> Iterator[Proposal]:
    """The edits that donate the arguments whose next values the program returns.

    An argument of the function is donated where that is so for most of its bytes.
    """
    program = workshop.program
    undonated = {
        donation.argument.index: donation
        for donation in not_donated(program.tensors, "shardy", program.graph("shardy"))
        if donation.certain
    }
    if not undonated or program.program is None:
        return
    positions = argument_positions(program.program)
    if len(positions) != sum(argument.kind == "argument" for argument in program.requested):
        return
    held: dict[int, list[float]] = {}
    for row in program.tensors.tensors:
        annotation = row.lowered.get("shardy")
        if row.kind == "argument" and row.index is not None and annotation is not None:
            size = held_at_most(row, annotation.placement)
            taken = held.setdefault(positions[row.index], [0.0, 0.0])
            taken[0] += size
            taken[1] += size if row.index in undonated else 0
    numbers = [at for at, (size, free) in held.items() if free and free >= _MOST_OF * size]
    if not numbers:
        return
    own = [donation for index, donation in undonated.items() if positions[index or 0] in numbers]
    trial = tuple(DonatedArgument(donation.argument.lowered["shardy"]) for donation in own)
    own.sort(key=lambda donation: -donation.bytes)
    edit = SourceEdit("donation", own[0].argument.path, None, None, None, len(own))
    bytes_ = float(sum(donation.bytes for donation in own))
    names = tuple(donation.argument.path for donation in own)
    proposal = Proposal(edit, trial, dict, bytes_, names=names)
    yield from _where_jitted(workshop, lambda site: site.donating(numbers), proposal)


def _where_jitted(
    workshop: Workshop, change: Callable[[JitSite], list[Splice] | None], proposal: Proposal
) -> Iterator[Proposal]:
    """The proposal at each place that jits this program alone, and can be changed so.

    Where it is sure of some that they jit it, others of which it is not are left alone.
    """
    defined = workshop.program.defined_at
    sites = [
        (file, site)
        for file in workshop.files
        for site in jit_sites(workshop.source(file), workshop.sources(without=file))
        if site.may_jit(defined) and not site.is_shared
    ]
    sure = [] if defined is None else [each for each in sites if each[1].function]
    for file, site in sure or sites:
        splices = change(site)
        if splices is not None:
            line = site.source.location(site.node)
            written = partial(dict[str, Sequence[Splice]], {file: splices})
            edit = replace(proposal.edit, source=line)
            yield replace(proposal, edit=edit, write=written)


# --- results that are asked to be where their next step does not have them ------------------------


def open_results(workshop: Workshop) -> Iterator[Proposal]:
    """The edits that leave results to the compiler where ``out_shardings`` moves next values.

    A result that is an argument's next value, and is asked to be sharded otherwise than that
    argument, is moved in every step, and moved back by the next.
    """
    program = workshop.program
    if program.program is None:
        return
    rows = [row for row in program.tensors.tensors if "shardy" in row.lowered]
    results = [row for row in rows if row.kind == "result"]
    arguments = [row for row in rows if row.kind == "argument"]
    known = next_values_of_rows(results, arguments, "shardy", program.graph("shardy"))
    moved = [
        results[number]
        for number, value in known.items()
        if value.relation != "gradient"
        and results[number].asked is not None
        and arguments[value.argument].asked is not None
        and results[number].lowered["shardy"].placement
        != arguments[value.argument].lowered["shardy"].placement
    ]
    if not moved:
        return
    asked = [row for row in results if row.asked is not None]
    trial = tuple(ShardingEdit(row.lowered["shardy"], unspecified=True) for row in asked)
    largest = max(moved, key=lambda row: math.prod(row.shape or ()))
    before = largest.asked
    weight = float(sum(num_bytes(math.prod(row.shape or ()), row.dtype) for row in moved))
    spec = None if before is None else before.spec
    edit = SourceEdit("result", largest.path, spec, None, None, len(asked))
    names = tuple(row.path for row in asked)
    proposal = Proposal(edit, trial, dict, weight, names=names)
    yield from _where_jitted(workshop, lambda site: site.without("out_shardings"), proposal)


#: An argument is donated where next values take so much of it.
_MOST_OF = 0.9


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
        mesh: the mesh that it is on.
        beside: the place that says the same of next values, to be changed with it; None where this
            one says so, or the program leaves them open.
    """

    literal: SpecLiteral
    spec: PartitionSpec
    shape: tuple[int, ...]
    tensors: tuple[tuple[str, int], ...]
    names: tuple[str, ...]
    mesh: Mesh
    beside: LiteralSite | None = None

    def changed(
        self, spec: PartitionSpec, annotations: Mapping[tuple[str, int], Annotation], weight: float
    ) -> Proposal | None:
        """The edit after which it says another sharding; None where it can't."""
        rank = len(self.shape)
        sites = (self,) if self.beside is None else (self, self.beside)
        splices: dict[str, list[Splice]] = {}
        for site in sites:
            site_splices = site.literal.with_spec(site.spec, spec, rank)
            if not site_splices:
                return None
            splices.setdefault(site.literal.source.file, []).extend(site_splices)
        tensors = dict.fromkeys(key for site in sites for key in site.tensors)
        trial = tuple(
            ShardingEdit(annotations[key], NamedSharding(self.mesh, spec))
            for key in tensors
            if key in annotations and len(annotations[key].shape or ()) == rank
        )
        is_result = all(kind == "result" for kind, _ in tensors)
        edit = SourceEdit(
            "result" if is_result else "argument",
            self.names[0],
            self.spec,
            spec,
            self.literal.source.location(self.literal.node),
            len(tensors),
        )
        names = tuple(name for site in sites for name in site.names)
        return Proposal(edit, trial or None, lambda: splices, weight, names=names)


class LiteralSites:
    """Finds the places that say how an argument or result is sharded, by building the program.

    Args:
        workshop: the program.
        mesh: its mesh.
        most: how many places to try for one tensor.
        patience: after how many builds that found no place to look for none any more; None to go
            on. Where rules or a configuration say all, a large program has many that say something
            else.
    """

    def __init__(
        self, workshop: Workshop, mesh: Mesh, most: int = 8, patience: int | None = None
    ) -> None:
        self.workshop, self.mesh, self.most, self.patience = workshop, mesh, most, patience
        self._before: tuple[RequestedTensor, ...] = workshop.program.requested
        self._results = _next_values(workshop.program)
        self._leaves = self._shardings(workshop.program)
        self._known: dict[tuple[str, int, PartitionSpec, int], LiteralSite | None] = {}
        self.built = self._found_at = 0

    @property
    def is_given_up(self) -> bool:
        """Whether no places are looked for any more."""
        return self.patience is not None and self.built - self._found_at >= self.patience

    @cached_property
    def literals(self) -> tuple[SpecLiteral, ...]:
        """Every place in the author's files that puts axes on dimensions."""
        sources = map(self.workshop.source, self.workshop.files)
        return tuple(
            literal for source in sources for literal in spec_literals(source, self.mesh.shape)
        )

    def of(self, tensor: RequestedTensor, spec: PartitionSpec) -> LiteralSite | None:
        """The place that says how a tensor is sharded; None where none was found.

        A tensor and its next value are changed together, or the next step would move it.

        Args:
            tensor: an argument or result.
            spec: how it is sharded.
        """
        site = self._of(tensor, spec)
        if site is None:
            return None
        arguments = {index for kind, index in site.tensors if kind == "argument"}
        ours = {index for kind, index in site.tensors if kind == "result"}
        theirs = {self._results[index] for index in arguments if index in self._results}
        if not arguments:
            # The next value of what keeps its sharding keeps it, too.
            return None if ours & set(self._results.values()) else site
        left = [self._before[index] for index in self._positions(theirs - ours)]
        if not left:
            return site
        other = self._of(left[0], spec)
        if other is None or any(kind == "argument" for kind, _ in other.tensors):
            return None
        return replace(site, beside=other)

    def _positions(self, results: Iterable[int]) -> list[int]:
        wanted = set(results)
        return [
            number
            for number, tensor in enumerate(self._before)
            if tensor.kind == "result" and tensor.index in wanted
        ]

    def _of(self, tensor: RequestedTensor, spec: PartitionSpec) -> LiteralSite | None:
        rank, key = len(tensor.shape), (tensor.kind, tensor.index or 0)
        options = specs_near(spec, tensor.shape, self.mesh)
        if not options:
            return None
        literals = [
            literal
            for literal in self.literals
            if literal.with_spec(spec, options[0], rank) is not None
        ]
        places = [(literal.source.file, literal.inside, spec, rank) for literal in literals]
        new = [
            literal
            for literal, place in zip(literals, places, strict=True)
            if place not in self._known
        ]
        self._probe(new[: self.most], spec, tensor.shape, options)
        sites = [self._known.get(place) for place in places]
        about = [site for site in sites if site is not None and key in site.tensors]
        return min(about, key=lambda site: len(site.tensors), default=None)

    def _probe(
        self,
        literals: Sequence[SpecLiteral],
        spec: PartitionSpec,
        shape: tuple[int, ...],
        options: Sequence[PartitionSpec],
    ) -> None:
        """Finds out what some places say: of all together first, for most say nothing of these."""
        if not literals or self.is_given_up:
            return
        changes = len(literals) == 1
        for option in () if changes else options[:2]:
            splices: dict[str, list[Splice]] = {}
            for literal in literals:
                splices.setdefault(literal.source.file, []).extend(
                    literal.with_spec(spec, option, len(shape)) or ()
                )
            try:
                changes = changes or bool(self._built(splices))
            except Exception:  # as below: it can be any one of them
                changes = True
        if not changes:
            for literal in literals:
                self._known[literal.source.file, literal.inside, spec, len(shape)] = None
        elif len(literals) == 1:
            (literal,) = literals
            place = (literal.source.file, literal.inside, spec, len(shape))
            self._known[place] = self._probed(literal, spec, shape, options)
        else:
            middle = len(literals) // 2
            self._probe(literals[:middle], spec, shape, options)
            self._probe(literals[middle:], spec, shape, options)

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
            try:
                changed = self._built({literal.source.file: splices})
            except Exception:  # the author's code is built: other dimensions may not divide, say
                continue
            if changed:
                tensors = tuple((tensor.kind, tensor.index or 0) for tensor in changed)
                names = tuple(tensor.path for tensor in changed)
                self._found_at = self.built
                return LiteralSite(literal, spec, changed[0].shape, tensors, names, self.mesh)
        return None

    def _built(self, splices: Mapping[str, Sequence[Splice]]) -> list[RequestedTensor]:
        """The arguments, or else the results, that are sharded otherwise with some edits."""
        self.built += 1
        return self._differing(self.workshop.texts(splices))

    @staticmethod
    def _shardings(program: Staged) -> list[str] | None:
        return None if program.program is None else argument_shardings(program.program)

    def _differing(self, texts: Mapping[str, str]) -> list[RequestedTensor]:
        """The arguments, or else the results, that other text shards otherwise."""
        arguments = [tensor for tensor in self._before if tensor.kind == "argument"]
        before = self._leaves or []
        # What is traced already, as a script's program is, says nothing before.
        leaves = self._shardings(self.workshop.built(texts, trace=False)) if before else None
        if leaves and len(before) == len(leaves) == len(arguments):
            changed = [
                tensor
                for tensor, old, new in zip(arguments, before, leaves, strict=True)
                if old != new
            ]
            # Where results have shardings of their own, only the trace tells whether they follow.
            if changed and not any(tensor.index in self._results for tensor in changed):
                return changed
        edited = self.workshop.built(texts)
        return [
            old
            for old, new in zip(self._before, edited.requested, strict=False)
            if old.kind in ("argument", "result") and old.sharding != new.sharding
        ]


def _placement(tensor: RequestedTensor) -> Placement | None:
    asked = requested_sharding(tensor)
    return None if asked is None else asked.placement


def _next_values(program: Staged) -> dict[int, int]:
    """By argument what may be its next value, of those that are asked to be sharded alike."""
    asked = {(row.kind, row.index): _placement(row) for row in program.requested}
    pairs = pairs_of_table(program.tensors, ("shardy", program.graph("shardy")))
    return {
        argument: result
        for result, (argument, relation) in pairs.items()
        if relation != "gradient"
        and asked["result", result] is not None
        and asked["result", result] == asked["argument", argument]
    }
