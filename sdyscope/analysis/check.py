"""check: what was requested against what is in each module, and the modules against each other.

Everything is compared by placement, so two spellings of one sharding agree. What placement does
not cover is compared beside it: which dimensions are open, which axes a ``shard_map`` is manual on,
and what Shardy alone can say (axes pinned as replicated, priorities).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from sdyscope.annotations import Annotation
from sdyscope.errors import ConversionError
from sdyscope.facts.findings import Finding, Severity
from sdyscope.facts.program import Partitioner, RequestedTensor
from sdyscope.facts.tensors import Tensor, TensorTable
from sdyscope.values.convert import to_placement, unspecified_dims
from sdyscope.values.mesh import AxisRef, Mesh
from sdyscope.values.placement import Digits, Placement, axes_digits
from sdyscope.values.sharding import NamedSharding, TensorSharding
from sdyscope.values.tiling import HloSharding
from sdyscope.words.sharding import placement_text


@dataclass(frozen=True)
class Check:
    """What ``check`` found.

    Attributes:
        findings: by tensor, in the order of the table.
        tensors: how many tensors were looked at.
        compared: how many comparisons of a requested sharding with a module's were made.
        agreed: how many of those agree.
    """

    findings: tuple[Finding, ...]
    tensors: int
    compared: int
    agreed: int

    @property
    def passed(self) -> bool:
        """Whether there is nothing worse than a note."""
        return all(finding.severity == "note" for finding in self.findings)


def check(table: TensorTable, module_findings: Sequence[Finding] = ()) -> Check:
    """Compares every row of the table.

    Args:
        table: the rows.
        module_findings: what is already known about whole modules, listed first.
    """
    findings = list(module_findings)
    for partitioner, sentence in table.unaligned:
        findings.append(
            Finding(
                "not-aligned",
                "error",
                f"{sentence}, so it could not be compared.",
                partitioner=partitioner,
                hint="Please report this with the program: every constraint should be found.",
            )
        )
    compared = agreed = 0
    for tensor in table.tensors:
        of_tensor: list[Finding] = []
        for partitioner, annotation in tensor.lowered.items():
            found = list(_compare(tensor, partitioner, annotation))
            of_tensor += found
            if tensor.requested is not None:
                compared += 1
                agreed += not any(finding.severity == "error" for finding in found)
        if not any(finding.severity == "error" for finding in of_tensor):
            of_tensor += _between_partitioners(tensor)
        of_tensor += _about_tensor(tensor)
        findings += of_tensor
    # What a body is manual on is read off its boundary, so a wrong boundary would be blamed twice.
    wrong = {f.partitioner for f in findings if f.severity == "error" and "shard_map" in f.kind}
    findings += [
        finding
        for tensor in table.tensors
        if tensor.requested is None
        for partitioner, there in tensor.lowered.items()
        if partitioner not in wrong
        for finding in _compare_unrequested(tensor, partitioner, there)
    ]
    return Check(tuple(findings), len(table.tensors), compared, agreed)


def agrees(tensor: Tensor, partitioner: Partitioner) -> bool:
    """Whether a module says of a tensor what was requested of it, placement and open dimensions.

    Args:
        tensor: a row of the table that was requested.
        partitioner: one that it has a cell for.
    """
    return not any(
        finding.severity == "error"
        for finding in _compare(tensor, partitioner, tensor.lowered[partitioner])
    )


def _finding(
    tensor: Tensor,
    rule: str,
    message: str,
    *,
    partitioner: Partitioner | None = None,
    severity: Severity = "error",
    expected: str = "",
    found: str = "",
    hint: str = "",
) -> Finding:
    return Finding(
        rule,
        severity,
        message,
        tensor.name,
        tensor.kind,
        tensor.source,
        partitioner,
        expected,
        found,
        hint,
    )


def _compare(tensor: Tensor, partitioner: Partitioner, there: Annotation) -> Iterator[Finding]:
    asked = tensor.requested
    if there.problem:
        wrong = "could not be read" if there.is_unreadable else "places nothing"
        yield _finding(
            tensor,
            "no-placement",
            f"{there.text} {wrong}: {there.problem}.",
            partitioner=partitioner,
            found=there.text,
        )
        return
    if asked is None:
        return
    if tensor.shape != there.shape or tensor.dtype != there.dtype:
        yield _finding(
            tensor,
            "type-differs",
            f"It is {_type(there.shape, there.dtype)} in the module, and was given as "
            f"{_type(tensor.shape, tensor.dtype)}.",
            partitioner=partitioner,
        )
        return
    if asked.sharding is None:
        if there.sharding is not None and tensor.kind in ("argument", "result"):
            yield _finding(
                tensor,
                "not-requested",
                "Nobody asked for a sharding here; JAX wrote one, as it does on Explicit axes.",
                severity="note",
                partitioner=partitioner,
                expected="left to the compiler",
                found=_words(there, None),
            )
        return
    yield from _compare_sharding(tensor, asked, asked.sharding, partitioner, there)


def _compare_sharding(
    tensor: Tensor,
    asked: RequestedTensor,
    sharding: NamedSharding,
    partitioner: Partitioner,
    there: Annotation,
) -> Iterator[Finding]:
    mesh = sharding.mesh
    try:
        expected = to_placement(sharding, len(asked.shape))
    except ConversionError as error:
        yield _finding(tensor, "no-placement", f"{sharding} places nothing: {error.message}.")
        return
    words = _named(expected, mesh)
    if there.placement is None:
        if not asked.shape and expected.is_replicated:
            return  # A scalar can live nowhere else, and JAX before 0.9 writes nothing on it.
        yield _finding(
            tensor,
            "sharding-dropped",
            "A sharding was asked for, and the module has none.",
            partitioner=partitioner,
            expected=words,
            found="left to the compiler",
        )
        return
    if there.placement.without_manual != expected:
        yield _finding(
            tensor,
            "lowered-differs",
            "The module has another sharding than was asked for.",
            partitioner=partitioner,
            expected=words,
            found=_words(there, mesh),
        )
        return
    yield from _compare_open(tensor, asked, sharding, partitioner, there)
    yield from _compare_manual(tensor, asked, mesh, partitioner, there)
    yield from _dropped_axes(tensor, sharding, partitioner, there)
    if isinstance(there.sharding, TensorSharding):
        pinned = there.sharding.replicated_axes
        if pinned:
            yield _finding(
                tensor,
                "lowered-differs",
                "The module forbids axes that the request leaves free: "
                f"{', '.join(map(str, pinned))}.",
                partitioner=partitioner,
                expected=words,
                found=there.text,
            )
        written = [dim.priority or 0 for dim in there.sharding.dim_shardings]
        wanted = [priority or 0 for priority in asked.priorities] or [0] * len(written)
        if written != wanted:
            yield _finding(
                tensor,
                "lowered-differs",
                "The module gives dimensions a priority that was not asked for.",
                partitioner=partitioner,
                expected=f"{words}, priorities {wanted}" if any(wanted) else words,
                found=there.text,
            )


def _dropped_axes(
    tensor: Tensor, sharding: NamedSharding, partitioner: Partitioner, there: Annotation
) -> Iterator[Finding]:
    """Axes that were asked for and that the module's sharding, placed alike, does not name."""
    if not isinstance(there.sharding, TensorSharding):
        return  # The classic HLO form names no axes at all.
    asked = dict.fromkeys((*sharding.spec.axis_names(), *sorted(sharding.spec.unreduced)))
    named = {axis.name for axis in there.sharding.axes()}
    dropped = [name for name in asked if name not in named]
    if dropped:
        sizes = ", ".join(f"{name} (size {sharding.mesh.shape[name]})" for name in dropped)
        yield _finding(
            tensor,
            "axes-dropped",
            f"JAX leaves out {sizes}, which makes no difference to the placement.",
            severity="note",
            partitioner=partitioner,
            expected=str(sharding),
            found=there.text,
        )


