"""What the marks of the graph's picture say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

MARKS: Final[Mapping[str, str]] = {
    "moves": "needed with another sharding, by the op's sharding rule (predicted)",
    "sums": "partial sums, reduced across devices, by the op's sharding rule (predicted)",
    "sent": "a collective of the compiled program",
    "differs": "the partitioners place it differently",
}
"""By mark; as they stand in the legend, and behind what is marked."""
