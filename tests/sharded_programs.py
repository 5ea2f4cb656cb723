"""Generated programs on a mesh, each op in a scope; and pairs that differ in one sharding."""

from contextlib import nullcontext
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.facts.program import Program

#: Eight devices; four along `a`, so that a reshape can cut it into sub-axes.
SIZES = {"a": 4, "b": 2}

N = 16

#: Specs of an N x N tensor; `?` is left to the compiler.
SPECS = [
    (None, None),
    ("a", None),
    (None, "a"),
    ("b", None),
    (None, "b"),
    ("a", "b"),
    ("b", "a"),
    (("a", "b"), None),
    (None, ("b", "a")),
]

#: What an op does, and how many of the values before it takes.
OPS = {
    "tanh": 1,
    "add": 2,
    "dot": 2,
    "transpose": 1,
    "reshape": 1,
    "concatenate": 2,
    "constrain": 1,
    "scan": 2,
    "call_twice": 2,
    "shard_map": 1,
    "sort": 2,
    "reduce_several": 2,
    "cond": 2,
}


def mesh():
    """A mesh whose axes the compiler decides over."""
    devices = np.array(jax.devices()[:8]).reshape(tuple(SIZES.values()))
    return Mesh(devices, tuple(SIZES))


@dataclass(frozen=True)
class Step:
    """An op on values before it; `spec` is what a constraint or shard_map asks for."""

    op: str
    operands: tuple[int, ...]
    spec: tuple


@dataclass(frozen=True)
class Recipe:
    """A program: its arguments' specs, its ops, and which values it returns with which specs.

    A result's spec is None where it is left to the compiler. Without scopes, the ops of a kind have
    one name.
    """

    arguments: tuple
    steps: tuple[Step, ...]
    returned: tuple[int, ...]
    out_shardings: tuple
    scoped: bool = True

    def program(self, name="step"):
        """The program on the mesh."""
        on_mesh = mesh()
        on = lambda spec: NamedSharding(on_mesh, P(*spec))  # noqa: E731

        def step(*values):
            values = list(values)
            for number, one in enumerate(self.steps):
                with jax.named_scope(f"v{number}") if self.scoped else nullcontext():
                    values.append(apply(one, [values[i] for i in one.operands], on_mesh))
            return [values[i] for i in self.returned]

        step.__name__ = name
        out = [None if spec is None else on(spec) for spec in self.out_shardings]
        args = [
            jax.ShapeDtypeStruct((N, N), jnp.float32, sharding=on(spec)) for spec in self.arguments
        ]
        return Program(name, jax.jit(step, out_shardings=out), tuple(args), mesh=on_mesh)


def apply(step, values, mesh):
    """The value of one step, N x N."""
    match step.op, values:
        case "tanh", [x]:
            return jnp.tanh(x)
        case "add", [x, y]:
            return x + y
        case "dot", [x, y]:
            return x @ y
        case "transpose", [x]:
            return x.T
        case "reshape", [x]:
            # Two blocks of what four devices cut: the axis is cut, too.
            return jnp.tanh(x.reshape(2, N // 2, N)).sum(0).repeat(2, 0)
        case "concatenate", [x, y]:
            return jnp.concatenate([x, y], 1)[:, N // 2 : N // 2 + N]
        case "constrain", [x]:
            return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(*step.spec)))
        case "scan", [x, y]:
            return jax.lax.scan(lambda c, _: (jnp.tanh(c @ y), None), x, None, length=2)[0]
        case "call_twice", [x, y]:

            @jax.jit
            def inner(z):
                return jnp.sin(z) + z

            return inner(x) * inner(y)
        case "shard_map", [x]:
            spec = P(*step.spec)
            return jax.shard_map(jnp.exp, mesh=mesh, in_specs=spec, out_specs=spec)(x)
        case "sort", [x, y]:
            one, two = jax.lax.sort((x, y), dimension=0)
            return one - two
        case "reduce_several", [x, y]:
            zero = jnp.float32(0)
            both = lambda a, b: (a[0] + b[0], jnp.maximum(a[1], b[1]))  # noqa: E731
            one, two = jax.lax.reduce((x, y), (zero, zero), both, (1,))
            # Not of 1 x N and N x 1, for which HLO has a reshape more than StableHLO.
            return sum(
                jax.lax.broadcast_in_dim(z, (N, N), (dim,)) for dim, z in enumerate((one, two))
            )
        case "cond", [x, y]:
            return jax.lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, y)
    raise AssertionError(step)


