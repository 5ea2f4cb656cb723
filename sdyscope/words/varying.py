"""What `check_vma` refuses, and where ``psum`` or ``pcast`` belongs."""

from __future__ import annotations

from collections.abc import Sequence

from sdyscope.facts.varying import Varying
from sdyscope.words.counts import listed


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
