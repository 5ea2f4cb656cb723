"""Shardy's attributes: our parser against the compiler's, on generated values and mangled text."""

import dataclasses
import inspect
import re
from collections.abc import Callable
from typing import Any

import jax
import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st
from jax.extend.mlir import ir
from jax.extend.mlir.passmanager import PassManager
from mangling import in_the_text, mangled
from mlir_text import knows_max_and_min, reprinted, shardy_attribute

from sdyscope.errors import SyntaxTextError
from sdyscope.syntax import shardy
from sdyscope.values import (
    explicit_collectives as collectives,
)
from sdyscope.values import (
    mesh,
    sharding,
    sharding_rule,
)
from sdyscope.values import (
    propagation_edges as propagation,
)
from sdyscope.values.explicit_collectives import (
    AllToAllParam,
    AllToAllParamList,
    AxisRefList,
    ListOfAxisRefLists,
)
from sdyscope.values.mesh import AxisRef, Mesh, MeshAxis, SubAxisInfo
from sdyscope.values.propagation_edges import (
    AxisToPropagationDetails,
    EdgeValueRef,
    OriginSharding,
    PropagationEdges,
    PropagationOneStep,
    ShardingOrigins,
    ShardingOriginsPerValue,
)
from sdyscope.values.sharding import DimSharding, ManualAxes, MeshOp, TensorSharding
from sdyscope.values.sharding_rule import DimMapping, OpShardingRule, TensorMapping

odd_meshes = strategies.meshes(names=strategies.any_names)


@st.composite
def tensor_shardings(draw: st.DrawFn) -> TensorSharding:
    on = draw(odd_meshes)
    return draw(
        strategies.tensor_shardings(
            on,
            mesh_ref=draw(st.sampled_from(["mesh", "my mesh", "a-b", "_m$.1", 'q"', None])),
            reductions=("sum", "max", "min") if knows_max_and_min() else ("sum",),
        )
    )


@st.composite
def axis_lists(draw: st.DrawFn, on: Mesh, min_size: int = 0) -> AxisRefList:
    return AxisRefList(
        tuple(draw(st.lists(strategies.axis_refs(on), min_size=min_size, max_size=3)))
    )


@st.composite
def all_to_all_params(draw: st.DrawFn, on: Mesh) -> AllToAllParam:
    dims = st.integers(0, 9)
    return AllToAllParam(draw(axis_lists(on, min_size=1)).axes, draw(dims), draw(dims))


def lists_of_axis_lists(on: Mesh) -> st.SearchStrategy[ListOfAxisRefLists]:
    return st.builds(ListOfAxisRefLists, st.lists(axis_lists(on), max_size=4).map(tuple))


def all_to_all_param_lists(on: Mesh) -> st.SearchStrategy[AllToAllParamList]:
    return st.builds(AllToAllParamList, st.lists(all_to_all_params(on), max_size=3).map(tuple))


@st.composite
def op_sharding_rules(draw: st.DrawFn) -> OpShardingRule:
    # More than 18 factors, so that some are called z_1, z_2, ... Sizes fit in 32 bits before 0.12.
    sizes = draw(st.lists(st.integers(1, (1 << 31) - 1), min_size=1, max_size=21))
    factors = st.integers(0, len(sizes) - 1)
    dims = st.builds(DimMapping, st.lists(factors, min_size=1, max_size=3).map(tuple))
    tensors = st.builds(TensorMapping, st.lists(dims, max_size=4).map(tuple))
    listed = st.lists(tensors, min_size=1, max_size=3).map(tuple)
    special = st.lists(factors, max_size=2).map(tuple)
    return draw(
        st.builds(
            OpShardingRule,
            factor_sizes=st.just(tuple(sizes)),
            operand_mappings=listed,
            result_mappings=listed,
            reduction_factors=special,
            need_replication_factors=special,
            permutation_factors=special,
            blocked_propagation_factors=special,
            is_custom_rule=st.booleans(),
        )
    )


