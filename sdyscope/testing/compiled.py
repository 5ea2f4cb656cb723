"""What a compiled program may send and hold: ``assert_no_collectives``, ``assert_max_bytes``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from sdyscope.analysis.budgets import Budgets, CommunicationLimit, communication_spent
from sdyscope.analysis.collectives.totals import Collective, Collectives
from sdyscope.errors import TargetError
from sdyscope.facts.program import Partitioner
from sdyscope.facts.traffic import KINDS
from sdyscope.hardware.names import Hardware
from sdyscope.hardware.rates import parse_size
from sdyscope.inspection import Inspection
from sdyscope.values.mesh import Mesh
from sdyscope.words.counts import size
from sdyscope.words.findings import finding_of
from sdyscope.words.mesh import along_text
from sdyscope.words.origins import origin_text
from sdyscope.words.places import source_text

if TYPE_CHECKING:
    from sdyscope.analysis.memory.memory import Held, Memory

#: How many collectives or tensors a failure names.
_NAMED = 5


def assert_no_collectives(
    inspection: Inspection,
    /,
    *,
    kind: str | Sequence[str] | None = None,
    axis: str | Sequence[str] | None = None,
    partitioner: Partitioner | None = None,
    on: Hardware | str | None = None,
) -> None:
    """Fails if the compiled program communicates: at all, in some way, or over some mesh axis.

    Args:
        inspection: the program.
        kind: which collectives it must not have, such as ``all-gather``; by default all.
        axis: over which mesh axes it must not; by default over any.
        partitioner: under which; by default the first that the program is lowered under.
        on: what to compile for, such as ``tpu:v5e:4x4``; by default virtual CPU devices.

    Raises:
        AssertionError: it does; says which collectives, over which axes, how much, where and why.
            Also where a collective's axes can't be told, or some lines could not be read.
        TargetError: there is no such kind or axis, or no such hardware.
        CompilerError: the program can't be compiled.
    """
    __tracebackhide__ = True
    collectives = inspection.collectives(partitioner, on)
    kinds, axes = _listed(kind), _listed(axis)
    for name in kinds:
        if name not in KINDS:
            raise TargetError(f"There is no collective {name!r}.", hint=f"Give {', '.join(KINDS)}.")
    _check_axes(inspection, axes)
    left = [
        collective for collective in collectives.collectives if _is_meant(collective, kinds, axes)
    ]
    if not left and not collectives.not_understood_count:
        return
    what = f"{' or '.join(kinds) if kinds else 'collectives'}"
    over = f" over {' or '.join(axes)}" if axes else ""
    lines = []
    if left:
        count = sum(collective.count for collective in left)
        lines.append(
            f"expected no {what}{over} in {inspection.name}, found {count:,}, with which a device "
            f"sends {size(sum(collective.sent for collective in left))} per step:"
        )
        lines += _communicated(left, collectives.mesh)
    if collectives.not_understood_count:
        lines.append(
            f"{collectives.not_understood_count:,} lines of the compiled program could not be "
            f"read, so it can't be said that it has no {what}{over}"
        )
    raise AssertionError("\n".join(lines))


def assert_max_bytes(
    inspection: Inspection,
    /,
    *,
    arguments: int | str | None = None,
    results: int | str | None = None,
    temporaries: int | str | None = None,
    replicated: int | str | None = None,
    sent: int | str | None = None,
    partitioner: Partitioner | None = None,
    on: Hardware | str | None = None,
) -> None:
    """Fails if a device holds or sends more than it may; a size is a number or such as ``"16GiB"``.

    Args:
        inspection: the program.
        arguments: bytes of arguments that a device holds, as the compiler stores them.
        results: bytes of results, those in the buffers of donated arguments included.
        temporaries: bytes that the compiler needs besides, at their largest.
        replicated: bytes of arguments that a device would not hold if there were one copy of each.
        sent: bytes that a device sends in a step.
        partitioner: under which; by default the first that the program is lowered under.
        on: what to compile for; by default virtual CPU devices.

    Raises:
        AssertionError: it does; says how much it is, and which tensors or collectives are largest.
            Also where what is sent can't be said for sure: in a loop that runs an unknown number of
            times, or where some lines could not be read.
        TargetError: nothing is limited, a size is none, or the compiler does not say.
        CompilerError: the program can't be compiled.
    """
    __tracebackhide__ = True
    given = {
        "arguments": arguments,
        "results": results,
        "temporaries": temporaries,
        "replicated": replicated,
        "sent": sent,
    }
    limits = {word: _bytes(word, limit) for word, limit in given.items() if limit is not None}
    if not limits:
        raise TargetError("Nothing is limited.", hint=f"Give one of {', '.join(given)}.")
    lines: list[str] = []
    if limits.keys() - {"sent"}:
        lines += _held(inspection.memory(partitioner, on), limits)
    if "sent" in limits:
        collectives = inspection.collectives(partitioner, on)
        if collectives.total.sent > limits["sent"]:
            lines.append(
                _over("sent", collectives.total.sent, limits["sent"], "a device sends per step")
            )
            lines += _communicated(collectives.collectives, collectives.mesh)
        else:
            lines += _uncertain(collectives, limits["sent"], inspection.chosen(partitioner))
    if lines:
        raise AssertionError("\n".join([f"{inspection.name} exceeds its limits:", *lines]))


def _uncertain(collectives: Collectives, limit: int, partitioner: Partitioner) -> Iterator[str]:
    """Why it is not known that no more is sent; nothing where it is."""
    budgets = Budgets(communication=(CommunicationLimit(bytes=limit),))
    (spent,) = communication_spent(budgets, collectives, partitioner)
    doubts = [finding_of(observation).message for observation in spent.findings]
    if doubts:
        known = f"{size(collectives.total.sent)} are known of, at most {size(limit)} expected"
        yield f"sent: it can't be said that a device sends no more: {known}"
        yield from (f"  {doubt}" for doubt in doubts)
        left = [each for each in collectives.collectives if each.unknown_trips]
        yield from _communicated(left, collectives.mesh)


def _listed(words: str | Sequence[str] | None) -> tuple[str, ...]:
    return () if words is None else (words,) if isinstance(words, str) else tuple(words)


def _check_axes(inspection: Inspection, axes: Sequence[str]) -> None:
    if not axes:
        return
    meshes = inspection.meshes.values()
    known = list(dict.fromkeys(axis.name for mesh in meshes for axis in mesh.axes))
    for axis in axes:
        if axis not in known:
            has = f"It has {', '.join(known)}." if known else "It has no mesh."
            raise TargetError(f"The program has no mesh axis {axis!r}.", hint=has)


def _is_meant(collective: Collective, kinds: Sequence[str], axes: Sequence[str]) -> bool:
    if kinds and collective.kind not in kinds:
        return False
    # Of groups that are no axes it can't be said that they are not these.
    return not axes or collective.axes is None or any(ref.name in axes for ref in collective.axes)


def _communicated(some: Sequence[Collective], mesh: Mesh | None) -> Iterator[str]:
    largest = sorted(some, key=lambda collective: -collective.sent)
    for collective in largest[:_NAMED]:
        part = collective.largest
        along = along_text(collective.axes, mesh, collective.group_size)
        words = [f"  {collective.kind} {along} of {part.shape}"]
        words.append(f"{collective.count:,} ×, {size(collective.sent)}")
        if len(collective.parts) > 1:
            words.append(f"with {len(collective.parts) - 1:,} more tensors")
        yield " ".join(words)
        place = source_text(part.source)
        if part.path or place:
            yield f"    for {' at '.join(filter(None, (part.path, place)))}"
        if part.origin is not None:
            yield f"    because {origin_text(part.origin)}"
    if len(largest) > _NAMED:
        rest = largest[_NAMED:]
        yield f"  and {len(rest):,} more, {size(sum(collective.sent for collective in rest))}"


def _bytes(word: str, limit: int | str) -> int:
    if isinstance(limit, str):
        return 0 if limit.strip() == "0" else parse_size(limit)
    if limit < 0:
        raise TargetError(f"{word} is limited to {limit} bytes, which is negative.")
    return int(limit)


def _over(word: str, used: int, limit: int, what: str) -> str:
    return f"{word}: {size(used)} {what}, at most {size(limit)} expected ({used:,} > {limit:,} B)"


def _held(memory: Memory, limits: dict[str, int]) -> Iterator[str]:
    by_kind = {
        kind: [tensor for tensor in memory.tensors if tensor.kind == kind]
        for kind in ("argument", "result")
    }
    sums: tuple[tuple[str, str, Callable[[Held], int], str], ...] = (
        ("arguments", "argument", lambda held: held.stored.bytes, "a device holds"),
        ("results", "result", lambda held: held.stored.bytes, "a device holds"),
        (
            "replicated",
            "argument",
            lambda held: held.replicated,
            "a device holds of further replicas",
        ),
    )
    for word, kind, count, what in sums:
        used = sum(map(count, by_kind[kind]))
        if word in limits and used > limits[word]:
            yield _over(word, used, limits[word], what)
            yield from _largest(by_kind[kind], count)
    if "temporaries" in limits:
        said = memory.compiled.memory
        if said is None:
            raise TargetError("The compiler for this hardware does not say what temporaries take.")
        if said.temporaries > limits["temporaries"]:
            what = "the compiler needs on a device"
            yield _over("temporaries", said.temporaries, limits["temporaries"], what)


def _largest(held: Sequence[Held], count: Callable[[Held], int]) -> Iterator[str]:
    largest = sorted(
        (tensor for tensor in held if count(tensor)), key=lambda tensor: -count(tensor)
    )
    for tensor in largest[:_NAMED]:
        spec = "placed by the compiler" if tensor.sharding is None else str(tensor.sharding.spec)
        shape = ",".join(map(str, tensor.type[0]))
        replicas = f", {tensor.replicas:,} replicas" if (tensor.replicas or 1) > 1 else ""
        yield f"  {tensor.name} {tensor.dtype}[{shape}] {spec}{replicas}: {size(count(tensor))}"
        if tensor.best is not None:
            yield f"    could be {tensor.best}, which saves {size(tensor.saves)}"
    if len(largest) > _NAMED:
        rest = sum(map(count, largest[_NAMED:]))
        yield f"  and {len(largest) - _NAMED:,} more, {size(rest)}"
