"""Tries edits of one program in a child process: any that a module can carry, one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sdyscope.analysis.trials import predict_child
from sdyscope.analysis.trials.child import Child
from sdyscope.analysis.trials.cost import Prediction
from sdyscope.analysis.trials.predict_child import Question, Tries
from sdyscope.errors import CrashError
from sdyscope.facts.propagated import ValueId
from sdyscope.graph import OpGraph
from sdyscope.values.sharding import TensorSharding

if TYPE_CHECKING:
    from sdyscope.stages.lowered.lower import LoweredModule
    from sdyscope.stages.propagated.annotate import ModuleEdit


class TryEdits:
    """Tries edits of a program, with the answers of this process.

    A crash of Shardy is an error of one trial. Where there can be no child, this process tries.

    Args:
        lowered: the module, lowered under Shardy or read from a file with Shardy's shardings.
        graph: its op graph.

    Attributes:
        crashed: how many trials Shardy crashed on.
        crash: how, of the first of them; empty for none.
    """

    def __init__(self, lowered: LoweredModule, graph: OpGraph) -> None:
        self._lowered, self._graph = lowered, graph
        self.crashed = 0
        self.crash = ""

    @cached_property
    def _child(self) -> Child:
        return Child(predict_child.given(self._lowered))

    @cached_property
    def _here(self) -> Tries:
        return Tries(self._lowered, self._graph)

    def predict(self, edits: Sequence[ModuleEdit], *, on_cpu: bool = False) -> Prediction:
        """What the program would send, compute and hold; see ``Trials.predict``.

        Raises:
            CompilerError: a pass of Shardy failed, or crashed.
            TargetError: an edit that the module can't carry.
        """
        prediction: Prediction = self._ask(Question(tuple(edits), None, on_cpu))
        return prediction

    def shardings(
        self, value: ValueId, edits: Sequence[ModuleEdit]
    ) -> tuple[TensorSharding | None, ...]:
        """How a value would be sharded; see ``ImportedModule.shardings``.

        Raises:
            CompilerError: a pass of Shardy failed, or crashed.
            TargetError: an edit that the module can't carry.
        """
        shardings: tuple[TensorSharding | None, ...] = self._ask(Question(tuple(edits), value))
        return shardings

    def _ask(self, question: Question) -> Any:
        try:
            answered = self._child.ask(predict_child.asked(question))
        except CrashError as error:
            self.crashed += 1
            self.crash = self.crash or error.how
            raise
        except OSError:
            return self._here.answer(question)
        return predict_child.answer_of(answered)
