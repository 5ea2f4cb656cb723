"""Builds the op graph from MLIR's own Python bindings."""

from __future__ import annotations

import gc
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import networkx

from sdyscope.graph.attributes import (
    Parsers,
    ShardingTexts,
    default_parsers,
    is_wanted,
    language_of,
    result_shardings,
)
from sdyscope.graph.boundaries import add_boundary_edges
from sdyscope.graph.functions import argument_of, result_of
from sdyscope.graph.locations import LocationReader
from sdyscope.graph.model import (
    ARGUMENT,
    NO_ATTRIBUTES,
    AttributeValue,
    Edge,
    Function,
    NotUnderstood,
    Op,
    OpGraph,
    Sharding,
)
from sdyscope.graph.types import TensorType, parse_type

__all__ = ["build"]

#: A value that ops can use: id of its producer, the region it is in, and the edges from it.
_Source = tuple[int, int, dict[int, Edge], dict[int, Edge]]


def build(module: Any, *, parsers: Parsers | None = None) -> OpGraph:
    """The op graph of a module.

    Takes time and memory linear in the number of ops and operands.

    Args:
      module: An `ir.Module` of MLIR's Python bindings (`jax.extend.mlir.ir`), any dialects.
      parsers: Parsers of the sharding languages, to replace sdyscope's own.
    """
    # Everything made here stays alive, so the collector would only walk it again and again.
    collecting = gc.isenabled()
    gc.disable()
    try:
        with module.context:
            builder = _Builder(module, default_parsers() if parsers is None else parsers)
            builder.visit(module.operation, None, 0, 0, "", 0)
            graph = builder.finish()
            add_boundary_edges(graph)
    finally:
        if collecting:
            gc.enable()
    return graph


