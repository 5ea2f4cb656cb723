"""What `check` finds of a program's modules and tensors, under the same names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sdyscope.errors import FallbackError, SdyscopeError
from sdyscope.facts.findings import Observation, Severity
from sdyscope.facts.lint import FellBack
from sdyscope.lint.rule import Rule, Sighting, documented, rule
from sdyscope.lint.subject import Subject


def _observations(subject: Subject, name: str) -> Iterator[Observation]:
    """What ``check`` found under a name."""
    for observation in subject.checked:
        if observation.rule == name and observation.partitioner in (None, subject.partitioner):
            yield observation


def _checked(name: str, severity: Severity, documentation: str) -> Rule:
    """A rule that says what ``check`` found under its name."""
    return documented(name, severity, documentation, lambda subject: _observations(subject, name))


@rule("silent-fallback", "error")
def silent_fallback(subject: Subject) -> Iterator[Sighting | Observation]:
    """Shardy was requested, but GSPMD runs.

    The module is lowered for a partitioner other than requested, or XLA found annotations of both
    in it and fell back to GSPMD (jaxlib up to 0.10 says so only on standard error: "Module has
    GSPMD attrs or ops, but Shardy is enabled"; later ones refuse the module). Everything seen under
    Shardy is then not what runs.

    Look for `jax_use_shardy_partitioner` being set by the program, and for parts that were lowered
    elsewhere: exported functions, custom calls with annotations of their own. The compiler's log is
    only known for a compiled program.
    """
    yield from _observations(subject, "silent-fallback")
    if not subject.compiles:
        return
    try:
        _ = subject.compiled
    except FallbackError as error:
        yield Sighting(FellBack(error.message, error.hint or ""), partitioner=subject.partitioner)
    except SdyscopeError:
        return  # the rules that need the compiled program say why there is none


mixed_attributes = _checked(
    "mixed-attributes",
    "error",
    """The module has annotations of both partitioners.

    Up to JAX 0.10 Shardy then falls back to GSPMD without an error (openxla/xla#42481), and later
    versions refuse the module. Something in it was lowered without Shardy: an exported function, a
    custom call.
    """,
)


@rule("not-lowerable", "error")
def not_lowerable(subject: Subject) -> Iterator[Observation]:
    """JAX can't lower the program under a partitioner.

    An error where there is no module at all; a note where the other partitioner has one.
    """
    for observation in subject.checked:
        if observation.rule == "not-lowerable":
            # For whom there is no module is in the sentence; under the others this is said.
            yield replace(observation, partitioner=None)


not_understood = _checked(
    "not-understood",
    "warning",
    """Something in the module could not be read.

    A sharding attribute that this version of sdyscope does not understand. Nothing that depends on
    it was checked.
    """,
)

not_aligned = _checked(
    "not-aligned",
    "error",
    """A constraint of the program was not found in the module.

    Every constraint that the program makes should be there, in the order in which JAX lowers them.
    Please report this with the program.
    """,
)

lowered_differs = _checked(
    "lowered-differs",
    "error",
    """The module's sharding is not the one requested.

    What JAX wrote into the module puts other blocks on the devices than the `NamedSharding` that
    the program names there. Shardings are compared by placement, so two spellings of one are equal.
    """,
)

sharding_dropped = _checked(
    "sharding-dropped",
    "error",
    """A sharding was requested, but the module has none.

    The tensor is left to the compiler, although the program names a sharding for it.
    """,
)

open_dims_differ = _checked(
    "open-dims-differ",
    "error",
    """The open dimensions are not the ones marked `UNCONSTRAINED`.

    A dimension is open that was not marked, or one that was marked is closed (jax-ml/jax#37047).
    """,
)

manual_axes_differ = _checked(
    "manual-axes-differ",
    "error",
    """The body of a `shard_map` is manual over other axes than requested.

    What the body does on an axis then means something else.
    """,
)

partitioners_differ = _checked(
    "partitioners-differ",
    "error",
    """Shardy and GSPMD get different shardings.

    Only checked with `--partitioner both`: the modules place a tensor differently, or leave
    different dimensions of it open.
    """,
)

type_differs = _checked(
    "type-differs",
    "error",
    """A tensor has another shape or element type in the module.

    It was not compared any further.
    """,
)

no_placement = _checked(
    "no-placement",
    "error",
    """A sharding does not fit the mesh or the tensor.

    An axis that the mesh does not have, one that is used twice, more entries than there are
    dimensions. JAX refuses most of these when the sharding is made; modules from files can have
    them.
    """,
)

not_divisible = _checked(
    "not-divisible",
    "warning",
    """A constrained dimension does not divide into its blocks.

    XLA pads the blocks or does not split the dimension at all, and a result that is returned is
    replicated (jax-ml/jax#26946); `constraint-overridden` says where that happened. JAX itself
    refuses arguments and results whose `NamedSharding` does not divide, so this is about
    constraints. Make the size a multiple, or shard the dimension less.
    """,
)

not_requested = _checked(
    "not-requested",
    "note",
    """No sharding was requested, but the module has one.

    JAX writes such shardings for arrays whose types have them, on Explicit axes.
    """,
)

argument_dropped = _checked(
    "argument-dropped",
    "note",
    """An argument is not used, and jit drops it.

    It takes no part in the program, whatever its sharding.
    """,
)
