"""What `memory` finds of donated buffers and of its own figures, under the same names."""

from __future__ import annotations

from collections.abc import Iterator

from sdyscope.analysis.memory.donation import NotDonated, not_donated
from sdyscope.facts.findings import Severity
from sdyscope.lint.rule import Message, NotApplicable, Rule, documented, rule
from sdyscope.lint.subject import Subject
from sdyscope.words.counts import counted, size
from sdyscope.words.findings import told


def _held(name: str, severity: Severity, documentation: str) -> Rule:
    """A rule that says what ``memory`` found under its name."""
    return documented(
        name,
        severity,
        documentation,
        lambda subject: (
            Message.of(told(finding)) for finding in subject.memory.findings if finding.rule == name
        ),
        needs="compiled",
    )


donation_unused = _held(
    "donation-unused",
    "warning",
    """A donated buffer is not used for any result.

    The argument's buffer is donated, but the result meant to reuse it has another buffer: both are
    held at once. Most often the result's sharding differs from the argument's, because
    `out_shardings` leaves that to the compiler (jax-ml/jax#25346, jax-ml/jax#9675). Give the result
    the argument's sharding, or do not donate the argument.

    A donated argument that the program does not use at all is a note.
    """,
)

#: Fewer bytes on a device nobody would miss.
_FEW = 4 << 20


@rule("state-not-donated", "warning")
def state_not_donated(subject: Subject) -> Iterator[Message]:
    """State is returned like its argument and not donated.

    A step takes parameters and optimizer state and returns their next values, of the same shape,
    dtype and sharding. Unless the arguments are donated, a device holds both at once. Pass
    `donate_argnums` to `jit`, and do not use the old arrays after the call. `sdyscope fix` writes
    it, and says what the compiled program then needs.

    An argument's next value is found by its path, or, of arrays that are whole arguments, by shape
    and dtype. Below 4 MiB per device nothing is reported. A result whose sharding is left to the
    compiler counts as the argument's.
    """
    groups: dict[str, list[NotDonated]] = {}
    for one in not_donated(subject.program.tensors, subject.partitioner):
        name = one.argument.name.partition("[")[0].partition(".")[0]
        groups.setdefault(name, []).append(one)
    if not groups:
        raise NotApplicable("No argument's next value is returned, or all are donated.")
    for name, each in groups.items():
        held = sum(one.bytes for one in each)
        if held < _FEW:
            continue
        first = max(each, key=lambda one: one.bytes)
        tensors = counted(len(each), "tensor")
        yield Message(
            f"{tensors} of {name} and their next values are held at once: donating the argument "
            f"would save up to {size(held)} per device.",
            tensor=first.argument.name,
            kind="argument",
            hint=f"Donate {name}: jax.jit(..., donate_argnums=...).",
        )


bytes_differ = _held(
    "bytes-differ",
    "warning",
    """Bytes computed from the shardings disagree with the compiler's.

    Then one of the two is wrong about where arguments are.
    """,
)
