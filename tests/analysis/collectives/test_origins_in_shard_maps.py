"""Origins around a `shard_map`, of unreduced values, and of what a program says itself."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P
from origin_programs import (
    MESH,
    PARTITIONERS,
    abstract,
    collectives_of,
    named,
    of_kind,
    parts_of,
)
from user_programs import USER_PROGRAMS

from sdyscope.inspection import Inspection
from sdyscope.stages import compat
from sdyscope.stages.lowered.read import read_bytes
from sdyscope.words.origins import origin_text, spec_text

pytestmark = pytest.mark.compiles

UNREDUCED = """
module @reshard attributes {mhlo.num_partitions = 2 : i32} {
  sdy.mesh @mesh = <["x"=1, "y"=2]>
  func.func public @main(%arg0: tensor<4x2xf32>
      {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}], unreduced={"y"}>})
      -> (tensor<4x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) {
    %0 = sdy.sharding_constraint %arg0 <@mesh, [{"x"}, {}]> : tensor<4x2xf32>
    return %0 : tensor<4x2xf32>
  }
}
"""
UNREDUCED_SUM = """
module @added attributes {mhlo.num_partitions = 8 : i32} {
  sdy.mesh @mesh = <["x"=4, "y"=2]>
  func.func public @main(
      %arg0: tensor<16x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"y"}]>},
      %arg1: tensor<64x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {}]>})
      -> (tensor<16x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {}]>}) {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0]
        : (tensor<16x64xf32>, tensor<64x32xf32>) -> tensor<16x32xf32> loc("dot")
    %1 = sdy.sharding_constraint %0 <@mesh, [{}, {}], unreduced={"y"}>
        : tensor<16x32xf32> loc("dot")
    ADDED
    return %4 : tensor<16x32xf32>
  }
}
"""
ADDED = """
    %2 = stablehlo.add %1, %1 : tensor<16x32xf32> loc("add")
    %3 = sdy.sharding_constraint %2 <@mesh, [{}, {}], unreduced={"y"}>
        : tensor<16x32xf32> loc("add")
    %4 = sdy.sharding_constraint %3 <@mesh, [{"y"}, {}]> : tensor<16x32xf32> loc("reshard")
"""
DOUBLED = """
    %3 = stablehlo.add %1, %1 : tensor<16x32xf32> loc("add")
    %4 = sdy.sharding_constraint %3 <@mesh, [{"y"}, {}]> : tensor<16x32xf32> loc("reshard")
