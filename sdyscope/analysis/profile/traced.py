"""The program that a trace has: read, and what it costs by the rates of what it ran on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sdyscope.analysis.collectives.slices import collectives_of
from sdyscope.analysis.cost.cost import Cost, Given, cost
from sdyscope.errors import SdyscopeError
from sdyscope.facts.compiled import Compiled
from sdyscope.facts.measured import OpTime, TracedProgram
from sdyscope.facts.work import Work
from sdyscope.hlo import HloModule, read_hlo
from sdyscope.values.mesh import Mesh


def traced_module(traced: TracedProgram) -> HloModule | None:
    """The program of a trace; None where the trace does not have it, or it can't be read."""
    if not traced.hlo:
        return None
    try:
        module = read_hlo(traced.hlo)
    except SdyscopeError:
        return None
    # The form in which it is kept leaves out for how many devices it is.
    partitions = {"num_partitions": str(traced.devices)}
    return replace(module, attributes={**module.attributes, **partitions})


def traced_cost(
    traced: TracedProgram,
    module: HloModule,
    mesh: Mesh | None,
    given: Given,
    compiled: Compiled | None = None,
) -> Cost:
    """What a step of the program that ran costs.

    Args:
        traced: what ran.
        module: its program, as ``traced_module`` reads it.
        mesh: the mesh whose axes are named; None where none is known.
        given: rates of its axes, arithmetic and memory; those of other axes are left out.
        compiled: a compile of the same program for the hardware that it ran on, which says where
            its devices stand; None where rates are all in ``given``.

    Raises:
        TargetError: there is neither a compile nor a rate.
    """
    if compiled is None:
        ran = Compiled(
            name=traced.name,
            partitioner=None,
            hardware=None,
            devices=traced.devices,
            device_kind="",
            hlo=traced.hlo,
        )
    else:
        # XLA's counts are of the program that was compiled, which may be another one.
        ran = replace(compiled, hlo=traced.hlo, cost=None, tags={}, notes=())
    meshes: Sequence[Mesh] = () if mesh is None else (mesh,)
    read = module, collectives_of(ran, module, meshes)
    return cost(ran, meshes, _of_mesh(given, mesh), read)


def _of_mesh(given: Given, mesh: Mesh | None) -> Given:
    """Rates of the axes that a mesh has."""
    shape = {} if mesh is None else mesh.shape
    return replace(
        given,
        bandwidths={axis: rate for axis, rate in given.bandwidths.items() if axis in shape},
        latencies={axis: time for axis, time in given.latencies.items() if axis in shape},
        fitted=given.fitted & shape.keys(),
    )


def known_work(op: OpTime) -> Work | None:
    """What one run of an op computes and moves, where it is one instruction of known work.

    Nothing is known of custom calls that are no matmuls, and of the start or end of something.
    """
    work = op.work
    if work is None or not (work.flops or work.bytes) or not op.count:
        return None
    if op.opcode == "custom-call" and not work.matmuls:
        return None
    return None if op.opcode.endswith(("-start", "-done", "-update")) else work