@lru_cache(maxsize=4096)
def _named(place: Placement, mesh: Mesh) -> str:
    return placement_text(place, mesh)


def _compare_open(
    tensor: Tensor,
    asked: RequestedTensor,
    sharding: NamedSharding,
    partitioner: Partitioner,
    there: Annotation,
) -> Iterator[Finding]:
    rank = len(asked.shape)
    expected = unspecified_dims(sharding, rank)
    if asked.kind.startswith("shard_map") and _is_partly_manual(asked, sharding.mesh):
        # The other axes stay the compiler's, so JAX leaves every dimension open to them.
        expected = tuple(range(rank))
    if there.open_dims != expected:
        yield _finding(
            tensor,
            "open-dims-differ",
            f"The request leaves {_dims(expected)} open, and the module {_dims(there.open_dims)}.",
            partitioner=partitioner,
            expected=f"{sharding} with {_dims(expected)} open",
            found=f"{there.text} with {_dims(there.open_dims)} open",
        )


def _is_partly_manual(asked: RequestedTensor, mesh: Mesh) -> bool:
    return any(axis.name not in asked.manual_axes for axis in mesh.axes)


def _compare_manual(
    tensor: Tensor,
    asked: RequestedTensor,
    mesh: Mesh,
    partitioner: Partitioner,
    there: Annotation,
) -> Iterator[Finding]:
    expected = axes_digits(mesh, map(AxisRef, asked.manual_axes))
    if asked.kind.startswith("shard_map"):
        found = there.manual
        message = "The body is manual on other axes than was asked for."
    else:
        # Inside a shard_map GSPMD says the manual axes on every sharding, Shardy on none.
        if isinstance(there.sharding, TensorSharding):
            expected = ()
        found = there.placement.manual if there.placement is not None else ()
        message = "It is manual on other axes than the shard_map that it is in."
    if found != expected:
        yield _finding(
            tensor,
            "manual-axes-differ",
            message,
            partitioner=partitioner,
            expected=_manual_words(expected, mesh),
            found=_manual_words(found, mesh),
        )


