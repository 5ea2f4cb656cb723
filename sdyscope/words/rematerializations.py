"""Involuntary full rematerializations, as XLA's partitioner logs them."""

from __future__ import annotations

from sdyscope.facts.rematerializations import Rematerialization
from sdyscope.words.places import source_text


def rematerialization_text(remade: Rematerialization) -> str:
    """`involuntary full rematerialization of f32[8,64] in jvp(embed)/gather at model.py:12`."""
    where = source_text(remade.source)
    op = "/".join(filter(None, (remade.scope, remade.primitive))) or remade.operation
    words = f"involuntary full rematerialization of {remade.shape or 'a tensor'} in {op}"
    return f"{words} at {where}" if where else words


def resharding_text(remade: Rematerialization) -> str:
    """From which sharding to which, as XLA writes them; empty where the log does not say."""
    return f"from {remade.before} to {remade.after}" if remade.before else ""
