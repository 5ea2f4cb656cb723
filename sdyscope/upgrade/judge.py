"""Judges versions, releases or commits, by what is looked for in them."""

from __future__ import annotations

from collections.abc import Callable

from sdyscope.errors import TargetError
from sdyscope.facts.versions import Evaluated, Reading
from sdyscope.upgrade.bisected import Unjudged, VersionAccount, version_accounts
from sdyscope.upgrade.document import Looked
from sdyscope.upgrade.wanted import Wanted
from sdyscope.words.paths import shortened


class Judge:
    """Judges versions; each is looked at once.

    Args:
        wanted: what is looked for.
        look: looks at a version.
        label: what a version is called.

    Attributes:
        looked: what was seen, by version; what was seen before can be put there.
        evaluations: what `is_good` judged, in that order.
        good: what the good version has; None until that is known.
    """

    def __init__(
        self, wanted: Wanted, look: Callable[[str], Looked], label: Callable[[str], str]
    ) -> None:
        self.wanted = wanted
        self._look, self._label = look, label
        self.looked: dict[str, Looked] = {}
        self.evaluations: list[Evaluated] = []
        self.good: Reading | None = None

    def take_good(self, version: str) -> Evaluated:
        """The version that others are compared with.

        Raises:
            TargetError: it can't be judged.
        """
        self.good = self.wanted.checked(self._reading(version), self._label(version))
        return self.evaluated(version)

    def is_good(self, version: str) -> bool:
        """Whether a version is as the good one.

        Raises:
            Unjudged: it can't be looked at.
        """
        evaluated = self.evaluated(version)
        if evaluated not in self.evaluations:
            self.evaluations.append(evaluated)
        if evaluated.good is None:
            raise Unjudged(evaluated.skipped)
        return evaluated.good

    def evaluated(self, version: str) -> Evaluated:
        """What a version has of what is looked for, or why that is not known."""
        label = self._label(version)
        try:
            reading = self._reading(version)
        except TargetError as error:
            return Evaluated(label, version, None, None, shortened(str(error)))
        assert self.good is not None
        return Evaluated(label, version, reading, self.wanted.is_good(reading, self.good))

    @property
    def accounts(self) -> tuple[VersionAccount, ...]:
        """What is not known of the versions that were looked at."""
        return version_accounts(
            (looked.label, program.name, program.stages.account)
            for looked in self.looked.values()
            for program in (() if looked.carried is None else looked.carried.programs)
            if program.stages is not None and program.is_called(self.wanted.program)
        )

    def _reading(self, version: str) -> Reading:
        if version not in self.looked:
            self.looked[version] = self._look(version)
        carried = self.looked[version].carried
        if carried is None:
            raise TargetError(self.looked[version].failure)
        return self.wanted.read(carried)
