"""The tensors of the report: every value of the program through the stages, a row each."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sdyscope.analysis.memory.memory import Held
from sdyscope.analysis.propagation.propagate import ProgramValue
from sdyscope.analysis.run.values import Executed
from sdyscope.analysis.show import ShownTensor
from sdyscope.analysis.verdicts import verdict_on
from sdyscope.errors import SdyscopeError
from sdyscope.facts.decided import AxisOrigin
from sdyscope.facts.measured import Measured
from sdyscope.facts.program import Partitioner
from sdyscope.page.columns import Pool, table
from sdyscope.page.document import Report
from sdyscope.terminal.document import plain
from sdyscope.words.memory import held_text
from sdyscope.words.mesh import axis_text
from sdyscope.words.places import shown_name
from sdyscope.words.propagation import FOLLOWED
from sdyscope.words.rates import time_text
from sdyscope.words.remarks import remark_texts
from sdyscope.words.sharding import AT_MOST

#: Tensors of `show` that propagation has as values inside.
_INSIDE = ("op", "inner argument", "inner result")


@dataclass
class Row:
    """A row of the table: what the address calls it, and its documents."""

    key: str
    section: str
    name: str
    tensor: ShownTensor | None
    value: ProgramValue | None
    held: dict[Partitioner, Held] = field(default_factory=dict)
    executed: dict[Partitioner, Executed] = field(default_factory=dict)


def part(report: Report, pool: Pool) -> dict[str, Any]:
    """The columns of the table; `reports/js/tensors/view.js` shows them.

    Args:
        report: the inspection.
        pool: takes the shardings and source lines.

    Raises:
        SdyscopeError: it is a compiled program's text.
    """
    listed = list(rows(report))
    lowered = {
        p: [r.tensor.lowered.get(p) if r.tensor else None for r in listed] for p in _of(report)
    }
    decided = {
        p: [r.value.propagated.get(p) if r.value else None for r in listed] for p in _of(report)
    }
    columns: dict[str, Any] = {
        "key": (row.key for row in listed),
        "section": (row.section for row in listed),
        "name": (row.name for row in listed),
        "kind": (_shown(row).kind for row in listed),
        "op": (row.value.primitive if row.value else "" for row in listed),
        "ssa": (row.value.ssa if row.value else "" for row in listed),
        "dtype": (_shown(row).dtype for row in listed),
        "shape": (_shown(row).shape for row in listed),
        "bytes": (_shown(row).bytes for row in listed),
        "source": (pool.source(_shown(row).source) for row in listed),
        "donated": (int(row.tensor is not None and row.tensor.donated) for row in listed),
        "requested": (pool.sharding(_shown(row).requested) for row in listed),
        "verdict": (verdict_on(row.tensor, row.value) for row in listed),
        "notes": (remark_texts(row.tensor.notes) if row.tensor else () for row in listed),
    }
    for p in _of(report):
        columns[f"lowered.{p}"] = (pool.sharding(said) for said in lowered[p])
        columns[f"lowered.{p}.agrees"] = (
            None if row.tensor is None else row.tensor.agrees.get(p) for row in listed
        )
        if any(decided[p]):
            columns[f"propagated.{p}"] = (
                None if said is None else pool.sharding(said.sharding) for said in decided[p]
            )
            columns[f"propagated.{p}.agrees"] = (
                None if row.value is None else row.value.as_requested.get(p) for row in listed
            )
            columns[f"propagated.{p}.fate"] = (said.fate if said else "" for said in decided[p])
            columns[f"propagated.{p}.merged"] = (
                said.merged_with if said else () for said in decided[p]
            )
            columns[f"propagated.{p}.origins"] = (
                tuple(_origin(origin, pool) for origin in said.origins) if said else ()
                for said in decided[p]
            )
        if any(p in row.held for row in listed):
            columns[f"compiled.{p}"] = (_held(row.held.get(p)) for row in listed)
        if any(p in row.executed for row in listed):
            columns[f"executed.{p}"] = (_executed(row.executed.get(p)) for row in listed)
    if report.profile is not None:
        columns["time"] = _times(listed, report.profile.measured)
    return {
        "partitioners": list(_of(report)),
        "stages": {
            "requested": any(row.tensor is not None and row.tensor.by_author for row in listed),
            "propagated": [p for p in _of(report) if any(decided[p])],
            "compiled": [p for p in _of(report) if any(p in row.held for row in listed)],
            "executed": [p for p in _of(report) if any(p in row.executed for row in listed)],
        },
        "atMost": AT_MOST,
        **table(columns),
    }


def _times(listed: Sequence[Row], measured: Measured) -> Iterator[tuple[float, str, int] | None]:
    """What the instructions that have the name of a value take in a step, and of how many values.

    Instructions that the compiler made of several ops are named after one of them.
    """
    seconds: dict[tuple[str, str], float] = defaultdict(float)
    for op in measured.ops:
        seconds[op.scope, op.primitive] += op.seconds
    names = Counter((row.value.name, row.value.primitive) for row in listed if row.value)
    for row in listed:
        name = ("", "") if row.value is None else (row.value.name, row.value.primitive)
        known = seconds.get(name) if name[1] else None
        yield None if known is None else (known, time_text(known), names[name])


def _origin(origin: AxisOrigin, pool: Pool) -> tuple[str, str, str, int | None, str]:
    """Axis, what is annotated, its name and line, and how it is known if not recorded."""
    followed = "" if origin.recorded else FOLLOWED
    kind, source = origin.kind or "", pool.source(origin.source)
    return axis_text(origin.axis), kind, origin.name, source, followed


def _of(report: Report) -> tuple[Partitioner, ...]:
    return report.partitioners


def _shown(row: Row) -> ShownTensor | ProgramValue:
    shown = row.tensor if row.tensor is not None else row.value
    assert shown is not None
    return shown


def _held(held: Held | None) -> tuple[Any, ...] | None:
    """Sharding, block, layout, bytes stored, replicas, and what shares the buffer."""
    if held is None:
        return None
    stored = held.stored
    return (held_text(held), stored.shape, stored.layout, stored.bytes, held.replicas, held.shares)


def _executed(executed: Executed | None) -> tuple[str, str, str] | None:
    """Verdict, sharding, and placement in words; of a run that was read likewise."""
    if executed is None:
        return None
    there = plain(executed.sharding)
    if there is None:
        return executed.verdict, "", ""
    return executed.verdict, there["short"], there["placement"]["words"]


def rows(report: Report) -> Iterator[Row]:
    """Tensors as `show` has them, each with its value; then all other values.

    Raises:
        SdyscopeError: it is a compiled program's text.
    """
    if report.show is None:
        raise SdyscopeError(
            "The text of a compiled program has no tensors of the program: Memory lists what a "
            "device has of its arguments and results."
        )
    tensors = report.show.tensors
    values = list(report.propagate.values) if report.propagate is not None else []
    named = [tensor for tensor in tensors if tensor.kind not in _INSIDE]
    # `propagate` lists the same tensors in the same order first.
    paired = dict(zip(map(id, named), values, strict=False)) if values else {}
    keys = _Keys()
    held = _held_by_name(tensors, report)
    executed: dict[tuple[str, int | None], dict[Partitioner, Executed]] = {
        (tensor.kind, tensor.index): tensor.executed
        for tensor in (report.run.tensors if report.run is not None else ())
    }
    for tensor in tensors:
        if values and tensor.kind in _INSIDE:
            continue
        value = paired.get(id(tensor))
        yield Row(
            keys.unique(_key(tensor, value)),
            _section(tensor),
            shown_name(tensor.name, tensor.kind, tensor.mapped) or tensor.kind,
            tensor,
            value,
            held.get((tensor.kind, tensor.index), {}),
            executed.get((tensor.kind, tensor.index), {}),
        )
    for value in values[len(named) :]:
        yield Row(keys.unique(value.ssa or value.name), "inside", value.name, None, value)


def _key(tensor: ShownTensor, value: ProgramValue | None) -> str:
    """What the address calls it: its path, or its SSA name."""
    if tensor.kind in ("argument", "result"):
        return tensor.name or f"{tensor.kind} {tensor.index}"
    if value is not None and value.ssa and not tensor.kind.startswith("shard_map"):
        return value.ssa
    return tensor.name


class _Keys:
    """Makes names unique, in the order in which they come."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}

    def unique(self, key: str) -> str:
        number = self._taken[key] = self._taken.get(key, 0) + 1
        if number == 1:
            return key
        return self.unique(f"{key}@{number}")


def _held_by_name(
    tensors: Sequence[ShownTensor], report: Report
) -> Mapping[tuple[str, int | None], dict[Partitioner, Held]]:
    """What is held of each argument and result that was not dropped, by its flat index."""
    indices: dict[tuple[str, str], int | None] = {}
    for tensor in tensors:
        if tensor.kind in ("argument", "result"):
            indices.setdefault((tensor.kind, tensor.name), tensor.index)
    held_by_partitioner: dict[tuple[str, int | None], dict[Partitioner, Held]] = {}
    for compiled in report.memory.compiled if report.memory is not None else ():
        for held in compiled.tensors:
            index = indices.get((held.kind, held.name))
            if index is not None:
                assert compiled.partitioner is not None
                held_by_partitioner.setdefault((held.kind, index), {})[compiled.partitioner] = held
    return held_by_partitioner


def _section(tensor: ShownTensor) -> str:
    if tensor.kind in ("argument", "result"):
        return tensor.kind
    return "inside" if tensor.kind in _INSIDE else "constraint"
