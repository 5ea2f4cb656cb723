"""Loops that hand a value on to the next device along a mesh axis: the stages of a pipeline.

A pipeline of n stages and m microbatches takes n + m - 1 steps, and in n - 1 of them a stage has
nothing to do: a bubble of (n - 1) / (n + m - 1). That is GPipe's (Huang et al., 2018, arXiv
1811.06965), and with one microbatch that of a pipeline without any. The backward pass, which takes
about twice as long, has as many steps and so the same ratio.

What is looked for is a loop whose carried value is moved one device on, all of it, in every trip,
and computed on one side of that. Whether a stage computes something of use in a step can't be seen
in the program: n is the size of the axis and n + m - 1 the trips of the loop. Nor can it how often
a microbatch passes: where m / 2 pass twice, in a circular pipeline (Narayanan et al., 2021, arXiv
2104.04473), there are as many trips and the same bubble. Where values go both ways, one forward
and one backward as in 1F1B (Narayanan et al., 2019, arXiv 1806.03377), the loop has m + 2 (n - 1)
trips, of which n - 1 at each end are half as long or shorter: the same bubble. A
ring of n trips, such as ring attention's, is none. Of two stages with several values that are
handed on nothing is said: there both ways are the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from sdyscope.analysis.collectives.axes import axes_of_pairs
from sdyscope.facts.cost import Pipeline
from sdyscope.hlo import HloModule
from sdyscope.hlo.loops import trip_count
from sdyscope.hlo.model import Computation, Instruction
from sdyscope.values.mesh import Mesh
from sdyscope.values.passing import FORMS, opcodes
from sdyscope.walk import reached

_PAIR = re.compile(r"\{(\d+),(\d+)\}")

#: What moves numbers without making others of them.
_MOVING = frozenset(
    {
        *opcodes(*FORMS, "part"),
        *("collective-permute", "collective-permute-done", "collective-permute-start"),
        *("concatenate", "dynamic-update-slice", "get-tuple-element", "pad", "select", "tuple"),
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


def pipelines(module: HloModule, mesh: Mesh | None) -> tuple[Pipeline, ...]:
    """The loops of a partitioned program that can be pipelines; a forward and its backward once."""
    if mesh is None:
        return ()
    largest: dict[tuple[str, int], Pipeline] = {}
    for computation in module.computations.values():
        for loop in computation.instructions.values():
            if loop.opcode != "while":
                continue
            trips = trip_count(module, computation, loop)
            if trips is None:
                continue
            for body in module.called(loop, "body"):
                for pipeline in _of_loop(module, body, trips, mesh):
                    known = largest.get((pipeline.axis, pipeline.trips))
                    if known is None or known.bytes < pipeline.bytes:
                        largest[pipeline.axis, pipeline.trips] = pipeline
    return tuple(sorted(largest.values(), key=lambda pipeline: -pipeline.bytes))


def _of_loop(module: HloModule, body: Computation, trips: int, mesh: Mesh) -> Iterator[Pipeline]:
    """Of each axis along which a loop hands values on, the pipeline that it may be."""
    by_axis: dict[str, list[tuple[int, Instruction]]] = {}
    for axis, direction, instruction in _handed_on(module, body, mesh):
        by_axis.setdefault(axis, []).append((direction, instruction))
    for axis, handed in by_axis.items():
        if mesh.shape[axis] == 2 and len(handed) > 1:
            continue  # Of two devices each is before and behind the other: the ways are not known.
        largest = max((instruction for _, instruction in handed), key=_size)
        both_ways = len({direction for direction, _ in handed}) > 1
        source = module.source(largest)
        pipeline = Pipeline(axis, mesh.shape[axis], trips, both_ways, _size(largest), source)
        if pipeline.microbatches > 1:
            yield pipeline


def _size(permute: Instruction) -> int:
    return permute.shape.leaves[0].bytes


def _handed_on(
    module: HloModule, body: Computation, mesh: Mesh
) -> Iterator[tuple[str, int, Instruction]]:
    """What a loop's body hands on along an axis, in which of the two directions."""
    carried = _carried(body)
    for instruction in body.instructions.values():
        if instruction.opcode not in ("collective-permute", "collective-permute-start"):
            continue
        pairs = [
            (int(source), int(target))
            for source, target in _PAIR.findall(
                instruction.attributes.get("source_target_pairs", "")
            )
        ]
        along = _next_along(pairs, mesh)
        if along is None or _size(instruction) not in carried.values():
            continue
        if _computed_on_one_side(module, body, instruction, carried):
            yield (*along, instruction)


def _next_along(pairs: list[tuple[int, int]], mesh: Mesh) -> tuple[str, int] | None:
    """The axis along which each device sends to its neighbour, and the direction; None else."""
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
    if size < 2 or len(turns) != 1 or not turns <= {1, size - 1}:
        return None
    return name, turns.pop()


def _carried(body: Computation) -> Mapping[str, int]:
    """Bytes of what a loop carries, by the instruction that takes it out of the loop's tuple."""
    parameters = {
        name for name, instruction in body.instructions.items() if instruction.opcode == "parameter"
    }
    return {
        name: instruction.shape.bytes
        for name, instruction in body.instructions.items()
        if instruction.opcode == "get-tuple-element"
        and parameters.intersection(instruction.operands)
    }


def _computed_on_one_side(
    module: HloModule,
    body: Computation,
    permute: Instruction,
    carried: Mapping[str, int],
) -> bool:
    """Whether a value is only moved between the permutation and what the loop carries, on one side.

    What is only moved on both sides is a conveyor, that brings stages their microbatches.
    """
    root = None if body.root is None else body.root.name
    after = _only_moved(module, body, permute.name, lambda each: body.users.get(each.name, ()))
    before = _only_moved(
        module,
        body,
        permute.name,
        lambda instruction: [
            body.instructions[name] for name in instruction.operands if name in body.instructions
        ],
    )
    return (root in after) != any(name in carried for name in before)


def _only_moved(
    module: HloModule,
    body: Computation,
    start: str,
    following: Callable[[Instruction], Iterable[Instruction]],
) -> set[str]:
    """What is reached from an instruction through ops that compute no new numbers."""

    def moved(name: str) -> Iterable[str]:
        others = following(body.instructions[name])
        return (other.name for other in others if _moves(module, other))

    return {*reached([start], moved)}


def _moves(module: HloModule, instruction: Instruction) -> bool:
    if instruction.opcode in _MOVING:
        return True
    if instruction.opcode != "fusion":
        return False
    return all(
        inner.opcode in _MOVING
        or (inner.opcode in _INDEXING and (_is_index(inner) or inner.opcode in _PLAIN))
        for computation in module.called(instruction, "calls")
        for inner in computation.instructions.values()
    )


#: Of any type: they compute nothing.
_PLAIN = frozenset({"broadcast", "constant", "iota", "parameter"})


def _is_index(instruction: Instruction) -> bool:
    """Whether it is of whole numbers or truth values, which say where something is."""
    return all(leaf.dtype[:1] in "sup" for leaf in instruction.shape.leaves)
