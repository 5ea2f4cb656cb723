"""JSON documents: what `--json` prints, and the JSON Schema of each.

A document is a frozen dataclass whose first field is `schema: Literal["sdyscope.COMMAND/1"]`; what
it is made of are the values that analysis yields. The
number is raised when a reader of the old form could misread the new one; new fields do not raise
it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from sdyscope.facts.account import Why
from sdyscope.facts.decided import AxisOrigin, ExplanationNote
from sdyscope.facts.differences import LoneMesh
from sdyscope.facts.execution import InputSource
from sdyscope.facts.failures import Uncompared
from sdyscope.facts.findings import Observation
from sdyscope.facts.memory import GroupName, MemoryPart
from sdyscope.facts.moves import (
    Absence,
    Beginning,
    ByConstraint,
    ByDataFlow,
    ByGroup,
    ByRule,
    TensorDim,
)
from sdyscope.facts.origins import CollectiveOrigin, OriginAnnotation
from sdyscope.facts.remarks import PropagationSource, Remark
from sdyscope.facts.sharded import Sharded
from sdyscope.facts.slices import BlockRule, Slice, Unplaced
from sdyscope.graph import Op
from sdyscope.graph.collection import no_collection
from sdyscope.hardware.names import Hardware
from sdyscope.hlo import Shape
from sdyscope.terminal.brief import shortened
from sdyscope.terminal.plain import Plain, Written, in_unicode, json_text, members
from sdyscope.values.mesh import AxisRef, Mesh
from sdyscope.values.propagation_edges import OriginSharding
from sdyscope.values.sharding import NamedSharding, PartitionSpec, TensorSharding
from sdyscope.values.tiling import HloSharding, NamedHloSharding, TupleSharding
from sdyscope.words.account import reason_text
from sdyscope.words.differences import lone_mesh_text, uncompared_text
from sdyscope.words.findings import Finding, finding_of
from sdyscope.words.memory import part_text
from sdyscope.words.mesh import MESH_WORDS, axis_text
from sdyscope.words.origins import ANNOTATION_WORDS, ORIGIN_WORDS
from sdyscope.words.places import OpDocument, op_document
from sdyscope.words.propagation import (
    absence_text,
    allowed_text,
    beginning_text,
    note_text,
    tensor_text,
)
from sdyscope.words.propagation import (
    origin_text as axis_origin_text,
)
from sdyscope.words.remarks import propagation_source_text, remark_text
from sdyscope.words.run import inputs_text
from sdyscope.words.sharding import SHARDING_WORDS
from sdyscope.words.slices import DeviceSlice, rule_text, slice_document, unplaced_text
from sdyscope.words.visible import visible

_Document = TypeVar("_Document")

#: The command line that is answered briefly; None where documents are written whole.
_answered: ContextVar[Sequence[str] | None] = ContextVar("answered", default=None)


@contextlib.contextmanager
def brief(command: Sequence[str]) -> Iterator[None]:
    """Answers in few tokens: `encode` shortens the documents meanwhile.

    Args:
        command: the command line, without the name of the program.
    """
    token = _answered.set(command)
    try:
        yield
    finally:
        _answered.reset(token)


def encode(document: Any) -> bytes:
    r"""A document as indented UTF-8 JSON with a newline at its end; shortened within `brief`.

    A float that is not finite becomes null, as JSON has no form for it. What controls a terminal is
    written as JSON can write every character: `\u009b`.
    """
    with no_collection():
        value = plain(document)
    command = _answered.get()
    if command is not None:
        return visible(shortened(in_unicode(value), command).decode()).encode()
    return json_text(value)


def read(document_type: type[_Document], parsed: Any) -> _Document:
    """A document that ``encode`` wrote, with the fields that it has in JSON.

    What has another form there is in that form: a sharding has the text of a ``Sharded``, its words
    and its ``PlacementDocument``. What has the same is the value itself.

    Args:
        document_type: what was written.
        parsed: dictionaries, lists and scalars, as ``json.loads`` makes them.

    Raises:
        msgspec.ValidationError: it is another document.
    """
    form: Any = document_type
    document: _Document = msgspec.convert(parsed, _form(form))
    return document


def schema(document_type: type) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a document."""
    described = _without_names(msgspec.json.schema(_form(document_type)))
    _state_what_encode_does(described)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **described}


