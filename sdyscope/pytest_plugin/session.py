"""The tests of one run of pytest: what was collected, what they need, what their snapshots say."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sdyscope.errors import SdyscopeError
from sdyscope.pytest_plugin.unused_snapshots import Collected

if TYPE_CHECKING:
    from sdyscope.pytest_plugin.comparing import SnapshotOfTest
    from sdyscope.pytest_plugin.reporting import Outcomes

#: The marker and the ini setting.
MARKER = "sdyscope_devices"

#: What is sent along with reports of tests, and from workers of xdist.
_KEY = "sdyscope"

_golden = pytest.StashKey["SnapshotOfTest"]()


class Tests:
    """The hooks that need to know what others saw.

    With xdist each worker has one, and so has the controller: what tests did comes with their
    reports, and what was collected at the end of each worker.

    Attributes:
        collected: the tests that there are.
        updating: whether snapshots are written.
        known: what became of snapshots; None as long as no test has any.
    """

    __test__ = False

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.collected = Collected(config)
        self.updating = bool(config.getoption("sharding_update"))
        self.known: Outcomes | None = None

    # No property: pluggy may read all there are when it looks for hooks.
    def outcomes(self) -> Outcomes:
        """What became of the snapshots."""
        from sdyscope.pytest_plugin.reporting import Outcomes

        if self.known is None:
            self.known = Outcomes()
        return self.known

    def golden(self, item: pytest.Item) -> SnapshotOfTest:
        """The snapshots of a test that asks for them."""
        from sdyscope.pytest_plugin.comparing import SnapshotOfTest

        if _golden not in item.stash:
            item.stash[_golden] = SnapshotOfTest(self.collected.file_of(item), self.updating, item)
        return item.stash[_golden]

    # Collection.

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Notes every test, before any is deselected; a marker is heard before JAX starts."""
        self.collected.item(item)
        if _is_marked(item):
            from sdyscope.pytest_plugin import devices

            # Where it is too late, the test says so when it is run.
            with contextlib.suppress(SdyscopeError):
                devices.provide(*_asked(item))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Notes what was collected in full, and what failed."""
        self.collected.report(report)

    @pytest.hookimpl(optionalhook=True)
    def pytest_collect_directory(self, path: Path) -> None:
        """Notes folders of snapshots beside which there may be no test."""
        self.collected.folder(path)

    # Tests.

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Makes sure that a test has the devices that it asks for."""
        if not _is_marked(item):
            return
        from sdyscope.pytest_plugin import devices

        sentence = ""
        try:
            devices.check(*_asked(item))
        except SdyscopeError as error:
            sentence = str(error)
        if sentence:
            pytest.fail(sentence, pytrace=False)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[Any]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Sends what a test did with its snapshots along with its report."""
        report = yield
        if call.when == "call" and (_golden in item.stash or self.collected.has_file(item)):
            from sdyscope.pytest_plugin.reporting import TestOutcome

            outcome = TestOutcome.of(self.golden(item), passed=report.outcome == "passed")
            setattr(report, _KEY, outcome.said())
            del item.stash[_golden]  # It may be run again.
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keeps what a test did with its snapshots."""
        said = getattr(report, _KEY, None)
        if said is not None:
            from sdyscope.pytest_plugin.reporting import TestOutcome

            self.outcomes().by_test[report.nodeid] = TestOutcome.read(said)

    # The end.

    # The innermost wrapper: what follows the yield comes after xdist has ended its workers, and
    # before the summary is printed.
    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, None, None]:
        """Looks for what no test has; it is removed where that was asked for, else a failure.

        A worker tells the controller what it found.
        """
        output = getattr(self.config, "workeroutput", None)
        if not self.config.getoption("collectonly"):
            unused = [str(path) for path in self.collected.unused()]
            if output is None:
                self._keep(unused)
            else:
                output[_KEY] = unused
        yield
        if self.known is None or output is not None:
            return
        if self.config.getoption("sharding_remove_unused"):
            self.known.remove_unused()
        if self.known.unused and not self.updating and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Keeps what a worker of xdist found."""
        self._keep((getattr(node, "workeroutput", None) or {}).get(_KEY) or ())

    def _keep(self, unused: Any) -> None:
        if unused:
            self.outcomes().unused_files.update(unused)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Says what became of the snapshots."""
        if self.known is None:
            return
        lines = list(self.known.lines(self.updating))
        if lines:
            terminalreporter.section("sharding snapshots")
        for text, colour in lines:
            terminalreporter.line(text, **{colour: True})


def _is_marked(item: pytest.Item) -> bool:
    return item.get_closest_marker(MARKER) is not None


def _asked(item: pytest.Item) -> tuple[int, str]:
    """How many devices a test needs, and what asks for them."""
    from sdyscope.pytest_plugin import devices

    counts = []
    for marker in item.iter_markers(MARKER):
        given = (*marker.args, *marker.kwargs.values())
        counts.append(devices.read_count(given[0] if len(given) == 1 else "", _words("...")))
    return max(counts), _words(str(max(counts)))


def _words(count: str) -> str:
    return f"@pytest.mark.{MARKER}({count})"
