"""A snapshot of a program, from what its stages say."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from sdyscope.analysis.account import account_of
from sdyscope.analysis.memory.memory import Group, memory_of
from sdyscope.analysis.naming.structure import Marks
from sdyscope.annotations import LAYOUT, Annotation, annotated_value
from sdyscope.errors import CompilerError, ConversionError
from sdyscope.facts.compiled import Compiled
from sdyscope.facts.program import Partitioner, RequestedTensor
from sdyscope.facts.propagated import ValueId
from sdyscope.facts.sharded import requested_open_dims
from sdyscope.facts.snapshots import STAGES, Item, Stage, StageText
from sdyscope.facts.tensors import Tensor
from sdyscope.hardware.names import Hardware
from sdyscope.snapshots.folding import without_numbers
from sdyscope.snapshots.inside import Decided, named_mesh, scope_name, values_inside
from sdyscope.snapshots.items import cells_of, compiled_cells, counted, placed
from sdyscope.snapshots.values import KINDS, NOTHING, PLACED, Key, Kind, Snapshot
from sdyscope.staged import Staged
from sdyscope.values.convert import to_placement
from sdyscope.values.mesh import Mesh, ranks
from sdyscope.values.sharding import TensorSharding
from sdyscope.words.account import unplaced_clause
from sdyscope.words.hardware import hardware_text
from sdyscope.words.mesh import mesh_entry
from sdyscope.words.sharding import (
    REPLICATED,
    UNKNOWN,
    in_memory,
    sharding_text,
    shardy_text,
    with_buffer,
)
from sdyscope.words.types import value_type_text

#: The stages that need nothing compiled.
DEFAULT: tuple[Stage, ...] = ("requested", "lowered", "propagated")

#: What is said of an argument that jit dropped.
_ABSENT = "not in the module"

_ROWS: dict[str, Kind] = {kind: kind for kind in KINDS[:5]}


def take(
    staged: Staged,
    stages: Sequence[Stage] | None = None,
    *,
    on: Hardware | str | None = None,
    name: str | None = None,
    partial: bool | None = None,
) -> Snapshot:
    """What a program's shardings are, under every partitioner that it can be lowered under.

    Under which it can't, the account says.

    Args:
        staged: the program.
        stages: which stages to look at; by default all but ``compiled``, for which the program
            is compiled, and of a compiled program's text this one. What was requested is not known
            of a module read from a file.
        on: what to compile for, as ``Inspection.compiled`` takes it.
        name: what to call it; by default the program's name.
        partial: whether a stage that a compiler refuses is left out, too, as long as another is
            there; by default where no stages are named.

    Raises:
        CompilerError: the program can't be lowered under any partitioner, or a compiler refuses a
            stage that is not left out.
        TargetError: what was requested is asked of a file, or there is no such hardware.
        MissingStageError: a compiled program's text is asked for an earlier stage.
    """
    partial = stages is None if partial is None else partial
    is_known = staged.program is not None and staged.traced is not None
    if stages is None:
        stages = ("compiled",) if staged.is_compiled else DEFAULT if is_known else DEFAULT[1:]
    elif staged.is_compiled and {*stages} != {"compiled"}:
        staged.chosen(None)  # which says that there is no other
    elif "requested" in stages and not is_known:
        raise staged.no_request()
    chosen = tuple(stage for stage in STAGES if stage in stages)
    refused: dict[Stage, CompilerError] = {}
    compiled: dict[Partitioner | None, Compiled] = {}
    taken = _Taken(staged, chosen)
    if "compiled" in chosen:
        for under in staged.compiled_under:
            try:
                compiled[under] = staged.compiled(under, on)
            except CompilerError as error:
                refused.setdefault("compiled", error)
    if "propagated" in chosen:
        for partitioner in staged.lowered:
            try:
                taken.propagate(partitioner)
            except CompilerError as error:
                refused.setdefault("propagated", error)
    there = {"propagated": bool(taken.decided), "compiled": bool(compiled)}
    chosen = taken.stages = tuple(stage for stage in chosen if there.get(stage, True))
    if refused and not (partial and chosen):
        raise next(iter(refused.values()))
    rows = [] if staged.is_compiled else [*taken.rows(), *taken.not_understood()]
    partitioners = () if staged.is_compiled else tuple(staged.lowered)
    if "propagated" in chosen:
        rows += values_inside(tuple(taken.decided.values()), taken.is_row, partitioners)
    hardware = ""
    account = account_of(staged)
    if "compiled" in chosen:
        # Not above: all that names collectives comes with them, and every command gets here.
        from sdyscope.analysis.collectives.comms import collectives_under, sent_account
        from sdyscope.snapshots.collectives import communicated

        first = next(iter(compiled.values()))
        hardware = hardware_text(first.hardware)
        sent = {under: collectives_under(staged, under, on, origins=False) for under in compiled}
        rows += communicated(sent, staged.compiled_under)
        rows += stored(staged, compiled, on)
        account = sent_account(staged, on)
    grouped: dict[Key, list[Item]] = {}
    for key, item in rows:
        grouped.setdefault(key, []).append(item)
    items = {
        key: counted(
            placed(grouped[key], taken.marks(key, grouped[key]))
            if key.kind in PLACED
            else grouped[key]
        )
        for key in sorted(grouped, key=lambda key: key.order)
    }
    only = [] if taken.mesh is None else [_ordered(taken.mesh, staged.authors_order)]
    mesh = "; ".join(dict.fromkeys(map(mesh_entry, only or taken.meshes)))
    return Snapshot(name or staged.name, mesh, partitioners, chosen, hardware, items, account)


def _ordered(mesh: Mesh, devices: tuple[int, ...]) -> Mesh:
    """A module's mesh with the order that the program gave its devices, which no module says."""
    if mesh.device_ids is not None or len(devices) != mesh.size:
        return mesh
    return replace(mesh, device_ids=ranks(devices))


