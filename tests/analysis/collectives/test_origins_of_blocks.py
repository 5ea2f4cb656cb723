"""Origins of parts of blocks: windows, slices, lookups, scatters and joined values."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from origin_programs import (
    MESH,
    PARTITIONERS,
    abstract,
    collectives_of,
    constrained,
    counted,
    cubed,
    named,
    of_cube,
    of_kind,
    on,
    parts_of,
)

from sdyscope.analysis.collectives.comms import comms_document
from sdyscope.facts.program import Program
from sdyscope.inspection import Inspection
from sdyscope.stages import compat
from sdyscope.views.comms import footer
from sdyscope.words.origins import origin_text, spec_text

pytestmark = pytest.mark.compiles


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


def test_a_cause_is_uncertain_where_what_is_sent_is_no_block_of_the_value() -> None:
    """XLA gathers what the lookup makes, cut as its table is: no block of its indices.

    Of numbers it is known to be no indices, then.
    """

    def looked_up(table: Any, at: Any) -> Any:
        return constrained(table[at], "data", None)

    at = counted((16,), "data")
    table = abstract((32, 16), None, ("data", "model"))
    own = [o for *_, o in parts_of(collectives_of(jax.jit(looked_up), table, at)) if o.own_result]
    assert [(o.value, o.op, o.uncertain) for o in own] == [("gather", "gather", False)]
    whole = jax.ShapeDtypeStruct(table.shape, jnp.int32, sharding=table.sharding)
    mesh = compat.abstract_mesh(MESH)
    program = Program("step", jax.jit(looked_up), (whole, at), mesh=mesh)
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
@pytest.mark.parametrize("made", [lambda x: x, jnp.tanh])
def test_what_a_reshape_does_not_keep_is_gathered_for_it(made: Any, partitioner: Any) -> None:
    """As of JAX 0.11 XLA names the gather after what takes the reshape's result."""

    @jax.jit
    def step(x: Any) -> Any:
        return made(x).reshape(6, 8) * 2

    collectives = collectives_of(step, abstract((48,), ("model", "data")), partitioner=partitioner)
    ((_, _, origin),) = parts_of(collectives)
    assert (origin.kind, origin.op, origin.uncertain) == ("resharding", "reshape", False)
    assert (spec_text(origin.before), spec_text(origin.after)) == (
        "P(('model', 'data'))",
        "P('model')",
    )


def test_what_a_concatenation_is_given_in_a_loop_is_not_what_it_makes() -> None:
    """GSPMD exchanges both pieces first; the carry begins as a constant and does not stay one."""

    def step(layers: Any, x: Any) -> Any:
        def stage(state: Any, at: Any) -> Any:
            state = constrained(jnp.concatenate([x[at][None], state[:-1]], 0), "data")
            state = jnp.tanh(jnp.einsum("sbd,sde->sbe", state, layers))
            return constrained(state, "data", "model"), None

        return jax.lax.scan(stage, jnp.zeros((4, 8, 16)), jnp.arange(6))[0]

    arguments = abstract((4, 16, 16), "data"), abstract((6, 8, 16), None, "model")
    parts = parts_of(collectives_of(jax.jit(step), *arguments, partitioner="gspmd"))
    joined = [(each, origin) for each, _, origin in parts if origin.op == "concatenate"]
    gathered = {origin.value for each, origin in joined if each.kind == "all-gather"}
    exchanged = [origin.own_result for each, origin in joined if each.kind == "all-to-all"]
    assert gathered == {"x", "a constant"}
    assert sorted(exchanged) == [False, False, True]
