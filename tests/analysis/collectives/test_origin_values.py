"""Origins of collectives: programs whose answer is known, and how many have one."""

from __future__ import annotations

import functools
import itertools
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from origin_programs import (
    MESH,
    PARTITIONERS,
    abstract,
    collectives_of,
    constrained,
    counted,
    named,
    of_kind,
    on,
    parts_of,
)
from user_programs import USER_PROGRAMS

from sdyscope.analysis.collectives import origin_needs, origins
from sdyscope.analysis.collectives.totals import Collectives
from sdyscope.errors import CompilerError
from sdyscope.facts.program import Program
from sdyscope.facts.remarks import Remark
from sdyscope.inspection import Inspection
from sdyscope.stages import compat
from sdyscope.targets import resolve
from sdyscope.words.origins import origin_text, spec_text

pytestmark = pytest.mark.compiles

SMALL = {"d_model": "64", "d_ff": "128", "vocab": "256", "heads": "4", "head_dim": "16"}
VARIANTS = ({"layers": "1", "constrained": "false"}, {"scan": "true", "remat": "true"})


@cache
def of_mlp(partitioner: Any) -> Collectives:
    return Inspection(resolve("mlp"), [partitioner]).collectives(partitioner)


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_megatrons_second_matmul(partitioner: Any) -> None:
    """Its rows are on `model`, so that the sum over them crosses devices."""
    (found,) = [
        origin
        for collective, _, origin in parts_of(of_mlp(partitioner))
        if [axis.name for axis in collective.axes or ()] == ["model"]
    ]
    assert (found.kind, found.op, found.scope) == (
        "reduction",
        "dot_general",
        "jvp(block0)/bh,hf->bf",
    )
    assert ("params['w2']", "P('model', None)") in named(found, "has")
    assert {annotation.axes[0].name for annotation in found.annotations} == {"model"}
    assert all(annotation.recorded == (partitioner == "shardy") for annotation in found.annotations)
    assert ("not recorded" in origin_text(found)) == (partitioner == "gspmd")


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_each_tensor_of_a_joined_collective_has_its_own(partitioner: Any) -> None:
    joined = [
        collective for collective in of_mlp(partitioner).collectives if len(collective.parts) > 1
    ]
    assert len(joined) == 1
    ops = [(part.origin.scope, part.origin.op) for part in joined[0].parts if part.origin]
    assert ops == [
        ("transpose(jvp(block0))/bf,fh->bh", "dot_general"),
        ("transpose(jvp(block0))/bh,hf->bf", "dot_general"),
        ("jvp(loss)", "reduce_sum"),
    ]
    assert named(joined[0].parts[2].origin, "has") == {("batch['y']", "P('data', None)")}


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_every_change_of_a_sharding(partitioner: Any) -> None:
    """Each pair of shardings, of an argument each: from which, to which, and by which line."""
    specs = [(None, None), ("data", None), (None, "data"), ("model", "data"), (("data", "model"),)]
    pairs = [(one, two) for one, two in itertools.permutations(specs, 2)]

    @jax.jit
    def step(*arrays: Any) -> Any:
        return [constrained(array, *two) for array, (_, two) in zip(arrays, pairs, strict=True)]

    # Sizes tell arguments apart.
    arrays = [abstract((16 * (number + 1), 32), *one) for number, (one, _) in enumerate(pairs)]
    collectives = collectives_of(step, *arrays, partitioner=partitioner)
    seen = set()
    for collective, _, origin in parts_of(collectives):
        assert collective.axes, origin_text(origin)
        assert (origin.kind, origin.op) == ("resharding", "sharding_constraint"), origin_text(
            origin
        )
        (constraint,) = (
            annotation for annotation in origin.annotations if annotation.role == "needed"
        )
        assert constraint.kind == "constraint"
        has = [annotation for annotation in origin.annotations if annotation.role == "has"]
        numbers = {int(ha.name.removeprefix("arrays[").rstrip("]")) for ha in has}
        for number in numbers:
            one, two = pairs[number]
            # As JAX writes them since 0.8.
            assert spec_text(origin.before) == f"P{(*one, *[None] * (2 - len(one)))!r}"
            assert spec_text(origin.after) == f"P{(*two, *[None] * (2 - len(two)))!r}"
        seen |= numbers
    # What a device has already needs no collective; all else has one, with its argument.
    assert seen == {number for number, pair in enumerate(pairs) if not is_there(*pair)}


