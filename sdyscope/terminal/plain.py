"""Values as dictionaries, lists and scalars, and those as the text of a JSON document.

What has a form of its own in documents is said by whoever makes a `Plain`, so that a command which
writes few kinds of values need not import all.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Annotated, Any, Final, TypeAlias, get_args, get_origin, get_type_hints

import msgspec

from sdyscope.values.source import FilePath, PathWords
from sdyscope.words.paths import file_text, shortened
from sdyscope.words.visible import visible, without_surrogates

#: Texts that name files: without the folders of this machine, since documents are shared.
_PATHS: Mapping[Any, Callable[[str], str]] = {FilePath: file_text, PathWords: shortened}


#: What a document has as it is. Most values of a large one are such, and are not looked up.
_SCALARS: Final[frozenset[type]] = frozenset({str, int, float, bool, type(None)})

Written: TypeAlias = Mapping[str, tuple[Callable[[Any], Any], Any]]
"""Fields of a document by name: what makes each of the value, and its type."""


class Plain:
    """Makes dictionaries, lists and scalars of values; see ``fields_of``.

    Args:
        forms: values that a document has in another form, and what makes it.
        written: fields of values that are written for documents alone, or otherwise there than the
            value has them, and what makes them.
    """

    def __init__(
        self,
        forms: Mapping[type, Callable[[Any], Any]],
        written: Mapping[type, Written],
    ) -> None:
        self.forms = forms
        self._written = written
        self._converters: dict[type, Callable[[Any], Any]] = dict.fromkeys(
            _SCALARS, lambda value: value
        )

    def __call__(self, value: Any) -> Any:
        """A value as dictionaries, lists and scalars.

        Raises:
            TypeError: there is something in it that has no form in a document.
        """
        convert = self._converters.get(type(value))
        return (convert or self._converter(type(value)))(value)

    def _converter(self, type_: type) -> Callable[[Any], Any]:
        """What makes a value of a type plain."""
        if type_ in self.forms:
            form = self.forms[type_]
            convert: Callable[[Any], Any] = lambda value: self(form(value))  # noqa: E731
        elif dataclasses.is_dataclass(type_):
            convert = self._fields(members(type_, self._written.get(type_, {})))
        elif issubclass(type_, msgspec.Struct):  # one that was read
            hints = get_type_hints(type_, include_extras=True)
            convert = self._fields(
                {name: (attrgetter(name), hints[name]) for name in type_.__struct_fields__}
            )
        elif issubclass(type_, Mapping):
            convert = self._mapping
        elif issubclass(type_, (tuple, list)):
            convert = self._sequence
        else:
            raise TypeError(f"a document has no form for {type_.__name__}")
        self._converters[type_] = convert
        return convert

    def _fields(self, fields: Written) -> Callable[[Any], dict[str, Any]]:
        """What makes the fields of a value plain."""
        rows = [(name, get, _names(type_)) for name, (get, type_) in fields.items()]

        def convert(value: Any) -> dict[str, Any]:
            plain = {}
            for name, get, named in rows:
                item = get(value)
                if named is not None:
                    item = self._named(item, named)
                elif type(item) not in _SCALARS:
                    item = self(item)
                plain[name] = item
            return plain

        return convert

    def _mapping(self, value: Mapping[Any, Any]) -> dict[Any, Any]:
        return {key: item if type(item) in _SCALARS else self(item) for key, item in value.items()}

    def _sequence(self, value: Sequence[Any]) -> list[Any]:
        return [item if type(item) in _SCALARS else self(item) for item in value]

    def _named(self, value: Any, named: Callable[[str], str]) -> Any:
        """A value in which files are named, or several."""
        if isinstance(value, tuple | list):
            return [self._named(each, named) for each in value]
        return named(value) if isinstance(value, str) else self(value)


def _names(hint: Any) -> Callable[[str], str] | None:
    """What names the files in a field of a type; None where it holds none."""
    if get_origin(hint) is Annotated:
        return _PATHS.get(hint)
    return next(filter(None, map(_names, get_args(hint))), None)


def fields_of(document_type: type) -> tuple[str, ...]:
    """What a document has of a value of this type, in order.

    The fields of the dataclass; or what its ``__document__`` lists, which may be properties too.
    A mapping says what stands in the place of a field; other fields stand (`in_place`).

    Raises:
        ValueError: a mapping is of what is no field.
    """
    names = tuple(field.name for field in dataclasses.fields(document_type))
    written: Sequence[str] | Mapping[str, Sequence[str]]
    written = getattr(document_type, "__document__", names)
    if isinstance(written, Mapping):
        if others := [name for name in written if name not in names]:
            raise ValueError(f"{document_type.__name__} has no fields {others}.")
        return tuple(each for name in names for each in written.get(name, (name,)))
    return tuple(written)


def members(document_type: type, written: Written) -> Written:
    """What a document has of a value of this type: how it is got, and its type.

    Args:
        document_type: a dataclass.
        written: what is written of it for documents: in the place of a field of that name, else
            behind all.
    """
    own = {
        name: (attrgetter(name), type_of(document_type, name))
        for name in fields_of(document_type)
        if name not in written
    }
    return {name: written.get(name) or own[name] for name in (*fields_of(document_type), *written)}


def type_of(document_type: type, name: str) -> Any:
    """The type of a field or property."""
    member = inspect.getattr_static(document_type, name, None)
    if isinstance(member, (property, cached_property)):
        getter = member.fget if isinstance(member, property) else member.func
        return get_type_hints(getter, include_extras=True)["return"]
    return get_type_hints(document_type, include_extras=True)[name]


def json_text(value: Any) -> bytes:
    r"""Dictionaries, lists and scalars as indented UTF-8 JSON with a newline at its end.

    A float that is not finite becomes null, as JSON has no form for it. What controls a terminal is
    written as JSON can write every character: `\u009b`.
    """
    try:
        data = msgspec.json.encode(value)
    except UnicodeEncodeError:
        data = msgspec.json.encode(in_unicode(value))
    text = msgspec.json.format(data, indent=2)
    # JSON has escaped all other characters of ASCII that control something.
    if not text.isascii() or b"\x7f" in text:
        text = visible(text.decode()).encode()
    return text + b"\n"


def in_unicode(value: Any) -> Any:
    r"""The same with bytes of names that are no UTF-8 as ``\xff``: JSON has no form for them."""
    if isinstance(value, dict):
        return {in_unicode(key): in_unicode(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [in_unicode(each) for each in value]
    return without_surrogates(value) if isinstance(value, str) else value
