"""A script that is run again, up to where JAX lowers one of its programs."""

from __future__ import annotations

import contextlib
import gc
import os
import runpy
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import Any, Final

import jax

from sdyscope.errors import SdyscopeError, TargetError, first_line, one_of
from sdyscope.facts.program import Program
from sdyscope.process.progress import within
from sdyscope.process.python import add_folder
from sdyscope.process.scripts import PythonScript
from sdyscope.stages import compat
from sdyscope.stages.edited.overlay import authors_modules
from sdyscope.stages.recorder import hearing
from sdyscope.stages.recorder.traced import traced_of
from sdyscope.values.source import authors_line

#: How many seconds a script may take at least, however fast it was when it was recorded.
SHORTEST_LIMIT: Final = 600.0

#: Seconds after which a script that went on is stopped again.
_AGAIN = 5.0

#: How many names an error lists.
_LISTED = 8


@dataclass(frozen=True, slots=True)
class ScriptProgram:
    """Which of a script's programs.

    Attributes:
        label: what to call it.
        words: its label with the types of its arguments, of a few.
        module: name of its module, such as `jit_step`.
        arguments: element type and shape of each flat argument, such as `f32[16,128]`.
        number: which of the programs that have both, from 0, in the order in which they are
            lowered.
    """

    label: str
    words: str
    module: str
    arguments: tuple[str, ...]
    number: int = 0


@dataclass
class Rerun:
    """A script, and the program that it is run for.

    What the script itself defines, and the author's modules that it imports, are made anew each
    time, from the text that Python then imports; JAX's context, the working directory, variables
    and the command line are afterwards what they were.

    Attributes:
        script: what is run.
        wanted: the program.
        limit: seconds that it may take; None for any. It is stopped between two steps of Python.
        count: how often it was run.
    """

    script: PythonScript
    wanted: ScriptProgram
    limit: float | None = SHORTEST_LIMIT
    count: int = 0
    _kept: frozenset[str] = field(default_factory=lambda: frozenset(sys.modules), repr=False)

    def __call__(self) -> Program:
        """Runs the script until JAX lowers the program, and no further.

        Raises:
            TargetError: it ends before, or fails, or takes longer than it may; or this JAX does not
                tell what it lowers.
        """
        self.count += 1
        # What runs before have left: each compiles programs anew that take thousands of memory
        # mappings, Linux allows 65,530, and in a large heap Python seldom looks for itself.
        gc.collect()
        # XLA ends the process at a flag that it doesn't know: those of GPUs, say, without one.
        compat.read_compiler_flags()
        waiting, ended = _Waiting(self.wanted), ""
        hearing.add(waiting)
        try:
            with (
                within(f"running {self.script.shown} ({self.count})"),
                self._as_started(),
                _time_limit(self.limit),
            ):
                self._run()
        except _Reached:
            pass
        except _TimeUpError:
            if waiting.program is None:
                raise self._too_long(waiting) from None
        except SystemExit as error:
            ended = "" if error.code in (None, 0) else f" with exit status {error.code}"
        except SdyscopeError:
            raise
        except Exception as error:
            # What a script goes on to when it is ended at the program may fail.
            if waiting.program is None:
                raise self._failed(error) from error
        finally:
            hearing.remove(waiting)
        if waiting.program is None:
            raise self._ended(ended, waiting)
        return waiting.program

    @contextlib.contextmanager
    def _as_started(self) -> Iterator[None]:
        script = self.script
        before = sys.argv, os.getcwd(), dict(os.environ), sys.modules["__main__"]
        update = jax.config.update
        try:
            os.chdir(script.directory)
        except OSError as error:
            raise TargetError(
                f"The folder that the script was started in can't be entered: {error.strerror}.",
                file=script.directory,
            ) from error
        add_folder(script.folder)
        sys.argv = [script.name, *script.arguments]
        setattr(jax.config, "update", _only_others(update))  # noqa: B010 - for mypy, a method
        try:
            with (
                open(os.devnull, "w") as nowhere,
                contextlib.redirect_stdout(nowhere),
                contextlib.redirect_stderr(nowhere),
                compat.context_kept(),
            ):
                yield
        finally:
            setattr(jax.config, "update", update)  # noqa: B010
            sys.argv, folder, variables, sys.modules["__main__"] = before
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(variables)
            for name in authors_modules():
                if name not in self._kept:
                    sys.modules.pop(name, None)
            _forget_flags()

    def _run(self) -> None:
        if self.script.kind == "module":
            runpy.run_module(self.script.name, run_name="__main__", alter_sys=True)
            return
        if not os.path.exists(self.script.file):
            raise TargetError("The script is not there any more.", file=self.script.file)
        main = ModuleType("__main__")
        main.__file__ = self.script.file
        loader = SourceFileLoader("__main__", self.script.file)
        writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        try:
            code = loader.get_code("__main__")
        finally:
            sys.dont_write_bytecode = writes
        assert code is not None  # as of a namespace package alone
        sys.modules["__main__"] = main
        exec(code, vars(main))

    def _failed(self, error: Exception) -> TargetError:
        line = authors_line(error)
        missing = isinstance(error, ModuleNotFoundError) and error.name
        return TargetError(
            f"`{self.script.shown}` fails before JAX lowers {self.wanted.label}: "
            f"{type(error).__name__}: {first_line(error)}",
            file=line.file if line else self.script.file or None,
            line=line.line if line else None,
            hint=f"Install {missing} where sdyscope is installed, or set PYTHONPATH as in the run."
            if missing
            else None,
        )

    def _too_long(self, waiting: _Waiting) -> TargetError:
        return TargetError(
            f"`{self.script.shown}` was stopped after {self.limit:,.0f} s, and JAX has not lowered "
            f"{self.wanted.words}.",
            file=self.script.file or None,
            hint=f"{_lowered_text(waiting)}. It may take ten minutes, or ten times as long as when "
            "it was recorded if that is more: does it wait for something?",
        )

    def _ended(self, how: str, waiting: _Waiting) -> TargetError:
        return TargetError(
            f"`{self.script.shown}` ended{how}, and JAX has not lowered {self.wanted.words}.",
            file=self.script.file or None,
            hint=waiting.failure
            or f"{_lowered_text(waiting)}: the script is not what was recorded, or needs "
            "what is not here. Record it again.",
        )


