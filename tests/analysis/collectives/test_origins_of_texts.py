"""Causes of collectives of hand-written programs, as JAX 0.12 names them: nothing is compiled."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.analysis.collectives.origins import with_origins
from sdyscope.analysis.collectives.read import collectives
from sdyscope.facts.origins import CollectiveOrigin
from sdyscope.facts.program import Program
from sdyscope.hlo import read_hlo
from sdyscope.inspection import Inspection
from sdyscope.stages import compat
from sdyscope.values.mesh import Mesh
from sdyscope.words.origins import origin_text, spec_text

MESH = Mesh.of({"data": 4, "model": 2})
COLUMNS = "replica_groups={{0,1},{2,3},{4,5},{6,7}}, use_global_device_ids=true"
ROWS = "replica_groups={{0,2,4,6},{1,3,5,7}}, use_global_device_ids=true"
ALL = "source_target_pairs={{0,0},{2,1},{4,2},{6,3},{1,4},{3,5},{5,6},{7,7}}"


def abstract(shape: tuple[int, ...], *spec: Any, dtype: Any = jnp.float32) -> Any:
    mesh = compat.abstract_mesh(MESH)
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))


def origin_of(fun: Any, arguments: Any, lines: str, named: dict[str, str]) -> CollectiveOrigin:
    """As ``origins_of``, of the only collective."""
    (origin,) = origins_of(fun, arguments, lines, named).values()
    return origin


def origins_of(
    fun: Any, arguments: Any, lines: str, named: dict[str, str]
) -> dict[str, CollectiveOrigin]:
    """The origins of the collectives of a text, by their names.

    Args:
        fun: the program.
        arguments: what it is given.
        lines: its instructions.
        named: by instruction the kind of the op that it is named after.
    """
    program = Inspection(
        Program("step", jax.jit(fun), arguments, mesh=compat.abstract_mesh(MESH)), ["shardy"]
    )
    graph = program.graph("shardy")
    nodes = {op.mnemonic: op.id for op in graph.operations()}
    tags = {name: ((nodes[kind],),) for name, kind in named.items()}
    text = f"HloModule m, num_partitions=8\n\nENTRY e {{\n{lines.strip()}\n}}\n"
    read = collectives(read_hlo(text), program.meshes.values(), tags)
    propagated = program.propagated("shardy", explained=True)
    explained = with_origins(read, graph, propagated, program.annotations("shardy"))
    origins = {}
    for each in explained.collectives:
        (part,) = each.parts
        assert part.origin is not None
        origins[each.name] = part.origin
    return origins


def test_what_is_moved_is_not_what_the_op_makes_that_it_is_moved_for() -> None:
    """XLA says who makes it; the result, on the axes too, is needed otherwise behind."""

    def step(x: Any, y: Any, w: Any) -> Any:
        return jnp.sum(jnp.sin(x) * jnp.tanh(y), axis=0) + w

    origin = origin_of(
        step,
        (
            abstract((16, 32), ("data", "model")),
            abstract((16, 32), None, "data"),
            abstract((32,), "data"),
        ),
        f"""
%p = f32[16,8]{{1,0}} parameter(0)
%v = f32[16,8]{{1,0}} tanh(%p)
%e = f32[2,32]{{1,0}} reshape(%v)
%m = f32[2,32]{{1,0}} collective-permute(%e), channel_id=1, {ALL}
ROOT %d = f32[2,32]{{1,0}} multiply(%m, %m)
""",
        {"v": "tanh", "m": "multiply", "d": "multiply"},
    )
    assert (origin.value, origin.op) == ("tanh", "mul")
    assert spec_text(origin.after) == "P(('data', 'model'), None)"


@pytest.mark.parametrize(("element", "value"), [("f32", "sin"), ("pred", "gt")])
def test_what_is_moved_has_the_elements_of_its_value(element: str, value: str) -> None:
    """Both operands are sharded alike, and both have to be moved."""

    def step(m: Any, x: Any, y: Any) -> Any:
        return jax.lax.select(m > 0, jnp.sin(x), y)

    origin = origin_of(
        step,
        (
            abstract((16, 32), None, "data"),
            abstract((16, 32), None, "data"),
            abstract((16, 32), ("data", "model")),
        ),
        f"""
%p = {element}[16,8]{{1,0}} parameter(0)
%v = {element}[16,8]{{1,0}} copy(%p)
%m = {element}[16,32]{{1,0}} all-gather(%v), channel_id=1, {ROWS}, dimensions={{1}}
ROOT %d = {element}[16,32]{{1,0}} copy(%m)
""",
        {"m": "select", "d": "select"},
    )
    assert origin.value == value, origin


def test_what_an_elementwise_op_makes_as_its_operands_are_is_its_own_result() -> None:
    """XLA moves it once, not each operand, and names that after the op, too."""

    def step(x: Any, y: Any) -> Any:
        whole = NamedSharding(compat.abstract_mesh(MESH), P(None, None))
        return jax.lax.with_sharding_constraint(jnp.sin(x) * jnp.tanh(y), whole)

    origin = origin_of(
        step,
        (abstract((16, 32), "data"), abstract((16, 32), "data")),
        f"""
