"""Involuntary full rematerializations, as XLA's partitioner logs them."""

from __future__ import annotations

from sdyscope.facts.rematerializations import Rematerialization
from sdyscope.words.places import source_text
from sdyscope.words.sharding import short


def rematerialization_text(remade: Rematerialization) -> str:
    """`involuntary full rematerialization of f32[8,64] in jvp(embed)/gather at model.py:12`."""
    where = source_text(remade.source)
    op = "/".join(filter(None, (remade.scope, remade.primitive))) or remade.operation
    words = f"involuntary full rematerialization of {remade.shape or 'a tensor'} in {op}"
    return f"{words} at {where}" if where else words


def resharding_text(remade: Rematerialization) -> str:
    """From which sharding to which; empty where the log does not say."""
    if not remade.before:
        return ""
    # As XLA writes it where that can't be read.
    before, after = (
        text if sharded is None else short(sharded)
        for sharded, text in ((remade.moved_from, remade.before), (remade.moved_to, remade.after))
    )
    return f"from {before} to {after}"