def is_there(held: tuple[Any, ...], two: tuple[Any, ...]) -> bool:
    """Whether every block of the second sharding lies in the same device's block of the first."""

    def axes(spec: tuple[Any, ...], dim: int) -> tuple[str, ...]:
        entry = spec[dim] if dim < len(spec) else None
        return entry if isinstance(entry, tuple) else (entry,) if entry else ()

    return all(axes(two, dim)[: len(axes(held, dim))] == axes(held, dim) for dim in range(2))


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_a_result_that_is_wanted_otherwise(partitioner: Any) -> None:
    step = jax.jit(lambda x: {"y": x * 2}, out_shardings=on(MESH, None, None))
    collectives = collectives_of(step, abstract((16, 8), "data", None), partitioner=partitioner)
    ((_, _, origin),) = parts_of(collectives)
    assert spec_text(origin.before) == "P('data', None)"
    assert ("x", "P('data', None)") in named(origin, "has")
    if origin.op == "return":
        assert named(origin, "needed") == {("result['y']", "P(None, None)")}


@pytest.mark.parametrize("nested", [False, True])
def test_a_constraint_that_gspmd_cannot_return_is_where_the_axes_come_from(nested: bool) -> None:
    """Of 10 columns no eighth is returned: the constraint shards what it is on, and no more."""

    def on_columns(y: Any) -> Any:
        return constrained(y, None, ("data", "model"))

    @jax.jit
    def step(w: Any, x: Any) -> Any:
        return (jax.jit(on_columns) if nested else on_columns)(jnp.tanh(x @ w))

    program = Program("step", step, (abstract((8, 10)), abstract((16, 8), "data")))
    inspected = Inspection(program, ["gspmd"])
    (origin,) = (
        origin
        for _, _, origin in parts_of(inspected.collectives("gspmd"))
        if origin.op == "return" or origin.op == "sharding_constraint"
    )
    assert (spec_text(origin.before), spec_text(origin.after), origin.result) == (
        "P(None, ('data', 'model'))",
        "P(None, None)",
        "result",
    )
    assert not named(origin, "needed")
    assert {spec for _, spec in named(origin, "has")} == {"P(None, ('data', 'model'))"}
    if compat.version_tuple() >= (0, 10):  # Before, a dump's instructions can't be read.
        assert inspected.verify(6).agrees


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_a_constraint_some_ops_on_makes_a_gather(partitioner: Any) -> None:
    """The ops between go with it; what the value goes together with needs nothing."""

    def step(w: Any, x: Any, *, pinned: bool = True) -> Any:
        h = x @ w
        h = h * jnp.tanh(h + 0.5 * h)
        return constrained(h, "data", None) if pinned else h

    arguments = abstract((64, 64), None, "model"), abstract((32, 64), "data", None)
    found = of_kind(
        parts_of(collectives_of(jax.jit(step), *arguments, partitioner=partitioner)), "all-gather"
    )
    assert found
    for origin in found:
        assert {name for name, _ in named(origin, "has")} == {"w"}
        assert {spec for _, spec in named(origin, "needed")} == {"P('data', None)"}
    without = jax.jit(functools.partial(step, pinned=False))
    free = collectives_of(without, *arguments, partitioner=partitioner)
    assert not free.collectives


def test_nothing_is_said_not_to_be_sharded_that_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origin_needs, "_TOGETHER", frozenset())
    # Nor that XLA names the argument and the compiled program leads to the op.
    monkeypatch.setattr(origins._Search, "of_op", lambda *_: None)
    x = abstract((16, 64), "data", "model")
    unknown = parts_of(collectives_of(jax.jit(jnp.fft.fft), x))
    assert {origin.not_found for *_, origin in unknown} == {"not needed otherwise"}


