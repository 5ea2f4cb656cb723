"""`upgrade`: makes the environments, looks at the subject in each, and finds where it changed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from sdyscope.analysis.budgets import Budgets
from sdyscope.analysis.diff.stages import ComparedStages
from sdyscope.ci import find_config, read_config
from sdyscope.commands.upgrade_run import Look, Looker, UpgradeSubject
from sdyscope.environments import environment as environments
from sdyscope.environments import releases
from sdyscope.environments.environment import Environment
from sdyscope.environments.linked import linked
from sdyscope.environments.releases import Release
from sdyscope.environments.requirements import (
    Requirements,
    extra_for,
    of_sdyscope,
    read_requirements,
)
from sdyscope.environments.tools import PythonVersion, Tools, find_tools
from sdyscope.errors import SdyscopeError, TargetError
from sdyscope.process.python import Interpreter
from sdyscope.process.scratch import scratch_folder, sweep
from sdyscope.terminal.messages import tell
from sdyscope.upgrade.bisected import (
    Bisection,
    InOrder,
    bisect,
)
from sdyscope.upgrade.document import Looked, Upgrade, comparison, upgrade_document
from sdyscope.upgrade.judge import Judge
from sdyscope.upgrade.release_notes import notes_of
from sdyscope.upgrade.wanted import DEFAULT, parse_wanted

_Notify = Callable[[str, int, int], None]


@dataclass(frozen=True)
class UpgradeRequest:
    """What was asked for.

    Attributes:
        subject: what to look at.
        versions: the versions that are named, in order.
        requirements: the user's pins, see `read_requirements`.
        python: the Python of the environments; None for one that fits.
        pre: whether dev releases count.
        what: what to bisect for, empty for the default; None for no bisection.
        changelog: a file with JAX's changelog.
        program: the program of a script that is looked at; empty for all.
        budget: the target whose budgets hold; None for the one that is the TARGET.
        verbose: whether what installers and scripts say is shown.
    """

    subject: UpgradeSubject
    versions: tuple[str, ...]
    requirements: str | None
    python: str | None
    pre: bool
    what: str | None
    changelog: str | None
    program: str
    budget: str | None
    verbose: bool


def upgraded(asked: UpgradeRequest, notify: _Notify) -> Upgrade:
    """What the versions make of the subject.

    Raises:
        SdyscopeError: a word names no version, or nothing could be looked at.
        Stopped: a signal told this process to stop.
    """
    wanted = None
    if asked.what is not None:
        wanted = parse_wanted(asked.what or DEFAULT, asked.program)
    budgets = _budgets(asked)
    sweep()
    with scratch_folder() as scratch:
        places = _Places(asked, Path(scratch), notify)
        chosen = places.chosen()
        if wanted is not None:
            _check_ends(chosen)
        looker = Looker(asked.subject, Path(scratch), verbose=asked.verbose, notify=notify)
        looked = _look(places, looker, chosen)
        bisection: Bisection | str | None = None
        if wanted is not None:
            try:
                bisection = _Search(asked, places, looker, chosen, looked).bisection()
            except TargetError as error:
                bisection = str(error)
    return upgrade_document(asked.subject.words, looked, budgets, bisection, asked.program)


def _look(places: _Places, looker: Looker, chosen: Sequence[_Place]) -> list[Looked]:
    """Looks in each place; one that can't be made stops no other."""
    looks: list[Look] = []
    failed: dict[str, Looked] = {}
    for place in chosen:
        try:
            looks.append(places.look(place))
        except SdyscopeError as error:
            failed[place.label] = Looked(place.label, failure=str(error))
    looked = {look.label: look for look in looker.look(looks)} if looks else {}
    return [failed.get(place.label) or looked[place.label] for place in chosen]


@dataclass(frozen=True)
class _Place:
    """Where to look: an environment of the user's, or one that is made for a release.

    Attributes:
        label: what to call it.
        release: the release; None for an environment that is there.
        there: that environment.
    """

    label: str
    release: Release | None = None
    there: Environment | None = None


