# ruff: noqa: E501 - MLIR writes an op on one line
"""Annotations in hand-written modules: what JAX does not write today, and what goes wrong."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from sdyscope import inspect
from sdyscope.annotations import Annotation, num_partitions, read_annotations, split_scope
from sdyscope.graph import build, read_text
from sdyscope.stages import compat

READERS = {
    "bindings": lambda text: build(parsed(text)),
    "text": read_text,
}


def parsed(text: str) -> object:
    context = compat.new_context()
    with context:
        return compat.ir.Module.parse(text)


@pytest.fixture(params=READERS)
def annotated(request):
    return lambda text: read_annotations(READERS[request.param](text))


def rows(annotations: tuple[Annotation, ...]) -> list[tuple[object, ...]]:
    return [(a.kind, a.path, a.index, a.text, a.open_dims, a.ordinal) for a in annotations]


MESH = 'sdy.mesh @mesh = <["a"=4, "b"=2]>'


def test_functions_come_where_they_are_first_called(annotated):
    annotations = annotated(f"""
module @m {{
  {MESH}
  func.func private @second(%arg0: tensor<8xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"b"}}]>}}) -> tensor<8xf32> {{
    %0 = sdy.sharding_constraint %arg0 <@mesh, [{{"b", ?}}]> : tensor<8xf32> loc("jit(m)/two/sharding_constraint")
    return %0 : tensor<8xf32>
  }}
  func.func public @main(%arg0: tensor<8xf32> loc("x")) -> (tensor<8xf32> {{jax.result_info = "result"}}) {{
    %0 = sdy.sharding_constraint %arg0 <@mesh, [{{"a"}}]> : tensor<8xf32> loc("jit(m)/one/sharding_constraint")
    %1 = call @second(%0) : (tensor<8xf32>) -> tensor<8xf32>
    %2 = call @second(%1) : (tensor<8xf32>) -> tensor<8xf32>
    %3 = sdy.sharding_constraint %2 <@mesh, [{{}}]> : tensor<8xf32> loc("jit(m)/three/sharding_constraint")
    return %3 : tensor<8xf32>
  }}
}}""")
    assert rows(annotations) == [
        ("argument", "x", 0, "", (), -1),
        ("result", "result", 0, "", (), -1),
        ("constraint", "jit(m)/one", None, '<@mesh, [{"a"}]>', (), 0),
        ("inner argument", "second(0)", 0, '<@mesh, [{"b"}]>', (), -1),
        ("constraint", "jit(m)/two", None, '<@mesh, [{"b", ?}]>', (0,), 1),
        ("constraint", "jit(m)/three", None, "<@mesh, [{}]>", (), 2),
    ]
    assert annotations[2].name == "%0"
    assert annotations[4].function == "second"


def test_what_jax_writes_for_types_is_not_the_authors(annotated):
    """What a function returns has the location of the call; what a nested jit asks is inside."""
    annotations = annotated(f"""
module @m {{
  {MESH}
  sdy.mesh @empty_mesh = <[]>
  func.func private @relu(%arg0: tensor<8xf32>) -> tensor<8xf32> {{
    %0 = call @inner(%arg0) : (tensor<8xf32>) -> tensor<8xf32> loc("jit(inner)"("m.py":9:2))
    %1 = sdy.sharding_constraint %0 <@mesh, [{{"a"}}]> : tensor<8xf32> loc("jit(m)/jit"("m.py":2:4))
    return %1 : tensor<8xf32>
  }}
  func.func private @inner(%arg0: tensor<8xf32>) -> tensor<8xf32> {{
    return %arg0 : tensor<8xf32>
  }}
  func.func public @main(%arg0: tensor<8xf32> loc("x"), %arg1: tensor<4x2xui32> loc("key")) -> (tensor<8xf32>, tensor<4x2xui32>) {{
    %0 = stablehlo.tanh %arg0 : tensor<8xf32> loc("jit(m)/tanh"("m.py":1:4))
    %1 = sdy.sharding_constraint %0 <@mesh, [{{"a"}}]> : tensor<8xf32> loc("jit(m)/tanh"("m.py":1:4))
    %2 = call @relu(%1) : (tensor<8xf32>) -> tensor<8xf32> loc("jit(m)/jit(relu)"("m.py":2:4))
    %3 = sdy.sharding_constraint %2 <@mesh, [{{"a"}}]> : tensor<8xf32> loc("jit(m)/jit"("m.py":2:4))
    %4 = call @relu(%3) : (tensor<8xf32>) -> tensor<8xf32> loc("jit(m)/jit(relu)"("m.py":3:4))
    %5 = sdy.sharding_constraint %4 <@mesh, [{{"b"}}]> : tensor<8xf32> loc("jit(m)/sharding_constraint"("m.py":3:4))
    %6 = sdy.sharding_constraint %arg1 <@mesh, [{{"a", ?}}, {{}}]> : tensor<4x2xui32> loc("jit(m)/random_split"("m.py":4:4))
    %7 = sdy.sharding_constraint %5 <@mesh, [{{}}]> : tensor<8xf32> loc("jit(m)/call_exported"("m.py":5:4))
    %8 = sdy.sharding_constraint %6 <@empty_mesh, [{{}}, {{}}]> : tensor<4x2xui32> loc("jit(m)"("m.py":6:4))
    return %7, %8 : tensor<8xf32>, tensor<4x2xui32>
  }}
}}""")
    assert [
        (each.primitive, each.source.line, each.is_authored, each.named_kind, each.of_key)
        for each in annotations
        if each.kind == "constraint"
    ] == [
        ("tanh", 1, False, "type", False),
        ("jit", 2, True, "constraint", False),
        ("jit", 2, False, "type", False),
        ("sharding_constraint", 3, True, "constraint", False),
        ("random_split", 4, False, "constraint", False),
        ("call_exported", 5, False, "constraint", False),
        ("", 6, True, "constraint", True),
    ]


def test_what_is_in_a_function_without_lines_has_the_line_of_its_calls(annotated):
    """JAX has no lines for what is inside `jax.nn.relu`; of two lines that call it, neither."""
    calls = """
    %1 = call @relu(%0) : (tensor<8xf32>) -> tensor<8xf32> loc("jit(m)/jit(relu)"("m.py":2:4))
    %2 = call @relu(%1) : (tensor<8xf32>) -> tensor<8xf32> loc("jit(m)/jit(relu)"("m.py":{}:4))
    return %2 : tensor<8xf32>"""
    module = f"""
