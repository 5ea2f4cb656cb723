"""What JAX accepts in place of an expression that it refuses, and what that sends."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sdyscope.analysis.fix.proposals import dims_of, spec_of_dims, specs_near
from sdyscope.errors import SdyscopeError
from sdyscope.facts.program import Program
from sdyscope.facts.refusals import Choice, Refusal, Sent
from sdyscope.staged import Staged

if TYPE_CHECKING:
    from sdyscope.stages.edited.refused import RefusedExpression, Tried

#: How many shardings of the result are tried; three axes on two dimensions have 27.
_OF_RESULT = 64


def refusal(error: BaseException | None) -> Refusal | None:
    """What a refusal of shardings is about, and the edits of one place that JAX accepts.

    An operand is resharded with one axis placed otherwise, two dimensions exchanged, or like
    another operand; or ``out_sharding`` puts axes of the operands on the result. Where no operand
    can be resharded alone, all of them are, to the sharding of one. A loop gets its carry as it
    comes out, or returns it as it goes in; a branch returns what the other does.

    Args:
        error: what JAX raised. None, and any other error, have no such explanation.
    """
    if error is None:
        return None
    from sdyscope.stages.edited.refused import refused_expression

    expression = refused_expression(error)
    if expression is None:
        return None
    if expression.differences:
        accepted = [*expression.agreeing()]
    else:
        accepted = [*_resharded(expression)] or [*_all_alike(expression)]
        accepted += _out_shardings(expression)
    choices = list(map(_choice, accepted))
    unique = {choice.text: choice for choice in choices}
    return Refusal(
        expression.text,
        expression.source,
        expression.operands,
        tuple(sorted(unique.values(), key=_cost)),
        expression.differences,
    )


def _cost(choice: Choice) -> tuple[float, int]:
    return math.inf if choice.bytes is None else choice.bytes, len(choice.text)


def _resharded(expression: RefusedExpression) -> Iterator[Tried]:
    types = [operand.type for operand in expression.operands]
    for number, own in enumerate(types):
        like_others = [other.spec for other in types if len(other.shape) == len(own.shape)]
        specs = dict.fromkeys([*specs_near(own.spec, own.shape, own.mesh), *like_others])
        specs.pop(own.spec, None)
        for spec in specs:
            tried = expression.resharded({number: spec})
            if tried is not None:
                yield tried


def _all_alike(expression: RefusedExpression) -> Iterator[Tried]:
    ranks = {len(operand.type.shape) for operand in expression.operands}
    if len(ranks) > 1:
        return
    for spec in dict.fromkeys(operand.type.spec for operand in expression.operands):
        others = {
            number: spec
            for number, operand in enumerate(expression.operands)
            if operand.type.spec != spec
        }
        tried = expression.resharded(others)
        if tried is not None:
            yield tried


def _out_shardings(expression: RefusedExpression) -> Iterator[Tried]:
    """Results that carry the operands' axes, each on a dimension or on none."""
    shape = expression.result
    if shape is None:
        return
    mesh = expression.operands[0].type.mesh
    named = {
        axis
        for operand in expression.operands
        for dim in dims_of(operand.type.spec, len(operand.type.shape))
        for axis in dim
    }
    axes = [axis for axis in mesh.axes if axis.name in named]
    places = itertools.product((*range(len(shape)), None), repeat=len(axes))
    for place in itertools.islice(places, _OF_RESULT):
        dims = [
            tuple(axis.name for axis, at in zip(axes, place, strict=True) if at == dim)
            for dim in range(len(shape))
        ]
        if any(
            size % math.prod(mesh.shape[name] for name in dim)
            for size, dim in zip(shape, dims, strict=True)
        ):
            continue
        tried = expression.with_out_sharding(spec_of_dims(dims))
        if tried is not None:
            yield tried


def _choice(tried: Tried) -> Choice:
    """What an expression by itself makes, and sends by Shardy's passes, where they can say."""
    from sdyscope.analysis.collectives.predicted import Predictor
    from sdyscope.analysis.trials.traffic import traffic

    try:
        program = Staged(Program("expression", tried.traced), ("shardy",))
        prediction = Predictor(program.lowered["shardy"], program.graph("shardy")).predict()
    except SdyscopeError:
        return Choice(tried.text, tried.results, None)
    sent = [Sent(row.kind, row.axes, row.sent) for row in traffic(prediction.collectives)]
    unknown = any(each.unknown_trips for each in prediction.collectives.collectives)
    return Choice(tried.text, tried.results, tuple(sent), unknown)
