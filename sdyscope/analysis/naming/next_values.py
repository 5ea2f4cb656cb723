"""What a result is to the argument whose path it has: its next value, its gradient, or neither.

A path alone does not tell: ``jax.value_and_grad(loss)(params, batch)[1]`` has the paths of
``params``, and so has an average of two trees that both have them. What a result is made from does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from sdyscope.analysis.naming.paths import Leaf, alike, mirrored
from sdyscope.analysis.naming.roles import pass_arguments
from sdyscope.analysis.naming.scopes import is_recomputed, is_transposed
from sdyscope.facts.lint import NextValueRelation
from sdyscope.facts.program import Partitioner
from sdyscope.facts.tensors import Tensor, TensorTable
from sdyscope.graph import Op, OpGraph
from sdyscope.graph.model import ValueId
from sdyscope.graph.op_kinds import COLLECTIVES, WRITERS, is_elementwise
from sdyscope.walk import reached

#: Those of them that add something to an operand, or take it away.
_ADDING: Final = frozenset({"stablehlo.add", "stablehlo.subtract"})
#: What holds no tensor of its own: a scale, zeros that gradients are added to.
_FILLED: Final = frozenset({"stablehlo.constant", "stablehlo.iota"})
#: Ops that keep these operands as they are, with something added or written over.
_KEEPING: Final[Mapping[str, tuple[int, ...]]] = {
    "stablehlo.add": (0, 1),
    "stablehlo.subtract": (0,),
    "stablehlo.select": (1, 2),
    "stablehlo.maximum": (0, 1),
    "stablehlo.minimum": (0, 1),
    "stablehlo.clamp": (1,),
}

Numbered: TypeAlias = tuple[Leaf, int | None]
"""An argument or result of main, and its number there; None where that is not known."""

_Place: TypeAlias = tuple[ValueId, tuple[int, ...]]
"""A value, and the calls that it is in, the outermost first."""


@dataclass(frozen=True, slots=True)
class Continuing:
    """What a result of main is made from, element by element.

    Attributes:
        arguments: numbers of main's arguments that go into it so.
        kept: those of them that it has as they are, with something added or written over.
        continued: those of these to which a step is added, if anything but a number is: what comes
            of the backward pass, and to a parameter not by way of another's next value. A sum with
            anything else can be an activation, a sample, or weights with an adapter's product.
        is_gradient: whether the backward pass made it: cotangents and numbers, and nothing else, go
            into it.
    """

    arguments: frozenset[int]
    kept: frozenset[int]
    continued: frozenset[int]
    is_gradient: bool


@dataclass(frozen=True, slots=True)
class NextValue:
    """The argument that a result has the path of.

    Attributes:
        argument: its place among the arguments.
        relation: what the result is to it.
    """

    argument: int
    relation: NextValueRelation


def next_values(
    results: Sequence[Numbered], arguments: Sequence[Numbered], graph: OpGraph
) -> dict[int, NextValue]:
    """Of each result that may be an argument's next value, which, and what it is to it, by places.

    Arguments and results are paired by path, as ``mirrored`` does, but where several arguments have
    the path, as a teacher's and a student's parameters do, and the result has just one of them as
    it is, with something added or written over: then with that.

    * The gradient: the backward pass made it, and a pass uses the argument. The caller still needs
      the argument, to be updated with it.
    * The next value: the result has the argument with a step added, or something written over, or
      is made from one that no pass uses, as an optimizer's state; and from no other argument that
      has the same place in its tree and no next value of its own. Of ``average(params, averaged)``
      that does not tell whose next value is returned; nor which it is where several results are so.
    * What only has its path, or where both are bare arrays its type, may be its next value.

    Args:
        results: all results, in order.
        arguments: the arguments.
        graph: op graph of the module.
    """
    leaves = [leaf for leaf, _ in results], [leaf for leaf, _ in arguments]
    numbers = [number for _, number in arguments]
    by_path = alike(*leaves)
    used = pass_arguments(graph)
    sources = continuing(graph, used or ())
    pairs = _by_what_is_kept(results, numbers, mirrored(*leaves), by_path, sources)
    claimed = set(pairs.values())

    def unclear(argument: int) -> NextValueRelation:
        return "path" if len(leaves[1][argument].keys) > 1 else "type"

    def relation(result: int, argument: int) -> NextValueRelation:
        at, number = results[result][1], numbers[argument]
        source = None if at is None else sources.get(at)
        if source is None or number is None:
            return unclear(argument)
        in_pass = used is not None and number in used
        if source.is_gradient:
            return "gradient" if in_pass else unclear(argument)
        others = {numbers[other] for other in by_path[result] if other not in claimed}
        into = source.continued
        if not in_pass and used is not None:
            into |= source.arguments - source.kept
        certain = number in into and not (others - {number}) & source.arguments
        return "next value" if certain else unclear(argument)

    relations = {result: relation(result, argument) for result, argument in pairs.items()}
    # Of several, as of a line search, nothing tells which the caller goes on with.
    following = Counter(pairs[at] for at, known in relations.items() if known == "next value")
    return {
        result: NextValue(
            argument,
            unclear(argument)
            if relations[result] == "next value" and following[argument] > 1
            else relations[result],
        )
        for result, argument in pairs.items()
    }


def next_values_of_rows(
    results: Iterable[Tensor],
    arguments: Iterable[Tensor],
    partitioner: Partitioner,
    graph: OpGraph,
) -> dict[int, NextValue]:
    """See ``next_values``: the same of a table's rows.

    Args:
        results: the results.
        arguments: the arguments.
        partitioner: in whose module they are.
        graph: op graph of that module.
    """

    def numbered(row: Tensor) -> Numbered:
        there = row.lowered.get(partitioner)
        return Leaf.of(row), None if there is None else there.index

    return next_values([*map(numbered, results)], [*map(numbered, arguments)], graph)


def _by_what_is_kept(
    results: Sequence[Numbered],
    numbers: Sequence[int | None],
    pairs: Mapping[int, int],
    by_path: Mapping[int, Sequence[int]],
    sources: Mapping[int, Continuing],
) -> dict[int, int]:
    """Pairs by path, in which a result that keeps just one argument of its path has that."""
    kept: dict[int, int] = {}
    for result in pairs:
        at = results[result][1]
        source = None if at is None else sources.get(at)
        if source is None:
            continue
        own = [other for other in by_path[result] if numbers[other] in source.kept]
        if len(own) == 1 and own[0] not in kept.values():
            kept[result] = own[0]
    paired = dict(pairs)
    for result, argument in pairs.items():
        if result in kept:
            paired[result] = kept[result]
        elif argument in kept.values():
            # Its argument is another's next value; what is left of its path may have it.
            left = [other for other in by_path[result] if other not in kept.values()]
            free = [other for other in left if other not in paired.values()]
            paired[result] = (*free, *left, argument)[0]
    return paired


def pairs_of_table(
    table: TensorTable, module: tuple[Partitioner, OpGraph] | None
) -> dict[int, tuple[int, NextValueRelation | None]]:
    """Of each result that may be the next value of an argument, which, and what it is to it.

    Args:
        table: the program's tensors.
        module: a partitioner and the op graph of its module; None where there is none, and the
            relations are then not known.

    Returns:
        Flat indices, and None for what is not known.
    """
    arguments, results = (
        {row.index or 0: row for row in table.tensors if row.kind == kind}
        for kind in ("argument", "result")
    )
    numbers, others = sorted(results), sorted(arguments)
    ours, theirs = [results[number] for number in numbers], [arguments[other] for other in others]
    if module is None:
        pairs = mirrored([*map(Leaf.of, ours)], [*map(Leaf.of, theirs)])
        return {numbers[result]: (others[argument], None) for result, argument in pairs.items()}
    partitioner, graph = module
    known = next_values_of_rows(ours, theirs, partitioner, graph)
    return {
        numbers[result]: (others[value.argument], value.relation) for result, value in known.items()
    }


def continuing(graph: OpGraph, parameters: Collection[int] = ()) -> Mapping[int, Continuing]:
    """Of each result of main, by its number there, what it is made from.

    Elementwise ops are followed, those that pass their operand on in another form or cut or join
    it, those that write one operand into another, sums, collectives, and the boundaries of
    functions, loops, branches and ``shard_map``. Ops of a backward pass are told by their scopes,
    in which JAX writes ``transpose``: gradients that are scaled, clipped, cast, constrained, summed
    over devices, examples or the iterations of a loop stay gradients.

    Args:
        graph: op graph of the module.
        parameters: numbers of main's arguments that the passes use, as far as that is known.
    """
    within: dict[ValueId, list[ValueId]] = {}
    for kind, value, other in graph.crossings():
        if kind not in ("call", "return"):
            within.setdefault(other, []).append(value)
    numbers = {} if graph.main is None else {a.node: a.index for a in graph.main.arguments}

    def is_end(op: Op) -> bool:
        return op.id in numbers or _is_of_backward_pass(op) or _is_filled(graph, op)

    def crossed(value: ValueId, calls: tuple[int, ...]) -> Sequence[_Place] | None:
        """Where a value is from that a region or function is given, or gives; None of any other."""
        op = graph.ops[value[0]]
        callee = graph.callee(op)
        if callee is not None:
            last = graph.terminators.get((callee.op, 0))
            given = () if last is None else graph.operand_values[last.id]
            return [(given[value[1]], (*calls, op.id))] if value[1] < len(given) else []
        if op.is_argument and op.parent is not None and graph.ops[op.parent].kind == "func.func":
            if not calls:
                return []
            given = graph.operand_values[calls[-1]]
            return [(given[op.argument], calls[:-1])] if op.argument < len(given) else []
        return [(each, calls) for each in within[value]] if value in within else None

    def made_of(place: _Place) -> Sequence[_Place]:
        value, calls = place
        op = graph.ops[value[0]]
        if is_end(op):
            return ()
        places = crossed(value, calls)
        if places is not None:
            return places
        return [(each, calls) for each in _operands_of(graph, op, value[1])]

    def kept_in(place: _Place, *, beside_numbers: bool) -> Sequence[_Place]:
        value, calls = place
        op = graph.ops[value[0]]
        kept = _KEEPING.get(op.kind)
        if is_end(op) or kept is None:
            followed = op.passing is not None or op.kind in WRITERS or graph.callee(op) is not None
            inside = value in within or op.is_argument
            return made_of(place) if followed or inside else ()
        operands = graph.operand_values[op.id]
        if beside_numbers and op.kind in _ADDING:
            kept = tuple(
                each for each in kept if _is_filled(graph, graph.ops[operands[1 - each][0]])
            )
        return [(operands[number], calls) for number in kept]

    def kept_of(value: ValueId, *, beside_numbers: bool = False) -> frozenset[int]:
        start: _Place = (value, ())
        step = partial(kept_in, beside_numbers=beside_numbers)
        nodes = {place[0][0] for place in reached([start], step)}
        return frozenset(numbers[node] for node in nodes if node in numbers)

    everywhere = {number: kept_of(value) for number, value in graph.returned.items()}
    updated = {
        graph.returned[number]
        for number, kept in everywhere.items()
        if not kept.isdisjoint(parameters)
    }
    stepped = _after_backward_pass(graph) if any(everywhere.values()) else ()
    directly = _after_backward_pass(graph, updated) if updated else ()

    def of(number: int, value: ValueId) -> Continuing:
        start: _Place = (value, ())
        ends = {place[0][0] for place in reached([start], made_of) if not made_of(place)}
        kept = everywhere[number]
        continued = {
            each for each in kept if value in (directly if each in parameters else stepped)
        }
        if continued != kept:
            continued |= kept_of(value, beside_numbers=True)
        backward = {node for node in ends if _is_of_backward_pass(graph.ops[node])}
        filled = {node for node in ends if _is_filled(graph, graph.ops[node])}
        return Continuing(
            frozenset(numbers[node] for node in ends if node in numbers),
            kept,
            frozenset(continued),
            bool(backward) and ends == backward | filled,
        )

    return {number: of(number, value) for number, value in graph.returned.items()}


def _after_backward_pass(graph: OpGraph, ends: Collection[ValueId] = ()) -> Collection[ValueId]:
    """What comes of a backward pass, in any way but through these values."""
    across: dict[ValueId, list[ValueId]] = {}
    for _, value, other in graph.crossings():
        across.setdefault(value, []).append(other)

    def made_from(value: ValueId) -> Iterator[ValueId]:
        if value in ends:
            return
        yield from across.get(value, ())
        for user, _ in graph.users(value):
            yield from ((user, result) for result in range(len(graph.ops[user].types)))

    starts = (
        (op.id, result)
        for op in graph.operations()
        if _is_of_backward_pass(op)
        for result in range(len(op.types))
    )
    return set(reached(starts, made_from))


def _operands_of(graph: OpGraph, op: Op, result: int) -> Sequence[ValueId]:
    """The operands whose elements a result has, or is computed from at their place."""
    operands = graph.operand_values[op.id]
    if op.passing is not None:
        return operands[result : result + 1]
    match op.kind:
        case "stablehlo.dynamic_update_slice":
            return operands[:2]
        case "stablehlo.scatter":
            return operands[result :: len(op.types) + 1][:2]
        case "stablehlo.reduce":
            return operands[result : result + 1]
        case "stablehlo.concatenate":
            return operands
    if op.mnemonic in COLLECTIVES:
        return operands[result : result + 1]
    if not is_elementwise(op.kind):
        return ()
    shape = op.types[result].shape
    return [each for each in operands if graph.ops[each[0]].types[each[1]].shape == shape]


def _is_of_backward_pass(op: Op) -> bool:
    return is_transposed(op.scope) and not is_recomputed(op.scope)


def _is_filled(graph: OpGraph, op: Op) -> bool:
    """Whether it is a constant, or one number everywhere."""
    if op.kind in _FILLED:
        return True
    given = graph.operand_values[op.id]
    if op.kind != "stablehlo.broadcast_in_dim" or not given:
        return False
    (node, result), *_ = given
    return graph.ops[node].types[result].shape == ()


def only_moves(graph: OpGraph) -> bool:
    """Whether a program computes nothing: it is there to place its arguments otherwise."""
    return all(_moves(op) for op in graph.operations())


def _moves(op: Op) -> bool:
    return op.passing is not None or op.callee is not None or not op.types
