"""Which results XLA may write over an operand that nothing needs any more.

The rules are those of ``CanShareOperandBufferWithUser``
(``xla/hlo/analysis/hlo_dataflow_analysis.cc``) and, for fusions on GPUs, of
``xla/backends/gpu/transforms/alias_info.cc``.
"""

from __future__ import annotations

from collections.abc import Iterator

from sdyscope.hlo.live import LiveRanges, Overwriting, elements
from sdyscope.hlo.model import ELEMENTWISE, Computation
from sdyscope.values.dtypes import bit_width
from sdyscope.walk import reached

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
                fused = self.live.module.fused(instruction)
                if fused is None:
                    return False
                if not self.gpu:
                    return (
                        given[2] == text and _derived_from(fused, operand, ELEMENTWISE) is not None
                    )
                # The emitter of reductions is through with them before it writes anything else.
                ends = _REDUCTIONS if "kind=kInput" in instruction.rest else frozenset[str]()
                derived = _derived_from(fused, operand, _OR_BITCAST, ends) or frozenset()
                return _size(given[2]) == _size(text) and fused.results[result] in derived
            case "sort":
                return given[2] == text and result == operand
        return given[2] == text


def _derived_from(
    fused: Computation, parameter: int, through: frozenset[str], ends: frozenset[str] = frozenset()
) -> frozenset[str] | None:
    """What is made of a parameter by some ops; None where others are, but for those at ends."""
    key = parameter, through | ends
    return fused.once(key, lambda: _followed(fused, parameter, through, ends | {"tuple"}))


def _followed(
    fused: Computation, parameter: int, through: frozenset[str], ends: frozenset[str]
) -> frozenset[str] | None:
    if parameter not in fused.parameters:
        return None
    start, names = fused.parameters[parameter].name, set[str]()

    def further(name: str) -> Iterator[str]:
        return (user.name for user in fused.users.get(name, ()) if user.opcode not in ends)

    for name in reached([start], further):
        if name != start and fused.instructions[name].opcode not in through:
            return None
        names.add(name)
    return frozenset(names)


def _size(text: str) -> tuple[int, int]:
    """How many elements an array has, and the bits of one."""
    return elements(text), bit_width(text.partition("[")[0])
