"""A rule about copies that a collective makes necessary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sdyscope.analysis.collectives.layout_copies import LayoutCopy, layout_copies
from sdyscope.analysis.collectives.totals import Collective, Part
from sdyscope.analysis.cost.roofline import memory
from sdyscope.analysis.cost.work import count_work
from sdyscope.facts.lint import SIDES, LayoutCopied
from sdyscope.graph import OpGraph
from sdyscope.graph.summed_dims import summed_dims
from sdyscope.lint.rule import FEW_BYTES, Sighting, rule
from sdyscope.lint.subject import Subject

#: Copies that are a smaller part of what a device reads and writes in a step are not worth a word.
_WORTH = 0.05

#: What works on whole dimensions or takes their elements by index, instead of a sum of parts.
_WHOLE = frozenset(
    {
        *("cholesky", "eig", "eigh", "fft", "lu", "qr", "sort", "svd", "top_k", "triangular_solve"),
        *("dynamic_slice", "dynamic_update_slice", "gather", "scatter"),
    }
)


@rule("layout-copied", "note", needs="compiled")
def layout_copied(subject: Subject) -> Iterator[Sighting]:
    """A tensor is copied into another layout for a collective.

    A collective sends what lies together in memory. Where blocks are gathered or exchanged along a
    dimension that is not the outermost one, they lie apart: the compiler has the collective work in
    another layout than the ops around it, and copies its operand, its result, or both. Each copy
    reads and writes all of it once more. Shard the dimension that is outermost in memory, which is
    the first one unless the compiler or `jax.experimental.layout` chose otherwise, or let the op
    that takes the result contract the sharded dimension.

    Found by the copies that are right before or behind a collective of the compiled program, alone
    or in a fusion. Not reported are copies that put the pieces of an all-to-all together, those of
    less than 64 KiB per step, and those that read and write less than 5% of what a device reads
    and writes in the step, as `sdyscope cost` counts it. On a TPU small transposes are often free.
    """
    names = {collective.name: collective for collective in subject.collectives.collectives}
    copies = list(layout_copies(subject.hlo, names))
    copied = sum(copy.bytes for copy in copies)
    if copied < FEW_BYTES:
        return
    by_xla = (subject.compiled.cost or {}).get("bytes accessed")
    step = memory(count_work(subject.hlo), by_xla, None, 1).bytes
    if 2 * copied < _WORTH * step:
        return
    # XLA can name a collective after another op than the one that needs it: its origin says that.
    by_name = {each.name: each for each in subject.explained_collectives.collectives}
    groups: dict[tuple[object, ...], list[tuple[Collective, LayoutCopy]]] = {}
    for copy in copies:
        collective = by_name[copy.collective]
        part = collective.largest
        where: object = part.source or (part.scope, part.primitive)
        groups.setdefault((collective.kind, collective.axes, where), []).append((collective, copy))
    seen: dict[object, set[int | None]] = {}
    for (*_, where), members in sorted(groups.items(), key=lambda group: -_total(group[1])):
        total = _total(members)
        collective, copy = max(members, key=lambda pair: pair[1].bytes)
        # Of a tensor that is gathered along two dimensions, each would be better off as the other.
        if copy.around[-1] in seen.get(where, ()):
            continue
        # A copy reads and writes.
        if total >= FEW_BYTES and 2 * total >= _WORTH * step:
            seen.setdefault(where, set()).add(copy.dimension)
            yield _seen(subject, collective, copy, members, step)


def _total(members: Sequence[tuple[Collective, LayoutCopy]]) -> int:
    return sum(copy.bytes for _, copy in members)


def _seen(
    subject: Subject,
    collective: Collective,
    copy: LayoutCopy,
    members: Sequence[tuple[Collective, LayoutCopy]],
    step: float,
) -> Sighting:
    part, outermost = collective.largest, copy.around[-1]
    (block,) = collective.largest.shapes[:1]
    fact = LayoutCopied(
        subject.sending([collective]),
        tuple(side for side in SIDES if any(each.side == side for _, each in members)),
        _total(members),
        2 * _total(members) / step,
        copy.dimension,
        outermost,
        block.dimensions[outermost] % (collective.group_size or 1) == 0,
        collective.kind == "all-gather"
        and part.primitive not in _WHOLE
        and not _is_contracted(subject.graph, part, copy.dimension),
    )
    return subject.at_part(part, collective.name, fact)


def _is_contracted(graph: OpGraph, part: Part, dimension: int | None) -> bool:
    """Whether an op that a tensor may be for contracts a dimension of it already."""
    rank = len(part.shapes[0].dimensions)
    for path in part.tags:
        given = graph.operand_values[path[-1]]
        for number, (node, result) in enumerate(given):
            shape = graph.ops[node].types[result].shape or ()
            summed = summed_dims(graph.ops[path[-1]], number, rank, len(given)) or ()
            if len(shape) == rank and dimension in summed:
                return True
    return False
