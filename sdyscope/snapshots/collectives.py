"""The collectives of a compiled program, by what they are made for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from hashlib import sha256

from sdyscope.analysis.collectives.routes import Route, route_of
from sdyscope.analysis.collectives.totals import Collective, Collectives, Part, with_part
from sdyscope.facts.program import Partitioner
from sdyscope.facts.snapshots import Item, StageText
from sdyscope.facts.traffic import Tally
from sdyscope.snapshots.inside import scope_name
from sdyscope.snapshots.items import DEVICES, compiled_cells
from sdyscope.snapshots.values import Key
from sdyscope.values.mesh import Mesh
from sdyscope.words.counts import counted
from sdyscope.words.mesh import axes_text


def communicated(
    compiled: Mapping[Partitioner | None, Collectives],
    partitioners: Collection[Partitioner | None],
) -> Iterator[tuple[Key, Item]]:
    """What a device sends in a step, by kind, axes, scope and type.

    Tensors are counted, not collectives: how XLA joins several in one is left out.

    Args:
        compiled: the collectives of the compiled programs; by None those of a text.
        partitioners: those of the snapshot, compiled or not.
    """
    tallies: dict[Key, dict[Partitioner | None, Tally]] = {}
    routes: dict[Key, dict[Partitioner | None, Counter[Route]]] = {}
    for partitioner, collectives in compiled.items():
        for collective in collectives.collectives:
            over = _over(collective, collectives.mesh)
            for part in collective.parts:
                key = Key("collective", _scope(part), _type(part), over)
                of_key = tallies.setdefault(key, {})
                tally = of_key.get(partitioner, Tally())
                of_key[partitioner] = with_part(tally, collective, part, True)
                of_partitioner = routes.setdefault(key, {}).setdefault(partitioner, Counter())
                of_partitioner[route_of(collective)] += collective.count
        if count := collectives.not_understood_count:
            text = f"{counted(count, 'line')} of the compiled program"
            cell = StageText("compiled", text, partitioner)
            yield Key("not understood", "compiled program"), Item((cell,))
    for key, of_key in tallies.items():
        texts = {
            partitioner: _words(tally, routes[key][partitioner])
            for partitioner, tally in of_key.items()
        }
        yield key, Item(compiled_cells(texts, partitioners))


def _scope(part: Part) -> str:
    return "/".join(word for word in (scope_name(part.scope), part.primitive) if word)


def _type(part: Part) -> str:
    # How XLA lays an array out is no matter of sharding.
    return ", ".join(str(replace(leaf, layout="")) for leaf in part.shape.leaves)


def _over(collective: Collective, mesh: Mesh | None) -> str:
    if collective.axes:
        return f"{collective.kind} over {axes_text(collective.axes, mesh)}"
    if collective.axes is None and collective.group_size is not None:
        return f"{collective.kind} in groups of {collective.group_size:,}"
    return collective.kind


def _words(tally: Tally, routes: Counter[Route]) -> str:
    text = f"{tally.tensors:,} × per step, a device sends {tally.sent:,} B"
    if None in routes:
        return text
    counts = Counter[str]()
    for route, count in routes.items():
        counts[_route(route)] += count
    if len(counts) == 1:
        return f"{text}{DEVICES}{next(iter(counts))}"
    ways = (f"{way} ×{count:,}" for way, count in sorted(counts.items()))
    return f"{text}{DEVICES}{', '.join(ways)}"


def _route(route: Route) -> str:
    """``in order``, ``in the order 1-0``, or eight hexadecimal digits for groups or pairs."""
    if isinstance(route, tuple):
        return f"in the order {'-'.join(map(str, route))}" if route else "in order"
    text = route if isinstance(route, str) else str(sorted(route or ()))
    return sha256(text.encode()).hexdigest()[:8]
