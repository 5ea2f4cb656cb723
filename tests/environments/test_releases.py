"""Which release a word names, and on which Python; the index is a dictionary here."""

import subprocess

import pytest

from sdyscope.environments import releases
from sdyscope.environments.releases import Release, between, chosen, newest_of
from sdyscope.environments.tools import Tools
from sdyscope.errors import TargetError

OLD = ["0.10.2", "0.10.1", "0.9.2", "0.9.0.1", "0.9.0", "0.7.2"]
NEW = ["0.12.1.dev20261101", "0.12.0.1", "0.12.0", "0.11.2", *OLD]
INDEX = {(3, 11): OLD, (3, 12): NEW}


@pytest.mark.parametrize(
    ("word", "pre", "version"),
    [
        ("0.12", False, "0.12.0.1"),
        ("0.12.0", False, "0.12.0"),  # itself, not 0.12.0.1
        ("0.12", True, "0.12.1.dev20261101"),
        ("0.9", False, "0.9.2"),
        ("0.1", False, None),  # not 0.10
        ("latest", False, "0.12.0.1"),
        ("0.12.1.dev20261101", False, "0.12.1.dev20261101"),
    ],
)
def test_a_word_names_itself_or_the_newest_that_begins_with_it(word, pre, version):
    assert newest_of(word, NEW, pre=pre) == version


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["0.9.2", "0.10.2"], [((3, 11), "0.9.2"), ((3, 11), "0.10.2")]),
        # The second Python has both.
        (["0.10.2", "0.12"], [((3, 12), "0.10.2"), ((3, 12), "0.12.0.1")]),
        # `latest` is the newest of all, not that of the first Python.
        (["0.10", "latest"], [((3, 12), "0.10.2"), ((3, 12), "0.12.0.1")]),
        # Which is refused where they are looked at.
        (["0.9.2", "0.9.2"], [((3, 11), "0.9.2"), ((3, 11), "0.9.2")]),
    ],
)
def test_all_versions_are_on_one_python_where_one_has_them(words, found):
    made = chosen(words, list(INDEX), INDEX.get, pre=False)
    assert [(one.python, one.version) for one in made] == found


def test_versions_without_a_common_python_are_each_on_the_first_that_has_them():
    index = {(3, 11): ["0.9.2"], (3, 13): ["0.12.0"]}
    made = chosen(["0.9", "0.12"], list(index), index.get, pre=False)
    assert made == (Release("0.9.2", (3, 11)), Release("0.12.0", (3, 13)))


def test_a_release_that_no_python_has_is_an_error_that_names_them():
    index = {(3, 11): ["0.9.2", "0.10.2"], (3, 12): ["0.12.0", "0.12.1.dev3"]}
    with pytest.raises(TargetError, match=r"no JAX 0\.99 for Python 3\.11, 3\.12") as error:
        chosen(["0.99"], list(index), index.get, pre=False)
    assert "newest is JAX 0.10.2 for Python 3.11, JAX 0.12.0 for Python 3.12." in str(error.value)


@pytest.mark.parametrize(
    ("word", "message"),
    [("newest", "not a JAX version"), ("0.6.2", "too old"), ("0.7.1", "too old")],
)
def test_a_word_that_can_name_no_release_is_refused(word, message):
    with pytest.raises(TargetError, match=message):
        releases.checked(word)


def test_between_are_the_releases_in_order_with_both_ends():
    first, last = Release("0.9.0", (3, 12)), Release("0.12.0.1", (3, 12))
    found = [one.version for one in between(first, last, INDEX.get, pre=False)]
    assert found == [
        "0.9.0", "0.9.0.1", "0.9.2", "0.10.1", "0.10.2", "0.11.2", "0.12.0", "0.12.0.1",
    ]  # fmt: skip


def answered(monkeypatch, **answers):
    """The index gives these answers: standard output, or an error of pip."""

    def run(command):
        text = answers[command[-1]]
        is_error = text.startswith("ERROR")
        return subprocess.CompletedProcess(
            command, int(is_error), "" if is_error else text, text if is_error else ""
        )

    monkeypatch.setattr(releases, "run", run)
    monkeypatch.setattr(Tools, "index_versions", lambda self, package, python: [package])


def test_only_releases_with_a_jaxlib_and_new_enough_are_listed(monkeypatch):
    answered(
        monkeypatch,
        jax="jax (0.12.0)\nAvailable versions: 0.12.0, 0.11.0, 0.10.2, 0.6.0\n  INSTALLED: 0.10.2",
        jaxlib="jaxlib (0.12.0)\nAvailable versions: 0.12.0, 0.10.1, 0.6.0",
    )
    assert releases.listed_by_index(Tools(None, {}), (3, 12)) == ["0.12.0", "0.10.2"]


def test_a_dev_release_has_the_jaxlib_that_it_was_made_with(monkeypatch):
    versions = "Available versions: 0.12.1.dev20261101, 0.12.0"
    answered(monkeypatch, jaxlib=versions)
    tools, python = Tools(None, {}), (3, 12)
    for version, jaxlib in (
        ("0.12.1.dev20261101", "0.12.1.dev20261101"),
        ("0.12.1.dev20261102", ""),
        ("0.12.0", ""),
    ):
        assert releases.own_jaxlib(tools, Release(version, python)) == jaxlib


def test_an_index_that_can_not_be_asked_is_an_error_in_its_own_words(monkeypatch):
    answered(monkeypatch, jax="ERROR: Connection refused", jaxlib="ERROR: Connection refused")
    with pytest.raises(TargetError, match="can't be listed: Connection refused"):
        releases.listed_by_index(Tools(None, {}), (3, 12))
