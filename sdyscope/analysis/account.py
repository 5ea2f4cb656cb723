"""What is not known of a program, at the stages that it was looked at."""

from __future__ import annotations

from collections.abc import Iterator

from sdyscope.annotations import unplaced
from sdyscope.errors import SdyscopeError
from sdyscope.facts.account import Account, Stage, Unknown, Why
from sdyscope.facts.program import Partitioner
from sdyscope.facts.propagated import Propagated
from sdyscope.facts.remarks import Remark
from sdyscope.graph import NotUnderstood, OpGraph
from sdyscope.staged import Staged


def account_of(program: Staged) -> Account:
    """What is not known of a program.

    The lowered stage is always looked at; the propagated and the compiled stage as far as somebody
    has asked for them, so that the account of a command is that of what the command looked at.

    Raises:
        CompilerError: the program can't be lowered at all.
    """
    return Account.of(_unknowns(program))


def _unknowns(program: Staged) -> Iterator[Unknown]:
    if program.is_compiled:
        return  # It has no stage but the compiled one, and that is there.
    for partitioner, error in program.failures.items():
        yield _refused("lowered", partitioner, error)
    for partitioner in program.lowered:
        annotations = program.annotations(partitioner)
        yield from unplaced(annotations, partitioner)
        texts = {annotation.text for annotation in annotations if annotation.is_unreadable}
        graph = program.graph(partitioner)
        for item in graph.not_understood:
            if item.text not in texts:
                yield _not_understood("lowered", partitioner, graph, item)
    for partitioner, asked in program.tensors.unaligned:
        yield Unknown(
            "not compared",
            "lowered",
            Why.NOT_ALIGNED,
            (partitioner,),
            asked.kind,
            asked.path,
            source=asked.source,
        )
    refused = dict[Unknown, None]()
    for partitioner, propagated in program.propagations():
        if isinstance(propagated, SdyscopeError):
            # With steps and without them, and by XLA, it is refused for the same reason.
            refused[_refused("propagated", partitioner, propagated)] = None
        else:
            yield from _of_propagation(program, propagated)
    yield from refused
    for partitioner, compiled in program.compilations():
        by = program.other_jax(partitioner)
        if isinstance(compiled, SdyscopeError):
            yield _refused("compiled", partitioner, compiled)
        elif by is not None:
            reason = Remark("another JAX compiled", str(by))
            yield Unknown("approximate", "compiled", reason, (partitioner,))
        else:
            ran_on = program.recorded_platform
            here = compiled.hardware
            # Other hardware than CPUs is what the user asks for.
            if ran_on not in ("", "cpu") and here is not None and here.platform == "cpu":
                reason = Remark("another platform compiled", ran_on, other=str(here))
                yield Unknown("approximate", "compiled", reason, (partitioner,))


def _of_propagation(program: Staged, propagated: Propagated) -> Iterator[Unknown]:
    partitioners = (propagated.partitioner,)
    for doubt in propagated.doubts:
        yield Unknown("approximate", "propagated", doubt, partitioners)
    if propagated.refusal:
        yield Unknown("refused", "compiled", propagated.refusal, partitioners)
    graph = program.graph(propagated.partitioner)
    for node in propagated.not_aligned:
        op = graph.ops[node]
        yield Unknown(
            "left out",
            "propagated",
            Why.OTHER_TYPES,
            partitioners,
            op.kind,
            op.scope,
            source=op.source,
        )
    if propagated.graph is not graph:
        for item in propagated.graph.not_understood:
            yield _not_understood("propagated", propagated.partitioner, propagated.graph, item)
    if propagated.is_explained:
        for item in propagated.debug_info.not_understood:
            yield _not_understood("propagated", propagated.partitioner, propagated.graph, item)


def _refused(stage: Stage, partitioner: Partitioner, error: SdyscopeError) -> Unknown:
    return Unknown("refused", stage, error.message, (partitioner,))


def _not_understood(
    stage: Stage, partitioner: Partitioner, graph: OpGraph, item: NotUnderstood
) -> Unknown:
    op = None if item.op is None else graph.ops[item.op]
    return Unknown(
        "not understood",
        stage,
        item.error if item.line is None else Remark("unread line", item.error, count=item.line),
        (partitioner,),
        item.attribute,
        "" if op is None else op.scope,
        item.text,
        None if op is None else op.source,
    )
