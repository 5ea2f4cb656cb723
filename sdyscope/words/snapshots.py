"""What snapshots say, and what two of them say differently."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from sdyscope.words.counts import counted


class _StageText(Protocol):
    @property
    def stage(self) -> str: ...
    @property
    def partitioner(self) -> str | None: ...
    @property
    def text(self) -> str: ...


class _Item(Protocol):
    @property
    def cells(self) -> Sequence[_StageText]: ...
    @property
    def count(self) -> int: ...


def things_text(count: int) -> str:
    """``36 tensors or collectives``: what a snapshot has."""
    return f"{counted(count, 'tensor')} or {'collective' if count == 1 else 'collectives'}"


def snapshot_name(name: str) -> str:
    """A tensor's name; in a file a point is the program itself."""
    return "the top of the program" if name == "." else name


def stage_texts(items: Iterable[_Item]) -> dict[str, str]:
    """What each stage says, by its name and the partitioner that it is about."""
    texts: dict[str, str] = {}
    for item in items:
        count = f"×{item.count} " if item.count > 1 else ""
        for cell in item.cells:
            key = f"{cell.stage} {cell.partitioner}:" if cell.partitioner else cell.stage
            texts[key] = count + cell.text
    return texts


def item_text(item: _Item) -> str:
    """All that is said of some tensors alike: ``×2 requested P('data'); lowered P('data')``."""
    count = f"×{item.count} " if item.count > 1 else ""
    labels = (f"{c.stage} {c.partitioner}:" if c.partitioner else c.stage for c in item.cells)
    cells = zip(labels, item.cells, strict=True)
    return count + "; ".join(f"{label} {cell.text}" for label, cell in cells)


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
