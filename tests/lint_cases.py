"""For each rule of lint a program that it finds something in, and near misses that it does not.

A case is a function that gives an ``Inspection``; ``compiled`` and ``on`` say how it is looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import with_sharding_constraint as constrain
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P

from sdyscope.inspection import Inspection, inspect
from sdyscope.lint import LogicalAxes
from sdyscope.mesh_config import MappedMesh
from sdyscope.stages.lowered.read import read_bytes
from tests.programs import AUTO, EXPLICIT, SKINNY, array, on

CUBE = AbstractMesh((2, 2, 2), ("x", "y", "z"), axis_types=(AxisType.Auto,) * 3)
SHARDY, BOTH = ("shardy",), ("shardy", "gspmd")


@dataclass(frozen=True)
class Case:
    """A program, and what a rule is to find in it.

    Attributes:
        rule: the rule.
        make: gives the program.
        tensor: a part of the name of the tensor that is found; None for a near miss.
        compiled: whether to compile it.
        hardware: what for.
        severity: of the finding; None for the rule's own.
        since: the first JAX that lowers it.
        logical: the logical axes of its tensors.
    """

    rule: str
    make: Callable[[], Inspection]
    tensor: str | None
    compiled: bool = False
    hardware: str | None = None
    severity: str | None = None
    since: tuple[int, int] = (0, 7)
    logical: LogicalAxes | None = None

    @property
    def name(self) -> str:
        return f"{self.rule}-{self.make.__name__}"


CASES: list[Case] = []


def finds(rule: str, tensor: str = "", **options: Any) -> Callable[[Any], Any]:
    def register(make: Any) -> Any:
        CASES.append(Case(rule, make, tensor, **options))
        return make

    return register


def spares(*rules: str, **options: Any) -> Callable[[Any], Any]:
    def register(make: Any) -> Any:
        CASES.extend(Case(rule, make, None, **options) for rule in rules)
        return make

    return register


def program(fun: Any, *arguments: Any, partitioners: Any = SHARDY, **options: Any) -> Inspection:
    return inspect(jax.jit(fun, **options), *arguments, partitioners=partitioners)


def rewritten(inspection: Inspection, partitioner: Any, *changes: tuple[str, str]) -> Inspection:
    """The program with another text in the module under one partitioner, as a wrong JAX's."""
    lowered = inspection.lowered[partitioner]
    text = lowered.text()
    for old, new in changes:
        assert old in text, text
        text = text.replace(old, new)
    changed = replace(
        read_bytes(text.encode()),
        partitioner=partitioner,
        kept_arguments=lowered.kept_arguments,
        constants=lowered.constants,
        num_devices=lowered.num_devices,
    )
    return inspection._with_modules({**inspection.lowered, partitioner: changed}, {})


# --- requests that did not arrive -----------------------------------------------------------------


def layer(x: Any, w: Any) -> Any:
    return constrain(x @ w, on("data", "model")) * 2


def plain(partitioners: Any = SHARDY) -> Inspection:
    return program(
        layer, array((16, 32), "data"), array((32, 32), None, "model"), partitioners=partitioners
    )


spares(
    "silent-fallback",
    "mixed-attributes",
    "not-lowerable",
    "not-understood",
    "not-aligned",
    "lowered-differs",
    "sharding-dropped",
    "open-dims-differ",
    "type-differs",
    "no-placement",
    "not-divisible",
    "not-requested",
    "argument-dropped",
    "unused-mesh-axis",
    "size-one-axis",
    "conflicting-constraints",
    "resharded-twice",
    "unreduced-never-reduced",
    "batch-not-sharded",
)(plain)


@spares("partitioners-differ", "not-lowerable")
def plain_under_both():
    return plain(BOTH)


@finds("silent-fallback", severity="error")
def written_for_gspmd():
    both = plain(BOTH)
    changed = replace(both.lowered["gspmd"], partitioner="shardy")
    return both._with_modules({"shardy": changed}, {})


@finds("mixed-attributes", severity="error")
def annotated_for_both():
    return rewritten(
        plain(),
        "shardy",
        ("stablehlo.dot_general %arg0", "stablehlo.dot_general %arg0"),
        (
            "precision = [DEFAULT, DEFAULT] :",
            'precision = [DEFAULT, DEFAULT] {mhlo.sharding = "{replicated}"} :',
        ),
    )


