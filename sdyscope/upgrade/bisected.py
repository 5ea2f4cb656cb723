"""Which of many versions changed something: the search, and what it found.

As git bisect does it: of those that may be the first, the one that halves them is judged; one that
can't be judged is passed over for the next best; at the end there is one left, or some of which
none could be judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

from sdyscope.analysis.diff.stages import ComparedStages
from sdyscope.facts.account import Account
from sdyscope.facts.versions import Evaluated
from sdyscope.values.source import SourceLocation

_Item = TypeVar("_Item")


class Unjudged(Exception):  # noqa: N818 - a result, not an error
    """A version can't be judged, for a reason that is a sentence."""


class History(Protocol[_Item]):
    """What lies between versions."""

    def candidates(self, good: Sequence[_Item], bad: _Item) -> Sequence[_Item]:
        """The versions that may be the first bad one, `bad` among them, the best to judge first.

        Args:
            good: versions that are good.
            bad: a version that is bad.
        """


class InOrder(Generic[_Item]):
    """Versions in a row, each after the one before it.

    Args:
        items: all of them.
    """

    def __init__(self, items: Sequence[_Item]) -> None:
        self._items = list(items)

    def candidates(self, good: Sequence[_Item], bad: _Item) -> Sequence[_Item]:
        """As `History` says."""
        first = max(self._items.index(version) for version in good) + 1
        last = self._items.index(bad)
        inside = self._items[first : last + 1]
        # Of two that halve them alike, the later one: if it is good, fewer are left.
        middle = (len(inside) - 1) // 2
        order = sorted(range(len(inside)), key=lambda at: (abs(at - middle), -at))
        return [inside[at] for at in order]


@dataclass(frozen=True)
class SearchOutcome(Generic[_Item]):
    """What a search came to.

    Attributes:
        first: the first bad version; None where there is none, or several may be it.
        before: the good version that is nearest to it, of those that were judged.
        candidates: versions that may be the first, where those that could not be judged are among
            them.
        unchanged: whether the bad end, too, turned out good.
    """

    first: _Item | None
    before: _Item
    candidates: tuple[_Item, ...] = ()
    unchanged: bool = False


def bisect(
    history: History[_Item], good: _Item, bad: _Item, is_good: Callable[[_Item], bool]
) -> SearchOutcome[_Item]:
    """Finds the first bad version.

    Of n versions after the good one, at most ceil(log2(n)) before the bad end are judged, as far
    as all of them can be. The bad end itself is judged where it comes out as the first, and one
    more than half of these judgements have been spared then.

    Args:
        history: what lies between.
        good: a version that is good.
        bad: a later one that is said to be bad.
        is_good: judges a version; raises `Unjudged` where it can't.

    Raises:
        Unjudged: the bad end can't be judged, and would be the first.
    """
    goods, first, before = [good], bad, good
    skipped: set[_Item] = set()
    while True:
        order = history.candidates(goods, first)
        waiting = [version for version in order if version != first and version not in skipped]
        if not waiting:
            break
        chosen = waiting[0]
        try:
            if is_good(chosen):
                goods.append(chosen)
                before = chosen
            else:
                first = chosen
        except Unjudged:
            skipped.add(chosen)
    if first == bad and is_good(bad):
        return SearchOutcome(None, before, unchanged=True)
    left = tuple(version for version in history.candidates(goods, first) if version in skipped)
    if left:
        return SearchOutcome(None, before, (*left, first))
    return SearchOutcome(first, before)


# --- the document ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class VersionAccount:
    """What is not known of a program, in all versions of which that is so.

    Attributes:
        program: its name.
        versions: what the versions are called.
        account: what is not known.
    """

    program: str
    versions: tuple[str, ...]
    account: Account


def version_accounts(known: Iterable[tuple[str, str, Account]]) -> tuple[VersionAccount, ...]:
    """What is not known of programs, what is alike of several versions once.

    Args:
        known: of each version its label, the name of a program, and what is not known of that.
    """
    alike: dict[tuple[str, Account], dict[str, None]] = {}
    for label, program, account in known:
        if account:
            alike.setdefault((program, account), {}).setdefault(label)
    return tuple(
        VersionAccount(program, tuple(labels), account)
        for (program, account), labels in alike.items()
    )


@dataclass(frozen=True, slots=True)
class ReleaseNote:
    """What a release's notes say of sharding, or why they are not there.

    Attributes:
        release: the release.
        lines: items of its notes that speak of sharding, meshes, partitioners or collectives.
        link: where the notes are.
        missing: why they could not be read; empty where they were.
    """

    release: str
    lines: tuple[str, ...]
    link: str
    missing: str = ""


@dataclass(frozen=True, slots=True)
class ChangedLine:
    """A line that a commit changed.

    Attributes:
        source: the line, in the commit's file.
        text: its text.
        begins: whether the difference begins there: a tensor or collective that differs is of it.
        tensors: what differs there, by name.
    """

    source: SourceLocation
    text: str
    begins: bool
    tensors: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bisection:
    """The document of `sdyscope bisect --json`, and what `upgrade --bisect` has.

    Attributes:
        schema: name and version of this form.
        across: `releases` or `commits`.
        what: what was looked for.
        good: the good version.
        bad: the bad one.
        first: the first version in which it is another; null where none is, or several may be.
        before: the last version that is known to be as the good one.
        candidates: the versions of which one is the first, where some could not be judged.
        unchanged: whether it is the same in the bad version.
        between: how many versions there are after the good one, the bad one included.
        compiles: how many programs were compiled; of a module that is known, none is.
        evaluations: the versions that were judged, in that order.
        author: who wrote the commit; empty of releases.
        date: when, ISO 8601; empty likewise.
        subject: the first line of its message; empty likewise.
        lines: the lines that the commit changed and where the difference begins, the latter first.
        comparison: the programs that differ between the first version and the one before.
        notes: what the release's notes say of sharding; none of commits.
        accounts: what is not known of the versions that were looked at.
    """

    schema: Literal["sdyscope.bisect/1"] = "sdyscope.bisect/1"
    across: Literal["releases", "commits"]
    what: str
    good: Evaluated
    bad: Evaluated
    first: Evaluated | None
    before: Evaluated
    candidates: tuple[Evaluated, ...] = ()
    unchanged: bool = False
    between: int
    compiles: int
    evaluations: tuple[Evaluated, ...]
    author: str = ""
    date: str = ""
    subject: str = ""
    lines: tuple[ChangedLine, ...] = ()
    comparison: tuple[ComparedStages, ...] = ()
    notes: tuple[ReleaseNote, ...] = ()
    accounts: tuple[VersionAccount, ...] = ()
