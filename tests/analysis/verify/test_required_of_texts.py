"""What is compared of values in functions and `shard_map`s: nothing is compiled."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.analysis.collectives.read import collectives
from sdyscope.analysis.verify.audited import AuditedStage
from sdyscope.analysis.verify.compiled import shown_key
from sdyscope.analysis.verify.ops import OpNames
from sdyscope.analysis.verify.required import required_stage
from sdyscope.analysis.verify.values import numbers
from sdyscope.facts.origins import CollectiveOrigin
from sdyscope.facts.program import Program
from sdyscope.hlo import read_hlo
from sdyscope.inspection import Inspection
from sdyscope.stages import compat
from sdyscope.stages.audit.facts import (
    Audited,
    AuditedCollective,
    AuditedMove,
    AuditedOp,
    AuditedWay,
    Blocks,
)
from sdyscope.values.mesh import Mesh
from sdyscope.values.sharding import PartitionSpec

MESH = Mesh.of({"data": 4, "model": 2})
GATHER = """
HloModule m, num_partitions=8

ENTRY e {
%p = f32[8,4]{1,0} parameter(0)
ROOT %m = f32[8,8]{1,0} all-gather(%p), channel_id=1, dimensions={1}, \
replica_groups={{0,1},{2,3},{4,5},{6,7}}, use_global_device_ids=true
}
"""
#: The blocks that devices have of a matrix whose columns are over `model`.
COLUMNS: Blocks = [[0, 0], [0, 1]] * 4
WHOLE: Blocks = [[0, 0]]


def twice(x: Any, y: Any) -> Any:
    """A function that two calls give another form of what they give it."""

    @jax.jit
    def turned(given: Any) -> Any:
        return jnp.cos(given.T)

    return turned(jnp.sin(x)) + turned(jnp.tanh(y))


def mapped(x: Any, _: Any, *, constrained: bool = False) -> Any:
    """A `shard_map` over one axis; the other is free in its body, or constrained."""
    rows = P("data")

    def body(block: Any) -> Any:
        made = jnp.sin(jnp.tanh(block))
        return jax.lax.with_sharding_constraint(made, P(None, "model")) if constrained else made

    over = jax.shard_map(
        body,
        mesh=compat.abstract_mesh(MESH),
        in_specs=rows,
        out_specs=rows,
        axis_names={"data"},
    )
    return jnp.cos(over(x))


def plain(x: Any, _: Any) -> Any:
    """An op behind another."""
    return jnp.cos(jnp.sin(x))


def taken(x: Any, _: Any) -> Any:
    """A `shard_map` that takes what an op makes."""
    rows = P("data")
    over = jax.shard_map(
        jnp.tanh,
        mesh=compat.abstract_mesh(MESH),
        in_specs=rows,
        out_specs=rows,
        axis_names={"data"},
    )
    return over(jnp.sin(x))


def stage(
    step: Any,
    partitioner: str,
    value: str,
    maker: str,
    before: PartitionSpec,
    after: PartitionSpec,
    *,
    constrained: tuple[Blocks, ...] = (),
    constraints_kept: bool = False,
    taken_by: str = "cosine",
) -> AuditedStage:
    """What is compared of a gather for a cosine, or another op.

    Args:
        step: the program.
        partitioner: for which it is lowered.
        value: what the cause says is moved.
        maker: the kind of the op that makes what XLA moves, with its columns over `model`.
        before: how the cause says that it is sharded.
        after: how it says that the cosine requires it; XLA gives that whole columns.
        constrained: the layouts that constraints gave it before it was gathered.
        constraints_kept: whether XLA has constraints under their own names.
        taken_by: the kind of the op that takes it in place of the cosine.
    """
    mesh = compat.abstract_mesh(MESH)
    arguments = [
        jax.ShapeDtypeStruct((8, 8), jnp.float32, sharding=NamedSharding(mesh, P(*spec)))
        for spec in (("data", "model"), ("data", "model"))
    ]
    program = Inspection(Program("step", jax.jit(step), arguments, mesh=mesh), [partitioner])
    graph = program.graph(partitioner)
    number_of = {graph.ops[node].mnemonic: number for node, number in numbers(graph).items()}
    ops = [
        AuditedOp(graph.ops[node].kind, [], [], graph.ops[node].call_target or "")
        for node in numbers(graph)
    ]
    taker = number_of[taken_by]
    scope, op, source = OpNames(graph).names[taker]
    origin = CollectiveOrigin("resharding", value, before, after, op, scope, source, ())
    read = collectives(read_hlo(GATHER), program.meshes.values(), {})
    shown = read.with_parts(lambda _, part: replace(part, origin=origin))
    (gather,) = shown.collectives
    kind, groups, size, sent = shown_key(gather, 8)
    way = AuditedWay(
        [number_of[maker]], [], [], COLUMNS, list(constrained), [(taker, WHOLE)], [WHOLE]
    )
    move = AuditedMove(
        [taker],
        is_returned=False,
        is_named_as_maker=True,
        is_named_as_taker=False,
        is_generated=False,
        way=way,
    )
    audited = Audited(
        ops=ops,
        values={
            number: [] for number, op in enumerate(ops) if constraints_kept or not op.is_constraint
        },
        collectives=[
            AuditedCollective(
                gather.name,
                kind,
                [list(group) for group in groups],
                size,
                sent,
                received=sent,
                count=1,
                ops=[],
                scopes=[],
                dims=[],
                moves=[move],
            )
        ],
    )
    return required_stage(shown, audited, graph)


OVER_MODEL = PartitionSpec.of(None, "model")
OVER_DATA = PartitionSpec.of("data", None)
BOTH = PartitionSpec.of("data", "model")
NONE = PartitionSpec.of(None, None)


@pytest.fixture(params=["shardy", "gspmd"])
def partitioner(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.mark.parametrize(("value", "wrong"), [("sin or tanh", 0), ("sin or exp", 1), ("cos", 1)])
def test_what_several_calls_give_is_known_by_the_names_of_all(
    partitioner: str, value: str, wrong: int
) -> None:
    """XLA moves what the function takes; by which call is not known."""
    compared = stage(twice, partitioner, value, "transpose", OVER_MODEL, NONE)
    assert len(compared.disagreements) == wrong, compared


def test_what_a_shard_map_gives_is_what_its_body_returns(partitioner: str) -> None:
    """XLA has it as a device's block of it, whose layout is not that of the whole."""
    compared = stage(mapped, partitioner, "shard_map", "sine", BOTH, OVER_DATA)
    assert (compared.compared, compared.disagreements) == (1, ())
    assert compared.left_out == {"not followed": 2}