class _Taken:
    def __init__(self, staged: Staged, stages: Sequence[Stage]) -> None:
        self.staged = staged
        self.stages = stages
        axed = dict.fromkeys(mesh for mesh in staged.meshes.values() if mesh.axes)
        self.meshes = sorted(axed, key=mesh_entry)
        self.mesh = self.meshes[0] if len(axed) == 1 else None
        self.decided: dict[Partitioner, Decided] = {}
        self._written: dict[Partitioner, set[tuple[int, int]]] = {}
        self._ops: dict[Key, list[int]] = {}
        self._marks: Marks | None = None

    def propagate(self, partitioner: Partitioner) -> None:
        """Asks what a partitioner decides.

        Raises:
            CompilerError: it refuses the program.
        """
        propagated = self.staged.propagated(partitioner)
        self.decided[partitioner] = Decided(propagated, self.staged.graph(partitioner), self.mesh)

    def is_row(self, partitioner: Partitioner, value: tuple[int, int]) -> bool:
        """Whether a value has a block of its own, as a constraint has."""
        return value in self._written.get(partitioner, ())

    def rows(self) -> Iterator[tuple[Key, Item]]:
        """Arguments, results, constraints and boundaries of ``shard_map``."""
        for tensor in self.staged.tensors.tensors:
            kind = _ROWS.get(tensor.kind)
            if kind is None or not tensor.is_authored:
                continue
            texts: dict[Stage, dict[Partitioner | None, str]] = {}
            for partitioner in self.staged.lowered:
                there = tensor.lowered.get(partitioner)
                if there is not None and kind not in ("argument", "result"):
                    self._written.setdefault(partitioner, set()).add(self._own(there, partitioner))
                for stage in self.stages:
                    text = self.text(stage, tensor, partitioner, there)
                    if text is not None:
                        texts.setdefault(stage, {})[partitioner] = text
            if not texts:
                continue
            named = tensor.path if kind in ("argument", "result") else scope_name(tensor.path)
            if kind.startswith("shard_map"):
                named = f"{named} #{tensor.index}".strip()
            key = Key(kind, named, value_type_text(tensor.shape, tensor.dtype))
            first = tensor.lowered.get(self._first)
            self._ops.setdefault(key, []).append(-1 if first is None else first.op)
            yield key, Item(cells_of(texts))

    def _own(self, there: Annotation, partitioner: Partitioner) -> ValueId:
        """The value that a block stands for; what goes into a ``shard_map`` is another's, too."""
        value = annotated_value(self.staged.graph(partitioner), there)
        return (there.op, 0) if value is None or there.kind == "shard_map input" else value

    @property
    def _first(self) -> Partitioner:
        return next(iter(self.staged.lowered))

    def marks(self, key: Key, items: Sequence[Item]) -> tuple[str, ...]:
        """What each of some tensors that share a key is computed from; empty where all are alike.

        Nothing is known of what the module of the first partitioner does not have.
        """
        ops = self._ops[key]
        if len({item.cells for item in items}) < 2 or min(ops) < 0:
            return ()
        if self._marks is None:
            self._marks = Marks(self.staged.graph(self._first), without_numbers)
        return self._marks.of(ops)

    def text(
        self, stage: Stage, tensor: Tensor, partitioner: Partitioner, there: Annotation | None
    ) -> str | None:
        """What a stage says of a tensor; None where it says nothing of such tensors."""
        if stage == "requested":
            asked = tensor.requested
            return with_buffer(_requested(asked), donated=asked is not None and asked.donated)
        if stage == "compiled" or (stage == "propagated" and partitioner not in self.decided):
            return None
        if there is None:
            return _ABSENT
        if stage == "lowered":
            text = self.lowered(there, partitioner)
        else:
            text = in_memory(self.decided[partitioner].tensor(there), there.memory)
        layouts = tuple(each for each in there.attributes if each.startswith(LAYOUT))
        return with_buffer(text, donated=there.donated, layouts=layouts)

    def lowered(self, there: Annotation, partitioner: Partitioner) -> str:
        """What the module says."""
        sharding = there.sharding
        if sharding is None:
            # Some versions of JAX write none on scalars, which can have no other.
            return in_memory(NOTHING if there.shape != () else REPLICATED, there.memory)
        mesh = named_mesh(sharding, self.staged.graph(partitioner)) or self.mesh
        if isinstance(sharding, TensorSharding):
            kept_whole = there.open_dims and sharding.replicated_axes
            if kept_whole or any(dim.priority is not None for dim in sharding.dim_shardings):
                # Only Shardy's form can say it.
                return in_memory(shardy_text(sharding), there.memory)
        if there.problem:
            why = unplaced_clause(there.text, there.problem, is_unreadable=there.is_unreadable)
            return in_memory(f"{UNKNOWN} {why}", there.memory)
        if there.placement is None:
            return in_memory(str(sharding), there.memory)
        place = replace(there.placement, manual=())
        return in_memory(sharding_text(None, place, mesh, there.open_dims), there.memory)

    def not_understood(self) -> Iterator[tuple[Key, Item]]:
        """What could not be read in the modules, counted."""
        for partitioner in self.staged.lowered:
            count = len(self.staged.graph(partitioner).not_understood)
            if count and "lowered" in self.stages:
                text = f"{count:,} {'piece' if count == 1 else 'pieces'} of the module"
                cell = StageText("lowered", text, partitioner)
                yield Key("not understood", "module"), Item((cell,))
        for partitioner, asked in self.staged.tensors.unaligned:
            if "lowered" in self.stages:
                yield (
                    Key("not understood", f"the {asked.kind} {asked.path}"),
                    Item((StageText("lowered", "without its place in the module", partitioner),)),
                )


