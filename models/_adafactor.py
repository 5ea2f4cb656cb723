"""Adafactor's second moment: of a matrix, one vector for its rows and one for its columns.

Adam keeps a second moment as large as the parameter. Adafactor keeps its mean over the columns (a
number a row) and over the rows (a number a column), and takes their product over their common mean
for the whole: of a 4096 x 1024 weight 5,120 numbers in place of 4,194,304. Which dimensions are
rows and columns is for the parameter's spec to say, since a stack of matrices has others besides.

**Where they are.** A statistic of the rows is on the mesh axes of the rows, and what the columns
are sharded by is gone from it: every device on that axis holds the same numbers. The mean over the
columns is then a sum over their axis, for each step and each weight, of a number a row.

Source: Shazeer and Stern, Adafactor: Adaptive Learning Rates with Sublinear Memory Cost, 2018,
arXiv 1804.04235, algorithm 4, with the decay 1 - t^-0.8 of section 7.2.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from sdyscope.models._parameter_specs import ParameterSpec, abstract
from sdyscope.models._train_step import AnyMesh, place

#: Added to squared gradients, so that no statistic is zero.
EPSILON = 1e-30


class Factors(NamedTuple):
    """The second moment of a parameter whose spec has a factorization."""

    row: Any
    col: Any


class FactoredState(NamedTuple):
    """How many steps there were; of each parameter its `Factors`, or the whole second moment."""

    count: Any
    moments: Any


def moment_specs(specs: Any) -> Any:
    """What `specs` is for parameters, for their second moments."""

    def moment(spec: ParameterSpec) -> ParameterSpec | Factors:
        if spec.factorization is None:
            return dataclasses.replace(spec, initializer="zeros")
        rows, columns = spec.factorization.dimensions
        return Factors(_without(spec, columns), _without(spec, rows))

    return jax.tree.map(moment, specs)


def _without(spec: ParameterSpec, dimension: int) -> ParameterSpec:
    """The spec of a mean over a dimension: neither its size nor its mesh axes are left."""
    axes = spec.mesh_axes or (None,) * len(spec.shape)
    return ParameterSpec(
        spec.shape[:dimension] + spec.shape[dimension + 1 :],
        spec.dtype,
        axes[:dimension] + axes[dimension + 1 :],
        "zeros",
    )


def abstract_state(specs: Any, mesh: AnyMesh) -> FactoredState:
    """The state as `jax.ShapeDtypeStruct`s on a mesh."""
    count = jax.ShapeDtypeStruct((), jnp.int32, sharding=place(mesh))
    return FactoredState(count, abstract(moment_specs(specs), mesh))


def scale_by_factored_rms(specs: Any) -> optax.GradientTransformation:
    """Divides gradients by the root of their second moment, factored as the specs say."""

    def init(params: Any) -> FactoredState:
        del params
        zeros = jax.tree.map(lambda spec: jnp.zeros(spec.shape, spec.dtype), moment_specs(specs))
        return FactoredState(jnp.zeros((), jnp.int32), zeros)

    def update(gradients: Any, state: FactoredState, params: Any = None) -> Any:
        del params
        count = state.count + 1
        decay = 1 - count.astype(jnp.float32) ** -0.8

        def moment(spec: ParameterSpec, gradient: Any, old: Any) -> Any:
            squared = jnp.square(gradient) + EPSILON
            if spec.factorization is None:
                new: Any = squared
            else:
                rows, columns = spec.factorization.dimensions
                new = Factors(jnp.mean(squared, columns), jnp.mean(squared, rows))
            return jax.tree.map(lambda was, now: decay * was + (1 - decay) * now, old, new)

        def scaled(spec: ParameterSpec, gradient: Any, new: Any) -> Any:
            if spec.factorization is None:
                return gradient * jax.lax.rsqrt(new)
            rows, columns = spec.factorization.dimensions
            row = jnp.expand_dims(new.row, columns)
            col = jnp.expand_dims(new.col, rows)
            mean = jnp.mean(row, rows, keepdims=True)
            return gradient * jax.lax.rsqrt(row / mean) * jax.lax.rsqrt(col)

        moments = jax.tree.map(moment, specs, gradients, state.moments)
        return jax.tree.map(scaled, specs, gradients, moments), FactoredState(count, moments)

    return optax.GradientTransformation(init, update)
