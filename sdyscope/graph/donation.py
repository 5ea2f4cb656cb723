"""What a module says of donated arguments: whose buffers results may take.

JAX names the result where it knows both shardings, and leaves the choice to XLA otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sdyscope.graph.attribute_values import AttributeValue

ALIASED = "tf.aliasing_output"
"""On an argument of main the number of the result that takes its buffer."""

DONOR = "jax.buffer_donor"
"""On an argument of main that any result may take its buffer."""


@dataclass(frozen=True, slots=True)
class Donation:
    """That an argument of main is donated.

    Attributes:
        result: the number of the result that takes its buffer; None where XLA chooses one.
    """

    result: int | None


def donation(attributes: Mapping[str, AttributeValue]) -> Donation | None:
    """The donation that the attributes of an argument state; None where it is not donated."""
    result = attributes.get(ALIASED)
    if isinstance(result, int):
        return Donation(result)
    return Donation(None) if ALIASED in attributes or DONOR in attributes else None
