"""Scopes of ops in a compiled program, from the ``op_name`` in HLO's metadata."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sdyscope.facts.over_time import Phase
from sdyscope.graph import written_scope

#: The program itself: ``jit(step)``, ``pjit(step)``, ``jit__step``.
_PROGRAM = re.compile(r"p?jit\([^()]*\)/")


def scope_of(op_name: str) -> tuple[str, str]:
    """(scope, primitive): ``jit(step)/jvp(layer0)/dot_general`` -> (``jvp(layer0)``, ...).

    Without what JAX has in it for itself (``graph.written_scope``).
    Of a name that XLA joined of several (``jit(f)/(a:b)``) the primitive is empty, and the scope
    is what they begin with. Of several ops that it made one of (``jit(f)/a/mul;jit(f)/b/add``) it
    is the first's.
    """
    rest = written_scope(_first(op_name))
    match = _PROGRAM.match(rest)
    if match is not None:
        rest = rest[match.end() :]
    scope, _, last = rest.rpartition("/") if not rest.endswith(")") else _last_part(rest)
    if ":" in last and last.startswith("("):
        return scope, ""
    return scope, last


def _first(op_name: str) -> str:
    """The name of the first of the ops that an instruction stands for."""
    return op_name.partition(";")[0]


def _last_part(path: str) -> tuple[str, str, str]:
    """As ``rpartition("/")``, where the last part may have slashes inside parentheses."""
    depth = 0
    for at in range(len(path) - 1, -1, -1):
        char = path[at]
        depth += (char == ")") - (char == "(")
        if char == "/" and depth == 0:
            return path[:at], "/", path[at + 1 :]
    return "", "", path


#: A function that is jitted inside of the program.
_INNER = re.compile(r"p?jit\([^()]*\)")


def without_inner(scope: str) -> str:
    """A scope without the names of inner functions, which only newer JAX has in it.

    ``optimizer/jit(tree_bias_correction)/pow`` is ``optimizer/pow``.
    """
    return "/".join(part for part in scope.split("/") if not _INNER.fullmatch(part))


def is_transposed(op_name: str) -> bool:
    """Whether an op is of a backward pass, by its whole name."""
    return "transpose(" in op_name


def is_differentiated(op_names: Iterable[str]) -> bool:
    """Whether a program has a backward pass, by the whole names of its ops."""
    return any(map(is_transposed, op_names))


def is_recomputed(op_name: str) -> bool:
    """Whether an op of the backward pass computes anew what the forward pass did, for `remat`."""
    return "rematted_computation" in op_name


def phase_of(op_name: str, differentiated: bool) -> Phase:
    """Which pass an op belongs to, as its scope does.

    Args:
        op_name: its whole name.
        differentiated: whether anything in the program is transposed. Without a backward pass
            everything that has a name is forward.
    """
    first = _first(op_name)
    if is_transposed(first):
        return "backward"
    if "jvp(" in first or (first and not differentiated):
        return "forward"
    return "other"
