"""Snapshots of programs under both partitioners, at every stage, with a `shard_map` inside."""

import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh as JaxMesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.inspection import Inspection, inspect
from sdyscope.snapshots import compare, read_snapshots, update, write
from sdyscope.snapshots.items import reduced
from sdyscope.stages.lowered.read import read_bytes
from tests.programs import AUTO, array, on

pytestmark = pytest.mark.compiles

ALL = ("requested", "lowered", "propagated", "compiled")
BOTH = ("shardy", "gspmd")


def taken(step, *spec, stages=ALL, partitioners=BOTH, donate=()):
    arguments = ({"w": array((64, 32), *(spec or (None, "model")))}, array((16, 64), "data"))
    jitted = jax.jit(step, donate_argnums=donate)
    return inspect(jitted, *arguments, name="step", partitioners=partitioners).snapshot(stages)


def scattered(x, block):
    return jax.shard_map(
        block, mesh=AUTO, in_specs=P("data", "model"), out_specs=P(("data", "model"))
    )(x)


def step(params, x):
    with jax.named_scope("layer0"):
        hidden = jax.lax.with_sharding_constraint(jnp.tanh(x @ params["w"]), on("data", "model"))
    with jax.named_scope("mix"):
        total = scattered(hidden, lambda h: jax.lax.psum_scatter(h, "model", tiled=True))
    return params, total.sum()


def other_step(p, batch):
    # Other names and lines, other SSA names, something unrelated first.

    unrelated = jnp.cos(jnp.sum(batch))

    def ring(block):
        return jax.lax.psum_scatter(block, "model", tiled=True)

    with jax.named_scope("layer0"):
        result = jnp.tanh(jnp.matmul(batch, p["w"]))
        result = jax.lax.with_sharding_constraint(result, on(("data",), ("model",)))
    with jax.named_scope("mix"):
        total = scattered(result, ring)
    del unrelated
    return p, total.sum()


@pytest.fixture(scope="module")
def whole():
    """All stages under both partitioners."""
    return taken(step)


def kinds(snapshot, kind):
    return {key.name: items for key, items in snapshot.items.items() if key.kind == kind}


def test_every_stage_of_both_partitioners_is_in_it(whole):
    assert whole.partitioners == BOTH
    for kind in ("argument", "result", "constraint", "shard_map input", "shard_map output"):
        assert kinds(whole, kind), kind
    assert kinds(whole, "value")
    assert kinds(whole, "collective")
    text = write([whole])
    assert "shard_map input  mix #0  f32[16,32]\n  requested P('data', 'model')\n" in text
    assert "shard_map output  mix #0  f32[" in text
    # What the compiler says in the end is told once where both say it.
    (constraint,) = kinds(whole, "constraint").values()
    assert {cell.stage for item in constraint for cell in item.cells} == set(ALL[:3])
    assert read_snapshots(text) == (whole,)


def test_it_says_the_same_of_the_same_program_written_otherwise(whole):
    other = taken(other_step)
    renamed = write([other]).replace("  p['w']", "  params['w']").replace("  batch  ", "  x  ")
    renamed = renamed.replace("argument p\n", "argument params\n")
    renamed = renamed.replace("argument batch\n", "argument x\n")
    comparison = compare(whole, read_snapshots(renamed)[0])
    assert comparison.is_same, list(comparison.changes)


def test_other_specs_of_a_shard_map_are_told_at_its_boundary():
    def program(specs):
        def body(params, x):
            mapped = jax.shard_map(
                lambda w, y: (y.sum() + w).sum().reshape(1, 1),
                mesh=AUTO,
                in_specs=specs,
                out_specs=P("data", "model"),
            )
            with jax.named_scope("mix"):
                return mapped(params["w"], x)

        return taken(body, stages=ALL[:3], partitioners=("shardy",))

    before = program((P("data"), P("model")))
    after = program((P("data"), P(None, "model")))
    changed = [(change.key.kind, change.key.name) for change in compare(before, after).changes]
    assert ("shard_map input", "mix #1") in changed
    assert ("shard_map input", "mix #0") not in changed
    assert compare(before, program((P(("data",), None), P("model", None)))).is_same