specs = st.sampled_from(SPECS)


@st.composite
def recipes(draw):
    """Programs of up to four ops on two arguments, with one to three results."""
    arguments = (draw(specs), draw(specs))
    steps = []
    for number in range(draw(st.integers(1, 4))):
        op = draw(st.sampled_from(sorted(OPS)))
        operands = tuple(draw(st.integers(0, 1 + number)) for _ in range(OPS[op]))
        steps.append(Step(op, operands, draw(specs)))
    last = len(steps) + 1
    returned = (last, *draw(st.lists(st.integers(2, last), max_size=2)))
    out_shardings = tuple(draw(st.none() | specs) for _ in returned)
    return Recipe(arguments, tuple(steps), returned, out_shardings)


@st.composite
def pairs(draw):
    """A program, and the same with one sharding written otherwise, or with none."""
    recipe = draw(recipes())
    return recipe, _varied(draw, recipe)


@st.composite
def unscoped_pairs(draw):
    """The same without scopes, and often two constraints exchange their shardings."""
    recipe = _with_two_constraints(draw)
    *_, first, second, total = recipe.steps
    constrained = [first, second]
    if draw(st.booleans()):
        return recipe, _varied(draw, recipe)
    exchanged = [
        replace(step, spec=other.spec)
        for step, other in zip(constrained, reversed(constrained), strict=True)
    ]
    return recipe, replace(recipe, steps=(*recipe.steps[:-3], *exchanged, total))


def _with_two_constraints(draw):
    """Without scopes, with a constraint of an argument and of the last value at its end."""
    recipe = replace(draw(recipes()), scoped=False)
    last = len(recipe.steps) + 1
    constrained = [Step("constrain", (value,), draw(specs)) for value in (0, last)]
    total = Step("add", (last + 1, last + 2), (None, None))
    return replace(
        recipe,
        steps=(*recipe.steps, *constrained, total),
        returned=(*recipe.returned, last + 3),
        out_shardings=(*recipe.out_shardings, None),
    )


@st.composite
def exchanged_pairs(draw):
    """Two constraints in the other order, their shardings with them or not; whether that is all."""
    recipe = _with_two_constraints(draw)
    *before, first, second, total = recipe.steps
    turned = [second, first]
    if draw(st.booleans()):
        specs_here = first.spec, second.spec
        turned = [replace(x, spec=s) for x, s in zip(turned, specs_here, strict=True)]
    total = replace(total, operands=total.operands[::-1])
    other = replace(recipe, steps=(*before, *turned, total))
    is_same = {(x.operands, x.spec) for x in turned} == {
        (x.operands, x.spec) for x in (first, second)
    }
    return recipe, other, is_same


@st.composite
def families(draw, size):
    """Several programs: one, and the same with one sharding written otherwise, or with none."""
    recipe = draw(recipes())
    return recipe, *(_varied(draw, recipe) for _ in range(size - 1))


def _varied(draw, recipe):
    place = draw(
        st.sampled_from(
            [("arguments", number) for number in range(2)]
            + [("out_shardings", number) for number in range(len(recipe.returned))]
            + [
                ("steps", number)
                for number, step in enumerate(recipe.steps)
                if step.op in ("constrain", "shard_map")
            ]
        )
    )
    spec = draw(specs)
    field, number = place
    listed = list(getattr(recipe, field))
    listed[number] = replace(listed[number], spec=spec) if field == "steps" else spec
    return replace(recipe, **{field: tuple(listed)})