%p = f32[4,32]{{1,0}} parameter(0)
%v = f32[4,32]{{1,0}} multiply(%p, %p)
ROOT %m = f32[16,32]{{1,0}} all-gather(%v), channel_id=1, {ROWS}, dimensions={{0}}
""",
        {"v": "multiply", "m": "multiply"},
    )
    assert (origin.value, origin.op, origin.own_result) == ("mul", "mul", True)
    assert (origin.before, spec_text(origin.after)) == (None, "P(None, None)")
    assert [each.name for each in origin.annotations if each.role == "has"] == ["x", "y"]


@pytest.mark.parametrize(("rows", "after"), [(4, "P('data', None)"), (16, "P(None, None)")])
def test_what_a_gather_leaves_is_what_its_shape_says(rows: int, after: str) -> None:
    """Rows that are whole were gathered before, by a collective that is not known to be for it."""
    origin = origin_of(
        jnp.fft.fft,
        (abstract((16, 32), "data", "model", dtype=jnp.complex64),),
        f"""
%p = c64[{rows},16]{{1,0}} parameter(0)
%m = c64[{rows},32]{{1,0}} all-gather(%p), channel_id=1, {COLUMNS}, dimensions={{1}}
ROOT %d = c64[{rows},32]{{1,0}} fft(%m), fft_type=FFT, fft_length={{32}}
""",
        {"m": "fft", "d": "fft"},
    )
    assert (origin.value, spec_text(origin.after)) == ("a", after), origin


def test_of_what_a_barrier_gives_the_value_that_is_known_is_moved() -> None:
    """Both fit; XLA says which of them it takes."""

    def step(x: Any, y: Any) -> Any:
        whole = NamedSharding(compat.abstract_mesh(MESH), P(None, None))
        both = jax.lax.optimization_barrier((jnp.sin(x), jnp.tanh(y)))
        return [jax.lax.with_sharding_constraint(each, whole) for each in both]

    arguments = (abstract((16, 32), "data"), abstract((16, 32), "data"))
    lines = f"""
%p = f32[4,32]{{1,0}} parameter(0)
%v = f32[4,32]{{1,0}} KIND(%p)
ROOT %m = f32[16,32]{{1,0}} all-gather(%v), channel_id=1, {ROWS}, dimensions={{0}}
"""
    for kind, value in (("sine", "sin"), ("tanh", "tanh")):
        text = lines.replace("KIND", kind)
        origin = origin_of(step, arguments, text, {"v": kind, "m": "optimization_barrier"})
        assert (origin.value, origin.uncertain) == (value, False), origin


@pytest.mark.parametrize(("block", "along", "value"), [((4, 16), 0, "sin"), ((16, 4), 1, "tanh")])
def test_what_is_gathered_has_the_axes_along_the_dimension_that_it_is_gathered_in(
    block: tuple[int, int], along: int, value: str
) -> None:
    """A barrier gives both operands of a product, which are equal in shape without the axes."""

    def step(x: Any, y: Any) -> Any:
        x, y = jax.lax.optimization_barrier((jnp.sin(x), jnp.tanh(y)))
        return jnp.einsum("ij,kj->ik", x, y)

    origin = origin_of(
        step,
        (abstract((16, 16), "data"), abstract((32, 16), "model", "data")),
        f"""
%p = f32[{block[0]},{block[1]}]{{1,0}} parameter(0)
%v = f32[{block[0]},{block[1]}]{{1,0}} copy(%p)
%m = f32[16,16]{{1,0}} all-gather(%v), channel_id=1, {ROWS}, dimensions={{{along}}}
ROOT %d = f32[16,16]{{1,0}} dot(%m, %m), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
""",
        {"v": "optimization_barrier", "m": "dot_general", "d": "dot_general"},
    )
    assert origin.value == value, origin


@pytest.mark.parametrize("reduced", [False, True])
def test_sums_that_devices_hand_on_are_why_they_do(reduced: bool) -> None:
    """As TPUs scatter a gradient; not where something else reduces what the product makes."""

    def step(x: Any, y: Any) -> Any:
        mesh = compat.abstract_mesh(MESH)
        return jax.lax.with_sharding_constraint(x.T @ y, NamedSharding(mesh, P("data")))

    on = "source_target_pairs={{0,2},{2,4},{4,6},{6,0},{1,3},{3,5},{5,7},{7,1}}"
    sums = f"%r = f32[2,32]{{1,0}} all-reduce(%a), channel_id=2, {ROWS}, to_apply=%add"
    origins = origins_of(
        step,
        (abstract((16, 8), "data"), abstract((16, 32), "data")),
        f"""
