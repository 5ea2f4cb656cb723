"""What a program does while it is built."""

import importlib
import sys
from dataclasses import dataclass

import numpy as np
import pytest

from sdyscope.stages.edited.observed import observed


@dataclass
class Named:
    """As Flax keeps an array with the names of its dimensions; its `__init__` has no file."""

    value: object
    names: tuple[str | None, ...]


def constrained(array, *names):
    return array


def made(shape, axes):
    return np.zeros(shape)


def test_files_are_those_that_are_opened_to_be_read(tmp_path):
    config, written = tmp_path / "config.yaml", tmp_path / "written.txt"
    config.write_text("size: 1\n")

    def act():
        written.write_text(config.read_text())

    seen = observed(act)
    assert seen.files == (str(config.resolve()),)


def test_a_module_that_read_its_configuration_before_reads_it_again(tmp_path, monkeypatch):
    config = tmp_path / "config.yaml"
    config.write_text("size: 1\n")
    (tmp_path / "observed_module.py").write_text(f"SIZE = open({str(config)!r}).read()\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = importlib.import_module("observed_module")
    try:
        seen = observed(lambda: importlib.import_module("observed_module"))
        assert str(config.resolve()) in seen.files
        assert sys.modules["observed_module"] is before
    finally:
        del sys.modules["observed_module"]


@pytest.mark.parametrize(
    "act",
    [
        lambda: Named(np.zeros((4, 8)), ("embed", "mlp")),
        lambda: constrained(np.zeros((4, 8)), "embed", "mlp"),
        lambda: made((4, 8), ["embed", "mlp"]),
        lambda: made(axes=("embed", "mlp"), shape=(4, 8)),
    ],
)
def test_names_are_those_of_arrays_that_are_given_with_them(act):
    assert observed(act).shapes == {"embed": {(4, 8)}, "mlp": {(4, 8)}}


def test_what_is_open_has_no_name():
    assert observed(lambda: Named(np.zeros((4, 8)), (None, "mlp"))).shapes == {"mlp": {(4, 8)}}


@pytest.mark.parametrize(
    "act",
    [
        lambda: Named(np.zeros((4, 8)), ("embed",)),
        lambda: Named(np.zeros((4, 8)), (None, None)),
        lambda: Named("weights", ("embed", "mlp")),
        lambda: Named(np.zeros(()), ()),
    ],
)
def test_other_names_are_not_of_its_dimensions(act):
    assert observed(act).shapes == {}


def test_a_function_that_long_named_none_is_left_alone_and_others_are_not():
    def act():
        for _ in range(1000):
            constrained(np.zeros((4, 8)))
        constrained(np.zeros((4, 8)), "embed", "mlp")
        Named(np.zeros((2,)), ("kv",))

    assert observed(act).shapes == {"kv": {(2,)}}


def test_the_profile_function_is_what_it_was():
    before = sys.getprofile()
    with pytest.raises(ZeroDivisionError):
        observed(lambda: 1 / 0)
    assert sys.getprofile() is before
