"""Names of a program with mutable arrays: `jax.Ref`, which `jax.ref.new_ref` makes.

JAX lowers a Ref to an argument and a result, which holds what it was set to, after all that the
function returns, and drops the names of all of them on the way.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RefNames:
    """Paths of the arguments and results of `main`, in order; none where JAX has kept its own."""

    arguments: tuple[str, ...] = ()
    results: tuple[str, ...] = ()


NO_REFS = RefNames()


def is_ref(aval: Any) -> bool:
    """Whether an abstract value is that of a Ref."""
    return type(aval).__name__ == "AbstractRef"


def ref_result(path: str) -> str:
    """What the result is called that holds what a Ref was set to: `result.state['w']`."""
    return f"result.{path}" if path else ""


def ref_names(
    avals: Sequence[Any],
    arguments: Sequence[str],
    results: Sequence[str],
    kept: Sequence[int],
    constants: int = 0,
) -> RefNames:
    """The paths of a program, where a Ref is among its arguments.

    A Ref that a function closes over has none: JAX moves it behind all arguments.

    Args:
        avals: JAX's abstract value of each flat argument.
        arguments: the path of each.
        results: the path of each result of the function.
        kept: the flat arguments that the module has, in order.
        constants: how many hoisted constants it has before them.
    """
    if len(arguments) != len(avals) or not any(map(is_ref, avals)):
        return NO_REFS
    changed = [arguments[number] for number in kept if is_ref(avals[number])]
    return RefNames(
        ("",) * constants + tuple(arguments[number] for number in kept),
        (*results, *map(ref_result, changed)),
    )


_MAIN = re.compile(r"(?P<arguments>^ *func\.func public @main\(.*?\) -> )(?P<results>.*)$", re.M)
_ARGUMENT = re.compile(r'(\bloc\()(unknown|#\w+|"(?:[^"\\]|\\.)*")(?=\))')
_RESULT = re.compile(r'(\bjax\.result_info = )("(?:[^"\\]|\\.)*")')


def with_ref_names(text: str, names: RefNames) -> str:
    """A module's text, with source locations, in which `main` has the paths of `names`."""
    match = _MAIN.search(text) if names.arguments else None
    if match is None:
        return text
    arguments = _replaced(_ARGUMENT, match["arguments"], names.arguments)
    results = _replaced(_RESULT, match["results"], names.results)
    return text[: match.start()] + arguments + results + text[match.end() :]


def _replaced(pattern: re.Pattern[str], line: str, paths: Sequence[str]) -> str:
    # Tokens of ordered effects come before all others.
    following = itertools.chain(("",) * line.count("!stablehlo.token"), paths)

    def quoted(match: re.Match[str]) -> str:
        path = next(following, "").replace("\\", "\\\\").replace('"', '\\"')
        return f'{match[1]}"{path}"' if path else match[0]

    return pattern.sub(quoted, line)
