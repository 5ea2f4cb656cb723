"""`sdyscope diff`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import click

from sdyscope.commands import completing, mesh_choice, opening, options, snapshot_diff
from sdyscope.commands.opening import Opened
from sdyscope.errors import CompilerError, TargetError
from sdyscope.facts.failures import Uncompared
from sdyscope.facts.program import Partitioner
from sdyscope.facts.remarks import Remark
from sdyscope.hardware.names import Hardware
from sdyscope.process import output

if TYPE_CHECKING:
    from sdyscope.analysis.diff.pairing import PairCandidate, Paired
    from sdyscope.facts.account import Account
    from sdyscope.facts.differences import CompiledDiff, LoweredDiff, PropagatedDiff
    from sdyscope.inspection import Inspection
    from sdyscope.snapshots.differences import DiffDocument

_Stage: TypeAlias = Literal["lowered", "propagated", "compiled"]


@options.command(
    examples=(
        "diff mlp",
        "diff old.py:step new.py:step --at compiled",
        "diff run_a run_b",
        "diff fsdp-transformer --set-b remat=true --at compiled",
    ),
)
@click.argument("first", metavar="A", shell_complete=completing.targets)
@click.argument("second", metavar="[B]", required=False, shell_complete=completing.targets)
@options.mesh
@options.partitioner()
@options.settings
@click.option(
    "--set-b",
    "settings_b",
    multiple=True,
    metavar="KEY=VALUE",
    callback=options.read_settings,
    shell_complete=completing.settings,
    help="A setting of B alone, overriding --set; without B, A is compared with itself under "
    "it. Can be repeated.",
)
@opening.module
@click.option(
    "--at",
    type=options.choice(_Stage),
    default="lowered",
    show_default=True,
    help="The stage at which to compare.",
)
@options.on_each
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="List every difference, those of JAX's own functions in recorded runs too.",
)
@options.strict
@options.json("snapshots.differences:DiffDocument")
def command(
    first: str,
    second: str | None,
    mesh: dict[str, int] | None,
    partitioners: tuple[Partitioner, ...],
    settings: dict[str, str],
    settings_b: dict[str, str],
    module: str | None,
    at: _Stage,
    on: tuple[Hardware, ...],
    everything: bool,
    strict: bool,
    as_json: bool,
    other: mesh_choice.Other | None = None,
) -> int:
    """Compare two partitioners, programs, files or directories.

    With A alone, the program under both partitioners. Tensors are matched by path and scope:
    renamed values, reordered ops and moved source lines are not differences. Of two
    directories of dumps, modules with the same name are compared; of two recorded runs, programs
    with the same name and shapes.

    At `propagated`, every value's sharding after propagation is compared, and differences are
    grouped by where they begin. Under GSPMD, XLA compiles the program for CPU up to there.

    At `compiled`, both sides are compiled, for --on: collectives and memory of a device, and
    where what differs begins. --on given twice compares A on two kinds of hardware, or A on the
    first with B on the second. A and B may also be HLO texts of compiled programs.

    --mesh-config given twice compares A on two configurations, such as before and after a change
    of one line. --set-b compares it with itself under another setting, such as remat or a dtype.

    Two snapshot files are compared at every stage that both have; nothing is traced.

    --mesh and --set apply to programs, not to files. Exit status 1 if anything differs.
    """
    from sdyscope.terminal import document, paragraphs
    from sdyscope.terminal.answer import account_paragraphs
    from sdyscope.views import diff

    if on and at != "compiled":
        raise TargetError(
            f"At {at} nothing is compiled for hardware.",
            hint="Leave --on out, or ask for --at compiled.",
        )
    if len(on) > 2:
        raise TargetError("--on takes one value per side.", hint="Give it once or twice.")
    if settings_b:
        there = other or mesh_choice.Other(mesh, settings)
        other = replace(there, settings={**(there.settings or {}), **settings_b})
    asked = _Asked(mesh, partitioners, settings, module, at, on, everything)
    shown = snapshot_diff.between(first, second, at=at)
    if shown is None:
        if second is None and other is None:
            shown = _alone(asked, first)
        else:
            shown = _two(asked, first, second or first, other)
    if as_json:
        output.answers().write_bytes(document.encode(shown))
    else:
        paragraphs.print_paragraphs(diff.summary(shown))
        paragraphs.print_parts(diff.details(shown, everything=everything))
        for name, account in shown.accounts.items():
            paragraphs.print_paragraphs(account_paragraphs(account, of=name))
    return 0 if shown.same and not (strict and shown.not_known) else 1


@dataclass(frozen=True)
class _Asked:
    """What the options say of every target."""

    mesh: dict[str, int] | None
    partitioners: Sequence[Partitioner]
    settings: dict[str, str]
    module: str | None
    at: _Stage
    on: tuple[Hardware, ...]
    everything: bool

    def open(self, word: str) -> opening.Opened:
        if opening.is_read(word):
            module = self.module if Path(word).is_dir() else None
            opened = opening.Opening(word, module=module).opened(self.partitioners)
            return opened.with_mesh(self.mesh)
        return opening.Opening(word, self.mesh, self.settings).opened(self.partitioners)


def _alone(asked: _Asked, word: str) -> DiffDocument:
    opened = asked.open(word)
    if opened.record is not None and len(opened.programs) > 1:
        return _both_of_each(asked, opened)
    return _each(asked, [(opening.single(opened), None)], _Rest())


def _both_of_each(asked: _Asked, opened: opening.Opened) -> DiffDocument:
    """A recorded run under the two partitioners, program by program."""
    chosen, notes = _kept(opened, everything=asked.everything)
    both = [program for program in chosen if len(program.partitioners) > 1]
    if not both:
        raise TargetError(
            "This run was recorded under one partitioner, so there is nothing to compare it with.",
            file=opened.word,
            hint="Name a second directory, or record the run again with --partitioner both.",
        )
    rest = _Rest(unread=tuple(Uncompared(str(file.error)) for file in opened.unread), notes=notes)
    return _each(asked, [(program, None) for program in both], rest)


def _two(asked: _Asked, first: str, second: str, other: mesh_choice.Other | None) -> DiffDocument:
    there = asked if other is None else replace(asked, mesh=other.mesh, settings=other.settings)
    left, right = asked.open(first), there.open(second)
    if not (left.is_directory and right.is_directory and asked.module is None):
        return _each(asked, [(opening.single(left), opening.single(right))], _Rest())
    both, notes = _paired(left, right, everything=asked.everything)
    rest = _Rest(
        tuple(program.words for program in both.only_a),
        tuple(program.words for program in both.only_b),
        tuple(Uncompared(str(file.error)) for side in (left, right) for file in side.unread),
        notes,
    )
    return _each(asked, both.pairs, rest)


_Pair: TypeAlias = "tuple[Inspection, Inspection | None]"


def _each(asked: _Asked, pairs: Sequence[_Pair], rest: _Rest) -> DiffDocument:
    """Compares the programs of each pair, or one under both partitioners."""
    from sdyscope.analysis.diff import sides
    from sdyscope.snapshots.differences import DiffDocument

    lowered: list[LoweredDiff] = []
    propagated: list[PropagatedDiff] = []
    compiled: list[CompiledDiff] = []
    accounts: dict[str, Account] = {}
    failed = []
    notes = [*rest.notes]
    on, other_on = (*asked.on, None, None)[:2]
    for pair in pairs:
        under = None
        if asked.at == "lowered":
            pair, under = _under_one(pair)
        try:
            match asked.at:
                case "lowered":
                    lowered.append(replace(sides.lowered_between(*pair), under=under))
                case "propagated":
                    propagated.append(sides.propagated_between(*pair))
                case "compiled":
                    compiled.append(sides.compiled_between(*pair, on=on, other_on=other_on))
        except CompilerError as error:
            if len(pairs) == 1:
                raise
            failed.append(Uncompared(error.message, pair[0].name, asked.at))
        else:
            accounts |= _accounts(*pair)
            notes += sides.notes_between(*pair)
    return DiffDocument(
        at=asked.at,
        programs=tuple(lowered),
        propagated=tuple(propagated),
        compiled=tuple(compiled),
        only_a=rest.only_a,
        only_b=rest.only_b,
        unread=(*rest.unread, *failed),
        notes=tuple(dict.fromkeys(notes)),
        accounts=accounts,
    )


def _accounts(first: Inspection, second: Inspection | None) -> dict[str, Account]:
    """What is not known of each side, by what it is called; nothing where all is known."""
    from sdyscope.analysis.diff.sides import labels_of

    named = (
        {first.name: first}
        if second is None
        else dict(zip(labels_of(first, second), (first, second), strict=True))
    )
    accounts = {name: inspection.account for name, inspection in named.items()}
    return {name: account for name, account in accounts.items() if account}


class _Rest(NamedTuple):
    """What two directories do not both have."""

    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()
    unread: tuple[Uncompared, ...] = ()
    notes: tuple[Remark, ...] = ()


def _under_one(pair: _Pair) -> tuple[_Pair, Partitioner | None]:
    """Two programs under one partitioner, as differences are the same under both, and quicker.

    Which one, if there was a choice.
    """
    from sdyscope.inspection import Inspection

    left, right = pair
    if not (left.program and right is not None and right.program and len(left.partitioners) > 1):
        return pair, None
    chosen = left.partitioners[:1]
    return (Inspection(left.program, chosen), Inspection(right.program, chosen)), chosen[0]


def _kept(opened: Opened, *, everything: bool) -> tuple[list[Inspection], tuple[Remark, ...]]:
    """The programs to compare, and how many are left out.

    Of a recorded run, these are the functions that are not JAX's, unless there are none, or
    everything is asked for.
    """
    kept = list(opened.programs if everything else opened.own)
    left_out = len(opened.programs) - len(kept)
    return kept, (Remark("JAX's own", opened.word, left_out),) if left_out else ()


def _paired(
    first: Opened, second: Opened, *, everything: bool
) -> tuple[Paired[Inspection], tuple[Remark, ...]]:
    """Pairs programs of one name, as `analysis.diff.pairing` does; and what is not compared."""
    from sdyscope.analysis.diff import pairing

    left, notes_a = _kept(first, everything=everything)
    right, notes_b = _kept(second, everything=everything)
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
