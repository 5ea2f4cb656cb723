"""What a value is made of, as a number: the same in two modules that compute it alike.

Names, lines and the order of ops do not matter, nor how anything is sharded.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from hashlib import blake2b
from operator import itemgetter
from typing import Final

from sdyscope.graph import Op, OpGraph, TensorType
from sdyscope.graph.attribute_values import AttributeValue, Structure
from sdyscope.graph.custom_calls import has_own_configuration


@dataclass(frozen=True)
class Structures:
    """Numbers for the ops of a module, by their ids.

    Attributes:
        graph: the module.
        own: what each op is and what it is computed from; what its regions hold, or the function
            that it calls, left out.
        whole: the same with regions and functions: equal for two ops of equal results.
    """

    graph: OpGraph
    own: Sequence[int]
    whole: Sequence[int]

    def inside(self, op: int) -> Hashable:
        """The number of an op, with the calls of the function that it is in."""
        return self._contexts.get(self.graph.ops[op].function, ()), self.whole[op]

    @cached_property
    def _contexts(self) -> Mapping[str, Hashable]:
        """From where each function is called, by its name."""
        contexts: dict[str, Hashable] = {}
        calls: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for name in reversed(_callees_first(self.graph)):
            contexts[name] = tuple(sorted(Counter(calls.pop(name, ())).items()))
            for op in _called(self.graph, name):
                for callee in _functions_of(self.graph, op):
                    calls[callee].append((hash(contexts[name]), self.whole[op.id]))
        return contexts


def structures(a: OpGraph, b: OpGraph) -> tuple[Structures, Structures]:
    """For each op of two modules a number for what it computes and from what.

    A constraint is an op, whatever it says; an argument of main is its pytree path, one of another
    function or region where it stands.
    """
    numbers = _Numbers()
    first, second = (_Numbering(graph, numbers).result() for graph in (a, b))
    return first, second


def compute_alike(a: OpGraph, b: OpGraph) -> bool:
    """Whether two modules have the same ops, each of the same, however they are sharded."""
    first, second = structures(a, b)
    return sorted(first.whole) == sorted(second.whole)


class _Numbers(dict[Hashable, int]):
    """A number for each key, counted as they come."""

    def __missing__(self, key: Hashable) -> int:
        number = self[key] = len(self)
        return number


class _Digests(dict[Hashable, int]):
    """A number of 64 bits for each key, the same in every process."""

    def __missing__(self, key: Hashable) -> int:
        digest = blake2b(repr(key).encode(), digest_size=8).digest()
        number = self[key] = int.from_bytes(digest)
        return number


class Marks:
    """What values of one module are told apart by, in texts that another module has alike.

    Each looks no further back than it must, so that a change elsewhere leaves it as it is.

    Args:
        graph: the module.
        path: gives the name that an argument of main has where a value is near to it.
    """

    #: How many ops back is looked, before all that a value is computed from is.
    _DEPTHS: Final = (2, 4, 8, 16)

    def __init__(self, graph: OpGraph, path: Callable[[str], str]) -> None:
        self._graph = graph
        self._path = path
        self._digests = _Digests()
        self._numbering = _Numbering(graph, self._digests)
        self._known: dict[tuple[int, int], int] = {}
        self._nowhere = bytes(len(graph.ops))

    def of(self, ops: Sequence[int]) -> tuple[str, ...]:
        """Eight hexadecimal digits for each op: the same for two that compute the same."""
        near = self._near_marks(ops, self._DEPTHS[0])
        if len(set(near)) == len(ops):
            return near
        exact = _hexadecimal(self._digests[self._whole.inside(op)] for op in ops)
        for depth in self._DEPTHS:
            near = self._near_marks(ops, depth)
            if len(set(near)) >= len(set(exact)):
                return near
        return exact

    def _near_marks(self, ops: Sequence[int], depth: int) -> tuple[str, ...]:
        return _hexadecimal(self._near(op, depth) for op in ops)

    @cached_property
    def _whole(self) -> Structures:
        return self._numbering.result()

    def _near(self, node: int, depth: int) -> int:
        """The number of an op by what it is computed from, some ops back."""
        known = self._known.get((node, depth))
        if known is None:
            op = self._graph.ops[node]
            key: Hashable
            if op.argument >= 0:
                name, *rest = _argument(self._graph, op, self._nowhere)
                key = (self._path(name) if isinstance(name, str) else name), *rest
            else:
                said = self._numbering.said(op)[0] if op.attributes else _NOTHING_SAID[0]
                operands = self._graph.operand_values[node] if depth else ()
                made_of = tuple([(self._near(of, depth - 1), result) for of, result in operands])
                key = op.kind, _texts(op.types), said, made_of
            known = self._known[node, depth] = self._digests[key]
        return known


def _hexadecimal(numbers: Iterable[int]) -> tuple[str, ...]:
    return tuple([f"{number & 0xFFFFFFFF:08x}" for number in numbers])


def likenesses(a: OpGraph, b: OpGraph) -> tuple[Sequence[int], Sequence[int]]:
    """For each op of two modules a number that is equal where their `structures` nearly are.

    Attributes, regions and constraints do not matter: the number tells apart, it proves nothing.
    """
    numbers = _Numbers()
    first, second = (_alike(graph, numbers) for graph in (a, b))
    return first, second


def _alike(graph: OpGraph, numbers: dict[Hashable, int]) -> Sequence[int]:
    alike: list[int] = []
    passed: dict[int, Hashable] = {}  # a constraint -> its operand
    for op in graph.ops:
        made_of = tuple(
            [
                passed.get(producer, (alike[producer], result))
                for producer, result in graph.operand_values[op.id]
                if producer < op.id  # In a graph region others come later.
            ]
        )
        key: Hashable = _own(graph, op, alike), made_of
        if op.is_constraint and made_of:
            key = passed[op.id] = made_of[0]
        alike.append(numbers[key])
    return alike


class _Numbering:
    """One module's.

    Args:
        graph: the module.
        numbers: what numbers stand for, of both modules.
    """

    def __init__(self, graph: OpGraph, numbers: dict[Hashable, int]) -> None:
        self.graph = graph
        self.numbers = numbers
        self.own = [-1] * len(graph.ops)
        self.whole = [-1] * len(graph.ops)
        self.functions: dict[str, int] = {}
        self.attributes: dict[int, tuple[Hashable, tuple[str, ...]]] = {}

    def result(self) -> Structures:
        """The numbers of all ops."""
        for name in _callees_first(self.graph):
            self.functions[name] = self.body(self.graph.functions[name].op)
        returned = self.graph.returned
        for op in self.graph.results():
            value = returned.get(op.result)
            made_of = None if value is None else (self.whole[value[0]], value[1])
            self.own[op.id] = self.whole[op.id] = self.number(
                ("result", op.scope or op.result, made_of)
            )
        return Structures(self.graph, self.own, self.whole)

    def number(self, key: Hashable) -> int:
        """The number of what is told by a key."""
        return self.numbers[key]

    def body(self, function: int) -> int:
        """Numbers what is in a function, and gives the number of what it computes."""
        ops, own, whole = self.graph.ops, self.own, self.whole
        operand_values, numbers = self.graph.operand_values, self.numbers
        ends: list[tuple[int, dict[int, int]]] = [(function, {})]
        for node in range(function + 1, len(ops)):
            op = ops[node]
            if op.is_result or op.parent == ops[function].parent:
                break
            if op.parent == node - 1 != function:
                ends.append((node - 1, {}))
            while ends[-1][0] != op.parent:
                self.close(*ends.pop())
            ends[-1][1][op.region] = node
            if op.argument >= 0:
                own[node] = whole[node] = self.number(("argument", _argument(self.graph, op, own)))
                continue
            operands = operand_values[node]
            made_of = tuple([(whole[producer], result) for producer, result in operands])
            said, names = self.said(op) if op.attributes else _NOTHING_SAID
            types = op.types
            text: Hashable = types[0].text if len(types) == 1 else _texts(types)
            own[node] = whole[node] = numbers[op.kind, text, said, made_of]
            if names:
                called = tuple([self.functions.get(name, -1) for name in names])
                whole[node] = self.number((own[node], called))
        while len(ends) > 1:
            self.close(*ends.pop())
        return self.number(("function", self.returned(ends[0][1])))

    def close(self, node: int, ends: Mapping[int, int]) -> None:
        """Numbers an op with what its regions return."""
        self.whole[node] = self.number((self.whole[node], self.returned(ends)))

    def returned(self, ends: Mapping[int, int]) -> Hashable:
        """What the last op of each region is."""
        return tuple([(region, self.whole[end]) for region, end in ends.items()])

    def said(self, op: Op) -> tuple[Hashable, tuple[str, ...]]:
        """The attributes of an op that say what it computes, and the functions that it calls."""
        key = id(op.attributes)
        known = self.attributes.get(key)
        if known is None:
            known = self.attributes[key] = (
                (op.call_target, _comparable_fields(computing_attributes(op))),
                tuple(_functions_of(self.graph, op)),
            )
        return known


_NOTHING_SAID: Final[tuple[Hashable, tuple[str, ...]]] = (None, ()), ()


def _texts(types: Iterable[TensorType]) -> tuple[str, ...]:
    return tuple([type_.text for type_ in types])


def _own(graph: OpGraph, op: Op, numbers: Sequence[int]) -> Hashable:
    if op.is_argument:
        return _argument(graph, op, numbers)
    return op.kind, op.call_target if op.attributes else None, _texts(op.types)


def _argument(graph: OpGraph, op: Op, numbers: Sequence[int]) -> tuple[Hashable, ...]:
    types = _texts(op.types)
    if graph.is_main_argument(op):
        return op.location.scope or op.argument, types
    is_function = op.parent is None or graph.ops[op.parent].kind == "func.func"
    return -1 if is_function else numbers[op.parent or 0], op.region, op.argument, types


def _functions_of(graph: OpGraph, op: Op) -> Iterator[str]:
    """The functions that an op calls or computes with, by name."""
    if not op.attributes:
        return
    called = op.attributes.get("called_computations")
    for name in (op.callee, *(called if isinstance(called, tuple) else ())):
        if name in graph.functions:
            yield name


def _called(graph: OpGraph, name: str) -> Iterator[Op]:
    """The ops of a function that call others."""
    start = graph.functions[name].op
    for node in range(start + 1, len(graph.ops)):
        op = graph.ops[node]
        if op.is_result or op.parent == graph.ops[start].parent:
            break
        if op.attributes:
            yield op


def _callees_first(graph: OpGraph) -> list[str]:
    """The names of the functions, each after those that it calls."""
    callees = {
        name: {callee for op in _called(graph, name) for callee in _functions_of(graph, op)}
        for name in graph.functions
    }
    try:
        return list(TopologicalSorter(callees).static_order())
    except CycleError:  # No compiler takes it: what calls itself is told by its name.
        return list(graph.functions)


# --- attributes -----------------------------------------------------------------------------------

#: What is compared as an annotation, or is JAX's to choose: names of functions, numbers of
#: channels. What a function is is in the numbers of what calls it.
_NOT_COMPUTING = frozenset(
    {
        "arg_attrs",
        "called_computations",
        "callee",
        "channel_id",
        "decomposition",
        "function_type",
        "in_shardings",
        "manual_axes",
        "mhlo.sharding",
        "out_shardings",
        "res_attrs",
        "sdy.sharding",
        "sharding",
        "sharding_per_value",
        "sym_name",
        "sym_visibility",
    }
)


def computing_attributes(op: Op) -> Iterator[tuple[str, AttributeValue]]:
    """The attributes of an op that say what it computes, where and how; fields one by one.

    What is about shardings is compared as annotations. What a custom call is told is left out where
    it may differ for the same call.
    """
    for attribute, value in op.attributes.items():
        if attribute in _NOT_COMPUTING or _is_default(attribute, value):
            continue
        if attribute in CONFIGURATIONS and not has_own_configuration(op.call_target or ""):
            continue
        if attribute == "channel_handle" and isinstance(value, Structure):
            yield attribute, Structure({**value, "handle": bool(value.get("handle"))}, value.of)
        elif isinstance(value, Structure):
            yield from value.items()
        else:
            yield attribute, value


CONFIGURATIONS = ("backend_config", "mhlo.backend_config")
"""What a custom call is told."""


def _is_default(name: str, value: AttributeValue) -> bool:
    """Whether an attribute says what is so without it, which MLIR's printer leaves out."""
    if name == "api_version":
        return bool(value == 1)
    return value is False or value in ("", ())


def _comparable_fields(attributes: Iterable[tuple[str, AttributeValue]]) -> Hashable:
    """Attributes in the order of their names; two structures may each have a field of one name."""
    by_name = sorted(attributes, key=itemgetter(0))
    return tuple([(name, comparable(value)) for name, value in by_name])


def comparable(value: AttributeValue) -> Hashable:
    """A value that equals another where the two are written alike: not so -0.0 and 0.0."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, tuple):
        return tuple(map(comparable, value))
    if isinstance(value, Mapping):
        return tuple([(name, comparable(value[name])) for name in sorted(value)])
    hashable: Hashable = value
    return hashable
