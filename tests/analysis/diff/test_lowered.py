"""diff: what is no difference stays quiet, and every annotation that changes is named."""

import random
import re
from functools import cache

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P

from sdyscope.annotations import read_annotations
from sdyscope.errors import CompilerError, TargetError
from sdyscope.facts.program import Program
from sdyscope.inspection import Inspection
from sdyscope.stages import compat
from sdyscope.stages.lowered.read import read_bytes
from sdyscope.targets import resolve
from sdyscope.values.mesh import Mesh
from sdyscope.words.differences import lone_mesh_text, lowered_notes
from sdyscope.words.sharding import open_text
from tests.programs import PROGRAMS
from tests.user_programs import USER_PROGRAMS

PARTITIONERS = ("shardy", "gspmd")


@cache
def text(partitioner, **settings):
    program = resolve("mlp", settings=settings)
    return Inspection(program, [partitioner]).lowered[partitioner].text()


def module(source):
    return Inspection(read_bytes(source.encode()))


def differences(one, two):
    return module(one).diff(module(two))


def as_is(source):
    return source


def values_renamed(source):
    return re.sub(r"%(\w+)", r"%value_\1", source)


def program_renamed(source):
    return source.replace("jit_step", "jit_other").replace("jit(step)", "jit(other)")


def lines_moved(source):
    return re.sub(r'(\.py":)(\d+)', lambda match: f"{match[1]}{int(match[2]) + 1000}", source)


def locations_renumbered(source):
    return re.sub(r"#loc(\d*)\b", lambda match: f"#loc{int(match[1] or 0) + 5000}", source)


def arguments_numbered_otherwise(source):
    """An inner function gets another number, as when one more was lowered before it."""
    return re.sub(r"@(_?[a-z]\w*)\b(?=\()", r"@\1_7", source).replace("@main_7", "@main")


def reordered(source, random):
    """The ops of main in another order in which each value is still defined before it is used."""
    head, start, rest = source.partition("func.func public @main")
    signature, brace, rest = rest.partition("{\n")
    # The braces of attributes come before that of the body, which ends its line.
    body, end, tail = rest.partition("    return ")
    waiting, done, lines = body.splitlines(), set(), []
    defined = {name for line in waiting for name in re.findall(r"^\s*(%\w+)", line)}
    while waiting:
        ready = [
            line
            for line in waiting
            if all(use in done for use in re.findall(r"%\w+", line)[1:] if use in defined)
        ]
        chosen = random.choice(ready)
        waiting.remove(chosen)
        done.update(re.findall(r"^\s*(%\w+)", chosen))
        lines.append(chosen)
    return f"{head}{start}{signature}{brace}" + "\n".join(lines) + f"\n{end}{tail}"


@pytest.mark.parametrize("partitioner", PARTITIONERS)
@pytest.mark.parametrize(
    "change",
    [
        as_is,
        values_renamed,
        program_renamed,
        lines_moved,
        locations_renumbered,
        arguments_numbered_otherwise,
    ],
)
def test_no_difference(change, partitioner):
    source = text(partitioner)
    changed = change(source)
    assert change is as_is or changed != source
    differing = differences(source, changed)
    assert differing.same, differing
    assert differing.same_tensors == 22


@settings(max_examples=40)
@given(st.randoms(use_true_random=False), st.sampled_from(PARTITIONERS))
def test_another_order_of_ops_is_no_difference(random, partitioner):
    source = text(partitioner)
    differing = differences(source, values_renamed(reordered(source, random)))
    assert differing.same, differing


def test_the_orders_are_others():
    source = text("shardy")
    assert reordered(source, random.Random(0)) != source


@pytest.mark.parametrize("name", [*USER_PROGRAMS, *PROGRAMS])
def test_nothing_differs_from_itself(name):
    if name in PROGRAMS:
        program = Program(name, *PROGRAMS[name])
    else:
        mesh = compat.abstract_mesh(Mesh.of({"data": 2, "model": 2, "spare": 2}))
        program = USER_PROGRAMS[name](mesh)
    try:
        modules = Inspection(program).lowered.values()
    except CompilerError:
        return  # This JAX can't lower it, which is test_check's to judge.
    for lowered in modules:
        diff = Inspection(program).diff(Inspection(program))
        assert diff.same, diff
        reread = differences(lowered.text(), lowered.text())
        assert reread.same, reread
        assert (reread.tensors, reread.ops, reread.meshes) == ((), (), ())


# --- what is a difference -------------------------------------------------------------------------

SHARDY = re.compile(r"<@mesh, \[[^\]]*\]>")
GSPMD = re.compile(r'(?<=mhlo\.sharding = )"[^"]*"')


