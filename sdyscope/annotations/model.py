"""One sharding that is written in a module, in one form for both partitioners."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sdyscope.facts.account import Unknown
from sdyscope.facts.program import Partitioner
from sdyscope.facts.sharded import Sharded
from sdyscope.graph import Sharding
from sdyscope.values.mesh import Mesh
from sdyscope.values.placement import Digits, Placement
from sdyscope.values.sharding import TensorSharding
from sdyscope.values.source import SourceLocation

AnnotationKind: TypeAlias = Literal[
    "argument",
    "result",
    "constraint",
    "shard_map input",
    "shard_map output",
    "inner argument",
    "inner result",
    "op",
]
"""Where a sharding is written: the requested kinds, arguments and results of inner functions
(a nested ``jit`` with shardings), and any other op that carries one."""

NamedKind: TypeAlias = AnnotationKind | Literal["type"]
"""What an annotation is called. ``type``: JAX wrote a constraint for the type of a value, which has
its sharding on Explicit axes."""


#: What JAX calls a constraint for a nested jit: for its shardings in older versions, and for the
#: types of what it returns in newer ones.
_JIT = frozenset({"jit", "pjit"})
#: What JAX calls a constraint that the author wrote; nothing for a nested jit's in newer versions.
_CONSTRAINTS = _JIT | {"sharding_constraint", "reshard", ""}
#: What JAX writes constraints for that are no types of values.
_NO_TYPES = frozenset({"shard_map", "call_exported"})


@dataclass(frozen=True, slots=True)
class Annotation:
    """A sharding written in a module, or an argument or result without one.

    Attributes:
        kind: what it is on.
        path: pytree path of an argument or result, scope of an op: ``jit(step)/jvp(layer0)``.
        primitive: what JAX lowered to this op, the last part of its location's name:
            ``sharding_constraint``, ``shard_map``, ``dot_general``; empty where it names nothing.
        shape: shape of the whole tensor; None for a dynamic or no tensor.
        dtype: MLIR element type.
        sharding: what is written; its text where it could not be parsed; None without any.
        placement: where that puts every block; None where nothing says.
        open_dims: dimensions that the compiler may shard further.
        manual_axes: axes of a ``shard_map`` boundary that its body is manual on (Shardy).
        manual: digits that the body of a ``shard_map`` is manual on, those around it left out; of
            a constraint, all digits that are manual where it stands.
        around: digits that are manual where it stands; under GSPMD its placement says them.
        problem: why a sharding has no placement, a clause; empty where it has one.
        source: the line of user code that tells it apart.
        innermost: of what an author could ask for the innermost line of user code, whoever shares
            it.
        index: which argument, result or operand.
        tokens: how many operands of a ``shard_map`` before it are tokens of ordered effects, which
            JAX adds and nobody asks for.
        returned: of a constraint whether it is on what a call returns, and located where that is:
            a nested jit's own are inside of its function.
        of_key: of a constraint whether JAX wrote it on the words of PRNG keys that nobody sharded:
            on a mesh without axes, which is not there under GSPMD.
        ordinal: position among constraints and ``shard_map``s in lowering order, else -1.
        op: node in the op graph.
        name: SSA name.
        function: the function it is in.
        memory: of an argument or result of main the kind of memory it is in, where that is not the
            device's own: ``pinned_host``.
        donated: an argument of main whose buffer a result may take.
        donated_to: the path of the result that takes it; empty where XLA chooses one.
        attributes: what else is written on an argument or result of main, by name as MLIR writes
            it: ``mhlo.layout_mode = {0,1}``.
        mapped: of a ``shard_map`` boundary the function that is mapped; empty where nobody says, as
            in a file.
    """

    kind: AnnotationKind
    path: str
    shape: tuple[int, ...] | None
    dtype: str
    sharding: Sharding | None
    placement: Placement | None = None
    open_dims: tuple[int, ...] = ()
    manual_axes: tuple[str, ...] = ()
    manual: Digits = ()
    around: Digits = ()
    problem: str = ""
    source: SourceLocation | None = None
    innermost: SourceLocation | None = None
    index: int | None = None
    ordinal: int = -1
    op: int = -1
    name: str = ""
    function: str = ""
    primitive: str = ""
    memory: str = ""
    tokens: int = 0
    returned: bool = False
    of_key: bool = False
    donated: bool = False
    donated_to: str = ""
    attributes: tuple[str, ...] = ()
    mapped: str = ""

    @property
    def is_authored(self) -> bool:
        """Whether the program's author wrote it, and not JAX on its own account.

        JAX adds constraints for the bodies of reductions, on Explicit axes, to PRNG keys and to
        results of a nested ``shard_map``; they are named after what they are for.
        """
        if self.kind == "constraint":
            is_type = self.returned and self.primitive in _JIT
            return self.primitive in _CONSTRAINTS and not is_type
        return self.ordinal >= 0

    @property
    def named_kind(self) -> NamedKind:
        """What to call it.

        JAX's own constraints are for types, but for those of a nested ``shard_map``, those for what
        an exported function takes and returns, and those of keys, which it leaves open.
        """
        is_jax_s = self.kind == "constraint" and not self.is_authored
        is_key = self.dtype == "ui32" and bool(self.open_dims)
        is_type = is_jax_s and self.primitive not in _NO_TYPES and not is_key
        return "type" if is_type else self.kind

    def sharded(self, meshes: Mapping[str, Mesh | str], otherwise: Mesh | None) -> Sharded:
        """The sharding by itself.

        Args:
            meshes: the meshes of the module that it is written in, by their symbols.
            otherwise: the mesh that a sharding is on that names none.
        """
        mesh = otherwise
        if isinstance(self.sharding, TensorSharding):
            own = self.sharding.mesh
            own = own if isinstance(own, Mesh) else meshes.get(own, "")
            mesh = own if isinstance(own, Mesh) else otherwise
        return Sharded(
            self.sharding,
            self.shape,
            self.dtype,
            self.placement,
            mesh,
            self.open_dims,
            self.manual_axes,
            self.problem,
            self.memory,
        )

    @property
    def is_unreadable(self) -> bool:
        """Whether what is written is no sharding of any language that is known."""
        return isinstance(self.sharding, str)

    @property
    def text(self) -> str:
        """The sharding as it is written; empty without one."""
        return "" if self.sharding is None else str(self.sharding)


def split_scope(scope: str) -> tuple[str, str]:
    """``jit(f)/jvp(layer0)/dot_general`` as the scope and the primitive.

    A last part with parentheses (``jit(f)``) is a scope: nothing names the primitive.
    """
    head, _, last = scope.rpartition("/")
    return (scope, "") if last.endswith(")") else (head, last)


def unplaced(annotations: Iterable[Annotation], partitioner: Partitioner) -> Iterator[Unknown]:
    """What is written and places nothing: what can't be read, and what no devices can have."""
    for annotation in annotations:
        if annotation.problem:
            yield Unknown(
                "not understood" if annotation.is_unreadable else "impossible",
                "lowered",
                annotation.problem,
                (partitioner,),
                annotation.kind,
                annotation.path,
                annotation.text,
                annotation.source,
            )