def test_under_gspmd_an_axis_is_followed_across_an_argument_and_a_constant() -> None:
    """XLA restores an argument's sharding only when it is done, and has one value of equal ones."""
    free = jax.ShapeDtypeStruct((16, 16), jnp.float32)
    z, whole = abstract((16, 16), "data"), abstract((16, 16))
    across = jax.jit(lambda x, y, z: ((x + y).sum(0), y * z))
    positive = jax.jit(lambda x, z: (jnp.maximum(x, 0).sum(0), jnp.maximum(z, 0)))
    # The argument's own axis keeps others from its dimension.
    sharded = abstract((16, 16), "model")
    for function, args, by in (
        (across, (free, whole, z), "z"),
        (across, (free, abstract((16, 16), None, "model"), z), "z"),
        (across, (free, sharded, z), "y"),
        (positive, (free, z), "z"),
    ):
        parts = parts_of(collectives_of(function, *args, partitioner="gspmd"))
        (origin,) = of_kind(parts, "all-reduce")
        assert {name for name, _ in named(origin, "has")} == {by}


def test_under_gspmd_an_axis_is_followed_through_a_reversal() -> None:
    """XLA lists the devices of a reversed dimension backwards, which is no order of axes."""
    step = jax.jit(lambda a, b: jnp.convolve(a, b, "same"))
    collectives = collectives_of(
        step, abstract((64,), "data"), abstract((8,), "data"), partitioner="gspmd"
    )
    (origin,) = of_kind(parts_of(collectives), "all-gather")
    assert named(origin, "has") == {("b", "P('data')")}
    # What XLA splits it may have reversed before.
    x, w = abstract((16, 32), None, "model"), abstract((32, 32), None, "model")
    turned = jax.jit(lambda x, w, u: jnp.tanh(x[::-1, ::-1] @ w) @ u)
    parts = parts_of(
        collectives_of(turned, x, w, abstract((32, 16), None, "data"), partitioner="gspmd")
    )
    assert "split" in {o.kind for c, _, o in parts if c.kind == "all-reduce"}


@pytest.mark.skipif(
    compat.version_tuple() < (0, 8), reason="XLA gathers what no op of the program makes"
)
def test_under_gspmd_an_axis_is_followed_through_approx_max_k() -> None:
    largest = jax.jit(lambda x, w: jnp.tanh(jax.lax.approx_max_k(x, 3)[0]) @ w)
    x, w = abstract((16, 32), "model", "data"), abstract((3, 16), None, "data")
    parts = parts_of(collectives_of(largest, x, w, partitioner="gspmd"))
    (origin,) = of_kind(parts, "all-gather")
    assert named(origin, "has") == {("x", "P('model', 'data')")}


def test_under_gspmd_an_axis_is_followed_where_a_dimension_changes_its_size() -> None:
    x, w = abstract((16, 32), "data", "model"), abstract((32, 16), "model", None)
    swapped = jax.jit(lambda x, w: jnp.tanh(jnp.concatenate([x[:, 16:], x[:, :16]], 1)) @ w)
    parts = parts_of(collectives_of(swapped, x, w, partitioner="gspmd"))
    (origin,) = of_kind(parts, "all-reduce")
    names = {annotation.name for annotation in (*origin.annotations, *origin.otherwise)}
    assert names == {"x", "w"}
    padded = jax.jit(lambda x, w: jnp.tanh(jnp.pad(x, ((1, 1), (0, 3)))) @ w)
    x, w = abstract((16, 32), "data", None), abstract((35, 16), None, "data")
    parts = parts_of(collectives_of(padded, x, w, partitioner="gspmd"))
    of_x = [o for c, _, o in parts if c.kind == "all-gather" and o.value == "tanh"]
    assert [named(origin, "has") for origin in of_x] == [{("x", "P('data', None)")}]
    # The result of a pad goes with its operand: nothing else keeps the axes away.
    (halo,) = of_kind(parts, "collective-permute")
    assert (halo.value, named(halo, "needed")) == ("x", set())
    numbers = ("NHWC", "HWIO", "NHWC")
    strided = jax.jit(
        lambda x, kernel, w: (
            jax.lax.conv_general_dilated(x, kernel, (2, 2), "VALID", dimension_numbers=numbers) @ w
        )
    )
    x, kernel = abstract((8, 16, 16, 8), None, "data"), abstract((3, 3, 8, 16))
    w = abstract((16, 16), ("model", "data"))
    parts = parts_of(collectives_of(strided, x, kernel, w, partitioner="gspmd"))
    values = {o.value: named(o, "has") for c, _, o in parts if c.kind == "all-gather"}
    assert values["conv_general_dilated"] == {("x", "P(None, 'data', None, None)")}


