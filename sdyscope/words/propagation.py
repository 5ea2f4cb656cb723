"""How axes moved, and what stopped them, in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from sdyscope.annotations import op_name
from sdyscope.facts.decided import AxisOrigin, DecidedValue, ExplanationNote
from sdyscope.facts.moves import (
    Absence,
    Allowed,
    AnnotatedDim,
    Barrier,
    Beginning,
    BeginningKind,
    Blocked,
    ByConstraint,
    ByDataFlow,
    ByGroup,
    ByRule,
    ByWayOfResult,
    Closed,
    Conflict,
    EdgeTensor,
    Factor,
    FlowingTensor,
    Indivisible,
    InItsPlace,
    NoFactor,
    NoRule,
    NotSeen,
    OpTensor,
    ReturnedTensor,
    SetAside,
    Stop,
    TensorDim,
    TensorPlace,
    UsedByOp,
    UsedByValue,
)
from sdyscope.values.sharding import TensorSharding
from sdyscope.values.sharding_rule import FactorType, factor_symbol
from sdyscope.words.counts import counted, listed
from sdyscope.words.mesh import axis_text
from sdyscope.words.places import annotation_kind, op_text, shown_name, source_text
from sdyscope.words.sharding import MANUAL, REPLICATED, placement_text, short

#: What stands behind an origin that Shardy did not record.
FOLLOWED: Final = "followed"

#: Whose steps there are.
SHARDYS_STEPS: Final = "GSPMD does not say how it propagates: these are Shardy's steps."

#: Where all dimensions are propagated at the same time.
NO_PRIORITIES: Final = "The user gave no priorities."


def extent_text(exactness: str, steps: int) -> str:
    """``exact, 641 steps``: how far a propagation can be trusted, and how many steps it took."""
    return f"{exactness}, {counted(steps, 'step')}" if steps else exactness


#: Which way an axis went, before the name of the op that it went through.
WAYS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "forward": "forward through",
        "backward": "back through",
        "sideways": "across",
        "data flow": "with the data of",
        "group": "in the sharding group of",
    }
)


def moves_text(moves: int, steps: int, last: int | None) -> str:
    """`914 moves of an axis in 641 steps, numbered by Shardy up to 687`.

    Args:
        moves: how many moves there are.
        steps: in how many steps.
        last: the number of the last step; None without any.
    """
    text = f"{counted(moves, 'move')} of an axis in {counted(steps, 'step')}"
    return text if last is None else f"{text}, numbered by Shardy up to {last:,}"


def decided_text(decided: DecidedValue) -> str:
    """What became of a value: ``P('data', None): dim 0 split 4 ways over data, ...``."""
    if decided.fate == "folded":
        return "folded away"
    if decided.fate == "not partitioned":
        return "not partitioned"
    text = short(decided.sharding)
    place = decided.placement
    if text == MANUAL and (place is None or place.replication == 1):
        return f"{MANUAL}: each device has its own block, as in the shard_map"
    if place is None or text == REPLICATED:
        return f"{REPLICATED} on every device"
    return f"{text}: {placement_text(place, decided.sharding.mesh)}"


def note_text(note: ExplanationNote) -> str:
    """What else there is to know of how a value came to be sharded, a sentence."""
    match note.kind:
        case "merged":
            more = f" and {note.more} more" if note.more else ""
            return f"The compiler merged this value with {', '.join(note.names)}{more}."
        case "folded":
            return "The compiler folded this value away before it propagated shardings."
        case "not partitioned":
            return "A value of this kind has no sharding."
        case "not recorded":
            return "GSPMD does not say where the shardings that it propagates come from."
        case "annotated":
            return f"The program itself asks for this sharding, on the {note.names[0]}."
        case "parts of axes":
            parts = listed([axis_text(name) for name in note.names])
            return (
                f"What is returned is sharded on {parts}; Shardy leaves arguments and results of "
                "the program no part of an axis, so it is gathered for the result."
            )
        case "untouched":
            return "No axis came to it, and none was stopped beside it."
        case "all manual":
            return "The shard_map around it is manual on all axes: none is left to come to it."
        case "no dimension":
            return "It has no dimension that could be sharded."
        case "no steps":
            return (
                "This propagation has no steps: only what is annotated on the value itself and "
                "what Shardy moves without steps can be explained."
            )


# --- What allowed a move --------------------------------------------------------------------------

_DATA_FLOW: Final[Mapping[str, str]] = {
    "while": "what a loop starts with, carries, yields and returns is sharded the same way",
    "case": "what each branch yields is sharded as the result is",
    "if": "what each branch yields is sharded as the result is",
    "optimization_barrier": "a barrier's operand and its result are sharded the same way",
    "manual_computation": "the boundary of the shard_map passes on what it is not manual on",
    "named_computation": "the operands and results of a called function are those inside it",
    "call": "the operands and results of a called function are those inside it",
    "return": "a result of the function is sharded as the value that is returned",
}

_TYPES: Final[Mapping[FactorType, str]] = {
    "reduction": ", which is reduced over",
    "need_replication": ", which every device needs whole",
    "permutation": ", which is permuted",
    "pass-through": "",
}

#: Ops whose two operands are no left and right.
_NOT_SYMMETRIC = frozenset({"reduce", "gather", "reduce_window", "pad", "dynamic_slice", "sort"})


@lru_cache(1 << 14)
def allowed_text(rule: Allowed) -> str:
    """Why an axis could move: ``dim 0 of the operand is dim 0 of the result (factor i ...)``."""
    match rule:
        case ByGroup():
            return "both are in one sharding group, whose values are sharded the same way"
        case ByConstraint():
            return "the constraint is applied to the value that it constrains"
        case ByDataFlow(op):
            otherwise = "the value is the same on both sides of the boundary"
            return _DATA_FLOW.get(op_text(op), otherwise)
        case ByRule(source, target, factor):
            words = f"{tensor_text(source)} is {tensor_text(target)}"
            return words if factor is None else f"{words} ({_factor(factor)})"


def tensor_text(place: TensorDim) -> str:
    """``dim 1 of the left operand``; ``the result``."""
    tensor = _tensor(place.tensor)
    return tensor if place.dimension is None else f"dim {place.dimension} of {tensor}"


def _tensor(tensor: TensorPlace) -> str:
    match tensor:
        case EdgeTensor(role, index):
            return "what goes on" if role == "result" else f"source {index}"
        case ReturnedTensor(name):
            return name or "the returned value"
        case FlowingTensor(is_source):
            return "the value that becomes it" if is_source else "the value it becomes"
        case OpTensor(role, index, op, count):
            if role == "result":
                return "the result" if count == 1 else f"result {index}"
            if count == 1:
                return "the operand"
            if count == 2 and op_text(op) not in _NOT_SYMMETRIC:
                return ("the left operand", "the right operand")[index]
            return f"operand {index}"


def _factor(factor: Factor) -> str:
    """``factor k of size 128, which is reduced over``."""
    return f"factor {factor_symbol(factor.index)} of size {factor.size}{_TYPES[factor.type]}"


# --- Where an axis begins, and what stopped it ----------------------------------------------------

_ON: Final[Mapping[BeginningKind, str]] = {
    "argument": "the argument",
    "result": "the result",
    "constraint": "the constraint",
    "type": "the type",
    "shard_map input": "an input of the shard_map",
    "shard_map output": "an output of the shard_map",
    "op": "the op",
}


def written_text(annotated_dim: AnnotatedDim) -> str:
    """``the annotation {model} on dim 1 of the argument params['w1']``."""
    name = annotated_dim.mapped or shown_name(annotated_dim.name, "")
    within = "in " if name and annotated_dim.kind in ("constraint", "type") else ""
    on = f"{_ON[annotated_dim.kind]} {within}{name}".strip()
    if annotated_dim.dimension is None or not isinstance(annotated_dim.sharding, TensorSharding):
        return f"the annotation on {on}"
    written = axis_text(annotated_dim.sharding.dim_shardings[annotated_dim.dimension])
    return f"the annotation {written} on dim {annotated_dim.dimension} of {on}"


def beginning_text(beginning: Beginning) -> str:
    """The same of where an axis begins."""
    return written_text(beginning.written)


def origin_text(origin: AxisOrigin) -> str:
    """``data <- batch['x']``; ``data <- model.py:42 (followed)``."""
    followed = "" if origin.recorded else f" ({FOLLOWED})"
    return f"{axis_text(origin.axis)} <- {_origin(origin)}{followed}"


def _origin(origin: AxisOrigin) -> str:
    if origin.kind in ("argument", "result"):
        return origin.name
    line = source_text(origin.source)
    if origin.kind in ("constraint", "type"):
        return line or shown_name(origin.name, origin.kind)
    if origin.kind is not None:
        return f"{annotation_kind(origin.kind, origin.mapped)} {line}".strip()
    return str(origin.origin)


def absence_text(absence: Absence) -> str:
    """Why a value is not sharded on an axis, a sentence."""
    op = _op(absence)
    flows = isinstance(absence.neighbour.tensor, FlowingTensor)
    between = "over the boundary of" if flows else "of"
    could = "" if absence.dimension is None else f", which could be on dim {absence.dimension}"
    return (
        f"{tensor_text(absence.neighbour)} {between} {op} has {axis_text(absence.axis)}{could}: "
        f"{_stop(absence.stop, op)}."
    )


def stop_text(absence: Absence) -> str:
    """The same, and how many more tensors beside the value the same rule stopped."""
    count = absence.repeated
    if not count:
        return absence_text(absence)
    tensors = "one more tensor" if count == 1 else f"{count:,} more tensors"
    return f"{absence_text(absence)} The same rule stopped {tensors}."


def _op(absence: Absence) -> str:
    """``layer0/dot_general at model.py:42``."""
    line, name = source_text(absence.at.source), op_name(absence.at)
    return f"{name} at {line}" if line else name


def _stop(stop: Stop, op: str) -> str:
    match stop:
        case NoRule():
            return f"{op} has no sharding rule, so nothing propagates through it"
        case NoFactor(factor, tensor):
            return (
                f"it is {_factor(factor)}, and no dimension of {_tensor(tensor)} has factor "
                f"{factor_symbol(factor.index)}"
            )
        case Barrier():
            return "a propagation barrier stands between the two"
        case Blocked(factor):
            return f"nothing propagates along {_factor(factor)}, by the rule of {op}"
        case SetAside(how, axis, by):
            return f"the value is {how} along {axis_text(axis)} by {written_text(by)}"
        case Closed():
            return closed_text(stop)
        case Indivisible(factor, held, blocks):
            pieces = f"{blocks}" if held == 1 else f"{held} x {blocks}"
            return f"{_factor(factor)} does not divide into {pieces} blocks"
        case ByWayOfResult(tensor, inner):
            return f"operands follow {_tensor(tensor)}, which can't have it: {_stop(inner, op)}"
        case Conflict():
            return _conflict(stop)
        case NotSeen():
            return "nothing in the final shardings shows what stopped it"


def closed_text(closed: Closed) -> str:
    """``dim 1 is closed by the annotation {} on dim 1 of the argument params['w1']``."""
    return f"dim {closed.dimension} is closed by {written_text(closed.by)}"


def closed_texts(closed: Iterable[Closed], absences: Iterable[Absence]) -> list[str]:
    """What closes dimensions, where no axis was stopped that says so: an annotation once."""
    said = {absence.dimension for absence in absences}
    annotated: dict[AnnotatedDim, list[Closed]] = {}
    for each in closed:
        if each.dimension not in said:
            annotated.setdefault(replace(each.by, dimension=None), []).append(each)
    return [
        closed_text(dims[0]) if len(dims) == 1 else _all_closed_text(dims, on)
        for on, dims in annotated.items()
    ]


def _all_closed_text(dims: Iterable[Closed], by: AnnotatedDim) -> str:
    numbers = listed([str(each.dimension) for each in dims])
    return f"dims {numbers} are closed by {written_text(by)}"


def _in_the_way(where: UsedByValue | InItsPlace | UsedByOp) -> str:
    axis = axis_text(where.axis)
    match where:
        case UsedByValue(dimension):
            return f"dim {dimension} of the value already has {axis}"
        case InItsPlace(dimension, _, other):
            return f"dim {dimension} has {axis} where {axis_text(other)} would go"
        case UsedByOp(place, _, is_same_factor):
            if is_same_factor:
                return f"{tensor_text(place)}, the same factor, has {axis}"
            return f"{tensor_text(place)} has {axis}, for another factor of the op"


def _conflict(conflict: Conflict) -> str:
    words = _in_the_way(conflict.where)
    if conflict.beginning is not None:
        words += f", from {written_text(conflict.beginning)}"
    if conflict.step is not None:
        words += f", since step {conflict.step}"
    if conflict.priorities is not None:
        first, second = conflict.priorities
        words += f", and has priority {first} before {second}"
    return words
