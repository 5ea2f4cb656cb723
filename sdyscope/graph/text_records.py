"""What the text reader remembers of ops, regions and statements while it reads."""

from __future__ import annotations

from dataclasses import dataclass, field

from sdyscope.graph.text_statements import Statement


@dataclass(slots=True)
class OpRecord:
    """What the text says of one op or block argument; see `Op` for most fields.

    Attributes:
        place: number of the region that it is in, among all regions.
        operands: id of the producer and number of its result; None when nothing defines the name.
        types: texts of the results' types.
        attributes: texts of the attributes.
        arguments: of a function, how many arguments its body has.
        function_results: of a function, type and attribute texts of each result.
    """

    id: int
    kind: str
    function: str
    parent: int | None
    region: int
    block: int
    place: int
    line: int
    name: str = ""
    argument: int = -1
    location: str = ""
    operands: list[tuple[int, int] | None] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    attributes: dict[str, str] = field(default_factory=dict)
    arguments: int = 0
    function_results: list[tuple[str, dict[str, str]]] = field(default_factory=list)


@dataclass(slots=True)
class Region:
    """A region that is being read.

    Attributes:
        op: id of the op that it is in.
        begin: id of the first op or argument in it.
        values: producer and result number of each value defined in it, by name (`%4`, `%2#1`).
        waiting: uses of values that are not defined yet: record, operand number, name.
    """

    op: int
    function: str
    number: int
    place: int
    isolated: bool = False
    begin: int = 1
    block: int = 0
    values: dict[str, tuple[int, int]] = field(default_factory=dict)
    waiting: list[tuple[OpRecord, int, str]] = field(default_factory=list)


@dataclass(slots=True)
class OpenStatement:
    """A statement that is being read."""

    statement: Statement
    brackets: list[str] = field(default_factory=list)
    record: OpRecord | None = None
    regions: int = 0