@finds("not-lowerable", severity="note", since=(0, 10, 2))
def unreduced_under_both():
    def fun(x, w):
        return jnp.einsum(
            "bd,df->bf",
            x,
            w,
            out_sharding=on(None, None, mesh=EXPLICIT).update(
                spec=P(None, None, unreduced={"data"})
            ),
        )

    return program(
        fun,
        array((16, 32), None, "data", mesh=EXPLICIT),
        array((32, 16), "data", mesh=EXPLICIT),
        partitioners=BOTH,
    )


@finds("not-understood")
def strange_rule():
    rule = "#sdy.op_sharding_rule<([i, j])~>([i, j])>"
    text = plain().lowered["shardy"].text()
    line = next(line for line in text.splitlines() if "sdy.sharding_constraint" in line)
    name = line.partition("=")[0].strip()
    odd = f"%odd = future.op {name} {{sdy.sharding_rule = {rule}}} : tensor<16x32xf32>"
    return rewritten(plain(), "shardy", (line, f"{line}\n{odd}"))


@finds("not-aligned", severity="error")
def lost_constraint():
    # A function that is called instead is what a constraint of the program became.
    text = plain().lowered["shardy"].text()
    line = next(line for line in text.splitlines() if "sdy.sharding_constraint" in line)
    return rewritten(
        plain(),
        "shardy",
        (
            line,
            line.replace("sdy.sharding_constraint", "stablehlo.negate").split(" <@mesh")[0]
            + " : tensor<16x32xf32>",
        ),
    )


@finds("lowered-differs", "jit(layer)", severity="error")
def wrong_constraint():
    return rewritten(
        plain(), "shardy", ('<@mesh, [{"data"}, {"model"}]>', '<@mesh, [{"model"}, {"data"}]>')
    )


@finds("sharding-dropped", "x", severity="error")
def lost_sharding():
    return rewritten(
        plain(), "shardy", ('{sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>}', "")
    )


@finds("open-dims-differ", "jit(layer)", severity="error")
def opened_dimension():
    return rewritten(
        plain(), "shardy", ('<@mesh, [{"data"}, {"model"}]>', '<@mesh, [{"data", ?}, {"model"}]>')
    )


def summed(x: Any) -> Any:
    return jax.shard_map(
        lambda x: jax.lax.psum(x, "data"), mesh=AUTO, in_specs=P("data"), out_specs=P()
    )(x)


@spares("manual-axes-differ", "unreduced-never-reduced")
def sum_in_shard_map():
    return program(summed, array((16, 32), "data"))


@finds("manual-axes-differ", "jit(summed)", severity="error")
def fewer_manual_axes():
    return rewritten(
        program(summed, array((16, 32), "data")),
        "shardy",
        ('manual_axes={"data", "model"}', 'manual_axes={"data"}'),
    )


def left_open(x: Any, y: Any) -> Any:
    return constrain(x + y, on("data"))


@finds("partitioners-differ", "y", severity="error")
@finds("not-requested", "y", severity="note")
def one_sharding_more():
    both = program(
        left_open,
        array((16, 32), "data"),
        jax.ShapeDtypeStruct((16, 32), jnp.float32),
        partitioners=BOTH,
    )
    return rewritten(
        both,
        "shardy",
        (
            "%arg1: tensor<16x32xf32>",
            '%arg1: tensor<16x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"model"}, {}]>}',
        ),
    )


@finds("type-differs", "x", severity="error")
def other_type():
    return rewritten(plain(), "shardy", ("f32", "f16"))


@finds("no-placement", "jit(layer)", severity="error")
def too_many_devices():
    return rewritten(plain(BOTH), "gspmd", ("{devices=[4,2]<=[8]}", "{devices=[4,4]<=[16]}"))


@finds("not-divisible", "jit(")
@finds("constraint-overridden", "jit(", compiled=True)
def padded_result():
    return program(lambda x: constrain(jnp.sin(x), on(None, "data")), array((16, 250), None, None))


@spares("not-divisible", "constraint-overridden", compiled=True)
def whole_blocks():
    return program(lambda x: constrain(jnp.sin(x), on(None, "data")), array((16, 252), None, None))