module @m {{
  {MESH}
  func.func private @relu(%arg0: tensor<8xf32>) -> tensor<8xf32> {{
    %0 = stablehlo.maximum %arg0, %arg0 : tensor<8xf32> loc("max")
    %1 = sdy.sharding_constraint %0 <@mesh, [{{"a"}}]> : tensor<8xf32> loc("max")
    return %1 : tensor<8xf32>
  }}
  func.func public @main(%arg0: tensor<8xf32> loc("x")) -> tensor<8xf32> {{
    %0 = stablehlo.tanh %arg0 : tensor<8xf32> loc("jit(m)/tanh"("m.py":1:4)){{}}
  }}
}}"""
    for line, expected in ((2, 2), (3, None)):
        (constraint,) = [
            each
            for each in annotated(module.replace("{}", calls.format(line)))
            if each.kind == "constraint"
        ]
        assert (constraint.named_kind, getattr(constraint.source, "line", None)) == (
            "type",
            expected,
        )


def test_what_is_never_called_is_listed_all_the_same(annotated):
    annotations = annotated(f"""
module @m {{
  {MESH}
  func.func public @main(%arg0: tensor<8xf32>) -> tensor<8xf32> {{
    return %arg0 : tensor<8xf32>
  }}
  func.func private @alone(%arg0: tensor<8xf32>) -> tensor<8xf32> {{
    %0 = sdy.sharding_constraint %arg0 <@mesh, [{{"a"}}]> : tensor<8xf32>
    return %0 : tensor<8xf32>
  }}
}}""")
    assert [a.kind for a in annotations] == ["argument", "result", "constraint"]


def test_a_mesh_that_is_not_there_and_a_sharding_of_another_rank():
    annotations = read_annotations(
        read_text("""
module @m {
  sdy.mesh @mesh = <["a"=4]>
  func.func public @main(%arg0: tensor<8xf32> {sdy.sharding = #sdy.sharding<@other, [{"a"}]>}, %arg1: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}]>}, %arg2: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"z"}]>}, %arg3: tensor<8xf32> {mhlo.sharding = "{unknown}"}) -> tensor<8xf32> {
    return %arg0 : tensor<8xf32>
  }
}""")
    )
    assert [a.problem for a in annotations[:4]] == [
        "the mesh @other is not known",
        '<@mesh, [{"a"}]> is for a tensor of rank 1, not 2',
        'unknown mesh axis "z"; the mesh has: a',
        "{unknown} leaves the placement to the compiler",
    ]
    assert all(a.placement is None for a in annotations)


def test_shardings_on_any_other_op_are_annotations_too(annotated):
    annotations = annotated(f"""
module @m {{
  {MESH}
  func.func public @main(%arg0: tensor<8xf32>) -> tensor<8xf32> {{
    %0:2 = stablehlo.custom_call @f(%arg0) {{sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{{"a"}}]>, <@mesh, [{{"b"}}]>]>}} : (tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>)
    return %0#0 : tensor<8xf32>
  }}
}}""")
    assert [(a.kind, a.name, a.index, a.text) for a in annotations[2:]] == [
        ("op", "%0#0", 0, '<@mesh, [{"a"}]>'),
        ("op", "%0#1", 1, '<@mesh, [{"b"}]>'),
    ]


def test_the_number_of_partitions_is_the_largest_there_is(annotated):
    annotations = annotated("""
