"""Which values around an op are sharded on some axes and needed otherwise.

Each is what a collective over these axes may be for.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from sdyscope.analysis.collectives.annotated_axes import RESIZED, AnnotatedAxes, WrittenSpec
from sdyscope.analysis.collectives.boundaries import SHARD_MAP, Boundaries
from sdyscope.analysis.collectives.propagated_axes import (
    AxesByDim,
    PropagatedAxes,
    axes_in,
    local_shape,
    spec_in,
    without_axes,
)
from sdyscope.analysis.propagation import rules
from sdyscope.analysis.propagation.axis_parts import AxisPart, part_of
from sdyscope.analysis.propagation.components import HeldAxis
from sdyscope.analysis.propagation.factors import dimension_with, on_factors
from sdyscope.analysis.propagation.flow import Flow, Ref, Slot
from sdyscope.analysis.propagation.openness import Binding
from sdyscope.facts.origins import Spec
from sdyscope.facts.propagated import ValueId
from sdyscope.graph import Op, OpGraph
from sdyscope.graph.custom_calls import RAGGED_ALL_TO_ALL, collective_of, primitive_of
from sdyscope.graph.op_kinds import BARRIERS, COLLECTIVES, is_elementwise
from sdyscope.graph.rearranged_dims import cuts_ends_only, rearranged_dims
from sdyscope.graph.same_dims import same_dims
from sdyscope.graph.summed_dims import free_dims, spatial_dims, summed_dims
from sdyscope.values.mesh import AxisRef
from sdyscope.values.sharding_rule import OpShardingRule

#: Collectives that a program writes in a shard_map, by the names of their ops.
PROGRAM: Final = COLLECTIVES | {RAGGED_ALL_TO_ALL}
#: Ops that make one number of many, or of one device's piece a whole.
SUMMING: Final = frozenset(
    {"dot_general", "dot", "convolution", "reduce", "scatter", "reduce_window", "custom_call"}
)
#: Ops that look up a place in a dimension: each device what it has, and what they have is summed.
LOOKING_UP: Final = frozenset({"gather", "dynamic_slice", "dynamic_update_slice"})
#: Ops that multiply two tensors, and sum what they make.
PRODUCTS: Final = frozenset({"dot_general", "dot", "convolution"})
#: Ops whose rule GSPMD does not tell, of which it is known which dimensions are one.
_IN_LINE: Final = PRODUCTS | {"scatter"}
#: Ops that take elements from neighbouring blocks.
REACHING: Final = frozenset(
    {"slice", "pad", "concatenate", "convolution", "reduce_window", "reverse", "sort", "cumsum"}
)
#: Ops that XLA does not split on every dimension that propagation lets them keep an axis on, by its
#: `spmd_partitioner.cc`: their operands are gathered, and their results cut.
_GATHERED: Final = frozenset(
    {"fft", "cholesky", "triangular_solve", "rng", "rng_bit_generator", "select_and_scatter"}
)
#: Ops that take tensors of the same shape and need not keep the sharding of any.
_TOGETHER: Final = SUMMING | LOOKING_UP | REACHING | _GATHERED

#: Ops that need a value as they say themselves, whatever their other tensors have.
_WHOLE: Final = (SHARD_MAP, "custom_call")


#: How many dimensions a product has that XLA turns.
_MATRIX = 2

#: How many ops around the one that is named are looked at.
_AROUND = 60


@dataclass(frozen=True, slots=True)
class Need:
    """A value, and what needs it otherwise.

    Attributes:
        value: which value.
        op: the op that needs it; None where the program returns it.
        result: as which result of the program it is needed, or of a `shard_map` or loop whose body
            returns it; None where an op takes it.
        call: the call by which the op is given it, of a function that is called several times.
    """

    value: ValueId
    op: Op | None
    result: int | None = None
    call: int | None = None

    @property
    def output(self) -> ValueId | None:
        """The result of a `shard_map` or loop that the value becomes."""
        return None if self.op is None or self.result is None else (self.op.id, self.result)


@dataclass(frozen=True)
class _ByRule:
    """An op of the propagated graph, and its sharding rule."""

    flow: Flow
    op: Op
    rule: OpShardingRule

    @cached_property
    def slots(self) -> list[tuple[Slot, Ref]]:
        """Its operands and results."""
        return self.flow.slots(self.op)

    def held(self, value: Ref | None, axes: tuple[AxisPart, ...]) -> set[tuple[int, str]]:
        """On which factors a tensor of the op has which of the axes."""
        results: set[tuple[int, str]] = set()
        for slot, other in self.slots:
            tensor = rules.mapping(self.rule, slot) if other == value else None
            for dim, mapped in enumerate(() if tensor is None else tensor.dim_mappings):
                own = [part for at, part in self.flow.parts(other) if at == dim]
                results |= {
                    (factor, part.name)
                    for factor, part in on_factors(self.rule, mapped, own)
                    if any(part.shared(axis) is not None for axis in axes)
                }
        return results


class Needs:
    """Looks for what needs values otherwise, in one program.

    Args:
        decided: the shardings of its values.
        annotated: where they come from.
    """

    def __init__(self, decided: PropagatedAxes, annotated: AnnotatedAxes) -> None:
        self.decided = decided
        self.annotated = annotated
        self.graph: OpGraph = decided.graph
        self.boundaries = Boundaries(self.graph)

    def at(self, decided: PropagatedAxes) -> Needs:
        """The same, of other shardings of the values."""
        needs = copy(self)
        needs.decided = decided
        return needs

    @cached_property
    def every_axis(self) -> tuple[AxisPart, ...]:
        """The axes of the mesh."""
        mesh = self.decided.mesh
        return tuple(part_of(AxisRef(axis.name), mesh) for axis in mesh.axes)

    def needs(self, op: Op, axes: tuple[AxisPart, ...]) -> Iterator[Need]:
        """The values around an op that are sharded on the axes, and what needs them otherwise."""
        # The value that a constraint is on stands for the one that it was before.
        given = self.graph.operands(op)[: 1 if op.is_constraint else None]
        users = [
            need
            for producer, edge in given
            for value, call in self.given((producer.id, edge.result))
            for need in self.taken((producer.id, edge.result), op, edge.operand, value, call)
        ]
        for result in range(len(op.types)):
            for user, edge in self.graph.uses(op.id, result):
                if kind_of(user) == "return" and self.is_end(user):
                    users.append(Need((op.id, result), None, edge.operand))
                elif (loop := self.ended(user)) is not None:
                    users.append(Need((op.id, result), loop, edge.operand))
                elif user.types:
                    users += self.taken((op.id, result), user, edge.operand)
        users += [
            Need(value, op, result) for result, value in self.boundaries.bodies.get(op.id, ())
        ]
        for need in users:
            if self.is_need(need, axes):
                yield need

    def turned(self, op: Op) -> Op | None:
        """The product that XLA makes transposed at once, where an op transposes it; else None.

        Then the product has the name of the transpose (`algebraic_simplifier.cc`).
        """
        if kind_of(op) != "transpose" or len(self.decided.shape((op.id, 0)) or ()) != _MATRIX:
            return None
        producer = self.graph.ops[self.operands(op)[0][0]]
        is_product = kind_of(producer) in ("dot", "dot_general")
        return producer if is_product and len(self.graph.uses(producer)) == 1 else None

    def ended(self, op: Op) -> Op | None:
        """The loop whose body an op ends."""
        around = None if op.parent is None else self.graph.ops[op.parent]
        is_loop = around is not None and around.mnemonic == "while" and op.region == 1
        return around if is_loop and kind_of(op) == "return" else None

    def given(self, value: ValueId) -> list[tuple[ValueId | None, int | None]]:
        """What the calls of a function give as an argument of it, and which; if several do."""
        op = self.graph.ops[value[0]]
        calls = self.graph.callers(op.function) if op.is_argument else []
        is_own = op.parent is not None and self.graph.ops[op.parent].mnemonic == "func"
        if not is_own or len(calls) < 2:
            return [(None, None)]
        return [
            (given, call.id)
            for call in calls
            if (given := self.graph.operand(call, op.argument)) is not None
        ]

    def taken(
        self,
        value: ValueId,
        user: Op,
        number: int,
        given: ValueId | None = None,
        call: int | None = None,
    ) -> Iterator[Need]:
        """A value as operand of an op: of a call, as what the function does with it needs it.

        A loop needs it itself, and where the value is the same each time what is in the loop does:
        XLA moves what it does to that out of the loop.

        Args:
            value: which value.
            user: the op.
            number: which operand.
            given: what it is outside of a function that is called several times, in which it has
                the sharding of one call.
            call: that call.
        """
        returned = self.annotated.returned_otherwise.get(user.id)
        if returned is not None:
            yield Need(given or value, None, returned, call)
            return
        inside = self.entered(user, number)
        if inside is None or user.mnemonic == "while":
            yield Need(given or value, user, call=call)
        if inside is not None and (user.mnemonic != "while" or inside in self.boundaries.invariant):
            if user.callee is not None and len(self.graph.callers(user.callee)) > 1:
                given, call = given or value, call or user.id
            for further, edge in self.graph.uses(*inside):
                if further.types:
                    yield from self.taken(inside, further, edge.operand, given, call)

    def entered(self, user: Op, number: int) -> ValueId | None:
        """What an operand of a call or loop is inside of it; None of any other op."""
        function = None if self.graph.calls_shard_map_body(user) else self.graph.callee(user)
        if function is not None:
            given = next((each for each in function.arguments if each.index == number), None)
            return None if given is None else (given.node, 0)
        if user.mnemonic != "while":
            return None
        body = self.graph.children(user, 1)
        return next(((each.id, 0) for each in body if each.argument == number), None)

    def is_need(self, need: Need, axes: tuple[AxisPart, ...]) -> bool:
        """Whether the value, or what is wanted, is sharded on the axes, and not both alike."""
        before = self.on(self.decided.axes(need.value), axes)
        if need.op is None:
            wanted = self.wanted(need.result or 0)
            return wanted is not None and self.on(wanted[0], axes) != before
        if need.output is not None:
            return self.on(self.decided.axes(need.output), axes) != before
        if need.op.is_constraint:
            after = self.on(self.decided.axes((need.op.id, 0)), axes)
            return after != before
        if not any(before):
            return False
        if need.op.mnemonic == "while":
            inside = self.boundaries.passed.get(need.value, ())
            within = [other for other in inside if self.graph.ops[other[0]].parent == need.op.id]
            return any(self.on(self.decided.axes(other), axes) != before for other in within)
        if kind_of(need.op) == SHARD_MAP and (taken := self.taken_by(need.op, need.value)):
            return any(self.on(by_dim, axes) != before for by_dim in taken)
        shape = self.decided.shape(need.value)
        results = self.results_of(need.op, need.value)
        if (given_back := self.decided.given_back(need.op)) is not None:
            # XLA takes the op away: only of another sharding does it make anything.
            if need.value != given_back and need.value in self.operands(need.op):
                return False
        elif kind_of(need.op) in _TOGETHER:
            return True
        order = need.op.attributes.get("permutation")
        if kind_of(need.op) == "transpose" and isinstance(order, tuple):
            by_dim = self.decided.axes(need.value)
            moved = tuple(by_dim[dim] for dim in order)
            return self.on(self.decided.axes(results[0]), axes) != self.on(moved, axes)
        if need.op.mnemonic == "reshape" and shape is not None:
            # One that only adds or drops ones keeps the axes of all others.
            after = self.on(self.decided.axes(results[0]), axes)
            kept = _by_size(after, self.decided.shape(results[0]) or ())
            return kept is None or kept != _by_size(before, shape)
        places = need.op.attributes.get("broadcast_dimensions")
        if kind_of(need.op) == "broadcast_in_dim" and isinstance(places, tuple):
            wider = self.on(self.decided.axes(results[0]), axes)
            return not wider or [wider[at] for at in places] != list(before)
        if any(self.decided.shape(result) != shape for result in results):
            return True
        return any(self.on(self.decided.axes(result), axes) != before for result in results)

    def taken_by(self, op: Op, value: ValueId) -> list[AxesByDim]:
        """The axes of a value as a `shard_map` takes it, for each time; none where unknown."""
        shardings = (
            self.decided.propagated.taken_as(op.id, edge.operand)
            for producer, edge in self.graph.operands(op)
            if (producer.id, edge.result) == value
        )
        mesh = self.decided.mesh
        return [axes_in(sharding, mesh) for sharding in shardings if sharding is not None]

    def wanted(self, index: int) -> tuple[AxesByDim, Spec | None] | None:
        """Axes and spec of a result: as it is annotated, or as it is in the end."""
        written = self.annotated.of_result(index)
        if written is not None:
            return written.axes, written.spec
        sharding = self.decided.result(index)
        if sharding is None:
            return None
        mesh = self.decided.mesh
        return axes_in(sharding, mesh), spec_in(sharding, len(sharding.dim_shardings), mesh)

    def on(self, by_dim: AxesByDim, axes: tuple[AxisPart, ...]) -> tuple[tuple[AxisPart, ...], ...]:
        """As much of each dimension's axes as is among these; none where that is none."""
        shared = tuple(
            tuple(shared for own in dim for axis in axes if (shared := own.shared(axis)))
            for dim in by_dim
        )
        return shared if any(shared) else ()

    def is_said(self, need: Need, axes: tuple[AxisPart, ...]) -> bool:
        """Whether anything says how the value is needed: what needs it, or the op's others."""
        op = need.op
        wants = op is None or need.output is not None or op.is_constraint or kind_of(op) in _WHOLE
        return wants or bool(self.conflicting(need, axes))

    def sized(self, op: Op) -> tuple[list[ValueId], list[tuple[int, ...]]]:
        """All that an op takes and makes, with their shapes; nothing where one has none."""
        values = [*self.operands(op), *results(op)]
        shapes = [shape for value in values if (shape := self.decided.shape(value)) is not None]
        return (values, shapes) if len(shapes) == len(values) else ([], [])

    def is_in_line(self, need: Need, axes: tuple[AxisPart, ...]) -> bool:
        """Whether all that an op takes and makes has the axes as the value, and nowhere else.

        Under GSPMD no rule of the op says that, and each of them can seem to need it otherwise.
        """
        op = need.op
        if op is None or need.output is not None or kind_of(op) not in _IN_LINE:
            return False
        values, shapes = self.sized(op)
        if need.value not in values:
            return False
        held = [self.on(self.decided.axes(value), axes) for value in values]
        at = values.index(need.value)
        groups = [dict(group) for group in same_dims(op, shapes)]
        for dim, own in enumerate(held[at]):
            group = next((each for each in groups if each.get(at) == dim), {at: dim})
            if own and not all(
                tensor in group and theirs[group[tensor]] == own and sum(map(bool, theirs)) == 1
                for tensor, theirs in enumerate(held)
                if any(theirs)
            ):
                return False
        return any(held[at])

    def is_sole(self, need: Need, needs: Sequence[Need], ops: Sequence[Op]) -> bool:
        """Whether it alone can be what XLA moves for an op, whatever shape the pieces have.

        An elementwise op takes its operands as its result is sharded, and a constraint its own:
        XLA moves nothing else for them (`spmd_partitioner.cc`, `HandleElementwise`).
        """
        op = need.op
        if op is None or op not in ops or need.output is not None:
            return False
        if any(other.value != need.value for other in needs):
            return False
        shape = self.decided.shape(need.value)
        return op.is_constraint or (
            is_elementwise(op.kind)
            and all(self.decided.shape(value) == shape for value in self.tensors(op))
        )

    def is_aligned(self, need: Need) -> bool:
        """Whether the op takes the value sharded as what it makes, and that otherwise than it is.

        An elementwise one does (`spmd_partitioner.cc`, `HandleElementwise`).
        """
        op = need.op
        if op is None or need.output is not None or not is_elementwise(op.kind):
            return False
        value, result = need.value, (op.id, 0)
        return (
            value in self.operands(op)
            and self.decided.shape(value) == self.decided.shape(result)
            and self.decided.axes(value) != self.decided.axes(result)
        )

    def is_only_cut(self, need: Need) -> bool:
        """Whether an elementwise op takes a value as it is, or each device a part of what it has.

        Nothing is moved for that.
        """
        if need.op is None or not self.is_aligned(need):
            return False
        by_dim, after = self.decided.axes(need.value), self.decided.axes((need.op.id, 0))
        return len(by_dim) == len(after) and all(
            finer[: len(own)] == own for own, finer in zip(by_dim, after, strict=True)
        )

    def lands(self, need: Need, axes: tuple[AxisPart, ...]) -> bool:
        """Whether it is known that the axes, and these alone, go over to other dimensions."""
        after, own = self.needed_axes(need), self.decided.axes(need.value)
        if without_axes(own, axes) != without_axes(after, axes):
            return False
        sides = [self.on(by_dim, axes) for by_dim in (own, after)]
        before, then = ({dim for dim, held in enumerate(side) if held} for side in sides)
        whole = all(
            not any(axis.without([part for dim in side for part in dim]) for axis in axes)
            for side in sides
        )
        return whole and before.isdisjoint(then)

    def is_joined_across(self, value: ValueId) -> bool:
        """Whether an op joins a value along a dimension that is sharded.

        Shardy has that joined with other axes, which are not recorded, and then moved.
        """
        op = self.graph.ops[value[0]]
        dim = op.attributes.get("dimension")
        return (
            self.annotated.pointers is not None
            and kind_of(op) == "concatenate"
            and isinstance(dim, int)
            and bool(self.carried(value, self.every_axis, (dim,)))
        )

    def rings(self, ops: Sequence[Op]) -> Iterator[list[Op]]:
        """The ops themselves, then those next to them, and so on.

        By hand: NetworkX's `bfs_layers` takes 3 times as long (benchmarks/walks.py) once the
        graph is NetworkX's, which takes a hundred times as long as all that is asked here.
        """
        seen = {op.id for op in ops}
        ring = list(ops)
        while ring and len(seen) < _AROUND:
            yield ring
            near = [
                other
                for op in ring
                for other, _ in (*self.graph.operands(op), *self.graph.uses(op))
            ]
            ring = []
            for other in near:
                if other.id not in seen and not other.is_argument:
                    seen.add(other.id)
                    ring.append(other)

    def argument(self, number: int | None) -> ValueId | None:
        """The value of an argument of the program."""
        main = self.graph.main
        if main is None or number is None:
            return None
        arguments = [op for op in self.graph.children(main.op) if op.is_argument]
        return (arguments[number].id, 0) if number < len(arguments) else None

    def forms(self, values: Iterable[ValueId], others: Container[int] = ()) -> set[ValueId]:
        """Values, and what they go on as: inside of what is called, and in other forms.

        Args:
            values: the values.
            others: ops whose results they do not go on as.
        """
        reached = list(dict.fromkeys(values))
        seen = set(reached)
        for value in reached:
            users = self.graph.uses(*value)
            forms = (
                (op.id, edge.operand if op.kind in BARRIERS else 0)
                for op, edge in users
                if op.is_form
                or (edge.operand == 0 and self.decided.is_reshape(op))
                or value in (self.decided.given_back(op), self.kept_in_place(op))
            )
            for further in (*self.boundaries.passed.get(value, ()), *forms):
                if further not in seen and further[0] not in others:
                    seen.add(further)
                    reached.append(further)
        return seen

    def kept_in_place(self, op: Op) -> ValueId | None:
        """The operand of which every device has the block that it has of the result, too.

        XLA leaves nothing of an op that only cuts padding off so (`spmd_partitioner.cc`,
        `HandlePad`, `HandleSlice`). None of any other op.
        """
        if not cuts_ends_only(op):
            return None
        value, result = self.operands(op)[0], (op.id, 0)
        axes = self.decided.axes(value)
        is_known = any(axes) and None not in map(self.decided.shape, (value, result))
        is_same = is_known and axes == self.decided.axes(result)
        return value if is_same and self.block(value) == self.block(result) else None

    def conflicting(self, need: Need, axes: tuple[AxisPart, ...]) -> list[ValueId]:
        """The other tensors of the op that are sharded on the axes, and not where the value is."""
        if need.op is None or need.output is not None or kind_of(need.op) in _WHOLE:
            return []
        tensors = self.tensors(need.op)
        if need.op.kind in BARRIERS:
            tensors = [need.value, *self.results_of(need.op, need.value)]
        if need.value not in tensors:
            return []  # It is given by one of several calls, and the others by any.
        others = [other for other in tensors if other != need.value]
        carried = [other for other in others if self.carried(other, axes)]
        by_rule = self._by_rule(need.op)
        own = None if by_rule is None else by_rule.held(self._in_flow(need.value), axes)
        kind = kind_of(need.op)
        if by_rule is None and (kind not in _TOGETHER - {"convolution"} or kind in RESIZED):
            # Without a rule a tensor goes with the value where it has the same dimensions.
            return [other for other in carried if not self._alike(need.op, need.value, other, axes)]
        if by_rule is None or not own:
            return carried
        held = ((other, by_rule.held(self._in_flow(other), axes)) for other in carried)
        return [other for other, theirs in held if not theirs or theirs - own]

    def competing(
        self, need: Need, axes: tuple[AxisPart, ...]
    ) -> tuple[list[ValueId], tuple[AxisPart, ...]]:
        """The other tensors of a product that is torn between other axes, and which axes these are.

        XLA splits it over some of the axes alone, and gathers what is in pieces along the others.
        """
        if need.op is None or need.output is not None or kind_of(need.op) not in PRODUCTS:
            return [], ()
        if not self.is_torn(need.op, axes):
            return [], ()
        others = [other for other in self.tensors(need.op) if other != need.value]
        besides = (
            left
            for other in others
            for own in self.decided.axes(other)
            for part in own
            for left in part.without(axes)
        )
        return others, tuple(dict.fromkeys(besides))

    def closing(self, need: Need, axes: tuple[AxisPart, ...]) -> list[Binding]:
        """What keeps the axes from the other tensors of the op, where these go with the value's."""
        openness = self.annotated.openness
        if openness is None or need.op is None or need.op.is_constraint:
            return []
        dims = ((value, dim) for value, dim, _ in self.bare(need, axes))
        return list(dict.fromkeys(by for value, dim in dims for by in openness.closing(value, dim)))

    def withheld(self, need: Need, axes: tuple[AxisPart, ...]) -> list[WrittenSpec]:
        """Under GSPMD, what says the value's dimension without the axes on other tensors of the op.

        Nothing is recorded of that: it is followed from tensors of the op's that lack them.
        """
        if self.annotated.pointers is not None or need.op is None or need.op.is_constraint:
            return []
        nearest = (self.annotated.without(*each) for each in self.bare(need, axes))
        return list({id(written): written for written in nearest if written is not None}.values())

    def bare(self, need: Need, axes: tuple[AxisPart, ...]) -> list[tuple[Ref, int, AxisPart]]:
        """The dimensions of the op's other tensors that go with the value's and lack the axes.

        Each as a value in the flow, which of its dimensions, and the axis.
        """
        op = need.op
        if op is None or need.output is not None:
            return []
        if op.is_constraint:
            at = self._in_flow((op.id, 0))
            dims = self._dims_with(need.value, axes)
            return [] if at is None else [(at, dim, part) for dim, part in dims]
        if self.annotated.pointers is None:
            if kind_of(op) in _WHOLE or need.value not in self.tensors(op):
                return []
            return [
                (other, dim, part)
                for other in self.tensors(op)
                for dim, part in self._dims_with(need.value, axes)
                if other != need.value and self._same_dimension(need.value, other, dim)
            ]
        by_rule, at = self._by_rule(op), self._in_flow(need.value)
        if by_rule is None or at is None:
            return []
        bare = []
        for factor, name in sorted(by_rule.held(at, axes)):
            for slot, value in by_rule.slots:
                tensor = rules.mapping(by_rule.rule, slot)
                dim = None if tensor is None else dimension_with(tensor, factor)
                if dim is None or value == at or (factor, name) in by_rule.held(value, axes):
                    continue
                bare += [(value, dim, axis) for axis in axes if axis.name == name]
        return bare

    def _alike(self, op: Op, value: ValueId, other: ValueId, axes: tuple[AxisPart, ...]) -> bool:
        """Whether another tensor of an op has the axes where the value has them."""
        held, others = (set(self._dims_with(each, axes)) for each in (value, other))
        pairs = spatial_dims(op)
        if pairs and (value, other) == (self.operands(op)[0], results(op)[0]):
            turned = dict(pairs)  # Windows move over these, whatever their sizes.
            return all(dim in turned for dim, _ in held) and others == {
                (turned[dim], part) for dim, part in held
            }
        return held == others and all(
            kind_of(op) in RESIZED or self._same_dimension(value, other, dim) for dim, _ in held
        )

    def _dims_with(
        self, value: ValueId, axes: tuple[AxisPart, ...]
    ) -> Iterator[tuple[int, AxisPart]]:
        for dim, own in enumerate(self.on(self.decided.axes(value), axes)):
            for part in own:
                yield dim, part

    def _same_dimension(self, value: ValueId, other: ValueId, dim: int) -> bool:
        """Whether a dimension of two tensors of an op can be the same, by place and size."""
        shape, other_shape = self.decided.shape(value), self.decided.shape(other)
        return (
            shape is not None
            and other_shape is not None
            and len(shape) == len(other_shape)
            and shape[dim] == other_shape[dim]
        )

    def _by_rule(self, op: Op) -> _ByRule | None:
        """An op as it is propagated, and the rule by which; None where that is not known."""
        pointers = self.annotated.pointers
        at = self.decided.counterpart((op.id, 0)) if op.types else None
        if pointers is None or at is None:
            return None
        node = pointers.flow.graph.ops[at[0]]
        rule = node.sharding_rule
        return _ByRule(pointers.flow, node, rule) if isinstance(rule, OpShardingRule) else None

    def _in_flow(self, value: ValueId) -> Ref | None:
        return self.annotated.in_flow(value, self.decided.calls)

    def operands(self, *ops: Op) -> list[ValueId]:
        """The values that ops take."""
        edges = (each for op in ops for each in self.graph.operands(op))
        return [(producer.id, edge.result) for producer, edge in edges]

    def results_of(self, op: Op, value: ValueId) -> list[ValueId]:
        """What an op makes of a value that it takes: of a barrier's, that value again."""
        own, given = results(op), self.operands(op)
        if op.kind in BARRIERS and value in given:
            return [result for result, each in zip(own, given, strict=False) if each == value]
        return own

    def tensors(self, *ops: Op) -> list[ValueId]:
        """The values that ops give and take."""
        return [value for op in ops for value in (*results(op), *self.operands(op))]

    def is_end(self, op: Op) -> bool:
        """Whether an op is in the program itself, whose return ends it."""
        main = self.graph.main
        return main is not None and op.parent == main.op

    def summed(self, op: Op, axes: tuple[AxisPart, ...]) -> list[ValueId]:
        """The values that an op sums, or looks up in, along dimensions that have the axes."""
        given = self.graph.operands(op)
        values = []
        for producer, edge in given:
            value = (producer.id, edge.result)
            rank = self.decided.rank(value)
            dims = summed_dims(op, edge.operand, rank, len(given))
            if self.carried(value, axes, dims):
                values.append(value)
        return values

    def summed_over(self, op: Op, value: ValueId) -> list[AxisPart]:
        """The axes of the dimensions of an operand that an op sums, or looks up in."""
        given = self.operands(op)
        rank = self.decided.rank(value)
        dims = summed_dims(op, given.index(value), rank, len(given))
        return self.carried(value, self.every_axis, dims)

    def sums_away(self, need: Need, axes: tuple[AxisPart, ...]) -> bool:
        """Whether the op that needs a value sums all of its dimensions that have the axes."""
        op = need.op
        if op is None or need.output is not None:
            return False
        given = self.operands(op)
        rank = self.decided.rank(need.value)
        sums = [
            summed_dims(op, at, rank, len(given))
            for at, value in enumerate(given)
            if value == need.value
        ]
        own = self.carried(need.value, axes)
        return bool(sums) and all(
            dims is not None and self.carried(need.value, axes, dims) == own for dims in sums
        )

    def as_constrained(self, ops: Iterable[Op]) -> Iterator[ValueId]:
        """What ops make, as the constraints have it that are on it."""
        for op in ops:
            if op.is_constraint:
                yield op.id, 0
            for result in results(op):
                yield from (
                    (user.id, 0) for user, _ in self.graph.uses(*result) if user.is_constraint
                )

    def summed_for(self, value: ValueId, axes: tuple[AxisPart, ...]) -> list[ValueId]:
        """As ``summed``, of the op that makes a value, of which a constraint is none."""
        op = self.graph.ops[value[0]]
        while op.is_constraint and (given := self.operands(op)):
            op = self.graph.ops[given[0][0]]
        return self.summed(op, axes) if kind_of(op) in SUMMING else []

    def summed_instead(
        self, op: Op, axes: tuple[AxisPart, ...], calls: tuple[int, ...]
    ) -> Iterator[tuple[HeldAxis, AxisPart]]:
        """What would have the axes on dimensions that an op sums.

        What it is given has them on one, be that one that it sums or not, and only once.
        """
        given = self.graph.operands(op)
        for producer, edge in given:
            value = (producer.id, edge.result)
            rank = self.decided.rank(value)
            summed = summed_dims(op, edge.operand, rank, len(given))
            for part in self.carried(value, axes):
                dims = range(rank) if summed is None else sorted(summed)
                yield from self.annotated.standing_in(value, part, dims, calls)

    def gathered_instead(
        self, need: Need, axes: tuple[AxisPart, ...], calls: tuple[int, ...]
    ) -> Iterator[tuple[HeldAxis, AxisPart]]:
        """What would have the axes on dimensions of a value that is needed without them there."""
        after = self.needed_axes(need)
        for part in self.carried(need.value, axes):
            dims = (
                dim
                for dim in range(self.decided.rank(need.value))
                if not (dim < len(after) and any(map(part.shared, after[dim])))
            )
            yield from self.annotated.standing_in(need.value, part, dims, calls)

    def needed_axes(self, need: Need) -> AxesByDim:
        """The axes with which a value is needed; none where nothing says them."""
        if need.op is None:
            wanted = self.wanted(need.result or 0)
            return () if wanted is None else wanted[0]
        if need.output is not None or need.op.is_constraint:
            return self.decided.axes(need.output or (need.op.id, 0))
        return ()

    def aligned_with(self, need: Need, axes: tuple[AxisPart, ...]) -> ValueId | None:
        """The other of a scatter's indices and updates that has axes where the value has others.

        XLA moves one to go with the other, before both are gathered for what the updates go into
        (`gather_scatter_handler.cc`, `PartitionScatter`). None where nothing has the axes so.
        """
        op = need.op
        if op is None or need.output is not None or kind_of(op) != "scatter":
            return None
        given = self.operands(op)
        shapes = [self.decided.shape(value) for value in (*given, *results(op))]
        if need.value not in given or None in shapes:
            return None
        at = given.index(need.value)
        for group in same_dims(op, [shape for shape in shapes if shape is not None]):
            dims = dict(group)
            if at not in dims or any(tensor >= len(given) for tensor in dims):
                continue  # It has none of these dimensions, or they go on into the result.
            if not self.carried(need.value, self.every_axis, (dims.pop(at),)):
                continue
            for tensor, dim in dims.items():
                has = self.carried(given[tensor], axes, (dim,))
                if not any(axis.without(has) for axis in axes):
                    return given[tensor]
        return None

    def is_torn(self, op: Op, axes: tuple[AxisPart, ...]) -> bool:
        """Whether another axis is on dimensions of an op's operands that don't go together.

        It is summed in one and not so in another or in the result, or splits two of the result's.
        One of the two gives way, and XLA then splits the op over whatever axes are idle.
        """
        given = self.graph.operands(op)
        summing: list[set[str]] = []
        kept: set[str] = set()
        free: set[str] = set()
        for producer, edge in given:
            value = (producer.id, edge.result)
            rank = self.decided.rank(value)
            every = frozenset(range(rank))
            summed = summed_dims(op, edge.operand, rank, len(given))
            if summed is None or summed:
                summing.append(self._besides(value, every if summed is None else summed, axes))
            kept |= self._besides(value, every - (summed or frozenset()), axes)
            own = self._besides(value, free_dims(op, edge.operand, rank), axes)
            if own & free:
                return True
            free |= own
        given_on: set[str] = set()
        for result in results(op):
            given_on |= self._besides(result, range(self.decided.rank(result)), axes)
            if self.carried(result, axes) and free - given_on and self.boundaries.is_looped(op):
                return True  # Without these axes it has those, and so what the loop gives it next.
        kept |= given_on
        anywhere = set().union(*summing)
        return bool(anywhere & kept) or any(anywhere - summed for summed in summing)

    def may_be_torn(self, op: Op, axes: tuple[AxisPart, ...], calls: tuple[int, ...]) -> bool:
        """As ``is_torn``, once what gives the axes to dimensions that an op sums is gone.

        Another axis then comes in their place that the result keeps, or gets in their place too.
        """
        kept, replaced = set[AxisPart](), list[tuple[ValueId, AxisPart]]()
        for result in results(op):
            replaced += [(result, gone) for gone in self.carried(result, axes)]
            for own in self.decided.axes(result):
                kept.update(part for part in own if not any(map(part.shared, axes)))
        others = [part for part in self.every_axis if not any(map(part.shared, axes))]

        def comes(part: AxisPart) -> bool:
            return any(
                self.annotated.may_come(value, part, gone, calls)
                for value in self.summed(op, axes)
                for gone in self.carried(value, axes)
            )

        def is_in_place(part: AxisPart) -> bool:
            return any(
                self.annotated.may_come(result, part, gone, calls) for result, gone in replaced
            )

        return any(map(comes, kept)) or (
            bool(replaced) and any(comes(part) and is_in_place(part) for part in others)
        )

    def _besides(
        self, value: ValueId, dims: Container[int], axes: tuple[AxisPart, ...]
    ) -> set[str]:
        """The axes besides these that some dimensions of a value are sharded on."""
        return {
            part.name
            for at, own in enumerate(self.decided.axes(value))
            for part in own
            if at in dims and not any(map(part.shared, axes))
        }

    def is_rearranged(self, need: Need, axes: tuple[AxisPart, ...]) -> bool:
        """Whether the op puts elements elsewhere along every dimension of a value with the axes."""
        if need.op is None or need.output is not None:
            return False
        held = self.on(self.decided.axes(need.value), axes)
        dims = rearranged_dims(need.op, self.decided.shape(need.value) or ())
        return any(held) and all(at in dims for at, own in enumerate(held) if own)

    def block(self, value: ValueId, without: tuple[AxisPart, ...] = ()) -> tuple[int, ...]:
        """The shape of what a device has of a value, or has once that is gathered over axes."""
        by_dim = without_axes(self.decided.axes(value), without)
        return local_shape(self.decided.shape(value) or (), by_dim)

    def covers(self, value: ValueId, axes: tuple[AxisPart, ...]) -> bool:
        """Whether a value is in pieces along all of the axes."""
        own = self.carried(value, axes)
        return not any(axis.without(own) for axis in axes)

    def carried(
        self, value: ValueId, axes: tuple[AxisPart, ...], dims: Container[int] | None = None
    ) -> list[AxisPart]:
        """As much of the axes as a value is sharded on, or some of its dimensions are."""
        return [
            shared
            for at, dim in enumerate(self.decided.axes(value))
            if dims is None or at in dims
            for own in dim
            for axis in axes
            if (shared := own.shared(axis)) is not None
        ]


def kind_of(op: Op) -> str:
    """An op's name without its dialect; of a custom call, of what it calls where that is known."""
    name = op.mnemonic
    if name != "custom_call":
        return name
    target = op.call_target
    return primitive_of(target) or (collective_of(target) or name).rpartition(".")[2]


def results(*ops: Op) -> list[ValueId]:
    """The values that ops make."""
    return [(op.id, result) for op in ops for result in range(len(op.types))]


def _by_size(
    by_dim: AxesByDim, dimensions: Sequence[int]
) -> list[tuple[int, tuple[AxisPart, ...]]] | None:
    """Size and axes of the dimensions that are no ones; None where such a one has axes."""
    sized = list(zip(dimensions, by_dim or ((),) * len(dimensions), strict=True))
    if any(size == 1 and own for size, own in sized):
        return None
    return [(size, own) for size, own in sized if size != 1]
