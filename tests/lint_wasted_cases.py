"""Cases for the rules about what is sent for nothing, and about links; see ``lint_cases``."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.lax import with_sharding_constraint as constrain
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.inspection import Inspection
from tests.lint_cases import finds, program, spares
from tests.programs import AUTO, array, on

LINE = AbstractMesh((8,), ("d",), axis_types=(AxisType.Auto,))


def mapped(body: Any, ins: Any, outs: Any, *arguments: Any, mesh: Any = AUTO) -> Inspection:
    return program(
        jax.shard_map(body, mesh=mesh, in_specs=ins, out_specs=outs),
        *(array(shape, *spec, mesh=mesh) for shape, spec in zip(arguments, ins, strict=True)),
    )


def gradient(w: Any, x: Any) -> Any:
    return jax.grad(lambda w: jnp.sum((x @ w) ** 2))(w)


@finds("reduced-twice", "psum")
def gradient_summed_again():
    def body(w: Any, x: Any) -> Any:
        return jax.lax.psum(gradient(w, x), "d")

    return mapped(body, (P(), P("d")), P(), (16, 4), (64, 16), mesh=LINE)


@finds("reduced-twice", severity="note")
def mean_of_a_mean():
    def body(x: Any) -> Any:
        total = jax.lax.pmean(jnp.sum(x), "d")
        return jax.lax.pmean(total * 2, "d")

    return mapped(body, (P("d"),), P(), (64, 16), mesh=LINE)


@spares("reduced-twice")
def sum_of_what_follows_a_sum():
    def body(x: Any) -> Any:
        total = jax.lax.psum(jnp.sum(x), "d")
        return jax.lax.psum(jnp.sum(x * total), "d")

    return mapped(body, (P("d"),), P(), (64, 16), mesh=LINE)


@finds("all-reduce-then-slice", "psum")
@spares("gathered-to-be-sliced")
def sum_of_which_a_slice_is_kept():
    def body(x: Any, w: Any) -> Any:
        y = jax.lax.psum(x @ w, "model")
        at = jax.lax.axis_index("model") * 512
        return jax.lax.dynamic_slice_in_dim(y, at, 512, axis=1)

    ins = (P("data", "model"), P("model", None))
    return mapped(body, ins, P("data", "model"), (512, 64), (64, 1024))


@spares("all-reduce-then-slice")
def sum_that_is_used_whole_too():
    def body(x: Any, w: Any) -> Any:
        y = jax.lax.psum(x @ w, "model")
        at = jax.lax.axis_index("model") * 512
        return jax.lax.dynamic_slice_in_dim(y, at, 512, axis=1) * jnp.sum(y)

    ins = (P("data", "model"), P("model", None))
    return mapped(body, ins, P("data", "model"), (512, 64), (64, 1024))


@finds("gathered-to-be-sliced", "all_gather")
def gather_of_which_a_block_is_kept():
    def body(w: Any) -> Any:
        every = jax.lax.all_gather(w, "model", axis=0, tiled=True)
        at = jax.lax.axis_index("model") * 256
        return jax.lax.dynamic_slice_in_dim(every, at, 256, axis=0)

    return mapped(body, (P("model"),), P("model"), (512, 256))


@spares("gathered-to-be-sliced")
def gather_of_which_a_fixed_part_is_kept():
    def body(w: Any) -> Any:
        every = jax.lax.all_gather(w, "model", axis=0, tiled=True)
        return jax.lax.slice_in_dim(every, 0, 256, axis=0)

    return mapped(body, (P("model"),), P("model"), (512, 256))


def accumulated(after: Any, at: Any = lambda w, total: w) -> Inspection:
    """Microbatches whose gradients a loop adds up, and what is done with each gradient.

    Args:
        after: the next total, of the one before and a gradient.
        at: where the gradient is taken, of the parameters and the total.
    """

    def loss(w: Any, x: Any) -> Any:
        return jnp.mean(jnp.tanh(x @ w) ** 2)

    def step(w: Any, batches: Any) -> Any:
        def body(total: Any, x: Any) -> Any:
            return after(total, jax.grad(loss)(at(w, total), x)), None

        return jax.lax.scan(body, jnp.zeros_like(w), batches)[0]

    whole = NamedSharding(AUTO, P())
    w, batches = array((128, 256)), array((8, 64, 128), None, "data")
    return program(step, w, batches, out_shardings=whole)


@finds("reduced-in-loop", "dot_general", compiled=True)
def gradients_summed_in_each_iteration():
    return accumulated(lambda total, g: total + 0.5 * g)


@finds("reduced-in-loop", "dot_general", compiled=True)
def gradients_behind_a_barrier_with_another():
    def second(total: Any, g: Any) -> Any:
        _, g = jax.lax.optimization_barrier((jnp.float32(1.0), g))
        return total + g

    return accumulated(second)


def gradients_summed_in_a_mapped_loop():
    """Of weights that are the same on all devices, with `check_vma`: in each step of a pipeline."""

    def body(w: Any, batches: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            return jnp.tanh((h + x) @ w), None

        return jax.lax.scan(step, batches[0] * 0, batches)[0]

    mapped = jax.shard_map(body, mesh=AUTO, in_specs=(P(), P(None, "data")), out_specs=P("data"))
    w, batches = array((128, 128)), array((8, 64, 128), None, "data")
    return program(jax.grad(lambda w, x: (mapped(w, x) ** 2).sum()), w, batches)


@spares("reduced-in-loop", compiled=True)
def gradients_that_each_iteration_needs():
    return accumulated(lambda total, g: total + jnp.sign(g))


@spares("reduced-in-loop", compiled=True)
def parameters_that_each_iteration_updates():
    return accumulated(lambda w, g: w + -0.1 * g, at=lambda _, w: w)


@spares("reduced-in-loop", compiled=True)
def total_that_each_iteration_uses_in_a_function():
    norm = jax.jit(jnp.linalg.norm)
    return accumulated(lambda total, g: total + g, at=lambda w, total: w * norm(total))


@spares("reduced-in-loop", compiled=True)
def products_that_xla_splits_over_an_axis_of_its_own():
    """It moves the weights from `fsdp`, which the rows are on, to `tensor`, and sums over that."""
    mesh = AbstractMesh((2, 2), ("fsdp", "tensor"), axis_types=(AxisType.Auto,) * 2)

    def step(x: Any, weights: Any) -> Any:
        def body(total: Any, w: Any) -> Any:
            return total + x @ w, None

        return jax.lax.scan(body, jnp.zeros((8, 128)), weights)[0]

    weights = array((4, 16, 128), None, "fsdp", mesh=mesh)
    return program(step, array((8, 16), "fsdp", mesh=mesh), weights)


def products_added_up(mapped: bool) -> Inspection:
    """Products over what is sharded over `model`, as a loop or each device adds them up."""

    def added(xs: Any, ws: Any) -> Any:
        total = jnp.zeros((xs.shape[1], 128))
        return jax.lax.scan(lambda total, xw: (total + xw[0] @ xw[1], None), total, (xs, ws))[0]

    def behind(xs: Any, ws: Any) -> Any:
        return jax.lax.psum(added(xs, ws), "model")

    ins = (P(None, "data", "model"), P(None, "model"))
    arguments = [
        array(shape, *spec) for shape, spec in zip(((8, 64, 128), (8, 128, 128)), ins, strict=True)
    ]
    step = jax.shard_map(behind, mesh=AUTO, in_specs=ins, out_specs=P("data"), check_vma=False)
    return program(step if mapped else added, *arguments)


def over_time(mapped: bool) -> Inspection:
    """The gradient of an RNN's weights, its batch over `data`."""

    def rnn(w: Any, xs: Any) -> Any:
        return jax.lax.scan(lambda h, x: (jnp.tanh(h @ w + x), None), xs[0] * 0, xs)[0]

    ins = (P(), P(None, "data"))
    over = {"axis_names": {"data"}, "check_vma": False}
    run = jax.shard_map(rnn, mesh=AUTO, in_specs=ins, out_specs=P("data"), **over)
    run = run if mapped else rnn
    step = jax.grad(lambda w, xs: (run(w, xs) ** 2).mean())
    return program(step, array((128, 128)), array((8, 64, 128), None, "data"))