def another_shardy(match):
    dims = re.search(r"\[(.*)\]", match[0])[1]
    each = re.findall(r"\{[^}]*\}", dims)
    if not each:
        return None
    free = [axis for axis in ("data", "model") if axis not in dims]
    each[-1] = f'{{"{free[0]}"}}' if free and each[-1] == "{}" else "{?}"
    return match[0].replace(f"[{dims}]", f"[{', '.join(each)}]")


def another_gspmd(match):
    if match[0] == '"{replicated}"':
        return None
    return '"{replicated}"'


@pytest.mark.parametrize(
    ("partitioner", "pattern", "another"),
    [("shardy", SHARDY, another_shardy), ("gspmd", GSPMD, another_gspmd)],
)
def test_every_changed_annotation_is_found(partitioner, pattern, another):
    source = text(partitioner)
    before = module(source)
    seen = set()
    for place in pattern.finditer(source):
        other = another(place)
        if other is None:
            continue
        assert other != place[0]
        after = module(source[: place.start()] + other + source[place.end() :])
        diff = before.diff(after)
        (only,) = diff.tensors
        assert only.change == "changed"
        assert set(only.what) <= {"placement", "open dimensions"}
        assert only.what
        assert open_text(only.a.sharding) != open_text(only.b.sharding)
        # It is the only one that is written otherwise, and it is the one that is named.
        olds, news = read_annotations(before.graph()), read_annotations(after.graph())
        (changed,) = [
            k for k, (x, y) in enumerate(zip(olds, news, strict=True)) if x.text != y.text
        ]
        assert (only.kind, only.tensor) == (olds[changed].kind, olds[changed].path)
        assert only.a is not None
        assert only.a.source == olds[changed].source
        seen.add(changed)
        assert (diff.meshes, diff.ops, diff.same_tensors) == ((), (), 21)
    # All but the scalars.
    assert len(seen) == 19


def test_another_mesh():
    source = text("shardy")
    differing = differences(source, source.replace('"data"=4, "model"=2', '"data"=2, "model"=4'))
    assert [lone_mesh_text(mesh) for mesh in differing.meshes] == [
        "Only jit_step (a) has this mesh: data=4 x model=2, 8 devices.",
        "Only jit_step (b) has this mesh: data=2 x model=4, 8 devices.",
    ]
    assert {difference.what for difference in differing.tensors} == {("placement",)}


def test_another_type():
    one, two = text("shardy"), text("shardy", batch="32")
    differing = differences(one, two)
    types = {d.tensor: d.what for d in differing.tensors}
    assert types["batch['x']"] == ("type",)
    assert "params['w1']" not in types
    assert all(op.count_a == op.count_b for op in differing.ops), "other types, not other ops"
    by_type = [op for op in differing.ops if op.types_a or op.types_b]
    assert all(op.types_a and op.types_b for op in by_type)
    # What a mean divides by is a constant of the same type.
    assert {op.kind for op in differing.ops if op not in by_type} == {"stablehlo.constant"}


def test_constraints_that_are_gone():
    differing = differences(text("shardy"), text("shardy", constrained="false"))
    assert [(d.kind, d.change) for d in differing.tensors] == [("constraint", "only in a")] * 5
    assert differing.ops == (), "a constraint is a tensor, not once more an op"


def test_other_ops():
    source = text("gspmd")
    differing = differences(source, source.replace("stablehlo.tanh %", "stablehlo.sine %", 1))
    assert differing.tensors == ()
    assert {(op.kind, op.count_a - op.count_b) for op in differing.ops} == {
        ("stablehlo.tanh", 1),
        ("stablehlo.sine", -1),
    }


def test_other_attributes_of_the_same_ops():
    form = """
module @m {{
  func.func public @main(%arg0: tensor<8x8xf32>) -> tensor<8x8xf32> {{
    %0 = stablehlo.dot_general %arg0, %arg0, contracting_dims = [{0}] x [0] : (tensor<8x8xf32>,
        tensor<8x8xf32>) -> tensor<8x8xf32>
    return %0 : tensor<8x8xf32>
  }}
}}
"""
    differing = differences(form.format(1), form.format(0))
    assert (differing.tensors, differing.same) == ((), False)
    (op,) = differing.ops
    assert (op.kind, op.types_a, op.size) == ("stablehlo.dot_general", {}, 1)
    assert op.attributes_a == {"lhs_contracting_dimensions = (1,)": 1}
    assert op.attributes_b == {"lhs_contracting_dimensions = (0,)": 1}


@pytest.mark.parametrize(
    ("written", "what"),
    [
        ('[{"data"}p1, {?}]', "priorities"),
        ('[{"data"}, {?}], replicated={"model"}', "replicated axes"),
    ],
)
def test_what_directs_propagation_is_a_difference_though_it_places_nothing(written, what):
    form = """
module @m attributes {{mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32}} {{
  sdy.mesh @mesh = <["data"=4, "model"=2]>
  func.func public @main(%arg0: tensor<8x8xf32> {{sdy.sharding = #sdy.sharding<@mesh, {0}>}})
      -> tensor<8x8xf32> {{
    return %arg0 : tensor<8x8xf32>
  }}
}}
"""
    plain = form.format('[{"data"}, {?}]')
    (difference,) = differences(plain, form.format(written)).tensors
    assert difference.what == (what,)
    assert differences(plain, plain).same


