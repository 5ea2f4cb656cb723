"""The text reader against the bindings' reader, and on what the bindings refuse."""

import re

import pytest
from graph_modules import CASES, lowered, parse, text_of
from hypothesis import given
from hypothesis import strategies as st
from jax._src.lib.mlir import passmanager

from sdyscope.graph import build, read_text

FORMS = ("pretty", "generic")


def same(read, built, *, names=True, locations=True):
    """Asserts that two graphs say the same."""
    assert len(read) == len(built)
    for one, other in zip(read.ops, built.ops, strict=True):
        assert one.id == other.id
        for field in ("kind", "types", "shardings", "function", "parent", "region", "block"):
            assert getattr(one, field) == getattr(other, field), (one, other, field)
        assert one.argument == other.argument
        # Which the bindings have from JAX 0.12 on, and the text leaves out where it is the default.
        ours, theirs = ({**op.attributes, "reduction_op": None} for op in (one, other))
        assert ours == theirs
        assert one.result == other.result
        # What `applies stablehlo.add` stands for has no names in the text.
        if names and one.name:
            assert one.name == other.name
        # A block argument without a location gets one in the MLIR file from MLIR's parser.
        in_file = other.source is not None and other.source.file == "-"
        if locations and not in_file:
            assert one.location == other.location
    assert edge_values(read) == edge_values(built)
    assert (read.name, dict(read.attributes)) == (built.name, dict(built.attributes))
    assert (read.meshes, list(read.functions)) == (built.meshes, list(built.functions))
    for one, other in zip(read.functions.values(), built.functions.values(), strict=True):
        assert (one.op, one.visibility, one.results) == (other.op, other.visibility, other.results)
        for argument, like in zip(one.arguments, other.arguments, strict=True):
            assert (argument.node, argument.type) == (like.node, like.type)
            assert (argument.sharding, argument.attributes) == (like.sharding, like.attributes)
            if locations:
                assert argument.name == like.name


def edge_values(graph):
    return {(u, v, key): edge for u, v, key, edge in graph.keyed_edges()}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("name", "partitioner"), CASES)
def test_reads_what_the_bindings_read(name, partitioner, form):
    text = text_of(lowered(name, partitioner), generic=form == "generic")
    read = read_text(text)
    assert read.not_understood == []
    assert read.reader == "text"
    same(read, build(parse(text)), names=form == "pretty")


def test_reads_a_text_without_locations():
    text = text_of(lowered("regions", "shardy"), locations=False)
    read = read_text(text)
    same(read, build(parse(text)), locations=False)
    assert all(op.scope == "" for op in read.without_results())
    # As MLIR has it, an op is then where it stands in the text.
    assert {op.source.file for op in read.without_results() if op.source} == {"-"}


@pytest.mark.parametrize(
    "passes",
    [
        "sdy-import-pipeline,sdy-user-priority-propagate{debug-sharding-origins=true "
        "debug-propagation-edge-sharding=true keep-sharding-rules=true}",
        "sdy-import-pipeline,sdy-user-priority-propagate,sdy-close-shardings,"
        "func.func(sdy-insert-explicit-reshards{enable-full-version=true},"
        "sdy-sharding-constraint-to-reshard),canonicalize{enable-patterns=sdy-reshard},"
        "func.func(sdy-reshard-to-collectives)",
    ],
    ids=["propagated", "collectives"],
)
def test_reads_what_shardys_passes_write(passes):
    module = parse(text_of(lowered("layers", "shardy")))
    with module.context:
        pipeline = passmanager.PassManager.parse(f"builtin.module({passes})")
        pipeline.enable_verifier(False)
        pipeline.run(module.operation)
    text = text_of(module)
    built = build(module)
    read = read_text(text)
    assert read.not_understood == [] == built.not_understood
    same(read, built)
    attributes = {name for op in built.ops for name in op.attributes}
    wanted = {"propagation_edges": "sdy.propagation_edges", "all_": "out_sharding"}
    assert any(name in attributes for piece, name in wanted.items() if piece in text)


def test_goes_on_after_what_it_does_not_understand():
    text = text_of(lowered("layers", "shardy"))
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if "stablehlo.dot_general" in line)
    broken = [*lines[:at], "    <<< what is this?", *lines[at:]]
    read = read_text("\n".join(broken))
    (item,) = read.not_understood
    assert (item.line, item.text) == (at + 1, "<<< what is this?")
    assert len(read) == len(build(parse(text)))