class _Builder:
    def __init__(self, module: Any, parsers: Parsers) -> None:
        # The bindings' module, without importing it (that would be importing jax).
        self.bindings = sys.modules[type(module).__module__]
        self.module = module
        self.names = self.bindings.AsmState(module.operation)
        self.nx: networkx.MultiDiGraph[int] = networkx.MultiDiGraph()
        self.ops: list[Op] = []
        self.functions: dict[str, Function] = {}
        self.not_understood: list[NotUnderstood] = []
        self.texts = ShardingTexts(parsers, self.not_understood)
        self.location = LocationReader()
        self.values: dict[Any, _Source] = {}
        self.waiting: list[tuple[Any, int, int, int]] = []
        self.regions = 0
        self.types: dict[Any, TensorType] = {}
        self.wanted: dict[tuple[str, ...], tuple[str, ...]] = {}
        self.plain: dict[Any, AttributeValue] = {}
        self.edges: dict[tuple[int, int, int], tuple[dict[int, Edge], dict[int, Edge]]] = {}
        self.kinds: dict[str, str] = {}

    def visit(
        self,
        operation: Any,
        parent: int | None,
        region: int,
        block: int,
        function: str,
        place: int,
    ) -> None:
        """Adds an op, the uses of its operands, and all that is inside it.

        `place` numbers the region that the op is in, among all regions of the module.
        """
        node = len(self.ops)
        kind = operation.name
        kind = self.kinds.setdefault(kind, kind)
        is_function = kind == "func.func"
        attributes = self.attributes(operation.attributes, node)
        if is_function:
            function = attributes.get("sym_name", "")

        results = operation.results
        count = len(results)
        if count == 1:
            result = results[0]
            name = result.get_name(state=self.names)
            types: tuple[TensorType, ...] = (self.type_of(result.type),)
            shardings = result_shardings(attributes, 1) if attributes else (None,)
            self.values[result] = (node, place, *self.edges_from(0, types[0], shardings[0]))
        elif count:
            results = list(results)
            name = results[0].get_name(state=self.names).partition("#")[0]
            types = tuple(self.type_of(result.type) for result in results)
            shardings = result_shardings(attributes, count)
            for index, result in enumerate(results):
                self.values[result] = (
                    node,
                    place,
                    *self.edges_from(index, types[index], shardings[index]),
                )
        else:
            name, types, shardings = "", (), ()

        op = Op(
            node,
            kind,
            name,
            types,
            shardings,
            function,
            parent,
            region,
            block,
            self.location(operation.location),
            attributes,
        )
        self.ops.append(op)
        self.nx.add_node(node, op=op)

        values = self.values
        add_edge = self.nx.add_edge
        for index, operand in enumerate(operation.operands):
            source = values.get(operand)
            if source is None:
                self.waiting.append((operand, node, index, place))
            else:
                producer, where, data, capture = source
                edges = data if where == place else capture
                edge = edges.get(index)
                if edge is None:
                    edge = self.new_edge(producer, data, edges, index)
                add_edge(producer, node, index, edge=edge)

        if len(operation.regions):
            arguments = self.visit_regions(operation, node, function)
            if is_function:
                self.functions[function] = self.function(operation, op, arguments)

    def visit_regions(self, operation: Any, node: int, function: str) -> list[Op]:
        """Adds what is inside an op; returns the arguments of its first region's first block."""
        first: list[Op] = []
        for number, region in enumerate(operation.regions):
            self.regions += 1
            place = self.regions
            for block_number, block in enumerate(region.blocks):
                arguments = block.arguments
                entry = number == 0 and block_number == 0 and operation.name == "func.func"
                written = self.dictionaries(operation, "arg_attrs", len(arguments)) if entry else ()
                for index, argument in enumerate(arguments):
                    type_ = self.type_of(argument.type)
                    attributes = written[index] if entry else NO_ATTRIBUTES
                    sharding = result_shardings(attributes, 1)[0] if attributes else None
                    op = Op(
                        len(self.ops),
                        ARGUMENT,
                        argument.get_name(state=self.names),
                        (type_,),
                        (sharding,),
                        function,
                        node,
                        number,
                        block_number,
                        self.location(argument.location),
                        attributes,
                        index,
                    )
                    self.ops.append(op)
                    self.nx.add_node(op.id, op=op)
                    self.values[argument] = (
                        op.id,
                        place,
                        *self.edges_from(0, type_, sharding),
                    )
                    if entry:
                        first.append(op)
                for inner in block.operations:
                    self.visit(inner.operation, node, number, block_number, function, place)
        return first

    def edges_from(
        self, result: int, type_: TensorType, sharding: Sharding | None
    ) -> tuple[dict[int, Edge], dict[int, Edge]]:
        """The edges from values alike (result number, type, sharding), by operand number.

        There are few distinct ones, and equal edges are one object. Types and shardings are
        each one object a distinct text, so their identity stands for them.
        """
        key = (result, id(type_), id(sharding))
        found = self.edges.get(key)
        if found is None:
            found = self.edges[key] = ({}, {})
            found[0][-1] = Edge("data", result, -1, type_, sharding)
        return found

    @staticmethod
    def new_edge(producer: int, data: dict[int, Edge], edges: dict[int, Edge], index: int) -> Edge:
        like = data[-1]
        kind = "data" if edges is data else "capture"
        edge = edges[index] = Edge(kind, like.result, index, like.type, like.sharding)
        return edge

    def type_of(self, type_: Any) -> TensorType:
        found = self.types.get(type_)
        if found is None:
            found = self.types[type_] = parse_type(str(type_))
        return found

    def attributes(self, attributes: Any, node: int) -> Mapping[str, AttributeValue]:
        """The attributes that the graph keeps."""
        # Before JAX 0.10 the iterator gives (name, attribute) pairs, since then the names.
        names = tuple([item if type(item) is str else item.name for item in attributes])
        wanted = self.wanted.get(names)
        if wanted is None:
            wanted = self.wanted[names] = tuple(filter(is_wanted, names))
        if not wanted:
            return NO_ATTRIBUTES
        return {name: self.value(name, attributes[name], node) for name in wanted}

    def value(self, name: str, attribute: Any, node: int) -> AttributeValue:
        """The value of an attribute; of a sharding that cannot be parsed the text."""
        plain = self.plain.get(attribute)
        if plain is None:
            plain = self.plain[attribute] = self.plain_value(attribute)
        if type(plain) is str:
            language = language_of(name, plain)
            if language is not None:
                return self.texts.read(language, plain, node, name)
        return plain

    def plain_value(self, attribute: Any) -> AttributeValue:
        kind = type(attribute).__name__
        if kind in ("StringAttr", "FlatSymbolRefAttr", "IntegerAttr", "BoolAttr"):
            return attribute.value
        if kind == "UnitAttr":
            return True
        if kind == "DictAttr":
            return MappingProxyType(
                {name: self.plain_value(value) for name, value in _items(attribute)}
            )
        if kind == "ArrayAttr":
            return tuple(self.plain_value(item) for item in attribute)
        return str(attribute)

    def dictionaries(
        self, operation: Any, name: str, count: int, function: int | None = None
    ) -> list[Mapping[str, AttributeValue]]:
        """The attributes of each argument (`arg_attrs`) or result (`res_attrs`) of a function.

        What is not understood is listed under the argument's node, the next to be made, or
        under the `function` given.
        """
        attributes = operation.attributes
        if name not in attributes:
            return [NO_ATTRIBUTES] * count
        first, step = (len(self.ops), 1) if function is None else (function, 0)
        return [
            {key: self.value(key, value, first + step * index) for key, value in _items(item)}
            for index, item in enumerate(attributes[name])
        ]

    def function(self, operation: Any, op: Op, arguments: list[Op]) -> Function:
        types = [self.type_of(t) for t in operation.attributes["function_type"].value.results]
        results = self.dictionaries(operation, "res_attrs", len(types), op.id)
        return Function(
            op.function,
            op.attributes.get("sym_visibility", ""),
            op.id,
            tuple(map(argument_of, arguments)),
            tuple(map(result_of, range(len(types)), types, results)),
        )

    def finish(self) -> OpGraph:
        for operand, node, index, place in self.waiting:
            # Used before it is defined: in a graph region, or in a block printed earlier.
            producer, where, data, capture = self.values[operand]
            edges = data if where == place else capture
            edge = edges.get(index) or self.new_edge(producer, data, edges, index)
            self.nx.add_edge(producer, node, index, edge=edge)
        top = self.ops[0]
        meshes = {
            op.attributes["sym_name"]: op.attributes["mesh"]
            for op in self.ops
            if op.kind == "sdy.mesh"
        }
        name = top.attributes.get("sym_name", "")
        attributes = {key: value for key, value in top.attributes.items() if key != "sym_name"}
        return OpGraph(
            self.nx,
            self.ops,
            name,
            attributes,
            meshes,
            self.functions,
            self.not_understood,
            "bindings",
        )


def _items(dictionary: Any) -> list[tuple[str, Any]]:
    """Names and values of a DictAttr, which iterates over pairs or, since JAX 0.10, names."""
    return [
        (item, dictionary[item]) if type(item) is str else (item.name, item.attr)
        for item in dictionary
    ]
