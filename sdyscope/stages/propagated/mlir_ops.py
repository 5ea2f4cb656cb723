"""Small things that are done to MLIR ops while a module is imported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sdyscope.stages import compat

#: The attribute of an op that holds what HLO calls frontend attributes.
FRONTEND = "mhlo.frontend_attributes"


def walk(operation: Any) -> Iterator[Any]:
    """Every op inside an op, each before what is inside it."""
    for region in operation.regions:
        for block in region.blocks:
            for view in block.operations:
                inner = view.operation
                yield inner
                if len(inner.regions):
                    yield from walk(inner)


def by_name(operation: Any, *names: str) -> dict[str, list[Any]]:
    """The ops of some names inside an op, as ``walk`` finds them, in one go."""
    operations: dict[str, list[Any]] = {name: [] for name in names}
    _collect(operation, operations)
    return operations


def _collect(operation: Any, operations: dict[str, list[Any]]) -> None:
    for region in operation.regions:
        for block in region.blocks:
            for view in block.operations:
                inner = view.operation
                wanted = operations.get(inner.name)
                if wanted is not None:
                    wanted.append(inner)
                if len(inner.regions):
                    _collect(inner, operations)


def owner(value: Any) -> Any:
    """The op that a value is a result of; None for a block argument."""
    maker = value.owner
    return None if isinstance(maker, compat.ir.Block) else maker.operation


def parse(text: str) -> Any:
    """An MLIR attribute from its text, in the context that is entered."""
    return compat.ir.Attribute.parse(text)


def frontend_attribute(name: str, *operations: Any) -> Any:
    """A frontend attribute, parsed, of the first op that has it; None when there is none."""
    for place in operations:
        if place is not None and FRONTEND in place.attributes:
            frontend = dict(compat.dictionary_items(place.attributes[FRONTEND]))
            if name in frontend:
                return parse(compat.text(frontend[name]))
    return None


def replace_terminator(terminator: Any, name: str, operands: list[Any]) -> None:
    """Puts another op at the end of a block."""
    compat.ir.Operation.create(
        name,
        operands=operands,
        loc=terminator.location,
        ip=compat.ir.InsertionPoint(terminator),
    )
    terminator.erase()
