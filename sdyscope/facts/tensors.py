"""The spine: one row a tensor, with what was asked for and what each partitioner's module says.

Requested tensors and annotations meet by flat argument index, result index, and the order in which
JAX lowers constraints and ``shard_map``s; never by SSA number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher

from sdyscope.annotations import Annotation, AnnotationKind
from sdyscope.facts.program import Partitioner, RequestedTensor
from sdyscope.formatters import Displayed, Summarized
from sdyscope.values.sharding import NamedSharding
from sdyscope.values.source import SourceLocation, line_of

#: How many 32-bit words the keys of JAX's generators have: Threefry's, and those of XLA's own.
_KEY_WORDS = (2, 4)


@dataclass(frozen=True)
class Tensor(Displayed):
    """One tensor through the stages.

    Attributes:
        kind: argument, result, constraint, ``shard_map`` input or output, ...
        path: pytree path, or scope.
        shape: shape of the whole tensor; None where it is dynamic.
        dtype: MLIR element type.
        source: innermost line of user code.
        index: flat index of an argument or result, number of an operand.
        requested: what the author asked for; None for what the author did not write.
        lowered: what is in the module, by partitioner; a partitioner is absent when its module
            has no such tensor (a dropped argument), or could not be made.
    """

    kind: AnnotationKind
    path: str
    shape: tuple[int, ...] | None
    dtype: str
    source: SourceLocation | None
    index: int | None
    requested: RequestedTensor | None
    lowered: Mapping[Partitioner, Annotation] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What to call it: the path, and for ops which operand and where."""
        return tensor_name(self.kind, self.path, self.index)

    @property
    def asked(self) -> NamedSharding | None:
        """The sharding that its author asked for; None where there is none."""
        return None if self.requested is None else self.requested.sharding

    @property
    def is_authored(self) -> bool:
        """Whether the program's author wrote it, or could have, and not JAX on its own account."""
        return (
            self.requested is not None
            or self.kind in ("argument", "result")
            or any(there.is_authored for there in self.lowered.values())
        )

    @property
    def key_dims(self) -> int:
        """How many of the last dimensions are, or may be, the words of a PRNG key.

        JAX shards none of them. A module doesn't say that an argument is a key: there whatever has
        the type and the size of one may be.
        """
        if self.requested is not None:
            return self.requested.key_dims
        words = self.shape[-1] if self.shape else 0
        return int(self.dtype == "ui32" and words in _KEY_WORDS)

    @property
    def divisible(self) -> tuple[int, ...]:
        """Its shape as far as axes can divide it: each dimension of a key's words is 1."""
        shape = self.shape or ()
        return (*shape[: len(shape) - self.key_dims], *(1,) * self.key_dims)

    @property
    def is_donated(self) -> bool:
        """Whether it is an argument that the caller donated, as far as that is known.

        A module has no donation that JAX could not use.
        """
        asked = self.requested is not None and self.requested.donated
        return asked or any(there.donated for there in self.lowered.values())

    @property
    def mapped(self) -> str:
        """The function that a ``shard_map`` maps; empty for all else, and where it is not known."""
        return "" if self.requested is None else self.requested.mapped


def tensor_name(kind: AnnotationKind, path: str, index: int | None) -> str:
    """``params['w1']``; ``jit(step)/layer0``; ``jit(step)/attention #1`` for an operand."""
    if kind.startswith("shard_map") and index is not None:
        return f"{path} #{index}".lstrip()
    return path


@dataclass(frozen=True)
class LoweredTensors:
    """One module's annotations, and how its arguments relate to those that jit was given.

    Attributes:
        annotations: in lowering order.
        kept: flat index of each argument of ``main`` after the first ``constants``; None when not
            known, as for a file.
        constants: how many hoisted constants come first.
    """

    annotations: tuple[Annotation, ...]
    kept: tuple[int, ...] | None = None
    constants: int = 0


@dataclass(frozen=True, repr=False)
class TensorTable(Summarized):
    """All rows, and what could not be put in one.

    Attributes:
        tensors: the rows: arguments, results, then the rest in lowering order.
        unaligned: requested constraints that the module of a partitioner does not have in the order
            in which JAX lowers them, so that rows may be missing a cell.
    """

    tensors: tuple[Tensor, ...]
    unaligned: tuple[tuple[Partitioner, RequestedTensor], ...] = ()

    def of(self, kind: AnnotationKind, partitioner: Partitioner) -> list[Tensor]:
        """The rows of a kind that are in a partitioner's module, in order."""
        return [row for row in self.tensors if row.kind == kind and partitioner in row.lowered]


