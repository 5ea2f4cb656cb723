"""what if: which tensors of a program are to be sharded otherwise, and how.

``params['w1']=P('fsdp','model')`` says another sharding, ``params['w1']=None`` none,
``params['w1'][1]=0`` gives a dimension a priority. The name is that of a row of the table, or of a
line for its constraints.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from sdyscope.annotations import shown_name
from sdyscope.errors import CompilerError, ConversionError, TargetError, one_of
from sdyscope.facts.program import Partitioner
from sdyscope.facts.tensors import Tensor, TensorTable
from sdyscope.graph import OpGraph
from sdyscope.syntax.partition_spec import parse_partition_spec
from sdyscope.values.mesh import Mesh
from sdyscope.values.sharding import UNCONSTRAINED, NamedSharding, PartitionSpec, TensorSharding

if TYPE_CHECKING:
    from sdyscope.stages.lowered.lower import LoweredModule
    from sdyscope.stages.propagated.annotate import ModuleEdit

#: Tensors whose annotation can be another.
CHANGEABLE = ("argument", "result", "constraint")

_SHARDING = re.compile(r"(?P<name>.+?)\s*=\s*(?P<spec>None|(?:P|PartitionSpec)\s*\(.*)", re.DOTALL)
_PRIORITY = re.compile(r"(?P<name>.+)\[(?P<dimension>\d+)\]\s*=\s*(?P<priority>\d+)", re.DOTALL)
_LINE = re.compile(r"(?P<file>.+):(?P<line>\d+)")


@dataclass(frozen=True, slots=True)
class Wish:
    """What to say on a tensor from now on.

    Attributes:
        name: its path, or scope, or line.
        spec: how it is to be sharded; None to keep what is there.
        priorities: (dimension, priority): the order of propagation, 0 first.
        unspecified: whether it is to say nothing: the compiler decides.
        donated: whether it is to be donated.
        offloaded: whether it is to be in the host's memory.
    """

    name: str
    spec: PartitionSpec | None = None
    priorities: tuple[tuple[int, int], ...] = ()
    unspecified: bool = False
    donated: bool = False
    offloaded: bool = False

    @property
    def shards(self) -> bool:
        """Whether it says anything about the sharding."""
        return self.spec is not None or bool(self.priorities) or self.unspecified


def parse_sharding(text: str) -> Wish:
    """``params['w1']=P('fsdp','model')``, or ``params['w1']=None`` to leave it to the compiler.

    Raises:
        TargetError: the text does not have this form.
        SyntaxTextError: what follows the name is no PartitionSpec.
    """
    match = _SHARDING.fullmatch(text.strip())
    if match is None:
        raise TargetError(
            f"{text!r} does not say how to shard what.",
            hint="Write a tensor and a PartitionSpec or None: \"params['w1']=P('fsdp', 'model')\".",
        )
    if match["spec"] == "None":
        return Wish(match["name"], unspecified=True)
    return Wish(match["name"], parse_partition_spec(match["spec"]))


def parse_priority(text: str) -> Wish:
    """``params['w1'][1]=0``: dimension 1 of ``params['w1']`` is propagated first.

    Raises:
        TargetError: the text does not have this form.
    """
    match = _PRIORITY.fullmatch(text.strip())
    if match is None:
        raise TargetError(
            f"{text!r} does not say which dimension has which priority.",
            hint="Write a tensor, a dimension and a number from 0: \"params['w1'][1]=0\".",
        )
    return Wish(match["name"], None, ((int(match["dimension"]), int(match["priority"])),))


def joined(wishes: Iterable[Wish]) -> tuple[Wish, ...]:
    """All that is wished for one name in one wish; what comes later replaces what came before."""
    wishes_by_name: dict[str, Wish] = {}
    for wish in wishes:
        before = wishes_by_name.get(wish.name, Wish(wish.name))
        priorities = {**dict(before.priorities), **dict(wish.priorities)}
        says = wish if wish.unspecified or wish.spec is not None else before
        wishes_by_name[wish.name] = Wish(
            wish.name,
            says.spec,
            tuple(sorted(priorities.items())),
            says.unspecified,
            before.donated or wish.donated,
            before.offloaded or wish.offloaded,
        )
    return tuple(wishes_by_name.values())


def find(table: TensorTable, name: str) -> Sequence[Tensor]:
    """The tensors that a name means: one argument or result, or all constraints of a scope or line.

    Raises:
        TargetError: none has this name, or those that have it can't be changed.
    """
    wanted = name.strip()
    rows = [row for row in table.tensors if wanted in _names(row)]
    rows = rows or [row for row in table.tensors if _is_at(row, wanted)]
    if not rows:
        known = [known for row in table.tensors if row.kind in CHANGEABLE for known in _names(row)]
        close = get_close_matches(wanted, dict.fromkeys(known), 3, 0.5)
        raise TargetError(
            f"No tensor is called {wanted}.",
            hint=f"Did you mean {one_of(close)}?"
            if close
            else "`sdyscope show` lists them: a pytree path, or a constraint's scope or line.",
        )
    changeable = [row for row in rows if row.kind in CHANGEABLE]
    if not changeable:
        raise TargetError(
            f"{wanted} is a {rows[0].kind}, whose sharding can't be changed.",
            hint="Name an argument, a result or a constraint.",
        )
    there = [row for row in changeable if row.lowered]
    if not there:
        raise TargetError(
            f"{wanted} is not in the lowered module.",
            hint="jit drops an argument that the program does not use."
            if changeable[0].requested is not None and changeable[0].requested.dropped
            else None,
        )
    return there


def _names(row: Tensor) -> tuple[str, ...]:
    """A constraint is called by its scope, with or without the program's own name."""
    return (row.name, shown_name(row.name, ""))


