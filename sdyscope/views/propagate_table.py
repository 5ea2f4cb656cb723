"""The table of propagated values, and that of the steps, as they are printed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from sdyscope.facts.program import Partitioner
from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.terminal.table import Cell, Column, Heading, Row, Table, Tone, fitted, number, shape
from sdyscope.views import propagated_diff_text
from sdyscope.views.failure import Failure
from sdyscope.views.propagate import Propagate
from sdyscope.views.propagate_rows import Section, Step, Value
from sdyscope.views.propagated import PropagatedDocument, PropagationDocument, origin_text
from sdyscope.views.propagated_diff_text import source_words
from sdyscope.views.show import REPLICAS
from sdyscope.words.counts import counted, listed, size
from sdyscope.words.mesh import mesh_words
from sdyscope.words.places import op_text, source_text
from sdyscope.words.sharding import MANUAL, NONE, REPLICATED, PlacementDocument

#: How many values inside, and how many steps, are shown unless all are asked for.
LISTED = 60

#: What stands for a partitioner that put a value where the first one did.
AGREES = "="

_TITLES: dict[Section, str] = {
    "argument": "arguments",
    "result": "results",
    "constraint": "constraints and shard_map boundaries",
}


def heading(found: Propagate) -> Iterator[Paragraph]:
    """How much this is worth and what it was taken from; then the program and its meshes."""
    yield from provenance(found.propagations, found.failures)
    file = f" ({found.file})" if found.file else ""
    parts = [f"{found.name}{file}", *map(mesh_words, found.meshes)]
    if found.at_step is not None:
        parts.append(f"after step {found.at_step} of {found.last_step}")
    yield Paragraph("; ".join(parts), hang=2)
    for change in found.changes:
        yield Paragraph(f"with {change}", hang=2)


def provenance(
    propagations: Sequence[PropagationDocument], failed: Sequence[Failure]
) -> Iterator[Paragraph]:
    """Whether each propagation is exact and what it was taken from, and why another is missing."""
    for one in propagations:
        tone: Tone = "plain" if one.exactness == "exact" else "warning"
        yield Paragraph(
            f"{one.partitioner}: {one.exactness}, from {source_words(one)}", tone, hang=2
        )
    for failure in failed:
        yield Paragraph(f"nothing under {failure.partitioner}: {failure.reason}", "warning", hang=2)


# --- values ---------------------------------------------------------------------------------------


def rows_inside(found: Propagate, *, everything: bool) -> list[Value]:
    """The values inside that are worth a row: those that came to be sharded."""
    inside = [value for value in found.values if value.section == "inside"]
    if everything:
        return inside
    return [value for value in inside if not value.written and _is_sharded(value)]


def _is_sharded(value: Value) -> bool:
    return any(one.is_sharded for one in value.propagated.values())


def table(found: Propagate, *, everything: bool = False, columns: int | None = None) -> Table:
    """A row a value: arguments, results and constraints, then by scope what came to be sharded.

    Args:
      found: the document.
      everything: whether to list every value inside, sharded or not.
      columns: the width to keep to. Where the table is wider, files go without their folders, and
        columns are left out: that of blocks, and that of requests when everything is as requested.
    """
    return fitted(lambda brief: _table(found, everything, brief=brief), columns)


def _table(found: Propagate, everything: bool, *, brief: bool) -> Table:
    partitioners = found.partitioners
    requested = any(value.requested is not None for value in found.values)
    if brief and all(all(value.as_requested.values()) for value in found.values):
        requested = False
    # Two partitioners' shardings leave no room for where axes come from.
    origins = not (brief and len(partitioners) > 1) and any(
        _origins(value, partitioner) for value in found.values for partitioner in partitioners
    )
    header = [Column("value"), Column("type", fold=False)]
    header += [Column("requested")] if requested else []
    header += [Column(partitioner) for partitioner in partitioners]
    header += [] if brief else [Column("block", fold=False)]
    header += [number("bytes"), number(REPLICAS if brief else "replicas")]
    header += [Column("from")] if origins else []
    rows: list[Row] = []
    for title, file, group in _groups(found, everything):
        rows.append(Heading(f"{title} ({len(group):,})" + (f" in {file}" if file else "")))
        made: Counter[tuple[Cell | str, ...]] = Counter()
        for value in group:
            cells: list[Cell | str] = [_name(value, file, brief=brief), _type(value)]
            if requested:
                cells.append(_requested(value))
            shardings = [_sharding(value, p, partitioners) for p in partitioners]
            if brief:
                shardings = [replace(s, text=_WHOLE.sub(")", s.text)) for s in shardings]
            cells += shardings
            cells += _held(value, partitioners, brief=brief)
            if origins:
                texts = _origins(value, partitioners[0])
                texts = [_brief(text) for text in texts] if brief else texts
                cells.append(Cell("\n".join(texts), "muted"))
            made[tuple(cells)] += 1
        for (name, *rest), count in made.items():
            rows.append((f"{name} ({count} alike)" if count > 1 else name, *rest))
    return Table(tuple(header), tuple(rows))


#: Dimensions at the end of a PartitionSpec that it need not say.
_WHOLE = re.compile(r"(?:, None)+\)$")

#: All folders of a file in front of its line.
_FOLDERS = re.compile(r"[^\s\[\]]*/(?=[^/\s]+\.py:\d)")


def _brief(text: str) -> str:
    """`mlp.py:98` for `models/mlp.py:98`."""
    return _FOLDERS.sub("", text)


def _groups(found: Propagate, everything: bool) -> Iterator[tuple[str, str, list[Value]]]:
    """(title, the file that all are from, values)."""
    for section, title in _TITLES.items():
        group = [value for value in found.values if value.section == section]
        if group:
            yield title, _common_file(group), group
    inside = rows_inside(found, everything=everything)
    scopes: dict[str, list[Value]] = {}
    for value in inside if everything else inside[:LISTED]:
        scopes.setdefault(_place(value.name), []).append(value)
    for scope, group in scopes.items():
        yield scope or "without a scope", _common_file(group), group


def _place(scope: str) -> str:
    """A scope without the einsum that is its last part, as JAX has it."""
    head, _, last = scope.rpartition("/")
    return head if "->" in last else scope


def _common_file(group: Sequence[Value]) -> str:
    files = {source_text(value.source).rpartition(":")[0] for value in group}
    return files.pop() if len(files) == 1 else ""


def _name(value: Value, file: str, *, brief: bool) -> str:
    line = source_text(value.source)
    line = _brief(line) if brief else line
    place = f"line {line.rpartition(':')[2]}" if file and line else line
    if value.section == "inside":
        return f"{value.primitive or op_text(value.kind)} {place}".strip()
    if value.section == "constraint":
        return f"{value.name} {place}".strip()
    return value.name or value.kind


def _type(value: Value) -> str:
    return value.dtype if value.shape is None else shape(value.shape, value.dtype)


def _requested(value: Value) -> Cell:
    if value.section == "inside":
        return Cell("")
    return Cell(NONE, "muted") if value.requested is None else Cell(value.requested.text)


def _sharding(value: Value, partitioner: Partitioner, partitioners: Sequence[Partitioner]) -> Cell:
    one = value.propagated.get(partitioner)
    if one is None:
        return Cell("" if value.section == "inside" else "not there", "muted")
    if one.fate in ("folded", "not partitioned"):
        return Cell("folded" if one.fate == "folded" else NONE, "muted")
    if partitioner != partitioners[0] and value.same:
        return Cell(AGREES, "muted")
    if not value.as_requested.get(partitioner, True):
        return Cell(one.short, "bad")
    if one.short in (REPLICATED, MANUAL):
        return Cell(one.short, "muted" if value.same is not False else "warning")
    return Cell(one.short, "plain" if value.same is not False else "warning")


def _held(value: Value, partitioners: Sequence[Partitioner], *, brief: bool) -> list[Cell | str]:
    place = _placement(value.propagated.get(partitioners[0]))
    if place is None or place.local_shape is None:
        return [Cell(NONE, "muted")] * (2 if brief else 3)
    padded = any(place.padding or ())
    local = shape(place.local_shape) + (" padded" if padded else "")
    cells: list[Cell | str] = [size(place.bytes_per_device), f"{place.replicas:,}"]
    return cells if brief else [Cell(local, "warning" if padded else "plain"), *cells]


def _placement(one: PropagatedDocument | None) -> PlacementDocument | None:
    return None if one is None else one.placement


def _origins(value: Value, partitioner: Partitioner) -> list[str]:
    one = value.propagated.get(partitioner)
    if one is None:
        return []
    return [
        origin_text(origin)
        for origin in one.origins
        if origin.origin != "self" and (origin.kind, origin.name) != (value.kind, value.name)
    ]


def footer(found: Propagate, made: Table, *, everything: bool = False) -> Iterator[Paragraph]:
    """What became of every value, what the table leaves out, and what there is to know."""
    for text, tone in _footer(found, made, everything):
        yield Paragraph(text, tone, hang=3)


def _footer(found: Propagate, made: Table, everything: bool) -> Iterator[tuple[str, Tone]]:
    for one in found.propagations:
        total = sum(one.counts.values())
        fates = [f"{count:,} {fate}" for fate, count in one.counts.items() if count]
        steps = f"; {counted(one.steps, 'step')}" if one.steps else ""
        under = f" under {one.partitioner}" if len(found.propagations) > 1 else ""
        yield f"{counted(total, 'value')}{under}: {', '.join(fates)}{steps}", "plain"
    inside = [value for value in found.values if value.section == "inside"]
    shown = rows_inside(found, everything=everything)
    if not everything:
        rest = len(shown) - LISTED
        if rest > 0:
            yield (
                f"{counted(rest, 'value')} more that came to be sharded: --all lists them",
                "muted",
            )
        left_out = len(inside) - len(shown)
        if left_out:
            yield (
                f"{counted(left_out, 'value')} inside {_is(left_out)} left out, on which no axis "
                "was put, or which have a sharding of their own in the module: --all lists them",
                "muted",
            )
    if found.hidden:
        verb = "does" if found.hidden == 1 else "do"
        yield f"{counted(found.hidden, 'value')} {verb} not match", "muted"
    differ = found.differing
    if len(found.propagations) > 1:
        if differ:
            yield (
                f"{counted(differ, 'value')} {'differs' if differ == 1 else 'differ'} between "
                f"{' and '.join(found.partitioners)}: sdyscope diff --at propagated says where "
                "that begins",
                "warning",
            )
        yield f"{AGREES}  as under {found.partitioners[0]}, whose blocks are shown", "muted"
    asked = [value for value in found.values if value.as_requested]
    otherwise = sum(not all(value.as_requested.values()) for value in asked)
    if otherwise and found.at_step is None:
        verb = "is" if otherwise == 1 else "are"
        yield f"{counted(otherwise, 'tensor')} {verb} not where {_it(otherwise)} requested", "bad"
    elif asked and found.at_step is None:
        yield "what was requested is where it was requested", "muted"
    headers = [column.header for column in made.columns]
    legend = [f"bytes: what a device holds; replicas ({REPLICAS}): how many devices hold the same"]
    if "from" in headers:
        legend.append("from: the annotation that an axis comes from")
    elif any(value.section == "inside" and _origins(value, "shardy") for value in found.values):
        legend.append("where axes come from is shown in a wider terminal, and by sdyscope explain")
    legend += ["merged: now one value with others", "folded: computed by the compiler"]
    yield "; ".join(legend), "muted"
    for one in found.propagations:
        for note in one.notes:
            yield note, "muted"


def _is(number: int) -> str:
    return "is" if number == 1 else "are"


def _it(number: int) -> str:
    return "it was" if number == 1 else "they were"


# --- steps ----------------------------------------------------------------------------------------


def steps_table(found: Propagate, *, everything: bool = False) -> Table:
    """A row a move: which axis went through which op, from where to where."""
    steps = found.steps or ()
    rows: list[Row] = []
    priority: int | None = None
    for step in steps if everything else steps[:LISTED]:
        if found.has_priorities and step.priority != priority:
            priority = step.priority
            count = sum(one.priority == priority for one in steps)
            rows.append(Heading(f"user priority {priority} ({counted(count, 'move')})"))
        rows.append((f"{step.number}", step.axis, _op(step), f"{step.from_} -> {listed(step.to)}"))
    columns = (number("step"), Column("axis", fold=False), Column("through"), Column("moved"))
    return Table(columns, tuple(rows))


def _op(step: Step) -> str:
    name = f"{step.scope}/{step.primitive or op_text(step.op)}".lstrip("/")
    return f"{name} {source_text(step.source)}".strip()


def steps_footer(found: Propagate, *, everything: bool = False) -> Iterator[Paragraph]:
    """How many there are, and how many are not shown."""
    moves = found.steps or ()
    numbers = len({step.number for step in moves})
    every = next((one.steps for one in found.propagations if one.steps), numbers)
    of = f" of {every:,}" if numbers < every else ""
    yield Paragraph(f"{counted(numbers, 'step')}{of}, {counted(len(moves), 'move')} of an axis")
    rest = 0 if everything else len(moves) - LISTED
    if rest > 0:
        yield Paragraph(f"and {counted(rest, 'move')} more: --all lists them", "muted")


# --- what if --------------------------------------------------------------------------------------


def changed(found: Propagate, *, everything: bool = False) -> Iterator[Paragraph]:
    """What became different, by where it begins."""
    for one in found.changed or ():
        yield propagated_diff_text.total(one)
        yield from propagated_diff_text.details(one, everything=everything)
