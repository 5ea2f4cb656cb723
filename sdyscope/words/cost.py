"""What limits a step, and the bubbles of its pipelines, in clauses."""

from __future__ import annotations

from collections.abc import Sequence

from sdyscope.facts.cost import LevelName, Pipeline, StepLimits
from sdyscope.words.counts import listed, size
from sdyscope.words.places import source_text
from sdyscope.words.rates import time_text


def limit_texts(limits: StepLimits) -> list[str]:
    """What limits a step, how long it takes at least, and by its schedule, where known."""
    texts = [_limit(limits)]
    if limits.overlapped is not None and limits.sequential is not None:
        # What is not known is not in the sum.
        bound = "at least " * limits.is_certain
        least = "" if limits.is_complete else bound
        texts.append(
            f"{bound}{time_text(limits.overlapped)} per step with communication fully "
            f"overlapped, {least}{time_text(limits.sequential)} with none overlapped"
        )
    if limits.step is not None:
        rates = "scaled as in the traces"
        known = "" if limits.off is None else f", known to be off by {limits.off:.0%}"
        if limits.is_measured:
            rates = f"at rates measured on {limits.device_kind}"
            known += " without collectives" * bool(known and limits.sends)
        texts.append(f"by its schedule, {rates}, {time_text(limits.step)} per step{known}")
    return texts


def _limit(limits: StepLimits) -> str:
    limit = limits.limit
    if limit is None:
        if not limits.is_chip_known:
            kind = limits.device_kind or "hardware that is not named"
            return f"no time estimates: no rates are known for {kind}"
        return "no time estimates: the rates they need are not known"
    work = [busy for busy in limits.others if busy.resource != "axis"]
    against = [f"{time_text(busy.seconds)} of {busy.resource}" for busy in work]
    known = "" if limits.is_complete else "as far as known, "
    subject = f"{known}the step is limited by"
    if limit.resource == "axis":
        over = f"axis {limit.axis}{_links(limit.links)}"
        text = f"{subject} {over}: {time_text(limit.seconds)} of communication"
        if not against:
            return f"{text}; compute time is not known"
    else:
        text = f"{subject} {limit.resource}: {time_text(limit.seconds)}"
        axes = [busy for busy in limits.others if busy.resource == "axis"]
        if axes:
            against.append(f"{time_text(axes[0].seconds)} over axis {axes[0].axis}")
    return text + (f" against {listed(against)}" if against else "")


def _links(names: Sequence[LevelName]) -> str:
    if not names:
        return ""
    words = (f"as {name}" if name in ("given", "fitted") else name for name in names)
    return f" ({' and '.join(words)})"


def pipeline_text(pipeline: Pipeline) -> str:
    """The bubble of a loop that hands values on, if it is a pipeline."""
    n, m = pipeline.stages, pipeline.microbatches
    at = f" at {source_text(pipeline.source)}" if pipeline.source else ""
    to = "both neighbours" if pipeline.both_ways else "the next device"
    return (
        f"pipeline over {pipeline.axis}={n}{at}: each of {pipeline.trips:,} trips of a loop hands "
        f"{size(pipeline.bytes)} on to {to}; with {m:,} microbatches, or fewer that pass more than "
        f"once, a stage is idle for {n - 1:,} of {n + m - 1:,} steps, a bubble of "
        f"{pipeline.bubble:.1%}: (n - 1) / (n + m - 1)"
    )