@pytest.mark.skipif(
    compat.version_tuple() < (0, 9), reason="a constraint in a shard_map needs a mesh in context"
)
def test_so_it_is_where_its_body_constrains_what_it_returns(partitioner: str) -> None:
    step = partial(mapped, constrained=True)
    for kept in (False, True):
        compared = stage(
            step, partitioner, "shard_map", "sine", BOTH, OVER_DATA, constraints_kept=kept
        )
        assert compared.disagreements == ()


def test_what_a_body_makes_on_the_way_is_not_what_its_shard_map_gives(partitioner: str) -> None:
    compared = stage(mapped, partitioner, "shard_map", "tanh", BOTH, OVER_DATA)
    assert [each.found for each in compared.disagreements] == ["tanh"]


def test_the_shardings_of_what_a_body_makes_are_compared(partitioner: str) -> None:
    """There the value is a block itself, over the axes that are free."""
    right = stage(mapped, partitioner, "sin", "sine", OVER_MODEL, NONE)
    assert (right.compared, right.disagreements, right.left_out) == (3, (), {})
    wrong = stage(mapped, partitioner, "sin", "sine", NONE, OVER_MODEL)
    assert len(wrong.disagreements) == 2


def test_a_constraint_on_the_way_gives_a_value_another_sharding(partitioner: str) -> None:
    """The value has one name before it and behind."""
    cells = [[device // 2, device % 2] for device in range(8)]
    right = stage(plain, partitioner, "sin", "sine", BOTH, NONE, constrained=(cells,))
    assert (right.compared, right.disagreements) == (3, ())
    wrong = stage(plain, partitioner, "sin", "sine", BOTH, NONE, constrained=(WHOLE,))
    assert len(wrong.disagreements) == 1


def test_what_an_op_moves_of_its_own_was_not_made_as_decided(partitioner: str) -> None:
    compared = stage(plain, partitioner, "sin", "sine", OVER_MODEL, BOTH, taken_by="sine")
    assert (compared.compared, compared.disagreements) == (2, ())
    assert compared.left_out == {"not followed": 1}


def test_the_block_in_a_shard_map_is_not_the_whole_that_it_takes(partitioner: str) -> None:
    compared = stage(taken, partitioner, "sin", "sine", NONE, OVER_DATA, taken_by="tanh")
    assert (compared.compared, compared.disagreements) == (1, ())
    assert compared.left_out == {"not followed": 2}
