"""Looks at a TARGET or a script in other environments and checkouts, each in its own process."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sdyscope.commands import record_run
from sdyscope.errors import SdyscopeError, TargetError
from sdyscope.process import child, children
from sdyscope.process.output import say
from sdyscope.process.python import Interpreter

if TYPE_CHECKING:
    from sdyscope.environments.environment import Environment
    from sdyscope.upgrade.carried import Carried
    from sdyscope.upgrade.document import Looked


@dataclass(frozen=True)
class UpgradeSubject:
    """What is looked at: a TARGET, or a command whose programs are recorded.

    Attributes:
        target: the TARGET; empty for a command.
        command: the command's words; none for a TARGET.
        arguments: the command line up to a command's own words, which says how a TARGET is opened.
        variables: variables of a process that opens it, unless the user has set them.
        partitioner: under which; empty for that of the script, or for Shardy.
        platform: what is compiled for; empty for virtual CPU devices.
        config: files of mesh configurations; empty without any.
    """

    target: str
    command: tuple[str, ...]
    arguments: tuple[str, ...]
    variables: Mapping[str, str]
    partitioner: str = ""
    platform: str = ""
    config: str = ""

    @property
    def words(self) -> str:
        """What to call it."""
        return shlex.join(self.command) if self.command else self.target


@dataclass(frozen=True)
class Look:
    """One look to be taken.

    Attributes:
        label: what to call it.
        environment: whose JAX; None for this process's own Python.
        analysis: the Python that opens what there is, with sdyscope.
        folder: the working directory.
        variables: variables of the process that opens it, beside the subject's.
        path: folders to import from, before all others.
    """

    label: str
    environment: Environment | None
    analysis: Interpreter
    folder: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    path: tuple[str, ...] = ()


@dataclass(eq=False)
class Looker:
    """Takes looks.

    Args:
        subject: at what.
        scratch: a temporary folder.
        verbose: whether what scripts and compilers say is shown.
        notify: told what is being done, how many looks are taken, and of how many.
    """

    subject: UpgradeSubject
    scratch: Path
    _: KW_ONLY
    verbose: bool
    notify: Callable[[str, int, int], None]

    def __post_init__(self) -> None:
        self._count = 0

    def look(self, looks: Sequence[Look]) -> list[Looked]:
        """What came of looks: scripts run one after the other, the rest side by side.

        Raises:
            Stopped: a signal told this process to stop.
        """
        runs = [self._run(number, look, len(looks)) for number, look in enumerate(looks)]
        files = [self.scratch / f"look-{self._count + number}" for number in range(len(looks))]
        self._count += len(looks)
        works = [
            self._work(look, run, file) for look, run, file in zip(looks, runs, files, strict=True)
        ]
        self._notify("looking at", looks, 0)
        answers = children.run_all(
            works, children.cores(), lambda done: self._notify("looking at", looks, done)
        )
        return [
            self._looked(look, run, answer, file)
            for look, run, answer, file in zip(looks, runs, answers, files, strict=True)
        ]

    def _notify(self, deed: str, looks: Sequence[Look], done: int) -> None:
        which = looks[0].label if len(looks) == 1 else f"{len(looks)} versions"
        self.notify(f"{deed} {self.subject.words} in {which}", done, len(looks))

    # A script.

    def _run(self, number: int, look: Look, count: int) -> _Run | None:
        """Runs the script once; None for a TARGET."""
        if not self.subject.command:
            return None
        folder = self.scratch / f"run-{self._count + number}"
        variables = dict(os.environ)
        python = sys.executable
        if look.environment is not None:
            variables = look.environment.variables()
            python = str(look.environment.python)
        variables |= {**look.variables, **_python_path(look, variables)}
        command = record_run.command_line(
            self.subject.command, python, variables.get("PATH"), look.folder
        )
        record_run.prepare(folder, overwrite=False, add=False)
        self.notify(f"running {self.subject.words} in {look.label}", number, count)
        said: list[str] = []

        def launch(words: Sequence[str], environment: dict[str, str]) -> int:
            status, text = child.run_to_end(words, env=environment, cwd=look.folder)
            said.append(text)
            return status

        status = record_run.run(command, folder, self.subject.partitioner, launch, variables)
        lines = [line.strip() for line in said[0].splitlines() if line.strip()]
        if self.verbose:
            for line in lines:
                say(f"{look.label}: {line}")
        return _Run(folder, status, lines[-1] if lines else "")

    # Opening what there is.

    def _work(self, look: Look, run: _Run | None, file: Path) -> children.ChildWork:
        words = [*self.subject.arguments, "--carry", str(file)]
        if run is not None:
            words.append(str(run.folder))
        fixed = {**look.variables, **_python_path(look, os.environ)}
        return children.ChildWork(
            look.label,
            tuple(words),
            self.subject.variables,
            look.folder,
            look.analysis,
            fixed,
        )

    def _looked(self, look: Look, run: _Run | None, answer: children.Answer, file: Path) -> Looked:
        from sdyscope.upgrade import carried as carrying
        from sdyscope.upgrade.document import Looked

        failure = "" if run is None or not run.status else self._failed(look, run)
        carried: Carried | None = None
        try:
            if answer.error is not None:
                raise answer.error
            if not answer.data:
                raise TargetError(answer.messages.strip().removeprefix("error: "))
            carried = carrying.read(file)
            self._check_versions(look, run, carried)
        except SdyscopeError as error:
            carried = None
            text = str(error)
            named = text.startswith(look.label)  # What ended the process is told by its name.
            failure = failure or (text if named else f"{look.label}: {text}")
        finally:
            file.unlink(missing_ok=True)
        if self.verbose:
            for line in (*answer.messages.splitlines(), *answer.log):
                say(f"{look.label}: {line}")
        status = None if run is None else run.status
        return Looked(look.label, look.environment, carried, failure, status)

    def _failed(self, look: Look, run: _Run) -> str:
        how = f"ended by signal {-run.status}" if run.status < 0 else f"exit status {run.status}"
        text = f"{self.subject.words} failed in {look.label} ({how})"
        text += f": {run.last}" if run.last else "."
        if "ModuleNotFoundError" in run.last and look.environment is not None:
            text += (
                "\n--requirements FILE names what it needs, as `pip freeze` lists it; "
                "--requirements installed takes what is installed here."
            )
        return text

    def _check_versions(self, look: Look, run: _Run | None, carried: Carried) -> None:
        """Finds a script that does not use the environment's Python."""
        if run is None or look.environment is None:
            return
        wanted = look.environment.versions
        for program in carried.programs:
            if program.recorded is not None and program.recorded.versions.differs(wanted):
                raise TargetError(
                    f"{self.subject.words} ran with {program.recorded.versions}, not with "
                    f"{wanted}: it does not use the Python of the environment.",
                    hint="Write `python`, without a path: the environment's is the first on PATH.",
                )


@dataclass(frozen=True)
class _Run:
    """A script that was run.

    Attributes:
        folder: what was recorded.
        status: its exit status.
        last: the last line that it wrote.
    """

    folder: Path
    status: int
    last: str


def _python_path(look: Look, variables: Mapping[str, str]) -> dict[str, str]:
    """`PYTHONPATH` with the folders of a look before the user's; nothing without any."""
    if not look.path:
        return {}
    before = variables.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([*look.path, *([before] if before else [])])}
