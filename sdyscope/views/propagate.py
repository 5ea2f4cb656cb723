"""Propagated values and Shardy's steps as tables, and the words around them."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sdyscope.analysis.propagation.propagate import ProgramValue, PropagateDocument, Section
from sdyscope.annotations import op_name
from sdyscope.facts.decided import AxisOrigin
from sdyscope.facts.failures import Failure
from sdyscope.facts.program import Partitioner
from sdyscope.facts.propagated import Propagated
from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.terminal.table import Cell, Column, Heading, Row, Table, Tone, fitted, number
from sdyscope.values.source import line_of
from sdyscope.views import propagated_diff
from sdyscope.views.layers import Cells, Folded, folded, folded_rows, masked
from sdyscope.views.show import REPLICAS
from sdyscope.words.counts import counted, listed, size
from sdyscope.words.mesh import axis_text, mesh_words_of
from sdyscope.words.partitioners import partitioner_name, partitioner_names
from sdyscope.words.paths import in_file
from sdyscope.words.places import common_file, op_text, source_text
from sdyscope.words.propagation import FOLLOWED, origin_text, tensor_text
from sdyscope.words.remarks import propagation_source_clause, remark_texts
from sdyscope.words.sharding import MANUAL, NONE, REPLICATED, short
from sdyscope.words.types import type_text, value_type_text

#: How many values inside, and how many steps, are shown unless all are asked for.
LISTED = 60

#: What stands for a partitioner that put a value where the first one did.
AGREES = "="

_TITLES: dict[Section, str] = {
    "argument": "arguments",
    "result": "results",
    "constraint": "constraints and shard_map boundaries",
    "by JAX": "constraints that JAX wrote",
}


def heading(document: PropagateDocument) -> Iterator[Paragraph]:
    """How much this is worth and what it was taken from; then the program and its meshes."""
    yield from provenance(document.propagations, document.failures)
    parts = [in_file(document.name, document.file), *mesh_words_of(document.meshes)]
    if document.at_step is not None:
        parts.append(f"after step {document.at_step} of {document.last_step}")
    yield Paragraph("; ".join(parts))
    for change in document.changes:
        yield Paragraph(f"with {change}")


def provenance(
    propagations: Sequence[Propagated], failed: Sequence[Failure]
) -> Iterator[Paragraph]:
    """Whether each propagation is exact and what it was taken from, and why another is missing."""
    for propagation in propagations:
        tone: Tone = "plain" if propagation.exactness == "exact" else "warning"
        source = propagation_source_clause(propagation.source)
        yield Paragraph(
            f"{partitioner_name(propagation.partitioner)}: {propagation.exactness}, from {source}",
            tone,
        )
    for failure in failed:
        name = partitioner_name(failure.partitioner)
        yield Paragraph(f"nothing under {name}: {failure.reason}", "warning")


# --- values ---------------------------------------------------------------------------------------


def rows_inside(document: PropagateDocument, *, everything: bool) -> list[ProgramValue]:
    """The values inside that are worth a row: those that came to be sharded."""
    inside = [value for value in document.values if value.section == "inside"]
    if everything:
        return inside
    return [value for value in inside if not value.written and value.is_sharded]


@dataclass(frozen=True, slots=True)
class ValueTable(Table):
    """A row a value.

    Attributes:
        unlisted: how many values inside that came to be sharded have no row.
    """

    unlisted: int = 0


def table(
    document: PropagateDocument, *, everything: bool = False, columns: int | None = None
) -> ValueTable:
    """A row a value: arguments, results and constraints, then by scope what came to be sharded.

    Args:
        document: the document.
        everything: whether to list every value inside, sharded or not.
        columns: the width to keep to. Where the table is wider, files go without their folders, and
            columns are left out: that of blocks, and that of requests when everything is as
            requested.
    """
    scopes, unlisted = _scopes(document, everything)
    return fitted(
        lambda brief: _table(document, scopes, unlisted, everything=everything, brief=brief)
    )(columns)


def _table(
    document: PropagateDocument,
    scopes: Sequence[_Group],
    unlisted: int,
    *,
    everything: bool,
    brief: bool,
) -> ValueTable:
    partitioners = document.partitioners
    requested = any(value.requested is not None for value in document.values)
    if brief and not any(value.disagrees for value in document.values):
        requested = False
    # Two partitioners' shardings leave no room for where axes come from.
    origins = not (brief and len(partitioners) > 1) and any(
        _origins(value, partitioner) for value in document.values for partitioner in partitioners
    )
    header = [Column("value"), Column("type", fold=False)]
    header += [Column("requested")] if requested else []
    header += [Column(partitioner_name(partitioner)) for partitioner in partitioners]
    header += [] if brief else [Column("block", fold=False)]
    header += [number("bytes"), number(REPLICAS if brief else "replicas")]
    header += [Column("from")] if origins else []
    rows: list[Row] = []
    for title, group in (*_sections(document), *scopes):
        file = common_file(value.source for value in group)
        rows.append(Heading(title + (f" in {file}" if file else "")))
        value_rows: list[Cells] = []
        for value in group:
            type_ = value_type_text(value.shape, value.dtype)
            cells: list[Cell | str] = [_name(value, file, brief=brief), type_]
            if requested:
                cells.append(_requested(value))
            cells += [_sharding(value, p, partitioners) for p in partitioners]
            cells += _held(value, partitioners, brief=brief)
            if origins:
                texts = _origins(value, partitioners[0])
                texts = [_brief(text) for text in texts] if brief else texts
                cells.append(Cell("\n".join(texts), "muted"))
            value_rows.append(tuple(cells))
        paths = group[0].section in ("argument", "result")
        rows += folded_rows(value_rows, "argument" if paths else "value", everything=everything)
    return ValueTable(tuple(header), tuple(rows), unlisted=unlisted)


#: All folders of a file in front of its line.
_FOLDERS = re.compile(r"[^\s\[\]]*/(?=[^/\s]+\.py:\d)")


def _brief(text: str) -> str:
    """`mlp.py:98` for `models/mlp.py:98`."""
    return _FOLDERS.sub("", text)


_Group: TypeAlias = tuple[str, list[ProgramValue]]
"""Values with a title."""


def _sections(document: PropagateDocument) -> Iterator[_Group]:
    """Arguments, results, constraints, and those that JAX wrote."""
    for section, title in _TITLES.items():
        group = [value for value in document.values if value.section == section]
        if group:
            yield f"{title} ({len(group):,})", group


def _scopes(document: PropagateDocument, everything: bool) -> tuple[list[_Group], int]:
    """The values inside by scope, and how many have no row; of repeated layers the first's.

    Scopes of repeated layers are one unless all are asked for, and then no more are listed than
    there is room for.
    """
    inside = rows_inside(document, everything=everything)
    scopes: dict[str, list[ProgramValue]] = {}
    for value in inside:
        scopes.setdefault(_place(value.name), []).append(value)
    titles, groups = list(scopes), list(scopes.values())
    look = _Look(document.partitioners)
    looks = [tuple(map(look, group)) for group in groups]
    if everything:
        alike = [Folded(title, (place,), False) for place, title in enumerate(titles)]
    else:
        alike = folded(titles, looks, "value")
    titled: list[_Group] = []
    room, listed = LISTED, 0
    for group in alike:
        first, times = group.members[0], len(group.members)
        own = groups[first]
        if not everything:
            kept = list(dict.fromkeys(looks[first]))[:room]
            room -= len(kept)
            pairs = zip(own, looks[first], strict=True)
            own = [value for value, look in pairs if look in kept]
        if own:
            count = f"{times:,} times {len(own):,}" if times > 1 else f"{len(own):,}"
            titled.append((f"{group.name or 'without a scope'} ({count})", own))
            listed += times * len(own)
    return titled, len(inside) - listed


class _Look:
    """What the row of a value inside says, but for the numbers of layers.

    Values share their shardings and origins, which are put into words once.
    """

    def __init__(self, partitioners: Sequence[Partitioner]) -> None:
        self._partitioners = partitioners
        self._shardings: dict[Hashable, Cell] = {}
        self._origins: dict[int, tuple[str, ...]] = {}

    def __call__(self, value: ProgramValue) -> Hashable:
        said: list[Hashable] = [
            value.primitive or value.kind,
            line_of(value.source),
            value.shape,
            value.dtype,
        ]
        for partitioner in self._partitioners:
            decided = value.propagated.get(partitioner)
            if decided is None:
                said.append(None)
                continue
            key = (partitioner, id(decided.sharding), decided.fate, value.same)
            sharding = self._shardings.get(key)
            if sharding is None:
                sharding = _sharding(value, partitioner, self._partitioners)
                self._shardings[key] = sharding
            origins = self._origins.get(id(decided.origins))
            if origins is None:
                origins = tuple(map(masked, _origins(value, partitioner)))
                self._origins[id(decided.origins)] = origins
            said += (sharding, origins)
        return tuple(said)


def _place(scope: str) -> str:
    """A scope without the einsum that is its last part, as JAX has it."""
    head, _, last = scope.rpartition("/")
    return head if "->" in last else scope


def _name(value: ProgramValue, file: str, *, brief: bool) -> str:
    line = source_text(value.source)
    line = _brief(line) if brief else line
    place = f"line {line.rpartition(':')[2]}" if file and line else line
    if value.section == "inside":
        return f"{value.primitive or op_text(value.kind)} {place}".strip()
    if value.section in ("constraint", "by JAX"):
        return f"{value.name} {place}".strip()
    return value.name or value.kind


def _requested(value: ProgramValue) -> Cell:
    if value.section == "inside":
        return Cell("")
    return Cell(NONE, "muted") if value.requested is None else Cell(value.requested.text)


def _sharding(
    value: ProgramValue, partitioner: Partitioner, partitioners: Sequence[Partitioner]
) -> Cell:
    decided = value.propagated.get(partitioner)
    if decided is None:
        return Cell("" if value.section == "inside" else "not there", "muted")
    if decided.fate in ("folded", "not partitioned"):
        return Cell("folded" if decided.fate == "folded" else NONE, "muted")
    if partitioner != partitioners[0] and value.same:
        return Cell(AGREES, "muted")
    text = short(decided.sharding)
    if not value.as_requested.get(partitioner, True):
        return Cell(text, "bad")
    if value.same is False:
        return Cell(text, "warning")
    return Cell(text, "muted" if text in (REPLICATED, MANUAL) else "plain")


def _held(
    value: ProgramValue, partitioners: Sequence[Partitioner], *, brief: bool
) -> list[Cell | str]:
    decided = value.propagated.get(partitioners[0])
    block = None if decided is None else decided.sharding.local_shape
    if decided is None or decided.placement is None or block is None:
        return [Cell(NONE, "muted")] * (2 if brief else 3)
    padded = any(decided.sharding.padding or ())
    local = type_text(block) + (" padded" if padded else "")
    cells: list[Cell | str] = [
        size(decided.sharding.bytes_per_device),
        f"{decided.placement.replication:,}",
    ]
    return cells if brief else [Cell(local, "warning" if padded else "plain"), *cells]


def _origins(value: ProgramValue, partitioner: Partitioner) -> list[str]:
    decided = value.propagated.get(partitioner)
    return (
        []
        if decided is None
        else [origin_text(origin) for origin in decided.origins if not origin.own]
    )


def footer(
    document: PropagateDocument, table: ValueTable, *, everything: bool = False
) -> Iterator[Paragraph]:
    """What became of every value, what the table leaves out, and what there is to know."""
    for text, tone in _footer(document, table, everything):
        yield Paragraph(text, tone)
    for propagation in document.propagations:
        for remark in remark_texts(propagation.remarks):
            yield Paragraph(remark, "muted")


def _footer(
    document: PropagateDocument, table: ValueTable, everything: bool
) -> Iterator[tuple[str, Tone]]:
    for propagation in document.propagations:
        total = sum(propagation.counts.values())
        fates = [f"{count:,} {fate}" for fate, count in propagation.counts.items() if count]
        steps = f"; {counted(propagation.step_count, 'step')}" if propagation.step_count else ""
        name = partitioner_name(propagation.partitioner)
        under = f" under {name}" if len(document.propagations) > 1 else ""
        yield f"{counted(total, 'value')}{under}: {', '.join(fates)}{steps}", "plain"
    inside = [value for value in document.values if value.section == "inside"]
    shown = rows_inside(document, everything=everything)
    if not everything:
        if table.unlisted > 0:
            yield f"{counted(table.unlisted, 'more sharded value')}: --all lists them", "muted"
        left_out = len(inside) - len(shown)
        if left_out:
            own, them = ("its own", "it") if left_out == 1 else ("their own", "them")
            yield (
                f"{counted(left_out, 'value')} inside {_is(left_out)} left out, unsharded or "
                f"with a sharding of {own} in the module: --all lists {them}",
                "muted",
            )
    if document.hidden:
        verb = "does" if document.hidden == 1 else "do"
        yield f"{counted(document.hidden, 'value')} {verb} not match", "muted"
    differ = document.differing
    if len(document.propagations) > 1:
        if differ:
            yield (
                f"{counted(differ, 'value')} {'differs' if differ == 1 else 'differ'} between "
                f"{partitioner_names(document.partitioners)}: sdyscope diff --at propagated shows "
                "where that begins",
                "warning",
            )
        first = partitioner_name(document.partitioners[0])
        yield f"{AGREES}  as under {first}, whose blocks are shown", "muted"
    asked = [value for value in document.values if value.as_requested]
    otherwise = sum(value.disagrees for value in asked)
    if otherwise and document.at_step is None:
        verb = "is" if otherwise == 1 else "are"
        yield f"{counted(otherwise, 'tensor')} {verb} not where {_it(otherwise)} requested", "bad"
    elif asked and document.at_step is None:
        yield "every requested sharding holds", "muted"
    headers = [column.header for column in table.columns]
    legend = [f"bytes: what a device holds; replicas ({REPLICAS}): how many devices hold the same"]
    if "from" in headers:
        legend.append("from: the annotation that an axis comes from")
        if not all(each.recorded for each in _every_origin(document)):
            legend.append(f"{FOLLOWED}: along Shardy's steps, not recorded by Shardy")
    elif any(value.section == "inside" and _origins(value, "shardy") for value in document.values):
        legend.append("where axes come from is shown in a wider terminal, and by sdyscope explain")
    legend += ["merged: now one value with others", "folded: computed by the compiler"]
    yield "; ".join(legend), "muted"


def _every_origin(document: PropagateDocument) -> Iterator[AxisOrigin]:
    for value in document.values:
        for decided in value.propagated.values():
            yield from decided.origins


def _is(number: int) -> str:
    return "is" if number == 1 else "are"


def _it(number: int) -> str:
    return "it was" if number == 1 else "they were"


# --- steps ----------------------------------------------------------------------------------------


def steps_table(document: PropagateDocument, *, everything: bool = False) -> Table:
    """A row a move: which axis went through which op, from where to where."""
    steps = document.steps or ()
    rows: list[Row] = []
    priority: int | None = None
    for moved in steps if everything else steps[:LISTED]:
        if document.has_priorities and moved.priority != priority:
            priority = moved.priority
            count = sum(step.priority == priority for step in steps)
            rows.append(Heading(f"user priority {priority} ({counted(count, 'move')})"))
        through = f"{op_name(moved.through)} {source_text(moved.through.source)}".strip()
        way = f"{tensor_text(moved.source)} -> {listed(list(map(tensor_text, moved.targets)))}"
        rows.append((f"{moved.step}", axis_text(moved.axis), through, way))
    columns = (number("step"), Column("axis", fold=False), Column("through"), Column("moved"))
    return Table(columns, tuple(rows))


def steps_footer(document: PropagateDocument, *, everything: bool = False) -> Iterator[Paragraph]:
    """How many there are, and how many are not shown."""
    moves = document.steps or ()
    numbers = len({moved.step for moved in moves})
    every = max(propagation.step_count for propagation in document.propagations)
    of = f" of {every:,}" if numbers < every else ""
    yield Paragraph(f"{counted(numbers, 'step')}{of}, {counted(len(moves), 'move')} of an axis")
    rest = 0 if everything else len(moves) - LISTED
    if rest > 0:
        yield Paragraph(f"and {counted(rest, 'more move')}: --all lists them", "muted")


# --- what if --------------------------------------------------------------------------------------


def changed(document: PropagateDocument, *, everything: bool = False) -> Iterator[Paragraph]:
    """What became different, by where it begins."""
    for diff in document.changed or ():
        yield propagated_diff.total(diff)
        yield from propagated_diff.details(diff, everything=everything)
