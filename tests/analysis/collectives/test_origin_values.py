"""Origins of collectives: programs whose answer is known, and how many have one."""

from __future__ import annotations

import functools
import itertools
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from user_programs import USER_PROGRAMS

from sdyscope.analysis.collectives import boundaries, origin_needs, origins
from sdyscope.analysis.collectives.comms import comms_document
from sdyscope.analysis.collectives.totals import Collective, Collectives, Part
from sdyscope.errors import CompilerError
from sdyscope.facts.origins import CollectiveOrigin
from sdyscope.facts.program import Program
from sdyscope.facts.remarks import Remark
from sdyscope.inspection import Inspection
from sdyscope.stages import compat
from sdyscope.stages.lowered.read import read_bytes
from sdyscope.targets import resolve
from sdyscope.values.mesh import Mesh
from sdyscope.views.comms import footer
from sdyscope.words.origins import origin_text, spec_text

pytestmark = pytest.mark.compiles

MESH = Mesh.of({"data": 4, "model": 2})
CUBE = Mesh.of({"a": 2, "b": 2, "c": 2})
PARTITIONERS = ("shardy", "gspmd")
SMALL = {"d_model": "64", "d_ff": "128", "vocab": "256", "heads": "4", "head_dim": "16"}
VARIANTS = ({"layers": "1", "constrained": "false"}, {"scan": "true", "remat": "true"})


def on(mesh: Mesh, *spec: Any) -> NamedSharding:
    return NamedSharding(compat.abstract_mesh(mesh), P(*spec))


def abstract(shape: tuple[int, ...], *spec: Any) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=on(MESH, *spec))


def counted(shape: tuple[int, ...], *spec: Any) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.int32, sharding=on(MESH, *spec))


def constrained(value: Any, *spec: Any) -> Any:
    return jax.lax.with_sharding_constraint(value, on(MESH, *spec))


def collectives_of(
    fun: Any, *arguments: Any, partitioner: Any = "shardy", mesh: Mesh = MESH
) -> Collectives:
    program = Program("step", fun, arguments, mesh=compat.abstract_mesh(mesh))
    return Inspection(program, [partitioner]).collectives(partitioner)


def in_cube(*spec: Any) -> NamedSharding:
    return on(CUBE, *spec)


def cubed(shape: tuple[int, ...], *spec: Any, dtype: Any = jnp.float32) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype, sharding=in_cube(*spec))


def of_cube(fun: Any, *arguments: Any, partitioner: Any = "shardy") -> Collectives:
    return collectives_of(fun, *arguments, partitioner=partitioner, mesh=CUBE)


def parts_of(collectives: Collectives) -> list[tuple[Collective, Part, CollectiveOrigin]]:
    made = []
    for collective in collectives.collectives:
        for part in collective.parts:
            assert part.origin is not None
            made.append((collective, part, part.origin))
    return made


def of_kind(
    parts: list[tuple[Collective, Part, CollectiveOrigin]], kind: str
) -> list[CollectiveOrigin]:
    """The origins of the tensors of collectives of one kind."""
    return [origin for collective, _, origin in parts if collective.kind == kind]


def named(origin: CollectiveOrigin, role: str) -> set[tuple[str, str]]:
    return {
        (annotation.name, spec_text(annotation.spec))
        for annotation in origin.annotations
        if annotation.role == role
    }


@cache
def of_mlp(partitioner: Any) -> Collectives:
    return Inspection(resolve("mlp"), [partitioner]).collectives(partitioner)


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_megatrons_second_matmul(partitioner: Any) -> None:
    """Its rows are on `model`, so that the sum over them crosses devices."""
    (found,) = [
        origin
        for collective, _, origin in parts_of(of_mlp(partitioner))
        if [axis.name for axis in collective.axes or ()] == ["model"]
    ]
    assert (found.kind, found.op, found.scope) == (
        "reduction",
        "dot_general",
        "jvp(block0)/bh,hf->bf",
    )
    assert ("params['w2']", "P('model', None)") in named(found, "has")
    assert {annotation.axes[0].name for annotation in found.annotations} == {"model"}
    assert all(annotation.recorded == (partitioner == "shardy") for annotation in found.annotations)
    assert ("not recorded" in origin_text(found)) == (partitioner == "gspmd")


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_each_tensor_of_a_joined_collective_has_its_own(partitioner: Any) -> None:
    joined = [
        collective for collective in of_mlp(partitioner).collectives if len(collective.parts) > 1
    ]
    assert len(joined) == 1
    ops = [(part.origin.scope, part.origin.op) for part in joined[0].parts if part.origin]
    assert ops == [
        ("transpose(jvp(block0))/bf,fh->bh", "dot_general"),
        ("transpose(jvp(block0))/bh,hf->bf", "dot_general"),
        ("jvp(loss)", "reduce_sum"),
    ]
    assert named(joined[0].parts[2].origin, "has") == {("batch['y']", "P('data', None)")}


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_fsdp_gathers_weights(partitioner: Any) -> None:
    @jax.jit
    def step(w: Any, x: Any) -> Any:
        return constrained(x @ w, "data", None)

    collectives = collectives_of(
        step, abstract((64, 32), "data", None), abstract((16, 64), "data"), partitioner=partitioner
    )
    ((collective, _, origin),) = parts_of(collectives)
    assert collective.kind == "all-gather"
    assert (origin.kind, origin.value, origin.op) == ("resharding", "w", "dot_general")
    assert (spec_text(origin.before), spec_text(origin.after)) == (
        "P('data', None)",
        "P(None, None)",
    )
    assert named(origin, "has") == {("w", "P('data', None)")}
    assert ("P('data', None)") in {spec for _, spec in named(origin, "needed")}
    (tally,) = [one.tally for one in collectives.by_annotation if one.annotation.name == "w"]
    assert (tally.count, tally.bytes) == (1, 64 * 32 * 4)


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_every_change_of_a_sharding(partitioner: Any) -> None:
    """Each pair of shardings, of an argument each: from which, to which, and by which line."""
    specs = [(None, None), ("data", None), (None, "data"), ("model", "data"), (("data", "model"),)]
    pairs = [(one, two) for one, two in itertools.permutations(specs, 2)]

    @jax.jit
    def step(*arrays: Any) -> Any:
        return [constrained(array, *two) for array, (_, two) in zip(arrays, pairs, strict=True)]

    # Sizes tell arguments apart.
    arrays = [abstract((16 * (number + 1), 32), *one) for number, (one, _) in enumerate(pairs)]
    collectives = collectives_of(step, *arrays, partitioner=partitioner)
    seen = set()
    for collective, _, origin in parts_of(collectives):
        assert collective.axes, origin_text(origin)
        assert (origin.kind, origin.op) == ("resharding", "sharding_constraint"), origin_text(
            origin
        )
        (constraint,) = (
            annotation for annotation in origin.annotations if annotation.role == "needed"
        )
        assert constraint.kind == "constraint"
        has = [annotation for annotation in origin.annotations if annotation.role == "has"]
        numbers = {int(ha.name.removeprefix("arrays[").rstrip("]")) for ha in has}
        for number in numbers:
            one, two = pairs[number]
            # As JAX writes them since 0.8.
            assert spec_text(origin.before) == f"P{(*one, *[None] * (2 - len(one)))!r}"
            assert spec_text(origin.after) == f"P{(*two, *[None] * (2 - len(two)))!r}"
        seen |= numbers
    # What a device has already needs no collective; all else has one, with its argument.
    assert seen == {number for number, pair in enumerate(pairs) if not is_there(*pair)}


def is_there(held: tuple[Any, ...], two: tuple[Any, ...]) -> bool:
    """Whether every block of the second sharding lies in the same device's block of the first."""

    def axes(spec: tuple[Any, ...], dim: int) -> tuple[str, ...]:
        entry = spec[dim] if dim < len(spec) else None
        return entry if isinstance(entry, tuple) else (entry,) if entry else ()

    return all(axes(two, dim)[: len(axes(held, dim))] == axes(held, dim) for dim in range(2))


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_a_result_that_is_wanted_otherwise(partitioner: Any) -> None:
    step = jax.jit(lambda x: {"y": x * 2}, out_shardings=on(MESH, None, None))
    collectives = collectives_of(step, abstract((16, 8), "data", None), partitioner=partitioner)
    ((_, _, origin),) = parts_of(collectives)
    assert spec_text(origin.before) == "P('data', None)"
    assert ("x", "P('data', None)") in named(origin, "has")
    if origin.op == "return":
        assert named(origin, "needed") == {("result['y']", "P(None, None)")}


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


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_a_constraint_some_ops_on_makes_a_gather(partitioner: Any) -> None:
    """The ops between go with it; what the value goes together with needs nothing."""

    def step(w: Any, x: Any, *, pinned: bool = True) -> Any:
        h = x @ w
        h = h * jnp.tanh(h + 0.5 * h)
        return constrained(h, "data", None) if pinned else h

    arguments = abstract((64, 64), None, "model"), abstract((32, 64), "data", None)
    found = of_kind(
        parts_of(collectives_of(jax.jit(step), *arguments, partitioner=partitioner)), "all-gather"
    )
    assert found
    for origin in found:
        assert {name for name, _ in named(origin, "has")} == {"w"}
        assert {spec for _, spec in named(origin, "needed")} == {"P('data', None)"}
    without = jax.jit(functools.partial(step, pinned=False))
    free = collectives_of(without, *arguments, partitioner=partitioner)
    assert not free.collectives


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_what_xla_does_not_split_is_gathered_for_it(partitioner: Any) -> None:
    """Propagation lets a Fourier transform keep its axes, and the partitioner gathers it."""
    x = abstract((16, 64), "data", "model")
    collectives = collectives_of(jax.jit(jnp.fft.fft), x, partitioner=partitioner)
    origins = {axis.name: origin for each, _, origin in parts_of(collectives) for axis in each.axes}
    assert {origin.op for origin in origins.values()} == {"fft"}
    after = {name: spec_text(origin.after) for name, origin in origins.items()}
    # One all-gather after the other: none leaves the other axis.
    assert after == {"data": "P(None, None)", "model": "P(None, None)"}


def test_nothing_is_said_not_to_be_sharded_that_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origin_needs, "_TOGETHER", frozenset())
    # Nor that XLA names the argument and the compiled program leads to the op.
    monkeypatch.setattr(origins._Search, "of_op", lambda *_: None)
    x = abstract((16, 64), "data", "model")
    unknown = parts_of(collectives_of(jax.jit(jnp.fft.fft), x))
    assert {origin.not_found for *_, origin in unknown} == {"not needed otherwise"}


