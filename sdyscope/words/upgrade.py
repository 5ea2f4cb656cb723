"""What another JAX or commit changes, in sentences and cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sdyscope.facts.versions import Evaluated, FigureUnit, PackageChange, Reading
from sdyscope.words.counts import counted, few, listed, size
from sdyscope.words.rates import metric_text, time_text
from sdyscope.words.sharding import short


def amount_text(unit: FigureUnit, amount: float | None) -> str:
    """A figure: `12.3 MiB`, `1.2 ms`, `35`; a dash where it is not known."""
    if amount is None:
        return "-"
    match unit:
        case "bytes":
            return size(amount)
        case "seconds":
            return time_text(amount)
        case "FLOPs":
            return metric_text(amount, "FLOP")
        case "count":
            return f"{amount:,.0f}"


def change_text(unit: FigureUnit, before: float | None, after: float | None) -> str:
    """How much more or less: `+576.0 KiB`; a dash where it is the same or one is not known."""
    if before is None or after is None or before == after:
        return "-"
    sign = "+" if after > before else "-"
    return f"{sign}{amount_text(unit, abs(after - before))}"


#: Why a page has no views of one of a script's programs.
SEVERAL_PROGRAMS = "the script has several programs, of which --program NAME names one"


def no_views_text(labels: Sequence[str], why: str) -> str:
    """Why a page has no views of a side, or of both."""
    return f"This page has no graph, memory or other views of {listed(labels)}: {why.rstrip('.')}."


#: What is more or less of a figure that decides, to go on "a device" or "the program" with.
_CLAUSES = {
    "comms.bytes": "{more} sent",
    "comms.count": "{more} per step",
    "memory.total": "{more} of memory",
    "cost.seconds": "{more} per step by estimate",
}


def figure_clause(figure: str, unit: FigureUnit, before: float, after: float) -> str:
    """How a figure changed, a clause: `576.0 KiB more sent`, `2 more full rematerializations`."""
    more = "more" if after > before else "less"
    change = abs(after - before)
    if figure in ("rematerializations", "comms.count", "compiles"):
        noun = {
            "rematerializations": "full rematerialization",
            "comms.count": "collective",
            "compiles": "compilation",
        }[figure]
        return counted(int(change), f"{'more' if after > before else 'fewer'} {noun}")
    said = f"{amount_text(unit, change)} {more}"
    return _CLAUSES.get(figure, f"{{more}} {figure}").format(more=said)


def unpaired_text(names: Sequence[str], side: str, other: str) -> str:
    """That some programs have no partner, a sentence."""
    verb = "is" if len(names) == 1 else "are"
    return f"{listed(list(names))} {verb} compiled in {side} only, not in {other}."


#: How many packages are told.
_PACKAGES = 6


def packages_text(changes: Sequence[PackageChange]) -> str:
    """Packages that are others besides JAX, a clause: `flax 0.11.2, then 0.12.8`."""
    texts = [
        f"{package.name} {package.a or 'not there'}, then {package.b or 'not there'}"
        for package in changes[:_PACKAGES]
    ]
    more = f"; and {len(changes) - _PACKAGES} more" if len(changes) > _PACKAGES else ""
    return f"other packages differ, too, as nothing pins them: {'; '.join(texts)}{more}"


#: How many shardings of one name are told.
_SHARDINGS = 3


def reading_text(reading: Reading | None) -> str:
    """What a version has of what is looked for: `12.3 MiB`, `35 collectives, 12.3 MiB sent`."""
    if reading is None:
        return "not known"
    if reading.kind == "figure":
        return "not known" if reading.number is None else _figure(reading)
    if reading.tally is not None:
        tally = reading.tally
        tensors = "" if tally.tensors == tally.count else f" of {counted(tally.tensors, 'tensor')}"
        return f"{counted(tally.count, 'collective')}{tensors}, {size(tally.sent)} sent"
    texts = list(dict.fromkeys(map(short, reading.shardings)))
    return few(texts, _SHARDINGS) or "not there"


def _figure(reading: Reading) -> str:
    text = amount_text(reading.unit or "count", reading.number)
    if reading.unit == "bytes" and reading.number is not None and reading.number >= 1024:
        text += f" ({reading.number:,.0f} B)"  # What differs may be less than is shown.
    return f"{text} in {reading.program}" if reading.program else text


def evaluation_text(evaluated: Evaluated) -> str:
    """One version that was judged: `JAX 0.11.0: 12.3 MiB`."""
    if evaluated.skipped:
        why = evaluated.skipped.splitlines()[0].removeprefix(f"{evaluated.label}: ")
        return f"{evaluated.label}: skipped, as it can't be judged: {why}"
    return f"{evaluated.label}: {reading_text(evaluated.reading)}"


class _Bisection(Protocol):
    @property
    def what(self) -> str: ...
    @property
    def good(self) -> Evaluated: ...
    @property
    def bad(self) -> Evaluated: ...
    @property
    def first(self) -> Evaluated | None: ...
    @property
    def before(self) -> Evaluated: ...
    @property
    def candidates(self) -> Sequence[Evaluated]: ...
    @property
    def unchanged(self) -> bool: ...


def bisection_text(bisection: _Bisection) -> str:
    """What a search came to, a sentence."""
    if bisection.unchanged:
        return (
            f"{bisection.what}: unchanged from {bisection.good.label} to {bisection.bad.label}: "
            f"{reading_text(bisection.good.reading)}."
        )
    if bisection.first is None:
        names = [candidate.label for candidate in bisection.candidates]
        return (
            f"{bisection.what} changed in one of {listed(names)}: "
            "the others of these can't be judged."
        )
    was, now = reading_text(bisection.before.reading), reading_text(bisection.first.reading)
    return f"{bisection.what} changed in {bisection.first.label}: {was} before, {now} since."
