"""How often the body of a ``while`` runs, and what of it is known beforehand."""

from __future__ import annotations

import re

from sdyscope.hlo.model import Computation, HloModule, Instruction
from sdyscope.values.passing import opcodes

# XLA's own analysis (WhileLoopTripCountAnnotator); older printers escape the JSON as a string.
_KNOWN = re.compile(r'\\?"known_trip_count\\?":\s*\{\\?"n\\?":\s*\\?"?(\d+)')
_INTEGER = re.compile(r"-?\d+$")
_PASSING = opcodes("unchanged", "type", "shape")

#: Comparisons in which the sides are exchanged.
MIRRORED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "NE": "NE"}


def trip_count(module: HloModule, caller: Computation, loop: Instruction) -> int | None:
    """How often the body of a loop runs; None where the text does not tell.

    What XLA found out stands in ``backend_config`` (``known_trip_count``). Otherwise the pattern of
    a counted loop is looked for, which is that of JAX's scans: an element of the loop's tuple that
    is compared with a constant, begins with a constant, and grows by a constant.

    Args:
        module: the module.
        caller: the computation that the loop is in.
        loop: the ``while`` instruction.
    """
    known = _KNOWN.search(loop.rest)
    if known is not None:
        return int(known[1])
    return _counted(module, caller, loop)


def _counted(module: HloModule, caller: Computation, loop: Instruction) -> int | None:
    condition, body = (module.computations.get(name) for name in loop.called("condition", "body"))
    if condition is None or body is None or len(loop.operands) != 1:
        return None
    compared = _comparison(module, condition)
    if compared is None:
        return None
    index, direction, limit = compared
    start = _element(caller, loop.operands[0], index)
    step = _step(body, index)
    first = None if start is None else _constant(caller, start)
    if first is None or not step:
        return None
    return trips(first, limit, step, direction)


def known_before(body: Computation) -> frozenset[str]:
    """Instructions of a loop's body that need nothing which the iteration before computes.

    They need its counter alone, of which the next is known, and elements that stay the same.

    Args:
        body: the computation that is repeated.
    """
    root = body.root
    if root is None or root.opcode != "tuple":
        return frozenset()
    same = {index for index, name in enumerate(root.operands) if _stays(body, name, index)}
    known: set[str] = set()
    for instruction in body.instructions.values():
        if instruction.opcode == "parameter":
            continue
        index = given_element(body, instruction)
        if index is not None:
            is_known = index in same
        else:
            is_known = instruction.opcode == "constant" or known.issuperset(instruction.operands)
        if is_known:
            known.add(instruction.name)
    return frozenset(known)


def _stays(body: Computation, name: str, index: int) -> bool:
    """Whether an element of a loop's tuple stays as it is, or grows by constants."""
    value = body.behind(name, _PASSING)
    if value is None:
        return False
    if given_element(body, value) is not None:
        return given_element(body, value) == index
    if not re.match(r"[su]\d+\[\](\{|$)", value.shape_text):
        return False
    sides = [body.behind(side, _PASSING) for side in value.operands]
    return all(
        side is not None and (side.opcode == "constant" or given_element(body, side) == index)
        for side in sides
    )


def given_element(body: Computation, instruction: Instruction | None) -> int | None:
    """Which element of a body's parameter an instruction takes; None for any other instruction."""
    index = None if instruction is None else instruction.element
    if instruction is None or index is None:
        return None
    source = body.instructions.get(next(iter(instruction.operands), ""))
    return index if source is not None and source.opcode == "parameter" else None


def trips(first: int, limit: int, step: int, direction: str) -> int | None:
    """How often a counted loop runs; None where it would not end.

    Args:
        first: what is counted begins with this.
        limit: it is compared with this.
        step: it grows by this each time.
        direction: the loop goes on while it is this to the limit: ``LT``, ``LE``, ``GT``, ...
    """
    distance = limit - first if step > 0 else first - limit
    size = abs(step)
    if direction == ("LT" if step > 0 else "GT"):
        return max(-(-distance // size), 0)
    if direction == ("LE" if step > 0 else "GE"):
        return max(distance // size + 1, 0)
    if direction == "NE" and distance >= 0 and distance % size == 0:
        return distance // size
    return None


def _comparison(module: HloModule, condition: Computation) -> tuple[int, str, int] | None:
    """The element of the loop's tuple that is compared, how, and the constant on the right."""
    root = condition.root
    if root is None:
        return None
    sides: tuple[str, ...] = root.operands
    if root.opcode == "fusion":
        fused = module.fused(root)
        inner = None if fused is None else fused.root
        if fused is None or inner is None or inner.opcode != "compare":
            return None
        inside = [fused.behind(name, _PASSING) for name in inner.operands]
        if any(side is None for side in inside):
            return None
        direction = inner.attributes.get("direction", "")
        known: list[Instruction | None] = []
        for side in inside:
            number = None if side is None else side.parameter
            if number is not None:
                known.append(
                    condition.behind(sides[number], _PASSING) if number < len(sides) else None
                )
            else:
                known.append(side)
    elif root.opcode == "compare":
        direction = root.attributes.get("direction", "")
        known = [condition.behind(name, _PASSING) for name in sides]
    else:
        return None
    if len(known) != 2 or direction not in MIRRORED:
        return None
    left, right = known
    if left is not None and left.opcode == "constant":
        left, right, direction = right, left, MIRRORED[direction]
    limit = None if right is None else _number(right)
    index = None if left is None else left.element
    return None if limit is None or index is None else (index, direction, limit)


def _step(body: Computation, index: int) -> int | None:
    """By how much an element of the loop's tuple grows."""
    root = body.root
    if root is None:
        return None
    name = _element(body, root.name, index)
    grown = None if name is None else body.behind(name, _PASSING)
    if grown is None or grown.opcode not in ("add", "subtract"):
        return None
    first, second = (body.behind(side, _PASSING) for side in grown.operands)
    if first is None or second is None:
        return None
    if grown.opcode == "add" and first.opcode == "constant":
        first, second = second, first
    size = _number(second)
    if size is None or first.element != index:
        return None
    return size if grown.opcode == "add" else -size


def _element(computation: Computation, name: str, index: int) -> str | None:
    tuple_ = computation.instructions.get(name)
    if tuple_ is None or tuple_.opcode != "tuple":
        return None
    operands = tuple_.operands
    return operands[index] if index < len(operands) else None


def _constant(computation: Computation, name: str) -> int | None:
    instruction = computation.behind(name, _PASSING)
    return None if instruction is None else _number(instruction)


def _number(instruction: Instruction) -> int | None:
    text = instruction.operand_text.strip()
    return int(text) if instruction.opcode == "constant" and _INTEGER.match(text) else None
