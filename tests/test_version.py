"""Which sdyscope this is, installed or not."""

from importlib.metadata import PackageNotFoundError, version

from sdyscope.__main__ import run_here
from sdyscope.version import FROM_SOURCE, own_version


def test_what_is_installed_says_its_version():
    assert own_version() == version("sdyscope")


def test_a_clone_that_is_not_installed_answers_all_the_same(monkeypatch, capsys):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr("sdyscope.version.version", missing)
    assert own_version() == FROM_SOURCE
    assert run_here(["--version"]) == 0
    assert capsys.readouterr().out == "sdyscope from its source, not installed\n"