def test_a_gather_over_an_axis_that_only_xla_uses_is_split() -> None:
    index = counted((24,), "data")
    # Of the updates, which are whole; the result has `model`, by the weight behind.
    updates, w = abstract((24, 32), None, None), abstract((32, 16), "model", None)
    step = jax.jit(lambda x, index, updates, w: jnp.tanh(x.at[index].set(updates)) @ w)
    parts = parts_of(collectives_of(step, abstract((16, 32), "data"), index, updates, w))
    (whole,) = (o for c, part, o in parts if part.shape.leaves[0].dimensions == (24, 32))
    assert (whole.kind, whole.op) == ("split", "scatter")


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_a_product_that_xla_splits_of_itself(partitioner: Any) -> None:
    x = abstract((16, 16), None, "model")
    parts = parts_of(collectives_of(jax.jit(lambda x: x @ x), x, partitioner=partitioner))
    of_data = [origin for each, _, origin in parts if [a.name for a in each.axes] == ["data"]]
    assert [origin.kind for origin in of_data] == ["split"]
    assert origin_text(of_data[0]) == (
        "XLA itself splits dot_general over these axes; nothing that it sums is sharded on them"
    )


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_a_lookup_that_xla_splits_is_not_for_what_is_computed_of_it(partitioner: Any) -> None:
    """XLA cuts the rows over `model`, which only the weight behind has."""
    x, w = abstract((128, 32), "data"), abstract((32, 32), None, "model")
    at = counted((512,), "data")
    step = jax.jit(lambda x, at, w: x[at] @ w)
    parts = parts_of(collectives_of(step, x, at, w, partitioner=partitioner))
    of_model = [
        (each.kind, origin.op, origin.kind)
        for each, _, origin in parts
        if [axis.name for axis in each.axes] == ["model"]
    ]
    assert of_model == [("all-reduce", "gather", "split")]


def test_a_scatter_is_summed_over_what_it_scatters_alone() -> None:
    """Its updates' other dimension has `model`; XLA cuts the scattered one over it."""
    x, updates = abstract((16, 32), None, "data"), abstract((24, 32), None, "model")
    at = counted((24,), "data")
    w = abstract((32, 16), "model", None)
    step = jax.jit(lambda x, at, updates, w: jnp.tanh(x.at[at].add(updates)) @ w)
    sums = {
        origin.op: origin.kind
        for each, _, origin in parts_of(collectives_of(step, x, at, updates, w))
        if each.kind == "all-reduce"
    }
    assert sums == {"scatter-add": "split", "dot_general": "reduction"}


def test_under_gspmd_an_axis_is_followed_across_an_argument_and_a_constant() -> None:
    """XLA restores an argument's sharding only when it is done, and has one value of equal ones."""
    free = jax.ShapeDtypeStruct((16, 16), jnp.float32)
    z, whole = abstract((16, 16), "data"), abstract((16, 16))
    across = jax.jit(lambda x, y, z: ((x + y).sum(0), y * z))
    positive = jax.jit(lambda x, z: (jnp.maximum(x, 0).sum(0), jnp.maximum(z, 0)))
    # The argument's own axis keeps others from its dimension.
    sharded = abstract((16, 16), "model")
    for function, args, by in (
        (across, (free, whole, z), "z"),
        (across, (free, abstract((16, 16), None, "model"), z), "z"),
        (across, (free, sharded, z), "y"),
        (positive, (free, z), "z"),
    ):
        parts = parts_of(collectives_of(function, *args, partitioner="gspmd"))
        (origin,) = of_kind(parts, "all-reduce")
        assert {name for name, _ in named(origin, "has")} == {by}


@pytest.mark.skipif(compat.version_tuple() < (0, 8), reason="Shardy then brings b to both calls")
def test_what_a_call_makes_is_not_what_another_call_of_the_function_makes() -> None:
    """XLA moves the second one-hot to `b` and gathers that; the first has `b` of itself."""

    def step(at: Any, x: Any) -> Any:
        y = jax.nn.one_hot(at, 16) @ x
        return jax.nn.one_hot(at, 16) @ y, jax.nn.one_hot(at, 16) @ y

    fun = jax.jit(step, out_shardings=(in_cube("b", "c"), in_cube(None, ("c", "a"))))
    arguments = cubed((16,), "c", dtype=jnp.int32), cubed((16, 32), "a")
    parts = parts_of(of_cube(fun, *arguments))
    gathers = [
        origin
        for collective, part, origin in parts
        if collective.kind == "all-gather" and part.shape.leaves[0].dimensions == (16, 16)
    ]
    assert [named(origin, "has") for origin in gathers] == [{("at", "P('c')")}]


def test_what_xla_moves_first_is_not_another_operand_with_some_of_its_axes() -> None:
    """The keys have `b`, and are gathered over `a` and `c`; the gradient beside them has `a`."""

    def loss(params: Any, x: Any) -> Any:
        keys = (x @ params["k"]).reshape(16, 4, 4)
        scores = jax.nn.softmax(jnp.einsum("shd,thd->hst", keys, keys))
        y = jnp.einsum("hst,thd->shd", scores, keys).reshape(16, 16) @ params["o"]
        return (jax.lax.with_sharding_constraint(y, in_cube("b", "a")) ** 2).mean()

    params = {"k": cubed((16, 16), "a", "b"), "o": cubed((16, 16), "a")}
    outs = {name: value.sharding for name, value in params.items()}
    fun = jax.jit(jax.grad(loss), out_shardings=outs)
    parts = parts_of(of_cube(fun, params, cubed((16, 16), None, "b")))
    (origin,) = (
        origin
        for each, part, origin in parts
        if each.kind == "all-gather" and part.shape.leaves[0].dimensions == (16, 4, 4)
    )
    assert named(origin, "has") == {("params['k']", "P('a', 'b')")}


def test_the_edges_of_windows_that_xla_splits_of_itself_are_for_no_tensor_further_on() -> None:
    """The convolution has no `b`, which XLA splits it over; the gain behind it has."""

    def step(x: Any, w: Any, gain: Any) -> Any:
        dims = ("NWC", "WIO", "NWC")
        kernel = jnp.stack([w] * 3)
        y = jax.lax.conv_general_dilated(x[None], kernel, (1,), "SAME", dimension_numbers=dims)[0]
        y = jnp.tanh(y) * gain
        return jax.lax.with_sharding_constraint(y, in_cube("c", "a"))

    args = (cubed((16, 16), None, ("a", "c")), cubed((16, 16), "c", "a"), cubed((16,), "b"))
    parts = parts_of(of_cube(jax.jit(step), *args))
    of_b = [
        (origin.kind, origin.op)
        for each, _, origin in parts
        if each.kind == "collective-permute" and [axis.name for axis in each.axes or ()] == ["b"]
    ]
    assert set(of_b) == {("split", "conv_general_dilated")}


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_a_sum_that_xla_may_split_without_its_annotations_says_so(partitioner: Any) -> None:
    """Without `x`'s sharding XLA sums over `data` all the same: `model` is on other dimensions."""
    x, w = abstract((16, 32), None, "data"), abstract((4, 32, 8), None, None, "model")
    step = jax.jit(lambda x, w, sizes: jax.lax.ragged_dot(x, w, sizes))
    for each, sums in ((x, "reduction"), (abstract((16, 32)), "split")):
        collectives = collectives_of(step, each, w, counted((4,), "model"), partitioner=partitioner)
        (origin,) = of_kind(parts_of(collectives), "all-reduce")
        assert origin.kind == sums
        if origin.kind == "reduction":
            assert "perhaps by XLA itself)" in origin_text(origin)


def test_a_product_both_of_whose_sides_have_an_axis_may_be_split() -> None:
    """The layer's sum over `data` stays without `x`'s sharding: `model` is rows and columns."""
    x, layers = abstract((16, 32), "model", "data"), abstract((4, 32, 32), None, None, "model")
    step = jax.jit(lambda x, layers: jax.lax.scan(lambda c, w: (c @ w, None), x, layers)[0])
    parts = parts_of(collectives_of(step, x, layers))
    (origin,) = of_kind(parts, "all-reduce")
    assert (origin.kind, origin.may_split) == ("reduction", True)


def test_a_sum_that_xla_does_not_split_of_itself_says_nothing_of_it() -> None:
    x, w = abstract((16, 32), "data", "model"), abstract((32, 8), "model")
    (origin,) = (o for *_, o in parts_of(collectives_of(jax.jit(jnp.matmul), x, w)))
    assert (origin.kind, origin.may_split) == ("reduction", False)
    # A batch that both sides have is one dimension.
    x, w = abstract((4, 16, 32), "data", None, "model"), abstract((4, 32, 8), "data", "model")
    (origin,) = (o for *_, o in parts_of(collectives_of(jax.jit(jnp.matmul), x, w)))
    assert (origin.kind, origin.may_split) == ("reduction", False)


def test_under_gspmd_an_axis_is_followed_through_a_reversal() -> None:
    """XLA lists the devices of a reversed dimension backwards, which is no order of axes."""
    step = jax.jit(lambda a, b: jnp.convolve(a, b, "same"))
    collectives = collectives_of(
        step, abstract((64,), "data"), abstract((8,), "data"), partitioner="gspmd"
    )
    (origin,) = of_kind(parts_of(collectives), "all-gather")
    assert named(origin, "has") == {("b", "P('data')")}
    # What XLA splits it may have reversed before.
    x, w = abstract((16, 32), None, "model"), abstract((32, 32), None, "model")
    turned = jax.jit(lambda x, w, u: jnp.tanh(x[::-1, ::-1] @ w) @ u)
    parts = parts_of(
        collectives_of(turned, x, w, abstract((32, 16), None, "data"), partitioner="gspmd")
    )
    assert "split" in {o.kind for c, _, o in parts if c.kind == "all-reduce"}


@pytest.mark.skipif(
    compat.version_tuple() < (0, 8), reason="XLA gathers what no op of the program makes"
)
def test_under_gspmd_an_axis_is_followed_through_approx_max_k() -> None:
    largest = jax.jit(lambda x, w: jnp.tanh(jax.lax.approx_max_k(x, 3)[0]) @ w)
    x, w = abstract((16, 32), "model", "data"), abstract((3, 16), None, "data")
    parts = parts_of(collectives_of(largest, x, w, partitioner="gspmd"))
    (origin,) = of_kind(parts, "all-gather")
    assert named(origin, "has") == {("x", "P('model', 'data')")}