@spares("reduced-in-loop", compiled=True)
def tensor_parallelism_that_each_iteration_needs():
    """What all layers read has a gradient that the loop adds up, beside activations' it needs."""

    def f(x: Any, w1: Any, w2: Any, enc: Any) -> Any:
        def body(t: Any, w: Any) -> Any:
            keys = constrain(enc @ w[0], on("data", "model"))
            h = constrain(jnp.tanh(t @ w[0] + keys), on("data", "model"))
            return constrain(t + h @ w[1], on("data", None)), None

        return jnp.sum(jax.lax.scan(body, x, (w1, w2))[0] ** 2)

    x, enc = array((64, 128), "data"), array((64, 128), "data")
    w1, w2 = array((8, 128, 256), None, None, "model"), array((8, 256, 128), None, "model")
    return program(jax.grad(f, argnums=3), x, w1, w2, enc)


@spares("resharded-twice")
def moved_used_and_moved_on():
    def f(x: Any) -> Any:
        y = constrain(jnp.sin(x), on("data", None))
        return jnp.cos(constrain(y, on(None, "data"))) + jnp.sum(y)

    return program(f, array((64, 64), "data"))


def layers(spec: Any) -> Inspection:
    """Matmuls with whole weights in a row, what they hand on constrained to a spec."""

    def f(x: Any, ws: Any) -> Any:
        for w in ws:
            x = constrain(jnp.tanh(x @ w), on(*spec))
        return x

    return program(f, array((1024, 128), *spec), [array((128, 128)) for _ in range(5)])


