"""What Shardy's collective ops say about axes.

``AxisRefListAttr``, ``ListOfAxisRefListsAttr``, ``AllToAllParamAttr`` and
``AllToAllParamListAttr`` of ``shardy/dialect/sdy/ir/attrs.td``. ``sdy.all_gather``,
``sdy.all_slice`` and ``sdy.reduce_scatter`` hold a list of axes a dimension, ``sdy.all_reduce``
one list, ``sdy.all_to_all`` its parameters; ``sdy.collective_permute`` only shardings. ``str`` of
a value is its text as it stands in the op.
"""

from __future__ import annotations

from dataclasses import dataclass

from sdyscope.values.mesh import AxisRef


@dataclass(frozen=True, slots=True)
class AxisRefList:
    """Axes: ``{"a", "b":(1)2}``."""

    axes: tuple[AxisRef, ...] = ()

    def __str__(self) -> str:
        return "{" + ", ".join(map(str, self.axes)) + "}"


@dataclass(frozen=True, slots=True)
class ListOfAxisRefLists:
    """Axes of each dimension: ``[{"a"}, {}]``."""

    lists: tuple[AxisRefList, ...] = ()

    def __str__(self) -> str:
        return "[" + ", ".join(map(str, self.lists)) + "]"


@dataclass(frozen=True, slots=True)
class AllToAllParam:
    """Axes that move from sharding one dimension to sharding another: ``{"a"}: 0->1``.

    ``src_dim`` and ``tgt_dim`` count dimensions from 0.
    """

    axes: tuple[AxisRef, ...]
    src_dim: int
    tgt_dim: int

    def __str__(self) -> str:
        axes = ", ".join(map(str, self.axes))
        return f"{{{axes}}}: {self.src_dim}->{self.tgt_dim}"


@dataclass(frozen=True, slots=True)
class AllToAllParamList:
    """Every move of one ``sdy.all_to_all``: ``[{"a"}: 0->1, {"b"}: 2->3]``."""

    params: tuple[AllToAllParam, ...] = ()

    def __str__(self) -> str:
        return "[" + ", ".join(map(str, self.params)) + "]"
