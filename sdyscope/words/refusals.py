"""A ``ShardingTypeError`` in terms of the author's expression: its operands, and what to write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sdyscope.facts.refusals import ArrayType, Choice, DifferingTypes, Refusal, Sent
from sdyscope.facts.varying import Varying
from sdyscope.values.source import SourceLocation, package_of
from sdyscope.words.counts import listed, size
from sdyscope.words.mesh import names_text
from sdyscope.words.places import source_text
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


def library_text(line: SourceLocation) -> str:
    """What to do where JAX refuses, on Explicit axes, what an installed package does.

    Args:
        line: where in the package.
    """
    package = package_of(line.file)
    return (
        f"What JAX refuses is {package}'s, at {source_text(line)}, on Explicit axes. The compiler "
        "decides there on Auto axes: give jax.make_mesh axis_types of jax.sharding.AxisType.Auto, "
        f"or call {package} in jax.sharding.auto_axes."
    )


def _lines(refusal: Refusal, every: bool) -> Iterator[str]:
    yield f"The operands of {refusal.text} (line {refusal.source.line}):"
    width = max(len(operand.text) for operand in refusal.operands)
    for operand in refusal.operands:
        yield f"  {operand.text:{width}}  {_type_text(operand.type)}"
    yield from map(_difference_text, refusal.differences)
    if not refusal.choices:
        tried = "of what goes in or is returned" if refusal.differences else "of one operand"
        out = "" if refusal.differences else " and no out_sharding"
        yield f"No reshard {tried}{out} makes JAX accept it."
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


def _difference_text(difference: DifferingTypes[ArrayType]) -> str:
    first, second = map(_type_text, (difference.first, difference.second))
    if difference.kind == "carry":
        return f"The carry {difference.value} goes in as {first} and comes out as {second}."
    at = f" at {difference.path}" if difference.path else ""
    return f"{difference.value} returns {first}{at} and {difference.other} returns {second}."


def _sent_text(choice: Choice) -> str:
    if choice.sent is None:
        return "no prediction"
    if not choice.bytes:
        return "sends nothing"
    counted = ", a loop counted once" if choice.an_iteration else ""
    return f"sends {size(choice.bytes)} ({listed([*map(_collective_text, choice.sent)])}{counted})"


def _collective_text(sent: Sent) -> str:
    over = f" over {names_text(sent.axes)}" if sent.axes else ""
    return f"{sent.kind}{over}"


def _type_text(type_: ArrayType) -> str:
    axes = [axis.name for axis in type_.mesh.axes]
    return jax_type_text(type_.shape, type_.dtype, type_.spec, axes)


def varying_text(values: Sequence[Varying]) -> str:
    """What an error message goes on with, a line for each value."""
    return "\n".join(map(_text, values))


def _text(value: Varying) -> str:
    over = listed(value.axes)
    axes = repr(value.axes[0]) if len(value.axes) == 1 else repr(value.axes)
    psum = f"jax.lax.psum(..., {axes})"
    to = ", to='varying'" if value.cast == "pcast" else ""
    cast = f"jax.lax.{value.cast}(..., {value.axes!r}{to})"
    named = "" if value.function == "<lambda>" else value.function
    if value.place == "result":
        return (
            f"{value.value} is {value.spec}, but the value that {named or 'the function'} returns "
            f"for it varies over {over}. To add up the devices' values, return {psum} (pmean for "
            f"their mean). If they are blocks of the result, name {over} in out_specs."
        )
    if value.place == "carry":
        return (
            f"The carry {value.value} is the same over {over} at first and varies after an "
            f"iteration. If each device keeps a value of its own, start with {cast} of the initial "
            f"value. To add up the devices' values, return {psum} from the body."
        )
    if value.place == "branch":
        output = f"The output {value.value}" if value.value else "The output"
        return (
            f"{output} of {named or 'one branch'} is the same over {over}, and the other branch's "
            f"varies: return {cast} of it there."
        )
    return (
        f"The input that {value.value} is the gradient of is the same over {over}, so its gradient "
        f"is a sum over {over}: return {psum} from the bwd rule."
    )
