"""What a program does while it is built: the files that it reads, the axes that it names arrays by.

Frameworks keep the logical axes of an array in ways of their own. All of them hand such names to
some function together with the array, or with its shape.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import CodeType, FrameType, MappingProxyType
from typing import Any, TypeAlias

import jax
import jaxlib

from sdyscope.stages.edited.overlay import overlaid
from sdyscope.values.source import is_installed

Shape: TypeAlias = tuple[int, ...]

#: Calls of one function that named no axes, until it is left alone.
_PATIENCE = 256

_JAX = tuple(os.path.join(folder, "") for folder in (*jax.__path__, *jaxlib.__path__))
_PYTHON = os.path.join(os.path.dirname(os.__file__), "")

#: More names than an array has dimensions are a list of something else.
_MOST_DIMS = 12


@dataclass(frozen=True, slots=True)
class Observed:
    """What a program did while it was built and traced.

    Attributes:
        files: real paths of the files that it opened to read, in their order.
        shapes: by each name that was said of a dimension, the shapes of the arrays.
    """

    files: tuple[str, ...] = ()
    shapes: Mapping[str, frozenset[Shape]] = field(default_factory=lambda: MappingProxyType({}))


def observed(act: Callable[[], object]) -> Observed:
    """Builds and traces a program, all of the author's modules imported anew, and looks on.

    Args:
        act: builds and traces it.

    Raises:
        SdyscopeError: that fails.
    """
    files: dict[str, None] = {}
    named: dict[str, set[Shape]] = {}
    left: Counter[CodeType] = Counter()

    def called(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or left[code] >= _PATIENCE:
            return
        if not left[code] and _is_below(code.co_filename):
            left[code] = _PATIENCE
            return
        left[code] += 1
        values = [*frame.f_locals.values()]
        names = [value for value in values if _is_names(value)]
        if not names:
            return
        shapes = {shape for value in values if (shape := _shape(value)) is not None}
        for each in names:
            for shape in shapes:
                if len(shape) == len(each):
                    left[code] = 0
                    for name in filter(None, each):
                        named.setdefault(name, set()).add(shape)

    before = sys.getprofile()
    with overlaid({}, anew=True, note=lambda file: files.update({file: None})):
        sys.setprofile(called)
        try:
            act()
        finally:
            sys.setprofile(before)
    shapes = {name: frozenset(each) for name, each in named.items()}
    return Observed(tuple(files), MappingProxyType(shapes))


def _is_below(file: str) -> bool:
    """Whether a file is JAX's or Python's, whose functions know no names of the author's."""
    return file.startswith((*_JAX, "<frozen ")) or (
        file.startswith(_PYTHON) and not is_installed(file)
    )


def _is_names(value: Any) -> bool:
    """Whether a value could be what the dimensions of an array are called."""
    return (
        isinstance(value, tuple | list)
        and 0 < len(value) <= _MOST_DIMS
        and all(name is None or isinstance(name, str) for name in value)
        and any(value)
    )


def _shape(value: Any) -> Shape | None:
    """The shape that an argument has or is."""
    sizes: Any
    try:
        sizes = value if isinstance(value, tuple | list) else getattr(value, "shape", None)
    except Exception:  # a user's object can raise anything
        return None
    if not sizes or not isinstance(sizes, tuple | list):
        return None
    return tuple(sizes) if all(type(size) is int for size in sizes) else None
