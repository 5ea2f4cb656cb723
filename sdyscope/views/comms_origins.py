"""Why collectives are there: as documents, and in a line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sdyscope.analysis.collectives.origin_values import (
    CollectiveOrigin,
    OriginAnnotation,
    OriginKind,
    OriginRole,
)
from sdyscope.annotations import AnnotationKind
from sdyscope.values.source import SourceLocation
from sdyscope.words.places import shortened, shown_name, source_text

__all__ = [
    "NOT_FOUND",
    "OP_FOLLOWED",
    "OriginAnnotationDocument",
    "OriginDocument",
    "annotation_text",
    "because",
    "origin_annotation_document",
    "origin_document",
]

#: How the words of an origin begin that was not found.
NOT_FOUND = "not found"

#: What is said of an origin whose op XLA does not name.
OP_FOLLOWED = "op followed"

#: How many annotations a line names.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class OriginAnnotationDocument:
    """An annotation of the program that axes of a collective come from.

    Attributes:
      kind: what is annotated.
      name: pytree path of an argument or result, scope of anything else.
      spec: what is written there, as JAX writes it where it can be.
      axes: those of the collective's axes that come from it, as Shardy writes them.
      role: `has`: the axes of the value that is moved or summed; `needed`: of the sharding that it
        is needed with, or that another tensor of the same op has.
      source: its line; null where none is known.
      recorded: whether the partitioner recorded it; otherwise the axes were followed along the data
        flow to the nearest annotation with them.
    """

    kind: AnnotationKind
    name: str
    spec: str
    axes: tuple[str, ...]
    role: OriginRole
    source: SourceLocation | None
    recorded: bool


@dataclass(frozen=True, slots=True)
class OriginDocument:
    """Why a tensor is communicated.

    Attributes:
      kind: `reduction`: an op sums over a dimension in pieces; `resharding`: a value is needed with
        another sharding; `exchange`: an op reaches into other blocks; `program`: the program says
        so itself in a `shard_map`; `unknown`: none of these was found.
      known: whether it leads to an annotation, or to the program's own collective.
      value: the value that is moved, or summed; empty where it was not found.
      before: sharding that it has.
      after: sharding that it is needed with; empty where that is not known, and of a sum.
      op: the op that needs it.
      scope: that op's scope, without the program's own name.
      source: that op's line; null where the module has none.
      annotations: where the axes come from.
      words: all of it in a sentence.
      followed: whether the op was found along the value in the compiled program, since XLA names
        the collective after what makes the value, or not at all.
    """

    kind: OriginKind
    known: bool
    value: str
    before: str
    after: str
    op: str
    scope: str
    source: SourceLocation | None
    annotations: tuple[OriginAnnotationDocument, ...]
    words: str
    followed: bool


def origin_document(origin: CollectiveOrigin | None) -> OriginDocument | None:
    """The document of an origin."""
    if origin is None:
        return None
    return OriginDocument(
        kind=origin.kind,
        known=origin.is_known,
        value=origin.value,
        before=origin.before,
        after=origin.after,
        op=origin.op,
        scope=origin.scope,
        source=origin.source,
        annotations=tuple(map(origin_annotation_document, origin.annotations)),
        words=origin.words,
        followed=origin.followed,
    )


def origin_annotation_document(one: OriginAnnotation) -> OriginAnnotationDocument:
    """The document of an annotation."""
    return OriginAnnotationDocument(
        one.kind,
        one.name,
        one.spec,
        tuple(axis.name if axis.sub_axis_info is None else str(axis) for axis in one.axes),
        one.role,
        one.source,
        one.recorded,
    )


def annotation_text(one: OriginAnnotationDocument, file: str = "") -> str:
    """`params['w1'] P('fsdp', 'model')`; `constraint at models/mlp.py:98 P('data', None)`.

    Args:
      one: the annotation.
      file: the file whose name need not be repeated.
    """
    if one.kind in ("argument", "result"):
        return f"{one.name} {one.spec}".strip()
    where = source_text(one.source)
    if file and where.startswith(f"{file}:"):
        where = f"line {where.removeprefix(f'{file}:')}"
    scope = f" in {shown_name(one.name, '')}" if one.name else ""
    return f"{one.kind}{f' at {where}' if where else scope} {one.spec}".strip()


def because(origin: OriginDocument, file: str = "") -> str:
    """An origin in a line, without the op's own line, which stands beside it.

    Args:
      origin: the origin.
      file: the file whose name need not be repeated.
    """
    if origin.kind == "program":
        return f"the program says so itself: {origin.op}"
    if not origin.known:
        return shortened(origin.words)
    has = [one for one in origin.annotations if one.role == "has"]
    needed = [one for one in origin.annotations if one.role == "needed"]
    over = " and ".join(dict.fromkeys(axis for one in has or needed for axis in one.axes))
    if origin.kind == "reduction":
        words = f"it sums over {over}, from {_listed(has, file)}"
    elif origin.kind == "exchange" and not origin.after and not needed:
        words = f"it looks up along {over}, from {_listed(has, file)}"
    else:
        words = f"{origin.value} {origin.before}".strip()
        if origin.op == "return":
            words += f" is returned as {_listed(needed, file)}"
        else:
            words += f" is needed as {origin.after}" if origin.after else " is needed otherwise"
            words += f", for {_listed(needed, file)}" if needed else ""
        own = [one for one in has if one.name != origin.value]
        words += f"; it has {over} from {_listed(own, file)}" if own else ""
    return words + _followed(origin)


def _followed(origin: OriginDocument) -> str:
    """What of an origin neither the compiler nor the partitioner said itself."""
    annotations = any(not one.recorded for one in origin.annotations)
    if not annotations:
        return f" ({OP_FOLLOWED})" if origin.followed else ""
    return (
        " (op and axes followed, not recorded)" if origin.followed else " (followed, not recorded)"
    )


def _listed(annotations: Sequence[OriginAnnotationDocument], file: str) -> str:
    texts = list(dict.fromkeys(annotation_text(one, file) for one in annotations))
    more = len(texts) - _NAMED
    return ", ".join(texts[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")
