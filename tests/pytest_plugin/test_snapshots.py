"""The fixture `sharding_snapshot` in runs of pytest; snapshots are made by hand, without jax."""

import sys

import pytest

# A run inside of this process forgets what it imported, and would import these each time.
import sdyscope.inspection
import sdyscope.pytest_plugin.reporting
import sdyscope.views.snapshot  # noqa: F401

pytest_plugins = ["pytester"]

CONFTEST = """
import pytest
from sdyscope.snapshots import Item, Key, Snapshot, StageText

def made(name="step", **says):
    items = {
        Key("argument", path, "f32[8]"): (Item((StageText("requested", text),)),)
        for path, text in says.items()
    }
    return Snapshot(name, "data=4", ("shardy",), ("requested",), "", items)

@pytest.fixture
def program():
    return made
"""

SUITE = """
import pytest

@pytest.mark.parametrize("axes", ["data", "data/model"])
def test_step(program, sharding_snapshot, axes):
    assert program(w=axes, b="replicated") == sharding_snapshot

class TestBoth:
    def test_two(self, program, sharding_snapshot):
        assert sharding_snapshot(name="prefill") == program(w="data")
        assert program(w="model") == sharding_snapshot("decode")

def test_other():
    pass
"""


@pytest.fixture
def suite(pytester, monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("BUILD_NUMBER", raising=False)
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_suite=SUITE)
    return pytester


def run(suite, *words, ok=0):
    done = suite.runpytest("-p", "no:cacheprovider", "-p", "no:randomly", *words)
    assert done.ret == ok, done.stdout.str()
    return done


def files(suite):
    return sorted(
        str(path.relative_to(suite.path)) for path in suite.path.rglob("__shardings__/**/*.snap")
    )


@pytest.fixture
def written(suite):
    run(suite, "--sharding-update").stdout.fnmatch_lines(["4 written", "*4 passed*"])
    return suite


def change(suite, old, new):
    path = suite.path / "test_suite.py"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    # Otherwise the module of the same name that was imported before is run again.
    sys.modules.pop("test_suite", None)


def test_missing_fails_and_says_what_to_do(suite):
    done = run(suite, ok=1)
    done.stdout.fnmatch_lines(
        [
            "E *step: missing from __shardings__*test_step*data*.snap",
            "E *Write it with pytest --sharding-update, and review it.",
            "3 missing",
        ]
    )
    assert files(suite) == []


def test_written_snapshots_hold_and_are_one_file_a_test(written):
    found = files(written)
    assert len(found) == 3
    assert "__shardings__/test_suite/TestBoth.test_two.snap" in found
    assert "__shardings__/test_suite/test_step[data].snap" in found
    assert any("test_step[data-model]-" in file for file in found)
    run(written).stdout.fnmatch_lines(["4 as before", "*4 passed*"])
    before = {file: (written.path / file).read_bytes() for file in found}
    run(written, "--sharding-update")
    assert {file: (written.path / file).read_bytes() for file in files(written)} == before


def test_a_difference_is_told_as_by_check(written):
    change(written, 'b="replicated"', 'b="data", c="new"')
    done = run(written, "-k", "step and not model", ok=1)
    done.stdout.fnmatch_lines(
        [
            "E *step: 2 tensors or collectives differ, 1 is as before",
            "E *argument b f32[[]8]",
            "E *- requested replicated",
            "E *+ requested data",
            "E *1 more below, under 'sharding snapshot'. If this is intended: pytest --shard*",
            "*Captured sharding snapshot call*",
            "  not in the snapshot: argument c f32[[]8]",
            "If this is intended, write it with pytest --sharding-update; it is in __shardings__*",
            "1 changed",
        ]
    )
    done = run(written, "-k", "step and not model", "-vv", ok=1)
    done.stdout.fnmatch_lines(["E *not in the snapshot: argument c f32[[]8]"])
    done.stdout.no_fnmatch_line("*Captured sharding snapshot*")
    run(written, "--sharding-update").stdout.fnmatch_lines(["2 as before, 2 written"])
    run(written)


def test_what_no_test_has_is_reported_and_kept_until_told(written):
    change(written, 'sharding_snapshot("decode")', 'sharding_snapshot("prefill")')
    change(written, 'program(w="model")', 'program(w="data")')
    change(written, '["data", "data/model"]', '["data"]')
    gone = written.path / "__shardings__" / "test_gone"
    gone.mkdir()
    other = written.path / "__shardings__" / "test_suite" / "others.snap"
    other.write_text("// Jest Snapshot v1\n")
    (gone / "test_x.snap").write_text("sdyscope snapshot 1\n")
    before = files(written)
    done = run(written, ok=1)
    done.stdout.fnmatch_lines(
        [
            "2 as before, 3 unused",
            "__shardings__/test_gone/test_x.snap: unused; no test uses it",
            "__shardings__/test_suite/TestBoth.test_two.snap: decode: unused; its test passed *",
            "__shardings__/test_suite/test_step[[]data-model[]]-*.snap: unused; no test uses it",
            "Unused snapshots are removed with pytest --sharding-update --sharding-remove-unused.",
        ]
    )
    run(written, "--sharding-update").stdout.fnmatch_lines(["2 as before, 3 unused"])
    assert files(written) == before
    assert run(written, "--sharding-remove-unused", ok=4)
    done = run(written, "--sharding-update", "--sharding-remove-unused")
    done.stdout.fnmatch_lines(["*test_x.snap: all: removed"])
    assert not gone.exists()
    assert other.exists()
    run(written).stdout.fnmatch_lines(["2 as before"])


