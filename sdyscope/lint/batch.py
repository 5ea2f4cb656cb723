"""A rule about the batch."""

from __future__ import annotations

from collections.abc import Iterator

from sdyscope.analysis.naming.data_axes import is_data_axis
from sdyscope.facts.lint import BatchWhole
from sdyscope.lint.placed import Placed, axes_of
from sdyscope.lint.rule import NotApplicable, Sighting, rule
from sdyscope.lint.subject import Subject


@rule("batch-not-sharded", "warning")
def batch_not_sharded(subject: Subject) -> Iterator[Sighting]:
    """A batch is not sharded over a data axis of the mesh.

    The devices along the axis then all compute the same. A data axis is recognized by its name
    (`data`, `batch`, `dp`, `fsdp`, `replica`, `dcn` and the like, also as part of a name, as in
    `data_parallel`): parameters may be sharded over `fsdp`, and the batch must be as well, or the
    axis saves memory and no time.

    A batch is an argument that is called `batch`, `inputs`, `x`, `tokens`, `targets` and the like,
    or one of `int32` or `int64` that a train step, with a backward pass, does not return the next
    value of (`int8` and `uint8` may be quantized weights). What is in a tree as parameters are is
    another network's, and so is a `target` of arrays with different first dimensions. Nor is an
    array of a list of examples, whose length is another input's first dimension. Scalars and
    arguments whose first dimension is not that of the largest batch (masks, tables) are not
    checked, nor is one with no dimension that divides.
    Any dimension counts, so a sequence over `data` is not reported, and so does a constraint on the
    argument if that is all that uses it.
    """
    mesh = subject.mesh
    axes = [axis for axis in mesh.axes if axis.size > 1 and is_data_axis(axis.name)]
    if not axes:
        raise NotApplicable("No axis of the mesh has the name of a batch axis.")
    placed = [batch for batch in subject.batches if batch.placement is not None]
    if not placed:
        raise NotApplicable("No argument of the program is recognizably a batch.")
    lead = max(placed, key=lambda argument: argument.bytes)
    for argument in placed:
        if argument.shape[0] != lead.shape[0]:
            continue  # a mask, a table of positions
        by_dim = axes_of(argument.known, mesh)
        used = {name for dim in by_dim for name in dim} | _constrained_over(subject, argument)
        local = argument.known.local_shape(argument.shape)
        for axis in axes:
            fits = any(block > 1 and block % axis.size == 0 for block in local)
            if axis.name in used or not fits:
                continue
            fact = BatchWhole(axis.name, axis.size, argument.sharded)
            yield subject.at_argument(argument, fact)


def _constrained_over(subject: Subject, argument: Placed) -> frozenset[str]:
    """The axes that an argument is constrained to be sharded over before anything else uses it."""
    written = {each.op: each.placement for each in subject.annotations if each.kind == "constraint"}
    node = argument.row.lowered[subject.under].op
    places = [written.get(user.id) for user, _ in subject.graph.uses(node)]
    axes = [
        frozenset(name for dim in axes_of(place, subject.mesh) for name in dim) if place else None
        for place in places
    ]
    known = [each for each in axes if each is not None]
    return frozenset.intersection(*known) if known and len(known) == len(axes) else frozenset()