@finds("argument-dropped", "y", severity="note")
def unused_argument():
    return program(lambda x, y: x * 2, array((16, 32), "data"), array((16, 32), "data"))


# --- axes, constraints ----------------------------------------------------------------------------


@finds("unused-mesh-axis")
def one_axis_of_two():
    return program(lambda x: x * 2, array((16, 32), "data"))


@finds("size-one-axis", "w", severity="note")
def skinny_mesh():
    return program(
        lambda x, w: x @ w,
        array((16, 32), "data", mesh=SKINNY),
        array((32, 32), None, "model", mesh=SKINNY),
    )


@spares("unused-mesh-axis")
def unused_axis_of_size_one():
    return program(lambda x: x * 2, array((16, 32), "data", mesh=SKINNY))


def helper(x: Any) -> Any:
    return constrain(jnp.sin(x), on("data"))


@finds("resharded-twice", "jit(")
def helper_and_caller():
    return program(lambda x: constrain(helper(x), on(None, "data")), array((16, 32)))


@finds("resharded-twice", "jit(", severity="note")
def in_two_steps():
    return program(
        lambda x: constrain(constrain(jnp.sin(x), on("data")), on(None, "data")), array((16, 32))
    )


@finds("conflicting-constraints", "jit(")
def two_uses_otherwise():
    def fun(x):
        y = jnp.sin(x)
        return constrain(y, on("data")), constrain(y, on(None, "data"))

    return program(fun, array((16, 32)))


@finds("conflicting-constraints", "jit(", severity="note")
def then_cut():
    def fun(x):
        y = constrain(jnp.sin(x), on("data"))
        return constrain(y, on("data", "model")), y * 2

    return program(fun, array((16, 32)))


@spares("resharded-twice")
def only_cut():
    return program(
        lambda x: constrain(constrain(jnp.sin(x), on("data")), on("data", "model")), array((16, 32))
    )


@finds("resharded-twice", "jit(", severity="note")
def cast_between():
    return program(
        lambda x: constrain(
            constrain(jnp.sin(x), on("data")).astype(jnp.bfloat16), on(None, "data")
        ),
        array((16, 32)),
    )


@spares("resharded-twice")
def something_between():
    return program(
        lambda x: constrain(constrain(jnp.sin(x), on("data")) * 2, on(None, "data")),
        array((16, 32)),
    )


@spares("resharded-twice")
def one_leaves_it_open():
    return program(
        lambda x: constrain(
            constrain(jnp.sin(x), on("data", P.UNCONSTRAINED)), on("data", "model")
        ),
        array((16, 32)),
    )


@spares("conflicting-constraints")
def gathered_weight():
    """What FSDP does by hand: an argument in pieces that is constrained to be whole."""
    return program(
        lambda x, w: x @ constrain(w, on()), array((16, 32), "data"), array((32, 32), "data")
    )


# --- partial sums ---------------------------------------------------------------------------------


def product(x: Any, w: Any, body: Any) -> Any:
    specs = (P(None, "data"), P("data"))
    mapped = jax.shard_map(body, mesh=AUTO, in_specs=specs, out_specs=P(), check_vma=False)
    return mapped(x, w)


PARTS = array((16, 32), None, "data"), array((32, 16), "data")


@finds("unreduced-never-reduced", "shard_map", severity="error")
def forgotten_psum():
    return program(lambda x, w: product(x, w, lambda x, w: jnp.tanh(x @ w)), *PARTS)


@spares("unreduced-never-reduced")
def remembered_psum():
    return program(lambda x, w: product(x, w, lambda x, w: jax.lax.psum(x @ w, "data")), *PARTS)


@finds("unreduced-never-reduced", "shard_map", severity="error")
def psum_over_another_axis():
    return program(lambda x, w: product(x, w, lambda x, w: jax.lax.psum(x @ w, "model")), *PARTS)


@finds("unreduced-never-reduced", "shard_map", severity="error")
def loop_that_sums_over_another_axis():
    def body(x, w):
        def step(y, _):
            return jax.lax.pmean(jnp.tanh(y), "model"), None

        return jax.lax.scan(step, x @ w, None, length=2)[0]

    return program(lambda x, w: product(x, w, body), *PARTS)


