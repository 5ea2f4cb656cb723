"""Which results XLA may write over an operand that nothing needs any more.

The rules are those of ``CanShareOperandBufferWithUser``
(``xla/hlo/analysis/hlo_dataflow_analysis.cc``) and, for fusions on GPUs, of
``xla/backends/gpu/transforms/alias_info.cc``.
"""

from __future__ import annotations

from collections.abc import Mapping

from sdyscope.hlo.live import LiveRanges, Overwriting, elements
from sdyscope.hlo.model import ELEMENTWISE, Computation, Instruction
from sdyscope.values.dtypes import bit_width

_OR_BITCAST = ELEMENTWISE | {"bitcast"}
_REDUCTIONS = frozenset({"reduce"})


class Overwrites:
    """Tells of the instructions of a module.

    Args:
        live: its values.
        gpu: whether it is for GPUs.
    """

    def __init__(self, live: LiveRanges, *, gpu: bool) -> None:
        self.live = live
        self.gpu = gpu
        self._sites: dict[int, Overwriting] = {
            result: site for site in live.overwriting for result in site.results if result >= 0
        }
        self._fused: dict[str, _Fused] = {}

    def may(self, result: int, value: int) -> bool:
        """Whether a value may be written over another that its maker reads."""
        site = self._sites.get(result)
        if site is None:
            return False
        number = site.results.index(result)
        return any(
            operand is not None and operand[0] == value and self.allowed(site, number, at)
            for at, operand in enumerate(site.operands)
        )

    def allowed(self, site: Overwriting, result: int, operand: int) -> bool:
        """Whether an instruction may write one of its results over one of its operands."""
        given = site.operands[operand]
        if site.declared is not None:
            return given is not None and (result, operand) in site.declared
        if given is None or self.live.is_constant(given[0]):
            return False
        text = self.live.shapes[site.results[result]]
        instruction = self.live.schedule[site.position]
        match instruction.opcode:
            case "fusion":
                fused = self._fusion(instruction)
                if fused is None:
                    return False
                if self.gpu:
                    alike = _size(given[2]) == _size(text)
                    # The emitter of reductions is through with them before it writes anything else.
                    reduces = "kind=kInput" in instruction.rest
                    return alike and fused.leads(operand, result, reduces=reduces)
                return given[2] == text and fused.is_elementwise(operand)
            case "sort":
                return given[2] == text and result == operand
        return given[2] == text

    def _fusion(self, instruction: Instruction) -> _Fused | None:
        computation = self.live.module.fused(instruction)
        if computation is None:
            return None
        if computation.name not in self._fused:
            self._fused[computation.name] = _Fused(computation)
        return self._fused[computation.name]


class _Fused:
    """The computation of a fusion."""

    def __init__(self, computation: Computation) -> None:
        self.users: dict[str, list[tuple[str, str]]] = {}
        self.parameters: dict[int, str] = {}
        for name, instruction in computation.instructions.items():
            if (number := instruction.parameter) is not None:
                self.parameters[number] = name
            elif instruction.opcode != "constant":
                for operand in dict.fromkeys(instruction.operands):
                    self.users.setdefault(operand, []).append((name, instruction.opcode))
        self.results = computation.results
        self._reached: dict[tuple[int, frozenset[str]], Mapping[str, None] | None] = {}

    def is_elementwise(self, parameter: int) -> bool:
        """Whether all that is made of a parameter is made element by element."""
        return self._reach(parameter, ELEMENTWISE, frozenset()) is not None

    def leads(self, parameter: int, result: int, *, reduces: bool) -> bool:
        """Whether that is so with bitcasts among it, and a result is made of the parameter.

        Args:
            parameter: which parameter.
            result: which result.
            reduces: whether reductions may be made of it too.
        """
        reached = self._reach(parameter, _OR_BITCAST, _REDUCTIONS if reduces else frozenset())
        return reached is not None and self.results[result] in reached

    def _reach(
        self, parameter: int, through: frozenset[str], ends: frozenset[str]
    ) -> Mapping[str, None] | None:
        """What is made of a parameter by some ops; None where others are, but for those at ends."""
        key = (parameter, through | ends)
        if key not in self._reached:
            self._reached[key] = self._followed(parameter, through, ends | {"tuple"})
        return self._reached[key]

    def _followed(
        self, parameter: int, through: frozenset[str], ends: frozenset[str]
    ) -> Mapping[str, None] | None:
        start = self.parameters.get(parameter)
        if start is None:
            return None
        reached = {start: None}
        open_names = [start]
        while open_names:
            for name, opcode in self.users.get(open_names.pop(), ()):
                if name in reached or opcode in ends:
                    continue
                if opcode not in through:
                    return None
                reached[name] = None
                open_names.append(name)
        return reached


def _size(text: str) -> tuple[int, int]:
    """How many elements an array has, and the bits of one."""
    return elements(text), bit_width(text.partition("[")[0])
