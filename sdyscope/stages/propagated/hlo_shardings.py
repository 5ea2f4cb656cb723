"""What of the shardings of HLO text XLA's conversion to StableHLO loses.

The conversion drops those of every op with several results (reductions of several operands, sorts,
conditionals, custom calls) and, until jaxlib 0.9, of concatenations, slices, pads and a few more.
An instruction and the op that it becomes have the same ``op_name``, kind and shapes. Branches have
no arguments in StableHLO, as which GSPMD can shard what they take otherwise than it is outside.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from sdyscope.errors import SdyscopeError
from sdyscope.graph.op_kinds import BRANCHES, TAKEN_OTHERWISE
from sdyscope.graph.types import parse_type
from sdyscope.hlo import Computation, Instruction, read_hlo
from sdyscope.stages import compat
from sdyscope.stages.align.tags import numbered
from sdyscope.syntax.hlo_sharding import parse_hlo_sharding
from sdyscope.values.tiling import AnyHloSharding, HloSharding, TupleSharding

_SHARDING = "mhlo.sharding"

_Shapes: TypeAlias = tuple[tuple[int, ...], ...]

_Key: TypeAlias = tuple[str, str, _Shapes]
"""``op_name``, opcode with underscores, shape of each result."""

#: Opcodes of HLO that have another name in StableHLO, or several.
_KINDS = {"conditional": ("case", "if"), "topk": ("custom_call", "topk")}


def restore_shardings(module: Any, text: str) -> None:
    """Writes the lost shardings into a module.

    Args:
        module: the ``ir.Module`` that was made of an HLO module; changed in place.
        text: the HLO module.
    """
    with module.context:
        lost = {
            node: (key, operation)
            for node, operation in numbered(module)
            if (key := _key_of_lost(operation)) is not None
        }
        if not lost:
            return
        known = _written(text)
        seen: dict[_Key, int] = {}
        for _, (key, operation) in sorted(lost.items()):
            written = known.get(key, [])
            # Of several the text's order is the module's.
            position = seen[key] = seen.get(key, -1) + 1
            if len(set(written)) == 1 or position < len(written):
                sharding = written[position if position < len(written) else 0]
                operation.attributes[_SHARDING] = compat.ir.StringAttr.get(sharding)


def mark_branches(module: Any, text: str) -> None:
    """Marks the conditionals whose branches take values with other shardings than these have.

    Args:
        module: as of ``restore_shardings``.
        text: likewise.
    """
    otherwise = {
        instruction.op_name
        for computation in read_hlo(text).computations.values()
        for instruction in computation.instructions.values()
        if instruction.opcode == "conditional" and _takes_otherwise(computation, instruction)
    }
    with module.context:
        for _, operation in numbered(module):
            if operation.name in BRANCHES and compat.location_name(operation) in otherwise:
                operation.attributes[TAKEN_OTHERWISE] = compat.ir.UnitAttr.get()


def _takes_otherwise(computation: Computation, conditional: Instruction) -> bool:
    """Whether tuples that go into branches are sharded otherwise than what is put into them."""
    given = map(computation.instructions.get, conditional.operands[1:])
    for each in given:
        if each is not None and each.opcode == "tuple":
            within = _sharding(each)
            outside = [_outside(computation, name) for name in each.operands]
            if isinstance(within, TupleSharding) and outside != [*within.elements]:
                return True
    return False


def _outside(computation: Computation, operand: str) -> AnyHloSharding | None:
    """The sharding of an operand, of an element of a tuple as the tuple has it."""
    name, _, index = operand.partition("#")
    value = computation.instructions[name]
    element = int(index) if index else value.element
    if element is not None:
        whole = value if index else computation.instructions[value.operands[0]]
        if isinstance(sharding := _sharding(whole), TupleSharding):
            return sharding.elements[element]
    return _sharding(value) or HloSharding("replicated")


def _sharding(instruction: Instruction) -> AnyHloSharding | None:
    text = instruction.sharding
    return parse_hlo_sharding(text) if text else None


def _key_of_lost(operation: Any) -> _Key | None:
    """What an op that may have lost a sharding has in common with its instruction."""
    if _SHARDING in operation.attributes:
        return None
    name = compat.location_name(operation)
    types = [parse_type(str(result.type)) for result in operation.results] if name else []
    if not any(type_.shape for type_ in types):
        return None
    shapes = tuple(tuple(size or 0 for size in type_.shape or ()) for type_ in types)
    return name, operation.name.partition(".")[2], shapes


def _written(text: str) -> dict[_Key, list[str]]:
    """The shardings in an HLO module's text, in order."""
    known: dict[_Key, list[str]] = {}
    for instruction in read_hlo(text).instructions():
        sharding, name = instruction.sharding, instruction.op_name
        if not sharding or not name:
            continue
        opcode = instruction.opcode.replace("-", "_")
        for kind in _KINDS.get(opcode, (opcode,)):
            known.setdefault((name, kind, _shapes(instruction)), []).append(sharding)
    return known


def _shapes(instruction: Instruction) -> _Shapes:
    try:
        return tuple(leaf.dimensions for leaf in instruction.shape.leaves)
    except SdyscopeError:
        return ()
