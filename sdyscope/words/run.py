"""What was executed, in words."""

from __future__ import annotations

from sdyscope.facts.execution import Reference

__all__ = ["ERROR", "random_numbers_text", "reference_text"]

#: What an error is.
ERROR = "An error is the norm of the difference over the norm of the result"


def reference_text(reference: Reference, seconds: str = "") -> str:
    """What results are compared with, and how much that is worth; goes on behind a comma.

    Args:
        reference: the reference.
        seconds: how long its step took, in words.
    """
    text = f"against the same jaxpr without shardings on one device{seconds}"
    match reference.kind:
        case "unsharded":
            return f"{text}."
        case "one-device mesh":
            return (
                f"{text}, in which bodies of shard_maps are mapped over their blocks. On a mesh of "
                "one device the program computes the same."
            )
        case "mapped":
            text += (
                ", in which bodies of shard_maps are mapped over their blocks: what they do wrong, "
                "they do there, too. "
            )
            if reference.alone_failure:
                return f"{text}Not compared on a mesh of one device: {reference.alone_failure}."
            return f"{text}On a mesh of one device the program computes something else."


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