def test_lists_an_op_whose_bracket_never_closes():
    read = read_text("""module {
  func.func @main(%a: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.add %a, (%a : tensor<f32>
    %1 = stablehlo.multiply %a, %0 : tensor<f32>
    return %1 : tensor<f32>
  }
}
""")
    assert [(item.line, item.error) for item in read.not_understood] == [
        (3, "a bracket is not closed"),
        (4, "a value that nothing defines"),
    ]
    assert [op.kind for op in read.operations()] == [
        "builtin.module",
        "func.func",
        "stablehlo.multiply",
        "func.return",
    ]


def test_lists_shardings_of_a_newer_syntax():
    read = read_text("""module @m {
  sdy.mesh @mesh = <["a"=4, wrapped]>
  func.func @main(%x: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"} twisted]>}) {
    %0 = new.op %x {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{}]>]>} : tensor<8xf32>
    %1 = stablehlo.custom_call @Sharding(%0) {mhlo.sharding = "{rings=[4]}"}
        : (tensor<8xf32>) -> tensor<8xf32>
    return
  }
}
""")
    assert [(item.op, item.attribute) for item in read.not_understood] == [
        (1, "mesh"),
        (3, "sdy.sharding"),
        (5, "mhlo.sharding"),
    ]
    assert read.meshes == {"mesh": '#sdy.mesh<["a"=4, wrapped]>'}
    assert read.ops[5].shardings == ("{rings=[4]}",)
    assert str(read.ops[4].shardings[0]) == "<@mesh, [{}]>"


def test_every_form_of_location():
    text = r"""
#a = loc("a.py":1:2)
#f = loc("f"(#a))
#g = loc("g"("b.py":3:4 to :9))
#call = loc(callsite(#f at #g))
module {
  "x.a"() : () -> () loc(#call)
  "x.b"() : () -> () loc("jit(f)/add"(#call))
  "x.c"() : () -> () loc(fused<"pass">["jit(f)/mul"(#f), "other", unknown])
  "x.d"() : () -> () loc("sid3"("jit(f)/sub"(callsite(#f at callsite(#g at #call)))))
  "x.e"() : () -> () loc("scatter-add:"("scatter-add"))
  "x.f"() : () -> () loc("a\22b\\\C3\A9"("c d.py":1:2 to 3:4))
  "x.g"() : () -> () loc(unknown)
  "x.h"() : () -> () loc(fused[#a, "b"(#g)])
  "x.i"() : () -> () loc("jit(f)/tag"("jit(f)/exp"("a.py":1:2)))
} loc("module")
"""
    read = read_text(text)
    same(read, build(parse(text, unregistered=True)))
    scopes = [op.scope for op in read.ops]
    assert scopes == [
        "module",
        "",
        "jit(f)/add",
        "jit(f)/mul",
        "jit(f)/sub",
        "scatter-add",
        'a"b\\é',
        "",
        "b",
        "jit(f)/exp",
    ]
    lines = [[f"{f.function} {f}" for f in op.location.frames] for op in read.ops]
    assert lines[1] == lines[2] == ["f a.py:1", "g b.py:3"]
    assert lines[3] == ["f a.py:1"]
    assert lines[4] == ["f a.py:1", "g b.py:3", "f a.py:1", "g b.py:3"]
    assert lines[6] == [" c d.py:1"]
    assert read.ops[4].location.names == ("sid3", "jit(f)/sub")


def test_locations_that_cannot_be_read_are_listed():
    read = read_text(
        'module {\n  "x.a"() : () -> () loc(#gone)\n  "x.b"() : () -> () loc(odd 3)\n}'
    )
    assert [(item.text, item.line) for item in read.not_understood] == [
        ("loc(#gone)", 2),
        ("loc(odd 3)", 3),
    ]
    assert len(read) == 3


def test_reductions_of_several_inputs():
    text = """
func.func @main(%a: tensor<2x3xf32>, %b: tensor<2x3xi32>, %x: tensor<f32>, %y: tensor<i32>)
    -> (tensor<2xf32>, tensor<2xi32>) {
  %0:2 = stablehlo.reduce(%a init: %x), (%b init: %y) across dimensions = [1]
      : (tensor<2x3xf32>, tensor<2x3xi32>, tensor<f32>, tensor<i32>)
      -> (tensor<2xf32>, tensor<2xi32>)
    reducer(%p: tensor<f32>, %q: tensor<f32>) (%r: tensor<i32>, %s: tensor<i32>)  {
    %1 = stablehlo.add %p, %q : tensor<f32>
    %2 = stablehlo.add %r, %s : tensor<i32>
    stablehlo.return %1, %2 : tensor<f32>, tensor<i32>
  }
  return %0#0, %0#1 : tensor<2xf32>, tensor<2xi32>
}"""
    read = read_text(text)
    # Both readers put a function that stands alone into a module.
    same(read, build(parse(text)), names=False, locations=False)