def _compare_unrequested(
    tensor: Tensor, partitioner: Partitioner, there: Annotation
) -> Iterator[Finding]:
    """A constraint of JAX's own inside a ``shard_map``: GSPMD must say the manual axes on it."""
    if isinstance(there.sharding, HloSharding) and there.placement is not None:
        found, expected = there.placement.manual, there.manual
        if tensor.kind == "constraint" and found != expected:
            place = Placement(there.placement.num_devices, (), manual=expected)
            yield _finding(
                tensor,
                "manual-axes-differ",
                "It is manual on other axes than the shard_map that it is in.",
                partitioner=partitioner,
                expected=placement_text(place) if expected else "no manual axes",
                found=there.text,
            )


def _manual_words(digits: Digits, mesh: Mesh) -> str:
    if not digits:
        return "no manual axes"
    return placement_text(Placement(mesh.size, (), manual=digits), mesh).split("; ")[1]


def _between_partitioners(tensor: Tensor) -> Iterator[Finding]:
    if len(tensor.lowered) < 2 or any(there.problem for there in tensor.lowered.values()):
        return
    asked = None if tensor.requested is None else tensor.requested.sharding
    mesh = None if asked is None else asked.mesh
    (first, one), (second, two) = list(tensor.lowered.items())[:2]
    if (one.placement is None) != (two.placement is None):
        same = False
    elif one.placement is None or two.placement is None:
        same = True
    else:
        same = one.placement.without_manual == two.placement.without_manual
        same = same and one.open_dims == two.open_dims
    if not same:
        yield _finding(
            tensor,
            "partitioners-differ",
            f"{first} and {second} are told different things.",
            expected=f"{first}: {_words(one, mesh)}",
            found=f"{second}: {_words(two, mesh)}",
        )


def _about_tensor(tensor: Tensor) -> Iterator[Finding]:
    asked = tensor.requested
    if asked is None:
        return
    if asked.dropped:
        yield _finding(
            tensor,
            "argument-dropped",
            "The program does not use it, so jit drops it and the module has no such argument.",
            severity="note",
        )
    for note in asked.notes:
        yield _finding(tensor, "request-note", note, severity="note")
    if asked.sharding is None or asked.dropped:
        return
    try:
        place = to_placement(asked.sharding, len(asked.shape))
    except ConversionError:
        return
    for dim, padding in enumerate(place.padding(asked.shape)):
        if padding:
            size, parts = asked.shape[dim], place.shards[dim]
            yield _finding(
                tensor,
                "not-divisible",
                f"Dimension {dim} of size {size} does not divide into {parts}: blocks of "
                f"{-(-size // parts)} with {padding} padded, or no split at all, as the compiler "
                "likes.",
                severity="warning",
                expected=placement_text(place, asked.sharding.mesh),
                hint=f"Make the size a multiple of {parts}, or shard the dimension less.",
            )


def _words(there: Annotation, mesh: Mesh | None) -> str:
    if there.placement is None:
        return there.text or "left to the compiler"
    text = placement_text(there.placement, mesh)
    return f"{text} ({_dims(there.open_dims)} open)" if there.open_dims else text


def _dims(dims: Sequence[int]) -> str:
    if not dims:
        return "no dimension"
    return ("dimension " if len(dims) == 1 else "dimensions ") + ", ".join(map(str, dims))


def _type(shape: tuple[int, ...] | None, dtype: str) -> str:
    return f"{dtype}[{'?' if shape is None else ','.join(map(str, shape))}]"
