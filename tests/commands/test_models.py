"""`sdyscope models`."""

import json

import jsonschema
import pytest
from own_process import in_own_process

from sdyscope.commands import document_type
from sdyscope.targets import reference_models
from sdyscope.terminal.document import schema


def test_lists_every_model_with_its_settings():
    done = in_own_process("models")
    assert (done.returncode, done.stderr) == (0, "")
    for words in ("fsdp-transformer", "mlp --mesh data=4,model=2", "--set", "layers"):
        assert words in done.stdout


@pytest.mark.parametrize("columns", [80, 120])
def test_a_model_takes_few_lines(columns):
    done = in_own_process("models", COLUMNS=str(columns))
    overview = done.stdout.partition("\n\n")[0].splitlines()
    assert max(map(len, done.stdout.splitlines())) <= columns
    assert len(overview) <= 2 + 2 * len(reference_models())


def test_json():
    done = in_own_process("models", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    jsonschema.validate(document, schema(document_type("models")))
    models = {model["name"]: model for model in document["models"]}
    assert {"mlp", "fsdp-transformer"} <= set(models)
    assert models["mlp"]["mesh"] == {"data": 4, "model": 2}
    settings = {setting["name"]: setting["default"] for setting in models["mlp"]["settings"]}
    assert settings["constrained"] is True


@pytest.mark.parametrize("words", [("models", "mlp"), ("models", "--no-such")])
def test_bad_usage(words):
    done = in_own_process(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.endswith("Try 'sdyscope models --help'.\n")
