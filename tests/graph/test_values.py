"""Types, attribute values and names that the graph's readers share."""

import math

import pytest

from sdyscope.graph import TensorType
from sdyscope.graph.attribute_texts import attribute_value
from sdyscope.graph.attribute_values import Elements
from sdyscope.graph.attributes import result_shardings
from sdyscope.graph.types import parse_type
from sdyscope.syntax.hlo_sharding import parse_hlo_sharding
from sdyscope.syntax.shardy import parse_tensor_sharding_per_value
from sdyscope.syntax.strings import split, unescape


@pytest.mark.parametrize(
    ("text", "shape", "dtype", "encoding", "elements"),
    [
        ("tensor<16x8xf32>", (16, 8), "f32", "", 128),
        ("tensor<bf16>", (), "bf16", "", 1),
        ("tensor<?x8xi1>", (None, 8), "i1", "", None),
        ("tensor<2xcomplex<f32>>", (2,), "complex<f32>", "", 2),
        ("tensor<0x3xui32>", (0, 3), "ui32", "", 0),
        (
            "tensor<?x4xf32, #stablehlo.bounds<8, ?>>",
            (None, 4),
            "f32",
            "#stablehlo.bounds<8, ?>",
            None,
        ),
        ("tensor<4x!quant.uniform<i8:f32, 0.5>>", (4,), "!quant.uniform<i8:f32, 0.5>", "", 4),
        ("!stablehlo.token", None, "!stablehlo.token", "", None),
        (
            "tuple<tensor<2xf32>, tensor<3xf32>>",
            None,
            "tuple<tensor<2xf32>, tensor<3xf32>>",
            "",
            None,
        ),
        ("tensor<*xf32>", None, "tensor<*xf32>", "", None),
    ],
)
def test_types(text, shape, dtype, encoding, elements):
    type_ = parse_type(text)
    assert type_ == TensorType(text, shape, dtype, encoding)
    assert type_.num_elements == elements
    assert str(type_) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('"a\\22b"', 'a"b'),
        ("@main", "main"),
        ('@"odd name"', "odd name"),
        ("true", True),
        ("unit", True),
        ("-3 : i64", -3),
        ("7", 7),
        ("1.5 : f32", 1.5),
        ("[1, 2 : i32]", (1, 2)),
        ('{a = "x", b = {c = 1}, d}', {"a": "x", "b": {"c": 1}, "d": True}),
        ("dense<[1, 2]> : tensor<2xi64>", Elements("[1, 2]", parse_type("tensor<2xi64>"))),
        ("#alias", "#what<it>"),
    ],
)
def test_attribute_values(text, value):
    assert attribute_value(text, {"#alias": "#what<it>"}) == value


@pytest.mark.parametrize(
    ("body", "type_", "values"),
    [
        ("1", "tensor<2x2xi32>", ((1, 1), (1, 1))),
        ("70000.0", "tensor<f16>", math.inf),
        ("-1e39", "tensor<1xbf16>", (-math.inf,)),
        ("", "tensor<0x3xf32>", ()),
        ('"0x0100000002000000"', "tensor<2xi32>", (1, 2)),
    ],
)
def test_elements(body, type_, values):
    assert Elements(body, parse_type(type_)).values == values


@pytest.mark.parametrize(
    ("body", "type_"),
    [
        ("", "tensor<2xi32>"),
        ('"0x01000000"', "tensor<2xi32>"),
        ('"0x0100000002000000"', "tensor<i32>"),
    ],
)
def test_as_many_elements_as_the_type_has(body, type_):
    with pytest.raises(ValueError, match=r"elements, and \d are written"):
        _ = Elements(body, parse_type(type_)).values


def test_an_alias_of_itself_ends():
    assert attribute_value("#a", {"#a": "#b", "#b": "#a"}) in ("#a", "#b")


def test_split_keeps_brackets_and_strings_whole():
    assert split('a<b, c>, (d, e), "f, g", h -> i') == ["a<b, c>", "(d, e)", '"f, g"', "h -> i"]
    assert split("") == []


def test_strings_of_bytes():
    assert unescape('"\\C3\\A9\\n\\t\\\\"') == "é\n\t\\"


def test_shardings_of_results():
    per_value = parse_tensor_sharding_per_value('[<@m, [{"a"}]>, <@m, [{}]>]')
    assert result_shardings({"sdy.sharding": per_value}, 2) == per_value.shardings
    # As many shardings as results, or none of them is believed.
    assert result_shardings({"sdy.sharding": per_value}, 3) == (None, None, None)
    sharding = parse_hlo_sharding("{replicated}")
    assert result_shardings({"mhlo.sharding": sharding}, 2) == (sharding, sharding)
    pair = parse_hlo_sharding("{{replicated}, {manual}}")
    assert result_shardings({"mhlo.sharding": pair}, 2) == pair.elements
    assert result_shardings({"mhlo.sharding": "{new}"}, 1) == ("{new}",)
    assert result_shardings({"sdy.sharding_rule": "x"}, 1) == (None,)