@finds("activation-gathered-repeatedly", "tanh", compiled=True)
def residual_stream_on_its_features():
    return layers((None, "data"))


def residual_stream_on_its_features_at_two_lines():
    """As a decoder has it: the attention's input is one line, that of the MLP another."""
    features = on(None, "data")

    def f(x: Any, ws: Any) -> Any:
        for w in ws:
            x = constrain(jnp.tanh(x @ w), features)
            x = constrain(jnp.sin(x @ w), features)
        return x

    return program(f, array((1024, 128), None, "data"), [array((128, 128)) for _ in range(3)])


def layers_gathered_by_a_constraint():
    """As a router that is to see every token on every device."""

    def f(x: Any, ws: Any) -> Any:
        for w in ws:
            whole = constrain(jnp.tanh(x), on(None, None))
            x = constrain(jnp.sin(whole @ w), on("data", None))
        return x

    return program(f, array((1024, 128), "data", None), [array((128, 128)) for _ in range(5)])


@finds("activation-gathered-repeatedly", "x", compiled=True)
def residual_stream_that_a_loop_hands_on():
    """It begins with an argument, whose name it has."""

    def f(x: Any, ws: Any) -> Any:
        def layer(x: Any, w: Any) -> Any:
            return constrain(jnp.tanh(x @ w), on(None, "data")), None

        return jax.lax.scan(layer, x, ws)[0]

    return program(f, array((1024, 128), None, "data"), array((5, 128, 128)))


@spares("activation-gathered-repeatedly", compiled=True)
def parameters_that_a_loop_over_steps_hands_on():
    def f(w: Any, xs: Any) -> Any:
        def step(w: Any, x: Any) -> Any:
            return w - 0.1 * jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w) ** 2))(w), None

        return jax.lax.scan(step, w, xs)[0]

    return program(f, array((1024, 512), "data"), array((5, 64, 1024), None, "data"))


@spares("activation-gathered-repeatedly", compiled=True)
def residual_stream_on_its_rows():
    return layers(("data", None))


@spares("activation-gathered-repeatedly", compiled=True)
def an_optimizer_that_multiplies_matrices():
    """As Muon does: what it gathers is outside of the passes, and no activation."""

    def step(w: Any, x: Any) -> Any:
        update = jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w)))(w)
        for _ in range(5):
            update = constrain(update @ update.T @ update, on("data", "model"))
        return w - update

    weights = array((256, 256), "data", "model")
    return program(step, weights, array((8, 256)), out_shardings=on("data", "model"))


#: Two slices of four chips: the first axis of a mesh of 2 x 4 is over the network between them.
SLICES = "tpu:v5e:2x2x2slices"


def mesh_of(*axes: str) -> AbstractMesh:
    return AbstractMesh((2, 4), axes, axis_types=(AxisType.Auto,) * 2)


def summed_over(inner: str, mesh: Any) -> Inspection:
    """Matmuls whose sums are over one axis."""

    def f(x: Any, w: Any) -> Any:
        return jnp.tanh(x @ w)

    outer = next(axis for axis in mesh.axis_names if axis != inner)
    x = array((2048, 512), outer, inner, mesh=mesh)
    w = array((512, 1024), inner, mesh=mesh)
    return program(f, x, w, out_shardings=on(outer, mesh=mesh))


