"""Builds the op graph from MLIR text that MLIR's own parser does not accept.

A newer dialect, an op that nobody registered, or a broken line must not hide the rest of a module:
what this reader does not understand it lists, and goes on. Regions are found by their brackets,
ops by how they begin.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sdyscope.graph.attribute_texts import attribute_value
from sdyscope.graph.attribute_values import (
    NO_ATTRIBUTES,
    AttributeValue,
    Dictionary,
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
from sdyscope.graph.locations import (
    UNKNOWN,
    Location,
    call_site,
    file_place,
    fused,
    named,
    of_argument,
    place_in_text,
    tell_apart,
)
from sdyscope.graph.model import (
    ARGUMENT,
    Function,
    NotUnderstood,
    Op,
    ValueId,
)
from sdyscope.graph.op_graph import OpGraph
from sdyscope.graph.text_records import OpRecord
from sdyscope.graph.text_statements import ASSEMBLY
from sdyscope.graph.text_structure import KEPT, StructureReader
from sdyscope.graph.types import TensorType, parse_type
from sdyscope.syntax.strings import label, split, string_end, unescape


def read_text(text: str, *, parsers: Parsers | None = None) -> OpGraph:
    """The op graph of a module given as MLIR text, pretty-printed or generic.

    Never fails on what the text says: lines that are not understood are in
    `graph.not_understood`, with their numbers. A text without a module is in one without a name.

    Args:
        text: the text.
        parsers: parsers of the sharding languages, to replace sdyscope's own.
    """
    with no_collection():
        structure = StructureReader(text)
        structure.read()
        assembly = _Assembly(structure, default_parsers() if parsers is None else parsers)
        return assembly.graph()


@dataclass
class _Assembly:
    """Makes the graph's values of what was found in the text."""

    structure: StructureReader
    parsers: Parsers
    types: dict[str, TensorType] = field(default_factory=dict)
    values: dict[str, AttributeValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.not_understood: list[NotUnderstood] = list(self.structure.not_understood)
        self.texts = ShardingTexts(self.parsers, self.not_understood)
        self.locations = LocationTexts(self.structure.location_aliases)

    def graph(self) -> OpGraph:
        graph = OpGraph([], [], "", {}, {}, {}, self.not_understood, "text")
        records = self.structure.records
        for record in records:
            op = self.op(record)
            if op.argument >= 0 and op.parent is not None:
                around = graph.ops[op.parent].location
                op = op._replace(location=of_argument(op.location, around))
            graph.ops.append(op)
        for record in records:
            self.add_uses(graph, record)
        for record in records:
            if record.kind == "func.func":
                function = self.function(graph, record)
                graph.functions[function.name] = function
            elif record.kind == "sdy.mesh":
                attributes = graph.ops[record.id].attributes
                if "mesh" in attributes:
                    graph.meshes[attributes.get("sym_name", "")] = attributes["mesh"]
        top = graph.ops[0].attributes
        graph.name = label(str(top.get("sym_name", "")))
        graph.attributes = {key: value for key, value in top.items() if key != "sym_name"}
        tell_apart(op.location for op in graph.ops)
        name_bodies(graph)
        add_results(graph)
        return graph

    def op(self, record: OpRecord) -> Op:
        attributes = self.attributes(record.attributes, record.id)
        location, understood = self.locations(record.location)
        if not understood:
            self.not_understood.append(
                NotUnderstood(record.id, "loc", record.location, "not a location", record.line)
            )
        elif not record.location and record.line:
            location = place_in_text(record.line)
        return Op(
            record.id,
            record.kind,
            record.name,
            tuple(self.type_of(text) for text in record.types),
            result_shardings(attributes, len(record.types)),
            record.function,
            record.parent,
            record.region,
            record.block,
            location,
            attributes,
            record.argument,
        )

    def type_of(self, text: str) -> TensorType:
        tensor_type = self.types.get(text)
        if tensor_type is None:
            tensor_type = self.types[text] = parse_type(text)
        return tensor_type

    def attributes(self, texts: Mapping[str, str], op: int) -> Mapping[str, AttributeValue]:
        attributes: dict[str, AttributeValue] = {}
        for name, text in texts.items():
            if name == ASSEMBLY:
                attributes[name] = Unparsed(text)
                continue
            try:
                value = self.values.get(text)
                if value is None:
                    aliases = self.structure.attribute_aliases
                    value = self.values[text] = attribute_value(text, aliases)
            except RecursionError:
                value = Unparsed(text)
                error = "brackets nested too deep to read"
                self.not_understood.append(NotUnderstood(op, name, text[:KEPT], error))
            attributes[name] = self.texts.read_in(name, value, op)
        return Dictionary(attributes) if attributes else NO_ATTRIBUTES

    def add_uses(self, graph: OpGraph, record: OpRecord) -> None:
        values: list[ValueId] = []
        numbers: list[int] = []
        for index, use in enumerate(record.operands):
            if use is None:
                continue
            producer, result = use
            source = graph.ops[producer]
            if result >= len(source.types):
                self.not_understood.append(
                    NotUnderstood(
                        record.id,
                        "",
                        f"{source.name}#{result}",
                        f"{source.kind} has {len(source.types)} results",
                        record.line,
                    )
                )
                continue
            values.append(use)
            numbers.append(index)
        graph.operand_values.append(values)
        if len(numbers) != len(record.operands):
            graph.operand_numbers[record.id] = numbers

    def function(self, graph: OpGraph, record: OpRecord) -> Function:
        op = graph.ops[record.id]
        arguments = [
            child
            for child in graph.ops[op.id + 1 : op.id + 1 + record.arguments]
            if child.kind == ARGUMENT
        ]
        types = [self.type_of(text) for text, _ in record.function_results]
        written = [self.attributes(dict(texts), op.id) for _, texts in record.function_results]
        if any(child.parent == op.id for child in graph.ops[op.id + 1 : op.id + 2]):
            graph.ops[op.id] = op._replace(attributes=_signature(op, arguments, types, written))
        return function_of(op, arguments, types, written)


def _signature(
    op: Op,
    arguments: Sequence[Op],
    types: Sequence[TensorType],
    results: Sequence[Mapping[str, AttributeValue]],
) -> Mapping[str, AttributeValue]:
    """Attributes of a function with those that its pretty form writes on arguments and results."""
    attributes = {
        "function_type": FunctionType(
            tuple(argument.types[0] for argument in arguments), tuple(types)
        ),
        **op.attributes,
    }
    written = {"arg_attrs": [argument.attributes for argument in arguments], "res_attrs": results}
    for name, dictionaries in written.items():
        if any(dictionaries):
            attributes.setdefault(name, tuple(dictionaries))
    return Dictionary(attributes)


# --- Locations ------------------------------------------------------------------------------------
# Strings, lists and locations from the texts that MLIR prints for them.

_FILE = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):(\d+)(?:\s+to\s+(?:\d+)?:\d+)?')