def _without_names(described: Any) -> Any:
    """A schema without `propertyNames`, which msgspec has from 0.23: it says the same with any."""
    if isinstance(described, dict):
        return {
            key: _without_names(each) for key, each in described.items() if key != "propertyNames"
        }
    return [*map(_without_names, described)] if isinstance(described, list) else described


def schema_text(document_type: type) -> str:
    """The schema of a document, as its file in docs/schema holds it."""
    encoded = msgspec.json.encode(schema(document_type), order="deterministic")
    return msgspec.json.format(encoded, indent=2).decode() + "\n"


# --- values as documents --------------------------------------------------------------------------

#: Values that a document has in another form: what makes it, and its type.
_FORMS: Mapping[type, tuple[Callable[[Any], Any], type]] = {
    AxisRef: (axis_text, str),
    Hardware: (str, str),
    Shape: (str, str),
    Op: (op_document, OpDocument),
    OriginSharding: (str, str),
    TensorDim: (tensor_text, str),
    ExplanationNote: (note_text, str),
    Remark: (remark_text, str),
    Uncompared: (uncompared_text, str),
    Slice: (slice_document, DeviceSlice),
    BlockRule: (rule_text, str),
    Unplaced: (unplaced_text, str),
    PropagationSource: (propagation_source_text, str),
    **dict.fromkeys((ByRule, ByDataFlow, ByGroup, ByConstraint), (allowed_text, str)),
    Observation: (finding_of, Finding),
    Why: (reason_text, str),
    InputSource: (inputs_text, str),
    **dict.fromkeys((GroupName, MemoryPart), (part_text, str)),
    **dict.fromkeys(
        (
            TensorSharding,
            HloSharding,
            NamedHloSharding,
            TupleSharding,
            NamedSharding,
            PartitionSpec,
        ),
        (str, str),
    ),
}

#: Fields that a document has in words, of some values a sentence besides.
_WRITTEN: Mapping[type, Written] = {
    Absence: {"words": (absence_text, str)},
    AxisOrigin: {"words": (axis_origin_text, str)},
    Beginning: {"words": (beginning_text, str)},
    LoneMesh: {"words": (lone_mesh_text, str)},
    Mesh: MESH_WORDS,
    Sharded: SHARDING_WORDS,
    OriginAnnotation: ANNOTATION_WORDS,
    CollectiveOrigin: ORIGIN_WORDS,
}

#: Makes a document of values: dictionaries, lists and scalars.
plain = Plain({type_: form for type_, (form, _) in _FORMS.items()}, _WRITTEN)


@cache
def _form(type_: Any) -> Any:
    """The type that a value of a type has in a document, for its schema."""
    if type_ in _FORMS:
        return _form(_FORMS[type_][1])
    if isinstance(type_, type) and dataclasses.is_dataclass(type_):
        types = {name: kind for name, (_, kind) in members(type_, _WRITTEN.get(type_, {})).items()}
        fields = [(name, _form(annotated)) for name, annotated in types.items()]
        own = [field.name for field in dataclasses.fields(type_)]
        if type_ not in _WRITTEN and [*types] == own and dict(fields) == types:
            return type_
        return msgspec.defstruct(
            type_.__name__,
            fields,
            namespace={"__doc__": type_.__doc__},
            frozen=True,
            module=type_.__module__,
        )
    origin, arguments = get_origin(type_), get_args(type_)
    if origin is None or origin in (Literal, Annotated):
        return type_
    forms: Any = tuple(argument if argument is ... else _form(argument) for argument in arguments)
    if origin in (Union, UnionType):
        if str in forms:  # and words with paths beside it are text, too
            forms = tuple(form for form in forms if get_origin(form) is not Annotated)
        return Union[forms]  # noqa: UP007 (made of a tuple)
    if origin is tuple:
        return tuple[forms]
    return (dict if issubclass(origin, Mapping) else list)[forms]


def _state_what_encode_does(node: Any) -> None:
    """Every field is always there, default or not; a float that is not finite is null.

    Python 3.13 takes the indentation off docstrings; here it is taken off for all.
    """
    if isinstance(node, list):
        for item in node:
            _state_what_encode_does(item)
    elif isinstance(node, dict):
        if node.get("type") == "number":
            node["type"] = ["number", "null"]
        if isinstance(node.get("description"), str):
            node["description"] = inspect.cleandoc(node["description"])
        if isinstance(node.get("properties"), dict):
            node["required"] = list(node["properties"])
            for field in node["properties"].values():
                field.pop("default", None)
        for item in node.values():
            _state_what_encode_does(item)
