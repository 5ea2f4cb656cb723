"""Every tensor of a program: what was requested, what each module says, what a device holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, TypeVar, get_args

from sdyscope.analysis.account import account_of
from sdyscope.analysis.check import agrees
from sdyscope.analysis.naming.globs import glob
from sdyscope.analysis.recompiles import recompiles
from sdyscope.analysis.slices import ProgramSlices, program_slices
from sdyscope.annotations import AnnotationKind
from sdyscope.facts.account import Account
from sdyscope.facts.memory import TensorTotal
from sdyscope.facts.program import KindFilter, Partitioner, Versions
from sdyscope.facts.recompiles import Recompile
from sdyscope.facts.recorded import Record
from sdyscope.facts.remarks import Remark
from sdyscope.facts.sharded import Sharded, byte_count, requested_sharding, returned_sharding
from sdyscope.facts.tensors import Tensor
from sdyscope.staged import Staged
from sdyscope.values.dtypes import TOKEN
from sdyscope.values.mesh import Mesh, only_mesh
from sdyscope.values.placement import Digits
from sdyscope.values.source import FilePath, PathWords, SourceLocation

_Sharded = TypeVar("_Sharded", Sharded, Sharded | None)


@dataclass(frozen=True, slots=True)
class ShownTensor:
    """One tensor through the stages.

    Attributes:
        name: what to call it: its pytree path or its scope.
        kind: where its sharding is named.
        path: pytree path of an argument or result, scope of everything else.
        index: flat index of an argument or result, number of a `shard_map`'s operand or result.
        shape: shape of the whole tensor; null where it is dynamic.
        dtype: MLIR element type.
        bytes: bytes of the whole tensor; null where they are not known.
        source: line of user code; null for arguments and results.
        mapped: the function that a `shard_map` maps; empty for all else, and where it is not known.
        by_author: whether the program's author could name a sharding for it. What remains is JAX's.
        by_jax: whether JAX wrote it on its own account, as its location in the module says.
        requested: what was asked for; null where it was left to the compiler, or is not known.
        returned: of a result that the program leaves open, what the out_specs of the shard_map that
            returns it say; null for all else.
        lowered: what each module says; a partitioner is absent where its module has no such tensor.
        agrees: whether that is what was requested, by partitioner.
        dropped: whether jit dropped this argument, which the program does not use.
        donated: whether the caller donated this argument's buffer.
        notes: what else there is to know about the request.
    """

    name: str
    kind: AnnotationKind
    path: str
    index: int | None
    shape: tuple[int, ...] | None
    dtype: str
    bytes: int | None
    source: SourceLocation | None
    mapped: str
    by_author: bool
    by_jax: bool
    requested: Sharded | None
    returned: Sharded | None
    lowered: dict[Partitioner, Sharded]
    agrees: dict[Partitioner, bool]
    dropped: bool
    donated: bool
    notes: tuple[Remark, ...]

    @property
    def disagrees(self) -> bool:
        """Whether it is lowered otherwise than requested, under some partitioner."""
        return not all(self.agrees.values())

    @property
    def placement(self) -> Sharded | None:
        """Where it is: as requested, as the first module says, or as a shard_map returns it."""
        shardings = (self.requested, *self.lowered.values(), self.returned)
        return next(
            (sharding for sharding in shardings if sharding is not None and sharding.placement),
            None,
        )

    @property
    def is_bound(self) -> bool:
        """Whether a device holds at most what ``placement`` says: it leaves dimensions open."""
        return self.placement is not None and bool(self.placement.open_dims)

    @property
    def memory(self) -> str:
        """The kind of memory it is in, where that is not the device's own."""
        shardings = (self.requested, *self.lowered.values())
        return next((there.memory for there in shardings if there is not None and there.memory), "")

    @property
    def problem(self) -> str:
        """Why nothing that is written places it, a clause; empty where something does."""
        if self.placement is not None:
            return ""
        return next((there.problem for there in self.lowered.values() if there.problem), "")