@spares("unreduced-never-reduced")
def psum_over_both_axes():
    both = ("data", "model")
    return program(lambda x, w: product(x, w, lambda x, w: jax.lax.psum(x @ w, both)), *PARTS)


@spares("unreduced-never-reduced")
def summed_in_three_steps():
    def body(x, w):
        part = jax.lax.psum_scatter(x @ w, "data", tiled=True)
        return jax.lax.all_gather(jax.lax.psum(part, "model"), "data", tiled=True)

    return program(lambda x, w: product(x, w, body), *PARTS)


@spares("unreduced-never-reduced")
def summed_around_a_ring():
    def body(x, w):
        part = total = x @ w
        size = jax.lax.axis_size("data")
        for _ in range(size - 1):
            part = jax.lax.ppermute(part, "data", [(at, (at + 1) % size) for at in range(size)])
            total += part
        return total

    return program(lambda x, w: product(x, w, body), *PARTS)


@spares("unreduced-never-reduced")
def summed_in_a_called_function():
    total = jax.jit(lambda y: jax.lax.psum(y, "data"))
    return program(lambda x, w: product(x, w, lambda x, w: total(x @ w)), *PARTS)


@spares("unreduced-never-reduced")
def nothing_of_the_blocks():
    return program(lambda x, w: product(x, w, lambda x, w: jnp.zeros((4, 4))), *PARTS)


def dropout(*axes: str, fold: bool) -> Inspection:
    spec = P(*axes)

    def body(key, x):
        place = jax.lax.axis_index("data")
        key = jax.random.fold_in(key, place) if fold else jax.random.split(key)[0]
        kept = jax.random.bernoulli(key, 0.5, x.shape)
        return jnp.where(kept, x / 0.5, 0)

    def step(seed, x):
        mapped = jax.shard_map(body, mesh=AUTO, in_specs=(P(), spec), out_specs=spec)
        return mapped(jax.random.key(seed), x)

    return program(step, jax.ShapeDtypeStruct((), jnp.uint32), array((16, 32), "data"))


@finds("random-numbers-repeat", "jit(_bernoulli)", severity="warning")
def same_mask_for_each_block():
    return dropout("data", fold=False)


@spares("random-numbers-repeat")
def mask_of_its_own_for_each_block():
    return dropout("data", fold=True)


@spares("random-numbers-repeat")
def same_mask_for_the_same_block():
    return dropout(fold=False)


@spares("random-numbers-repeat")
def random_weights():
    def body(seed, x):
        return x @ jax.random.normal(jax.random.key(seed), (32, 4))

    def step(seed, x):
        mapped = jax.shard_map(body, mesh=AUTO, in_specs=(P(), P("data")), out_specs=P("data"))
        return mapped(seed, x)

    return program(step, jax.ShapeDtypeStruct((), jnp.uint32), array((16, 32), "data"))


# --- what is held ---------------------------------------------------------------------------------


def step(params: Any, opt: Any, batch: Any) -> Any:
    gradients = jax.grad(lambda p: sum((batch["x"] @ p[name]).sum() for name in p))(params)
    mu = jax.tree.map(lambda m, g: 0.9 * m + g, opt["mu"], gradients)
    return jax.tree.map(lambda p, m: p - m, params, mu), {"mu": mu}


def train(
    params: Any = ("data", "model"),
    mu: Any = ("data", "model"),
    last: Any = None,
    batch: Any = ("data",),
    **options: Any,
) -> Inspection:
    weights = {f"w{k}": array((64, 64), *params) for k in range(4)}
    moments = {name: array((64, 64), *mu) for name in weights}
    if last is not None:
        weights["w3"] = moments["w3"] = array((64, 64), *last)
    shardings = jax.tree.map(lambda leaf: leaf.sharding, (weights, {"mu": moments}))
    options = {"out_shardings": shardings} | options
    return program(step, weights, {"mu": moments}, {"x": array((16, 64), *batch)}, **options)


@spares("under-sharded", "optimizer-state-differs", "next-value-differs", "batch-not-sharded")
def train_step():
    return train()


@spares("under-sharded", "next-value-differs")
def data_parallel():
    return train((), ())


@finds("under-sharded", "params['w3']")
def forgotten_weight():
    return train(last=())


