"""What `memory` finds of donated buffers and of its own figures, under the same names."""

from __future__ import annotations

from collections.abc import Iterator

from sdyscope.analysis.memory.donation import NotDonated, not_donated
from sdyscope.analysis.naming.paths import Leaf
from sdyscope.facts.findings import Observation, Severity
from sdyscope.facts.lint import NextValueHeld
from sdyscope.lint.arguments import LARGE
from sdyscope.lint.rule import NotApplicable, Sighting, Unavailable, rule
from sdyscope.lint.subject import Subject


def _of_memory(subject: Subject, name: str) -> Iterator[Observation]:
    """What ``memory`` found under a name."""
    return (each for each in subject.memory.findings if each.rule == name)


@rule("donation-unused", "warning", needs="compiled")
def donation_unused(subject: Subject) -> Iterator[Observation]:
    """A donated buffer is not used for any result.

    The argument's buffer is donated, but the result meant to reuse it has another buffer: both are
    held at once. Most often the result's sharding differs from the argument's, because
    `out_shardings` leaves that to the compiler (jax-ml/jax#25346, jax-ml/jax#9675). Give the result
    the argument's sharding, or do not donate the argument.

    A donated argument that the program does not use at all is a note.
    """
    return _of_memory(subject, "donation-unused")


@rule("state-not-donated", "warning")
def state_not_donated(subject: Subject) -> Iterator[Sighting]:
    """State is returned like its argument and not donated.

    A step takes parameters and optimizer state and returns their next values, of the same shape,
    dtype and sharding. Unless the arguments are donated (`donate_argnums` of `jax.jit`, `donate` of
    Haliax's `named_jit`), a device holds both at once. The caller must not use a donated argument
    again. `sdyscope fix` writes it, and says what the compiled program then needs.

    An argument's next value is found by its path (`result[0]['w1']` for `params['w1']`), that of an
    array that is a whole argument by shape and dtype. It is certain if the result has the argument
    with a step of training added or something written over, or is made, element by element, from an
    argument that no pass of training uses; and from no other with that path whose next value is not
    returned.
    Otherwise it may be chance: that is a note. A gradient is no next value: the caller still needs
    the argument. Below 16 MiB per device nothing is reported. A result whose sharding is left to
    the compiler counts as the argument's.
    """
    groups: dict[tuple[str, str], list[NotDonated]] = {}
    known = {
        argument.row.index or 0: argument.placement
        for argument in subject.arguments
        if argument.placement is not None
    }
    for pair in not_donated(subject.program.tensors, subject.under, subject.graph, known):
        memory = pair.argument.lowered[subject.under].memory
        groups.setdefault((Leaf.of(pair.argument).keys[0], memory), []).append(pair)
    if not groups:
        raise NotApplicable("No argument's next value is returned, or all are donated.")
    for (name, memory), pairs in groups.items():
        held = sum(pair.bytes for pair in pairs)
        if held < LARGE:
            continue
        largest = max(pairs, key=lambda pair: pair.bytes)
        result = "" if largest.certain else largest.result.name
        fact = NextValueHeld(name, len(pairs), result, held, memory)
        severity: Severity | None = None if largest.certain else "note"
        yield Sighting(fact, largest.argument.name, "argument", severity=severity)


@rule("bytes-differ", "warning", needs="compiled")
def bytes_differ(subject: Subject) -> Iterator[Observation]:
    """Bytes computed from the shardings disagree with the compiler's.

    Then one of the two is wrong about where arguments are.
    """
    if subject.memory.equal is None:
        raise Unavailable("The compiler does not say how many bytes arguments and results take.")
    return _of_memory(subject, "bytes-differ")
