"""The colours of blocks and of mesh axes in pictures: the page's, which tests compare."""

from __future__ import annotations

import math
from collections.abc import Sequence

#: Mesh axes on light and on dark paper, in the order of the axes: `--axis-0` and so on of the page.
AXES = (
    ("#1d5fbf", "#7fb0ff"),
    ("#b3401b", "#ff9d73"),
    ("#1a7a4c", "#6fd39d"),
    ("#8a3fb0", "#d3a0f2"),
    ("#9a6400", "#e8bb5c"),
    ("#0c7480", "#68cbd6"),
    ("#b02a68", "#ff91bf"),
    ("#5a6b12", "#bccd6a"),
)

#: Hues that are far apart for everybody, in degrees of OKLCH.
_HUES = (255, 55, 155, 330, 95, 205, 20, 290)
#: Lightness from and to, and chroma, on light paper.
_LIGHTNESS = (0.9, 0.68)
_CHROMA = 0.105


def block_colour(block: Sequence[int], shards: Sequence[int]) -> str:
    """The colour of a block on light paper: `blockColour` of `reports/js/placement/colours.js`.

    Args:
        block: which block of each dimension.
        shards: how many there are.

    Returns:
        ``#rrggbb``.
    """
    cut = [(at, count) for at, count in zip(block, shards, strict=True) if count > 1]
    if not cut:
        return oklch(_LIGHTNESS[0], _CHROMA, _HUES[0])
    at, last = cut[-1]
    index, count = 0, 1
    for other, many in cut[:-1]:
        index, count = index * many + other, count * many
    is_many = last > len(_HUES)
    hue = 280 - 250 * at / (last - 1) if is_many else _HUES[at]
    if len(cut) > 1:
        depth = index / max(count - 1, 1)
    else:
        depth = at / (last - 1) if is_many else at % 2 * 0.45
    return oklch(_LIGHTNESS[0] + (_LIGHTNESS[1] - _LIGHTNESS[0]) * depth, _CHROMA, hue)


def oklch(lightness: float, chroma: float, hue: float) -> str:
    """A colour of OKLCH as ``#rrggbb``, as CSS Color 4 converts it; what is outside is clipped."""
    a, b = chroma * math.cos(math.radians(hue)), chroma * math.sin(math.radians(hue))
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = (
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )
    encoded = [
        12.92 * part if part <= 0.0031308 else 1.055 * part ** (1 / 2.4) - 0.055
        for part in (min(max(part, 0), 1) for part in linear)
    ]
    return "#" + "".join(f"{round(255 * part):02x}" for part in encoded)