@spares("under-sharded")
def statistics_of_rows():
    """Some numbers beside the parameters, as Adafactor keeps of their rows."""
    params = {f"w{k}": array((1024, 64), "data", "model") for k in range(4)}
    rows = {f"w{k}": array((8,), *(("data",) if k else ())) for k in range(4)}
    return program(
        lambda p, rows: jax.tree.map(lambda w, r: w.sum() + r.sum(), p, rows), params, rows
    )


@spares("under-sharded")
def words_of_keys():
    """All that an axis divides of them is what JAX doesn't shard."""
    keys = jax.ShapeDtypeStruct((503,), jax.random.key(0).dtype, sharding=on())
    state = {"w": array((64, 64), "data", "model"), "keys": keys}
    return program(lambda s: (jax.vmap(jax.random.bits)(s["keys"]), s["w"].sum()), state)


@finds("under-sharded", "weights['kernel']")
def split_along_the_only_dimension_that_divides():
    weights = {f"w{k}": array((64, 64), "data", "model") for k in range(4)}
    weights["kernel"] = array((3, 3, 5, 64), None, None, None, "model")
    return program(lambda weights: jax.tree.map(jnp.sum, weights), weights)


@finds("optimizer-state-differs", "opt['mu']['w0']")
def moments_elsewhere():
    return train(mu=("model", "data"))


@spares("optimizer-state-differs", "under-sharded")
def zero_stage_one():
    return train(params=(None, "model"))


@spares("optimizer-state-differs")
def reference_of_a_policy():
    """A model in the same tree that is not trained is no state of the one that is."""

    def descend(policy, reference, x):
        target = x @ jax.lax.stop_gradient(reference["w"])
        gradients = jax.grad(lambda p: jnp.sum((x @ p["w"] - target) ** 2))(policy)
        return jax.tree.map(lambda w, g: w - g, policy, gradients)

    weights = {"w": array((64, 64), "data", "model")}
    return program(descend, weights, {"w": array((64, 64), "model")}, array((16, 64), "data"))


@spares("optimizer-state-differs")
def layers_alike():
    def loss(model, x):
        return jnp.tanh(x @ model["blocks"][0]["w"] @ model["head"]["w"]).sum()

    def descend(model, x):
        return jax.tree.map(lambda w, g: w - g, model, jax.grad(loss)(model, x))

    model = {
        "head": {"w": array((64, 64), "model", "data")},
        "blocks": [{"w": array((64, 64), "data", "model")}],
    }
    return program(descend, model, array((16, 64), "data"))


@finds("batch-not-sharded", "batch['x']")
def whole_batch():
    return train(batch=())


@spares("batch-not-sharded")
def sequence_in_pieces():
    return train(batch=(None, "data"))


@spares("batch-not-sharded")
def batch_constrained_where_it_comes_in():
    def f(w: Any, batch: Any) -> Any:
        return jnp.sum(constrain(batch, on("data")) @ w)

    return program(f, array((64, 64), None, "model"), array((16, 64), None))


@spares("batch-not-sharded")
def a_target_network():
    """What a draft is checked against: its arrays have no dimension of examples."""

    def step(target, tokens):
        return target["embed"][tokens] @ target["up"]

    target = {"embed": array((64, 32), "model"), "up": array((32, 128), None, "model")}
    return program(step, target, array((8, 4), "data", dtype=jnp.int32))


@finds("batch-not-sharded", "target['labels']")
def targets_of_examples():
    def step(w, target):
        return (target["labels"] @ w) * target["weights"][:, None]

    target = {"labels": array((16, 64), None), "weights": array((16,), "data")}
    return program(step, array((64, 64), None, "model"), target)


@finds("batch-not-sharded", "ids")
def whole_numbers_of_a_train_step():
    def step(w, ids):
        return w - jax.grad(lambda w: jnp.sum(w[ids] ** 2))(w)

    return program(step, array((64, 64), None, "model"), array((16,), dtype=jnp.int32))


@spares("batch-not-sharded")
def pages_of_a_cache():
    """Whole numbers that say where in the state something is written: nothing is trained."""

    def admit(cache, pages, keys):
        return cache.at[pages].set(keys)

    arguments = array((32, 64), "data"), array((4,), dtype=jnp.int32)
    return program(admit, *arguments, array((4, 64), None, "model"))


