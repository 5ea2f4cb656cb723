"""Causes are causes: without the annotations that are named, the compiler makes no such collective.

Each program is changed, partitioned and compiled again, without what its collectives name.
"""

from __future__ import annotations

from collections import Counter
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from user_programs import USER_PROGRAMS

from sdyscope.analysis.collectives.totals import Collective, Collectives
from sdyscope.errors import TargetError
from sdyscope.facts.origins import CollectiveOrigin, OriginAnnotation
from sdyscope.facts.program import Partitioner, Program
from sdyscope.inspection import Inspection
from sdyscope.stages import compat
from sdyscope.stages.propagated.what_if import find
from sdyscope.values.mesh import Mesh
from sdyscope.words.origins import origin_text

pytestmark = pytest.mark.compiles

MESH = Mesh.of({"data": 4, "model": 2})
MOE_MESH = Mesh.of({"data": 2, "expert": 2, "tensor": 2})
REMOVABLE = ("argument", "result", "constraint", "type")
PARTITIONERS: tuple[Partitioner, ...] = ("shardy", "gspmd")


def moe(mesh: Any) -> Program:
    """A block of attention and experts, whose logits have a constraint that gathers them."""
    batch, width = ("data", "expert"), 16

    def sharded(shape: tuple[int, ...], *spec: Any, dtype: Any = jnp.float32) -> Any:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))

    @partial(
        jax.shard_map,
        mesh=mesh,
        in_specs=(P(batch, None, None), P("expert", None, "tensor"), P("expert", "tensor", None)),
        out_specs=P(batch, None, None),
    )
    def experts(x, w_in, w_out):
        tokens = x.reshape(-1, 2, width // 8, 8).transpose(1, 0, 2, 3).reshape(2, -1, width)
        tokens = jax.lax.all_to_all(tokens, "expert", split_axis=0, concat_axis=1, tiled=True)
        out = jnp.einsum("ecf,efd->ecd", jnp.einsum("ecd,edf->ecf", tokens, w_in), w_out)
        out = jax.lax.psum(out, "tensor")
        out = jax.lax.all_to_all(out, "expert", split_axis=1, concat_axis=0, tiled=True)
        return out.reshape(x.shape)

    def loss(params, tokens):
        x = params["embed"][tokens]
        queries = x @ params["wq"]
        x = x + jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", queries, queries)) @ queries
        x = x + experts(x, params["w_in"], params["w_out"])
        logits = x @ params["unembed"]
        logits = jax.lax.with_sharding_constraint(logits, NamedSharding(mesh, P("data")))
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[..., None], -1)
        return -jnp.mean(picked)

    params = {
        "embed": sharded((32, width), "tensor", None),
        "wq": sharded((width, width), None, None),
        "w_in": sharded((2, width, 24), "expert", None, "tensor"),
        "w_out": sharded((2, 24, width), "expert", "tensor", None),
        "unembed": sharded((width, 32), None, None),
    }
    tokens = sharded((16, 8), batch, None, dtype=jnp.int32)
    return Program("moe", jax.jit(jax.grad(loss)), (params, tokens))


def key(collective: Collective) -> tuple[object, ...]:
    """What makes a collective the same one in another version of the program."""
    part = collective.largest
    return (
        collective.kind,
        collective.axes,
        str(part.shape),
        part.scope,
        part.primitive,
        part.source,
    )


def name_of(annotation: OriginAnnotation) -> str:
    """An annotation, as ``what_if`` takes it."""
    if annotation.kind in ("argument", "result"):
        return annotation.name
    assert annotation.source is not None
    return f"{annotation.source.file}:{annotation.source.line}"


