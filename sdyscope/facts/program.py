"""A program to look at, and what its author asked for.

Nothing here imports jax: a `Program` only holds what jax made, and a
`RequestedTensor` is plain data that the later stages compare the compiler's
answers against.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MethodType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from sdyscope.errors import TargetError, kind_of
from sdyscope.formatters import Summarized

if TYPE_CHECKING:
    from sdyscope.facts.remarks import Remark
    from sdyscope.values.sharding import NamedSharding
    from sdyscope.values.source import SourceLocation

Partitioner: TypeAlias = Literal["shardy", "gspmd"]
"""The component of XLA that propagates shardings and partitions the program."""

CompiledUnder: TypeAlias = Literal[Partitioner, ""]
"""The partitioner that a program was compiled under; empty for a text, which does not say."""

PARTITIONERS: Final[Mapping[str, tuple[Partitioner, ...]]] = {
    "shardy": ("shardy",),
    "gspmd": ("gspmd",),
    "both": ("shardy", "gspmd"),
}
"""What the words of ``--partitioner`` stand for."""

Kind: TypeAlias = Literal["argument", "result", "constraint", "shard_map input", "shard_map output"]
"""The places in a program where its author can name a sharding."""

KindFilter: TypeAlias = Literal["argument", "result", "constraint", "shard_map"]
"""What ``--kind`` takes."""

Inputs: TypeAlias = Callable[[], tuple[tuple[Any, ...], dict[str, Any]]]
"""Makes concrete positional and keyword arguments, structured like the abstract ones."""


@dataclass(frozen=True, slots=True)
class Versions:
    """The JAX that made something.

    Attributes:
        jax: version of JAX; empty where it is not known.
        jaxlib: version of jaxlib, whose XLA it is; empty likewise.
    """

    jax: str
    jaxlib: str = ""

    def differs(self, other: Versions) -> bool:
        """Whether the other is known to be another JAX, which may decide otherwise."""
        pairs = ((self.jax, other.jax), (self.jaxlib, other.jaxlib))
        return any(first and second and first != second for first, second in pairs)

    def __str__(self) -> str:
        """Such as `JAX 0.10.2`, or `JAX 0.12.0 with jaxlib 0.12.0.1`."""
        if self.jaxlib in ("", self.jax):
            return f"JAX {self.jax}".strip()
        return f"JAX {self.jax} with jaxlib {self.jaxlib}"


@dataclass(frozen=True, repr=False)
class Program(Summarized):
    """A jitted function together with abstract arguments and their requested shardings.

    Attributes:
        name: what to call the program in tables and file names.
        fun: the result of `jax.jit`, or of a library's own jit with a `.lower` method (Flax's
            `nnx.jit`, Equinox's `filter_jit`), or a `jax.stages.Traced` that was made already
            (then `args` and `kwargs` are unused). Of a jitted method of an object, and of a
            `functools.partial` of a jitted function, what is called is kept, and what is bound to
            it goes before `args` and into `kwargs`.
        args: positional arguments: pytrees of `jax.ShapeDtypeStruct` (with `sharding`)
            or of arrays; arguments that jit treats as static are given as they are.
        kwargs: keyword arguments, likewise.
        mesh: the `jax.sharding.Mesh` or `AbstractMesh` that the shardings are on; None
            to read it from the arguments.
        inputs: called without arguments, returns `(args, kwargs)` of concrete host values
            (numpy, or jax arrays on one device) in the structure of `args` and `kwargs`.
            None when the program cannot be executed as it stands.
        settings: what the program was configured with, for display.

    Raises:
        TargetError: The name is no string, or the arguments are no tuple and mapping.
    """

    name: str
    fun: Any
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    mesh: Any = None
    inputs: Inputs | None = None
    settings: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        expected = (
            ("name", self.name, str, "a str"),
            ("args", self.args, (tuple, list), "a tuple"),
            ("kwargs", self.kwargs, Mapping, "a mapping"),
            ("settings", self.settings, Mapping, "a mapping"),
        )
        for what, value, types, kind in expected:
            if not isinstance(value, types):
                raise TargetError(
                    f"A Program takes {kind} as its {what}, not {kind_of(value)}.",
                    hint="Write Program(name, fun, args, kwargs): Program('step', jitted, (x,)).",
                )
        fun, args, kwargs = _unbound(self.fun)
        if fun is not self.fun:
            if (inputs := self.inputs) is not None:
                object.__setattr__(self, "inputs", lambda: _with_bound(args, kwargs, *inputs()))
            given = _with_bound(args, kwargs, tuple(self.args), self.kwargs)
            for name, value in zip(("fun", "args", "kwargs"), (fun, *given), strict=True):
                object.__setattr__(self, name, value)


def _unbound(fun: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """What is called in the end, and the arguments that a method or a partial binds to it.

    JAX lowers neither: what `.lower` a bound method has is that of the function, without its self.
    """
    if isinstance(fun, MethodType) and hasattr(fun.__func__, "lower"):
        return fun.__func__, (fun.__self__,), {}
    if isinstance(fun, partial):
        called, args, kwargs = _unbound(fun.func)
        if hasattr(called, "lower"):
            return called, (*args, *fun.args), {**kwargs, **fun.keywords}
    return fun, (), {}


def _with_bound(
    bound_args: tuple[Any, ...],
    bound_kwargs: Mapping[str, Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (*bound_args, *args), {**bound_kwargs, **kwargs}


@dataclass(frozen=True, slots=True)
class RequestedTensor:
    """One tensor that the program's author could name a sharding for.

    Attributes:
        kind: where the sharding is named.
        path: the pytree path of an argument (`params['layers'][0]['wq']`) or a result
            (`result[0]['w']`); the scope of a constraint or shard_map as JAX writes it
            into the IR (`jit(step)/jvp(layer0)`).
        shape: global shape.
        dtype: MLIR element type, such as `f32`, `bf16`, `i32`.
        sharding: what was asked for; None when it was left to the compiler.
        source: the innermost line of user code; None for arguments and results.
        index: flat index among the arguments or results that jit was given, before any was
            dropped; among the operands or results of a shard_map; None for constraints.
        ordinal: position among all constraints and shard_maps in the order in which
            JAX lowers them (the operands and results of one shard_map share it);
            -1 for arguments and results.
        dropped: jit dropped this argument, because the program does not use it.
        donated: the caller donated this argument's buffer.
        manual_axes: mesh axes over which a shard_map's body is manual.
        mapped: the name of the function that a shard_map maps, of its inputs and outputs; empty of
            a lambda, and of all else.
        priorities: Shardy's user priority of each dimension of a constraint, None where there is
            none; empty for none at all. JAX has no words for it: a primitive of one's own has.
        unconstrained: dimensions of a constraint that are left to the compiler, although its value
            has Explicit axes there by its type, which `sharding` names.
        returned: of a result that jit is not told to place: what it is by its type, where all axes
            of the mesh are Explicit, or by the out_specs of a shard_map that is manual over its
            whole mesh; None for all else.
        notes: what else is worth knowing.
    """

    kind: Kind
    path: str
    shape: tuple[int, ...]
    dtype: str
    sharding: NamedSharding | None = None
    source: SourceLocation | None = None
    index: int | None = None
    ordinal: int = -1
    dropped: bool = False
    donated: bool = False
    manual_axes: tuple[str, ...] = ()
    mapped: str = ""
    priorities: tuple[int | None, ...] = ()
    unconstrained: tuple[int, ...] = ()
    returned: NamedSharding | None = None
    notes: tuple[Remark, ...] = ()

    @property
    def is_partly_manual(self) -> bool:
        """Whether a shard_map says it, and leaves some axes of the mesh to the partitioner."""
        axes = () if self.sharding is None else self.sharding.mesh.axes
        is_boundary = self.kind.startswith("shard_map")
        return is_boundary and any(axis.name not in self.manual_axes for axis in axes)

    @property
    def key_dims(self) -> int:
        """How many of the last dimensions are the words of a PRNG key; JAX shards none of them."""
        words = next((note.said for note in self.notes if note.kind == "key array"), "")
        return len(words.split("x")) if words else 0

    @property
    def memory(self) -> str:
        """The kind of memory that was asked for, where it is not the device's own."""
        return next((note.said for note in self.notes if note.kind == "memory kind"), "")