@finds("mesh-order", compiled=True, hardware=SLICES)
@finds("axis-over-slow-link", compiled=True, hardware=SLICES)
def tensor_parallelism_between_slices():
    return summed_over("model", mesh_of("model", "data"))


@spares("mesh-order", "axis-over-slow-link", compiled=True, hardware=SLICES)
def tensor_parallelism_in_a_slice():
    return summed_over("model", mesh_of("data", "model"))


def steps_of_a_spectral_solver(transform: Any) -> Inspection:
    """Five steps between a field and its spectrum, both split along their first dimension.

    Args:
        transform: the spectrum of a field, which the next step takes for a field.
    """

    def solve(field: Any) -> Any:
        for _ in range(5):
            field = transform(jnp.tanh(field.real) + 0j)
        return field

    return program(solve, array((64, 64), "d", mesh=LINE, dtype=jnp.complex64))


def transformed_in_a_shard_map(field: Any) -> Any:
    """An fft along each dimension where it is whole; what it returns is split along the first."""

    def body(block: Any) -> Any:
        rows = jax.lax.all_to_all(jnp.fft.fft(block, axis=1), "d", 1, 0, tiled=True)
        return jax.lax.all_to_all(jnp.fft.fft(rows, axis=0), "d", 0, 1, tiled=True)

    return jax.shard_map(body, mesh=LINE, in_specs=P("d"), out_specs=P("d"))(field)


@finds("op-not-split", "fft", compiled=True)
@spares("activation-gathered-repeatedly", compiled=True)
def transformed_by_one_op():
    return steps_of_a_spectral_solver(jnp.fft.fft2)


@spares("op-not-split", compiled=True)
def transformed_by_each_device():
    return steps_of_a_spectral_solver(transformed_in_a_shard_map)


def largest_of_rows(*spec: Any, find: Any = jax.lax.top_k) -> Inspection:
    return program(lambda x: find(jnp.tanh(x), 4), array((64, 4096), *spec))


def largest_of_blocks(x: Any, k: int) -> Any:
    """The largest of each row over `model`, and of the examples that each device has."""

    def body(block: Any) -> Any:
        values, at = jax.lax.top_k(block, k)
        at += jax.lax.axis_index("model") * block.shape[1]
        values, at = (
            jax.lax.all_gather(each, "model", axis=1, tiled=True) for each in (values, at)
        )
        values, best = jax.lax.top_k(values, k)
        return values, jnp.take_along_axis(at, best, axis=1)

    specs = {"in_specs": P("data", "model"), "out_specs": P("data"), "check_vma": False}
    return jax.shard_map(body, mesh=AUTO, **specs)(x)


@finds("op-not-split", "top_k", compiled=True)
def largest_of_rows_over_devices():
    return largest_of_rows("data")


@finds("op-not-split", "top_k", compiled=True)
def largest_along_what_is_sharded():
    return largest_of_rows("data", "model")


@spares("op-not-split", compiled=True)
def largest_of_blocks_and_of_those():
    return largest_of_rows("data", "model", find=largest_of_blocks)


@spares("op-not-split", compiled=True)
def rows_sorted_over_devices():
    return largest_of_rows("data", find=lambda x, k: jnp.sort(x, axis=1)[:, :k])


def loss_of(logits: Any, *spec: Any) -> Inspection:
    """A mean over tokens, of logits in some form."""

    def loss(x: Any) -> Any:
        return jnp.mean(jax.nn.logsumexp(logits(jnp.tanh(x)), axis=-1))

    return program(loss, array((16, 64, 512), *spec))


def flattened(x: Any) -> Any:
    return x.reshape(-1, x.shape[-1])


@finds("reshape-not-split", "reshape", compiled=True)
def sharded_sequence_joined_to_its_batch():
    return loss_of(flattened, "data", "model")


@spares("reshape-not-split", compiled=True)
def sharded_sequence_beside_its_batch():
    return loss_of(lambda x: x, "data", "model")


@spares("reshape-not-split", compiled=True)
def sequence_joined_to_its_sharded_batch():
    return loss_of(flattened, ("data", "model"))


