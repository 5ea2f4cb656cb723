"""What the author's code calls things at a line: meshes, shardings, and JAX's own functions.

The program itself is asked: it is traced once more while Python says which lines run, and where one
is about to run that is of interest, the names that it has are looked through.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any, TypeVar

import jax
from jax.lax import with_sharding_constraint
from jax.sharding import NamedSharding as JaxNamedSharding
from jax.sharding import PartitionSpec as JaxPartitionSpec

from sdyscope.errors import ConversionError
from sdyscope.stages import compat
from sdyscope.stages.lowered.request import from_jax_sharding
from sdyscope.values.mesh import Mesh
from sdyscope.values.sharding import NamedSharding

_Value = TypeVar("_Value")

#: How many attributes or items of one object are looked at.
_MOST = 64
#: How many attributes or items an expression goes through: `self.config.mesh` two.
_DEEPEST = 2

#: What edits may need, by the names that `Names.known` has them under.
_WANTED: Mapping[int, str] = {
    id(jax): "jax",
    id(jax.lax): "jax.lax",
    id(jax.sharding): "jax.sharding",
    id(JaxPartitionSpec): "PartitionSpec",
    id(JaxNamedSharding): "NamedSharding",
    id(with_sharding_constraint): "with_sharding_constraint",
    id(jax.numpy): "jax.numpy",
    id(jax.sharding.reshard): "reshard",
}


@dataclass
class Names:
    """What can be written at a line.

    Attributes:
        meshes: meshes by the expression that has them, the shortest first.
        shardings: likewise.
        known: what JAX's functions and classes are called.
        has_context: whether a mesh is set around the line, so that a bare spec is enough.
    """

    meshes: dict[str, Mesh] = field(default_factory=dict)
    shardings: dict[str, NamedSharding] = field(default_factory=dict)
    known: dict[str, str] = field(default_factory=dict)
    has_context: bool = False


def named_at(
    lines: Mapping[str, frozenset[int]], act: Callable[[], _Value]
) -> tuple[_Value, dict[tuple[str, int], Names]]:
    """Does something, and says which names the code had at some lines that it ran.

    Args:
        lines: the lines of each file.
        act: what to do.

    Returns:
        What it made, and the names at each (file, line) that was run, when it first was.
    """
    names: dict[tuple[str, int], Names] = {}
    wanted = {os.path.realpath(file): numbers for file, numbers in lines.items()}
    real: dict[str, str] = {}
    # The call that a function was last defined in: what that has names for, the function can use.
    around: dict[CodeType, FrameType] = {}

    def called(frame: FrameType, event: str, _: Any) -> Any:
        file = frame.f_code.co_filename
        path = real.get(file)
        if path is None:
            path = real[file] = os.path.realpath(file)
        numbers = wanted.get(path)
        if numbers is None:
            return None
        for inner in _defined_in(frame.f_code):
            around[inner] = frame
        return lined if any(line in numbers for *_, line in frame.f_code.co_lines()) else None

    def lined(frame: FrameType, event: str, _: Any) -> Any:
        key = (frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and key not in names and key[1] in wanted[real[key[0]]]:
            names[key] = _names(frame, around)
        return lined

    before = sys.gettrace()
    sys.settrace(called)
    try:
        result = act()
    finally:
        sys.settrace(before)
    return result, names


def names_in(frame: FrameType) -> Names:
    """The names of a call that failed or is running."""
    return _names(frame, {})


def _defined_in(code: CodeType) -> Iterator[CodeType]:
    """The functions that a function defines, not those inside of them."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType) and inner.co_flags & inspect.CO_OPTIMIZED:
            yield inner


def _in_scope(frame: FrameType, around: Mapping[CodeType, FrameType]) -> dict[str, Any]:
    """What each name stands for in a call: the innermost first, a local before a global."""
    scope: dict[str, Any] = {}
    outer: FrameType | None = frame
    while outer is not None:
        for name, value in outer.f_locals.items():
            scope.setdefault(name, value)
        outer = around.get(outer.f_code)
    for name, value in [*frame.f_globals.items()]:
        scope.setdefault(name, value)
    return {name: value for name, value in scope.items() if not name.startswith("__")}


def _names(frame: FrameType, around: Mapping[CodeType, FrameType]) -> Names:
    names = Names(has_context=compat.has_context_mesh())
    scope = _in_scope(frame, around)
    # What is nearest says most, and a name more than an attribute.
    reach = [*scope.items()]
    for _ in range(_DEEPEST):
        for path, value in reach:
            _note(names, path, value)
        reach = [within for path, value in reach for within in _inside(path, value)]
    for path, value in reach:
        _note(names, path, value)
    return names


def _note(names: Names, path: str, value: Any) -> None:
    wanted = _WANTED.get(id(value))
    if wanted is not None:
        names.known.setdefault(wanted, path)
    elif isinstance(value, jax.sharding.Mesh | jax.sharding.AbstractMesh):
        mesh = compat.mesh_of(value)
        if mesh not in names.meshes.values():
            names.meshes[path] = mesh
    elif isinstance(value, JaxNamedSharding):
        try:
            sharding, _ = from_jax_sharding(value, len(value.spec))
        except (ConversionError, TypeError):
            return
        if sharding is not None and sharding not in names.shardings.values():
            names.shardings[path] = sharding


def _inside(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Attributes and items of an object of the author's, as expressions."""
    if isinstance(value, dict):
        for key, inner in [*value.items()][:_MOST]:
            if isinstance(key, str):
                yield f"{path}[{key!r}]", inner
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        yield from ((f"{path}.{name}", getattr(value, name)) for name in value._fields)
    elif isinstance(value, ModuleType) and "." in path:
        return  # A name of the author's, and not all that its packages hold.
    elif not isinstance(value, type | FunctionType | MethodType):
        if type(value).__module__.partition(".")[0] in ("jax", "jaxlib", "numpy"):
            return
        for name, inner in [*_attributes(value)][:_MOST]:
            if not name.startswith("_"):
                yield f"{path}.{name}", inner


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """What an object holds, without what it computes when it is asked."""
    yield from getattr(value, "__dict__", {}).items()
    for class_ in type(value).__mro__:
        slots = class_.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            # One can be empty, and then Python knows no such attribute.
            if hasattr(value, name):
                yield name, getattr(value, name)
