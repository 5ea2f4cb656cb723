"""What was executed, in words."""

from __future__ import annotations

from sdyscope.facts.execution import Reference

__all__ = ["random_numbers_text"]


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
