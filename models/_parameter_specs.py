"""Layers that declare their parameters, and the tree that the declarations make.

A layer says of each of its own parameters what it is: a `ParameterSpec`, in which the sharding is
one field beside the shape and the initializer, and names mesh axes, not sizes. It knows nothing of
the mesh, of its parents or of the optimizer. `collect` walks from the outermost layer to the
innermost ones and returns nested dictionaries that mirror the model. Everything else that a trainer
needs is a `jax.tree.map` over that tree: partition specs, abstract arrays, initial values, which
weights decay.
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from sdyscope.models._train_step import AnyMesh, place

MeshAxes: TypeAlias = tuple[str | tuple[str, ...] | None, ...]


@dataclass(frozen=True)
class FactorizationSpec:
    """Which dimensions of a parameter are the rows and the columns of a matrix.

    Adafactor keeps a second moment of each instead of one of the whole. All other dimensions count
    matrices.

    Attributes:
        axes: for each dimension `row`, `col` or None; each of the two once.
    """

    axes: tuple[Literal["row", "col"] | None, ...]

    def __post_init__(self) -> None:
        if self.axes.count("row") != 1 or self.axes.count("col") != 1:
            raise ValueError(f"a factorization has one row and one col, not {self.axes}")

    @property
    def dimensions(self) -> tuple[int, int]:
        """The dimension of the rows and that of the columns."""
        return self.axes.index("row"), self.axes.index("col")


@dataclass(frozen=True)
class ParameterSpec:
    """What a layer says of one of its parameters.

    Attributes:
        shape: its global shape.
        dtype: its dtype.
        mesh_axes: for each dimension the mesh axes that shard it, or None; None for no sharding at
            all.
        initializer: `normal` has variance 1/fan_in.
        fan_in_axis: the dimension that products with it are summed over, counted from the last.
        weight_decay_scale: how strongly it decays, times the learner's own weight decay.
        factorization: what Adafactor takes for rows and columns; None keeps its second moment
            whole.

    Raises:
        ValueError: the factorization has another number of dimensions than the shape.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    mesh_axes: MeshAxes | None = None
    initializer: Literal["normal", "zeros", "ones"] = "normal"
    fan_in_axis: int = -2
    weight_decay_scale: float = 1.0
    factorization: FactorizationSpec | None = None

    def __post_init__(self) -> None:
        if self.factorization is not None and len(self.factorization.axes) != len(self.shape):
            raise ValueError(f"{self.factorization} is not of {len(self.shape)} dimensions")

    def stacked(self, count: int, mesh_axis: str | None) -> "ParameterSpec":
        """`count` of them along a new leading dimension, which is on `mesh_axis` or on none."""
        axes = (mesh_axis, *(self.mesh_axes or (None,) * len(self.shape)))
        factored = self.factorization and FactorizationSpec((None, *self.factorization.axes))
        return dataclasses.replace(
            self, shape=(count, *self.shape), mesh_axes=axes, factorization=factored
        )

    def initial(self, rng: np.random.Generator) -> np.ndarray[Any, Any]:
        """Values to begin with."""
        if self.initializer != "normal":
            return np.full(self.shape, float(self.initializer == "ones"), jnp.dtype(self.dtype))
        scale = np.float32(1 / math.sqrt(self.shape[self.fan_in_axis]))
        sample = rng.standard_normal(self.shape, np.float32) * scale
        return sample.astype(jnp.dtype(self.dtype))


class Layer:
    """A frozen dataclass; those of its fields that are layers too are its children."""

    def parameter_specs(self) -> dict[str, ParameterSpec]:
        """The parameters of this layer alone."""
        return {}

    def children(self) -> dict[str, "Layer"]:
        """The layers in it, by name. Of a tuple of layers, `layer0`, `layer1`, ..."""
        layers: dict[str, Layer] = {}
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if isinstance(value, Layer):
                layers[field.name] = value
            elif isinstance(value, tuple) and value and isinstance(value[0], Layer):
                layers |= {f"layer{index}": layer for index, layer in enumerate(value)}
        return layers

    def collect(self) -> dict[str, Any]:
        """The specs of this layer and all layers in it, nested as the layers are."""
        nested = {name: child.collect() for name, child in self.children().items()}
        return {**self.parameter_specs(), **nested}


def partition_specs(specs: Any) -> Any:
    """The tree of what JAX understands of it: a `PartitionSpec` for each parameter."""
    return jax.tree.map(
        lambda spec: jax.sharding.PartitionSpec(*(spec.mesh_axes or (None,) * len(spec.shape))),
        specs,
    )


def abstract(specs: Any, mesh: AnyMesh) -> Any:
    """The parameters as `jax.ShapeDtypeStruct`s on a mesh, without axes that it does not have."""
    return jax.tree.map(
        lambda spec, partition: jax.ShapeDtypeStruct(
            spec.shape, jnp.dtype(spec.dtype), sharding=place(mesh, *partition)
        ),
        specs,
        partition_specs(specs),
    )


def initial(specs: Any, rng: np.random.Generator) -> Any:
    """Host values for the parameters."""
    return jax.tree.map(lambda spec: spec.initial(rng), specs)
