"""Shardy's collectives in a module, and how often each is run."""

import itertools
import re

import jax
import pytest

from sdyscope.annotations import read_annotations
from sdyscope.errors import CompilerError, TargetError
from sdyscope.graph import build
from sdyscope.graph.tags import sids
from sdyscope.stages.compiled.reshards import Resharder
from sdyscope.stages.lowered.read import read_bytes
from sdyscope.stages.propagated import imported_module
from sdyscope.stages.propagated.annotate import ShardingEdit
from sdyscope.values.mesh import Mesh
from sdyscope.values.sharding import NamedSharding, PartitionSpec

MATMUL = """module @m {
  sdy.mesh @mesh = <["a"=4, "b"=2]>
  func.func public @main(
      %x: tensor<16x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"a"}]>},
      %w: tensor<32x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {}]>})
      -> (tensor<16x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) {
    %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
        : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
    return %0 : tensor<16x8xf32>
  }
}"""


def resharder(text):
    lowered = read_bytes(text.encode())
    return Resharder(lowered, build(lowered.module))


def kinds(read):
    return [collective.op for collective in read.collectives]


def test_the_module_has_the_collectives_and_tags_of_what_they_are_for():
    ready = resharder(MATMUL)
    graph = build(ready.module())
    (reduced,) = (op for op in graph.ops if op.kind == "sdy.all_reduce")
    assert str(reduced.attributes["reduction_axes"]) == '{"a"}'
    (node,) = sids(reduced.location.names)
    assert ready.graph.ops[node].kind == "stablehlo.dot_general"


def test_other_shardings_are_those_of_a_copy():
    ready = resharder(MATMUL)
    annotations = {
        annotation.index: annotation
        for annotation in read_annotations(ready.graph)
        if annotation.kind == "argument"
    }
    mesh = Mesh.of({"a": 4, "b": 2})
    rows = ShardingEdit(annotations[0], NamedSharding(mesh, PartitionSpec.of("a")))
    whole = ShardingEdit(annotations[1], NamedSharding(mesh, PartitionSpec.of()))
    before = ready.collectives()
    assert kinds(before) == ["sdy.all_reduce"]
    assert kinds(ready.collectives([rows, whole])) == ["sdy.all_gather"]
    assert ready.collectives() == before
    assert str(before.arguments[0].sharding) == '<@mesh, [{}, {"a"}]>'
    assert str(ready.collectives([rows]).arguments[0].sharding) == '<@mesh, [{"a"}, {}]>'


def test_a_loop_runs_its_body_as_often_as_it_counts():
    collectives = resharder("""module @m {
      sdy.mesh @mesh = <["a"=4]>
      func.func public @main(
          %x: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}]>}) -> tensor<i1> {
        %zero = stablehlo.constant dense<0> : tensor<i32>
        %none = stablehlo.constant dense<0.0> : tensor<f32>
        %0:3 = stablehlo.while(%i = %zero, %y = %x, %s = %none)
            : tensor<i32>, tensor<8xf32>, tensor<f32>
        cond {
          %n = stablehlo.constant dense<5> : tensor<i32>
          %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %c : tensor<i1>
        } do {
          %one = stablehlo.constant dense<1> : tensor<i32>
          %j = stablehlo.add %i, %one : tensor<i32>
          %init = stablehlo.constant dense<0.0> : tensor<f32>
          %t = stablehlo.reduce(%y init: %init) applies stablehlo.add across dimensions = [0]
              : (tensor<8xf32>, tensor<f32>) -> tensor<f32>
          stablehlo.return %j, %y, %t : tensor<i32>, tensor<8xf32>, tensor<f32>
        }
        %r = stablehlo.compare LT, %0#2, %none : (tensor<f32>, tensor<f32>) -> tensor<i1>
        return %r : tensor<i1>
      }
    }""").collectives()
    assert [
        (collective.op, collective.times, collective.unknown_trips)
        for collective in collectives.collectives
    ] == [("sdy.all_reduce", 5, False)]


def test_a_change_that_does_not_fit_is_refused():
    ready = resharder(MATMUL)
    annotation = next(one for one in read_annotations(ready.graph) if one.kind == "argument")
    other = ShardingEdit(annotation, NamedSharding(Mesh.of({"c": 4}), PartitionSpec.of("c")))
    with pytest.raises(TargetError, match="the module has no mesh"):
        ready.collectives([other])


def test_gspmd_s_module_is_refused():
    text = MATMUL.replace('sdy.sharding = #sdy.sharding<@mesh, [{}, {"a"}]>', "")
    text = text.replace('sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {}]>', "")
    text = text.replace("sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>", "")
    text = text.replace('  sdy.mesh @mesh = <["a"=4, "b"=2]>\n', "")
    text = text.replace("{}", '{mhlo.sharding = "{devices=[4,1]<=[4]}"}', 1)
    with pytest.raises(CompilerError, match="GSPMD"):
        resharder(text)


SCALED = """module @m {
  sdy.mesh @mesh = <["a"=4, "b"=2]>
  func.func public @main(
      %x: tensor<16x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"a"}]>},
      %w: tensor<32x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"b"}, {}]>})
      -> (tensor<16x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"b"}, {}]>},
          tensor<16x32xf32>) {
    %half = stablehlo.constant dense<0.5> : tensor<f32>
    %wide = stablehlo.broadcast_in_dim %half, dims = [] : (tensor<f32>) -> tensor<16x32xf32>
    %0 = stablehlo.multiply %x, %wide : tensor<16x32xf32>
    %1 = stablehlo.dot_general %0, %w, contracting_dims = [1] x [0]
        : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
    %kept = sdy.sharding_constraint %0 <@mesh, [{"b"}, {}]> : tensor<16x32xf32>
    %2 = stablehlo.add %kept, %wide : tensor<16x32xf32>
    return %1, %2 : tensor<16x8xf32>, tensor<16x32xf32>
  }
}"""


def test_what_is_done_once_for_all_candidates_changes_no_answer(monkeypatch):
    quick = resharder(SCALED)
    monkeypatch.setattr(imported_module, "_BLIND", re.compile("(?!)"))
    plain = resharder(SCALED)
    broadcast = "stablehlo.broadcast_in_dim"
    assert broadcast in str(plain.module())
    # JAX before 0.10 begins with a pass that looks at shardings.
    assert (broadcast in str(quick.module())) == (jax.__version_info__ < (0, 10))
    mesh = Mesh.of({"a": 4, "b": 2})
    specs = [("a",), (None, "a"), ("b", "a"), (None, ("b", "a")), ()]
    written = [
        annotation
        for annotation in read_annotations(quick.graph)
        if annotation.kind in ("argument", "constraint")
    ]
    assert len(written) == 3
    for first, second in itertools.product(specs, repeat=2):
        edits = [
            ShardingEdit(annotation, NamedSharding(mesh, PartitionSpec.of(*spec)))
            for annotation, spec in zip(written, (first, second, first), strict=True)
        ]
        assert quick.collectives(edits) == plain.collectives(edits)
