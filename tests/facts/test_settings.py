"""`--set key=value` becomes the value that a program wants, or one clear sentence."""

from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdyscope.errors import TargetError
from sdyscope.facts.settings import Setting, coerced, described


@dataclass(frozen=True)
class Settings:
    layers: int = field(default=2, metadata={"help": "how many layers"})
    rate: float = 0.5
    scan: bool = False
    name: str = "a"
    kind: str = field(default="x", metadata={"choices": ("x", "y")})
    mode: Literal["fast", "slow"] = "fast"
    size: int | None = None
    label: str | None = None
    dims: tuple[int, ...] = (1, 2)
    anything: Any = None


KNOWN = described(Settings)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("layers", "80", 80),
        ("layers", "-1", -1),
        ("layers", "1_000", 1000),
        ("rate", "1e-3", 1e-3),
        ("rate", "2", 2.0),
        ("scan", "true", True),
        ("scan", "OFF", False),
        ("scan", "1", True),
        ("name", "80", "80"),
        ("kind", "y", "y"),
        ("mode", "slow", "slow"),
        ("size", "3", 3),
        ("size", "None", None),
        ("label", "none", None),
        ("label", "three", "three"),
        ("dims", "1,2,3", (1, 2, 3)),
        ("dims", "4", (4,)),
        ("anything", "text", "text"),
        ("layers", 3, 3),
        ("rate", 3, 3.0),
        ("scan", True, True),
        ("size", None, None),
        ("dims", (3, 4), (3, 4)),
        ("anything", [1], [1]),
    ],
)
def test_values(name, text, value):
    found = coerced(KNOWN, {name: text}, "p")[name]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("layers", "many", "layers=many of p must be a whole number."),
        ("layers", "1.5", "layers=1.5 of p must be a whole number."),
        ("layers", True, "layers=True of p must be a whole number."),
        ("scan", "maybe", "scan=maybe of p must be true or false."),
        ("scan", 1, "scan=1 of p must be true or false."),
        ("rate", "fast", "rate=fast of p must be a number."),
        ("kind", "z", "kind=z of p must be x or y."),
        ("mode", "medium", "mode=medium of p must be fast or slow."),
        ("size", "x", "size=x of p must be a whole number or none."),
        ("dims", "1,x", "dims=1,x of p must be values with commas between them."),
        ("name", 3, "name=3 of p must be text."),
    ],
)
def test_what_does_not_fit(name, value, message):
    with pytest.raises(TargetError) as caught:
        coerced(KNOWN, {name: value}, "p")
    assert caught.value.message == message


def test_the_help_is_shown_with_the_error():
    with pytest.raises(TargetError) as caught:
        coerced(KNOWN, {"layers": "many"}, "p")
    assert caught.value.hint == "layers: how many layers."


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(TargetError) as caught:
        coerced(KNOWN, {"layer": "3"}, "p")
    assert caught.value.message == "p has no setting 'layer'."
    assert caught.value.hint.startswith("Did you mean layers? Its settings: layers (a whole number")
    assert "scan (true or false, false by default)" in caught.value.hint


def test_a_setting_without_a_default():
    assert str(Setting("n", int)) == "n (a whole number)"


@given(st.integers())
def test_every_whole_number_comes_back(number):
    assert coerced(KNOWN, {"layers": str(number)}, "p") == {"layers": number}


@given(st.floats(allow_nan=False))
def test_every_number_comes_back(number):
    assert coerced(KNOWN, {"rate": repr(number)}, "p") == {"rate": number}
