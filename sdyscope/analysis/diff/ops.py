"""The ops of two modules: how many of each kind a scope has, with which attributes and operands."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from sdyscope.analysis.naming.resolve import named_value
from sdyscope.analysis.naming.structure import (
    CONFIGURATIONS,
    Structures,
    comparable,
    computing_attributes,
)
from sdyscope.annotations import other_attributes, split_scope
from sdyscope.facts.differences import OpDifference
from sdyscope.facts.propagated import ValueId
from sdyscope.graph import Op, OpGraph
from sdyscope.graph.attribute_values import is_elsewhere
from sdyscope.graph.custom_calls import is_callback, is_kernel

_Place: TypeAlias = tuple[str, str]
"""A scope and a kind of ops."""


@dataclass(frozen=True)
class OpsSide:
    """The ops of one module.

    Attributes:
        structures: what each computes, and the module.
        path: a scope without the program's own name.
    """

    structures: Structures
    path: Callable[[str], str]

    @property
    def graph(self) -> OpGraph:
        """The module."""
        return self.structures.graph

    @cached_property
    def computing(self) -> list[Op]:
        """The ops, without what only defines."""
        ops = self.graph.operations()
        return [op for op in ops if op.parent is not None and op.kind not in _DEFINITIONS]

    @cached_property
    def placed(self) -> Mapping[_Place, list[Op]]:
        """The ops by their scope and kind; constraints are compared as tensors."""
        ops: defaultdict[_Place, list[Op]] = defaultdict(list)
        for op in self.computing:
            if not op.is_constraint:
                ops[self.place(op)].append(op)
        return ops

    @cached_property
    def numbers(self) -> Counter[int]:
        """What there is of ops and results, by the numbers of what they are."""
        own = self.structures.own
        return Counter([own[op.id] for op in (*self.computing, *self.graph.results())])

    def place(self, op: Op) -> _Place:
        """Where an op is counted."""
        if op.is_result:
            return "", "func.return"
        path = self._paths.get(op.scope)
        if path is None:
            path = self._paths[op.scope] = self.path(split_scope(op.scope)[0])
        target = op.call_target if op.attributes else None
        return path, f"{op.kind} @{target}" if target else op.kind

    @cached_property
    def _paths(self) -> dict[str, str]:
        return {}

    def operands(self, op: Op) -> list[ValueId]:
        """What an op is computed from; of a result of main, what main returns."""
        if not op.is_result:
            return list(self.graph.operand_values[op.id])
        value = self.graph.returned.get(op.result)
        return [] if value is None else [value]

    def names(self, op: Op) -> str:
        """What an op is computed from, by name."""
        names = [self.name(value) for value in self.operands(op)]
        if op.is_result:
            return f"{op.scope or op.result} = {', '.join(names)}"
        return f"operands = ({', '.join(names)})"

    def name(self, value: ValueId) -> str:
        """A value by pytree path or scope, with its SSA name where others are called the same."""
        named = named_value(self.graph, value)
        name = self.path(named.name) or named.kind
        return name if named.name == named.ssa or self._named[name] < 2 else f"{name} {named.ssa}"

    @cached_property
    def _named(self) -> Counter[str]:
        """How many ops have each name."""
        return Counter(
            self.path(named_value(self.graph, (op.id, 0)).name) or op.kind
            for op in self.graph.ops
            if op.types
        )


def op_differences(
    a: OpsSide, b: OpsSide, *, attributes: bool, tensors_differ: bool, meshes_differ: bool
) -> list[OpDifference]:
    """The places whose ops are not the same, the most first.

    Args:
        a: the first module.
        b: the second.
        attributes: whether attributes and operands are compared, too.
        tensors_differ: whether tensors differ.
        meshes_differ: whether meshes do.
    """
    ours, theirs = a.placed, b.placed
    differences: list[OpDifference] = []
    for place in dict.fromkeys([*ours, *theirs]):
        here, there = ours.get(place, []), theirs.get(place, [])
        if _numbers(a, here) == _numbers(b, there):
            continue  # Of the same types, attributes and operands.
        types = _types(here), _types(there)
        counts = len(here), len(there)
        if types[0] != types[1]:
            more, fewer = types[0] - types[1], types[1] - types[0]
            differences.append(OpDifference(*place, *counts, dict(more), dict(fewer)))
        elif attributes:
            own, other = _attributes(here), _attributes(there)
            if own.keys() != other.keys() or any(len(own[key]) != len(other[key]) for key in own):
                texts = _texts(own, other), _texts(other, own)
                differences.append(OpDifference(*place, *counts, {}, {}, *texts))
    if attributes:
        differences += _written_differences(a, b, meshes_differ=meshes_differ)
        known = {(difference.scope, difference.kind) for difference in differences}
        alone = not (differences or tensors_differ or meshes_differ)
        differences += [
            OpDifference(
                *place, len(ours.get(place, ())), len(theirs.get(place, ())), {}, {}, *texts
            )
            for place, texts in _other_operands(a, b, alone=alone).items()
            if place not in known
        ]
    return sorted(differences, key=lambda difference: -difference.size)


def other_kernels(a: OpsSide, b: OpsSide) -> int:
    """How many kernels of the first module have a code that the second has not."""
    ours, theirs = (
        Counter(
            (op.call_target, name, comparable(op.attributes[name]))
            for op in side.computing
            if op.attributes and is_kernel(op.call_target or "")
            for name in CONFIGURATIONS
            if name in op.attributes
        )
        for side in (a, b)
    )
    return (ours - theirs).total()


def unknown_constants(side: OpsSide) -> int:
    """How many constants have no values in the module."""
    return sum(
        any(map(is_elsewhere, op.attributes.values())) for op in side.computing if op.attributes
    )


def callbacks_of(side: OpsSide) -> int:
    """How many callbacks there are, of which a module does not say what they call."""
    return sum(is_callback(op.call_target or "") for op in side.computing)


def _written_differences(a: OpsSide, b: OpsSide, *, meshes_differ: bool) -> Iterator[OpDifference]:
    """What the modules and their functions are that is no op's."""
    for kind, texts in (("builtin.module", _of_module), ("func.func", _of_functions)):
        ours, theirs = (texts(side.graph, meshes_differ) for side in (a, b))
        if ours != theirs:
            counts = (
                (1, 1) if texts is _of_module else (len(a.graph.functions), len(b.graph.functions))
            )
            yield OpDifference("", kind, *counts, {}, {}, dict(ours - theirs), dict(theirs - ours))