def test_a_constraint_that_is_new_is_not_the_one_of_another_type():
    """Under one path, on values that are computed otherwise, in another folder."""
    form = """
module @m attributes {{mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32}} {{
  sdy.mesh @mesh = <["data"=4, "model"=2]>
  func.func public @main(%arg0: tensor<8x8xf32>, %arg1: tensor<8x16xf32>)
      -> (tensor<8x8xf32>, tensor<8x16xf32>) {{
{0}    return %0, %1 : tensor<8x8xf32>, tensor<8x16xf32>
  }}
}}
#l3 = loc("{1}/train.py":3:4)
#l4 = loc("{1}/train.py":4:4)
#at3 = loc("jit(f)/sharding_constraint"(#l3))
#at4 = loc("jit(f)/sharding_constraint"(#l4))
"""
    op = "    %{0} = stablehlo.{1} %arg{0} : tensor<8x{2}xf32>\n"
    on = (
        "    %c{0} = sdy.sharding_constraint %{0} <@mesh, [{{{1}}}, {{}}]> : tensor<8x{2}xf32>"
        " loc(#at{3})\n"
    )
    a = [op.format(0, "tanh", 8), on.format(0, '"data"', 8, 3), op.format(1, "tanh", 16)]
    b = [
        *(op.format(1, "tanh", 16), on.format(1, '"model"', 16, 4)),
        *(op.format(0, "sine", 8), on.format(0, '"model"', 8, 3)),
    ]
    differing = differences(form.format("".join(a), "a"), form.format("".join(b), "b"))
    sides = [
        tuple(side and side.annotation.shape for side in (difference.a, difference.b))
        for difference in differing.tensors
    ]
    assert sides == [((8, 8), (8, 8)), (None, (8, 16))]


def test_one_more_argument_is_the_only_difference():
    source = text("shardy")
    more = source.replace("@main(", '@main(%extra: tensor<4xf32> loc("extra"), ', 1)
    differing = differences(source, more)
    assert [(d.tensor, d.change) for d in differing.tensors] == [("extra", "only in b")]
    assert differing.same_tensors == 22


def test_one_program_under_both_partitioners():
    diff = Inspection(resolve("mlp")).diff()
    assert (diff.a, diff.b, diff.same, diff.same_tensors) == (*PARTITIONERS, True, 22)


def test_files_for_different_partitioners():
    differing = differences(text("shardy"), text("gspmd"))
    assert differing.same
    assert any("Ops not compared" in note for note in lowered_notes(differing))


def test_one_module_alone_has_nothing_to_be_compared_with():
    with pytest.raises(TargetError, match="nothing to compare it with"):
        module(text("shardy")).diff()


def mapped(partitioner, *results):
    """A shard_map that returns what is named, each with its own sharding."""
    mesh = jax.sharding.AbstractMesh((4, 2), ("x", "y"))
    made = {
        "first": (lambda a: a[:, 0], P("x")),
        "second": (lambda a: a * 2, P("x", "y")),
        "third": (lambda a: a[0] + 1, P("y")),
        "more": (lambda a: a[:1] - 1, P("x", None)),
    }
    bodies, specs = zip(*(made[name] for name in results), strict=True)
    whole = jax.shard_map(
        lambda a: tuple(body(a) for body in bodies),
        mesh=mesh,
        in_specs=P("x", "y"),
        out_specs=specs,
        check_vma=False,
    )
    argument = jax.ShapeDtypeStruct(
        (8, 4), jnp.float32, sharding=jax.sharding.NamedSharding(mesh, P("x", "y"))
    )
    return Inspection(
        Program("f", jax.jit(lambda a: sum(map(jnp.sum, whole(a)))), (argument,)), [partitioner]
    )


@pytest.mark.parametrize("partitioner", PARTITIONERS)
@pytest.mark.parametrize(
    "more", [("more", "first", "second", "third"), ("first", "more", "second", "third")]
)
def test_one_result_more_of_a_shard_map_is_one_difference(partitioner, more):
    """JAX returns as many residuals as a backward pass needs, before what it returned already."""
    one = mapped(partitioner, "first", "second", "third")
    diff = one.diff(mapped(partitioner, *more))
    outputs = [row for row in diff.tensors if row.kind == "shard_map output"]
    assert [row.change for row in outputs] == ["only in b"]
    # As many with another among them are compared by their number.
    changed = mapped(partitioner, "first", "more", "third").diff(one)
    outputs = [row for row in changed.tensors if row.kind == "shard_map output"]
    assert [(row.change, row.tensor.count("#1")) for row in outputs] == [("changed", 1)]
