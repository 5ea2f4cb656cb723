"""What every test shares: eight virtual CPU devices, and how many examples hypothesis draws."""

import gc
import importlib.util
import os

from xla_flags import QUICK

# A slow machine is no reason for a line on standard error, which tests take to be empty.
os.environ["SDYSCOPE_PROGRESS"] = "0"
# pytest-xdist sets it for its workers, and what is said would be folded there alone.
os.environ.pop("COLUMNS", None)
# Before any test imports jax: the devices are counted once, when its first backend starts.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = " ".join(
    [
        os.environ.get("XLA_FLAGS", ""),
        "--xla_force_host_platform_device_count=8",
        QUICK,
    ]
).strip()

import pytest
import warm
from hypothesis import HealthCheck, settings

# Processes of sdyscope need not import JAX each.
warm.start()

# Graphs live as long as the session: to walk them all again and again takes one second in twenty.
gc.set_threshold(50_000, 20, 100)

# How fast examples are drawn depends on what else the machine does: no reason to fail.
slow_is_well = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("few", max_examples=20, **slow_is_well)
settings.register_profile("fast", max_examples=100, **slow_is_well)
settings.register_profile("full", max_examples=10_000, **slow_is_well)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


def pytest_collection_modifyitems(config, items):
    """Leaves out what takes minutes, and what compiles for TPUs without their compiler."""
    if "thorough" not in config.option.markexpr:
        minutes = [item for item in items if item.get_closest_marker("thorough") is not None]
        items[:] = [item for item in items if item not in minutes]
        config.hook.pytest_deselected(items=minutes)
    if importlib.util.find_spec("libtpu") is None:
        for item in items:
            if item.get_closest_marker("libtpu") is not None:
                item.add_marker(pytest.mark.skip(reason="libtpu is not installed"))


@pytest.fixture(scope="session", autouse=True)
def _shared_compiles(tmp_path_factory):
    """What XLA made of a module, the next test does not have made again."""
    from shared_compiles import SharedCompiles, ask_through

    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with pytest.MonkeyPatch.context() as patch:
        ask_through(patch, SharedCompiles(folder / "compiles"))
        yield


@pytest.fixture
def own_compiles(monkeypatch):
    """For tests of the children: every one is started."""
    from shared_compiles import ask_through

    ask_through(monkeypatch, None)


@pytest.fixture(scope="module")
def others_frozen():
    """For tests that run a script again, each time after a collection: what others left is out."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def new_processes(monkeypatch):
    """For tests about what a process imports and inherits: none is forked."""
    monkeypatch.setattr(warm.Popen, "server", None)


@pytest.fixture(scope="session")
def lookup_file(tmp_path_factory):
    """The program of docs/source.md, whose partitioners differ, as a file."""
    from page_files import fenced

    path = tmp_path_factory.mktemp("lookup") / "lookup.py"
    path.write_text(fenced("source", "python", "# lookup.py\n"))
    return path


@pytest.fixture(scope="session")
def lookup(lookup_file):
    """Its inspection."""
    from sdyscope.inspection import Inspection
    from sdyscope.targets import resolve

    return Inspection(resolve(f"{lookup_file}:program"))


@pytest.fixture(scope="session")
def lookup_lines(lookup, lookup_file):
    """What each of its lines does."""
    from dataclasses import replace

    document = lookup.source_lines()
    # Constants that JAX adds when it lowers have the line here that has it lowered.
    own = tuple(file for file in document.files if file.file == str(lookup_file))
    return replace(document, files=own)
