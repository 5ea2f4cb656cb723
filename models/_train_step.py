"""What every train step here shares: declared parameters, their placement, the optimizer.

A model declares its parameters once, as a pytree of `Parameter`: a shape, the mesh axes of
each dimension, and how to initialize it. The three things a program needs follow from
that one declaration:

* `abstract` turns it into `jax.ShapeDtypeStruct`s with shardings, enough to lower the step
  for any number of devices without having one;
* `optimizer_state` gives the optimizer's moments the placement of the parameter that they
  belong to (this is what ZeRO stage 1 is, once the parameters themselves are sharded);
* `initial` makes host values of the same structure, to run the step for real.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from sdyscope.errors import TargetError
from sdyscope.facts.program import Program

AnyMesh: TypeAlias = Mesh | AbstractMesh
Loss: TypeAlias = Callable[[Any, Any], jax.Array]
"""`(params, batch) -> scalar`."""

DTYPES = ("float32", "bfloat16")
OPTIMIZERS = ("adamw", "sgd")
LEARNING_RATE = 1e-3


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One trainable array, as declared.

    Attributes:
        shape: global shape.
        axes: for each dimension the mesh axis that shards it, or None.
        fan_in: number of terms in the sums that this array takes part in: its initial
            values have variance 1/fan_in. None for a scale, which starts at one.
    """

    shape: tuple[int, ...]
    axes: tuple[str | None, ...]
    fan_in: int | None

    def stacked(self, layers: int) -> "Parameter":
        """`layers` of these along a new leading dimension, which is never sharded."""
        return Parameter((layers, *self.shape), (None, *self.axes), self.fan_in)


def place(mesh: AnyMesh, *axes: str | tuple[str, ...] | None) -> NamedSharding:
    """The sharding that gives dimension i the mesh axes `axes[i]`.

    Axes that the mesh does not have are left out, so one model runs on any mesh: without
    a `model` axis there simply is no tensor parallelism.
    """

    def present(entry: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
        names = (entry,) if isinstance(entry, str) else entry or ()
        kept = tuple(name for name in names if name in mesh.axis_names)
        return kept[0] if len(kept) == 1 else kept or None

    return NamedSharding(mesh, PartitionSpec(*map(present, axes)))


def abstract(mesh: AnyMesh, parameters: Any, dtype: str) -> Any:
    """The declared parameters as `jax.ShapeDtypeStruct`s on `mesh`."""
    return jax.tree.map(
        lambda p: jax.ShapeDtypeStruct(p.shape, jnp.dtype(dtype), sharding=place(mesh, *p.axes)),
        parameters,
    )


def initial(rng: np.random.Generator, parameters: Any, dtype: str) -> Any:
    """Host values for the declared parameters: ones for scales, else scaled Gaussians."""

    def value(parameter: Parameter) -> np.ndarray[Any, Any]:
        if parameter.fan_in is None:
            return np.ones(parameter.shape, jnp.dtype(dtype))
        scale = 1 / math.sqrt(parameter.fan_in)
        sample = rng.standard_normal(parameter.shape, np.float32) * np.float32(scale)
        return sample.astype(jnp.dtype(dtype))

    return jax.tree.map(value, parameters)


def optimizer_state(mesh: AnyMesh, optimizer: optax.GradientTransformation, params: Any) -> Any:
    """The optimizer's abstract state, each moment placed like the parameter it is of.

    What belongs to no parameter (Adam's step count) is replicated.
    """
    state = jax.eval_shape(optimizer.init, params)
    return optax.tree_utils.tree_map_params(
        optimizer,
        lambda leaf, param: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=param.sharding),
        state,
        params,
        transform_non_params=lambda leaf: jax.ShapeDtypeStruct(
            leaf.shape, leaf.dtype, sharding=place(mesh)
        ),
    )


def train_program(
    name: str,
    mesh: AnyMesh,
    settings: Any,
    parameters: Any,
    param_dtype: str,
    batch: Any,
    host_batch: Callable[[np.random.Generator], Any],
    loss: Loss | None = None,
    value_and_grad: Callable[[Any, Any], tuple[jax.Array, Any]] | None = None,
) -> Program:
    """One jitted train step: `step(params, opt_state, batch) -> (params, opt_state, loss)`.

    Args:
        name: the program's name.
        mesh: where everything lives. Its axes must be of type Auto: the point of these
            programs is to see what a partitioner makes of them.
        settings: the model's Settings; `optimizer` and `donate` are read here.
        parameters: pytree of `Parameter`.
        param_dtype: the dtype of parameters and optimizer state.
        batch: pytree of `jax.ShapeDtypeStruct` with shardings.
        host_batch: makes the values of a batch.
        loss: `(params, batch) -> scalar`, which is differentiated.
        value_and_grad: in its place, what computes the loss and the gradients.

    The arguments carry their shardings, so `jit` needs no `in_shardings`; the results get
    theirs by `out_shardings`, or else the partitioner would be free to return the
    updated parameters somewhere other than where the next step expects them.
    """
    optimizer = make_optimizer(settings.optimizer)
    params = abstract(mesh, parameters, param_dtype)
    opt_state = optimizer_state(mesh, optimizer, params)

    if value_and_grad is None:
        assert loss is not None
        value_and_grad = jax.value_and_grad(loss)
    differentiated = value_and_grad

    def step(params: Any, opt_state: Any, batch: Any) -> tuple[Any, Any, jax.Array]:
        value, gradients = differentiated(params, batch)
        with jax.named_scope("optimizer"):
            updates, opt_state = optimizer.update(gradients, opt_state, params)
            params = optax.apply_updates(params, updates)
        return params, opt_state, value

    def inputs() -> tuple[tuple[Any, ...], dict[str, Any]]:
        rng = np.random.default_rng(0)
        values = initial(rng, parameters, param_dtype)
        return (values, jax.tree.map(np.asarray, optimizer.init(values)), host_batch(rng)), {}

    state_shardings = jax.tree.map(lambda leaf: leaf.sharding, (params, opt_state))
    jitted = jax.jit(
        step,
        out_shardings=(*state_shardings, place(mesh)),
        donate_argnums=(0, 1) if settings.donate else (),
    )
    return Program(
        name=name,
        fun=jitted,
        args=(params, opt_state, batch),
        mesh=mesh,
        inputs=inputs,
        settings=dataclasses.asdict(settings),
    )


def make_optimizer(name: str) -> optax.GradientTransformation:
    """Optax's optimizer of that name: `adamw` keeps two moments a parameter, `sgd` none."""
    one_of("optimizer", name, OPTIMIZERS)
    return optax.adamw(LEARNING_RATE) if name == "adamw" else optax.sgd(LEARNING_RATE)


def one_of(setting: str, value: str, choices: tuple[str, ...]) -> None:
    """Raises TargetError unless `value` is among `choices`."""
    if value not in choices:
        raise TargetError(f"{setting}={value!r} is not one of the choices: {', '.join(choices)}.")


def positive(settings: Any, *names: str) -> None:
    """Raises TargetError unless each of these settings is at least one."""
    for name in names:
        if getattr(settings, name) < 1:
            raise TargetError(f"{name}={getattr(settings, name)} must be at least 1.")
