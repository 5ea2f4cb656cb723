"""Which instruction of a compiled program says what another one makes.

XLA keeps the names of the ops that it was given, and makes others of them: a fusion is named after
what is in it, a copy after what it copies, a stack that a loop fills after what is written there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property

from sdyscope.hlo import Computation, HloModule, Instruction
from sdyscope.values.passing import FORMS, opcodes

_SCOPE = re.compile(r'op_name="[^"]*/')

_FORMS = opcodes(*FORMS)

#: How far it is looked for.
_FAR = 16


class Speakers:
    """Finds them in one module.

    Args:
        module: the program of one device.
    """

    def __init__(self, module: HloModule) -> None:
        self.module = module
        self._speakers: dict[str, Instruction] = {}

    @cached_property
    def by_name(self) -> Mapping[str, Instruction]:
        """The instructions of the module, whose names are all different."""
        return {instruction.name: instruction for instruction in self.module.instructions()}

    def of(self, instruction: Instruction) -> Instruction:
        """What says what an instruction makes: an instruction with a scope, or a parameter.

        The instruction itself where there is none.
        """
        speaker = self._speakers.get(instruction.name)
        if speaker is None:
            speaker = self._speakers[instruction.name] = self._search(instruction)
        return speaker

    def speaks(self, instruction: Instruction) -> bool:
        """Whether an instruction has a scope, or anything in it that is fused."""
        if _SCOPE.search(instruction.rest):
            return True
        fused = self.module.fused(instruction)
        return fused is not None and any(
            _SCOPE.search(inside.rest) for inside in fused.instructions.values()
        )

    def opcode(self, instruction: Instruction) -> str:
        """HLO's opcode; of a fusion that of its last op."""
        result = next(iter(self._results(instruction)), instruction)
        return result.opcode

    def updates(self, instruction: Instruction) -> bool:
        """Whether an instruction writes a part of an array, as a loop does that fills a stack."""
        return any(result.opcode == "dynamic-update-slice" for result in self._results(instruction))

    def _search(self, instruction: Instruction) -> Instruction:
        best: Instruction | None = None
        at: Instruction | None = instruction
        index = 0
        for _ in range(_FAR):
            if at is None:
                break
            if at.opcode == "parameter":
                return at if best is None and at.op_name else best or instruction
            if at.opcode == "get-tuple-element":
                index = at.element or 0
                at = self.by_name.get(at.operands[0])
                continue
            best = self._named(at, index) or best
            before = self._before(at, index)
            if before is None:
                break
            at, index = before, 0
        return best or instruction

    def _named(self, instruction: Instruction, index: int) -> Instruction | None:
        """The instruction with a scope that makes a result of this one."""
        fused = self.module.fused(instruction)
        if fused is not None:
            result = self._result(fused, index)
            if result is not None and _SCOPE.search(result.rest):
                return result
            inside = reversed(tuple(fused.instructions.values()))
            named = next((inner for inner in inside if _SCOPE.search(inner.rest)), None)
            if named is not None:
                return named
        return instruction if _SCOPE.search(instruction.rest) else None

    def _before(self, instruction: Instruction, index: int) -> Instruction | None:
        """What tells more than an instruction does; None where that tells enough."""
        match instruction.opcode:
            case "while":
                body = next(iter(self.module.called(instruction, "body")), None)
                producer = None if body is None else self._result(body, index)
                # What a loop only passes on is what it was given.
                return None if producer is None or producer.opcode in _PASSED else producer
            case "tuple":
                operands = instruction.operands
                return self.by_name.get(operands[index]) if index < len(operands) else None
            case "dynamic-update-slice":
                return self.by_name.get(instruction.operands[1])
            case "fusion":
                return self._update(instruction, index)
        if instruction.opcode in _FORMS or not _SCOPE.search(instruction.rest):
            return next((self.by_name.get(name) for name in instruction.operands), None)
        return None

    def _update(self, instruction: Instruction, index: int) -> Instruction | None:
        """What a fusion writes a part of its result with; of one without a scope its operand."""
        fused = self.module.fused(instruction)
        if fused is None:
            return None
        producer = self._result(fused, index)
        if producer is not None and producer.opcode == "dynamic-update-slice":
            producer = fused.instructions.get(producer.operands[1])
        elif self.speaks(instruction):
            return None
        producer = None if producer is None else fused.behind(producer.name, _FORMS)
        if producer is None or producer.parameter is None:
            return producer if producer is None or _SCOPE.search(producer.rest) else None
        operands, number = instruction.operands, producer.parameter
        return self.by_name.get(operands[number]) if number < len(operands) else None

    def _results(self, instruction: Instruction) -> list[Instruction]:
        """What makes each result of an instruction: itself, or what is fused in it."""
        fused = self.module.fused(instruction)
        if fused is None or fused.root is None:
            return [instruction]
        producer = (_behind_forms(fused, fused.instructions.get(name)) for name in fused.results)
        return [result for result in producer if result is not None]

    def _result(self, computation: Computation, index: int) -> Instruction | None:
        """What makes one result of a computation."""
        root, results = computation.root, computation.results
        if root is None or root.opcode != "tuple":
            return _behind_forms(computation, root)
        name = results[index] if index < len(results) else ""
        return _behind_forms(computation, computation.instructions.get(name))


def _behind_forms(computation: Computation, producer: Instruction | None) -> Instruction | None:
    """An instruction, or what is behind those that only change its form."""
    while producer is not None and producer.opcode in _FORMS:
        before = computation.instructions.get(producer.operands[0])
        if before is None or before.opcode == "parameter":
            break
        producer = before
    return producer


_PASSED = frozenset({"get-tuple-element", "parameter"})