@pytest.mark.parametrize("partitioner", BOTH)
def test_another_sharding_is_found_at_its_tensor_and_where_it_leads(whole, partitioner):
    only = taken(step, partitioners=(partitioner,))
    other = taken(step, "data", None, partitioners=(partitioner,))
    changed = {
        (change.key.kind, change.key.name): change.what for change in compare(only, other).changes
    }
    assert changed["argument", "params['w']"] == "changed"
    assert changed["result", "result[0]['w']"] == "changed"
    assert any(kind == "collective" for kind, _ in changed)
    assert changed["memory", "argument params"] == "changed"
    assert ("constraint", "layer0") not in changed
    assert ("shard_map input", "mix #0") not in changed


@pytest.mark.parametrize("partitioner", BOTH)
def test_a_result_is_where_it_is_returned_not_where_it_is_made(partitioner):
    doubled = jax.jit(lambda x: x * 2, out_shardings=on())
    program = inspect(doubled, array((16, 64), "data"), name="step", partitioners=(partitioner,))
    ((cell, *others),) = [
        item.cells for item in kinds(program.snapshot(ALL[:3]), "result")["result"]
    ]
    assert (cell.stage, cell.text) == ("requested", "replicated")
    assert [other.text for other in others] == ["=", "="]


def test_memory_is_what_the_compiler_counts(whole):
    arguments = (({"w": array((64, 32), None, "model")}), array((16, 64), "data"))
    compiled = inspect(jax.jit(step), *arguments, partitioners=("shardy",)).compiled("shardy")
    held = 0
    for name, items in kinds(whole, "memory").items():
        (item,) = items
        found = re.match(r"a device holds ([\d,]+) B", item.cells[0].text)
        held += int(found[1].replace(",", "")) if name.startswith("argument") else 0
    assert held == compiled.memory.arguments
    assert kinds(whole, "memory").keys() >= {"argument params", "argument x", "result result[1]"}


def test_donation_is_in_it(whole):
    donated = taken(step, donate=(0,), stages=("compiled",), partitioners=("shardy",))
    text = write([donated])
    assert "memory  result result[0]\n  compiled a device holds 4,096 B" in text
    assert "4,096 B of it in arguments' buffers" in text
    assert "arguments' buffers" not in write([whole])


def test_a_file_from_before_memory_was_told_still_holds(whole):
    text = write([whole])
    assert text.startswith("sdyscope snapshot 7\n")
    old = re.sub(r"\nmemory  [^\n]*\n(?:  [^\n]*\n)+", "", text)
    old = re.sub(r"; devices .*", "", old)
    old = old.replace("sdyscope snapshot 7", "sdyscope snapshot 1")
    old = re.sub(r"(propagated, |^  )compiled\b", r"\1partitioned", old, flags=re.MULTILINE)
    assert "memory" not in old
    before = read_snapshots(old)[0]
    comparison = compare(before, whole)
    assert comparison.is_same
    assert comparison.not_compared == ("memory", "devices")
    assert update(old, [whole]) == text
    # What is not compiled is written so that older readers know it.
    lowered = reduced(before, ("requested", "lowered"))
    assert write([lowered]).startswith("sdyscope snapshot 1\n")
    assert write([whole.at(ALL[:3])]).startswith("sdyscope snapshot 1\n")


def test_what_is_donated():
    arguments = (array((8, 8), "data"), array((8, 8)))

    def step(w, x):
        return w + x, x.sum()

    steps = (jax.jit(step), jax.jit(step, donate_argnums=0))
    plain, donates = (inspect(jitted, *arguments).snapshot() for jitted in steps)
    text = write([donates])
    assert "  requested P('data', None), donated\n  lowered =\n  propagated =\n" in text
    assert text.startswith("sdyscope snapshot 9\n")
    assert write(read_snapshots(text)) == text
    (lost,) = compare(donates, plain).changes
    assert (lost.name, lost.what) == ("w", "changed")


def test_a_layout_that_is_asked_for():
    form = """
module @m attributes {{mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32}} {{
  func.func public @main(%arg0: tensor<8x8xf32> {{{0}}}) -> tensor<8x8xf32> {{
    return %arg0 : tensor<8x8xf32>
  }}
}}
"""
    snapshots = [
        Inspection(read_bytes(form.format(f'mhlo.layout_mode = "{layout}"').encode())).snapshot()
        for layout in ("default", "{0,1}")
    ]
    (change,) = compare(*snapshots).changes
    assert change.after[0].cells[0].text == "nothing, mhlo.layout_mode = {0,1}"


