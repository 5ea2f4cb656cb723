"""What ops and tensors are called: by their scope, without the program's own name."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from sdyscope.annotations.model import split_scope
from sdyscope.graph import Op

#: What tells the layers of a model apart.
_NUMBER = re.compile(r"\d+")


def within_program(path: str) -> str:
    """A scope without the program's own name: `jvp(layer0)` for `jit(step)/jvp(layer0)`.

    Empty where there is nothing but that name; all of it where it does not begin so.
    """
    first, _, rest = path.partition("/")
    return rest if first.startswith(("jit(", "pjit(")) else path


def shared_name(names: Sequence[str]) -> str:
    """The name of what has names that differ in numbers only, with ``*`` for those that differ."""
    numbers = zip(*map(_NUMBER.findall, names), strict=True)
    shown = iter([same[0] if len({*same}) == 1 else "*" for same in numbers])
    return _NUMBER.sub(lambda _: next(shown), names[0])


def folded_names(names: Iterable[str]) -> dict[str, str]:
    """Each name with ``*`` for its numbers in which several that are otherwise the same differ."""
    alike: dict[str, set[str]] = defaultdict(set)
    for name in names:
        alike[_NUMBER.sub("*", name)].add(name)
    named = [(shared_name(sorted(members)), members) for members in alike.values()]
    return {member: name for name, members in named for member in members}


#: What a constant of the program is called: it has no name.
CONSTANT = "a constant"


def shown_name(name: str, kind: str, mapped: str = "") -> str:
    """A tensor's name without the program's own, which every scope begins with.

    Of a `shard_map`, whether it is one of its inputs or of its outputs, and which function it maps:
    `layer0 #1 input of attention`.
    """
    own = within_program(name) or name
    if not kind.startswith("shard_map "):
        return own
    return f"{own} {kind.partition(' ')[2]}" + (f" of {mapped}" if mapped else "")


def op_text(kind: str) -> str:
    """`dot_general` for `stablehlo.dot_general`."""
    return kind.rpartition(".")[2]


def scope_of(op: Op) -> tuple[str, str]:
    """The scope of an op without the program's own name, and the primitive.

    Of a call, what is called: `argmax` for `jnp.argmax`, `helper` for a jitted `helper`.
    """
    scope, primitive = _scope_of(op)
    return within_program(scope), primitive


def op_name(op: Op) -> str:
    """`jvp(layer0)/dot_general`: the scope and what JAX calls the op, else what StableHLO does."""
    scope, primitive = scope_of(op)
    return f"{scope}/{primitive or op_text(op.kind)}".lstrip("/")


def op_path(op: Op) -> str:
    """The scope of an op with the program's own name, and the primitive; empty without either."""
    return "/".join(filter(None, _scope_of(op)))


#: Primitives that call a function; JAX writes the first two of a function that is jitted.
_CALLING = frozenset({"jit", "pjit", "shard_map", "closed_call", "core_call", "checkpoint"})
_JITTED = re.compile(r"p?jit\((?P<name>.*)\)")
#: What JAX calls the body of a loop and a branch of a conditional, which are no primitives: an
#: argument of a function that it lowers a primitive to has the scope of the call alone.
_BODY = re.compile(r"body|branch_\d+_fun")
#: What MLIR adds to the symbol of a second function of the same name.
_COPY = re.compile(r"_\d+$")


def _scope_of(op: Op) -> tuple[str, str]:
    scope, primitive = split_scope(op.scope)
    if scope and _BODY.fullmatch(primitive):
        return op.scope, ""
    callee = op.callee if op.kind == "func.call" else None
    if callee is None:
        return scope, primitive
    around, _, last = op.scope.rpartition("/")
    if last in _CALLING:
        return around, callee if last in ("jit", "pjit") else last
    jitted = _JITTED.fullmatch(last)
    if jitted is not None and (around or _COPY.sub("", callee) == jitted["name"]):
        return around, jitted["name"]
    # JAX lowers some primitives (`argmax`) to a function of their name, and calls it by their
    # scope alone.
    return op.scope, _COPY.sub("", callee) if op.scope else callee
