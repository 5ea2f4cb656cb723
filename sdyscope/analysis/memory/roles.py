"""What the arguments of a program are to it: parameters, optimizer state, or what it works on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

from sdyscope.analysis.memory.held import Held
from sdyscope.analysis.search.paths import Leaf, kept_of, mirrored

Role: TypeAlias = Literal["parameters", "optimizer state", "state", "inputs"]
"""``parameters`` and ``optimizer state`` of a program that is differentiated; ``state`` is what
another program returns the next value of, such as a cache; ``inputs`` is everything else."""

_FLOATS = ("f", "bf", "tf")


def roles(held: Iterable[Held], *, differentiated: bool) -> dict[int, Role]:
    """The role of each argument, by its number.

    An argument is kept from step to step where a result is its next value. Of these, the optimizer
    keeps what is at the place of another in a tree of its own (``opt_state[0].mu['w1']`` of
    ``params['w1']``), and what no gradient has, such as counts.

    Args:
        held: arguments and results.
        differentiated: whether the program has a backward pass.
    """
    held = tuple(held)
    arguments = [tensor for tensor in held if tensor.kind == "argument"]
    results = [tensor for tensor in held if tensor.kind == "result"]
    leaves = _leaves(arguments)
    kept = set(mirrored(_leaves(results), leaves).values())
    of_parameters = kept_of(leaves)
    by_number: dict[int, Role] = {}
    for place, argument in enumerate(arguments):
        role: Role = "inputs"
        if place in kept and not differentiated:
            role = "state"
        elif place in kept:
            is_parameter = place not in of_parameters and argument.dtype.startswith(_FLOATS)
            role = "parameters" if is_parameter else "optimizer state"
        by_number[argument.number] = role
    return by_number


def _leaves(held: Sequence[Held]) -> list[Leaf]:
    return [Leaf(tensor.name, tensor.type[0], tensor.dtype) for tensor in held]