def test_a_sum_stays_for_what_has_its_axes_on_another_summed_dimension() -> None:
    """The groups are on `model`, on which `x` is as well: without them the sum is for `x`."""
    sizes = counted((4,), "model")
    step = jax.jit(lambda x, w, sizes, v: jnp.tanh(jax.lax.ragged_dot(x, w, sizes)) @ v)
    arguments = (abstract((16, 32), "data", "model"), abstract((4, 32, 8)), sizes)
    parts = parts_of(collectives_of(step, *arguments, abstract((8, 16), None, "data")))
    (origin,) = of_kind(parts, "all-reduce")
    assert {name for name, _ in named(origin, "has")} == {"sizes"}
    assert {annotation.name for annotation in origin.otherwise} == {"x"}


def test_the_table_shards_the_residual_stream() -> None:
    """Unconstrained, Shardy takes the residual stream's features from the embedding."""
    program = resolve("fsdp-transformer", settings={**SMALL, "layers": "1", "constrained": "false"})
    collectives = Inspection(program, ["shardy"]).collectives()
    first = [
        origin
        for _, _, origin in parts_of(collectives)
        if origin.op == "dot_general" and origin.scope.startswith("jvp(layer0)/attention/bse")
    ]
    assert first
    for origin in first:
        assert ("params['embedding']", "P('model', 'fsdp')") in named(origin, "has")


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
@pytest.mark.parametrize(
    "partitioner", [pytest.param("shardy", marks=pytest.mark.thorough), "gspmd"]
)
def test_reference_models(partitioner: Any, settings: dict[str, str]) -> None:
    program = resolve("fsdp-transformer", settings={**SMALL, **settings})
    collectives = Inspection(program, [partitioner]).collectives(partitioner)
    assert_attributed(collectives)
    assert all(part.source is not None for _, part, _ in parts_of(collectives))


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_users_programs(partitioner: Any) -> None:
    total = attributed = 0
    for name, make in USER_PROGRAMS.items():
        try:
            program = make(compat.abstract_mesh(MESH))
            collectives = Inspection(program, [partitioner]).collectives(partitioner)
        except CompilerError:
            continue  # XLA refuses it, which other tests are about
        assert all(collective.axes is not None for collective in collectives.collectives), name
        total += collectives.tensors
        attributed += collectives.with_origin
    assert total >= 20
    assert attributed >= 0.95 * total


def assert_attributed(collectives: Collectives) -> None:
    """100 % to axes, at least 95 % to a source line and an origin."""
    parts = parts_of(collectives)
    assert len(parts) > 20
    assert all(collective.axes is not None for collective, _, _ in parts)
    assert sum(part.source is not None for _, part, _ in parts) >= 0.95 * len(parts)
    known = sum(origin.known for _, _, origin in parts)
    assert known == collectives.with_origin >= 0.95 * len(parts)
    assert collectives.origins_missing == ""


def test_without_a_propagation_it_says_so() -> None:
    inspection = Inspection(resolve("mlp"), ["shardy"])
    inspection._propagated["shardy", False, False] = CompilerError("Shardy refuses it.")
    collectives = inspection.collectives()
    assert collectives.origins_missing == Remark("not propagated", "Shardy refuses it.")
    assert collectives.with_origin == 0
    assert len(collectives.collectives) == 2
    assert not inspection.collectives(origins=False).with_origin


def test_what_xla_refuses_is_one_sentence_on_every_jax() -> None:
    program = USER_PROGRAMS["branches"](compat.abstract_mesh(MESH))
    with pytest.raises(CompilerError, match="The compiler refuses the program for cpu:8"):
        Inspection(program, ["shardy"]).compiled("shardy")


@pytest.mark.skipif(
    compat.version_tuple() >= (0, 11), reason="XLA may name it after what makes the value"
)
@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_what_xla_names_after_an_op_is_not_for_the_next(partitioner: Any) -> None:
    """A sort along a sharded dimension moves what it makes back, whatever takes that."""

    @jax.jit
    def step(x: Any) -> Any:
        ordered = jax.lax.sort(constrained(jnp.cos(x), "data", "model"), dimension=1)
        return jnp.argmax(ordered, 1)

    collectives = collectives_of(step, abstract((16, 8), "data", "model"), partitioner=partitioner)
    exchanged = of_kind(parts_of(collectives), "all-to-all")
    assert {(origin.op, origin.uncertain) for origin in exchanged} == {
        ("sort", False),
        ("sort", True),
    }


