"""What an error message goes on with where JAX refuses the shardings of an expression."""

from __future__ import annotations

from sdyscope.analysis.refused import refusal
from sdyscope.words.refusals import refusal_text

__all__ = ["explanation"]


def explanation(error: BaseException | None, *, every: bool = False) -> str:
    """The operands of a refused expression, and what to write instead.

    Args:
        error: what JAX raised.
        every: list every choice, not only those that send least.

    Returns:
        Lines of text; empty for another error, and where the expression can't be found.
    """
    refused = refusal(error)
    return "" if refused is None else refusal_text(refused, every=every)
