"""Reads the collectives of a module in which Shardy has made every resharding one.

They are read off MLIR's bindings in one walk, not by way of an op graph, which would take longer
than all of Shardy's passes: Shardy's own collectives, and those that a ``shard_map`` writes itself.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

from sdyscope.errors import SdyscopeError
from sdyscope.facts.sharded import byte_count
from sdyscope.graph.custom_calls import (
    CUSTOM_PARTITIONING,
    RAGGED_ALL_TO_ALL,
    collective_of,
    sends_nothing,
)
from sdyscope.graph.locations import Location, LocationReader
from sdyscope.graph.op_kinds import BRANCHES, COLLECTIVES
from sdyscope.graph.types import parse_type
from sdyscope.hlo.loops import MIRRORED, trips
from sdyscope.stages import compat
from sdyscope.stages.compiled.explicit_collectives import (
    Axes,
    ControlFlow,
    ExplicitCollective,
    ExplicitCollectives,
    MovedProducts,
    Value,
)
from sdyscope.stages.compiled.value_shardings import ValueReader
from sdyscope.stages.propagated.mlir_ops import FRONTEND, owner
from sdyscope.syntax import shardy
from sdyscope.values.explicit_collectives import (
    AllToAllParamList,
    AxisRefList,
    ListOfAxisRefLists,
)
from sdyscope.values.mesh import AxisRef, Mesh
from sdyscope.values.passing import passes
from sdyscope.values.sharding import TensorSharding

#: Shardy's collectives, the attribute that says over which axes, and what reads it.
_SHARDY: Final[Mapping[str, tuple[str, Callable[[str], Axes] | None]]] = {
    "sdy.all_gather": ("gathering_axes", shardy.parse_list_of_axis_ref_lists),
    "sdy.all_reduce": ("reduction_axes", shardy.parse_axis_ref_list),
    "sdy.all_slice": ("slicing_axes", shardy.parse_list_of_axis_ref_lists),
    "sdy.all_to_all": ("params", shardy.parse_all_to_all_param_list),
    "sdy.collective_permute": ("", None),
    "sdy.reduce_scatter": ("reduce_scatter_axes", shardy.parse_list_of_axis_ref_lists),
}

#: What brings the blocks of a value to where they are needed.
_MOVING: Final = frozenset({"sdy.all_gather", "sdy.all_to_all", "sdy.reduce_scatter"})

#: What leaves each device a part of its block.
_SLICE: Final = "sdy.all_slice"

#: Collectives that a program writes itself.
_WRITTEN = {f"stablehlo.{name}" for name in (*COLLECTIVES, "recv", "send")} | {RAGGED_ALL_TO_ALL}
_CUSTOM_CALL = "stablehlo.custom_call"

#: Ops that need no rule: they are not computed, or what is inside them has its own.
_WITHOUT_RULE = frozenset(
    {
        "func.call",
        "func.func",
        "func.return",
        "sdy.constant",
        "sdy.data_flow_edge",
        "sdy.manual_computation",
        "sdy.mesh",
        "sdy.named_computation",
        "sdy.return",
        "stablehlo.case",
        "stablehlo.constant",
        "stablehlo.if",
        "stablehlo.optimization_barrier",
        "stablehlo.return",
        "stablehlo.while",
    }
)


@dataclass(slots=True)
class _Function:
    """What one function holds, and what it calls how often."""

    collectives: list[ExplicitCollective] = field(default_factory=list)
    calls: list[tuple[str, _Times, Location]] = field(default_factory=list)
    flops: int = 0
    moved: MovedProducts = field(default_factory=MovedProducts)
    summed: MovedProducts = field(default_factory=MovedProducts)


@dataclass(frozen=True, slots=True)
class _Times:
    count: int = 1
    unknown: bool = False
    conditional: bool = False

    def within(self, outer: _Times) -> _Times:
        return _Times(
            self.count * outer.count,
            self.unknown or outer.unknown,
            self.conditional or outer.conditional,
        )


@dataclass(frozen=True, slots=True)
class Readers:
    """What of the modules of one context was read before.

    Attributes:
        values: types and shardings of values.
        locations: locations of ops.
        blocks: shapes of the blocks of values, by the `id` of what ``values`` has of them.
        plain: kinds of ops of which all that were read have a rule, and nothing else to be read.
        collectives: what was read of Shardy's collectives, each once, by what it is made of.
    """

    values: ValueReader = field(default_factory=ValueReader)
    locations: LocationReader = field(default_factory=LocationReader)
    blocks: dict[int, tuple[int, ...]] = field(default_factory=dict)
    plain: set[str] = field(default_factory=set)
    collectives: dict[Any, ExplicitCollective] = field(default_factory=dict)


_ONCE = _Times()


def read_collectives(module: Any, readers: Readers) -> ExplicitCollectives:
    """The collectives of a module, after ``reshards.make_explicit``.

    Args:
        module: an ``ir.Module``.
        readers: what was read of other modules of its context, all of them of one program.
    """
    with module.context:
        reader = _Reader(readers)
        main: Any = None
        for view in module.body.operations:
            operation = view.operation
            if operation.name == "sdy.mesh":
                reader.mesh(operation)
            elif operation.name == "func.func":
                if main is None or compat.symbol_name(operation) == "main":
                    main = operation
                reader.function(operation)
        arguments, results = ((), ()) if main is None else reader.signature(main)
        name = "" if main is None else compat.symbol_name(main)
        readers.plain.update(reader.ruled - reader.unruled)
        return ExplicitCollectives(
            tuple(reader.executed(name, _Times())),
            arguments,
            results,
            reader.meshes,
            reader.without_rule,
            tuple(reader.not_understood),
            reader.flops(name),
            reader.unknown_calls,
            reader.between_blocks,
            reader.control_flow,
            reader.moved_products(name),
            reader.summed_products(name),
        )


class _Reader:
    def __init__(self, readers: Readers) -> None:
        self.values = readers.values
        self.blocks = readers.blocks
        self.meshes: dict[str, Mesh] = {}
        self.functions: dict[str, _Function] = {}
        self.without_rule: dict[str, int] = {}
        self.unknown_calls: dict[str, int] = {}
        self.between_blocks: dict[str, int] = {}
        self.control_flow = ControlFlow()
        self.not_understood: dict[str, None] = {}
        self.location = readers.locations
        self.plain = readers.plain
        self.known = readers.collectives
        #: Kinds of ops of which one has a rule and nothing else to be read, or has none.
        self.ruled: set[str] = set()
        self.unruled: set[str] = set()
        #: The shard_maps of a function that are being read.
        self.around: list[Location] = []
        #: What a collective that was found before makes, by what it is and of what.
        self.same: dict[Any, Sequence[Any]] = {}
        self.stands_for: dict[int, int] = {}

    def mesh(self, operation: Any) -> None:
        name = compat.symbol_name(operation)
        try:
            self.meshes[name] = shardy.parse_mesh(str(operation.attributes["mesh"]))
        except SdyscopeError as error:
            self.not_understood[f"Mesh {name}: {error.message}"] = None

    def function(self, operation: Any) -> None:
        function = self.functions[compat.symbol_name(operation)] = _Function()
        self.regions(operation, function, _Times())

    def regions(self, operation: Any, function: _Function, times: _Times) -> None:
        for region in operation.regions:
            for block in region.blocks:
                self.block(block, function, times)

    def loop(self, operation: Any, function: _Function, times: _Times) -> None:
        """The regions of a while: its condition runs once more than its body."""
        trips = trip_count(operation)
        flow = self.control_flow
        self.control_flow = replace(
            flow, loops=flow.loops + 1, unknown_trips=flow.unknown_trips + (trips is None)
        )
        for region, more in zip(operation.regions, (1, 0), strict=True):
            inner = _Times(1, unknown=True) if trips is None else _Times(trips + more)
            for block in region.blocks:
                self.block(block, function, inner.within(times))

    def block(self, block: Any, function: _Function, times: _Times) -> None:
        same: dict[Any, list[int]] = {}
        sums = Sums()
        #: By an all-reduced value that is used once, the number of the all-reduce.
        reduced: dict[int, int] = {}
        for view in block.operations:
            operation = view.operation
            name = operation.name
            if name in self.plain:
                continue
            target = _target(operation) if name == _CUSTOM_CALL else ""
            if target:
                name = collective_of(target) or name
            if name in _SHARDY or name in _WRITTEN:
                if target and self.is_sharded(operation):
                    # Shardy knows no collective that is a custom call.
                    _count(self.without_rule, f"custom_call {target}")
                if name not in _SHARDY or not self.seen(operation, same):
                    collective = self.collective(operation, name, times)
                    if collective is not None:
                        if name == "sdy.all_reduce":
                            sums.all_reduce(operation, len(function.collectives))
                            if sum(1 for _ in operation.results[0].uses) == 1:
                                reduced[hash(operation.results[0])] = len(function.collectives)
                        elif name == _SLICE:
                            number = reduced.get(hash(operation.operands[0]))
                            if number is not None:
                                whole = function.collectives[number]
                                function.collectives[number] = self.taken(whole, collective)
                        function.collectives.append(collective)
            elif name == "stablehlo.add":
                spared = sums.add(operation)
                if spared is not None:
                    function.collectives[spared] = self.summed(function.collectives[spared])
            elif name == "stablehlo.while":
                self.loop(operation, function, times)
            elif name in BRANCHES:
                flow = self.control_flow
                self.control_flow = replace(flow, conditionals=flow.conditionals + 1)
                self.regions(operation, function, _Times(conditional=True).within(times))
            elif name == "func.call":
                callee = str(compat.ir.FlatSymbolRefAttr(operation.attributes["callee"]).value)
                function.calls.append((callee, times, self.location(operation.location)))
            else:
                if name in MATMULS:
                    function.flops += times.count * self.matmul(operation)
                    function.moved += self.moved_product(operation) * times.count
                    function.summed += self.summed_product(operation) * times.count
                elif name.startswith("stablehlo.") and name != _CUSTOM_CALL:
                    self.ruled.add(name)
                called = f"custom_call {target}" if target else name
                ruled = "sdy.sharding_rule" in operation.attributes
                if ruled and self.is_across(operation):
                    _count(self.between_blocks, called)
                elif target and self.may_send(operation, target, ruled=ruled):
                    _count(self.unknown_calls, target)
                elif not ruled and name not in _WITHOUT_RULE:
                    self.unruled.add(name)
                    if self.is_sharded(operation):
                        _count(self.without_rule, called)
                if name == "sdy.manual_computation":
                    self.around.append(self.location(operation.location))
                    self.regions(operation, function, times)
                    self.around.pop()
                elif len(operation.regions) and not name.startswith("stablehlo."):
                    self.regions(operation, function, times)

    def seen(self, operation: Any, same: dict[Any, list[int]]) -> bool:
        """Whether the block has had this collective of this value; XLA keeps one of them."""
        values = [hash(operand) for operand in operation.operands]
        key = (
            operation.name,
            tuple(self.stands_for.get(value, value) for value in values),
            tuple(value for _, value in compat.dictionary_items(operation.attributes)),
        )
        results = [hash(result) for result in operation.results]
        before = same.setdefault(key, results)
        if before is results:
            return False
        self.stands_for.update(zip(results, before, strict=True))
        return True

    def collective(self, operation: Any, name: str, times: _Times) -> ExplicitCollective | None:
        """One collective; None for one that can't be read, which is listed."""
        axes: Axes = None
        groups: tuple[tuple[int, ...], ...] | None = None
        pairs, written = False, ""
        attributes = operation.attributes
        try:
            if name in _SHARDY:
                attribute, parse = _SHARDY[name]
                if parse is not None:
                    written = self.values.text(attributes[attribute])
                    axes = parse(written)
            else:
                said = _written(operation, name)
                axes, groups, pairs, written = said.axes, said.groups, said.pairs, said.text
                if name in _GLOBAL and not said.global_ids:
                    raise SdyscopeError("its groups are not of partitions")
            operands = tuple(map(self.values.value, operation.operands))
            results = tuple(map(self.values.value, operation.results))
            dims = _dimensions(operation, self.values) if name == "sdy.all_reduce" else ()
            location, around = self.location(operation.location), tuple(self.around)
            key = (
                name,
                written,
                dims,
                times,
                id(location),
                *map(id, (*operands, *results, *around)),
            )
            known = self.known.get(key) if groups is None else None
            if known is not None:
                return known
            collective = ExplicitCollective(
                name,
                operands,
                results,
                axes,
                groups,
                pairs,
                written,
                location,
                times.count,
                times.unknown,
                times.conditional,
                dims,
                around=around,
                asynchronous=_is_async(operation, name),
            )
            if name in _SHARDY:
                self.known[key] = collective
            return collective
        except (SdyscopeError, KeyError, ValueError) as error:
            why = error.message if isinstance(error, SdyscopeError) else str(error)
            self.not_understood[f"{name}: {why}."] = None
            return None

    def taken(self, whole: ExplicitCollective, slice_: ExplicitCollective) -> ExplicitCollective:
        """An all-reduce of which a device takes a slice."""
        key = ("taken", id(whole), id(slice_))
        if key not in self.known:
            self.known[key] = replace(whole, taken=slice_)
        return self.known[key]

    def summed(self, whole: ExplicitCollective) -> ExplicitCollective:
        """An all-reduce that is only added to another one's result."""
        key = ("summed", id(whole))
        if key not in self.known:
            self.known[key] = replace(whole, summed=True)
        return self.known[key]

    def matmul(self, operation: Any) -> int:
        """What a device computes in one run of a matmul."""
        try:
            left, right = map(self.block_of, operation.operands)
            result = self.block_of(operation.results[0])
            return matmul_flops(operation, left, right, result, self.values.text)
        except (SdyscopeError, KeyError, ValueError, IndexError) as error:
            said = error.message if isinstance(error, SdyscopeError) else str(error)
            self.not_understood[f"{operation.name}: {said}."] = None
            return 0

    def block_of(self, value: Any) -> tuple[int, ...]:
        """Shape of the block of a value that a device holds; 0 for a size that is not known."""
        operand = self.values.value(value)
        known = self.blocks.get(id(operand))
        if known is None:
            known = self.blocks[id(operand)] = self.block_shape(operand)
        return known

    def block_shape(self, operand: Value) -> tuple[int, ...]:
        """Shape of the block of a value that is read."""
        sizes = [size or 0 for size in operand.type.shape or ()]
        if operand.sharding is not None:
            mesh = operand.sharding.mesh
            mesh = self.meshes[mesh] if isinstance(mesh, str) else mesh
            for at, dim in enumerate(operand.sharding.dim_shardings):
                sizes[at] = -(-sizes[at] // math.prod(map(mesh.axis_size, dim.axes)))
        return tuple(sizes)

    def flops(self, name: str) -> int:
        """What a device computes in the matmuls of a function and of those that it calls."""
        function = self.functions.get(name, _Function())
        return function.flops + sum(
            times.count * self.flops(callee) for callee, times, _ in function.calls
        )

    def moved_products(self, name: str) -> MovedProducts:
        """The products of a function, and of those it calls, that XLA computes otherwise."""
        function = self.functions.get(name, _Function())
        called = (self.moved_products(callee) * times.count for callee, times, _ in function.calls)
        return sum(called, function.moved)

    def summed_products(self, name: str) -> MovedProducts:
        """The same of those of which XLA moves the result."""
        function = self.functions.get(name, _Function())
        called = (self.summed_products(callee) * times.count for callee, times, _ in function.calls)
        return sum(called, function.summed)

    def moved_product(self, operation: Any) -> MovedProducts:
        """A matmul, if one operand and its result are moved over axes that the other has, too.

        The result's are back where the operand had them: on a dimension that it has from that one
        alone. Where it is gathered, or has them on a dimension that the other operand has as well,
        XLA does as Shardy.
        """
        (result,) = operation.results
        back = [self.moved_to(use.owner) for use in result.uses]
        if not any(back):
            return MovedProducts()
        operands = (*operation.operands,)
        ranks = [len(self.values.value(value).type.shape or ()) for value in (*operands, result)]
        free = free_dimensions(operation, ranks, self.values.text)
        for operand, other, own in zip(operands, operands[::-1], free, strict=True):
            returned = {axis for moved in back for axis, at in moved.items() if at in own}
            over = self.moved_to(owner(operand)).keys() & returned
            made_by = owner(other)
            # XLA gathers it before it takes a part of it.
            whole = other if made_by is None or made_by.name != _SLICE else made_by.operands[0]
            sharding = self.values.sharding_of(whole)
            if sharding is None or not over:
                continue
            axes = [axis for axis in sharding.axes() if axis in over]
            if (handed_on := self.handed_on(whole, axes)) is not None:
                return handed_on
        return MovedProducts()

    def summed_product(self, operation: Any) -> MovedProducts:
        """A matmul, if both operands are moved off axes that they are summed over, and it has them.

        As a weight's gradient, of fewer examples than the weight has rows.
        """
        if operation.name != "stablehlo.dot_general":
            return MovedProducts()
        (result,) = operation.results
        sharding = self.values.sharding_of(result)
        if sharding is None:
            return MovedProducts()
        began = [self.values.sharding_of(self.before_moves(value)) for value in operation.operands]
        summed = _contracted(self.values.text(operation.attributes["dot_dimension_numbers"]))
        over: set[AxisRef] = set()
        for dims in zip(*summed, strict=True):
            axes = [
                set[AxisRef]() if each is None else {*each.dim_shardings[dim].axes}
                for each, dim in zip(began, dims, strict=True)
            ]
            over |= axes[0] & axes[1]
        axes_of_result = [axis for axis in sharding.axes() if axis in over]
        return self.handed_on(result, axes_of_result) or MovedProducts()

    def before_moves(self, value: Any) -> Any:
        """What a value is before Shardy moves it."""
        while (maker := owner(value)) is not None and maker.name in _SHARDY:
            value = maker.operands[0]
        return value

    def handed_on(self, value: Any, axes: Sequence[AxisRef]) -> MovedProducts | None:
        """One product for which devices gather a value over axes, or scatter sums to it."""
        sharding = self.values.sharding_of(value)
        held = byte_count(self.block_of(value), self.values.value(value).type.dtype)
        if not axes or sharding is None or held is None:
            return None
        mesh = sharding.mesh
        mesh = self.meshes[mesh] if isinstance(mesh, str) else mesh
        return MovedProducts(1, held * (math.prod(map(mesh.axis_size, axes)) - 1))

    def moved_to(self, operation: Any) -> dict[AxisRef, int]:
        """The axes of a collective of Shardy's that moves a value, and the dimensions it has then.

        -1 where it gathers them; nothing of any other op.
        """
        name = "" if operation is None else operation.operation.name
        if name not in _MOVING:
            return {}
        attribute, parse = _SHARDY[name]
        assert parse is not None
        try:
            written = parse(self.values.text(operation.attributes[attribute]))
        except SdyscopeError:
            return {}  # It is listed where the collective is read.
        if isinstance(written, ListOfAxisRefLists):
            is_gather = name == "sdy.all_gather"
            numbered = enumerate(written.lists)
            return {axis: -1 if is_gather else at for at, each in numbered for axis in each.axes}
        assert isinstance(written, AllToAllParamList)
        return {axis: param.tgt_dim for param in written.params for axis in param.axes}

    def is_sharded(self, operation: Any) -> bool:
        """Whether an op takes a sharded value."""
        shardings = map(self.values.sharding_of, operation.operands)
        return any(sharding is not None and any(sharding.axes()) for sharding in shardings)

    def may_send(self, operation: Any, target: str, *, ruled: bool) -> bool:
        """Whether a custom call may send something, of which nothing is known.

        What an op of ``custom_partitioning`` does on each device is a function of its author's.
        """
        if target == CUSTOM_PARTITIONING:
            return self.is_sharded(operation)
        return not sends_nothing(target) and (ruled or not self.is_sharded(operation))

    def is_across(self, operation: Any) -> bool:
        """Whether an op with a rule needs more than its block, where Shardy leaves values sharded.

        It reshards no permutation factor (``InsertExplicitReshards``), and XLA's partitioner sends
        what crosses from one block into another: halos, shifts, whole blocks. Nor does it reshard a
        dimension that the rule of a custom call has in no result, as of a matrix that is factored.
        XLA partitions an FFT along its last dimension or not at all (``HandleFft``), a top-k along
        the dimension that is sorted (``HandleCustomCallTopK``). It writes more than a row along a
        sharded dimension, and into what is only now cut as the update is, where all is together
        (``HandleDynamicUpdateSlice``, ``HandleScatter``).
        """
        name = operation.name
        if name in ("stablehlo.fft", "mhlo.topk"):
            self.unruled.add(name)
            return self.is_sharded(operation)
        if name == "stablehlo.dynamic_update_slice":
            self.unruled.add(name)
            return self.writes_across(operation)
        if name == "stablehlo.scatter":
            self.unruled.add(name)
            makers = map(owner, operation.operands)
            return any(maker is not None and maker.name == _SLICE for maker in makers)
        text = self.values.text(operation.attributes["sdy.sharding_rule"])
        if " permutation={" not in text and not text.endswith(", custom>"):
            return False
        self.unruled.add(operation.name)
        rule = shardy.parse_op_sharding_rule(text)
        crossed = {*rule.permutation_factors}
        if rule.is_custom_rule:
            operands, results = (
                set[int]().union(*(mapping.factors() for mapping in mappings))
                for mappings in (rule.operand_mappings, rule.result_mappings)
            )
            crossed |= operands - results - {*rule.reduction_factors}
        for values, mappings in (
            (operation.operands, rule.operand_mappings),
            (operation.results, rule.result_mappings),
        ):
            for value, mapping in zip(values, mappings, strict=True):
                sharding = self.values.sharding_of(value)
                dims = () if sharding is None else sharding.dim_shardings
                for factors, dim in zip(mapping.dim_mappings, dims, strict=False):
                    if dim.axes and not crossed.isdisjoint(factors.factor_indices):
                        return True
        return False

    def writes_across(self, operation: Any) -> bool:
        """Whether an update is of several rows, but not all, along a dimension that is sharded."""
        values = [operation.results[0], operation.operands[1]]
        whole, update = (self.values.value(value).type.shape or () for value in values)
        return any(
            dim.axes and rows not in (1, size)
            for sharding in map(self.values.sharding_of, values)
            for dim, rows, size in zip(
                () if sharding is None else sharding.dim_shardings, update, whole, strict=False
            )
        )

    def signature(self, function: Any) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        """Arguments and results of a function, with what is written on it."""
        view = function.opview
        values = []
        for types, name in ((view.type.inputs, "arg_attrs"), (view.type.results, "res_attrs")):
            written: list[Any] = [None] * len(types)
            if name in function.attributes:
                written = list(function.attributes[name])
            values.append(tuple(map(self.written_value, types, written)))
        return values[0], values[1]

    def written_value(self, type_: Any, attributes: Any) -> Value:
        """An argument or a result of a function, from its own attributes."""
        sharding = None if attributes is None else self.values.written_on(attributes)
        return self.values.of(type_, sharding)

    def executed(self, name: str, times: _Times) -> Iterator[ExplicitCollective]:
        """The collectives of a function and of those that it calls."""
        function = self.functions.get(name, _Function())
        for collective in function.collectives:
            if times == _ONCE:
                yield collective
                continue
            own = _Times(collective.times, collective.unknown_trips, collective.conditional).within(
                times
            )
            yield replace(
                collective, times=own.count, unknown_trips=own.unknown, conditional=own.conditional
            )
        for callee, inner, call in function.calls:
            for nested in self.executed(callee, inner.within(times)):
                yield replace(nested, around=(call, *nested.around))


#: Kinds whose groups are of replicas where they do not say otherwise.
_GLOBAL = frozenset({"stablehlo.all_gather", "stablehlo.all_reduce", "stablehlo.reduce_scatter"})


def _count(counts: dict[str, int], name: str) -> None:
    counts[name] = counts.get(name, 0) + 1


def _is_async(operation: Any, name: str) -> bool:
    return operation.name == _CUSTOM_CALL and name != RAGGED_ALL_TO_ALL


def _written(operation: Any, name: str) -> WrittenGroups:
    """The groups or pairs of a collective that the program writes itself."""
    attributes = operation.attributes
    if _is_async(operation, name):
        frontend = compat.ir.DictAttr(attributes[FRONTEND])
        return async_groups(compat.text(frontend["async_collective_config"]))
    return written_groups(attributes["backend_config"] if name == RAGGED_ALL_TO_ALL else attributes)


def _target(operation: Any) -> str:
    return compat.text(operation.attributes["call_target_name"])


def _dimensions(operation: Any, values: ValueReader) -> tuple[tuple[AxisRef, ...], ...]:
    """The axes of each dimension that an all-reduce is for; none where they are not all known."""
    value = operation.operands[0]
    made_by = owner(value)
    if made_by is None:
        return ()
    by_dim = axes_of_dimensions(value, tuple(map(values.sharding_of, made_by.operands)), values)
    reduced = shardy.parse_axis_ref_list(values.text(operation.attributes["reduction_axes"]))
    known = sorted(str(axis) for axes in by_dim for axis in axes)
    return by_dim if len(by_dim) > 1 and known == sorted(map(str, reduced.axes)) else ()


# --- what XLA makes of all-reduces ----------------------------------------------------------------


class Sums:
    """Finds all-reduces of one block whose results are only added to each other's.

    On TPUs and GPUs XLA makes one of them (``all_reduce_folder.cc``, ``all_reduce_reassociate.cc``
    in ``xla/hlo/transforms/collectives``), and one for all dimensions of a reduction.
    """

    def __init__(self) -> None:
        #: By value: what it is reduced over, and the number of the all-reduce that it could be of.
        self._pending: dict[int, tuple[object, int]] = {}

    def all_reduce(self, operation: Any, number: int) -> None:
        """Remembers an ``sdy.all_reduce``, which is the collective of this number."""
        attributes = operation.attributes
        over = (attributes["reduction_axes"], attributes["out_sharding"])
        self._wait(operation.results[0], over, number)

    def add(self, operation: Any) -> int | None:
        """The number of the all-reduce that a ``stablehlo.add`` spares; None for none."""
        if not self._pending:
            return None
        left, right = (self._pending.get(hash(operand)) for operand in operation.operands)
        if left is None or right is None or left[0] != right[0] or left[1] == right[1]:
            return None
        self._wait(operation.results[0], *left)
        return right[1]

    def _wait(self, value: Any, over: object, number: int) -> None:
        if sum(1 for _ in value.uses) == 1:
            self._pending[hash(value)] = (over, number)


def axes_of_dimensions(
    value: Any, shardings: tuple[TensorSharding | None, ...], values: ValueReader
) -> tuple[tuple[AxisRef, ...], ...]:
    """The axes that each of the dimensions that an op reduces is sharded over.

    On CPUs XLA makes an all-reduce of each (``AllReduceAlongShardingDims`` of its
    ``spmd_partitioner.cc``).

    Args:
        value: what the op makes, before it is reduced over devices.
        shardings: those of the op's operands.
        values: what was read before.
    """
    made_by = owner(value)
    if made_by is None or "sdy.sharding_rule" not in made_by.attributes:
        return ()
    try:
        rule = shardy.parse_op_sharding_rule(values.text(made_by.attributes["sdy.sharding_rule"]))
    except SdyscopeError:
        return ()
    by_factor: dict[int, tuple[AxisRef, ...]] = {}
    for mapping, sharding in zip(rule.operand_mappings, shardings, strict=True):
        dims = () if sharding is None else sharding.dim_shardings
        for factors, dim in zip(mapping.dim_mappings, dims, strict=False):
            factor = factors.factor_indices[0]
            if dim.axes and len(factors.factor_indices) == 1 and factor in rule.reduction_factors:
                by_factor.setdefault(factor, dim.axes)
    return tuple(by_factor.values())


# --- how often loops run --------------------------------------------------------------------------

_CONSTANTS = frozenset({"stablehlo.constant", "sdy.constant"})


def trip_count(loop: Any) -> int | None:
    """How often the body of a loop runs; None where the module does not tell.

    The pattern is that of a counted loop, such as JAX's scans: an argument of the loop that is
    compared with a constant, begins with a constant, and grows by a constant.

    Args:
        loop: the ``stablehlo.while``.
    """
    condition, body = (region.blocks[0] for region in loop.regions)
    compared = owner(_end(condition).operands[0])
    if compared is None or compared.name != "stablehlo.compare":
        return None
    direction = compat.comparison_direction(compared)
    left, right = compared.operands
    if _number(left) is not None:
        left, right, direction = right, left, MIRRORED.get(direction, "")
    limit, index = _number(right), _argument(left, condition)
    if limit is None or index is None or direction not in MIRRORED:
        return None
    first = _number(loop.operands[index])
    step = _step(body, index)
    if first is None or not step:
        return None
    return trips(first, limit, step, direction)


def _end(block: Any) -> Any:
    return block.operations[len(block.operations) - 1].operation


def _step(body: Any, index: int) -> int | None:
    """By how much an argument of the loop grows."""
    grown = owner(_through(_end(body).operands[index]))
    if grown is None or grown.name not in ("stablehlo.add", "stablehlo.subtract"):
        return None
    left, right = grown.operands
    if grown.name == "stablehlo.add" and _number(left) is not None:
        left, right = right, left
    size = _number(right)
    if size is None or _argument(left, body) != index:
        return None
    return size if grown.name == "stablehlo.add" else -size


def _argument(value: Any, block: Any) -> int | None:
    """Which argument of a block a value is."""
    value = _through(value)
    if not compat.is_block_argument(value) or value.owner != block:
        return None
    return compat.argument_number(value)


def _through(value: Any) -> Any:
    """The value before it was only passed on."""
    made_by = owner(value)
    while (
        made_by is not None
        and len(made_by.operands) == 1
        and passes(made_by.name, "unchanged", "type", "shape")
    ):
        value = made_by.operands[0]
        made_by = owner(value)
    return value


def _number(value: Any) -> int | None:
    """The number that a value always is."""
    made_by = owner(_through(value))
    if made_by is None or made_by.name not in _CONSTANTS:
        return None
    numbers = compat.integers(made_by.attributes["value"])
    return numbers[0] if numbers is not None and len(numbers) == 1 else None


# --- which devices work together ------------------------------------------------------------------

#: How many devices are listed in a text.
_LISTED = 64

_GLOBAL_IDS = "use_global_device_ids"

# From JAX 0.11 on: ReplicaGroupMeshAxesAttr and AxisRefAttr of StableHLO's StablehloAttrs.td.
_MESH_AXES = "#stablehlo.replica_group_mesh_axes<"
_AXIS = re.compile(
    r'#stablehlo\.axis_ref<name = (?P<name>"(?:[^"\\]|\\.)*")'
    r"(?:, sub_axis_info = (?P<part>\(\d+\)\d+))?>"
)


@dataclass(frozen=True, slots=True)
class WrittenGroups:
    """Replica groups, or source-target pairs.

    Attributes:
        axes: the mesh axes that the groups are along, where it is axes that are written.
        groups: the groups or pairs where these are.
        pairs: whether ``groups`` are pairs.
        text: what is written; of many devices, how many groups of how many.
        global_ids: whether it says that the numbers are of devices, not of replicas.
    """

    axes: AxisRefList | None
    groups: tuple[tuple[int, ...], ...] | None
    pairs: bool
    text: str
    global_ids: bool


def written_groups(attributes: Any) -> WrittenGroups:
    """The groups or pairs among the attributes of an op.

    Raises:
        SdyscopeError: there are none, or they are written in a form that is not known.
    """
    name = next((n for n in ("source_target_pairs", "replica_groups") if n in attributes), None)
    if name is None:
        raise SdyscopeError("it says no groups of devices")
    attribute, global_ids = attributes[name], _GLOBAL_IDS in attributes
    numbers = compat.integers(attribute)
    if numbers is None:
        text = str(attribute)
        if not text.startswith(_MESH_AXES):
            raise SdyscopeError(f"{name} that are no list of numbers: {text}")
        refs = [match["name"] + _colon(match["part"]) for match in _AXIS.finditer(text)]
        if len(refs) != text.count("axis_ref<"):
            raise SdyscopeError(f"{name} that are no list of axes: {text}")
        axes = AxisRefList(tuple(map(shardy.parse_axis_ref, refs)))
        return WrittenGroups(axes, None, False, str(axes), global_ids)
    width = parse_type(str(attribute.type)).shape or (1, 1)
    size = int(width[-1] or 1)
    # -1 pads groups that are shorter than others.
    groups = tuple(
        tuple(number for number in numbers[at : at + size] if number >= 0)
        for at in range(0, len(numbers), size)
    )
    return _of_numbers(groups, name == "source_target_pairs", global_ids)


def async_groups(config: str) -> WrittenGroups:
    """The groups or pairs of a collective that JAX starts by a custom call.

    Args:
        config: its ``async_collective_config``, which is JSON: ``{"replica_groups": [[0, 1]]}``,
            ``{"permutation": [[0, 1], [1, 0]]}``.

    Raises:
        SdyscopeError: there are none, or they are written in a form that is not known.
    """
    try:
        said = json.loads(config)
        name = next(each for each in ("permutation", "replica_groups") if each in said)
        groups = tuple(tuple(map(int, group)) for group in said[name])
    except (ValueError, TypeError, StopIteration) as error:
        raise SdyscopeError(f"it says no groups of devices: {config}") from error
    return _of_numbers(groups, name == "permutation", bool(said.get(_GLOBAL_IDS)))


def _of_numbers(
    groups: tuple[tuple[int, ...], ...], pairs: bool, global_ids: bool
) -> WrittenGroups:
    text = "{" + ",".join("{" + ",".join(map(str, group)) + "}" for group in groups) + "}"
    if sum(map(len, groups)) > _LISTED:
        text = f"{len(groups):,} of {max(map(len, groups)):,}"
    return WrittenGroups(None, groups, pairs, text, global_ids)


def _colon(part: str | None) -> str:
    return "" if part is None else f":{part}"


# --- arithmetic on the blocks of a device ---------------------------------------------------------

#: Ops whose arithmetic is counted.
MATMULS = frozenset({"stablehlo.dot_general", "stablehlo.dot", "stablehlo.convolution"})

_CONTRACTED = re.compile(r"[lr]hs_contracting_dimensions = \[([\d, ]*)\]")
_KERNEL = re.compile(r"x\[([^\]]*)\]->")
_CONVOLVED = re.compile(r"->\[([^\]]*)\]")


def matmul_flops(
    operation: Any,
    left: Sequence[int],
    right: Sequence[int],
    result: Sequence[int],
    text: Callable[[Any], str] = str,
) -> int:
    """A multiplication and an addition for each product, as XLA's cost analysis counts them.

    Args:
        operation: one of ``MATMULS``.
        left: shape of the block of its first operand.
        right: of its second operand.
        result: of its result.
        text: the text of an attribute.
    """
    if operation.name == "stablehlo.convolution":
        # [0, 1, i, o]: every number of the result is a sum over all of the kernel but `o`.
        match = _KERNEL.search(text(operation.attributes["dimension_numbers"]))
        names = [] if match is None else [name.strip() for name in match[1].split(",")]
        summed = [size for name, size in zip(names, right, strict=False) if name != "o"]
        return 2 * math.prod(result) * math.prod(summed)
    if operation.name == "stablehlo.dot":
        return 2 * math.prod(result) * (left[-1] if left else 1)
    numbers, _ = _contracted(text(operation.attributes["dot_dimension_numbers"]))
    return 2 * math.prod(result) * math.prod(left[number] for number in numbers)


def free_dimensions(
    operation: Any, ranks: Sequence[int], text: Callable[[Any], str] = str
) -> tuple[range | set[int], range | set[int]]:
    """The dimensions of a matmul's result that are those of one operand alone.

    Args:
        operation: one of ``MATMULS``.
        ranks: how many dimensions its operands and its result have.
        text: the text of an attribute.

    Returns:
        Those of the first operand, and of the second.
    """
    if operation.name == "stablehlo.convolution":
        match = _CONVOLVED.search(text(operation.attributes["dimension_numbers"]))
        names = [] if match is None else [name.strip() for name in match[1].split(",")]
        features = {at for at, name in enumerate(names) if name == "f"}
        return {*range(len(names))} - features, features
    left, right, result = ranks
    summed = 1
    if operation.name == "stablehlo.dot_general":
        summed = len(_contracted(text(operation.attributes["dot_dimension_numbers"]))[0])
    batch = left + right - 2 * summed - result
    return range(batch, left - summed), range(left - summed, result)


@lru_cache(1 << 8)
def _contracted(text: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The dimensions that a product sums, of its first operand and of its second."""
    left, right = _CONTRACTED.findall(text) or ("", "")
    return _numbers(left), _numbers(right)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(",") if number.strip())
