"""Every document has a schema, and what is encoded follows it."""

import dataclasses
import json
import math
import os
from dataclasses import dataclass
from typing import Literal

import jsonschema
import msgspec
import pytest

from sdyscope.commands import COMMANDS, document_type
from sdyscope.terminal.document import encode, fields_of, read, schema
from sdyscope.values.mesh import Mesh
from sdyscope.values.source import SourceLocation


@dataclass(frozen=True, slots=True)
class Part:
    size: float
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    schema: Literal["sdyscope.whole/1"] = "sdyscope.whole/1"
    parts: tuple[Part, ...]


def test_schema_comes_first_and_names_its_version():
    encoded = encode(Whole(parts=()))
    assert encoded.startswith(b'{\n  "schema": "sdyscope.whole/1",\n')
    assert encoded.endswith(b"}\n")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_float_that_is_not_finite_is_null(value):
    document = json.loads(encode(Whole(parts=(Part(value),))))
    assert document["parts"] == [{"size": None, "name": None}]
    jsonschema.validate(document, schema(Whole))


def test_schema_refuses_what_is_missing_or_of_another_version():
    made = schema(Whole)
    jsonschema.Draft202012Validator.check_schema(made)
    good = json.loads(encode(Whole(parts=(Part(1.5, "a"),))))
    jsonschema.validate(good, made)
    for bad in (
        {**good, "schema": "sdyscope.whole/2"},
        {"parts": []},
        {**good, "parts": [{"size": 1.0}]},
        {**good, "parts": [{"size": "1", "name": None}]},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(bad, made)


@dataclass(frozen=True)
class Held:
    """A value with a figure that is worked out, and something that is no part of the document."""

    mesh: Mesh
    seconds: tuple[float, ...]

    __document__ = ("mesh", "longest")

    @property
    def longest(self) -> float | None:
        return max(self.seconds, default=None)


def test_documents_do_not_tell_where_a_folder_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    installed = tmp_path.parent / "env" / "lib" / "site-packages" / "flax" / "nn.py"
    files = [tmp_path / "train" / "step.py", installed, tmp_path.parents[2] / "far" / "other.py"]
    document = [json.loads(encode(SourceLocation(str(file), 3, 5, "step"))) for file in files]
    assert document == [
        {"file": file, "line": 3, "column": 5, "function": "step"}
        for file in (
            os.path.join("train", "step.py"),
            os.path.join("flax", "nn.py"),
            "…/far/other.py",
        )
    ]


def test_what_was_written_is_read():
    encoded = encode(Held(Mesh.of({"data": 4}), (1.0, 2.5)))
    assert json.loads(encoded)["longest"] == 2.5
    found = read(Held, json.loads(encoded))
    assert (found.longest, found.mesh.axes) == (2.5, {"data": 4})
    assert encode(found) == encoded
    with pytest.raises(msgspec.ValidationError):
        read(Held, {"mesh": None, "longest": None})


def test_something_that_is_no_document_is_refused():
    with pytest.raises(TypeError):
        encode(object())


@pytest.mark.parametrize("command", [name for name in COMMANDS if document_type(name)])
def test_the_first_field_is_the_schema(command):
    found = document_type(command)
    assert fields_of(found)[0] == "schema"
    (version,) = (field.default for field in dataclasses.fields(found) if field.name == "schema")
    assert version.rpartition("/")[0] == f"sdyscope.{command}"


def test_bytes_that_are_no_utf_8_are_shown_as_such():
    assert encode({"na\udcffme": ["a\udc80"]}) == (
        b'{\n  "na\\\\xffme": [\n    "a\\\\x80"\n  ]\n}\n'
    )