def test_ops_on_one_line():
    text = "%0 = a.b : i1 %1, %2 = a.c %0 : i1, i8 %3 = a.d %2, %1 : i32"
    read = read_text(f"module {{ {text} }}")
    assert [(op.kind, op.name, [t.text for t in op.types]) for op in read.ops[1:]] == [
        ("a.b", "%0", ["i1"]),
        ("a.c", "%1", ["i1", "i8"]),
        ("a.d", "%3", ["i32"]),
    ]
    assert [(producer.id, use.result) for producer, use in read.operands(3)] == [(2, 1), (2, 0)]


def test_nesting_beyond_reason():
    deep = 2000
    value = read_text(f"module attributes {{x.a = {'[' * deep}{']' * deep}}} {{\n}}")
    assert [item.attribute for item in value.not_understood] == ["x.a"]
    place = "callsite(" * deep + '"a"' + ' at "b")' * deep
    read = read_text(f'module {{\n  "x.a"() : () -> () loc({place})\n}}')
    assert [item.attribute for item in read.not_understood] == ["loc"]
    regions = read_text('"x.a"() ({\n' * deep + "}) : () -> ()\n" * deep)
    assert len(regions) == deep + 1


@pytest.mark.parametrize(
    "text", ["", "\n\n", "\0\1\2", "not mlir at all", "}}}", "module {", "{{{("]
)
def test_any_text_is_a_module(text):
    read = read_text(text)
    assert read.ops[0].kind == "builtin.module"
    assert bool(read.not_understood) == bool(text.strip())


PIECES = re.findall(r"\s+|[\w.]+|.", text_of(lowered("layers", "shardy"))[:4000])


@given(st.data())
def test_never_fails_on_damaged_text(data):
    start = data.draw(st.integers(0, len(PIECES)))
    length = data.draw(st.integers(0, 40))
    extra = data.draw(st.text(max_size=10))
    read = read_text("".join([*PIECES[:start], extra, *PIECES[start + length :]]))
    assert read.ops[0].kind == "builtin.module"


@pytest.mark.parametrize(
    "line",
    ["%0 = stablehlo.reduce applies", '"x.a"() {x.b = {,}} : () -> ()', "%0 =", '"x.a"(', "^bb0("],
)
def test_lines_that_stop_short(line):
    read = read_text(f"module {{\n{line}\n}}\n")
    assert read.ops[0].kind == "builtin.module"


def test_results_of_main_whose_values_are_not_defined():
    graph = read_text("""
        module {
          func.func @main(%a: tensor<2xf32>) -> (tensor<2xf32>, tensor<3xf32>, tensor<2xf32>) {
            %0 = stablehlo.abs %a : tensor<2xf32>
            return %0, %nothing, %a : tensor<2xf32>, tensor<3xf32>, tensor<2xf32>
          }
        }""")
    assert [item.text for item in graph.not_understood] == ["%nothing"]
    names = {index: graph.ops[node].name for index, (node, _) in graph.returned.items()}
    assert names == {0: "%0", 2: "%a"}
    assert [len(graph.entering(result)) for result in graph.results()] == [1, 0, 1]
    assert [(source, target[0]) for _, source, target in graph.crossings()] == [
        (graph.returned[index], graph.main.results[index].node) for index in (0, 2)
    ]


@pytest.mark.parametrize(
    ("form", "kept"),
    [
        ("weird 1", "weird 1"),
        ("[1, 2] x [3]", "[ 1 , 2 ] x [ 3 ]"),
        ('"s" mode<fast>', '"s" mode < fast >'),
        ("@symbol", "@symbol"),
    ],
)
def test_a_form_that_is_not_known_is_kept(form, kept):
    graph = read_text(f"""
module @m {{
  func.func public @main(%arg0: tensor<4xf32>) -> tensor<4xf32> {{
    %0 = foo.bar %arg0, {form} {{k = 1}} : tensor<4xf32> loc("bar")
    %1 = foo.bar %arg0 {{k = 1}} : tensor<4xf32>
    return %0 : tensor<4xf32>
  }}
}}
""")
    known, plain = (op.attributes for op in graph.ops if op.kind == "foo.bar")
    assert (known, plain) == ({"k": 1, "assembly": kept}, {"k": 1})
    assert [name for _, name in graph.unparsed()] == ["assembly"]
