"""Which programs of two directories are compared with each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sdyscope.commands.opening import Opened
from sdyscope.facts.remarks import Remark

if TYPE_CHECKING:
    from sdyscope.analysis.diff.pairing import PairCandidate, Paired
    from sdyscope.inspection import Inspection


def chosen(opened: Opened, *, everything: bool) -> tuple[list[Inspection], tuple[Remark, ...]]:
    """The programs to compare, and how many are left out.

    Of a recorded run, these are the functions that are not JAX's, unless there are none, or
    everything is asked for.
    """
    kept = list(opened.programs if everything else opened.own)
    left_out = len(opened.programs) - len(kept)
    return kept, (Remark("JAX's own", opened.word, left_out),) if left_out else ()


def paired(
    first: Opened, second: Opened, *, everything: bool
) -> tuple[Paired[Inspection], tuple[Remark, ...]]:
    """Pairs programs of one name, as `analysis.diff.pairing` does; and what is not compared."""
    from sdyscope.analysis.diff import pairing

    left, notes_a = chosen(first, everything=everything)
    right, notes_b = chosen(second, everything=everything)
    pairs = pairing.paired(
        [_candidate(first, program) for program in left],
        [_candidate(second, program) for program in right],
        recorded=first.record is not None and second.record is not None,
    )
    return pairs, (*notes_a, *notes_b)


def _candidate(opened: Opened, program: Inspection) -> PairCandidate[Inspection]:
    from sdyscope.analysis.diff.pairing import PairCandidate

    known = opened.program_of(program)
    name = program.name if known is None else known.name
    return PairCandidate(program, name, program.partitioners, known)
