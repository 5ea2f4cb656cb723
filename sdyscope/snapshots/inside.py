"""What propagation decided: for the tensors that the author named, and for those inside."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from sdyscope.annotations import Annotation, annotated_value, split_scope
from sdyscope.errors import ConversionError
from sdyscope.facts.program import Partitioner
from sdyscope.facts.propagated import Propagated, ValueId
from sdyscope.facts.snapshots import Item, StageText
from sdyscope.graph import Op, OpGraph, TensorType
from sdyscope.snapshots.values import Key
from sdyscope.values.convert import to_placement
from sdyscope.values.mesh import Mesh
from sdyscope.values.sharding import TensorSharding
from sdyscope.values.tiling import HloSharding
from sdyscope.words.sharding import MANUAL, REPLICATED, sharding_text, shardy_text
from sdyscope.words.types import value_type_text

#: Functions that are jitted inside: those of libraries come and go with their versions.
_JITTED = re.compile(r"(?:^|/)p?jit\([^()]*\)(?=/|$)")
_FATES = {"folded": "folded away", "not partitioned": "not partitioned"}


def scope_name(scope: str) -> str:
    """A scope without the program's own name and without functions that are jitted inside."""
    return _JITTED.sub("", scope).removeprefix("/")


@dataclass
class Decided:
    """One propagation.

    Attributes:
        propagated: the propagation.
        graph: op graph of the lowered module.
        mesh: the mesh to name axes of; None where there are several.
    """

    propagated: Propagated
    graph: OpGraph
    mesh: Mesh | None

    def tensor(self, there: Annotation) -> str:
        """What was decided for a tensor that is annotated."""
        if there.kind == "shard_map input" and self.propagated.partitioner == "shardy":
            return self._input(there, there.index or 0)
        return self.value(annotated_value(self.graph, there))

    def value(self, value: ValueId | None) -> str:
        """What was decided for a value."""
        decided = None if value is None else self.propagated.values.get(value)
        if value is None or decided is None:
            return "not in the module"
        op = self.graph.ops[value[0]]
        if decided.fate in _FATES:
            return _FATES[decided.fate]
        rank = len(op.types[value[1]].shape or ())
        if decided.placement is not None:
            return sharding_text(None, decided.placement, self.mesh)
        if decided.sharding is not None:
            return self._sharding(decided.sharding, rank)
        return MANUAL if self._is_manual(op) else REPLICATED

    def _sharding(self, sharding: object, rank: int) -> str:
        if isinstance(sharding, TensorSharding | HloSharding):
            mesh = named_mesh(sharding, self.graph) or self.mesh
            # Otherwise its axes are of a mesh that is not known: as it is written.
            with suppress(ConversionError):
                return sharding_text(None, to_placement(sharding, rank, mesh), self.mesh)
        return shardy_text(sharding) if isinstance(sharding, TensorSharding) else str(sharding)

    def _input(self, there: Annotation, index: int) -> str:
        """An input of a ``shard_map`` at its boundary."""
        sharding = self.propagated.taken_as(there.op, index) or there.sharding
        return REPLICATED if sharding is None else self._sharding(sharding, len(there.shape or ()))

    def _is_manual(self, op: Op) -> bool:
        while op.parent is not None:
            op = self.graph.ops[op.parent]
            if op.kind == "sdy.manual_computation":
                return True
        return False


def named_mesh(sharding: object, graph: OpGraph) -> Mesh | None:
    """The mesh that a sharding itself names; None where it names none with axes."""
    own = sharding.mesh if isinstance(sharding, TensorSharding) else None
    named = graph.meshes.get(own) if isinstance(own, str) else own
    return named if isinstance(named, Mesh) and named.axes else None


def values_inside(
    sides: Sequence[Decided],
    is_row: Callable[[Partitioner, ValueId], bool],
    partitioners: Collection[Partitioner],
) -> Iterator[tuple[Key, Item]]:
    """For the tensors of a type in a scope, every sharding that one of them has.

    How many ops there are and in which order is left out: it changes with every version of JAX. So
    are scalars, constants, what the compiler folds away, and calls of the bodies of scans, which
    are functions in some versions: a scope begins anew in them.

    Args:
        sides: the propagations.
        is_row: whether a value is looked at elsewhere.
        partitioners: those of the snapshot, propagated or not.
    """
    texts_by_key: dict[Key, dict[Partitioner, set[str]]] = {}
    for side in sides:
        partitioner = side.propagated.partitioner
        # Scopes are taken apart once, not once for each of their values.
        written: dict[tuple[str, TensorType], set[str]] = {}
        for value, decided in side.propagated.values.items():
            op = side.graph.ops[value[0]]
            type_ = op.types[value[1]]
            if op.is_argument or op.is_result or not type_.shape or op.kind.endswith(".constant"):
                continue
            if decided.fate in _FATES or is_row(partitioner, value):
                continue
            if op.kind == "func.call" and op.scope.endswith("/closed_call"):
                continue
            in_body = op.location.in_body
            scope = op.scope if in_body is None else in_body
            written.setdefault((scope, type_), set()).add(side.value(value))
        for (scope, type_), texts in written.items():
            name = scope_name(split_scope(scope)[0])
            key = Key("value", name, value_type_text(type_.shape, type_.dtype))
            texts_by_key.setdefault(key, {}).setdefault(partitioner, set()).update(texts)
    for key, said in texts_by_key.items():
        shared = set.intersection(*said.values()) if len(said) == len(partitioners) else set()
        for text in shared:
            yield key, Item((StageText("propagated", text),))
        for partitioner, own in said.items():
            for text in own - shared:
                yield key, Item((StageText("propagated", text, partitioner),))