@spares("batch-not-sharded")
def quantized_weights():
    """A step that returns the next value of its activations, and whose weights are int8."""

    def forward(weights, h):
        return jnp.tanh(h @ weights["up"].astype(h.dtype))

    weights = {"up": array((64, 64), "model", dtype=jnp.int8)}
    return program(forward, weights, array((16, 64), "data"))


@finds("next-value-differs", "params['w0']")
def returned_otherwise():
    moved = {f"w{k}": on("model", "data") for k in range(4)}
    kept = {f"w{k}": on("data", "model") for k in range(4)}
    return train(out_shardings=(moved, {"mu": kept}))


def large_step(**options):
    large = {"w": array((4096, 4096), None, "model")}
    x = array((64, 4096), "data")
    return program(lambda w, x: ({"w": w["w"] + jnp.sum(x)}, jnp.sum(x)), large, x, **options)


@finds("state-not-donated", "w['w']")
def held_twice():
    return large_step()


@spares("state-not-donated")
@finds("under-sharded", "w['w']", severity="note")
def held_once():
    return large_step(donate_argnums=0)


def large_step_of_an_open_state(**options):
    state = {"w": jax.ShapeDtypeStruct((4096, 4096), jnp.float32)}
    x = array((64, 4096), "data")
    return program(lambda mu, x: {"w": mu["w"] + jnp.sum(x)}, state, x, **options)


@finds("state-not-donated", "mu['w']")
def held_twice_wherever_the_compiler_puts_it():
    return large_step_of_an_open_state()


@spares("state-not-donated")
def left_to_the_compiler_and_returned_elsewhere_perhaps():
    return large_step_of_an_open_state(out_shardings=on("data"))


@spares("state-not-donated")
def needed_to_be_updated_with_its_gradient():
    large = {"w": array((4096, 4096), None, "model")}
    grad = jax.value_and_grad(lambda w, x: jnp.sum(jnp.tanh(x @ w["w"])))
    return program(grad, large, array((64, 4096), "data"))


@finds("state-not-donated", "params['w']", severity="note")
def whose_next_value_is_not_known():
    large = {"w": array((4096, 4096), None, "model")}
    return program(lambda params, mean: {"w": 0.9 * mean["w"] + params["w"]}, large, large)


@spares("next-value-differs")
def moved_and_nothing_else():
    return program(lambda params: params, {"w": array((16, 32), "data")}, out_shardings=on("model"))


@finds("next-value-differs", "batch['y']", severity="note")
def has_its_path_by_chance():
    batch = {"x": array((16, 16), "data"), "y": array((16, 16), "data")}
    return program(lambda batch: {"y": batch["x"] @ batch["y"]}, batch, out_shardings=on("model"))


@spares("state-not-donated")
def small_and_not_donated():
    return train()


@finds("state-not-donated", "w")
def an_array_with_something_added():
    return program(lambda w: w + jnp.sum(w), array((4096, 4096), "data"), out_shardings=on("data"))


@finds("next-value-differs", "w")
def an_array_with_something_added_and_moved():
    return program(lambda w: w + jnp.sum(w), array((16, 32), "data"), out_shardings=on("model"))


@finds("state-not-donated", "w", severity="note")
def perhaps_its_next_value():
    return program(lambda w: w * 2, array((4096, 4096), "data"), out_shardings=on("data"))


@spares("next-value-differs")
def same_shape_by_chance():
    return program(lambda x: constrain(x * 2, on("model")), array((16, 32), "data"))


@finds("donation-unused", "x", compiled=True)
def donated_and_moved():
    return program(
        lambda x: x * 2,
        array((16, 32), "data"),
        donate_argnums=0,
        out_shardings=on(),
    )


@spares("donation-unused", "bytes-differ", compiled=True)
def donated_and_kept():
    return program(
        lambda x: x * 2, array((16, 32), "data"), donate_argnums=0, out_shardings=on("data")
    )


# --- what is sent ---------------------------------------------------------------------------------


def cube(*spec: Any) -> Any:
    return on(*spec, mesh=CUBE)


def from_to(before: Any, after: Any) -> Inspection:
    return program(
        lambda a: constrain(constrain(jnp.sin(a), cube(*before)) * 2, cube(*after)) * 2,
        array((8, 16, 32), mesh=CUBE),
    )