def test_offloaded_arguments_are_in_it():
    """In another memory a tensor is a change, and has the same block on another mesh."""
    at = NamedSharding(AUTO, P("data"), memory_kind="pinned_host")
    program = inspect(jax.jit(lambda x: x), jax.ShapeDtypeStruct((16, 64), "float32", sharding=at))
    if "memory_kind" not in str(program.lowered["shardy"].module):
        pytest.skip("this JAX writes no kind of memory for a mesh without devices")
    before = inspect(jax.jit(lambda x: x), array((16, 64), "data"))
    stages = ("requested", "lowered", "propagated")
    text = write([program.snapshot(stages)])
    assert "  requested P('data', None) in pinned_host\n  lowered =\n  propagated =\n" in text
    assert write(read_snapshots(text)) == text
    comparison = compare(before.snapshot(stages), program.snapshot(stages))
    assert [change.key.name for change in comparison.changes] == ["x", "result"]


def test_axes_that_an_open_dimension_must_not_have_are_kept():
    form = """
module @m attributes {{mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32}} {{
  sdy.mesh @mesh = <["a"=4, "b"=2]>
  func.func public @main(%arg0: tensor<8x8xf32> {{sdy.sharding = #sdy.sharding<@mesh, {0}>}})
      -> tensor<8x8xf32> {{
    return %arg0 : tensor<8x8xf32>
  }}
}}
"""
    plain, kept, closed, needless = (
        Inspection(read_bytes(form.format(text).encode())).snapshot(["lowered"])
        for text in (
            '[{"a"}, {?}]',
            '[{"a"}, {?}], replicated={"b"}',
            '[{"a"}, {}]',
            '[{"a"}, {}], replicated={"b"}',
        )
    )
    assert not compare(plain, kept).is_same
    assert compare(kept, read_snapshots(write([kept]))[0]).is_same
    assert compare(closed, needless).is_same, "no dimension is open"


def test_devices_in_another_order_are_another_mesh():
    def snapshot(order):
        devices = np.array(jax.devices()[:8])[list(order)].reshape(4, 2)
        mesh = JaxMesh(devices, ("data", "model"))
        x = jax.ShapeDtypeStruct((8, 8), jnp.float32, sharding=NamedSharding(mesh, P("data")))
        return inspect(jax.jit(jnp.sin), x, name="step").snapshot(["requested", "lowered"])

    numeric = snapshot(range(8))
    assert numeric.mesh == "data=4, model=2"
    transposed = snapshot((0, 4, 1, 5, 2, 6, 3, 7))
    assert transposed.mesh == "data=4, model=2; devices [2,4]T(1,0)"
    assert snapshot((1, 0, *range(2, 8))).mesh == "data=4, model=2; devices 1,0,2,3,4,5,6,7"
    compared = compare(numeric, transposed)
    assert [change.word for change in compared.header] == ["mesh"]
    assert not compared.is_same
    (read,) = read_snapshots(write([transposed]))
    assert compare(read, transposed).is_same


def test_a_mesh_that_only_a_constraint_or_a_result_names_has_its_order():
    mesh = JaxMesh(np.array(jax.devices()[:8])[::-1].reshape(4, 2), ("data", "model"))
    rows = NamedSharding(mesh, P("data"))
    x = jax.ShapeDtypeStruct((8, 8), jnp.float32)
    for step in (
        jax.jit(lambda x: jax.lax.with_sharding_constraint(jnp.sin(x), rows)),
        jax.jit(jnp.sin, out_shardings=rows),
    ):
        inspection = inspect(step, x, name="step")
        assert inspection.device_order == tuple(reversed(range(8)))
        mesh_line = inspection.snapshot(["requested", "lowered"]).mesh
        assert mesh_line == "data=4, model=2; devices 7,6,5,4,3,2,1,0"


def test_jax_orders_the_devices_of_accelerators():
    mesh = JaxMesh(np.array(jax.devices()[:2])[::-1], ("data",))
    x = jax.ShapeDtypeStruct((8,), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    inspection = inspect(jax.jit(jnp.sin), x, partitioners=("shardy",))
    assert inspection.authors_order == inspection.device_order == (1, 0)
    module = inspection.lowered["shardy"]
    inspection.lowered = {"shardy": replace(module, device_platform="tpu")}
    assert (inspection.authors_order, inspection.device_order) == ((), (1, 0))


def test_devices_that_are_a_part_of_all_are_in_order():
    mesh = JaxMesh(np.array(jax.devices()[2:6]), ("data",))
    x = jax.ShapeDtypeStruct((8,), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    assert inspect(jax.jit(jnp.sin), x).snapshot(["requested", "lowered"]).mesh == "data=4"