def test_under_gspmd_an_axis_is_followed_where_a_dimension_changes_its_size() -> None:
    x, w = abstract((16, 32), "data", "model"), abstract((32, 16), "model", None)
    swapped = jax.jit(lambda x, w: jnp.tanh(jnp.concatenate([x[:, 16:], x[:, :16]], 1)) @ w)
    parts = parts_of(collectives_of(swapped, x, w, partitioner="gspmd"))
    (origin,) = of_kind(parts, "all-reduce")
    names = {annotation.name for annotation in (*origin.annotations, *origin.otherwise)}
    assert names == {"x", "w"}
    padded = jax.jit(lambda x, w: jnp.tanh(jnp.pad(x, ((1, 1), (0, 3)))) @ w)
    x, w = abstract((16, 32), "data", None), abstract((35, 16), None, "data")
    parts = parts_of(collectives_of(padded, x, w, partitioner="gspmd"))
    of_x = [o for c, _, o in parts if c.kind == "all-gather" and o.value == "tanh"]
    assert [named(origin, "has") for origin in of_x] == [{("x", "P('data', None)")}]
    # The result of a pad goes with its operand: nothing else keeps the axes away.
    (halo,) = of_kind(parts, "collective-permute")
    assert (halo.value, named(halo, "needed")) == ("x", set())
    numbers = ("NHWC", "HWIO", "NHWC")
    strided = jax.jit(
        lambda x, kernel, w: (
            jax.lax.conv_general_dilated(x, kernel, (2, 2), "VALID", dimension_numbers=numbers) @ w
        )
    )
    x, kernel = abstract((8, 16, 16, 8), None, "data"), abstract((3, 3, 8, 16))
    w = abstract((16, 16), ("model", "data"))
    parts = parts_of(collectives_of(strided, x, kernel, w, partitioner="gspmd"))
    values = {o.value: named(o, "has") for c, _, o in parts if c.kind == "all-gather"}
    assert values["conv_general_dilated"] == {("x", "P(None, 'data', None, None)")}


def test_under_gspmd_an_axis_is_followed_through_what_xla_merges() -> None:
    """Between the two solves XLA reshapes there and back, and gives that no sharding."""
    b, w = abstract((16, 4), "data", "model"), abstract((4, 16), "model", "data")
    step = jax.jit(lambda a, b, w: jnp.tanh(jnp.linalg.solve(a, b)) @ w)
    parts = parts_of(collectives_of(step, abstract((16, 16)), b, w, partitioner="gspmd"))
    (origin,) = (o for c, _, o in parts if c.kind == "all-reduce" and o.op == "dot_general")
    names = {annotation.name for annotation in (*origin.annotations, *origin.otherwise)}
    assert names == {"b", "w"}


def test_under_gspmd_an_axis_is_followed_through_a_broadcast_that_only_adds_ones() -> None:
    def step(x: Any, gates: Any) -> Any:
        mask = jnp.sin(gates)[:, None, :].transpose(0, 2, 1) * jnp.ones((1, 1, 4))
        return jnp.einsum("ti,tec->eci", x, mask)

    x, gates = abstract((16, 16), ("model", "data")), abstract((16, 4), "model")
    parts = parts_of(collectives_of(jax.jit(step), x, gates, partitioner="gspmd"))
    origins = [
        origin for each, _, origin in parts if "model" in [axis.name for axis in each.axes or ()]
    ]
    assert origins
    for origin in origins:
        names = {annotation.name for annotation in (*origin.annotations, *origin.otherwise)}
        assert names == {"x", "gates"}


def test_what_xla_moves_to_another_axis_and_gathers_is_one_value() -> None:
    """Of `w` it makes pieces over `data`, which only the other operand has, and gathers them."""
    numbers = ("NHWC", "HWIO", "NHWC")

    def step(x: Any, kernel: Any, w: Any) -> Any:
        def loss(kernel: Any) -> Any:
            conv = jax.lax.conv_general_dilated(
                x, kernel, (1, 1), "SAME", dimension_numbers=numbers
            )
            return (conv**2).sum()

        return jnp.tanh(jax.grad(loss)(kernel)) @ w

    x = abstract((8, 16, 16, 8), None, None, None, "model")
    kernel = abstract((3, 3, 8, 16), None, None, None, "data")
    w = abstract((16, 16), None, "model")
    parts = parts_of(collectives_of(jax.jit(step), x, kernel, w, partitioner="gspmd"))
    gathers = [(part, origin) for each, part, origin in parts if each.kind == "all-gather"]
    values = {part.shape.leaves[0].dimensions: origin.value for part, origin in gathers}
    assert values == {(16, 16): "w", (3, 3, 4, 16): "tanh"}


def test_what_a_loop_moves_to_another_axis_and_gathers_is_what_its_product_takes() -> None:
    def loss(layers: Any, x: Any) -> Any:
        return jax.lax.scan(lambda c, w: (jnp.tanh(c @ w), None), x, layers)[0].sum()

    step = jax.jit(lambda x, layers, w: jnp.tanh(jax.grad(loss)(layers, x)) @ w)
    x, layers = abstract((16, 32), None, "model"), abstract((4, 32, 32), "data")
    w = abstract((32, 16), ("data", "model"))
    parts = parts_of(collectives_of(step, x, layers, w))
    (origin,) = (o for c, part, o in parts if part.shape.leaves[0].dimensions == (16, 32))
    assert (origin.op, named(origin, "has")) == ("dot_general", {("x", "P(None, 'model')")})
    # What XLA takes out of the loop before it starts, a function of the loop's body needs.
    gathers = [part.shape.leaves[0].dimensions for c, part, o in parts if o.value == "layers"]
    assert sorted(gathers) == [(4, 16, 32), (4, 32, 16)]
    assert {o.op for _, _, o in parts if o.value == "layers"} == {"dynamic_slice"}


def test_a_sum_stays_for_what_has_its_axes_on_another_summed_dimension() -> None:
    """The groups are on `model`, on which `x` is as well: without them the sum is for `x`."""
    sizes = counted((4,), "model")
    step = jax.jit(lambda x, w, sizes, v: jnp.tanh(jax.lax.ragged_dot(x, w, sizes)) @ v)
    arguments = (abstract((16, 32), "data", "model"), abstract((4, 32, 8)), sizes)
    parts = parts_of(collectives_of(step, *arguments, abstract((8, 16), None, "data")))
    (origin,) = of_kind(parts, "all-reduce")
    assert {name for name, _ in named(origin, "has")} == {"sizes"}
    assert {annotation.name for annotation in origin.otherwise} == {"x"}


def test_what_is_gathered_over_two_axes_is_what_is_in_pieces_along_both() -> None:
    """The scatter's result is on `data` alone, for `w`: XLA makes it as `x` is, and moves that."""

    def step(x: Any, updates: Any, w: Any) -> Any:
        write = jax.vmap(lambda row, new: jax.lax.dynamic_update_slice(row, new, (3,)))
        rows = write(x, updates)
        return jnp.tanh(jnp.concatenate([rows[:, ::-1], rows], 0)) @ w

    x, updates = abstract((16, 32), ("model", "data")), abstract((16, 8), "data")
    parts = parts_of(collectives_of(jax.jit(step), x, updates, abstract((32, 16), "data")))
    gathers = [
        origin
        for each, _, origin in parts
        if each.kind == "all-gather" and len(each.axes or ()) == 2
    ]
    assert gathers
    for origin in gathers:
        annotations = named(origin, "has") | named(origin, "needed")
        assert ("x", "P(('model', 'data'), None)") in annotations


def test_what_several_calls_give_a_function_is_sharded_as_each_gives_it() -> None:
    """Both stacks are cut by one function; only of the second XLA gathers what it cuts."""

    def step(x: Any, a: Any, b: Any) -> Any:
        return jax.lax.scan(lambda c, w: (c + jnp.tanh(c @ w[0]) @ w[1], None), x, (a, b))[0]

    a, b = abstract((4, 32, 32), None, None, "data"), abstract((4, 32, 32), "data", "model")
    parts = parts_of(collectives_of(jax.jit(step), abstract((16, 32), "model"), a, b))
    (origin,) = of_kind(parts, "all-gather")
    assert named(origin, "has") == {("b", "P('data', 'model', None)")}


def test_what_a_function_sums_is_sharded_as_its_call_gives_it() -> None:
    """Both calls sum what is sharded alike, each for an annotation of its own."""
    norm = jax.jit(lambda x: jnp.sqrt(jnp.sum(x * x, axis=0)))

    def step(a: Any, b: Any) -> Any:
        return norm(a), norm(b)

    arguments = abstract((32, 16), "data"), abstract((32, 16), "data")
    parts = parts_of(collectives_of(jax.jit(step), *arguments))
    sums = [origin for _, _, origin in parts if origin.op == "reduce_sum"]
    assert [named(origin, "has") for origin in sums] == [
        {("a", "P('data', None)")},
        {("b", "P('data', None)")},
    ]


def test_what_a_loop_passes_on_is_needed_as_its_carry() -> None:
    def step(x: Any, layers: Any) -> Any:
        return jax.lax.scan(lambda c, w: (constrained(jnp.tanh(c @ w), "data"), None), x, layers)[0]

    layers = abstract((4, 32, 32), "model", None, "data")
    collectives = collectives_of(jax.jit(step), abstract((16, 32), None, "data"), layers)
    (origin,) = (origin for _, _, origin in parts_of(collectives) if origin.op == "while")
    assert (origin.value, spec_text(origin.after)) == ("tanh in while/body", "P(None, 'data')")
    assert {kind for kind, *_ in (annotation.key for annotation in origin.annotations)} == {
        "constraint",
        "argument",
    }


def test_what_a_loop_carries_is_not_what_it_begins_with() -> None:
    """The carry is on the axis of `w` too, which the argument of its name is not on."""

    def step(x: Any, w: Any) -> Any:
        def body(_: Any, c: Any) -> Any:
            return jnp.sin(constrained(c, None, None)) + w

        return jax.lax.fori_loop(0, 3, body, x)

    arguments = abstract((16, 32), "data"), abstract((16, 32), None, "model")
    parts = parts_of(collectives_of(jax.jit(step), *arguments))
    gathers = of_kind(parts, "all-gather")
    assert gathers
    assert {(o.value, o.carried) for o in gathers} == {("x", True)}
    assert {origin_text(o).partition(" but ")[0] for o in gathers} == {
        "the carry x is P('data', 'model')"
    }


def swapped_carries(x: Any, w: Any) -> Any:
    """A loop whose body makes each of what it carries of the other."""

    def body(_: Any, carry: Any) -> Any:
        return constrained(carry[1] @ w, None, "model"), constrained(carry[0], "data")

    return jax.lax.fori_loop(0, 4, body, (x, x * 2))


def test_what_a_loop_carries_is_what_its_body_takes_of_it() -> None:
    """XLA (JAX 0.12) gives the gather no name: what makes its value is the loop itself."""
    arguments = abstract((16, 8), "data"), abstract((8, 8), None, "model")
    parts = parts_of(collectives_of(jax.jit(swapped_carries), *arguments))
    (origin,) = (o for each, part, o in parts if part.shape.dimensions == (16, 8))
    assert (origin.value, origin.carried, origin.op) == ("mul", True, "dot_general")
    assert not origin.uncertain
    assert {spec for _, spec in named(origin, "needed")} == {"P(None, 'model')"}