class LocationTexts:
    """Reads locations from their texts, each distinct one once.

    Args:
        aliases: what `#loc3` and the like stand for (`loc("a"(#loc2))`); may still grow before the
            first location is read.
    """

    def __init__(self, aliases: Mapping[str, str]) -> None:
        self._aliases = aliases
        self._known: dict[tuple[str, bool], tuple[Location, bool]] = {}
        self._wrong: set[tuple[str, bool]] = set()
        self._met_wrong = False

    def __call__(self, text: str) -> tuple[Location, bool]:
        """The value of `loc(...)`, and whether all of it was understood."""
        if not text:
            return UNKNOWN, True
        self._met_wrong = False
        location = self._read(text, whole=True)[0]
        return location, not self._met_wrong

    def _read(self, text: str, *, whole: bool) -> tuple[Location, bool]:
        """The value, and whether it is just a place in a file."""
        key = (text, whole)
        if key not in self._known:
            outside, self._met_wrong = self._met_wrong, False
            # Set first, so that an alias which names itself ends here.
            self._known[key] = (UNKNOWN, False)
            try:
                self._known[key] = self._parse(text.strip(), whole=whole)
            except (ValueError, IndexError, RecursionError):
                self._met_wrong = True
            if self._met_wrong:
                self._wrong.add(key)
            self._met_wrong = outside
        if key in self._wrong:
            self._met_wrong = True
        return self._known[key]

    def _parse(self, text: str, *, whole: bool) -> tuple[Location, bool]:
        if text.startswith("loc(") and text.endswith(")"):
            return self._read(text[4:-1], whole=whole)
        if text.startswith("#"):
            return self._read(self._alias(text), whole=whole)
        if text in ("unknown", "?"):
            return UNKNOWN, False
        if match := _FILE.fullmatch(text):
            return file_place(unescape(f'"{match[1]}"'), int(match[2]), int(match[3])), True
        if text.startswith('"'):
            end = string_end(text, 0)
            name, rest = unescape(text[:end]), text[end:].strip()
            if not rest:
                return named(name, UNKNOWN, frame=False), False
            if not (rest.startswith("(") and rest.endswith(")")):
                raise ValueError(text)
            child, is_file = self._read(rest[1:-1], whole=False)
            return named(name, child, frame=is_file and not whole), False
        if text.startswith("callsite(") and text.endswith(")"):
            callee, caller = _split_at(text[9:-1])
            return call_site(
                self._read(callee, whole=False)[0], self._read(caller, whole=False)[0]
            ), False
        if text.startswith("fused") and text.endswith("]"):
            start = len("fused") + _metadata_length(text[len("fused") :])
            parts = split(text[start + 1 : -1])
            return fused([self._read(part, whole=False)[0] for part in parts]), False
        raise ValueError(text)

    def _alias(self, name: str) -> str:
        if name not in self._aliases:
            raise ValueError(name)
        return self._aliases[name]


def _split_at(text: str) -> tuple[str, str]:
    """`callee at caller`, split where the `at` is outside of brackets and strings."""
    callee, *caller = split(text, " at ")
    if not caller:
        raise ValueError(text)
    return callee, " at ".join(caller)


def _metadata_length(text: str) -> int:
    """Length of the `<...>` that a text begins with; 0 when it begins with none."""
    if not text.startswith("<"):
        return 0
    depth, position = 0, 0
    while position < len(text):
        if text[position] == '"':
            position = string_end(text, position)
            continue
        depth += {"<": 1, ">": -1}.get(text[position], 0)
        position += 1
        if depth == 0:
            return position
    raise ValueError(text)
