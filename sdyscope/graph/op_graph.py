"""The op graph: what the readers build, and every later stage looks at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Literal

from sdyscope.formatters import Summarized
from sdyscope.graph.attribute_values import has_unparsed
from sdyscope.graph.boundaries import boundary_edges
from sdyscope.graph.locations import UNKNOWN, Location, scope_in, shared_scope
from sdyscope.graph.model import (
    AttributeValue,
    Edge,
    EdgeKind,
    Function,
    NotUnderstood,
    Op,
    Sharding,
    ValueId,
)
from sdyscope.values.mesh import Mesh
from sdyscope.values.source import SourceLocation, line_of, lines_apart
from sdyscope.walk import reached

if TYPE_CHECKING:
    from sdyscope.graph.networkx_graph import ModuleGraph


@dataclass(eq=False, repr=False)
class OpGraph(Summarized):
    """A module as a graph.

    Attributes:
        ops: every op, block argument and result of main, `ops[id].id == id`.
        operand_values: the operands of each op, in order, by its id.
        name: symbol name of the module.
        attributes: the module's attributes (`mhlo.num_partitions`, `mhlo.num_replicas`, ...).
        meshes: the module's `sdy.mesh` symbols; the text of one that was not understood.
        functions: the module's functions by name, in order.
        not_understood: all that could not be read.
        reader: `bindings` (MLIR's own) or `text` (sdyscope's tolerant reader).
        stage: whose shardings values have: those written when it was `lowered`, or those that
            propagation decided.
        operand_numbers: of an op some of whose operands could not be read, the numbers of those in
            `operand_values`.
        before: the same ops with the shardings of the stage before; None when it was lowered.
        beside: the shardings of stages that speak of some values alone, `requested` and `compiled`,
            where they were asked for.
    """

    ops: list[Op]
    operand_values: list[Sequence[ValueId]]
    name: str
    attributes: Mapping[str, AttributeValue]
    meshes: dict[str, Mesh | str]
    functions: dict[str, Function]
    not_understood: list[NotUnderstood]
    reader: Literal["bindings", "text"]
    stage: Literal["lowered", "propagated"] = "lowered"
    operand_numbers: dict[int, Sequence[int]] = field(default_factory=dict)
    before: OpGraph | None = None
    beside: Mapping[str, Mapping[ValueId, Sharding]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ops)

    def __iter__(self) -> Iterator[Op]:
        return iter(self.ops)

    @cached_property
    def nx(self) -> ModuleGraph:
        """The module as a NetworkX `MultiDiGraph`, made when it is first asked for.

        A node is the id of an op, block argument or result of main. Its data are texts and numbers
        (`NODE_KEYS`), which every writer of NetworkX takes, and `nx.nodes[id].op` is the `Op`, with
        all of its attributes as values. An edge has the texts and numbers of its `Edge`
        (`EDGE_KEYS`); the key of an SSA use (`data`, `capture`) is the operand's number, the key of
        any other edge a string.
        """
        # Not above: few ask for it, and importing NetworkX takes longer than all else here.
        from sdyscope.graph.networkx_graph import module_graph

        return module_graph(self)

    @property
    def main(self) -> Function | None:
        """The function `main`, else the first public one; None without functions."""
        if "main" in self.functions:
            return self.functions["main"]
        public = (f for f in self.functions.values() if f.visibility in ("", "public"))
        return next(public, None)

    def is_main_argument(self, op: Op) -> bool:
        """Whether a node is an argument of main."""
        return op.is_argument and self.main is not None and op.parent == self.main.op

    def operations(self) -> Iterator[Op]:
        """The operations in program order, without block arguments and results of main."""
        return (op for op in self.ops if op.argument < 0 and op.result < 0)

    def results(self) -> Sequence[Op]:
        """The results of main, in order."""
        return self.ops[self._inside :]

    def without_results(self) -> Sequence[Op]:
        """The operations and block arguments in program order, without the results of main."""
        return self.ops[: self._inside]

    @property
    def _inside(self) -> int:
        """How many nodes there are before the results of main."""
        return len(self.ops) - (0 if self.main is None else len(self.main.results))

    @cached_property
    def terminators(self) -> Mapping[tuple[int, int], Op]:
        """The last op of each region, by the id of the op that has it and the region's number."""
        return {(op.parent, op.region): op for op in self.operations() if op.parent is not None}

    @cached_property
    def returned(self) -> Mapping[int, ValueId]:
        """The SSA value that main returns as each of its results, by the result's index.

        Without the results whose value the text reader did not understand.
        """
        end = None if self.main is None else self.terminators.get((self.main.op, 0))
        if end is None:
            return {}
        return dict(zip(self._numbers(end.id), self.operand_values[end.id], strict=True))

    @cached_property
    def repeated_names(self) -> Mapping[int, int]:
        """The ops whose SSA name another op of their function has before them, from 2 on.

        MLIR counts names anew in each region beside another: the condition and the body of a loop.
        """
        counts: dict[tuple[str, str], int] = {}
        repeated: dict[int, int] = {}
        for op in self.ops:
            if op.name:
                key = op.function, op.name
                counts[key] = counts.get(key, 0) + 1
                if counts[key] > 1:
                    repeated[op.id] = counts[key]
        return repeated

    def operands(self, op: Op | int) -> list[tuple[Op, Edge]]:
        """Producer and edge of each SSA operand of `op`, in operand order."""
        node = op if isinstance(op, int) else op.id
        return [(self.ops[value[0]], edge) for _, value, edge in self._uses_by(node)]

    def operand(self, op: Op | int, number: int) -> ValueId | None:
        """The value that is operand `number` of `op`; None where there is none that was read."""
        node = op if isinstance(op, int) else op.id
        values, numbers = self.operand_values[node], self.operand_numbers.get(node)
        if numbers is not None:
            return dict(zip(numbers, values, strict=True)).get(number)
        return values[number] if number < len(values) else None

    def uses(self, op: Op | int, result: int | None = None) -> list[tuple[Op, Edge]]:
        """Consumer and edge of each SSA use of `op`'s results (or of the one given)."""
        node = op if isinstance(op, int) else op.id
        results = range(len(self.ops[node].types)) if result is None else (result,)
        uses = [(*use, (node, result)) for result in results for use in self.users((node, result))]
        if len(results) > 1:
            uses.sort()
        users = [self.ops[consumer] for consumer, _, _ in uses]
        return [
            (user, self._use(user, number, value))
            for user, (_, number, value) in zip(users, uses, strict=True)
        ]

    def users(self, value: ValueId) -> Sequence[tuple[int, int]]:
        """Id of each op that uses a value, and as which operand: `uses` without the edges."""
        return self._users.get(value, ())

    def edges(self) -> Iterator[tuple[int, int, Edge]]:
        """Producer, consumer and edge of every edge, by consumer; those across boundaries last."""
        for producer, consumer, _, edge in self.keyed_edges():
            yield producer, consumer, edge

    def keyed_edges(self) -> Iterator[tuple[int, int, int | str, Edge]]:
        """As `edges`, each with the key that tells it from others between the same two nodes."""
        ops, use, numbers = self.ops, self._use, self.operand_numbers
        for node, values in enumerate(self.operand_values):
            if values:
                user = ops[node]
                numbered = (
                    zip(numbers[node], values, strict=True)
                    if node in numbers
                    else enumerate(values)
                )
                for number, value in numbered:
                    yield value[0], node, number, use(user, number, value)
        yield from self._boundaries

    def boundaries(self) -> Iterator[tuple[int, int, Edge]]:
        """Producer, consumer and edge of every edge across a boundary of a region or function.

        By producer; the NetworkX graph is not made for it.
        """
        for producer, consumer, _, edge in sorted(self._boundaries, key=itemgetter(0)):
            yield producer, consumer, edge

    def crossings(self) -> Iterator[tuple[EdgeKind, ValueId, ValueId]]:
        """What values become across the boundaries of regions and functions, in program order.

        The kind of the edge, the value on this side and the one on the other: an argument of a
        region or function, a result of an op with regions or of a call, a result of main.
        """
        for producer, consumer, edge in self.boundaries():
            inside = 0 if edge.kind in ("region", "call", "loop") else edge.operand
            yield edge.kind, self.source(producer, edge), (consumer, inside)

    def source(self, producer: int, edge: Edge) -> ValueId:
        """The value that an edge of `producer` is about: of a terminator, what it passes on."""
        passed = None
        if edge.kind in ("loop", "yield", "return"):
            passed = self.operand(producer, edge.result)
        return (producer, edge.result) if passed is None else passed

    def entering(self, op: Op | int) -> Sequence[tuple[int, Edge]]:
        """Producer and edge of every edge across a boundary that ends at `op`."""
        return self._entering.get(op if isinstance(op, int) else op.id, ())

    def children(self, op: Op | int, region: int | None = None) -> list[Op]:
        """Block arguments and ops directly inside `op`'s regions (or the one given), in order.

        The results of main are in no region.
        """
        node = op if isinstance(op, int) else op.id
        return [self.ops[i] for i in self.nodes_inside(node, region)]

    def nodes_inside(self, node: int, region: int | None = None) -> Sequence[int]:
        """As `children`, by their ids."""
        inside = self._children.get(node, ())
        return inside if region is None else [i for i in inside if self.ops[i].region == region]

    def callee(self, op: Op | int) -> Function | None:
        """The function that a call goes into; None when `op` is no call of one in the module."""
        name = (self.ops[op] if isinstance(op, int) else op).callee
        return None if name is None else self.functions.get(name)

    @property
    def program_scope(self) -> str:
        """The program's own name as every scope begins with it: `jit(step)`."""
        return f"jit({self.name.removeprefix('jit_')})"

    def calls_shard_map_body(self, op: Op) -> bool:
        """Whether a call is of the body of a `shard_map`, as GSPMD has it: it is given blocks."""
        return op.callee is not None and any(
            producer.call_target == "SPMDFullToShardShape" for producer, _ in self.operands(op)
        )

    @cached_property
    def inside_shard_maps(self) -> frozenset[int]:
        """Ids of what is in the bodies of `shard_map`s, and in the functions called there."""
        entered = (
            op
            for op in self.operations()
            if op.kind == "sdy.manual_computation" or self.calls_shard_map_body(op)
        )
        return frozenset(op.id for op in self.inside(entered))

    def inside(self, ops: Iterable[Op]) -> Iterator[Op]:
        """What is in the regions of some ops, and in the functions called by them or there."""

        def within(node: int) -> list[int]:
            callee = self.callee(node)
            called = () if callee is None else self._children.get(callee.op, ())
            return [*self._children.get(node, ()), *called]

        first = dict.fromkeys(inner for op in ops for inner in within(op.id))
        return map(self.ops.__getitem__, reached(first, within))

    def scope(self, op: Op | int) -> str:
        """The scope of an op with that of the `shard_map` around it, whose body JAX names anew."""
        return self.scope_along([self.ops[op] if isinstance(op, int) else op])

    def scope_along(self, path: Sequence[Op]) -> str:
        """The scope of an op with those of the calls that lead to it, the outermost first.

        What a scan's body is called from has the scope that is in those of the body as well, but
        for the `shard_map` around it: so that comes last.
        """
        scope = ""
        for at in reversed(path):
            scope = scope_in(at.scope, scope)
            while at.parent is not None:
                at = self.ops[at.parent]
                if at.kind == "sdy.manual_computation":
                    scope = scope_in(at.scope, scope)
        return scope.strip("/")

    def unparsed(self) -> Iterator[tuple[int, str]]:
        """Id of the op and name of each attribute that is, or holds, a text without a value.

        Those that say something about sharding are in `not_understood` as well. Those of arguments
        and results are found there, not on their function once more.
        """
        known: dict[int, list[str]] = {}
        for op in self.ops:
            key = id(op.attributes)
            if key not in known:
                known[key] = [
                    name
                    for name, value in op.attributes.items()
                    if name not in ("arg_attrs", "res_attrs") and has_unparsed(value)
                ]
            for name in known[key]:
                yield op.id, name

    def callers(self, function: str) -> list[Op]:
        """The calls of a function, in program order."""
        return [self.ops[i] for i in self._callers.get(function, [])]

    def called_from(self, op: Op) -> Iterator[Op]:
        """An op and the calls that lead to it, of each function the first one."""
        seen: set[str] = set()
        at: Op | None = op
        while at is not None:
            yield at
            if at.function in seen:
                return
            seen.add(at.function)
            at = next(iter(self.callers(at.function)), None)

    def ways_to(self, op: Op) -> tuple[SourceLocation, ...]:
        """The lines behind an op's own that tell it apart; none where the line is reached one way.

        See `sdyscope.values.source.callers`.
        """
        return lines_apart(op.location.callers, self._ways.get(line_of(op.source), ()))

    @cached_property
    def _ways(self) -> dict[tuple[str, int] | None, set[tuple[tuple[str, int] | None, ...]]]:
        ways: dict[tuple[str, int] | None, set[tuple[tuple[str, int] | None, ...]]] = {}
        for location in {id(op.location): op.location for op in self.operations()}.values():
            way = tuple(map(line_of, location.callers))
            ways.setdefault(line_of(location.source), set()).add(way)
        return ways

    def within_calls(self, op: Op) -> Op:
        """An op of a function that is called, with the scope and the lines of the calls around it.

        As XLA names what it inlines. Of several calls the scope is what theirs have in common, and
        an op without a line of its own has that of the calls where they are on one.
        """
        main = self.main
        if op.is_result or op.function not in self.functions:
            return op
        if main is None or op.function == main.name:
            return op
        around, own = self._around(op.function), op.location
        frames, sites = own.frames, own.sites
        if not frames:
            frames, sites = around.frames, around.sites
        scope = scope_in(around.scope, own.scope)
        if scope != own.scope and own.scope.split("/")[0] == around.scope.split("/")[0] != "":
            scope = around.scope  # JAX names what it makes for the first call by where that is.
        return op._replace(location=replace(own, scope=scope, frames=frames, sites=sites))

    def _around(self, function: str) -> Location:
        """Where a function is called: scope and lines."""
        if function not in self._arounds:
            self._arounds[function] = UNKNOWN  # Of one that calls itself nothing more is known.
            calls = [self.within_calls(call).location for call in self.callers(function)]
            lines = {line_of(call.source) for call in calls}
            first = calls[0] if calls else UNKNOWN
            scopes = dict.fromkeys(call.scope for call in calls)
            self._arounds[function] = replace(
                first if len(lines) == 1 else UNKNOWN, scope=shared_scope(list(scopes))
            )
        return self._arounds[function]

    @cached_property
    def _arounds(self) -> dict[str, Location]:
        return {}

    def call_paths(self, function: str) -> Sequence[tuple[int, ...]]:
        """The calls that lead to a function, outermost first, in the order in which they are run.

        One path for each time that it is called; one without calls of the program itself.
        """
        if function not in self._call_paths:
            main = self.main
            within: list[tuple[int, ...]] = []
            self._call_paths[function] = []  # Of one that calls itself nothing more is known.
            for call in self.callers(function):
                within += ((*path, call.id) for path in self.call_paths(call.function))
            is_main = main is not None and main.name == function
            self._call_paths[function] = [()] if is_main else sorted(within)
        return self._call_paths[function]

    @cached_property
    def _call_paths(self) -> dict[str, list[tuple[int, ...]]]:
        return {}

    def _numbers(self, node: int) -> Sequence[int]:
        """The numbers of an op's operands."""
        return self.operand_numbers.get(node) or range(len(self.operand_values[node]))

    def _uses_by(self, node: int) -> Iterator[tuple[int, ValueId, Edge]]:
        """The number of each operand of an op, its value, and the edge."""
        values = self.operand_values[node]
        if values:
            user = self.ops[node]
            for number, value in zip(self._numbers(node), values, strict=True):
                yield number, value, self._use(user, number, value)

    def _use(self, user: Op, number: int, value: ValueId) -> Edge:
        """The edge from a value to an operand of an op.

        There are few distinct ones, and equal edges are mostly one object: readers make types and
        shardings once a distinct text, so their identity stands for them.
        """
        producer, result = value
        source = self.ops[producer]
        type_, sharding = source.types[result], source.shardings[result]
        is_beside = source.parent == user.parent and source.region == user.region
        key = (is_beside, result, number, id(type_), id(sharding))
        edge = self._edges.get(key)
        if edge is None:
            kind: EdgeKind = "data" if is_beside else "capture"
            edge = self._edges[key] = Edge(kind, result, number, type_, sharding)
        return edge

    @cached_property
    def _edges(self) -> dict[tuple[bool, int, int, int, int], Edge]:
        return {}

    @cached_property
    def _boundaries(self) -> list[tuple[int, int, str, Edge]]:
        return list(boundary_edges(self))

    @cached_property
    def _entering(self) -> dict[int, list[tuple[int, Edge]]]:
        entering: dict[int, list[tuple[int, Edge]]] = {}
        for producer, consumer, _, edge in self._boundaries:
            entering.setdefault(consumer, []).append((producer, edge))
        return entering

    @cached_property
    def _users(self) -> dict[ValueId, list[tuple[int, int]]]:
        """The uses of each value that has some, in program order."""
        users: dict[ValueId, list[tuple[int, int]]] = {}
        numbers = self.operand_numbers
        for node, values in enumerate(self.operand_values):
            numbered = (
                zip(numbers[node], values, strict=True) if node in numbers else enumerate(values)
            )
            for number, value in numbered:
                if value in users:
                    users[value].append((node, number))
                else:
                    users[value] = [(node, number)]
        return users

    @cached_property
    def _children(self) -> dict[int, list[int]]:
        children: dict[int, list[int]] = {}
        for op in self.ops:
            if op.parent is not None and op.result < 0:
                children.setdefault(op.parent, []).append(op.id)
        return children

    @cached_property
    def _callers(self) -> dict[str, list[int]]:
        callers: dict[str, list[int]] = {}
        # Ops that have the same attributes share one dictionary.
        called: dict[int, str | None] = {}
        for op in self.ops:
            key = id(op.attributes)
            if key not in called:
                called[key] = op.callee
            callee = called[key]
            if callee is not None:
                callers.setdefault(callee, []).append(op.id)
        return callers
