"""Builds the op graph from MLIR's own Python bindings."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

from sdyscope.errors import TargetError
from sdyscope.graph.attribute_texts import attribute_value
from sdyscope.graph.attribute_values import (
    NO_ATTRIBUTES,
    AttributeValue,
    Dictionary,
    Elements,
    FunctionType,
    Unparsed,
)
from sdyscope.graph.attributes import (
    Parsers,
    ShardingTexts,
    default_parsers,
    result_shardings,
)
from sdyscope.graph.collection import no_collection
from sdyscope.graph.functions import add_results, function_of, name_bodies
from sdyscope.graph.locations import LocationReader, of_argument, tell_apart
from sdyscope.graph.model import (
    ARGUMENT,
    Function,
    NotUnderstood,
    Op,
    Sharding,
    ValueId,
)
from sdyscope.graph.op_graph import OpGraph
from sdyscope.graph.types import TensorType, parse_type
from sdyscope.syntax.strings import label, string_value

#: Elements that stand elsewhere, by name.
_RESOURCE = re.compile(r"dense_resource<([^>]*)>\s*:\s*(tensor<.*>)", re.DOTALL)
#: The name of elements that the printer left out.
_ELIDED = "__elided__"
_RESOURCE_BYTES = re.compile(r'([\w.$-]+|"[^"]*"): "0x[0-9A-Fa-f]{8}([0-9A-Fa-f]*)"')

#: Attributes of a function that say the same as its arguments and results.
_SAID_BEFORE = frozenset({"arg_attrs", "res_attrs"})
_ARRAYS = frozenset(
    {
        "DenseBoolArrayAttr",
        "DenseF32ArrayAttr",
        "DenseF64ArrayAttr",
        "DenseI16ArrayAttr",
        "DenseI32ArrayAttr",
        "DenseI64ArrayAttr",
        "DenseI8ArrayAttr",
    }
)
_SCALARS = frozenset({"BoolAttr", "FlatSymbolRefAttr", "FloatAttr", "IntegerAttr"})

_Written: TypeAlias = tuple[Mapping[str, AttributeValue], tuple[Sharding | None, ...]]
"""The attributes of an op, and the sharding that they give its result if it has just one."""

_NO_SHARDING = (None,)
_NOTHING_WRITTEN: _Written = (NO_ATTRIBUTES, _NO_SHARDING)


def build(module: Any, *, parsers: Parsers | None = None, named: bool = True) -> OpGraph:
    """The op graph of a module.

    Takes time and memory linear in the number of ops and operands. A module that was parsed from a
    text without locations has those that MLIR's parser makes up: the op's place in that text, in a
    file called `-`.

    Args:
        module: an `ir.Module` of MLIR's Python bindings (`jax.extend.mlir.ir`), any dialects.
        parsers: parsers of the sharding languages, to replace sdyscope's own.
        named: whether ops get their SSA names, for which MLIR verifies the whole module first: a
            sixth of the time.

    Raises:
        TargetError: regions or locations are nested some hundred deep.
    """
    try:
        return _build(module, parsers, named)
    except RecursionError:
        raise TargetError(
            "The module's regions or locations are nested too deep to read."
        ) from None


def _build(module: Any, parsers: Parsers | None, named: bool) -> OpGraph:
    if parsers is None:
        parsers = default_parsers()
    with no_collection(), module.context:
        builder = _Builder(module, parsers, hash, named)
        builder.visit_top(module.operation)
        if len(builder.values) != builder.num_values:
            # Two values had the same hash, so hashes do not stand for values here.
            builder = _Builder(module, parsers, lambda value: value, named)
            builder.visit_top(module.operation)
        return builder.finish()


class _Builder:
    """Reads a module.

    `key_of` makes the key of a value. Its hash, which is its address, is one, and saves a tenth of
    the time against the value itself, which would be compared and kept alive.
    """

    def __init__(
        self,
        module: Any,
        parsers: Parsers,
        key_of: Callable[[Any], Any],
        named: bool,
    ) -> None:
        self.key_of = key_of
        # The bindings' module, without importing it (that would be importing jax).
        bindings = sys.modules[type(module.operation).__module__]
        self.module = module
        self.asm_state = bindings.AsmState(module.operation) if named else None
        self.items = getattr(type(module.operation.attributes), "items", _pairs)
        self.ops: list[Op] = []
        self.operand_values: list[Sequence[ValueId]] = []
        self.functions: dict[str, Function] = {}
        self.not_understood: list[NotUnderstood] = []
        self.texts = ShardingTexts(parsers, self.not_understood)
        self.location = LocationReader()
        self.values: dict[Any, ValueId] = {}
        self.num_values = 0
        self.waiting: list[tuple[Any, int]] = []
        self.types: dict[Any, TensorType] = {}
        self.written: dict[tuple[tuple[str, Any], ...], _Written] = {}
        self.known: dict[tuple[str, Any], AttributeValue] = {}
        self.plain: dict[Any, AttributeValue] = {}
        self.kinds: dict[str, str] = {}

    def visit_top(self, operation: Any) -> None:
        """Adds the module and all that is inside it."""
        written = operation.attributes
        try:
            pairs = tuple(self.items(written))
        except TypeError:
            pairs = self.pairs_of_unknown(written)
        attributes, _ = self.attributes(pairs, 0)
        location = self.location(operation.location)
        top = Op(0, operation.name, "", (), (), "", None, 0, 0, location, attributes)
        self.ops.append(top)
        self.operand_values.append(())
        self.visit_regions(operation, top)

    def visit_block(self, block: Any, parent: int, region: int, number: int, function: str) -> None:
        """Adds the ops of a block, their operands, and all that is inside them.

        This loop is nearly all of the time that a graph takes, hence the local names.
        """
        ops, values, types, kinds = self.ops, self.values, self.types, self.kinds
        asm_state, operand_values, items = self.asm_state, self.operand_values, self.items
        locations, read_location = self.location.known, self.location
        written, key_of, value_of = self.written, self.key_of, values.__getitem__
        for view in block.operations:
            operation = view.operation
            node = len(ops)
            kind = operation.name
            kind = kinds.get(kind) or kinds.setdefault(kind, kind)

            attributes, sharding_of_one = _NOTHING_WRITTEN
            try:
                # Equal attributes are one object of MLIR, and ops that have the same share one
                # dictionary.
                pairs = tuple(items(operation.attributes))
            except TypeError:
                pairs = self.pairs_of_unknown(operation.attributes)
            if pairs:
                attributes, sharding_of_one = written.get(pairs) or self.attributes(pairs, node)
            inside = attributes.get("sym_name", "") if kind == "func.func" else function

            results = operation.results
            count = len(results)
            result_types: tuple[TensorType, ...] = ()
            shardings: tuple[Sharding | None, ...] = ()
            name = ""
            if count == 1:
                result = results[0]
                if asm_state is not None:
                    name = result.get_name(state=asm_state)
                type_of_result = result.type
                type_ = types.get(type_of_result) or self.type_of(type_of_result)
                result_types = (type_,)
                shardings = sharding_of_one
                values[key_of(result)] = (node, 0)
                self.num_values += 1
            elif count:
                if asm_state is not None:
                    name = results[0].get_name(state=asm_state).partition("#")[0]
                result_types = tuple([self.type_of(result.type) for result in results])
                shardings = result_shardings(attributes, count)
                for index, result in enumerate(results):
                    values[key_of(result)] = (node, index)
                self.num_values += count

            location = operation.location
            where = locations.get(location.attr) or read_location(location)
            op = Op(
                node,
                kind,
                name,
                result_types,
                shardings,
                inside,
                parent,
                region,
                number,
                where,
                attributes,
            )
            ops.append(op)
            try:
                operand_values.append([*map(value_of, map(key_of, operation.operands))])
            except KeyError:
                # Used before it is defined: in a graph region, or in a block printed earlier.
                operand_values.append(())
                self.waiting.append((operation, node))

            if len(operation.regions):
                self.visit_regions(operation, op)

    def visit_regions(self, operation: Any, op: Op) -> None:
        """Adds what is inside an op, and a function to the table of functions."""
        is_function = op.kind == "func.func"
        function_arguments: list[Op] = []
        for number, region in enumerate(operation.regions):
            for block_number, block in enumerate(region.blocks):
                entry = is_function and block_number == 0
                arguments = self.visit_arguments(operation, op, block, number, block_number, entry)
                if entry:
                    function_arguments = arguments
                self.visit_block(block, op.id, number, block_number, op.function)
        if is_function:
            self.functions[op.function] = self.function(operation, op, function_arguments)

    def visit_arguments(
        self, operation: Any, owner: Op, block: Any, region: int, number: int, entry: bool
    ) -> list[Op]:
        """Adds the arguments of a block; `entry`: those of a function."""
        arguments = block.arguments
        written = self.dictionaries(operation, "arg_attrs", len(arguments)) if entry else []
        added = []
        for index, argument in enumerate(arguments):
            type_ = self.type_of(argument.type)
            attributes = written[index] if entry else NO_ATTRIBUTES
            shardings = result_shardings(attributes, 1) if attributes else _NO_SHARDING
            op = Op(
                len(self.ops),
                ARGUMENT,
                "" if self.asm_state is None else argument.get_name(state=self.asm_state),
                (type_,),
                shardings,
                owner.function,
                owner.id,
                region,
                number,
                of_argument(self.location(argument.location), owner.location),
                attributes,
                index,
            )
            self.ops.append(op)
            self.operand_values.append(())
            self.num_values += 1
            self.values[self.key_of(argument)] = (op.id, 0)
            added.append(op)
        return added

    def type_of(self, type_: Any) -> TensorType:
        tensor_type = self.types.get(type_)
        if tensor_type is None:
            tensor_type = self.types[type_] = parse_type(str(type_))
        return tensor_type

    def attributes(self, pairs: tuple[tuple[str, Any], ...], node: int) -> _Written:
        """All attributes of an op, one dictionary for all ops that have the same."""
        before = len(self.texts.not_understood)
        dictionary = Dictionary(
            {name: self.value(name, attribute, node) for name, attribute in pairs}
        )
        written = dictionary, result_shardings(dictionary, 1)
        if len(self.texts.not_understood) == before:
            self.written[pairs] = written
        return written

    def pairs_of_unknown(self, attributes: Any) -> tuple[tuple[str, Any], ...]:
        """Names and attributes where the bindings have no class for one: its text instead.

        They raise for a tensor of complex numbers.
        """
        pairs = []
        for number, name in enumerate(_names_of(attributes)):
            aborts = self.items is _pairs and _is_complex(attributes[number])
            try:
                attribute = None if aborts else attributes[name]
            except TypeError:
                attribute = None
            if attribute is None:
                text = str(attributes[number])
                attribute = text.removeprefix(f"NamedAttribute({name}=").removesuffix(")")
            pairs.append((name, attribute))
        return tuple(pairs)

    def value(self, name: str, attribute: Any, node: int) -> AttributeValue:
        """The value of an attribute; of a sharding that cannot be parsed the text.

        What was not understood is listed each time that it is met.
        """
        key = (name, attribute)
        value = self.known.get(key)
        if value is None:
            before = len(self.texts.not_understood)
            op = None if name in _SAID_BEFORE else node
            value = self.texts.read_in(name, self.plain_value(attribute), op)
            if len(self.texts.not_understood) == before:
                self.known[key] = value
        return value

    def plain_value(self, attribute: Any) -> AttributeValue:
        """The value of an attribute; what is about sharding stays a text."""
        value = self.plain.get(attribute)
        if value is None:
            value = self.plain[attribute] = self.read_plain(attribute)
        return value

    def read_plain(self, attribute: Any) -> AttributeValue:
        kind = type(attribute).__name__
        if kind == "str":
            return attribute_value(attribute)
        try:
            if kind == "StringAttr":
                return string_value(attribute)
            if kind in _SCALARS:
                return attribute.value
            if kind in _ARRAYS:
                return tuple(attribute)
            if kind == "DictAttr":
                fields = {name: self.plain_value(value) for name, value in _items(attribute)}
                return Dictionary(fields)
            if kind == "ArrayAttr":
                return tuple([self.plain_value(item) for item in attribute])
            if kind == "TypeAttr" and type(attribute.value).__name__ == "FunctionType":
                of = attribute.value
                return FunctionType(
                    *(tuple(map(self.type_of, each)) for each in (of.inputs, of.results))
                )
        except (TypeError, RuntimeError, UnicodeDecodeError):
            pass  # a symbol that is no UTF-8, or an element that the bindings have no class for
        value = attribute_value(str(attribute))
        resource = _RESOURCE.fullmatch(value) if isinstance(value, Unparsed) else None
        if resource is not None and resource[1] in self.resources:
            return Elements(self.resources[resource[1]], parse_type(resource[2]))
        if resource is not None and resource[1].startswith(_ELIDED):
            # MLIR numbers what it reads under one name in one context: `__elided___1`.
            return Unparsed(f"dense_resource<{_ELIDED}> : {resource[2]}")
        return value

    @cached_property
    def resources(self) -> Mapping[str, str]:
        """The elements that stand at the end of the module, by name: bytes, as MLIR prints them."""
        _, _, section = str(self.module).rpartition("\n{-#")
        # The first four bytes say how the others are aligned.
        return {name.strip('"'): f'"0x{data}"' for name, data in _RESOURCE_BYTES.findall(section)}

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
        if not self.texts.has_failed:
            # Nothing is to be listed: they are those that the function was read with.
            owner = len(self.ops) - 1 if function is None else function
            return list(self.ops[owner].attributes[name])
        first, step = (len(self.ops), 1) if function is None else (function, 0)
        return [
            Dictionary(
                {key: self.value(key, value, first + step * index) for key, value in _items(item)}
            )
            for index, item in enumerate(attributes[name])
        ]

    def function(self, operation: Any, op: Op, arguments: list[Op]) -> Function:
        types = op.attributes["function_type"].results
        results = self.dictionaries(operation, "res_attrs", len(types), op.id)
        return function_of(op, arguments, types, results)

    def finish(self) -> OpGraph:
        for operation, node in self.waiting:
            self.operand_values[node] = [self.values[self.key_of(o)] for o in operation.operands]
        top = self.ops[0]
        meshes = {
            op.attributes["sym_name"]: op.attributes["mesh"]
            for op in self.ops
            if op.kind == "sdy.mesh"
        }
        name = label(str(top.attributes.get("sym_name", "")))
        attributes = {key: value for key, value in top.attributes.items() if key != "sym_name"}
        graph = OpGraph(
            self.ops,
            self.operand_values,
            name,
            attributes,
            meshes,
            self.functions,
            self.not_understood,
            "bindings",
        )
        tell_apart(op.location for op in graph.ops)
        name_bodies(graph)
        add_results(graph)
        return graph


def _names_of(attributes: Any) -> tuple[str, ...]:
    """Names of an op's attributes; iterating over them gives pairs or, since JAX 0.10, names."""
    pairs = tuple(attributes)
    if pairs and type(pairs[0]) is not str:
        return tuple([pair.name for pair in pairs])
    return pairs


def _pairs(attributes: Any) -> list[tuple[str, Any]]:
    """Names and values of an op's attributes, by bindings whose map of them has no `items`.

    Raises:
        TypeError: one is a constant of complex numbers, on which these bindings abort the process.
    """
    pairs = list(attributes)
    if any(map(_is_complex, pairs)):
        raise TypeError("a tensor of complex numbers")
    return [(pair.name, pair.attr) for pair in pairs]


def _is_complex(pair: Any) -> bool:
    return pair.name == "value" and "complex<" in str(pair)


def _items(dictionary: Any) -> list[tuple[str, Any]]:
    """Names and values of a DictAttr, which iterates over pairs or, since JAX 0.10, names."""
    return [
        (item, dictionary[item]) if type(item) is str else (item.name, item.attr)
        for item in dictionary
    ]
