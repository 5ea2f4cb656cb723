"""The tables of a program's collectives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from sdyscope.terminal.table import Cell, Column, Heading, Note, Row, Table, fitted, number, size
from sdyscope.views.comms import Comms, CommsProgram
from sdyscope.views.comms_parts import CollectiveDocument, PartDocument, TallyDocument
from sdyscope.words.counts import counted
from sdyscope.words.mesh import AxisDocument, over_text
from sdyscope.words.origins import NOT_FOUND, annotation_text, origin_text
from sdyscope.words.places import source_text
from sdyscope.words.sharding import NONE

#: How many collectives, or scopes, are shown unless all are asked for.
LISTED = 12

#: Likewise annotations.
ANNOTATIONS = 6


def by_kind(found: Comms) -> Table:
    """A row a kind and axes; for each partitioner how many there are and what they send."""
    programs = distinct(found)
    several = len(programs) > 1
    keys: dict[tuple[str, str], dict[int, TallyDocument]] = {}
    for index, one in enumerate(programs):
        for entry in one.by_kind_and_axes:
            over = _over(entry.axes, one)
            keys.setdefault((entry.kind, over), {})[index] = entry.tally
    ordered = sorted(keys.items(), key=lambda item: -max(t.sent for t in item[1].values()))
    columns = [Column("collective", fold=False)]
    named = any(over for _, over in keys)
    if named:
        columns.append(Column("over"))
    for one in programs:
        if several:
            columns.append(number(str(one.partitioner)))
        else:
            columns += [number("count"), number("tensors"), number("size")]
        columns.append(number("sent"))
    rows: list[Row] = []
    for (kind, over), tallies in ordered:
        cells: list[Cell | str] = [kind, over] if named else [kind]
        for index in range(len(programs)):
            cells += _tally_cells(tallies.get(index), several)
        rows.append(tuple(cells))
    return Table(tuple(columns), tuple(rows))


def _tally_cells(tally: TallyDocument | None, several: bool) -> list[Cell | str]:
    if tally is None:
        return [Cell(NONE, "muted"), Cell(NONE, "muted")]
    if several:
        return [f"{tally.count:,}", size(tally.sent)]
    return [f"{tally.count:,}", f"{tally.tensors:,}", size(tally.bytes), size(tally.sent)]


def largest(found: Comms, *, everything: bool = False, columns: int | None = None) -> Table:
    """The collectives that send most, of each partitioner; what looks the same is one row.

    Args:
        found: the document.
        everything: whether to list all.
        columns: the width to keep to. Where the table is wider, a file that all lines are in is
            only named once.
    """
    return fitted(lambda brief: _largest(found, everything, brief=brief), columns)


def _largest(found: Comms, everything: bool, *, brief: bool) -> Table:
    shown = []
    for one in distinct(found):
        every = groups(one)
        shown.append((one, every, every if everything else every[:LISTED]))
    files = {_file(first) for _, _, listed in shown for first, _ in listed}
    file = files.pop() if brief and len(files) == 1 else ""
    rows: list[Row] = []
    for one, every, listed in shown:
        count = counted(len(one.collectives), f"{'predicted ' if one.predicted else ''}collective")
        which = _which(count, len(listed) == len(every))
        rows.append(Heading(_label(found, one) + which + (f" in {file}" if file else "")))
        for group in listed:
            rows.append(_group_row(group, one, file))
            rows += _notes(group, file)
    columns = (
        Column("collective"),
        Column("over"),
        number("x"),
        Column("tensor"),
        number("sent"),
        Column("scope"),
        number("line") if file else Column("source"),
    )
    return Table(columns, tuple(rows))


_Group: TypeAlias = tuple[CollectiveDocument, Sequence[CollectiveDocument]]


def groups(one: CommsProgram) -> list[_Group]:
    """Collectives that are shown the same, by what they send together."""
    found: dict[object, list[CollectiveDocument]] = {}
    for collective in one.collectives:
        part = _main_part(collective)
        key = (
            collective.kind,
            collective.asynchronous,
            collective.unknown_trips,
            collective.conditional,
            _over(collective.axes, one, collective.group_size),
            _tensor(collective),
            part.scope or part.primitive,
            source_text(part.source),
        )
        found.setdefault(key, []).append(collective)
    grouped = [(group[0], group) for group in found.values()]
    return sorted(grouped, key=lambda group: -sum(each.sent for each in group[1]))


def _group_row(group: _Group, program: CommsProgram, file: str) -> tuple[Cell | str, ...]:
    one, same = group
    part = _main_part(one)
    times = f"{sum(each.count for each in same):,}"
    times += "+" if one.unknown_trips else "?" if one.conditional else ""
    source = source_text(part.source)
    if file:
        source = source.rpartition(":")[2]
    return (
        f"{one.kind} (async)" if one.asynchronous else one.kind,
        _over(one.axes, program, one.group_size),
        times,
        _tensor(one),
        size(sum(each.sent for each in same)),
        part.scope or part.primitive or Cell(NONE, "muted"),
        source or Cell(NONE, "muted"),
    )


def _notes(group: _Group, file: str) -> Iterator[Note]:
    """Why they are there: the first, and how many others there are whose origin is another."""
    origins = (origin for one in group[1] if (origin := _main_part(one).origin) is not None)
    texts = list(dict.fromkeys(origin_text(origin, file) for origin in origins))
    if not texts:
        return
    words = texts[0] if texts[0].startswith(NOT_FOUND) else f"because {texts[0]}"
    more = len(texts) - 1
    yield Note(words + (f"; and {more:,} more alike" if more else ""))


def by_annotation(found: Comms, *, everything: bool = False, columns: int | None = None) -> Table:
    """The annotations that most comes from, of each partitioner.

    Args:
        found: the document.
        everything: whether to list all.
        columns: the width to keep to. Where the table is wider, a file that all lines are in is
            only named once.
    """
    return fitted(lambda brief: _by_annotation(found, everything, brief=brief), columns)


def _by_annotation(found: Comms, everything: bool, *, brief: bool) -> Table:
    shown = [
        (one, one.by_annotation if everything else one.by_annotation[:ANNOTATIONS])
        for one in distinct(found)
    ]
    written = [entry.annotation for _, listed in shown for entry in listed]
    files = {
        source_text(one.source).rpartition(":")[0]
        for one in written
        if one.kind not in ("argument", "result") and one.source is not None
    }
    file = files.pop() if brief and len(files) == 1 else ""
    rows: list[Row] = []
    for one, listed in shown:
        count = f"{counted(len(one.by_annotation), 'annotation')} that collectives come from"
        which = _which(count, len(one.by_annotation) == len(listed))
        if not listed:
            continue
        rows.append(Heading(_label(found, one) + which + (f", in {file}" if file else "")))
        for entry in listed:
            tally = entry.tally
            name = annotation_text(entry.annotation, file)
            rows.append((name, f"{tally.count:,}", size(tally.bytes), size(tally.sent)))
    columns = (Column("annotation"), number("collectives"), number("size"), number("sent"))
    return Table(columns, tuple(rows))


def _which(count: str, every: bool) -> str:
    """`all 12 scopes`, `1 scope`, `the largest of 40 scopes`."""
    if not every:
        return f"the largest of {count}"
    return count if count.startswith("1 ") else f"all {count}"


def _main_part(one: CollectiveDocument) -> PartDocument:
    return max(one.parts, key=lambda part: part.bytes)


def _file(one: CollectiveDocument) -> str:
    return source_text(_main_part(one).source).rpartition(":")[0]


def scopes(found: Comms, *, everything: bool = False) -> Table:
    """The scopes whose collectives send most, of each partitioner."""
    rows: list[Row] = []
    for one in distinct(found):
        shown = one.by_scope if everything else one.by_scope[:LISTED]
        which = _which(counted(len(one.by_scope), "scope"), len(shown) == len(one.by_scope))
        rows.append(Heading(_label(found, one) + which))
        for entry in shown:
            tally = entry.tally
            name = entry.scope or Cell("no scope", "muted")
            rows.append((name, f"{tally.tensors:,}", size(tally.bytes), size(tally.sent)))
    columns = (Column("scope"), number("tensors"), number("size"), number("sent"))
    return Table(columns, tuple(rows))


def distinct(found: Comms) -> Sequence[CommsProgram]:
    """The partitioners' programs; the first alone where all look the same."""
    rows = [[_group_row(group, one, "") for group in groups(one)] for one in found.programs]
    alike = len(rows) > 1 and all(row == rows[0] for row in rows)
    return found.programs[:1] if alike else found.programs


