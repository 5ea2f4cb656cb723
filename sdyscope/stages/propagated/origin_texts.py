"""Origins as Shardy writes them into a module: ``{data = "input: 0", "model:(1)2" = "self"}``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from sdyscope.errors import SdyscopeError
from sdyscope.facts.propagated import Origins
from sdyscope.syntax import shardy
from sdyscope.values.mesh import AxisRef
from sdyscope.values.propagation_edges import OriginSharding

_NUMBER = re.compile(r"\d+")


class WrittenOrigins(NamedTuple):
    """The origins that Shardy wrote for one value.

    Attributes:
        origins: those of a kind that is known, by axis.
        unread: the others, each (as it is written, why it could not be read).
    """

    origins: Origins = ()
    unread: tuple[tuple[str, str], ...] = ()


NOTHING = WrittenOrigins()


def parse_origins(origins: Iterable[tuple[str, str]] | str) -> WrittenOrigins:
    """The origins of one value, by axis; the text of what is no dictionary of these."""
    if isinstance(origins, str):
        return WrittenOrigins(unread=((origins, "expected a dictionary of strings"),))
    return _parsed_origins(tuple(map(tuple, origins)))


@lru_cache(1 << 12)
def _parsed_origins(items: tuple[tuple[str, str], ...]) -> WrittenOrigins:
    origins, unread = [], []
    for key, value in items:
        try:
            origins.append((_axis(key), _annotation(value)))
        except SdyscopeError as error:  # a kind that is not known yet: the axis has none then
            unread.append((f'{key} = "{value}"', str(error).partition("\n")[0]))
    return WrittenOrigins(tuple(origins), tuple(unread))


@lru_cache(1 << 12)
def _annotation(text: str) -> OriginSharding:
    """An origin; of texts that differ in numbers only, one is parsed."""
    numbers = [int(number) for number in _NUMBER.findall(text)]
    places = iter(range(len(numbers)))
    try:
        shape = shardy.parse_origin_sharding(_NUMBER.sub(lambda _: str(next(places)), text))
    except SdyscopeError:
        return shardy.parse_origin_sharding(text)  # Its error has the text itself.
    return OriginSharding(
        shape.type,
        None if shape.index is None else numbers[shape.index],
        None if shape.source_id is None else numbers[shape.source_id],
    )


@lru_cache(1 << 12)
def _axis(key: str) -> AxisRef:
    name, _, sub = key.partition(":(")
    return shardy.parse_axis_ref(f'"{name}"' + (f":({sub}" if sub else ""))
