"""What was executed, in words."""

from __future__ import annotations

from typing import Final

from sdyscope.facts.execution import InputSource, Reference
from sdyscope.facts.findings import DependsOnMesh, InnerDifference, Inside, Regrouped
from sdyscope.values.mesh import Mesh
from sdyscope.words.counts import counted, listed
from sdyscope.words.mesh import mesh_text
from sdyscope.words.places import source_text
from sdyscope.words.types import type_text

#: What an error is.
ERROR = "An error is the norm of the difference over the norm of the result"


#: Of a step on one device that XLA computes wrongly by default.
UNSIMPLIFIED = (
    "compiled without XLA's algebraic simplifier (which makes something else of it: a bug of XLA's)"
)


def reference_text(reference: Reference, seconds: str = "") -> str:
    """What results are compared with, and how much that is worth; goes on behind a comma.

    Args:
        reference: the reference.
        seconds: how long its step took, in words.
    """
    text = f"against the same jaxpr without shardings on one device{seconds}"
    if not reference.is_simplified:
        text += f", {UNSIMPLIFIED}"
    match reference.kind:
        case "function":
            return f"against {reference.function} on one device{seconds}."
        case "unsharded":
            return f"{text}."
        case "one-device mesh":
            return (
                f"{text}, in which bodies of shard_maps are mapped over their blocks. On a mesh of "
                "one device the program computes the same"
                f"{', but for rounding noise' * bool(reference.noise)}."
            )
        case "mapped":
            text += (
                ", in which bodies of shard_maps are mapped over their blocks: their errors "
                "occur there, too. "
            )
            if reference.alone_failure:
                return f"{text}Not compared on a mesh of one device: {reference.alone_failure}."
            return f"{text}On a mesh of one device the program computes something different."


def training_text(carried: int, steps: int) -> str:
    """What steps of training are."""
    return (
        f"Training: {counted(steps, 'step')} in a row on the same batch; "
        f"{counted(carried, 'result')} of a step {'goes' if carried == 1 else 'go'} into the next. "
        "Off by: the difference over the value on one device."
    )


def inputs_text(source: InputSource | str) -> str:
    """Where the values that a program ran on came from; as it was written where it is read back."""
    if isinstance(source, str):
        return source
    match source.kind:
        case "inputs":
            return "the program's own inputs"
        case "arguments":
            return "the program's arguments"
        case "made":
            unsigned = ""
            if source.unsigned:
                unsigned = (
                    f" (absolute values in {counted(source.unsigned, 'argument')} that a root or "
                    "logarithm is taken of)"
                )
            return (
                f"made with seed {source.seed}: floats are normal with deviation "
                f"{source.deviation:g}{unsigned}, integers are alternately 0 and 1"
            )


def compared_with(reference: Reference) -> str:
    """What results are compared with, in a cell; empty where they are not compared."""
    if reference.failure:
        return ""
    match reference.kind:
        case "function":
            return reference.function
        case "unsharded":
            return "its jaxpr without shardings"
        case "one-device mesh":
            return "itself on a mesh of one device"
        case "mapped":
            return "itself, mapped on one device"


def counterpart_text(fact: DependsOnMesh) -> str:
    """What a result was to be: `what the program computes on a mesh of one device`."""
    if fact.function:
        return f"what {fact.function} computes"
    return f"what the program computes {_on(fact.base)}"


def _on(mesh: Mesh | None) -> str:
    if mesh is None or mesh.size == 1:
        return "on a mesh of one device"
    return f"on {mesh_text(mesh.shape)}"


def meshes_text(reference: Reference, base: Mesh | None) -> str:
    """What results on several meshes are compared with.

    Args:
        reference: the reference of the run.
        base: the mesh that the others are compared with; None for none.
    """
    if reference.function:
        what = reference.function
    elif base is None:
        return "No mesh runs the program, so nothing is compared between meshes."
    else:
        what = f"the base, which is the program {_on(base)}"
    return f"On each mesh the same values, and every result against {what}."


def inside_text(inside: Inside | None) -> str:
    """Where in the program values begin to differ, a sentence or two; empty for nothing known."""
    if inside is None:
        return ""
    return _not_looked(inside) if inside.first is None else _inner(inside.first)


def _inner(inside: InnerDifference) -> str:
    line = source_text(inside.source)
    place = f"{inside.op} in {inside.scope}" + (f" at {line}" if line else "")
    turn = "" if inside.iteration is None else f", in iteration {inside.iteration} of its loop"
    whose = "without shardings" if inside.base is None else _on(inside.base)
    if inside.ratio is not None:
        axes = " and ".join(inside.axes)
        amount = f"{inside.ratio:g} times what it is {whose}"
        amount += f" (the size of {axes})" if axes else ""
    else:
        amount = f"{inside.error:.2g} of its norm from what it is {whose}"
    text = (
        f"The first value inside that differs is computed by {place}{turn}: "
        f"{type_text(inside.shape, inside.dtype)}, {amount}."
    )
    if inside.regrouped is not None:
        text += f" {_regrouped_text(inside.regrouped)}"
    if inside.reordered:
        text += (
            f" It names {listed(inside.reordered)} in another order than the mesh does, and JAX "
            "numbers the devices of a ppermute in the mesh's order, unlike those of axis_index."
        )
    if inside.unseen:
        were = "was" if inside.unseen == 1 else "were"
        unseen = counted(inside.unseen, "value")
        return f"{text} {unseen} that it may be made of {were} not compared."
    return text


def _regrouped_text(fact: Regrouped) -> str:
    over = f" (over {' or '.join(fact.axes)})" if fact.axes else ""
    return (
        f"It splits a dimension of which each device has a part, {fact.part} of {fact.whole}"
        f"{over}, into {fact.groups} groups of the device's own elements: which elements form a "
        "group depends on the mesh."
    )


#: What to do about a `ppermute` over axes in another order than the mesh's.
REORDERED_HINT: Final = "Name the axes in the mesh's order, and number perm's devices in it."


def regrouped_hint(fact: Regrouped) -> str:
    """What to do about groups that depend on the mesh."""
    parts = fact.whole // fact.part
    if fact.groups % parts:
        return "Gather the dimension before it is split."
    return (
        f"Split a device's part into whole groups, {fact.groups // parts} of the {fact.groups}, or "
        "gather the dimension before it is split."
    )


def _not_looked(inside: Inside) -> str:
    match inside.why:
        case "other structure":
            return (
                "Its own jaxpr on one device gives the same as on the mesh, and values inside "
                "can't be compared with another function's: look for what the two do "
                "differently."
            )
        case "other ops":
            return "Values inside are not compared: the program has other ops there."
        case "gone":
            return "With values inside returned as well, it does not differ: none is named."
        case "processes":
            return "Values inside are compared only in one process, without --processes."
        case "failed":
            return f"Values inside could not be compared: {inside.reason}."
        case "":
            return ""


def random_numbers_text(reference: Reference) -> str:
    """Whether numbers may depend on how they are sharded; empty where none are random."""
    if not reference.draws_random_numbers:
        return ""
    if reference.threefry_partitionable:
        return (
            "The step draws random numbers. With jax_threefry_partitionable on, as here, threefry "
            "keys give the same numbers however they are sharded; rbg keys need not."
        )
    return (
        "The step draws random numbers, and jax_threefry_partitionable is off: the numbers may "
        "depend on how they are sharded."
    )
