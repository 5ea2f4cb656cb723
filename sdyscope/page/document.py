"""The whole inspection of one program as a document: every other document, and what it comes to.

The stages that failed, or that were not asked for, are listed with the reason; the rest of the
document is there without them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

from sdyscope.analysis.collectives.comms import CommsDocument, comms_document
from sdyscope.analysis.diff.sides import propagated_between
from sdyscope.analysis.fix.values import Fix
from sdyscope.analysis.memory.memory import MemoryDocument, memory_document
from sdyscope.analysis.memory.peak import with_peak
from sdyscope.analysis.profile.profile import ProfileDocument
from sdyscope.analysis.propagation.propagate import PropagateDocument, propagate_document
from sdyscope.analysis.run.values import Run
from sdyscope.analysis.show import ShownProgram
from sdyscope.analysis.show import shown as shown_program
from sdyscope.errors import CompilerError, SdyscopeError, TargetError
from sdyscope.facts.account import Account
from sdyscope.facts.account import Stage as StageName
from sdyscope.facts.differences import Divergence
from sdyscope.facts.failures import failures
from sdyscope.facts.program import Partitioner
from sdyscope.hardware.names import Hardware
from sdyscope.inspection import Inspection
from sdyscope.lint import linted
from sdyscope.lint.document import Lint, lint_document
from sdyscope.lint.source import SourceDocument, source_of
from sdyscope.page.headlines import Headline, headlines
from sdyscope.page.stages import Stage, UnavailableStage, stages
from sdyscope.values.source import FilePath, PathWords
from sdyscope.version import own_version
from sdyscope.words.account import NO_COMPILE, NOT_COMPILED, NOT_IN_TEXT, account_lines
from sdyscope.words.findings import Check, Finding, finding_of, folded
from sdyscope.words.mesh import MeshDocument, mesh_documents
from sdyscope.words.paths import file_text, shortened
from sdyscope.words.stages import lowered_words

Notify: TypeAlias = Callable[[str, int, int], None]

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The document of `sdyscope report --json`.

    Attributes:
        schema: name and version of this form.
        target: the TARGET.
        name: the program's name, or the module's.
        file: the file that it was read from; null for a program.
        jax_version: version of JAX that lowered or read it; empty for a compiled program's text.
        sdyscope_version: version of sdyscope that looked at it.
        meshes: the meshes that its shardings are on.
        partitioners: whose modules were read; none of a compiled program's text.
        hardware: what it was compiled for; null where it was not compiled, or in a recorded run.
        device_kind: what the compiler calls such a device; null likewise.
        stages: what there is to say about each of the five stages.
        headlines: what is most worth knowing, the most important first.
        show: its tensors as requested and lowered; null for a compiled program's text.
        check: what was requested against what was lowered; null likewise.
        lint: what the rules of `sdyscope lint` find, as far as the stages that are here go.
        propagate: every value after propagation; null where that is not known.
        memory: what a device holds; null where it was not compiled.
        comms: what a device sends; null likewise.
        fix: edits of the source that pay; null where none were looked for.
        run: what it did on devices; null where it was not run.
        profile: what a trace measured of it; null where none was given.
        source: what each line of the author's files does.
        unavailable: what is not there, and why.
        account: what is not known, of all stages that were looked at.
    """

    schema: Literal["sdyscope.report/3"] = "sdyscope.report/3"
    target: PathWords
    name: str
    file: FilePath | None
    jax_version: str
    sdyscope_version: str
    meshes: tuple[MeshDocument, ...]
    partitioners: tuple[Partitioner, ...]
    hardware: Hardware | None
    device_kind: str | None
    stages: tuple[Stage, ...]
    headlines: tuple[Headline, ...]
    show: ShownProgram | None
    check: Check | None
    lint: Lint
    propagate: PropagateDocument | None
    memory: MemoryDocument | None
    comms: CommsDocument | None
    fix: Fix | None
    run: Run | None
    profile: ProfileDocument | None
    source: SourceDocument
    unavailable: tuple[UnavailableStage, ...]
    account: Account

    @property
    def lowered_by(self) -> str:
        """Whose the module is: ``lowered by JAX 0.12.0.1; read by JAX 0.10.2``."""
        recorded_by = None if self.show is None else self.show.recorded_by
        is_file = self.file is not None
        return "; ".join(lowered_words(self.jax_version, recorded_by, is_file=is_file))

    @property
    def compiled_by(self) -> str:
        """The JAX that compiled it, such as `JAX 0.10.2`; empty where that is not known."""
        return ("" if self.comms is None else self.comms.compiled_by) or ""

    @property
    def why_not_compiled(self) -> str:
        """Why nothing of it is compiled, in a sentence; empty where it is, or nobody says."""
        reasons = (each.reason for each in self.unavailable if each.stage == "compiled")
        return next(reasons, "")

    @property
    def not_in_account(self) -> tuple[UnavailableStage, ...]:
        """What is not there, but for refusals that the account says in full, advice too."""
        refused = {
            (unknown.stage, partitioner)
            for unknown in self.account.unknowns
            if unknown.kind == "refused"
            for partitioner in (*unknown.partitioners, None)
        }
        lines = set(account_lines(self.account))
        return tuple(
            missing
            for missing in self.unavailable
            if (missing.stage, missing.partitioner) not in refused
            or not lines.issuperset(missing.reason.splitlines()[1:])
        )

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Every finding of any stage, each once, the most severe first."""
        rules = {rule.name for rule in self.lint.rules}
        findings = dict.fromkeys(folded(self.lint.findings))
        # The rules have what check and memory find, said once for both partitioners.
        findings |= dict.fromkeys(
            finding
            for finding in (() if self.check is None else self.check.findings)
            if finding.rule not in rules
        )
        if self.run is not None:
            findings |= dict.fromkeys(map(finding_of, self.run.findings))
        order = ("error", "warning", "note")
        return tuple(sorted(findings, key=lambda finding: order.index(finding.severity)))


def document(
    inspection: Inspection,
    target: str,
    *,
    on: Hardware | None = None,
    compiled: bool = True,
    fix: Callable[[], Fix] | None = None,
    run: Callable[[], Run] | None = None,
    profile: ProfileDocument | None = None,
    source_text: bool = True,
    notify: Notify = lambda what, done, total: None,
) -> Report:
    """The document of one program or module.

    Args:
        inspection: the program.
        target: the TARGET.
        on: what to compile for; None for as many CPU devices as it needs.
        compiled: whether to compile it, which memory and communication need; a compiled program's
            text needs no compile.
        fix: looks for edits of its source that pay; None to leave that out.
        run: runs it; None to leave that out.
        profile: what a trace measured of it; None without one.
        source_text: whether the text of the author's files may be in it.
        notify: told what is being done, how many of its steps are done, and of how many.

    Raises:
        SdyscopeError: the program can't be lowered at all.
        TargetError: hardware is named for a compiled program's text.
    """
    steps = (4 if compiled else 2) + (fix is not None) + (run is not None)
    refused = failures(inspection.failures)
    missing = [UnavailableStage("lowered", f.partitioner, True, f.reason) for f in refused]
    notify("lowering", 0, steps)
    shown = checked = None
    if inspection.is_compiled:
        inspection.compiled(on=on)  # which refuses hardware
        compiled = True
        before: tuple[StageName, ...] = ("requested", "lowered", "propagated")
        missing += [UnavailableStage(stage, None, False, NOT_IN_TEXT) for stage in before]
    else:
        shown, checked = shown_program(inspection), inspection.check()
    notify("propagating", 1, steps)
    # What is compiled takes longest: the rest is looked at meanwhile.
    with inspection.compiling(on) if compiled else nullcontext():
        decided = None
        if shown is not None:
            decided = _or_missing(missing, "propagated", lambda: propagate_document(inspection))
        if decided is not None:
            missing += [
                UnavailableStage("propagated", f.partitioner, True, f.reason)
                for f in decided.failures
                if f not in refused
            ]
        held = sent = None
        if compiled:
            notify("compiling", 2, steps)
            held = _or_missing(missing, "compiled", lambda: memory_document(inspection, on))
            held = _over_time(held, inspection, on)
            notify("reading collectives", 3, steps)
            sent = _comms(inspection, on, missing)
        else:
            missing.append(UnavailableStage("compiled", None, False, NO_COMPILE))
        fixed = None
        if fix is not None:
            notify("trying edits of the source", steps - 1 - (run is not None), steps)
            fixed = fix()
        ran = None
        if run is not None:
            notify("running", steps - 1, steps)
            ran = _or_missing(missing, "executed", run)
        first = None if held is None else next(iter(held.compiled), None)
        lint = _linted(inspection, on, compiled)
    report = Report(
        target=shortened(target),
        name=inspection.name,
        file=None if inspection.file is None else file_text(inspection.file),
        jax_version=inspection.jax_version,
        sdyscope_version=own_version(),
        meshes=mesh_documents(inspection.meshes),
        partitioners=() if shown is None else shown.partitioners,
        hardware=None if first is None else first.hardware,
        device_kind=None if first is None else first.device_kind,
        stages=stages(
            *(shown, checked, decided, held, sent, ran),
            None if profile is None else profile.measured,
            missing,
        ),
        headlines=headlines(
            shown, checked, decided, held, sent, _begun(inspection, decided), fixed
        ),
        show=shown,
        check=checked,
        lint=lint,
        propagate=decided,
        memory=held,
        comms=sent,
        fix=fixed,
        run=ran,
        profile=profile,
        source=source_of(
            inspection,
            decided,
            sent,
            lint.findings,
            not_compiled="" if sent is not None else NOT_COMPILED,
            text=source_text,
        ),
        unavailable=tuple(part for part in missing if not _is_told(part, missing)),
        account=inspection.account if sent is None else sent.account,
    )
    notify("writing", steps, steps)
    return report


def _begun(inspection: Inspection, decided: PropagateDocument | None) -> Sequence[Divergence]:
    """Where the partitioners begin to differ; none where there is only one."""
    if decided is None or len(decided.propagations) < 2:
        return ()
    try:
        return propagated_between(inspection).beginnings
    except SdyscopeError:
        return ()


def _is_told(part: UnavailableStage, missing: Sequence[UnavailableStage]) -> bool:
    """Whether another says the same, and of which partitioner."""
    return part.partitioner is None and any(
        other.partitioner and (other.stage, other.reason) == (part.stage, part.reason)
        for other in missing
    )


def _linted(inspection: Inspection, on: Hardware | None, compiled: bool) -> Lint:
    try:
        results = linted(inspection, compiled=compiled, on=on)
    except TargetError:  # no such hardware here: what is missing says so
        results = linted(inspection, compiled=False)
    return lint_document(results)


def _or_missing(
    missing: list[UnavailableStage], stage: StageName, make: Callable[[], _Value]
) -> _Value | None:
    try:
        return make()
    except SdyscopeError as error:
        why = UnavailableStage(stage, None, True, shortened(str(error)))
        if why not in missing:
            missing.append(why)
        return None


def _over_time(
    held: MemoryDocument | None, inspection: Inspection, on: Hardware | None
) -> MemoryDocument | None:
    """The same with memory over a step, which there is none of where nothing is scheduled."""
    if held is None:
        return None
    try:
        return with_peak(held, inspection, on, tries=0)
    except SdyscopeError:
        return held


def _comms(
    inspection: Inspection, on: Hardware | None, missing: list[UnavailableStage]
) -> CommsDocument | None:
    """The collectives; where there are none under a partitioner, says why."""
    comms = _or_missing(missing, "compiled", lambda: comms_document(inspection, on))
    missing += [
        UnavailableStage("compiled", partitioner, True, str(compiled))
        for partitioner, compiled in inspection.compilations()
        if isinstance(compiled, CompilerError)
    ]
    return comms
