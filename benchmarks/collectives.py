"""How far are estimates of collectives from published measurements?

    python benchmarks/collectives.py [--rows]

Each row of benchmarks/collectives.toml is estimated as `sdyscope cost` does it: on GPUs by
what NCCL expects of its algorithms, and by the overhead and the factor that are fitted to all
tables here; on TPUs by links and hops, to which nothing is fitted. Held out, a source is estimated
by what is fitted to the other sources. Prints the table of docs/cost.md, and what belongs into
sdyscope/hardware/nccl.toml and specs.toml. With --rows every row is printed, with its bandwidth as
nccl-tests counts it.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from scipy.optimize import least_squares

from sdyscope.analysis.cost.links import Level, axes_levels
from sdyscope.analysis.cost.nccl import expected_seconds
from sdyscope.analysis.cost.time import group_seconds
from sdyscope.facts.traffic import CollectiveKind
from sdyscope.hardware.topology import DeviceDigit, DimensionName, Topology
from sdyscope.values.mesh import AxisRef, Mesh

if TYPE_CHECKING:
    from published import PublishedTable

_LARGE = 64 << 20


@dataclass(frozen=True)
class Row:
    """A row of a published table.

    Attributes:
        table: the table.
        size: bytes.
        seconds: what was measured.
        expected: what NCCL expects; None of TPUs.
        estimate: what `sdyscope cost` says.
    """

    table: PublishedTable
    size: int
    seconds: float
    expected: float | None
    estimate: float | None

    def by(self, fit: tuple[float, float]) -> float | None:
        """The estimate by an overhead and a factor."""
        return self.estimate if self.expected is None else fit[0] + fit[1] * self.expected


def levels_of(table: PublishedTable) -> tuple[Level, ...] | None:
    """What the devices of a table are connected by."""
    if table.topology:
        names: tuple[DimensionName, ...] = ("x", "y", "z")
        digits = [
            DeviceDigit(names[at], size, 1) for at, size in enumerate(table.topology) if size > 1
        ][::-1]
        digits += [DeviceDigit("core", table.chip.devices, 1)] if table.chip.devices > 1 else []
        topology = Topology(tuple(digits))
        # The axis that is gathered over is the one nearest to the cores.
        others = topology.num_devices // table.chip.devices // table.devices
        shape = {"others": others, "over": table.devices, "cores": table.chip.devices}
    else:
        gpus = table.devices // table.hosts
        topology = Topology((DeviceDigit("host", table.hosts, 1), DeviceDigit("gpu", gpus, 1)))
        shape = {"over": table.devices}
    return axes_levels((AxisRef("over"),), Mesh.of(shape), topology, table.chip)


def rows_of(table: PublishedTable) -> Iterator[Row]:
    kind, levels = cast("CollectiveKind", table.collective), levels_of(table)
    assert levels is not None
    for size, seconds in table.rows:
        expected = None
        if not table.topology:
            expected = expected_seconds(kind, size, levels, table.chip)
        yield Row(table, size, seconds, expected, group_seconds(kind, size, levels, table.chip))


def fitted(rows: Iterable[Row]) -> tuple[float, float]:
    """Overhead and factor by which rows are off by the least factors; each table counts alike."""
    of_table: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        if row.expected is not None:
            of_table[id(row.table)].append(row)

    def off(fit: Sequence[float]) -> list[float]:
        return [
            math.log((1e-6 * fit[0] + fit[1] * (row.expected or 0.0)) / row.seconds)
            / math.sqrt(len(group))
            for group in of_table.values()
            for row in group
        ]

    overhead, factor = least_squares(off, [10.0, 1.1], bounds=(0, math.inf), loss="soft_l1").x
    return 1e-6 * overhead, factor


def off(rows: Iterable[Row], fit: tuple[float, float]) -> float | None:
    """The median of how far estimates are off, as a part of what was measured."""
    parts = [
        abs(estimate - row.seconds) / row.seconds
        for row in rows
        if (estimate := row.by(fit)) is not None
    ]
    return statistics.median(parts) if parts else None


def link_of(table: PublishedTable) -> str:
    if table.topology:
        return "ICI"
    return "NVLink" if table.hosts == 1 else "NVLink and network"


def percent(value: float | None) -> str:
    return "not known" if value is None else f"{value:.0%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", action="store_true")
    asked = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from published import published_tables

    tables = published_tables()
    rows = {id(table): list(rows_of(table)) for table in tables}
    every = [row for group in rows.values() for row in group]
    fit = fitted(every)
    held_out = {
        source: fitted(row for row in every if row.table.source != source)
        for source in dict.fromkeys(table.source for table in tables)
    }
    print("| link | collective | devices | rows | off by | held out | from 64 MiB on | source |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    by_link: dict[str, list[tuple[Row, tuple[float, float]]]] = defaultdict(list)
    by_chip: dict[str, list[float]] = defaultdict(list)
    for table in tables:
        own, without = rows[id(table)], held_out[table.source]
        large = [row for row in own if row.size >= _LARGE]
        where = f"{table.chip.name}, {link_of(table)}"
        for row in own:
            by_link[link_of(table)].append((row, without))
            if (estimate := row.by(without)) is not None:
                by_chip[table.chip.key].append(abs(estimate - row.seconds) / row.seconds)
        print(
            f"| {where} | {table.collective} | {table.devices} | {len(own)} | "
            f"{percent(off(own, fit))} | {percent(off(own, without))} | "
            f"{percent(off(large, without))} | "
            f"[{table.source.title}]({table.source.url}), {table.source.date} |"
        )
        for row in own if asked.rows else ():
            estimate = row.by(without)
            times = "not known" if estimate is None else f"{1e6 * estimate:,.1f} us"
            print(f"    {row.size:,} B, {1e6 * row.seconds:,.1f} us; {times}", bus(row))
    print("\n| link | rows | off by, held out |\n| --- | --- | --- |")
    for link, pairs in by_link.items():
        parts = [
            abs(estimate - row.seconds) / row.seconds
            for row, without in pairs
            if (estimate := row.by(without)) is not None
        ]
        print(f"| {link} | {len(parts)} | {percent(statistics.median(parts))} |")
    print(f"\n[fitted]\noverhead = {fit[0]:.2g}\nfactor = {fit[1]:.3g}")
    for chip, parts in by_chip.items():
        print(f"\n[errors.{chip}]\ncollectives = {statistics.median(parts):.2f}")


def bus(row: Row) -> str:
    """Bytes a second as nccl-tests counts them."""
    n = row.table.devices
    times = 1.0 if row.table.collective == "collective-permute" else (n - 1) / n
    times *= 2 if row.table.collective == "all-reduce" else 1
    return f"({times * row.size / row.seconds / 1e9:.1f} GB/s)"


if __name__ == "__main__":
    main()
