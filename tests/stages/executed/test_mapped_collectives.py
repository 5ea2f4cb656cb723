"""What collectives are in a map is what devices make of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from sdyscope.stages.executed.mapped_collectives import mapped_collective
from sdyscope.stages.executed.one_device import unsharded

MESH = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
BOTH = P(("data", "model"))


def on_devices_and_mapped(body, *values, out=BOTH):
    """What a body returns on eight devices, and mapped on one."""
    mapped = jax.shard_map(body, mesh=MESH, in_specs=BOTH, out_specs=out, check_vma=False)
    traced = jax.jit(mapped).trace(*values)
    plain = jax.jit(unsharded(traced))(*values)
    return jax.tree.leaves(jax.jit(mapped)(*values)), plain


def everything(axes, size):
    """A body that has each collective along these axes."""

    def body(x):
        tall = jnp.tile(x, (size, 1)) * (lax.axis_index(axes) + 1)
        shift = [(at, (at + 1) % size) for at in range(size)]
        # In another order than the mesh's JAX permutes other devices than it says, or refuses.
        permutations = [shift, shift[:-1], [(size - 1, 0)]] if axes != ("model", "data") else []
        return {
            "permuted": [lax.ppermute(x, axes, permutation) for permutation in permutations],
            "gather": lax.all_gather(x, axes),
            "gather inside": lax.all_gather(x, axes, axis=1),
            "gather tiled": lax.all_gather(x, axes, axis=1, tiled=True),
            "scatter": lax.psum_scatter(tall, axes, tiled=True),
            "scatter untiled": lax.psum_scatter(tall[:size].T, axes, scatter_dimension=1),
            "exchange": lax.all_to_all(tall, axes, 0, 1, tiled=True),
            "exchange back": lax.all_to_all(tall.T, axes, 1, 0, tiled=True),
            "exchange untiled": lax.all_to_all(tall[:size], axes, 0, 1),
            "sum": lax.psum(x, axes),
            "most": lax.pmax(x, axes),
            "least": lax.pmin(x, axes),
        }

    return body


@pytest.mark.parametrize(
    ("axes", "size"),
    [("data", 4), ("model", 2), (("data", "model"), 8), (("model", "data"), 8)],
    ids=str,
)
def test_along_axes(axes, size):
    x = jnp.arange(8 * 2 * 3, dtype=jnp.int32).reshape(16, 3) ** 2
    for there, mapped in zip(*on_devices_and_mapped(everything(axes, size), x), strict=True):
        np.testing.assert_array_equal(there, mapped)


def test_groups_within_an_axis():
    groups = [[2, 0], [1, 3]]

    def body(x):
        def with_groups(function, *args, **options):
            return function(*args, axis_index_groups=groups, **options)

        return {
            "sum": with_groups(lax.psum, x, "data"),
            "most": with_groups(lax.pmax, x, "data"),
            "gather": with_groups(lax.all_gather, x, "data"),
            "scatter": with_groups(lax.psum_scatter, x, "data", tiled=True),
            "exchange": with_groups(lax.all_to_all, x, "data", 0, 1, tiled=True),
        }

    x = jnp.arange(8 * 2 * 3, dtype=jnp.int32).reshape(16, 3) ** 2
    for there, mapped in zip(*on_devices_and_mapped(body, x), strict=True):
        np.testing.assert_array_equal(there, mapped)


def test_the_gradient_of_a_pipeline():
    """JAX transposes a permutation that leaves devices out to one that leaves others out."""

    def stages(x, w):
        shift = [(0, 1), (1, 2), (2, 3)]
        for _ in range(3):
            x = lax.ppermute(jnp.tanh(x @ w), "data", shift)
        return x

    def body(x):
        return jax.grad(lambda x: (stages(x, jnp.eye(3) * 0.5 + 0.1) ** 2).sum())(x)

    x = jnp.linspace(-1.0, 1.0, 48).reshape(16, 3)
    (there,), (mapped,) = on_devices_and_mapped(body, x)
    assert np.any(there)
    np.testing.assert_allclose(there, mapped, rtol=1e-6)


def test_ragged_all_to_all():
    """JAX's own example: XLA runs it on GPUs and TPUs alone."""
    exchange = mapped_collective(
        "ragged_all_to_all", {"axis_name": ("x",), "axis_index_groups": None}
    )
    operand = jnp.array([[1, 2, 2], [3, 4, 0]])
    output = jnp.zeros((2, 4), jnp.int32)
    input_offsets, send_sizes = jnp.array([[0, 1], [0, 1]]), jnp.array([[1, 2], [1, 1]])
    output_offsets, recv_sizes = jnp.array([[0, 0], [1, 2]]), jnp.array([[1, 1], [2, 1]])
    (result,) = jax.vmap(exchange, axis_name="x")(
        operand, output, input_offsets, send_sizes, output_offsets, recv_sizes
    )
    np.testing.assert_array_equal(result, [[1, 3, 0, 0], [2, 2, 4, 0]])


