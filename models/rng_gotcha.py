"""Random numbers for a matrix in pieces: a generator that can't be split, and what to do about it.

The program is the first step of any training: a matrix [rows, columns] of Gaussians from one key,
wanted with its rows on `model`. Nothing has to be sent for that, if each device can draw the
numbers of its own rows alone. `generator` says how numbers are drawn, `split` whether every row
has a key of its own.

    key       [2]               (None)
    matrix    [rows, columns]   ('model', None)

**What can't be split.** A counter-based generator like Threefry is a function of a key and a
counter, so any part of its numbers can be had alone. The form that JAX had until 0.5
(`threefry-original`) runs the counters 0, 1, 2, ... as two halves, each number of one half together
with one of the other, and then writes the halves one behind the other. A device whose rows are
in the first half has drawn numbers of the second as well. XLA keeps the halves whole and
gathers them: an all-gather of every random bit of the matrix, and a scratch memory as large as
the matrix itself on each device. A model can fit and its initialization not. `rbg` is one op of
XLA's, which its partitioner never splits: nothing is sent, since every device draws all of the
matrix and cuts out its rows.

**The remedy.** With `split` there is a key for each row, and `vmap` draws a row with each: rows are
on `model`, so the keys are, and each device draws its own. The numbers are others than those of one
key for all. It mends Threefry. It does not mend `rbg`: under `vmap` that is still one op.

**The better remedy.** Since 0.5 JAX's Threefry (`threefry` here; `jax_threefry_partitionable`) has
a counter of 64 bits for each element, which is the element's position. Then nothing is paired with
anything, one key is enough, and the numbers do not depend on the sharding.

Here `threefry-original` is made by hand from the same hash: JAX's own flag is read when a program
is lowered, and is the whole process's. Any mesh will do; without an axis `model` all is whole.
"""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import define_prng_impl, threefry_2x32, threefry_prng_impl

from sdyscope.facts.program import Program
from sdyscope.models._train_step import AnyMesh, one_of, place, positive

MESH = {"model": 8}
GENERATORS = ("threefry", "threefry-original", "rbg")


@dataclass(frozen=True)
class Settings:
    """How numbers are drawn, and how many: 16 MiB of them by default."""

    generator: str = field(
        default="threefry-original", metadata={"help": "the generator", "choices": GENERATORS}
    )
    split: bool = field(default=False, metadata={"help": "draw each row with its own key"})
    rows: int = field(default=2048, metadata={"help": "rows of the matrix"})
    columns: int = field(default=2048, metadata={"help": "columns of the matrix"})


def program(mesh: AnyMesh, settings: Settings) -> Program:
    """The matrix, drawn on `mesh`.

    Raises:
        TargetError: a size is not positive, or there is no such generator.
    """
    positive(settings, "rows", "columns")
    one_of("generator", settings.generator, GENERATORS)
    generator = IMPLEMENTATIONS[settings.generator]
    words = 4 if settings.generator == "rbg" else 2

    def make_matrix(key_data: jax.Array) -> jax.Array:
        key = jax.random.wrap_key_data(key_data, impl=generator)
        if settings.split:
            with jax.named_scope("keys"):
                keys = jax.random.split(key, settings.rows)
            return jax.vmap(lambda key: jax.random.normal(key, (settings.columns,)))(keys)
        return jax.random.normal(key, (settings.rows, settings.columns))

    return Program(
        name="rng-gotcha",
        fun=jax.jit(make_matrix, out_shardings=place(mesh, "model", None)),
        args=(jax.ShapeDtypeStruct((words,), jnp.uint32, sharding=place(mesh, None)),),
        mesh=mesh,
        inputs=lambda: ((np.arange(1, words + 1, dtype=np.uint32),), {}),
        settings=dataclasses.asdict(settings),
    )


def in_two_halves(key: jax.Array, bit_width: int, shape: tuple[int, ...]) -> jax.Array:
    """Random words as JAX drew them until 0.5: `threefry_2x32` pairs the halves of its counters."""
    counters = jax.lax.iota(jnp.uint32, math.prod(shape))
    return threefry_2x32(key, counters).reshape(shape).astype(f"uint{bit_width}")


IMPLEMENTATIONS: dict[str, Any] = {
    "threefry": "threefry2x32",
    "threefry-original": define_prng_impl(
        key_shape=threefry_prng_impl.key_shape,
        seed=threefry_prng_impl.seed,
        split=threefry_prng_impl.split,
        fold_in=threefry_prng_impl.fold_in,
        random_bits=in_two_halves,
        name="threefry-original",
        tag="original",
    ),
    "rbg": "rbg",
}