class _Places:
    """Makes environments."""

    def __init__(self, asked: UpgradeRequest, scratch: Path, notify: _Notify) -> None:
        self.asked = asked
        self.notify = notify
        self.scratch = scratch
        self.listing: Callable[[PythonVersion], Sequence[str]] = cache(self._listed)
        self._linked: Path | None = None
        self._tools: Tools | None = None
        self.requirements = read_requirements(asked.requirements)
        extras = extra_for(asked.subject.platform)
        own = of_sdyscope(_extra(asked))
        #: What the Python needs that opens a TARGET, or what was recorded.
        self.analysis = Requirements().and_(own, extras)
        if not asked.subject.command or not self.requirements:
            self.requirements = self.requirements.and_(own, extras)

    @property
    def tools(self) -> Tools:
        """What makes environments; looked for when the first is to be made."""
        if self._tools is None:
            self._tools = find_tools(self.asked.python)
        return self._tools

    def _listed(self, python: PythonVersion) -> Sequence[str]:
        self.notify("asking the index for releases of JAX", 0, 0)
        try:
            return releases.listed_by_index(self.tools, python)
        except TargetError as error:
            # What was made before is there without an index.
            kept = environments.kept_releases()
            if not kept:
                raise
            tell(f"note: {error}; only environments that were made before can be used.")
            return [release.version for release in kept if release.python == python]

    def chosen(self) -> list[_Place]:
        """The places that the words name.

        Raises:
            TargetError: one names nothing, or two the same.
        """
        named = [self._installed(word) for word in self.asked.versions]
        # Before the index is asked, which takes seconds.
        there = {word: environments.existing(word) for word in named if _is_folder(word)}
        words = [word for word in named if word not in there]
        by_word: dict[str, Release] = {}
        if words:
            words = [releases.checked(word) for word in words]
            resolved = releases.chosen(
                words, self.tools.candidates, self.listing, pre=self.asked.pre
            )
            by_word = dict(zip(words, resolved, strict=True))
        places = []
        for word in named:
            if word in there:
                places.append(_Place(f"{there[word].versions} in {word}", there=there[word]))
            else:
                places.append(_Place(f"JAX {by_word[word].version}", by_word[word]))
        labels = [place.label for place in places]
        for label in labels:
            if labels.count(label) > 1:
                raise TargetError(f"{label} is named twice.", hint="Name two versions.")
        pythons = {release.python for release in by_word.values()}
        if len(pythons) > 1:
            on = ", ".join(
                f"{release.version} on {'.'.join(map(str, release.python))}"
                for release in by_word.values()
            )
            tell(f"note: no Python here has all of these versions: {on}.")
        return places

    def _installed(self, word: str) -> str:
        if word != "installed":
            return word
        try:
            return metadata.version("jax")
        except metadata.PackageNotFoundError:
            raise TargetError("JAX is not installed here.", hint="Name one with --from.") from None

    def look(self, place: _Place) -> Look:
        """Makes the environment of a place, and that of the Python that opens what is there.

        Raises:
            TargetError: one of them can't be made.
        """
        there = place.there or self.environment(place.release, self.requirements)
        analysis = there
        if lacking := there.lacks(self.analysis.lines):
            if not self.asked.subject.command:
                raise TargetError(
                    f"A TARGET is opened by sdyscope, and this environment lacks what it needs: "
                    f"{', '.join(lacking)}.",
                    file=str(there.python),
                    hint="Install that there, or record a script: -- python train.py.",
                )
            analysis = self._analysis(place, there)
        interpreter = Interpreter(str(analysis.python), str(self._links()))
        return Look(place.label, there, interpreter, Path.cwd())

    def _analysis(self, place: _Place, there: Environment) -> Environment:
        """An environment of the same JAX with what sdyscope needs."""
        pinned = self.analysis.and_([f"jaxlib=={there.versions.jaxlib}"])
        release = place.release or Release(there.versions.jax, there.python_version[:2])
        return self.environment(release, pinned)

    def environment(self, release: Release | None, requirements: Requirements) -> Environment:
        """An environment with a release."""
        assert release is not None
        self.notify(f"making the environment for JAX {release.version}", 0, 0)
        return environments.Maker(self.tools, self.asked.verbose).make(release, requirements)

    def _links(self) -> Path:
        if self._linked is None:
            self._linked = linked(self.scratch / "sdyscope")
        return self._linked


def _is_folder(word: str) -> bool:
    return os.sep in word or Path(word).is_dir()


