"""Attributes of Shardy's MLIR dialect: text to values. The grammar is ``grammars/shardy.lark``.

Every function takes the attribute in MLIR's long or short form (``#sdy.sharding<...>``,
``#sdy<sharding<...>>``) or bare, as the dialect's ops print it (``<@mesh, [{"a"}]>``), and raises
``SyntaxTextError`` with line, column, a caret and what was expected. Results are remembered, since
a module repeats few texts many times. The way back is ``str(value)``, or ``value.attribute``.

Accepted is what the MLIR parsers of JAX 0.7.2 to 0.12 accept, of all versions together. Stricter
than they are where they let pass what the verifier of the op refuses later (sub-axes of size 1)
or what they print as something that they can't read (dimensions without factors).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from lark import Token, Transformer

from sdyscope.errors import ConversionError
from sdyscope.syntax._parser import Language, items
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

#: How many texts of each kind are remembered.
REMEMBERED = 1 << 14

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

    def mesh_axis(self, children: list[Any]) -> MeshAxis:
        return MeshAxis(*children)

    def device_ids(self, children: list[Any]) -> tuple[int, ...]:
        first, *rest = children
        return (*first, *rest) if isinstance(first, tuple) else (first, *rest)

    def mesh_op(self, children: list[Any]) -> MeshOp:
        return MeshOp(*children)

    def axis_ref(self, children: list[Any]) -> AxisRef:
        return AxisRef(*children)

    def sub_axis_info(self, children: list[Any]) -> SubAxisInfo:
        return SubAxisInfo(*children)

    # Tensor shardings

    def tensor_sharding(self, children: list[Any]) -> TensorSharding:
        mesh, dim_shardings, *named = children
        fields: dict[str, Any] = {}
        for part in named:
            fields.update(part or {})
        return TensorSharding(mesh, dim_shardings, **fields)

    def dim_shardings(self, children: list[Any]) -> tuple[DimSharding, ...]:
        return items(children)

    def dim_sharding(self, children: list[Any]) -> DimSharding:
        *axes, priority = children
        is_closed = not axes or axes[-1] is not True
        return DimSharding(items(axes if is_closed else axes[:-1]), is_closed, priority)

    def replicated_axes(self, children: list[Any]) -> dict[str, Any]:
        return {"replicated_axes": tuple(children)}

    def unreduced_axes(self, children: list[Any]) -> dict[str, Any]:
        reduction, *axes = children
        return {"unreduced_axes": tuple(axes), "reduction": str(reduction or "sum")}

    def tensor_sharding_per_value(self, children: list[Any]) -> TensorShardingPerValue:
        return TensorShardingPerValue(items(children))

    def manual_axes(self, children: list[Any]) -> ManualAxes:
        return ManualAxes(items(children))

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

    def tensor_mapping(self, children: list[Any]) -> TensorMapping:
        return TensorMapping(items(children))

    def dim_mapping(self, children: list[Any]) -> DimMapping:
        return DimMapping(*children)

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

    def axis_ref_list(self, children: list[Any]) -> AxisRefList:
        return AxisRefList(items(children))

    def list_of_axis_ref_lists(self, children: list[Any]) -> ListOfAxisRefLists:
        return ListOfAxisRefLists(items(children))

    def all_to_all_param(self, children: list[Any]) -> AllToAllParam:
        *axes, src_dim, tgt_dim = children
        return AllToAllParam(tuple(axes), src_dim, tgt_dim)

    def all_to_all_param_list(self, children: list[Any]) -> AllToAllParamList:
        return AllToAllParamList(items(children))

    # Propagation

    def propagation_edges(self, children: list[Any]) -> PropagationEdges:
        return PropagationEdges(tuple(children))

    def propagation_one_step(self, children: list[Any]) -> PropagationOneStep:
        step_index, *entries = children
        return PropagationOneStep(step_index, tuple(entries))

    def axis_to_propagation_details(self, children: list[Any]) -> AxisToPropagationDetails:
        return AxisToPropagationDetails(*children)

    def targets(self, children: list[Any]) -> tuple[EdgeValueRef, ...]:
        return tuple(children)

    def edge_value_ref(self, children: list[Any]) -> EdgeValueRef:
        kind, index = children
        return EdgeValueRef("operand" if kind == "operand" else "result", index)

    def sharding_origins_per_value(self, children: list[Any]) -> ShardingOriginsPerValue:
        return ShardingOriginsPerValue(items(children))

    def sharding_origins(self, children: list[Any]) -> ShardingOrigins:
        return ShardingOrigins(items(children))

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
    starts=(
        "mesh_text",
        "mesh_op",
        "axis_ref",
        "dim_sharding",
        "tensor_sharding_text",
        "tensor_sharding_per_value_text",
        "manual_axes_text",
        "op_sharding_rule_text",
        "axis_ref_list_text",
        "list_of_axis_ref_lists_text",
        "all_to_all_param_list_text",
        "propagation_edges_text",
        "sharding_origins",
        "sharding_origins_per_value",
        "origin_sharding",
    ),
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


@lru_cache(REMEMBERED)
def parse_mesh(text: str) -> Mesh:
    """``<["a"=2, "b"=2], device_ids=[0, 2, 1, 3]>``, ``#sdy.mesh<["a"=2]>``."""
    value: Mesh = LANGUAGE.parse("mesh_text", text)
    return value