def tensor_table(
    requested: Sequence[RequestedTensor], modules: Mapping[Partitioner, LoweredTensors]
) -> TensorTable:
    """Puts what was requested beside what is in each module."""
    cells: dict[int, dict[Partitioner, Annotation]] = {}
    extras: dict[tuple[object, ...], dict[Partitioner, Annotation]] = {}
    unaligned: list[tuple[Partitioner, RequestedTensor]] = []
    for partitioner, module in modules.items():
        matched = _match(requested, module)
        for position, annotation in matched.items():
            mapped = requested[position].mapped
            named = replace(annotation, mapped=mapped) if mapped else annotation
            cells.setdefault(position, {})[partitioner] = named
        taken = {id(annotation) for annotation in matched.values()}
        for key, annotation in _keyed(a for a in module.annotations if id(a) not in taken):
            extras.setdefault(key, {})[partitioner] = annotation
        if requested:
            unaligned += [(partitioner, asked) for asked in _missing(requested, matched)]
    rows = [
        Tensor(
            asked.kind,
            asked.path,
            asked.shape,
            asked.dtype,
            # The module knows all of the program's lines, and so which tells this one apart.
            next(
                (annotation.source for annotation in cells.get(position, {}).values()), asked.source
            ),
            asked.index,
            asked,
            cells.get(position, {}),
        )
        for position, asked in enumerate(requested)
    ]
    for extra in extras.values():
        first = next(iter(extra.values()))
        rows.append(
            Tensor(
                first.kind,
                first.path,
                first.shape,
                first.dtype,
                first.source,
                first.index,
                None,
                extra,
            )
        )
    return TensorTable(tuple(sorted(rows, key=_order)), tuple(unaligned))


_KINDS = ("argument", "result")


def _order(row: Tensor) -> int:
    return _KINDS.index(row.kind) if row.kind in _KINDS else len(_KINDS)


def _match(requested: Sequence[RequestedTensor], module: LoweredTensors) -> dict[int, Annotation]:
    """Position in ``requested`` -> the annotation that is the same tensor."""
    if not requested:
        return {}
    matched: dict[int, Annotation] = {}
    by_kind: dict[str, list[Annotation]] = {}
    for annotation in module.annotations:
        by_kind.setdefault(annotation.kind, []).append(annotation)
    arguments = by_kind.get("argument", [])
    kept = module.kept
    if kept is None:
        kept = tuple(range(len(arguments) - module.constants))
    # Tokens and dimension variables come before everything that the user passes.
    arguments = arguments[len(arguments) - len(kept) :]
    results = by_kind.get("result", [])
    count = sum(asked.kind == "result" for asked in requested)
    given = sum(asked.kind == "argument" for asked in requested)
    # What a program sets of a Ref that it closes over comes behind all that it returns.
    end = len(results) - sum(index >= given for index in kept)
    results = results[max(end - count, 0) : end]
    at = dict(zip(kept, arguments, strict=True))
    for position, asked in enumerate(requested):
        if asked.kind == "argument" and not asked.dropped and asked.index in at:
            matched[position] = at[asked.index]
        elif asked.kind == "result" and asked.index is not None and asked.index < len(results):
            matched[position] = results[asked.index]
    inside = [(k, asked) for k, asked in enumerate(requested) if asked.ordinal >= 0]
    written = [annotation for annotation in module.annotations if annotation.is_authored]
    # A shard_map's outputs come after its body in a module, and are requested with its inputs.
    inside.sort(key=lambda entry: entry[1].ordinal)
    written.sort(key=lambda annotation: annotation.ordinal)
    matched.update(_match_in_order(inside, written))
    return matched


def _match_in_order(
    inside: Sequence[tuple[int, RequestedTensor]], written: Sequence[Annotation]
) -> dict[int, Annotation]:
    asked_keys = [_key(asked) for _, asked in inside]
    found_keys = [_key(annotation) for annotation in written]
    if [key[:2] for key in asked_keys] == [key[:2] for key in found_keys]:
        return {
            position: annotation for (position, _), annotation in zip(inside, written, strict=True)
        }
    matched: dict[int, Annotation] = {}
    matcher = SequenceMatcher(None, asked_keys, found_keys, autojunk=False)
    for block in matcher.get_matching_blocks():
        for step in range(block.size):
            matched[inside[block.a + step][0]] = written[block.b + step]
    return matched


def _key(
    tensor: RequestedTensor | Annotation,
) -> tuple[str, int | None, tuple[str, int] | None]:
    index = tensor.index if tensor.kind.startswith("shard_map") else None
    if not isinstance(tensor, Annotation):
        return tensor.kind, index, line_of(tensor.source)
    own = None if index is None else index - tensor.tokens
    return tensor.kind, own, line_of(tensor.innermost)


def _missing(
    requested: Sequence[RequestedTensor], matched: Mapping[int, Annotation]
) -> list[RequestedTensor]:
    return [
        asked
        for position, asked in enumerate(requested)
        if not (position in matched or asked.dropped or _is_unwritten(asked))
    ]


def _is_unwritten(asked: RequestedTensor) -> bool:
    """Whether JAX writes nothing for it, as its notes say."""
    return asked.kind not in _KINDS and asked.ordinal < 0


def _keyed(
    annotations: Iterable[Annotation],
) -> list[tuple[tuple[object, ...], Annotation]]:
    """Annotations with a key that is the same under both partitioners."""
    counts: dict[tuple[object, ...], int] = {}
    keyed: list[tuple[tuple[object, ...], Annotation]] = []
    for annotation in annotations:
        base = (
            annotation.kind,
            annotation.path,
            annotation.primitive,
            annotation.index,
            line_of(annotation.source),
        )
        count = counts[base] = counts.get(base, -1) + 1
        keyed.append(((*base, count), annotation))
    return keyed
