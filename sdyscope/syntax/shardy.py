"""Attributes of Shardy's MLIR dialect: text to values. The grammar is ``grammars/shardy.lark``.

Every function takes the attribute in MLIR's long or short form (``#sdy.sharding<...>``,
``#sdy<sharding<...>>``) or bare, as the dialect's ops print it (``<@mesh, [{"a"}]>``), and raises
``SyntaxTextError`` with line, column, a caret and what was expected. Results are remembered, since
a module repeats few texts many times. The way back is ``str(value)``.

Accepted is what the MLIR parsers of JAX 0.7.2 to 0.12 accept, of all versions together. Stricter
than they are where they let pass what the verifier of the op refuses later (sub-axes of size 1)
or what they print as something that they can't read (dimensions without factors).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from lark import Token, Transformer

from sdyscope.errors import ConversionError
from sdyscope.syntax._parser import Language, items, of_list, of_parts
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
from sdyscope.values.sharding import (
    DimSharding,
    ManualAxes,
    MeshOp,
    TensorSharding,
    TensorShardingPerValue,
)
from sdyscope.values.sharding_rule import (
    DimMapping,
    OpShardingRule,
    TensorMapping,
    factor_index,
    factor_symbol,
)

_ESCAPES = re.compile(r'\\(?:(["\\nt])|((?:[0-9A-Fa-f]{2})(?:\\[0-9A-Fa-f]{2})*))')
_PLAIN_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "t": "\t"}
_SUB_AXIS_KEY = re.compile(r"(.*):\((\d+)\)(\d+)", re.DOTALL)


def unescape(text: str) -> str:
    r"""The inside of an MLIR string literal as the text it means: ``\22`` is a quote.

    Bytes that are not UTF-8 become surrogates, as in Python's ``surrogateescape``.
    """
    return _ESCAPES.sub(_unescape, text) if "\\" in text else text


def _unescape(match: re.Match[str]) -> str:
    if match[1]:
        return _PLAIN_ESCAPES[match[1]]
    return bytes.fromhex(match[2].replace("\\", "")).decode("utf-8", "surrogateescape")


class _Values(Transformer[Token, Any]):
    """A method a rule, named as it; and the terminals whose text needs work."""

    def STRING(self, token: Token) -> str:  # noqa: N802
        return unescape(token[1:-1])

    def SYMBOL(self, token: Token) -> str:  # noqa: N802
        name = token[1:]
        return unescape(name[1:-1]) if name.startswith('"') else name

    def NAME(self, token: Token) -> str:  # noqa: N802
        return str(token)

    def INTEGER(self, token: Token) -> int:  # noqa: N802
        return _integer(token)

    def DEVICE_IDS(self, token: Token) -> tuple[int, ...]:  # noqa: N802
        return tuple(map(_integer, token.split(",")))

    def PRIORITY(self, token: Token) -> int:  # noqa: N802
        return _integer(token[1:])

    def OPEN(self, token: Token) -> bool:  # noqa: N802
        return True

    def FACTORS(self, token: Token) -> tuple[int, ...]:  # noqa: N802
        return tuple(map(factor_index, re.findall(r"z_\d+|[i-z]", token)))

    # Meshes and axes

    def mesh(self, children: list[Any]) -> Mesh:
        *axes, device_ids = children
        return Mesh(items(axes), device_ids)

    mesh_axis = of_parts(MeshAxis)

    def device_ids(self, children: list[Any]) -> tuple[int, ...]:
        first, *rest = children
        return (*first, *rest) if isinstance(first, tuple) else (first, *rest)

    mesh_op = of_parts(MeshOp)
    axis_ref = of_parts(AxisRef)
    sub_axis_info = of_parts(SubAxisInfo)

    # Tensor shardings

    def tensor_sharding(self, children: list[Any]) -> TensorSharding:
        mesh, dim_shardings, *named = children
        fields: dict[str, Any] = {}
        for part in named:
            fields.update(part or {})
        return TensorSharding(mesh, dim_shardings, **fields)

    dim_shardings = of_list(tuple)

    def dim_sharding(self, children: list[Any]) -> DimSharding:
        *axes, priority = children
        is_closed = not axes or axes[-1] is not True
        return DimSharding(items(axes if is_closed else axes[:-1]), is_closed, priority)

    def replicated_axes(self, children: list[Any]) -> dict[str, Any]:
        return {"replicated_axes": tuple(children)}

    def unreduced_axes(self, children: list[Any]) -> dict[str, Any]:
        reduction, *axes = children
        return {"unreduced_axes": tuple(axes), "reduction": str(reduction or "sum")}

    tensor_sharding_per_value = of_list(TensorShardingPerValue)
    manual_axes = of_list(ManualAxes)

    # Op sharding rules

    def op_sharding_rule(self, children: list[Any]) -> OpShardingRule:
        operands, results, sizes, *factors, custom = children
        reduction, need_replication, permutation, blocked_propagation = factors
        return OpShardingRule(
            sizes or (),
            operands,
            results,
            reduction or (),
            need_replication or (),
            permutation or (),
            blocked_propagation or (),
            custom is not None,
        )

    def operand_mappings(self, children: list[Any]) -> tuple[TensorMapping, ...]:
        return tuple(children)

    result_mappings = operand_mappings

    tensor_mapping = of_list(TensorMapping)
    dim_mapping = of_parts(DimMapping)

    def factor_sizes(self, children: list[Any]) -> tuple[int, ...]:
        sizes = items(children)
        for expected, (factor, _) in enumerate(sizes):
            if factor != expected:
                raise ConversionError(
                    "factor sizes must be in the order i, j, k, ...: "
                    f"{factor_symbol(factor)} stands where {factor_symbol(expected)} belongs"
                )
        return tuple(size for _, size in sizes)

    def factor_size(self, children: list[Any]) -> tuple[int, int]:
        factors, size = children
        return _single(factors), size

    def reduction_factors(self, children: list[Any]) -> tuple[int, ...]:
        return tuple(map(_single, items(children)))

    need_replication_factors = permutation_factors = reduction_factors
    blocked_propagation_factors = reduction_factors

    # Collectives

    axis_ref_list = of_list(AxisRefList)
    list_of_axis_ref_lists = of_list(ListOfAxisRefLists)

    def all_to_all_param(self, children: list[Any]) -> AllToAllParam:
        *axes, src_dim, tgt_dim = children
        return AllToAllParam(tuple(axes), src_dim, tgt_dim)

    all_to_all_param_list = of_list(AllToAllParamList)

    # Propagation

    def propagation_edges(self, children: list[Any]) -> PropagationEdges:
        return PropagationEdges(tuple(children))

    def propagation_one_step(self, children: list[Any]) -> PropagationOneStep:
        step_index, *entries = children
        return PropagationOneStep(step_index, tuple(entries))

    axis_to_propagation_details = of_parts(AxisToPropagationDetails)

    def targets(self, children: list[Any]) -> tuple[EdgeValueRef, ...]:
        return tuple(children)

    def edge_value_ref(self, children: list[Any]) -> EdgeValueRef:
        kind, index = children
        return EdgeValueRef("operand" if kind == "operand" else "result", index)

    sharding_origins_per_value = of_list(ShardingOriginsPerValue)
    sharding_origins = of_list(ShardingOrigins)

    def sharding_origin(self, children: list[Any]) -> tuple[AxisRef, OriginSharding]:
        key, origin = children
        # The key is the axis as Shardy prints it, without its quotes.
        parts = _SUB_AXIS_KEY.fullmatch(key)
        if parts is None:
            return AxisRef(unescape(key)), origin
        return AxisRef(unescape(parts[1]), SubAxisInfo(int(parts[2]), int(parts[3]))), origin

    def function_origin(self, children: list[Any]) -> OriginSharding:
        kind, index = children
        return OriginSharding("input" if kind == "input" else "output", index)

    def constraint_origin(self, children: list[Any]) -> OriginSharding:
        return OriginSharding("constraint", source_id=children[0])

    def manual_computation_origin(self, children: list[Any]) -> OriginSharding:
        source_id, kind, index = children
        if kind is None:
            return OriginSharding("manual_computation", source_id=source_id)
        return OriginSharding("mc_input" if kind == "_input" else "mc_output", index, source_id)

    def own_origin(self, children: list[Any]) -> OriginSharding:
        return OriginSharding("self")


def _integer(digits: str) -> int:
    written = "".join(digits.split())
    # Of thousands of digits Python itself would refuse to make a number.
    number = int(written, 16 if "x" in written else 10) if len(written) < 32 else 1 << 64
    if not -(1 << 63) <= number < 1 << 63:
        raise ConversionError(f"{digits} does not fit in 64 bits")
    return number


def _single(factors: tuple[int, ...]) -> int:
    if len(factors) > 1:
        symbols = " and ".join(map(factor_symbol, factors))
        raise ConversionError(f"one factor is meant here, not {symbols} together")
    return factors[0]


LANGUAGE = Language(
    "shardy.lark",
    transformer=_Values,
    names={
        "STRING": "a name in quotes",
        "SYMBOL": "a mesh's name like @mesh",
        "NAME": "an axis name",
        "INTEGER": "a number",
        "DEVICE_IDS": "a number",
        "_ATTRIBUTES": "attributes in braces",
        "PRIORITY": "a priority like p1",
        "REDUCTION": "'sum', 'max' or 'min'",
        "FACTORS": "factors like i, j or z_1",
        "EDGE_NODE_TYPE": "'operand' or 'result'",
        "FUNCTION_VALUE": "'input' or 'output'",
        "MANUAL_COMPUTATION_VALUE": "'_input' or '_output'",
        "_MESH": "'#sdy.mesh<'",
        "_SHARDING": "'#sdy.sharding<'",
        "_SHARDING_PER_VALUE": "'#sdy.sharding_per_value<'",
        "_OP_SHARDING_RULE": "'#sdy.op_sharding_rule<'",
        "_PROPAGATION_EDGES": "'#sdy.propagation_edges<'",
    },
)

#: ``<["a"=2, "b"=2], device_ids=[0, 2, 1, 3]>``, ``#sdy.mesh<["a"=2]>``.
parse_mesh: Callable[[str], Mesh] = LANGUAGE.parser("mesh_text")

#: ``sdy.mesh @mesh = <["a"=2]>``; a dictionary of attributes behind it is not kept.
parse_mesh_op: Callable[[str], MeshOp] = LANGUAGE.parser("mesh_op")

#: ``"a"``, ``"a":(1)2``.
parse_axis_ref: Callable[[str], AxisRef] = LANGUAGE.parser("axis_ref")

#: ``{"a", "b":(1)2, ?}p1``.
parse_dim_sharding: Callable[[str], DimSharding] = LANGUAGE.parser("dim_sharding")

#: ``#sdy.sharding<@mesh, [{"a"}, {?}]>``, ``<@mesh, [{"a"}, {?}], replicated={"b"}>``.
parse_tensor_sharding: Callable[[str], TensorSharding] = LANGUAGE.parser("tensor_sharding_text")

#: ``#sdy.sharding_per_value<[<@mesh, []>]>``, ``[<@mesh, []>, <@mesh, [{"a"}]>]``.
parse_tensor_sharding_per_value: Callable[[str], TensorShardingPerValue] = LANGUAGE.parser(
    "tensor_sharding_per_value_text"
)

#: ``#sdy<manual_axes{"a"}>``, ``{"a", "b"}``.
parse_manual_axes: Callable[[str], ManualAxes] = LANGUAGE.parser("manual_axes_text")

#: ``#sdy.op_sharding_rule<([i, k], [k, j])->([i, j]) {i=8, j=4, k=2} reduction={k}>``.
parse_op_sharding_rule: Callable[[str], OpShardingRule] = LANGUAGE.parser("op_sharding_rule_text")

#: ``{"a", "b":(1)2}``, the axes of ``sdy.all_reduce``.
parse_axis_ref_list: Callable[[str], AxisRefList] = LANGUAGE.parser("axis_ref_list_text")

#: ``[{}, {"a"}]``, the axes of each dimension in ``sdy.all_gather`` and others.
parse_list_of_axis_ref_lists: Callable[[str], ListOfAxisRefLists] = LANGUAGE.parser(
    "list_of_axis_ref_lists_text"
)

#: ``[{"a"}: 0->1, {"b"}: 2->3]``, the parameters of ``sdy.all_to_all``.
parse_all_to_all_param_list: Callable[[str], AllToAllParamList] = LANGUAGE.parser(
    "all_to_all_param_list_text"
)

#: ``#sdy.propagation_edges<[{step-4 = [{"data" = operand-0 -> [result-0]}]}]>``.
parse_propagation_edges: Callable[[str], PropagationEdges] = LANGUAGE.parser(
    "propagation_edges_text"
)

#: ``{a = "input: 0", "c:(1)2" = "self"}``: origins of one value.
parse_sharding_origins: Callable[[str], ShardingOrigins] = LANGUAGE.parser("sharding_origins")

#: ``[{a = "input: 0"}, {}]``: origins of every result of an op.
parse_sharding_origins_per_value: Callable[[str], ShardingOriginsPerValue] = LANGUAGE.parser(
    "sharding_origins_per_value"
)

#: ``input: 0``, ``constraint_3``, ``mc_0_output: 1``, ``mc_0``, ``self``.
parse_origin_sharding: Callable[[str], OriginSharding] = LANGUAGE.parser("origin_sharding")