def test_what_is_not_compared_is_told(written):
    path = written.path / "__shardings__" / "test_suite" / "test_step[data].snap"
    text = path.read_text().replace("stages requested", "stages requested, lowered")
    path.write_text(text)
    done = run(written)
    done.stdout.fnmatch_lines(
        ["4 as before", "*data*.snap: step: not compared: lowered, which one side does not have"]
    )


def test_a_folder_that_can_not_be_made_is_told(suite):
    (suite.path / "__shardings__").write_text("in the way")
    done = run(suite, "--sharding-update", "-k", "two", ok=1)
    done.stdout.fnmatch_lines(["E *cannot make the folder of this file: *"])


@pytest.mark.parametrize(
    "words",
    [
        ["-k", "other"],
        ["test_suite.py::test_other"],
        ["test_suite.py::TestBoth"],
        ["--deselect", "test_suite.py::TestBoth"],
        ["--collect-only"],
    ],
    ids=" ".join,
)
def test_tests_that_are_not_run_keep_theirs(written, words):
    run(written, *words).stdout.no_fnmatch_line("*unused*")


def test_a_module_that_fails_to_import_keeps_its_snapshots(written):
    change(written, "import pytest", "import pytest\nimport not_there")
    run(written, "--continue-on-collection-errors", ok=1).stdout.no_fnmatch_line("*unused*")
    change(written, "import not_there", "pytest.importorskip('not_there')")
    run(written, ok=5).stdout.no_fnmatch_line("*unused*")


def test_a_test_that_skips_itself_keeps_its_snapshots(written):
    change(
        written, "(self, program, sharding_snapshot):", "(self, program):\n        pytest.skip()"
    )
    run(written).stdout.no_fnmatch_line("*unused*")
    change(written, "pytest.skip()", "return")
    run(written, ok=1).stdout.fnmatch_lines(["*TestBoth.test_two.snap: unused; no test uses it"])


@pytest.mark.parametrize("update", [(), ("--sharding-update",)], ids=["check", "update"])
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("snapshot 1", "snapshot 10", "*snap:1:19: this snapshot is of version 10*"),
        ("argument  b", "<<<<<<< HEAD\nargument  b", "*a merge conflict was left in this snapshot"),
        ("requested replicated", "asked replicated", "*expected a stage of this snapshot*"),
    ],
    ids=["future", "conflict", "by hand"],
)
def test_a_damaged_file_fails_in_a_sentence_and_stays(written, update, old, new, words):
    path = written.path / "__shardings__" / "test_suite" / "test_step[data].snap"
    path.write_text(path.read_text().replace(old, new))
    damaged = path.read_bytes()
    change(written, 'b="replicated"', 'b="data"')
    done = run(written, "-k", "step and not model", *update, ok=1)
    done.stdout.fnmatch_lines([f"E {words}"])
    done.stdout.no_fnmatch_line("*Traceback*")
    done.stdout.no_fnmatch_line("*read_snapshots(*")
    assert path.read_bytes() == damaged


def test_one_name_is_one_program(suite):
    change(suite, 'snapshot("decode")', 'snapshot("prefill")')
    done = run(suite, "--sharding-update", "-k", "two", ok=1)
    done.stdout.fnmatch_lines(["E *Two different programs are called prefill in this test."])


def test_what_is_no_program_is_told(suite):
    change(suite, 'program(w=axes, b="replicated")', "len")
    done = run(suite, "-k", "step", ok=1)
    done.stdout.fnmatch_lines(["E *is of a program, not of a builtin_function_or_method."])


@pytest.mark.thorough
def test_syrupy_s_snapshots_and_these_leave_each_other_alone(suite, monkeypatch):
    pytest.importorskip("syrupy")
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # by which it takes itself for one
    suite.makepyfile(test_other="def test_other(snapshot):\n    assert [1] == snapshot")

    def both(*words):
        done = suite.runpytest_subprocess("-p", "no:cacheprovider", *words)
        assert done.ret == 0, done.stdout.str()
        return done.stdout

    both("--sharding-update", "--snapshot-update").fnmatch_lines(["4 written"])
    before = files(suite)
    # What is not its own, syrupy deletes from the folder that it shares with others.
    both("--snapshot-update").fnmatch_lines(["4 as before", "1 snapshot passed."])
    both("--sharding-update", "--sharding-remove-unused")
    assert files(suite) == before
    both().fnmatch_lines(["4 as before", "1 snapshot passed."])


@pytest.mark.thorough
def test_workers_of_xdist_tell_the_controller(suite):
    # With groups, xdist adds theirs to the ids of tests.
    change(suite, "class TestBoth", "@pytest.mark.xdist_group('both')\nclass TestBoth")
    options = ("-n", "2", "--dist", "loadgroup")
    run(suite, *options, "--sharding-update").stdout.fnmatch_lines(["4 written"])
    change(suite, 'sharding_snapshot("decode")', 'sharding_snapshot("prefill")')
    change(suite, 'program(w="model")', 'program(w="data")')
    change(suite, '["data", "data/model"]', '["data"]')
    done = run(suite, *options, ok=1)
    done.stdout.fnmatch_lines(
        [
            "2 as before, 2 unused",
            "*TestBoth.test_two.snap: decode: unused; its test passed without it",
            "*test_step[[]data-model[]]-*.snap: unused; no test uses it",
        ]
    )
