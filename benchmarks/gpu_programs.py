"""Steps for one GPU, to be measured: kernels that models spend their time in, each alone.

Each is a program on a mesh of one device, `sdyscope cost benchmarks/gpu_programs.py:matmul`.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope import Program

MESH = {"data": 1}


def _program(mesh: Any, fun: Callable[..., Any], *shapes: tuple[Any, ...]) -> Program:
    """A program of arrays, each given as its shape with its dtype at the end."""
    args = tuple(
        jax.ShapeDtypeStruct(shape[:-1], shape[-1], sharding=NamedSharding(mesh, P()))
        for shape in shapes
    )
    return Program(fun.__name__, jax.jit(fun), args, mesh=mesh)


def matmul(mesh: Any, size: int = 8192, dtype: str = "bfloat16", batch: int = 1) -> Program:
    def step(a: Any, b: Any) -> Any:
        return a @ b

    shape = (batch, size, size, dtype)
    return _program(mesh, step, shape, shape)


def attention(
    mesh: Any,
    batch: int = 4,
    sequence: int = 2048,
    heads: int = 16,
    head_dim: int = 128,
) -> Program:
    def step(q: Any, k: Any, v: Any) -> Any:
        def loss(q: Any, k: Any, v: Any) -> Any:
            out = jax.nn.dot_product_attention(q, k, v, is_causal=True)
            return (out.astype(jnp.float32) ** 2).mean()

        return jax.grad(loss, (0, 1, 2))(q, k, v)

    shape = (batch, sequence, heads, head_dim, "bfloat16")
    return _program(mesh, step, shape, shape, shape)


def norms(mesh: Any, rows: int = 65536, width: int = 4096, layers: int = 4) -> Program:
    """Norms, softmax and gelu: nothing but memory."""

    def step(x: Any, scale: Any) -> Any:
        for _ in range(layers):
            x = x * jax.lax.rsqrt(
                (x.astype(jnp.float32) ** 2).mean(-1, keepdims=True) + 1e-6
            ).astype(x.dtype)
            x = jax.nn.softmax(jax.nn.gelu(x * scale), -1)
        return x

    return _program(mesh, step, (rows, width, "bfloat16"), (width, "bfloat16"))


def convolutions(mesh: Any, batch: int = 128, image: int = 56, layers: int = 6) -> Program:
    """Residual blocks as in ResNet-50's first stages, forward and backward."""

    def step(x: Any, *kernels: Any) -> Any:
        def loss(kernels: Any) -> Any:
            y = x
            for kernel in kernels:
                out = jax.lax.conv_general_dilated(
                    y, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
                )
                y = y + jax.nn.relu(out)
            return (y.astype(jnp.float32) ** 2).mean()

        return jax.grad(loss)(kernels)

    kernel = (3, 3, 128, 128, "bfloat16")
    return _program(mesh, step, (batch, image, image, 128, "bfloat16"), *[kernel] * layers)


def decode(
    mesh: Any, batch: int = 32, length: int = 4096, heads: int = 16, layers: int = 2
) -> Program:
    """One token more: a cache that is read whole and written at one place."""
    head_dim, width = 128, heads * 128

    def step(x: Any, at: Any, *weights_and_caches: Any) -> Any:
        caches = []
        for layer in range(layers):
            wq, wk, wv, wo, up, down, keys, values = weights_and_caches[8 * layer : 8 * layer + 8]
            q, k, v = ((x @ w).reshape(batch, heads, head_dim) for w in (wq, wk, wv))
            keys = jax.lax.dynamic_update_slice_in_dim(keys, k[:, None], at, 1)
            values = jax.lax.dynamic_update_slice_in_dim(values, v[:, None], at, 1)
            scores = jnp.einsum("bhd,bshd->bhs", q, keys) / head_dim**0.5
            scores = jnp.where(jnp.arange(length) <= at, scores, -1e9)
            out = jnp.einsum("bhs,bshd->bhd", jax.nn.softmax(scores, -1), values)
            x = x + out.reshape(batch, width) @ wo
            x = x + jax.nn.gelu(x @ up) @ down
            caches += [keys, values]
        return x, caches

    square = (width, width, "bfloat16")
    cache = (batch, length, heads, head_dim, "bfloat16")
    up, down = (width, 4 * width, "bfloat16"), (4 * width, width, "bfloat16")
    each = (square, square, square, square, up, down, cache, cache)
    donated = tuple(2 + 8 * layer + k for layer in range(layers) for k in (6, 7))
    program = _program(mesh, step, (batch, width, "bfloat16"), ("int32",), *each * layers)
    return Program("step", jax.jit(step, donate_argnums=donated), program.args, mesh=mesh)


def experts(
    mesh: Any, tokens: int = 16384, width: int = 2048, hidden: int = 4096, count: int = 8
) -> Program:
    """A mixture-of-experts layer by capacity, forward and backward."""
    capacity = 2 * tokens // count

    def step(x: Any, router: Any, up: Any, down: Any) -> Any:
        def loss(router: Any, up: Any, down: Any) -> Any:
            chosen = jnp.argmax(x @ router, -1)
            place = jnp.cumsum(jax.nn.one_hot(chosen, count, dtype=jnp.int32), 0)
            place = jnp.take_along_axis(place, chosen[:, None], 1)[:, 0] - 1
            room = jnp.zeros((count, capacity, width), x.dtype)
            room = room.at[chosen, place].set(x, mode="drop")
            out = jnp.einsum("ecd,edf->ecf", room, up)
            out = jnp.einsum("ecf,efd->ecd", jax.nn.silu(out), down)
            back = out.at[chosen, place].get(mode="fill", fill_value=0)
            weight = jax.nn.softmax(x @ router, -1).max(-1, keepdims=True)
            return ((back * weight).astype(jnp.float32) ** 2).mean()

        return jax.grad(loss, (0, 1, 2))(router, up, down)

    return _program(
        mesh,
        step,
        (tokens, width, "bfloat16"),
        (width, count, "bfloat16"),
        (count, width, hidden, "bfloat16"),
        (count, hidden, width, "bfloat16"),
    )
