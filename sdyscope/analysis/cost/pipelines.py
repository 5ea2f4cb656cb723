"""Loops that hand a value on to the next device along a mesh axis: the stages of a pipeline.

A pipeline of n stages and m microbatches takes n + m - 1 steps, and in n - 1 of them a stage has
nothing to do: a bubble of (n - 1) / (n + m - 1). That is GPipe's (Huang et al., 2018, arXiv
1811.06965), and with one microbatch that of a pipeline without any. The backward pass, which takes
about twice as long, has as many steps and so the same ratio.

What is looked for is a loop whose carried value is moved one device on, all of it, in every trip.
Whether a stage computes something of use in a step can't be seen in the program: n is the size of
the axis and n + m - 1 the trips of the loop. A ring of n trips, such as ring attention's, is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from sdyscope.analysis.collectives.axes import axes_of_pairs
from sdyscope.hlo import HloModule
from sdyscope.hlo.loops import trip_count
from sdyscope.hlo.model import Computation, Instruction
from sdyscope.values.mesh import Mesh
from sdyscope.values.source import SourceLocation

__all__ = ["Pipeline", "pipelines"]

_PAIR = re.compile(r"\{(\d+),(\d+)\}")

_Following: TypeAlias = Callable[[Instruction], Iterable[Instruction]]

#: What moves numbers without making others of them.
_MOVING = frozenset(
    {
        *("bitcast", "collective-permute", "collective-permute-done", "collective-permute-start"),
        *("concatenate", "convert", "copy", "copy-done", "copy-start", "dynamic-slice"),
        *("dynamic-update-slice", "get-tuple-element", "pad", "reshape", "select", "slice"),
        *("transpose", "tuple"),
    }
)
#: What the moving needs: which element, whose turn it is.
_INDEXING = frozenset(
    {
        *("add", "and", "broadcast", "clamp", "compare", "constant", "divide", "iota", "maximum"),
        *("minimum", "multiply", "negate", "not", "or", "parameter", "partition-id", "remainder"),
        *("replica-id", "sign", "subtract"),
    }
)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A loop that hands a value on along a mesh axis in every trip.

    Attributes:
        axis: the mesh axis.
        stages: devices along it, n.
        steps: trips of the loop, n + m - 1.
        microbatches: m, by the number of steps.
        bubble: the part of the steps in which a stage has nothing to do, (n - 1) / (n + m - 1).
        bytes: bytes that a device hands on in a step.
        source: the innermost line of user code of what hands them on; None where there is none.
    """

    axis: str
    stages: int
    steps: int
    bytes: int
    source: SourceLocation | None

    __document__ = ("axis", "stages", "steps", "microbatches", "bubble", "bytes", "source")

    @property
    def microbatches(self) -> int:
        """How many pass through the stages in that many steps."""
        return self.steps - self.stages + 1

    @property
    def bubble(self) -> float:
        """The part of the steps in which a stage has nothing to do."""
        return (self.stages - 1) / self.steps


def pipelines(module: HloModule, mesh: Mesh | None) -> tuple[Pipeline, ...]:
    """The loops of a partitioned program that can be pipelines; a forward and its backward once."""
    if mesh is None:
        return ()
    found: dict[tuple[str, int], Pipeline] = {}
    for computation in module.computations.values():
        for loop in computation.instructions.values():
            if loop.opcode != "while":
                continue
            steps = trip_count(module, computation, loop)
            bodies = [module.computations.get(name) for name in loop.called("body")]
            for body in bodies:
                if steps is None or body is None:
                    continue
                for one in _handed_on(module, body, steps, mesh):
                    known = found.get((one.axis, one.steps))
                    if known is None or known.bytes < one.bytes:
                        found[one.axis, one.steps] = one
    return tuple(sorted(found.values(), key=lambda one: -one.bytes))