"""
GATHERED = """
module @gathered attributes {mhlo.num_partitions = 8 : i32} {
  sdy.mesh @mesh = <["x"=2, "y"=2, "z"=2]>
  func.func public @main(%arg0: tensor<2x2x8xf32>
      {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}, {}]>})
      -> (tensor<4x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", "y"}, {}]>}) {
    %0 = sdy.manual_computation(%arg0) in_shardings=[<@mesh, [{"x"}, {}, {}]>]
        out_shardings=[<@mesh, [{"x"}, {}]>] manual_axes={"x"} (%arg1: tensor<1x2x8xf32>) {
      %1 = stablehlo.reshape %arg1 : (tensor<1x2x8xf32>) -> tensor<2x8xf32>
      %2 = sdy.sharding_constraint %1 <@mesh, [{"y"}, {}]> : tensor<2x8xf32>
      sdy.return %2 : tensor<2x8xf32>
    } : (tensor<2x2x8xf32>) -> tensor<4x8xf32>
    return %0 : tensor<4x8xf32>
  }
}
"""


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_what_the_program_says_itself(partitioner: Any) -> None:
    program = USER_PROGRAMS["shard_map_full"](compat.abstract_mesh(MESH))
    collectives = Inspection(program, [partitioner]).collectives(partitioner)
    (origin,) = (origin for _, _, origin in parts_of(collectives) if origin.kind == "program")
    assert origin.known
    assert origin.op.startswith("psum")
    assert origin.source is not None
    assert origin.source.file.endswith("user_programs.py")
    others = [origin for _, _, origin in parts_of(collectives) if origin.kind != "program"]
    kinds = {annotation.kind for origin in others for annotation in origin.annotations}
    assert not others or kinds == {"shard_map output", "constraint"}


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_what_only_the_backward_pass_calls_is_not_called_by_the_program(partitioner: Any) -> None:
    """JAX sums what it derives of the weights, which every device is given; `all_gather` is ours.

    The backward pass runs the latter once more, and turns it into a `psum_scatter`.
    """

    def body(x: Any, w: Any) -> Any:
        return jnp.tanh(jax.lax.all_gather(x, "model", axis=1, tiled=True) @ w)

    mapped = jax.shard_map(
        body,
        mesh=compat.abstract_mesh(MESH),
        in_specs=(P("data", "model"), P(None, "model")),
        out_specs=P("data", "model"),
    )

    def loss(w: Any, x: Any) -> Any:
        # What is gathered of an argument would not be gathered again.
        return jnp.sum(jax.checkpoint(mapped)(jnp.sin(w[:16]) * x, w))

    w, x = abstract((16, 16), None, "model"), abstract((16, 16), "data", "model")
    step = jax.jit(jax.grad(loss, argnums=(0, 1)))
    told = {
        (each.kind == "all-gather", origin_text(origin))
        for each, _, origin in parts_of(collectives_of(step, w, x, partitioner=partitioner))
        if origin.kind == "program"
    }
    assert told == {
        (True, "the program itself calls all_gather"),
        (False, "the program's backward pass calls psum"),
        (False, "the program's backward pass calls reduce_scatter"),
    }


@pytest.mark.skipif(compat.version_tuple() < (0, 9), reason="does not reduce what is unreduced")
def test_the_end_of_an_unreduced_value_is_for_what_says_so() -> None:
    lowered = read_bytes(UNREDUCED.encode())
    ((one, _, origin),) = parts_of(Inspection(lowered).collectives("shardy"))
    assert (one.kind, origin.kind) == ("all-reduce", "reduction")
    assert [(each.kind, each.role) for each in origin.annotations] == [
        ("argument", "has"),
        ("constraint", "needed"),
    ]
    assert "it reduces a value left unreduced over y by" in origin_text(origin)
    assert "unreduced={'y'}" in origin_text(origin)
    assert "P('x', None) requires it reduced" in origin_text(origin)
    assert not origin.is_over_chosen_axes


@pytest.mark.skipif(compat.version_tuple() < (0, 9), reason="does not reduce what is unreduced")
@pytest.mark.parametrize(
    ("rest", "otherwise"), [(ADDED, 0), (DOUBLED, 2)], ids=["added", "doubled"]
)
def test_what_is_left_unreduced_is_reduced_for_that(rest: str, otherwise: int) -> None:
    """It is so without sharded arguments: by these the op is one that sums, besides."""
    lowered = read_bytes(UNREDUCED_SUM.replace("ADDED", rest).encode())
    parts = parts_of(Inspection(lowered).collectives("shardy"))
    assert parts
    for one, _, origin in parts:
        assert (one.kind, origin.kind) == ("all-reduce", "reduction")
        has = [annotation.kind for annotation in origin.annotations if annotation.role == "has"]
        assert has == ["type"]
        # What is added is one more value left unreduced, up to the constraint that is not.
        needed = [each.kind for each in origin.annotations if each.role == "needed"]
        assert needed == (["constraint"] if rest == ADDED else [])
        assert [annotation.kind for annotation in origin.otherwise] == ["argument"] * otherwise
        assert "it reduces a value left unreduced over y by type" in origin_text(origin)


def test_a_shard_map_gathers_what_it_takes_and_what_its_body_returns() -> None:
    """Its specs leave out an axis of both; that its result is cut again gathers nothing."""
    gathers = {
        part.shape.leaves[0].dimensions: origin
        for one, part, origin in parts_of(
            Inspection(read_bytes(GATHERED.encode())).collectives("shardy")
        )
        if one.kind == "all-gather"
    }
    taken, returned = gathers.pop((1, 2, 8)), gathers.pop((2, 8))
    assert not gathers
    assert [annotation.kind for annotation in taken.annotations] == ["argument"]
    assert [annotation.kind for annotation in returned.annotations] == ["constraint"]
    # Up to JAX 0.7 the argument stands in where the constraint is gone.
    said = origin_text(returned).replace(" (otherwise by main(0))", "")
    assert "P('y', None) but manual_computation requires P(None, None)" in said


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_a_value_is_sharded_by_the_shard_map_that_takes_it(partitioner: Any) -> None:
    """As its second input, which under GSPMD is the only operand of an op of its own."""
    mesh = compat.abstract_mesh(MESH)
    specs = (P(), P(None, "data"))

    @functools.partial(jax.shard_map, mesh=mesh, in_specs=specs, out_specs=P(None, "data"))
    def scaled(scale: Any, y: Any) -> Any:
        return y * scale

    def step(scale: Any, x: Any) -> Any:
        y = jnp.tanh(x)
        return y.max(axis=-1), scaled(scale, y)

    arguments = jax.ShapeDtypeStruct((), jnp.float32), jax.ShapeDtypeStruct((16, 32), jnp.float32)
    collectives = collectives_of(jax.jit(step), *arguments, partitioner=partitioner)
    ((_, part, origin),) = parts_of(collectives)
    assert part.primitive == "reduce_max"
    assert [annotation.kind for annotation in origin.annotations] == ["shard_map input"]


def test_what_comes_out_of_a_shard_map_is_called_by_it_under_gspmd():
    def step(x: Any) -> Any:
        mesh, spec = compat.abstract_mesh(MESH), P("data")
        y = jax.shard_map(jnp.sin, mesh=mesh, in_specs=spec, out_specs=spec)(x)
        return y[1:]

    collectives = collectives_of(jax.jit(step), abstract((8, 16), "data"), partitioner="gspmd")
    moved = [(origin.value, origin.before) for _, _, origin in parts_of(collectives)]
    assert moved
    assert {(value, spec_text(before)) for value, before in moved} == {
        ("shard_map", "P('data', None)")
    }


def summed_over_model(x: Any, w: Any) -> Any:
    """A product in a shard_map over one of the axes, which sums it."""
    inside = jax.shard_map(
        lambda x, w: jax.lax.psum(x @ w, "model"),
        mesh=compat.abstract_mesh(MESH),
        in_specs=(P(None, "model"), P("model", None)),
        out_specs=P(),
        axis_names={"model"},
    )
    return inside(x, w)


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_a_shard_map_over_some_axes_has_its_operands_gathered(partitioner: Any) -> None:
    """XLA may name that after the op inside that takes them, which needs nothing else."""
    step = jax.jit(lambda x, w, v: jnp.sin(summed_over_model(x, w)) @ v)

    def values(*arguments: Any) -> dict[tuple[str, str], str]:
        parts = parts_of(collectives_of(step, *arguments, partitioner=partitioner))
        moved = [(c.kind, o) for c, _, o in parts if c.kind in ("all-gather", "collective-permute")]
        return {(kind, o.value): o.op for kind, o in moved}

    x, w, v = abstract((16, 32), "data", "model"), abstract((32, 32), "data"), (32, 16)
    of_rows = values(x, w, abstract(v, "data"))
    assert {of_rows[key] for key in of_rows if key != ("all-gather", "v")} == {"shard_map"}
    # What comes out has the shape of what goes in, and is sharded as that was outside.
    of_columns = values(
        abstract((16, 32), None, "data"),
        abstract((32, 32), None, ("data", "model")),
        abstract(v, ("data", "model"), None),
    )
    assert {(kind, "x"): "shard_map" for kind, _ in of_columns}.items() <= of_columns.items()


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_what_a_barrier_takes_goes_with_its_own_result_alone(partitioner: Any) -> None:
    step = jax.jit(lambda *operands: summed_over_model(*jax.lax.optimization_barrier(operands)[:2]))
    x, w = abstract((16, 32), "model", None), abstract((32, 32), "data", "model")
    others = abstract((32, 32), None, ("model", "data")), abstract((16, 32), "data", None)
    parts = parts_of(collectives_of(step, x, w, *others, partitioner=partitioner))
    gathers = of_kind(parts, "all-gather")
    assert {(o.value, o.op) for o in gathers} == {("operands[1]", "shard_map")}
    assert not any(named(o, "needed") for o in gathers)


def test_what_a_loop_in_a_shard_map_carries_is_not_what_that_returns() -> None:
    """As of JAX 0.11 XLA names what moves the carry after the `shard_map`, as it does its results.

    The sum of these needs them otherwise, too, over the axis that the carry has.
    """

    def varying(w: Any) -> Any:
        if hasattr(jax.lax, "pcast"):
            return jax.lax.pcast(w, "model", to="varying")
        return jax.lax.pvary(w, "model")

    def local(w: Any, x: Any) -> Any:
        def body(_: int, carry: Any) -> Any:
            return carry - jnp.tanh(x.T @ jnp.tanh(x @ carry))

        return jax.lax.fori_loop(0, 3, body, varying(w))[None]

    def step(w: Any, x: Any) -> Any:
        mapped = jax.shard_map(
            local,
            mesh=compat.abstract_mesh(MESH),
            in_specs=(P(), P("model")),
            out_specs=P("model"),
            axis_names={"model"},
        )
        return mapped(w, x).mean(0)

    arguments = abstract((16, 32), "data"), abstract((16, 16), ("model", "data"))
    parts = parts_of(collectives_of(jax.jit(step), *arguments))
    gathers = of_kind(parts, "all-gather")
    assert gathers
    for origin in gathers:
        assert (origin.op, origin.value) == ("dot_general", "w"), origin_text(origin)
