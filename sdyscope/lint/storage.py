"""What `memory` finds of donated buffers and of its own figures, under the same names."""

from __future__ import annotations

from sdyscope.facts.findings import Severity
from sdyscope.lint.rule import Message, Rule, documented
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

bytes_differ = _held(
    "bytes-differ",
    "warning",
    """Bytes computed from the shardings disagree with the compiler's.

    Then one of the two is wrong about where arguments are.
    """,
)