def _lowered_text(waiting: _Waiting) -> str:
    names = list(dict.fromkeys(waiting.names))[:_LISTED]
    return f"It lowered {one_of(names)}" if names else "It lowered nothing of its own"


@contextlib.contextmanager
def _time_limit(seconds: float | None) -> Iterator[None]:
    """Raises `_TimeUpError` inside after that long, and again where that is caught.

    Signals only come to the main thread, and an alarm that somebody has set is theirs.
    """
    in_main = threading.current_thread() is threading.main_thread()
    if seconds is None or not in_main or signal.getitimer(signal.ITIMER_REAL)[0]:
        yield
        return
    before = signal.signal(signal.SIGALRM, _time_is_up)
    signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _time_is_up(_: int, __: object) -> None:
    raise _TimeUpError


class _TimeUpError(BaseException):
    """The script takes too long. A BaseException, for scripts often catch Exception and go on."""


class _Reached(BaseException):
    """The program is there. No Exception: scripts go on after these."""


class _Waiting:
    """Waits for one program, and ends the script at it.

    Attributes:
        program: the program, once it is there.
        names: what else was lowered.
        failure: why it could not be heard of; empty where it could.
    """

    def __init__(self, wanted: ScriptProgram) -> None:
        self.wanted = wanted
        self.program: Program | None = None
        self.names: list[str] = []
        self.failure = ""
        self._alike: list[tuple[Any, Any, Any]] = []

    def lowered(self, event: hearing.Lowering) -> None:
        """Ends the script if this is the program."""
        if self.program is not None:
            raise _Reached
        wanted = self.wanted
        if event.name != wanted.module or event.types != wanted.arguments:
            if not event.by_jax:
                self.names.append(event.name.removeprefix("jit_"))
            return
        if event.is_among(self._alike):
            return
        self._alike.append(event.key)
        if len(self._alike) > wanted.number:
            traced = traced_of(event.arguments, event.keywords, event.caller)
            self.program = Program(wanted.label, traced)
            raise _Reached

    def compiled(self, event: hearing.Compile) -> None:
        """Nothing: what is compiled was lowered before."""

    def problem(self, what: str) -> None:
        """Keeps why nothing is heard of."""
        self.failure = self.failure or what


def _only_others(update: Any) -> Any:
    """`jax.config.update`, for values that a setting does not have yet.

    Some can't be set once JAX has its devices, not even to what they are.
    """

    def update_(name: str, value: Any) -> None:
        has_devices = name == "jax_num_cpu_devices" and compat.backends_are_initialized()
        known = len(jax.devices("cpu")) if has_devices else getattr(jax.config, name, None)
        if known != value:
            update(name, value)

    return update_


def _forget_flags() -> None:
    """Takes away what absl's flags the script has defined: it will define them again."""
    flags = getattr(sys.modules.get("absl.flags"), "FLAGS", None)
    if flags is None:
        return
    known = flags.flags_by_module_dict()
    for module, defined in [*known.items()]:
        if module not in sys.modules:
            for flag in [*defined]:
                if flag.name in flags:
                    delattr(flags, flag.name)
