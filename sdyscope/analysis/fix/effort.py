"""How much `fix` tries."""

from __future__ import annotations

from dataclasses import dataclass

#: How many edits are predicted in the time that tracing one takes.
_PREDICTIONS_A_TRACE = 8


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is tried.

    Attributes:
        expressions: how many expressions to constrain, those behind most bytes first.
        arguments: of how many arguments and results to look for the place that shards them.
        edits: how many edits to take together.
        compiles: how many edited programs to compile.
        predictions: how many edits to predict at most.
        specs: how many shardings to try for an expression.
        checks: how many of the best XLA partitions, which costs a second and knows better.
        meshes: how many other sizes of the mesh's axes to trace, where these are asked about.
        placements: of how many ways to shard a constraint's values over all axes to predict what
            they send.
    """

    expressions: int = 8
    arguments: int = 12
    edits: int = 3
    compiles: int = 3
    predictions: int = 240
    specs: int = 8
    checks: int = 8
    placements: int = 24
    meshes: int = 8

    @property
    def traces(self) -> int:
        """How many edits to trace of each kind of which only that tells what is sent.

        Those of values' types on Explicit axes, of what is given there, and of rules.
        """
        return max(self.predictions // _PREDICTIONS_A_TRACE, 1)
