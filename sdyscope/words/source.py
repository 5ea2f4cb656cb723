"""What stands beside a line of the author's: its values, collectives and findings, in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sdyscope.facts.measured import LineTime, Measured
from sdyscope.facts.program import CompiledUnder
from sdyscope.facts.source import LineCollectives, LineValues
from sdyscope.values.mesh import Mesh
from sdyscope.values.source import SourceLocation
from sdyscope.words.counts import WITH_LOOPS_ONCE, bound_text, counted, size
from sdyscope.words.findings import Finding
from sdyscope.words.mesh import over_text
from sdyscope.words.partitioners import partitioner_name, partitioner_names
from sdyscope.words.paths import file_text
from sdyscope.words.places import op_text, shown_name
from sdyscope.words.rates import time_text
from sdyscope.words.sharding import short
from sdyscope.words.types import value_type_text

#: What the column of blocks is.
BLOCK = "block: the largest that a device has of one value of the line"


def measured_text(measured: Measured) -> str:
    """What the column of measured times is."""
    runs = f"{counted(measured.devices, 'device')} and {counted(measured.steps, 'step')}"
    return (
        f"measured: what the instructions of the line take in a step, on average over {runs} of "
        f"{measured.program}, by a trace; those that run at the same time count each"
    )


def line_time_text(time: LineTime) -> str:
    """What a line takes in a step, and how much of that in collectives."""
    within = f", {time_text(time.collectives)} of it in collectives" if time.collectives else ""
    return f"{time_text(time.seconds)}{within}"


#: What the shardings are of a program that no partitioner propagates.
AS_LOWERED = "The shardings are those that the lowered module says: it was not propagated."

#: What there is of values in a compiled program's text.
NO_VALUES = (
    "The text of a compiled program says what is sent for a line, not how the line's values are "
    "sharded."
)

#: What the text of a module's lines is.
AS_NOW = (
    "The text is that of the files as they are now; the module does not say whether they have "
    "changed since."
)

_UNREAD: Mapping[str, str] = {
    "not Python": "not shown: only files that end in .py are read",
    "not there": "the file is not on this machine",
    "too large": "the file is too large",
    "unreadable": "the file can't be read as Python's text",
    "left out": "the text is left out",
}


def unread_text(reason: str) -> str:
    """Why there is no text of a file, a clause."""
    return _UNREAD[reason]


def values_text(values: LineValues) -> str:
    """`f32[16,256] dot_general P('data', 'model')`; where partitioners differ, each one's sharding.

    Args:
        values: values of one line that are placed alike.
    """
    type_ = value_type_text(values.shape, values.dtype)
    several = f"{counted(values.count, 'value')} {type_}"
    what = several if values.count > 1 else f"{type_} {op_text(values.op)}"
    texts = {by: short(sharding) for by, sharding in values.shardings.items()}
    if values.same is not False:
        return f"{what} {next(iter(texts.values()))}"
    sides = ", ".join(f"{text} under {partitioner_name(by)}" for by, text in texts.items())
    return f"{what}: {sides}; {difference_text(values)}"


def difference_text(values: LineValues) -> str:
    """Where a difference between partitioners begins; empty for values that they place alike."""
    if values.same is not False:
        return ""
    return "the difference begins here" if values.begins else "follows from an earlier difference"


def collectives_text(
    collectives: LineCollectives, mesh: Mesh | None, partitioners: Sequence[str] = ()
) -> str:
    """`all-gather over data=4 of 2 tensors sends 12.0 KiB`.

    Args:
        collectives: collectives of one line, kind and axes.
        mesh: the mesh of the axes; None where none fits.
        partitioners: under which they are there; none where that need not be said.
    """
    over = over_text(collectives.axes, mesh)
    bound = bound_text(loops=collectives.counted_once, at_most=collectives.at_most)
    words = (
        f"{collectives.kind}{f' over {over}' if over else ''} of "
        f"{counted(collectives.tensors, 'tensor')} sends {bound}{size(collectives.sent)}"
        f"{WITH_LOOPS_ONCE * collectives.counted_once}"
    )
    return f"{partitioner_names(partitioners)}: {words}" if partitioners else words


def no_collectives_text(reason: str) -> str:
    """Why nothing is known of collectives, a sentence."""
    return f"No collectives: {reason}"


def without_line_text(values: int) -> str:
    """How many values have no line."""
    return f"{counted(values, 'value')} {'has' if values == 1 else 'have'} no line in the source"


def sent_without_line_text(partitioner: CompiledUnder, sent: int) -> str:
    """`Shardy: 12.0 KiB sent by collectives without a line`."""
    under = f"{partitioner_name(partitioner)}: " if partitioner else ""
    return f"{under}{size(sent)} sent by collectives without a line"


def told_once(
    collectives: Iterable[LineCollectives], meshes: Mapping[CompiledUnder, Mesh | None]
) -> dict[str, list[LineCollectives]]:
    """The collectives of a line by their words, which those of several partitioners can share.

    Args:
        collectives: the collectives.
        meshes: the mesh of each partitioner's axes.
    """
    alike: dict[str, list[LineCollectives]] = {}
    for each in collectives:
        words = collectives_text(each, meshes[each.partitioner])
        alike.setdefault(words, []).append(each)
    return alike


def finding_text(findings: Sequence[Finding]) -> str:
    """`warning RULE of TENSOR: SENTENCE`, and how many others the rule has on the line.

    Args:
        findings: those of one rule on one line, at least one.
    """
    finding, *others = findings
    tensor = shown_name(finding.tensor, finding.kind)
    words = f"{finding.severity} {finding.rule}{f' of {tensor}' if tensor else ''}"
    more = f" And {len(others):,} more of this rule." if others else ""
    return f"{words}: {finding.message}{more}"


def frame_text(frame: SourceLocation) -> str:
    """`Dense.__call__ at flax/linen/linear.py:287`, a frame of a call stack."""
    where = f"{file_text(frame.file)}:{frame.line}"
    return f"{frame.function} at {where}" if frame.function else where


def way_text(frames: Sequence[SourceLocation]) -> str:
    """`Dense.__call__ at flax/linen/linear.py:287 > ...`, a way through call frames."""
    return " > ".join(map(frame_text, frames))
