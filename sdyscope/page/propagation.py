"""Propagation in the report: its steps, and all that chains are made of, in columns.

The page works out by itself how every value was sharded after each step, and follows the chain of
any of them, as `sdyscope propagate --at-step` and `sdyscope explain` do.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from sdyscope.analysis.naming.resolve import ssa_name
from sdyscope.analysis.propagation.axis_parts import AxisPart
from sdyscope.analysis.propagation.chain import Beginning
from sdyscope.analysis.propagation.chain_index import ChainIndex
from sdyscope.analysis.propagation.explain import Explainer
from sdyscope.analysis.propagation.flow import Ref
from sdyscope.analysis.propagation.replay import Replay
from sdyscope.errors import TargetError
from sdyscope.facts.propagated import ValueId
from sdyscope.graph import Op
from sdyscope.inspection import Inspection
from sdyscope.page.columns import Pool, table
from sdyscope.page.document import Report
from sdyscope.page.tensors import Row, rows
from sdyscope.views.explain import annotated, place, plain
from sdyscope.views.propagated import describer
from sdyscope.words.mesh import axis_text

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
    found = report.propagate
    known = () if found is None else found.propagations
    if not any(one.partitioner == "shardy" for one in known):
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

    def __init__(self, pool: Pool, inspection: Inspection, listed: Sequence[Row]) -> None:
        self.pool = pool
        self.explainer: Explainer = inspection.explainer("shardy")
        self.flow = self.explainer.flow
        self.index = ChainIndex(self.flow, inspection.annotations("shardy"))
        self.places = describer(inspection, self.explainer.propagated).places
        self.graph = inspection.graph("shardy")
        self.rows = listed
        self.by_ssa: dict[str, ValueId] = {
            ssa_name(self.graph, value): value for value in self.explainer.propagated.values
        }
        self.row_of: dict[str, int] = {}
        for number, row in enumerate(listed):
            if row.value is not None and row.section != "result":
                self.row_of.setdefault(row.value.ssa, number)
        self.refs: _Numbers[Ref] = _Numbers()
        self.parts: _Numbers[AxisPart] = _Numbers()
        self.ops: dict[int, int] = {}
        self.nodes: dict[int, int] = {}
        self.listed_ops: list[Op] = []
        self.hows: _Numbers[tuple[str, str]] = _Numbers()
        self.annotations: _Numbers[tuple[Any, ...]] = _Numbers()

    def document(self) -> dict[str, Any]:
        """The whole part."""
        propagated = self.explainer.propagated
        replay = Replay(self.flow, self.places)
        values = [self._ref(row) for row in self.rows]
        moved, arrivals = self._moves(replay)
        made: dict[str, Any] = {
            "exactness": propagated.exactness,
            "madeBy": propagated.source,
            "last": replay.last,
            "priorities": replay.has_priorities,
            "steps": table(moved),
            "arrivals": arrivals,
            "values": [None if ref is None else self.refs.of(ref) for ref in values],
            "results": dict(self._results(values)),
            "stops": self._stops(values),
        }
        # What these bring up is known when they are made.
        made |= self._annotated()
        made["links"] = self._links()
        made |= self._final()
        made["places"] = table(self._places())
        made["hows"] = [(way, axis_text(rule)) for way, rule in self.hows.known]
        made["annotations"] = list(self.annotations.known)
        mesh = self.flow.mesh
        made["parts"] = [
            (part.name, part.start, part.stop, axis_text(str(part.axis(mesh))))
            for part in self.parts.known
        ]
        return made

    def _ref(self, row: Row) -> Ref | None:
        """The value of a row; None where it has none after propagation."""
        if row.value is None or (row.tensor is not None and row.tensor.kind == "shard_map input"):
            return None
        return self._root(self.by_ssa.get(row.value.ssa))

    def _root(self, value: ValueId | None) -> Ref | None:
        found = None if value is None else self.explainer.propagated.values.get(value)
        if found is None or found.node is None:
            return None
        return self.flow.root((found.node, found.result))

    def _moves(self, replay: Replay) -> tuple[dict[str, Any], dict[str, list[int]]]:
        """The steps, and what they brought to each value, value by value."""
        numbers, parts, places, edges, sources, targets = [], [], [], [], [], []
        came: dict[Ref, list[tuple[int, int, int]]] = {}
        for at, moved in enumerate(self.index.moves(replay)):
            step = moved.step
            numbers.append(step.number)
            parts.append(self.parts.of(moved.part))
            places.append(self._place(step.op))
            edges.append(int(step.source[0] == "result" and self.index.is_boundary(step.op)))
            sources.append(moved.source)
            targets.append(moved.targets)
            for one in moved.brought:
                how = self.hows.of((one.direction, one.rule))
                came.setdefault(one.value, []).append((at, self.refs.of(one.source), how))
        priorities = [0] * len(numbers)
        if replay.has_priorities:
            priorities = [moved.priority for moved in replay.steps()]
        refs = [self.refs.of(ref) for ref, found in came.items() for _ in found]
        found = [one for listed in came.values() for one in listed]
        return {
            "number": _differences(numbers),
            "part": parts,
            "place": places,
            "edge": edges,
            "from": sources,
            "to": targets,
            "priority": priorities,
        }, {
            "ref": _differences(refs),
            "step": _differences([at for at, _, _ in found]),
            "source": _differences([source for _, source, _ in found]),
            "how": [how for _, _, how in found],
        }

    def _annotated(self) -> dict[str, Any]:
        """What values are annotated with themselves, and where chains begin."""
        own: dict[int, list[int]] = {}
        beginnings: dict[int, list[tuple[int, int]]] = {}
        for ref in self.index.candidates():
            parts = self.index.own(ref)
            if parts:
                own[self.refs.of(ref)] = [self.parts.of(part) for part in parts]
            found = self.index.beginnings(ref)
            if found:
                beginnings[self.refs.of(ref)] = [
                    (self.parts.of(part), self._beginning(beginning)) for part, beginning in found
                ]
        return {"own": own, "beginnings": beginnings}

    def _beginning(self, beginning: Beginning) -> int:
        said = annotated(beginning)
        assert said is not None
        row = (said.kind, said.name, said.words, said.priority, self.pool.source(said.source))
        return self.annotations.of(row)

    def _links(self) -> dict[int, list[tuple[int, int, int]]]:
        return {
            self.refs.of(ref): [
                (
                    self.refs.of(link.value),
                    self._place(link.op),
                    self.hows.of((link.direction, link.rule)),
                )
                for link in found
            ]
            for ref, found in self.index.links()
        }

    def _final(self) -> dict[str, Any]:
        """What each value is sharded on in the end: the number of a list of [dimension, part]."""
        lists: _Numbers[tuple[tuple[int, int], ...]] = _Numbers()
        codes = [
            lists.of(tuple((dim, self.parts.of(part)) for dim, part in self.flow.parts(ref)))
            for ref in list(self.refs.known)
        ]
        return {"final": codes, "shardings": list(lists.known)}

    def _results(self, values: Sequence[Ref | None]) -> Iterator[tuple[int, list[Any]]]:
        """For results with an annotation of their own, where each axis is followed from."""
        for number, (row, ref) in enumerate(zip(self.rows, values, strict=True)):
            if row.section != "result" or row.tensor is None or ref is None:
                continue
            there = row.tensor.index
            found = None if there is None else self.index.result(there, ref)
            if found is not None:
                yield (
                    number,
                    [
                        (
                            dim,
                            self.parts.of(part),
                            None if begins is None else self._beginning(begins),
                            None if onward is None else self.refs.of(onward),
                        )
                        for dim, part, begins, onward in found
                    ],
                )

    def _stops(self, values: Sequence[Ref | None]) -> dict[int, list[Any]]:
        """What stopped axes at values."""
        made: dict[int, list[Any]] = {}
        asked = dict.fromkeys(ref for ref in values if ref is not None)
        for ref in asked:
            found = self.explainer.obstacles.absences(ref)
            if found:
                made[self.refs.of(ref)] = [
                    (
                        axis_text(str(one.axis)),
                        one.dimension,
                        plain(one.words),
                        self._place(one.op),
                        one.reason,
                        one.repeated,
                    )
                    for one in found
                ]
        return made

    def _place(self, node: int) -> int:
        """The number of what an op of the propagated graph is in the program."""
        if node not in self.nodes:
            op = self.places.op(node)
            if id(op) not in self.ops:
                self.ops[id(op)] = len(self.listed_ops)
                self.listed_ops.append(op)
            self.nodes[node] = self.ops[id(op)]
        return self.nodes[node]

    def _places(self) -> dict[str, Any]:
        """Each op's name and line, and the row of its first result."""
        of_rows = []
        for op in self.listed_ops:
            is_here = op.id < len(self.graph.ops) and self.graph.ops[op.id] is op
            of_rows.append(
                self.row_of.get(ssa_name(self.graph, (op.id, 0))) if is_here and op.types else None
            )
        found = [place(op) for op in self.listed_ops]
        return {
            "name": [one.name for one in found],
            "source": [self.pool.source(one.source) for one in found],
            "row": of_rows,
        }


def _differences(numbers: Sequence[int]) -> list[int]:
    """Each number less the one before it, which takes fewer bytes."""
    return [here - before for before, here in zip([0, *numbers], numbers, strict=False)]
