"""What the op graph has of an op or an edge as texts and numbers, as files can hold them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from sdyscope.graph.locations import Location
from sdyscope.graph.model import AttributeValue, Edge, Op, Sharding
from sdyscope.graph.types import TensorType
from sdyscope.syntax.strings import xml_text
from sdyscope.values.source import SourceLocation

if TYPE_CHECKING:
    from sdyscope.graph.op_graph import OpGraph

Scalars: TypeAlias = dict[str, str | int]
"""Texts and numbers by name."""

#: All that a node, an edge and the graph may have, with its type; what says nothing is left out.
NODE_KEYS: Mapping[str, type] = {
    "kind": str,
    "name": str,
    "scope": str,
    "source": str,
    "stack": str,
    "types": str,
    "shapes": str,
    "requested": str,
    "lowered": str,
    "propagated": str,
    "compiled": str,
    "attributes": str,
    "function": str,
    "parent": int,
    "region": int,
    "block": int,
    "argument": int,
    "result": int,
}
EDGE_KEYS: Mapping[str, type] = {
    "kind": str,
    "result": int,
    "operand": int,
    "type": str,
    "sharding": str,
    "via": int,
}
GRAPH_KEYS: Mapping[str, type] = {
    "module": str,
    "reader": str,
    "not_understood": int,
    "meshes": str,
}


def attribute_text(value: AttributeValue) -> str:
    """An attribute on one line: shardings in their own language, the rest as MLIR writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        inside = ", ".join(f"{name} = {attribute_text(item)}" for name, item in value.items())
        return f"{{{inside}}}"
    if isinstance(value, tuple):
        return f"[{', '.join(map(attribute_text, value))}]"
    return str(value)


def attribute_texts(attributes: Mapping[str, AttributeValue]) -> dict[str, str]:
    """Each attribute's text by its name."""
    return {name: attribute_text(value) for name, value in attributes.items()}


def sharding_texts(op: Op) -> list[str | None]:
    """The sharding of each result; None where none is written."""
    return [None if sharding is None else str(sharding) for sharding in op.shardings]


def type_text(type_: TensorType) -> str:
    """`f32[16,8]`, `?` for a dynamic dimension; the whole type when it is no ranked tensor."""
    if type_.shape is None:
        return type_.text
    sizes = ",".join("?" if size is None else str(size) for size in type_.shape)
    return f"{type_.dtype}[{sizes}]"


def frame_text(frame: SourceLocation, name_file: Callable[[str], str] = str) -> str:
    """`train.py:12:4 step`, with the file as `name_file` names it."""
    return f"{name_file(frame.file)}:{frame.line}:{frame.column} {frame.function}".rstrip()


def graph_scalars(graph: OpGraph) -> Scalars:
    """What there is to say of the module."""
    return {
        "module": xml_text(graph.name),
        "reader": graph.reader,
        "not_understood": len(graph.not_understood),
        "meshes": xml_text("; ".join(f"@{name} {mesh}" for name, mesh in graph.meshes.items())),
    }


def edge_scalars(edge: Edge) -> Scalars:
    """What there is to say of an edge."""
    values: Scalars = {
        "kind": edge.kind,
        "result": edge.result,
        "operand": edge.operand,
        "type": xml_text(edge.type.text),
    }
    if edge.sharding is not None:
        values["sharding"] = xml_text(str(edge.sharding))
    if edge.via is not None:
        values["via"] = edge.via
    return values


class NodeScalars:
    """What there is to say of each op, block argument or result of main of a graph.

    Of an op with several results, texts are joined with `; `. What ops share, their types,
    shardings, locations and attributes, is written once.

    Args:
        graph: the graph.
        name_file: the text of a source file's path; by default the whole path.
    """

    def __init__(self, graph: OpGraph, name_file: Callable[[str], str] = str) -> None:
        self._name_file = name_file
        self._stages = [(graph.stage, graph.ops)]
        if graph.before is not None:
            self._stages.insert(0, (graph.before.stage, graph.before.ops))
        self._beside = graph.beside
        self._types: dict[int, tuple[str, str]] = {}
        self._shardings: dict[int, str] = {}
        self._places: dict[int, tuple[str, str, str]] = {}
        self._stacks: dict[int, tuple[str, str]] = {}
        self._attributes: dict[int, str] = {}
        self._names: dict[str, str] = {}

    def __call__(self, op: Op) -> Scalars:
        """By the names of `NODE_KEYS`."""
        # All at once: the graph of a large module is hardly more than this function.
        node, kind, name, types, _, function, parent, region, block, location = op[:10]
        attributes, argument, result = op[10:]
        scope, source, stack = self._places.get(id(location)) or self._place(location)
        if len(types) == 1:
            type_ = types[0]
            types_text, shapes = self._types.get(id(type_)) or self._type(type_)
        else:
            texts = [self._types.get(id(type_)) or self._type(type_) for type_ in types]
            types_text = "; ".join([text for text, _ in texts])
            shapes = "; ".join([text for _, text in texts])
        values: Scalars = {
            "kind": kind,
            "name": name,
            "scope": scope,
            "types": types_text,
            "shapes": shapes,
            "function": self._names.get(function) or self._name(function),
            "region": region,
            "block": block,
        }
        if source:
            values["source"] = source
            values["stack"] = stack
        if parent is not None:
            values["parent"] = parent
        if argument >= 0:
            values["argument"] = argument
        elif result >= 0:
            values["result"] = result
        for stage, ops in self._stages:
            shardings = ops[node].shardings
            if shardings.count(None) != len(shardings):
                values[stage] = "; ".join(map(self._sharding, shardings))
        for beside, sharded in self._beside.items():
            of_each = [sharded.get((node, result)) for result in range(len(types))]
            if any(of_each):
                values[beside] = "; ".join(map(self._sharding, of_each))
        if attributes:
            values["attributes"] = self._attributes.get(id(attributes)) or self._write(attributes)
        return values

    def _place(self, location: Location) -> tuple[str, str, str]:
        frames = location.frames
        stack = self._stacks.get(id(frames))
        if stack is None:
            texts = [frame_text(frame, self._name_file) for frame in frames]
            own = location.source
            source = "" if own is None else frame_text(own, self._name_file)
            stack = self._stacks[id(frames)] = (
                xml_text(source),
                xml_text("; ".join(texts)),
            )
        place = self._places[id(location)] = (xml_text(location.scope), *stack)
        return place

    def _name(self, function: str) -> str:
        name = self._names[function] = xml_text(function)
        return name

    def _type(self, type_: TensorType) -> tuple[str, str]:
        texts = self._types[id(type_)] = (xml_text(type_.text), xml_text(type_text(type_)))
        return texts

    def _write(self, attributes: Mapping[str, AttributeValue]) -> str:
        text = self._attributes[id(attributes)] = xml_text(attribute_text(attributes))
        return text

    def _sharding(self, sharding: Sharding | None) -> str:
        if sharding is None:
            return ""
        text = self._shardings.get(id(sharding))
        if text is None:
            text = self._shardings[id(sharding)] = xml_text(str(sharding))
        return text
