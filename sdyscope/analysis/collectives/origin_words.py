"""Origins of collectives in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sdyscope.analysis.collectives.origin_values import CollectiveOrigin, OriginAnnotation
from sdyscope.analysis.collectives.totals import Part
from sdyscope.analysis.naming.scopes import scope_of
from sdyscope.analysis.propagation.axis_parts import AxisPart
from sdyscope.graph import Op
from sdyscope.values.mesh import Mesh
from sdyscope.words.counts import listed

__all__ = ["OriginWords"]


class OriginWords:
    """Makes origins of what was found.

    Args:
        mesh: the program's mesh.
    """

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh

    def program(self, part: Part, op: Op) -> CollectiveOrigin:
        """A collective that the program writes itself."""
        scope, primitive = _scope(op)
        name = primitive or part.primitive
        return CollectiveOrigin(
            kind="program",
            value="",
            before="",
            after="",
            op=name,
            scope=scope,
            source=op.source,
            annotations=(),
            words=f"the program says so itself: {_at(name, op)}",
        )

    def reduction(
        self,
        op: Op,
        values: Sequence[str],
        value: str,
        before: str,
        annotations: Sequence[OriginAnnotation],
        *,
        looks_up: bool,
    ) -> CollectiveOrigin:
        """An op that sums over a dimension in pieces, or looks up in one."""
        scope, primitive = _scope(op)
        summing = "reduces over" if op.kind.endswith(".reduce") else "sums over"
        does = "looks up in" if looks_up else summing
        over = listed([str(axis) for axis in _axes(annotations)])
        words = f"{_at(primitive, op)} {does} a dimension that is in pieces"
        words += f" on {over}" if over else ""
        words += f", of {listed(list(dict.fromkeys(values)))}"
        return CollectiveOrigin(
            kind="exchange" if looks_up else "reduction",
            value=value,
            before=before,
            after="",
            op=primitive,
            scope=scope,
            source=op.source,
            annotations=tuple(annotations),
            words=words + _because(annotations),
        )

    def resharding(
        self,
        *,
        op: Op | None,
        value: str,
        before: str,
        after: str,
        annotations: Sequence[OriginAnnotation],
        result: str,
        reaches: bool,
        against: Sequence[str],
    ) -> CollectiveOrigin:
        """A value that is needed with another sharding."""
        scope, primitive = _scope(op) if op is not None else ("", "")
        needs = result if op is None else _at(primitive, op)
        words = f"{value} is {before}"
        if reaches:
            words += f", and {needs} reaches across its blocks"
        elif op is None:
            words += f", and is returned as {needs}" + (f", which is {after}" if after else "")
        elif after:
            words += f", and {needs} needs it as {after}"
        else:
            words += f", and {needs} needs it otherwise"
        if against and not reaches and op is not None:
            words += f", beside {listed(list(dict.fromkeys(against))[:2])}"
        return CollectiveOrigin(
            kind="exchange" if reaches else "resharding",
            value=value,
            before=before,
            after=after,
            op=primitive or ("return" if op is None else ""),
            scope=scope,
            source=op.source if op is not None else None,
            annotations=tuple(annotations),
            words=words + _because(annotations),
        )

    def followed(self, origin: CollectiveOrigin) -> CollectiveOrigin:
        """An origin whose op was followed to."""
        words = f"{origin.words}; found along the value, XLA does not name what needs it"
        return replace(origin, followed=True, words=words)

    def unknown(self, part: Part, ops: Sequence[Op], axes: Sequence[AxisPart]) -> CollectiveOrigin:
        """One that nothing was found for; says how far it was followed."""
        op = ops[0] if ops else None
        scope, primitive = _scope(op) if op is not None else (part.scope, part.primitive)
        if not axes:
            why = "it runs over no axes of the mesh"
        elif op is None:
            why = "the compiler kept no op that it was made for"
        else:
            why = f"nothing around {_at(primitive, op)} is sharded on its axes"
        return CollectiveOrigin(
            kind="unknown",
            value="",
            before="",
            after="",
            op=primitive,
            scope=scope,
            source=op.source if op is not None else part.source,
            annotations=(),
            words=f"not found: {why}",
        )


def _scope(op: Op) -> tuple[str, str]:
    scope, primitive = scope_of(op.scope)
    return scope, primitive or op.kind.rpartition(".")[2]


def _at(name: str, op: Op) -> str:
    return f"{name} at {op.source}" if op.source is not None else name


def _axes(annotations: Sequence[OriginAnnotation]) -> list[str]:
    return list(dict.fromkeys(axis.name for one in annotations for axis in one.axes))


def _because(annotations: Sequence[OriginAnnotation]) -> str:
    parts = []
    for role, verb in (("has", "from"), ("needed", "for")):
        words = list(dict.fromkeys(one.words for one in annotations if one.role == role))
        if words:
            parts.append(f"{verb} {listed(words)}")
    if not all(one.recorded for one in annotations):
        parts.append("followed, not recorded")
    return f" ({'; '.join(parts)})" if parts else ""