@dataclass(frozen=True, slots=True)
class ShownProgram:
    """One program, or one module read from a file.

    Attributes:
        name: the program's name, or the module's.
        file: the file that it was read from; null for a program.
        jax_version: version of JAX that lowered or read it.
        recorded_by: the JAX that lowered it in a recorded run; null for any other.
        meshes: the meshes that its shardings are on.
        partitioners: whose modules were read.
        ops: how many operations each module has.
        arguments: totals.
        results: totals.
        tensors: every tensor, or those that were asked for.
        hidden: how many tensors the filters left out.
        account: what is not known.
        notes: what else there is to know.
    """

    name: str
    file: FilePath | None
    jax_version: str
    recorded_by: Versions | None
    meshes: dict[str, Mesh]
    partitioners: tuple[Partitioner, ...]
    ops: dict[Partitioner, int]
    arguments: TensorTotal
    results: TensorTotal
    tensors: tuple[ShownTensor, ...]
    hidden: int
    account: Account
    notes: tuple[Remark, ...]

    @property
    def is_authored(self) -> bool:
        """Whether it is known what its author named shardings for, as of a module it is not."""
        return any(tensor.by_author for tensor in self.tensors)


@dataclass(frozen=True, slots=True)
class UnreadFile:
    """A file of a directory of dumps that can't be read.

    Attributes:
        file: its path.
        error: why not, in one sentence.
    """

    file: FilePath
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Show:
    """The document of `sdyscope show --json`.

    Attributes:
        schema: name and version of this form.
        target: the TARGET.
        programs: one program, or the modules of a directory.
        unread: files of the directory that can't be read.
        recorded: what `sdyscope record` noted down of a directory that it made; null for any other.
        recompiles: which of its functions were compiled again, and why; none of one program alone.
        slices: which devices hold which slice, of each program in turn; null unless asked for.
    """

    schema: Literal["sdyscope.show/3"] = "sdyscope.show/3"
    target: PathWords
    programs: tuple[ShownProgram, ...]
    unread: tuple[UnreadFile, ...] = ()
    recorded: Record | None = None
    recompiles: tuple[Recompile, ...] = ()
    slices: tuple[ProgramSlices, ...] | None = None


def show(
    programs: Sequence[Staged],
    target: str,
    unread: Sequence[UnreadFile] = (),
    recorded: Record | None = None,
    *,
    match: str | None = None,
    kinds: Sequence[KindFilter] = (),
    slices: bool = False,
) -> Show:
    """What a TARGET holds.

    Args:
        programs: its programs.
        target: the word.
        unread: its files that can't be read.
        recorded: what was recorded of it.
        match: a glob that the names of tensors must match; None for all.
        kinds: which kinds of tensors; none for all.
        slices: whether to say which devices hold which slice of each.

    Raises:
        SdyscopeError: a program can't be lowered.
    """
    wanted = _filter(match, kinds)
    return Show(
        target=target,
        programs=tuple(shown(program, match=match, kinds=kinds) for program in programs),
        unread=tuple(unread),
        recorded=recorded,
        recompiles=() if recorded is None else recompiles(recorded, programs),
        slices=tuple(
            program_slices(
                program.name, filter(wanted, program.tensors.tensors), program.device_order
            )
            for program in programs
        )
        if slices
        else None,
    )


def shown(
    program: Staged, *, match: str | None = None, kinds: Sequence[KindFilter] = ()
) -> ShownProgram:
    """One program of the document; see `document`."""
    lowered = program.lowered
    whole = only_mesh(program.meshes.values())
    rows = [_tensor(program, row, whole) for row in program.tensors.tensors]
    wanted = _filter(match, kinds)
    kept = tuple(row for row in rows if wanted(row))
    return ShownProgram(
        name=program.name,
        file=program.file,
        jax_version=next(iter(lowered.values())).jax_version,
        recorded_by=next(iter(lowered.values())).recorded_by,
        meshes=program.meshes,
        partitioners=tuple(lowered),
        ops={p: sum(1 for _ in program.graph(p).operations()) for p in lowered},
        arguments=_total(rows, "argument"),
        results=_total(rows, "result"),
        tensors=kept,
        hidden=len(rows) - len(kept),
        account=account_of(program),
        notes=tuple(note for module in lowered.values() for note in module.notes),
    )


