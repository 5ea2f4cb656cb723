"""Reshardings that XLA's partitioner itself calls inefficient, from what it logs.

It writes "[SPMD] Involuntary full rematerialization. The compiler cannot go from sharding A to B
efficiently for HLO operation ..." (``xla/service/spmd/spmd_partitioner.cc``): the tensor is then
made whole on every device. Newer versions name the source line by a number in the stack-frame
tables of the module.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from sdyscope.analysis.collectives.propagated_axes import spec_at
from sdyscope.analysis.collectives.totals import Collectives, Part
from sdyscope.analysis.naming.names import name_in
from sdyscope.analysis.naming.scopes import scope_of
from sdyscope.errors import ConversionError, SdyscopeError, SyntaxTextError
from sdyscope.facts.origins import CollectiveOrigin, Spec
from sdyscope.facts.rematerializations import Rematerialization
from sdyscope.facts.sharded import Sharded
from sdyscope.hlo import HloModule, Instruction, Shape
from sdyscope.syntax.hlo_sharding import parse_hlo_sharding
from sdyscope.values.convert import to_placement
from sdyscope.values.mesh import Mesh
from sdyscope.values.sharding import PartitionSpec
from sdyscope.values.tiling import TupleSharding

_FROM_TO = re.compile(r"go from sharding (\{.*?\}) to (\{.*?\}) (?:without|efficiently|in)\b")
#: JAX's name of a constraint.
_CONSTRAINT = "sharding_constraint"
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[(){}\[\]]')
_OPERATION = re.compile(r"HLO operation:? %?([^\s=]+) = (\S.*?) ([a-z][a-z0-9\-]*)\((.*)")


def rematerializations(
    messages: Iterable[str], module: HloModule, mesh: Mesh | None = None
) -> tuple[Rematerialization, ...]:
    """What the log says, each op and its line of source once.

    Args:
        messages: lines of the compiler's log that warn of a rematerialization.
        module: the program that was compiled, for its tables of source lines.
        mesh: the mesh to name axes of.
    """
    distinct: dict[tuple[str, str, str], Rematerialization] = {}
    for message in messages:
        remade = _read(message, module, mesh)
        distinct.setdefault((remade.operation or message, remade.before, remade.after), remade)
    return tuple(distinct.values())


def with_rematerializations(collectives: Collectives) -> Collectives:
    """The same collectives, with what XLA gathers a tensor whole for, where its log says that.

    It gathers what it knows no other way to reshard, and then cuts it as it is needed.

    Args:
        collectives: those of a program, with their origins and what the log says.
    """
    remade = collectives.rematerializations
    if not remade:
        return collectives
    return collectives.with_parts(
        lambda collective, part: (
            _with_rematerialization(part, remade) if collective.kind == "all-gather" else part
        )
    )


def _with_rematerialization(part: Part, remade: Sequence[Rematerialization]) -> Part:
    origin = part.origin
    if origin is None or origin.kind != "resharding":
        return part
    if not part.moved_on or not (origin.after is None or _is_whole(origin.after)):
        return part  # Of a move that comes to nothing XLA's log warns, too.
    wanted = {_spec(move.moved_to) for move in remade if _is_about(move, part, origin)}
    if not wanted:
        return part
    (after,) = wanted if len(wanted) == 1 else (None,)  # Else it is for any of them.
    return replace(part, origin=replace(origin, after=after))


def _is_whole(spec: Spec | None) -> bool:
    return isinstance(spec, PartitionSpec) and not any(spec.entries)


def _is_about(move: Rematerialization, part: Part, origin: CollectiveOrigin) -> bool:
    """Whether it is of the tensor that is gathered whole: by its op, its sharding and its blocks.

    XLA names the op that makes the tensor, the constraint on it, or the copy that it was to become
    for the op that needs it, which has that one's name.
    """
    before = move.moved_from.placement if move.moved_from is not None else None
    shapes = [leaf.dimensions for leaf in part.shape.leaves]
    if (
        before is None
        or move.shape is None
        or len(shapes) != 1
        or len(before.dims) != len(shapes[0])
    ):
        return False
    named = (move.scope, move.primitive)
    is_constrained = any(
        annotation.kind == "constraint" and scope_of(f"{annotation.name}/{_CONSTRAINT}") == named
        for annotation in origin.annotations
        if annotation.role == "has"
    )
    return (
        (
            named == (part.scope, part.primitive)
            or name_in(move.primitive, move.scope) == origin.value
            or is_constrained
        )
        and before.local_shape(shapes[0]) == move.shape.dimensions
        and _spec(move.moved_from) == origin.before
    )


def _spec(sharded: Sharded | None) -> Spec | None:
    """A sharding as JAX writes it; None where no axes say it."""
    if sharded is None or sharded.placement is None or sharded.mesh is None:
        return None
    return spec_at(sharded.placement, len(sharded.placement.dims), sharded.mesh)


def _read(message: str, module: HloModule, mesh: Mesh | None) -> Rematerialization:
    shardings, operation = _FROM_TO.search(message), _OPERATION.search(message)
    before, after = (shardings[1], shardings[2]) if shardings else ("", "")
    if operation is None:
        return Rematerialization("", "", None, before, after, "", "", None, message, is_cut=True)
    name, shape_text, opcode, rest = operation.groups()
    instruction = Instruction(name, opcode, shape_text, rest, is_root=False, line=0)
    shape: Shape | None
    try:
        shape = instruction.shape
    except SdyscopeError:
        shape = None
    try:
        scope, primitive = scope_of(instruction.op_name)
        source = module.source(instruction)
    except SdyscopeError:  # XLA cuts long lines
        scope, primitive, source = "", "", None
    return Rematerialization(
        operation=name,
        opcode=opcode,
        shape=shape,
        before=before,
        after=after,
        scope=scope,
        primitive=primitive,
        source=source,
        message=message,
        is_cut=_is_cut(rest),
        moved_from=_sharded(before, shape, module, mesh),
        moved_to=_sharded(after, shape, module, mesh),
    )


def _sharded(
    text: str, block: Shape | None, module: HloModule, mesh: Mesh | None
) -> Sharded | None:
    """A sharding that the log names, of a tensor of which it has only the block."""
    if not text or block is None or block.dimensions is None:
        return None
    devices = module.num_partitions * module.replica_count
    try:
        sharding = parse_hlo_sharding(text)
        if isinstance(sharding, TupleSharding):
            return None
        place = to_placement(sharding, len(block.dimensions), None, devices)
    except (SyntaxTextError, ConversionError):
        return None
    return Sharded(sharding, None, block.dtype, place, mesh)


def _is_cut(text: str) -> bool:
    """Whether what stands behind an op's first bracket ends too early.

    The message goes on with another sentence.
    """
    depth = 1
    for match in _TOKEN.finditer(text):
        token = match[0]
        depth += (token in "([{") - (token in ")]}")
        if depth == 0 and text.startswith(". ", match.end()):
            return False
    return True
