"""A ``ShardingTypeError`` in terms of the author's expression: its operands, and what to write."""

from __future__ import annotations

from collections.abc import Iterator

from sdyscope.facts.refusals import ArrayType, Choice, Refusal, Sent
from sdyscope.words.counts import listed, size
from sdyscope.words.types import jax_type_text

#: How many choices are listed unless all are asked for.
_LISTED = 8


def refusal_text(refusal: Refusal, *, every: bool = False) -> str:
    """What an error message goes on with, in lines.

    Args:
        refusal: the expression and what JAX accepts instead.
        every: list every choice, not only those that send least.
    """
    return "\n".join(_lines(refusal, every))


def _lines(refusal: Refusal, every: bool) -> Iterator[str]:
    yield f"The operands of {refusal.text} (line {refusal.source.line}):"
    width = max(len(operand.text) for operand in refusal.operands)
    for operand in refusal.operands:
        yield f"  {operand.text:{width}}  {_type_text(operand.type)}"
    if not refusal.choices:
        yield "No reshard of one operand and no out_sharding makes JAX accept it."
        return
    yield "JAX accepts each of these instead:"
    shown = refusal.choices if every else refusal.choices[:_LISTED]
    for choice in shown:
        yield f"  {choice.text}"
        types = ", ".join(map(_type_text, choice.results))
        yield f"      {types}: {_sent_text(choice)}"
    if more := len(refusal.choices) - len(shown):
        yield f"  and {more:,} more (--verbose)"
    yield (
        "sends: bytes each device sends for this expression alone, without its gradient, as "
        "Shardy's passes predict."
    )


def _sent_text(choice: Choice) -> str:
    if choice.sent is None:
        return "no prediction"
    if not choice.bytes:
        return "sends nothing"
    return f"sends {size(choice.bytes)} ({listed([*map(_collective_text, choice.sent)])})"


def _collective_text(sent: Sent) -> str:
    over = f" over {' x '.join(sent.axes)}" if sent.axes else ""
    return f"{sent.kind}{over}"


def _type_text(type_: ArrayType) -> str:
    axes = [axis.name for axis in type_.mesh.axes]
    return jax_type_text(type_.shape, type_.dtype, type_.spec, axes)