def test_a_loop_that_keeps_an_axis_needs_nothing_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where it is not known that what is gathered is what the loop carries."""
    monkeypatch.setattr(boundaries.Boundaries, "carries", {})
    arguments = abstract((16, 8), "data"), abstract((8, 8), None, "model")
    parts = parts_of(collectives_of(jax.jit(swapped_carries), *arguments))
    assert "while" not in {origin.op for _, _, origin in parts}


def test_xla_may_split_a_sum_whose_carry_would_have_the_axis_that_its_other_side_keeps() -> None:
    """Without `x` the carry is on `model`, as `w` makes it, and so what the product sums is."""

    def step(x: Any, w: Any) -> Any:
        return jax.lax.fori_loop(0, 3, lambda i, c: jnp.tanh(c @ w) + c, x)

    arguments = abstract((16, 32), None, "data"), abstract((32, 32), None, "model")
    parts = parts_of(collectives_of(jax.jit(step), *arguments))
    (origin,) = of_kind(parts, "all-reduce")
    assert {name for name, _ in named(origin, "has")} == {"x"}
    assert origin.may_split


def test_of_an_argument_that_xla_moves_and_gathers_nothing_else_is_the_cause() -> None:
    """The other side of the product has as many elements, and is on `data`, to which `w` is moved.

    A device has all of what XLA gathers: which value it is the compiled program says.
    """
    step = jax.jit(
        lambda x, layers, w: (
            jnp.tanh(
                jax.lax.scan(lambda c, layer: (jnp.sin(c @ layer), None), x, layers, reverse=True)[
                    0
                ]
            )
            @ w
        )
    )
    arguments = (
        abstract((16, 32), "model"),
        abstract((4, 32, 32), None, "data", "model"),
        abstract((32, 16), None, "model"),
    )
    parts = parts_of(collectives_of(step, *arguments, partitioner="gspmd"))
    (origin,) = (
        origin
        for each, part, origin in parts
        if each.kind == "all-gather" and part.shape.leaves[0].dimensions == (32, 16)
    )
    assert origin.value == "w"


def test_what_is_moved_is_the_tensor_that_is_like_it() -> None:
    """Shardy splits a convolution's channels, XLA its rows: a kernel is moved, and halos are."""
    x, w = (
        abstract((8, 32, 32, 16), "data", "model"),
        abstract((3, 3, 16, 32), *[None] * 3, "model"),
    )

    def step(x: Any, w: Any) -> Any:
        dimensions = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=dimensions)

    moved = {
        (each.kind, origin.value)
        for each, _, origin in parts_of(collectives_of(jax.jit(step), x, w))
        if origin.kind in ("resharding", "exchange")
    }
    assert moved == {("all-to-all", "w"), ("collective-permute", "x")}


def test_under_gspmd_a_window_reads_neighbouring_blocks_of_what_its_result_is_sharded_like() -> (
    None
):
    step = jax.jit(lambda a, b: jnp.convolve(a, b))
    arguments = (abstract((64,), "data"), abstract((16,), "model"))
    parts = parts_of(collectives_of(step, *arguments, partitioner="gspmd"))
    words = {origin_text(origin) for each, _, origin in parts if each.kind == "collective-permute"}
    assert words == {
        "it reads neighbouring blocks of a dimension sharded over data by a P('data') "
        "(followed, not recorded)"
    }


def test_the_edges_of_blocks_are_not_moved_for_what_the_kernel_has() -> None:
    """Without its sharding the windows reach as far."""
    dimensions = ("NWC", "WIO", "NWC")
    step = jax.jit(
        lambda x, w: jax.lax.conv_general_dilated(x, w, (1,), "SAME", dimension_numbers=dimensions)
    )
    arguments = (
        abstract((1, 16, 16), None, "data"),
        abstract((3, 16, 16), None, None, "data"),
    )
    parts = parts_of(collectives_of(step, *arguments, partitioner="gspmd"))
    words = {origin_text(origin) for each, _, origin in parts if each.kind == "collective-permute"}
    assert words == {
        "it reads neighbouring blocks of a dimension sharded over data by x P(None, 'data', None) "
        "(otherwise by w) (followed, not recorded)"
    }


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_what_xla_cuts_and_then_moves_is_not_the_other_side_turned(partitioner: Any) -> None:
    """Of `g`, 16 x 8, it moves 16 x 4; the block of `h` is 4 x 16."""

    @jax.jit
    def step(g: Any, h: Any) -> Any:
        g = constrained(jnp.tanh(g), None, "model")
        return constrained(jnp.einsum("bi,bj->ij", g, h), "data", None)

    arguments = abstract((16, 16), None, "model"), abstract((16, 16), "data", None)
    (moved,) = of_kind(
        parts_of(collectives_of(step, *arguments, partitioner=partitioner)), "collective-permute"
    )
    assert spec_text(moved.before) == "P(None, 'model')"
    assert {spec for _, spec in named(moved, "has")} == {"P(None, 'model')"}


def test_what_an_annotation_gives_another_tensor_of_the_op_is_told_apart() -> None:
    """Both sides of the product are on `data` by `x`."""
    argument = abstract((16, 32), "data")
    ((_, _, origin),) = parts_of(collectives_of(jax.jit(lambda x: x @ x.T), argument))
    assert "given x P('data', None) on its other tensors too" in origin_text(origin)


def test_a_loop_moves_its_carry_once_it_is_cut_as_the_weight_is() -> None:
    """XLA slices f32[16,16] of the carry to f32[16,8]; the weight's block is f32[8,16]."""

    def step(x: Any, w: Any) -> Any:
        return jax.lax.fori_loop(0, 3, lambda i, c: jnp.tanh(c @ w), x)

    arguments = abstract((16, 32), None, "model"), abstract((32, 32), "data")
    parts = parts_of(collectives_of(jax.jit(step), *arguments))
    (said,) = (origin_text(origin) for each, _, origin in parts if "permute" in each.kind)
    assert said.startswith("the carry x is P(None, 'model') but dot_general, given w ")


@pytest.mark.parametrize("partitioner", PARTITIONERS)
@pytest.mark.parametrize("is_constrained", [False, True], ids=["as it comes", "constrained"])
def test_what_xla_rematerializes_is_needed_as_its_log_says(
    is_constrained: bool, partitioner: Any
) -> None:
    """It knows no way from P(('model', 'data'), None) to P(None, 'model') but to gather all."""

    @jax.jit
    def step(x: Any, w: Any) -> Any:
        x = jnp.tanh(x)
        if is_constrained:
            x = constrained(x, ("model", "data"), None)
        return constrained(x @ w, None, "data")

    arguments = abstract((16, 16), ("model", "data")), abstract((16, 32), "model", "data")
    collectives = collectives_of(step, *arguments, partitioner=partitioner)
    assert len(collectives.rematerializations) == 1
    (origin,) = of_kind(parts_of(collectives), "all-gather")
    assert spec_text(origin.before) == "P(('model', 'data'), None)"
    assert spec_text(origin.after) == "P(None, 'model')"


def test_what_is_gathered_whole_without_a_word_of_xla_is_needed_whole() -> None:
    @jax.jit
    def step(x: Any, w: Any) -> Any:
        return constrained(jnp.tanh(x) @ w, None, "model")

    collectives = collectives_of(
        step, abstract((16, 32), "data"), abstract((32, 16), None, "model")
    )
    ((_, _, origin),) = parts_of(collectives)
    assert spec_text(origin.after) == "P(None, None)"


def test_the_table_shards_the_residual_stream() -> None:
    """Unconstrained, Shardy takes the residual stream's features from the embedding."""
    program = resolve("fsdp-transformer", settings={**SMALL, "layers": "1", "constrained": "false"})
    collectives = Inspection(program, ["shardy"]).collectives()
    first = [
        origin
        for _, _, origin in parts_of(collectives)
        if origin.op == "dot_general" and origin.scope.startswith("jvp(layer0)/attention/bse")
    ]
    assert first
    for origin in first:
        assert ("params['embedding']", "P('model', 'fsdp')") in named(origin, "has")


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
@pytest.mark.parametrize(
    "partitioner", [pytest.param("shardy", marks=pytest.mark.thorough), "gspmd"]
)
def test_reference_models(partitioner: Any, settings: dict[str, str]) -> None:
    program = resolve("fsdp-transformer", settings={**SMALL, **settings})
    collectives = Inspection(program, [partitioner]).collectives(partitioner)
    assert_attributed(collectives)
    assert all(part.source is not None for _, part, _ in parts_of(collectives))


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_users_programs(partitioner: Any) -> None:
    total = attributed = 0
    for name, make in USER_PROGRAMS.items():
        try:
            program = make(compat.abstract_mesh(MESH))
            collectives = Inspection(program, [partitioner]).collectives(partitioner)
        except CompilerError:
            continue  # XLA refuses it, which other tests are about
        assert all(collective.axes is not None for collective in collectives.collectives), name
        total += collectives.tensors
        attributed += collectives.with_origin
    assert total >= 20
    assert attributed >= 0.95 * total


def assert_attributed(collectives: Collectives) -> None:
    """100 % to axes, at least 95 % to a source line and an origin."""
    parts = parts_of(collectives)
    assert len(parts) > 20
    assert all(collective.axes is not None for collective, _, _ in parts)
    assert sum(part.source is not None for _, part, _ in parts) >= 0.95 * len(parts)
    known = sum(origin.known for _, _, origin in parts)
    assert known == collectives.with_origin >= 0.95 * len(parts)
    assert collectives.origins_missing == ""


def test_without_a_propagation_it_says_so() -> None:
    inspection = Inspection(resolve("mlp"), ["shardy"])
    inspection._propagated["shardy", False, False] = CompilerError("Shardy refuses it.")
    collectives = inspection.collectives()
    assert collectives.origins_missing == Remark("not propagated", "Shardy refuses it.")
    assert collectives.with_origin == 0
    assert len(collectives.collectives) == 2
    assert not inspection.collectives(origins=False).with_origin


def test_what_xla_refuses_is_one_sentence_on_every_jax() -> None:
    program = USER_PROGRAMS["branches"](compat.abstract_mesh(MESH))
    with pytest.raises(CompilerError, match="The compiler refuses the program for cpu:8"):
        Inspection(program, ["shardy"]).compiled("shardy")


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


@pytest.mark.skipif(compat.version_tuple() < (0, 9), reason="does not reduce what is unreduced")
def test_the_end_of_an_unreduced_value_is_for_what_says_so() -> None:
    lowered = read_bytes(UNREDUCED.encode())
    ((one, _, origin),) = parts_of(Inspection(lowered).collectives("shardy"))
    assert (one.kind, origin.kind) == ("all-reduce", "reduction")
    ((annotation,)) = origin.annotations
    assert annotation.kind == "argument"
    assert "it reduces a value left unreduced over y by" in origin_text(origin)
    assert "unreduced={'y'}" in origin_text(origin)


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
        assert [annotation.kind for annotation in origin.annotations] == ["type"]
        assert [annotation.kind for annotation in origin.otherwise] == ["argument"] * otherwise
        assert "it reduces a value left unreduced over y by type" in origin_text(origin)


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
def test_what_is_gathered_one_axis_after_the_other_is_needed_without_all_of_them(
    partitioner: Any,
) -> None:
    """No op requires what the first of them makes, nor the value with the other axis alone."""
    collectives = collectives_of(
        jax.jit(lambda logits: jax.lax.top_k(logits, 8)),
        abstract((16, 128), "data", "model"),
        partitioner=partitioner,
    )
    gathers = [
        (one.axes, origin) for one, _, origin in parts_of(collectives) if one.kind == "all-gather"
    ]
    axes = {axis.name for axes, _ in gathers for axis in axes or ()}
    assert (len(gathers), axes) == (2, {"data", "model"})
    for _, origin in gathers:
        said = origin_text(origin)
        assert "logits is P('data', 'model')" in said
        assert "top_k requires P(None, None)" in said


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


