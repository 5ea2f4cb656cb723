"""What a snapshot says of some tensors, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from sdyscope.facts.program import Partitioner

Stage: TypeAlias = Literal["requested", "lowered", "propagated", "compiled"]

STAGES: Final[tuple[Stage, ...]] = get_args(Stage)


@dataclass(frozen=True, slots=True)
class StageText:
    """What one stage says.

    Attributes:
        stage: which.
        text: a PartitionSpec, ``replicated``, ``nothing`` where nothing is written, or ``=`` for
            what the stage before says; of ``compiled`` how much is sent.
        partitioner: under which; null where all say the same.
    """

    stage: Stage
    text: str
    partitioner: Partitioner | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """Tensors that share a key and of which every stage says the same.

    Attributes:
        cells: what each stage says.
        count: how many they are.
        places: which of those with the key they are, counted from 1 in the order of the program;
            empty where all are alike, and of what has no order.
        on: for each place what the tensor there is computed from, in eight hexadecimal digits;
            empty without places, and where that is not known.
    """

    cells: tuple[StageText, ...]
    count: int = 1
    places: tuple[int, ...] = ()
    on: tuple[str, ...] = ()

    @property
    def order(self) -> tuple[object, ...]:
        """What to sort by: what the stages say."""
        return tuple((cell.stage, cell.text, cell.partitioner or "") for cell in self.cells)
