"""The pytest plugin: golden shardings, and virtual devices; described in docs/pytest.md.

It is loaded wherever sdyscope is installed, so nothing here imports jax or anything else that takes
time before a test asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sdyscope.errors import SdyscopeError
from sdyscope.pytest_plugin.session import MARKER, Tests

if TYPE_CHECKING:
    from sdyscope.pytest_plugin.comparing import ShardingSnapshot

_TESTS = "sdyscope tests"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options and ini settings."""
    group = parser.getgroup("sdyscope", "shardings of JAX programs")
    group.addoption(
        "--sharding-update",
        action="store_true",
        help="Write sharding snapshots that differ or are missing.",
    )
    group.addoption(
        "--sharding-remove-unused",
        action="store_true",
        help="With --sharding-update, remove sharding snapshots that no test uses.",
    )
    parser.addini(
        MARKER,
        "How many virtual CPU devices JAX starts at least (all tests share them).",
        default="",
    )


# Before any conftest.py is imported, which may import jax and use it.
@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Asks for the devices that the ini file names."""
    _provide_from_ini(early_config)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Declares the marker, and refuses options that don't go together."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(count): has JAX start at least this many virtual CPU devices (sdyscope).",
    )
    if config.getoption("sharding_remove_unused") and not config.getoption("sharding_update"):
        raise pytest.UsageError("--sharding-remove-unused goes with --sharding-update.")
    # Where the plugin was loaded too late for the hook before: by pytest_plugins in a conftest.py.
    _provide_from_ini(config)
    config.pluginmanager.register(Tests(config), _TESTS)


def _provide_from_ini(config: pytest.Config) -> None:
    given = config.getini(MARKER)
    if not given:
        return
    from sdyscope.pytest_plugin import devices

    try:
        devices.provide(devices.read_count(given, MARKER), MARKER)
    except SdyscopeError as error:
        raise pytest.UsageError(str(error)) from None


@pytest.fixture
def sharding_snapshot(request: pytest.FixtureRequest) -> ShardingSnapshot:
    """What the shardings of a program were when they were last approved.

    ``assert sdyscope.inspect(step, *arguments) == sharding_snapshot``
    """
    from sdyscope.pytest_plugin.comparing import ShardingSnapshot

    tests = request.config.pluginmanager.get_plugin(_TESTS)
    assert isinstance(tests, Tests)
    return ShardingSnapshot(tests.golden(request.node))


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """What differs, in words."""
    for snapshot, subject in ((right, left), (left, right)):
        # By its name first: most tests compare something else, and need not wait for the import.
        if op == "==" and type(snapshot).__name__ == "ShardingSnapshot":
            from sdyscope.pytest_plugin.comparing import ShardingSnapshot, explanation

            if isinstance(snapshot, ShardingSnapshot):
                return explanation(snapshot, subject)
    return None
