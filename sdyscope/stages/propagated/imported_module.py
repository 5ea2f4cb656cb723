"""A module as XLA imports it for Shardy, imported once and propagated with ever other edits."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from sdyscope.errors import TargetError
from sdyscope.facts.propagated import ValueId
from sdyscope.graph import OpGraph, build
from sdyscope.graph.collection import no_collection
from sdyscope.graph.tags import sids
from sdyscope.stages import compat
from sdyscope.stages.align.tags import tag
from sdyscope.stages.propagated.annotate import (
    NewConstraint,
    ShardingEdit,
    annotate,
    constrain,
    written_attributes,
)
from sdyscope.stages.propagated.hlo_order import functions
from sdyscope.stages.propagated.mlir_ops import by_name, owner
from sdyscope.stages.propagated.passes import propagation_passes, run_guarded
from sdyscope.stages.propagated.propagate import imported
from sdyscope.stages.propagated.shardy_import import LOOP, open_free_variables
from sdyscope.syntax.shardy import parse_tensor_sharding
from sdyscope.values.mesh import Mesh

if TYPE_CHECKING:
    from sdyscope.stages.lowered.lower import LoweredModule
    from sdyscope.stages.propagated.annotate import ModuleEdit
    from sdyscope.values.sharding import TensorSharding

#: Passes that do not look at shardings in a module of one function, without axes of size 1.
_BLIND = re.compile(
    r"^(func\.func\()?(symbol-dce|sdy-lift-inlined-meshes|sdy-remove-size-one-axes"
    r"|sdy-propagate-sharding-from-func-to-call|sdy-constant-or-scalar-splitter"
    r"|sdy-manual-axes-cleanup)\b(?!-)"
)

#: Writes on each op how its values have to be sharded, which the propagation would do each time.
_RULES = "func.func(sdy-populate-op-sharding-rules)"

#: Passes that do nothing in a module of one function that calls nothing.
_OF_CALLS = re.compile(
    r"^(symbol-dce|sdy-flatten-call-graph|sdy-import-func-calls|sdy-pre-order-funcs"
    r"|sdy-export-named-computations|sdy-unflatten-call-graph|sdy-insert-func-call-reshards)\b(?!-)"
)

_NAMED = "sdy.named_computation"
_BROADCAST = "stablehlo.broadcast_in_dim"

_Place: TypeAlias = tuple[tuple[int, int, int], ...]
"""Region, block and position of an op, from the outermost op inwards."""


class ImportedModule:
    """A program that is imported once.

    Other shardings of arguments, results and constraints, and further constraints, are written into
    a copy of the imported module, which is what an import of the changed program gives.

    Args:
        lowered: the module, lowered under Shardy or read from a file with Shardy's shardings.
        graph: its op graph.

    Attributes:
        doubts: why XLA might propagate otherwise than Shardy here.
        has_loops: whether there is a loop in the program.

    Raises:
        CompilerError: the module is not for Shardy.
    """

    def __init__(self, lowered: LoweredModule, graph: OpGraph) -> None:
        self.lowered, self.graph = lowered, graph
        with no_collection():
            module, doubts = imported(
                lowered,
                graph,
                lambda own: tag(own, graph, in_attributes=False),
                open_captures=False,
            )
            file = io.BytesIO()
            module.operation.write_bytecode(file)
        self.doubts = tuple(doubts)
        self._bytecode = file.getvalue()
        passes = propagation_passes(module.context, steps=False, origins=False)
        named = functions(module)
        inside = [by_name(function, LOOP, _NAMED) for function in named.values()]
        self.has_loops = any(ops[LOOP] for ops in inside)
        is_alone = len(inside) == 1 and not inside[0][_NAMED]
        self._passes = tuple(each for each in passes if not (is_alone and _OF_CALLS.search(each)))
        #: How many of the first passes are run only once.
        self._once = 0
        whole = all(
            isinstance(mesh, Mesh) and all(axis.size > 1 for axis in mesh.axes)
            for mesh in graph.meshes.values()
        )
        if len(named) == 1 and whole and not self.has_loops:
            blind = itertools.takewhile(lambda each: _BLIND.search(each), self._passes)
            self._once = len([*blind])
        self._context = compat.new_context()
        self._managers: dict[tuple[str, ...], Any] = {}
        #: By whether it went through the first passes: the module, and where its ops are.
        self._bases: dict[bool, tuple[Any, dict[int, list[_Place]]]] = {}
        #: By the edit's `id`: the edit, what it writes, and what is there instead.
        self._attributes: dict[int, tuple[ShardingEdit, dict[str, Any]]] = {}
        self._signature: dict[str, list[Any]] = {}
        self._on_signature: dict[tuple[str, int, int], Any] = {}
        self._verified: set[int] = set()

    def propagated(self, edits: Sequence[ModuleEdit] = (), further: Sequence[str] = ()) -> Any:
        """A new module, as its op, propagated with these edits; None where one has no place in it.

        Its ops have the tags of those that they come from (``stages.align.tags``).

        Args:
            edits: what to write. What was written once is remembered by the edit itself.
            further: passes to run behind the propagation.

        Raises:
            CompilerError: a pass of Shardy failed; with the compiler's message.
            TargetError: an edit that the module can't carry; says which and why.
        """
        # A new constraint is of a value that is not split for its uses yet.
        begun = self._once > 0 and not any(isinstance(edit, NewConstraint) for edit in edits)
        with no_collection():
            base, places = self._base(begun)
            module = base.operation.clone()
            with self._context, compat.ir.Location.unknown():
                if edits and not self._changed(module, places, edits):
                    return None
                if self.has_loops:
                    for function in functions(module).values():
                        open_free_variables(function)
            passes = (*self._passes[begun * self._once :], *further)
            return run_guarded(module, *passes, managers=self._managers)

    def _base(self, begun: bool) -> tuple[Any, dict[int, list[_Place]]]:
        """The module that edits are written into a copy of, and where its ops are.

        Args:
            begun: whether the passes that do not look at shardings have been run on it.
        """
        if begun not in self._bases:
            module = compat.ir.Module.parse(self._bytecode, self._context)
            if begun:
                module = run_guarded(module, *self._passes[: self._once])
                _fold_splats(module)
                module = run_guarded(module, _RULES)
            self._bases[begun] = module, _by_tag(module)
        return self._bases[begun]

    def shardings(
        self, value: ValueId, edits: Sequence[ModuleEdit] = ()
    ) -> tuple[TensorSharding | None, ...]:
        """How a value is sharded with these edits, once for each time that it is inlined.

        Nothing where the value is folded away; None for a value on which nothing is written.

        Args:
            value: an op's result, or an argument or result of main, by its node in the graph.
            edits: what to write.

        Raises:
            CompilerError: a pass of Shardy failed; with the compiler's message.
            TargetError: an edit that the module can't carry; says which and why.
        """
        module = self.propagated(edits)
        if module is None:
            changed = annotate(self.lowered, self.graph, edits)
            again = ImportedModule(changed, build(changed.module))
            # Constraints that were put in move the numbers of what comes behind them.
            added = [edit.value[0] for edit in edits if isinstance(edit, NewConstraint)]
            return again.shardings((value[0] + sum(node < value[0] for node in added), value[1]))
        return tuple(self._shardings(module, value))

    def _shardings(self, module: Any, value: ValueId) -> Iterator[TensorSharding | None]:
        op = self.graph.ops[value[0]]
        main = self.graph.main
        named = functions(module)
        if op.is_result or (op.is_argument and main is not None and op.function == main.name):
            function = named.get(op.function if not op.is_result else main.name if main else "")
            function = function or named["main"]
            name = "res_attrs" if op.is_result else "arg_attrs"
            index = op.result if op.is_result else op.argument
            if name not in function.attributes:
                yield None
                return
            own = list(compat.ir.ArrayAttr(function.attributes[name]))[index]
            written = dict(compat.dictionary_items(own)).get("sdy.sharding")
            yield None if written is None else _parsed(written)
            return
        for place in _by_tag(module).get(value[0], ()):
            operation = _at(module, place)
            if value[1] < len(operation.results):
                written = compat.value_sharding(operation.results[value[1]])
                yield None if written is None else _parsed(written)

    def _changed(
        self, module: Any, places: Mapping[int, list[_Place]], edits: Sequence[ModuleEdit]
    ) -> bool:
        """Writes changes into an imported module; whether all of them have a place there.

        Raises:
            TargetError: a change that the module can't carry; says which and why.
        """
        main = self.graph.main
        signature: list[ShardingEdit] = []
        inside: list[tuple[Any, ShardingEdit | NewConstraint]] = []
        for change in edits:
            if isinstance(change, ShardingEdit) and change.annotation.kind in (
                "argument",
                "result",
            ):
                if main is None or change.annotation.function != main.name:
                    return False
                signature.append(change)
                continue
            if not isinstance(change, ShardingEdit | NewConstraint):
                continue  # A donation moves nothing.
            operations = self._operations(module, places, change)
            if not operations:
                return False
            inside += [(operation, change) for operation in operations]
        if signature and main is not None:
            # HLO calls it main.
            named = functions(module)
            self._sign(named.get(main.name) or named["main"], signature)
        for operation, change in inside:
            if isinstance(change, ShardingEdit):
                for name, attribute in self._written(change).items():
                    assert attribute is not None
                    operation.attributes[name] = attribute
            else:
                constrain(operation, replace(change, value=(change.value[0], 0)), self.graph)
        # Shardings are verified each by itself.
        known = all(isinstance(e, ShardingEdit) and id(e) in self._verified for e in edits)
        if not known and not module.operation.verify():
            raise TargetError(f"{self.lowered.name} is not a valid module after these changes.")
        self._verified.update(id(edit) for edit in edits if id(edit) in self._attributes)
        return True

    def _written(self, change: ShardingEdit) -> dict[str, Any]:
        """The attributes that an edit writes."""
        known = self._attributes.get(id(change))
        if known is None:
            # With the edit itself, so that no other can have its `id`.
            known = self._attributes[id(change)] = change, written_attributes(change, self.graph)
        return known[1]

    def _sign(self, function: Any, changes: Sequence[ShardingEdit]) -> None:
        """Writes other shardings on the arguments and results of a function, in place.

        Raises:
            TargetError: a change that the function can't carry; says which and why.
        """
        lists: dict[str, list[Any]] = {}
        for change in changes:
            there = change.annotation
            name = "arg_attrs" if there.kind == "argument" else "res_attrs"
            if name not in self._signature:
                self._signature[name] = _dictionaries(function, name)
            assert there.index is not None
            own = lists.setdefault(name, [*self._signature[name]])
            key = (name, there.index, id(change))
            if key not in self._on_signature:
                entries = dict(compat.dictionary_items(self._signature[name][there.index]))
                entries.update(self._written(change))
                self._on_signature[key] = compat.ir.DictAttr.get(
                    {each: value for each, value in entries.items() if value is not None}
                )
            own[there.index] = self._on_signature[key]
        for name, dictionaries in lists.items():
            function.attributes[name] = compat.ir.ArrayAttr.get(dictionaries)

    def _operations(
        self,
        module: Any,
        places: Mapping[int, list[_Place]],
        change: ShardingEdit | NewConstraint,
    ) -> list[Any]:
        """The ops of the imported module that a change is written on; none where it is unclear."""
        if isinstance(change, ShardingEdit):
            if change.annotation.kind != "constraint":
                return []
            return [
                operation
                for place in places.get(change.annotation.op, ())
                if (operation := _at(module, place)).name == "sdy.sharding_constraint"
            ]
        node, result = change.value
        op = self.graph.ops[node]
        if result or len(op.types) != 1:
            return []
        operations = [_at(module, place) for place in places.get(node, ())]
        if any(
            operation.name != op.kind or str(operation.results[0].type) != op.types[0].text
            for operation in operations
        ):
            return []
        return operations


def _fold_splats(module: Any) -> None:
    """Writes the broadcast of a constant scalar as one constant, in place.

    No axis comes through a scalar, and Shardy splits and merges the two alike, so that all other
    values are sharded as before. There are many: a constant is split for each of its uses. Complex
    ones stay: MLIR's Python bindings can't read their value.
    """
    constants = ("sdy.constant", "stablehlo.constant")
    with module.context:
        for function in functions(module).values():
            for broadcast in by_name(function, _BROADCAST)[_BROADCAST]:
                scalar = owner(broadcast.operands[0])
                if scalar is None or scalar.name not in constants or scalar.results[0].type.rank:
                    continue
                if "complex<" in str(scalar.results[0].type):
                    continue  # The bindings can't read it: they raise, or abort the process.
                value = compat.ir.DenseElementsAttr(scalar.attributes["value"])
                result = broadcast.results[0]
                folded = compat.ir.Operation.create(
                    scalar.name,
                    results=[result.type],
                    attributes={
                        "value": compat.ir.DenseElementsAttr.get_splat(
                            result.type, value.get_splat_value()
                        )
                    },
                    loc=broadcast.location,
                    ip=compat.ir.InsertionPoint(broadcast),
                )
                result.replace_all_uses_with(folded.results[0])
                broadcast.erase()
                if not any(True for _ in scalar.results[0].uses):
                    scalar.erase()


def _parsed(attribute: Any) -> TensorSharding:
    return parse_tensor_sharding(str(attribute).removeprefix("#sdy.sharding"))


def _dictionaries(function: Any, name: str) -> list[Any]:
    """The attributes of each argument or result of a function."""
    if name in function.attributes:
        return list(compat.ir.ArrayAttr(function.attributes[name]))
    type_ = function.opview.type
    count = len(type_.inputs if name == "arg_attrs" else type_.results)
    return [compat.ir.DictAttr.get({})] * count


def _by_tag(module: Any) -> dict[int, list[_Place]]:
    """Where the ops of an imported module are, by the nodes that they come from."""
    by_node: dict[int, list[_Place]] = {}
    for operation, place in _placed(module.operation, ()):
        for node in sids(compat.location_name(operation)):
            by_node.setdefault(node, []).append(place)
    return by_node


def _placed(operation: Any, around: _Place) -> Iterator[tuple[Any, _Place]]:
    """Every op inside an op with its place, each behind what is inside it."""
    for at, region in enumerate(operation.regions):
        for number, block in enumerate(region.blocks):
            for position, view in enumerate(block.operations):
                place = (*around, (at, number, position))
                if len(view.operation.regions):
                    yield from _placed(view.operation, place)
                yield view.operation, place


def _at(module: Any, place: _Place) -> Any:
    operation = module.operation
    for region, block, position in place:
        operation = operation.regions[region].blocks[block].operations[position].operation
    return operation
