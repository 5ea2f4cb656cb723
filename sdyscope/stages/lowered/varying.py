"""Reads what JAX says where `check_vma` refuses a `shard_map`.

The messages are those of ``jax._src.shard_map._spec_rank_error`` and its neighbours, and of
``jax._src.lax.control_flow``; the types in them are ``float32[2]{V:data}`` where a value varies.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import jax

from sdyscope.facts.varying import Varying
from sdyscope.stages.lowered.differing import differing

_FUNCTION = re.compile(r"shard_map applied to the function '(?P<name>[^']*)' was given out_specs")
_RESULT = re.compile(
    r"^(?:\* )?(?P<value>out_specs\S*) is (?P<spec>P\(.*?\)) which implies that the corresponding "
    r"output value is (?P<rest>.*)$",
    re.MULTILINE,
)
_ONLY_VARYING = re.compile(
    r"only varying across mesh axes \{(?P<meant>[^}]*)\} and not \{[^}]*\}, but it was inferred to "
    r"be possibly varying over \{(?P<found>[^}]*)\}"
)
_REPLICATED = re.compile(r"replicated across mesh ax(?:is|es) (?P<axes>(?:'\w+'(?:, | and )?)+)")
_TYPE = r"\w+\[[^\]]*\](?:\{(?P<{name}>[^}]*)\})?"
_GRADIENT = re.compile(
    r"at (?P<value>output\S*) the bwd rule produced an output of type "
    + _TYPE.replace("{name}", "gradient")
    + r" corresponding to an input of type "
    + _TYPE.replace("{name}", "input")
)


def varying(message: str) -> tuple[Varying, ...]:
    """What a message of `check_vma` is about; nothing for another message."""
    return tuple(_read(message))


def _read(message: str) -> Iterator[Varying]:
    cast = "pcast" if hasattr(jax.lax, "pcast") else "pvary"
    if (named := _FUNCTION.search(message)) is not None:
        for result in _RESULT.finditer(message):
            axes = _beyond(result["rest"])
            if axes:
                yield Varying("result", result["value"], axes, result["spec"], named["name"])
    for types in differing(message):
        if axes := _more(types.second, types.first):
            value = types.value if types.kind == "carry" else types.path
            yield Varying(types.kind, value, axes, function=types.function, cast=cast)
        if types.kind == "branch" and (axes := _more(types.first, types.second)):
            yield Varying("branch", types.path, axes, function=types.other, cast=cast)
    for gradient in _GRADIENT.finditer(message):
        if axes := _more(gradient["gradient"], gradient["input"]):
            yield Varying("gradient", gradient["value"], axes)


def _beyond(clause: str) -> tuple[str, ...]:
    """The axes over which a result varies, and its spec does not say so."""
    if (only := _ONLY_VARYING.search(clause)) is not None:
        meant, actual = _names(only["meant"]), _names(only["found"])
        return tuple(axis for axis in actual if axis not in meant)
    replicated = _REPLICATED.search(clause)
    return () if replicated is None else tuple(re.findall(r"'(\w+)'", replicated["axes"]))


def _more(type_text: str | None, other: str | None) -> tuple[str, ...]:
    """The axes over which one type varies and another does not."""
    has = _varying_axes(other)
    return tuple(axis for axis in _varying_axes(type_text) if axis not in has)


def _varying_axes(braces: str | None) -> tuple[str, ...]:
    """The axes of ``{V:data}`` or ``{V:(data,model)}`` in a type, beside other letters."""
    match = re.search(r"V:(?:\((?P<several>[^)]*)\)|(?P<one>\w+))", braces or "")
    return () if match is None else _names(match["several"] or match["one"])


def _names(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\w+", text))
