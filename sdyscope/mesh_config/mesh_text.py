"""Shapes of meshes as text, ``data=4,model=-1``."""

from __future__ import annotations

import re
from typing import Any

from sdyscope.errors import TargetError
from sdyscope.mesh_config.mesh_shape import MeshShape


def parse_mesh_shape(text: str) -> MeshShape:
    """The shape of ``data=4,model=-1``, as the command line and ``[tool.sdyscope]`` take it.

    Raises:
        TargetError: it has another form, or what it says can't be.
    """
    names: list[str] = []
    sizes: list[Any] = []
    for word in text.split(","):
        name, equals, size = (part.strip() for part in word.partition("="))
        if not (name and equals and size):
            raise TargetError(
                f"{word.strip()!r} does not have the form axis=size, such as data=4,model=2."
            )
        names.append(name)
        # What is no number is refused by the shape, in its words.
        sizes.append(int(size) if re.fullmatch(r"-?[0-9]{1,18}", size) else size)
    return MeshShape(tuple(names), tuple(sizes))
