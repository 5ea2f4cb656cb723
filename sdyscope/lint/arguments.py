"""Rules about arguments and results: what is held, and where."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from sdyscope.analysis.naming.next_values import only_moves
from sdyscope.facts.findings import Severity
from sdyscope.facts.lint import NextValueDiffers, StateDiffers, UnderSharded
from sdyscope.lint.placed import Placed, axes_of
from sdyscope.lint.rule import NotApplicable, Sighting, Unavailable, rule
from sdyscope.lint.subject import Subject
from sdyscope.values.mesh import Mesh
from sdyscope.words.counts import counted

#: Bytes of state per device from which on it is worth a word.
LARGE = 16 << 20
#: What share of a group's bytes on a device one tensor must waste to be worth a word.
_SHARE = 0.05
#: So is what saves less than this share of what a device holds of all arguments.
_SHARE_OF_ALL = 0.001
#: What share of a group's bytes must be sharded on an axis for that to be how the group is sharded.
_MOST = 0.5


@rule("under-sharded", "warning")
def under_sharded(subject: Subject) -> Iterator[Sighting]:
    """A large tensor is not sharded over an axis its group is sharded over.

    Most bytes of its group (such as `params`) are sharded over an axis, this tensor is not although
    a dimension divides, and that costs at least 5% of what a device holds of the group, and 0.1% of
    what it holds of all arguments. Under FSDP this is typically a forgotten embedding
    (AI-Hypercomputer/maxtext#1810).

    How a group is sharded is read off the group: parameters that are all whole, as under pure data
    parallelism, or all on `model` and on nothing else, are a decision. It is a note if they are
    whole over an axis that the batch is sharded over, a step returns their next values, and
    sharding them as well saves 16 MiB per device. `sdyscope memory` lists everything that could be
    sharded further, and how much that saves. Small tensors (biases, scales) are below the 5%. A
    tensor's optimizer state is counted with it.
    """
    mesh = subject.mesh
    known = subject.arguments
    leads = subject.parameters
    reported: set[int] = set()
    groups: dict[str, list[int]] = {}
    least = _SHARE_OF_ALL * sum(argument.bytes_per_device for argument in known)
    for number, argument in enumerate(known):
        if argument.placement is not None and argument.shape:
            groups.setdefault(argument.group, []).append(number)
    # A parameter is told before what the optimizer keeps of it, which is mostly found beside it.
    for group, numbers in sorted(groups.items(), key=lambda item: item[1][0] in leads):
        members = [known[number] for number in numbers]
        if len(members) < 2:
            continue
        usual = _usual_axes(members, mesh)
        held = sum(member.bytes_per_device for member in members)
        for number in sorted(numbers, key=lambda number: number in leads):
            argument = known[number]
            missing = _could_have(argument, usual, mesh)
            if not missing:
                continue
            factor = 1
            for axis, _ in missing:
                factor *= mesh.shape[axis]
            saves = argument.bytes_per_device - argument.bytes_per_device // factor
            if saves < max(_SHARE * held, least):
                continue
            reported.add(number)
            if leads.get(number) in reported:
                continue
            shares = tuple(usual[axis] for axis, _ in missing)
            followers = list(leads.values()).count(number)
            fact = UnderSharded(group, missing, shares, saves, followers, argument.sharded)
            yield subject.at_argument(argument, fact)
    yield from _whole_over_batch(subject, reported)


def _whole_over_batch(subject: Subject, reported: Set[int]) -> Iterator[Sighting]:
    """State that is whole over axes of the batch, group by group; not what is reported already."""
    mesh = subject.mesh
    axes = {
        axis: 1.0
        for batch in subject.batches
        if batch.placement is not None
        for dim in axes_of(batch.known, mesh)
        for axis in dim
    }
    groups: dict[str, list[_Saving]] = {}
    for number in sorted({*subject.next_values.values()} - reported):
        state = subject.arguments[number]
        if state.placement is None or not state.shape:
            continue
        if missing := _could_have(state, axes, mesh):
            blocks = math.prod(mesh.shape[axis] for axis, _ in missing)
            saves = state.bytes_per_device - state.bytes_per_device // blocks
            groups.setdefault(state.group, []).append(_Saving(state, missing, saves))
    for group, members in groups.items():
        saves = sum(member.bytes for member in members)
        if saves < LARGE:
            continue
        largest = max(members, key=lambda member: member.bytes)
        state, missing = largest.state, largest.missing
        fact = UnderSharded(group, missing, (), saves, len(members) - 1, state.sharded)
        yield subject.at_argument(state, fact, "note")


@dataclass(frozen=True, slots=True)
class _Saving:
    """State that could be sharded further.

    Attributes:
        state: which argument.
        missing: the axes, each with a dimension that it divides.
        bytes: what a device would hold less.
    """

    state: Placed
    missing: tuple[tuple[str, int], ...]
    bytes: int


def _usual_axes(members: Sequence[Placed], mesh: Mesh) -> dict[str, float]:
    """The axes that most of a group's bytes are sharded on, and what share of them is."""
    total = sum(member.bytes for member in members)
    on: Counter[str] = Counter()
    for member in members:
        for axis in {axis for dim in axes_of(member.known, mesh) for axis in dim}:
            on[axis] += member.bytes
    shares = {axis.name: on[axis.name] / total for axis in mesh.axes if on[axis.name]}
    return {axis: share for axis, share in shares.items() if share >= _MOST}


def _could_have(
    placed: Placed, axes: Mapping[str, float], mesh: Mesh
) -> tuple[tuple[str, int], ...]:
    """Of some axes those that a tensor is not sharded on, with a dimension that each divides."""
    by_dim = axes_of(placed.known, mesh)
    used = {axis for dim in by_dim for axis in dim}
    blocks = list(placed.known.local_shape(placed.shape))
    dims = range(len(blocks) - placed.row.key_dims)
    usual: list[tuple[str, int]] = []
    for axis in axes:
        ways = mesh.shape[axis]
        fitting = [dim for dim in dims if blocks[dim] > 1 and blocks[dim] % ways == 0]
        if axis in used or not fitting:
            continue
        best = max(fitting, key=lambda dim: (not by_dim[dim], blocks[dim]))
        blocks[best] //= ways
        usual.append((axis, best))
    return tuple(usual)


@rule("optimizer-state-differs", "warning")
def optimizer_state_differs(subject: Subject) -> Iterator[Sighting]:
    """A parameter and its optimizer state are sharded differently.

    Adam's moments and the like have the shape of their parameter, and are updated with its
    gradient: if the shardings differ, each step moves one to the other. State belongs to the
    parameter at the same place of its tree, `opt_state[0].mu['w1']` to `params['w1']`.

    State that is sharded over all axes of its parameter and more is ZeRO stage 1, and not reported.
    """
    mesh = subject.mesh
    known, leads = subject.arguments, subject.parameters
    if not leads:
        raise NotApplicable("No argument belongs to another, as an optimizer's state does.")
    for number, lead in leads.items():
        state, parameter = known[number], known[lead]
        if state.placement is None or parameter.placement is None or not state.shape:
            continue
        if state.known == parameter.known or _refines(state, parameter, mesh):
            continue
        fact = StateDiffers(parameter.name, parameter.sharded, state.sharded)
        yield subject.at_argument(state, fact)


def _refines(state: Placed, parameter: Placed, mesh: Mesh) -> bool:
    """Whether a state is sharded on all that its parameter is, and further: that is ZeRO."""
    finer, coarser = axes_of(state.known, mesh), axes_of(parameter.known, mesh)
    return all(set(more) >= set(less) for more, less in zip(finer, coarser, strict=True))


@rule("next-value-differs", "warning")
def next_value_differs(subject: Subject) -> Iterator[Sighting]:
    """The next value of an argument is returned with another sharding.

    A train step returns parameters that go into the next step. Where `out_shardings` leaves the
    results to the compiler, they may come back with other shardings: then the second step is traced
    and compiled again for the new shardings, a donated buffer is unused, and memory differs from
    the first step's. A result is an argument's next value if its path says so (`result[0]['w1']`
    for `params['w1']`), or if what it is made from does; where only the path does, or the argument
    is one array, donated, and of its type, it is a note. A gradient, as of `jax.value_and_grad`,
    has that path too: the update has to reshard one of them first. Results that the program leaves
    open are only known once it is compiled.
    """
    _ = subject.mesh  # of several, shardings are not told
    arguments, results = subject.arguments, subject.results
    pairs = subject.next_values
    # Two arrays that are all of an argument and of a result need not be the same thing.
    pairs = {
        number: other
        for number, other in pairs.items()
        if len(arguments[other].leaf.keys) > 1
        or arguments[other].row.is_donated
        or subject.relations[number] == "next value"
    }
    if not pairs:
        raise NotApplicable("No result is recognizably the next value of an argument.")
    if only_moves(subject.graph):
        raise NotApplicable("The program computes nothing: it is there to move its arguments.")
    unknown = 0
    for number, other in pairs.items():
        after, before = results[number], arguments[other]
        if after.placement is None or before.placement is None:
            unknown += 1
        elif after.known != before.known:
            # Each partitioner can have its own sharding for what is left open.
            relation = subject.relations[number]
            fact = NextValueDiffers(after.name, before.sharded, after.sharded, relation)
            severity: Severity | None = "note" if relation in ("path", "type") else None
            yield subject.at_argument(before, fact, of_all=False, severity=severity)
    if unknown and not subject.compiles:
        raise Unavailable(
            f"The program leaves the sharding of {counted(unknown, 'next value')} to the compiler, "
            "and --no-compile leaves that out."
        )
    if unknown:
        _ = subject.compiled  # which says why there is none
