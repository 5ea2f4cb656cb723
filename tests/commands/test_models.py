"""`sdyscope models`."""

import json
import subprocess
import sys

import jsonschema
import pytest

from sdyscope.views.document import document_type, schema


def sdyscope(*words):
    return subprocess.run(
        [sys.executable, "-m", "sdyscope", *words], capture_output=True, text=True, check=False
    )


def test_lists_every_model_with_its_settings():
    done = sdyscope("models")
    assert (done.returncode, done.stderr) == (0, "")
    for words in ("mlp", "fsdp-transformer", "--set for mlp", "layers", "data=4,model=2"):
        assert words in done.stdout


def test_json():
    done = sdyscope("models", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    jsonschema.validate(found, schema(document_type("models")))
    models = {model["name"]: model for model in found["models"]}
    assert {"mlp", "fsdp-transformer"} <= set(models)
    assert models["mlp"]["mesh"] == {"data": 4, "model": 2}
    settings = {setting["name"]: setting["default"] for setting in models["mlp"]["settings"]}
    assert settings["constrained"] is True


@pytest.mark.parametrize("words", [("models", "mlp"), ("models", "--no-such")])
def test_bad_usage(words):
    done = sdyscope(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.endswith("Try 'sdyscope models --help'.\n")
