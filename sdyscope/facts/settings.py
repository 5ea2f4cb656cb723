"""Settings of a program: `--set layers=80` as the value that the program wants.

Fields of a frozen dataclass, with `field(metadata={"help": ..., "choices": ...})`, or parameters of
a function.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sdyscope.errors import TargetError, did_you_mean, one_of

Value: TypeAlias = bool | int | float | str | None
"""What a setting of a reference model may be."""

_NO_DEFAULT: Any = inspect.Parameter.empty
_BOOLEANS = {"true": True, "yes": True, "on": True, "1": True}
_BOOLEANS |= {"false": False, "no": False, "off": False, "0": False}
_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


@dataclass(frozen=True, slots=True)
class Setting:
    """One thing that can be set.

    Attributes:
        name: what to write before the `=`.
        type: the Python type of its values.
        default: its value unless set; `inspect.Parameter.empty` when it must be set.
        help: what it is for.
        choices: the only values allowed; empty for any.
    """

    name: str
    type: Any
    default: Value = _NO_DEFAULT
    help: str = ""
    choices: tuple[Value, ...] = ()

    __document__ = ("name", "default", "help", "choices")

    def __str__(self) -> str:
        kind = one_of([str(choice) for choice in self.choices]) if self.choices else ""
        default = "" if self.default is _NO_DEFAULT else f", {value_text(self.default)} by default"
        return f"{self.name} ({kind or _words(self.type)}{default})"


def described(settings: type) -> tuple[Setting, ...]:
    """The settings that the fields of a dataclass stand for."""
    hints = typing.get_type_hints(settings)
    return tuple(
        Setting(
            field.name,
            hints[field.name],
            _NO_DEFAULT if field.default is dataclasses.MISSING else field.default,
            field.metadata.get("help", ""),
            tuple(field.metadata.get("choices", ())),
        )
        for field in dataclasses.fields(settings)
    )


def coerced(known: Sequence[Setting], values: Mapping[str, object], owner: str) -> dict[str, Any]:
    """`values`, each as the type that its setting has. Text is read, anything else is checked.

    Raises:
        TargetError: a name that is no setting of `owner`, or a value that does not fit.
    """
    by_name = {setting.name: setting for setting in known}
    coerced_values = {}
    for name, value in values.items():
        if name not in by_name:
            close = did_you_mean(name, by_name, quoted=False)
            listed = "; ".join(map(str, known)) or "none"
            raise TargetError(
                f"{owner} has no setting {name!r}.",
                hint=f"{close} Its settings: {listed}.".lstrip(),
            )
        coerced_values[name] = _value(by_name[name], value, owner)
    return coerced_values


def _value(setting: Setting, value: object, owner: str) -> Any:
    kinds = _members(setting.type)
    choices = setting.choices or tuple(choice for kind in kinds for choice in _literal(kind))
    kinds = [kind for kind in kinds if not _literal(kind)] or [type(c) for c in choices]
    for kind in kinds:
        read = _read(kind, value)
        if read is not _UNREADABLE and (not choices or read in choices):
            return read
    wanted = one_of([str(choice) for choice in choices]) if choices else _words(setting.type)
    raise TargetError(
        f"{setting.name}={value} of {owner} must be {wanted}.",
        hint=f"{setting.name}: {setting.help}." if setting.help else None,
    )


_UNREADABLE = object()


def _read(kind: Any, value: object) -> Any:
    """`value` as a `kind`, or `_UNREADABLE`."""
    if not isinstance(value, str):
        origin = typing.get_origin(kind) or kind
        if kind is float and type(value) is int:
            return float(value)
        fits = origin is Any or (type(value) is origin if origin in _WORDS else _is(value, origin))
        return value if fits else _UNREADABLE
    if kind is bool:
        return _BOOLEANS.get(value.lower(), _UNREADABLE)
    if kind is types.NoneType:
        return None if value.lower() == "none" else _UNREADABLE
    if kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            return _UNREADABLE
    if typing.get_origin(kind) is tuple:
        element = typing.get_args(kind)[0]
        read = tuple(_read(element, word.strip()) for word in value.split(",") if word.strip())
        return _UNREADABLE if any(item is _UNREADABLE for item in read) else read
    return value if kind in (str, Any) else _UNREADABLE


def _is(value: object, kind: Any) -> bool:
    return isinstance(kind, type) and isinstance(value, kind)


def _members(kind: Any) -> list[Any]:
    """The types of a union; None before text, which anything is."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return sorted(typing.get_args(kind), key=lambda member: member is str)
    return [kind]


def _literal(kind: Any) -> tuple[Any, ...]:
    return typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else ()


def _words(kind: Any) -> str:
    members = _members(kind)
    if len(members) > 1:
        return one_of([_words(member) for member in members])
    if kind is types.NoneType:
        return "none"
    if typing.get_origin(kind) is tuple:
        return "values with commas between them"
    return _WORDS.get(kind, getattr(kind, "__name__", str(kind)))


def value_text(value: Any) -> str:
    """A value as it can be written on the command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)