def _handed_on(
    module: HloModule, body: Computation, steps: int, mesh: Mesh
) -> Iterator[Pipeline]:
    """Of a loop's body, what it hands on along an axis."""
    carried = _carried(body)
    users = _users(body)
    for instruction in body.instructions.values():
        if instruction.opcode not in ("collective-permute", "collective-permute-start"):
            continue
        pairs = [
            (int(source), int(target))
            for source, target in _PAIR.findall(
                instruction.attributes.get("source_target_pairs", "")
            )
        ]
        axis = _next_along(pairs, mesh)
        size = instruction.shape.leaves[0].bytes
        if axis is None or steps < mesh.shape[axis] + 1 or size not in carried.values():
            continue
        if _reaches(module, body, instruction, users, carried, size):
            stages = mesh.shape[axis]
            yield Pipeline(axis, stages, steps, size, module.source(instruction))


def _next_along(pairs: list[tuple[int, int]], mesh: Mesh) -> str | None:
    """The axis along which each device sends to its neighbour, all in one direction; None else."""
    axes = axes_of_pairs(tuple(pairs), mesh) if pairs else None
    if axes is None or len(axes) != 1 or axes[0].sub_axis_info is not None:
        return None
    name = axes[0].name
    size, stride = mesh.shape[name], 1
    for axis in reversed(mesh.axes):
        if axis.name == name:
            break
        stride *= axis.size
    turns = {(target // stride - source // stride) % size for source, target in pairs}
    return name if size > 1 and (turns == {1} or turns == {size - 1}) else None


def _carried(body: Computation) -> Mapping[str, int]:
    """Bytes of what a loop carries, by the instruction that takes it out of the loop's tuple."""
    parameters = {
        name for name, one in body.instructions.items() if one.opcode == "parameter"
    }
    return {
        name: one.shape.bytes
        for name, one in body.instructions.items()
        if one.opcode == "get-tuple-element" and parameters.intersection(one.operands)
    }


def _users(body: Computation) -> Mapping[str, list[Instruction]]:
    found: dict[str, list[Instruction]] = {}
    for one in body.instructions.values():
        for operand in one.operands:
            found.setdefault(operand, []).append(one)
    return found


def _reaches(
    module: HloModule,
    body: Computation,
    permute: Instruction,
    users: Mapping[str, list[Instruction]],
    carried: Mapping[str, int],
    size: int,
) -> bool:
    """Whether a value is only moved between the permutation and what the loop carries."""
    root = None if body.root is None else body.root.name
    after = _only_moved(module, [permute], lambda one: users.get(one.name, ()))
    if root in after:
        return True
    before = _only_moved(
        module,
        [permute],
        lambda one: [
            body.instructions[name] for name in one.operands if name in body.instructions
        ],
    )
    return any(carried.get(name) == size for name in before)


def _only_moved(
    module: HloModule, start: list[Instruction], following: _Following
) -> set[str]:
    """What is reached from an instruction through ops that compute no new numbers."""
    seen, waiting = {one.name for one in start}, list(start)
    while waiting:
        for one in following(waiting.pop()):
            if one.name not in seen and _moves(module, one):
                seen.add(one.name)
                waiting.append(one)
    return seen


def _moves(module: HloModule, instruction: Instruction) -> bool:
    if instruction.opcode in _MOVING:
        return True
    if instruction.opcode != "fusion":
        return False
    fused = [module.computations.get(name) for name in instruction.called("calls")]
    return all(
        one is not None
        and all(
            inner.opcode in _MOVING
            or (inner.opcode in _INDEXING and (_is_index(inner) or inner.opcode in _PLAIN))
            for inner in one.instructions.values()
        )
        for one in fused
    )


#: Of any type: they compute nothing.
_PLAIN = frozenset({"broadcast", "constant", "iota", "parameter"})


def _is_index(instruction: Instruction) -> bool:
    """Whether it is of whole numbers or truth values, which say where something is."""
    return all(leaf.dtype[:1] in "sup" for leaf in instruction.shape.leaves)
