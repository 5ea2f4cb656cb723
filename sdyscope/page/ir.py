"""The modules' text for the report, as lowered and after propagation, a line an op.

Each line has its source line and its row of the tensors; of what propagation wrote, it is known
what was there before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sdyscope.analysis.naming.pairs import value_pairs
from sdyscope.analysis.naming.resolve import ssa_name, written_name
from sdyscope.annotations import num_partitions
from sdyscope.errors import ConversionError, SdyscopeError
from sdyscope.facts.program import Partitioner
from sdyscope.facts.propagated import Propagated
from sdyscope.graph import Op, OpGraph, Sharding, TensorType, ValueId
from sdyscope.graph.tags import sids
from sdyscope.inspection import Inspection
from sdyscope.page.columns import Pool
from sdyscope.page.document import Report
from sdyscope.page.ir_text import Change, IrLine, lines_of, text_part
from sdyscope.values.convert import to_placement
from sdyscope.values.mesh import Mesh
from sdyscope.values.placement import Placement
from sdyscope.values.sharding import TensorSharding
from sdyscope.values.tiling import TupleSharding
from sdyscope.words.paths import shortened
from sdyscope.words.places import shown_name


def part(report: Report, pool: Pool, inspection: Inspection) -> dict[str, Any]:
    """The text under each partitioner; `reports/js/ir/view.js` shows it.

    Args:
        report: not needed.
        pool: takes the source lines.
        inspection: the program.
    """
    return {
        "modules": [
            {"partitioner": name, **_lowered(inspection, pool, name)} for name in inspection.lowered
        ],
        "failures": [
            (name, shortened(error.message)) for name, error in inspection.failures.items()
        ],
    }


def later(report: Report, pool: Pool, inspection: Inspection) -> dict[str, dict[str, Any]]:
    """The text after propagation under each partitioner, read when it is first asked for.

    Args:
        report: what was propagated.
        pool: takes the source lines.
        inspection: the program.
    """
    parts = {}
    for name in inspection.lowered if report.propagate is not None else ():
        try:
            parts[f"ir-propagated-{name}"] = _propagated(inspection, pool, name)
        except SdyscopeError as error:
            parts[f"ir-propagated-{name}"] = {"unavailable": shortened(str(error))}
    return parts


def _lowered(inspection: Inspection, pool: Pool, partitioner: Partitioner) -> dict[str, Any]:
    graph = inspection.graph(partitioner)
    names = _Names(inspection, partitioner)
    text = inspection.lowered[partitioner].text(debug_info=False)
    lines = (
        IrLine(line)
        if op is None or not op.types
        else IrLine(line, op.source, _scope(op), names.of([(op.id, 0)]))
        for line, op in lines_of(text, graph)
    )
    return {**text_part(pool, lines), "arguments": _arguments(graph, names, {})}


def _propagated(inspection: Inspection, pool: Pool, partitioner: Partitioner) -> dict[str, Any]:
    propagated = inspection.propagated(partitioner)
    names = _Names(inspection, partitioner)
    compared = _Compared(inspection.graph(partitioner), propagated)
    lines = (
        _line(line, op, compared, names) for line, op in lines_of(propagated.text, propagated.graph)
    )
    return {
        **text_part(pool, lines),
        "arguments": _arguments(propagated.graph, names, compared.before),
        "exactness": propagated.exactness,
    }


def _line(line: str, op: Op | None, compared: _Compared, names: _Names) -> IrLine:
    if op is None:
        return IrLine(line)
    if not op.types:
        return IrLine(line, changes=tuple(compared.signature(op)))
    values, is_copy = compared.lowered(op)
    change = compared.change(op)
    changes = (change,) if any(sharding is not None for sharding in op.shardings) else ()
    if not values:
        return IrLine(line, changes=changes)
    own = compared.graph.ops[values[0][0]]
    source = own.source
    return IrLine(line, source, _scope(own), names.of(values), is_copy, changes)


def _scope(op: Op) -> str:
    return shown_name(op.scope, "")


class _Names:
    """The names that values of a lowered module have in the first one: those of the tensors."""

    def __init__(self, inspection: Inspection, partitioner: Partitioner) -> None:
        first = next(iter(inspection.lowered))
        self.graph = inspection.graph(first)
        self.same: Mapping[ValueId, ValueId] | None = None
        if partitioner != first:
            pairs = value_pairs(self.graph, inspection.graph(partitioner))
            self.same = {theirs: ours for ours, theirs in pairs.items()}

    def of(self, values: list[ValueId]) -> tuple[str, ...]:
        """The names of some values, those that are known."""
        graph, same = self.graph, self.same
        ours = values if same is None else [same.get(value) for value in values]
        known = dict.fromkeys(ours)
        return tuple(
            [
                ssa_name(graph, value)
                for value in known
                if value is not None and graph.ops[value[0]].name
            ]
        )


def _arguments(
    graph: OpGraph, names: _Names, before: Mapping[ValueId, list[ValueId]]
) -> dict[str, str]:
    """Of each block argument whose name is the only one of its function: what tensor it is."""
    own_names: dict[str, str | None] = {}
    for op in graph.ops:
        if not op.is_argument:
            continue
        own = written_name(graph, op)
        known = names.of(before.get((op.id, 0), []) if before else [(op.id, 0)])
        own_names[own] = known[0] if known and own not in own_names else None
    return {own: name for own, name in own_names.items() if name is not None}


class _Compared:
    """A propagated module beside the lowered one: which values became which, and what was written.

    Attributes:
        graph: op graph of the lowered module.
        before: for each value after propagation, those of the lowered module that became it.
    """

    def __init__(self, graph: OpGraph, propagated: Propagated) -> None:
        self.graph = graph
        self.after = propagated.graph
        self.before: dict[ValueId, list[ValueId]] = {}
        for value in propagated.values.values():
            if value.node is not None:
                self.before.setdefault((value.node, value.result), []).append(value.id)
        #: How many devices a classic HLO sharding is for.
        self.devices = num_partitions(graph)

    def lowered(self, op: Op) -> tuple[list[ValueId], bool]:
        """The values of the lowered module that an op's first result was; whether it is a copy.

        An op of a function's second call, and a constant's second copy, are found by their tags.
        """
        value = self.before.get((op.id, 0))
        if value is not None:
            return value, False
        ops = self.graph.ops
        for node in sids(op.location.names):
            if node < len(ops) and [type_.text for type_ in ops[node].types] == [
                type_.text for type_ in op.types
            ]:
                return [(node, 0)], True
        return [], False

    def change(self, op: Op) -> Change | None:
        """What propagation did to the shardings that are written on an op."""
        changes = {
            self._change(sharding, self._written(op, number), op.types[number])
            for number, sharding in enumerate(op.shardings)
            if sharding is not None
        }
        return "changed" if "changed" in changes else "added" if "added" in changes else None

    def _written(self, op: Op, number: int) -> list[Sharding | None]:
        """What the lowered module has written on the values that a result was."""
        was = self.before.get((op.id, number))
        if was is None:
            was = [(node, number) for node, _ in self.lowered(op)[0]]
        ops = self.graph.ops
        return [ops[node].shardings[at] for node, at in was if at < len(ops[node].types)]

    def signature(self, function: Op) -> Iterator[Change | None]:
        """The same for each sharding on the arguments and results of a function."""
        main = self.after.main
        before = self.graph.main
        if main is None or before is None or function.id != main.op:
            return
        for ours, theirs in (
            (before.arguments, main.arguments),
            (before.results, main.results),
        ):
            written = [value.sharding for value in ours] if len(ours) == len(theirs) else []
            for value in theirs:
                if value.sharding is not None:
                    yield self._change(
                        value.sharding, written[value.index : value.index + 1], value.type
                    )

    def _change(
        self, sharding: Sharding, written: Sequence[Sharding | None], type_: TensorType
    ) -> Change | None:
        known = [before for before in written if before is not None]
        if not known:
            return "added"
        rank = len(type_.shape or ())
        place = self._place(sharding, rank, self.after)
        same = any(
            before == sharding
            or (place is not None and place == self._place(before, rank, self.graph))
            for before in known
        )
        return None if same else "changed"

    def _place(self, sharding: Sharding, rank: int, graph: OpGraph) -> Placement | None:
        """Where a sharding puts the blocks; None where that is not known."""
        if isinstance(sharding, str | TupleSharding):
            return None
        named = sharding.mesh if isinstance(sharding, TensorSharding) else None
        mesh = graph.meshes.get(named) if isinstance(named, str) else named
        try:
            place = to_placement(
                sharding, rank, mesh if isinstance(mesh, Mesh) else None, self.devices
            )
        except ConversionError:
            return None
        return place.without_manual