def heads(count: int) -> Inspection:
    def scores(x: Any, w: Any) -> Any:
        q = (x @ w).reshape(8, 128, count, -1)
        return jnp.einsum("bqhd,bkhd->bhqk", q, q)

    arguments = array((8, 128, 64), "model"), array((64, 384), None, "data")
    return program(scores, *arguments)


@finds("reshape-not-split", compiled=True)
def six_heads_of_four_blocks():
    return heads(6)


@spares("reshape-not-split", compiled=True)
def eight_heads_of_four_blocks():
    return heads(8)


def halved(x: Any, *, over: Any = lambda x: x > 1e-3) -> Any:
    """What is left of it when it is small, or after a hundred times."""

    def goes_on(state: Any) -> Any:
        return jnp.all(over(state[0])) & (state[1] < 100)

    def halves(state: Any) -> Any:
        return state[0] / 2, state[1] + 1

    return jax.lax.while_loop(goes_on, halves, (x, 0))[0]


@finds("batched-loop-in-step", "while", compiled=True)
def examples_that_end_together():
    return program(jax.vmap(halved), array((64, 128), "data"))


@spares("batched-loop-in-step", compiled=True)
def examples_that_end_where_they_are():
    mapped = jax.shard_map(jax.vmap(halved), mesh=AUTO, in_specs=P("data"), out_specs=P("data"))
    return program(mapped, array((64, 128), "data"))


@spares("batched-loop-in-step", compiled=True)
def a_solver_that_asks_for_the_norm():
    return program(
        lambda x: halved(x, over=lambda x: jnp.linalg.norm(x) > 1e-3), array((64, 128), "data")
    )


def filled(fill: Any, *spec: Any, places: Any = ()) -> Inspection:
    """A cache of keys that 16 positions are written into, and what else ``fill`` does to it."""
    arguments = array((8, 2048, 64), *spec), array((8, 16, 64)), array(places, dtype=jnp.int32)
    return program(fill, *arguments)


def filled_by_rows(cache: Any, new: Any, start: Any) -> Any:
    return cache.at[:, start + jnp.arange(16)].set(new)


def read_by_rows(cache: Any, new: Any, start: Any) -> Any:
    return cache[:, start + jnp.arange(16)] + new


@finds("window-not-split", "dynamic_update_slice", compiled=True)
def cache_filled_along_its_sharded_positions():
    return filled(
        lambda cache, new, at: jax.lax.dynamic_update_slice(cache, new, (0, at, 0)), None, "data"
    )


@finds("window-not-split", "scatter", compiled=True)
def cache_filled_at_places_of_each_example():
    write = jax.vmap(lambda row, new, at: jax.lax.dynamic_update_slice(row, new, (at, 0)))
    return filled(write, "model", "data", places=(8,))


@finds("window-not-split", compiled=True)
def part_of_a_cache_set():
    return filled(lambda cache, new, at: cache.at[:, 30:46].set(new), None, "data")


@finds("window-not-split", "dynamic_slice", compiled=True)
def window_of_a_cache_read():
    read = jax.lax.dynamic_slice_in_dim
    return filled(lambda cache, new, at: read(cache, at, 16, 1) + new, None, "data")


@spares("window-not-split", compiled=True)
def cache_filled_along_its_whole_positions():
    return filled(
        lambda cache, new, at: jax.lax.dynamic_update_slice(cache, new, (0, at, 0)), "data", None
    )


@spares("window-not-split", compiled=True)
def cache_filled_by_its_rows():
    return filled(filled_by_rows, None, "data")


@spares("window-not-split", compiled=True)
def rows_of_a_cache_read():
    return filled(read_by_rows, None, "data")


@spares("window-not-split", compiled=True)
def layers_of_a_loop():
    def layers(w: Any, x: Any) -> Any:
        return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, w)[0]

    return program(layers, array((8, 128, 128), "data"), array((16, 128)))


@spares("window-not-split", compiled=True)
def rows_of_a_table_that_is_gathered():
    """The axes contend, and XLA makes the table whole, though it can split the rows of one."""

    def embed(table: Any, ids: Any) -> Any:
        return constrain(table[ids], on("data", None)) * 2

    return program(
        embed, array((64, 128), "model", "data"), array((4096,), "data", dtype=jnp.int32)
    )
