"""The steps of a propagation, replayed."""

import pytest

from sdyscope.analysis.propagation.replay import Replay
from sdyscope.graph.op_kinds import CONSTRAINTS
from sdyscope.inspection import Inspection
from sdyscope.targets import resolve
from sdyscope.words.propagation import tensor_text


def made(inspection):
    return Replay(inspection.explainer("shardy").decisions)


@pytest.fixture(scope="module", params=["mlp", "fsdp-transformer"])
def inspection(request):
    settings = {} if request.param == "mlp" else {"layers": "1", "constrained": "false"}
    return Inspection(resolve(request.param, settings=settings), ["shardy"])


def axes(sharding):
    return [axis for dim in sharding.dim_shardings for axis in dim.axes] if sharding else []


def test_before_the_first_step_there_is_only_what_is_written(inspection):
    replay, propagated = made(inspection), inspection.propagated("shardy")
    annotated = {a.op for a in inspection.annotations() if a.sharding is not None}
    returned = {node for node, _ in replay.flow.returned}
    returned |= {op.id for op in replay.flow.graph.results()}
    for value, sharding in replay.at(-1).items():
        node = propagated.values[value].node
        if not axes(sharding) or node in returned:
            continue
        # JAX 0.7 puts a constraint on what it constrains without a step.
        uses = {op.kind for op, _ in replay.flow.uses((node, 0))}
        assert (
            replay.flow.written(replay.flow.graph.ops[node]).id in annotated or uses & CONSTRAINTS
        )


def test_after_the_last_step_it_is_the_result(inspection):
    replay, propagated = made(inspection), inspection.propagated("shardy")
    for value, sharding in replay.at(replay.last).items():
        assert sharding == propagated.values[value].sharding


def test_every_step_adds_axes_and_takes_none(inspection):
    replay = made(inspection)
    tables = [replay.at(n) for n in range(-1, replay.last + 1, max(replay.last // 12, 1))]
    counts = [sum(len(axes(s)) for s in table.values()) for table in tables]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]


def test_moves_have_words_and_places():
    replay = made(Inspection(resolve("mlp"), ["shardy"]))
    moves = list(replay.steps())
    assert [move.step for move in moves] == sorted(move.step for move in moves)
    subtraction = next(move for move in moves if move.through.kind == "stablehlo.subtract")
    assert subtraction.through.scope == "jit(step)/jvp(loss)/sub"
    assert tensor_text(subtraction.source) == "dim 0 of the right operand"
    assert [*map(tensor_text, subtraction.targets)] == [
        "dim 0 of the left operand",
        "dim 0 of the result",
    ]
    (result, *_) = [move for move in moves if move.through.kind == "func.return"]
    assert tensor_text(result.source) == "result[0]['w1']"
    assert [*map(tensor_text, result.targets)] == ["dim 1 of the returned value"]
    assert not replay.has_priorities
    assert {move.priority for move in moves} == {0}


def test_priorities_are_propagated_one_after_the_other():
    plain = Inspection(resolve("mlp"), ["shardy"])
    paths = [a.path for a in plain.annotations() if a.kind == "argument" and "'w2'" in a.path]
    replay = made(plain.what_if({}, {(path, 0): 1 for path in paths}))
    assert replay.has_priorities
    priorities = [move.priority for move in replay.steps()]
    assert priorities == sorted(priorities)
    assert set(priorities) <= {0, 1}


def test_origins_are_annotations_of_the_lowered_module(inspection):
    replay, propagated = made(inspection), inspection.propagated("shardy")
    for value in propagated.values.values():
        for axis, origin in value.origins:
            annotation = replay.places.annotation(origin, value.id)
            assert annotation is not None, (value.id, str(axis), str(origin))
            if origin.type == "input":
                assert (annotation.kind, annotation.index) == ("argument", origin.index)
