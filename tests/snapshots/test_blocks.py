"""What a device has of each tensor on two meshes, by two snapshots; JAX says the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.snapshots import compare, read_snapshots
from sdyscope.views import snapshot as views


def snapshot(mesh, *blocks, partitioners="shardy"):
    head = f"program  step\n  mesh {mesh}\n  partitioners {partitioners}\n"
    text = "\n".join([f"sdyscope snapshot 2\n\n{head}  stages requested, lowered\n", *blocks])
    return read_snapshots(text)[0]


def block(kind, name, type_, requested, lowered="="):
    return f"{kind}  {name}  {type_}\n  requested {requested}\n  lowered {lowered}\n"


def text(changes):
    return "\n".join(one.text for one in views.comparison(changes))


SPECS = [P(), P("a"), P(None, "b"), P(("a", "b")), P("b", "a"), P(None, ("b", "a"))]


@given(
    st.tuples(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4])),
    st.tuples(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4])),
    st.sampled_from(SPECS),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
)
def test_blocks_are_what_jax_says(one, two, spec, units):
    shape = tuple(16 * unit for unit in units)
    meshes = [AbstractMesh(sizes, ("a", "b")) for sizes in (one, two)]
    want = [NamedSharding(mesh, spec).shard_shape(shape) for mesh in meshes]
    words = "replicated" if spec == P() else str(spec).removeprefix("PartitionSpec")
    words = words if words.startswith(("P", "replicated")) else f"P{words}"
    taken = [
        snapshot(
            f"a={sizes[0]}, b={sizes[1]}",
            block("argument", "w", f"bf16[{shape[0]},{shape[1]}]", words),
        )
        for sizes in (one, two)
    ]
    blocks = compare(*taken).blocks
    if one == two:
        assert blocks is None
        return
    (total,) = blocks.totals
    assert (total.before, total.after) == tuple(2 * a * b for a, b in want)
    if want[0] == want[1]:
        assert (blocks.changes, blocks.same) == ((), 1)
        return
    (change,) = blocks.changes
    assert [change.before.shape, change.after.shape] == want
    assert [change.before.bytes, change.after.bytes] == [2 * a * b for a, b in want]


LAYERS = (
    block("argument", "layers[{0..3}]['w1']", "f32[8,8]", "P('a', None)"),
    block("argument", "state['w1']", "f32[8,8]", "P('a', None)"),
    block("argument", "count", "i32[]", "replicated"),
    block("value", "layer{0..3}", "f32[8,8]", "nothing", "P('a', None)"),
)


def test_tensors_that_are_alike_stand_together():
    comparison = compare(snapshot("a=2", *LAYERS), snapshot("a=4", *LAYERS))
    (change,) = comparison.blocks.changes
    assert [(tensor.kind, tensor.name, tensor.count) for tensor in change.tensors] == [
        ("argument", "state['w1']", 1),
        ("argument", "layers[{0..3}]['w1']", 4),
        ("value", "layer{0..3}", 4),
    ]
    assert comparison.blocks.same == 1
    said = text(comparison)
    assert "all arguments: 644 B -> 324 B" in said
    assert "P('a', None) of f32[8,8]: [4,8] -> [2,8], 128 B -> 64 B" in said
    assert "state['w1'], layers[{0..3}]['w1'], value layer{0..3}" in said
    assert "the same blocks of 1 other tensor" in said


def test_of_values_inside_those_that_change_most_are_told():
    sizes = range(8, 48, 8)
    inside = [block("value", f"s{n}", f"f32[{n},8]", "nothing", "P('a', None)") for n in sizes]
    taken = [snapshot(f"a={size}", LAYERS[0], *inside) for size in (2, 4)]
    comparison = compare(*taken)
    assert len(comparison.blocks.changes) == 5
    said = text(comparison)
    assert "layers[{0..3}]['w1'], value s8" in said
    assert all(f"f32[{n},8]" in said for n in (40, 32, 24))
    assert "f32[16,8]" not in said
    assert "other blocks of 1 value inside" in said


def test_amounts_that_round_alike_are_told_in_bytes():
    type_ = "f32[300000,8]"
    lines = (
        block("argument", "x", type_, "replicated"),
        block("argument", "y", "f32[8,8]", "P('a', None)"),
    )
    comparison = compare(snapshot("a=2", *lines), snapshot("a=4", *lines))
    assert "all arguments: 9,600,128 B -> 9,600,064 B" in text(comparison)


def test_another_spec_and_another_type_are_told_with_their_blocks():
    taken = snapshot("a=2", block("argument", "x", "f32[8,8]", "P('a', None)"))
    two = snapshot("b=4", block("argument", "x", "f32[16,8]", "P(None, 'b')"))
    comparison = compare(taken, two)
    assert not comparison.blocks.changes[0].same_spec
    words = (
        "P('a', None) -> P(None, 'b') of f32[8,8] -> f32[16,8]: [4,8] -> [16,2], 128 B as before"
    )
    assert words in text(comparison)


def test_partitioners_that_differ_are_told_apart():
    lines = "argument  x  f32[8,8]\n  lowered shardy: P('a', None)\n  lowered gspmd: replicated\n"
    taken = [snapshot(mesh, lines, partitioners="shardy, gspmd") for mesh in ("a=2", "a=4")]
    comparison = compare(*taken)
    (change,) = comparison.blocks.changes
    assert change.partitioner == "shardy"
    said = text(comparison)
    assert "under Shardy, P('a', None) of f32[8,8]: [4,8] -> [2,8]" in said
    assert "all arguments under GSPMD: 256 B as before" in said


@pytest.mark.parametrize(
    "sharding",
    [
        "nothing",
        "not in the module",
        "dim 0 split 2 ways over a",
        "P('z', None)",
        "P('a', None, None)",
    ],
)
def test_what_is_not_known_is_counted(sharding):
    lines = block("argument", "x", "f32[8,8]", sharding)
    comparison = compare(snapshot("a=2", lines), snapshot("a=4", lines))
    assert (comparison.blocks.unknown, comparison.blocks.totals) == (1, ())
    assert "of 1 it is not known" in text(comparison)


@pytest.mark.parametrize(
    ("form", "blocks"),
    [
        ("[{a:(1)2}, {}]", None),
        ("[{a, ?}, {}]", ((2, 8), (1, 8))),
        ("[{?}, {a}p1]", ((8, 2), (8, 1))),
        ("[{}, {?}], replicated={a}", None),
        # As versions before 4 wrote it.
        ('[{"a":(1)2}, {}]', None),
        ('[{"a", ?}, {}]', ((2, 8), (1, 8))),
    ],
)
def test_shardings_in_shardys_form(form, blocks):
    lines = block("argument", "x", "f32[8,8]", form.replace("{", "\\{").replace("}", "\\}"))
    found = compare(snapshot("a=4", lines), snapshot("a=8", lines)).blocks
    if blocks is None:
        assert (found.changes, found.same) == ((), 1)
    else:
        assert (found.changes[0].before.shape, found.changes[0].after.shape) == blocks


def test_meshes_that_are_not_known_by_their_axes_have_no_blocks():
    lines = block("argument", "x", "f32[8,8]", "P('a', None)")
    assert compare(snapshot("a=2; a=4, b=2", lines), snapshot("a=2", lines)).blocks is None
    # Another order of the devices makes no other blocks.
    other = compare(snapshot("a=2; devices 1,0", lines), snapshot("a=2", lines))
    assert (other.blocks.changes, other.blocks.same) == ((), 1)
