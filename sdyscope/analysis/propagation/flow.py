"""How shardings travelled through a propagated module: an index of its steps, value by value.

Values of the propagated graph are (node, result). Where Shardy gives several of them one sharding
(the results of a ``while`` and the arguments of its body, which a *data flow edge* stands for),
they are one value here, called by the first of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from sdyscope.analysis.propagation import rules
from sdyscope.analysis.propagation.axis_parts import AxisPart, axes_of, part_of
from sdyscope.analysis.propagation.factors import rule_of
from sdyscope.facts.propagated import Propagated, PropagationStep, ValueId
from sdyscope.graph import Op, OpGraph, Sharding
from sdyscope.graph.op_kinds import BARRIERS, LOOPS, REGIONS, TERMINATORS
from sdyscope.graph.tags import is_tag, sids
from sdyscope.values.mesh import Mesh
from sdyscope.values.propagation_edges import EdgeNodeType
from sdyscope.values.sharding import TensorSharding
from sdyscope.values.source import SourceLocation

Ref: TypeAlias = tuple[int, int]
"""(node in the propagated graph, which of its results)."""

Slot: TypeAlias = tuple[EdgeNodeType, int]
"""An operand or result of an op, and which."""

EDGE = "sdy.data_flow_edge"


@dataclass(frozen=True, slots=True)
class Arrival:
    """An axis that came to a value in a step.

    Attributes:
        step: the step.
        part: the axis, or the part of one.
        source: the value it came from.
        slot: where on the step's op the value is that it came to.
    """

    step: PropagationStep
    part: AxisPart
    source: Ref
    slot: Slot


class Flow:
    """A propagation, indexed by value.

    Args:
        propagated: the propagation, under Shardy.
        lowered: op graph of the lowered module, for what the propagated one no longer has
            (sharding groups).
    """

    def __init__(self, propagated: Propagated, lowered: OpGraph | None = None) -> None:
        self.propagated = propagated
        self.graph = propagated.graph
        self.lowered = lowered
        self._roots: dict[Ref, Ref] = {}
        self._sources: dict[Ref, list[Ref]] = {}
        self._merge_data_flow()
        self._arrivals: dict[Ref, list[Arrival]] = {}
        self._factors: dict[int, list[tuple[Ref, int, tuple[int, ...]]]] = {}
        self._parts: dict[Ref, list[tuple[int, AxisPart]]] = {}
        self._no_parts: list[tuple[int, AxisPart]] = []
        # By identity: equal shardings are mostly one object, which is kept with its parts.
        self._parts_in: dict[int, tuple[Sharding, list[tuple[int, AxisPart]]]] = {}

    # Values.

    def root(self, ref: Ref) -> Ref:
        """The value that stands for all that share its sharding.

        By hand: NetworkX's `UnionFind` takes as long (1.3 times, benchmarks/walks.py), and lets any
        of the values stand for the others, where it has to be the one that steps are about.
        """
        roots = self._roots
        nearest = roots.get(ref)
        if nearest is None or nearest not in roots:
            return ref if nearest is None else nearest
        path = []
        while (parent := roots.get(ref)) is not None:
            path.append(ref)
            ref = parent
        for passed in path:
            roots[passed] = ref
        return ref

    @cached_property
    def members(self) -> dict[Ref, tuple[Ref, ...]]:
        """All values that share a sharding, by the one that stands for them."""
        merged: dict[Ref, list[Ref]] = {}
        for ref in list(self._roots):
            merged.setdefault(self.root(ref), []).append(ref)
        return {root: (root, *sorted(others)) for root, others in merged.items()}

    def same(self, ref: Ref) -> tuple[Ref, ...]:
        """Every value that has the sharding of ``ref`` by construction, itself included."""
        root = self.root(ref)
        return self.members.get(root, (root,))

    @cached_property
    def mesh(self) -> Mesh | None:
        """The mesh whose axes everything is about: the one that has any."""
        meshes = [m for m in self.graph.meshes.values() if isinstance(m, Mesh) and m.axes]
        return meshes[0] if meshes else None

    def mesh_of(self, sharding: TensorSharding) -> Mesh | None:
        """The mesh that a sharding is on."""
        if isinstance(sharding.mesh, Mesh):
            return sharding.mesh
        mesh = self.graph.meshes.get(sharding.mesh)
        return mesh if isinstance(mesh, Mesh) else None

    def sharding(self, ref: Ref) -> TensorSharding | None:
        """The sharding of a value; None when it has none."""
        for node, result in self.same(ref):
            op = self.graph.ops[node]
            written = op.shardings[result] if result < len(op.shardings) else None
            sharding = written if written is not None else self._at_boundary(op, result)
            if isinstance(sharding, TensorSharding):
                return sharding
        return None

    def parts(self, ref: Ref) -> list[tuple[int, AxisPart]]:
        """(dimension, part of an axis) of everything that a value is sharded on."""
        root = self.root(ref)
        parts = self._parts.get(root)
        if parts is None:
            parts = self._parts[root] = self.parts_in(self.sharding(root))
        return parts

    def parts_in(self, sharding: Sharding | None) -> list[tuple[int, AxisPart]]:
        """(dimension, part of an axis) of everything that a sharding shards."""
        if not isinstance(sharding, TensorSharding):
            return self._no_parts
        known = self._parts_in.get(id(sharding))
        if known is None:
            mesh = self.mesh_of(sharding)
            parts = [(dimension, part_of(axis, mesh)) for dimension, axis in axes_of(sharding)]
            known = self._parts_in[id(sharding)] = sharding, parts
        return known[1]

    def dimension_of(self, ref: Ref, part: AxisPart) -> int | None:
        """The dimension of a value that is sharded on (some of) ``part``; None when none is."""
        return next((dim for dim, own in self.parts(ref) if own.shared(part)), None)

    # Ops.

    def at(self, op: int, slot: Slot) -> Ref | None:
        """The value that is an op's operand or result; None when there is none."""
        kind, index = slot
        node = self.graph.ops[op]
        if kind == "result":
            return self._result_at(node, index)
        if node.kind == EDGE:
            sources = self.sources((op, 0))
            return sources[index] if index < len(sources) else None
        operands = self.operands(op)
        return operands[index] if index < len(operands) else None

    def _result_at(self, op: Op, index: int) -> Ref | None:
        """What a step means by a result: for ops at the edge of a region, what flows over it."""
        if op.kind == EDGE:
            return self.root((op.id, 0))
        if op.kind in REGIONS:
            # Its results are its terminator's; its own "results" are its body's arguments.
            inside = self.graph.children(op)
            children = (child for child in inside if child.argument == index)
            return next((self.root((child.id, 0)) for child in children), None)
        if op.kind in TERMINATORS and op.parent is not None:
            around = self.graph.ops[op.parent]
            return self.root((around.id, index)) if index < len(around.types) else None
        return self.root((op.id, index)) if index < len(op.types) else None

    def operands(self, op: int) -> list[Ref]:
        """The values of an op's operands, in order."""
        if op not in self._operands:
            self._operands[op] = [self.root(value) for value in self.graph.operand_values[op]]
        return self._operands[op]

    @cached_property
    def _operands(self) -> dict[int, list[Ref]]:
        return {}

    def operand_slots(self, op: Op) -> list[tuple[Slot, Ref]]:
        """An op's operands, each with its value."""
        return [(("operand", index), ref) for index, ref in enumerate(self.operands(op.id))]

    def result_slots(self, op: Op) -> list[tuple[Slot, Ref]]:
        """An op's results, each with its value."""
        return [(("result", at), self.root((op.id, at))) for at in range(len(op.types))]

    def slots(self, op: Op) -> list[tuple[Slot, Ref]]:
        """An op's operands, then its results, each with its value."""
        return self.operand_slots(op) + self.result_slots(op)

    def uses(self, ref: Ref) -> Iterator[tuple[Op, int]]:
        """Each op that has a value as an operand, and as which."""
        for member in self.same(ref):
            for node, operand in self.graph.users(member):
                op = self.graph.ops[node]
                if op.kind != EDGE:
                    yield op, operand

    def beside(self, ref: Ref, dimension: int) -> Iterator[tuple[Ref, int]]:
        """The dimensions that are one with a value's: by an op's rule, or where it goes on."""
        root = self.root(ref)
        makers = [self.graph.ops[node] for node, _ in self.same(root)]
        users = [op for op, _ in self.uses(root)]
        for op in [*(op for op in makers if not op.is_argument), *users]:
            dims = self._factors_in(op)
            factors = {
                factor
                for value, own, indices in dims
                if value == root and own == dimension
                for factor in indices
            }
            for value, other, indices in dims if factors else ():
                if not factors.isdisjoint(indices):
                    yield value, other
        for value in (*self.sources(root), *self.targets(root), *self.groups.get(root, ())):
            yield value, dimension

    def _factors_in(self, op: Op) -> list[tuple[Ref, int, tuple[int, ...]]]:
        """Each dimension of an op's tensors that its rule maps, and the factors of it."""
        dims = self._factors.get(op.id)
        if dims is None:
            rule = rule_of(op)
            slots = () if rule is None else self.slots(op)
            dims = self._factors[op.id] = [
                (value, dimension, own.factor_indices)
                for slot, value in slots
                if rule is not None and (mapped := rules.mapping(rule, slot)) is not None
                for dimension, own in enumerate(mapped.dim_mappings)
            ]
        return dims

    def around(self, ref: Ref) -> Op:
        """The op that a value is a result of, or whose region it is an argument of."""
        op = self.graph.ops[ref[0]]
        if op.is_argument and op.parent is not None:
            return self.graph.ops[op.parent]
        return op

    def lowered_ops(self, op: Op) -> list[Op]:
        """The ops of the lowered module that an op came from; those that its tags name come last.

        An op in a function that is called several times is aligned with one of the calls alone,
        and known by its tag at the others.
        """
        if self.lowered is None:
            return []
        nodes: dict[int, None] = {}
        for result in range(len(op.types)):
            for node, _ in self.lowered_ids.get((op.id, result), ()):
                nodes[node] = None
        for name in op.location.names:
            for node in reversed(sids(name)):
                if node < len(self.lowered.ops):
                    nodes[node] = None
        return [self.lowered.ops[node] for node in nodes]

    def written(self, op: Op) -> Op:
        """What an op of the propagated module is in the lowered one; else the op itself.

        Of an op in a function, at the calls that it is not aligned with, this is the call.
        """
        if self.lowered is None:
            return op
        for result in range(len(op.types)):
            for node, _ in self.lowered_ids.get((op.id, result), ()):
                return self.lowered.within_calls(self.lowered.ops[node])
        ops = self.lowered.ops
        named = (ops[node] for node in sids(op.scope) if node < len(ops))
        return next(map(self.lowered.within_calls, named), op)

    def scope(self, op: Op) -> str:
        """An op's scope in the program, without tags."""
        ops = self.lowered_ops(op)
        if ops:
            return ops[0].scope
        return "" if is_tag(op.scope) else op.scope

    def source(self, op: Op) -> SourceLocation | None:
        """An op's line in the program; the propagated module has none."""
        return next((lowered.source for lowered in self.lowered_ops(op)), op.source)

    # Data flow: where a value continues across the boundary of a region or function.

    def sources(self, ref: Ref) -> list[Ref]:
        """The values that become this one: what a loop starts and goes on with, what is yielded."""
        root = self.root(ref)
        refs: dict[Ref, None] = {}
        for member in self.same(ref):
            for source in self._sources.get(member, []):
                if self.root(source) != root:
                    refs[self.root(source)] = None
        return list(refs)

    @cached_property
    def _targets(self) -> dict[Ref, list[Ref]]:
        targets: dict[Ref, dict[Ref, None]] = {}
        for target, sources in self._sources.items():
            for source in sources:
                targets.setdefault(self.root(source), {})[self.root(target)] = None
        return {source: list(target) for source, target in targets.items()}

    def targets(self, ref: Ref) -> list[Ref]:
        """The values that this one becomes."""
        root = self.root(ref)
        return [target for target in self._targets.get(root, []) if target != root]

    @cached_property
    def crossing(self) -> frozenset[Ref]:
        """The values that are the same on both sides of some boundary."""
        return frozenset(map(self.root, self._sources)) | frozenset(self._targets)

    @cached_property
    def groups(self) -> dict[Ref, tuple[Ref, ...]]:
        """The values of one sharding group, by each of them."""
        by_id: dict[object, list[Ref]] = {}
        for op in self.graph.ops:
            if op.kind == "sdy.sharding_group":
                by_id.setdefault(op.attributes.get("group_id"), []).extend(self.operands(op.id))
        if not by_id and self.lowered is not None:
            for op in self.lowered.ops:
                if op.kind == "sdy.sharding_group":
                    members = by_id.setdefault(op.attributes.get("group_id"), [])
                    for producer, edge in self.lowered.operands(op):
                        kept = self.propagated.values.get((producer.id, edge.result))
                        if kept is not None and kept.node is not None:
                            members.append(self.root((kept.node, kept.result)))
        return {ref: tuple(members) for members in by_id.values() for ref in members}

    # Steps.

    def arrivals(self, ref: Ref) -> list[Arrival]:
        """The axes that came to a value, called by the one that stands for it, step by step."""
        arrivals = self._arrivals.get(ref)
        if arrivals is None:
            arrivals = self._arrivals[ref] = list(self._arriving(ref))
        return arrivals

    def _arriving(self, ref: Ref) -> Iterator[Arrival]:
        for step in self.propagated.steps.through(self._beside(ref)):
            slots = [slot for slot in step.targets if self.at(step.op, slot) == ref]
            source = self.at(step.op, step.source) if slots else None
            # From a result of the program, where a chain begins anyway, there is no source.
            if source is None or source == ref:
                continue
            part = part_of(step.axis, self.mesh)
            for slot in slots:
                yield Arrival(step, part, source, slot)

    def _beside(self, ref: Ref) -> Iterator[int]:
        """The ops that a step to a value can go through."""
        graph = self.graph
        for node, result in self.same(ref):
            op = graph.ops[node]
            around = op.parent if op.is_argument else node
            if around is not None:
                yield around
            if not op.is_argument:
                yield from (end.id for end in graph.children(op) if end.kind in TERMINATORS)
            yield from (user for user, _ in graph.users((node, result)))
        for target in self.targets(ref):
            yield from (node for node, _ in self.same(target) if graph.ops[node].kind == EDGE)

    # Results of the main function.

    @cached_property
    def returned(self) -> dict[Ref, list[int]]:
        """Which results of the main function a value is returned as."""
        indices: dict[Ref, list[int]] = {}
        for index, value in self.graph.returned.items():
            indices.setdefault(self.root(value), []).append(index)
        return indices

    @cached_property
    def lowered_ids(self) -> dict[Ref, tuple[ValueId, ...]]:
        """The values of the lowered module that became a value of the propagated one."""
        by_ref: dict[Ref, list[ValueId]] = {}
        for value in self.propagated.values.values():
            if value.node is not None:
                by_ref.setdefault((value.node, value.result), []).append(value.id)
        return {ref: tuple(ids) for ref, ids in by_ref.items()}

    # Building.

    def _merge_data_flow(self) -> None:
        graph = self.graph
        for op in graph.ops:
            if op.kind in LOOPS:
                for child in graph.children(op):
                    if child.is_argument:
                        self._join((child.id, 0), (op.id, child.argument))
            elif op.kind == EDGE:
                self._join((op.id, 0), graph.operand_values[op.id][0])
            elif op.kind in BARRIERS:
                for producer, edge in graph.operands(op):
                    self._sources[op.id, edge.operand] = [(producer.id, edge.result)]
        passed: list[tuple[Ref, Ref]] = []
        for kind, source, target in graph.crossings():
            if kind != "loop" and not graph.ops[target[0]].is_result:
                passed.append((target, source))
        # What a loop starts with comes before what its body yields, as Shardy counts them.
        passed.sort(key=lambda pair: self.graph.ops[pair[0][0]].is_argument is False)
        for target, source in passed:
            sources = self._sources.setdefault(self.root(target), [])
            if source not in sources:
                sources.append(source)

    def _join(self, ref: Ref, other: Ref) -> None:
        root, other_root = self.root(ref), self.root(other)
        if root != other_root:
            self._roots[root] = other_root
            self._sources.setdefault(other_root, []).extend(self._sources.pop(root, []))

    def _at_boundary(self, op: Op, result: int) -> Sharding | None:
        """The sharding that a manual or named computation writes for an argument or result."""
        if op.is_argument and op.parent is not None:
            around = self.graph.ops[op.parent]
            given = around.in_shardings[op.argument : op.argument + 1]
            return given[0].without(around.manual_axes) if given else None
        return op.out_shardings[result] if result < len(op.out_shardings) else None
