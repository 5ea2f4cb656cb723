"""Two-matmul MLP: Megatron tensor parallelism with data parallelism.

The network is the `predict` of the Shardy guide, `sin((tanh(x) @ w1) @ w2)`, trained by
regression on the mean squared error. With `layers=n` it is applied n times, by the
matrices w1 ... w2n.

The mesh has two axes, and each dimension of each tensor is on one of them or on none:

    x            [batch, features]    ('data', None)
    w1, w3, ...  [features, hidden]   (None, 'model')     split by columns
    x @ w1       [batch, hidden]      ('data', 'model')
    w2, w4, ...  [hidden, features]   ('model', None)     split by rows
    (..) @ w2    [batch, features]    ('data', None)

*Data parallelism* is the batch on `data`: every device sees other samples and the same
weights. Nothing has to be sent until the gradients of the weights, which are sums over
the batch: one all-reduce over `data` for each matrix, and one for the loss.

*Tensor parallelism* is `hidden` on `model`. Megatron's choice is to split w1 by columns
and w2 by rows: then `x @ w1` needs nothing from other devices, its result already lies
the way `@ w2` wants it, and only the sum over `hidden` inside that second matmul crosses
devices: one all-reduce over `model` a block. The backward pass is the mirror image: the
gradient of a block's input is a sum over `hidden` too, one all-reduce over `model` a
block, except for the first, whose input nobody differentiates. (XLA combines small
all-reduces over the same axis that are ready together into one op with many operands.)

Where the constraints stand: on each of the activations above. Here they only say what
propagation finds on its own from the arguments (`constrained=false` shows that), which
makes this the program to begin with.

Uses the mesh axes `data` and `model`; either may be missing, others stay unused. `batch`
must be divisible by the size of `data`, and `hidden` by the size of `model`, or JAX
refuses the arguments.
"""

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax.lax import with_sharding_constraint

from sdyscope.facts.program import Program
from sdyscope.models._train_step import (
    DTYPES,
    OPTIMIZERS,
    AnyMesh,
    Parameter,
    one_of,
    place,
    positive,
    train_program,
)

MESH = {"data": 4, "model": 2}


@dataclass(frozen=True)
class Settings:
    """Sizes and options; the sizes are the guide's."""

    batch: int = field(default=16, metadata={"help": "samples per step"})
    features: int = field(default=128, metadata={"help": "width of the input and of each block"})
    hidden: int = field(default=256, metadata={"help": "width between the two matmuls"})
    outputs: int = field(default=10, metadata={"help": "width of the last block's result"})
    layers: int = field(default=1, metadata={"help": "blocks of two matmuls"})
    optimizer: str = field(
        default="adamw", metadata={"help": "which optimizer", "choices": OPTIMIZERS}
    )
    dtype: str = field(
        default="float32",
        metadata={"help": "dtype of parameters and activations", "choices": DTYPES},
    )
    constrained: bool = field(
        default=True, metadata={"help": "constrain the activations' shardings"}
    )
    donate: bool = field(
        default=False, metadata={"help": "donate the parameters and the optimizer state"}
    )


def program(mesh: AnyMesh, settings: Settings) -> Program:
    """One train step of the MLP on `mesh`.

    Raises:
        TargetError: a size is not positive, or an option has no such choice.
    """
    positive(settings, "batch", "features", "hidden", "outputs", "layers")
    one_of("dtype", settings.dtype, DTYPES)
    dtype = jnp.dtype(settings.dtype)
    # Without constraints the same lines run, and the partitioner is on its own.
    constrain = with_sharding_constraint if settings.constrained else lambda x, _: x

    def predict(params: Any, x: jax.Array) -> jax.Array:
        for block in range(settings.layers):
            with jax.named_scope(f"block{block}"):
                by_columns, by_rows = params[f"w{2 * block + 1}"], params[f"w{2 * block + 2}"]
                x = constrain(jnp.tanh(x), place(mesh, "data", None))
                hidden = jnp.einsum("bf,fh->bh", x, by_columns)
                hidden = constrain(hidden, place(mesh, "data", "model"))
                x = jnp.einsum("bh,hf->bf", hidden, by_rows)
                x = jnp.sin(constrain(x, place(mesh, "data", None)))
        return x

    def loss(params: Any, batch: Any) -> jax.Array:
        prediction = predict(params, batch["x"])
        with jax.named_scope("loss"):
            return jnp.mean(jnp.square(prediction - batch["y"]), dtype=jnp.float32)

    widths = {"x": settings.features, "y": settings.outputs}
    return train_program(
        name="mlp",
        mesh=mesh,
        settings=settings,
        parameters=parameters(settings),
        param_dtype=settings.dtype,
        loss=loss,
        batch={
            key: jax.ShapeDtypeStruct(
                (settings.batch, width), dtype, sharding=place(mesh, "data", None)
            )
            for key, width in widths.items()
        },
        host_batch=lambda rng: {
            # Targets within the range of sin, so that they can be learned.
            key: rng.uniform(-1, 1, (settings.batch, width)).astype(dtype)
            for key, width in widths.items()
        },
    )


def parameters(settings: Settings) -> dict[str, Parameter]:
    """w1 ... w2n, alternately split by columns and by rows."""
    matrices = {}
    for block in range(settings.layers):
        last = block == settings.layers - 1
        width = settings.outputs if last else settings.features
        matrices[f"w{2 * block + 1}"] = Parameter(
            (settings.features, settings.hidden), (None, "model"), fan_in=settings.features
        )
        matrices[f"w{2 * block + 2}"] = Parameter(
            (settings.hidden, width), ("model", None), fan_in=settings.hidden
        )
    return matrices