module @m attributes {mhlo.num_partitions = 1 : i32} {
  func.func public @main(%arg0: tensor<8xf32> {mhlo.sharding = "{replicated}"}) -> tensor<8xf32> {
    %0 = stablehlo.custom_call @Sharding(%arg0) {backend_config = "", mhlo.sharding = "{devices=[8]<=[8]}"} : (tensor<8xf32>) -> tensor<8xf32>
    return %0 : tensor<8xf32>
  }
}""")
    assert annotations[0].placement.is_replicated
    assert annotations[2].placement.shards == (8,)


def test_two_meshes_in_two_orders_can_say_one_placement(annotated):
    annotations = annotated("""
module @m {
  sdy.mesh @one = <["a"=2, "b"=2]>
  sdy.mesh @two = <["b"=2, "a"=2], device_ids=[0, 2, 1, 3]>
  func.func public @main(%arg0: tensor<8xf32> {sdy.sharding = #sdy.sharding<@one, [{"a"}]>}, %arg1: tensor<8xf32> {sdy.sharding = #sdy.sharding<@two, [{"a"}]>}, %arg2: tensor<8xf32> {sdy.sharding = #sdy.sharding<@two, [{"b"}]>}) -> tensor<8xf32> {
    return %arg0 : tensor<8xf32>
  }
}""")
    one, two, three = (a.placement for a in annotations[:3])
    assert one == two
    assert one != three


def test_what_says_which_dimensions_are_open_is_read_or_said(annotated):
    annotations = annotated("""
module @m attributes {mhlo.num_partitions = 8 : i32} {
  func.func public @main(%arg0: tensor<8x8xf32>) -> tensor<8x8xf32> {
    %0 = stablehlo.custom_call @Sharding(%arg0) {backend_config = "unspecified_dims=[1]", mhlo.sharding = "{devices=[8,1]<=[8]}"} : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %1 = stablehlo.custom_call @Sharding(%0) {backend_config = "something new", mhlo.sharding = "{devices=[8,1]<=[8]}"} : (tensor<8x8xf32>) -> tensor<8x8xf32>
    return %1 : tensor<8x8xf32>
  }
}""")
    assert [(a.open_dims, a.problem) for a in annotations[2:]] == [
        ((1,), ""),
        ((), "its backend_config something new could not be read"),
    ]


def test_manual_axes_that_the_mesh_does_not_have():
    annotations = read_annotations(
        read_text("""
module @m {
  sdy.mesh @mesh = <["a"=4]>
  func.func public @main(%arg0: tensor<8xf32>) -> tensor<8xf32> {
    %0 = sdy.manual_computation(%arg0) in_shardings=[<@mesh, [{"a"}]>] out_shardings=[<@mesh, [{"a"}]>] manual_axes={"z"} (%arg1: tensor<8xf32>) {
      sdy.return %arg1 : tensor<8xf32>
    } : (tensor<8xf32>) -> tensor<8xf32>
    return %0 : tensor<8xf32>
  }
}""")
    )
    boundaries = [a for a in annotations if a.kind.startswith("shard_map")]
    assert [a.problem for a in boundaries] == ['unknown mesh axis "z"; the mesh has: a'] * 2


@pytest.mark.parametrize(
    ("scope", "parts"),
    [
        ("jit(f)/jvp(layer0)/dot_general", ("jit(f)/jvp(layer0)", "dot_general")),
        ("jit(f)/sharding_constraint", ("jit(f)", "sharding_constraint")),
        ("jit(f)/jit(<lambda>)", ("jit(f)/jit(<lambda>)", "")),
        ("jit", ("", "jit")),
        ("", ("", "")),
    ],
)
def test_the_last_part_of_a_scope_names_the_primitive(scope, parts):
    assert split_scope(scope) == parts


def test_partitions_of_a_module_where_only_arguments_or_results_say_so():
    """As in the HLO that JAX lowers to, whose text does not say for how many devices it is."""
    text = """module {{
      func.func public @main(%arg0: tensor<8x4xf32> {0}) -> (tensor<8x4xf32> {1}) {{
        return %arg0 : tensor<8x4xf32>
      }}
    }}"""
    sharding = '{mhlo.sharding = "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"}'
    for written in ((sharding, ""), ("", sharding)):
        assert num_partitions(read_text(text.format(*written))) == 8


def test_a_shard_map_compiled_as_a_function_has_a_line_of_its_body():
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))

    def mapped(x):
        y = jnp.sin(x)
        return y * x

    halves = jax.jit(jax.shard_map(mapped, mesh=mesh, in_specs=P("data"), out_specs=P("data")))
    inspection = inspect(jax.jit(lambda x: halves(x) + 1), jnp.ones(8))
    line = mapped.__code__.co_firstlineno + 1
    for partitioner in ("shardy", "gspmd"):
        boundary = [
            annotation
            for annotation in read_annotations(read_text(inspection.lowered[partitioner].text()))
            if annotation.kind.startswith("shard_map")
        ]
        assert [annotation.source.line for annotation in boundary] == [line, line]
