"""Keys of repeated layers as one text, and back: ``params['layers'][{0..23}]['w1']``.

Nothing is lost: the text says exactly which numbers there are, and is read back to every key.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias, TypeVar

from sdyscope.analysis.naming.paths import split
from sdyscope.snapshots.values import Key

Range: TypeAlias = tuple[int, ...]
"""The numbers that stand at one place, ascending."""

Template: TypeAlias = tuple[str | Range, ...]
"""A name in parts: text, and numbers of which each stands there once."""

_Content = TypeVar("_Content", bound=Hashable)

#: How many keys one text may stand for.
MOST = 100_000

#: Numbers of layers, as Python writes them, in pytree paths and in scopes. Longer ones are none.
_IN_PATHS = re.compile(r"(?<!\d)(?:0|[1-9]\d{0,8})(?!\d)")
_IN_SCOPES = re.compile(r"(?<=[A-Za-z_])(?:0|[1-9]\d{0,8})(?![A-Za-z\d])")

#: In the last part of a path: that it is an index, and numbers that other names follow.
_INDEX = re.compile(r"(?<=^\[)(?:0|[1-9]\d{0,8})(?=\]$)")
_IN_KEYS = re.compile(r"(?<!\d)(?:0|[1-9]\d{0,8})(?=[./][^A-Za-z]*[A-Za-z])")

#: What a function returns, which are different things.
_RESULTS = re.compile(r"result\[\d+\]")


def expanded(template: Template) -> Iterable[str]:
    """Every name that a template stands for."""
    parts = [[part] if isinstance(part, str) else [str(n) for n in part] for part in template]
    return map("".join, itertools.product(*parts))


def size(template: Template) -> int:
    """How many names a template stands for."""
    return math.prod(len(part) for part in template if not isinstance(part, str))


def fold(
    contents: Mapping[Key, _Content], *, last: bool = False
) -> list[tuple[Key, Template, _Content]]:
    """Keys with equal contents together: the first of them, the template of their names, contents.

    Names are folded that differ in numbers alone, where every combination of the numbers is there;
    in the order of the first.

    Args:
        contents: what there is of each key.
        last: whether what the last part of a path counts is folded, too: the arrays of a list
            (``weights[3]``), layers whose number stands inside a key (``['layers/3/w1']``). Files
            do not have it so.
    """
    groups: dict[Hashable, list[tuple[Key, tuple[int, ...]]]] = {}
    for key, content in contents.items():
        texts, numbers = _split(key, last)
        shape = (replace(key, name=""), texts, content)
        groups.setdefault(shape, []).append((key, numbers))
    folded: list[tuple[Key, Template, _Content]] = []
    for members in groups.values():
        by_numbers = {numbers: key for key, numbers in members}
        texts = _split(members[0][0], last)[0]
        for product in _products(by_numbers):
            first = by_numbers[tuple(numbers[0] for numbers in product)]
            folded.append((first, _template(texts, product), contents[first]))
    return sorted(folded, key=lambda entry: entry[0].order)


def without_numbers(path: str) -> str:
    """The path of an argument, alike for those of all layers."""
    return "#".join(_split(Key("argument", path))[0])


def _split(key: Key, last: bool = False) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The text between the numbers of layers, and the numbers."""
    pattern, name, end = _IN_SCOPES, key.name, ""
    if key.kind in ("argument", "result"):
        # Numbers in the last part tell tensors apart that do different things: w1, w2.
        parts = split(name)
        if "".join(parts) != name:
            return (name,), ()  # No path as JAX writes them.
        pattern, end = _IN_PATHS, parts[-1]
        name = "".join(parts[:-1])
    texts = pattern.split(name)
    numbers = tuple(int(match[0]) for match in pattern.finditer(name))
    if last and end and not _RESULTS.fullmatch(key.name):
        counted = _INDEX if _INDEX.search(end) else _IN_KEYS
        first, *rest = counted.split(end)
        texts = [*texts[:-1], texts[-1] + first, *rest]
        numbers += tuple(int(match[0]) for match in counted.finditer(end))
        end = ""
    return (*texts[:-1], texts[-1] + end), numbers


def _products(numbers: Iterable[tuple[int, ...]]) -> list[tuple[Range, ...]]:
    """The same combinations as products of ranges, the innermost number folded first."""
    products: set[tuple[Range, ...]] = {tuple((number,) for number in key) for key in numbers}
    width = len(next(iter(products)))
    for place in reversed(range(width)):
        merged: dict[tuple[tuple[Range, ...], tuple[Range, ...]], set[int]] = {}
        for product in products:
            merged.setdefault((product[:place], product[place + 1 :]), set()).update(product[place])
        products = {
            (*before, tuple(sorted(values)), *after) for (before, after), values in merged.items()
        }
    return sorted(products)


def _template(texts: tuple[str, ...], product: tuple[Range, ...]) -> Template:
    parts: list[str | Range] = []
    text = texts[0]
    for numbers, after in zip(product, texts[1:], strict=True):
        if len(numbers) == 1:
            text += f"{numbers[0]}{after}"
        else:
            parts += [text, numbers]
            text = after
    return tuple(part for part in (*parts, text) if part != "")
