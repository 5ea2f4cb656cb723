"""Origins and steps of a propagation, from a second run of Shardy in another process.

Told to write them down, Shardy can crash where it otherwise propagates: with origins on when a
loop's carry or an optimization barrier feeds a manual computation, or in a module with sharding
groups or reshards. That costs the origins then, and a sentence says so; never the answer.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import msgspec

from sdyscope.facts.propagated import DebugInfo
from sdyscope.facts.remarks import Remark, RemarkKind, ShardyProcess
from sdyscope.graph import NotUnderstood, OpGraph
from sdyscope.process.worker import Worker, WorkerDiedError
from sdyscope.stages.propagated import debug_info_child
from sdyscope.stages.propagated.marks import Marked, marked_on
from sdyscope.stages.propagated.passes import propagation_passes
from sdyscope.stages.propagated.propagation_origins import OriginReader
from sdyscope.stages.propagated.propagation_steps import steps_of

_SINK = "func.func(sdy-sink-data-flow-edges"
#: How many origins that could not be read are quoted.

_worker = Worker(f"from {__package__} import debug_info_child; debug_info_child.serve()")


#: Waits for what a propagation that has begun is answered with.
Answer: TypeAlias = Callable[[], bytes]


class Propagation(NamedTuple):
    """A module that is to be propagated, and with which passes.

    Attributes:
        bytecode: the module, imported into Shardy's dialect.
        passes: the passes that decide.
        explained: the passes with origins and steps written down.
        stepwise: the passes with steps alone.
    """

    bytecode: bytes
    passes: tuple[str, ...]
    explained: tuple[str, ...]
    stepwise: tuple[str, ...]


def propagation_of(module: Any, *, conservative: bool = False) -> Propagation:
    """A copy of what Shardy starts from.

    Args:
        module: an imported ``ir.Module``.
        conservative: only move an axis where no other could want to go.
    """
    file = io.BytesIO()
    module.operation.write_bytecode(file)
    context = module.context
    return Propagation(
        file.getvalue(),
        propagation_passes(context, conservative=conservative),
        propagation_passes(context, conservative=conservative, steps=True, origins=True),
        propagation_passes(context, conservative=conservative, steps=True),
    )


def begin(asked: Propagation) -> Answer:
    """Begins to propagate once more, beside this process; ``debug_info`` takes what this gives."""
    return _worker.begin(_request(asked.bytecode, asked.explained))


class WrittenDown(NamedTuple):
    """What Shardy wrote down of a propagation, as it wrote it.

    Attributes:
        answer: where what stands; None where it wrote nothing.
        has_origins: whether that is with origins.
        notes: why it is not, or why there is nothing.
    """

    answer: debug_info_child.DebugInfoAnswer | None
    has_origins: bool
    notes: tuple[Remark, ...] = ()


def written_down(asked: Propagation, begun: Answer | None = None) -> WrittenDown:
    """What Shardy writes down of a propagation.

    Args:
        asked: what was propagated.
        begun: what waits for the answer, where that has begun.
    """
    notes: list[Remark] = []
    answer, has_origins = _answer(asked, notes, begun)
    return WrittenDown(answer, has_origins, tuple(notes))


def debug_info(written: WrittenDown, graph: OpGraph, lowered: OpGraph) -> DebugInfo:
    """The origins and steps of a propagation.

    Args:
        written: what Shardy wrote down of it.
        graph: op graph of the module after propagation.
        lowered: that of the module that it was made of, whose ops its tags name.
    """
    answer, has_origins = written.answer, written.has_origins
    notes = list(written.notes)
    marked = Marked() if answer is None else marked_on(answer, graph)
    if answer is not None and marked.missing:
        ops = len(graph.without_results())
        notes.append(Remark("decided otherwise", count=marked.missing, of=ops))
    origins = OriginReader(graph, marked, lowered)
    unread = origins.unread()
    if unread:
        names = tuple(dict.fromkeys((origin.text, 0) for origin in unread))
        notes.append(Remark("unread origins", count=len(unread), names=names))
    not_understood: list[NotUnderstood] = [*unread]
    steps = steps_of(graph, marked, not_understood)
    origins_missing = answer is not None and not has_origins
    return DebugInfo(steps, origins, marked.names, not_understood, tuple(notes), origins_missing)


def _answer(
    asked: Propagation, notes: list[Remark], begun: Answer | None
) -> tuple[debug_info_child.DebugInfoAnswer | None, bool]:
    """What Shardy writes down, None for nothing, and whether that is with origins."""
    failed: tuple[ShardyProcess, str] | None = None
    explained, stepwise = (
        partial(_worker.ask, _request(asked.bytecode, passes))
        for passes in (asked.explained, asked.stepwise)
    )
    for answers in (begun or explained, stepwise):
        try:
            answer = msgspec.msgpack.decode(answers(), type=debug_info_child.DebugInfoAnswer)
        except WorkerDiedError as died:
            if not died.by_signal:
                # Python ended it, before or behind Shardy.
                failed = "ended", died.how
                continue
            failed = "killed" if died.how == "SIGKILL" else "crashed", died.how
            continue
        except OSError as error:
            failed = "not started", str(error.strerror)
            break
        if answer.error:
            failed = "failed", answer.error
            continue
        if failed:
            notes.append(_without("no origins", failed))
        return answer, not failed
    assert failed is not None
    notes.append(_without("no steps", failed))
    return None, False


def _request(bytecode: bytes, passes: tuple[str, ...]) -> bytes:
    sink = next(number for number, pass_ in enumerate(passes) if pass_.startswith(_SINK))
    request = debug_info_child.DebugInfoRequest(bytecode, passes[:sink], passes[sink:])
    return msgspec.msgpack.encode(request)


def _without(kind: RemarkKind, failed: tuple[ShardyProcess, str]) -> Remark:
    process, how = failed
    return Remark(kind, how, process=process)
