"""Published measurements of collectives, from ``benchmarks/collectives.toml``."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sdyscope.hardware.specs import Chip, SpecSource, chips

_FILE = Path(__file__).parents[1] / "benchmarks" / "collectives.toml"


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """What one run of a benchmark measured.

    Attributes:
        chip: of which the devices are.
        collective: what was run, as HLO calls it.
        devices: how many took part.
        hosts: how many hosts of GPUs these are on; 1 of TPUs.
        topology: of the slice of a TPU, chips along each dimension; empty of GPUs.
        source: the document.
        what: the machine, in its words.
        rows: (bytes on one device of the result of an all-gather, or the operand of all else;
            seconds).
    """

    chip: Chip
    collective: str
    devices: int
    hosts: int
    topology: tuple[int, ...]
    source: SpecSource
    what: str
    rows: tuple[tuple[int, float], ...]


@cache
def published_tables() -> tuple[PublishedTable, ...]:
    """The tables, in the order of the file."""
    whole = tomllib.loads(_FILE.read_text("utf-8"))
    sources = {key: SpecSource(**fields) for key, fields in whole["sources"].items()}
    return tuple(
        PublishedTable(
            chip=chips()[table["chip"]],
            collective=table["collective"],
            devices=table["devices"],
            hosts=table.get("hosts", 1),
            topology=tuple(map(int, table["topology"].split("x"))) if "topology" in table else (),
            source=sources[table["source"]],
            what=table["what"],
            rows=tuple((size, micro * 1e-6) for size, micro in table["rows"]),
        )
        for table in whole["tables"]
    )
