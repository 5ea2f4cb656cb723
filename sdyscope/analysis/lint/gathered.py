"""What `check` and `memory` find already, under the same names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sdyscope.analysis.lint.rule import Look, Rule
from sdyscope.analysis.lint.subject import Subject
from sdyscope.errors import FallbackError, SdyscopeError
from sdyscope.findings import Finding

__all__ = ["MODULE_RULES", "REQUEST_RULES", "STORAGE_RULES"]


def _checked(name: str) -> Look:
    """Of what ``check`` found, that which has a rule's name."""

    def look(subject: Subject) -> Iterator[Finding]:
        for finding in subject.checked.findings:
            if finding.rule == name and finding.partitioner in (None, subject.partitioner):
                yield finding

    return look


def _not_lowerable(subject: Subject) -> Iterator[Finding]:
    """For whom there is no module is in the sentence; it is under the others that this is said."""
    for finding in subject.checked.findings:
        if finding.rule == "not-lowerable":
            yield replace(finding, partitioner=None)


def _fallback(subject: Subject) -> Iterator[Finding]:
    """What the module says, and what the compiler logs."""
    yield from _checked("silent-fallback")(subject)
    if not subject.compiles:
        return
    try:
        _ = subject.partitioned
    except FallbackError as error:
        yield Finding(
            "silent-fallback",
            "error",
            error.message,
            partitioner=subject.partitioner,
            hint=error.hint or "",
        )
    except SdyscopeError:
        return  # the rules that need the compiled program say why there is none


def _memory(name: str) -> Look:
    """Of what ``memory`` found, that which has a rule's name."""

    def look(subject: Subject) -> Iterator[Finding]:
        return (finding for finding in subject.memory.findings if finding.rule == name)

    return look


MODULE_RULES = (
    Rule(
        "silent-fallback",
        "error",
        "lowered",
        "Shardy was asked for, and GSPMD is what runs.",
        """The module is written for the other partitioner than was asked for, or XLA found
        annotations of both in it and gave Shardy up (jaxlib up to 0.10 says so on standard error
        alone: "Module has GSPMD attrs or ops, but Shardy is enabled"; later ones refuse the
        module). All that was tried out under Shardy is then not what runs.

        Look for `jax_use_shardy_partitioner` being set by the program, and for parts that were
        lowered elsewhere: exported functions, custom calls with annotations of their own. What the
        compiler logs is only known of a compiled program.""",
        _fallback,
    ),
    Rule(
        "mixed-attributes",
        "error",
        "lowered",
        "The module has annotations of both partitioners.",
        """Up to JAX 0.10 Shardy then falls back to GSPMD without an error (openxla/xla#42481), and
        later versions refuse the module. Something in it was lowered without Shardy: an exported
        function, a custom call.""",
        _checked("mixed-attributes"),
    ),
    Rule(
        "not-lowerable",
        "error",
        "lowered",
        "JAX can't lower the program under a partitioner.",
        """An error where there is no module at all; a note where the other partitioner has one.""",
        _not_lowerable,
    ),
    Rule(
        "not-understood",
        "warning",
        "lowered",
        "Something in the module could not be read.",
        """An attribute about sharding that this version of sdyscope does not understand. Nothing
        that depends on it was looked at.""",
        _checked("not-understood"),
    ),
    Rule(
        "not-aligned",
        "error",
        "lowered",
        "A constraint of the program was not found in the module.",
        """Every constraint that the program makes should be there, in the order in which JAX
        lowers them. Please report this with the program.""",
        _checked("not-aligned"),
    ),
)

REQUEST_RULES = (
    Rule(
        "lowered-differs",
        "error",
        "lowered",
        "The module has another sharding than was asked for.",
        """What JAX wrote into the module puts other blocks on the devices than the `NamedSharding`
        that the program names there. Shardings are compared by placement, so two spellings of one
        are equal.""",
        _checked("lowered-differs"),
    ),
    Rule(
        "sharding-dropped",
        "error",
        "lowered",
        "A sharding was asked for, and the module has none.",
        """The tensor is left to the compiler, although the program names a sharding for it.""",
        _checked("sharding-dropped"),
    ),
    Rule(
        "open-dims-differ",
        "error",
        "lowered",
        "Other dimensions are left open than `UNCONSTRAINED` left.",
        """A dimension that the compiler may shard although it was not asked to, or one that it may
        not (jax-ml/jax#37047).""",
        _checked("open-dims-differ"),
    ),
    Rule(
        "manual-axes-differ",
        "error",
        "lowered",
        "The body of a `shard_map` is manual on other axes than was asked for.",
        """What the body does on an axis then means something else.""",
        _checked("manual-axes-differ"),
    ),
    Rule(
        "partitioners-differ",
        "error",
        "lowered",
        "Shardy and GSPMD are told different things.",
        """Only looked for with `--partitioner both`: one of the modules places a tensor otherwise,
        or leaves other dimensions of it open.""",
        _checked("partitioners-differ"),
    ),
    Rule(
        "type-differs",
        "error",
        "lowered",
        "A tensor has another shape or element type in the module.",
        """It was not compared any further.""",
        _checked("type-differs"),
    ),
    Rule(
        "no-placement",
        "error",
        "lowered",
        "A sharding names no such axis, or does not fit the tensor.",
        """An axis that the mesh does not have, one that is used twice, more entries than there are
        dimensions. JAX refuses most of these when the sharding is made; modules from files can
        have them.""",
        _checked("no-placement"),
    ),
    Rule(
        "not-divisible",
        "warning",
        "lowered",
        "A constrained dimension does not divide into its blocks.",
        """XLA pads the blocks or does not split the dimension at all, and a result that is
        returned is replicated (jax-ml/jax#26946); `constraint-overridden` says where that
        happened. JAX itself refuses arguments and results whose `NamedSharding` does not divide,
        so this is about constraints. Make the size a multiple, or shard the dimension less.""",
        _checked("not-divisible"),
    ),
    Rule(
        "not-requested",
        "note",
        "lowered",
        "Nobody asked for a sharding, and the module has one.",
        """JAX writes such shardings for arrays whose types have them, on Explicit axes.""",
        _checked("not-requested"),
    ),
    Rule(
        "argument-dropped",
        "note",
        "lowered",
        "An argument is not used, and jit drops it.",
        """It takes no part in the program, whatever its sharding.""",
        _checked("argument-dropped"),
    ),
)

STORAGE_RULES = (
    Rule(
        "donation-unused",
        "warning",
        "compiled",
        "A donated buffer is not used for any result.",
        """The argument's memory is given up, and the result that was to take its place has another
        buffer: both are held at once. Most often the result is sharded otherwise than the argument,
        because `out_shardings` leaves that to the compiler (jax-ml/jax#25346, jax-ml/jax#9675).
        Give the result the argument's sharding, or do not donate the argument.

        A donated argument that the program does not use at all is a note.""",
        _memory("donation-unused"),
    ),
    Rule(
        "bytes-differ",
        "warning",
        "compiled",
        "By the shardings a device holds other bytes than the compiler says.",
        """Then one of the two is wrong about where arguments are.""",
        _memory("bytes-differ"),
    ),
)