@finds("full-rematerialization", "jit(")
@finds("full-rematerialization", "", compiled=True)
def no_way_there():
    return from_to(("y", None, "x"), (None, ("x", "y"), None))


@spares("full-rematerialization")
@spares("full-rematerialization", compiled=True)
def all_to_all():
    return from_to(("y", None, "x"), (None, "y", "x"))


def scan_with(w: Any, xs: Any) -> Any:
    def body(total, x):
        return total + jnp.tanh(constrain(x @ w, on("data"))).sum(), None

    return jax.lax.scan(body, 0.0, xs)[0]


def layers(x: Any, ws: Any) -> Any:
    def body(x, w):
        return constrain(jnp.tanh(x @ w), on("data")), None

    return jax.lax.scan(body, x, ws)[0]


@finds("gathered-in-loop", "w", compiled=True, hardware="tpu:v5e:2x4")
def same_weight_each_time():
    return program(scan_with, array((512, 512), "data"), array((8, 64, 512), None, "data"))


@spares("gathered-in-loop", compiled=True, hardware="tpu:v5e:2x4")
@spares("scanned-dimension-sharded")
def fsdp_over_a_stack():
    return program(layers, array((64, 512), "data"), array((4, 512, 512), None, "data"))


@finds("scanned-dimension-sharded", "ws")
def stack_in_pieces():
    return program(layers, array((64, 512), "data"), array((4, 512, 512), "data"))


@finds("scanned-dimension-sharded", "xs", severity="note")
def numbers_in_pieces():
    """`jax.random.dirichlet` loops over its samples so, which move 16 numbers 16 times."""
    return program(lambda xs: jax.lax.map(lambda x: x * 2, xs), array((16,), "data"))


# --- custom calls, random numbers -----------------------------------------------------------------


