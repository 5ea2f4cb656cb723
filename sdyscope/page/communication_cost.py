"""What a step is estimated to take, for the view of communication."""

from __future__ import annotations

from typing import Any

from sdyscope.analysis.cost.cost import Cost, cost_document
from sdyscope.errors import SdyscopeError
from sdyscope.hardware.names import parse_hardware
from sdyscope.inspection import Inspection
from sdyscope.page.document import Report


def estimates(report: Report, inspection: Inspection) -> dict[str, Any]:
    """Seconds by resource, mesh axis and kind, or why there are none.

    Args:
      report: the inspection as a document; says what was compiled for.
      inspection: the program.
    """
    try:
        hardware = parse_hardware(report.hardware) if report.hardware else None
        found = cost_document(inspection, hardware)
    except SdyscopeError as error:
        return {"unavailable": str(error)}
    return {"words": found.estimate, "programs": [_program(one) for one in found.programs]}


def _program(one: Cost) -> dict[str, Any]:
    return {
        "partitioner": one.partitioner,
        "deviceKind": one.device_kind,
        "chip": None if one.chip is None else one.chip.name,
        "limit": None if one.limit is None else one.limit.axis or one.limit.resource,
        "overlapped": one.overlapped,
        "sequential": one.sequential,
        "roofs": [
            {
                "name": roof.axis or roof.resource,
                "axis": bool(roof.axis),
                "seconds": roof.seconds,
                "over": [level.name for level in roof.levels or ()],
            }
            for roof in one.roofs
        ],
        "flops": one.compute.flops,
        "bytes": one.memory.bytes,
        "figures": [] if one.chip is None else list(one.chip.titles),
        "unknown": one.communication.unknown,
        "tensors": one.communication.tensors,
        "unknownTrips": one.work.unknown_trips,
    }