def _is_at(row: Tensor, wanted: str) -> bool:
    match = _LINE.fullmatch(wanted)
    if match is None or row.source is None or row.source.line != int(match["line"]):
        return False
    return row.source.file == match["file"] or row.source.file.endswith(f"/{match['file']}")


def rewritten(
    lowered: Mapping[Partitioner, LoweredModule],
    graphs: Mapping[Partitioner, OpGraph],
    table: TensorTable,
    wishes: Iterable[Wish],
) -> tuple[dict[Partitioner, LoweredModule], dict[Partitioner, CompilerError]]:
    """The modules with what is wished for, and why there is none under a partitioner.

    Args:
        lowered: the modules.
        graphs: their op graphs.
        table: the tensors of all of them.
        wishes: what to write.

    Raises:
        TargetError: a tensor is not there, or no module can carry what is wished.
    """
    from sdyscope.stages.propagated.annotate import annotate

    rows_of = [(wish, find(table, wish.name)) for wish in joined(wishes)]
    known = _meshes(graphs, table)
    modules: dict[Partitioner, LoweredModule] = {}
    failures: dict[Partitioner, CompilerError] = {}
    for partitioner, module in lowered.items():
        try:
            changes = list(_changes(rows_of, partitioner, graphs, known))
            modules[partitioner] = annotate(module, graphs[partitioner], changes)
        except (ConversionError, TargetError) as error:
            if len(lowered) == 1:
                raise
            failures[partitioner] = CompilerError(error.message, hint=error.hint)
    if not modules:
        first = next(iter(failures.values()))
        raise TargetError(first.message, hint=first.hint)
    return modules, failures


def _changes(
    rows_of: Iterable[tuple[Wish, Sequence[Tensor]]],
    partitioner: Partitioner,
    graphs: Mapping[Partitioner, OpGraph],
    known: frozenset[Mesh],
) -> Iterator[ModuleEdit]:
    from sdyscope.stages.propagated.annotate import DonatedArgument, Offload, ShardingEdit

    for wish, rows in rows_of:
        for row in rows:
            if partitioner in row.lowered:
                there, spec = row.lowered[partitioner], wish.spec
                if wish.offloaded:
                    if there.kind == "constraint":
                        raise TargetError(f"{there.path} is neither an argument nor a result.")
                    yield Offload(there)
                    if not (wish.shards or wish.donated):
                        continue
                if wish.donated:
                    if there.kind != "argument":
                        raise TargetError(
                            f"{there.path} is a {there.kind}; only arguments are donated."
                        )
                    yield DonatedArgument(there)
                    if not wish.shards:
                        continue
                unspecified = wish.unspecified and there.kind != "constraint"
                if wish.unspecified and not unspecified:
                    spec = PartitionSpec((UNCONSTRAINED,) * len(there.shape or ()))
                sharding = None
                if spec is not None:
                    sharding = NamedSharding(_mesh_for(row, graphs, known), spec)
                yield ShardingEdit(there, sharding, wish.priorities, unspecified)


def _mesh_for(row: Tensor, graphs: Mapping[Partitioner, OpGraph], known: frozenset[Mesh]) -> Mesh:
    """The mesh of a tensor's sharding, else the only one of the program."""
    if row.requested is not None and row.requested.sharding is not None:
        return row.requested.sharding.mesh
    for partitioner, annotation in row.lowered.items():
        sharding = annotation.sharding
        if isinstance(sharding, TensorSharding):
            mesh = sharding.mesh
            if isinstance(mesh, str):
                mesh = graphs[partitioner].meshes.get(mesh, mesh)
            if isinstance(mesh, Mesh) and mesh.axes:
                return mesh
    if len(known) != 1:
        raise TargetError(
            f"It is not clear which mesh the axes for {row.name} are of: the program names "
            f"{len(known)}.",
            hint="A tensor that has a sharding can get another one on the same mesh.",
        )
    return next(iter(known))


def _meshes(graphs: Mapping[Partitioner, OpGraph], table: TensorTable) -> frozenset[Mesh]:
    written = [mesh for graph in graphs.values() for mesh in graph.meshes.values()]
    asked = [row.requested.sharding for row in table.tensors if row.requested is not None]
    meshes = [*written, *(sharding.mesh for sharding in asked if sharding is not None)]
    return frozenset(mesh for mesh in meshes if isinstance(mesh, Mesh) and mesh.axes)
