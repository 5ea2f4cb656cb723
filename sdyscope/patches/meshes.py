"""Where a source says the axes of a mesh, and edits of their order."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import libcst as cst

from sdyscope.patches.source import Source, Splice


def reordered_meshes(
    source: Source, before: Sequence[str], after: Sequence[str]
) -> Iterator[tuple[int, list[Splice]]]:
    """The places that say the axes in one order: the line, and the edits that make it another.

    That is a dict from axes to sizes, or two tuples in a call, of sizes and of axes.

    Args:
        source: the file.
        before: the axes in the order in which they are written.
        after: the same axes in the order wanted.
    """
    order = [before.index(axis) for axis in after]
    for node in source.nodes():
        if isinstance(node, cst.Dict):
            elements = [
                element for element in node.elements if isinstance(element, cst.DictElement)
            ]
            keys = [_string(element.key) for element in elements]
            if keys == list(before) and len(elements) == len(node.elements):
                texts = [
                    source.text[source.extent(element.key)[0] : _end(source, element.value)]
                    for element in elements
                ]
                places = [
                    (source.extent(element.key)[0], _end(source, element.value))
                    for element in elements
                ]
                yield source.line(node), _swapped(places, texts, order)
        elif isinstance(node, cst.Call):
            tuples = [
                argument.value
                for argument in node.args
                if isinstance(argument.value, cst.Tuple | cst.List)
            ]
            names = [
                each
                for each in tuples
                if [_string(element.value) for element in each.elements] == list(before)
            ]
            if len(names) != 1:
                continue
            splices = _reordered(source, names[0], order)
            for other in tuples:
                if other is not names[0] and len(other.elements) == len(before):
                    splices += _reordered(source, other, order)
            yield source.line(node), splices


def _reordered(source: Source, node: cst.Tuple | cst.List, order: Sequence[int]) -> list[Splice]:
    values = [element.value for element in node.elements]
    places = [(source.extent(value)[0], _end(source, value)) for value in values]
    return _swapped(places, [source.text[start:end] for start, end in places], order)


def _swapped(
    places: Sequence[tuple[int, int]], texts: Sequence[str], order: Sequence[int]
) -> list[Splice]:
    return [
        Splice(start, end, texts[number])
        for own, ((start, end), number) in enumerate(zip(places, order, strict=True))
        if texts[own] != texts[number]
    ]


def _end(source: Source, node: cst.BaseExpression) -> int:
    return source.extent(node)[1]


def _string(node: cst.BaseExpression) -> str | None:
    if not isinstance(node, cst.SimpleString):
        return None
    value = ast.literal_eval(node.value)
    return value if isinstance(value, str) else None