@st.composite
def propagation_edges(draw: st.DrawFn) -> PropagationEdges:
    on = draw(odd_meshes)
    refs = st.builds(EdgeValueRef, st.sampled_from(["operand", "result"]), st.integers(0, 12))
    steps = []
    for step in draw(st.lists(st.integers(0, 10**6), min_size=1, max_size=3, unique=True)):
        entries = []
        for _ in range(draw(st.integers(1, 3))):
            source, *to = draw(st.lists(refs, min_size=2, max_size=4, unique=True))
            axis = draw(strategies.axis_refs(on))
            entries.append(AxisToPropagationDetails(axis, source, tuple(to)))
        steps.append(PropagationOneStep(step, tuple(entries)))
    return PropagationEdges(tuple(steps))


numbers = st.integers(0, 3000)
origins = st.one_of(
    st.builds(OriginSharding, st.sampled_from(["input", "output"]), numbers),
    st.builds(OriginSharding, st.sampled_from(["mc_input", "mc_output"]), numbers, numbers),
    st.builds(
        OriginSharding, st.sampled_from(["constraint", "manual_computation"]), source_id=numbers
    ),
    st.just(OriginSharding("self")),
)


@st.composite
def sharding_origins(draw: st.DrawFn) -> ShardingOrigins:
    # An axis called a:(1)2 can't be told from a sub-axis here: Shardy drops the quotes.
    names = strategies.any_names.filter(lambda name: ":(" not in name)
    axes = draw(split_axes_of(names))
    return ShardingOrigins(tuple((axis, draw(origins)) for axis in axes))


@st.composite
def split_axes_of(draw: st.DrawFn, names: st.SearchStrategy[str]) -> list[AxisRef]:
    return draw(strategies.split_axes(draw(strategies.meshes(names=names))))


