"""Which arguments a step reads only in part."""

from functools import partial

import jax
import jax.numpy as jnp

from sdyscope.analysis.cost.lookups import looked_up
from sdyscope.facts.program import Program
from sdyscope.inspection import Inspection

TABLE = jax.ShapeDtypeStruct((64, 8), jnp.float32)
IDS = jax.ShapeDtypeStruct((4,), jnp.int32)


def names(step, *args):
    return looked_up(Inspection(Program("step", jax.jit(step), args), ("shardy",)).graph("shardy"))


def test_a_table_is_looked_up_also_in_a_function_that_is_called():
    assert names(lambda table, ids: table[ids], TABLE, IDS) == ("table",)
    assert names(lambda table, ids: jnp.take(table, ids, axis=0), TABLE, IDS) == ("table",)
    cache = jax.ShapeDtypeStruct((1, 8), jnp.float32)
    update = jax.lax.dynamic_update_index_in_dim
    assert names(lambda c, x, n: update(c, x, n, 0), TABLE, cache, IDS.update(shape=())) == ("c",)


def test_what_is_sliced_or_returned_is_not_read_whole():
    assert names(lambda table, x: x + table[:4], TABLE, TABLE.update(shape=(4, 8))) == ("table",)
    assert names(lambda table, x: (table, x + 1), TABLE, IDS) == ("table",)
    bf16 = lambda table, ids: table.astype(jnp.bfloat16)[ids]  # noqa: E731
    assert names(bf16, TABLE, IDS) == ("table",)
    switch = lambda table, ids: jax.lax.cond(ids[0] > 0, lambda: table[ids], lambda: table[:4])  # noqa: E731
    assert names(switch, TABLE, IDS) == ("table",)


def test_what_is_also_read_whole_is_not():
    # A cache that is written to, and then read.
    update = jax.lax.dynamic_update_index_in_dim
    cache = jax.ShapeDtypeStruct((1, 8), jnp.float32)
    attended = lambda c, x, n: (new := update(c, x, n, 0), (new * 2).sum())  # noqa: E731
    assert names(attended, TABLE, cache, IDS.update(shape=())) == ()
    # Layers one by one.
    assert names(lambda w: sum(jnp.tanh(w[i]) for i in range(64)), TABLE) == ()
    assert names(lambda table, ids: table[ids] @ table.T, TABLE, IDS) == ()
    # A scan reads each layer once.
    layers = jax.ShapeDtypeStruct((3, 8, 8), jnp.float32)
    x = jax.ShapeDtypeStruct((4, 8), jnp.float32)
    for reverse in (False, True):
        scanned = lambda w, x: jax.lax.scan(  # noqa: E731
            lambda h, w: (h @ w, None),
            x,
            w,
            reverse=reverse,  # noqa: B023
        )[0]
        assert names(scanned, layers, x) == ()
        assert names(jax.grad(lambda w, x: scanned(w, x).sum()), layers, x) == ()  # noqa: B023


