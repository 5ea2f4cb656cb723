"""Values of the op graph as the short texts that the graph formats hold."""

from __future__ import annotations

from collections.abc import Mapping

from sdyscope.graph import Op, TensorType
from sdyscope.graph.model import AttributeValue
from sdyscope.values.source import SourceLocation

__all__ = ["attribute_text", "attribute_texts", "frame_text", "sharding_texts", "type_text"]


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


def frame_text(frame: SourceLocation) -> str:
    """`train.py:12:4 step`."""
    return f"{frame.file}:{frame.line}:{frame.column} {frame.function}".rstrip()