def of_mesh(make: Callable[[Mesh], st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    return odd_meshes.flatmap(make)


#: By kind of value: how to draw one, how to parse it, and its attribute where it has no property.
KINDS: dict[str, tuple[st.SearchStrategy[Any], Callable[[str], Any]]] = {
    "mesh": (
        st.one_of(odd_meshes, strategies.maximal_meshes, st.just(Mesh(()))),
        shardy.parse_mesh,
    ),
    "axis_ref": (of_mesh(strategies.axis_refs), shardy.parse_axis_ref),
    "dim_sharding": (
        st.builds(
            DimSharding,
            of_mesh(strategies.split_axes).map(tuple),
            st.booleans(),
            st.none() | st.integers(0, (1 << 63) - 1),
        ),
        shardy.parse_dim_sharding,
    ),
    "tensor_sharding": (tensor_shardings(), shardy.parse_tensor_sharding),
    "tensor_sharding_per_value": (
        of_mesh(strategies.shardings_per_value),
        shardy.parse_tensor_sharding_per_value,
    ),
    "manual_axes": (of_mesh(strategies.manual_axes), shardy.parse_manual_axes),
    "op_sharding_rule": (op_sharding_rules(), shardy.parse_op_sharding_rule),
    "axis_ref_list": (of_mesh(axis_lists), shardy.parse_axis_ref_list),
    "list_of_axis_ref_lists": (
        of_mesh(lists_of_axis_lists),
        shardy.parse_list_of_axis_ref_lists,
    ),
    "all_to_all_param_list": (
        of_mesh(all_to_all_param_lists),
        shardy.parse_all_to_all_param_list,
    ),
    "propagation_edges": (propagation_edges(), shardy.parse_propagation_edges),
    "sharding_origins": (sharding_origins(), shardy.parse_sharding_origins),
    "sharding_origins_per_value": (
        st.builds(ShardingOriginsPerValue, st.lists(sharding_origins(), max_size=3).map(tuple)),
        shardy.parse_sharding_origins_per_value,
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_every_value_survives_its_text_and_the_compilers(kind: str, data: st.DataObject) -> None:
    values, parse = KINDS[kind]
    value = data.draw(values)
    assert parse(str(value)) == value
    text = shardy_attribute(value)
    assert reprinted(text) == text
    if not isinstance(value, AxisRef | DimSharding):
        assert parse(text) == value


@given(odd_meshes, strategies.any_names)
def test_mesh_op_reads_back(on: Mesh, name: str) -> None:
    op = MeshOp(name, on)
    assert shardy.parse_mesh_op(str(op)) == op
    assert shardy.parse_mesh_op(f'{op} {{x = {{y = "}}"}}}} // comment') == op


@given(origins)
def test_origin_reads_back(origin: OriginSharding) -> None:
    assert shardy.parse_origin_sharding(str(origin)) == origin


#: Texts for the mutations to start from, with all of the syntax in them.
SEEDS = [
    ("tensor_sharding", '#sdy.sharding<@mesh, [{"a", "b":(1)2, ?}p1, {}], replicated={"c"}>'),
    ("tensor_sharding", '#sdy.sharding<@"m b", [], unreduced={"c":(2)4}, replicated={"d", "e"}>'),
    ("tensor_sharding", '#sdy<sharding<mesh<["x"=2, "y"=3], device_ids=[5,4,3,2,1,0]>, [{?}p0]>>'),
    ("tensor_sharding_per_value", '#sdy.sharding_per_value<[<@mesh, [{"a"}]>, <@mesh, []>]>'),
    (
        "tensor_sharding_per_value",
        '#sdy.sharding_per_value<[#sdy.sharding<@mesh, [{"a"}]>, #sdy<sharding<@mesh, []>>]>',
    ),
    ("mesh", '#sdy.mesh<["a"=2, "b\\22\\C3\\A9"=0x2], device_ids=[0, 0x2, 1,3]>'),
    ("mesh", "#sdy.mesh<[], device_ids=[3]>"),
    ("manual_axes", '#sdy<manual_axes{"a", "b"}>'),
    (
        "op_sharding_rule",
        "#sdy.op_sharding_rule<([i, k], [k, jz_1])->([i, zj], []) {i=8, j=4, k=2} reduction={k} "
        "need_replication={i, j} permutation={z} blocked_propagation={z_12}, custom>",
    ),
    ("axis_ref_list", '#sdy<axis_ref_list{"a", "b":(1)2}>'),
    ("list_of_axis_ref_lists", '#sdy<list_of_axis_ref_lists[{"a"}, {}]>'),
    ("all_to_all_param_list", '#sdy<all_to_all_param_list[{"a"}: 0->1, {"b", "c"}: 2->3]>'),
    (
        "propagation_edges",
        '#sdy.propagation_edges<[{step-4 = [{"a" = operand-0 -> [result-0, operand-1]}, '
        '{"b":(1)2 = result-0 -> [operand-3]}]}, {step-5 = [{"a" = result-1 -> [result-0]}]}]>',
    ),
]

PIECES = [
    *'{}[]<>(),=:?-@" \t\n0123456789ijkzpabmx_#.*$\\',
    *('"a"', "->", "{}", ", ", "p1", "?}", "z_1", "(1)2", ":(2)2", "é", "18446744073709551616"),
    *("replicated=", "unreduced=", "max", "custom", "mesh", "operand-0"),
]


@st.composite
def changed(draw: st.DrawFn) -> tuple[str, str]:
    """One of the seeds with small changes behind its first four characters."""
    kind, text = draw(st.sampled_from(SEEDS))
    return kind, draw(mangled([text], PIECES, behind=4))


def stricter_on_purpose(kind: str, text: str, error: SyntaxTextError, theirs: str) -> bool:
    """Whether we refuse what the compiler's parser lets pass, and reads as ``theirs``.

    Sub-axes of size 1 or before the start of their axis: refused later, by the verifier of the op.
    In lists of factors that need something, whatever follows a factor in one word: the compiler
    drops it. Junk before the end of ``#sdy<...>``, and a string that does not end behind it: the
    compiler overlooks those.
    """
    if "sub-axis" in error.message:
        return True
    cut = re.sub(
        r"=\s*\{[^{}=]*\}",
        lambda listed: re.sub(r"\b(z_[1-9][0-9]*|[i-z])[\w$.]*", r"\1", listed[0]),
        text,
    )
    lines = text.split("\n")[: error.line]
    before = "\n".join([*lines[:-1], lines[-1][: (error.column or 1) - 1]])
    return any(
        not isinstance(ours, SyntaxTextError) and shardy_attribute(ours) == theirs
        for ours in (read(kind, cut), read(kind, before), read(kind, before + ">"))
    )


def test_a_sign_may_stand_apart_as_in_mlir():
    text = '#sdy<all_to_all_param_list[{"a"}: - 2->3]>'
    assert str(reprinted(text)) == '#sdy<all_to_all_param_list[{"a"}: -2->3]>'
    assert shardy.parse_all_to_all_param_list(text).params[0].src_dim == -2


def looser_on_purpose(text: str) -> bool:
    """Whether we read what the compiler's parser refuses.

    White space at the end, which a line of a file may well have. On earlier versions, the syntax
    of JAX 0.12: kinds of reductions, ``unreduced`` without "=", factors of more than 32 bits.
    """
    if text != text.rstrip():
        return True
    if knows_max_and_min():
        return False
    newer = re.search(r"unreduced\s*(=\s*(sum|max|min)\s*)?\{", text)
    sizes = re.findall(r"[i-z0-9]\s*=\s*-?(0x[0-9a-fA-F]+|\d+)", text)
    return newer is not None or any(int(n, 16 if "x" in n else 10) >= 1 << 31 for n in sizes)


def read(kind: str, text: str) -> Any:
    """The value, or the error that tells why there is none."""
    try:
        return KINDS[kind][1](text)
    except SyntaxTextError as error:
        return error


def mnemonic(text: str) -> str:
    return re.split(r"[.<]", text)[1].partition("{")[0].partition("[")[0].partition('"')[0]


@given(changed())
def test_reads_exactly_what_the_compiler_reads(case: tuple[str, str]) -> None:
    kind, text = case
    ours, theirs = read(kind, text), reprinted(text)
    if theirs is not None and "#sdy.dim_mapping" in theirs:
        return  # A dimension without factors: the compiler can't read what it prints.
    if theirs is not None and mnemonic(theirs) != mnemonic(dict(SEEDS)[kind]):
        return  # Another attribute by now, with the rest of the text overlooked.
    if isinstance(ours, SyntaxTextError):
        assert in_the_text(ours, text)
        known = theirs is None or stricter_on_purpose(kind, text, ours, theirs)
        assert known, f"only the compiler reads {text!r}"
    elif theirs is None:
        assert looser_on_purpose(text), f"only we read {text!r}"
    else:
        assert shardy_attribute(ours) == theirs
        assert read(kind, theirs) == ours


@given(st.sampled_from(sorted(KINDS)), st.lists(st.sampled_from(PIECES), max_size=20))
def test_junk_is_refused_with_a_place(kind: str, pieces: list[str]) -> None:
    text = "".join(pieces)
    ours = read(kind, text)
    assert not isinstance(ours, SyntaxTextError) or in_the_text(ours, text)


def test_comments_and_white_space_are_skipped() -> None:
    text = '#sdy.sharding<@mesh, // by data\n\t[ { "a" , ? } p1 , {\r\n} ] >'
    assert reprinted(text) == str(shardy.parse_tensor_sharding(text).attribute)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (r'"a\22b"', 'a"b'),
        (r'"\\"', "\\"),
        (r'"\n\t\""', '\n\t"'),
        (r'"\0A\09"', "\n\t"),
        (r'"\C3\A9"', "é"),
        (r'"\C3\A9é"', "éé"),
        (r'"\FF"', "\udcff"),
        ('"a\tb"', "a\tb"),
        ('""', ""),
    ],
)
def test_strings_are_unescaped_as_mlir_does(text: str, name: str) -> None:
    value = shardy.parse_axis_ref(text)
    assert value == AxisRef(name)
    assert reprinted(f"#sdy<axis_ref{text}>") == f"#sdy<axis_ref{value}>"


def test_origins_as_shardy_writes_them() -> None:
    assert shardy.parse_sharding_origins('{"c:(1)2" = "self", a = "mc_0_input: 3"}') == (
        ShardingOrigins(
            (
                (AxisRef("a"), OriginSharding("mc_input", 3, 0)),
                (AxisRef("c", SubAxisInfo(1, 2)), OriginSharding("self")),
            )
        )
    )


@pytest.mark.parametrize(
    ("parse", "text", "line", "column", "told"),
    [
        (
            shardy.parse_tensor_sharding,
            '<@mesh, [{"a", ?]>',
            1,
            17,
            "line 1, column 17: unexpected ']' in a tensor sharding\n"
            '  <@mesh, [{"a", ?]>\n'
            "                  ^\n"
            "Expected '}'.",
        ),
        (
            shardy.parse_tensor_sharding,
            '<@mesh,\n [{"a"',
            2,
            7,
            "line 2, column 7: unexpected end of the text in a tensor sharding\n"
            '   [{"a"\n'
            "        ^\n"
            "Expected ',' or '}'.",
        ),
        (
            shardy.parse_tensor_sharding,
            '#sdy.sharding<@mesh, [{"a":(1)1}]>',
            1,
            28,
            "line 1, column 28: sub-axis size must be at least 2, not 1\n"
            '  #sdy.sharding<@mesh, [{"a":(1)1}]>\n'
            "                             ^",
        ),
        (
            shardy.parse_tensor_sharding,
            '<mesh<["a"=2, "a"=2]>, []>',
            1,
            6,
            'line 1, column 6: duplicate axis name "a" in a mesh\n'
            '  <mesh<["a"=2, "a"=2]>, []>\n'
            "       ^",
        ),
        (
            shardy.parse_tensor_sharding,
            "#sdy.sharding_per_value<[]>",
            1,
            1,
            "line 1, column 1: unexpected '#sdy.sharding_per_value' in a tensor sharding\n"
            "  #sdy.sharding_per_value<[]>\n"
            "  ^\n"
            "Expected '<', '#sdy<' or '#sdy.sharding<'.",
        ),
        (
            shardy.parse_tensor_sharding,
            "<@mesh, [{data}]>",
            1,
            11,
            "line 1, column 11: unexpected 'data' in a tensor sharding\n"
            "  <@mesh, [{data}]>\n"
            "            ^\n"
            "Expected '?', '}' or a name in quotes.",
        ),
        (
            shardy.parse_tensor_sharding,
            '<@mesh, [{"a"}p01]>',
            1,
            17,
            "line 1, column 17: unexpected '1' in a tensor sharding\n"
            '  <@mesh, [{"a"}p01]>\n'
            "                  ^\n"
            "Expected ',' or ']'.",
        ),
        (
            shardy.parse_mesh,
            '<["a"=4], device_ids=[0, 1, 1, 2]>',
            1,
            1,
            "line 1, column 1: device ids must be a permutation of 0..3; 1 is listed twice\n"
            '  <["a"=4], device_ids=[0, 1, 1, 2]>\n'
            "  ^",
        ),
        (
            shardy.parse_mesh,
            '<["a"=0]>',
            1,
            3,
            'line 1, column 3: mesh axis "a" has size 0; sizes start at 1\n  <["a"=0]>\n    ^',
        ),
        (
            shardy.parse_mesh,
            '<["a"=18446744073709551616]>',
            1,
            7,
            "line 1, column 7: 18446744073709551616 does not fit in 64 bits\n"
            '  <["a"=18446744073709551616]>\n'
            "        ^",
        ),
        (
            shardy.parse_op_sharding_rule,
            "<([i])->([j]) {i=2, k=3}>",
            1,
            15,
            "line 1, column 15: factor sizes must be in the order i, j, k, ...: "
            "k stands where j belongs\n"
            "  <([i])->([j]) {i=2, k=3}>\n"
            "                ^",
        ),
        (
            shardy.parse_propagation_edges,
            '<[{step-4 = [{"a" = operand-0 -> [operand-0]}]}]>',
            1,
            14,
            "line 1, column 14: operand-0 is both the source and a target of an edge\n"
            '  <[{step-4 = [{"a" = operand-0 -> [operand-0]}]}]>\n'
            "               ^",
        ),
        (
            shardy.parse_sharding_origins,
            '{a = "somewhere"}',
            1,
            7,
            "line 1, column 7: unexpected 'somewhere' in sharding origins\n"
            '  {a = "somewhere"}\n'
            "        ^\n"
            "Expected 'constraint_', 'input' or 'output', 'mc_' or 'self'.",
        ),
        (
            shardy.parse_manual_axes,
            "\x00\ud800",
            1,
            1,
            "",
        ),
    ],
)
def test_an_error_shows_the_place(
    parse: Callable[[str], Any], text: str, line: int, column: int, told: str
) -> None:
    with pytest.raises(SyntaxTextError) as caught:
        parse(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    if told:
        assert str(caught.value) == told


MODULE = """
sdy.mesh @mesh = <["a"=2, "b c"=2, "d"=8]>
func.func @main(
    %arg0: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {"d":(4)2}]>},
    %arg1: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"d":(1)2, ?}]>})
    -> (tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{?}, {"d":(1)4, ?}]>}) {
  %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0]
    : (tensor<8x8xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  %1 = stablehlo.add %0, %0 : tensor<8x16xf32>
  %2 = sdy.sharding_constraint %1 <@mesh, [{"a", "b c"}, {?}]> : tensor<8x16xf32>
  %3 = sdy.sharding_constraint %2 <@mesh, [{}, {"d", "a"}]> : tensor<8x16xf32>
  %4 = sdy.manual_computation(%3) in_shardings=[<@mesh, [{"a"}, {}]>]
      out_shardings=[<@mesh, [{"a"}, {}]>] manual_axes={"a"} (%x: tensor<4x16xf32>) {
    %z = stablehlo.add %x, %x : tensor<4x16xf32>
    sdy.return %z : tensor<4x16xf32>
  } : (tensor<8x16xf32>) -> tensor<8x16xf32>
  %5 = stablehlo.add %4, %1 : tensor<8x16xf32>
  return %5 : tensor<8x16xf32>
}
"""

WRITTEN_COLLECTIVES = """
sdy.mesh @mesh = <["x"=2, "y"=2, "z"=4]>
func.func @main(
    %arg0: tensor<16x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {"x", "z"}]>})
    -> tensor<16x8xf32> {
  %0 = sdy.all_gather [{}, {"z"}] %arg0 out_sharding=<@mesh, [{"y"}, {"x"}]> : tensor<16x8xf32>
  %1 = sdy.all_to_all [{"x"}: 1->0] %0 out_sharding=<@mesh, [{"y", "x"}, {}]> : tensor<16x8xf32>
  %2 = sdy.all_slice [{}, {"z":(1)2}] %1 out_sharding=<@mesh, [{"y", "x"}, {"z":(1)2}]>
    : tensor<16x8xf32>
  %3 = sdy.all_reduce {"z":(2)2} %2 out_sharding=<@mesh, [{"y", "x"}, {"z":(1)2}]>
    : tensor<16x8xf32>
  return %3 : tensor<16x8xf32>
}
"""

PROPAGATE = (
    "sdy-import-pipeline,sdy-user-priority-propagate{debug-sharding-origins=true "
    "debug-propagation-edge-sharding=true keep-sharding-rules=true}"
)
COLLECTIVES = (
    "func.func(sdy-sharding-constraint-to-reshard,"
    "sdy-insert-explicit-reshards{enable-full-version=true}),"
    "canonicalize{enable-patterns=sdy-reshard},func.func(sdy-reshard-to-collectives),"
    "canonicalize{enable-patterns=sdy-collective}"
)

#: By the start of an attribute: who parses it.
PARSERS: list[tuple[str, Callable[[str], Any]]] = [
    ("#sdy.sharding<", shardy.parse_tensor_sharding),
    ("#sdy.sharding_per_value<", shardy.parse_tensor_sharding_per_value),
    ("#sdy.mesh<", shardy.parse_mesh),
    ("#sdy<manual_axes", shardy.parse_manual_axes),
    ("#sdy.op_sharding_rule<", shardy.parse_op_sharding_rule),
    ("#sdy.propagation_edges<", shardy.parse_propagation_edges),
    ("#sdy<axis_ref_list", shardy.parse_axis_ref_list),
    ("#sdy<list_of_axis_ref_lists", shardy.parse_list_of_axis_ref_lists),
    ("#sdy<all_to_all_param_list", shardy.parse_all_to_all_param_list),
]


def attributes_after(text: str, passes: str) -> list[tuple[str, str]]:
    """Name and text of every attribute in a module once the compiler has run ``passes``."""
    context = jax.jit(lambda x: x).lower(1.0).compiler_ir("stablehlo").context
    with context, ir.Location.unknown():
        module = ir.Module.parse(text)
        manager = PassManager.parse(f"builtin.module({passes})")
        manager.enable_verifier(False)
        manager.run(module.operation)
        found: list[tuple[str, str]] = []

        def visit(op: Any) -> Any:
            for key in op.attributes:
                name, value = (key.name, key.attr) if hasattr(key, "attr") else (key, None)
                value = op.attributes[name] if value is None else value
                if name in ("arg_attrs", "res_attrs"):
                    for one in value:
                        found.extend((entry.name, str(entry.attr)) for entry in one)
                else:
                    found.append((name, str(value)))
            return ir.WalkResult.ADVANCE

        module.operation.walk(visit)
    return found


def test_reads_what_shardys_propagation_and_collectives_write() -> None:
    seen: set[str] = set()
    attributes = [
        *attributes_after(MODULE, PROPAGATE),
        *attributes_after(MODULE, f"{PROPAGATE},{COLLECTIVES}"),
        *attributes_after(WRITTEN_COLLECTIVES, ""),
    ]
    for name, text in attributes:
        if name.endswith("sharding_origins"):
            per_value = text.startswith("[")
            parse_origins = (
                shardy.parse_sharding_origins_per_value
                if per_value
                else shardy.parse_sharding_origins
            )
            assert str(parse_origins(text)) == text
            seen.add("origins per value" if per_value else "origins")
        elif name == "sdy.sharding_origin_name":
            assert str(shardy.parse_origin_sharding(text.strip('"'))) == text.strip('"')
            seen.add(name)
        elif text.startswith("#sdy"):
            start, parse = next(item for item in PARSERS if text.startswith(item[0]))
            assert shardy_attribute(parse(text)) == text
            seen.add(start)
    names = {"origins", "origins per value", "sdy.sharding_origin_name"}
    assert seen == {start for start, _ in PARSERS} | names


def snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def test_rules_are_named_as_the_values_and_their_fields() -> None:
    classes = {
        value
        for module in (mesh, sharding, sharding_rule, collectives, propagation)
        for _, value in inspect.getmembers(module, dataclasses.is_dataclass)
        if value.__module__ == module.__name__
    }
    values = {snake_case(value.__name__) for value in classes}
    fields = {field.name for value in classes for field in dataclasses.fields(value)}
    rules = {
        rule.origin.name
        for rule in shardy.LANGUAGE._parser.rules
        if not rule.origin.name.startswith("_")
    }
    # One entry of a field that has no class: a factor and its size, an axis and its origin.
    entries = {"factor_size", "sharding_origin"}
    assert rules <= values | fields | entries | {f"{value}_text" for value in values}
    assert {rule for rule in rules if rule in values} >= set(KINDS)


def test_a_text_is_parsed_once() -> None:
    text = '<@mesh, [{"only here"}]>'
    assert shardy.parse_tensor_sharding(text) is shardy.parse_tensor_sharding(text)
    assert shardy.parse_mesh('<["a"=2]>') == Mesh((MeshAxis("a", 2),))
    assert shardy.parse_manual_axes('{"a"}') == ManualAxes(("a",))