def _tensor(program: Staged, row: Tensor, mesh: Mesh | None) -> ShownTensor:
    asked = row.requested
    if asked is not None and asked.sharding is not None:
        mesh = asked.sharding.mesh
    if mesh is None:  # GSPMD names none: of several, it is the one that Shardy's is on.
        named = (
            each.sharded(program.graph(p).meshes, None).mesh for p, each in row.lowered.items()
        )
        mesh = next((each for each in named if each is not None and each.axes), None)
    # Shardy and a request do not name the axes of the shard_maps around.
    manual = next((each.around for each in row.lowered.values() if each.around), ())
    return ShownTensor(
        name=row.name,
        kind=row.kind,
        path=row.path,
        index=row.index,
        shape=row.shape,
        dtype=row.dtype,
        bytes=byte_count(row.shape, row.dtype),
        source=row.source,
        mapped=row.mapped,
        by_author=asked is not None,
        by_jax=row.kind == "constraint" and not row.is_authored,
        requested=None if asked is None else _inside(requested_sharding(asked), manual),
        returned=None if asked is None else returned_sharding(asked),
        lowered={
            partitioner: _inside(
                annotation.sharded(program.graph(partitioner).meshes, mesh), manual
            )
            for partitioner, annotation in row.lowered.items()
        },
        agrees={} if asked is None else {p: agrees(row, p) for p in row.lowered},
        dropped=asked is not None and asked.dropped,
        donated=asked is not None and asked.donated,
        notes=() if asked is None else asked.notes,
    )


def _inside(sharded: _Sharded, manual: Digits) -> _Sharded:
    """A sharding as it is inside of a ``shard_map``: of each of its devices there is another."""
    place = None if sharded is None else sharded.placement
    if sharded is None or place is None or place.manual or not manual:
        return sharded
    return replace(sharded, placement=replace(place, manual=manual))


def _total(rows: Sequence[ShownTensor], kind: str) -> TensorTotal:
    count = whole = on_device = on_host = unplaced = impossible = unknown = 0
    for row in rows:
        if row.kind != kind or row.dropped:
            continue
        count += 1
        if row.bytes is None:
            unknown += row.dtype != TOKEN
            continue
        place = row.placement
        whole += row.bytes
        if place is None and row.problem:
            impossible += 1
            continue
        unplaced += place is None
        held = row.bytes if place is None else place.bytes_per_device or 0
        if row.memory:
            on_host += held
        else:
            on_device += held
    return TensorTotal(count, whole, on_device, on_host, unplaced, impossible, unknown)


def _filter(
    match: str | None, kinds: Sequence[KindFilter]
) -> Callable[[ShownTensor | Tensor], bool]:
    pattern = None if match is None else glob(match)

    def wanted(row: ShownTensor | Tensor) -> bool:
        if kinds and not any(row.kind == kind or row.kind.startswith(f"{kind} ") for kind in kinds):
            return False
        return pattern is None or pattern.fullmatch(row.name) is not None

    return wanted


TensorSection: TypeAlias = Literal[
    "arguments", "results", "boundaries", "by JAX", "of inner functions", "other ops"
]
"""A group of tensors. ``boundaries``: constraints, and what enters and leaves a ``shard_map``;
``by JAX``: constraints that JAX wrote on its own."""


def sections(
    tensors: Sequence[ShownTensor],
) -> Iterator[tuple[TensorSection, list[ShownTensor]]]:
    """The tensors in groups, in the order in which they are shown."""
    # In a file, which can be written by hand, nobody knows who wrote what.
    known = any(tensor.by_author for tensor in tensors)
    groups: dict[TensorSection, list[ShownTensor]] = {}
    for tensor in tensors:
        groups.setdefault(_section(tensor, known), []).append(tensor)
    for section in get_args(TensorSection):
        if section in groups:
            yield section, groups[section]


def _section(tensor: ShownTensor, author_known: bool) -> TensorSection:
    match tensor.kind:
        case "argument":
            return "arguments"
        case "result":
            return "results"
        case "inner argument" | "inner result":
            return "of inner functions"
        case "op":
            return "other ops"
    return "by JAX" if author_known and tensor.by_jax else "boundaries"