@pytest.mark.parametrize("partitioner", PARTITIONERS)
@pytest.mark.parametrize(
    "step",
    [
        lambda x: jnp.sort(x, 1),
        lambda x: jnp.roll(x, 3, 1),
        lambda x: jax.lax.associative_scan(jnp.add, x, axis=1),
    ],
    ids=["sort", "roll", "scan"],
)
def test_what_an_op_rearranges_along_a_sharded_dimension_is_said(
    step: Any, partitioner: Any
) -> None:
    x = abstract((64, 128), None, "model")
    parts = parts_of(collectives_of(jax.jit(step), x, partitioner=partitioner))
    assert {origin.kind for _, _, origin in parts} == {"rearrangement"}
    said = "it rearranges a dimension sharded over model by x P(None, 'model')"
    assert all(origin_text(origin).startswith(said) for _, _, origin in parts)
    assert not any(origin.uncertain for _, _, origin in parts)


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_what_is_reduced_with_its_indices_is_reduced_and_gathered_with_certainty(
    partitioner: Any,
) -> None:
    """Greedy decoding: the vocabulary is sharded, and each device's largest logit is gathered."""
    step = jax.jit(lambda h, w: jnp.argmax(h @ w, -1))
    arguments = abstract((64, 32), "data"), abstract((32, 128), None, "model")
    parts = parts_of(collectives_of(step, *arguments, partitioner=partitioner))
    assert [each.kind for each, _, _ in parts] == ["all-gather"] * 2
    followed = " (followed, not recorded)" if partitioner == "gspmd" else ""
    for _, _, origin in parts:
        assert origin.kind == "reduction"
        assert origin_text(origin) == (
            f"it reduces a dimension sharded over model by w P(None, 'model'){followed}"
        )


@pytest.mark.parametrize(
    ("reduce", "verb"), [("max", "reduces"), ("min", "reduces"), ("sum", "sums")]
)
def test_of_scatters_only_those_that_add_sum(reduce: str, verb: str) -> None:
    """Messages over devices, of which each node takes the largest, as `segment_max` does."""
    segment = getattr(jax.ops, f"segment_{reduce}")
    arguments = abstract((64,), "data"), abstract((64,), "data")
    ((_, _, origin),) = parts_of(
        collectives_of(jax.jit(lambda x, nodes: segment(x, nodes.astype(int), 16)), *arguments)
    )
    assert origin_text(origin).startswith(f"it {verb} a dimension sharded over data by")


def test_what_a_lookup_gathers_is_for_the_axis_that_its_table_and_indices_contend_for() -> None:
    """XLA splits it over another axis, which the indices go over to; without either it does not."""
    x, w = abstract((16, 32), None, "data"), abstract((32, 32), "model", "data")
    at = counted((16,), "data")
    parts = parts_of(collectives_of(jax.jit(lambda x, at, w: x[at] @ w), x, at, w))
    (origin,) = (
        o
        for c, _, o in parts
        if c.kind == "all-gather" and [axis.name for axis in c.axes or ()] == ["model"]
    )
    assert (origin.kind, origin.op) == ("resharding", "gather")
    assert named(origin, "has") == {("at", "P('data')")}
    assert named(origin, "needed") == {("x", "P(None, 'data')")}


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_what_a_line_keeps_away_and_says_again_comes_without_it(partitioner: Any) -> None:
    """Both constraints are of one line: without it the argument's axis gets to the product."""
    x = abstract((16, 32), "data", "model")

    def product(x: Any) -> Any:
        x = constrained(constrained(x, None, None), "data", None)
        return x.T @ x

    parts = parts_of(collectives_of(jax.jit(product), x, partitioner=partitioner))
    (origin,) = of_kind(parts, "all-reduce")
    assert {each.kind for each in origin.annotations} == {"constraint"}
    assert [each.name for each in origin.otherwise] == ["x"]


def test_a_product_of_a_value_with_itself_may_be_split_by_xla() -> None:
    """No sharding of it suits both sides; once it has none, XLA may still split one of them."""
    step = jax.jit(lambda x: jnp.einsum("bd,bc->dc", x, x))
    parts = parts_of(collectives_of(step, abstract((16, 32), None, "data")))
    (origin,) = of_kind(parts, "all-gather")
    assert origin.may_split


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


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_an_argument_is_moved_for_the_constraint_on_it(partitioner: Any) -> None:
    """XLA may name that after the argument, and the next op has another tensor on the same axis."""
    step = jax.jit(lambda x, w: x @ constrained(w, "model", None))
    x, w = abstract((16, 32), "data", "model"), abstract((32, 32), ("data", "model"), None)
    parts = parts_of(collectives_of(step, x, w, partitioner=partitioner))
    moved = {(o.value, o.op) for c, _, o in parts if c.kind != "all-reduce"}
    assert moved == {("w", "sharding_constraint")}


def test_under_gspmd_axes_that_go_over_to_another_dimension_go_where_they_are_wanted() -> None:
    """What the sort takes and makes has one shape: only its result is wanted on its columns."""

    def step(x: Any, key: Any) -> Any:
        return constrained(jax.lax.sort((key, x), num_keys=1)[1], None, ("data", "model"))

    x, key = abstract((16, 32), "data", "model"), abstract((16, 32), ("model", "data"))
    parts = parts_of(collectives_of(jax.jit(step), x, key, partitioner="gspmd"))
    (origin,) = (o for c, _, o in parts if c.kind == "all-to-all" and len(c.axes or ()) == 2)
    assert (origin.value, origin.op) == ("sort", "sharding_constraint")


def test_a_cause_is_uncertain_where_what_is_sent_is_no_block_of_the_value() -> None:
    """XLA gathers what the lookup makes, cut as its table is: no block of its indices."""

    def looked_up(table: Any, at: Any) -> Any:
        return constrained(table[at], "data", None)

    at = counted((16,), "data")
    arguments = abstract((32, 16), None, ("data", "model")), at
    mesh = compat.abstract_mesh(MESH)
    program = Program("step", jax.jit(looked_up), arguments, mesh=mesh)
    document = comms_document(Inspection(program, ["shardy"]))
    assert any("uncertain:" in str(each) for each in footer(document))
    assert not any("uncertain:" in str(each) for each in footer(document, by_scope=True))
    assert any(o.uncertain for *_, o in parts_of(document.programs[0]))
    # Pieces of any shape are of what the compiled program takes them from, if one value can be it.
    step = jax.jit(lambda x, w: jnp.einsum("abc,bcd->ad", x, w))
    x, w = abstract((8, 4, 16), "model"), abstract((4, 16, 32), None, "data", "model")
    parts = parts_of(collectives_of(step, x, w))
    assert not any(o.uncertain for *_, o in parts)
    assert {o.value for c, _, o in parts if c.kind == "collective-permute"} == {"x"}
    # What an op itself takes from its neighbours' blocks is a piece of one.
    split = jax.jit(lambda x, w: sum(map(jnp.tanh, jnp.split(x @ w, 3, 1))))
    parts = parts_of(collectives_of(split, abstract((16, 32)), abstract((32, 48), None, "model")))
    assert {(o.value, o.op, o.uncertain) for *_, o in parts} == {("dot_general", "split", False)}


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_what_xla_moves_to_an_axis_and_gathers_there_is_not_another_dimension_on_it(
    partitioner: Any,
) -> None:
    """The last dimension is moved from `b` to `a` and gathered; the first stays on `a`, by `x`."""

    def step(x: Any, y: Any, w: Any) -> Any:
        return jnp.einsum("hds,hst->hdt", jnp.sin(x) + y, w)

    arguments = cubed((4, 4, 16), "a"), cubed((4, 4, 16), None, None, "b"), cubed((4, 16, 16), "b")
    outs = in_cube("b")
    jitted = jax.jit(step, out_shardings=outs)
    parts = parts_of(of_cube(jitted, *arguments, partitioner=partitioner))
    (origin,) = of_kind(parts, "all-gather")
    assert {name for name, _ in named(origin, "has")} == {"y"}


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_rows_that_xla_moves_to_the_columns_axis_and_gathers_are_not_the_columns(
    partitioner: Any,
) -> None:
    """It moves `g` from P('b', 'a') to P('a', 'b') and gathers its rows over `a`: f32[16,8]."""

    def step(g: Any, at: Any) -> Any:
        return jnp.zeros((32, 16)).at[at].add(jnp.tanh(g))

    at = cubed((16,), "b", dtype=jnp.int32)
    jitted = jax.jit(step, out_shardings=in_cube(("a", "c"), "b"))
    parts = parts_of(of_cube(jitted, cubed((16, 16), "b", "a"), at, partitioner=partitioner))
    (origin,) = (
        origin
        for each, part, origin in parts
        if each.kind == "all-gather" and part.shape.leaves[0].dimensions == (16, 8)
    )
    assert {
        axis.name for each in origin.annotations if each.role == "has" for axis in each.axes
    } == {"b"}
    assert spec_text(origin.before) == "P('b', 'a')"
    assert origin.after is None  # What the columns are on then is not known.


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_what_is_exchanged_for_an_op_is_not_what_made_its_operand(partitioner: Any) -> None:
    """XLA moves the sum over `b`, which the sum itself does not have, and `u` does."""

    def step(u: Any, v: Any, h: Any) -> Any:
        on = in_cube(("c", "a"))
        total = jax.lax.with_sharding_constraint(jnp.tanh(u) + v, on)
        return jnp.einsum("bi,bj->ij", total, jnp.tanh(h))

    arguments = (
        cubed((16, 16), ("c", "a"), "b"),
        cubed((16, 16), ("c", "a")),
        cubed((16, 16), ("b", "c"), "a"),
    )
    outs = in_cube("a", "c")
    jitted = jax.jit(step, out_shardings=outs)
    parts = parts_of(of_cube(jitted, *arguments, partitioner=partitioner))
    (origin,) = of_kind(parts, "all-to-all")
    assert (spec_text(origin.before), origin.op) == ("P(('c', 'a'), None)", "dot_general")
    assert not origin.uncertain


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_what_is_moved_for_a_product_goes_where_its_result_has_it(partitioner: Any) -> None:
    """XLA cuts `g` to f32[16,4], which is the block of `h`, too."""

    def step(q: Any, k: Any, h: Any) -> Any:
        g = jnp.einsum("hts,shd->thd", q, k).reshape(16, 16)
        return jnp.einsum("bi,bj->ij", g, jnp.tanh(h)).T

    arguments = (
        cubed((4, 16, 16), "c"),
        cubed((16, 4, 4), None, "c"),
        cubed((16, 16), None, ("c", "b")),
    )
    outs = in_cube(None, ("a", "c"))
    jitted = jax.jit(step, out_shardings=outs)
    parts = parts_of(of_cube(jitted, *arguments, partitioner=partitioner))
    (origin,) = of_kind(parts, "collective-permute")
    assert spec_text(origin.before) == "P(None, 'c')"


