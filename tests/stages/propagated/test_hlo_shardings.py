"""Ops with several results under GSPMD are where XLA's own dump has them."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.facts.program import Program
from sdyscope.inspection import Inspection
from tests.dumped import before_partitioning
from tests.sharded_programs import mesh

pytestmark = pytest.mark.compiles

#: Kind in the lowered module -> opcode in the dump.
OPCODES = {
    "stablehlo.reduce": "reduce",
    "stablehlo.sort": "sort",
    "stablehlo.case": "conditional",
    "stablehlo.while": "while",
}


def argmax(x):
    return jnp.argmax(x, -1)


def argmax_over_what_is_split(x):
    return jnp.argmax(x, 0)


def sort(x):
    return jax.lax.sort((x, x * 2, x + 1), dimension=1)


def cond(x):
    return jax.lax.cond(x[0, 0] > 0, lambda x: (x, x.T), lambda x: (x * 2, x.T + 1), x)


def loop(x):
    return jax.lax.fori_loop(0, 3, lambda _, c: (jnp.sin(c[0]), c[1] @ c[0]), (x, x.T))


def types(op):
    names = {"i1": "pred", "i8": "s8", "i32": "s32"}
    return [f"{names.get(t.dtype, t.dtype)}[{','.join(map(str, t.shape))}]" for t in op.types]


@pytest.mark.parametrize(
    "function", [argmax, argmax_over_what_is_split, sort, cond, loop], ids=lambda f: f.__name__
)
def test_every_result_is_where_the_dump_has_it(function):
    def step(x):
        with jax.named_scope("v0"):
            return function(x)

    on = NamedSharding(mesh(), P("a", None))
    x = jax.ShapeDtypeStruct((16, 16), jnp.float32, sharding=on)
    program = Program("step", jax.jit(step), (x,), mesh=mesh())
    inspection = Inspection(program, ("gspmd",))
    graph, propagated = inspection.graph("gspmd"), inspection.propagated("gspmd")
    dumped = before_partitioning(program, "gspmd").values
    compared = 0
    for op in graph.operations():
        opcode = OPCODES.get(op.kind)
        if opcode is None or len(op.types) < 2:
            continue
        for result, type_ in enumerate(types(op)):
            found = dumped.get(("v0", opcode, result, type_))
            if found is None:
                continue  # a loop's results are in another order
            value = propagated.values[op.id, result]
            place = value.placement
            blocks = [list(place.block(device)) for device in range(8)] if place else None
            assert [{str(blocks)}] == [set(layout) for layout in found], (op.kind, result)
            compared += 1
    assert compared >= 2
