"""The memory of the report: what a device holds, by group, and what could be held by others."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from sdyscope.analysis.memory.memory import Held, Memory
from sdyscope.errors import SdyscopeError
from sdyscope.page.columns import Pool
from sdyscope.page.document import Report
from sdyscope.views.memory import remarks
from sdyscope.words.memory import agreement_text, results_table_text

_INDEX = re.compile(r"\[\d+\]")

#: How many members of a suggestion are listed.
MEMBERS = 200

#: What of the compiler's notes is for those who ask for costs.
_COSTS = "cost analysis"


def part(report: Report, pool: Pool) -> dict[str, Any]:
    """The bars, groups and suggestions; `reports/js/memory/view.js` shows them.

    Args:
      report: the inspection as a document.
      pool: not needed.

    Raises:
      SdyscopeError: nothing was compiled.
    """
    if report.memory is None:
        reasons = [one.reason for one in report.unavailable if one.stage == "compiled"]
        raise SdyscopeError(" ".join(["Memory is not known.", *reasons[:1]]))
    return {
        "programs": [_program(one) for one in report.memory.compiled],
        "failures": list(report.memory.account.refused.items()),
    }


def _program(one: Memory) -> dict[str, Any]:
    said = one.compiler
    beyond = [tensor for tensor in one.tensors if tensor.replicated and not tensor.best]
    return {
        "partitioner": one.partitioner,
        "hardware": str(one.hardware),
        "deviceKind": one.device_kind,
        "devices": one.devices,
        "needs": None
        if said is None
        else {
            "arguments": said.arguments,
            "outputs": said.outputs - said.aliases,
            "aliased": said.aliases,
            "temporaries": said.temporaries,
            "code": said.generated_code,
            "peak": said.peak,
            "total": said.total,
        },
        "equal": one.equal,
        "groups": [
            {
                "kind": group.kind,
                "name": group.title,
                "tensors": group.tensors,
                "bytes": group.bytes,
                "device": group.bytes_per_device,
                "stored": group.stored,
                "replicated": group.replicated,
                "shared": group.shared,
            }
            for group in one.groups
        ],
        "savings": list(_savings(one)),
        "beyond": {
            "tensors": len(beyond),
            "replicated": sum(tensor.replicated for tensor in beyond),
        },
        "remarks": list(map(_sentence, _remarks(one))),
        "notes": [note for note in one.notes if _COSTS not in note],
    }


def _remarks(one: Memory) -> Iterator[str]:
    if one.equal is False:
        yield agreement_text(one.equal)
    yield from (text for text, _ in remarks(one))
    if one.results_table:
        yield results_table_text(one.results_table)


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def _savings(one: Memory) -> Iterator[dict[str, Any]]:
    """What could be sharded further; the tensors of layers that are placed alike are one row."""
    wanted = set(one.savings)
    found: dict[tuple[object, ...], list[Held]] = defaultdict(list)
    for tensor in one.tensors:
        if tensor.name in wanted and tensor.best:
            name = _INDEX.sub("[*]", tensor.name)
            sharding = str(tensor.sharding)
            key = (tensor.kind, name, tensor.shape, tensor.dtype, sharding, tensor.best)
            found[key].append(tensor)
    for members in sorted(found.values(), key=lambda group: -sum(each.saves for each in group)):
        first = members[0]
        yield {
            "name": first.name if len(members) == 1 else _INDEX.sub("[*]", first.name),
            "kind": first.kind,
            "tensors": len(members),
            "names": [tensor.name for tensor in members[:MEMBERS]],
            "shape": first.shape,
            "dtype": first.dtype,
            "sharding": str(first.sharding),
            "replicas": first.replicas,
            "best": str(first.best),
            "device": sum(tensor.bytes_per_device for tensor in members),
            "saves": sum(tensor.saves for tensor in members),
            "options": [(option.dim, option.axis, option.saves) for option in first.options],
        }