%p = f32[4,2]{{1,0}} parameter(0)
%q = f32[4,32]{{1,0}} parameter(1)
%d = f32[2,32]{{1,0}} dot(%p, %q), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
%m = f32[2,32]{{1,0}} collective-permute(%d), channel_id=1, {on}
%a = f32[2,32]{{1,0}} add(%m, %d)
{sums if reduced else ""}
ROOT %t = f32[2,32]{{1,0}} copy(%{"r" if reduced else "a"})
""",
        dict.fromkeys(("d", "m", "a", *(["r"] if reduced else [])), "dot_general"),
    )
    handed_on = origins["m"]
    assert handed_on.in_turns is not reduced
    if not reduced:
        assert handed_on.kind == "reduction"
        assert {annotation.name for annotation in handed_on.annotations} == {"x", "y"}
        assert "; each device adds its own to what it hands on" in origin_text(handed_on)


@pytest.mark.parametrize("manual", [{"data", "model"}, {"model"}, {"data"}])
def test_on_manual_axes_a_collective_is_the_program_s_whatever_it_is_named_after(
    manual: set[str],
) -> None:
    """TPUs make one of a product and of the reduce-scatter behind it, with the product's name."""

    axis = "model" if "model" in manual else "data"

    def step(x: Any, w: Any) -> Any:
        over = jax.shard_map(
            lambda x, w: jax.lax.psum_scatter(x @ w, axis, tiled=True),
            mesh=compat.abstract_mesh(MESH),
            in_specs=(P(None, axis), P(axis)),
            out_specs=P(axis),
            axis_names=manual,
        )
        return over(x, w)

    origin = origin_of(
        step,
        (abstract((8, 8)), abstract((8, 6))),
        f"""
%p = f32[8,4]{{1,0}} parameter(0)
%q = f32[4,6]{{1,0}} parameter(1)
%d = f32[8,6]{{1,0}} dot(%p, %q), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
ROOT %m = f32[8,6]{{1,0}} all-reduce(%d), channel_id=1, {COLUMNS}, to_apply=%add
""",
        {"d": "dot_general", "m": "dot_general"},
    )
    # On axes that are left to the compiler it can be its own.
    is_programs = "model" in manual
    assert (origin.kind == "program") is is_programs
    if is_programs:
        assert (origin.op, origin.followed) == ("reduce_scatter", True)
        assert origin_text(origin) == "the program itself calls reduce_scatter (op followed)"


@pytest.mark.parametrize(("axes", "op"), [("data", ""), ("model", "psum")])
def test_it_is_one_over_the_same_axes(axes: str, op: str) -> None:
    """The nearest may be over others, and then it is none."""

    def step(x: Any, w: Any) -> Any:
        over = jax.shard_map(
            lambda x, w: jax.lax.psum(jnp.sin(jax.lax.psum(x @ w, "data")), axes),
            mesh=compat.abstract_mesh(MESH),
            in_specs=(P(None, "model"), P("model")),
            out_specs=P(),
            check_vma=False,
        )
        return over(x, w)

    origin = origin_of(
        step,
        (abstract((8, 8)), abstract((8, 6))),
        f"""
%p = f32[8,4]{{1,0}} parameter(0)
%q = f32[4,6]{{1,0}} parameter(1)
%d = f32[8,6]{{1,0}} dot(%p, %q), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
ROOT %m = f32[8,6]{{1,0}} all-reduce(%d), channel_id=1, {COLUMNS}, to_apply=%add
""",
        {"d": "dot_general", "m": "dot_general"},
    )
    assert (origin.kind == "program") is bool(op)
    assert not op or origin.op == op


def test_what_is_returned_as_it_is_needs_nothing() -> None:
    """What a `shard_map` makes of what it takes is only a form: that is followed to the result."""

    def step(x: Any) -> Any:
        over = jax.shard_map(
            lambda x: x[None],
            mesh=compat.abstract_mesh(MESH),
            in_specs=P(None, "model"),
            out_specs=P(("data", "model")),
            check_vma=False,
        )
        return over(x)

    origin = origin_of(
        step,
        (abstract((4, 8), "data", "model"),),
        f"""
%p = f32[1,4]{{1,0}} parameter(0)
%m = f32[4,4]{{1,0}} all-gather(%p), channel_id=1, dimensions={{0}}, {ROWS}
ROOT %b = f32[1,4,4]{{2,1,0}} bitcast(%m)
""",
        {},
    )
    assert (origin.value, origin.op, origin.result) == ("x", "shard_map", "")
    assert (spec_text(origin.before), spec_text(origin.after)) == (
        "P('data', 'model')",
        "P(None, 'model')",
    )