def _label(found: Comms, one: CommsProgram) -> str:
    """Whose collectives these are, where it need be said."""
    if len(found.programs) < 2:
        return ""
    names = [one.partitioner or ""]
    if len(distinct(found)) < len(found.programs):
        names = [other.partitioner or "" for other in found.programs]
    return f"{' and '.join(names)}: "


def _over(
    axes: Sequence[AxisDocument] | None, program: CommsProgram, group_size: int | None = None
) -> str:
    if program.mesh is None:
        return "" if group_size is None else f"groups of {group_size:,}"
    return over_text(axes, group_size)


def _tensor(one: CollectiveDocument) -> str:
    more = len(one.parts) - 1
    return _shapes(_main_part(one)) + (f" and {more:,} more" if more else "")


def _shapes(part: PartDocument) -> str:
    if len(part.shapes) == 1:
        return part.shapes[0]
    if len(set(part.shapes)) == 1:
        return f"{len(part.shapes)} x {part.shapes[0]}"
    return " ".join(part.shapes)


def parts(
    found: Comms, *, everything: bool, by_scope: bool, columns: int | None
) -> Sequence[Table]:
    """The tables: by kind and axes, then the largest collectives or scopes; none without any."""
    if not any(one.collectives for one in found.programs):
        return ()
    if by_scope:
        return by_kind(found), scopes(found, everything=everything)
    origins = by_annotation(found, everything=everything, columns=columns)
    return (
        by_kind(found),
        *([origins] if origins.rows else []),
        largest(found, everything=everything, columns=columns),
    )
