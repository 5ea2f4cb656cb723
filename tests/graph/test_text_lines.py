"""Ops that stand on several lines, as people and other printers write them."""

import random

import pytest

from sdyscope.graph import build, read_text
from sdyscope.stages.lowered.read import read_bytes

MODULE = """\
module @m attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["data"=4, "model"=2]>
  func.func public @main(%arg0: tensor<8x4xf32> \
{sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>}, %arg1: tensor<i1>) -> \
(tensor<8x4xf32>, tensor<4x4xf32>) {
    %0 = stablehlo.tanh %arg0 : tensor<8x4xf32>
    %1 = stablehlo.dot_general %0, %0, contracting_dims = [0] x [0], \
precision = [DEFAULT, DEFAULT] \
{sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"data"}, {}]>]>} : \
(tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
    %2 = stablehlo.broadcast_in_dim %arg1, dims = [] : (tensor<i1>) -> tensor<8x4xi1>
    %3 = stablehlo.select %2, %0, %arg0 : tensor<8x4xi1>, tensor<8x4xf32>
    %4:2 = "stablehlo.optimization_barrier"(%3, %1) : \
(tensor<8x4xf32>, tensor<4x4xf32>) -> (tensor<8x4xf32>, tensor<4x4xf32>)
    return %4#0, %4#1 : tensor<8x4xf32>, tensor<4x4xf32>
  }
}
"""


def facts(graph):
    return [(op.kind, op.name, op.types, op.shardings) for op in graph.ops], graph.operand_values


def spread(text, seed):
    """The text with some of the spaces inside its ops made into ends of lines."""
    chosen = random.Random(seed)
    lines = []
    for line in text.splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        words = line.split()
        is_op = words[0].startswith("%")
        for word in words:
            # A name and its `=` stay on a line: that is what tells an op from an operand.
            breaks = is_op and word not in ("=", words[0]) and chosen.random() < 0.3
            indent += ("\n      " if breaks else " ") + word if indent.strip() else word
        lines.append(indent)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("seed", range(20))
def test_the_ends_of_lines_inside_an_op_change_nothing(seed):
    text = spread(MODULE, seed)
    graph = read_text(text)
    assert graph.not_understood == []
    assert facts(graph) == facts(read_text(MODULE))
    # MLIR reads the same.
    assert facts(graph)[0] == facts(build(read_bytes(text.encode()).module))[0]


def test_what_is_no_part_of_an_op_is_still_listed():
    graph = read_text(MODULE.replace("    %2 =", "    garbage of some kind\n    %2 ="))
    assert [line.line for line in graph.not_understood] == [6]


def test_an_op_without_a_location_is_told_by_its_line():
    lines = {op.name: op.source.line for op in read_text(MODULE).ops if op.name and op.source}
    assert (lines["%0"], lines["%4"]) == (4, 8)
