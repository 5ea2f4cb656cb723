"""Why collectives are there, in a sentence: the one writer of causes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

from sdyscope.facts.origins import (
    CollectiveOrigin,
    NotFound,
    OriginAnnotation,
    OriginRole,
    Spec,
)
from sdyscope.values.sharding import TensorSharding
from sdyscope.values.source import SourceLocation
from sdyscope.words.counts import few
from sdyscope.words.mesh import listed_axes
from sdyscope.words.places import (
    annotation_kind,
    callers_text,
    carry_text,
    op_text,
    shown_name,
    source_text,
)
from sdyscope.words.sharding import shardy_text

#: How the words of an origin begin that was not found.
NOT_FOUND = "not found"

#: What is said of an origin whose op XLA does not name.
OP_FOLLOWED = "op followed"

#: What is said of axes that were followed, and were not recorded.
FOLLOWED = "followed, not recorded"

#: What is said of an origin that only may be meant.
UNCERTAIN = "uncertain"

#: What each role of an annotation explains.
ROLES: Final[Mapping[OriginRole, str]] = {"has": "of what is moved", "needed": "needed"}

#: How many annotations a sentence names.
_NAMED = 3

#: How many of those a document has that are not named.
_OTHERWISE = 10


_WHY: Final[Mapping[NotFound, str]] = {
    "": "",
    "no axes": "it runs over no axes of the mesh",
    "no op": "the compiler did not record the op it was made for",
    "one device": "what {op} takes is on one device, and is sent to the others",
    "not sharded": "nothing around {op} is sharded on its axes",
    "not needed otherwise": "nothing around {op} is known to need another sharding than it has",
}

#: Reductions that are no sums, by JAX's names; `reduce` is one of several tensors at once.
_NO_SUMS: Final = frozenset(
    {
        "argmax",
        "argmin",
        "reduce",
        *(f"reduce_{of}" for of in ("and", "max", "min", "or", "prod", "xor")),
        *(f"scatter-{of}" for of in ("max", "min", "mul")),  # such as of segment_max
    }
)


def spec_text(spec: Spec | None) -> str:
    """`P('data', None)`; what only Shardy can say as `[{a:(1)2}]`; empty for None."""
    if spec is None:
        return ""
    return shardy_text(spec) if isinstance(spec, TensorSharding) else str(spec)


def annotation_text(annotation: OriginAnnotation, file: str = "") -> str:
    """`params['w1'] P('fsdp', 'model')`; `constraint at models/mlp.py:98 P('data', None)`.

    Args:
        annotation: the annotation.
        file: the file whose name need not be repeated.
    """
    return f"{annotation_name(annotation, file)} {spec_text(annotation.spec)}".strip()


def annotation_name(annotation: OriginAnnotation, file: str = "") -> str:
    """As ``annotation_text``, without what is written there: `constraint at models/mlp.py:98`."""
    if annotation.kind in ("argument", "result"):
        return annotation.name
    where = _line_text(annotation.source, file)
    scope = f" in {shown_name(annotation.name, '')}" if annotation.name else ""
    kind = annotation_kind(annotation.kind, annotation.mapped)
    return f"{kind}{f' at {where}' if where else scope}"


def origin_text(origin: CollectiveOrigin, file: str = "") -> str:
    """Why a tensor is communicated, a clause that stands behind "because", or alone if not found.

    The line of the op that needs it stands beside it everywhere, and is in it only where XLA names
    the collective after another.

    Args:
        origin: the origin.
        file: the file whose name need not be repeated.
    """
    op, at = op_text(origin.op), _elsewhere(origin, file)
    it = f"{op}{at}" if at else "it"
    if origin.kind == "program":
        who = "the program's backward pass" if origin.backward else "the program itself"
        return f"{who} calls {op}{_followed(origin)}"
    if origin.kind == "split":
        return f"XLA itself splits {op} over these axes; nothing that it sums is sharded on them"
    if origin.not_found:
        return f"{NOT_FOUND}: {_WHY[origin.not_found].format(op=op)}"
    has = [annotation for annotation in origin.annotations if annotation.role == "has"]
    needed = [annotation for annotation in origin.annotations if annotation.role == "needed"]
    if origin.is_unreduced:
        words = f"{it} reduces a value left unreduced over {_over(has, origin, file)}"
        if needed:
            verb = "requires" if len(needed) == 1 else "require"
            words += f"; {_listed(needed, file)} {verb} it reduced"
    elif origin.kind == "reduction":
        verb = "reduces" if op in _NO_SUMS else "sums"
        words = f"{it} {verb} a {_sharded_dimension(has, origin, file)}{_moved_to(needed, file)}"
        if origin.in_turns:
            words += "; each device adds its own to what it hands on"
    elif origin.kind == "exchange" and origin.after is None and not needed:
        words = f"{it} reads neighbouring blocks of a {_sharded_dimension(has, origin, file)}"
    elif origin.kind == "rearrangement":
        words = f"{it} rearranges a {_sharded_dimension(has, origin, file)}"
    elif origin.kind == "lookup":
        words = f"{it} indexes a {_sharded_dimension(has, origin, file)}{_moved_to(needed, file)}"
    else:
        itself = "" if origin.form or origin.carried else origin.value
        # A type that is written in no scope has no name, which is nobody's own.
        own = [annotation for annotation in has if not itself or annotation.name != itself]
        # Who else says the axes stands behind who says them: that can be the value itself.
        else_said = _otherwise(origin, file) if has and not own else ""
        words = _resharding(origin, needed, else_said, file)
        if own:
            words += f"; {_sharded(own, origin, file)}"
    return words + _followed(origin)


def _first(others: Iterable[OriginAnnotation]) -> tuple[OriginAnnotation, ...]:
    return tuple(islice(others, _OTHERWISE))


#: What the document of an annotation has in words.
ANNOTATION_WORDS: Final[Mapping[str, tuple[Callable[[OriginAnnotation], object], object]]] = {
    "spec": (lambda annotation: spec_text(annotation.spec), str),
}

#: What the document of an origin has in words, and of annotations that are not named the first.
ORIGIN_WORDS: Final[Mapping[str, tuple[Callable[[CollectiveOrigin], object], object]]] = {
    "form": (lambda origin: op_text(origin.form), str),
    "before": (lambda origin: spec_text(origin.before), str),
    "after": (lambda origin: spec_text(origin.after), str),
    "op": (lambda origin: op_text(origin.op), str),
    "otherwise": (lambda origin: _first(origin.otherwise), tuple[OriginAnnotation, ...]),
    "needed_otherwise": (
        lambda origin: _first(origin.needed_otherwise),
        tuple[OriginAnnotation, ...],
    ),
    "words": (origin_text, str),
}


def causes_text(
    origins: Iterable[CollectiveOrigin], file: str = "", callers: Sequence[SourceLocation] = ()
) -> str:
    """Why collectives of one row are there: the first cause, and how many others there are.

    Args:
        origins: those of each of them.
        file: the file whose name need not be repeated.
        callers: the lines behind theirs, where their line is reached in several ways.
    """
    called = f"called at {callers_text(callers, file)}" if callers else ""
    texts = list(dict.fromkeys(origin_text(origin, file) for origin in origins))
    if not texts:
        return called
    words = texts[0] if texts[0].startswith(NOT_FOUND) else f"because {texts[0]}"
    if called:
        words = f"{called}; {words}"
    return words + (f"; and {len(texts) - 1:,} more like this" if texts[1:] else "")


def _resharding(
    origin: CollectiveOrigin, needed: Sequence[OriginAnnotation], otherwise: str, file: str
) -> str:
    """`params['w'] is P('fsdp') but constraint at line 9 P('data') requires P()`.

    Of an op's own result, `gather, given table P('model'), makes its result with another sharding
    than P('data', None)`.

    Args:
        origin: the origin.
        needed: its annotations of the need.
        otherwise: who else says the axes of the value; empty where that stands elsewhere.
        file: the file whose name need not be repeated.
    """
    if origin.own_result:
        op = f"{op_text(origin.op)}{_elsewhere(origin, file)}"
        if needed:
            op += f", given {_listed(needed, file)}{_otherwise(origin, file, 'needed')},"
        own = spec_text(origin.after) or "it has"
        return f"{op} makes its result{otherwise} with another sharding than {own}"
    value = carry_text(shown_name(origin.value, ""), carried=origin.carried) or "the value"
    form = f"{op_text(origin.form)} of " if origin.form else ""
    value = f"{form}{value} is {spec_text(origin.before) or 'sharded'}{otherwise}"
    after = spec_text(origin.after)
    needing = _listed(needed, file) + (_otherwise(origin, file, "needed") if needed else "")
    if origin.result:
        result = needing or f"{origin.result} {after}".strip()
        return f"{value} but is returned as {result}"
    wanted = after or "another sharding"
    op = f"{op_text(origin.op)}{_elsewhere(origin, file)}" if origin.op else ""
    if needed:
        names = {annotation_text(annotation) for annotation in needed}
        # Of another tensor of the op an annotation says what that has, and not what is required.
        says_it = all(
            spec_text(annotation.spec) == after and annotation.kind != "argument"
            for annotation in needed
        )
        if op and origin.op != "sharding_constraint" and (not says_it or origin.op == "while"):
            has = {annotation.key for annotation in origin.annotations if annotation.role == "has"}
            # What an annotation gives the value and another tensor of the op is two things.
            too = has.issuperset(annotation.key for annotation in needed)
            given = needing + (" on its other tensors too" if too else "")
            return f"{value} but {op}, given {given}, requires {wanted}"
        verb = "requires" if len(names) == 1 else "require"
        return f"{value} but {needing} {verb} {wanted}"
    return f"{value} but {op} requires {wanted}" if op else f"{value} but {wanted} is required"


def _elsewhere(origin: CollectiveOrigin, file: str) -> str:
    """Where the op that needs it is, if that is not where the collective is shown."""
    where = _line_text(origin.source, file) if origin.elsewhere else ""
    return f" at {where}" if where else ""


def _line_text(source: SourceLocation | None, file: str) -> str:
    """A line of the program, without the file where that need not be repeated."""
    where = source_text(source)
    if file and where.startswith(f"{file}:"):
        return f"line {where.removeprefix(f'{file}:')}"
    return where


def _sharded_dimension(
    annotations: Sequence[OriginAnnotation], origin: CollectiveOrigin, file: str
) -> str:
    if not annotations:
        return "sharded dimension"
    return f"dimension {_sharded(annotations, origin, file)}"


def _moved_to(needed: Sequence[OriginAnnotation], file: str) -> str:
    """Why a dimension that is summed or looked up in has other axes than it is reduced over."""
    return f", which XLA first moves to these axes, given {_listed(needed, file)}" if needed else ""


def _sharded(annotations: Sequence[OriginAnnotation], origin: CollectiveOrigin, file: str) -> str:
    return f"sharded over {_over(annotations, origin, file)}"


def _over(annotations: Sequence[OriginAnnotation], origin: CollectiveOrigin, file: str) -> str:
    axes = dict.fromkeys(axis for annotation in annotations for axis in annotation.axes)
    by = f"{_listed(annotations, file)}{_otherwise(origin, file)}"
    return f"{listed_axes(axes)} by {by}"


def _otherwise(origin: CollectiveOrigin, file: str, role: OriginRole = "has") -> str:
    """Who else says the axes, or needs the value otherwise: one by name, and how many more.

    And XLA, where it may split what has the axes itself.
    """
    first = next(origin.others(role), None)
    may_split = origin.may_split and role == "has"
    if first is None:
        return " (otherwise perhaps by XLA itself)" if may_split else ""
    together = origin.all_together(role)

    def counted() -> Counter[str]:
        return Counter(annotation_name(each, file) for each in together.by_key.values())

    # There is one for all collectives over the same dimensions, and as many of these as layers.
    every = together.once((annotation_name, file), counted)
    named = Counter(annotation_name(each, file) for each in origin.named_together(role))
    names = len(every) - sum(every[name] == count for name, count in named.items())
    more = f" and {names - 1:,} more" if names > 1 else ""
    itself = ", or perhaps by XLA itself" if may_split else ""
    return f" (otherwise by {annotation_name(first, file)}{more}{itself})"


def _followed(origin: CollectiveOrigin) -> str:
    """What of an origin neither the compiler nor the partitioner said itself, or may be wrong."""
    marks = [UNCERTAIN] if origin.uncertain else []
    if not all(annotation.recorded for annotation in origin.annotations):
        marks.append(f"{'op and axes ' if origin.followed else ''}{FOLLOWED}")
    elif origin.followed:
        marks.append(OP_FOLLOWED)
    return f" ({'; '.join(marks)})" if marks else ""


def _listed(annotations: Sequence[OriginAnnotation], file: str) -> str:
    texts = list(dict.fromkeys(annotation_text(annotation, file) for annotation in annotations))
    return few(texts, _NAMED)