def _of_module(graph: OpGraph, meshes_differ: bool) -> Counter[str]:
    # Another mesh has other devices.
    left_out = {"mhlo.num_partitions"} if meshes_differ else set()
    return Counter(
        f"{name} = {value}" for name, value in graph.attributes.items() if name not in left_out
    )


def _of_functions(graph: OpGraph, _: bool) -> Counter[str]:
    """What is written on functions, and on arguments and results of inner ones."""
    texts: Counter[str] = Counter()
    for function in graph.functions.values():
        op = graph.ops[function.op]
        texts.update(f"{name} = {value}" for name, value in computing_attributes(op))
        if function is not graph.main:
            for argument in function.arguments:
                texts.update(other_attributes(argument.attributes))
            for result in function.results:
                texts.update(other_attributes(result.attributes))
    return texts


_DEFINITIONS = ("func.func", "sdy.mesh")


def _numbers(side: OpsSide, ops: Iterable[Op]) -> list[int]:
    own = side.structures.own
    return sorted([own[op.id] for op in ops])


def _types(ops: Iterable[Op]) -> Counter[str]:
    return Counter(", ".join(type_.text for type_ in op.types) for op in ops)


def _attributes(ops: Iterable[Op]) -> Mapping[Hashable, list[str]]:
    """By result types, name and value, the text of each attribute that says what ops compute."""
    texts: defaultdict[Hashable, list[str]] = defaultdict(list)
    for op in ops:
        types = tuple(type_.text for type_ in op.types)
        for name, value in computing_attributes(op):
            texts[types, name, comparable(value)].append(f"{name} = {value}")
    return texts


def _texts(own: Mapping[Hashable, list[str]], other: Mapping[Hashable, list[str]]) -> Counter[str]:
    """The texts of what one side has more of."""
    return Counter(text for key, texts in own.items() for text in texts[len(other.get(key, ())) :])


def _other_operands(
    a: OpsSide, b: OpsSide, *, alone: bool
) -> dict[_Place, tuple[Counter[str], Counter[str]]]:
    """Where ops are computed from something else although both sides have what that is.

    Args:
        a: the first module.
        b: the second.
        alone: whether nothing else differs. Otherwise an op that comes or goes gives what uses it
            other operands, on one side alone.
    """
    rest = _unmatched(a, b), _unmatched(b, a)
    begun = _beginnings(a, b, rest[0]), _beginnings(b, a, rest[1])
    if alone and not (begun[0] or begun[1]):
        # They use each other, in a circle.
        begun = _by_place(a, rest[0][:1]), _by_place(b, rest[1][:1])
    places = [
        place
        for place in dict.fromkeys([*begun[0], *begun[1]])
        if alone or (place in begun[0] and place in begun[1])
    ]
    differences = {}
    for place in places:
        ours, theirs = begun[0].get(place, []), begun[1].get(place, [])
        names = Counter(map(a.names, ours)), Counter(map(b.names, theirs))
        if names[0] == names[1]:
            # The same names for something else: by what is told of the ops themselves.
            names = (
                Counter(_computed_text(a, op) for op in ours),
                Counter(_computed_text(b, op) for op in theirs),
            )
        differences[place] = names
    return differences


def _computed_text(side: OpsSide, op: Op) -> str:
    attributes = [f"{name} = {value}" for name, value in computing_attributes(op)]
    return ", ".join([side.names(op), *attributes])


def _unmatched(side: OpsSide, other: OpsSide) -> list[Op]:
    """The ops that the other side has not, or not as often."""
    if side.numbers == other.numbers:
        return []
    own, rest = side.structures.own, other.numbers.copy()
    unmatched: list[Op] = []
    for op in (*side.computing, *side.graph.results()):
        if rest[own[op.id]] > 0:
            rest[own[op.id]] -= 1
        else:
            unmatched.append(op)
    return unmatched


def _beginnings(side: OpsSide, other: OpsSide, unmatched: Iterable[Op]) -> dict[_Place, list[Op]]:
    """Those of the unmatched ops whose operands the other side has."""
    known, whole = set(other.structures.whole), side.structures.whole
    end = None if side.graph.main is None else side.graph.main.op
    return _by_place(
        side,
        (
            op
            for op in unmatched
            # What main returns is compared result by result.
            if not (op.kind == "func.return" and op.parent == end)
            and all(whole[producer] in known for producer, _ in side.operands(op))
        ),
    )


def _by_place(side: OpsSide, ops: Iterable[Op]) -> dict[_Place, list[Op]]:
    places: dict[_Place, list[Op]] = {}
    for op in ops:
        places.setdefault(side.place(op), []).append(op)
    return places
