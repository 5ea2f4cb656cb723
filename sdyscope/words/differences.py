"""What two sides of a comparison do differently, and what follows from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from sdyscope.facts.differences import (
    Across,
    AnyDiff,
    Cause,
    CompiledDiff,
    DifferingValue,
    Divergence,
    LoneMesh,
    LoweredDiff,
    NotCompared,
    NotComparedReason,
    NotComparedValues,
    ProgramSide,
    PropagatedDiff,
    TensorSide,
)
from sdyscope.facts.failures import Uncompared
from sdyscope.facts.memory import Held
from sdyscope.facts.sharded import Sharded
from sdyscope.values.mesh import AxisRef, Mesh
from sdyscope.words.counts import counted, few, listed, size
from sdyscope.words.mesh import axis_text, mesh_document, mesh_words
from sdyscope.words.origins import annotation_text
from sdyscope.words.partitioners import partitioner_name, partitioner_names
from sdyscope.words.remarks import remark_text, remark_texts
from sdyscope.words.sharding import REPLICATED, placement_text, sharding_text, short
from sdyscope.words.types import type_text, value_type_text


def across_text(across: Across, label: str) -> str:
    """`under GSPMD`, `on tpu:v5e:2x4`, `in after.mlir`, `after`: a side of a comparison."""
    where = {"partitioners": "under ", "hardware": "on ", "programs": "in ", "annotations": ""}
    return f"{where[across]}{partitioner_name(label)}"


#: Why propagation on two kinds of hardware is not compared.
EACH_BY_ITSELF: Final = "Each compiler propagates by itself; see the collectives."


def on_both_text(partitioner: str) -> str:
    """Why the lowered modules on two kinds of hardware are not compared."""
    return f"It is the same program on both, lowered for {partitioner_name(partitioner)}."


def same_text(across: Across, labels: tuple[str, str], *, compared: bool, whole: bool) -> str:
    """That two sides do not differ, a sentence.

    Args:
        across: what the sides are.
        labels: what they are called.
        compared: whether anything could be compared.
        whole: whether everything was.
    """
    a, b = map(partitioner_name, labels)
    if not compared:
        return f"{a} and {b} could not be compared."
    partial = "" if whole else ", as far as they were compared"
    return f"The same {across_text(across, a)} and {b}{partial}."


def uncompared_text(uncompared: Uncompared) -> str:
    """That a file could not be read, or that there is no such stage of a program."""
    about = f"{uncompared.name} was not {uncompared.stage}" if uncompared.name else "not read"
    return f"{about}: {uncompared.said}"


def verdict_text(diff: AnyDiff) -> str:
    """What two sides differ in at a stage, a clause."""
    match diff:
        case LoweredDiff():
            return lowered_verdict(diff)
        case PropagatedDiff():
            return propagated_verdict(diff)
        case CompiledDiff():
            return compiled_verdict(diff)


# --- lowered --------------------------------------------------------------------------------------


def lone_mesh_text(lone: LoneMesh) -> str:
    """That only one side has a mesh, a sentence."""
    mesh = lone.mesh
    words = mesh if isinstance(mesh, str) else mesh_words(mesh_document("", mesh))
    return f"Only {partitioner_name(lone.label)} has this mesh: {words}."


def beside_text(side: TensorSide, what: Sequence[str]) -> str:
    """What differs of an argument or result beside its sharding: ``donated to result[0]``.

    Args:
        side: the tensor on one side.
        what: what differs.
    """
    texts = []
    if "donation" in what:
        to = f" to {side.donated_to}" if side.donated_to else ""
        texts.append(f"donated{to}" if side.donated else "not donated")
    if "attributes" in what:
        texts += side.attributes or ("no other attributes",)
    return ", ".join(texts)


def _in_other_order(diff: LoweredDiff | PropagatedDiff | CompiledDiff) -> str:
    """The clause for devices in another order."""
    if not diff.devices_reordered:
        return ""
    if diff.is_alike:
        return ", but on devices in another order"
    return "; the devices are in another order"


def lowered_verdict(lowered: LoweredDiff) -> str:
    """What two modules differ in, a clause: ``2 of 44 tensors differ between Shardy and GSPMD``."""
    every = counted(lowered.same_tensors + len(lowered.tensors), "tensor")
    if lowered.is_alike:
        first, second = across_text(lowered.across, lowered.a), partitioner_name(lowered.b)
        text = f"{every}, the same {first} and {second}"
        missing = len(lowered.not_compared)
        if missing:
            text += f"; {missing:,} not compared"
        text += _in_other_order(lowered)
        if lowered.kernels_not_compared:
            text += f"; code of {counted(lowered.kernels_not_compared, 'kernel')} not compared"
        if lowered.constants_not_compared:
            text += f"; {counted(lowered.constants_not_compared, 'constant')} not compared"
        if lowered.callbacks_not_compared:
            text += f"; {counted(lowered.callbacks_not_compared, 'callback')} not compared"
        return text
    differ = [f"{len(lowered.tensors):,} of {every}"] if lowered.tensors else []
    if lowered.meshes:
        differ.append("the meshes")
    if lowered.ops:
        ops = sum(op.size for op in lowered.ops)
        differ.append(f"{counted(ops, 'op')} in {counted(len(lowered.ops), 'place')}")
    count = len(lowered.tensors) or sum(op.size for op in lowered.ops)
    verb = "differs" if len(differ) == 1 and count == 1 and not lowered.meshes else "differ"
    between = partitioner_names((lowered.a, lowered.b))
    order = _in_other_order(lowered)
    return f"{listed(differ)} {verb} between {between}{order}"


#: Of one program under the two partitioners.
OPS_NOT_COMPARED: Final = (
    "Ops not compared: the partitioners spell constraints and shard_map with different ops."
)


def lowered_notes(lowered: LoweredDiff) -> Iterator[str]:
    """What was left out of a comparison of two modules, in sentences."""
    for label, count in lowered.left_out.items():
        were = "was" if count == 1 else "were"
        yield (
            f"{counted(count, 'constraint')} that JAX writes on its own for "
            f"{partitioner_name(label)} {were} left out."
        )
    if not lowered.ops_compared:
        yield OPS_NOT_COMPARED
    if lowered.kernels_not_compared:
        kernels = counted(lowered.kernels_not_compared, "kernel")
        yield f"Code of {kernels} not compared: it differs, if only in the source lines it holds."
    if lowered.constants_not_compared:
        are = "1 constant is" if lowered.constants_not_compared == 1 else "Constants are"
        yield f"{are} not compared: the module leaves out the values."
    if lowered.callbacks_not_compared:
        callbacks = counted(lowered.callbacks_not_compared, "callback")
        yield f"Not compared: what {callbacks} in Python does, which no module says."
    if lowered.under is not None:
        yield f"Compared under {partitioner_name(lowered.under)}; --partitioner selects another."


# --- propagated -----------------------------------------------------------------------------------

_NOT_COMPARED: Final[Mapping[NotComparedReason, str]] = {
    "absent": "{side}'s module has no such value",
    "not partitioned": "values of this kind have no sharding",
    "folded": "the compiler folded the value away {where}",
    "no fixed shape": "the value is not a tensor of fixed shape",
    "no placement": "{side}'s sharding has no placement",
}


def not_compared_text(not_compared_values: NotComparedValues, across: Across) -> str:
    """How many values could not be compared, and why: a clause."""
    why = _NOT_COMPARED[not_compared_values.reason].format(
        side=partitioner_name(not_compared_values.side),
        where=across_text(across, not_compared_values.side),
    )
    return f"{counted(not_compared_values.values, 'value')} not compared: {why}"


def propagated_verdict(propagated: PropagatedDiff) -> str:
    """What two propagations differ in, a clause: ``11 values, sharded the same way under ...``."""
    differ = propagated.different_values
    every = counted(propagated.same_values + differ, "value")
    sides = f"{across_text(propagated.across, propagated.a)} and {partitioner_name(propagated.b)}"
    if differ:
        verb = "is" if differ == 1 else "are"
        places = counted(len(propagated.beginnings), "place")
        text = f"{differ:,} of {every} {verb} sharded differently {sides}, beginning at {places}"
    else:
        text = f"{every}, sharded the same way {sides}"
    if other := propagated.other_types:
        # As many as are compared, of which those that are sharded differently are a part.
        among = f"the {propagated.compared:,}" if differ else "them"
        which = f"all {other:,}" if other == propagated.compared > 1 else f"{other:,} of {among}"
        text += f"; {which} {'has' if other == 1 else 'have'} another dtype or shape"
    for only, label in ((propagated.only_a, propagated.a), (propagated.only_b, propagated.b)):
        if only:
            text += f"; {counted(only, 'value')} only in {partitioner_name(label)}"
    return text + _in_other_order(propagated)


#: How many annotations a sentence names.
_NAMED = 3


def behind_texts(cause: Cause, diff: CompiledDiff) -> Iterator[str]:
    """Which annotations the collectives of each side come from, by the bytes sent for each."""
    for side, behind in ((diff.a, cause.annotations_a), (diff.b, cause.annotations_b)):
        if texts := list(dict.fromkeys(map(annotation_text, behind))):
            where = across_text(diff.across, side.label)
            yield f"annotations behind it {where}: {few(texts, _NAMED)}"


def inputs_text(inputs: Iterable[tuple[str, Sharded]]) -> str:
    """What a value that differs is computed from; empty where that is nothing.

    Args:
        inputs: names and shardings, which both sides have alike.
    """
    sources = "; ".join(f"{name} {short(sharding)}" for name, sharding in inputs)
    return f"computed from values sharded the same way: {sources}" if sources else ""


def retyped_text(differing_value: DifferingValue) -> str:
    """``bf16[8,16] `` before the sharding on the second side, if the type is another there."""
    if not differing_value.is_retyped:
        return ""
    return f"{value_type_text(differing_value.shape_b, differing_value.dtype_b)} "


def begins_text(name: str, source: str, shardy: Sharded, gspmd: Sharded) -> str:
    """Where the partitioners' differences begin, and with which shardings; a clause.

    Args:
        name: what makes the value, as it is called.
        source: its line; empty where that is not known.
        shardy: its sharding under Shardy.
        gspmd: likewise.
    """
    line = f" at {source}" if source else ""
    return f"{name}{line} is {short(shardy)} under Shardy but {short(gspmd)} under GSPMD"


def extent_text(divergence: Divergence, diff: PropagatedDiff) -> str:
    """How many values differ from a place on, and how many bytes they take."""
    values, across = divergence.values, diff.across
    sides = (
        f"{size(divergence.bytes_a)} {across_text(across, diff.a)}, "
        f"{size(divergence.bytes_b)} {across_text(across, diff.b)}"
    )
    taken = f"{size(divergence.bytes)}, of which a device holds {sides}"
    if values == 1:
        return taken
    follow = counted(values - 1, "more value follows", "more values follow")
    return f"{follow} from it; all {values:,} take {taken}"


def follows_text(values: int, differences: int, sent: int, where: str) -> str:
    """What of the collectives follows from a place where shardings begin to differ.

    Args:
        values: how many values are sharded differently from there on; 0 where it is a constraint.
        differences: how many differences in collectives follow.
        sent: how many more bytes the second side sends for them.
        where: what to call the second side: `under GSPMD`.
    """
    verb = "follows" if differences == 1 else "follow"
    change = f"{size(abs(sent))} {'more' if sent > 0 else 'less'} sent {where}"
    text = f"{counted(differences, 'difference')} in collectives {verb}: "
    text += change if sent else "the bytes sent are equal"
    if not values:
        return text
    are = counted(values, "value is", "values are")
    return f"{are} sharded differently from here on, and {text}"


# --- compiled -------------------------------------------------------------------------------------


def compared_over_text(
    axes: Sequence[AxisRef] | None, group_size: int | None, meshes: Sequence[Mesh | None]
) -> str:
    """What collectives of both sides run over: `fsdp=4 x model=2`; of no axes the size of groups.

    Args:
        axes: the axes; None where no set of axes has the groups.
        group_size: devices that work together; None where it varies.
        meshes: the mesh of each side; an axis whose size differs in them is named without it.
    """
    if axes is None:
        return "no single axis" if group_size is None else f"groups of {group_size:,}"
    if not axes:
        return "a single device"
    return " x ".join(_sized_axis(axis, meshes) for axis in axes)


def _sized_axis(axis: AxisRef, meshes: Sequence[Mesh | None]) -> str:
    sizes = {
        mesh.shape[axis.name] for mesh in meshes if mesh is not None and axis.name in mesh.shape
    }
    is_sized = axis.sub_axis_info is None and len(sizes) == 1
    return f"{axis.name}={sizes.pop()}" if is_sized else axis_text(axis)


def without_cause_text(diff: CompiledDiff, count: int) -> str:
    """That some differences in collectives follow from no place that is known, and why.

    Args:
        diff: the comparison.
        count: how many differences these are.
    """
    if diff.across == "hardware":
        return (
            "The shardings are the same on both: what differs is what the compilers make of them."
        )
    if diff.same_shardings:
        return (
            "Every value is sharded the same way on both sides: what differs is what the compiler "
            "makes of that."
        )
    if diff.has_text:
        return f"{counted(count, 'difference')}; HLO text does not show where they begin:"
    if diff.causes:
        return (
            f"{counted(count, 'difference')} where the op's tensors are sharded the same way, or "
            "are not in both modules:"
        )
    return f"{counted(count, 'difference')} that could not be traced to a sharding:"


#: What differs of collectives that send as much.
OTHERWISE: Final[Mapping[str, str]] = {"types": "other types", "devices": "to other devices"}


def entry_text(held: Held | None, mesh: Mesh | None, change: str = "") -> str:
    """How an argument or result is sharded on one side: `P('data') in blocks f32[4,128]`.

    Args:
        held: what a device holds of it; None where that side does not have it.
        mesh: the mesh that the side was compiled for; None where nobody says.
        change: what is not the same on the other side; of how it is stored, only that is said.
    """
    if held is None:
        return "not there"
    match change:
        case "memory":
            return f"{held.stored.memory} memory (space {held.stored.memory_space})"
        case "layout":
            return f"layout {{{held.stored.layout}}}"
        case "buffer" if held.shares:
            return f"shares the buffer of {held.shares}"
        case "buffer":
            return "donated, its buffer not used" if held.donated else "own buffer"
    if held.placement is None:
        words = "not known"
    else:
        own = mesh if held.sharding is None else held.sharding.mesh
        words = sharding_text(None, held.placement, own)
    block = type_text(held.stored.shape, held.stored.dtype)
    return f"{words} {block}" if words == REPLICATED else f"{words} in blocks {block}"


def entry_texts(
    a: Held | None, b: Held | None, meshes: tuple[Mesh | None, Mesh | None], change: str
) -> tuple[str, str]:
    """The texts of both sides; where axes alone do not tell them apart, with strides of devices.

    Args:
        a: what a device holds of it on the first side; None where that does not have it.
        b: likewise, on the second.
        meshes: the meshes that the sides were compiled for; None where nobody says.
        change: what is not the same on both.
    """
    first, second = entry_text(a, meshes[0], change), entry_text(b, meshes[1], change)
    if first == second and change == "sharding" and a and b and a.placement and b.placement:
        first = f"{first}: {placement_text(a.placement)}"
        second = f"{second}: {placement_text(b.placement)}"
    return first, second


#: How many arguments or results are named that were not compared.
_NAMED_ENTRIES = 4


def not_compared_entries_text(entries: NotCompared, labels: tuple[str, str] = ("A", "B")) -> str:
    """That nobody says how some arguments or results are sharded: a clause.

    Args:
        entries: what they are, and the side that does not say it.
        labels: what the sides are called.
    """
    first, second = map(partitioner_name, labels)
    who = {"a": f"{first} does", "b": f"{second} does", "": "both sides do"}[entries.side]
    verb = "is" if len(entries.names) == 1 else "are"
    more = ", ..." if len(entries.names) > _NAMED_ENTRIES else ""
    named = ", ".join(entries.names[:_NAMED_ENTRIES]) + more
    count = counted(len(entries.names), entries.kind)
    return f"{count} {verb} not compared: {who} not say how {named} {verb} sharded"


_SHARDED: Final = "is sharded differently", "are sharded differently"
_STORED: Final = "is stored differently", "are stored differently"
#: What is said of one argument or result that differs, and of several, by what differs.
_HOW: Final[Mapping[str, tuple[str, str]]] = {
    "memory": _STORED,
    "layout": _STORED,
    "buffer": _STORED,
    "type": ("has another dtype or shape", "have another dtype or shape"),
    "only in a": ("is not on both sides", "are not on both sides"),
    "only in b": ("is not on both sides", "are not on both sides"),
}


def compiled_verdict(compiled: CompiledDiff) -> str:
    """How much more or less the second side sends and needs, a clause; or that it is the same."""
    a, b = compiled.a, compiled.b
    where_a, where_b = (across_text(compiled.across, side.label) for side in (a, b))
    if a.failure and b.failure:
        return f"compiles neither {where_a} nor {where_b}"
    if a.failure or b.failure:
        there, missing = (where_b, where_a) if a.failure else (where_a, where_b)
        return f"compiles {there}, not {missing}"
    assert a.total is not None
    assert b.total is not None
    # The text of a compiled program only says what a device holds.
    needs = "holds" if compiled.has_text else "needs"
    total = compiled.total_memory
    order = _in_other_order(compiled)
    if compiled.is_alike:
        sent = counted(a.total.count, "collective") if a.total.count else "no collectives"
        if a.total.count:
            sent += f" per step sending {size(a.total.sent)}"
        if total is not None and total.a is not None:
            sent += f", and {size(total.a)} that a device {needs}"
        return f"{sent}, the same {where_a} and {partitioner_name(b.label)}{order}"
    changes = []
    if compiled.sends_differ:
        changes.append(_changed("sends", a.total.sent, b.total.sent))
    if compiled.memory_differs:
        before, after = (0, 0) if total is None else (total.a or 0, total.b or 0)
        changes.append(_changed(needs, before, after))
    entries = () if compiled.entries is None else compiled.entries.different
    otherwise = Counter(_HOW.get(entry.change, _SHARDED) for entry in entries)
    differ = [
        counted(number, f"argument or result {single}", f"arguments and results {several}")
        for (single, several), number in sorted(otherwise.items())
    ]
    if not changes:
        return f"{' and '.join(differ)} in {partitioner_names((a.label, b.label))}{order}"
    text = f"{where_b} a device {' and '.join(changes)} than {where_a}"
    return "; ".join((text, *differ)) + order


def _changed(verb: str, before: int, after: int) -> str:
    if before == after:
        return f"{verb} as much ({size(after)}), but differently"
    more = "more" if after > before else "less"
    now, then = size(after), size(before)
    if now == then:
        now, then = f"{after:,} B", f"{before:,} B"
    return f"{verb} {size(abs(after - before))} {more} ({now}, not {then})"


def compiled_notes(side: ProgramSide) -> Iterator[str]:
    """What else there is to know of one side that was compiled, in sentences."""
    yield from remark_texts(side.notes)
    if side.origins_missing:
        yield remark_text(side.origins_missing)
    if side.memory_missing:
        yield side.memory_missing
    if side.unread:
        yield f"{counted(side.unread, 'line')} of the compiled program could not be read."


def compiled_remarks(diff: CompiledDiff) -> Iterator[str]:
    """What was not compared of two compiled programs, and what is alike otherwise, in clauses."""
    if diff.moved:
        verb = "is" if diff.moved == 1 else "are"
        yield (
            f"{counted(diff.moved, 'tensor')} {verb} communicated for ops of other scopes, from "
            "the same lines, with no other difference"
        )
    if diff.memory_compared is False:
        yield "memory is not compared: a text does not say how it stores its parameters"
    if diff.memory_compared and diff.has_text:
        yield "memory: arguments and results, which is all that a text says of it"
    if diff.causes_missing:
        reason = remark_text(diff.causes_missing).rstrip(".")
        yield f"where differences begin is not known: propagation failed: {reason}"