@lru_cache(REMEMBERED)
def parse_mesh_op(text: str) -> MeshOp:
    """``sdy.mesh @mesh = <["a"=2]>``; a dictionary of attributes behind it is not kept."""
    value: MeshOp = LANGUAGE.parse("mesh_op", text)
    return value


@lru_cache(REMEMBERED)
def parse_axis_ref(text: str) -> AxisRef:
    """``"a"``, ``"a":(1)2``."""
    value: AxisRef = LANGUAGE.parse("axis_ref", text)
    return value


@lru_cache(REMEMBERED)
def parse_dim_sharding(text: str) -> DimSharding:
    """``{"a", "b":(1)2, ?}p1``."""
    value: DimSharding = LANGUAGE.parse("dim_sharding", text)
    return value


@lru_cache(REMEMBERED)
def parse_tensor_sharding(text: str) -> TensorSharding:
    """``#sdy.sharding<@mesh, [{"a"}, {?}]>``, ``<@mesh, [{"a"}, {?}], replicated={"b"}>``."""
    value: TensorSharding = LANGUAGE.parse("tensor_sharding_text", text)
    return value


@lru_cache(REMEMBERED)
def parse_tensor_sharding_per_value(text: str) -> TensorShardingPerValue:
    """``#sdy.sharding_per_value<[<@mesh, []>]>``, ``[<@mesh, []>, <@mesh, [{"a"}]>]``."""
    value: TensorShardingPerValue = LANGUAGE.parse("tensor_sharding_per_value_text", text)
    return value


@lru_cache(REMEMBERED)
def parse_manual_axes(text: str) -> ManualAxes:
    """``#sdy<manual_axes{"a"}>``, ``{"a", "b"}``."""
    value: ManualAxes = LANGUAGE.parse("manual_axes_text", text)
    return value


@lru_cache(REMEMBERED)
def parse_op_sharding_rule(text: str) -> OpShardingRule:
    """``#sdy.op_sharding_rule<([i, k], [k, j])->([i, j]) {i=8, j=4, k=2} reduction={k}>``."""
    value: OpShardingRule = LANGUAGE.parse("op_sharding_rule_text", text)
    return value


@lru_cache(REMEMBERED)
def parse_axis_ref_list(text: str) -> AxisRefList:
    """``{"a", "b":(1)2}``, the axes of ``sdy.all_reduce``."""
    value: AxisRefList = LANGUAGE.parse("axis_ref_list_text", text)
    return value


@lru_cache(REMEMBERED)
def parse_list_of_axis_ref_lists(text: str) -> ListOfAxisRefLists:
    """``[{}, {"a"}]``, the axes of each dimension in ``sdy.all_gather`` and others."""
    value: ListOfAxisRefLists = LANGUAGE.parse("list_of_axis_ref_lists_text", text)
    return value


@lru_cache(REMEMBERED)
def parse_all_to_all_param_list(text: str) -> AllToAllParamList:
    """``[{"a"}: 0->1, {"b"}: 2->3]``, the parameters of ``sdy.all_to_all``."""
    value: AllToAllParamList = LANGUAGE.parse("all_to_all_param_list_text", text)
    return value


@lru_cache(REMEMBERED)
def parse_propagation_edges(text: str) -> PropagationEdges:
    """``#sdy.propagation_edges<[{step-4 = [{"data" = operand-0 -> [result-0]}]}]>``."""
    value: PropagationEdges = LANGUAGE.parse("propagation_edges_text", text)
    return value


@lru_cache(REMEMBERED)
def parse_sharding_origins(text: str) -> ShardingOrigins:
    """``{a = "input: 0", "c:(1)2" = "self"}``: origins of one value."""
    value: ShardingOrigins = LANGUAGE.parse("sharding_origins", text)
    return value


@lru_cache(REMEMBERED)
def parse_sharding_origins_per_value(text: str) -> ShardingOriginsPerValue:
    """``[{a = "input: 0"}, {}]``: origins of every result of an op."""
    value: ShardingOriginsPerValue = LANGUAGE.parse("sharding_origins_per_value", text)
    return value


@lru_cache(REMEMBERED)
def parse_origin_sharding(text: str) -> OriginSharding:
    """``input: 0``, ``constraint_3``, ``mc_0_output: 1``, ``mc_0``, ``self``."""
    value: OriginSharding = LANGUAGE.parse("origin_sharding", text)
    return value
