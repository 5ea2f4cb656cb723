"""Why values are sharded as they are, as a document and as it is printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sdyscope.analysis.naming.pairs import value_pairs
from sdyscope.analysis.naming.resolve import resolve_value
from sdyscope.analysis.propagation.chain import Chain, Direction
from sdyscope.analysis.propagation.explain import Explanation
from sdyscope.analysis.propagation.obstacles import Absence, Reason
from sdyscope.errors import CompilerError
from sdyscope.facts.account import Account
from sdyscope.facts.moves import Beginning
from sdyscope.facts.program import Partitioner
from sdyscope.facts.sharded import byte_count
from sdyscope.graph import Op
from sdyscope.inspection import Inspection
from sdyscope.values.source import SourceLocation
from sdyscope.views.failure import Failure, failures
from sdyscope.views.propagate_rows import Side
from sdyscope.views.propagated import (
    PropagatedDocument,
    PropagationDocument,
    describer,
    propagation_document,
    static_shape,
)
from sdyscope.words.mesh import MeshDocument, axis_text, mesh_documents
from sdyscope.words.places import op_text, scope_of
from sdyscope.words.propagation import absence_text, allowed_text, beginning_text, tensor_text


@dataclass(frozen=True, slots=True)
class Place:
    """An operation that an axis moved through, or was stopped at.

    Attributes:
      op: the operation.
      name: its scope without the program's own name, and what JAX calls it.
      source: its line of user code.
    """

    op: str
    name: str
    source: SourceLocation | None


@dataclass(frozen=True, slots=True)
class Annotated:
    """The annotation that an axis comes from.

    Attributes:
      kind: what the user annotated.
      name: its pytree path or scope.
      words: it, in words.
      dimension: the annotated dimension; null when it has the axis no longer.
      priority: the user's priority; null where none is written, which is 0.
      source: its source line, where one is known.
      origin: what Shardy calls it; empty where it does not say.
    """

    kind: str
    name: str
    words: str
    dimension: int | None
    priority: int | None
    source: SourceLocation | None
    origin: str


@dataclass(frozen=True, slots=True)
class Move:
    """One move of an axis, from one value to the next.

    Attributes:
      step: Shardy's number of the step; null when a rule moved it that no step stands for.
      axis: the axis or sub-axis that moved.
      through: the operation.
      direction: which way it went.
      rule: what allowed it, in words.
      dimension: the dimension that it then sharded; null when it has it no longer.
    """

    step: int | None
    axis: str
    through: Place
    direction: Direction
    rule: str
    dimension: int | None


@dataclass(frozen=True, slots=True)
class Why:
    """Why a dimension is sharded on an axis.

    Attributes:
      dimension: the dimension.
      axis: the axis, or the part of it that this is about.
      annotated: the annotation that it comes from; null when none was found.
      moves: from there to the value, in order.
    """

    dimension: int
    axis: str
    annotated: Annotated | None
    moves: tuple[Move, ...]


@dataclass(frozen=True, slots=True)
class WhyNot:
    """An axis that the value does not have although a tensor beside it has.

    Attributes:
      axis: the axis, or the part of it that is missing.
      dimension: the dimension that could have had it; null when there is none.
      at: the operation between the two.
      neighbour: the tensor that has the axis, in words.
      reason: what stopped it.
      words: the same in a sentence.
      rival: where what is in the way comes from; null where nothing is.
      repeated: how many more tensors beside the value have the axis and were stopped alike.
    """

    axis: str
    dimension: int | None
    at: Place
    neighbour: str
    reason: Reason
    words: str
    rival: Why | None
    repeated: int


@dataclass(frozen=True, slots=True)
class ExplainedValue:
    """One value, explained.

    Attributes:
      name: pytree path, or scope without the program's own name with the operation.
      kind: argument, result, or the operation.
      ssa: its SSA name, after its function's unless that is main.
      shape: shape of the whole tensor; null where it is dynamic, or no tensor.
      dtype: MLIR element type.
      bytes: bytes of the whole tensor; null where they are not known.
      source: line of user code.
      propagated: what each partitioner decided.
      before: the same without the changes that were wished for; empty without any.
      why: for each axis on each dimension, how it came there (Shardy only).
      why_not: for each axis that a tensor beside it has, what stopped it (Shardy only).
      notes: what else there is to say.
    """

    name: str
    kind: str
    ssa: str
    shape: tuple[int, ...] | None
    dtype: str
    bytes: int | None
    source: SourceLocation | None
    propagated: dict[Partitioner, PropagatedDocument]
    before: dict[Partitioner, PropagatedDocument]
    why: tuple[Why, ...]
    why_not: tuple[WhyNot, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explain:
    """The document of `sdyscope explain --json`.

    Attributes:
      schema: name and version of this form.
      name: the program's name, or the module's.
      value: what was asked for.
      meshes: the meshes that its shardings are on.
      propagations: by whom it was propagated, and how much that is worth.
      failures: which partitioners did not, and why.
      changes: the annotations that were changed: what was wished for.
      values: every value that was meant.
      account: what is not known of the program, at the stages that were looked at.
    """

    schema: Literal["sdyscope.explain/2"] = "sdyscope.explain/2"
    name: str
    value: str
    meshes: tuple[MeshDocument, ...]
    propagations: tuple[PropagationDocument, ...]
    failures: tuple[Failure, ...]
    changes: tuple[str, ...]
    values: tuple[ExplainedValue, ...]
    account: Account


def document(
    inspection: Inspection,
    value: str,
    before: Inspection | None = None,
    *,
    conservative: bool = False,
    changes: Sequence[str] = (),
) -> Explain:
    """The document of what a word names.

    Args:
      inspection: the program, with other annotations if so wished.
      value: a pytree path, a scope path, `file.py:line`, or an SSA name.
      before: the program as it is, to compare with; None where nothing is changed.
      conservative: whether to propagate conservatively.
      changes: what was changed, in words.

    Raises:
      SdyscopeError: no value has this name, or no partitioner propagates the program.
    """
    failed: dict[Partitioner, CompilerError] = {}
    sides: dict[Partitioner, Side] = {}
    for partitioner in inspection.lowered:
        try:
            sides[partitioner] = _side(inspection, partitioner, conservative)
        except CompilerError as error:
            failed[partitioner] = error
    if not sides:
        raise next(iter(failed.values()))
    main: Partitioner = "shardy" if "shardy" in sides else next(iter(sides))
    earlier = {}
    if before is not None:
        earlier = {p: _side(before, p, False) for p in sides if p in before.lowered}
    explainer = inspection.explainer(main, conservative=conservative and main == "shardy")
    maker = _Values(main, sides, earlier)
    named = resolve_value(inspection.graph(main), value)
    return Explain(
        name=inspection.name,
        value=value,
        meshes=mesh_documents(inspection.meshes),
        propagations=tuple(propagation_document(one.found) for one in sides.values()),
        failures=(*failures(inspection.failures), *failures(failed)),
        changes=tuple(changes),
        values=tuple(maker.value(explainer.explain(one)) for one in named),
        account=inspection.account,
    )


def _side(inspection: Inspection, partitioner: Partitioner, conservative: bool) -> Side:
    found = inspection.propagated(
        partitioner, conservative=conservative and partitioner == "shardy"
    )
    graph = inspection.graph(partitioner)
    return Side(found, graph, describer(inspection, found))


class _Values:
    """Makes documents of explanations.

    Args:
        main: whose module the explanations are about.
        sides: the propagations.
        earlier: those of the program as it is, where something was changed.
    """

    def __init__(
        self,
        main: Partitioner,
        sides: Mapping[Partitioner, Side],
        earlier: Mapping[Partitioner, Side],
    ) -> None:
        self.sides = sides
        self.earlier = earlier
        self.graph = sides[main].graph
        self.places = sides[main].describer.places
        self.pairs = {
            p: value_pairs(self.graph, side.graph) for p, side in sides.items() if p != main
        }

    def value(self, found: Explanation) -> ExplainedValue:
        """The document of one value."""
        node, result = found.value.id
        op = self.graph.ops[node]
        type_ = op.types[result]
        scope, primitive = scope_of(op)
        name, kind = f"{scope}/{primitive or op_text(op.kind)}".lstrip("/"), op.kind
        if op.is_argument or op.is_result:
            name = found.value.name
        elif not op.scope:
            name = op_text(op.kind)
        dims = static_shape(type_)
        return ExplainedValue(
            name,
            kind,
            found.value.ssa,
            dims,
            type_.dtype,
            byte_count(dims, type_.dtype),
            op.source,
            self.decided(found, self.sides),
            self.decided(found, self.earlier),
            tuple(map(self.why, found.chains)),
            tuple(map(self.why_not, found.absences)),
            found.notes,
        )

    def decided(
        self, found: Explanation, sides: Mapping[Partitioner, Side]
    ) -> dict[Partitioner, PropagatedDocument]:
        documents = {}
        for partitioner, side in sides.items():
            pairs = self.pairs.get(partitioner)
            value = found.value.id if pairs is None else pairs.get(found.value.id)
            described = None if value is None else side.described(value)
            if described is not None:
                documents[partitioner] = described.document
        return documents

    def why(self, chain: Chain) -> Why:
        return Why(
            chain.dimension,
            axis_text(str(chain.axis)),
            annotated(chain.beginning),
            tuple(
                Move(
                    move.number,
                    axis_text(str(move.axis)),
                    self.place(move.op),
                    move.direction,
                    allowed_text(move.rule),
                    move.dimension,
                )
                for move in chain.moves
            ),
        )

    def why_not(self, absence: Absence) -> WhyNot:
        return WhyNot(
            axis_text(str(absence.axis)),
            absence.dimension,
            self.place(absence.op),
            tensor_text(absence.neighbour),
            absence.reason,
            absence_text(absence),
            None if absence.rival is None else self.why(absence.rival),
            absence.repeated,
        )

    def place(self, node: int) -> Place:
        """What a node of the propagated graph is in the program."""
        return place(self.places.op(node))


def place(op: Op) -> Place:
    """What an op is called."""
    scope, primitive = scope_of(op)
    name = f"{scope}/{primitive or op_text(op.kind)}".lstrip("/")
    return Place(op.kind, name if op.scope else op_text(op.kind), op.source)


def annotated(found: Beginning | None) -> Annotated | None:
    """The document of where a chain begins; None for nothing."""
    if found is None:
        return None
    return Annotated(
        found.kind,
        found.name,
        beginning_text(found.written),
        found.dimension,
        found.priority,
        found.source,
        "" if found.origin is None else str(found.origin),
    )