class Counterfactuals:
    """A program's collectives, as it is and without some of its annotations."""

    def __init__(self, program: Program, partitioner: Partitioner) -> None:
        self.inspection = Inspection(program, [partitioner])
        self.partitioner = partitioner
        self.found: Collectives = self.inspection.collectives(partitioner)
        self.there = self.counted(self.found)
        self._without: dict[frozenset[str], Counter[tuple[object, ...]]] = {}

    @staticmethod
    def counted(collectives: Collectives) -> Counter[tuple[object, ...]]:
        return sum(
            (
                Counter({key(collective): collective.count})
                for collective in collectives.collectives
            ),
            Counter(),
        )

    def origins(self) -> list[tuple[Collective, CollectiveOrigin]]:
        """The collectives whose causes can all be removed."""
        made = []
        for collective in self.found.collectives:
            origin = collective.largest.origin
            assert origin is not None
            named = (*origin.annotations, *origin.otherwise)
            if named and all(map(self.is_removable, named)):
                made.append((collective, origin))
        return made

    def is_removable(self, annotation: OriginAnnotation) -> bool:
        """Whether it is the author's: what JAX writes on its own account is in no table."""
        if annotation.kind not in REMOVABLE:
            return False
        try:
            find(self.inspection.tensors, name_of(annotation))
        except TargetError:
            return False
        return True

    def goes(self, collective: Collective, names: frozenset[str]) -> bool:
        """Whether there are fewer such collectives without these annotations."""
        if names not in self._without:
            changed = self.inspection.what_if(dict.fromkeys(names))
            collectives = changed.collectives(self.partitioner, origins=False)
            self._without[names] = self.counted(collectives)
        return self._without[names][key(collective)] < self.there[key(collective)]


def skip_where_causes_are_jax_s_own(name: str) -> None:
    if name == "gradients" and compat.version_tuple() < (0, 8):
        pytest.skip("this JAX constrains what it rematerializes itself, which nobody can remove")


@cache
def of(name: str, partitioner: Partitioner) -> Counterfactuals:
    if name == "moe":
        return Counterfactuals(moe(compat.abstract_mesh(MOE_MESH)), partitioner)
    return Counterfactuals(USER_PROGRAMS[name](compat.abstract_mesh(MESH)), partitioner)


@pytest.mark.parametrize(
    ("name", "partitioner"),
    [
        pytest.param("moe", "shardy", marks=pytest.mark.thorough),
        ("moe", "gspmd"),
        *(
            (name, partitioner)
            for name in ("gradients", "scanned", "not_divisible", "largest")
            for partitioner in PARTITIONERS
        ),
    ],
)
def test_without_its_causes_a_collective_goes(name: str, partitioner: Partitioner) -> None:
    program = of(name, partitioner)
    skip_where_causes_are_jax_s_own(name)
    origins = program.origins()
    assert origins
    for one, origin in origins:
        names = frozenset(map(name_of, (*origin.annotations, *origin.otherwise)))
        assert program.goes(one, names), origin_text(origin)


@pytest.mark.parametrize("name", ["two_layers", "gradients"])
def test_who_else_says_an_axis_is_named(name: str) -> None:
    program = of(name, "shardy")
    skip_where_causes_are_jax_s_own(name)
    others = 0
    for one, origin in program.origins():
        alone = frozenset(map(name_of, origin.annotations))
        if not program.goes(one, alone):
            assert origin.otherwise, origin_text(origin)
            assert " (otherwise by " in origin_text(origin)
            others += 1
    assert others


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_what_a_constraint_gathers_names_it(partitioner: Partitioner) -> None:
    program = of("moe", partitioner)
    (line,) = {
        name_of(each)
        for collective in program.found.collectives
        for each in collective.largest.origin.annotations
        if each.kind == "constraint"
    }
    gathers = [
        collective for collective in program.found.collectives if collective.kind == "all-gather"
    ]
    gone = [gather for gather in gathers if program.goes(gather, frozenset([line]))]
    assert len(gone) >= 3
    for one in gone:
        origin = one.largest.origin
        named = {name_of(each) for each in origin.annotations if each.kind == "constraint"}
        assert named == {line}, origin_text(origin)
        # What is said to require a sharding says it.
        says = {str(each.spec) for each in origin.annotations if each.role == "needed"}
        if says and ", given " not in origin_text(origin):
            assert says == {str(origin.after)}, origin_text(origin)
