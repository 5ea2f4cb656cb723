"""`bisect`: looks at the subject in commits of a repository, and finds where it changed."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sdyscope.analysis.diff.stages import ComparedStages, ProgramStages
from sdyscope.commands.upgrade_carry import ELSEWHERE, KNOWN, UP_TO
from sdyscope.commands.upgrade_run import Look, Looker, UpgradeSubject
from sdyscope.environments.linked import linked
from sdyscope.errors import TargetError
from sdyscope.facts.versions import Evaluated
from sdyscope.process.python import Interpreter
from sdyscope.process.scratch import scratch_folder, sweep
from sdyscope.upgrade.bisected import Bisection, ChangedLine, Unjudged, bisect
from sdyscope.upgrade.changed import begins_at
from sdyscope.upgrade.commits import Checkout, Commit, Repository
from sdyscope.upgrade.document import Looked, comparison
from sdyscope.upgrade.judge import Judge
from sdyscope.upgrade.wanted import DEFAULT, Wanted, parse_wanted
from sdyscope.values.source import SourceLocation
from sdyscope.words.paths import paths_from


@dataclass(frozen=True)
class BisectRequest:
    """What was asked for.

    Attributes:
        subject: what to look at.
        good: a revision before the change.
        bad: a later one.
        what: what to look for; empty for the default.
        program: the program of a script that is looked at; empty for all.
        verbose: whether what scripts and compilers say is shown.
    """

    subject: UpgradeSubject
    good: str
    bad: str
    what: str
    program: str
    verbose: bool


@contextlib.contextmanager
def bisected(asked: BisectRequest, notify: Callable[[str, int, int], None]) -> Iterator[Bisection]:
    """The commit that changed what is looked for.

    While it is held, files of the worktree are named as they are in the user's tree.

    Raises:
        SdyscopeError: there is no such commit, or an end can't be judged.
        Stopped: a signal told this process to stop; the worktree is gone.
    """
    wanted = parse_wanted(asked.what or DEFAULT, asked.program)
    repository = Repository(Path.cwd())
    good, bad = repository.commit(asked.good), repository.commit(asked.bad)
    repository.check_order(good, bad)
    sweep()
    with (
        scratch_folder() as folder,
        repository.checkout() as checkout,
        paths_from(os.getcwd(), str(checkout.folder), str(checkout.path)),
    ):
        looker = Looker(asked.subject, Path(folder), verbose=asked.verbose, notify=notify)
        links = linked(Path(folder) / "sdyscope")
        search = _Search(asked, wanted, repository, checkout, looker, links)
        yield search.bisection(good, bad)


class _Search:
    """Looks for the commit."""

    def __init__(
        self,
        asked: BisectRequest,
        wanted: Wanted,
        repository: Repository,
        checkout: Checkout,
        looker: Looker,
        links: Path,
    ) -> None:
        self.asked = asked
        self.wanted = wanted
        self.repository = repository
        self.checkout = checkout
        self.looker = looker
        self.interpreter = Interpreter(sys.executable, str(links))
        self.commits: dict[str, Commit] = {}
        #: Stages by the key of their module, with the commit that they were made of.
        self.stages: dict[str, tuple[ProgramStages, str]] = {}
        self.compiles = 0
        self.judge = Judge(wanted, self._look, lambda commit: _label(self._commit(commit)))

    def bisection(self, good: Commit, bad: Commit) -> Bisection:
        """What was found.

        Raises:
            TargetError: an end can't be judged.
        """
        self.commits = {good.hash: good, bad.hash: bad}
        start = self.judge.take_good(good.hash)
        between = self.repository.candidates([good.hash], bad.hash)
        if self._has_same_modules(good.hash, bad.hash):
            end = Evaluated(_label(bad), bad.hash, self.judge.good, True)
            return self._bisection(start, end, None, end, len(between), unchanged=True)
        try:
            outcome = bisect(self.repository, good.hash, bad.hash, self.judge.is_good)
        except Unjudged as error:
            raise TargetError(
                f"{_label(bad)} can't be judged, and no commit before it differs from the good "
                f"one: {error}"
            ) from error
        first = outcome.first
        end = self.judge.evaluated(bad.hash) if bad.hash in self.judge.looked else _unknown(bad)
        return self._bisection(
            start,
            end,
            first,
            self.judge.evaluated(outcome.before),
            len(between),
            unchanged=outcome.unchanged,
            candidates=tuple(
                self.judge.evaluated(candidate)
                if candidate in self.judge.looked
                else _unknown(self._commit(candidate))
                for candidate in outcome.candidates
            ),
        )

    def _bisection(
        self,
        good: Evaluated,
        bad: Evaluated,
        first: str | None,
        before: Evaluated,
        between: int,
        *,
        unchanged: bool = False,
        candidates: tuple[Evaluated, ...] = (),
    ) -> Bisection:
        compared: tuple[ComparedStages, ...] = ()
        lines: tuple[ChangedLine, ...] = ()
        commit = None if first is None else self._commit(first)
        if first is not None:
            sides = self._with_own_lines(before.version), self._with_own_lines(first)
            good_side, bad_side = (
                replace(side, label=self._commit(each).short)
                for side, each in zip(sides, (before.version, first), strict=True)
            )
            compared = comparison(good_side, bad_side, self.asked.program)
            lines = tuple(self._lines(first, compared))
        return Bisection(
            across="commits",
            what=self.wanted.text,
            good=good,
            bad=bad,
            first=None if first is None else self.judge.evaluated(first),
            before=before,
            candidates=candidates,
            unchanged=unchanged,
            between=between,
            compiles=self.compiles,
            evaluations=tuple(self.judge.evaluations),
            author="" if commit is None else commit.author,
            date="" if commit is None else commit.date,
            subject="" if commit is None else commit.subject,
            lines=lines,
            comparison=compared,
            accounts=self.judge.accounts,
        )

    def _commit(self, commit: str) -> Commit:
        if commit not in self.commits:
            self.commits[commit] = self.repository.commit(commit)
        return self.commits[commit]

    def _look(self, commit: str, *, fresh: bool = False) -> Looked:
        """Looks at a commit; a module that is known is not compiled again.

        Args:
            commit: the commit.
            fresh: compile it nevertheless, for its own source lines.
        """
        compiles = fresh or self.wanted.needs_compile
        known = {} if fresh else {KNOWN: ",".join(self.stages)}
        looked = self._lowered(commit, known | ({} if compiles else {UP_TO: "propagated"}))
        if looked.carried is None:
            return looked
        programs = []
        for program in looked.carried.programs:
            if program.stages is not None:
                self.compiles += compiles
                self.stages[program.key] = program.stages, commit
            elif program.key in self.stages:
                program = replace(program, stages=self.stages[program.key][0])
            programs.append(program)
        return replace(looked, carried=replace(looked.carried, programs=tuple(programs)))

    def _lowered(self, commit: str, variables: dict[str, str]) -> Looked:
        self.checkout.move(commit)
        label = _label(self._commit(commit))
        if not self.checkout.folder.is_dir():
            return Looked(label, failure=f"{label}: it has no folder {self.repository.inside}.")
        look = Look(
            label,
            None,
            self.interpreter,
            self.checkout.folder,
            {
                ELSEWHERE: str(self.repository.root.resolve()),
                # A file of the same size and second is another one in the next commit.
                "PYTHONDONTWRITEBYTECODE": "1",
                **variables,
            },
            tuple(self.checkout.mirrored(_import_folders())),
        )
        try:
            (looked,) = self.looker.look([look])
        except TargetError as error:  # The script is not there.
            return Looked(label, failure=f"{label}: {error}")
        return looked

    def _has_same_modules(self, good: str, bad: str) -> bool:
        """Whether both ends lower to the same modules, so that nothing can differ.

        A script is not run for this alone.
        """
        if self.asked.subject.command:
            return False
        ends = self.judge.looked[good], self._lowered(bad, {UP_TO: "lowered"})
        own, other = (
            None if end.carried is None else [program.key for program in end.carried.programs]
            for end in ends
        )
        return own is not None and own == other and all(own)

    def _with_own_lines(self, commit: str) -> Looked:
        """What a commit comes to, compiled, with its own source lines.

        An identical module of another commit has others.
        """
        looked = self.judge.looked[commit]
        if not self.wanted.needs_compile:
            return self._look(commit, fresh=True)
        programs = () if looked.carried is None else looked.carried.programs
        if all(self.stages.get(program.key, (None, commit))[1] == commit for program in programs):
            return looked
        return self._look(commit, fresh=True)

    def _lines(self, commit: str, compared: Sequence[ComparedStages]) -> Sequence[ChangedLine]:
        """The lines that a commit changed, those first where a difference begins."""
        begins = begins_at(compared, str(self.checkout.path))
        changed = []
        for file, number, text in self.repository.changed_lines(commit):
            names = begins.get((file, number), ())
            source = SourceLocation(str(self.checkout.path / file), number)
            if text.strip():
                changed.append(ChangedLine(source, text, bool(names), tuple(names)))
        return sorted(changed, key=lambda line: not line.begins)


def _label(commit: Commit) -> str:
    return f"{commit.short} ({commit.subject})"


def _unknown(commit: Commit) -> Evaluated:
    return Evaluated(_label(commit), commit.hash, None, None)


def _import_folders() -> list[str]:
    """Folders that this Python imports from, and the working directory."""
    return [os.getcwd(), *(entry for entry in sys.path if os.path.isdir(entry))]
