"""Where things are in the program: source lines, scopes, ops and tensors, as users read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sdyscope.annotations import CONSTANT, op_name
from sdyscope.annotations import op_text as op_text
from sdyscope.annotations import shown_name as shown_name
from sdyscope.facts.recorded import Line
from sdyscope.graph import Op
from sdyscope.values.source import IN_TEXT, SourceLocation
from sdyscope.words.paths import file_text


def annotation_kind(kind: str, mapped: str = "") -> str:
    """What an annotation is on: `constraint`; of a `shard_map`, `shard_map input of attention`."""
    return f"{kind} of {mapped}" if mapped else kind


def common_file(sources: Iterable[SourceLocation | Line | None]) -> str:
    """The file that all lines are in, as it is shown; empty where there are several, or none."""
    files = {source_text(source).rpartition(":")[0] for source in sources}
    return files.pop() if len(files) == 1 else ""


def source_text(source: SourceLocation | Line | None) -> str:
    """`models/mlp.py:98`, or the line of a module's own text; empty for None."""
    if source is None:
        return ""
    if source.file == IN_TEXT:
        return f"line {source.line}"  # Of the text that MLIR was given, which had no locations.
    return f"{file_text(source.file)}:{source.line}"


def callers_text(lines: Sequence[SourceLocation | Line], file: str = "") -> str:
    """`layers/attentions.py:703 < models/llama2.py:170`; empty for none.

    Args:
        lines: the lines, nearest first.
        file: the file whose name need not be repeated, as it is shown.
    """
    return " < ".join(
        f"line {line.line}" if file and file_text(line.file) == file else source_text(line)
        for line in lines
    )


def carry_text(name: str, *, carried: bool) -> str:
    """What to call a value, by what its name says: of a loop's carry what the loop begins with.

    Args:
        name: a name.
        carried: whether it is a carry's.
    """
    if not carried or not name:
        return name
    return f"the carry {name}" if name != CONSTANT else f"the carry that begins as {CONSTANT}"


@dataclass(frozen=True, slots=True)
class OpDocument:
    """An operation.

    Attributes:
        op: its kind.
        name: its scope without the program's own name, and what JAX calls it.
        ssa: its SSA name in the lowered module; empty where it has no result.
        source: its line of user code.
    """

    op: str
    name: str
    ssa: str
    source: SourceLocation | None


def op_document(op: Op) -> OpDocument:
    """The document of an operation."""
    return OpDocument(op.kind, op_name(op), op.name if op.types else "", op.source)
