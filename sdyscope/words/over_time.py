"""Memory over a step in sentences without a full stop: the peak, and how sure its figures are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from sdyscope.facts.over_time import (
    Category,
    Counted,
    Fit,
    Holding,
    MemoryOverTime,
    PeakRemedy,
    Phase,
    Varied,
)
from sdyscope.values.entry_layout import HOST_MEMORY
from sdyscope.words.counts import counted, few, percent, size
from sdyscope.words.places import shown_name, source_text

#: What each category is.
CATEGORY_TEXTS: Final[Mapping[Category, str]] = {
    "parameters": "arguments whose next values, or gradients, are returned",
    "optimizer state": "what is kept of them to update them by, such as moments",
    "state": "other arguments whose next values are returned, such as averages of parameters",
    "inputs": "all other arguments",
    "results": "results that lie in no argument's buffer, reserved from the start",
    "constants": "constants of the program",
    "gradients": "made in the backward pass, read after it",
    "kept for backward": "made before the backward pass, read in it",
    "collectives": "other results of collectives",
    "temporaries": "everything else that is computed",
}

#: What the passes are called below a picture.
PHASE_TEXTS: Final[Mapping[Phase, str]] = {
    "forward": "forward",
    "backward": "backward",
    "other": "other",
}

TITLE: Final = "Memory over a step"
AT_PEAK: Final = "held at the peak"
LEGEND = "the program in the order in which it runs, of each loop one iteration"


def peak_sentence(over_time: MemoryOverTime) -> str:
    """The peak and where it is."""
    place = "/".join(filter(None, (over_time.scope, over_time.op)))
    line = source_text(over_time.source)
    where = f"at {place}" if place else "at an instruction without a name"
    return (
        f"peak: {size(over_time.peak)} per device, {where}{f' ({line})' if line else ''}, "
        f"instruction {over_time.position + 1:,} of {over_time.instructions:,}"
    )


def holding_name(holding: Holding) -> str:
    """What is held: `params['w1']`, `jvp(layer*)/mlp/mul`, `copy of params['w1']`."""
    if not holding.op:
        return holding.name
    if holding.name and "/" not in holding.name and "[" in holding.name:
        return f"{holding.op} of {holding.name}"
    return "/".join(filter(None, (holding.name, holding.op)))


def counted_text(figure: Counted) -> str:
    """How a figure of the compiler's compares with ours."""
    theirs = size(figure.compiler)
    difference = figure.ours - figure.compiler
    agrees = (
        "the same to the byte"
        if not difference
        else f"within {_share(abs(difference), figure.compiler)} of ours"
        if figure.agrees
        else f"and not ours, {size(figure.ours)}"
    )
    match figure.figure:
        case "peak":
            return f"the compiler's peak is {theirs}, {agrees}"
        case "peak without temporaries":
            return (
                f"the compiler's own peak, {theirs}, leaves temporaries out on CPUs; "
                f"counted so it is {agrees}"
            )
        case "peak of another memory":
            return (
                f"the compiler's own peak, {theirs}, counts temporaries in another memory of the "
                f"device, which holds more of them; counted so it is {agrees}"
            )
        case "temporaries":
            return (
                f"the compiler reserves {theirs} for temporaries; "
                f"at the peak {size(figure.ours)} are held"
            )


def _share(part: int, whole: int) -> str:
    share = 100 * part / whole
    return "0.1%" if share < 0.1 else f"{share:.1f}%"


def basis(over_time: MemoryOverTime) -> Iterator[tuple[str, bool]]:
    """What the figures are, each with whether there is nothing to worry about."""
    for figure in over_time.counted:
        yield counted_text(figure), figure.agrees or figure.figure == "temporaries"
    if over_time.gaps and not any(counted.figure == "temporaries" for counted in over_time.counted):
        yield (
            f"the compiler reserves {size(over_time.gaps)} more than that: gaps between buffers, "
            "and what it needs itself",
            True,
        )
    for other in over_time.other_memories:
        if other.space == HOST_MEMORY:
            yield f"on the host: at most {size(other.peak)} of temporaries", True
        elif other.peak * 100 > over_time.peak:
            yield (
                f"in another memory of the device, S({other.space}): at most {size(other.peak)}",
                True,
            )
    if over_time.unfollowed:
        what = counted(over_time.unfollowed, "instruction")
        yield f"{what} could not be followed: their results count as new arrays", False
    if over_time.capacity:
        share = percent(over_time.peak, over_time.capacity)
        yield f"the peak is {share} of the device's {size(over_time.capacity)}", True


def remedy_text(remedy: PeakRemedy) -> str:
    """What was changed: `donate params, opt_state`, `params['w1'] as P('data', 'model')`."""
    if remedy.kind == "donate":
        return f"donate {remedy.name}"
    name = remedy.name
    if remedy.kind == "offload":
        return f"{name} in the host's memory"
    if remedy.kind == "offload activations":
        return f"jax.checkpoint on {name} at {source_text(remedy.source)}, its matmuls offloaded"
    if remedy.kind == "rematerialize":
        return f"jax.checkpoint on {name} at {source_text(remedy.source)}"
    if remedy.kind == "batch" and remedy.sizes is not None:
        before, after = remedy.sizes
        what = "the batch" if remedy.certain else few(remedy.names, 2)
        unclear = "" if remedy.certain else ", if that is the batch"
        return f"half {what}: {after:,} instead of {before:,}{unclear}"
    if remedy.kind == "constrain":
        line = source_text(remedy.source)
        name = f"the constraint {f'at {line}' if line else shown_name(name, 'constraint')}"
    return f"{name} as {remedy.after}"


def remedies_text(tried: int, lower: int) -> str:
    """How many changes were compiled, and how many of them lower the peak."""
    if not tried:
        return (
            "nothing to try: every argument is donated or has no next value, no free mesh axis "
            "divides what is held at the peak, and no batch or backward pass was found"
        )
    if not lower:
        only = "the change that was" if tried == 1 else f"none of the {tried} changes that were"
        return f"{only} compiled {'does not lower' if tried == 1 else 'lowers'} the peak"
    does = "lowers" if lower == 1 else "lower"
    return f"compiled with each change alone; {lower} of {tried} {does} the peak"


NO_OFFLOADING: Final = (
    "offloading is not tried: a CPU has one memory; --on names hardware with memory of its own"
)


def fit_text(fit: Fit) -> str:
    """Whether a program fits."""
    share = f"{size(fit.needs)} of {size(fit.limit)} per device, {percent(fit.needs, fit.limit)}"
    return f"it fits: it needs {share}" if fit.fits else f"it does not fit: it needs {share}"


def varied_text(varied: Varied) -> str:
    """How far a size can go."""
    if varied.best is None:
        return f"no {varied.name} that was tried fits"
    if varied.wanted == "fewest":
        beyond = max(
            (trial.value for trial in varied.trials if trial.value < varied.best), default=None
        )
        largest = f"the fewest devices along {varied.name} that were found to fit: {varied.best:,}"
    else:
        beyond = min(
            (trial.value for trial in varied.trials if trial.value > varied.best), default=None
        )
        largest = f"the largest {varied.name} that was found to fit: {varied.best:,}"
    return largest if beyond is None else f"{largest}; {beyond:,} does not"