@pytest.mark.parametrize(
    ("combined", "partitioner"),
    [(jnp.multiply, "shardy"), (lambda x, y: jnp.concatenate([x, y]), "gspmd")],
    ids=["elementwise", "concatenation"],
)
def test_what_xla_cuts_and_moves_is_not_another_operand_with_such_a_block_turned(
    combined: Any, partitioner: Any
) -> None:
    """It cuts the sine to f32[16,4]; the block of the cosine is f32[4,16]."""
    arguments = cubed((16, 16), None, "c"), cubed((16, 16), ("c", "b"))
    outs = in_cube(None, ("a", "c"))
    jitted = jax.jit(lambda x, y: combined(jnp.sin(x), jnp.cos(y)), out_shardings=outs)
    parts = parts_of(of_cube(jitted, *arguments, partitioner=partitioner))
    moved = {
        tuple(axis.name for axis in each.axes or ()): (origin.value, spec_text(origin.before))
        for each, _, origin in parts
        if each.kind == "collective-permute"
    }
    assert moved == {
        ("a", "c"): ("sin", "P(None, 'c')"),
        ("a", "b", "c"): ("cos", "P(('c', 'b'), None)"),
    }


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_a_product_torn_between_other_axes_says_whose_these_are(partitioner: Any) -> None:
    """No other tensor has `a`: it is gathered since `b` is on one dimension of each side."""
    con = jax.lax.with_sharding_constraint
    apart = in_cube(None, ("a", "b"))

    def step(x: Any) -> Any:
        y = con(x, apart)
        z = jnp.tanh(y.reshape(2, 8, -1)).sum(0).repeat(2, 0)
        return jnp.einsum("ab,cb,cd->ad", z, x, x)

    parts = parts_of(of_cube(jax.jit(step), cubed((16, 16), None, "a"), partitioner=partitioner))
    for each, _, origin in parts:
        if each.kind == "all-gather":
            assert named(origin, "needed"), origin_text(origin)


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_a_lookup_of_a_function_is_sharded_as_its_own_call_gives_it(partitioner: Any) -> None:
    """Only the first call's table is on `a`; XLA moves the second there, as `at` is on `b`, too."""

    def step(x: Any, y: Any, at: Any) -> Any:
        return jnp.take(x, at, axis=1), jnp.take(y, at, axis=1)

    tables = cubed((16, 32), None, ("b", "a")), cubed((16, 32), None, "b")
    indices = cubed((32,), "b", dtype=jnp.int32)
    parts = parts_of(of_cube(jax.jit(step), *tables, indices, partitioner=partitioner))
    sums = [(each.axes, origin) for each, _, origin in parts if each.kind == "all-reduce"]
    blamed = {
        tuple(axis.name for axis in axes or ()): {name for name, _ in named(origin, "has")}
        for axes, origin in sums
    }
    assert blamed == {("a", "b"): {"x"}, ("a",): {"y"}}


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_xla_may_split_a_sum_to_which_an_axis_comes_once_its_annotation_has_gone_whole(
    partitioner: Any,
) -> None:
    """`o` has `model` too, and without it that comes from `u`, as `k` has it on the result."""

    def step(x: Any, k: Any, o: Any, u: Any) -> Any:
        h = jnp.tanh(x)
        return h @ k.T, h @ o, o + u

    free = jax.ShapeDtypeStruct((16, 16), jnp.float32)
    sharded = abstract((16, 16), "model"), abstract((16, 16), "data", "model")
    arguments = free, *sharded, abstract((16, 16), "model")
    program = Program("step", jax.jit(step), arguments, mesh=compat.abstract_mesh(MESH))
    inspection = Inspection(program, [partitioner])
    sums = [o for _, _, o in parts_of(inspection.collectives(partitioner)) if o.kind == "reduction"]
    assert sums
    assert all(origin.may_split for origin in sums)
    without = inspection.what_if({"o": None}).collectives(partitioner)
    assert "split" in {origin.kind for _, _, origin in parts_of(without)}


def test_xla_may_split_a_sum_both_of_whose_sides_get_another_axis() -> None:
    """Layers share the axis of their biases; without these, `x` shards both sides of a product."""

    def loss(layers: Any, head: Any, x: Any) -> Any:
        for w, b in layers:
            x = jnp.maximum(x @ w + b, 0)
        return (jnp.tanh(x @ head) ** 2).sum()

    def step(layers: Any, head: Any, x: Any) -> Any:
        return jax.tree.map(lambda p, g: p - 0.1 * g, layers, jax.grad(loss)(layers, head, x))

    free = jax.ShapeDtypeStruct((16, 16), jnp.float32)
    layers = [(free, cubed((16,), "a"))] * 2
    arguments = layers, cubed((16, 16), None, "a"), cubed((16, 16), "c", "b")
    outs = [(None, layers[0][1].sharding)] * 2
    jitted = jax.jit(step, out_shardings=outs)
    parts = parts_of(of_cube(jitted, *arguments, partitioner="gspmd"))
    sums = [
        origin
        for each, _, origin in parts
        if origin.kind == "reduction" and [axis.name for axis in each.axes or ()] == ["a"]
    ]
    assert sums
    assert all(origin.may_split for origin in sums)


def test_under_gspmd_dimensions_that_are_only_as_large_are_not_one() -> None:
    """`w` is gathered along what the lookup's indices have, not its table's last dimension."""

    def step(x: Any, at: Any, w: Any) -> Any:
        return x[at] @ w

    indices = counted((16,), "model")
    arguments = abstract((16, 16), None, "model"), indices, abstract((16, 16), "model", "data")
    parts = parts_of(collectives_of(jax.jit(step), *arguments, partitioner="gspmd"))
    gathers = of_kind(parts, "all-gather")
    assert gathers
    assert not any(list(origin.otherwise) for origin in gathers)


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_who_else_gives_another_tensor_of_an_op_its_axes_is_said(partitioner: Any) -> None:
    """`w` and `m` each say that the product's other side is on `a`."""
    x, w = cubed((16, 16), "a"), cubed((16, 32), None, "a")
    step = jax.jit(lambda x, w, m: x @ (w + m))
    parts = parts_of(of_cube(step, x, w, w, partitioner=partitioner))
    gathers = of_kind(parts, "all-gather")
    assert gathers
    for origin in gathers:
        (needed,) = (name for name, _ in named(origin, "needed"))
        (other,) = (annotation.name for annotation in origin.needed_otherwise)
        assert {needed, other} == {"w", "m"}
        assert f"(otherwise by {other})" in origin_text(origin)
        assert set(origin.every) == {*origin.annotations, *origin.needed_otherwise}


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_who_else_keeps_axes_away_is_said(partitioner: Any) -> None:
    """Without the constraint the value is gathered to be returned, under GSPMD at the very end."""

    def step(x: Any) -> Any:
        return jnp.cos(jax.lax.with_sharding_constraint(jnp.sin(x), in_cube(None, None)))

    jitted = jax.jit(step, out_shardings=in_cube(None, None))
    ((*_, origin),) = parts_of(of_cube(jitted, cubed((16, 16), "a"), partitioner=partitioner))
    assert [each.kind for each in origin.annotations] == ["argument", "constraint"]
    assert [each.kind for each in origin.needed_otherwise] == ["result"]


def _attention(p: Any, x: Any) -> Any:
    h = x * p["g"]
    q, k = ((h @ p[name]).reshape(16, 4, -1) for name in "qk")
    scores = jax.nn.softmax(jnp.einsum("shd,thd->hst", q, k))
    return x + jnp.einsum("hst,thd->shd", scores, k).reshape(16, 16) @ p["o"]


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_of_what_a_loop_carries_it_is_what_the_op_takes(partitioner: Any) -> None:
    """`q` is carried too, in blocks of the shape that is moved; the product takes `o`."""

    def loss(p: Any, x: Any) -> Any:
        return (constrained(jax.checkpoint(_attention)(p, x), "model") ** 2).mean()

    def step(p: Any, x: Any) -> Any:
        def body(sums: Any, at: Any) -> Any:
            return jax.tree.map(jnp.add, sums, jax.grad(loss)(p, x * at)), None

        return jax.lax.scan(body, jax.tree.map(jnp.zeros_like, p), jnp.arange(2.0))[0]

    free = jax.ShapeDtypeStruct((16, 16), jnp.float32)
    q, o = (abstract((16, 16), axis) for axis in ("data", "model"))
    p = {"g": jax.ShapeDtypeStruct((16,), jnp.float32), "q": q, "k": free, "o": o}
    arguments = p, abstract((16, 16), "model", "data")
    parts = parts_of(collectives_of(jax.jit(step), *arguments, partitioner=partitioner))
    moved = [origin for *_, origin in parts if origin.value in {f"p['{name}']" for name in "qko"}]
    assert moved
    for origin in moved:
        assert origin.value == "p['o']", origin_text(origin)


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_what_a_product_that_is_transposed_takes_is_gathered_for_the_product(
    partitioner: Any,
) -> None:
    """XLA makes the product transposed at once, and names it after the transpose."""

    def loss(p: Any, x: Any) -> Any:
        y = jax.lax.with_sharding_constraint(_attention(p, x), in_cube(None, ("c", "b")))
        return (y**2).mean()

    def step(p: Any, x: Any) -> Any:
        return jax.tree.map(jnp.subtract, p, jax.grad(loss)(p, x))

    free = jax.ShapeDtypeStruct((16, 16), jnp.float32)
    q, o = cubed((16, 16), "b"), cubed((16, 16), ("a", "b"))
    p = {"g": jax.ShapeDtypeStruct((16,), jnp.float32), "q": q, "k": free, "o": o}
    outs = {name: getattr(value, "sharding", None) for name, value in p.items()}
    arguments = p, cubed((16, 16), "b", ("a", "c"))
    mesh = compat.abstract_mesh(CUBE)
    program = Program("step", jax.jit(step, out_shardings=outs), arguments, mesh=mesh)
    inspection = Inspection(program, [partitioner])
    ops = inspection.graph(partitioner).ops
    taken_by = [
        ops[path[-1]].mnemonic
        for _, part, origin in parts_of(inspection.collectives(partitioner))
        if origin.value == "mul in jvp()" and spec_text(origin.before) == "P('b', ('a', 'c'))"
        for path in part.tags
    ]
    # Until JAX 0.10 XLA names what is moved after the product, and then after what it moves.
    assert "dot_general" in taken_by
    assert "multiply" not in taken_by or "transpose" in taken_by


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_a_broadcast_that_keeps_a_sharding_needs_no_other(partitioner: Any) -> None:
    """The convolution moves `x`, not what makes its first dimension."""

    def step(x: Any, w: Any) -> Any:
        kernel = jnp.stack([w] * 3)
        numbers = ("NWC", "WIO", "NWC")
        y = jax.lax.conv_general_dilated(x[None], kernel, (1,), "SAME", dimension_numbers=numbers)
        return jax.lax.with_sharding_constraint(y[0], in_cube(None, ("a", "b")))

    arguments = cubed((16, 16), ("a", "b")), cubed((16, 16), ("a", "c"))
    parts = parts_of(of_cube(jax.jit(step), *arguments, partitioner=partitioner))
    assert "broadcast_in_dim" not in {origin.op for *_, origin in parts}


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_what_a_scatter_has_cut_as_its_updates_is_gathered_for_these(partitioner: Any) -> None:
    """XLA moves the indices to the updates' axis first; without an axis it would cut them there."""

    def step(at: Any, updates: Any) -> Any:
        return jnp.zeros((32, 16)).at[at].add(jnp.tanh(updates))

    at = counted((16,), "data")
    jitted = jax.jit(step, out_shardings=abstract((32, 16), "data", "model").sharding)
    parts = parts_of(
        collectives_of(jitted, at, abstract((16, 16), "model"), partitioner=partitioner)
    )
    over_model = [
        origin
        for each, part, origin in parts
        if each.kind == "all-gather"
        and part.shape.leaves[0].dimensions == (16, 1)
        and [axis.name for axis in each.axes or ()] == ["model"]
    ]
    assert over_model
    for origin in over_model:
        assert named(origin, "has") == {("updates", "P('model', None)")}, origin_text(origin)
        assert {name for name, _ in named(origin, "needed")} == {"result"}


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_a_sum_over_one_element_is_the_same_value(partitioner: Any) -> None:
    """As JAX sums what it broadcast: it is moved to be added, and not to be returned."""

    def step(state: Any, x: Any) -> Any:
        total = x.sum(0).reshape(1, 16).sum(0)
        return state * 0.9 + constrained(total, "data")

    jitted = jax.jit(step, out_shardings=abstract((16,), "model").sharding)
    arguments = abstract((16,), ("model", "data")), abstract((16, 16), "model", "data")
    parts = parts_of(collectives_of(jitted, *arguments, partitioner=partitioner))
    moved = of_kind(parts, "collective-permute")
    assert moved
    for origin in moved:
        assert (origin.value, origin.op) == ("reduce_sum", "add"), origin_text(origin)