def kernel(x: Any) -> Any:
    return jax.ffi.ffi_call("a_kernel", jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


@finds("collective-before-custom-call", "ffi_call")
def kernel_on_pieces():
    return program(lambda x: kernel(jnp.sin(x)) * 2, array((64, 64), "data"))


@finds("collective-before-custom-call", "cholesky", compiled=True)
def cholesky_of_pieces():
    return program(lambda x: jnp.linalg.cholesky(jnp.sin(x)), array((64, 64), "data"))


@spares("collective-before-custom-call", compiled=True)
def cholesky_of_a_batch():
    return program(lambda x: jnp.linalg.cholesky(jnp.sin(x)), array((8, 64, 64), "data"))


@spares("collective-before-custom-call")
def kernel_in_shard_map():
    return program(
        lambda x: jax.shard_map(kernel, mesh=AUTO, in_specs=P("data"), out_specs=P("data"))(
            jnp.sin(x)
        ),
        array((64, 64), "data"),
    )


@spares("collective-before-custom-call")
def kernel_on_what_is_whole():
    return program(lambda x: kernel(jnp.sin(x)) * 2, array((64, 64)))


def with_callback(fun: Any) -> Inspection:
    # Callbacks need devices to lower for.
    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    return program(fun, array((64, 64), "data", mesh=mesh))


@finds("host-callback-gathers", "callback", compiled=True)
def printed_whole():
    def fun(x):
        y = jnp.sin(x)
        jax.debug.callback(lambda _: None, y)
        return y * 2

    return with_callback(fun)


@finds("host-callback-gathers", "callback", compiled=True)
def computed_on_the_host():
    def fun(x):
        y = jnp.sin(x)
        return jax.pure_callback(np.asarray, jax.ShapeDtypeStruct(y.shape, y.dtype), y) * 2

    return with_callback(fun)


@spares("host-callback-gathers", "no-placement", compiled=True)
def printed_sum():
    def fun(x):
        y = jnp.sin(x)
        jax.debug.print("{}", y.sum())
        return y * 2

    return with_callback(fun)


def gathered_whole(*spec: Any, rows: int = 256) -> Inspection:
    """Columns, or rows, of a matrix that every device needs all of."""
    return program(lambda x: jnp.sin(constrain(x * 2, on())) + 1, array((rows, 512), *spec))


def gathered_columns(layers: int) -> Inspection:
    """Columns of a stack of matrices that every device needs all of."""
    shape = array((layers, 16384 // layers, 32), None, None, "data")
    return program(lambda x: jnp.sin(constrain(x * 2, on())) + 1, shape)


@finds("layout-copied", "mul", compiled=True)
def columns_are_gathered():
    return gathered_whole(None, "data")


@spares("layout-copied", compiled=True)
def rows_are_gathered():
    return gathered_whole("data")


@spares("layout-copied", compiled=True)
def few_columns_are_gathered():
    return gathered_whole(None, "data", rows=8)


@spares("layout-copied", compiled=True)
def columns_are_gathered_once_beside_much_else():
    """The same bytes are copied as in ``columns_are_gathered``, in a step that moves far more."""

    def step(x, y):
        whole = jnp.sin(constrain(x * 2, on())) + 1
        return whole, jax.lax.fori_loop(0, 64, lambda _, y: jnp.sin(y) + 1, y)

    return program(step, array((256, 512), None, "data"), array((256, 512)))


def noise(impl: str, words: int, *spec: Any, partitionable: bool = True) -> Inspection:
    def fun(key, x):
        key = jax.random.wrap_key_data(key, impl=impl)
        return x + jax.random.uniform(key, (64, 64))

    with jax.threefry_partitionable(partitionable):
        made = program(fun, array((words,), dtype=jnp.uint32), array((64, 64), *spec))
        assert made.lowered
    return made


@finds("threefry-not-partitionable", "uniform")
def old_threefry():
    return noise("threefry2x32", 2, "data", partitionable=False)


@spares("threefry-not-partitionable")
def old_threefry_whole():
    return noise("threefry2x32", 2, partitionable=False)


def a_key_for_each_row(*spec: Any) -> Inspection:
    def fun(key, x):
        keys = jax.random.split(jax.random.wrap_key_data(key), 64)
        return x + jax.vmap(lambda key: jax.random.uniform(key, (64,)))(keys)

    with jax.threefry_partitionable(False):
        made = program(fun, array((2,), dtype=jnp.uint32), array((64, 64), *spec))
        assert made.lowered
    return made


@spares("threefry-not-partitionable")
def old_threefry_in_rows():
    return a_key_for_each_row("data")


@finds("threefry-not-partitionable", "uniform")
def old_threefry_in_columns():
    return a_key_for_each_row(None, "data")


@spares("threefry-not-partitionable", "rng-replicated")
def threefry():
    return noise("threefry2x32", 2, "data")


@finds("rng-replicated", "rng_bit_generator")
def rbg():
    return noise("rbg", 4, "data")


@spares("rng-replicated")
def rbg_whole():
    return noise("rbg", 4)


# --- logical axes ---------------------------------------------------------------------------------


def logical(*axes: str, **config: Any) -> LogicalAxes:
    return LogicalAxes(MappedMesh(**config), {"w": axes}, {"x": ("batch", "embed")})


GOOD = logical("embed", "mlp", shared_mapping={"mlp": ["model"], "heads": []})


@finds(
    "logical-axis-unused",
    logical=logical("embed", "mlp", shared_mapping={"mlp": ["model"], "mpl": ["model"]}),
)
@finds("logical-axes-collide", "w", logical=logical("embed", "embed"), severity="error")
@finds("logical-not-divisible", "w", logical=logical("embed", "mlp"), severity="error")
@finds("parameter-not-sharded", "w", logical=logical("a", "b"), severity="note")
@spares("logical-axes-collide", "parameter-not-sharded", logical=logical("embed", "mlp"))
def odd_width():
    mesh = AbstractMesh(
        (1, 1, 4, 2), ("replica_dcn", "replica", "data", "model"), axis_types=(AxisType.Auto,) * 4
    )
    return program(
        lambda x, w: x @ w, array((16, 32), "data", mesh=mesh), array((32, 33), mesh=mesh)
    )


@spares("logical-axis-unused", "logical-not-divisible", logical=GOOD)
def even_width():
    mesh = AbstractMesh(
        (1, 1, 4, 2), ("replica_dcn", "replica", "data", "model"), axis_types=(AxisType.Auto,) * 4
    )
    return program(
        lambda x, w: x @ w, array((16, 32), "data", mesh=mesh), array((32, 64), mesh=mesh)
    )
