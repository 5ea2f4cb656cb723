"""The op graph in a line, and in every form."""

import json
import xml.etree.ElementTree as ET

from sdyscope.facts.account import Account
from sdyscope.graph import read_text
from sdyscope.inspection import Inspection
from sdyscope.targets import resolve
from sdyscope.views import graph

NOTHING = Account()

TEXT = """
module @m {
  func.func public @main(%x: tensor<4xf32> {mhlo.sharding = "{oops}"}) -> tensor<4xf32> {
    %0 = "later.op"(%x) : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
"""


def test_statistics():
    inspection = Inspection(resolve("mlp"), ["gspmd"])
    text = graph.statistics(inspection.graph(), "mlp for GSPMD")
    assert text.startswith("mlp for GSPMD: ")
    assert " shardings" in text
    assert "not understood" not in text


def test_what_was_not_understood_is_counted():
    text = graph.statistics(read_text(TEXT), "m for GSPMD")
    assert "1 function, 1 sharding" in text
    assert "read as text, without MLIR's parser" in text
    assert "1 piece not understood" in text


def test_attributes_without_a_value_are_counted():
    module_read = read_text(
        'module { "x.a"() {x.map = affine_map<() -> ()>, x.b = [#y.z], x.c = 1} : () -> () }'
    )
    assert list(module_read.unparsed()) == [(1, "x.map"), (1, "x.b")]
    assert graph.statistics(module_read, "m for Shardy").endswith("2 attributes kept as text")
    # A sharding that is not understood is not counted twice.
    assert "kept as text" not in graph.statistics(read_text(TEXT), "m for GSPMD")


def test_every_form_parses():
    module_read = read_text(TEXT)
    assert json.loads(graph.encoded(module_read, "json", NOTHING))["schema"] == "sdyscope.graph/3"
    assert json.loads(graph.encoded(module_read, "model-explorer", NOTHING))["label"] == "m"
    content = graph.encoded(module_read, "graphml", NOTHING)
    assert content.startswith(b'<?xml version="1.0" encoding="UTF-8"?>\n')
    assert ET.fromstring(content).tag.endswith("graphml")