def own_results(parts: Any) -> list[CollectiveOrigin]:
    """Origins of what the op that is named makes itself; as of JAX 0.11 only a sum tells."""
    known = [origin for _, part, origin in parts if part.makers == part.tags]
    if not known and compat.version_tuple() >= (0, 11):
        pytest.skip("this XLA names what it moves after what makes it")
    assert known
    return known


@pytest.mark.parametrize("partitioner", PARTITIONERS)
@pytest.mark.parametrize("w", [(None, "model"), ("data", "model")])
def test_a_product_that_is_made_with_other_axes_than_it_has_is_what_is_moved(
    partitioner: Any, w: Any
) -> None:
    """It sums `model`, and is to have it: XLA makes it in pieces along `data` first."""
    jitted = jax.jit(
        lambda g, w: jnp.tanh(g) @ w.T, out_shardings=abstract((16, 32), None, "model").sharding
    )
    arguments = abstract((16, 16), None, "model"), abstract((32, 16), *w)
    parts = parts_of(collectives_of(jitted, *arguments, partitioner=partitioner))
    for origin in own_results(parts):
        assert (origin.value, origin.before, origin.uncertain) == ("dot_general", None, False)
        assert spec_text(origin.after) == "P(None, 'model')"
        assert {name for name, _ in named(origin, "needed")} == {"result", "g", "w"}


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_a_sum_that_is_made_in_pieces_is_what_is_moved(partitioner: Any) -> None:
    """It is permuted, then gathered, and not what it sums."""

    def picked(x: Any, at: Any) -> Any:
        return constrained(jnp.take_along_axis(x, at[:, :, None], 1).sum(1), "model", None)

    at = jax.ShapeDtypeStruct((8, 4), jnp.int32)
    arguments = abstract((8, 16, 16), ("data", "model")), at
    parts = parts_of(collectives_of(jax.jit(picked), *arguments, partitioner=partitioner))
    assert {each.kind for each, *_ in parts} == {"collective-permute", "all-gather"}
    for origin in own_results(parts):
        assert (origin.value, origin.uncertain) == ("reduce_sum", False), origin_text(origin)
        assert {each.kind for each in origin.annotations} == {"argument", "constraint"}


def transposed_product(a: Any, b: Any, dim: int) -> Any:
    return jax.lax.dot_general(a, b, (((dim,), (dim,)), ((), ())))


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_what_is_moved_on_from_where_another_op_needs_it_has_its_own_axes(partitioner: Any) -> None:
    """The first product needs `tanh` on `a` and `b`, and the second on `b` and `a`."""

    def step(x: Any, v: Any, w: Any) -> Any:
        h = jnp.tanh(x)
        return transposed_product(h, v, 1), transposed_product(h, w, 0)

    jitted = jax.jit(step, out_shardings=(in_cube(None, "c"), in_cube(("b", "a"), "c")))
    arguments = cubed((16, 16), None, "c"), cubed((16, 16), "c", ("b", "a"))
    parts = parts_of(
        of_cube(jitted, *arguments, cubed((16, 16), "c", "b"), partitioner=partitioner)
    )
    (origin,) = (
        origin
        for each, part, origin in parts
        if each.kind == "collective-permute" and part.shape.leaves[0].dimensions == (16, 4)
        if [axis.name for axis in each.axes or ()] == ["a", "b"]
    )
    assert (origin.value, named(origin, "has")) == ("tanh", {("x", "P(None, 'c')")})
    assert {name for name, _ in named(origin, "needed")} == {"w", "result[1]"}


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_what_is_summed_and_moved_under_one_name_is_what_the_op_makes(partitioner: Any) -> None:
    """As of JAX 0.11 XLA names both moves of a result and of what makes it after the op."""

    def step(x: Any, w: Any, m: Any) -> Any:
        return jnp.where(m > 0, constrained(transposed_product(jnp.tanh(x), w, 1), "model"), 0)

    arguments = abstract((16, 16), "data", "model"), abstract((16, 16), None, "model")
    parts = parts_of(
        collectives_of(
            jax.jit(step), *arguments, abstract((16, 16), "model"), partitioner=partitioner
        )
    )
    (origin,) = of_kind(parts, "collective-permute")
    assert (origin.value, origin.before) == ("dot_general", None), origin_text(origin)
    assert {each.name for each in origin.annotations} == {"x", "w", "jit(step)"}


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_what_xla_moves_to_idle_axes_and_looks_up_there_is_the_cause(partitioner: Any) -> None:
    """The indices are on `a`, and so is the table, which XLA moves to `b` first."""
    step = jax.jit(lambda table, at: jnp.tanh(table)[at])
    arguments = cubed((32, 16), "a"), cubed((64,), "a", dtype=jnp.int32)
    parts = parts_of(of_cube(step, *arguments, partitioner=partitioner))
    by_kind = {each.kind: (each, origin) for each, _, origin in parts}
    moved, permuted = by_kind["collective-permute"]
    summed, origin = by_kind["all-reduce"]
    assert {axis.name for axis in moved.axes or ()} > {axis.name for axis in summed.axes or ()}
    assert (origin.kind, origin.value) == ("lookup", "tanh")
    assert named(origin, "has") == {("table", "P('a', None)")}
    assert named(origin, "needed") == {("at", "P('a')")}
    assert "which XLA first moves to these axes, given at P('a')" in origin_text(origin)
    # A table with no such axis is looked up in whole, or as XLA splits it.
    assert (permuted.value, named(permuted, "has")) == ("tanh", named(origin, "has"))


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_what_a_permutation_gives_is_said(partitioner: Any) -> None:
    """Which device sends its block to which says it, where no annotation does."""
    step = jax.jit(lambda x, w: jnp.tanh(x) @ jnp.tanh(w))
    arguments = cubed((16, 16), None, "a"), cubed((16, 16), "b")
    parts = parts_of(of_cube(step, *arguments, partitioner=partitioner))
    (origin,) = of_kind(parts, "collective-permute")
    assert (origin.op, spec_text(origin.before)) == ("dot_general", "P(None, 'a')")
    assert spec_text(origin.after) == "P(None, 'b')"
    assert origin_text(origin).startswith(
        "tanh is P(None, 'a') but dot_general, given w P('b', None), requires P(None, 'b'); "
    )


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_what_is_gathered_after_a_permutation_is_left_with_other_axes(partitioner: Any) -> None:
    """XLA moves the indices from `data` to `model`, which the table leaves, and part of `data`."""
    outs = on(MESH, "data", None)
    step = jax.jit(lambda table, at: table[at], out_shardings=outs)
    at = counted((64,), "data")
    parts = parts_of(
        collectives_of(step, abstract((128, 32), None, "data"), at, partitioner=partitioner)
    )
    (origin,) = (
        origin
        for each, part, origin in parts
        if each.kind == "all-gather" and part.shape.leaves[0].dimensions == (32, 1)
    )
    assert (origin.op, spec_text(origin.before)) == ("gather", "P('data', None)")
    assert spec_text(origin.after) == "P('model', None)"


def test_xla_may_split_a_sum_to_which_an_axis_comes_from_far_away() -> None:
    """Behind as many ops as a rematerialized layer has."""

    def step(x: Any, u: Any, w: Any, v: Any) -> Any:
        def layer(h: Any, _: Any) -> Any:
            h = h + u
            for _ in range(70):
                h = jnp.tanh(h)
            return h @ w + v, None

        return jax.lax.scan(layer, x, None, length=3)[0]

    arguments = (
        *(abstract((16, 32), None, "data"), abstract((16, 32), None, "model")),
        *(abstract((32, 32), "data"), abstract((32,), "model")),
    )
    program = Program("step", jax.jit(step), arguments, mesh=compat.abstract_mesh(MESH))
    inspection = Inspection(program, ["gspmd"])
    (origin,) = (
        o for _, _, o in parts_of(inspection.collectives("gspmd")) if o.kind == "reduction"
    )
    assert origin.may_split
    without = inspection.what_if({"x": None, "w": None}).collectives("gspmd")
    assert "split" in {origin.kind for _, _, origin in parts_of(without)}


def none_padded(x: Any) -> Any:
    return jax.lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0)] * x.ndim)


def all_sliced(x: Any) -> Any:
    return jax.lax.dynamic_slice(x, (0,) * x.ndim, x.shape)


def all_written(x: Any) -> Any:
    return jax.lax.dynamic_update_slice(jnp.zeros_like(x), x, (0,) * x.ndim)


def joined_to_nothing(x: Any) -> Any:
    return jnp.concatenate([x, jnp.zeros((x.shape[0], 0), x.dtype)], 1)


def turned_alone(x: Any) -> Any:
    return jax.lax.rev(x[..., None], (x.ndim,))[..., 0]