def _requested(asked: RequestedTensor | None) -> str:
    if asked is None or asked.sharding is None:
        return NOTHING
    rank = len(asked.shape)
    try:
        place = to_placement(asked.sharding, rank)
        opened = requested_open_dims(asked)
    except ConversionError:
        return in_memory(str(asked.sharding), asked.memory)
    return in_memory(sharding_text(None, place, asked.sharding.mesh, opened), asked.memory)


# --- what a device holds --------------------------------------------------------------------------


def stored(
    staged: Staged, compiled: Collection[Partitioner | None], on: Hardware | str | None
) -> Iterator[tuple[Key, Item]]:
    """Bytes a device of arguments and results, as their shardings make them.

    Temporaries are left out: they are another number with each version of XLA.

    Args:
        staged: the program.
        compiled: under which partitioners it compiled.
        on: what for.

    Raises:
        CompilerError: a compiled module does not say how it stores its parameters.
    """
    texts: dict[Key, dict[Partitioner | None, str]] = {}
    for partitioner in compiled:
        for group in memory_of(staged, partitioner, on).groups:
            key = Key("memory", f"{group.kind} {group.name}")
            texts.setdefault(key, {})[partitioner] = _words(group)
    for key, by_partitioner in texts.items():
        yield key, Item(compiled_cells(by_partitioner, staged.compiled_under))


def _words(group: Group) -> str:
    words = f"a device holds {group.bytes_per_device:,} B"
    if group.replicated:
        words += f", {group.replicated:,} B of it replicated"
    if group.shared and group.kind == "result":
        words += f", {group.shared:,} B of it in arguments' buffers"
    return words
