"""Reshardings that XLA's partitioner itself calls inefficient, from what it logs.

It writes "[SPMD] Involuntary full rematerialization. The compiler cannot go from sharding A to B
efficiently for HLO operation ..." (``xla/service/spmd/spmd_partitioner.cc``): the tensor is then
made whole on every device. Newer versions name the source line by a number in the stack-frame
tables of the module.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from sdyscope.analysis.naming.scopes import scope_of
from sdyscope.errors import ConversionError, SdyscopeError, SyntaxTextError
from sdyscope.facts.rematerializations import Rematerialization
from sdyscope.facts.sharded import Sharded
from sdyscope.hlo import HloModule, Instruction, Shape
from sdyscope.syntax.hlo_sharding import parse_hlo_sharding
from sdyscope.values.convert import to_placement
from sdyscope.values.mesh import Mesh
from sdyscope.values.tiling import TupleSharding

_FROM_TO = re.compile(r"go from sharding (\{.*?\}) to (\{.*?\}) (?:without|efficiently|in)\b")
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
