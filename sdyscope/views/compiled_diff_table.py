"""What two compiled programs differ in, as tables."""

from __future__ import annotations

from collections.abc import Sequence

from sdyscope.terminal.table import Cell, Column, Heading, Row, Table, number
from sdyscope.views.compiled_diff import CompiledDiff, entry_text
from sdyscope.views.compiled_diff_parts import CollectiveDifference, CommunicatedTensors
from sdyscope.words.counts import size
from sdyscope.words.places import source_text
from sdyscope.words.sharding import NONE

#: Names of sides that are longer are not used above columns.
_LONGEST = 14


def short_labels(one: CompiledDiff) -> tuple[str, str]:
    """What the sides are called above columns: no longer than the numbers there."""
    labels = one.a.label, one.b.label
    return labels if max(map(len, labels)) <= _LONGEST else ("A", "B")


def totals(one: CompiledDiff) -> Table:
    """What a device sends and needs on both sides; of memory only what is not the same."""
    assert one.a.total is not None
    assert one.b.total is not None
    a, b = one.a.total, one.b.total
    rows: list[Row] = [
        Heading("collectives"),
        _counts("collectives a step", a.count, b.count),
        _counts("tensors", a.tensors, b.tensors),
    ]
    if one.a.dtypes != one.b.dtypes:
        names = {**one.a.dtypes, **one.b.dtypes}
        rows += [
            _counts(f"  of {name}", one.a.dtypes.get(name, 0), one.b.dtypes.get(name, 0))
            for name in names
        ]
    rows.append(_sizes("sent", a.sent, b.sent))
    if (a.sent, b.sent) != (a.received, b.received):
        rows.append(_sizes("received", a.received, b.received))
    remade = one.a.rematerializations, one.b.rematerializations
    if any(remade):
        rows.append(_counts("full rematerializations", *remade))
    differs = [row for row in one.memory if row.differs]
    if differs:
        rows.append(Heading("memory"))
        rows += [_sizes(row.name, row.a, row.b) for row in differs]
    columns = (Column("a device", fold=False), *map(number, short_labels(one)), number("change"))
    return Table(columns, tuple(rows))


def _counts(what: str, a: int, b: int) -> Row:
    change = Cell(f"{b - a:+,}") if b != a else Cell(NONE, "muted")
    return (what, f"{a:,}", f"{b:,}", change)


def _sizes(what: str, a: int | None, b: int | None) -> Row:
    return (what, size(a), size(b), _change((b or 0) - (a or 0)))


def _change(count: int) -> Cell:
    if not count:
        return Cell(NONE, "muted")
    return Cell(f"{'+' if count > 0 else '-'}{size(abs(count))}")


def by_kind(one: CompiledDiff) -> Table:
    """A row a kind of collective and axes that do not come to the same."""
    rows: list[Row] = []
    for entry in one.by_kind_and_axes:
        cells: list[Cell | str] = [entry.kind, entry.over]
        for tally in (entry.a, entry.b):
            if tally.tensors:
                cells += [f"{tally.count:,}", size(tally.sent)]
            else:
                cells += [Cell(NONE, "muted"), Cell(NONE, "muted")]
        rows.append((*cells, _change(entry.b.sent - entry.a.sent)))
    return Table(
        (
            Column("collective", fold=False),
            Column("over"),
            number(short_labels(one)[0]),
            number("sent"),
            number(short_labels(one)[1]),
            number("sent"),
            number("change"),
        ),
        tuple(rows),
    )


def collectives(one: CompiledDiff, shown: Sequence[CollectiveDifference]) -> Table:
    """A row a difference: how many tensors either side communicates, and for which op."""
    files: dict[str, list[CollectiveDifference]] = {}
    for difference in shown:
        files.setdefault(_file(difference), []).append(difference)
    rows: list[Row] = []
    for file, members in files.items():
        if file or len(files) > 1:
            rows.append(Heading(f"in {file}" if file else "without a source line"))
        rows += [_difference(member) for member in members]
    columns = (
        Column("collective", fold=False),
        Column("over", fold=False),
        *map(number, short_labels(one)),
        number("change"),
        Column("for"),
        number("line"),
    )
    return Table(columns, tuple(rows))


def entries(one: CompiledDiff, limit: int | None) -> Table:
    """A row an argument or result that is not the same on both sides."""
    assert one.entries is not None
    rows: list[Row] = [
        (entry.name, entry.change, entry_text(entry.a), entry_text(entry.b))
        for entry in one.entries.different[:limit]
    ]
    labels = short_labels(one)
    return Table(
        (Column("argument or result"), Column("differs"), Column(labels[0]), Column(labels[1])),
        tuple(rows),
    )


def op_words(one: CollectiveDifference) -> str:
    """The op that tensors are communicated for, and how many there are like it."""
    where = "/".join(filter(None, (one.scope, one.primitive)))
    return f"{where} ({len(one.scopes):,})" if len(one.scopes) > 1 else where


def _difference(one: CollectiveDifference) -> Row:
    return (
        one.kind,
        one.over,
        _tensors(one.a),
        _tensors(one.b),
        _change(one.sent),
        op_words(one) or Cell(NONE, "muted"),
        _lines(one) or Cell(NONE, "muted"),
    )


def _tensors(found: CommunicatedTensors) -> Cell:
    return Cell(f"{found.tensors:,}") if found.tensors else Cell(NONE, "muted")


def _file(one: CollectiveDifference) -> str:
    return source_text(one.sources[0]).rpartition(":")[0] if one.sources else ""


def _lines(one: CollectiveDifference) -> str:
    lines = [text.rpartition(":")[2] for text in map(source_text, one.sources)]
    return ", ".join(lines[:2]) + (", ..." if len(lines) > 2 else "")