def test_an_elementwise_op_requires_its_operands_as_its_result() -> None:
    @jax.jit
    def step(x: Any, y: Any) -> Any:
        return jnp.tanh(x) * jnp.sin(y)

    arguments = abstract((16, 32), "data"), abstract((16, 32), None, "data")
    ((collective, _, origin),) = parts_of(collectives_of(step, *arguments))
    assert (collective.kind, origin.value) == ("all-to-all", "sin")
    assert spec_text(origin.after) == "P('data', None)"
    assert origin_text(origin).startswith(
        "sin is P(None, 'data') but mul, given x P('data', None), requires P('data', None)"
    )


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_what_ops_make_as_they_are_given_and_then_move_is_their_result(partitioner: Any) -> None:
    """Whatever XLA names the move after: as of JAX 0.11 that is mostly what makes the value."""

    def step(
        x: Any, g: Any, a: Any, b: Any, s: Any, w: Any, t: Any, at: Any, e: Any, d: Any
    ) -> Any:
        turned = 2 * constrained(jnp.einsum("btd,bte->de", x, g).T, None, "model")
        added = constrained(constrained(a, "data") + constrained(b, "data"))
        pair = jnp.concatenate([s[..., None], jnp.tanh(s)[..., None]], -1)
        joined = constrained(pair, "model", None, None)
        ordered = constrained(jnp.sort(a @ w, axis=-1), "data", "model")
        looked_up = constrained(t[:, at], "model", None)
        # The first of these leaves blocks as they are.
        edges = jax.lax.pad(jnp.tanh(e) + e, 0.0, [(0, -1, 0), (0, 0, 0)])[::2]
        both = jax.lax.pad(jnp.tanh(d) + d, 0.0, [(-1, 0, 0), (0, 0, 0)])[::2]
        return turned, added, joined, ordered, looked_up, edges, both

    x, at = abstract((4, 8, 32), None, "model"), counted((24,), "model")
    a, b = abstract((16, 8), "data", "model"), abstract((16, 8))
    s, w = abstract((8, 4), "data", "model"), abstract((8, 16), None, "model")
    t, e, d = (
        abstract((12, 6), None, "model"),
        abstract((4, 10), "data"),
        abstract((4, 12), "data"),
    )
    arguments = x, x, a, b, s, w, t, at, e, d
    collectives = collectives_of(jax.jit(step), *arguments, partitioner=partitioner)
    origins_of = {
        (collective.kind, str(leaf)): origin
        for collective, part, origin in parts_of(collectives)
        for leaf in part.shapes
    }
    expected = {
        ("collective-permute", "f32[16,32]"): ("dot_general", None, "P('model', None)"),
        ("all-gather", "f32[16,8]"): ("add", None, "P(None, None)"),
        ("all-to-all", "f32[1,6,12]"): ("gather", None, "P('model', None)"),
        ("collective-permute", "f32[1,10]"): ("slice", "P('data', None)", None),
        ("all-to-all", "f32[1,2,1,8]"): ("sort", None, "P('data', 'model')"),
    }
    if partitioner == "shardy":  # GSPMD's propagation splits it so from the start.
        expected["collective-permute", "f32[2,2,2]"] = "concatenate", None, "P('model', None, None)"
        expected["all-gather", "f32[2,4,2]"] = "concatenate", None, "P('model', None, None)"
    if compat.version_tuple() < (0, 10):
        # Older JAX writes `[::2]` as a gather, and shards it and the pair otherwise.
        expected = {
            key: each for key, each in expected.items() if key in origins_of and each[0] != "slice"
        }
        assert len(expected) >= 4
    known = {
        key: (origin.op, *(spec and spec_text(spec) for spec in (origin.before, origin.after)))
        for key, origin in origins_of.items()
        if key in expected and not origin.uncertain
    }
    assert known == expected
    assert {origins_of[key].value.split(" ")[0] for key in expected} == {
        "pad" if op == "slice" else op for op, *_ in expected.values()
    }
    # A padding and a slice that both move some are one name to the XLA of JAX 0.11.
    of_both = origins_of["collective-permute", "f32[1,12]"]
    assert of_both.uncertain == (compat.version_tuple() >= (0, 11))
