"""Bytes a device: by argument group, shared with results, held more than once, and why.

What we count from shardings is compared with what the compiler counted, so that neither has to be
believed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from sdyscope.analysis.memory.donation import dropped_donations, unused_donations, with_shares
from sdyscope.analysis.memory.held import Held, HeldKind, Option, Origin, held
from sdyscope.analysis.memory.options import under_sharded, with_options
from sdyscope.analysis.memory.totals import Group, bytes_differ, compared, groups
from sdyscope.facts.compiled import Compiled
from sdyscope.facts.findings import Finding
from sdyscope.facts.tensors import Tensor, TensorTable
from sdyscope.values.entry_layout import read_entry_layout
from sdyscope.values.mesh import Mesh

__all__ = ["Group", "Held", "HeldKind", "Memory", "Option", "Origin", "memory"]


@dataclass(frozen=True)
class Memory:
    """What a device holds of one program.

    Attributes:
        compiled: the compiled program.
        held: arguments, then results.
        groups: argument groups, then result groups, in order.
        table: bytes of the compiler's table of the results' addresses.
        equal: whether our arguments and results take the bytes that the compiler says; None where
            it does not say.
        findings: donations that were of no use, and bytes that differ.
    """

    compiled: Compiled
    held: tuple[Held, ...]
    groups: tuple[Group, ...]
    table: int
    equal: bool | None
    findings: tuple[Finding, ...]

    @property
    def under_sharded(self) -> tuple[Held, ...]:
        """What could be sharded further, what saves most first."""
        return under_sharded(self.held)

    @property
    def passed(self) -> bool:
        """Whether nothing was found that is worse than a note."""
        return all(finding.severity == "note" for finding in self.findings)


def memory(table: TensorTable, compiled: Compiled, mesh: Mesh | None = None) -> Memory:
    """Counts what a device holds.

    Args:
        table: the program's tensors.
        compiled: the compiled program.
        mesh: what shardings are named on where they do not name a mesh themselves.

    Raises:
        CompilerError: the compiled module does not say how it stores its parameters.
    """
    layout = read_entry_layout(compiled.hlo)
    every = [
        with_options(held(row, kind, number, layout, compiled, mesh))
        for kind, number, row in _rows(table, compiled)
    ]
    every = with_shares(every, layout)
    equal, results_table = compared(layout, every, compiled)
    findings = [
        *unused_donations(every, compiled.partitioner),
        *dropped_donations(table),
        *([] if equal is not False else [bytes_differ(every, compiled)]),
    ]
    return Memory(compiled, tuple(every), groups(every), results_table, equal, tuple(findings))


_Row: TypeAlias = tuple[HeldKind, int, Tensor]


def _rows(table: TensorTable, compiled: Compiled) -> list[_Row]:
    """Arguments and results of the module in order, each with its number there."""
    found: list[_Row] = []
    for row in table.tensors:
        there = row.lowered.get(compiled.partitioner)
        if there is None or there.index is None:
            continue
        if row.kind == "argument" or row.kind == "result":
            found.append((row.kind, there.index, row))
    return sorted(found, key=lambda entry: entry[:2])
