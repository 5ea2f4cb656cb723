"""Every document has a schema, and what is encoded follows it."""

import dataclasses
import json
import math
import os
import typing
from dataclasses import dataclass
from typing import Literal

import jsonschema
import msgspec
import pytest

from sdyscope.commands import COMMANDS, document_type
from sdyscope.facts.remarks import Remark
from sdyscope.formatters import in_place
from sdyscope.terminal import document
from sdyscope.terminal.document import encode, read, schema
from sdyscope.terminal.plain import fields_of, members
from sdyscope.values.mesh import Mesh
from sdyscope.values.source import FilePath, PathWords, SourceLocation
from sdyscope.words.remarks import remark_text


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


@dataclass(frozen=True)
class Paths:
    file: FilePath | None
    command: tuple[PathWords, ...]
    reason: PathWords | Remark
    other: str


def test_files_are_named_by_the_types_of_fields(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    here = f"{tmp_path}/train.py"
    away = "/home/ada/secret/lab/train.py"
    paths = Paths(here, ("python", away), f"no {here}:3", away)
    assert json.loads(encode(paths)) == {
        "file": "train.py",
        "command": ["python", "…/lab/train.py"],
        "reason": "no train.py:3",
        "other": away,
    }
    assert json.loads(encode(dataclasses.replace(paths, file=None)))["file"] is None
    remark = Remark("unreadable lines", "a.jsonl", 1, 2)
    assert json.loads(encode(dataclasses.replace(paths, reason=remark)))["reason"] == (
        remark_text(remark)
    )


#: Named as the user did, to be opened; or within a recording.
AS_NAMED = {("WrittenGpuConfig", "file"), ("RecordedCompile", "file")}


@pytest.mark.parametrize("command", [name for name in COMMANDS if document_type(name)])
def test_no_document_forgets_that_a_field_names_files(command):
    def texts(type_, seen):
        if not isinstance(type_, type):
            for part in typing.get_args(type_):
                yield from texts(part, seen)
            return
        if type_ in seen:
            return
        seen.add(type_)
        is_written = dataclasses.is_dataclass(type_) and type_ not in document._FORMS
        fields = members(type_, document._WRITTEN.get(type_, {})) if is_written else {}
        for name, (_, hint) in fields.items():
            if name in ("file", "directory", "target", "reason", "command"):
                yield type_.__name__, name, hint
            yield from texts(hint, seen)

    plain = {
        (owner, name)
        for owner, name, hint in texts(document_type(command), set())
        if hint in (str, str | None, tuple[str, ...])
    }
    assert plain <= AS_NAMED


def test_what_stands_in_the_place_of_no_field_is_refused():
    @dataclass(frozen=True)
    class Wrong:
        size: float

        __document__ = in_place(sizes=("size",))

    with pytest.raises(ValueError, match=r"Wrong has no fields \['sizes'\]"):
        fields_of(Wrong)


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
