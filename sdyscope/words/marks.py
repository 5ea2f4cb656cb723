"""What the marks of the graph's picture say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["MARKS"]

MARKS: Final[Mapping[str, str]] = {
    "moves": "needed in other blocks, by the op's sharding rule (predicted)",
    "sums": "each device sums a part only, and the parts are added up, by the op's sharding rule "
    "(predicted)",
    "sent": "a collective of the compiled program",
    "differs": "the partitioners put it in different places",
}
"""By mark; as they stand in the legend, and behind what is marked."""
