"""What a process in another environment hands over: programs at their stages.

A pickle, which holds sdyscope's own values alone: reading one makes objects of these classes and
builtin containers, and calls nothing else. It lives in a temporary folder for as long as a command
runs.
"""

from __future__ import annotations

import io
import pickle
from collections import Counter, OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sdyscope.analysis.diff.stages import ProgramStages
from sdyscope.errors import CompilerError
from sdyscope.facts.program import Versions
from sdyscope.facts.recompiles import Recompile
from sdyscope.facts.recorded import RecordedProgram
from sdyscope.facts.remarks import Remark


@dataclass(frozen=True)
class CarriedProgram:
    """One program.

    Attributes:
        stages: its stages; None where it was not lowered or can't be read.
        key: digest of all that its stages depend on but source lines, by which it is known again.
        recorded: what a recorded run says of it; None of a TARGET.
        error: why there are no stages; empty where there are.
        name: what to call it.
        views: what a page has of its views, as ``page.views_of`` makes it; none unless a page is to
            be written, or a text that says why there are none.
    """

    name: str
    stages: ProgramStages | None
    key: str = ""
    recorded: RecordedProgram | None = None
    error: str = ""
    views: tuple[tuple[str, str, str], ...] | str = ()

    @property
    def function(self) -> Hashable:
        """What the programs of one function have in common, which a run compiled again."""
        return self.name if self.recorded is None else self.recorded.function

    def is_called(self, name: str) -> bool:
        """Whether a name is its own, or that of its function in a recorded run; empty is any."""
        return name in ("", self.name, self.recorded and self.recorded.name)


@dataclass(frozen=True)
class Carried:
    """All programs of a TARGET or of a recorded run.

    Attributes:
        versions: the JAX that made them.
        programs: the programs.
        recompiles: what was compiled again in the run.
        left_out: how many functions of JAX are not among them.
        problems: what could not be recorded or read.
    """

    versions: Versions
    programs: tuple[CarriedProgram, ...]
    recompiles: tuple[Recompile, ...] = ()
    left_out: int = 0
    problems: tuple[Remark | str, ...] = ()


def encoded(carried: Carried) -> bytes:
    """What is handed over, as bytes."""
    return pickle.dumps(carried, protocol=5)


def read(path: Path) -> Carried:
    """Reads it.

    Raises:
        CompilerError: it is damaged, or holds something else.
    """
    try:
        carried = _Reader(io.BytesIO(path.read_bytes())).load()
    except (OSError, EOFError, pickle.UnpicklingError, AttributeError, TypeError) as error:
        raise CompilerError(f"What the other process handed over can't be read: {error}") from error
    if not isinstance(carried, Carried):
        raise CompilerError("What the other process handed over is no program.")
    return carried


#: The packages of sdyscope whose classes are values.
_VALUES = (
    "sdyscope.analysis.",
    "sdyscope.annotations.",
    "sdyscope.errors",
    "sdyscope.facts.",
    "sdyscope.graph.",
    "sdyscope.hardware.",
    "sdyscope.hlo.",
    "sdyscope.syntax.",
    "sdyscope.upgrade.",
    "sdyscope.values.",
)

#: Classes of the standard library that values hold, by module and name in any Python.
_PLAIN = {
    ("pathlib", "PosixPath"): Path,
    ("pathlib._local", "PosixPath"): Path,
    ("builtins", "str"): str,
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
    ("builtins", "complex"): complex,
    ("builtins", "slice"): slice,
    ("collections", "Counter"): Counter,
    ("collections", "OrderedDict"): OrderedDict,
}


class _Reader(pickle.Unpickler):
    """Makes values of this package, and calls nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _PLAIN:
            return _PLAIN[module, name]
        if module.startswith(_VALUES) and "." not in name:
            value = super().find_class(module, name)
            if isinstance(value, type):
                return value
        raise pickle.UnpicklingError(f"{module}.{name} is no value of sdyscope")
