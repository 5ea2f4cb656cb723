"""What `verify` found: a table of stages, and each exception by its name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from sdyscope.analysis.verify.audited import (
    STAGES,
    AuditedStage,
    LeftOut,
    VerifiedStage,
    VerifyDocument,
)
from sdyscope.terminal.answer import account_paragraphs
from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.terminal.table import Cell, Column, Table, number
from sdyscope.words.counts import counted
from sdyscope.words.partitioners import partitioner_name, partitioner_names
from sdyscope.words.paths import shortened
from sdyscope.words.places import source_text

#: What is compared at each stage.
_THINGS: Mapping[VerifiedStage, str] = {
    "lowered": "ops",
    "propagated": "shardings of values",
    "collectives": "collectives, axes",
    "memory": "figures",
    "ops": "ops that causes name",
    "required": "values of causes",
    "causes": "causes, by removal",
}

_LEFT_OUT: Mapping[LeftOut, str] = {
    "folded": "folded away",
    "not partitioned": "of a kind without shardings",
    "empty": "without elements",
    "not in the dump": "not in XLA's dump under their name",
    "several in the dump": "several times in XLA's dump, one of them as shown",
    "no layout": "without a layout",
    "no cause": "without a cause among the annotations",
    "uncertain": "with an uncertain cause",
    "not told apart": "named after an op that makes the value or needs it",
    "not followed": "not followed from what makes the value to what takes it",
    "not removable": "with a cause that can't be removed",
    "not tried": "not tried",
    "not compiled": "refused by XLA without their cause",
}


def heading(document: VerifyDocument) -> Iterator[Paragraph]:
    """What was audited, and the verdict."""
    under = partitioner_names(dict.fromkeys(program.partitioner for program in document.programs))
    count = len({program.name for program in document.programs})
    what = document.target if count == 1 else f"{document.target}: {counted(count, 'module')}"
    stages = [stage for program in document.programs for stage in program.stages]
    compared = sum(stage.compared for stage in stages)
    wrong = [disagreement for stage in stages for disagreement in stage.disagreements]
    unstable = sum(each.unstable for each in wrong)
    if not document.programs:
        yield Paragraph(f"{document.target}: nothing could be audited", "bad")
        return
    verdict = f"{what} under {under}: {counted(compared, 'comparison')} with XLA's dumps, "
    differ = len(wrong) - unstable
    disagree = "1 disagrees" if differ == 1 else f"{differ:,} disagree"
    verdict += disagree if wrong else "all agree"
    if unstable:
        verdict += f"; in {unstable:,} XLA's own two compiles differ"
    yield Paragraph(verdict, "good" if document.agrees else "bad")
    with_jaxlib = "" if document.jaxlib == document.jax else f" with jaxlib {document.jaxlib}"
    yield Paragraph(f"JAX {document.jax}{with_jaxlib}, compiled for CPU devices", "muted")


def stages(document: VerifyDocument) -> Table:
    """A row a stage under each partitioner, all programs together."""
    rows = []
    for partitioner in dict.fromkeys(program.partitioner for program in document.programs):
        programs = [program for program in document.programs if program.partitioner == partitioner]
        for stage in STAGES:
            parts = [part for program in programs for part in program.stages if part.stage == stage]
            if parts:
                rows.append(_row(partitioner, stage, parts))
    return Table(
        (
            Column("under", fold=False),
            Column("stage", fold=False),
            Column("what"),
            number("programs"),
            number("compared"),
            number("agree"),
            number("disagree"),
        ),
        tuple(rows),
    )


def _row(
    partitioner: str, stage: VerifiedStage, parts: Sequence[AuditedStage]
) -> tuple[Cell | str, ...]:
    compared = sum(part.compared for part in parts)
    wrong = sum(len(part.disagreements) for part in parts)
    return (
        Cell(partitioner_name(partitioner), "muted"),
        stage,
        _THINGS[stage],
        f"{len(parts):,}",
        f"{compared:,}",
        f"{compared - wrong:,}",
        Cell(f"{wrong:,}", "bad" if wrong else "muted"),
    )


def left_out(document: VerifyDocument) -> Iterator[Paragraph]:
    """What was not compared, by stage and reason."""
    counts: dict[tuple[str, VerifiedStage], Counter[LeftOut]] = {}
    for program in document.programs:
        for stage in program.stages:
            counter = counts.setdefault((program.partitioner, stage.stage), Counter())
            counter.update(stage.left_out)
    texts = {
        key: ", ".join(f"{count:,} {_LEFT_OUT[why]}" for why, count in counter.most_common())
        for key, counter in sorted(counts.items(), key=lambda item: STAGES.index(item[0][1]))
        if counter
    }
    if texts:
        yield Paragraph("")
        yield Paragraph("not compared", "muted")
    for (partitioner, stage_name), text in texts.items():
        yield Paragraph(f"{stage_name}, {partitioner_name(partitioner)}: {text}", "muted", 2, 2)


def accounts(document: VerifyDocument, top: int) -> Iterator[Paragraph]:
    """What is not known of each program; of a directory by the names of its modules."""
    shown = list(document.accounts.items())[: top or None]
    for name, account in shown:
        yield from account_paragraphs(account, of=name)
    rest = len(document.accounts) - len(shown)
    if rest:
        yield Paragraph("")
        yield Paragraph(f"not known of {counted(rest, 'more module')}: --json lists all", "warning")


def exceptions(document: VerifyDocument, top: int) -> Iterator[Paragraph]:
    """Every disagreement by its name, and what could not be audited, by its reason."""
    listed = [
        (program, stage, disagreement)
        for program in document.programs
        for stage in program.stages
        for disagreement in stage.disagreements
    ]
    shown = listed[:top] if top else listed
    for program, stage, disagreement in shown:
        yield Paragraph("")
        line = f" ({source_text(disagreement.source)})" if disagreement.source is not None else ""
        yield Paragraph(
            f"{program.name}, {partitioner_name(program.partitioner)}, {stage.stage}: "
            f"{disagreement.name}{line}",
            "muted" if disagreement.unstable else "bad",
        )
        yield Paragraph(f"shown:  {shortened(disagreement.shown)}", indent=2, hang=8)
        yield Paragraph(f"in XLA: {disagreement.found}", indent=2, hang=8)
        if disagreement.unstable:
            yield Paragraph("XLA's own two compiles of it differ here.", "muted", 2)
    if len(listed) > len(shown):
        yield Paragraph("")
        yield Paragraph(f"{len(listed) - len(shown):,} more left out by --top", "muted")
    if not document.not_verified:
        return
    yield Paragraph("")
    yield Paragraph(f"{counted(len(document.not_verified), 'module')} not audited", "warning")
    reasons = Counter((module.reason, module.crashed) for module in document.not_verified)
    for (reason, crashed), count in reasons.most_common(top or None):
        names = [module.name for module in document.not_verified if module.reason == reason]
        yield Paragraph(
            f"{count:,}: {reason} ({names[0]}{', ...' if len(set(names)) > 1 else ''})",
            "bad" if crashed else "plain",
            2,
            2,
        )
