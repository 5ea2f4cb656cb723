"""Propagation in the report: its steps, how they changed each value, and pointers, in columns.

The page looks up how a value was sharded after a step, and follows the pointers of each axis to the
user's annotation: what `sdyscope propagate --at-step` and `sdyscope explain` say, in their words.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from sdyscope.analysis.propagation.explain import Explainer
from sdyscope.analysis.propagation.flow import Ref
from sdyscope.analysis.propagation.pointers import Pointer
from sdyscope.analysis.propagation.replay import Replay
from sdyscope.annotations import op_name
from sdyscope.errors import TargetError
from sdyscope.facts.decided import ExplanationNote
from sdyscope.facts.moves import Absence, Allowed, Direction
from sdyscope.facts.propagated import PropagatedValue, ValueId
from sdyscope.graph import Op
from sdyscope.inspection import Inspection
from sdyscope.page.columns import Pool, steps, table
from sdyscope.page.document import Report
from sdyscope.page.tensors import Row, rows
from sdyscope.values.mesh import AxisRef
from sdyscope.values.sharding import TensorSharding
from sdyscope.words.counts import sentence
from sdyscope.words.mesh import axis_text
from sdyscope.words.propagation import (
    NO_PRIORITIES,
    SHARDYS_STEPS,
    WAYS,
    allowed_text,
    beginning_text,
    closed_texts,
    moves_text,
    note_text,
    stop_text,
    tensor_text,
)
from sdyscope.words.remarks import propagation_source_clause
from sdyscope.words.sharding import short

_T = TypeVar("_T", bound=Hashable)


@dataclass
class _Numbers(Generic[_T]):
    """Gives each distinct thing a number, in the order in which they come."""

    known: dict[_T, int] = field(default_factory=dict)

    def of(self, thing: _T) -> int:
        return self.known.setdefault(thing, len(self.known))


def part(report: Report, pool: Pool, inspection: Inspection) -> dict[str, Any]:
    """The data of the view; `reports/js/propagation/data.js` reads it.

    Args:
        report: the inspection as a document.
        pool: takes source lines.
        inspection: the program.

    Raises:
        SdyscopeError: Shardy did not propagate it, or no axis moved.
    """
    inspection.chosen(None)  # of a compiled program's text, says that there is none
    propagate = report.propagate
    known = () if propagate is None else propagate.propagations
    if not any(propagation.partitioner == "shardy" for propagation in known):
        raise TargetError(
            "Only Shardy says how it propagates, step by step, and it did not propagate this."
            + (" GSPMD says where values end up, not how they came there." if known else "")
        )
    return _Part(pool, inspection, list(rows(report))).document()


class _Part:
    """Makes the data.

    Args:
        pool: takes source lines.
        inspection: the program.
        listed: the rows of the tensors' table.
    """

    def __init__(
        self,
        pool: Pool,
        inspection: Inspection,
        listed: Sequence[Row],
    ) -> None:
        self.pool = pool
        self.explainer: Explainer = inspection.explainer("shardy")
        self.flow = self.explainer.flow
        self.pointers = self.explainer.pointers
        self.decisions = self.explainer.decisions
        self.graph = inspection.graph("shardy")
        self.partitioners = tuple(inspection.lowered)
        self.rows = listed
        self.row_of: dict[ValueId, int] = {}
        for number, row in enumerate(listed):
            value = None if row.value is None else row.value.id_under("shardy")
            if value is not None:
                self.row_of.setdefault(value, number)
        self.refs: _Numbers[Ref] = _Numbers()
        self.axes: _Numbers[str] = _Numbers()
        self.axis_of: dict[AxisRef, int] = {}
        self.shardings: _Numbers[tuple[str, tuple[str, ...]]] = _Numbers()
        self.sharding_of: dict[tuple[Any, ...], int] = {}
        self.shipped: dict[int, int] = {}
        self.ops: dict[int, int] = {}
        self.nodes: dict[int, int] = {}
        self.listed_ops: list[Op] = []
        self.hows: _Numbers[tuple[Direction, Allowed]] = _Numbers()
        self.annotations: _Numbers[tuple[Any, ...]] = _Numbers()
        self.reasons: _Numbers[str] = _Numbers()

    def document(self) -> dict[str, Any]:
        """The whole part."""
        replay = Replay(self.decisions)
        values = [self._value(row) for row in self.rows]
        refs = [None if value is None else self._ref(value) for value in values]
        distinct: dict[Ref, PropagatedValue] = {}
        for value, ref in zip(values, refs, strict=True):
            if value is not None and ref is not None:
                known = distinct.setdefault(ref, value)
                if known.sharding is None:
                    distinct[ref] = value
        part: dict[str, Any] = {
            "last": replay.last,
            "notes": list(self._notes(replay)),
            "priorities": replay.has_priorities,
            "untouched": note_text(ExplanationNote("untouched")),
            "scalar": note_text(ExplanationNote("no dimension")),
            "values": [None if ref is None else self.refs.of(ref) for ref in refs],
            "changes": [self._changes(replay, value) for value in distinct.values()],
            "chains": [self._chains(value) for value in distinct.values()],
        }
        part["pointers"] = table(self._pointers())
        part["steps"] = table(self._moves(replay, self._followers(distinct)))
        part["stops"], part["whole"] = self._stops(distinct)
        # What these bring up is known when they are made.
        part["places"] = table(self._places())
        part["hows"] = [(way, WAYS[way], allowed_text(rule)) for way, rule in self.hows.known]
        part["annotations"] = list(self.annotations.known)
        part["reasons"] = list(self.reasons.known)
        part["shardings"] = list(self.shardings.known)
        part["axes"] = list(self.axes.known)
        return part

    def _notes(self, replay: Replay) -> Iterator[str]:
        """How many steps there are, whose they are, and how sure."""
        propagated = self.explainer.propagated
        yield sentence(moves_text(len(propagated.steps), propagated.steps.step_count, replay.last))
        source = propagation_source_clause(propagated.source)
        yield sentence(f"{propagated.exactness}, from {source}")
        if "gspmd" in self.partitioners:
            yield SHARDYS_STEPS
        if not replay.has_priorities:
            yield NO_PRIORITIES

    def _value(self, row: Row) -> PropagatedValue | None:
        """The value of a row; None where it has none after propagation."""
        value = None if row.value is None else row.value.id_under("shardy")
        propagated = None if value is None else self.explainer.propagated.values.get(value)
        return None if propagated is None or propagated.node is None else propagated

    def _ref(self, value: PropagatedValue) -> Ref:
        assert value.node is not None
        return self.flow.root((value.node, value.result))

    def _returned(self, value: PropagatedValue) -> Ref:
        """The value that is returned as a result; of any other value, itself."""
        ref = self._ref(value)
        op = self.flow.graph.ops[ref[0]]
        returned = self.flow.graph.returned.get(op.result) if op.is_result else None
        return ref if returned is None else self.flow.root(returned)

    def _changes(self, replay: Replay, value: PropagatedValue) -> list[tuple[int, int]]:
        """How a value was sharded from which step on, from -1 on."""
        shardings = [
            (number, self._sharding(value, sharding)) for number, sharding in replay.history(value)
        ]
        if not shardings:
            text = short(self.decisions.sharded(value.id))
            shardings = [(-1, self.shardings.of((text, ())))]
        return shardings

    def _sharding(self, value: PropagatedValue, sharding: TensorSharding) -> int:
        node, result = value.id
        op = self.graph.ops[node]
        type_ = op.types[result]
        key = (sharding, op.parent, type_.shape)
        if key not in self.sharding_of:
            axes = dict.fromkeys(axis.name for dim in sharding.dim_shardings for axis in dim.axes)
            words = short(self.decisions.sharded(value.id, sharding))
            self.sharding_of[key] = self.shardings.of((words, tuple(axes)))
        return self.sharding_of[key]

    def _chains(self, value: PropagatedValue) -> list[tuple[int, int, int]]:
        """Dimension, axis and pointer of everything that a value is sharded on."""
        return [
            (
                held.dimension,
                self._axis(self.pointers.table[held.pointer].part.axis(self.flow.mesh)),
                self._pointer(held.pointer),
            )
            for held in self.pointers.held(value)
        ]

    def _axis(self, axis: AxisRef) -> int:
        if axis not in self.axis_of:
            self.axis_of[axis] = self.axes.of(axis_text(axis))
        return self.axis_of[axis]

    def _pointers(self) -> dict[str, list[Any]]:
        """The pointers, by their numbers; the first of a chain is where its annotation is."""
        listed = [self.pointers.table[number] for number in self.shipped]
        sources = [
            None if pointer.source is None else self.shipped[pointer.source] for pointer in listed
        ]
        return {
            "value": [self.refs.of(pointer.value) for pointer in listed],
            "dimension": [pointer.dimension for pointer in listed],
            "axis": [
                self._axis((pointer.moved or pointer.part).axis(self.flow.mesh))
                for pointer in listed
            ],
            "step": [pointer.number for pointer in listed],
            "place": [
                None if pointer.op is None else self._place(pointer.op) for pointer in listed
            ],
            "how": [
                None if pointer.rule is None else self.hows.of((pointer.direction, pointer.rule))
                for pointer in listed
            ],
            # How many pointers before this one, which takes fewer bytes.
            "back": [None if to is None else at - to for at, to in enumerate(sources)],
            "annotation": [self._beginning(pointer) for pointer in listed],
        }

    def _pointer(self, number: int) -> int:
        """The number that a pointer has in the page; all that it leads to get theirs before it."""
        way = []
        at: int | None = number
        while at is not None and at not in self.shipped:
            way.append(at)
            at = self.pointers.table[at].source
        for pointer in reversed(way):
            self.shipped[pointer] = len(self.shipped)
        return self.shipped[number]

    def _beginning(self, pointer: Pointer) -> int | None:
        beginning = pointer.beginning
        if beginning is None or pointer.op is not None:
            return None
        source = self.pool.source(beginning.source)
        return self.annotations.of(
            (beginning.kind, beginning.name, beginning_text(beginning), beginning.priority, source)
        )

    def _followers(self, distinct: Mapping[Ref, PropagatedValue]) -> dict[Ref, list[int]]:
        """The results without a sharding of their own, by the value that is returned."""
        followers: dict[Ref, list[int]] = {}
        for ref, value in distinct.items():
            returned = self._returned(value)
            if returned != ref and self.graph.ops[value.id[0]].shardings[0] is None:
                followers.setdefault(returned, []).append(self.refs.of(ref))
        return followers

    def _moves(
        self, replay: Replay, followers: Mapping[Ref, Sequence[int]]
    ) -> dict[str, list[Any]]:
        """The steps, and the values that they moved an axis from and to."""
        moves = list(replay.steps())
        sources = [move.came_from for move in moves]
        return {
            "number": steps([move.step for move in moves]),
            "axis": [self._axis(move.axis) for move in moves],
            "place": [self._place(move.node) for move in moves],
            "from": [tensor_text(move.source) for move in moves],
            "to": [tuple(map(tensor_text, move.targets)) for move in moves],
            "priority": [move.priority for move in moves],
            "source": [None if ref is None else self.refs.of(ref) for ref in sources],
            "targets": [
                [
                    number
                    for ref in move.came_to
                    if move.came_from is not None and ref != move.came_from
                    for number in (self.refs.of(ref), *followers.get(ref, ()))
                ]
                for move in moves
            ],
        }

    def _stops(
        self, distinct: Mapping[Ref, PropagatedValue]
    ) -> tuple[dict[int, list[Any]], dict[int, list[int]]]:
        """What stopped axes at values; and why dimensions have none where none was stopped."""
        obstacles = self.explainer.obstacles
        stops: dict[int, list[Any]] = {}
        whole: dict[int, list[int]] = {}
        known: dict[Ref, tuple[list[Any], list[int]]] = {}
        for ref, value in distinct.items():
            asked = self._returned(value)
            if asked not in known:
                absences = obstacles.absences(asked, rivals=False)
                texts = closed_texts(obstacles.closed(asked), absences)
                known[asked] = [*map(self._stop, absences)], [*map(self.reasons.of, texts)]
            stopped, closed = known[asked]
            nothing = not (stopped or closed)
            manual = self.explainer.all_manual(value.id) if nothing else None
            notes = filter(None, (self.explainer.cut(value), manual))
            closed = [*closed, *(self.reasons.of(note_text(note)) for note in notes)]
            if stopped:
                stops[self.refs.of(ref)] = stopped
            if closed:
                whole[self.refs.of(ref)] = closed
        return stops, whole

    def _stop(self, absence: Absence) -> tuple[Any, ...]:
        return (
            axis_text(absence.axis),
            absence.dimension,
            stop_text(absence),
            self._op(absence.at),
            absence.reason,
        )

    def _place(self, node: int) -> int:
        """The number of what an op of the propagated graph is in the program."""
        if node not in self.nodes:
            self.nodes[node] = self._op(self.flow.written(self.flow.graph.ops[node]))
        return self.nodes[node]

    def _op(self, op: Op) -> int:
        if id(op) not in self.ops:
            self.ops[id(op)] = len(self.listed_ops)
            self.listed_ops.append(op)
        return self.ops[id(op)]

    def _places(self) -> dict[str, Any]:
        """Each op's name and line, and the row of its first result."""
        of_rows = []
        for op in self.listed_ops:
            is_here = op.id < len(self.graph.ops) and self.graph.ops[op.id] is op
            of_rows.append(self.row_of.get((op.id, 0)) if is_here and op.types else None)
        return {
            "name": [op_name(op) for op in self.listed_ops],
            "source": [self.pool.source(op.source) for op in self.listed_ops],
            "row": of_rows,
        }
