"""What edits are worth: time and memory, of what they are now."""

from __future__ import annotations

from dataclasses import dataclass

from sdyscope.analysis.fix.values import Verdict

#: What is not better by this part is not better.
WORTH = 0.01

#: What is better in one thing and worse in another is worth that from this product on.
_TRADE = 0.95

#: Less than this is not divided by.
_LEAST = 0.002


@dataclass(frozen=True, slots=True)
class Change:
    """What a step takes with some edits, as a part of what it takes now.

    Attributes:
        time: its time.
        memory: what a device holds.
    """

    time: float
    memory: float = 1.0

    def times(self, further: Change) -> Change:
        """Both changes, one after the other."""
        return Change(self.time * further.time, self.memory * further.memory)

    def over(self, before: Change) -> Change:
        """What is changed further than by `before`."""
        return Change(
            self.time / max(before.time, _LEAST), self.memory / max(before.memory, _LEAST)
        )

    @property
    def product(self) -> float:
        """Time by memory; the less, the better."""
        return self.time * self.memory

    @property
    def is_slower(self) -> bool:
        """Whether time is paid for memory, which only the user can weigh."""
        return self.time > 1 + WORTH

    @property
    def order(self) -> tuple[bool, float]:
        """What makes no step slower comes first."""
        return self.is_slower, self.product

    @property
    def verdict(self) -> Verdict:
        """Whether that pays, is less of one thing for more of another, or loses."""
        better, worse = 1 - WORTH, 1 + WORTH
        # Just over the bound on one side and just under it on the other is no gain.
        if self.product <= better and (
            (self.time <= better and self.memory <= worse)
            or (self.memory <= better and self.time <= worse)
        ):
            return "pays"
        return "trade" if self.product <= _TRADE else "loses"