def test_a_loop_reads_what_it_counts_to():
    layers, x = jax.ShapeDtypeStruct((6, 8, 8), jnp.float32), TABLE

    def counted(first, limit, of=lambda i: i):
        body = lambda w: lambda i, h: h @ w[of(i)]  # noqa: E731
        return lambda w, x: jax.lax.fori_loop(first, limit, body(w), x)

    assert names(counted(0, 6), layers, x) == ()
    assert names(counted(0, 6, lambda i: 5 - i), layers, x) == ()
    assert names(counted(2, 6), layers, x) == ("w",)
    assert names(counted(0, 6, lambda i: i // 2), layers, x) == ("w",)
    # Two loops count together.
    nested = lambda w, x: jax.lax.fori_loop(  # noqa: E731
        0, 3, lambda i, h: jax.lax.fori_loop(0, 2, lambda j, h: h @ w[2 * i + j], h), x
    )
    assert names(nested, layers, x) == ()
    # How far is not known before it runs.
    ragged = lambda w, x, n: jax.lax.fori_loop(0, n, lambda i, h: h @ w[i], x)  # noqa: E731
    assert names(ragged, layers, x, IDS.update(shape=())) == ("w",)


def test_a_loop_looks_up_where_data_say():
    table = jax.ShapeDtypeStruct((8,), jnp.int32)
    step = lambda table, i: jax.lax.scan(lambda i, _: (table[i],) * 2, i, None, 100)  # noqa: E731
    assert names(step, table, IDS.update(shape=())) == ("table",)


def test_what_is_read_twice_counts_once():
    windows = jax.lax.dynamic_slice
    looped = jax.lax.fori_loop

    def over(count, of):
        return lambda w: looped(0, count, lambda i, h: h + of(w, i), 0.0)

    assert names(lambda w: w[:32].sum() + jnp.tanh(w[:32]).sum(), TABLE) == ("w",)
    assert names(lambda w: w[:40].sum() + jnp.tanh(w[24:]).sum(), TABLE) == ()
    evens, odds = (
        partial(jax.lax.slice, start_indices=(at, 0), limit_indices=(64, 8), strides=(2, 1))
        for at in (0, 1)
    )
    assert names(lambda w: evens(w).sum() + jnp.tanh(odds(w)).sum(), TABLE) == ()
    assert names(lambda w: evens(w).sum() + jnp.tanh(evens(w)).sum(), TABLE) == ("w",)
    # Windows that lie over each other, two loops, and places beyond the end.
    assert names(over(16, lambda w, i: windows(w, (i, 0), (4, 8)).sum()), TABLE) == ("w",)
    assert names(over(16, lambda w, i: windows(w, (4 * i, 0), (4, 8)).sum()), TABLE) == ()
    sums = lambda w, i: looped(0, 8, lambda j, h: h + w[i + j].sum(), 0.0)  # noqa: E731
    assert names(over(8, sums), TABLE) == ("w",)
    assert names(over(57, sums), TABLE) == ()
    beyond = lambda w, i: windows(w, (i + 63, 0), (1, 8)).sum()  # noqa: E731
    assert names(over(64, beyond), TABLE) == ("w",)
    # A ring of half as many, and each of a pair.
    ring = lambda w, i: w[jnp.where(i >= 32, i - 32, i)].sum()  # noqa: E731
    assert names(over(64, ring), TABLE) == ("w",)
    assert names(over(128, lambda w, i: w[i // 2].sum()), TABLE) == ()
    # One loop counts both dimensions: it reads the diagonal.
    square = jax.ShapeDtypeStruct((8, 8), jnp.float32)
    assert names(over(8, lambda w, i: w[i, i]), square) == ("w",)

    def diagonal(w):
        counted = lambda c, _: ((c[0] + 1, c[1] + w[c[0], c[2]], c[2] + 1), None)  # noqa: E731
        return jax.lax.scan(counted, (0, 0.0, 0), None, 64)[0][1]

    assert names(diagonal, TABLE) == ("w",)


def test_of_what_is_sliced_all_is_read():
    tables = jax.ShapeDtypeStruct((3, 64, 8), jnp.float32)
    scanned = lambda tables, ids: jax.lax.scan(  # noqa: E731
        lambda h, table: (h + table[ids].sum(), None), 0.0, tables
    )[0]
    assert names(scanned, tables, IDS) == ("tables",)
    assert names(lambda tables, ids: [tables[i][ids] for i in range(3)], tables, IDS) == ("tables",)
    assert names(lambda w: (w[:32], w[32:]), TABLE) == ()
    # What says which branch is taken is read.
    chosen = lambda w, p: jax.lax.cond(p, lambda: w.sum(), lambda: 0.0)  # noqa: E731
    assert names(chosen, TABLE, jax.ShapeDtypeStruct((), jnp.bool_)) == ()


def test_a_function_that_is_called_for_several_parts():
    taken = jax.jit(lambda w, i: w[i].sum())
    looped = jax.lax.fori_loop
    both = lambda v, w: (  # noqa: E731
        looped(0, 64, lambda i, h: h + taken(v, i), 0.0)
        + looped(0, 32, lambda i, h: h + taken(w, i), 0.0)
    )
    # The function has an argument for both, and reads all of it for one alone.
    assert names(both, TABLE, TABLE) == ("v", "w")
    twice = lambda w: (  # noqa: E731
        looped(0, 64, lambda i, h: h + taken(w, i), 0.0)
        + looped(0, 64, lambda i, h: h + taken(w, 63 - i), 0.0)
    )
    assert names(twice, TABLE) == ()
