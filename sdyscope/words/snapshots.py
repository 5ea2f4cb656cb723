"""What snapshots say, and what two of them say differently."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from sdyscope.facts.snapshots import Item
from sdyscope.words.counts import counted
from sdyscope.words.mesh import axis_text

#: What a page of two snapshots has not, and what makes it.
NO_VIEWS = (
    "A snapshot has shardings, not the program: sdyscope report A B shows the graph, memory and "
    "other views of both."
)

#: What two snapshots have alike.
IN_BOTH: Final = "the same in both"


def things_text(count: int) -> str:
    """``36 tensors or collectives``: what a snapshot has."""
    return f"{counted(count, 'tensor')} or {'collective' if count == 1 else 'collectives'}"


def header_text(word: str, text: str) -> str:
    """What a snapshot says of the whole program; a compiled program's text does not know it all.

    Args:
        word: what is said: ``mesh``, ``partitioners``, ``stages`` or ``hardware``.
        text: it; empty where there is nothing.
    """
    return text or ("not known" if word in ("partitioners", "hardware") else "none")


def snapshot_name(name: str) -> str:
    """A tensor's name; in a file a point is the program itself."""
    return "the top of the program" if name == "." else name


def stage_texts(items: Iterable[Item]) -> dict[str, str]:
    """What each stage says, by its name and the partitioner that it is about."""
    texts: dict[str, str] = {}
    for item in items:
        count = f"×{item.count} " if item.count > 1 else ""
        for cell in item.cells:
            key = f"{cell.stage} {cell.partitioner}:" if cell.partitioner else cell.stage
            texts[key] = count + cell.text
    return texts


def item_text(item: Item) -> str:
    """All that is said of some tensors alike: ``×2 requested P('data'); lowered P('data')``."""
    count = f"×{item.count} " if item.count > 1 else ""
    if item.places:
        on = f" on {','.join(item.on)}" if item.on else ""
        count = f"×{item.count} (places {places_text(item.places)}{on}) "
    labels = (f"{c.stage} {c.partitioner}:" if c.partitioner else c.stage for c in item.cells)
    cells = zip(labels, item.cells, strict=True)
    return count + "; ".join(f"{label} {cell.text}" for label, cell in cells)


def differing_texts(before: Sequence[Item], after: Sequence[Item]) -> tuple[str, str]:
    """What two snapshots say of the same tensors, without what both say."""
    if max(len(before), len(after)) == 1:
        old, new = stage_texts(before), stage_texts(after)
        return _without(old, new), _without(new, old)
    return (
        "; ".join(item_text(item) for item in before if item not in after),
        "; ".join(item_text(item) for item in after if item not in before),
    )


def _without(texts: Mapping[str, str], others: Mapping[str, str]) -> str:
    return "; ".join(f"{key} {text}" for key, text in texts.items() if others.get(key) != text)


def places_text(places: Sequence[int]) -> str:
    """Ascending numbers in runs, as a file has them: ``1,4..6,8..20/2``, the last every second."""
    runs: list[list[int]] = []
    for place in places:
        if runs and (len(runs[-1]) == 1 or place - runs[-1][-1] == runs[-1][1] - runs[-1][0]):
            runs[-1].append(place)
        else:
            runs.append([place])
    return ",".join(map(_run, runs))


def _run(run: Sequence[int]) -> str:
    if len(run) < 3:
        return ",".join(map(str, run))
    step = run[1] - run[0]
    return f"{run[0]}..{run[-1]}" + (f"/{step}" if step > 1 else "")


def comparison_text(same: int, different: int, header: Sequence[str], alike: str) -> str:
    """What two snapshots of a program come to, a clause.

    Args:
        same: how many tensors and groups of collectives are the same.
        different: how many are not.
        header: what of the whole program differs: ``mesh``.
        alike: what is said of what is the same: ``as before``.
    """
    if not (different or header):
        return f"{things_text(same)}, all {alike}"
    if different:
        changed = f"{things_text(different)} {'differs' if different == 1 else 'differ'}"
    else:
        # Written on other axes, or for another size of them, nothing else need read otherwise.
        changed = f"{' and '.join(header)} changed"
    return f"{changed}, {same:,} {'is' if same == 1 else 'are'} {alike}"


def uncompared_parts_text(what: Iterable[str]) -> str:
    """What was not compared, a sentence without its period."""
    names = " and ".join(_NOT_COMPARED.get(part, part) for part in what)
    return f"not compared: {names}, which one side does not have"


def renamed_axes_text(names: Mapping[str, str]) -> str:
    """By which names axes were compared, a sentence without its period."""
    changed = {name: other for name, other in names.items() if name != other}
    was, now = (", ".join(map(axis_text, part)) for part in (changed, changed.values()))
    return f"compared with {was} called {now}, as the sizes are the same"


_NOT_COMPARED: Final[Mapping[str, str]] = {
    "places": "the order of constraints",
    "devices": "the order of devices in collectives",
    "on": "the values that constraints of one scope stand on",
}


def snapshots_title(labels: tuple[str, str], same: int, different: int, *, equal: bool) -> str:
    """What two snapshot files come to, a sentence.

    Args:
        labels: what the two are called.
        same: how many tensors and groups of collectives are the same in both.
        different: how many are not.
        equal: whether the files say the same of the same programs.
    """
    a, b = labels
    if equal:
        return f"The same in {a} and {b}: {things_text(same)}."
    if different:
        verb = "differs" if different == 1 else "differ"
        return f"{different:,} of {things_text(same + different)} {verb} in {a} and {b}."
    return f"{a} and {b} differ."