def test_several_slices_for_each_device():
    exchange = mapped_collective(
        "ragged_all_to_all", {"axis_name": ("x",), "axis_index_groups": None}
    )
    operand = jnp.arange(12.0).reshape(2, 6)[..., None]
    output = jnp.full((2, 6, 1), -1.0)
    # Slices 0 and 1 go to device 0, slices 2 and 3 to device 1.
    input_offsets = jnp.array([[0, 1, 3, 4], [0, 2, 3, 5]])
    send_sizes = jnp.array([[1, 2, 1, 2], [2, 0, 2, 1]])
    output_offsets = jnp.array([[0, 3, 0, 3], [1, 5, 1, 5]])
    recv_sizes = jnp.zeros((2, 4), jnp.int32)
    (result,) = jax.vmap(exchange, axis_name="x")(
        operand, output, input_offsets, send_sizes, output_offsets, recv_sizes
    )
    np.testing.assert_array_equal(result[..., 0], [[0, 6, 7, 1, 2, -1], [3, 9, 10, 4, 5, 11]])


@pytest.mark.skipif(not hasattr(lax, "psum_scatter_start"), reason="JAX has no asynchronous ones")
def test_what_is_started_is_what_is_awaited():
    def body(x, started):
        def call(name, *args, **options):
            if not started or not hasattr(lax, f"{name}_start"):
                return getattr(lax, name)(*args, **options)
            return getattr(lax, f"{name}_start")(*args, **options).done()

        tall = jnp.tile(x, (4, 1))
        return {
            "gather": call("all_gather", x, ("data", "model"), tiled=True),
            "scatter": call("psum_scatter", tall, "data", tiled=True),
            "exchange": call("all_to_all", tall, "data", 0, 1, tiled=True),
            "permuted": call("ppermute", x, "data", [(0, 1), (1, 2)]),
        }

    x = jnp.arange(48, dtype=jnp.int32).reshape(16, 3)
    plain, awaited = (
        jax.jit(
            unsharded(
                jax.jit(
                    jax.shard_map(
                        lambda x, started=started: body(x, started),
                        mesh=MESH,
                        in_specs=BOTH,
                        out_specs=BOTH,
                        check_vma=False,
                    )
                ).trace(x)
            )
        )(x)
        for started in (False, True)
    )
    for expected, result in zip(plain, awaited, strict=True):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.skipif(not hasattr(lax, "pcast"), reason="JAX's types do not say what varies")
def test_parts_of_a_sum_by_type():
    def body(x):
        return lax.psum(lax.pcast(x, ("data", "model"), to="unreduced"), ("data", "model"))

    mapped = jax.shard_map(body, mesh=MESH, in_specs=BOTH, out_specs=P())
    x = jnp.arange(48, dtype=jnp.int32).reshape(16, 3)
    (result,) = unsharded(jax.jit(mapped).trace(x))(x)
    np.testing.assert_array_equal(result, x.reshape(8, 2, 3).sum(0))
