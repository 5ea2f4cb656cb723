"""A module as XLA imports it for Shardy, imported once and propagated with ever other edits."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sdyscope.errors import TargetError
from sdyscope.facts.propagated import ValueId
from sdyscope.graph import OpGraph, build
from sdyscope.graph.collection import no_collection
from sdyscope.graph.tags import sids
from sdyscope.stages import compat
from sdyscope.stages.align.tags import numbered, tag_alone
from sdyscope.stages.propagated.annotate import (
    NewConstraint,
    ShardingEdit,
    annotate,
    annotate_constraint,
    annotate_signature,
    constrain,
)
from sdyscope.stages.propagated.hlo_order import functions
from sdyscope.stages.propagated.passes import propagation_passes, run
from sdyscope.stages.propagated.propagate import imported
from sdyscope.stages.propagated.shardy_import import open_free_variables
from sdyscope.syntax.shardy import parse_tensor_sharding

if TYPE_CHECKING:
    from sdyscope.stages.lowered.lower import LoweredModule
    from sdyscope.stages.propagated.annotate import ModuleEdit
    from sdyscope.values.sharding import TensorSharding


class ImportedModule:
    """A program that is imported once.

    Other shardings of arguments, results and constraints, and further constraints, are written into
    a copy of the imported module, which is what an import of the changed program gives.

    Args:
      lowered: the module, lowered under Shardy or read from a file with Shardy's shardings.
      graph: its op graph.

    Attributes:
      doubts: why XLA might propagate otherwise than Shardy here.

    Raises:
      CompilerError: the module is not for Shardy.
    """

    def __init__(self, lowered: LoweredModule, graph: OpGraph) -> None:
        self.lowered, self.graph = lowered, graph
        with no_collection():
            module, doubts = imported(
                lowered, graph, lambda own: tag_alone(own, graph), open_captures=False
            )
            file = io.BytesIO()
            module.operation.write_bytecode(file)
        self.doubts = tuple(doubts)
        self._bytecode = file.getvalue()
        self._passes = propagation_passes(module.context, steps=False, origins=False)

    def propagated(self, edits: Sequence[ModuleEdit] = (), further: Sequence[str] = ()) -> Any:
        """A new ``ir.Module``, propagated with these edits; None where one has no place in it.

        Its ops have the tags of those that they come from (``stages.align.tags``).

        Args:
          edits: what to write.
          further: passes to run behind the propagation.

        Raises:
          CompilerError: a pass of Shardy failed; with the compiler's message.
          TargetError: an edit that the module can't carry; says which and why.
        """
        with no_collection():
            module = compat.ir.Module.parse(self._bytecode, self.lowered.context)
            with module.context, compat.ir.Location.unknown():
                if edits and not self._changed(module, edits):
                    return None
                for function in functions(module).values():
                    open_free_variables(function)
            run(module, *self._passes, *further)
        return module

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
        for operation in _by_tag(module).get(value[0], ()):
            if value[1] < len(operation.results):
                written = compat.value_sharding(operation.results[value[1]])
                yield None if written is None else _parsed(written)

    def _changed(self, module: Any, edits: Sequence[ModuleEdit]) -> bool:
        """Writes changes into an imported module; whether all of them have a place there.

        Raises:
          TargetError: a change that the module can't carry; says which and why.
        """
        main = self.graph.main
        named = functions(module)
        signature: list[ShardingEdit] = []
        inside: list[tuple[Any, ShardingEdit | NewConstraint]] = []
        tagged: dict[int, list[Any]] | None = None
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
            if tagged is None:
                tagged = _by_tag(module)
            constraints = self._places(change, tagged)
            if not constraints:
                return False
            inside += [(operation, change) for operation in constraints]
        if signature and main is not None:
            # HLO calls it main.
            annotate_signature(named.get(main.name) or named["main"], self.graph, signature)
        for operation, change in inside:
            if isinstance(change, ShardingEdit):
                annotate_constraint(operation, self.graph, change)
            else:
                constrain(operation, replace(change, value=(change.value[0], 0)), self.graph)
        if not module.operation.verify():
            raise TargetError(f"{self.lowered.name} is not a valid module after these changes.")
        return True

    def _places(
        self, change: ShardingEdit | NewConstraint, tagged: Mapping[int, Sequence[Any]]
    ) -> Sequence[Any]:
        """The ops of the imported module that a change is written on; none where it is unclear."""
        if isinstance(change, ShardingEdit):
            if change.annotation.kind != "constraint":
                return ()
            constraints = tagged.get(change.annotation.op, ())
            return [
                operation
                for operation in constraints
                if operation.name == "sdy.sharding_constraint"
            ]
        node, result = change.value
        op = self.graph.ops[node]
        if result or len(op.types) != 1:
            return ()
        constraints = [
            operation
            for operation in tagged.get(node, ())
            if operation.name == op.kind and str(operation.results[0].type) == op.types[0].text
        ]
        return constraints if len(constraints) == len(tagged.get(node, ())) else ()


def _parsed(attribute: Any) -> TensorSharding:
    return parse_tensor_sharding(str(attribute).removeprefix("#sdy.sharding"))


def _by_tag(module: Any) -> dict[int, list[Any]]:
    """The ops of an imported module by the nodes that they come from."""
    by_node: dict[int, list[Any]] = {}
    for _, operation in numbered(module):
        for node in sids(compat.location_name(operation)):
            by_node.setdefault(node, []).append(operation)
    return by_node