def _extra(asked: UpgradeRequest) -> str:
    """The extra of sdyscope that a TARGET needs: that of a reference model, or of YAML."""
    known = metadata.metadata("sdyscope").get_all("Provides-Extra") or ()
    first = asked.subject.target.partition(":")[0].replace("_", "-").partition("-")[0]
    if first in known and not os.path.exists(asked.subject.target):
        return first
    return "yaml" if asked.subject.config.partition(":")[0].endswith((".yaml", ".yml")) else ""


def _budgets(asked: UpgradeRequest) -> Mapping[str, Budgets]:
    """The budgets that hold, by the program that they are for; of an empty name for all."""
    try:
        config = read_config(find_config(Path.cwd()))
    except TargetError as error:
        if asked.budget is not None:
            raise
        if error.line is not None:  # There is one, and something in it is wrong.
            tell(f"note: no budgets are held: {error}")
        return {}
    targets = {target.name: target for target in config.targets}
    if asked.budget is None:
        word = asked.subject.target
        fitting = [
            candidate
            for candidate in targets.values()
            if word and candidate.word == word and candidate.budgets
        ]
        return {"": fitting[0].budgets} if fitting and fitting[0].budgets is not None else {}
    target = targets.get(asked.budget)
    if target is None or target.budgets is None:
        what = "There is no target" if target is None else "There are no budgets of the target"
        raise TargetError(f"{what} {asked.budget!r}.", file=config.file)
    return {asked.program: target.budgets}


# --- bisection ------------------------------------------------------------------------------------


def _check_ends(chosen: Sequence[_Place]) -> None:
    """Finds what can't be bisected before anything takes time.

    Raises:
        TargetError: an end is no release, or they are in the wrong order.
    """
    releases_ = [place.release for place in chosen if place.release is not None]
    if len(releases_) < len(chosen):
        raise TargetError("--bisect looks at releases, not folders.", hint="Name versions.")
    if releases_[-1].key <= releases_[0].key:
        raise TargetError("--bisect goes from an older release to a newer one.")


@dataclass
class _Search:
    """Looks for the release in which something changed."""

    asked: UpgradeRequest
    places: _Places
    looker: Looker
    chosen: Sequence[_Place]
    looked: Sequence[Looked]

    def bisection(self) -> Bisection:
        """What was found.

        Raises:
            TargetError: an end can't be judged.
        """
        first, last = self.chosen[0].release, self.chosen[-1].release
        assert first is not None
        assert last is not None
        between = releases.between(first, last, self.places.listing, pre=self.asked.pre)
        self.releases = {release.version: release for release in between}
        wanted = parse_wanted(self.asked.what or DEFAULT, self.asked.program)
        judge = Judge(wanted, self._look, lambda version: f"JAX {version}")
        for place, looked in zip(self.chosen, self.looked, strict=True):
            assert place.release is not None
            judge.looked[place.release.version] = looked
        ends = judge.take_good(first.version), judge.evaluated(last.version)
        for end in ends:
            if end.reading is None:
                raise TargetError(f"{end.label} can't be judged: {end.skipped}")
        versions = [release.version for release in between]
        outcome = bisect(InOrder(versions), versions[0], versions[-1], judge.is_good)
        changed = outcome.first
        compared: tuple[ComparedStages, ...] = ()
        if changed is not None:
            sides = judge.looked[outcome.before], judge.looked[changed]
            compared = comparison(*sides, self.asked.program)
        about = [changed] if changed is not None else outcome.candidates
        return Bisection(
            across="releases",
            what=wanted.text,
            good=ends[0],
            bad=ends[1],
            first=None if changed is None else judge.evaluated(changed),
            before=judge.evaluated(outcome.before),
            candidates=tuple(map(judge.evaluated, outcome.candidates)),
            unchanged=outcome.unchanged,
            between=len(versions) - 1,
            compiles=len(judge.looked),
            evaluations=tuple(judge.evaluations),
            comparison=compared,
            notes=tuple(notes_of(version, self.asked.changelog) for version in about),
            accounts=judge.accounts,
        )

    def _look(self, version: str) -> Looked:
        place = _Place(f"JAX {version}", self.releases[version])
        (looked,) = _look(self.places, self.looker, [place])
        return looked