@pytest.mark.parametrize("partitioner", PARTITIONERS)
@pytest.mark.parametrize(
    "given_back", [none_padded, all_sliced, all_written, joined_to_nothing, turned_alone]
)
def test_what_xla_takes_away_requires_nothing(given_back: Any, partitioner: Any) -> None:
    """XLA gathers for the Fourier transform behind it; as of JAX 0.11 it names what makes that."""

    @jax.jit
    def step(x: Any) -> Any:
        return jnp.fft.fft(given_back(jax.lax.complex(jnp.cos(x), x)))

    collectives = collectives_of(step, abstract((8, 32), "data", "model"), partitioner=partitioner)
    parts = parts_of(collectives)
    assert {(collective.kind, origin.op) for collective, _, origin in parts} == {
        ("all-gather", "fft")
    }
    assert not any(origin.uncertain for _, _, origin in parts)


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_the_edges_of_blocks_are_for_the_op_that_reaches_into_them(partitioner: Any) -> None:
    """As of JAX 0.11 XLA names them as what it moves for the op that takes the result."""

    @jax.jit
    def step(x: Any) -> Any:
        moved = jax.lax.pad(jnp.cos(x), 0.0, [(0, 0, 0), (1, -1, 0)])
        return jnp.fft.fft(constrained(moved, "data", "model"))

    collectives = collectives_of(step, abstract((8, 32), "data", "model"), partitioner=partitioner)
    permuted = of_kind(parts_of(collectives), "collective-permute")
    assert permuted
    assert {(origin.op, origin.kind) for origin in permuted} == {("pad", "rearrangement")}


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_what_a_slice_takes_from_other_blocks_is_not_for_the_product_behind_it(
    partitioner: Any,
) -> None:
    """What it gives has blocks like the edge, which the product takes as they are."""

    @jax.jit
    def step(x: Any, w: Any) -> Any:
        x = constrained(jnp.cos(x), "data", None)
        ends = x[:8], x[-8:]
        return [jnp.einsum("rc,rcd->rd", constrained(end, "data", None), w) for end in ends]

    arguments = abstract((32, 16), "data"), abstract((8, 16, 4), "data")
    collectives = collectives_of(step, *arguments, partitioner=partitioner)
    origins = [origin for _, _, origin in parts_of(collectives)]
    assert {(origin.op, origin.kind) for origin in origins} == {("slice", "rearrangement")}
    assert not any(origin.uncertain for origin in origins)


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_what_xla_gathers_with_its_padding_is_for_the_op_that_takes_it(partitioner: Any) -> None:
    """Of seven elements on four devices eight are gathered, as many as what they are cut from has.

    The cut leaves each where it is.
    """

    @jax.jit
    def step(x: Any) -> Any:
        return jnp.concatenate([jnp.zeros((1,)), jnp.cos(x)[:-1]])

    collectives = collectives_of(step, abstract((8,), "data"), partitioner=partitioner)
    ((collective, _, origin),) = parts_of(collectives)
    assert (collective.kind, origin.op) == ("all-gather", "concatenate")
    assert not origin.uncertain


@pytest.mark.skipif(
    compat.version_tuple() >= (0, 11), reason="XLA may name it after what makes the value"
)
@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_what_xla_names_after_an_op_is_not_for_the_next(partitioner: Any) -> None:
    """A sort along a sharded dimension moves what it makes back, whatever takes that."""

    @jax.jit
    def step(x: Any) -> Any:
        ordered = jax.lax.sort(constrained(jnp.cos(x), "data", "model"), dimension=1)
        return jnp.argmax(ordered, 1)

    collectives = collectives_of(step, abstract((16, 8), "data", "model"), partitioner=partitioner)
    exchanged = of_kind(parts_of(collectives), "all-to-all")
    assert {(origin.op, origin.uncertain) for origin in exchanged} == {
        ("sort", False),
        ("sort", True),
    }


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


@pytest.mark.parametrize("partitioner", PARTITIONERS)
@pytest.mark.parametrize("function", [jnp.tanh, jax.nn.softmax])
def test_what_a_concatenation_moves_is_what_it_makes(function: Any, partitioner: Any) -> None:
    """XLA joins slices of columns, as the product has them, and then moves all to rows."""

    def step(x: Any, w: Any) -> Any:
        return jax.lax.fori_loop(0, 3, lambda _, carry: jnp.roll(function(carry @ w), 1, 0), x)

    arguments = abstract((16, 64), "data"), abstract((64, 64), None, "data")
    parts = parts_of(collectives_of(jax.jit(step), *arguments, partitioner=partitioner))
    (origin,) = of_kind(parts, "all-to-all")
    assert (origin.op, origin.value) == ("concatenate", "concatenate"), origin_text(origin)
    assert (origin.before, origin.uncertain) == (None, False)
    assert spec_text(origin.after) == "P('data', None)"
    assert {name for name, _ in named(origin, "needed")} == {"x", "w"}


def test_an_elementwise_op_requires_its_operands_as_its_result() -> None:
    @jax.jit
    def step(x: Any, y: Any) -> Any:
        return jnp.tanh(x) * jnp.sin(y)

    arguments = abstract((16, 32), "data"), abstract((16, 32), None, "data")
    ((collective, _, origin),) = parts_of(collectives_of(step, *arguments))
    assert (collective.kind, origin.value) == ("all-to-all", "sin")
    assert spec_text(origin.after) == "P('data', None)"
    assert origin_text(origin).startswith(
        "sin is P(None, 'data') but mul, given x P('data', None), requires P('data', None)"
    )


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_what_a_concatenation_makes_is_exchanged_and_not_a_piece_of_it(partitioner: Any) -> None:
    """XLA exchanges both pieces for it, and then what it made of these."""

    @jax.jit
    def step(x: Any, y: Any) -> Any:
        return constrained(jnp.concatenate([jnp.tanh(x), jnp.sin(y)], 1), "data", "model")

    arguments = abstract((16, 32), "data"), abstract((16, 32), "data", "model")
    parts = parts_of(collectives_of(step, *arguments, partitioner=partitioner))
    moved = [(origin.value, spec_text(origin.after)) for _, _, origin in parts]
    assert sorted(moved) == [("concatenate", "P('data', 'model')"), ("sin", ""), ("tanh", "")]


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_what_ops_make_as_they_are_given_and_then_move_is_their_result(partitioner: Any) -> None:
    """Whatever XLA names the move after: as of JAX 0.11 that is mostly what makes the value."""

    def step(
        x: Any, g: Any, a: Any, b: Any, s: Any, w: Any, t: Any, at: Any, e: Any, d: Any
    ) -> Any:
        turned = 2 * constrained(jnp.einsum("btd,bte->de", x, g).T, None, "model")
        added = constrained(constrained(a, "data") + constrained(b, "data"))
        pair = jnp.concatenate([s[..., None], jnp.tanh(s)[..., None]], -1)
        joined = constrained(pair, "model", None, None)
        ordered = constrained(jnp.sort(a @ w, axis=-1), "data", "model")
        looked_up = constrained(t[:, at], "model", None)
        # The first of these leaves blocks as they are.
        edges = jax.lax.pad(jnp.tanh(e) + e, 0.0, [(0, -1, 0), (0, 0, 0)])[::2]
        both = jax.lax.pad(jnp.tanh(d) + d, 0.0, [(-1, 0, 0), (0, 0, 0)])[::2]
        return turned, added, joined, ordered, looked_up, edges, both

    x, at = abstract((4, 8, 32), None, "model"), counted((24,), "model")
    a, b = abstract((16, 8), "data", "model"), abstract((16, 8))
    s, w = abstract((8, 4), "data", "model"), abstract((8, 16), None, "model")
    t, e, d = (
        abstract((12, 6), None, "model"),
        abstract((4, 10), "data"),
        abstract((4, 12), "data"),
    )
    arguments = x, x, a, b, s, w, t, at, e, d
    collectives = collectives_of(jax.jit(step), *arguments, partitioner=partitioner)
    origins_of = {
        (collective.kind, str(leaf)): origin
        for collective, part, origin in parts_of(collectives)
        for leaf in part.shapes
    }
    expected = {
        ("collective-permute", "f32[16,32]"): ("dot_general", None, "P('model', None)"),
        ("all-gather", "f32[16,8]"): ("add", None, "P(None, None)"),
        ("all-to-all", "f32[1,6,12]"): ("gather", None, "P('model', None)"),
        ("collective-permute", "f32[1,10]"): ("slice", "P('data', None)", None),
        ("all-to-all", "f32[1,2,1,8]"): ("sort", None, "P('data', 'model')"),
    }
    if partitioner == "shardy":  # GSPMD's propagation splits it so from the start.
        expected["collective-permute", "f32[2,2,2]"] = "concatenate", None, "P('model', None, None)"
        expected["all-gather", "f32[2,4,2]"] = "concatenate", None, "P('model', None, None)"
    if compat.version_tuple() < (0, 10):
        # Older JAX writes `[::2]` as a gather, and shards it and the pair otherwise.
        expected = {
            key: each for key, each in expected.items() if key in origins_of and each[0] != "slice"
        }
        assert len(expected) >= 4
    known = {
        key: (origin.op, *(spec and spec_text(spec) for spec in (origin.before, origin.after)))
        for key, origin in origins_of.items()
        if key in expected and not origin.uncertain
    }
    assert known == expected
    assert {origins_of[key].value.split(" ")[0] for key in expected} == {
        "pad" if op == "slice" else op for op, *_ in expected.values()
    }
    # A padding and a slice that both move some are one name to the XLA of JAX 0.11.
    of_both = origins_of["collective-permute", "f32[1,12]"]
    assert of_both.uncertain == (compat.version_tuple() >= (0, 11))


def test_what_a_constraint_moves_is_not_for_what_takes_that() -> None:
    """XLA names what moves an argument after that, and leaves nothing of the constraint."""
    step = jax.jit(lambda x: jax.lax.with_sharding_constraint(x, on(CUBE, "b", "a")) * 2)
    x = jax.ShapeDtypeStruct((8, 2), jnp.float32, sharding=on(CUBE, "a", "b"))
    ((_, _, origin),) = parts_of(collectives_of(step, x, mesh=CUBE))
    assert (origin.op, origin.uncertain) == ("sharding_constraint", False)
    assert (spec_text(origin.before), spec_text(origin.after)) == ("P('a', 'b')", "P('b', 'a')")


def test_what_was_followed_to_an_op_is_what_that_takes_be_it_moved_before() -> None:
    """What is exchanged has neither axes nor shape of any block of the first product's weights."""

    def step(x: Any, w: Any, u: Any) -> Any:
        product = jnp.einsum("bd,eb->ed", jnp.tanh(x) @ w, u)
        return constrained(product, None, ("data", "model"))

    x, w = abstract((16, 8), "model"), abstract((8, 24), "model")
    parts = parts_of(collectives_of(jax.jit(step), x, w, abstract((40, 16), "data", "model")))
    (origin,) = of_kind(parts, "all-to-all")
    assert (origin.value, origin.op, origin.uncertain) == ("w", "dot_general", False)
