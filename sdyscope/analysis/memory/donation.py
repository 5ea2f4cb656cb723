"""Donation: which arguments and results share a buffer, and why a donated argument does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sdyscope.analysis.memory.held import Held
from sdyscope.facts.findings import Finding
from sdyscope.facts.program import Partitioner
from sdyscope.facts.tensors import TensorTable
from sdyscope.values.entry_layout import EntryLayout

__all__ = ["dropped_donations", "unused_donations", "with_shares"]


def with_shares(held: Sequence[Held], layout: EntryLayout) -> list[Held]:
    """The tensors, each with the one that lies in the same buffer of the compiled program."""
    names = {(one.kind, one.number): one.name for one in held}
    by_parameter = {parameter: result for result, parameter in layout.aliases.items()}
    made = []
    for one in held:
        if one.kind == "argument" and one.number in by_parameter:
            other = names.get(("result", by_parameter[one.number]), "")
            made.append(replace(one, shares=other, donated=True))
        elif one.kind == "result" and one.number in layout.aliases:
            made.append(
                replace(one, shares=names.get(("argument", layout.aliases[one.number]), ""))
            )
        elif one.kind == "argument" and one.number in layout.donors:
            made.append(replace(one, donated=True))
        else:
            made.append(one)
    return made


def unused_donations(held: Sequence[Held], partitioner: Partitioner | None) -> list[Finding]:
    """A finding for each donated argument whose buffer no result took, and why none did."""
    results = [one for one in held if one.kind == "result"]
    return [
        Finding(
            "donation-unused",
            "warning",
            f"It is donated, and its {one.stored.bytes:,} bytes a device are not used for a "
            f"result: {reason}",
            tensor=one.name,
            kind="argument",
            partitioner=partitioner,
            hint=hint,
        )
        for one in held
        if one.kind == "argument" and one.donated and not one.shares
        for reason, hint in [_why_unused(one, results)]
    ]


def _why_unused(one: Held, results: Sequence[Held]) -> tuple[str, str]:
    alike = [r for r in results if r.type == one.type]
    shape, dtype = one.type
    kind = f"{dtype}[{','.join(map(str, shape))}]"
    if not alike:
        return (
            f"no result is {kind}.",
            "Do not donate it, or return its next value.",
        )
    fitting = [r for r in alike if r.stored.shape == one.stored.shape]
    if not fitting:
        there = ", ".join(f"{r.name} is {_where(r)}" for r in alike[:3])
        return (
            f"no {kind} result is placed as it is, {_where(one)}: {there}.",
            "Give the result the argument's sharding (out_shardings, or a constraint).",
        )
    free = [r for r in fitting if not r.shares]
    if not free:
        count = "the only result" if len(fitting) == 1 else f"all {len(fitting)} results"
        return (
            f"{count} of its shape and placement, "
            f"{', '.join(r.name for r in fitting[:3])}, took another argument's buffer.",
            "Do not donate it.",
        )
    if all(r.placed != one.placed for r in free):
        there = ", ".join(f"{r.name} is {_where(r)}" for r in free[:3])
        return (
            f"no {kind} result is placed as it is, {_where(one)}: {there}.",
            "Give the result the argument's sharding (out_shardings, or a constraint).",
        )
    return (
        f"the compiler did not take it for {', '.join(r.name for r in free[:3])}.",
        "",
    )


def _where(one: Held) -> str:
    if one.sharding is not None:
        return str(one.sharding)
    return f"in blocks of [{','.join(map(str, one.stored.shape))}]"


def dropped_donations(table: TensorTable) -> list[Finding]:
    """A finding for each donated argument that the program does not use."""
    return [
        Finding(
            "donation-unused",
            "note",
            "It is donated, and the program does not use it: jit drops it, and its buffer is "
            "freed without being used.",
            tensor=row.name,
            kind="argument",
            hint="Do not pass it.",
        )
        for row in table.tensors
        if row.kind == "argument"
        and row.requested is not None
        and row.requested.donated
        and row.requested.dropped
    ]
