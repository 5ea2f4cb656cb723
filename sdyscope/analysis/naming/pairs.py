"""The values of two lowered modules that are the same value of the program.

Two modules of one program, for Shardy and for GSPMD, come from one jaxpr in one order, so an op is
the one with its scope, kind and type, in a ``shard_map`` or outside, and where several have those,
the one that comes as late; in two programs, the one that is computed from the same, if there is
one.
Arguments and results are matched by number, constraints as constraints, whatever each partitioner
writes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias
from weakref import WeakKeyDictionary

from sdyscope.analysis.naming.scopes import without_inner
from sdyscope.analysis.naming.structure import Structures, likenesses, structures
from sdyscope.facts.propagated import ValueId
from sdyscope.graph import Op, OpGraph

_Key: TypeAlias = tuple[object, ...]


#: What was found before: of two modules several views ask.
_KNOWN: WeakKeyDictionary[
    OpGraph, WeakKeyDictionary[OpGraph, dict[tuple[bool, bool], Mapping[ValueId, ValueId]]]
] = WeakKeyDictionary()


def value_pairs(
    a: OpGraph, b: OpGraph, *, by_name: bool = False, same_types: bool = False
) -> Mapping[ValueId, ValueId]:
    """For each value of ``a`` that has one, the same value of ``b``.

    Of two programs, values of other types but the same rank can be the same, where nothing else
    is: what is computed in another dtype, or of a larger batch.

    It is worked out once, and remembered for as long as there are the two.

    Where one side has more ops with the same scope, kind and type than the other, those are the
    same whose operands are; what then has no partner is left out.

    Args:
        a: op graph of the first lowered module.
        b: op graph of the second.
        by_name: the two are different programs: arguments and results are matched by pytree path,
            not by number.
        same_types: the two are one program, by two JAX: what has another type is another value.
    """
    known = _KNOWN.setdefault(a, WeakKeyDictionary()).setdefault(b, {})
    way = by_name, same_types
    if way not in known:
        known[way] = MappingProxyType(_pairs(a, b, *way))
    return known[way]


def _pairs(a: OpGraph, b: OpGraph, by_name: bool, same_types: bool) -> dict[ValueId, ValueId]:
    ours, theirs = _ops(a, by_name), _ops(b, by_name)
    # Two modules of one program have one order; in two programs lines may have changed places.
    numbers = structures(a, b) if by_name else None
    computed = () if numbers is None else tuple(_computed(a, b, numbers))
    pairs: dict[ValueId, ValueId] = {}
    unsure: list[tuple[Op, list[Op]]] = []
    for key, ops in ours.items():
        others = theirs.get(key, [])
        if len(ops) != len(others):
            unsure += [(op, others) for op in ops if others]
            continue
        for op, other in _one_to_one(ops, others, computed):
            _pair(pairs, op, other)
    ours_mapped, theirs_mapped = _shard_maps(a), _shard_maps(b)
    for scope, ours_here in ours_mapped.items():
        others_found = theirs_mapped.get(scope, [])
        if len(ours_here) == len(others_found):
            for values, other_values in zip(ours_here, others_found, strict=True):
                pairs.update(zip(values, other_values, strict=False))
    _pair_by_operands(pairs, unsure, a, b, numbers)
    if numbers is not None:
        _pair_alone(pairs, a, b, _renamed)
        if not same_types:
            _pair_alone(pairs, a, b, _retyped)
        _pair_constants(pairs, a, b, numbers)
    if not same_types:
        return pairs
    return {
        value: other
        for value, other in pairs.items()
        if a.ops[value[0]].types[value[1]] == b.ops[other[0]].types[other[1]]
    }


_Structures: TypeAlias = tuple[Structures, Structures]
_Computed: TypeAlias = tuple[Callable[[int], Hashable], Callable[[int], Hashable]]


def _computed(a: OpGraph, b: OpGraph, numbers: _Structures) -> Iterator[_Computed]:
    """What the ops of two modules compute and from what, by id: exactly, then nearly."""
    first, second = numbers
    yield first.inside, second.inside
    ours, theirs = likenesses(a, b)
    yield ours.__getitem__, theirs.__getitem__


def _one_to_one(
    ops: Sequence[Op], others: Sequence[Op], computed: Iterable[_Computed]
) -> Iterator[tuple[Op, Op]]:
    """As many ops of two sides: first those that compute the same, then in order."""
    left, right = list(ops), list(others)
    for ours, theirs in computed if len(ops) > 1 else ():
        waiting: dict[Hashable, deque[Op]] = {}
        for other in right:
            waiting.setdefault(theirs(other.id), deque()).append(other)
        rest = []
        for op in left:
            alike = waiting.get(ours(op.id))
            if alike:
                yield op, alike.popleft()
            else:
                rest.append(op)
        left = rest
        right = sorted((each for alike in waiting.values() for each in alike), key=lambda o: o.id)
    yield from zip(left, right, strict=True)


def _pair_by_operands(
    pairs: dict[ValueId, ValueId],
    unsure: Iterable[tuple[Op, list[Op]]],
    a: OpGraph,
    b: OpGraph,
    numbers: _Structures | None,
) -> None:
    """Pairs those of more ops on one side than on the other whose operands are the same.

    Args:
        pairs: what is known to be the same; what is found is added.
        unsure: ops, each with those that it may be.
        a: op graph of the first module.
        b: that of the second.
        numbers: of what their values are made of; None where only what is in ``pairs`` is the same.
    """
    taken = {value[0] for value in pairs.values()}
    users: dict[int, dict[ValueId, list[Op]]] = {}
    for op, others in sorted(unsure, key=lambda entry: entry[0].id):
        ours = _operands(a, op)
        known = next((pairs[value] for value in ours if value in pairs), None)
        if known is None:
            continue
        if id(others) not in users:
            by_operand = users[id(others)] = {}
            for other in others:
                for value in dict.fromkeys(_operands(b, other)):
                    by_operand.setdefault(value, []).append(other)
        for other in users[id(others)].get(known, ()):
            theirs = _operands(b, other)
            if other.id in taken or len(ours) != len(theirs):
                continue
            if all(
                pairs[mine] == value if mine in pairs else _made_alike(mine, value, numbers)
                for mine, value in zip(ours, theirs, strict=True)
            ):
                taken.add(other.id)
                _pair(pairs, op, other)
                break


def _made_alike(value: ValueId, other: ValueId, numbers: _Structures | None) -> bool:
    """Whether two values are made of the same, such as a number that all elements are."""
    return numbers is not None and (numbers[0].whole[value[0]], value[1]) == (
        numbers[1].whole[other[0]],
        other[1],
    )


def _pair_alone(
    pairs: dict[ValueId, ValueId],
    a: OpGraph,
    b: OpGraph,
    keyed: Callable[[OpGraph], Iterator[tuple[Op, _Key]]],
) -> None:
    """Pairs ops without a partner, in order, where both sides have as many with a key."""
    known = {value[0] for value in pairs}, {value[0] for value in pairs.values()}
    sides: list[dict[_Key, list[Op]]] = []
    for graph, paired in zip((a, b), known, strict=True):
        by_key: dict[_Key, list[Op]] = {}
        for op, key in keyed(graph):
            if op.id not in paired:
                by_key.setdefault(key, []).append(op)
        sides.append(by_key)
    for key, ops in sides[0].items():
        others = sides[1].get(key, [])
        if len(ops) == len(others):
            for op, other in zip(ops, others, strict=True):
                _pair(pairs, op, other)


def _renamed(graph: OpGraph) -> Iterator[tuple[Op, _Key]]:
    """What ops are the same by, but for the names of inner functions."""
    for op, key in _keyed(graph, True):
        if len(key) == 3 and isinstance(key[1], str):
            kind, scope, types = key
            yield op, (kind, without_inner(str(scope)), types)


def _retyped(graph: OpGraph) -> Iterator[tuple[Op, _Key]]:
    """What ops are the same by, but for the dtype and for sizes."""
    for op, key in _keyed(graph, True, _ranks):
        if all(type_.shape is not None for type_ in op.types):
            yield op, key


def _pair_constants(
    pairs: dict[ValueId, ValueId], a: OpGraph, b: OpGraph, numbers: _Structures
) -> None:
    """Pairs constants, and what is made of some, that ops use which are the same.

    Where JAX writes a constant, and with which scope, is another in each version.
    """
    taken = set(pairs.values())
    waiting = list(pairs.items())
    for value, other in waiting:
        for constant, partner in zip(
            _operands(a, a.ops[value[0]]), _operands(b, b.ops[other[0]]), strict=False
        ):
            ours, theirs = a.ops[constant[0]], b.ops[partner[0]]
            if constant in pairs or partner in taken or ours.kind != theirs.kind:
                continue
            if _operands(a, ours) or _operands(b, theirs):
                is_same = _made_alike(constant, partner, numbers)
            else:
                is_same = ours.types == theirs.types and not ours.is_argument
            if is_same:
                pairs[constant] = partner
                taken.add(partner)
                waiting.append((constant, partner))


def _pair(pairs: dict[ValueId, ValueId], op: Op, other: Op) -> None:
    for result in range(len(op.types)):
        pairs[op.id, result] = other.id, result


def _operands(graph: OpGraph, op: Op) -> list[ValueId]:
    return list(graph.operand_values[op.id])


def _shard_maps(graph: OpGraph) -> dict[str, list[list[ValueId]]]:
    """What enters and leaves each ``shard_map``, as its body and its users see it, by scope.

    Shardy has one op whose region is the body; under GSPMD the body is a called function, and
    custom calls stand for the boundary.
    """
    prefix = graph.program_scope
    mapped: dict[str, list[list[ValueId]]] = {}
    for op in graph.ops:
        if op.kind == "sdy.manual_computation":
            values = [(child.id, 0) for child in graph.children(op) if child.is_argument]
            values += [(op.id, result) for result in range(len(op.types))]
        elif graph.calls_shard_map_body(op):
            values = [*_operands(graph, op), *_leaving(graph, op)]
        else:
            continue
        mapped.setdefault(op.scope.removeprefix(prefix), []).append(values)
    return mapped


def _leaving(graph: OpGraph, call: Op) -> Iterator[ValueId]:
    """The results of a called body, as they are after the boundary, in order."""
    for result in range(len(call.types)):
        value = (call.id, result)
        for local, _ in graph.uses(call, result):
            for full, _ in graph.uses(local) if local.call_target == "Sharding" else ():
                if full.call_target == "SPMDShardToFullShape":
                    value = (full.id, 0)
        yield value


def _ops(graph: OpGraph, by_name: bool) -> dict[_Key, list[Op]]:
    ops: dict[_Key, list[Op]] = {}
    for op, key in _keyed(graph, by_name):
        ops.setdefault(key, []).append(op)
    return ops


def _texts(op: Op) -> Hashable:
    return tuple(type_.text for type_ in op.types)


def _ranks(op: Op) -> Hashable:
    return tuple(len(type_.shape or ()) for type_ in op.types)


def _keyed(
    graph: OpGraph, by_name: bool, types_of: Callable[[Op], Hashable] = _texts
) -> Iterator[tuple[Op, _Key]]:
    prefix = graph.program_scope
    for op in graph.ops:
        if not op.types:
            continue
        types = types_of(op)
        if op.is_result:
            named: object = op.scope if by_name and op.scope else op.result
            yield op, ("result", named, types)
            continue
        if graph.is_main_argument(op):
            own: object = op.scope if by_name and op.scope else op.argument
            yield op, ("argument", own, types)
        elif op.is_argument and op.parent is not None:
            around = graph.ops[op.parent]
            scope = around.scope.removeprefix(prefix) if around.scope else around.function
            yield op, ("block argument", around.kind, scope, op.region, op.argument, types)
        else:
            # Under GSPMD the body of a shard_map is a function, which comes behind main.
            inside = op.id in graph.inside_shard_maps
            yield op, (_kind(op), op.scope.removeprefix(prefix), (types, inside))


def _kind(op: Op) -> str:
    if op.is_constraint:
        return "constraint"
    return f"{op.kind} @{op.call_target}" if op.call_target else op.kind
