"""Shardy's passes, as the installed jaxlib has them.

XLA runs ``addPropagationPipeline`` of Shardy. Which passes that is differs from version to version,
so they are read off the expanded form that MLIR prints of ``sdy-propagation-pipeline``. Switches
make Shardy write down where axes come from and which step moved them.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from sdyscope.errors import CompilerError, CrashError
from sdyscope.process.progress import is_trailed, passing
from sdyscope.process.worker import Worker, WorkerDiedError, is_apart
from sdyscope.stages import compat
from sdyscope.stages.conversion import through_hlo
from sdyscope.stages.propagated import passes_child
from sdyscope.stages.stderr import captured_stderr

#: XLA's own dump after propagation is taken behind this pass.
_LAST = "sdy-close-shardings"
_STEPS = re.compile(r"(debug-propagation-edge-sharding)=false")
_ORIGINS = re.compile(r"(debug-sharding-origins)=false")
_ERROR = re.compile(r"error: (.*)")
#: A pass's name, without its options and what it is run on: `func.func(sdy-close-shardings)`.
_NAME = re.compile(r"(?:^|\()([\w-]+)(?=$|[{)])")

_CONVERSION = "XLA's conversion to HLO"

_worker = Worker(f"from {__package__} import passes_child; passes_child.serve()")


def propagation_passes(
    context: Any, *, conservative: bool = False, steps: bool = False, origins: bool = False
) -> tuple[str, ...]:
    """The passes of Shardy's propagation pipeline, as texts to be joined by commas.

    Args:
        context: an MLIR context that knows Shardy.
        conservative: only let axes go where nothing else could want to go.
        steps: have the steps written into the module.
        origins: have the origins written into the module.
    """
    with context:
        text = str(compat.passmanager.PassManager.parse("builtin.module(sdy-propagation-pipeline)"))
    inside = text.removeprefix("builtin.module(").removesuffix(")")
    passes = [pass_ for pass_ in _split(inside) if not pass_.startswith("sdy-save-module")]
    last = max(number for number, pass_ in enumerate(passes) if pass_.startswith(_LAST))
    chosen = []
    for pass_ in passes[: last + 1]:
        if steps:
            pass_ = _STEPS.sub(r"\1=true", pass_)
        if origins:
            pass_ = _ORIGINS.sub(r"\1=true", pass_)
        if conservative:
            pass_ = pass_.replace("conservative-propagation=false", "conservative-propagation=true")
        chosen.append(pass_)
    return tuple(chosen)


def pass_name(text: str) -> str:
    """`sdy-close-shardings`, of a pass with options, or `func.func(...)` around it."""
    match = _NAME.search(text)
    return match[1] if match else text


def _split(pipeline: str) -> list[str]:
    """A pipeline's text at its outermost commas."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(pipeline):
        if char in "({":
            depth += 1
        elif char in ")}":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(pipeline[start:at])
            start = at + 1
    return [*parts, pipeline[start:]]


def run(module: Any, *passes: str, managers: dict[tuple[str, ...], Any] | None = None) -> None:
    """Runs passes over a module, in place.

    Args:
        module: the module.
        passes: the passes.
        managers: what ran passes of the module's context before, and need not begin anew: a
            canonicalization collects the patterns of all dialects then.

    Raises:
        CompilerError: a pass failed; with the compiler's message, and the op it names.
    """
    known = {} if managers is None else managers
    # Where a parent has to say what ended this process, each by itself.
    runs = [(each,) for each in passes] if is_trailed() else [passes]
    with module.context, captured_stderr() as written:
        try:
            for each in runs:
                if is_trailed():
                    passing(_inside(each[0]))
                if each not in known:
                    known[each] = passes_child.pass_manager(each)
                known[each].run(module.operation)
            passing("")
        except Exception as error:  # MLIRError, or ValueError for a pass that there is not
            raise CompilerError(_message(str(error), written())) from error


def run_guarded(
    module: Any,
    *passes: str,
    managers: dict[tuple[str, ...], Any] | None = None,
    bytecode: bytes | None = None,
) -> Any:
    """As `run`, but a crash of a pass ends no process that is somebody else's.

    In a process of the user's own, as a notebook's is, the passes run in another one; where there
    can be none, they run here.

    Args:
        module: the module, which is not to be used any more.
        passes: the passes.
        managers: see `run`.
        bytecode: the module's, where it is at hand.

    Returns:
        The module after the passes.

    Raises:
        CompilerError: a pass failed, with the compiler's message.
        CrashError: a pass ended its process.
    """
    if not is_apart():
        if bytecode is None:
            file = io.BytesIO()
            module.operation.write_bytecode(file)
            bytecode = file.getvalue()
        try:
            after = _run_apart(bytecode, passes)
        except WorkerDiedError as died:
            raise _crash(bytecode, passes, died) from died
        except OSError:
            after = b""  # There is no process to be had.
        # What Shardy leaves need not verify, and is not read then: what has not crashed runs here.
        with suppress(Exception), captured_stderr():  # MLIRError, by several names
            if after:
                return compat.ir.Module.parse(after, module.context)
    run(module, *passes, managers=managers)
    return module


def through_hlo_guarded(bytecode: bytes) -> bytes:
    """As `through_hlo`, but a crash of XLA ends no process that is somebody else's.

    Args:
        bytecode: a module of StableHLO.

    Raises:
        CrashError: XLA ended its process.
        Exception: XLA's error, when the module has ops without an HLO form.
    """
    if not is_apart():
        try:
            answer = _ask(passes_child.ConversionRequest(bytecode))
        except WorkerDiedError as died:
            raise CrashError(died.how, _CONVERSION, died.words) from died
        except OSError:
            pass  # There is no process to be had.
        else:
            if answer.error:
                raise RuntimeError(answer.error)
            return answer.module
    passing(_CONVERSION)
    try:
        return through_hlo(bytecode)
    finally:
        passing("")


def _run_apart(bytecode: bytes, passes: Sequence[str]) -> bytes:
    answer = _ask(passes_child.PassesRequest(bytecode, tuple(passes)))
    if answer.error:
        raise CompilerError(_message(answer.error, answer.written))
    return answer.module


def _ask(
    request: passes_child.ConversionRequest | passes_child.PassesRequest,
) -> passes_child.PassesAnswer:
    answered = _worker.ask(msgspec.msgpack.encode(request))
    return msgspec.msgpack.decode(answered, type=passes_child.PassesAnswer)


def _crash(bytecode: bytes, passes: Sequence[str], died: WorkerDiedError) -> CrashError:
    """The error that a pass ended the process, and which one, if it does so again."""
    for each in passes if died.crashed else ():
        try:
            bytecode = _run_apart(bytecode, [each])
        except WorkerDiedError as again:
            return CrashError(again.how, _inside(each), again.words)
        except (CompilerError, OSError):
            break
    return CrashError(died.how, words=died.words)


def _inside(each: str) -> str:
    return f"Shardy's pass {pass_name(each)}"


def _message(message: str, written: str) -> str:
    errors = [match[1].strip() for match in _ERROR.finditer(message + "\n" + written)]
    said = next((text for text in errors if text), message.strip().partition("\n")[0])
    return f"Shardy can't propagate on this module: {said}"
