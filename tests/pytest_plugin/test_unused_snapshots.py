"""Names of snapshot files: safe on every file system, and another one for each test."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdyscope.pytest_plugin.unused_snapshots import file_name


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        (["test_step"], "test_step.snap"),
        (["test_step[4-2]"], "test_step[4-2].snap"),
        (["TestStep", "test_loss[bf16]"], "TestStep.test_loss[bf16].snap"),
    ],
)
def test_plain_names_stay(parts, name):
    assert file_name(parts) == name


@pytest.mark.parametrize(
    "own",
    ["test_a[x/y]", "test_A", "test_a[a:b]", "test_a[*]", "test_" + 200 * "x", "con", "nul.x"],
)
def test_other_names_are_made_safe_and_told_apart(own):
    assert re.fullmatch(r"[\w.,=+\[\]-]{1,120}-[0-9a-f]{10}\.snap", file_name([own]))
    assert not re.match(r"(con|nul)(\.|$)", file_name([own]))


PARTS = st.lists(
    st.one_of(
        st.sampled_from(
            ["test_a", "test_A", "TestA", "TestA.test_a", "a[b.c]", "con", ".", "..", ""]
        ),
        st.text(max_size=40),
    ),
    min_size=1,
    max_size=3,
)


@given(PARTS, PARTS)
def test_two_tests_never_share_a_file(one, two):
    first, second = file_name(one), file_name(two)
    for name in (first, second):
        assert len(name.encode()) < 200
        assert not set(name) & set('<>:"/\\|?*\0')
        assert name.isprintable()
        assert name.isascii()
        assert name[0] not in ". "
    # Windows and macOS make no difference between cases.
    assert (first.lower() == second.lower()) == (one == two)
