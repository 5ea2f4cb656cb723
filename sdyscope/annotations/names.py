"""What ops and tensors are called: by their scope, without the program's own name."""

from __future__ import annotations

from sdyscope.annotations.model import split_scope
from sdyscope.graph import Op


def within_program(path: str) -> str:
    """A scope without the program's own name: `jvp(layer0)` for `jit(step)/jvp(layer0)`.

    Empty where there is nothing but that name; all of it where it does not begin so.
    """
    first, _, rest = path.partition("/")
    return rest if first.startswith(("jit(", "pjit(")) else path


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
    """The scope of an op without the program's own name, and the primitive."""
    scope, primitive = split_scope(op.scope)
    return within_program(scope), primitive


def op_name(op: Op) -> str:
    """`jvp(layer0)/dot_general`: the scope and what JAX calls the op, else what StableHLO does."""
    scope, primitive = scope_of(op)
    return f"{scope}/{primitive or op_text(op.kind)}".lstrip("/")
