"""Small programs whose collectives are asked about, and how their origins are asked for."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.analysis.collectives.totals import Collective, Collectives, Part
from sdyscope.facts.origins import CollectiveOrigin
from sdyscope.facts.program import Program
from sdyscope.inspection import Inspection
from sdyscope.stages import compat
from sdyscope.values.mesh import Mesh
from sdyscope.words.origins import spec_text

MESH = Mesh.of({"data": 4, "model": 2})
CUBE = Mesh.of({"a": 2, "b": 2, "c": 2})
PARTITIONERS = ("shardy", "gspmd")


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


def attention(p: Any, x: Any) -> Any:
    h = x * p["g"]
    q, k = ((h @ p[name]).reshape(16, 4, -1) for name in "qk")
    scores = jax.nn.softmax(jnp.einsum("shd,thd->hst", q, k))
    return x + jnp.einsum("hst,thd->shd", scores, k).reshape(16, 16) @ p["o"]
