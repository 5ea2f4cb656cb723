"""The options that commands share."""

import click
import pytest
from click.testing import CliRunner

from sdyscope.commands import options


@click.command()
@options.target
@options.mesh
@options.partitioner()
@options.settings
@options.json("views.show:Show")
def show(**parameters):
    click.echo(repr(parameters))


def parsed(*words):
    done = CliRunner().invoke(show, words)
    return done.output if done.exit_code else eval(done.output)


def test_defaults():
    assert parsed("mlp") == {
        "target": "mlp",
        "mesh": None,
        "partitioners": ("shardy", "gspmd"),
        "settings": {},
        "as_json": False,
    }


def test_everything():
    words = "mlp --mesh data=4,model=2 --partitioner gspmd --set layers=80 --set a=b=c --json"
    assert parsed(*words.split()) == {
        "target": "mlp",
        "mesh": {"data": 4, "model": 2},
        "partitioners": ("gspmd",),
        "settings": {"layers": "80", "a": "b=c"},
        "as_json": True,
    }


def test_axes_keep_their_order():
    assert list(parsed("mlp", "--mesh", "z=2,a=3")["mesh"]) == ["z", "a"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--mesh", "data"), "'data' does not have the form axis=size"),
        (("--mesh", ""), "'' does not have the form axis=size"),
        (("--mesh", "data=4,"), "'' does not have the form axis=size"),
        (
            ("--mesh", "data=0"),
            "the size of mesh axis 'data' is 0, not a whole number from 1, or",
        ),
        (("--mesh", "data=-2"), "the size of mesh axis 'data' is -2, not a whole number"),
        (("--mesh", "a=-1,b=-1"), "the sizes of a and b are -1, and only one can be inferred."),
        (("--mesh", "data=²"), "the size of mesh axis 'data' is '²'"),
        (("--mesh", "data=4.0"), "the size of mesh axis 'data' is '4.0'"),
        (("--mesh", "data=" + "9" * 5_000), "not a whole number from 1"),
        (("--mesh", "a=2,a=2"), "mesh axis 'a' is named twice."),
        (("--set", "layers"), "'layers' does not have the form key=value."),
        (("--set", "=3"), "'=3' does not have the form key=value."),
        (("--partitioner", "auto"), "'auto' is not one of 'shardy', 'gspmd', 'both'."),
    ],
)
def test_what_is_wrong_is_said(words, message):
    assert message in parsed("mlp", *words)
