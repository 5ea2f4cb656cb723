"""Where a source says the axes of a mesh, and edits of their order and sizes."""

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


def resized_meshes(
    source: Source, axes: Sequence[str], before: Sequence[int], after: Sequence[int]
) -> Iterator[tuple[int, list[Splice]]]:
    """The places that say the sizes of the axes: the line, and the edits that make them others.

    That is a dict from axes to sizes, or a call that names the axes in a tuple and says the sizes:
    ``make_mesh((4, 2), ("data", "model"))``, ``Mesh(devices.reshape(4, 2), ("data", "model"))``.

    Args:
        source: the file.
        axes: the names of the axes, in the order in which they are written.
        before: their sizes.
        after: the sizes wanted.
    """
    for node in source.nodes():
        values: list[cst.BaseExpression] = []
        if isinstance(node, cst.Dict):
            elements = [each for each in node.elements if isinstance(each, cst.DictElement)]
            if [_string(element.key) for element in elements] == list(axes):
                values = [element.value for element in elements]
        elif isinstance(node, cst.Call) and any(
            _strings(argument.value) == list(axes) for argument in node.args
        ):
            sizes = (row for argument in node.args for row in _rows(argument.value, len(before)))
            values = next((row for row in sizes if list(map(_integer, row)) == list(before)), [])
        if [_integer(value) for value in values] == list(before):
            places = [(source.extent(value)[0], _end(source, value)) for value in values]
            yield (
                source.line(node),
                [
                    Splice(start, end, str(size))
                    for (start, end), was, size in zip(places, before, after, strict=True)
                    if was != size
                ],
            )


def _rows(node: cst.CSTNode, count: int) -> Iterator[list[cst.BaseExpression]]:
    """What stands beside each other in an expression: of a tuple, a list or a call."""
    if isinstance(node, cst.Tuple | cst.List) and len(node.elements) == count:
        yield [element.value for element in node.elements]
    if isinstance(node, cst.Call) and len(node.args) == count:
        yield [argument.value for argument in node.args]
    for child in node.children:
        yield from _rows(child, count)


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


def _strings(node: cst.BaseExpression) -> list[str | None] | None:
    if not isinstance(node, cst.Tuple | cst.List):
        return None
    return [_string(element.value) for element in node.elements]


def _integer(node: cst.BaseExpression) -> int | None:
    return ast.literal_eval(node.value) if isinstance(node, cst.Integer) else None
