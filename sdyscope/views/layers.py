"""Rows of repeated layers as one: ``params['layers'][{0..79}]['wq'] (80)``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, TypeVar

from sdyscope.snapshots.folding import expanded, fold, size
from sdyscope.snapshots.values import Key
from sdyscope.snapshots.write import template_text
from sdyscope.terminal.table import Cell

Cells: TypeAlias = tuple[Cell | str, ...]

#: From how many on rows are one: two layers are as soon read as the text that stands for them.
FEWEST = 3

#: Numbers of layers in what another cell says of a tensor: in its path, in its scope.
_LAYERS = re.compile(r"(?<=\[)\d+(?=\][\[.])|(?<=[A-Za-z_])\d+(?=[)/])")

_Looks = TypeVar("_Looks", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Folded:
    """Some items that look the same but for the numbers of layers.

    Attributes:
        name: what to call them: of several names the text that stands for all.
        members: which they are, by their places among all; in their order.
        is_one: whether they are told as one.
    """

    name: str
    members: tuple[int, ...]
    is_one: bool


def folded(
    names: Sequence[str], looks: Sequence[_Looks], kind: Literal["argument", "value"]
) -> list[Folded]:
    """Items with equal looks whose names differ in numbers of layers alone, in their order.

    Args:
        names: what each is called.
        looks: what it looks like, numbers of layers left out.
        kind: `argument` where names are pytree paths, `value` where they are scopes.
    """
    places: dict[Hashable, dict[str, list[int]]] = {}
    for place, (name, look) in enumerate(zip(names, looks, strict=True)):
        places.setdefault(look, {}).setdefault(name, []).append(place)
    rows: list[Folded] = []
    for of_look in places.values():
        counts = {Key(kind, name): len(there) for name, there in of_look.items()}
        left = dict(of_look)
        for key, template, count in fold(counts, last=True):
            if size(template) * count < FEWEST:
                continue
            # A template stands for names in the order of its numbers, and they for their places.
            own = [key.name] if size(template) == 1 else _names(template, left)
            members = sorted(place for name in own for place in left.pop(name))
            name = key.name if len(own) == 1 else template_text(template)
            rows.append(Folded(name, tuple(members), True))
        for name, there in left.items():
            rows += [Folded(name, (place,), False) for place in there]
    return sorted(rows, key=lambda row: row.members[0])


def _names(template: tuple[str | tuple[int, ...], ...], known: dict[str, list[int]]) -> list[str]:
    return [name for name in expanded(template) if name in known]


def masked(text: str) -> str:
    """A text in which the numbers of layers are ``*``."""
    return _LAYERS.sub("*", text)


def folded_rows(
    rows: Sequence[Cells], kind: Literal["argument", "value"], *, everything: bool
) -> Iterator[Cells]:
    """Rows, those that are the same as one, and those of repeated layers as one.

    Args:
        rows: each with its name first.
        kind: what the names are; see ``folded``.
        everything: whether repeated layers have a row each.
    """
    same = Counter(rows)
    each = list(same)
    names = [str(name) for name, *_ in each]
    known: dict[Cell | str, Cell | str] = {}

    def look(cells: Cells) -> Cells:
        # Rows share their cells' texts, tens of thousands of them.
        return tuple([known.get(cell) or known.setdefault(cell, _masked(cell)) for cell in cells])

    if everything:
        groups = [Folded(name, (place,), False) for place, name in enumerate(names)]
    else:
        looks = [(*look(row[1:]), same[row]) for row in each]
        groups = folded(names, looks, kind)
    for group in groups:
        first = each[group.members[0]]
        count = sum(same[each[place]] for place in group.members)
        if group.is_one:
            suffix = f" ({count:,})" if group.name != first[0] else f" (×{count:,})"
            yield (group.name + suffix, *look(first[1:]))
        else:
            yield (f"{group.name} (×{count:,})" if count > 1 else group.name, *first[1:])


def _masked(cell: Cell | str) -> Cell | str:
    return masked(cell) if isinstance(cell, str) else replace(cell, text=masked(cell.text))
